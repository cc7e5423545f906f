//! The charts of a `stale` run.

use std::collections::BTreeSet;

use replimeter_instruments::stale::results::{
    LoadWindow, StaleDocument, StaleRow, StaleTimeline, StaleWindow,
};

use crate::stale::report::{label, read_description};
use replimeter_render::{
    chart::{Axis, Chart, Mark, Point, Scale, SecondAxis, Series, Stroke},
    charts::{times_in, unit_for},
    figures::{Unit, count, time},
    format::{Format, or_dash},
    report::Table,
};

/// Returns all charts of a run.
#[must_use]
pub(crate) fn charts(run: &StaleDocument) -> Vec<Chart> {
    vec![shares(run), curve(run), timeline(run), counters(run)]
}

/// Returns every row's share of stale reads.
fn shares(run: &StaleDocument) -> Chart {
    let rows = run.results.rows.iter().filter_map(|row| {
        let [low, high] = row.stale_percent_ci95.unwrap_or_default();
        Some((label(run, row), row, [row.stale_percent?, low, high]))
    });
    let rows: Vec<(String, &StaleRow, [f64; 3])> = rows.collect();
    let points = rows
        .iter()
        .map(|(name, _, [share, low, high])| Point::of(name, *share).within(*low, *high));
    let shares = Series::new("stale immediate reads", points);
    Chart {
        id: "shares",
        title: "Stale immediate reads after the acknowledgement",
        note: "Whiskers are 95 % intervals; without stale reads they end at the upper bound."
            .into(),
        y: Axis::new("stale reads (%)", Scale::FromZero),
        horizontal: true,
        mark: Mark::Bars,
        hover: "{x}: {y} %",
        whiskers: true,
        series: if run.results.rows.is_empty() {
            Vec::new()
        } else {
            vec![shares]
        },
        table: Table::of(
            1,
            rows,
            &[
                ("row", &|(name, ..)| name.clone()),
                ("rounds", &|(_, row, _)| count(row.rounds)),
                ("stale", &|(_, row, _)| count(row.stale)),
                ("% [95 %]", &|&(.., [share, low, high])| {
                    Format::Share.show(share, Some([low, high]))
                }),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns the share by the time after the acknowledgement.
fn curve(run: &StaleDocument) -> Chart {
    let judged = run.results.rows.iter().any(|row| row.judged == "load");
    let note = if judged {
        "Reads of the load by the age of the newest acknowledged version; whiskers are 95 % intervals."
    } else {
        "Each point has separate rounds, read once at that time; whiskers are 95 % intervals. The leftmost point is the immediate read."
    };
    let (mut series, mut drawn) = (Vec::new(), Vec::new());
    for row in run.results.rows.iter().filter(|row| row.curve.len() > 1) {
        let name = label(run, row);
        let share = |share: f64| share * 100.0;
        // The axis is logarithmic, so the immediate read is drawn at its actual time.
        let known = row
            .curve
            .iter()
            .filter(|point| point.reads > 0 && point.after_us > 0.0);
        let points = known.clone().map(|of| {
            let point = Point::new(of.after_us, share(of.probability));
            let [low, high] = of.probability_ci95.map(share);
            point.within(low, high)
        });
        series.push(Series::new(&name, points));
        drawn.extend(known.map(|of| (name.clone(), of)));
    }
    Chart {
        id: "curve",
        title: "Stale reads by time after the acknowledgement",
        note: note.to_owned(),
        x: Axis::time("time after the acknowledgement", Unit::Milli, Scale::Log),
        y: Axis::new("stale reads (%)", Scale::FromZero),
        hover: "after {x}: {y} % stale",
        whiskers: true,
        series,
        table: Table::of(
            1,
            drawn,
            &[
                ("row", &|(name, _)| name.clone()),
                ("after the ack", &|(_, of)| time(of.after_us)),
                ("reads", &|(_, of)| count(of.reads)),
                ("stale", &|(_, of)| count(of.stale)),
                ("% [95 %]", &|(_, of)| {
                    let percent = |of: f64| of * 100.0;
                    Format::Share.show(
                        percent(of.probability),
                        Some(of.probability_ci95.map(percent)),
                    )
                }),
            ],
        ),
        ..Chart::default()
    }
}

fn name(run: &StaleDocument, timeline: &StaleTimeline) -> String {
    let several = run.target.modes.len() > 1;
    let shape = several.then(|| format!("{}, ", timeline.shape));
    let sync = read_description(&timeline.read_consistency, &timeline.session_reset);
    let sync = (timeline.read_consistency != "off").then(|| format!(", {sync}"));
    let [shape, sync] = [shape, sync].map(Option::unwrap_or_default);
    format!("{shape}{}{sync}", timeline.load)
}

/// Returns a time only if it is positive.
fn lasting(us: f64) -> Option<f64> {
    (us > 0.0).then_some(us)
}

/// A time of a window, and the style of its line.
type TimeOf<T> = (Stroke, &'static str, fn(&T) -> Option<f64>);

/// Times of Replimeter's own requests.
const OURS: [TimeOf<StaleWindow>; 5] = [
    (Stroke::Solid, "slowest write", |of| of.write_max_us),
    (Stroke::Dot, "slowest read", |of| of.read_max_us),
    (Stroke::Dash, "longest staleness", |of| of.staleness_max_us),
    (Stroke::DashDot, "in flight", |of| lasting(of.under_way_us)),
    (Stroke::LongDash, "not visible yet", |of| {
        lasting(of.unshown_us)
    }),
];

/// Times of a load.
const LOADS: [TimeOf<LoadWindow>; 4] = [
    (Stroke::Dot, "p50", |of| of.p50_us),
    (Stroke::Dash, "p99", |of| of.p99_us),
    (Stroke::Solid, "slowest", |of| of.max_us),
    (Stroke::DashDot, "in flight", |of| lasting(of.under_way_us)),
];

/// Returns the longest time that anything in a case took, or has been in flight.
fn longest(timeline: &StaleTimeline) -> f64 {
    let times = timeline.windows.iter().flat_map(|of| {
        let loads = of.load.iter();
        let loads = loads.flat_map(|load| [load.max_us, Some(load.under_way_us)]);
        let waits = [Some(of.under_way_us), Some(of.unshown_us)];
        let ours = [of.write_max_us, of.read_max_us].into_iter().chain(waits);
        ours.chain(loads).flatten()
    });
    times.fold(0.0, f64::max)
}

fn time_of_case() -> Axis {
    let title = "time since the start of the case";
    Axis::time(title, Unit::Second, Scale::Linear)
}

/// Returns a series over the time of a case.
fn over_time<'a>(
    name: String,
    timeline: &'a StaleTimeline,
    value: impl Fn(&'a StaleWindow) -> Option<f64>,
) -> Series {
    let windows = timeline.windows.iter();
    Series::new(
        name,
        windows.map(|window| Point::new(window.end_us, value(window))),
    )
}

/// Returns request times of rounds and loads over time, with the server counters below.
fn timeline(run: &StaleDocument) -> Chart {
    let cases = &run.results.timelines;
    let worst = cases.iter().map(longest).fold(0.0, f64::max);
    // The case with the worst stall is shown first.
    let first = cases.iter().position(|timeline| longest(timeline) >= worst);
    let first = first.unwrap_or(0);
    // An axis with only hidden series has no range, which makes the browser log an error.
    let moves = |timeline: &StaleTimeline| counters_of(timeline).iter().any(Counter::moves);
    let mut order = std::iter::once(first).chain(0..cases.len());
    let counted = order.find(|index| cases.get(*index).is_some_and(moves));
    let mut series = Vec::new();
    for (index, timeline) in cases.iter().enumerate() {
        let name = name(run, timeline);
        let named = |what: &str| format!("{name} · {what}");
        let group = Some(name.clone());
        // With checked loads, the requests are the load's.
        let mut rows = run.results.rows.iter();
        let judged = rows.any(|row| row.judged == "load" && row.load == timeline.load);
        for (dash, what, pick) in OURS {
            series.push(Series {
                dash,
                hidden: judged || (index != first && what != "slowest write"),
                colour: Some(index),
                group: group.clone(),
                ..over_time(named(what), timeline, pick)
            });
        }
        let loads = timeline
            .windows
            .first()
            .map_or(&[][..], |window| &window.load);
        for (at, load) in loads.iter().enumerate() {
            for (dash, what, pick) in LOADS {
                let name = named(&format!("{} {what}", load.load));
                series.push(Series {
                    dash,
                    hidden: index != first || what == "p50",
                    colour: Some(cases.len() + at),
                    group: group.clone(),
                    ..over_time(name, timeline, |window| window.load.get(at).and_then(pick))
                });
            }
        }
        for counter in counters_of(timeline).into_iter().filter(Counter::moves) {
            series.push(Series {
                second: true,
                hidden: counted != Some(index),
                group: group.clone(),
                ..over_time(named(counter.name), timeline, |window| counter.at(window))
            });
        }
    }
    let unit = unit_for([worst]);
    Chart {
        id: "course",
        title: "Stalls: request times and server counters over time",
        note: "Windows of half a second. A stalled request is shown by its time in flight before it ends; \
               so is a write that is not visible on a reader. \
               Below, on the same time axis, are the server counters that were not 0: increments of counters, values of levels; a 0 leaves a gap. The case \
               with the worst stall is shown; the legend has the others."
            .into(),
        x: time_of_case(),
        y: Axis::time("time", unit, Scale::Log),
        second: counted.map(|_| SecondAxis::Below(Axis::new("counters", Scale::Log))),
        hover: "until {x:.1}: {y}",
        series,
        table: timeline_table(run, unit),
        ..Chart::default()
    }
}

fn timeline_table(run: &StaleDocument, unit: Unit) -> Table {
    let shown = times_in(unit);
    let load = |of: &LoadWindow| {
        let times = LOADS.map(|(.., pick)| shown(pick(of))).join(" / ");
        format!("{}: {} · {times}", of.load, count(of.operations))
    };
    let rows = run.results.timelines.iter().flat_map(|timeline| {
        let windows = timeline.windows.iter();
        windows.map(move |window| (timeline, window))
    });
    let row = |(timeline, of): (&StaleTimeline, &StaleWindow)| {
        let mut row = vec![name(run, timeline), format!("{:.1}", of.end_us / 1e6)];
        row.extend([of.rounds, of.stale].map(count));
        row.extend(OURS.map(|(.., pick)| shown(pick(of))));
        row.push(of.load.iter().map(load).collect::<Vec<_>>().join("; "));
        row
    };
    let mut headings = vec!["case", "until (s)", "rounds", "stale"];
    headings.extend(OURS.map(|(_, what, _)| what));
    headings.push("load: operations · p50 / p99 / slowest / in flight");
    Table::new(&headings, 1, rows.map(row))
}

/// A server's counter in a case.
struct Counter<'a> {
    key: &'a String,
    name: &'a str,
    /// Its values in each window that has it.
    values: Vec<f64>,
}

impl Counter<'_> {
    /// Returns whether it is worth drawing: not always 0, and not changed by every query.
    fn moves(&self) -> bool {
        self.largest() > 0.0 && !self.name.ends_with("Threads_running")
    }

    fn largest(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }

    fn at(&self, window: &StaleWindow) -> Option<f64> {
        window.counters.get(self.key).copied()
    }
}

/// Returns the counters of a case, by name.
fn counters_of(timeline: &StaleTimeline) -> Vec<Counter<'_>> {
    let windows = || timeline.windows.iter();
    let keys: BTreeSet<&String> = windows().flat_map(|of| of.counters.keys()).collect();
    let counters = keys.into_iter().map(|key| Counter {
        key,
        name: key.trim_end_matches('+'),
        values: windows()
            .filter_map(|of| of.counters.get(key).copied())
            .collect(),
    });
    counters.collect()
}

/// Returns the server counters during the run; the report's table also has those that stayed 0.
fn counters(run: &StaleDocument) -> Chart {
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    for timeline in &run.results.timelines {
        let case = name(run, timeline);
        for counter in counters_of(timeline) {
            if counter.moves() {
                let name = format!("{case} · {}", counter.name);
                series.push(over_time(name, timeline, |window| counter.at(window)));
            }
            rows.push((
                case.clone(),
                timeline.windows.len() - counter.values.len(),
                counter,
            ));
        }
    }
    Chart {
        id: "counters",
        title: "Server counters over time",
        note: "Counters are shown as increments per window, levels as values. Those that stayed 0 are only in the table.".into(),
        x: time_of_case(),
        y: Axis::new("value", Scale::FromZero),
        hover: "until {x:.1}: {y}",
        series,
        table: Table::of(
            1,
            rows,
            &[
                ("case", &|(case, ..)| case.clone()),
                ("counter", &|(.., of)| of.name.to_owned()),
                ("largest in a window", &|(.., of)| format!("{:.3}", of.largest())),
                ("total", &|(.., of)| {
                    let grown = of.key.ends_with('+').then(|| of.values.iter().sum::<f64>());
                    or_dash(grown, |sum| format!("{sum:.3}"))
                }),
                ("windows without a reply", &|(_, gaps, _)| count(*gaps as u64)),
            ],
        ),
        ..Chart::default()
    }
}
