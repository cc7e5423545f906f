//! The pictures of a `stale` run.

use std::collections::BTreeSet;

use replimeter_model::stale::{LoadWindow, StaleCourse, StaleDocument, StaleWindow};
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
    let rows: Vec<_> = document
        .results
        .iter()
        .filter(|row| row.stale_percent.is_some())
        .collect();
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
            percent(
                share(row.stale_percent),
                share(row.stale_percent_low),
                share(row.stale_percent_high),
            ),
        ]
    });
    Picture {
        id: "shares",
        title: "How often: stale reads at once after the acknowledgement",
        note: "Whiskers are 95 % intervals; where nothing was stale they end at the upper bound."
            .to_owned(),
        figure: figure(
            "shares",
            vec![trace],
            json!({"title": {"text": "stale reads (%)"}, "rangemode": "tozero"}),
            json!({"autorange": "reversed"}),
        ),
        table: DataTable {
            header: ["row", "rounds", "stale", "% [95 %]"]
                .map(str::to_owned)
                .to_vec(),
            rows: table.collect(),
        },
    }
}

/// The share by the time after the acknowledgement.
fn curve(document: &StaleDocument) -> Option<Picture> {
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    for (index, row) in document
        .results
        .iter()
        .filter(|row| row.curve.len() > 1)
        .enumerate()
    {
        let name = label(document, row);
        // The axis is logarithmic, and "at once" has a time too.
        let points: Vec<_> = row
            .curve
            .iter()
            .filter(|point| point.reads > 0 && point.after_us > 0.0)
            .collect();
        rows.extend(points.iter().map(|point| {
            vec![
                name.clone(),
                time(point.after_us),
                count(point.reads),
                count(point.stale),
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
        note: if document.results.iter().any(|row| row.judged == "load") {
            "Reads of the load by the age of the newest version that had been acknowledged; whiskers are 95 % intervals."
                .to_owned()
        } else {
            "Each point is of rounds of its own, read once at that time; whiskers are 95 % intervals. The leftmost point is the read at once."
                .to_owned()
        },
        figure: figure(
            "curve",
            traces,
            json!({"title": {"text": "time after the acknowledgement (ms)"}, "type": "log"}),
            json!({"title": {"text": "stale reads (%)"}, "rangemode": "tozero"}),
        ),
        table: DataTable {
            header: ["row", "after the ack", "reads", "stale", "% [95 %]"]
                .map(str::to_owned)
                .to_vec(),
            rows,
        },
    })
}

fn name(document: &StaleDocument, course: &StaleCourse) -> String {
    let shape = if document.target.modes.len() > 1 {
        format!("{}, ", course.shape)
    } else {
        String::new()
    };
    let sync = if course.sync_reads == "off" {
        String::new()
    } else {
        format!(", {}", way(&course.sync_reads, &course.pool))
    };
    format!("{shape}{}{sync}", course.load)
}

/// How long anything of a stretch took, or has been under way.
fn longest(window: &StaleWindow) -> f64 {
    let ours = [
        window.write_max_us,
        window.read_max_us,
        Some(window.under_way_us),
        Some(window.unshown_us),
    ];
    let loads = window
        .load
        .iter()
        .flat_map(|load| [load.max_us, Some(load.under_way_us)]);
    ours.into_iter().chain(loads).flatten().fold(0.0, f64::max)
}

/// What our own requests and the loads met over time, and below it what the servers said.
fn course(document: &StaleDocument) -> Option<Picture> {
    let worst_of = |course: &StaleCourse| course.windows.iter().map(longest).fold(0.0, f64::max);
    let worst = document.series.iter().map(worst_of).fold(0.0, f64::max);
    // The case with the worst stall is what is looked at first.
    let shown = document
        .series
        .iter()
        .position(|course| worst_of(course) >= worst)
        .unwrap_or(0);
    let unit = Unit::for_size(worst);
    type Pick = fn(&StaleWindow) -> Option<f64>;
    type PickLoad = fn(&LoadWindow) -> Option<f64>;
    let picks: [(&str, Pick, &str); 5] = [
        ("slowest write", |window| window.write_max_us, "solid"),
        ("slowest read", |window| window.read_max_us, "dot"),
        ("longest delay", |window| window.delay_max_us, "dash"),
        (
            "under way",
            |window| (window.under_way_us > 0.0).then_some(window.under_way_us),
            "dashdot",
        ),
        (
            "not shown yet",
            |window| (window.unshown_us > 0.0).then_some(window.unshown_us),
            "longdash",
        ),
    ];
    let of_loads: [(&str, PickLoad, &str); 4] = [
        ("p50", |load| load.p50_us, "dot"),
        ("p99", |load| load.p99_us, "dash"),
        ("slowest", |load| load.max_us, "solid"),
        (
            "under way",
            |load| (load.under_way_us > 0.0).then_some(load.under_way_us),
            "dashdot",
        ),
    ];
    let mut traces: Vec<Value> = Vec::new();
    let mut rows = Vec::new();
    for (index, course) in document.series.iter().enumerate() {
        let name = name(document, course);
        let judged = document
            .results
            .iter()
            .any(|row| row.judged == "load" && row.load == course.load);
        let mut trace = |what: &str,
                         values: Vec<Option<f64>>,
                         dash: &str,
                         colour: &str,
                         visible: bool| {
            traces.push(json!({
                "type": "scatter", "mode": "lines+markers", "name": format!("{name} · {what}"), "legendgroup": name,
                "visible": if visible { json!(true) } else { json!("legendonly") },
                "x": course.windows.iter().map(|window| window.end_us / 1e6).collect::<Vec<_>>(),
                "y": values.into_iter().map(|us| us.map(|us| us / unit.scale())).collect::<Vec<_>>(),
                "hovertemplate": format!("until %{{x:.1f}} s: %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
                "line": {"color": colour, "dash": dash}, "marker": {"size": 3}, "connectgaps": false,
            }));
        };
        for (what, pick, dash) in picks {
            // Of judged loads the requests are the load's.
            let visible = if judged {
                false
            } else {
                index == shown || what == "slowest write"
            };
            trace(
                what,
                course.windows.iter().map(pick).collect(),
                dash,
                colour(index),
                visible,
            );
        }
        let loads: &[LoadWindow] = course.windows.first().map_or(&[], |window| &window.load);
        for (at, load) in loads.iter().enumerate() {
            for (what, pick, dash) in of_loads {
                let values = course
                    .windows
                    .iter()
                    .map(|window| window.load.get(at).and_then(pick))
                    .collect();
                let visible = index == shown && what != "p50";
                trace(
                    &format!("{} {what}", load.load),
                    values,
                    dash,
                    colour(document.series.len() + at),
                    visible,
                );
            }
        }
        for (counter, values) in moving(course) {
            let shown_name = counter.trim_end_matches('+');
            traces.push(json!({
                "type": "scatter", "mode": "lines+markers", "name": format!("{name} · {shown_name}"), "legendgroup": name,
                "yaxis": "y2", "visible": if index == shown { json!(true) } else { json!("legendonly") },
                "x": course.windows.iter().map(|window| window.end_us / 1e6).collect::<Vec<_>>(),
                "y": values,
                "hovertemplate": "until %{x:.1f} s: %{y:.4~g}<extra>%{fullData.name}</extra>",
                "line": {"color": colour(traces.len())}, "marker": {"size": 3}, "connectgaps": false,
            }));
        }
        let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| unit.show(us));
        rows.extend(course.windows.iter().map(|window| {
            let mut row = vec![
                name.clone(),
                format!("{:.1}", window.end_us / 1e6),
                count(window.rounds),
                count(window.stale),
            ];
            row.extend(picks.map(|(_, pick, _)| shown(pick(window))));
            let of = |load: &LoadWindow| {
                let figures = of_loads.map(|(_, pick, _)| shown(pick(load))).join(" / ");
                format!("{}: {} · {figures}", load.load, count(load.operations))
            };
            row.push(window.load.iter().map(of).collect::<Vec<_>>().join("; "));
            row
        }));
    }
    if traces.is_empty() {
        return None;
    }
    let header = [
        "case",
        "until (s)",
        "rounds",
        "stale",
        "slowest write",
        "slowest read",
        "longest delay",
        "under way",
        "not shown yet",
        "load: operations · p50 / p99 / slowest / under way",
    ];
    let counted = traces.iter().any(|trace| trace["yaxis"] == "y2");
    let mut figure = figure(
        "course",
        traces,
        json!({"title": {"text": "time since the beginning of the case (s)"}}),
        json!({"title": {"text": format!("time ({})", unit.symbol())}, "type": "log"}),
    );
    if counted {
        // Two plots in one: each needs its room.
        figure["layout"]["height"] = json!(680);
        figure["layout"]["yaxis"]["domain"] = json!([0.46, 1.0]);
        figure["layout"]["yaxis2"] =
            json!({"title": {"text": "counters"}, "type": "log", "domain": [0.0, 0.38]});
    }
    Some(Picture {
        id: "course",
        title: "Stalls: what our own requests and the load met over time, and what the servers said",
        note: "A stretch of half a second each. A request that stands still is shown by how long it has been under way, before it ends; \
               so is a write that a reader does not show. \
               Below, on the same time, are the servers' counters that were not 0: what they grew by, levels as they stood; a 0 leaves a gap. The case \
               with the worst stall is shown; the others are in the legend."
            .to_owned(),
        figure,
        table: DataTable { header: header.map(str::to_owned).to_vec(), rows },
    })
}

/// The counters of a case that were not 0 all the while, in each stretch.
fn moving(course: &StaleCourse) -> Vec<(&String, Vec<Option<f64>>)> {
    let names: BTreeSet<&String> = course
        .windows
        .iter()
        .flat_map(|window| window.counters.keys())
        .collect();
    let values = |name: &String| {
        course
            .windows
            .iter()
            .map(|window| window.counters.get(name).copied())
            .collect::<Vec<_>>()
    };
    let all = names.into_iter().map(|name| (name, values(name)));
    all.filter(|(name, values)| {
        !name.trim_end_matches('+').ends_with("Threads_running")
            && values.iter().flatten().any(|value| *value > 0.0)
    })
    .collect()
}

/// What the servers said meanwhile.
fn counters(document: &StaleDocument) -> Option<Picture> {
    let mut traces: Vec<Value> = Vec::new();
    let mut rows = Vec::new();
    for course in &document.series {
        let case = name(document, course);
        let names: BTreeSet<&String> = course
            .windows
            .iter()
            .flat_map(|window| window.counters.keys())
            .collect();
        for counter in names {
            let values: Vec<Option<f64>> = course
                .windows
                .iter()
                .map(|window| window.counters.get(counter).copied())
                .collect();
            let largest = values
                .iter()
                .flatten()
                .fold(0.0f64, |largest, value| largest.max(*value));
            let sum: f64 = values.iter().flatten().sum();
            let grows = counter.ends_with('+');
            let shown = counter.trim_end_matches('+');
            rows.push(vec![
                case.clone(),
                shown.to_owned(),
                format!("{largest:.3}"),
                if grows {
                    format!("{sum:.3}")
                } else {
                    "–".to_owned()
                },
                count(values.iter().filter(|value| value.is_none()).count() as u64),
            ]);
            if largest > 0.0 && !shown.ends_with("Threads_running") {
                traces.push(json!({
                    "type": "scatter", "mode": "lines+markers", "name": format!("{case} · {shown}"),
                    "x": course.windows.iter().map(|window| window.end_us / 1e6).collect::<Vec<_>>(),
                    "y": values,
                    "hovertemplate": "until %{x:.1f} s: %{y:.4~g}<extra>%{fullData.name}</extra>",
                    "line": {"color": colour(traces.len())}, "connectgaps": false,
                }));
            }
        }
    }
    // All of them 0: there is nothing to draw, and the report's table of counters has them.
    if traces.is_empty() {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_stall_is_drawn_over_the_counters_of_the_same_time() {
        let load = |max: f64, under_way: f64| LoadWindow {
            load: "big-update:1@node1".to_owned(),
            operations: 1,
            max_us: Some(max),
            under_way_us: under_way,
            ..LoadWindow::default()
        };
        let window = |end: f64, load: LoadWindow, paused: f64| StaleWindow {
            end_us: end,
            write_max_us: Some(300.0),
            counters: BTreeMap::from([
                ("node1 paused+".to_owned(), paused),
                ("node1 idle".to_owned(), 0.0),
            ]),
            load: vec![load],
            ..StaleWindow::default()
        };
        let course = |load: &str, windows: Vec<StaleWindow>| StaleCourse {
            load: load.to_owned(),
            sync_reads: "off".to_owned(),
            windows,
            ..StaleCourse::default()
        };
        let stalled = vec![
            window(5e5, load(1e3, 4e5), 0.0),
            window(1e6, load(2e6, 0.0), 7.0),
        ];
        let document = StaleDocument {
            series: vec![
                course("none", vec![StaleWindow::default()]),
                course("big-update:1@writer", stalled),
            ],
            ..StaleDocument::default()
        };
        let picture = super::course(&document).unwrap();
        let traces = picture.figure["data"].as_array().unwrap();
        let named = |name: &str| {
            traces
                .iter()
                .find(|trace| trace["name"].as_str().unwrap().contains(name))
        };
        let counter = named("node1 paused").unwrap();
        assert_eq!(
            (counter["yaxis"].as_str(), counter["visible"].as_bool()),
            (Some("y2"), Some(true))
        );
        assert_eq!(
            counter["x"],
            named("big-update:1@node1 slowest").unwrap()["x"]
        );
        assert!(
            named("node1 idle").is_none(),
            "what stayed 0 is in the table only"
        );
        assert_eq!(
            named("none · slowest read").unwrap()["visible"],
            "legendonly"
        );
        assert!(picture.figure["layout"]["yaxis2"]["domain"].is_array());
        assert!(
            picture.table.rows[2]
                .last()
                .unwrap()
                .starts_with("big-update:1@node1: 1 ·"),
            "{:?}",
            picture.table.rows
        );
    }
}
