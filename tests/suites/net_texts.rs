//! The net's texts: reports of the recorded runs in the terminal, in Markdown and on the page. Commits about wording change them.

use std::collections::BTreeMap;

use replimeter_suites::{
    harness::Test,
    net::{self, GoldenPart, Rendered, first_difference},
    test,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[test!(recorded_runs_print_the_recorded_text)];

/// Returns the texts of a rendered run by kind.
fn texts(of: &Rendered) -> Vec<(&'static str, String)> {
    // A page contains the report for a terminal, which is not stored twice.
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
    // A page of several runs shows the servers like the page of each run.
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

/// Returns the sentences of the document by path, and the order of the table's columns.
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

/// Returns titles of axes, names of series, and the labels of their points.
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
