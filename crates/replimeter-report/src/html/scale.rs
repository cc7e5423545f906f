//! The page of a `scale` run.

use minijinja::{Value, context, value::Serde};
use replimeter_model::{
    manifest::Manifest,
    plan::ScalePhase,
    scale::{ScaleDocument, ScaleFit, ScaleRow, ScaleServer},
};
use serde_json::json;

use super::{
    HtmlError,
    frame::Page,
    pictures::{DataTable, Picture, colour, figure},
};
use crate::{
    figures::{count, rate},
    scale::{self, bytes},
};

const TEMPLATE: &str = include_str!("scale.html");

/// A figure of a row with its interval.
type Pick = fn(&ScaleRow) -> (Option<f64>, Option<[f64; 2]>);

/// The author's four curves.
const CURVES: [(&str, ScalePhase, Pick); 4] = [
    ("insert alone", ScalePhase::Insert, |row| {
        (row.inserts_per_s, row.inserts_ci)
    }),
    ("insert while selecting", ScalePhase::Mixed, |row| {
        (row.inserts_per_s, row.inserts_ci)
    }),
    ("select alone", ScalePhase::Select, |row| {
        (row.selects_per_s, row.selects_ci)
    }),
    ("select while inserting", ScalePhase::Mixed, |row| {
        (row.selects_per_s, row.selects_ci)
    }),
];

/// The same for updates.
const UPDATE_CURVES: [(&str, ScalePhase, Pick); 3] = [
    ("update alone", ScalePhase::Update, |row| {
        (row.updates_per_s, row.updates_ci)
    }),
    ("update while selecting", ScalePhase::MixedUpdate, |row| {
        (row.updates_per_s, row.updates_ci)
    }),
    ("select while updating", ScalePhase::MixedUpdate, |row| {
        (row.selects_per_s, row.selects_ci)
    }),
];

/// Renders the page from a run's record.
///
/// # Errors
/// When the template refuses.
pub fn scale(
    document: &ScaleDocument,
    manifest: &Manifest,
    plan: &str,
) -> Result<String, HtmlError> {
    let blocks: u64 = document
        .results
        .iter()
        .map(|row| u64::from(row.blocks))
        .sum();
    let mut pictures = vec![
        throughput(document),
        percent(document),
        processors(document),
        writes(document),
    ];
    pictures.extend(laws(document));
    let page = Page {
        template: TEMPLATE,
        command: "scale",
        heading: document
            .title
            .as_deref()
            .unwrap_or("What does each read replica cost, and give?"),
        shape: &document.target.shape,
        extent: format!("{} blocks", count(blocks)),
        document: Value::from(Serde(document)),
        manifest,
        plan,
        several: false,
        pictures,
        text_report: scale::text(document),
    };
    let section = |id: &str,
                   title: &str,
                   headings: &[&str],
                   left: usize,
                   lines: Vec<Vec<String>>| {
        (!lines.is_empty()).then(|| context! { id, title, headings => headings.iter().map(|heading| (*heading).to_owned()).collect::<Vec<String>>(), left, lines })
    };
    let sections = [
        section(
            "table",
            "Throughput by replicas; processor time and writes while both run",
            &scale::HEADINGS,
            1,
            scale::lines(document),
        ),
        section(
            "updates",
            "Updates",
            &scale::UPDATE_HEADINGS,
            1,
            scale::update_lines(document),
        ),
        section(
            "percent-table",
            "Percent of no replica",
            &scale::PERCENT_HEADINGS,
            1,
            scale::percent_lines(document),
        ),
        section(
            "servers-table",
            "What each server spent",
            &scale::SERVER_HEADINGS,
            3,
            scale::server_lines(document),
        ),
        section(
            "laws",
            "Scaling law",
            &scale::LAW_HEADINGS,
            2,
            scale::law_lines(document),
        ),
    ];
    page.render(context! {
        sections => sections.into_iter().flatten().collect::<Vec<_>>(),
        laws => scale::law_sentences(document),
        sentences => scale::sentences(document),
    })
}

