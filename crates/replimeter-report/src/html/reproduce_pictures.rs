//! Pictures of the published experiments: what was published and ours on the same axes.

use replimeter_model::reproduce::{Experiment, Table};
use serde_json::{Value, json};

use super::pictures::{DataTable, Picture, colour, figure};

/// The picture of an experiment; nothing when it has no figures of ours.
pub(super) fn picture(experiment: &Experiment) -> Option<Picture> {
    if experiment.ours.lines.is_empty() {
        return None;
    }
    match experiment.number {
        1 => Some(sweep(experiment)),
        2 => replicas(experiment),
        3 => histogram(experiment),
        4 => stale(experiment),
        5 => price(experiment),
        _ => None,
    }
}

/// The numbers of a cell as our tables print them, thousands grouped by commas.
fn numbers(cell: &str) -> Vec<f64> {
    let parts = cell.split(|letter: char| {
        !(letter.is_ascii_digit() || matches!(letter, '.' | ',' | '-' | '−'))
    });
    parts
        .filter_map(|part| {
            part.trim_matches(',')
                .replace(',', "")
                .replace('−', "-")
                .parse()
                .ok()
        })
        .collect()
}

fn first(cell: &str) -> Option<f64> {
    numbers(cell).first().copied()
}

/// Both tables by name, for the table behind a picture.
fn both(experiment: &Experiment) -> DataTable {
    let mut header = vec!["of"];
    header.extend(experiment.ours.headings.iter().map(String::as_str));
    let named = |name: &str, table: &Table| -> Vec<Vec<String>> {
        table
            .lines
            .iter()
            .map(|line| [&[name.to_owned()], &line[..]].concat())
            .collect()
    };
    DataTable::new(
        &header,
        [
            named("published", &experiment.published),
            named("here", &experiment.ours),
        ]
        .concat(),
    )
}

/// Bars of published and ours side by side.
fn beside(
    id: &'static str,
    title: &'static str,
    note: &str,
    axis: &str,
    experiment: &Experiment,
    traces: Vec<Value>,
) -> Picture {
    let mut figure = figure(
        id,
        traces,
        json!({"title": {"text": axis}, "rangemode": "tozero"}),
        json!({"autorange": "reversed", "type": "category"}),
    );
    figure["layout"]["barmode"] = json!("group");
    figure["layout"]["bargap"] = json!(0.25);
    Picture {
        id,
        title,
        note: note.to_owned(),
        figure,
        table: both(experiment),
    }
}

fn bars(name: &str, index: usize, labels: &[String], values: &[Option<f64>], unit: &str) -> Value {
    json!({
        "type": "bar", "orientation": "h", "name": name, "y": labels, "x": values,
        "marker": {"color": colour(index)}, "hovertemplate": format!("%{{y}}: %{{x:.4g}} {unit}<extra>{name}</extra>"),
    })
}

/// Ranges of the sweep's times, a floating bar each.
fn sweep(experiment: &Experiment) -> Picture {
    let spans = |name: &str, index: usize, table: &Table| {
        let ranges: Vec<(&String, f64, f64)> = table
            .lines
            .iter()
            .filter_map(|line| {
                let ends = numbers(line.get(1)?);
                Some((line.first()?, *ends.first()?, *ends.last()?))
            })
            .collect();
        json!({
            "type": "bar", "orientation": "h", "name": name, "marker": {"color": colour(index)},
            "y": ranges.iter().map(|range| range.0).collect::<Vec<_>>(),
            // A single value is a thin bar, which can be seen.
            "x": ranges.iter().map(|(_, low, high)| (high - low).max(0.02)).collect::<Vec<_>>(),
            "base": ranges.iter().map(|range| range.1).collect::<Vec<_>>(),
            "customdata": ranges.iter().map(|(_, low, high)| json!([low, high])).collect::<Vec<_>>(),
            "hovertemplate": format!("%{{y}}: %{{customdata[0]}} to %{{customdata[1]}} ms<extra>{name}</extra>"),
        })
    };
    let traces = vec![
        spans("published", 0, &experiment.published),
        spans("here", 1, &experiment.ours),
    ];
    let note = "From the shortest to the longest of all steps.";
    let mut picture = beside(
        "published-sweep",
        "1. Times of the size sweep",
        note,
        "milliseconds",
        experiment,
        traces,
    );
    picture.figure["layout"]["xaxis"]["rangemode"] = json!("normal");
    picture
}

