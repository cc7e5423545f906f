//! The report of a comparison.

mod figure;

use std::fmt::Write as _;

use replimeter_model::compare::{
    Basis, Change, CompareDocument, CompareRow, CompareSide, Condition, FailWhen, Outcome,
    SettingDifference,
};

pub(crate) use self::figure::change;
pub use self::figure::{amount, equal_runs, percent, verdict};
use self::figure::{detectable_difference, difference, is_insensitive, meaning, size_of};
use crate::{
    figures::{count, rate},
    format::{Format, number},
    report::{Block, Cell, Report, Table},
};

/// Maximum number of less important settings shown in outputs without charts.
const FEW: usize = 8;

/// Returns a figure's name with its row.
fn full(row: &CompareRow) -> String {
    if row.label.is_empty() {
        row.figure.clone()
    } else {
        format!("{} of {}", row.figure, row.label)
    }
}

/// Returns the headline in a few sentences.
#[must_use]
pub fn answer(document: &CompareDocument) -> String {
    let differing =
        |row: &&CompareRow| matches!(row.change, Change::Higher | Change::Lower | Change::Differs);
    let mut found: Vec<&CompareRow> = document.results.iter().filter(differing).collect();
    let judged = document
        .results
        .iter()
        .filter(|row| row.change != Change::Unknown)
        .count();
    let mut out = String::new();
    let lost = |condition: &&Condition| document.fails(condition);
    let failed = document.conditions.iter().filter(lost).count();
    let open = document.conditions.iter();
    let open = open
        .filter(|one| one.outcome == Outcome::Inconclusive && !lost(one))
        .count();
    let all = number(document.conditions.len() as u64, "condition");
    for (count, what) in [(failed, "failed"), (open, "inconclusive")] {
        if count > 0 {
            let _ = write!(out, "{count} of {all} {what}. ");
        }
    }
    if judged == 0 {
        out.push_str(match document.basis {
            Basis::WithinRuns if document.servers_ran() => {
                "Inconclusive: runs of servers that ran already show a difference only if five or more a side alternate."
            }
            _ => "Inconclusive: no figure has an interval on both sides.",
        });
    } else if found.is_empty() {
        let _ = write!(
            out,
            "No difference shown between A and B in {judged} figures."
        );
        let not_shown = document
            .results
            .iter()
            .filter(|row| row.change == Change::NotShown);
        if let Some((row, seen)) = not_shown
            .filter(|row| !is_insensitive(row))
            .find_map(|row| Some((row, detectable_difference(row)?)))
        {
            let _ = write!(out, " Of {}, {seen}.", full(row));
        }
    } else {
        let size = |row: &CompareRow| row.ratio.value.map_or(0.0, |ratio| ratio.ln().abs());
        // The most significant first, then the largest.
        found.sort_by(|one, other| {
            let rank = |row: &CompareRow| row.p_adjusted.unwrap_or(1.0).max(1e-9);
            rank(one)
                .total_cmp(&rank(other))
                .then(size(other).total_cmp(&size(one)))
        });
        let what = match document.basis {
            Basis::AlternatingRuns => "figures differ",
            Basis::KnownSpread => {
                "figures differ more than runs of equal settings do, cause unknown"
            }
            Basis::WithinRuns => {
                "figures differ between these runs, which did not alternate: cause unknown"
            }
        };
        let _ = write!(out, "{} of {judged} {what}", found.len());
        let sentences: Vec<String> = found
            .iter()
            .take(3)
            .map(|row| format!("{} is {} in B{}", full(row), size_of(row), meaning(row)))
            .collect();
        let _ = write!(
            out,
            ": {}. Intervals are {:.0} %.",
            sentences.join("; "),
            document.level * 100.0
        );
    }
    match document.differs.len() {
        0 => out.push_str(" No setting differs."),
        1 => out.push_str(" One setting differs, listed first."),
        many => _ = write!(out, " {many} settings differ, listed first."),
    }
    out
}

