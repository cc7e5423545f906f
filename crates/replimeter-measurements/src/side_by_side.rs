//! The charts of several runs side by side.

use std::collections::BTreeMap;

use replimeter_model::{load_results::LoadRow, record::Distribution};

use crate::{cost, stale};
use replimeter_render::charts::{grouped, unit_for};
use replimeter_render::{
    chart::{Axis, Chart, Mark, Point, Scale, Series, Symbol},
    figures::{count, time},
    format::{or_dash, per_second},
    headline::overall_rows,
    report::Table,
    side_by_side::{ModePoint, RunSide, RunSummary, map_of, mode_map, price_label},
};

/// Returns all charts of these runs.
#[must_use]
pub fn charts(sides: &[RunSide<'_>]) -> Vec<Chart> {
    let map = &mode_map(sides);
    let curves = Chart {
        id: "curves",
        title: "Stale reads of every run, by time after the acknowledgement",
        ..curves(sides)
    };
    vec![lags(sides), curves, prices(sides), loads(sides), modes(map)]
}

/// The quantiles that are drawn.
const QUANTILES: [&str; 7] = ["min", "p50", "p90", "p95", "p99", "p99.9", "max"];

fn quantiles(of: &Distribution) -> [Option<f64>; 7] {
    [
        of.min_us, of.p50_us, of.p90_us, of.p95_us, of.p99_us, of.p999_us, of.max_us,
    ]
}

/// Returns the lag of every run.
fn lags(sides: &[RunSide<'_>]) -> Chart {
    let mut named: Vec<(String, &Distribution)> = Vec::new();
    for side in sides {
        let RunSummary::Lag(document) = side.findings else {
            continue;
        };
        for row in overall_rows(document)
            .into_iter()
            .filter(|row| row.from_ack.count > 0)
        {
            // Several runs have replicas of the same name, so the shape is added.
            let mut name = format!("{}: {} {}", side.letter, row.shape, row.replica);
            if document.several_methods() {
                name += &format!(" ({})", row.method);
            }
            named.push((name, &row.from_ack));
        }
    }
    let series = named.iter().map(|(name, of)| {
        let points = QUANTILES.into_iter().zip(quantiles(of));
        Series::new(name, points.map(|(level, us)| Point::of(level, us)))
    });
    let unit = unit_for(named.iter().filter_map(|(_, of)| of.p50_us));
    // Medians from 0.1 ms to seconds need a logarithmic axis, but some medians are negative.
    let middle = named
        .iter()
        .flat_map(|(_, of)| [of.p50_us, of.p90_us, of.p95_us]);
    let middle: Vec<f64> = middle.flatten().collect();
    let scale = if middle.iter().all(|us| *us > 0.0) {
        Scale::Log
    } else {
        let low = middle.iter().copied().fold(f64::MAX, f64::min);
        let high = middle.iter().copied().fold(f64::MIN, f64::max);
        let room = ((high - low) * 0.2).max(unit.scale() / 100.0);
        Scale::Range([low - room, high + room])
    };
    let row = |(name, of): &(String, &Distribution)| {
        let mut row = vec![name.clone(), count(of.count)];
        row.extend(quantiles(of).map(|us| or_dash(us, time)));
        row
    };
    Chart {
        id: "lags",
        title: "Lag of every run",
        note: "Quantiles with fewer than ten samples beyond them are not drawn. The axis fits the quantiles: extremes beyond it, or \
               below 0 where it is logarithmic, are in the table."
            .into(),
        y: Axis::time("lag from ack", unit, scale),
        hover: "{x}: {y}",
        series: series.collect(),
        table: Table::new(
            &[&["run and replica", "rounds"], &QUANTILES[..]].concat(),
            1,
            named.iter().map(row),
        ),
        ..Chart::default()
    }
}

/// Returns P(stale | t) of every run.
fn curves(sides: &[RunSide<'_>]) -> Chart {
    let rows = sides.iter().flat_map(|side| {
        let rows = match side.findings {
            RunSummary::Stale(document) => &document.results.rows[..],
            _ => &[],
        };
        rows.iter().map(|row| {
            let of = [&row.shape, &row.reader, &row.load, &row.read_consistency];
            let [shape, reader, load, reads] = of;
            (
                format!("{}: {shape} {reader}, {load}, {reads}", side.letter),
                row,
            )
        })
    });
    stale::charts::curves("run and reader", rows)
}

/// Returns the throughput of every `cost` run.
fn prices(sides: &[RunSide<'_>]) -> Chart {
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    for side in sides {
        let RunSummary::Cost(document) = side.findings else {
            continue;
        };
        let prefix = format!("{}: ", side.letter);
        series.extend(cost::charts::series_by_threads(document, &prefix, |row| {
            let of = row.throughput;
            Some(Point::of(price_label(side, row), of.mean).within(of.ci95.low, of.ci95.high))
        }));
        let all = cost::charts::by_threads(document).into_values().flatten();
        rows.extend(all.map(|row| (price_label(side, row), row)));
    }
    Chart {
        id: "prices",
        title: "Throughput of each mode in every run",
        note: "Whiskers are 95 % intervals; a run of one start has none.".into(),
        y: Axis::new("operations per second", Scale::FromZero),
        mark: Mark::Bars,
        hover: "{x}: {y} per s",
        whiskers: true,
        series,
        table: Table::of(
            1,
            rows,
            &[
                ("run and mode", &|(label, _)| label.clone()),
                ("threads", &|(_, row)| row.threads.to_string()),
                ("per second", &|(_, row)| per_second(row.throughput.mean)),
                ("latency p50", &|(_, row)| or_dash(row.latency.p50_us, time)),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns the throughput of every load by connections.
fn loads(sides: &[RunSide<'_>]) -> Chart {
    let mut named: Vec<(String, &LoadRow)> = Vec::new();
    for side in sides {
        if let RunSummary::Load(document) = side.findings {
            let run = format!("{}: {}", side.letter, document.target.shape);
            let rows = document.results.rows.iter();
            named.extend(rows.map(|row| (format!("{run} {}", row.load.workload), row)));
        }
    }
    let mut lines = grouped(named);
    for (_, rows) in &mut lines {
        rows.sort_by_key(|row| row.load.threads);
    }
    let series = lines.iter().map(|(name, rows)| {
        let points = rows.iter().map(|row| {
            let of = row.load.throughput;
            Point::new(row.load.threads, of.mean).within(of.ci95.low, of.ci95.high)
        });
        Series::new(name, points)
    });
    let rows = lines.iter();
    let rows = rows.flat_map(|(name, rows)| rows.iter().map(move |row| (name, &row.load)));
    Chart {
        id: "loads",
        title: "Throughput of every load",
        x: Axis::new("threads", Scale::Linear),
        y: Axis::new("operations per second", Scale::FromZero),
        hover: "{x} threads: {y} per s",
        whiskers: true,
        series: series.collect(),
        table: Table::of(
            1,
            rows,
            &[
                ("run and workload", &|(name, _)| (*name).clone()),
                ("threads", &|(_, load)| load.threads.to_string()),
                ("per second", &|(_, load)| per_second(load.throughput.mean)),
                ("latency p50", &|(_, load)| {
                    or_dash(load.latency.p50_us, time)
                }),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns commit latency × throughput × staleness × loss: each mode is a point whose size is its stale reads
/// and whose shape is how often a crash lost writes.
fn modes(map: &BTreeMap<String, ModePoint>) -> Chart {
    let placed = map
        .iter()
        .filter_map(|(mode, of)| Some((mode, of, of.commit_us?, of.per_s?)));
    let placed: Vec<(&String, &ModePoint, f64, f64)> = placed.collect();
    let series = placed
        .iter()
        .enumerate()
        .map(|(index, &(mode, of, us, per_s))| {
            let shares = [of.stale, of.lossy]
                .map(|share| share.map(|of| format!("{} %", of.display_text())));
            let [stale, lossy] =
                shares.map(|share| share.unwrap_or_else(|| "not measured".to_owned()));
            let text = format!("stale immediate reads {stale}; crashes with loss {lossy}");
            // The legend has the names.
            let point = Point {
                label: Some((index + 1).to_string()),
                ..Point::new(us, per_s).with_hover_text(text)
            };
            Series {
                // Area by share; a hollow point is a mode whose losses were not measured.
                size: Some(10.0 + 4.0 * of.stale.map_or(0.0, |share| share.value).sqrt()),
                symbol: match of.lossy {
                    None => Symbol::CircleOpen,
                    Some(share) if share.value > 0.0 => Symbol::X,
                    Some(_) => Symbol::Circle,
                },
                ..Series::new(format!("{}: {mode}", index + 1), [point])
            }
        });
    let unit = unit_for(placed.iter().map(|(.., us, _)| *us));
    Chart {
        id: "modes",
        title: "Comparison of modes",
        note: "Left: faster acknowledgement. Up: more writes. Larger: more stale immediate reads. Cross: lost acknowledged \
               writes in a crash. Full circle: lost none. Open circle: not tested."
            .into(),
        x: Axis::time("write latency, p50", unit, Scale::FromZero),
        y: Axis::new("writes per second", Scale::FromZero),
        mark: Mark::Points,
        hover: "{x}, {y} per s; {text}",
        series: if placed.len() > 1 { series.collect() } else { Vec::new() },
        table: map_of(map),
        ..Chart::default()
    }
}
