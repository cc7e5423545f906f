//! The page of a comparison.

use minijinja::{Value, context, value::Serde};
use replimeter_model::{
    compare::{Change, CompareDocument, CompareRow, Quantity},
    manifest::Manifest,
};
use serde_json::json;

use super::{
    HtmlError,
    frame::Page,
    pictures::{DataTable, Picture, colour, figure},
};
use crate::{
    compare as compared,
    figures::{Unit, count},
};

const COMPARE: &str = include_str!("compare.html");
/// So many figures are drawn; the table has all.
const DRAWN: usize = 40;

/// Renders the page of a comparison. `manifest` holds the servers of both sides, `plans` both plans.
///
/// # Errors
/// When the template refuses.
pub fn compare(
    document: &CompareDocument,
    manifest: &Manifest,
    plans: &str,
) -> Result<String, HtmlError> {
    let page = Page {
        template: COMPARE,
        command: "compare",
        heading: "Do A and B differ?",
        shape: &document.command,
        extent: format!(
            "{} runs, {} figures",
            document.runs(),
            count(document.results.len() as u64)
        ),
        document: context! { started_at => document.compared_at.as_str(), ..Value::from(Serde(document)) },
        manifest,
        plan: plans,
        several: true,
        pictures: [changes(document), values(document)]
            .into_iter()
            .flatten()
            .collect(),
        text_report: compared::text(document),
    };
    page.render(context! {
        sides => [compared::side("A", &document.a), compared::side("B", &document.b)],
        setting_headings => compared::SETTING_HEADINGS.to_vec(),
        settings => compared::settings(&document.differs, true),
        varies => compared::settings(&document.varies, true),
        condition_headings => compared::CONDITION_HEADINGS.to_vec(),
        conditions => compared::conditions(document),
        headings => compared::HEADINGS.to_vec(),
        lines => compared::lines(document),
        only_on => compared::only_on(document),
        sentences => compared::sentences(document),
    })
}

fn name(row: &CompareRow) -> String {
    if row.label.is_empty() {
        row.figure.clone()
    } else {
        format!("{} · {}", row.figure, row.label)
    }
}

/// The figure on a plot that is so many pixels high, without its legend.
fn with_height(mut figure: serde_json::Value, pixels: usize) -> serde_json::Value {
    figure["layout"]["height"] = json!(pixels);
    figure
}

/// The change of each figure that has a ratio, in percent, by what came of it.
fn changes(document: &CompareDocument) -> Option<Picture> {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let all: Vec<&CompareRow> = document
        .results
        .iter()
        .filter(|row| row.ratio.value.is_some())
        .collect();
    if all.is_empty() {
        return None;
    }
    let drawn: Vec<&CompareRow> = all.iter().copied().take(DRAWN).collect();
    let groups = [
        ("B is higher", 1, [Change::Higher, Change::Higher]),
        ("B is lower", 0, [Change::Lower, Change::Lower]),
        (
            "no difference shown",
            2,
            [Change::NotShown, Change::NotAmongAll],
        ),
        ("cannot be told", 3, [Change::Unknown, Change::Unknown]),
    ];
    let traces = groups.into_iter().filter_map(|(title, index, changes)| {
        let rows: Vec<&&CompareRow> = drawn
            .iter()
            .filter(|row| changes.contains(&row.change))
            .collect();
        if rows.is_empty() {
            return None;
        }
        let value = |row: &CompareRow| percent(row.ratio.value.unwrap_or(1.0));
        let bar = |row: &CompareRow, end: Option<f64>| {
            end.map_or(0.0, |end| (percent(end) - value(row)).abs())
        };
        Some(json!({
            "type": "scatter", "mode": "markers", "name": title,
            "x": rows.iter().map(|row| value(row)).collect::<Vec<_>>(),
            "y": rows.iter().map(|row| name(row)).collect::<Vec<_>>(),
            "error_x": {
                "type": "data", "symmetric": false, "thickness": 1.5,
                "array": rows.iter().map(|row| bar(row, row.ratio.high)).collect::<Vec<_>>(),
                "arrayminus": rows.iter().map(|row| bar(row, row.ratio.low)).collect::<Vec<_>>(),
            },
            "text": rows.iter().map(|row| row.verdict.clone()).collect::<Vec<_>>(),
            "hovertemplate": "%{y}: %{x:.1f} %<br>%{text}<extra></extra>",
            "marker": {"color": colour(index), "size": 9},
        }))
    });
    let order: Vec<String> = drawn.iter().rev().map(|row| name(row)).collect();
    let rows = all.iter().map(|row| {
        let shown = |ratio: Option<f64>| {
            ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.1}", percent(ratio)))
        };
        vec![
            name(row),
            shown(row.ratio.value),
            shown(row.ratio.low),
            shown(row.ratio.high),
            row.verdict.clone(),
        ]
    });
    let tall = 22 * drawn.len() + 130;
    let left = if all.len() > drawn.len() {
        format!(" The first {DRAWN} are drawn; the table has all.")
    } else {
        String::new()
    };
    Some(Picture {
        id: "changes",
        title: "By how much B differs from A",
        note: format!(
            "In percent of A, with 95 % intervals, each for itself; the colours say what holds among all figures together.{left}"
        ),
        figure: with_height(
            figure(
                "changes",
                traces.collect(),
                json!({"title": {"text": "B less A, in percent of A"}, "ticksuffix": " %", "zeroline": true}),
                json!({"type": "category", "categoryorder": "array", "categoryarray": order, "dtick": 1}),
            ),
            tall,
        ),
        table: DataTable::new(
            &["figure", "percent", "low", "high", "verdict"],
            rows.collect(),
        ),
    })
}

