//! `report.html`: one file that works offline, from a disk, for years.

mod pictures;

use std::{collections::BTreeMap, path::Path};

use minijinja::{AutoEscape, Environment, Value, context, value::Serde};
use plotly::Plot;
use replimeter_model::{
    manifest::Manifest,
    record::{Distribution, LagDocument},
};
use serde::Serialize;

use crate::{
    answer::overall_rows,
    columns::{HEADINGS, cells},
    figures::{Unit, count, time, time_within},
    precision::Precision,
    samples::{self, SamplesError},
    shapes, sweep, terminal, waterfall,
};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Why a page could not be made.
#[derive(Debug, thiserror::Error)]
pub enum HtmlError {
    /// The samples behind its pictures.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The page itself.
    #[error("cannot render the page: {0}")]
    Template(#[from] minijinja::Error),
}

/// A line of a table of distributions.
#[derive(Serialize)]
struct Line {
    replica: String,
    size: String,
    what: &'static str,
    cells: Vec<String>,
}

/// A server as the page shows it.
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

/// Variables that decide what replication costs; shown before all the others.
const NOTABLE: [&str; 22] = [
    "binlog_format",
    "sync_binlog",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_buffer_pool_size",
    "innodb_doublewrite",
    "log_slave_updates",
    "log_replica_updates",
    "slave_parallel_mode",
    "slave_parallel_threads",
    "slave_domain_parallel_threads",
    "replica_parallel_type",
    "replica_parallel_workers",
    "replica_preserve_commit_order",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_source_enabled",
    "rpl_semi_sync_master_wait_point",
    "rpl_semi_sync_source_wait_point",
    "gtid_mode",
    "gtid_strict_mode",
    "max_allowed_packet",
    "performance_schema",
];

/// The script that draws the pictures; the crate hands it out behind others
/// (for formulas) that no page of ours needs.
fn plotly_script() -> String {
    let all = Plot::offline_js_sources();
    let end = "</script>";
    all.find(end).map_or(all.clone(), |at| all[..at + end.len()].to_owned())
}

fn line(
    replica: &str,
    size: Option<u64>,
    what: &'static str,
    unit: Unit,
    distribution: &Distribution,
    precision: Precision<'_>,
) -> Line {
    let size = size.map_or_else(|| "all".to_owned(), count);
    Line { replica: replica.to_owned(), size, what, cells: cells(unit, distribution, precision) }
}

fn lines(document: &LagDocument) -> (Unit, Vec<Line>) {
    let overall = overall_rows(document);
    let unit =
        Unit::for_size(overall.iter().filter_map(|row| row.from_send.p50_us.or(row.from_send.mean_us)).fold(0.0, f64::max));
    let mut lines = Vec::new();
    for row in &overall {
        let lag = |distribution| Precision::of_lag(row, distribution);
        for (what, distribution, precision) in [
            ("lag from ack", &row.from_ack, lag(&row.from_ack)),
            ("lag from send", &row.from_send, lag(&row.from_send)),
            ("lag from intended start", &row.from_intended, lag(&row.from_intended)),
            ("estimate from ack", &row.estimate, Precision::of_estimate(row)),
            ("error (bracket width)", &row.error_us, Precision::exact(&row.error_us)),
            ("insert (send to ack)", &row.insert, Precision::exact(&row.insert)),
            ("retrieval (the read that showed the row)", &row.retrieval, Precision::exact(&row.retrieval)),
        ] {
            lines.push(line(&document.label(&row.shape, &row.replica), row.size_bytes, what, unit, distribution, precision));
        }
    }
    if overall.iter().any(|row| row.size_bytes.is_none()) {
        for row in document.results.iter().filter(|row| row.size_bytes.is_some()) {
            lines.push(line(
                &row.replica,
                row.size_bytes,
                "lag from ack",
                unit,
                &row.from_ack,
                Precision::of_lag(row, &row.from_ack),
            ));
        }
    }
    (unit, lines)
}

fn servers(manifest: &Manifest) -> Vec<Server> {
    let servers = manifest.servers.iter().map(|server| {
        let notable = NOTABLE.iter().filter_map(|name| Some(((*name).to_owned(), server.variables.get(*name)?.clone())));
        let sandbox = manifest.sandboxes.iter().find(|sandbox| sandbox.shape == server.shape);
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

/// Renders the page from a run's record and its samples.
///
/// # Errors
/// When the samples cannot be read.
pub fn lag(document: &LagDocument, manifest: &Manifest, plan: &str, samples_file: &Path) -> Result<String, HtmlError> {
    let mut gathered = pictures::Gathered::default();
    samples::read(samples_file, |shape, replica, sample| gathered.record(&document.label(shape, replica), sample))?;
    let pictures = pictures::all(document, &gathered);
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("page", PAGE)?;
    let (unit, lines) = lines(document);
    let text = serde_json::to_string(&pictures.iter().map(|picture| &picture.figure).collect::<Vec<_>>());
    // "<" inside the data must not end the script element that carries it.
    let data = text.unwrap_or_default().replace('<', "\\u003c");
    let show = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), time);
    let floors: Vec<Value> = document
        .floors
        .iter()
        .map(|floor| {
            let within = |lag: &Distribution| {
                let half = Precision::of_floor(floor, lag).quantile(0.5);
                lag.p50_us.map_or_else(|| "–".to_owned(), |us| time_within(us, half))
            };
            context! {
                shape => floor.shape.as_str(),
                rounds => count(floor.rounds),
                from_ack => within(&floor.from_ack),
                estimate => within(&floor.estimate),
                width => show(floor.error_us.p50_us),
                point_select => show(floor.point_select.p50_us),
                at_ack => show(floor.point_select_at_ack.p50_us),
            }
        })
        .collect();
    let waterfalls: Vec<Value> = waterfall::tables(document)
        .into_iter()
        .map(|one| context! { name => one.name, unit => one.unit.symbol(), headings => one.headings, lines => one.lines, notes => one.notes })
        .collect();
    let sandboxes: Vec<Value> = manifest
        .sandboxes
        .iter()
        .map(|sandbox| context! { record => Value::from(Serde(sandbox)), start => time(sandbox.start_us) })
        .collect();
    let published: Vec<Value> = document
        .size_sweep
        .iter()
        .map(|table| context! { replica => table.replica.as_str(), text => sweep::table(table) })
        .collect();
    let pictures: Vec<Value> = pictures
        .iter()
        .map(|picture| {
            let table = Value::from(Serde(&picture.table));
            context! { id => picture.id, title => picture.title, note => picture.note.as_str(), table }
        })
        .collect();
    let late = &document.client.start_lateness;
    Ok(environment.get_template("page")?.render(context! {
        document => Value::from(Serde(document)),
        manifest => Value::from(Serde(manifest)),
        plan,
        pictures,
        data,
        style => STYLE,
        script => SCRIPT,
        plotly => plotly_script(),
        unit => unit.symbol(),
        headings => HEADINGS.to_vec(),
        lines => Value::from(Serde(&lines)),
        floors,
        several => document.several(),
        side_by_side => context! { headings => shapes::HEADINGS.to_vec(), lines => shapes::lines(document), note => shapes::NOTE },
        waterfalls,
        published,
        servers => Value::from(Serde(servers(manifest))),
        samples => count(gathered.count()),
        warm_up => count(document.warm_up_rounds),
        lateness => context! { p50 => show(late.p50_us), p99 => show(late.p99_us), max => show(late.max_us) },
        memory_gib => format!("{:.1}", manifest.machine.memory_bytes as f64 / f64::from(1 << 30)),
        sandboxes,
        text_report => terminal::lag(document, false),
    })?)
}

#[cfg(test)]
mod tests {
    use replimeter_model::manifest::Manifest;

    use super::*;
    use crate::waterfall::example;

    #[test]
    fn stages_are_a_table_and_a_picture_only_where_there_are_some() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("samples.parquet");
        samples::SamplesWriter::create(&file, "primary").unwrap().finish().unwrap();
        let render = |document: &LagDocument| lag(document, &Manifest::default(), "", &file).unwrap();
        let page = render(&example());
        assert!(page.contains("stage by stage: replica1") && page.contains("id=\"stages\""));
        let none = render(&LagDocument::default());
        assert!(!none.contains("stage by stage:") && !none.contains("id=\"stages\""));
    }
}
