//! The charts of a `watch` run.

use std::collections::BTreeSet;

use replimeter_instruments::watch::results::{State, WatchDocument, WatchWindow};
use replimeter_render::{
    chart::{Axis, Chart, Point, Scale, Series, Stroke},
    figures::{Unit, count},
    report::Table,
};

/// Returns all charts of a run.
pub(super) fn charts(run: &WatchDocument) -> Vec<Chart> {
    let windows = &run.results.windows;
    let replicas: BTreeSet<&str> = windows
        .iter()
        .filter(|window| window.state != Some(State::Primary))
        .map(|window| window.server.as_str())
        .collect();
    let line = |server: &&str, ending: &str, value: fn(&WatchWindow) -> Option<f64>| {
        let of = windows.iter().filter(|window| window.server == **server);
        let points = of.filter_map(|window| Some(Point::new(window.end_us, value(window)?)));
        Series::new(format!("{server}{ending}"), points)
    };
    let series = replicas.iter().enumerate().flat_map(|(index, server)| {
        [
            Series {
                colour: Some(index),
                ..line(server, ", at least", |window| window.lag_max_low_us)
            },
            Series {
                colour: Some(index),
                dash: Stroke::Dot,
                ..line(server, ", at most", |window| window.lag_max_high_us)
            },
        ]
    });
    vec![Chart {
        id: "lag",
        title: "Lag of each replica",
        note: "Largest ends of each window.".into(),
        x: Axis::time("time since the start", Unit::Second, Scale::Linear),
        y: Axis::time("lag", Unit::Milli, Scale::FromZero),
        hover: "until {x:.1}: {y}",
        series: series.collect(),
        table: Table::of(
            2,
            windows,
            &[
                ("until (s)", &|of| format!("{:.1}", of.end_us / 1e6)),
                ("server", &|of| of.server.clone()),
                ("worst state", &|of| {
                    of.state.map_or("–", State::name).to_owned()
                }),
                ("lag, at least (ms)", &|of| {
                    of.lag_max_low_us
                        .map_or_else(|| "–".to_owned(), |us| Unit::Milli.show(us))
                }),
                ("at most (ms)", &|of| {
                    of.lag_max_high_us
                        .map_or_else(|| "–".to_owned(), |us| Unit::Milli.show(us))
                }),
                ("behind, max", &|of| {
                    of.behind_max.map_or_else(|| "–".to_owned(), count)
                }),
            ],
        ),
        ..Chart::default()
    }]
}