/// Returns the table of figures.
fn figures_of(document: &CompareDocument) -> Table {
    let p = |p: f64| match p {
        p if p < 0.001 => Cell::from("<0.001"),
        p => Format::Decimals(3).cell(Some(p)),
    };
    let table = Table::of(
        2,
        &document.results,
        &[
            ("figure", &|row| Cell::from(&row.figure)),
            ("of", &|row| (&row.label).into()),
            ("A", &|row| amount(row.unit, row.a.value).into()),
            ("B", &|row| amount(row.unit, row.b.value).into()),
            ("B − A", &|row| {
                difference(row.unit, &row.difference).into()
            }),
            ("B / A", &|row| change(&row.ratio).into()),
            ("p", &|row| row.p_adjusted.map(p).into()),
            ("verdict", &|row| (&row.verdict).into()),
        ],
    );
    let mut table = table.with_text_column(7);
    if document.results.iter().all(|row| row.label.is_empty()) {
        table.columns.remove(1);
        table.rows.iter_mut().for_each(|row| _ = row.remove(1));
    }
    table
}

/// Returns the table of settings, the important ones first.
pub(crate) fn settings(differs: &[SettingDifference]) -> Table {
    let (deciding, others): (Vec<_>, Vec<_>) = differs
        .iter()
        .partition(|setting| setting.kind != "other variable");
    let most = Some(deciding.len() + FEW);
    let table = Table::of(
        4,
        deciding.into_iter().chain(others),
        &[
            ("kind", &|one| Cell::from(&one.kind)),
            ("name", &|one| (&one.name).into()),
            ("A", &|one| Cell::Long(one.a.clone())),
            ("B", &|one| Cell::Long(one.b.clone())),
        ],
    );
    Table { most, ..table }
}

/// Returns the table of conditions.
fn conditions(document: &CompareDocument) -> Table {
    Table::of(
        3,
        &document.conditions,
        &[
            ("condition", &|one| one.condition.clone()),
            ("figure", &|one| one.label.clone()),
            ("outcome", &|one| one.verdict.clone()),
        ],
    )
}

/// Returns a side's runs as text.
fn side(name: &str, side: &CompareSide) -> String {
    let mut shapes: Vec<&str> = side.runs.iter().map(|run| run.shape.as_str()).collect();
    shapes.dedup();
    let dirs: Vec<&str> = side.runs.iter().map(|run| run.run_dir.as_str()).collect();
    let many = if dirs.len() == 1 {
        String::new()
    } else {
        format!("{} runs, ", dirs.len())
    };
    format!("{name}: {many}{} ({})", shapes.join(", "), dirs.join(", "))
}

