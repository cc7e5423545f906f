//! The charts of a comparison.

use replimeter_model::compare::{Change, CompareDocument, CompareRow, Quantity, SideFigure};

use super::{times_in, unit_for};
use crate::{
    chart::{Axis, Chart, Mark, Point, Scale, Series, Symbol},
    figures::count,
    format::or_dash,
    report::Table,
};

/// Maximum number of figures drawn; the table has all.
const DRAWN: usize = 40;

/// The result for a figure, with its color.
const CHANGES: [(&str, usize, &[Change]); 5] = [
    ("B is higher", 1, &[Change::Higher]),
    ("B is lower", 0, &[Change::Lower]),
    ("the runs differ, cause unknown", 4, &[Change::Differs]),
    (
        "no difference shown",
        2,
        &[Change::NotShown, Change::NotAmongAll],
    ),
    ("inconclusive", 3, &[Change::Unknown]),
];

/// Returns all charts of a comparison.
#[must_use]
pub fn charts(document: &CompareDocument) -> Vec<Chart> {
    vec![changes(document), values(document)]
}

fn name(row: &CompareRow) -> String {
    if row.label.is_empty() {
        row.figure.clone()
    } else {
        format!("{} · {}", row.figure, row.label)
    }
}

/// Returns the change of each figure that has a ratio, in percent, by result.
fn changes(document: &CompareDocument) -> Chart {
    let rows = document.results.iter();
    let all: Vec<&CompareRow> = rows.filter(|row| row.ratio.value.is_some()).collect();
    let drawn = &all[..all.len().min(DRAWN)];
    let percent = |ratio: Option<f64>| ratio.map(|ratio| (ratio - 1.0) * 100.0);
    let ratio = |row: &CompareRow| {
        let of = row.ratio;
        [of.value, of.ci95.low, of.ci95.high].map(percent)
    };
    let series = CHANGES.into_iter().map(|(title, colour, changes)| {
        let rows = drawn.iter().filter(|row| changes.contains(&row.change));
        let points = rows.map(|row| {
            let [value, low, high] = ratio(row);
            Point::of(name(row), value)
                .within(low, high)
                .with_hover_text(&row.verdict)
        });
        Series {
            colour: Some(colour),
            ..Series::new(title, points)
        }
    });
    let shown = |row: &CompareRow, at: usize| or_dash(ratio(row)[at], |of| format!("{of:.1}"));
    let mut note = "In percent of A, with individual 95 % intervals; the colors show which differences hold among all figures together.".to_owned();
    if all.len() > drawn.len() {
        note += &format!(" The first {DRAWN} are drawn; the table has all.");
    }
    Chart {
        id: "changes",
        title: "Difference of B from A",
        note,
        x: Axis {
            words: drawn.iter().map(|row| name(row)).collect(),
            ..Axis::default()
        },
        y: Axis {
            suffix: " %",
            ..Axis::new("B less A, in percent of A", Scale::Linear)
        },
        horizontal: true,
        mark: Mark::Points,
        hover: "{x}: {y}<br>{text}",
        whiskers: true,
        series: series.filter(|series| !series.points.is_empty()).collect(),
        table: Table::of(
            1,
            &all,
            &[
                ("figure", &|row| name(row)),
                ("percent", &|row| shown(row, 0)),
                ("low", &|row| shown(row, 1)),
                ("high", &|row| shown(row, 2)),
                ("verdict", &|row| row.verdict.clone()),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns both sides' values, of figures that are times.
fn values(document: &CompareDocument) -> Chart {
    let rows = document.results.iter();
    let all: Vec<&CompareRow> = rows.filter(|row| row.unit == Quantity::Us).collect();
    let drawn = &all[..all.len().min(DRAWN)];
    let unit = unit_for(drawn.iter().map(|row| row.a.value.abs() / 4.0));
    let shown = times_in(unit);
    let side = |side: &str, symbol: Symbol, of: fn(&CompareRow) -> &SideFigure| {
        let point = |row: &&CompareRow| {
            let of = of(row);
            Point::of(name(row), of.value).within(of.ci95.low, of.ci95.high)
        };
        Series {
            symbol,
            ..Series::new(side, drawn.iter().map(point))
        }
    };
    let sides = vec![
        side("A", Symbol::Circle, |row| &row.a),
        side("B", Symbol::Diamond, |row| &row.b),
    ];
    let positive = drawn
        .iter()
        .all(|row| row.a.value > 0.0 && row.b.value > 0.0);
    let scale = if positive { Scale::Log } else { Scale::Linear };
    Chart {
        id: "values",
        title: "Times of A and B",
        note: "With the 95 % interval of each side.".into(),
        y: Axis::time("", unit, scale),
        mark: Mark::Points,
        hover: "{x}: {y}",
        whiskers: true,
        series: if all.is_empty() { Vec::new() } else { sides },
        table: Table::of(
            1,
            all.iter()
                .flat_map(|row| [(row, "A", &row.a), (row, "B", &row.b)]),
            &[
                ("figure", &|(row, ..)| name(row)),
                ("side", &|(_, side, _)| (*side).to_owned()),
                (unit.symbol(), &|(.., of)| unit.show(of.value)),
                ("low", &|(.., of)| shown(of.ci95.low)),
                ("high", &|(.., of)| shown(of.ci95.high)),
                ("runs", &|(.., of)| count(of.runs)),
                ("samples", &|(.., of)| count(of.samples)),
                ("blocks", &|(.., of)| count(of.blocks)),
            ],
        ),
        ..Chart::default()
    }
}
