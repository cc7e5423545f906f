//! Reports of the recorded runs as data: the input of every renderer.

use std::fs;

use replimeter_engine::manifest::complete;
use replimeter_measurements::{
    across::{
        reproduce,
        side_by_side::{self, RunSide},
    },
    registry,
};
use replimeter_model::{
    compare::CompareDocument, manifest::Manifest, reproduce::ReproduceDocument,
};
use replimeter_render::{
    chart::{Axis, Chart, SecondAxis},
    charts, compare,
    report::{Block, Cell, Content, Report, Table, Visibility},
};
use serde_json::Value;

use super::{
    root,
    runs::Rendered,
    values::{hash, leaves, list},
};

/// Longer tables of charts are abbreviated: their values are those of the points, which `tests/net/values` has.
const MAX_CHART_ROWS: usize = 5;

/// A report as data.
#[derive(Debug)]
pub struct ReportData {
    /// The report.
    pub report: Report,
    /// The blocks that `--raw` adds.
    pub raw: Vec<Block>,
    /// The charts of its page, without empty ones.
    pub charts: Vec<Chart>,
    /// Reports of single runs in it, with their names.
    pub(super) parts: Vec<(String, String)>,
}

impl ReportData {
    /// Builds the report from the document that the tool printed; a page of several runs from those of the runs in `all`.
    /// Returns nothing for a comparison that was rejected.
    ///
    /// # Panics
    /// If a document or the samples cannot be read.
    #[must_use]
    pub fn of(of: &Rendered, all: &[Rendered]) -> Option<Self> {
        let read = |document: &Value| {
            let schema = document["schema"].as_str().unwrap();
            let entry = registry().entries().find(|entry| entry.schema() == schema);
            entry.unwrap().read(document.clone()).unwrap()
        };
        let (mut raw, mut parts) = (Vec::new(), Vec::new());
        let (report, mut charts) = if let Some(dir) = &of.run {
            let run = read(&of.json);
            if run.has_raw() {
                let report = run.report(true);
                raw.extend(report.blocks.into_iter().filter(|block| block.id == "raw"));
            }
            let charts = run.charts(&dir.join("samples.parquet")).unwrap();
            (run.report(false), charts)
        } else if !of.cases.is_empty() {
            let find = |case: &String| all.iter().find(|one| one.name == *case).unwrap();
            let runs: Vec<_> = of.cases.iter().map(|case| read(&find(case).json)).collect();
            let manifest = |case: &String| -> Manifest {
                let path = root().join(case).join("run/manifest.json");
                let text = fs::read_to_string(path).unwrap();
                let mut manifest: Manifest = serde_json::from_str(&text).unwrap();
                complete(&mut manifest.servers);
                manifest
            };
            let manifests: Vec<_> = of.cases.iter().map(manifest).collect();
            let sides: Vec<RunSide<'_>> = of
                .cases
                .iter()
                .zip(&runs)
                .zip(&manifests)
                .enumerate()
                .map(|(index, ((case, run), manifest))| {
                    let dir = root().join(case).join("run");
                    let side = RunSide::of(index, run.as_ref(), manifest, &dir);
                    parts.push((case.clone(), side.text.clone()));
                    side
                })
                .collect();
            (side_by_side::report(&sides), side_by_side::charts(&sides))
        } else if of.name == "reproduced" {
            let document: ReproduceDocument = serde_json::from_value(of.json.clone()).unwrap();
            (
                reproduce::report(&document),
                reproduce::charts::charts(&document),
            )
        } else if of.json.is_null() {
            return None;
        } else {
            let document: CompareDocument = serde_json::from_value(of.json.clone()).unwrap();
            (
                compare::report(&document),
                charts::compare::charts(&document),
            )
        };
        charts.retain(|chart| !chart.series.is_empty());
        Some(Self {
            report,
            raw,
            charts,
            parts,
        })
    }

    /// Returns the report as text: each heading, cell and sentence once, one line for each row and sentence.
    ///
    /// `>` marks columns of numbers. A bar or a height of a timeline is a value, so only their number is here.
    #[must_use]
    pub fn text(&self) -> String {
        let report = &self.report;
        let about = report.facts.iter().chain([&report.extent]);
        let about: Vec<&str> = about
            .chain([&report.started_at])
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        let mut text = format!(
            "{}: {}\n{}\n{}\n{}\n",
            report.named(),
            report.heading(),
            report.shape,
            about.join(" · "),
            report.answer
        );
        if let Some(error) = &report.error {
            text.push_str(&format!("Failed: {error}\n"));
        }
        for block in report.blocks.iter().chain(&self.raw) {
            text.push_str(&self.block(block));
        }
        text.push_str("\n[method]\n");
        text.extend(report.how.iter().map(|sentence| format!("- {sentence}\n")));
        if !report.warnings.is_empty() {
            text.push_str("\n[warnings]\n");
        }
        for warning in &report.warnings {
            text.push_str(&format!("! {}\n  → {}\n", warning.message, warning.hint));
        }
        text.extend(self.charts.iter().map(chart));
        text
    }

