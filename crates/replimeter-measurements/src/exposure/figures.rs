//! The figures of `exposure`.

use replimeter_instruments::exposure::results::{ExposureDocument, ExposureResults};
use replimeter_run::{
    cli_error::CliError,
    figures,
    figures::{DimensionSpec, Figures, SHAPE, SampleFile, StatedFigures, Statistic},
};
use replimeter_stats::{compare::SampleSeries, over_time::at_regular_times};

/// Interval between polls where the document has none.
const DEFAULT_INTERVAL_US: f64 = 10_000.0;
/// Polls farther from an instant than this do not stand for it: the primary's log could not be followed then.
const MAX_GAP_US: f64 = 500_000.0;

const OF: &[DimensionSpec] = &[SHAPE];

figures! {
    // Any of them can be 0.
    TRANSACTIONS = "exposure.transactions" [mean p99 max]: Count, Lower, Difference, of OF;
    BYTES = "exposure.bytes" [mean p99 max]: Bytes, Lower, Difference, of OF;
    AGE = "exposure.age" [mean p50 p99 max]: Us, Lower, Difference, of OF;
    PERCENT = "exposure.percent": Percent, Lower, Difference, of OF;
}

pub(super) fn stated(results: &ExposureResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    for row in &results.rows {
        let of = [row.shape.as_str()];
        for (specs, amount) in [(TRANSACTIONS, &row.transactions), (BYTES, &row.bytes)] {
            for spec in specs {
                let (value, ends) = match spec.statistic {
                    Some(Statistic::Mean) => (amount.mean, amount.mean_ci95),
                    Some(Statistic::P99) => (amount.p99, None),
                    _ => (amount.max, None),
                };
                figures.add(spec, &of, value, ends, row.polls);
            }
        }
        figures.distribution(AGE, &of, &row.age);
        let (percent, ends) = (row.exposed_percent, row.exposed_percent_ci95);
        figures.add(&PERCENT, &of, Some(percent), ends, row.polls);
    }
    figures
}

pub(super) fn figures(
    document: &ExposureDocument,
    samples: &SampleFile,
) -> Result<Figures, CliError> {
    let mut shape = String::new();
    // Time, transactions, bytes, age.
    let mut polls: Vec<[f64; 4]> = Vec::new();
    if document.results.rows.iter().any(|row| row.polls > 0) {
        let names = ["shape", "at_us", "transactions", "bytes", "age_us"];
        samples.read(&names, |columns, rows| {
            for row in 0..rows {
                if shape.is_empty() {
                    columns[0].word(row).clone_into(&mut shape);
                }
                // If nothing is exposed, the age is 0, as in the record.
                let age = columns[4].number(row);
                polls.push([
                    columns[1].number(row),
                    columns[2].number(row),
                    columns[3].number(row),
                    if age.is_nan() { 0.0 } else { age },
                ]);
            }
        })?;
    }
    let interval = document.settings.poll_interval;
    let step = interval.map_or(DEFAULT_INTERVAL_US, |interval| {
        interval.0.as_secs_f64() * 1e6
    });
    let over_time = |of: &dyn Fn(&[f64; 4]) -> f64| {
        let observed: Vec<(f64, f64)> = polls.iter().map(|poll| (poll[0], of(poll))).collect();
        SampleSeries::new(at_regular_times(&observed, step, MAX_GAP_US))
    };
    let exposed = over_time(&|poll| if poll[1] > 0.0 { 100.0 } else { 0.0 }).mean();
    let of = [shape.as_str()];
    let mut figures = Figures::default();
    figures.add_series(TRANSACTIONS, &of, &[over_time(&|poll| poll[1])]);
    figures.add_series(BYTES, &of, &[over_time(&|poll| poll[2])]);
    figures.add_series(AGE, &of, &[over_time(&|poll| poll[3])]);
    figures.add(&PERCENT, &of, exposed);
    Ok(figures)
}
