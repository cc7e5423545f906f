//! What a comparison tells people.

use std::fmt::Write as _;

use replimeter_model::{
    compare::{
        Better, Change, CompareDocument, CompareRow, CompareSide, Condition, FailWhen, Outcome,
        Quantity, SettingDifference, SideFigure,
    },
    estimate::Estimate,
};

use crate::{
    figures::{Unit, count, rate},
    terminal::{aligned, plain_table, warnings, wrapped},
};

/// The columns of the figures.
pub(crate) const HEADINGS: [&str; 8] = ["figure", "of", "A", "B", "B − A", "B / A", "p", "verdict"];
/// The columns of the settings.
pub(crate) const SETTING_HEADINGS: [&str; 4] = ["what", "name", "A", "B"];
/// The columns of the conditions.
pub(crate) const CONDITION_HEADINGS: [&str; 3] = ["condition", "figure", "outcome"];
/// So many settings that decide little are shown at a terminal.
const FEW: usize = 8;
/// So long may a setting's value be there.
const LONG: usize = 60;

/// A number of a figure with its unit.
#[must_use]
pub fn amount(unit: Quantity, value: f64) -> String {
    with_unit(unit, value, value)
}

/// The number in the unit that suits a number of about this size.
fn with_unit(unit: Quantity, value: f64, size: f64) -> String {
    format!("{}{}", bare(unit, value, size), symbol(unit, size))
}

/// The symbol behind a number of about this size.
fn symbol(unit: Quantity, size: f64) -> String {
    match unit {
        Quantity::Us => format!(" {}", Unit::for_size(size).symbol()),
        Quantity::PerS => "/s".to_owned(),
        Quantity::Percent => " %".to_owned(),
        Quantity::Count => String::new(),
        Quantity::Bytes => " B".to_owned(),
    }
}

/// The number alone.
fn bare(unit: Quantity, value: f64, size: f64) -> String {
    match unit {
        Quantity::Us => Unit::for_size(size).show(value),
        Quantity::Percent => format!("{value:.*}", decimals(size)),
        _ if size.abs() < 100.0 && value.fract() != 0.0 => format!("{value:.*}", decimals(size)),
        _ => rate(value, 0.0),
    }
}

/// Decimals of about three digits.
fn decimals(size: f64) -> usize {
    match size.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    }
}

/// A change in percent, with its sign.
#[must_use]
pub fn percent(value: f64) -> String {
    format!("{}{} %", sign(value), percent_digits(value))
}

fn percent_digits(value: f64) -> String {
    match value.abs() {
        size if size.is_infinite() => "∞".to_owned(),
        size if size >= 9.95 => rate(size, 0.0),
        size => format!("{size:.1}"),
    }
}

fn sign(value: f64) -> &'static str {
    if value > 0.0 {
        "+"
    } else if value < 0.0 {
        "−"
    } else {
        ""
    }
}

/// A difference with its sign and its interval.
fn difference(unit: Quantity, estimate: &Estimate) -> String {
    let Some(value) = estimate.value else {
        return "–".to_owned();
    };
    let signed =
        |number: f64, size: f64| format!("{}{}", sign(number), bare(unit, number.abs(), size));
    let symbol = |size: f64| {
        if unit == Quantity::Percent {
            " pp".to_owned()
        } else {
            symbol(unit, size)
        }
    };
    match estimate.ends() {
        Some([low, high]) => {
            let size = value.abs().max(low.abs()).max(high.abs());
            format!(
                "{}{} [{}, {}]",
                signed(value, size),
                symbol(size),
                signed(low, size),
                signed(high, size)
            )
        }
        None => format!("{}{}", signed(value, value.abs()), symbol(value.abs())),
    }
}

/// What a ratio is more or less than 1, with its interval.
fn change(ratio: &Estimate) -> String {
    let Some(value) = ratio.value else {
        return "–".to_owned();
    };
    let of = |ratio: f64| (ratio - 1.0) * 100.0;
    let ends = ratio.ends().map_or_else(String::new, |[low, high]| {
        let shown = |end: f64| format!("{}{}", sign(of(end)), percent_digits(of(end)));
        format!(" [{}, {}]", shown(low), shown(high))
    });
    format!("{}{ends}", percent(of(value)))
}