/// Both sides' own values, of figures that are times.
fn values(document: &CompareDocument) -> Option<Picture> {
    let all: Vec<&CompareRow> = document
        .results
        .iter()
        .filter(|row| row.unit == Quantity::Us)
        .collect();
    if all.is_empty() {
        return None;
    }
    let drawn: Vec<&CompareRow> = all.iter().copied().take(DRAWN).collect();
    let unit = Unit::for_size(
        drawn
            .iter()
            .map(|row| row.a.value.abs())
            .fold(0.0, f64::max)
            / 4.0,
    );
    let traces = [("A", 0), ("B", 1)].map(|(side, index)| {
        let of = |row: &CompareRow| if side == "A" { row.a } else { row.b };
        let bar = |row: &CompareRow, end: Option<f64>| end.map_or(0.0, |end| (end - of(row).value).abs() / unit.scale());
        json!({
            "type": "scatter", "mode": "markers", "name": side,
            "x": drawn.iter().map(|row| name(row)).collect::<Vec<_>>(),
            "y": drawn.iter().map(|row| of(row).value / unit.scale()).collect::<Vec<_>>(),
            "error_y": {
                "type": "data", "symmetric": false, "thickness": 1.5,
                "array": drawn.iter().map(|row| bar(row, of(row).high)).collect::<Vec<_>>(),
                "arrayminus": drawn.iter().map(|row| bar(row, of(row).low)).collect::<Vec<_>>(),
            },
            "hovertemplate": format!("%{{x}}: %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
            "marker": {"color": colour(index), "size": 9, "symbol": if index == 0 { "circle" } else { "diamond" }},
        })
    });
    let rows = all.iter().flat_map(|row| {
        [("A", row.a), ("B", row.b)].map(|(side, of)| {
            let shown =
                |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| unit.show(us));
            let numbers = [shown(Some(of.value)), shown(of.low), shown(of.high)];
            let counts = [of.runs, of.samples, of.blocks].map(count);
            [
                vec![name(row), side.to_owned()],
                numbers.to_vec(),
                counts.to_vec(),
            ]
            .concat()
        })
    });
    let positive = drawn
        .iter()
        .all(|row| row.a.value > 0.0 && row.b.value > 0.0);
    Some(Picture {
        id: "values",
        title: "The times of both sides",
        note: "With 95 % intervals of each side by itself.".to_owned(),
        figure: with_height(
            figure(
                "values",
                traces.to_vec(),
                json!({"type": "category", "dtick": 1, "tickangle": -60, "tickfont": {"size": 11}}),
                json!({"title": {"text": unit.symbol()}, "type": if positive { "log" } else { "linear" }}),
            ),
            560,
        ),
        table: DataTable::new(
            &[
                "figure",
                "side",
                unit.symbol(),
                "low",
                "high",
                "runs",
                "samples",
                "blocks",
            ],
            rows.collect(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::example;

    #[test]
    fn hostile_names_are_inert_and_every_picture_has_its_table() {
        let page = compare(&example(), &Manifest::default(), "a = 1").unwrap();
        assert!(!page.contains("· <script>") && page.contains("&lt;script&gt;"));
        assert!(
            page.contains("By how much B differs from A")
                && page.contains("The times of both sides")
        );
    }
}