/// Percent of no replica, a line for each column.
fn replicas(experiment: &Experiment) -> Option<Picture> {
    let column = |table: &Table, column: usize| -> Vec<(f64, f64)> {
        let points: Vec<(f64, f64)> = table
            .lines
            .iter()
            .filter_map(|line| Some((first(line.first()?)?, first(line.get(column)?)?)))
            .collect();
        let none = points
            .iter()
            .find(|point| point.0 == 0.0)
            .map(|point| point.1)
            .filter(|none| *none > 0.0);
        none.map(|none| {
            points
                .iter()
                .map(|(replicas, rate)| (*replicas, rate / none * 100.0))
                .collect()
        })
        .unwrap_or_default()
    };
    let mut traces = Vec::new();
    for (index, (at, name)) in [
        (1, "insert alone"),
        (3, "insert while selecting"),
        (4, "select while inserting"),
    ]
    .iter()
    .enumerate()
    {
        for (whose, table, dash) in [
            ("published", &experiment.published, "dot"),
            ("here", &experiment.ours, "solid"),
        ] {
            let points = column(table, *at);
            if points.len() < 2 {
                continue;
            }
            traces.push(json!({
                "type": "scatter", "mode": "lines+markers", "name": format!("{name}, {whose}"),
                "x": points.iter().map(|point| point.0).collect::<Vec<_>>(),
                "y": points.iter().map(|point| point.1).collect::<Vec<_>>(),
                "line": {"color": colour(index), "dash": dash},
                "marker": {"symbol": if dash == "dot" { "circle-open" } else { "circle" }, "size": 8},
                "hovertemplate": "%{x} replicas: %{y:.0f} % of none<extra>%{fullData.name}</extra>",
            }));
        }
    }
    if traces.is_empty() {
        return None;
    }
    let figure = figure(
        "published-replicas",
        traces,
        json!({"title": {"text": "replicas"}, "dtick": 1}),
        json!({"title": {"text": "percent of none"}, "rangemode": "tozero"}),
    );
    Some(Picture {
        id: "published-replicas",
        title: "2. What each replica takes and gives",
        note: "Dotted: as published. Solid: here. Without a replica each is 100 %.".to_owned(),
        figure,
        table: both(experiment),
    })
}

/// Shares of the rows by lag.
fn histogram(experiment: &Experiment) -> Option<Picture> {
    let line = |name: &str, index: usize, table: &Table| {
        let points: Vec<(f64, f64)> = table
            .lines
            .iter()
            .filter_map(|line| Some((first(line.first()?)?, first(line.get(1)?)?)))
            .collect();
        let all: f64 = points.iter().map(|point| point.1).sum();
        (all > 0.0).then(|| {
            json!({
                "type": "scatter", "mode": "lines+markers", "name": name,
                "x": points.iter().map(|point| point.0).collect::<Vec<_>>(),
                "y": points.iter().map(|point| point.1 / all * 100.0).collect::<Vec<_>>(),
                "line": {"color": colour(index), "shape": "hvh"}, "marker": {"size": 6},
                "hovertemplate": format!("%{{x}} ms: %{{y:.2f}} % of the rows<extra>{name}</extra>"),
            })
        })
    };
    let traces = vec![
        line("published", 0, &experiment.published)?,
        line("here", 1, &experiment.ours)?,
    ];
    let figure = figure(
        "published-histogram",
        traces,
        json!({"title": {"text": "lag, ms (logarithmic)"}, "type": "log"}),
        json!({"title": {"text": "percent of the rows (logarithmic)"}, "type": "log"}),
    );
    Some(Picture {
        id: "published-histogram",
        title: "3. Lag by tenths of a millisecond",
        note: "Both axes are logarithmic, so that the few late rows are seen. Rows at 0 ms and before have no place on them; the table has all."
            .to_owned(),
        figure,
        table: both(experiment),
    })
}

/// Stale shares by load.
fn stale(experiment: &Experiment) -> Option<Picture> {
    let label = |line: &[String]| {
        Some(format!("{} on {}", line.first()?, line.get(1)?).replace(" on –", ""))
    };
    let labels: Vec<String> = experiment
        .published
        .lines
        .iter()
        .filter_map(|line| label(line))
        .collect();
    let values = |table: &Table| -> Vec<Option<f64>> {
        let of = |wanted: &String| {
            table
                .lines
                .iter()
                .find(|line| label(line).as_ref() == Some(wanted))
        };
        labels
            .iter()
            .map(|wanted| of(wanted).and_then(|line| first(line.get(2)?)))
            .collect()
    };
    let (then, here) = (values(&experiment.published), values(&experiment.ours));
    here.iter().any(Option::is_some).then(|| {
        let traces = vec![
            bars("published", 0, &labels, &then, "%"),
            bars("here", 1, &labels, &here, "%"),
        ];
        let note = "Share of reads at once that missed the write.";
        beside(
            "published-stale",
            "4. Stale reads by load",
            note,
            "percent of the rounds",
            experiment,
            traces,
        )
    })
}

