//! The finding in one sentence.

use replimeter_model::record::{LagDocument, LagRow, RunStatus};

use crate::{
    backlog,
    figures::{Unit, count, time},
};

/// What the run found, in words a person can quote.
#[must_use]
pub fn answer(document: &LagDocument) -> String {
    let overall: Vec<&LagRow> = overall_rows(document);
    let mut parts: Vec<String> = overall.iter().map(|row| of_row(&document.label_of(row), row)).collect();
    parts.extend(backlog::answer(document));
    if document.status == RunStatus::Void {
        parts.push("The run is void: it did not measure what was to be measured.".to_owned());
    }
    if document.status == RunStatus::Interrupted {
        parts.push("The run was interrupted; this is what was measured until then.".to_owned());
    }
    if document.status == RunStatus::Failed {
        parts.push("The run ended with an error; this is what was measured until then.".to_owned());
    }
    parts.join(" ")
}

/// The rows that stand for a replica as a whole.
#[must_use]
pub fn overall_rows(document: &LagDocument) -> Vec<&LagRow> {
    let sweep = document.results.iter().any(|row| row.size_bytes.is_none());
    document.results.iter().filter(|row| !sweep || row.size_bytes.is_none()).collect()
}

fn of_row(name: &str, row: &LagRow) -> String {
    let lag = &row.from_ack;
    let mut text = match (lag.p50_us, lag.min_us, lag.max_us) {
        (Some(p50), ..) => {
            let unit = Unit::for_size(p50);
            let interval = lag
                .ci95
                .as_ref()
                .and_then(|ci| ci.p50_us)
                .map_or_else(String::new, |[low, high]| format!(" [{}, {}]", unit.show(low), unit.show(high)));
            let tail = match (lag.p99_us, lag.p90_us) {
                (Some(p99), _) => format!(", p99 {}", time(p99)),
                (None, Some(p90)) => format!(", p90 {}", time(p90)),
                (None, None) => String::new(),
            };
            let error = row
                .error_us
                .p50_us
                .map_or_else(String::new, |error| format!("; too high by at most the bracket, {} at the median", time(error)));
            format!(
                "{name} shows a row {} after {} it (median{interval}{tail}, {} rounds{error}).",
                unit.with(p50),
                if row.replica.starts_with("node") { "the written node acknowledged" } else { "the primary acknowledged" },
                count(lag.count),
            )
        }
        (None, Some(min), Some(max)) => format!(
            "{name} showed {} rows {} to {} after the primary acknowledged them: too few for a median.",
            count(lag.count),
            time(min),
            time(max)
        ),
        _ => format!("{name} showed no row."),
    };
    if row.missing > 0 {
        text.push_str(&format!(" {} of {} rows were never seen.", count(row.missing), count(row.rounds)));
    }
    if let Some(delay) = row.configured_delay_us {
        text.push_str(&format!(" This includes a deliberate delay of {}.", time(delay)));
    }
    text
}
