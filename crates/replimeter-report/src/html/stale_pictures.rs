//! The pictures of a `stale` run.

use std::collections::BTreeSet;

use replimeter_model::stale::{StaleCourse, StaleDocument, StaleWindow};
use serde_json::{Value, json};

use super::pictures::{DataTable, Picture, colour, figure};
use crate::{
    figures::{Unit, count, time},
    stale::{label, percent, way},
};

/// All of them.
pub(super) fn all(document: &StaleDocument) -> Vec<Picture> {
    let mut pictures = Vec::new();
    if !document.results.is_empty() {
        pictures.push(shares(document));
    }
    pictures.extend(curve(document));
    pictures.extend(course(document));
    pictures.extend(counters(document));
    pictures
}

/// Every row's share of stale reads.
fn shares(document: &StaleDocument) -> Picture {
    let rows: Vec<_> = document.results.iter().filter(|row| row.stale_percent.is_some()).collect();
    let names: Vec<String> = rows.iter().map(|row| label(document, row)).collect();
    let share = |value: Option<f64>| value.unwrap_or(0.0);
    let trace = json!({
        "type": "bar", "orientation": "h", "name": "stale at once",
        "y": names,
        "x": rows.iter().map(|row| share(row.stale_percent)).collect::<Vec<_>>(),
        "error_x": {
            "type": "data", "symmetric": false,
            "array": rows.iter().map(|row| share(row.stale_percent_high) - share(row.stale_percent)).collect::<Vec<_>>(),
            "arrayminus": rows.iter().map(|row| share(row.stale_percent) - share(row.stale_percent_low)).collect::<Vec<_>>(),
        },
        "hovertemplate": "%{y}: %{x:.3g} %<extra></extra>",
        "marker": {"color": colour(0)},
    });
    let table = rows.iter().zip(&names).map(|(row, name)| {
        vec![
            name.clone(),
            count(row.rounds),
            count(row.stale),
            percent(share(row.stale_percent), share(row.stale_percent_low), share(row.stale_percent_high)),
        ]
    });
    Picture {
        id: "shares",
        title: "How often: stale reads at once after the acknowledgement",
        note: "Whiskers are 95 % intervals; where nothing was stale they end at the upper bound.".to_owned(),
        figure: figure(
            "shares",
            vec![trace],
            json!({"title": {"text": "stale reads (%)"}, "rangemode": "tozero"}),
            json!({"automargin": true, "autorange": "reversed"}),
        ),
        table: DataTable { header: ["row", "rounds", "stale", "% [95 %]"].map(str::to_owned).to_vec(), rows: table.collect() },
    }
}

/// The share by the time after the acknowledgement.
fn curve(document: &StaleDocument) -> Option<Picture> {
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    for (index, row) in document.results.iter().filter(|row| row.curve.len() > 1).enumerate() {
        let name = label(document, row);
        // The axis is logarithmic, and "at once" has a time too.
        let points: Vec<_> = row.curve.iter().filter(|point| point.reads > 0 && point.after_us > 0.0).collect();
        rows.extend(points.iter().map(|point| {
            vec![
                name.clone(),
                time(point.after_us),
                count(point.reads),
                count(point.stale),
                percent(point.probability * 100.0, point.low * 100.0, point.high * 100.0),
            ]
        }));
        traces.push(json!({
            "type": "scatter", "mode": "lines+markers", "name": name,
            "x": points.iter().map(|point| point.after_us / 1e3).collect::<Vec<_>>(),
            "y": points.iter().map(|point| point.probability * 100.0).collect::<Vec<_>>(),
            "error_y": {
                "type": "data", "symmetric": false,
                "array": points.iter().map(|point| (point.high - point.probability) * 100.0).collect::<Vec<_>>(),
                "arrayminus": points.iter().map(|point| (point.probability - point.low) * 100.0).collect::<Vec<_>>(),
            },
            "hovertemplate": "after %{x:.4~g} ms: %{y:.3~g} % stale<extra>%{fullData.name}</extra>",
            "line": {"color": colour(index)},
        }));
    }
    if traces.is_empty() {
        return None;
    }
    Some(Picture {
        id: "curve",
        title: "How long: stale reads by the time after the acknowledgement",
        note: "Each point is of rounds of its own, read once at that time; whiskers are 95 % intervals. The leftmost point is the read at once."
            .to_owned(),
        figure: figure(
            "curve",
            traces,
            json!({"title": {"text": "time after the acknowledgement (ms)"}, "type": "log"}),
            json!({"title": {"text": "stale reads (%)"}, "rangemode": "tozero"}),
        ),
        table: DataTable {
            header: ["row", "after the ack", "reads", "stale", "% [95 %]"].map(str::to_owned).to_vec(),
            rows,
        },
    })
}

fn name(document: &StaleDocument, course: &StaleCourse) -> String {
    let shape = if document.target.modes.len() > 1 { format!("{}, ", course.shape) } else { String::new() };
    let sync = if course.sync_reads == "off" { String::new() } else { format!(", {}", way(&course.sync_reads, &course.pool)) };
    format!("{shape}{}{sync}", course.load)
}