/// The figure's name without its command's.
fn short(figure: &str) -> &str {
    figure.split_once('.').map_or(figure, |(_, rest)| rest)
}

/// How large a difference is, without its sign: `12 % higher [4, 21]`.
fn size_of(row: &CompareRow) -> String {
    let up = row.difference.value.unwrap_or(0.0) > 0.0;
    let word = if up { "higher" } else { "lower" };
    // The smaller end first, whichever way it goes.
    let ordered = |[low, high]: [f64; 2]| if up { [low, high] } else { [-high, -low] };
    if let Some(ratio) = row.ratio.value {
        let of = |ratio: f64| (ratio - 1.0) * 100.0;
        let ends = row.ratio.ends().map_or_else(String::new, |ends| {
            let [low, high] = ordered(ends.map(of)).map(|end| {
                let sign = if end < 0.0 { "−" } else { "" };
                format!("{sign}{}", percent_digits(end))
            });
            format!(" [{low}, {high}]")
        });
        return format!("{} % {word}{ends}", percent_digits(of(ratio)));
    }
    let value = row.difference.value.unwrap_or(0.0).abs();
    let size = row
        .difference
        .ends()
        .map_or(value, |[low, high]| low.abs().max(high.abs()).max(value));
    let symbol = if row.unit == Quantity::Percent {
        " percentage points".to_owned()
    } else {
        symbol(row.unit, size)
    };
    let ends = row.difference.ends().map_or_else(String::new, |ends| {
        let [low, high] = ordered(ends).map(|end| bare(row.unit, end, size));
        format!(" [{low}, {high}]")
    });
    format!("{}{symbol} {word}{ends}", bare(row.unit, value, size))
}

/// What a change means; empty where it means neither good nor bad.
fn meaning(row: &CompareRow) -> &'static str {
    let higher = row.change == Change::Higher;
    match (row.better, row.unit) {
        (Better::Neither, _) => "",
        (Better::Lower, Quantity::Us) if higher => ": slower",
        (Better::Lower, Quantity::Us) => ": faster",
        (Better::Lower, _) if higher => ": worse",
        (Better::Lower, _) => ": better",
        (Better::Higher, _) if higher => ": better",
        (Better::Higher, _) => ": worse",
    }
}

fn unknown(side: &str, figure: &SideFigure) -> Option<String> {
    if figure.low.is_some() {
        return None;
    }
    Some(if figure.short {
        format!("{side} is too short for how long its samples depend on one another")
    } else if figure.runs == 1 && figure.samples <= 1 {
        format!("{side} has it once only")
    } else {
        format!("{side} has no interval of it")
    })
}

/// Times as much, or as little, beyond which no number is put on what would have been seen.
const ABSURD: f64 = 10.0;

/// Whether no change of a sensible size would have been seen.
fn blind(row: &CompareRow) -> bool {
    match (row.seen_from_percent, row.seen_from) {
        (Some(percent), _) => percent > (ABSURD - 1.0) * 100.0,
        (None, Some(from)) if row.unit == Quantity::Percent => {
            from > row.a.value && from > 100.0 - row.a.value
        }
        (None, Some(from)) => row.a.value != 0.0 && from > (ABSURD - 1.0) * row.a.value.abs(),
        (None, None) => true,
    }
}

/// What difference would have been seen; `None` where that is not known.
fn seen(row: &CompareRow) -> Option<String> {
    let (percent, from) = (row.seen_from_percent, row.seen_from?);
    Some(match percent {
        _ if blind(row) && row.unit == Quantity::Percent => {
            "not even all or none would have been seen for sure".to_owned()
        }
        _ if blind(row) => "only a change of more than tenfold would have been seen".to_owned(),
        Some(percent) if percent < 10.0 => {
            format!("one of {} % would have been seen", percent_digits(percent))
        }
        // So much more is as far as so much less, on the scale of ratios.
        Some(percent) => format!(
            "{} % more or {} % less would have been seen",
            percent_digits(percent),
            percent_digits(percent / (1.0 + percent / 100.0))
        ),
        None if row.unit == Quantity::Percent => {
            format!(
                "one of {} percentage points would have been seen",
                bare(row.unit, from, from)
            )
        }
        None => format!("one of {} would have been seen", amount(row.unit, from)),
    })
}

