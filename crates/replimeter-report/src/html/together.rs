//! The page of several runs.

use minijinja::{Value, context};
use replimeter_model::{
    load::{LoadRow, Rate},
    manifest::Manifest,
    record::Distribution,
};
use serde_json::json;

use super::{
    HtmlError,
    frame::Page,
    pictures::{DataTable, Picture, colour, figure},
};
use crate::{
    answer::overall_rows,
    figures::{Unit, count, time},
    stale::percent,
    together::{self, Findings, MODE_HEADINGS, Side, mode_lines, mode_map, price_label},
};

const TEMPLATE: &str = include_str!("together.html");
/// Where a point's number stands, in turns.
const PLACES: [&str; 4] = ["top center", "bottom center", "middle right", "middle left"];

/// The quantiles that are drawn, with their places on the axis.
const QUANTILES: [&str; 7] = ["min", "p50", "p90", "p95", "p99", "p99.9", "max"];

fn quantiles(of: &Distribution) -> [Option<f64>; 7] {
    [
        of.min_us, of.p50_us, of.p90_us, of.p95_us, of.p99_us, of.p999_us, of.max_us,
    ]
}

/// Renders one page of several runs; `manifest` is theirs together, `plans` every plan.
///
/// # Errors
/// When the template refuses.
pub fn together(sides: &[Side<'_>], manifest: &Manifest, plans: &str) -> Result<String, HtmlError> {
    let map = mode_map(sides);
    let mut pictures: Vec<Picture> = Vec::new();
    pictures.extend(lags(sides));
    pictures.extend(curves(sides));
    pictures.extend(prices(sides));
    pictures.extend(loads(sides));
    pictures.extend(modes(&map));
    let runs: Vec<Value> = sides
        .iter()
        .map(|side| {
            context! {
                letter => &side.letter, command => side.command, title => side.title, shape => side.shape, dir => side.dir,
                started_at => side.started_at, answer => side.answer, text => &side.text,
            }
        })
        .collect();
    let mut shapes: Vec<&str> = sides.iter().map(|side| side.shape).collect();
    shapes.dedup();
    let page = Page {
        template: TEMPLATE,
        command: "report",
        heading: "Runs beside one another",
        shape: &shapes.join(", "),
        extent: format!("{} runs", sides.len()),
        document: context! { answer => together::answer(sides), started_at => sides.first().map(|side| side.started_at) },
        manifest,
        plan: plans,
        several: true,
        pictures,
        text_report: sides
            .iter()
            .map(|side| format!("{}  {}\n\n{}\n", side.letter, side.dir, side.text))
            .collect(),
    };
    // Lags alone are in their own picture and table; a map of dashes says nothing more.
    let known = map
        .values()
        .any(|point| point.commit_us.is_some() || point.stale.is_some() || point.lossy.is_some());
    let lines = if map.len() > 1 && known {
        mode_lines(&map)
    } else {
        Vec::new()
    };
    page.render(context! { runs, mode_headings => MODE_HEADINGS.to_vec(), mode_lines => lines })
}

/// The 95 % intervals of rates, as whiskers.
fn whiskers(rates: &[Rate]) -> serde_json::Value {
    let reach = |end: fn(&Rate) -> Option<f64>| {
        let of = |rate: &Rate| {
            rate.mean
                .zip(end(rate))
                .map_or(0.0, |(mean, end)| (end - mean).abs())
        };
        rates.iter().map(of).collect::<Vec<_>>()
    };
    json!({"type": "data", "symmetric": false, "array": reach(|rate| rate.high), "arrayminus": reach(|rate| rate.low)})
}

/// Lag of every run in one picture.
fn lags(sides: &[Side<'_>]) -> Option<Picture> {
    let mut named: Vec<(String, &Distribution)> = Vec::new();
    for side in sides {
        if let Findings::Lag(document) = side.findings {
            let rows = overall_rows(document)
                .into_iter()
                .filter(|row| row.from_ack.count > 0);
            // Several runs have replicas of the same name: the shape tells them apart.
            named.extend(rows.map(|row| {
                let method = if document.several_methods() {
                    format!(" ({})", row.method)
                } else {
                    String::new()
                };
                (
                    format!("{}: {} {}{method}", side.letter, row.shape, row.replica),
                    &row.from_ack,
                )
            }));
        }
    }
    if named.is_empty() {
        return None;
    }
    let typical = named
        .iter()
        .filter_map(|(_, of)| of.p50_us)
        .fold(0.0, f64::max);
    let unit = Unit::for_size(typical);
    let traces = named.iter().enumerate().map(|(index, (name, of))| {
        json!({
            "type": "scatter", "mode": "lines+markers", "name": name,
            "x": QUANTILES, "y": quantiles(of).map(|us| us.map(|us| us / unit.scale())),
            "hovertemplate": format!("%{{x}}: %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
            "line": {"color": colour(index)},
        })
    });
    let middle = || {
        named
            .iter()
            .flat_map(|(_, of)| [of.p50_us, of.p90_us, of.p95_us])
            .flatten()
    };
    // From a tenth of a millisecond to seconds only logarithms tell medians apart; some medians are negative, though.
    let mut axis = json!({"title": {"text": format!("lag from ack ({})", unit.symbol())}});
    if middle().all(|us| us > 0.0) {
        axis["type"] = json!("log");
    } else {
        let (low, high) = middle().fold((f64::MAX, f64::MIN), |(low, high), us| {
            (low.min(us), high.max(us))
        });
        let room = ((high - low) * 0.2).max(unit.scale() / 100.0);
        axis["range"] = json!([(low - room) / unit.scale(), (high + room) / unit.scale()]);
    }
    let figure = figure("lags", traces.collect(), json!({"type": "category"}), axis);
    let rows = named.iter().map(|(name, of)| {
        let mut line = vec![name.clone(), count(of.count)];
        line.extend(quantiles(of).map(|us| us.map_or_else(|| "–".to_owned(), time)));
        line
    });
    let mut header = vec!["run and replica".to_owned(), "rounds".to_owned()];
    header.extend(QUANTILES.map(str::to_owned));
    Some(Picture {
        id: "lags",
        title: "Lag of every run",
        note: "A quantile with fewer than ten samples beyond it is not drawn. The scale is made for the quantiles: extremes that lie beyond it, or \
               below 0 where it is logarithmic, are in the table."
            .to_owned(),
        figure,
        table: DataTable { header, rows: rows.collect() },
    })
}

/// P(stale | t) of every run in one picture.
fn curves(sides: &[Side<'_>]) -> Option<Picture> {
    let (mut traces, mut rows) = (Vec::new(), Vec::new());
    for side in sides {
        let Findings::Stale(document) = side.findings else {
            continue;
        };
        for row in document.results.iter().filter(|row| row.curve.len() > 1) {
            let points: Vec<_> = row
                .curve
                .iter()
                .filter(|point| point.reads > 0 && point.after_us > 0.0)
                .collect();
            let name = format!(
                "{}: {} {}, {}, {}",
                side.letter, row.shape, row.reader, row.load, row.sync_reads
            );
            rows.extend(points.iter().map(|point| {
                vec![
                    name.clone(),
                    time(point.after_us),
                    count(point.reads),
                    percent(
                        point.probability * 100.0,
                        point.low * 100.0,
                        point.high * 100.0,
                    ),
                ]
            }));
            traces.push(json!({
                "type": "scatter", "mode": "lines+markers", "name": name,
                "x": points.iter().map(|point| point.after_us / 1e3).collect::<Vec<_>>(),
                "y": points.iter().map(|point| point.probability * 100.0).collect::<Vec<_>>(),
                "hovertemplate": "after %{x:.4~g} ms: %{y:.3~g} % stale<extra>%{fullData.name}</extra>",
                "line": {"color": colour(traces.len())},
            }));
        }
    }
    (!traces.is_empty()).then(|| Picture {
        id: "curves",
        title: "Stale reads of every run, by the time after the acknowledgement",
        note: String::new(),
        figure: figure(
            "curves",
            traces,
            json!({"title": {"text": "time after the acknowledgement (ms)"}, "type": "log"}),
            json!({"title": {"text": "stale reads (%)"}, "rangemode": "tozero"}),
        ),
        table: DataTable::new(
            &["run and reader", "after the ack", "reads", "% [95 %]"],
            rows,
        ),
    })
}

/// Every price list's throughput.
fn prices(sides: &[Side<'_>]) -> Option<Picture> {
    let (mut traces, mut rows) = (Vec::new(), Vec::new());
    for side in sides {
        let Findings::Cost(document) = side.findings else {
            continue;
        };
        let mut threads: Vec<u32> = document.results.iter().map(|row| row.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        for threads in threads {
            let group: Vec<_> = document
                .results
                .iter()
                .filter(|row| row.threads == threads)
                .collect();
            let labels: Vec<String> = group.iter().map(|row| price_label(side, row)).collect();
            rows.extend(group.iter().zip(&labels).map(|(row, label)| {
                let per_s = row.throughput.mean.map_or_else(
                    || "–".to_owned(),
                    |mean| count(mean.max(0.0).round() as u64),
                );
                vec![
                    label.clone(),
                    threads.to_string(),
                    per_s,
                    row.latency.p50_us.map_or_else(|| "–".to_owned(), time),
                ]
            }));
            traces.push(json!({
                "type": "bar", "name": format!("{}: {threads} thread{}", side.letter, if threads == 1 { "" } else { "s" }),
                "x": labels, "y": group.iter().map(|row| row.throughput.mean).collect::<Vec<_>>(),
                "error_y": whiskers(&group.iter().map(|row| row.throughput).collect::<Vec<_>>()),
                "hovertemplate": "%{x}: %{y:,.0f} per s<extra>%{fullData.name}</extra>",
                "marker": {"color": colour(traces.len())},
            }));
        }
    }
    (!traces.is_empty()).then(|| {
        let mut figure = figure(
            "prices",
            traces,
            json!({"type": "category"}),
            json!({"title": {"text": "operations per second"}, "rangemode": "tozero"}),
        );
        figure["layout"]["barmode"] = json!("group");
        Picture {
            id: "prices",
            title: "Throughput of every price list",
            note: "Whiskers are 95 % intervals; a price list of one start has none.".to_owned(),
            figure,
            table: DataTable::new(
                &["run and mode", "threads", "per second", "latency p50"],
                rows,
            ),
        }
    })
}

/// Throughput of every load over its connections.
fn loads(sides: &[Side<'_>]) -> Option<Picture> {
    let mut lines: Vec<(String, Vec<&LoadRow>)> = Vec::new();
    for side in sides {
        let Findings::Load(document) = side.findings else {
            continue;
        };
        for row in &document.results {
            let name = format!(
                "{}: {} {}",
                side.letter, document.target.shape, row.load.workload
            );
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, rows)) => rows.push(row),
                None => lines.push((name, vec![row])),
            }
        }
    }
    let mut rows = Vec::new();
    let mut traces = Vec::new();
    for (name, mut of) in lines {
        of.sort_by_key(|row| row.load.threads);
        rows.extend(of.iter().map(|row| {
            let per_s = row.load.throughput.mean.map_or_else(
                || "–".to_owned(),
                |mean| count(mean.max(0.0).round() as u64),
            );
            vec![
                name.clone(),
                row.load.threads.to_string(),
                per_s,
                row.load.latency.p50_us.map_or_else(|| "–".to_owned(), time),
            ]
        }));
        traces.push(json!({
            "type": "scatter", "mode": "lines+markers", "name": name,
            "x": of.iter().map(|row| row.load.threads).collect::<Vec<_>>(),
            "y": of.iter().map(|row| row.load.throughput.mean).collect::<Vec<_>>(),
            "error_y": whiskers(&of.iter().map(|row| row.load.throughput).collect::<Vec<_>>()),
            "hovertemplate": "%{x} threads: %{y:,.0f} per s<extra>%{fullData.name}</extra>",
            "line": {"color": colour(traces.len())},
        }));
    }
    (!traces.is_empty()).then(|| Picture {
        id: "loads",
        title: "Throughput of every load",
        note: String::new(),
        figure: figure(
            "loads",
            traces,
            json!({"title": {"text": "threads"}}),
            json!({"title": {"text": "operations per second"}, "rangemode": "tozero"}),
        ),
        table: DataTable::new(
            &["run and workload", "threads", "per second", "latency p50"],
            rows,
        ),
    })
}

/// Commit latency × throughput × staleness × loss: each mode is a point whose size is its stale reads and
/// whose colour is how often a crash lost writes.
fn modes(map: &std::collections::BTreeMap<String, together::ModePoint>) -> Option<Picture> {
    let placed: Vec<_> = map
        .iter()
        .filter(|(_, point)| point.commit_us.is_some() && point.per_s.is_some())
        .collect();
    if placed.len() < 2 {
        return None;
    }
    let unit = Unit::for_size(
        placed
            .iter()
            .filter_map(|(_, point)| point.commit_us)
            .fold(0.0, f64::max),
    );
    let traces = placed.iter().enumerate().map(|(index, (mode, point))| {
        let stale = point.stale.map_or_else(|| "not measured".to_owned(), |share| format!("{} %", share.shown()));
        let lossy = point.lossy.map_or_else(|| "not measured".to_owned(), |share| format!("{} %", share.shown()));
        json!({
            "type": "scatter", "mode": "markers+text", "name": format!("{}: {mode}", index + 1),
            // Points that lie together have their numbers around them; the legend has the names.
            "text": [(index + 1).to_string()], "textposition": PLACES[index % PLACES.len()], "cliponaxis": false,
            "x": [point.commit_us.map(|us| us / unit.scale())], "y": [point.per_s],
            "customdata": [[stale, lossy]],
            "hovertemplate": format!(
                "{mode}: %{{x:.4~g}} {}, %{{y:,.0f}} per s; stale at once %{{customdata[0]}}; crashes that lost %{{customdata[1]}}<extra></extra>",
                unit.symbol()
            ),
            "marker": {
                "color": colour(index),
                // Area by share; a hollow point is a mode whose losses nobody measured.
                "size": 10.0 + 4.0 * point.stale.map_or(0.0, |share| share.value).sqrt(),
                "symbol": match point.lossy { None => "circle-open", Some(share) if share.value > 0.0 => "x", Some(_) => "circle" },
            },
        })
    });
    Some(Picture {
        id: "modes",
        title: "The map of modes",
        note: "To the left: faster acknowledgements; up: more writes. The larger, the more reads are stale at once. A cross lost acknowledged \
               writes in a crash, a full circle did not, an open one was not tried."
            .to_owned(),
        figure: figure(
            "modes",
            traces.collect(),
            json!({"title": {"text": format!("write until its acknowledgement, p50 ({})", unit.symbol())}, "rangemode": "tozero"}),
            json!({"title": {"text": "writes per second"}, "rangemode": "tozero"}),
        ),
        table: DataTable::new(&MODE_HEADINGS, mode_lines(map)),
    })
}

#[cfg(test)]
mod tests {
    use replimeter_model::record::{LagDocument, LagRow};

    use super::*;
    use crate::{cost, together::tests::side};

    #[test]
    fn runs_of_all_kinds_share_a_page() {
        let times = Distribution {
            count: 100,
            min_us: Some(1.0),
            p50_us: Some(100.0),
            max_us: Some(9e3),
            ..Distribution::default()
        };
        let lag = |shape: &str| LagDocument {
            results: vec![LagRow {
                shape: shape.to_owned(),
                replica: "replica1".to_owned(),
                from_ack: times.clone(),
                ..LagRow::default()
            }],
            ..LagDocument::default()
        };
        let (one, two, mut prices) = (lag("async:1"), lag("semi-sync:1"), cost::example());
        // The map is of the largest number of threads, at which the example has one mode only.
        prices.results.retain(|row| row.threads == 1);
        prices
            .results
            .iter_mut()
            .for_each(|row| row.latency.p50_us = row.latency.mean_us);
        let sides = [
            side("A", "lag", Findings::Lag(&one)),
            side("B", "lag", Findings::Lag(&two)),
            side("C", "cost", Findings::Cost(&prices)),
            side("D", "tap", Findings::Other),
        ];
        let page = together(&sides, &Manifest::default(), "").unwrap();
        for wanted in [
            "id=\"lags\"",
            "A: async:1 replica1",
            "B: semi-sync:1 replica1",
            "id=\"prices\"",
            "id=\"modes\"",
            "id=\"map\"",
        ] {
            assert!(page.contains(wanted), "`{wanted}` is missing");
        }
        assert!(
            page.contains("&lt;b&gt;") && !page.contains("/runs/<b>"),
            "names are inert"
        );
        let alone = together(&sides[3..], &Manifest::default(), "").unwrap();
        assert!(!alone.contains("class=\"picture\""));
    }
}
