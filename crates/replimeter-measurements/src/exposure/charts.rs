//! The charts of an `exposure` run.

use replimeter_instruments::exposure::results::{ExposureDocument, ExposureWindow};

use replimeter_render::{
    chart::{Axis, Chart, Point, Scale, Series, Stroke},
    figures::{Unit, count},
    report::Table,
};

/// Returns all charts of a run; none if exposure is zero by design.
#[must_use]
pub(crate) fn charts(run: &ExposureDocument) -> Vec<Chart> {
    let windows = &run.results.windows;
    let line = |name: &str, value: fn(&ExposureWindow) -> f64| {
        Series::new(
            name,
            windows.iter().map(|of| Point::new(of.end_us, value(of))),
        )
    };
    let most = Series {
        dash: Stroke::Dot,
        ..line("most", |of| of.transactions_max as f64)
    };
    let oldest = Series {
        colour: Some(2),
        ..line("oldest", |of| of.age_max_us)
    };
    let chart = |series| Chart {
        x: Axis::time("time since the start", Unit::Second, Scale::Linear),
        hover: "until {x:.1}: {y}",
        series: if windows.is_empty() {
            Vec::new()
        } else {
            series
        },
        table: Table::of(
            1,
            windows,
            &[
                ("until (s)", &|of| format!("{:.1}", of.end_us / 1e6)),
                ("polls", &|of| count(of.polls)),
                ("committed", &|of| count(of.committed)),
                ("transactions, mean", &|of| {
                    format!("{:.2}", of.transactions_mean)
                }),
                ("most", &|of| count(of.transactions_max)),
                ("bytes, max", &|of| count(of.bytes_max)),
                ("age, max (ms)", &|of| Unit::Milli.show(of.age_max_us)),
            ],
        ),
        ..Chart::default()
    };
    let exposed = Chart {
        id: "exposed",
        title: "Transactions that no replica had received",
        note: "Mean and maximum of each window.".into(),
        y: Axis::new("transactions", Scale::FromZero),
        ..chart(vec![line("mean", |of| of.transactions_mean), most])
    };
    let age = Chart {
        id: "age",
        title: "Age of the oldest exposed transaction",
        note: "Maximum of each window.".into(),
        y: Axis::time("age", Unit::Milli, Scale::FromZero),
        ..chart(vec![oldest])
    };
    vec![exposed, age]
}
