//! The net's texts: what a terminal, a ticket and a page show of the recorded runs. They change in commits about wording.

use std::collections::BTreeMap;

use replimeter_suites::{
    harness::Test,
    net::{self, GoldenPart, Rendered, first_difference},
    test,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[test!(recorded_runs_print_the_recorded_text)];

/// The texts of a rendered run, by what they are.
fn texts(of: &Rendered) -> Vec<(&'static str, String)> {
    // A page holds the report for a terminal, which is not kept twice.
    let report = of
        .terminal
        .split("\nRun kept in")
        .next()
        .unwrap_or_default();
    let report = report
        .split("\nComparison kept in")
        .next()
        .unwrap_or_default();
    let mut page = net::visible(&of.page.replace(&net::escaped(report), "(as on a terminal)"));
    // The servers of several runs are shown as those of each.
    if let (None, Some((before, environment))) = (&of.run, page.split_once("\nEnvironment\n")) {
        page = format!(
            "{before}\nEnvironment: {} lines, hash {:016x}\n",
            environment.lines().count(),
            net::hash(environment)
        );
    }
    if !page.is_empty() {
        page.push_str(&format!(
            "\n=== words of charts ===\n{}",
            words_of_charts(&of.page)
        ));
    }
    let raw = of
        .raw
        .strip_prefix(report)
        .unwrap_or(&of.raw)
        .lines()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    let terminal = of.terminal.clone() + &net::shortened(&raw);
    vec![
        ("terminal", terminal),
        ("markdown", of.markdown.clone()),
        ("page", page),
        ("sentences", sentences(of)),
    ]
}

/// What the document says in sentences, by path, and in which order the table has its columns.
fn sentences(of: &Rendered) -> String {
    let leaves = net::leaves(&of.json);
    let said = leaves.iter().filter(|(_, leaf)| net::is_text(leaf));
    let text = said.map(|(path, leaf)| {
        let lines: String = leaf.iter().map(|value| format!("  {value}\n")).collect();
        format!("{path}\n{lines}")
    });
    let columns = |line: &str| {
        format!(
            "columns of the table, in their order\n  {:016x}\n",
            net::hash(line)
        )
    };
    text.collect::<String>() + &of.csv.lines().next().map_or_else(String::new, columns)
}

/// Titles of axes, names of series, and what is shown of their points.
fn words_of_charts(page: &str) -> String {
    let mut text = String::new();
    for figure in net::figures(page) {
        text.push_str(&format!("{}\n", figure["id"].as_str().unwrap()));
        for (path, leaf) in net::leaves(&figure["layout"])
            .into_iter()
            .filter(|(path, _)| path.contains("title") || path.contains("text"))
        {
            text.push_str(&format!("  {path}: {}\n", said(&leaf)));
        }
        for series in figure["data"].as_array().unwrap() {
            text.push_str(&format!(
                "  - {}\n",
                series["name"].as_str().unwrap_or("(no name)")
            ));
            for key in ["hovertemplate", "hovertext", "text", "customdata"] {
                let values = match &series[key] {
                    Value::Null => continue,
                    Value::Array(all) => all.iter().collect(),
                    one => vec![one],
                };
                text.push_str(&format!("      {key}: {}\n", said(&values)));
            }
        }
    }
    text
}

fn said(values: &[&Value]) -> String {
    net::list(
        &values
            .iter()
            .map(|value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            })
            .collect::<Vec<_>>(),
    )
}

fn recorded_runs_print_the_recorded_text() {
    let mut now = BTreeMap::new();
    for one in net::rendered() {
        for (form, text) in texts(one).into_iter().filter(|(_, text)| !text.is_empty()) {
            now.insert(format!("{}.{form}.txt", one.name), text);
        }
    }
    GoldenPart::Texts.check(&now, first_difference);
}