/// Conditions that nothing could be said of.
pub fn unjudged(document: &CompareDocument) -> impl Iterator<Item = &Condition> {
    document
        .conditions
        .iter()
        .filter(|condition| condition.outcome == Outcome::NotJudged)
}

/// What came of a figure, in words.
#[must_use]
pub fn verdict(row: &CompareRow, among: u64) -> String {
    match row.change {
        Change::Higher | Change::Lower => {
            format!("{} is {}{}", short(&row.figure), size_of(row), meaning(row))
        }
        Change::NotAmongAll => {
            format!(
                "no difference shown: {} would count alone, among {among} figures it may be chance",
                size_of(row)
            )
        }
        Change::NotShown => seen(row).map_or_else(
            || "no difference shown".to_owned(),
            |seen| format!("no difference shown; {seen}"),
        ),
        Change::Unknown => {
            let why: Vec<String> = [unknown("A", &row.a), unknown("B", &row.b)]
                .into_iter()
                .flatten()
                .collect();
            if why.is_empty() {
                "cannot be told".to_owned()
            } else {
                format!("cannot be told: {}", why.join(", "))
            }
        }
    }
}

/// What it is of, behind its name.
fn full(row: &CompareRow) -> String {
    if row.label.is_empty() {
        row.figure.clone()
    } else {
        format!("{} of {}", row.figure, row.label)
    }
}

/// How many conditions there are.
fn conditions_in_words(document: &CompareDocument) -> String {
    match document.conditions.len() {
        1 => "1 condition".to_owned(),
        many => format!("{many} conditions"),
    }
}

/// The finding in a few sentences.
#[must_use]
pub fn answer(document: &CompareDocument) -> String {
    let differing = |row: &&CompareRow| matches!(row.change, Change::Higher | Change::Lower);
    let mut found: Vec<&CompareRow> = document.results.iter().filter(differing).collect();
    let judged = document
        .results
        .iter()
        .filter(|row| row.change != Change::Unknown)
        .count();
    let mut out = String::new();
    let failed = document
        .conditions
        .iter()
        .filter(|condition| condition.verdict.contains("failed"))
        .count();
    if failed > 0 {
        let _ = write!(
            out,
            "{failed} of {} failed. ",
            conditions_in_words(document)
        );
    }
    let open = unjudged(document)
        .filter(|condition| !condition.verdict.contains("failed"))
        .count();
    if open > 0 {
        let _ = write!(
            out,
            "{open} of {} cannot be judged. ",
            conditions_in_words(document)
        );
    }
    if judged == 0 {
        out.push_str(
            "Whether A and B differ cannot be told: no figure has an interval on both sides.",
        );
    } else if found.is_empty() {
        let _ = write!(
            out,
            "No difference shown between A and B in {judged} figures."
        );
        let told = document
            .results
            .iter()
            .filter(|row| row.change == Change::NotShown);
        if let Some((row, seen)) = told
            .filter(|row| !blind(row))
            .find_map(|row| Some((row, seen(row)?)))
        {
            let _ = write!(out, " Of {}, {seen}.", full(row));
        }
    } else {
        let size = |row: &CompareRow| row.ratio.value.map_or(0.0, |ratio| ratio.ln().abs());
        // The surest first; of those that are as sure, the largest.
        found.sort_by(|one, other| {
            let rank = |row: &CompareRow| row.p_adjusted.unwrap_or(1.0).max(1e-9);
            rank(one)
                .total_cmp(&rank(other))
                .then(size(other).total_cmp(&size(one)))
        });
        let _ = write!(out, "{} of {judged} figures differ", found.len());
        let told: Vec<String> = found
            .iter()
            .take(3)
            .map(|row| format!("{} is {} in B{}", full(row), size_of(row), meaning(row)))
            .collect();
        let _ = write!(out, ": {}.", told.join("; "));
    }
    match document.differs.len() {
        0 => out.push_str(" No setting differs."),
        1 => out.push_str(" One setting differs, listed first."),
        many => _ = write!(out, " {many} settings differ, listed first."),
    }
    out
}

