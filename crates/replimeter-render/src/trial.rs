//! The report of a trial.

use replimeter_model::{
    compare::Better,
    trial::{TrialDocument, TrialFigure, TrialInterim, TrialOutcome, TrialPair},
};

use crate::{
    compare::{amount, change, settings},
    figures::count,
    format::Format,
    report::{Block, Cell, Report, Table},
};

/// Returns what was found, in two sentences at most.
#[must_use]
pub fn headline(document: &TrialDocument) -> String {
    let Some(primary) = &document.primary else {
        return "No pair counts.".to_owned();
    };
    let name = &primary.figure;
    let pairs = count(u64::from(primary.pairs));
    let ratio = change(&primary.ratio);
    let after = format!("after {pairs} of at most {} pairs", document.max_pairs);
    let finding = match document.outcome {
        TrialOutcome::Higher | TrialOutcome::Lower => {
            let meaning = match (primary.better, document.is_worse()) {
                (Better::Neither, _) => "differs",
                (_, true) => "is worse",
                (_, false) => "is better",
            };
            format!("{name} {meaning} in B: {ratio} of A, {after}.")
        }
        TrialOutcome::Equal => format!(
            "{name} is equal within {} %: B is {ratio} of A, {after}.",
            document.equal_within_percent
        ),
        TrialOutcome::Open => format!("{name}: no difference shown, {ratio} of A {after}."),
    };
    let differing = document.others.iter().filter(|one| one.differs).count();
    match differing {
        0 => finding,
        1 => format!("{finding} One other figure differs."),
        many => format!("{finding} {many} other figures differ."),
    }
}

fn full(figure: &TrialFigure) -> String {
    let of: Vec<&str> = figure.of.iter().map(|one| one.value.as_str()).collect();
    match of.is_empty() {
        true => figure.figure.clone(),
        false => format!("{} of {}", figure.figure, of.join(" ")),
    }
}

fn figures(figures: &[&TrialFigure]) -> Table {
    Table::of(
        1,
        figures,
        &[
            ("figure", &|one| Cell::from(full(one))),
            ("A", &|one| amount(one.unit, one.a).into()),
            ("B", &|one| amount(one.unit, one.b).into()),
            ("B / A", &|one| change(&one.ratio).into()),
            ("pairs", &|one| count(u64::from(one.pairs)).into()),
            ("differs", &|one| {
                if one.differs { "yes" } else { "not shown" }.into()
            }),
        ],
    )
    .with_text_column(5)
}

fn interim(all: &[TrialInterim]) -> Table {
    Table::of(
        0,
        all,
        &[
            ("pairs", &|one: &&TrialInterim| {
                Cell::from(count(u64::from(one.pairs)))
            }),
            ("B / A", &|one| change(&one.ratio).into()),
            ("p", &|one| Format::Decimals(4).cell(Some(one.p_value))),
        ],
    )
}

fn pairs(document: &TrialDocument) -> Table {
    let unit = document.primary.as_ref().map(|one| one.unit);
    let shown = |value: Option<f64>| match (unit, value) {
        (Some(unit), Some(value)) => amount(unit, value),
        _ => "–".to_owned(),
    };
    let table = Table::of(
        0,
        &document.pairs,
        &[
            ("pair", &|one: &&TrialPair| {
                Cell::from(count(u64::from(one.number)))
            }),
            ("first", &|one| one.first.to_uppercase().into()),
            ("A", &|one| shown(one.a).into()),
            ("B", &|one| shown(one.b).into()),
            ("lost", &|one| {
                Cell::Long(one.lost.clone().unwrap_or_default())
            }),
        ],
    );
    table.with_text_column(1).with_text_column(4)
}

fn method(document: &TrialDocument) -> Vec<String> {
    let unit = match document.restarts {
        true => "one start of the servers of each side, back to back in random order",
        false => {
            "one run of each side, back to back in random order, without restart of the servers"
        }
    };
    let mut sentences = vec![
        format!(
            "A pair is {unit}: a slow minute of the machine slows both. Its value is the difference of the logarithms."
        ),
        format!(
            "After every ten pairs Student's t of the differences is tested, each time at p < {}, so that at most 5 % of trials without a difference show \
             one at any time (Pocock 1977, by simulation). Brackets are intervals of that level.",
            document.level
        ),
    ];
    sentences.push(format!(
        "The trial also ends when that interval lies within {} %.",
        document.equal_within_percent
    ));
    sentences.push(
        "The first figure decides; of several replicas it is their geometric mean. The others are tested only if it differs, together at the same level (Holm 1979)."
            .to_owned(),
    );
    sentences
}

/// Returns the report of a trial.
#[must_use]
pub fn report(document: &TrialDocument) -> Report {
    let lost = document.lost().count();
    let mut report = Report {
        command: "trial",
        question: "Trial of A and B",
        shape: document.command.clone(),
        facts: vec![document.command.clone()],
        extent: format!("{} pairs, {lost} lost", count(document.pairs.len() as u64)),
        started_at: document.started_at.clone(),
        answer: document.headline.clone(),
        error: document.error.clone(),
        warnings: document.warnings.clone(),
        how: method(document),
        several: true,
        ..Report::default()
    };
    let side = |name: &str, side: &replimeter_model::trial::TrialSide| {
        format!("{name}: {} ({})", side.shape, side.plan)
    };
    let sides = vec![side("A", &document.a), side("B", &document.b)];
    report.add(Block::list("sides", "Plans", sides));
    report.add(Block::table(
        "settings",
        "Differences in settings and environment",
        settings(&document.differs),
    ));
    let primary = Vec::from_iter(&document.primary);
    report.add(Block::table(
        "decision",
        "The figure that decides",
        figures(&primary),
    ));
    report.add(Block::table(
        "interim",
        "Results after every ten pairs",
        interim(&document.interim),
    ));
    let others = Vec::from_iter(&document.others);
    report.add(Block::table("figures", "Other figures", figures(&others)));
    let all = Block::table("pairs", "Pairs", pairs(document));
    report.add(Block {
        collapsed: true,
        ..all
    });
    report
}

#[cfg(test)]
mod tests {
    use replimeter_model::{compare::Quantity, estimate::Estimate};

    use super::*;

    fn document(outcome: TrialOutcome, better: Better) -> TrialDocument {
        TrialDocument {
            outcome,
            max_pairs: 100,
            equal_within_percent: 20.0,
            primary: Some(TrialFigure {
                figure: "lag.from_send.p50".to_owned(),
                unit: Quantity::Us,
                better,
                pairs: 20,
                a: 300.0,
                b: 360.0,
                ratio: Estimate {
                    value: Some(1.2),
                    ci95: Some([1.1, 1.3]).into(),
                },
                ..TrialFigure::default()
            }),
            ..TrialDocument::default()
        }
    }

    #[test]
    fn headline_says_what_was_shown() {
        let said = |outcome, better| headline(&document(outcome, better));
        let worse = said(TrialOutcome::Higher, Better::Lower);
        assert_eq!(
            worse,
            "lag.from_send.p50 is worse in B: +20 % [+10, +30] of A, after 20 of at most 100 pairs."
        );
        assert!(said(TrialOutcome::Higher, Better::Higher).contains("is better in B"));
        assert!(said(TrialOutcome::Lower, Better::Neither).contains("differs in B"));
        assert!(said(TrialOutcome::Equal, Better::Lower).contains("equal within 20 %"));
        assert!(said(TrialOutcome::Open, Better::Lower).contains("no difference shown"));
        assert_eq!(headline(&TrialDocument::default()), "No pair counts.");
    }
}
