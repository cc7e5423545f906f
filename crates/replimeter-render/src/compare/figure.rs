//! A figure of both sides, its difference and its verdict, as text.

use replimeter_model::{
    compare::{Better, Change, CompareRow, Quantity, SideFigure},
    equal_runs::EqualRuns,
    estimate::Estimate,
};

use crate::figures::{Unit, rate};

/// Formats a number of a figure with its unit.
#[must_use]
pub fn amount(unit: Quantity, value: f64) -> String {
    with_unit(unit, value, value)
}

/// Formats the number in the unit that suits `size`.
fn with_unit(unit: Quantity, value: f64, size: f64) -> String {
    format!("{}{}", bare(unit, value, size), symbol(unit, size))
}

/// Returns the unit symbol for a number of about this size.
fn symbol(unit: Quantity, size: f64) -> String {
    match unit {
        Quantity::Us => format!(" {}", Unit::for_size(size).symbol()),
        Quantity::PerS => "/s".to_owned(),
        Quantity::Percent => " %".to_owned(),
        Quantity::Count => String::new(),
        Quantity::Bytes => " B".to_owned(),
    }
}

/// Formats the number without a unit.
fn bare(unit: Quantity, value: f64, size: f64) -> String {
    match unit {
        Quantity::Us => Unit::for_size(size).show(value),
        Quantity::Percent => format!("{value:.*}", decimals(size)),
        _ if size.abs() < 100.0 && value.fract() != 0.0 => format!("{value:.*}", decimals(size)),
        _ => rate(value, 0.0),
    }
}

/// Returns the decimals for about three digits.
fn decimals(size: f64) -> usize {
    match size.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    }
}

/// Formats a change in percent, with its sign.
#[must_use]
pub fn percent(value: f64) -> String {
    format!("{}{} %", sign(value), percent_digits(value))
}

/// Returns how much runs of one plan differ, for a headline.
#[must_use]
pub fn equal_runs(runs: &EqualRuns) -> String {
    let [min, max] = [runs.min, runs.max].map(|value| bare(runs.unit, value, runs.max));
    let differ = runs.differ_percent.map_or_else(String::new, |ends| {
        let [low, high] = ends.map(percent);
        format!("; two such runs differ by {low} to {high} (95 %)")
    });
    format!(
        "{} runs of this plan here: {} {min} to {max}{}{differ}.",
        runs.runs,
        runs.figure,
        symbol(runs.unit, runs.max)
    )
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

/// Formats a difference with its sign and its interval.
pub(super) fn difference(unit: Quantity, estimate: &Estimate) -> String {
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

/// Formats a ratio as a change in percent, with its interval.
pub(crate) fn change(ratio: &Estimate) -> String {
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

/// Returns the figure's name without its command's.
fn short(figure: &str) -> &str {
    figure.split_once('.').map_or(figure, |(_, rest)| rest)
}

/// Formats the size of a difference, without its sign: `12 % higher [4, 21]`.
pub(super) fn size_of(row: &CompareRow) -> String {
    let up = row.difference.value.unwrap_or(0.0) > 0.0;
    let word = if up { "higher" } else { "lower" };
    // The smaller end first, for both directions.
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

/// Returns what a change means; empty if it is neither good nor bad.
pub(super) fn meaning(row: &CompareRow) -> &'static str {
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
    if figure.ci95.low.is_some() {
        return None;
    }
    Some(if figure.short {
        format!("{side} is too short for the autocorrelation of its samples")
    } else if figure.runs == 1 && figure.samples <= 1 {
        format!("{side} has only one value")
    } else {
        format!("{side} has no interval")
    })
}

/// The factor beyond which no detectable difference is stated.
const ABSURD: f64 = 10.0;

/// Returns whether no change of a plausible size would have been detected.
pub(super) fn is_insensitive(row: &CompareRow) -> bool {
    match (row.seen_from_percent, row.seen_from) {
        (Some(percent), _) => percent > (ABSURD - 1.0) * 100.0,
        (None, Some(from)) if row.unit == Quantity::Percent => {
            from > row.a.value && from > 100.0 - row.a.value
        }
        (None, Some(from)) => row.a.value != 0.0 && from > (ABSURD - 1.0) * row.a.value.abs(),
        (None, None) => true,
    }
}

/// Returns the smallest detectable difference; `None` if it is unknown.
pub(super) fn detectable_difference(row: &CompareRow) -> Option<String> {
    let (percent, from) = (row.seen_from_percent, row.seen_from?);
    Some(match percent {
        _ if is_insensitive(row) && row.unit == Quantity::Percent => {
            "even a change to all or none might not have been detected".to_owned()
        }
        _ if is_insensitive(row) => {
            "only a change of more than tenfold would have been detected".to_owned()
        }
        Some(percent) if percent < 10.0 => {
            format!(
                "one of {} % would have been detected",
                percent_digits(percent)
            )
        }
        // On the scale of ratios, both directions are equally far.
        Some(percent) => format!(
            "{} % more or {} % less would have been detected",
            percent_digits(percent),
            percent_digits(percent / (1.0 + percent / 100.0))
        ),
        None if row.unit == Quantity::Percent => {
            format!(
                "one of {} percentage points would have been detected",
                bare(row.unit, from, from)
            )
        }
        None => format!("one of {} would have been detected", amount(row.unit, from)),
    })
}

/// Returns the verdict on a figure.
#[must_use]
pub fn verdict(row: &CompareRow, among: u64) -> String {
    match row.change {
        Change::Higher | Change::Lower => {
            format!("{} is {}{}", short(&row.figure), size_of(row), meaning(row))
        }
        Change::NotAmongAll => {
            format!(
                "no difference shown: {} is significant alone, but may be chance among {among} figures",
                size_of(row)
            )
        }
        Change::Differs => format!(
            "{} is {}; the runs differ, cause unknown",
            short(&row.figure),
            size_of(row)
        ),
        Change::NotShown => detectable_difference(row).map_or_else(
            || "no difference shown".to_owned(),
            |seen| format!("no difference shown; {seen}"),
        ),
        Change::Unknown if row.a.starts == 1 || row.b.starts == 1 => {
            let sides = match [row.a.starts, row.b.starts] {
                [1, 1] => "one start each",
                [1, _] => "one start of A",
                _ => "one start of B",
            };
            format!("cannot be told from {sides}")
        }
        Change::Unknown if row.p_value.is_none() && row.difference.ci95.low.is_some() => {
            "inconclusive: fewer than five alternating runs of servers that ran already".to_owned()
        }
        Change::Unknown => {
            let why: Vec<String> = [unknown("A", &row.a), unknown("B", &row.b)]
                .into_iter()
                .flatten()
                .collect();
            if why.is_empty() {
                "inconclusive".to_owned()
            } else {
                format!("inconclusive: {}", why.join(", "))
            }
        }
    }
}