/// Returns the description of the method.
fn sentences(document: &CompareDocument) -> Vec<String> {
    let mut sentences = vec![
        format!(
            "Each figure of each run was resampled {} times: samples in time order by blocks, since neighboring samples are correlated (blocks \
             are {} times as long as Politis & White's rule suggests for each figure, and at least the cube root of the number of \
             samples); starts, crashes and blocks of a run individually; figures recorded with an interval by that interval.",
            count(document.resamples),
            replimeter_stats::compare::LONGER
        ),
        format!(
            "Brackets are {:.0} % intervals of B less A and of B over A, from the intervals of both sides (Zou & Donner 2008), widened for few blocks or runs by \
             Student's t-distribution.",
            document.level * 100.0
        ),
        format!(
            "p is corrected for the {} figures that have one (Holm 1979){}",
            document.corrected_for,
            match document.basis {
                Basis::WithinRuns => ".",
                Basis::AlternatingRuns | Basis::KnownSpread =>
                    ": if nothing differs, at most 5 % of comparisons show any difference.",
            }
        ),
        "Where there is a ratio, the verdict follows it, since it is more exact for times and rates; the interval of the difference \
         can disagree."
            .to_owned(),
        "\"Would have been detected\": four of five such comparisons would show a difference of this size.".to_owned(),
    ];
    let lengths = document
        .results
        .iter()
        .flat_map(|row| [&row.a, &row.b])
        .filter(|side| side.blocks > 0 && side.block_length > 1.0);
    let lengths: Vec<f64> = lengths.map(|side| side.block_length).collect();
    if let (Some(low), Some(high)) = (
        lengths.iter().copied().reduce(f64::min),
        lengths.iter().copied().reduce(f64::max),
    ) {
        sentences.push(format!(
            "Blocks were {} to {} samples long.",
            rate(low, 0.0),
            rate(high, 0.0)
        ));
    }
    let mut figures = document.results.iter().flat_map(|row| [&row.a, &row.b]);
    let starts = figures.any(|side| side.starts > 1);
    if starts {
        sentences.push(
            "Of fresh starts of servers, each gives one value, and the figure is their geometric mean (arithmetic if one is not positive); its \
             interval is Student's, between the starts of a run."
                .to_owned(),
        );
    }
    sentences.push(match document.basis {
        Basis::AlternatingRuns => {
            "The runs of both sides alternated, so each of them is a unit: it gives one value, the figure is their geometric mean (arithmetic if one \
             is not positive), and its interval is Student's, between the runs."
                .to_owned()
        }
        Basis::KnownSpread => format!(
            "The runs did not alternate. A difference is judged by how much {} runs of equal settings differ: each side counts as one run, since runs one \
             after another share their minutes of the machine.",
            document.known_from
        ),
        Basis::WithinRuns => {
            "The runs did not alternate, and how much runs of equal settings differ is not known: intervals cover what varied within the runs, not what \
             other minutes of the machine change, so a difference has no known cause, and changes from A to B prove no condition."
                .to_owned()
        }
    });
    if !document.conditions.is_empty() {
        let when = match document.fail_when {
            FailWhen::Proven => "when the whole interval is beyond the limit",
            FailWhen::Estimated => {
                "when the figure itself is beyond the limit, regardless of its interval"
            }
            FailWhen::Possible => "unless the whole interval is within the limit",
        };
        let hold = match document.conditions.len() {
            1 => "its interval has a confidence level of".to_owned(),
            many => {
                format!("the intervals of the {many} conditions have a joint confidence level of")
            }
        };
        sentences.push(format!(
            "A condition fails {when}; {hold} {:.0} %.",
            document.level * 100.0
        ));
    }
    sentences
}

/// Returns the figures of one side alone, as text.
fn only_on(document: &CompareDocument) -> Vec<String> {
    let of = document.only_on.iter();
    of.map(|one| {
        format!(
            "{} figures of {} are only on {}.",
            count(one.figures),
            one.of,
            one.side.to_uppercase()
        )
    })
    .collect()
}

/// Returns the report of a comparison.
#[must_use]
pub fn report(document: &CompareDocument) -> Report {
    let figures = count(document.results.len() as u64);
    let mut report = Report {
        command: "compare",
        question: "Comparison of A and B",
        shape: document.command.clone(),
        facts: vec![document.command.clone()],
        extent: format!("{} runs, {figures} figures", document.runs()),
        started_at: document.compared_at.clone(),
        answer: document.headline.clone(),
        warnings: document.warnings.clone(),
        how: sentences(document),
        several: true,
        ..Report::default()
    };
    let sides = vec![side("A", &document.a), side("B", &document.b)];
    report.add(Block::list("sides", "Compared runs", sides));
    report.add(Block::table(
        "settings",
        "Differences in settings and environment",
        settings(&document.differs),
    ));
    report.add(Block::table(
        "varies",
        "Differences between the runs of one side",
        settings(&document.varies),
    ));
    let title = format!("Figures, with {:.0} % intervals", document.level * 100.0);
    report.add(Block::table("figures", title, figures_of(document)).with_notes(only_on(document)));
    report.add(Block::table(
        "conditions",
        "Conditions",
        conditions(document),
    ));
    report
}

#[cfg(test)]
pub(crate) mod tests {
    use replimeter_model::{
        compare::{Better, Quantity, SideFigure},
        estimate::Estimate,
    };

