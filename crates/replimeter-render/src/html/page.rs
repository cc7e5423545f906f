//! The page of a report: its head, warnings, blocks and charts, and the environment of the manifest.

use std::{collections::BTreeMap, sync::LazyLock};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use minijinja::{AutoEscape, Environment, Value, context, escape_formatter, value::Serde};
use replimeter_model::manifest::Manifest;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{HtmlError, plotly, topology};
use crate::{
    chart::Chart,
    drawing,
    figures::time,
    report::{Block, Cell, Column, Content, Report, Table},
    terminal::{self, controls_terminal},
};

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Plotly's script.
const PLOTLY: &str = include_str!("../../../../vendor/plotly/plotly-cartesian.min.js");

/// The page's security policy: its own scripts and styles only, and an empty style sheet, which Plotly fills.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text)));
    let [style, plotly, script, empty] = [STYLE, PLOTLY, SCRIPT, ""].map(hash);
    format!(
        "default-src 'none'; style-src {style} {empty}; script-src {plotly} {script}; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
});

/// A server for the template.
#[derive(Serialize)]
struct Server {
    shape: String,
    name: String,
    address: String,
    version: String,
    tls: String,
    notable: Vec<(String, String)>,
    variables: BTreeMap<String, String>,
    replication: BTreeMap<String, String>,
    command_line: String,
}

fn servers(manifest: &Manifest) -> Vec<Server> {
    let servers = manifest.servers.iter().map(|server| {
        let notable = server.meaning.notable.iter();
        let notable = notable
            .filter_map(|name| Some(((*name).to_owned(), server.variables.get(*name)?.clone())));
        let sandbox = manifest
            .sandboxes
            .iter()
            .find(|sandbox| sandbox.shape == server.shape);
        let command = sandbox.and_then(|sandbox| sandbox.command_lines.get(&server.name));
        Server {
            shape: server.shape.clone(),
            name: server.name.clone(),
            address: server.address.clone(),
            version: server.version.clone(),
            tls: server.tls.clone(),
            notable: notable.collect(),
            variables: server.variables.clone(),
            replication: server.replication.clone(),
            command_line: command.map(|words| words.join(" ")).unwrap_or_default(),
        }
    });
    servers.collect()
}

/// Returns a table for the template.
fn table(of: &Table) -> Value {
    let columns = of.columns.iter().map(|column| {
        context! { heading => column.heading.as_str(), words => column.words }
    });
    let cell = |(column, cell): (&Column, &Cell)| {
        let words = column.words;
        match cell {
            Cell::Missing(why) => context! { text => cell.display_text(), words, why => *why },
            Cell::Link { text, href } => context! { text, words, href },
            Cell::Long(text) => context! { text, words, long => true },
            _ => context! { text => cell.display_text(), words },
        }
    };
    let rows = of.rows.iter().map(|row| {
        let cells = of.columns.iter().zip(row).map(cell);
        cells.collect::<Vec<Value>>()
    });
    context! { columns => columns.collect::<Vec<Value>>(), rows => rows.collect::<Vec<_>>() }
}

/// Returns a block for the template.
fn section(block: &Block) -> Value {
    let content = match &block.content {
        Content::Table(of) => context! { table => table(of) },
        Content::List(list) => context! { list },
        Content::Advice(_, all) => {
            let all = all
                .iter()
                .map(|(message, hint)| format!("{message} → {hint}"));
            context! { list => all.collect::<Vec<_>>() }
        }
        Content::Verbatim(text) => context! { text },
        Content::Bars(bins) => context! { text => drawing::bars(bins) },
        Content::Timelines(lines) => context! { text => drawing::timelines(lines) },
        Content::Columns(tables) => {
            let tables = tables
                .iter()
                .map(|(heading, of)| context! { heading, table => table(of) });
            context! { columns => tables.collect::<Vec<Value>>() }
        }
    };
    let Block {
        id,
        title,
        notes,
        after_charts,
        collapsed,
        ..
    } = block;
    context! { id, title, notes, after_charts, collapsed, ..content }
}

/// Returns the page of a report.
///
/// # Errors
/// If the template cannot be rendered.
pub fn page(
    report: &Report,
    mut charts: Vec<Chart>,
    manifest: &Manifest,
    plan: &str,
) -> Result<String, HtmlError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    // Texts of servers change no direction of the page's text, and do not control the terminal that shows its source.
    environment.set_formatter(|out, state, value| match value.as_str() {
        Some(text) if !value.is_safe() && text.contains(controls_terminal) => {
            let plain = Value::from(text.replace(controls_terminal, "\u{fffd}"));
            escape_formatter(out, state, &plain)
        }
        _ => escape_formatter(out, state, value),
    });
    environment.add_template("page", TEMPLATE)?;
    charts.retain(|chart| !chart.series.is_empty());
    let figures = charts.iter().map(plotly::figure);
    let data = serde_json::to_string(&figures.collect::<Vec<_>>());
    // "<" inside the data must not end the script element that carries it.
    let data = data.unwrap_or_default().replace('<', "\\u003c");
    let data = data.replace(controls_terminal, "\u{fffd}");
    let sandboxes = manifest.sandboxes.iter().map(|sandbox| {
        context! { record => Value::from(Serde(sandbox)), start => time(sandbox.start_us) }
    });
    let charts = charts.iter().map(|chart| {
        let table = table(&chart.table);
        context! { id => chart.id, title => chart.title, note => chart.note.as_str(), table }
    });
    let memory = manifest.machine.memory_bytes as f64 / f64::from(1 << 30);
    Ok(environment.get_template("page")?.render(context! {
        report => context! {
            command => report.command,
            answer => &report.answer,
            error => &report.error,
            started_at => &report.started_at,
            warnings => Value::from(Serde(&report.warnings)),
        },
        heading => report.heading(),
        shape => &report.shape,
        facts => &report.facts,
        extent => &report.extent,
        blocks => report.blocks_for(true).map(section).collect::<Vec<Value>>(),
        how => &report.how,
        several => report.several,
        manifest => Value::from(Serde(manifest)),
        plan,
        charts => charts.collect::<Vec<Value>>(),
        data,
        policy => Value::from_safe_string(POLICY.clone()),
        style => STYLE,
        script => SCRIPT,
        plotly => PLOTLY,
        drawings => Value::from(Serde(topology::drawings(manifest))),
        servers => Value::from(Serde(servers(manifest))),
        memory_gib => format!("{memory:.1}"),
        sandboxes => sandboxes.collect::<Vec<Value>>(),
        text_report => terminal::render(report),
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{charts, compare};

    #[test]
    fn hostile_names_are_escaped() {
        let document = compare::tests::example();
        let report = compare::report(&document);
        let charts = charts::compare::charts(&document);
        let page = page(&report, charts, &Manifest::default(), "a = 1").unwrap();
        assert!(!page.contains("· <script>") && page.contains("&lt;script&gt;"));
        // No script and style but the page's own, as they are in it.
        let policy = page
            .split("http-equiv=\"Content-Security-Policy\"")
            .nth(1)
            .unwrap();
        let policy = policy.lines().next().unwrap();
        assert!(!policy.contains("unsafe"), "{policy}");
        for element in ["<script>", "<style>"] {
            for part in page.split(element).skip(1) {
                let text = part.split(&element.replace('<', "</")).next().unwrap();
                let hash = BASE64_STANDARD.encode(Sha256::digest(text));
                assert!(policy.contains(&format!("'sha256-{hash}'")), "{element}");
            }
        }
        assert!(page.contains("Difference of B from A") && page.contains("Times of A and B"));
    }
}
