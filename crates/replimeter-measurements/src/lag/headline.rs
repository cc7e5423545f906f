//! The headline of a run of `lag`.

use replimeter_instruments::lag::{
    results::{LagDocument, LagRow},
    summary::ESTIMATOR,
};
use replimeter_render::{
    figures::{Unit, count, time, time_within},
    headline::{end_note_or_invalid, tail, with_ends},
    precision::Precision,
};

/// Returns the headline of a run.
#[must_use]
pub(crate) fn headline(document: &LagDocument) -> String {
    let overall: Vec<&LagRow> = overall_rows(document);
    // One method stands for each replica; the others are compared with it.
    let first = overall
        .iter()
        .filter(|row| row.method_differences.is_none() || !document.results.several_methods());
    let mut parts: Vec<String> = Vec::new();
    let mut stated: Option<&str> = None;
    for row in first {
        let writer = writer(document, row);
        // What the figures mean is stated once.
        let brief = stated == Some(writer);
        let starts = document.target.fresh_starts;
        parts.push(of_row(
            &label_of(document, row),
            row,
            writer,
            (!brief).then_some(starts),
        ));
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

/// Returns the figure that the headline leads with, and the replica that it is of: the estimate of the median, or its upper bound.
#[must_use]
pub(crate) fn leading(document: &LagDocument) -> Option<(String, f64)> {
    let row = *overall_rows(document).first()?;
    let estimate = row.estimate.p50_us.filter(|_| row.estimator == ESTIMATOR);
    Some((label_of(document, row), estimate.or(row.from_ack.p50_us)?))
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
    Some(format!("The floor is {range}: lags near it mean nothing."))
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
    Some(format!("{} {sign}{difference}", label_of(document, row)))
}

/// Returns the label of a replica's series.
pub(crate) fn label(document: &LagDocument, shape: &str, replica: &str, method: &str) -> String {
    let name = match document.several() {
        true => format!("{shape} {replica}"),
        false => replica.to_owned(),
    };
    match document.results.several_methods() {
        true => format!("{name} {method}"),
        false => name,
    }
}

/// Returns the label of a row.
pub(crate) fn label_of(document: &LagDocument, row: &LagRow) -> String {
    label(document, &row.shape, &row.replica, &row.method)
}

/// Returns the rows that cover all sizes of a replica.
#[must_use]
pub(crate) fn overall_rows(document: &LagDocument) -> Vec<&LagRow> {
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
        Some(mode) if mode.has_members() => "the written node",
        _ => "the primary",
    }
}

/// Returns the finding of a row; what its figures mean is stated with the number of fresh starts, otherwise it has only the figures.
fn of_row(name: &str, row: &LagRow, writer: &str, stated: Option<u32>) -> String {
    let (lag, estimate) = (&row.from_ack, &row.estimate);
    let precision = Precision::of_brackets(&row.bracket_us, lag);
    let mut text = match (lag.p50_us, lag.min_us, lag.max_us) {
        (Some(p50), ..) => {
            let unit = Unit::for_size(p50);
            let upper = with_ends(p50, lag.p50_us_ci95, precision.quantile(0.5), unit);
            // Upper ends are estimates of themselves.
            let estimated = estimate
                .p50_us
                .filter(|_| row.estimator == ESTIMATOR)
                .map(|us| {
                    let half =
                        Precision::between(&row.estimate, row.estimate_within.p50_us).quantile(0.5);
                    with_ends(us, estimate.p50_us_ci95, half, unit)
                });
            let (first, upper) = match estimated {
                Some(estimated) => (estimated, Some(format!("upper bound {upper}"))),
                None => (upper, None),
            };
            let some_interval = lag.p50_us_ci95.or(estimate.p50_us_ci95).is_some();
            let what = match some_interval {
                true => "median, 95 % within this run",
                false => "median, too few rounds for an interval",
            };
            let starts = match stated {
                Some(starts) if starts > 1 => format!(" in {starts} starts"),
                _ => String::new(),
            };
            let shown = |us| time_within(us, precision.quantile(0.99));
            let details = [
                stated.map(|_| what.to_owned()),
                upper,
                tail(lag, shown),
                Some(format!("{} rounds{starts}", count(lag.count))),
            ];
            let details: Vec<String> = details.into_iter().flatten().collect();
            let (details, symbol) = (details.join("; "), unit.symbol());
            match stated {
                Some(_) => format!(
                    "{name} shows a row {first} {symbol} after {writer} acknowledged it ({details})."
                ),
                None => format!("{name}: {first} {symbol} ({details})."),
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
                p99_us_at_least: Some(900.0),
                ..Distribution::default()
            },
            estimate: Distribution {
                p50_us: Some(301.0),
                p50_us_ci95: Some([270.0, 334.0]),
                ..Distribution::default()
            },
            estimator: ESTIMATOR.to_owned(),
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
    fn lag_headline_leads_with_the_estimate() {
        let text = of_row("replica1", &row(), "the primary", Some(10));
        assert_eq!(
            text,
            "replica1 shows a row 300 [270, 334] µs after the primary acknowledged it (median, 95 % within this run; upper bound 390 [370, 412]; \
             p99 at least 900 µs; 1,000 rounds in 10 starts)."
        );
        let brief = of_row("replica2", &row(), "the primary", None);
        assert_eq!(
            brief,
            "replica2: 300 [270, 334] µs (upper bound 390 [370, 412]; p99 at least 900 µs; 1,000 rounds)."
        );
        let exact = LagRow {
            estimator: "upper-ends".to_owned(),
            from_ack: Distribution {
                p99_us_ci95: Some([1_000.0, 1_400.0]),
                p99_us_at_least: None,
                ..row().from_ack
            },
            ..row()
        };
        assert_eq!(
            of_row("replica1", &exact, "the primary", None),
            "replica1: 390 [370, 412] µs (p99 1,200 [1,000, 1,400] µs; 1,000 rounds)."
        );
    }
}
