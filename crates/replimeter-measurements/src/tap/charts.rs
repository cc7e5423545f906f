//! The charts of a `tap` run.

use std::collections::BTreeMap;

use replimeter_instruments::tap::results::{TapDocument, TapWindow};

use replimeter_render::{
    chart::{Axis, Chart, Point, Scale, Series, Stroke},
    charts::{times_in, unit_for},
    figures::{Unit, count},
    report::Table,
};

/// A time of a window, and the style of its line.
type TimeOf = (Stroke, &'static str, fn(&TapWindow) -> Option<f64>);

const TIMES: [TimeOf; 4] = [
    (Stroke::Solid, "p50", |window| window.p50_us),
    (Stroke::Dash, "p99", |window| window.p99_us),
    (Stroke::Dot, "max", |window| window.max_us),
    (Stroke::DashDot, "oldest pending", |window| window.behind_us),
];

/// Returns all charts of a run.
#[must_use]
pub(crate) fn charts(run: &TapDocument) -> Vec<Chart> {
    let mut replicas: BTreeMap<&str, Vec<&TapWindow>> = BTreeMap::new();
    for window in &run.results.windows {
        replicas.entry(&window.replica).or_default().push(window);
    }
    vec![timeline(run, &replicas), rate(&replicas)]
}

/// Windows by replica, in the order of their names.
type Replicas<'a> = BTreeMap<&'a str, Vec<&'a TapWindow>>;

fn since_the_beginning() -> Axis {
    Axis::time("time since the start", Unit::Second, Scale::Linear)
}

/// Returns the lag of real traffic over time.
fn timeline(run: &TapDocument, replicas: &Replicas<'_>) -> Chart {
    let windows = run.results.windows.iter();
    let unit = unit_for(windows.clone().filter_map(|of| of.p50_us.or(of.max_us)));
    let mut series = Vec::new();
    for (index, (name, windows)) in replicas.iter().enumerate() {
        series.extend(TIMES.map(|(dash, what, pick)| Series {
            dash,
            hidden: what == "oldest pending",
            colour: Some(index),
            ..Series::new(
                format!("{name} {what}"),
                windows.iter().map(|of| Point::new(of.end_us, pick(of))),
            )
        }));
    }
    let rows = windows.map(|of| {
        let mut row = vec![of.replica.clone(), format!("{:.1}", of.end_us / 1e6)];
        row.extend([of.transactions, of.matched].map(count));
        row.extend(TIMES.map(|(.., pick)| times_in(unit)(pick(of))));
        row.push(count(of.pending));
        row
    });
    let times = TIMES.map(|(_, what, _)| format!("{what} ({})", unit.symbol()));
    let mut headings = vec!["replica", "until (s)", "transactions", "matched"];
    headings.extend(times.iter().map(String::as_str));
    headings.push("pending");
    Chart {
        id: "course",
        title: "Lag over time by window",
        note: "A window has a median from 20 transactions on and a 99th percentile from 1,000 on. A stalled replica shows no transactions, \
               and late ones afterwards: see the oldest pending transaction."
            .into(),
        x: since_the_beginning(),
        y: Axis::time("lag", unit, Scale::Linear),
        hover: "until {x:.1}: {y}",
        series,
        table: Table::new(&headings, 1, rows),
        ..Chart::default()
    }
}

/// Returns the rate of transactions.
fn rate(replicas: &Replicas<'_>) -> Chart {
    let per_s =
        |of: &TapWindow, number: u64| number as f64 / ((of.end_us - of.start_us) / 1e6).max(1e-6);
    let first = replicas.values().next().map_or(&[][..], Vec::as_slice);
    let sent = first
        .iter()
        .map(|of| Point::new(of.end_us, per_s(of, of.transactions)));
    let mut series = vec![Series::new("from the primary", sent)];
    series.extend(
        replicas
            .iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, windows)| {
                let windows = windows.iter();
                let points = windows.map(|of| Point::new(of.end_us, per_s(of, of.matched)));
                Series {
                    dash: Stroke::Dot,
                    ..Series::new(format!("from {name}"), points)
                }
            }),
    );
    Chart {
        id: "rate",
        title: "Transactions per second",
        x: since_the_beginning(),
        y: Axis::new("transactions per second", Scale::FromZero),
        hover: "until {x:.1}: {y} per s",
        series,
        table: Table::of(
            1,
            first,
            &[
                ("until (s)", &|of| format!("{:.1}", of.end_us / 1e6)),
                ("transactions per second", &|of| {
                    format!("{:.0}", per_s(of, of.transactions))
                }),
                ("bytes", &|of| count(of.bytes)),
            ],
        ),
        ..Chart::default()
    }
}
