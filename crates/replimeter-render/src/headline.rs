//! Sentences of headlines: how a run ended, the tail of a distribution, the level of intervals.

use replimeter_model::record::{Distribution, RunStatus};

use crate::{figures::Unit, precision::Precision};

/// Appends the level of the intervals to a finding that has any: numbers in square brackets.
pub fn with_level(mut finding: String) -> String {
    if finding.contains(" [") {
        finding.push_str(" Intervals are 95 %.");
    }
    finding
}

/// Returns how an incomplete run ended.
pub fn end_note(status: RunStatus) -> Option<&'static str> {
    match status {
        RunStatus::Interrupted => Some("The run was interrupted; these results are partial."),
        RunStatus::Failed => Some("The run failed; these results are partial."),
        RunStatus::Complete | RunStatus::Invalid => None,
    }
}

/// Returns the same, for reports that do not state otherwise that a run is invalid.
pub fn end_note_or_invalid(status: RunStatus) -> Option<&'static str> {
    let invalid = "The run is invalid: the results do not describe the intended conditions.";
    if status == RunStatus::Invalid {
        Some(invalid)
    } else {
        end_note(status)
    }
}

/// Appends to a finding how its run ended.
pub fn with_end_note(finding: String, status: RunStatus) -> String {
    match end_note(status) {
        Some(ending) => format!("{finding} {ending}"),
        None => finding,
    }
}

/// Returns the tail of a distribution for a headline: a quantile with an interval, or what the 99th percentile is at least.
pub fn tail(of: &Distribution, shown: impl Fn(f64) -> String) -> Option<String> {
    let quantiles = [
        ("p99", 0.99, of.p99_us.zip(of.p99_us_ci95)),
        ("p95", 0.95, of.p95_us.zip(of.p95_us_ci95)),
        ("p90", 0.9, of.p90_us.zip(of.p90_us_ci95)),
    ];
    let known = quantiles.iter().find_map(|(name, level, figure)| {
        let (us, ends) = (*figure)?;
        let unit = Unit::for_size(us);
        let half = Precision::exact(of).quantile(*level);
        let figure = with_ends(us, Some(ends), half, unit);
        Some(format!("{name} {figure} {}", unit.symbol()))
    });
    let at_least = of.p99_us_at_least;
    at_least
        .map(|us| format!("p99 at least {}", shown(us)))
        .or(known)
}

/// Returns a figure with its interval, if it has one: `300 [270, 334] µs`.
pub fn with_ends(us: f64, ends: Option<[f64; 2]>, half_us: f64, unit: Unit) -> String {
    let ends = ends.map_or_else(String::new, |ends| {
        format!(" [{}]", unit.show_interval(ends).join(", "))
    });
    format!("{}{ends}", unit.show_within(us, half_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_stated_where_there_is_an_interval() {
        let stated = with_level("1,380 [650, 2,120] transactions/s.".to_owned());
        assert!(stated.ends_with(" Intervals are 95 %."), "{stated}");
        assert_eq!(with_level("No poll.".to_owned()), "No poll.");
    }
}
