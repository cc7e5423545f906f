//! The charts of a `front` run.

use replimeter_instruments::front::results::{FrontDocument, FrontWindow};
use replimeter_render::{
    chart::{Axis, Chart, Point, Scale, Series, Stroke},
    figures::{Unit, count},
    report::Table,
};

/// Returns all charts of a run.
pub(super) fn charts(run: &FrontDocument) -> Vec<Chart> {
    let windows = &run.results.windows;
    let line = |name: &str, value: fn(&FrontWindow) -> Option<f64>| {
        let points = windows
            .iter()
            .filter_map(|of| Some(Point::new(of.end_us, value(of)?)));
        Series::new(name, points)
    };
    let chart = |series| Chart {
        x: Axis::time("time since the start", Unit::Second, Scale::Linear),
        hover: "until {x:.1}: {y}",
        series,
        table: Table::of(
            1,
            windows,
            &[
                ("until (s)", &|of| format!("{:.1}", of.end_us / 1e6)),
                ("requests", &|of| count(of.requests)),
                ("errors", &|of| count(of.errors)),
                ("posts", &|of| count(of.inserts)),
                ("pages", &|of| count(of.pages)),
                ("own post missing", &|of| count(of.own_missing)),
                ("age, max (ms)", &|of| {
                    of.age_max_us
                        .map_or_else(|| "–".to_owned(), |age| Unit::Milli.show(age))
                }),
            ],
        ),
        ..Chart::default()
    };
    let errors = Series {
        dash: Stroke::Dot,
        colour: Some(2),
        ..line("errors", |of| Some(rate(of.errors, of)))
    };
    let requests = Chart {
        id: "traffic",
        title: "Requests per second",
        y: Axis::new("requests/s", Scale::FromZero),
        ..chart(vec![
            line("requests", |of| Some(rate(of.requests, of))),
            errors,
        ])
    };
    let age = Chart {
        id: "ages",
        title: "Age of the oldest page",
        note: "Maximum of each window; 0 when no page missed a post.".into(),
        y: Axis::time("age", Unit::Milli, Scale::FromZero),
        ..chart(vec![line("age", |of| of.age_max_us)])
    };
    vec![requests, age]
}

fn rate(count: u64, of: &FrontWindow) -> f64 {
    count as f64 * 1e6 / (of.end_us - of.start_us).max(1.0)
}