/// A line for each figure.
pub(crate) fn lines(document: &CompareDocument) -> Vec<Vec<String>> {
    let of = |row: &CompareRow| {
        let p = match row.p_adjusted {
            None => "–".to_owned(),
            Some(p) if p < 0.001 => "<0.001".to_owned(),
            Some(p) => format!("{p:.3}"),
        };
        vec![
            row.figure.clone(),
            row.label.clone(),
            amount(row.unit, row.a.value),
            amount(row.unit, row.b.value),
            difference(row.unit, &row.difference),
            change(&row.ratio),
            p,
            row.verdict.clone(),
        ]
    };
    document.results.iter().map(of).collect()
}

/// A line for each setting; what is of no use but to a machine is left out unless `all`.
pub(crate) fn settings(differs: &[SettingDifference], all: bool) -> Vec<Vec<String>> {
    let cut = |text: &str| match text.char_indices().nth(LONG) {
        Some((at, _)) if !all => format!("{}…", &text[..at]),
        _ => text.to_owned(),
    };
    let few = |one: &&SettingDifference| all || one.kind != "other variable";
    let deciding = differs.iter().filter(few);
    let others = differs.iter().filter(|one| !few(one)).take(FEW);
    deciding
        .chain(others)
        .map(|one| vec![one.kind.clone(), one.name.clone(), cut(&one.a), cut(&one.b)])
        .collect()
}

/// A line for each condition.
pub(crate) fn conditions(document: &CompareDocument) -> Vec<Vec<String>> {
    let of = document.conditions.iter();
    of.map(|one| {
        vec![
            one.condition.clone(),
            one.label.clone(),
            one.verdict.clone(),
        ]
    })
    .collect()
}

