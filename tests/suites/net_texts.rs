//! The net's texts: the report of each recorded run as data, and the outputs of a few. Commits about wording change them.

use std::collections::BTreeMap;

use replimeter_suites::{
    harness::Test,
    net::{self, GoldenPart, Rendered, ReportData, first_difference},
    test,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(recorded_runs_have_the_recorded_report),
    test!(outputs_have_all_of_the_report),
    test!(run_shown_with_others_is_printed_as_alone),
];

/// Returns the report as data, and what no report has: other sentences of the document, the order of the table's columns,
/// drawings, standard error and the exit code.
fn report(of: &Rendered) -> String {
    let Some(data) = ReportData::of(of, net::rendered()) else {
        return of.terminal.clone();
    };
    let mut text = data.text();
    let mut others = net::other_sentences(&of.json, &text);
    for drawing in net::drawings(&of.page) {
        // Pages of several runs show the servers of each.
        if of.run.is_some() {
            others.push_str(&format!("drawing: {drawing}\n"));
        }
    }
    let page = net::visible(&of.page);
    if let Some((_, environment)) = page.split_once("\nEnvironment\n") {
        others.push_str(&format!(
            "environment: {} lines, hash {:016x}\n",
            environment.lines().count(),
            net::hash(environment)
        ));
    }
    if let Some(columns) = of.csv.lines().next() {
        others.push_str(&format!(
            "columns of the table, in their order: {:016x}\n",
            net::hash(columns)
        ));
    }
    text.push_str(&format!("\n[others]\n{others}"));
    let ends = ["--- stderr", "--- exit code"];
    if let Some(at) = ends.iter().find_map(|end| of.terminal.find(end)) {
        text.push_str(&of.terminal[at..]);
    }
    text
}

/// Returns the outputs of a run by kind.
fn outputs(of: &Rendered) -> Vec<(&'static str, String)> {
    let mut page = net::visible(&net::without_report(&of.page).0);
    // A page of several runs shows the servers like the page of each run.
    if let (None, Some((before, _))) = (&of.run, page.split_once("\nEnvironment\n")) {
        page = format!("{before}\n");
    }
    page.push_str("\n=== words of charts ===\n");
    page.push_str(&words_of_charts(&of.page));
    // Another test compares the reports of several runs on a terminal with those of each.
    let terminal = if of.cases.is_empty() {
        of.terminal.clone()
    } else {
        String::new()
    };
    vec![
        ("terminal", terminal),
        ("markdown", of.markdown.clone()),
        ("page", page),
    ]
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

fn recorded_runs_have_the_recorded_report() {
    let mut now = BTreeMap::new();
    let mut in_full = net::in_full();
    for one in net::rendered() {
        now.insert(format!("{}.report.txt", one.name), report(one));
        if in_full.contains(&one.name) {
            in_full.retain(|name| *name != one.name);
            let outputs = outputs(one).into_iter();
            for (form, text) in outputs.filter(|(_, text)| !text.is_empty()) {
                now.insert(format!("{}.{form}.txt", one.name), text);
            }
        }
    }
    assert!(
        in_full.is_empty(),
        "nothing recorded has these names: {in_full:?}"
    );
    GoldenPart::Texts.check(&now, first_difference);
}

fn outputs_have_all_of_the_report() {
    let mut wrong = Vec::new();
    for one in net::rendered() {
        if let Some(data) = ReportData::of(one, net::rendered()) {
            let missing = net::missing(one, &data);
            let some = missing.iter().take(5);
            wrong.extend(some.map(|what| format!("{}: {what}", one.name)));
            if missing.len() > 5 {
                wrong.push(format!("{}: {} texts in all", one.name, missing.len()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn run_shown_with_others_is_printed_as_alone() {
    let several = net::rendered().iter().filter(|one| !one.cases.is_empty());
    for one in several {
        let alone = |case: &String| {
            let run = net::rendered().iter().find(|run| run.name == *case);
            run.unwrap().terminal.clone()
        };
        let texts: String = one.cases.iter().map(alone).collect();
        let end = "\nAll together:  file:///FOLDER/all.html\n";
        assert_eq!(one.terminal, texts + end, "{}", one.name);
    }
}
