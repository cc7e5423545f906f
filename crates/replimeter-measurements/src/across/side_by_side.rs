//! Several runs side by side: a table of their figures by replication mode, and a chart of each measurement's first
//! figure. All of them come from the declared figures, so that a new measurement is among them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use replimeter_model::{compare::Quantity, estimate::Estimate, manifest::Manifest};
use replimeter_render::{
    chart::{Axis, Chart, Mark, Point, Scale, Series},
    charts::{grouped, unit_for},
    format::Format,
    report::{Block, Cell, Content, Report, Table, Visibility},
    terminal,
};
use replimeter_run::{
    AnyRun, DocumentHead,
    figures::{
        DimensionSpec, DimensionValue, ENGINE, Figure, FigureSpec, JudgedBy, MODE, SHAPE,
        Statistic, WAIT_POINT,
    },
};

use super::{figures_of, labels};

/// One of the runs.
pub struct RunSide<'a> {
    /// Its name on the page: `A`, `B`, …
    pub letter: String,
    /// Its report as text.
    pub text: String,
    command: &'static str,
    head: DocumentHead<'a>,
    figures: Vec<Figure>,
    /// How each of its shapes replicates, as reported by its servers: `mariadb/semi-sync after-sync`.
    modes: BTreeMap<String, String>,
}

impl<'a> RunSide<'a> {
    /// Returns a run, whose samples are in `dir`, as one of several.
    pub fn of(index: usize, run: &'a dyn AnyRun, manifest: &Manifest, dir: &Path) -> Self {
        let head = run.head();
        let mut modes = BTreeMap::new();
        // The primary comes first.
        for server in &manifest.servers {
            modes.entry(server.shape.clone()).or_insert_with(|| {
                let mode = head.target.mode_of(&server.shape);
                mode_of(
                    &server.dialect,
                    mode.map_or(server.shape.as_str(), |mode| mode.name()),
                    server.meaning.wait_point,
                )
            });
        }
        Self {
            letter: letter(index),
            text: terminal::render(&run.report(false)),
            command: run.command(),
            head,
            // Its own page tells if its samples are damaged.
            figures: figures_of(run, dir).unwrap_or_default(),
            modes,
        }
    }

    /// Returns the replication mode of the servers that a figure is of; empty if it is of several.
    fn mode(&self, of: &[DimensionValue]) -> String {
        let value = |dimension: DimensionSpec| {
            let value = of.iter().find(|value| value.dimension == dimension);
            value.map(|value| value.value.as_str())
        };
        if let Some((engine, mode)) = value(ENGINE).zip(value(MODE)) {
            return mode_of(engine, mode, value(WAIT_POINT));
        }
        let all = || self.modes.values();
        let only = all()
            .next()
            .filter(|first| all().all(|mode| mode == *first));
        let mode = value(SHAPE)
            .and_then(|shape| self.modes.get(shape))
            .or(only);
        mode.cloned().unwrap_or_default()
    }
}

/// Returns `mariadb/semi-sync after-sync`.
fn mode_of(engine: &str, mode: &str, wait_point: Option<&str>) -> String {
    let wait_point = wait_point.map_or_else(String::new, |point| format!(" {point}"));
    format!("{}/{mode}{wait_point}", engine.to_lowercase())
}

/// Returns `A`, `B`, … `Z`, `A2`, …
fn letter(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{}", round + 1),
    }
}

/// A figure in all runs that have it.
struct Row<'a> {
    mode: String,
    spec: &'static FigureSpec,
    of: &'a [DimensionValue],
    /// Its dimensions in words, as far as they distinguish figures.
    label: String,
    /// Its value in each run.
    values: Vec<Option<Estimate>>,
}

impl Row<'_> {
    /// Returns what the figure is of.
    fn name(&self) -> &str {
        match self.label.as_str() {
            "" => &self.mode,
            label => label,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let format = format_of(self.spec.unit);
        let values = self.values.iter();
        let values = values.map(|value| match value {
            None => Cell::NONE,
            // Without an interval nothing says how many digits a share has.
            Some(share) if self.spec.unit == Quantity::Percent && share.ends().is_none() => {
                Format::Decimals(1).estimate(share)
            }
            Some(value) => format.estimate(value),
        });
        let words = [self.spec.name, self.label.as_str(), unit_of(self.spec.unit)].map(Cell::from);
        std::iter::once(Cell::text(&self.mode))
            .chain(words)
            .chain(values)
            .collect()
    }
}

