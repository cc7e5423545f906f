//! The charts of a `loss` run.

use replimeter_instruments::loss::results::{CrashRecord, LossDocument};

use replimeter_render::{
    chart::{Axis, Chart, Mark, Point, Scale, Series},
    charts::unit_for,
    figures::count,
    format::or_dash,
    report::Table,
};

/// Returns all charts of a run: a column per shape with a point for each crash.
#[must_use]
pub(crate) fn charts(run: &LossDocument) -> Vec<Chart> {
    let crashes = &run.results.crashes;
    let unit = unit_for(crashes.iter().map(|crash| crash.recovery_us));
    let losses = Chart {
        id: "losses",
        title: "Acknowledged transactions lost in each crash",
        note: "One point per crash; the box spans the quartiles.".into(),
        y: Axis::new("acknowledged transactions lost", Scale::FromZero),
        mark: Mark::Box,
        hover: "{text}: {y:n} lost",
        series: per_crash(run, |crash| crash.lost as f64),
        table: Table::of(
            1,
            crashes,
            &[
                ("shape", &|crash| crash.shape.clone()),
                ("crash", &|crash| count(crash.number)),
                ("acknowledged", &|crash| count(crash.acknowledged)),
                ("lost", &|crash| count(crash.lost)),
                ("seen then lost", &|crash| count(crash.seen_then_lost)),
                ("unacknowledged, present", &|crash| {
                    count(crash.unacknowledged_present)
                }),
            ],
        ),
        ..Chart::default()
    };
    let recoveries = Chart {
        id: "recoveries",
        title: "Recovery: from the primary's failure to its successor's first write",
        note: "Excludes failure detection, except where a cluster detects the failure itself."
            .into(),
        y: Axis::time("recovery", unit, Scale::FromZero),
        mark: Mark::Box,
        hover: "{text}: {y}",
        series: per_crash(run, |crash| crash.recovery_us),
        table: Table::of(
            1,
            crashes,
            &[
                ("shape", &|crash| crash.shape.clone()),
                ("crash", &|crash| count(crash.number)),
                ("promoted", &|crash| crash.promoted.clone()),
                ("applied after", &|crash| {
                    or_dash(crash.drained_us, |us| unit.show(us))
                }),
                ("writable after", &|crash| unit.show(crash.promoted_us)),
                ("first write after", &|crash| unit.show(crash.recovery_us)),
            ],
        ),
        ..Chart::default()
    };
    vec![losses, recoveries]
}

fn per_crash(run: &LossDocument, pick: fn(&CrashRecord) -> f64) -> Vec<Series> {
    let series = run.results.rows.iter().map(|row| {
        let crashes = run.results.crashes.iter();
        let crashes = crashes.filter(|crash| crash.shape == row.shape);
        let points = crashes.map(|crash| {
            let number = format!("crash {}", crash.number);
            Point::of(&row.shape, pick(crash)).with_hover_text(number)
        });
        Series::new(&row.shape, points)
    });
    series.collect()
}
