//! The net's values: figures of reports, charts, tables, samples and comparisons of the recorded runs, by path. They must
//! not change; `tests/net/renamed-keys.toml` lists renamed keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use replimeter_render::reading::{self, Column};
use replimeter_suites::{
    harness::Test,
    net::{self, GoldenPart, RenamedKeys, Rendered},
    test,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(recorded_runs_have_the_recorded_values),
    test!(chart_lines_go_forward),
];

/// Keys of a series that are data, not styles.
const DATA: [&str; 7] = [
    "x",
    "y",
    "width",
    "error_x.array",
    "error_x.arrayminus",
    "error_y.array",
    "error_y.arrayminus",
];

/// Returns every value in a rendered run, in lines `path = values`.
fn values(of: &Rendered, renamed: &RenamedKeys) -> String {
    let command = command(of.json["schema"].as_str().unwrap_or_default());
    // Values of comparisons and charts are computed, not only read.
    let exact = of.run.is_some();
    let mut lines = String::new();
    let mut add = |path: &str, values: &[String]| {
        lines.push_str(&format!("{path} = {}\n", net::list(values)))
    };
    for (path, leaf) in net::leaves(&renamed.split(command, &of.json)) {
        // Documents of the runs show whether a key exists without a value.
        if !path.is_empty() && !net::is_text(&leaf) && !leaf.iter().all(|value| value.is_null()) {
            add(
                &path,
                &leaf
                    .iter()
                    .map(|value| shown(value, exact))
                    .collect::<Vec<_>>(),
            );
        }
    }
    // Most columns are empty in most runs.
    for (name, cells) in net::columns(&of.csv)
        .into_iter()
        .filter(|(_, cells)| cells.iter().any(|cell| cell != "\"\""))
    {
        add(&format!("csv:{name}"), &cells);
    }
    for (chart, series) in net::charts(&of.page) {
        for (index, one) in series.iter().enumerate() {
            for (key, points) in in_order(one) {
                add(
                    &format!("chart:{chart}[{index}].{key}"),
                    &points
                        .iter()
                        .map(|point| shown(point, false))
                        .collect::<Vec<_>>(),
                );
            }
        }
    }
    if let Some(run) = &of.run {
        for (name, cells) in samples(&run.join("samples.parquet"), command) {
            add(&format!("samples:{name}"), &cells);
        }
    }
    lines
}

/// `lag` of `replimeter.lag/1`.
fn command(schema: &str) -> &str {
    schema.split(['.', '/']).nth(1).unwrap_or_default()
}

fn shown(value: &Value, exact: bool) -> String {
    match value {
        Value::String(text) => net::word(text),
        Value::Number(number) if !exact && number.is_f64() => {
            net::digits(number.as_f64().unwrap(), 12)
        }
        other => other.to_string(),
    }
}

/// Returns the data of a series, with points sorted by x, since the order of drawing is not a value.
fn in_order(series: &Value) -> Vec<(&'static str, Vec<Value>)> {
    let array = |key: &str| {
        series
            .pointer(&format!("/{}", key.replace('.', "/")))
            .and_then(Value::as_array)
    };
    let mut order: Vec<usize> = Vec::new();
    if let Some(x) = array("x") {
        let number = |at: &usize| x[*at].as_f64().unwrap_or_default();
        order = (0..x.len()).collect();
        if x.iter().all(Value::is_number) {
            order.sort_by(|a, b| number(a).total_cmp(&number(b)));
        }
    }
    let ordered = |points: &Vec<Value>| {
        if points.len() == order.len() {
            order.iter().map(|at| points[*at].clone()).collect()
        } else {
            points.clone()
        }
    };
    DATA.iter()
        .filter_map(|key| Some((*key, ordered(array(key)?))))
        .collect()
}

