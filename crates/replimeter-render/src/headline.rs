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
    let mut parts: Vec<String> = first
        .map(|row| of_row(&document.label_of(row), row, writer(document, row)))
        .collect();
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
    parts.extend(end_note_or_invalid(document.status).map(str::to_owned));
    parts.join(" ")
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

fn of_row(name: &str, row: &LagRow, writer: &str) -> String {
    let lag = &row.from_ack;
    let precision = Precision::of_lag(row, lag);
    let mut text = match (lag.p50_us, lag.min_us, lag.max_us) {
        (Some(p50), ..) => {
            let unit = Unit::for_size(p50);
            let interval = lag.p50_us_ci95.map_or_else(String::new, |ends| {
                format!(" [{}]", unit.show_interval(ends).join(", "))
            });
            let tail = match (lag.p99_us, lag.p90_us) {
                (Some(p99), _) => format!(", p99 {}", time_within(p99, precision.quantile(0.99))),
                (None, Some(p90)) => format!(", p90 {}", time_within(p90, precision.quantile(0.9))),
                (None, None) => String::new(),
            };
            let error = row.bracket_us.p50_us.map_or_else(String::new, |error| {
                format!(
                    "; too high by at most the bracket, {} at the median",
                    time(error)
                )
            });
            format!(
                "{name} shows a row {} after {writer} acknowledged it (median{interval}{tail}, {} rounds{error}).",
                unit.with_within(p50, precision.quantile(0.5)),
                count(lag.count),
            )
        }
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