/// What our own requests met over time.
fn course(document: &StaleDocument) -> Option<Picture> {
    let windows = || document.series.iter().flat_map(|course| &course.windows);
    let worst = windows().map(|window| window.under_way_us.max(window.write_max_us.unwrap_or(0.0))).fold(0.0, f64::max);
    let unit = Unit::for_size(worst);
    type Pick = fn(&StaleWindow) -> Option<f64>;
    let picks: [(&str, Pick, &str); 4] = [
        ("slowest write", |window| window.write_max_us, "solid"),
        ("slowest read", |window| window.read_max_us, "dot"),
        ("longest delay", |window| window.delay_max_us, "dash"),
        ("under way", |window| (window.under_way_us > 0.0).then_some(window.under_way_us), "dashdot"),
    ];
    let mut traces: Vec<Value> = Vec::new();
    let mut rows = Vec::new();
    for (index, course) in document.series.iter().enumerate() {
        let name = name(document, course);
        for (what, pick, dash) in picks {
            traces.push(json!({
                "type": "scatter", "mode": "lines+markers", "name": format!("{name} · {what}"), "legendgroup": name,
                "visible": if index == 0 || what == "slowest write" { json!(true) } else { json!("legendonly") },
                "x": course.windows.iter().map(|window| window.end_us / 1e6).collect::<Vec<_>>(),
                "y": course.windows.iter().map(|window| pick(window).map(|us| us / unit.scale())).collect::<Vec<_>>(),
                "hovertemplate": format!("until %{{x:.1f}} s: %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
                "line": {"color": colour(index), "dash": dash}, "marker": {"size": 3}, "connectgaps": false,
            }));
        }
        let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| unit.show(us));
        rows.extend(course.windows.iter().map(|window| {
            let mut row = vec![name.clone(), format!("{:.1}", window.end_us / 1e6), count(window.rounds), count(window.stale)];
            row.extend(picks.map(|(_, pick, _)| shown(pick(window))));
            row
        }));
    }
    if traces.is_empty() {
        return None;
    }
    let header = ["case", "until (s)", "rounds", "stale", "slowest write", "slowest read", "longest delay", "under way"];
    Some(Picture {
        id: "course",
        title: "Stalls: what our own requests met over time",
        note: "A stretch of half a second each. A request that stands still is shown by how long it has been under way, before it ends."
            .to_owned(),
        figure: figure(
            "course",
            traces,
            json!({"title": {"text": "time since the beginning of the case (s)"}}),
            json!({"title": {"text": format!("time ({})", unit.symbol())}, "type": "log"}),
        ),
        table: DataTable { header: header.map(str::to_owned).to_vec(), rows },
    })
}

/// What the servers said meanwhile.
fn counters(document: &StaleDocument) -> Option<Picture> {
    let mut traces: Vec<Value> = Vec::new();
    let mut rows = Vec::new();
    for course in &document.series {
        let case = name(document, course);
        let names: BTreeSet<&String> = course.windows.iter().flat_map(|window| window.counters.keys()).collect();
        for counter in names {
            let values: Vec<Option<f64>> = course.windows.iter().map(|window| window.counters.get(counter).copied()).collect();
            let largest = values.iter().flatten().fold(0.0f64, |largest, value| largest.max(*value));
            let sum: f64 = values.iter().flatten().sum();
            let grows = counter.ends_with('+');
            let shown = counter.trim_end_matches('+');
            rows.push(vec![
                case.clone(),
                shown.to_owned(),
                format!("{largest:.3}"),
                if grows { format!("{sum:.3}") } else { "–".to_owned() },
                count(values.iter().filter(|value| value.is_none()).count() as u64),
            ]);
            if largest > 0.0 && !shown.ends_with("Threads_running") {
                traces.push(json!({
                    "type": "scatter", "mode": "lines", "name": format!("{case} · {shown}"),
                    "x": course.windows.iter().map(|window| window.end_us / 1e6).collect::<Vec<_>>(),
                    "y": values,
                    "hovertemplate": "until %{x:.1f} s: %{y:.4~g}<extra>%{fullData.name}</extra>",
                    "line": {"color": colour(traces.len())}, "connectgaps": false,
                }));
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    Some(Picture {
        id: "counters",
        title: "What the servers' counters would have told",
        note: "Counters that grow are shown by what they grew by in each stretch, levels as they stood. Those that stayed 0 are in the table only."
            .to_owned(),
        figure: figure(
            "counters",
            traces,
            json!({"title": {"text": "time since the beginning of the case (s)"}}),
            json!({"title": {"text": "value"}, "rangemode": "tozero"}),
        ),
        table: DataTable {
            header: ["case", "counter", "largest in a stretch", "in all", "stretches without an answer"].map(str::to_owned).to_vec(),
            rows,
        },
    })
}