/// A side's runs in words.
pub(crate) fn side(name: &str, side: &CompareSide) -> String {
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

/// How it was compared.
pub(crate) fn sentences(document: &CompareDocument) -> Vec<String> {
    let mut sentences = vec![
        format!(
            "Each figure of each run was resampled {} times: samples in the order of time by blocks, since neighbours are not independent (blocks \
             are {} times as long as Politis & White's rule asks for, judged for each figure by itself, and at least the cube root of the number of \
             samples); starts, crashes and blocks of a run as they are; figures that a record states with an interval by that interval.",
            count(document.resamples),
            replimeter_stats::compare::LONGER
        ),
        format!(
            "Brackets are {:.0} % intervals of B less A and of B over A, made from both sides' own (Zou & Donner 2008), and stretched for few blocks or runs by \
             Student's distribution.",
            document.level * 100.0
        ),
        format!(
            "p is corrected for the {} figures that have one (Holm 1979): if nothing differs, any alarm at all comes in at most 5 % of comparisons.",
            document.corrected_for
        ),
        "Where there is a ratio the verdict follows it, which is the more exact of the two for times and rates; the interval of the difference \
         may then tell otherwise."
            .to_owned(),
        "What \"would have been seen\" is what four of five such comparisons would show.".to_owned(),
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
    if document.a.runs.len() > 1 || document.b.runs.len() > 1 {
        sentences.push(
            "Of several runs the figure is their mean, each counting alike; runs were drawn first, then what is in them."
                .to_owned(),
        );
    }
    if !document.conditions.is_empty() {
        let when = match document.fail_when {
            FailWhen::Proven => "when all of the interval is beyond the limit",
            FailWhen::Estimated => {
                "when the figure itself is beyond the limit, whatever its interval"
            }
            FailWhen::Possible => "unless all of the interval is within the limit",
        };
        let hold = match document.conditions.len() {
            1 => "its interval holds".to_owned(),
            many => format!("the intervals of the {many} conditions hold together"),
        };
        sentences.push(format!(
            "A condition fails {when}; {hold} at {:.0} %.",
            document.level * 100.0
        ));
    }
    sentences
}

/// Figures of one side alone, in words.
pub(crate) fn only_on(document: &CompareDocument) -> Vec<String> {
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

/// The whole text.
#[must_use]
pub fn text(document: &CompareDocument) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "Replimeter compare · {}\n", document.command);
    let _ = writeln!(out, "  {}", wrapped(&side("A", &document.a), 118, "     "));
    let _ = writeln!(
        out,
        "  {}\n",
        wrapped(&side("B", &document.b), 118, "     ")
    );
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    let table = |headings: &[&str], left: usize, lines: Vec<Vec<String>>| {
        let mut table = plain_table(
            headings
                .iter()
                .map(|heading| (*heading).to_owned())
                .collect(),
        );
        lines.into_iter().for_each(|line| _ = table.add_row(line));
        aligned(table, left)
    };
    let shown = settings(&document.differs, false);
    if !shown.is_empty() {
        let more = document.differs.len() - shown.len();
        let _ = writeln!(
            out,
            "What differs beside the figures\n{}",
            table(&SETTING_HEADINGS, 4, shown).trim_end()
        );
        if more > 0 {
            let _ = writeln!(
                out,
                " and {more} other variables (--json and the page have them all)"
            );
        }
        out.push('\n');
    }
    if !document.varies.is_empty() {
        let shown = settings(&document.varies, false);
        let _ = writeln!(
            out,
            "What differs among the runs of one side\n{}\n",
            table(&SETTING_HEADINGS, 4, shown).trim_end()
        );
    }
    let mut lines = lines(document);
    let mut headings = HEADINGS.to_vec();
    let mut left = 2;
    if document.results.iter().all(|row| row.label.is_empty()) {
        headings.remove(1);
        lines.iter_mut().for_each(|line| _ = line.remove(1));
        left = 1;
    }
    let last = headings.len() - 1;
    let mut figures = plain_table(
        headings
            .iter()
            .map(|heading| (*heading).to_owned())
            .collect(),
    );
    lines.into_iter().for_each(|line| _ = figures.add_row(line));
    if let Some(verdicts) = figures.column_mut(last) {
        verdicts.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    let numbers = left..last;
    for index in numbers {
        if let Some(column) = figures.column_mut(index) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    let figures: String = figures
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    let _ = writeln!(
        out,
        "Figures, with {:.0} % intervals\n{}",
        document.level * 100.0,
        figures.trim_end()
    );
    for sentence in only_on(document) {
        let _ = writeln!(out, " {sentence}");
    }
    let conditions = conditions(document);
    if !conditions.is_empty() {
        let _ = writeln!(
            out,
            "\nConditions\n{}",
            table(&CONDITION_HEADINGS, 3, conditions).trim_end()
        );
    }
    let _ = writeln!(out, "\nHow it was compared");
    for sentence in sentences(document) {
        let _ = writeln!(out, "  {}", wrapped(&sentence, 118, "  "));
    }
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate {
            value: Some(value),
            low: Some(low),
            high: Some(high),
        }
    }

    pub(crate) fn example() -> CompareDocument {
        let side = |value: f64| SideFigure {
            value,
            low: Some(value * 0.97),
            high: Some(value * 1.03),
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
        document.answer = answer(&document);
        document
    }

    #[test]
    fn verdicts_say_how_much_and_how_sure() {
        let document = example();
        assert_eq!(
            document.results[0].verdict,
            "p99 is 12 % higher [4.0, 21]: slower"
        );
        assert_eq!(
            document.results[1].verdict,
            "no difference shown; one of 5.0 % would have been seen"
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
                .ends_with("300 % more or 75 % less would have been seen")
        );
        assert!(
            unseen(Quantity::Us, Some(1e12), 5e11)
                .ends_with("only a change of more than tenfold would have been seen")
        );
        assert!(
            unseen(Quantity::Us, None, 501.0)
                .ends_with("only a change of more than tenfold would have been seen")
        );
        assert!(
            unseen(Quantity::Percent, None, 30.0)
                .ends_with("one of 30.0 percentage points would have been seen")
        );
        assert!(
            unseen(Quantity::Percent, None, 101.5)
                .ends_with("not even all or none would have been seen for sure")
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
    fn the_text_has_settings_first() {
        let text = text(&example());
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