/// Returns every column of a file of samples; nothing for a run without one.
fn samples(path: &Path, command: &str) -> Vec<(String, Vec<String>)> {
    if !path.exists() {
        return Vec::new();
    }
    let page = net::repository().join("docs/reference/columns.md");
    let page = fs::read_to_string(page).unwrap();
    let table = page.split("\n## ").find_map(|part| {
        let name = part.lines().next()?.trim_matches('`');
        (name == command).then_some(part)
    });
    let table = table.unwrap_or_else(|| panic!("{command} has no samples"));
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let names: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let mut columns: Vec<(String, Vec<String>)> = names
        .iter()
        .map(|name| ((*name).to_owned(), Vec::new()))
        .collect();
    reading::read(path, &names, |group, rows| {
        for (column, (_, cells)) in group.iter().zip(&mut columns) {
            cells.extend((0..rows).map(|row| match column {
                Column::Words { distinct, places } => places[row].map_or_else(
                    || "null".to_owned(),
                    |place| net::word(&distinct[place as usize]),
                ),
                Column::Numbers(numbers) if numbers[row].is_nan() => "null".to_owned(),
                Column::Numbers(numbers) => numbers[row].to_string(),
            }));
        }
    })
    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    columns
}

/// Returns the differences from the recorded values, by path.
fn difference(renamed: &RenamedKeys, was: &str, is: &str) -> Option<String> {
    let read = |text: &str| -> Vec<(String, String)> {
        text.lines()
            .filter_map(|line| line.split_once(" = "))
            .map(|(path, values)| (path.to_owned(), values.to_owned()))
            .collect()
    };
    let is: BTreeMap<String, String> = read(is).into_iter().collect();
    let was = read(was);
    let schema = was
        .iter()
        .find(|(path, _)| path == "schema")
        .map_or("", |(_, schema)| schema);
    let command = command(schema).to_owned();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (old, values) in was {
        let Some(path) = renamed.today(&command, &old) else {
            continue;
        };
        let values = renamed.words(&values);
        match is.get(&path) {
            None => wrong.push(format!("{path} is missing, it was {values}")),
            Some(now) if *now != values => {
                wrong.push(format!("{path} was {values}\n    and is {now}"))
            }
            Some(_) => {}
        }
        seen.insert(path);
    }
    let new = is
        .iter()
        .filter(|(path, _)| !seen.contains(*path) && !renamed.is_new(&command, path));
    wrong.extend(new.map(|(path, values)| format!("{path} was not there, it is {values}")));
    let all = wrong.len();
    let cut = |line: &String| format!("\n  {}", line.chars().take(600).collect::<String>());
    (all > 0).then(|| {
        format!(
            "{all} values differ{}",
            wrong.iter().take(12).map(cut).collect::<String>()
        )
    })
}

fn recorded_runs_have_the_recorded_values() {
    let renamed = RenamedKeys::read("renamed-keys.toml");
    let now = net::rendered()
        .iter()
        .map(|one| (format!("{}.txt", one.name), values(one, &renamed)));
    // A comparison that is rejected has no values.
    let now = now.filter(|(_, values)| !values.is_empty()).collect();
    GoldenPart::Values.check(&now, |was, is| difference(&renamed, was, is));
    let unused = renamed.unused();
    assert!(
        unused.is_empty(),
        "nothing recorded has these: tests/net/renamed-keys.toml holds {unused:?}"
    );
}

fn chart_lines_go_forward() {
    let mut back = Vec::new();
    for one in net::rendered() {
        for (chart, series) in net::charts(&one.page) {
            for (index, one_series) in series.iter().enumerate() {
                let is_line = one_series["mode"]
                    .as_str()
                    .is_some_and(|mode| mode.contains("lines"));
                let x: Vec<f64> = one_series["x"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_f64)
                    .collect();
                if is_line && !x.is_sorted() {
                    back.push(format!("{}: {chart}[{index}]", one.name));
                }
            }
        }
    }
    assert!(back.is_empty(), "lines that go back: {back:#?}");
}