/// Returns a figure with its interval. Of an interval that has values which the figure cannot have, as of two starts, nothing is known but the
/// figure.
fn shown(figure: &Figure) -> Estimate {
    let estimate = figure.drawn.estimate();
    let impossible = |low: f64| match (figure.spec.by, figure.spec.unit) {
        (JudgedBy::Ratio, _) => low <= 0.0,
        (JudgedBy::Difference, Quantity::Count | Quantity::Percent) => low < 0.0,
        (JudgedBy::Difference, _) => false,
    };
    match estimate.ends() {
        Some([low, _]) if impossible(low) => Estimate::of(figure.drawn.value),
        _ => estimate,
    }
}

/// Returns the figures of all runs, by mode.
fn rows<'a>(sides: &'a [RunSide<'_>]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        for figure in &side.figures {
            let (spec, of) = (figure.spec, figure.of.as_slice());
            let mode = side.mode(of);
            let same =
                |row: &Row<'_>| row.spec.name == spec.name && row.of == of && row.mode == mode;
            let place = rows.iter().position(same).unwrap_or(rows.len());
            if place == rows.len() {
                rows.push(Row {
                    mode,
                    spec,
                    of,
                    label: String::new(),
                    values: vec![None; sides.len()],
                });
            }
            rows[place].values[index] = Some(shown(figure));
        }
    }
    rows.sort_by(|one, other| one.mode.cmp(&other.mode));
    let labels = labels(rows.iter().map(|row| row.of));
    for (row, label) in rows.iter_mut().zip(labels) {
        row.label = label;
    }
    rows
}

/// Returns a row for each figure, and one for all statistics of the same samples: that of the median, or else of the first.
fn leading<'a>(rows: &'a [Row<'_>]) -> impl Iterator<Item = &'a Row<'a>> {
    let mut chosen: BTreeMap<&str, &FigureSpec> = BTreeMap::new();
    for Row { spec, .. } in rows {
        let known = chosen.entry(spec.group()).or_insert(spec);
        if spec.statistic == Some(Statistic::P50) {
            *known = spec;
        }
    }
    rows.iter()
        .filter(move |row| chosen[row.spec.group()].name == row.spec.name)
}

/// Returns figures with their values in each run.
fn table<'a>(sides: &[RunSide<'_>], rows: impl Iterator<Item = &'a Row<'a>>) -> Table {
    let letters = sides.iter().map(|side| side.letter.as_str());
    let headings: Vec<&str> = ["mode", "figure", "of", "unit"]
        .into_iter()
        .chain(letters)
        .collect();
    Table::new(&headings, 4, rows.map(Row::cells))
}

fn format_of(unit: Quantity) -> Format {
    match unit {
        Quantity::Us => Format::Time,
        Quantity::PerS => Format::Rate,
        Quantity::Percent => Format::Share,
        Quantity::Count => Format::Decimals(1),
        Quantity::Bytes => Format::Bytes,
    }
}

fn unit_of(unit: Quantity) -> &'static str {
    match unit {
        Quantity::Us => "time",
        Quantity::PerS => "per second",
        Quantity::Percent => "%",
        Quantity::Count => "count",
        Quantity::Bytes => "bytes",
    }
}

const WHISKERS: &str = "Whiskers are 95 % intervals; a run of one start has none.";

