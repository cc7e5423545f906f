//! The figures of `tap`.

use std::collections::BTreeMap;

use replimeter_engine::follow::HAVE_COMMIT_TIMES;
use replimeter_instruments::tap::results::{TapDocument, TapResults, TapRow};
use replimeter_run::{
    cli_error::CliError,
    figures,
    figures::{DimensionSpec, Figures, REPLICA, SHAPE, SampleFile, StatedFigures},
};
use replimeter_stats::compare::of_rates_in_time;

const ROW: &[DimensionSpec] = &[SHAPE, REPLICA];

figures! {
    LAG = "tap.lag" [mean p50 p90 p95 p99 p999 max]: Us, Lower, Ratio, of ROW;
    TO_ARRIVAL = "tap.commit_to_arrival" [p50 p99]: Us, Lower, Ratio, of ROW, needs HAVE_COMMIT_TIMES;
    BY_SERVERS = "tap.by_servers" [p50 p99]: Us, Lower, Ratio, of ROW, needs HAVE_COMMIT_TIMES;
    TRANSACTIONS = "tap.transactions": PerS, Neither, Ratio, of ROW;
    INVERTED = "tap.inverted_percent": Percent, Lower, Difference, of ROW;
}

/// A replica's results in a window.
struct TimedWindow {
    seconds: f64,
    transactions: f64,
    matched: f64,
    inverted: f64,
}

/// The windows of each replica of a shape, in time order.
type TimedWindows = BTreeMap<[String; 2], Vec<TimedWindow>>;

fn windows(samples: &SampleFile) -> Result<TimedWindows, CliError> {
    let names = [
        "shape",
        "replica",
        "start_us",
        "end_us",
        "transactions",
        "matched",
        "inverted",
    ];
    let mut windows = TimedWindows::new();
    samples.read(&names, |columns, rows| {
        for row in 0..rows {
            let number = |column: usize| columns[column].number(row);
            let of = [columns[0].word(row), columns[1].word(row)].map(str::to_owned);
            windows.entry(of).or_default().push(TimedWindow {
                seconds: (number(3) - number(2)) / 1e6,
                transactions: number(4),
                matched: number(5),
                inverted: number(6),
            });
        }
    })?;
    Ok(windows)
}

/// Adds the times of a replica.
fn add_times(figures: &mut StatedFigures, of: &[&str], row: &TapRow) {
    figures.distribution(LAG, of, &row.lag);
    for (specs, times) in [
        (TO_ARRIVAL, &row.commit_to_arrival),
        (BY_SERVERS, &row.by_servers),
    ] {
        if let Some(times) = times {
            figures.distribution(specs, of, times);
        }
    }
}

pub(super) fn stated(results: &TapResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    let end_us = results.windows.iter().map(|window| window.end_us);
    let seconds = end_us.fold(0.0, f64::max) / 1e6;
    for row in &results.rows {
        let of = [row.shape.as_str(), &row.replica];
        add_times(&mut figures, &of, row);
        let per_s = row.transactions as f64 / seconds;
        figures.add(&TRANSACTIONS, &of, Some(per_s), None, row.transactions);
        let percent = 100.0 * row.inverted as f64 / row.matched as f64;
        figures.add(&INVERTED, &of, Some(percent), None, row.matched);
    }
    figures
}

pub(super) fn figures(document: &TapDocument, samples: &SampleFile) -> Result<Figures, CliError> {
    let windows = windows(samples)?;
    let mut figures = Figures::default();
    for row in &document.results.rows {
        let of = [row.shape.as_str(), &row.replica];
        let mut times = StatedFigures::default();
        add_times(&mut times, &of, row);
        figures.stated(times);
        let Some(windows) = windows.get(&of.map(str::to_owned)) else {
            continue;
        };
        let rate = |pair: fn(&TimedWindow) -> (f64, f64)| {
            of_rates_in_time(&windows.iter().map(pair).collect::<Vec<_>>())
        };
        let per_s = rate(|window| (window.transactions, window.seconds));
        figures.add(&TRANSACTIONS, &of, per_s);
        let percent = rate(|window| (window.inverted * 100.0, window.matched));
        figures.add(&INVERTED, &of, percent);
    }
    Ok(figures)
}