/// Mean latency over that of no replication, of the same binary.
fn price(experiment: &Experiment) -> Option<Picture> {
    let mean = |line: &Vec<String>| first(line.get(2)?);
    let then = experiment
        .published
        .lines
        .iter()
        .filter_map(mean)
        .collect::<Vec<_>>();
    let published = (then.len() == 2 && then[0] > 0.0).then(|| then[1] / then[0])?;
    let engine = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
    let none = |wanted: &str| {
        let of = |line: &&Vec<String>| {
            line.first().is_some_and(|name| {
                (name.ends_with("/none") && engine(name) == wanted)
                    || (name == "none" && !wanted.is_empty())
            })
        };
        experiment.ours.lines.iter().find(of).and_then(mean)
    };
    let mut labels = vec!["semi-sync, published".to_owned()];
    let (mut old, mut ours) = (vec![Some(published)], vec![None]);
    for line in &experiment.ours.lines {
        let Some(name) = line.first() else { continue };
        if let Some(value) = mean(line)
            .zip(none(&engine(name)))
            .map(|(mean, none)| mean / none)
        {
            labels.push(name.clone());
            old.push(None);
            ours.push(Some(value));
        }
    }
    (labels.len() > 1).then(|| {
        let unit = "times none's latency";
        let traces = vec![
            bars("published", 0, &labels, &old, unit),
            bars("here", 1, &labels, &ours, unit),
        ];
        let note = "Mean latency of an insert at one thread, over that without replication.";
        let mut picture = beside(
            "published-price",
            "5. The price of waiting",
            note,
            "times none's latency",
            experiment,
            traces,
        );
        picture.figure["layout"]["barmode"] = json!("overlay");
        picture
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce;

    #[test]
    fn cells_are_read_as_they_are_printed() {
        assert_eq!(numbers("925 (−51 %)"), [925.0, -51.0]);
        assert_eq!(
            numbers("0.66 / 46,526.7 / 104.28"),
            [0.66, 46_526.7, 104.28]
        );
        assert_eq!(numbers("-1.496 to 22.142"), [-1.496, 22.142]);
        assert_eq!(numbers("39.01 %, 38.93 %"), [39.01, 38.93]);
        assert_eq!(numbers("–"), [] as [f64; 0]);
        assert_eq!(first("1,908"), Some(1908.0));
    }

    #[test]
    fn what_was_published_has_a_picture_of_each_experiment() {
        let tables = [
            reproduce::sweep_published(),
            reproduce::replicas_published(),
            reproduce::histogram_published(),
            reproduce::stale_published(),
            reproduce::price_published(),
        ];
        for (number, table) in (1..).zip(tables) {
            let mut experiment = Experiment {
                number,
                published: table.clone(),
                ours: table,
                ..Experiment::default()
            };
            if number == 5 {
                experiment.ours.lines[0][0] = "mariadb/none".to_owned();
                experiment.ours.lines[1][0] = "mariadb/semi-sync".to_owned();
            }
            let drawn = picture(&experiment).unwrap_or_else(|| panic!("experiment {number}"));
            let traces = drawn.figure["data"].as_array().unwrap().clone();
            assert!(traces.len() >= 2, "{number}");
            for trace in &traces {
                let both = [&trace["x"], &trace["y"]].map(|axis| axis.as_array().unwrap().len());
                assert!(both[0] > 0 && both[0] == both[1], "{number}: {trace}");
            }
            if number == 2 {
                // The first replica halves inserts alone.
                assert!(
                    (traces[0]["y"][1].as_f64().unwrap() - 48.5).abs() < 0.1,
                    "{traces:#?}"
                );
            }
            if number == 5 {
                let ours = traces[1]["x"].as_array().unwrap();
                assert!(
                    (ours[2].as_f64().unwrap() - 421.46 / 134.31).abs() < 1e-9,
                    "{ours:?}"
                );
            }
        }
        assert!(
            picture(&Experiment {
                number: 1,
                ..Experiment::default()
            })
            .is_none(),
            "nothing is drawn of nothing"
        );
    }
}