    use super::*;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate {
            value: Some(value),
            ci95: [Some(low), Some(high)].into(),
        }
    }

    pub(crate) fn example() -> CompareDocument {
        let side = |value: f64| SideFigure {
            value,
            ci95: [Some(value * 0.97), Some(value * 1.03)].into(),
            ..SideFigure::default()
        };
        let mut slower = CompareRow {
            figure: "lag.p99".to_owned(),
            label: "replica1".to_owned(),
            a: side(1000.0),
            b: side(1120.0),
            difference: estimate(120.0, 40.0, 210.0),
            ratio: estimate(1.12, 1.04, 1.21),
            p_value: Some(0.001),
            p_adjusted: Some(0.002),
            change: Change::Higher,
            ..CompareRow::default()
        };
        slower.verdict = verdict(&slower, 2);
        let mut same = CompareRow {
            figure: "lag.p50".to_owned(),
            label: "<script>".to_owned(),
            difference: estimate(1.0, -4.0, 6.0),
            ratio: estimate(1.01, 0.97, 1.04),
            p_value: Some(0.5),
            p_adjusted: Some(0.5),
            seen_from: Some(5.0),
            seen_from_percent: Some(5.0),
            change: Change::NotShown,
            ..slower.clone()
        };
        same.verdict = verdict(&same, 2);
        let mut document = CompareDocument {
            command: "lag".to_owned(),
            basis: Basis::AlternatingRuns,
            results: vec![slower, same],
            differs: vec![SettingDifference {
                kind: "variable".to_owned(),
                name: "sync_binlog".to_owned(),
                a: "0".to_owned(),
                b: "1".to_owned(),
            }],
            corrected_for: 2,
            level: 0.95,
            resamples: 2000,
            ..CompareDocument::default()
        };
        document.headline = answer(&document);
        document
    }

    #[test]
    fn verdicts_state_amount_and_confidence() {
        let document = example();
        assert_eq!(
            document.results[0].verdict,
            "p99 is 12 % higher [4.0, 21]: slower"
        );
        assert_eq!(
            document.results[1].verdict,
            "no difference shown; one of 5.0 % would have been detected"
        );
        let unseen = |unit, percent: Option<f64>, from: f64| {
            let row = CompareRow {
                unit,
                seen_from: Some(from),
                seen_from_percent: percent,
                ..document.results[1].clone()
            };
            verdict(
                &CompareRow {
                    a: SideFigure {
                        value: 50.0,
                        ..SideFigure::default()
                    },
                    ..row
                },
                1,
            )
        };
        assert!(
            unseen(Quantity::Us, Some(300.0), 150.0)
                .ends_with("300 % more or 75 % less would have been detected")
        );
        assert!(
            unseen(Quantity::Us, Some(1e12), 5e11)
                .ends_with("only a change of more than tenfold would have been detected")
        );
        assert!(
            unseen(Quantity::Us, None, 501.0)
                .ends_with("only a change of more than tenfold would have been detected")
        );
        assert!(
            unseen(Quantity::Percent, None, 30.0)
                .ends_with("one of 30.0 percentage points would have been detected")
        );
        assert!(
            unseen(Quantity::Percent, None, 101.5)
                .ends_with("even a change to all or none might not have been detected")
        );
        let less = CompareRow {
            change: Change::Lower,
            better: Better::Higher,
            unit: Quantity::PerS,
            figure: "cost.throughput".to_owned(),
            difference: estimate(-80.0, -120.0, -40.0),
            ratio: estimate(0.92, 0.88, 0.96),
            ..CompareRow::default()
        };
        assert_eq!(
            verdict(&less, 1),
            "throughput is 8.0 % lower [4.0, 12]: worse"
        );
        let points = CompareRow {
            change: Change::Higher,
            unit: Quantity::Percent,
            figure: "stale.percent".to_owned(),
            difference: estimate(2.0, 0.5, 3.5),
            ..CompareRow::default()
        };
        assert_eq!(
            verdict(&points, 1),
            "percent is 2.00 percentage points higher [0.50, 3.50]: worse"
        );
    }

    #[test]
    fn comparison_text_lists_settings_first() {
        let text = crate::terminal::render(&report(&example()));
        let place = |wanted: &str| {
            text.find(wanted)
                .unwrap_or_else(|| panic!("`{wanted}` is missing in {text}"))
        };
        assert!(place("sync_binlog") < place("p99 is 12 % higher"));
        assert!(
            place(
                "1 of 2 figures differ: lag.p99 of replica1 is 12 % higher [4.0, 21] in B: slower."
            ) > 0
        );
    }
}
