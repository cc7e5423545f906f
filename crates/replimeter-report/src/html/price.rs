//! The pictures of a price list.

use replimeter_model::{
    cost::{CostDocument, CostRow},
    estimate::Estimate,
};
use serde_json::{Value, json};

use super::pictures::{DataTable, Picture, colour, figure};
use crate::{
    cost::{delay, ratio, unit},
    figures::{Unit, count},
};

/// All pictures; none for what was not measured.
pub(super) fn all(document: &CostDocument) -> Vec<Picture> {
    if document.results.is_empty() {
        return Vec::new();
    }
    let mut pictures = vec![throughput(document), added(document), processor(document)];
    pictures.extend(distance(document));
    pictures
}

/// What stands below a row's bar.
fn label(document: &CostDocument, row: &CostRow) -> String {
    let label = document.label_of(&row.engine, &row.mode, row.wait_point.as_deref());
    row.link_delay_us
        .map_or(label.clone(), |us| format!("{label}, {}", delay(us)))
}

/// Rows by number of threads, the fewest first.
fn by_threads(document: &CostDocument) -> Vec<(u32, Vec<&CostRow>)> {
    let mut groups: Vec<(u32, Vec<&CostRow>)> = Vec::new();
    for row in &document.results {
        match groups
            .iter_mut()
            .find(|(threads, _)| *threads == row.threads)
        {
            Some((_, rows)) => rows.push(row),
            None => groups.push((row.threads, vec![row])),
        }
    }
    groups.sort_by_key(|(threads, _)| *threads);
    groups
}

fn series(threads: u32) -> String {
    if threads == 1 {
        "1 thread".to_owned()
    } else {
        format!("{threads} threads")
    }
}

/// Both directions of an error bar.
fn bars(estimates: &[Estimate]) -> Value {
    let above = |estimate: &Estimate| {
        estimate
            .high
            .zip(estimate.value)
            .map_or(0.0, |(high, value)| high - value)
    };
    let below = |estimate: &Estimate| {
        estimate
            .low
            .zip(estimate.value)
            .map_or(0.0, |(low, value)| value - low)
    };
    json!({
        "type": "data", "symmetric": false, "thickness": 1,
        "array": estimates.iter().map(above).collect::<Vec<_>>(),
        "arrayminus": estimates.iter().map(below).collect::<Vec<_>>(),
    })
}

fn grouped(mut figure: Value) -> Value {
    figure["layout"]["barmode"] = json!("group");
    figure
}

fn throughput(document: &CostDocument) -> Picture {
    let mut rows = Vec::new();
    let traces = by_threads(document).into_iter().enumerate().map(|(index, (threads, group))| {
        let estimates: Vec<Estimate> = group
            .iter()
            .map(|row| Estimate { value: row.throughput.mean, low: row.throughput.low, high: row.throughput.high })
            .collect();
        let over: Vec<String> = group
            .iter()
            .map(|row| ratio(&Estimate { value: row.relative.throughput, low: row.relative.low, high: row.relative.high }))
            .collect();
        for ((row, estimate), over) in group.iter().zip(&estimates).zip(&over) {
            let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| count(value.max(0.0).round() as u64));
            rows.push(vec![
                label(document, row),
                threads.to_string(),
                shown(estimate.value),
                shown(estimate.low),
                shown(estimate.high),
                over.clone(),
            ]);
        }
        json!({
            "type": "bar", "name": series(threads),
            "x": group.iter().map(|row| label(document, row)).collect::<Vec<_>>(),
            "y": estimates.iter().map(|estimate| estimate.value).collect::<Vec<_>>(),
            "error_y": bars(&estimates),
            "customdata": over,
            "hovertemplate": "%{x}: %{y:,.0f} per s, %{customdata} of none<extra>%{fullData.name}</extra>",
            "marker": {"color": colour(index)},
        })
    });
    let traces = traces.collect();
    Picture {
        id: "throughput",
        title: "Throughput in each mode",
        note: "The bars' whiskers are 95 % intervals over the starts.".to_owned(),
        figure: grouped(figure(
            "throughput",
            traces,
            json!({"type": "category"}),
            json!({"title": {"text": "operations per second"}, "rangemode": "tozero"}),
        )),
        table: DataTable {
            header: ["mode", "threads", "per second", "low", "high", "over none"]
                .map(str::to_owned)
                .to_vec(),
            rows,
        },
    }
}

fn added(document: &CostDocument) -> Picture {
    let unit = unit(document);
    let mut rows = Vec::new();
    let traces = by_threads(document).into_iter().enumerate().map(|(index, (threads, group))| {
        let group: Vec<&CostRow> = group.into_iter().filter(|row| row.added.latency_us.value.is_some()).collect();
        let scale = |value: Option<f64>| value.map(|us| us / unit.scale());
        let estimates: Vec<Estimate> = group
            .iter()
            .map(|row| {
                let us = row.added.latency_us;
                Estimate { value: scale(us.value), low: scale(us.low), high: scale(us.high) }
            })
            .collect();
        for row in &group {
            let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| unit.show(us));
            let us = row.added.latency_us;
            rows.push(vec![label(document, row), threads.to_string(), shown(us.value), shown(us.low), shown(us.high)]);
        }
        json!({
            "type": "bar", "name": series(threads),
            "x": group.iter().map(|row| label(document, row)).collect::<Vec<_>>(),
            "y": estimates.iter().map(|estimate| estimate.value).collect::<Vec<_>>(),
            "error_y": bars(&estimates),
            "hovertemplate": format!("%{{x}}: %{{y:.4~g}} {} more than none<extra>%{{fullData.name}}</extra>", unit.symbol()),
            "marker": {"color": colour(index)},
        })
    });
    let traces = traces.collect();
    Picture {
        id: "added",
        title: "What each mode adds to the latency of an operation",
        note: "Mean latency less that of none, of the same binary at as many threads; below zero a mode is faster.".to_owned(),
        figure: grouped(figure(
            "added",
            traces,
            json!({"type": "category"}),
            json!({"title": {"text": format!("added to the mean latency ({})", unit.symbol())}, "zeroline": true}),
        )),
        table: DataTable {
            header: vec!["mode".to_owned(), "threads".to_owned(), unit.symbol().to_owned(), "low".to_owned(), "high".to_owned()],
            rows,
        },
    }
}