fn replicas_axis() -> serde_json::Value {
    json!({"title": {"text": "replicas"}, "dtick": 1, "tick0": 0})
}

/// One curve over the number of replicas, with its error bars.
fn curve(
    name: &str,
    index: usize,
    points: &[(u32, f64, Option<[f64; 2]>)],
    unit: &str,
) -> serde_json::Value {
    let ends = |pick: fn(f64, [f64; 2]) -> f64| {
        points
            .iter()
            .map(|(_, value, ends)| ends.map_or(0.0, |ends| pick(*value, ends)))
            .collect::<Vec<_>>()
    };
    json!({
        "type": "scatter", "mode": "lines+markers", "name": name,
        "x": points.iter().map(|(replicas, ..)| replicas).collect::<Vec<_>>(),
        "y": points.iter().map(|(_, value, _)| value).collect::<Vec<_>>(),
        "error_y": {
            "type": "data", "symmetric": false, "visible": true,
            "array": ends(|value, [_, high]| high - value), "arrayminus": ends(|value, [low, _]| value - low),
        },
        "hovertemplate": format!("%{{x}} replicas: %{{y:,.4~g}} {unit}<extra>%{{fullData.name}}</extra>"),
        "line": {"color": colour(index)}, "marker": {"size": 7},
    })
}

fn points(
    document: &ScaleDocument,
    phase: ScalePhase,
    pick: Pick,
) -> Vec<(u32, f64, Option<[f64; 2]>)> {
    let rows = document
        .results
        .iter()
        .filter(|row| row.phase == phase.name());
    rows.filter_map(|row| {
        let (value, ends) = pick(row);
        Some((row.replicas, value?, ends))
    })
    .collect()
}

/// From zero to somewhat above the largest value: an interval may be many times that,
/// and would press everything else to the ground.
fn range(largest: f64) -> [f64; 2] {
    [0.0, if largest > 0.0 { largest * 1.5 } else { 1.0 }]
}

/// Throughput for each number of replicas: the author's first picture. Inserts and
/// selects are far apart, so that each has an axis.
fn throughput(document: &ScaleDocument) -> Picture {
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    let mut largest = [0.0f64; 2];
    for (index, (name, phase, pick)) in CURVES.iter().chain(&UPDATE_CURVES).enumerate() {
        let points = points(document, *phase, *pick);
        if points.is_empty() {
            continue;
        }
        let mut trace = curve(name, index, &points, "per s");
        let axis = &mut largest[usize::from(name.starts_with("select"))];
        *axis = points
            .iter()
            .fold(*axis, |largest, (_, value, _)| largest.max(*value));
        if name.starts_with("select") {
            trace["yaxis"] = json!("y2");
            trace["line"]["dash"] = json!("dot");
        }
        traces.push(trace);
        rows.extend(points.iter().map(|(replicas, value, ends)| {
            vec![
                (*name).to_owned(),
                replicas.to_string(),
                scale::interval(Some(*value), *ends),
            ]
        }));
    }
    let mut figure = figure(
        "throughput",
        traces,
        replicas_axis(),
        json!({"title": {"text": "writes per second"}, "range": range(largest[0])}),
    );
    figure["layout"]["yaxis2"] = json!({
        "title": {"text": "selects per second (dotted)"}, "overlaying": "y", "side": "right", "range": range(largest[1]), "showgrid": false,
    });
    figure["layout"]["margin"]["r"] = json!(70);
    Picture {
        id: "throughput",
        title: "Throughput by number of replicas",
        note: "Bars are 95 % intervals, cut where they leave the picture; none with one start. Selects belong to the axis on the right.".to_owned(),
        figure,
        table: DataTable::new(&["what", "replicas", "per second"], rows),
    }
}

