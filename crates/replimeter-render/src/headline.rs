//! The headline of a run.

use replimeter_model::{
    lag::{LagDocument, LagRow},
    record::RunStatus,
};

use crate::{
    figures::{Unit, count, time, time_within},
    precision::Precision,
};

/// Returns the headline of a run.
#[must_use]
pub fn headline(document: &LagDocument) -> String {
    let overall: Vec<&LagRow> = overall_rows(document);
    // One method stands for each replica; the others are compared with it.
    let first = overall
        .iter()
        .filter(|row| row.method_differences.is_none() || !document.several_methods());
    let mut parts: Vec<String> = Vec::new();
    let mut stated: Option<&str> = None;
    for row in first {
        let writer = writer(document, row);
        // What the figures mean is stated once.
        let brief = stated == Some(writer);
        parts.push(of_row(&document.label_of(row), row, writer, brief));
        if row.from_ack.p50_us.is_some() {
            stated = Some(writer);
        }
    }
    let others: Vec<String> = overall
        .iter()
        .filter_map(|row| other(document, row))
        .collect();
    if !others.is_empty() {
        parts.push(format!(
            "On the same rows, at the median: {}.",
            others.join(", ")
        ));
    }
    // Whether the figures mean anything depends on it.
    if stated.is_some() {
        parts.extend(floor(document));
    }
    parts.extend(end_note_or_invalid(document.status).map(str::to_owned));
    parts.join(" ")
}

/// Returns what the methods show without replication: of several shapes or methods the range.
fn floor(document: &LagDocument) -> Option<String> {
    let floors = document.results.floors.iter();
    let mut medians: Vec<f64> = floors.filter_map(|floor| floor.from_ack.p50_us).collect();
    medians.sort_by(f64::total_cmp);
    let (low, high) = (*medians.first()?, *medians.last()?);
    let range = if time(low) == time(high) {
        time(low)
    } else {
        format!("{} to {}", time(low), time(high))
    };
    Some(format!(
        "Without replication the same method shows {range} (the floor, median): lags near it mean nothing."
    ))
}

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

/// Returns the difference of another method.
fn other(document: &LagDocument, row: &LagRow) -> Option<String> {
    let against = row.method_differences.as_ref()?;
    let half = Precision::exact(&against.difference).quantile(0.5);
    let difference = time_within(against.difference.p50_us?, half);
    let sign = if difference.starts_with(['-', '−']) {
        ""
    } else {
        "+"
    };
    Some(format!("{} {sign}{difference}", document.label_of(row)))
}

/// Returns the rows that cover all sizes of a replica.
#[must_use]
pub fn overall_rows(document: &LagDocument) -> Vec<&LagRow> {
    let sweep = document
        .results
        .rows
        .iter()
        .any(|row| row.size_bytes.is_none());
    document
        .results
        .rows
        .iter()
        .filter(|row| !sweep || row.size_bytes.is_none())
        .collect()
}

/// Returns the server that acknowledged the writes, in terms of the replication mode.
fn writer(document: &LagDocument, row: &LagRow) -> &'static str {
    match document.target.mode_of(&row.shape) {
        Some("galera" | "group") => "the written node",
        _ => "the primary",
    }
}

/// Returns the finding of a row; a brief one has only the figures.
fn of_row(name: &str, row: &LagRow, writer: &str, brief: bool) -> String {
    let lag = &row.from_ack;
    let precision = Precision::of_lag(row, lag);
    let mut text = match (lag.p50_us, lag.min_us, lag.max_us) {
        (Some(p50), ..) => {
            let unit = Unit::for_size(p50);
            let median = unit.with_within(p50, precision.quantile(0.5));
            let interval = lag.p50_us_ci95.map(|ends| {
                let ends = unit.show_interval(ends).join(", ");
                format!("95 % [{ends}]")
            });
            let tail = match (lag.p99_us, lag.p90_us) {
                (Some(p99), _) => Some(("p99", p99, 0.99)),
                (None, Some(p90)) => Some(("p90", p90, 0.9)),
                (None, None) => None,
            };
            let tail = tail.map(|(quantile, us, level)| {
                format!("{quantile} {}", time_within(us, precision.quantile(level)))
            });
            let width = &row.bracket_us;
            let error = width.p50_us.map(|error| {
                let max = width
                    .max_us
                    .map_or_else(String::new, |max| format!(", max {}", time(max)));
                let at_most = if brief {
                    ""
                } else {
                    "each row too high by at most its "
                };
                format!("{at_most}bracket: p50 {}{max}", time(error))
            });
            let rounds = Some(format!("{} rounds", count(lag.count)));
            let median_of = (!brief).then(|| "median".to_owned());
            let details = [median_of, interval, tail, rounds, error];
            let details: Vec<String> = details.into_iter().flatten().collect();
            let details = details.join("; ");
            if brief {
                format!("{name}: median {median} ({details}).")
            } else {
                format!("{name} shows a row {median} after {writer} acknowledged it ({details}).")
            }
        }
        (None, Some(min), _) if lag.count == 1 => format!(
            "{name} showed one row {} after {writer} acknowledged it: too few for a median.",
            time_within(min, precision.single())
        ),
        (None, Some(min), Some(max)) => format!(
            "{name} showed {} rows {} to {} after {writer} acknowledged them: too few for a median.",
            count(lag.count),
            time_within(min, precision.single()),
            time_within(max, precision.single())
        ),
        _ => format!("{name} showed no row."),
    };
    if row.timed_out > 0 {
        text.push_str(&format!(
            " {} of {} rows timed out.",
            count(row.timed_out),
            count(row.rounds)
        ));
    }
    if let Some(delay) = row.configured_delay_us {
        text.push_str(&format!(
            " This includes a configured delay of {}.",
            time(delay)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use replimeter_model::record::Distribution;

    use super::*;

    fn row() -> LagRow {
        LagRow {
            from_ack: Distribution {
                count: 1_000,
                p50_us: Some(390.0),
                p50_us_ci95: Some([370.0, 412.0]),
                p99_us: Some(1_180.0),
                ..Distribution::default()
            },
            bracket_us: Distribution {
                count: 1_000,
                p50_us: Some(158.0),
                max_us: Some(4_011.0),
                ..Distribution::default()
            },
            ..LagRow::default()
        }
    }

    #[test]
    fn lag_headline_names_the_quantiles_of_the_bracket() {
        let text = of_row("replica1", &row(), "the primary", false);
        assert_eq!(
            text,
            "replica1 shows a row 390 µs after the primary acknowledged it (median; 95 % [370, 412]; p99 1,180 µs; \
             1,000 rounds; each row too high by at most its bracket: p50 158 µs, max 4,011 µs)."
        );
        let brief = of_row("replica2", &row(), "the primary", true);
        assert_eq!(
            brief,
            "replica2: median 390 µs (95 % [370, 412]; p99 1,180 µs; 1,000 rounds; bracket: p50 158 µs, max 4,011 µs)."
        );
    }

    #[test]
    fn level_is_stated_where_there_is_an_interval() {
        let stated = with_level("1,380 [650, 2,120] transactions/s.".to_owned());
        assert!(stated.ends_with(" Intervals are 95 %."), "{stated}");
        assert_eq!(with_level("No poll.".to_owned()), "No poll.");
    }
}