/// Processor time of all servers, stacked.
fn processor(document: &CostDocument) -> Picture {
    let bar = |row: &CostRow| format!("{}, {}", label(document, row), series(row.threads));
    let mut places: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for row in &document.results {
        for (index, server) in row.servers.iter().enumerate() {
            // A primary and a cluster's first node are both the one that is written to.
            let place = if index == 0 {
                "written to".to_owned()
            } else {
                format!("other {index}")
            };
            if !places.contains(&place) {
                places.push(place.clone());
            }
            let shown = |value: Option<f64>| {
                value.map_or_else(|| "–".to_owned(), |us| Unit::Micro.show(us))
            };
            rows.push(vec![
                label(document, row),
                row.threads.to_string(),
                server.name.clone(),
                shown(server.cpu_us_per_op),
                shown(server.cpu_user_us_per_op),
                shown(server.cpu_system_us_per_op),
            ]);
        }
    }
    let traces = places.iter().enumerate().map(|(index, place)| {
        let with: Vec<&CostRow> = document
            .results
            .iter()
            .filter(|row| row.servers.len() > index)
            .collect();
        json!({
            "type": "bar", "name": place,
            "x": with.iter().map(|row| bar(row)).collect::<Vec<_>>(),
            "y": with.iter().map(|row| row.servers[index].cpu_us_per_op).collect::<Vec<_>>(),
            "text": with.iter().map(|row| row.servers[index].name.as_str()).collect::<Vec<_>>(),
            "textposition": "none",
            "hovertemplate": "%{x}: %{text} %{y:.1f} µs per operation<extra></extra>",
            "marker": {"color": colour(index)},
        })
    });
    let traces = traces.collect();
    let mut figure = figure(
        "processor",
        traces,
        json!({"type": "category"}),
        json!({"title": {"text": "processor time per operation (µs)"}, "rangemode": "tozero"}),
    );
    figure["layout"]["barmode"] = json!("stack");
    Picture {
        id: "processor",
        title: "Processor time of each server for one operation",
        note: String::new(),
        figure,
        table: DataTable {
            header: ["mode", "threads", "server", "CPU (µs)", "user", "system"]
                .map(str::to_owned)
                .to_vec(),
            rows,
        },
    }
}

/// The price over distance, when there are several distances.
fn distance(document: &CostDocument) -> Option<Picture> {
    let unit = unit(document);
    let mut lines: Vec<(String, Vec<&CostRow>)> = Vec::new();
    for row in document
        .results
        .iter()
        .filter(|row| row.link_delay_us.is_some() && row.added.latency_us.value.is_some())
    {
        let name = format!(
            "{}, {}",
            document.label_of(&row.engine, &row.mode, row.wait_point.as_deref()),
            series(row.threads)
        );
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => lines.push((name, vec![row])),
        }
    }
    lines.retain(|(_, rows)| rows.len() > 1);
    if lines.is_empty() {
        return None;
    }
    let mut rows = Vec::new();
    let mut traces = Vec::new();
    for (index, (name, points)) in lines.iter().enumerate() {
        let scale = |value: Option<f64>| value.map(|us| us / unit.scale());
        let estimates: Vec<Estimate> = points
            .iter()
            .map(|row| {
                let us = row.added.latency_us;
                Estimate {
                    value: scale(us.value),
                    low: scale(us.low),
                    high: scale(us.high),
                }
            })
            .collect();
        for row in points {
            let us = row
                .added
                .latency_us
                .value
                .map_or_else(|| "–".to_owned(), |us| unit.show(us));
            rows.push(vec![
                name.clone(),
                row.link_delay_us.map(delay).unwrap_or_default(),
                us,
            ]);
        }
        traces.push(json!({
            "type": "scatter", "mode": "lines+markers", "name": name,
            "x": points.iter().map(|row| row.link_delay_us.map(|us| us / 1e3)).collect::<Vec<_>>(),
            "y": estimates.iter().map(|estimate| estimate.value).collect::<Vec<_>>(),
            "error_y": bars(&estimates),
            "hovertemplate": format!("%{{x}} ms one way: %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
            "line": {"color": colour(index)},
        }));
    }
    Some(Picture {
        id: "distance",
        title: "The price over distance",
        note: "What a mode adds to the mean latency, over links of ours that hold every byte back for so long, each way."
            .to_owned(),
        figure: figure(
            "distance",
            traces,
            json!({"title": {"text": "one-way delay (ms)"}, "rangemode": "tozero"}),
            json!({"title": {"text": format!("added to the mean latency ({})", unit.symbol())}, "zeroline": true}),
        ),
        table: DataTable { header: vec!["series".to_owned(), "one way".to_owned(), unit.symbol().to_owned()], rows },
    })
}