/// Percent of the figure without a replica: the author's second picture.
fn percent(document: &ScaleDocument) -> Picture {
    let curves: [(&str, ScalePhase, Pick); 4] = [
        ("insert alone", ScalePhase::Insert, |row| {
            (row.percent_of_none.inserts, row.percent_of_none.inserts_ci)
        }),
        ("insert while selecting", ScalePhase::Mixed, |row| {
            (row.percent_of_none.inserts, row.percent_of_none.inserts_ci)
        }),
        ("select alone", ScalePhase::Select, |row| {
            (row.percent_of_none.selects, row.percent_of_none.selects_ci)
        }),
        ("select while inserting", ScalePhase::Mixed, |row| {
            (row.percent_of_none.selects, row.percent_of_none.selects_ci)
        }),
    ];
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    let mut largest = 100.0f64;
    for (index, (name, phase, pick)) in curves.into_iter().enumerate() {
        let points = points(document, phase, pick);
        if points.is_empty() {
            continue;
        }
        traces.push(curve(name, index, &points, "%"));
        largest = points
            .iter()
            .fold(largest, |largest, (_, value, _)| largest.max(*value));
        rows.extend(points.iter().map(|(replicas, value, _)| {
            vec![
                name.to_owned(),
                replicas.to_string(),
                format!("{value:.1} %"),
            ]
        }));
    }
    Picture {
        id: "percent",
        title: "Percent of the figure without a replica",
        note: "100 % is the same phase on a primary alone. Bars are 95 % intervals, cut where they leave the picture.".to_owned(),
        figure: figure(
            "percent",
            traces,
            replicas_axis(),
            json!({"title": {"text": "percent of no replica"}, "range": range(largest), "ticksuffix": " %"}),
        ),
        table: DataTable::new(&["what", "replicas", "percent"], rows),
    }
}

/// Servers of a phase, by name, with a figure of each.
fn by_server(
    document: &ScaleDocument,
    id: &'static str,
    title: &'static str,
    note: &str,
    axis: &str,
    pick: fn(&ScaleServer) -> Option<f64>,
    show: fn(f64) -> String,
) -> Picture {
    let mut names: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    let of_phase = |phase: ScalePhase| {
        document
            .results
            .iter()
            .filter(move |row| row.phase == phase.name())
    };
    for row in of_phase(ScalePhase::Mixed) {
        for server in &row.servers {
            if !names.contains(&server.per_operation.name) {
                names.push(server.per_operation.name.clone());
            }
        }
    }
    for row in &document.results {
        for server in &row.servers {
            let Some(value) = pick(server) else { continue };
            rows.push(vec![
                row.phase.clone(),
                row.replicas.to_string(),
                server.per_operation.name.clone(),
                show(value),
            ]);
        }
    }
    let trace = |(index, name): (usize, &String)| {
        let points: Vec<(u32, f64)> = of_phase(ScalePhase::Mixed)
            .filter_map(|row| {
                let server = row
                    .servers
                    .iter()
                    .find(|server| server.per_operation.name == *name)?;
                Some((row.replicas, pick(server)?))
            })
            .collect();
        json!({
            "type": "bar", "name": name,
            "x": points.iter().map(|(replicas, _)| replicas).collect::<Vec<_>>(),
            "y": points.iter().map(|(_, value)| value).collect::<Vec<_>>(),
            "text": points.iter().map(|(_, value)| show(*value)).collect::<Vec<_>>(),
            "hovertemplate": "%{x} replicas: %{text}<extra>%{fullData.name}</extra>",
            "marker": {"color": colour(index)},
        })
    };
    let traces = names.iter().enumerate().map(trace).collect();
    let mut figure = figure(
        id,
        traces,
        replicas_axis(),
        json!({"title": {"text": axis}, "rangemode": "tozero"}),
    );
    figure["layout"]["barmode"] = json!("group");
    Picture {
        id,
        title,
        note: note.to_owned(),
        figure,
        table: DataTable::new(&["phase", "replicas", "server", "figure"], rows),
    }
}