/// Returns the chart of the first figure of each measurement.
#[must_use]
pub fn charts(sides: &[RunSide<'_>]) -> Vec<Chart> {
    let rows = rows(sides);
    let groups = sides
        .iter()
        .filter_map(|side| Some(side.figures.first()?.spec.group()));
    let mut drawn: Vec<&str> = Vec::new();
    let mut charts = Vec::new();
    for group in groups {
        if !drawn.contains(&group) {
            drawn.push(group);
            let rows = rows.iter().filter(|row| row.spec.group() == group);
            charts.push(chart(group, sides, &rows.collect::<Vec<_>>()));
        }
    }
    charts
}

/// Returns the chart of a figure: of statistics of samples a line through the quantiles of each run, of others a bar for each run.
fn chart(group: &'static str, sides: &[RunSide<'_>], rows: &[&Row<'_>]) -> Chart {
    let spec = rows[0].spec;
    let point = |x: &str, value: Estimate| {
        Point::of(x, value.value).within(value.ci95.low, value.ci95.high)
    };
    let mut series = Vec::new();
    for (index, side) in sides.iter().enumerate() {
        let known = rows
            .iter()
            .filter_map(|row| Some((row, row.values[index]?)));
        if spec.statistic.is_none() {
            let points = known.map(|(row, value)| point(row.name(), value));
            series.push(Series::new(&side.letter, points));
            continue;
        }
        let quantiles = known.filter(|(row, _)| row.spec.statistic != Some(Statistic::Mean));
        let named = quantiles.map(|(row, value)| {
            let quantile = row.spec.name.rsplit('.').next().unwrap_or_default();
            (row.name().to_owned(), point(quantile, value))
        });
        let lines = grouped(named).into_iter();
        series.extend(
            lines.map(|(name, points)| Series::new(format!("{}: {name}", side.letter), points)),
        );
    }
    series.retain(|series| !series.points.is_empty());
    let values = || {
        series
            .iter()
            .flat_map(|series| &series.points)
            .filter_map(|point| point.y)
    };
    let scale = match spec.statistic {
        None => Scale::FromZero,
        // Medians from 0.1 ms to seconds need a logarithmic axis, but some medians are negative.
        Some(_) if values().all(|value| value > 0.0) => Scale::Log,
        Some(_) => Scale::Linear,
    };
    Chart {
        id: group,
        title: group,
        note: match spec.statistic {
            None => WHISKERS.to_owned(),
            Some(_) => format!(
                "{WHISKERS} Quantiles with fewer than ten samples beyond them are not drawn."
            ),
        },
        y: match spec.unit {
            Quantity::Us => Axis::time("", unit_for(values()), scale),
            unit => Axis::new(unit_of(unit), scale),
        },
        mark: if spec.statistic.is_none() {
            Mark::Bars
        } else {
            Mark::Line
        },
        hover: "{x}: {y}",
        whiskers: true,
        table: table(sides, rows.iter().copied()),
        series,
        ..Chart::default()
    }
}

/// Returns the report of several runs.
#[must_use]
pub fn report(sides: &[RunSide<'_>]) -> Report {
    let mut shapes: Vec<&str> = sides
        .iter()
        .map(|side| side.head.target.shape.as_str())
        .collect();
    shapes.dedup();
    let shape = shapes.join(", ");
    let mut report = Report {
        command: "report",
        question: "Runs side by side",
        facts: vec![shape.clone()],
        shape,
        extent: format!("{} runs", sides.len()),
        started_at: sides
            .first()
            .map_or_else(String::new, |side| side.head.started_at.to_owned()),
        answer: answer(sides),
        several: true,
        how: vec![
            "The runs were measured separately; the differences between them have no interval here. \
             Use `replimeter compare` to test them."
                .to_owned(),
        ],
        ..Report::default()
    };
    let runs = Table::of(
        7,
        sides,
        &[
            ("run", &|side| Cell::from(&side.letter)),
            ("command", &|side| side.command.into()),
            ("title", &|side| side.head.title.into()),
            ("servers", &|side| (&side.head.target.shape).into()),
            ("begun", &|side| side.head.started_at.into()),
            ("run directory", &|side| side.head.run_dir.into()),
            ("found", &|side| side.head.headline.into()),
        ],
    );
    report.add(Block::table("runs", "Runs", runs).shown(Visibility::OnPage));
    let note = "A dash: the run did not measure it. Of the statistics of samples the median is shown. Brackets are 95 % intervals; \
                a run of one start has none, since starts differ more than the samples of one.";
    let rows = rows(sides);
    let block = Block::table("map", "Results by mode", table(sides, leading(&rows)));
    report.add(block.with_notes(vec![note.to_owned()]));
    for side in sides {
        let title = format!(
            "{}: {} {} ({})",
            side.letter, side.command, side.head.target.shape, side.head.run_dir
        );
        let text = Content::Verbatim(side.text.clone());
        let block = Block::new(format!("run-{}", side.letter), title, text);
        report.add(block.after_charts().collapsed());
    }
    report
}

/// Returns one sentence for the head of the page.
fn answer(sides: &[RunSide<'_>]) -> String {
    let commands: BTreeSet<&str> = sides.iter().map(|side| side.command).collect();
    format!(
        "{} runs side by side ({}). Each finding is from its own run.",
        sides.len(),
        Vec::from_iter(commands).join(", ")
    )
}

#[cfg(test)]
mod tests {
    use replimeter_model::{compare::Better, host::HostRecord, record::TargetRecord};
    use replimeter_run::figures::JudgedBy;
    use replimeter_stats::compare::Resampled;

    use super::*;

    const fn spec(name: &'static str, unit: Quantity, statistic: Option<Statistic>) -> FigureSpec {
        FigureSpec {
            name,
            unit,
            better: Better::Lower,
            by: JudgedBy::Ratio,
            statistic,
            dimensions: &[],
            needs: "",
        }
    }

    static MEAN: FigureSpec = spec("lag.mean", Quantity::Us, Some(Statistic::Mean));
    static P50: FigureSpec = spec("lag.p50", Quantity::Us, Some(Statistic::P50));
    static RATE: FigureSpec = spec("cost.throughput", Quantity::PerS, None);

    fn figure(spec: &'static FigureSpec, of: &[(DimensionSpec, &str)], value: f64) -> Figure {
        let value_of = |(dimension, value): &(DimensionSpec, &str)| DimensionValue {
            dimension: *dimension,
            value: (*value).to_owned(),
        };
        Figure {
            spec,
            of: of.iter().map(value_of).collect(),
            drawn: Resampled::without_resamples(value, 1),
        }
    }

    #[test]
    fn run_letters_do_not_run_out() {
        assert_eq!([0, 25, 26, 53].map(letter), ["A", "Z", "A2", "B3"]);
    }

    #[test]
    fn figures_of_all_runs_are_listed_by_mode() {
        let (target, machine) = (TargetRecord::default(), HostRecord::default());
        let side = |index, command, figures| RunSide {
            letter: letter(index),
            text: String::new(),
            command,
            head: DocumentHead {
                run_dir: "",
                title: None,
                started_at: "",
                headline: "",
                target: &target,
                machine: &machine,
            },
            figures,
            modes: BTreeMap::from([("async:1".to_owned(), "mariadb/async".to_owned())]),
        };
        let lag = |value| {
            let of = [(SHAPE, "async:1")];
            vec![figure(&MEAN, &of, 2.0 * value), figure(&P50, &of, value)]
        };
        let cost = [
            (ENGINE, "MariaDB"),
            (MODE, "semi-sync"),
            (WAIT_POINT, "after-sync"),
        ];
        let sides = [
            side(0, "lag", lag(100.0)),
            side(1, "cost", vec![figure(&RATE, &cost, 700.0)]),
            side(2, "lag", lag(300.0)),
        ];
        let all = rows(&sides);
        let shown: Vec<Vec<String>> = leading(&all)
            .map(|row| row.cells().iter().map(Cell::display_text).collect())
            .collect();
        assert_eq!(
            shown,
            [
                [
                    "mariadb/async",
                    "lag.p50",
                    "",
                    "time",
                    "100 µs",
                    "–",
                    "300 µs"
                ],
                [
                    "mariadb/semi-sync after-sync",
                    "cost.throughput",
                    "",
                    "per second",
                    "–",
                    "about 700",
                    "–"
                ],
            ]
        );
        let charts = charts(&sides);
        let drawn: Vec<(&str, usize)> = charts
            .iter()
            .map(|chart| (chart.id, chart.series.len()))
            .collect();
        assert_eq!(drawn, [("lag", 2), ("cost.throughput", 1)]);
        // A mean is no quantile.
        assert_eq!(charts[0].series[0].points.len(), 1);
        assert_eq!(charts[0].table.rows.len(), 2);
        assert_eq!(
            answer(&sides),
            "3 runs side by side (cost, lag). Each finding is from its own run."
        );
    }
}
