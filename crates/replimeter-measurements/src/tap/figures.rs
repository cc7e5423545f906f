//! The figures of `tap`.

use std::collections::BTreeMap;

use replimeter_instruments::tap::results::TapDocument;
use replimeter_run::{
    cli_error::CliError,
    figures,
    figures::{DimensionSpec, Figures, REPLICA, SHAPE, SampleFile},
};
use replimeter_stats::compare::of_rates_in_time;

const ROW: &[DimensionSpec] = &[SHAPE, REPLICA];

figures! {
    LAG = "tap.lag" [mean p50 p90 p95 p99 p999 max]: Us, Lower, Ratio, of ROW;
    TO_ARRIVAL = "tap.commit_to_arrival" [p50 p99]: Us, Lower, Ratio, of ROW, needs "servers of MySQL";
    BY_SERVERS = "tap.by_servers" [p50 p99]: Us, Lower, Ratio, of ROW, needs "servers of MySQL";
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

pub(super) fn figures(document: &TapDocument, samples: &SampleFile) -> Result<Figures, CliError> {
    let windows = windows(samples)?;
    let mut figures = Figures::default();
    for row in &document.results.rows {
        let of = [row.shape.as_str(), &row.replica];
        figures.stated(LAG, &of, &row.lag);
        for (specs, times) in [
            (TO_ARRIVAL, &row.commit_to_arrival),
            (BY_SERVERS, &row.by_servers),
        ] {
            if let Some(times) = times {
                figures.stated(specs, &of, times);
            }
        }
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