fn processors(document: &ScaleDocument) -> Picture {
    by_server(
        document,
        "processors",
        "Processor time of each server while inserting and selecting",
        "100 % is one core. The table has every phase.",
        "percent of one core",
        |server| server.cpu_percent,
        |value| format!("{value:.0} %"),
    )
}

fn writes(document: &ScaleDocument) -> Picture {
    by_server(
        document,
        "writes",
        "Bytes that each server wrote to storage, per second, while inserting and selecting",
        "The table has every phase.",
        "bytes per second",
        |server| server.write_bytes_per_s,
        bytes,
    )
}

/// What was measured and the law beside it.
fn laws(document: &ScaleDocument) -> Option<Picture> {
    let fits: Vec<&ScaleFit> = document
        .fits
        .iter()
        .filter(|fit| fit.refused.is_none())
        .collect();
    if fits.is_empty() {
        return None;
    }
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    for (index, fit) in fits.iter().enumerate() {
        let name = format!("{} ({})", fit.figure, fit.phase);
        let shown = if fit.phase == ScalePhase::Select.name() || index == 0 {
            json!(true)
        } else {
            json!("legendonly")
        };
        traces.push(json!({
            "type": "scatter", "mode": "lines", "name": format!("{name}, law"), "visible": shown,
            "x": fit.curve.iter().map(|point| point.replicas).collect::<Vec<_>>(),
            "y": fit.curve.iter().map(|point| point.per_s).collect::<Vec<_>>(),
            "hovertemplate": "%{x} replicas: %{y:,.4~g} per s<extra>%{fullData.name}</extra>",
            "line": {"color": colour(index), "dash": "dash"},
        }));
        traces.push(json!({
            "type": "scatter", "mode": "markers", "name": name, "visible": shown,
            "x": fit.residuals.iter().map(|one| one.replicas).collect::<Vec<_>>(),
            "y": fit.residuals.iter().map(|one| one.per_s).collect::<Vec<_>>(),
            "hovertemplate": "%{x} replicas: %{y:,.4~g} per s<extra>%{fullData.name}</extra>",
            "marker": {"color": colour(index), "size": 7},
        }));
        if let Some((measured, replicas)) = fit
            .prediction
            .as_ref()
            .and_then(|one| Some((one.measured_per_s?, one.replicas)))
        {
            traces.push(json!({
                "type": "scatter", "mode": "markers", "name": format!("{name}, predicted one"), "visible": shown,
                "x": [replicas], "y": [measured],
                "marker": {"color": colour(index), "size": 11, "symbol": "diamond-open"},
            }));
        }
        rows.extend(fit.residuals.iter().map(|one| {
            vec![
                name.clone(),
                one.replicas.to_string(),
                one.start.to_string(),
                rate(one.per_s, one.per_s / 1000.0),
                rate(one.fitted_per_s, one.fitted_per_s / 1000.0),
                format!("{:+.1} %", one.percent),
            ]
        }));
    }
    Some(Picture {
        id: "law",
        title: "The fitted scaling law, and what was measured",
        note: "Every point is the mean of one start. The law reaches to one more replica than it was fitted to.".to_owned(),
        figure: figure(
            "law",
            traces,
            replicas_axis(),
            json!({"title": {"text": "operations per second"}, "rangemode": "tozero"}),
        ),
        table: DataTable::new(&["what", "replicas", "start", "measured", "law", "off by"], rows),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_picture_has_its_table_and_the_page_its_sections() {
        let document = scale::tests::example();
        let page = super::scale(&document, &Manifest::default(), "command = 'scale'").unwrap();
        for wanted in [
            "id=\"throughput\"",
            "id=\"percent\"",
            "id=\"processors\"",
            "id=\"law\"",
            "insert while selecting",
            "OUTSIDE",
        ] {
            assert!(page.contains(wanted), "{wanted}");
        }
        let nothing = ScaleDocument::default();
        assert!(super::scale(&nothing, &Manifest::default(), "").is_ok());
    }
}