    fn block(&self, block: &Block) -> String {
        let mut place = vec![block.id.as_str()];
        match block.shown {
            Visibility::Everywhere => {}
            Visibility::WithoutCharts => place.push("without charts"),
            Visibility::OnPage => place.push("on the page"),
        }
        place.extend(block.after_charts.then_some("after the charts"));
        place.extend(block.collapsed.then_some("collapsed"));
        let mut text = format!("\n[{}] {}\n", place.join(", "), block.title);
        match &block.content {
            Content::Table(table) => text.push_str(&rows(table, usize::MAX)),
            Content::List(list) => text.extend(list.iter().map(|one| format!("- {one}\n"))),
            Content::Advice(mark, all) => text.extend(
                all.iter()
                    .map(|(message, hint)| format!("{mark} {message}\n  → {hint}\n")),
            ),
            Content::Verbatim(lines) => {
                let part = self.parts.iter().find(|(_, part)| part == lines);
                let lines: Vec<String> = match part {
                    Some((name, _)) => vec![format!("(the report of {name} for a terminal)")],
                    None => lines.lines().map(str::to_owned).collect(),
                };
                text.push_str(&super::shortened(&lines));
            }
            Content::Bars(bins) => text.push_str(&format!("({} bars)\n", bins.len())),
            Content::Timelines(lines) => text.extend(lines.iter().map(|line| {
                let heights = line.heights.len();
                format!("{}: {} ({heights} values)\n", line.name, line.scale)
            })),
            Content::Columns(tables) => text.extend(
                tables
                    .iter()
                    .map(|(heading, table)| format!("[{heading}]\n{}", rows(table, usize::MAX))),
            ),
        }
        text.extend(block.notes.iter().map(|note| format!("({note})\n")));
        text
    }
}

/// Returns the text of a cell on a page, which has it in full.
pub(super) fn full(cell: &Cell) -> String {
    match cell {
        Cell::Long(text) => text.clone(),
        _ => cell.display_text(),
    }
}

/// Returns a table's headings and rows; of more rows than `most` the first and last ones, and a hash of all.
fn rows(table: &Table, most: usize) -> String {
    let heading = |column: &replimeter_render::report::Column| {
        format!("{}{}", column.heading, if column.words { "" } else { " >" })
    };
    let headings: Vec<String> = table.columns.iter().map(heading).collect();
    let rows: Vec<String> = table
        .rows
        .iter()
        .map(|row| row.iter().map(full).collect::<Vec<_>>().join(" | "))
        .collect();
    let mut text = format!("{}\n", headings.join(" | "));
    if rows.len() <= most {
        text.extend(rows.iter().map(|row| format!("{row}\n")));
    } else {
        text.push_str(&format!(
            "{}\n… {} rows, hash {:016x} …\n{}\n",
            rows[0],
            rows.len(),
            hash(&rows.join("\n")),
            rows[rows.len() - 1]
        ));
    }
    text.extend(table.omitted_rows().map(|words| format!("({words})\n")));
    text
}

/// Returns the title of an axis, with its unit.
pub(super) fn title(axis: &Axis) -> String {
    match axis.unit.map(|unit| unit.symbol()) {
        None => axis.title.clone(),
        Some(unit) if axis.title.is_empty() => unit.to_owned(),
        Some(unit) => format!("{} ({unit})", axis.title),
    }
}

/// Returns the axes of a chart by name.
pub(super) fn axes(chart: &Chart) -> Vec<(&'static str, &Axis)> {
    let mut axes = vec![("x", &chart.x), ("y", &chart.y)];
    axes.extend(chart.second.as_ref().map(|second| match second {
        SecondAxis::Right(axis) => ("right", axis),
        SecondAxis::Below(axis) => ("below", axis),
    }));
    axes
}

/// Returns the texts in a chart: its titles, what its points show, its series with the texts of their points, its table.
fn chart(chart: &Chart) -> String {
    let mut text = format!("\n[chart {}] {}\n", chart.id, chart.title);
    if !chart.note.is_empty() {
        text.push_str(&format!("({})\n", chart.note));
    }
    for (name, axis) in axes(chart) {
        let ticks = axis.ticks.iter().map(|(_, label)| label.as_str());
        let words: Vec<&str> = [axis.suffix]
            .into_iter()
            .chain(ticks)
            .chain(axis.words.iter().map(String::as_str))
            .filter(|word| !word.is_empty())
            .collect();
        let words = if words.is_empty() {
            String::new()
        } else {
            format!(" [{}]", words.join(", "))
        };
        text.push_str(&format!("{name}: {}{words}\n", title(axis)));
    }
    text.push_str(&format!("a point: {}\n", chart.hover));
    for series in &chart.series {
        text.push_str(&format!("- {}\n", series.name));
        for (kind, texts) in point_texts(series) {
            text.push_str(&format!("    {kind}: {}\n", list(&texts)));
        }
    }
    text + &rows(&chart.table, MAX_CHART_ROWS)
}

/// Returns the texts and labels of a series' points, if they have any.
pub(super) fn point_texts(
    series: &replimeter_render::chart::Series,
) -> Vec<(&'static str, Vec<String>)> {
    let texts = series.points.iter().filter_map(|point| point.text.clone());
    let labels = series.points.iter().filter_map(|point| point.label.clone());
    [
        ("text", texts.collect()),
        ("label", labels.collect::<Vec<_>>()),
    ]
    .into_iter()
    .filter(|(_, texts): &(_, Vec<String>)| !texts.is_empty())
    .collect()
}

/// Returns the sentences of a document by path that `text` does not have.
#[must_use]
pub fn other_sentences(document: &Value, text: &str) -> String {
    let mut others = String::new();
    for (path, leaf) in leaves(document) {
        if !super::is_text(&leaf) {
            continue;
        }
        let values: Vec<String> = leaf
            .iter()
            .map(|value| value.as_str().map_or(value.to_string(), str::to_owned))
            .filter(|value| !text.contains(value.as_str()))
            .collect();
        if !values.is_empty() {
            others.push_str(&format!("{path}: {}\n", values.join(" | ")));
        }
    }
    others
}
