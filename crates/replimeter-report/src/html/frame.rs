//! What every page has: head, warnings, pictures, the environment.

use std::collections::BTreeMap;

use minijinja::{AutoEscape, Environment, Value, context, value::Serde};
use plotly::Plot;
use replimeter_model::manifest::{Manifest, NOTABLE};
use serde::Serialize;

use super::{HtmlError, pictures::Picture, topology};
use crate::figures::time;

const BASE: &str = include_str!("base.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

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

/// The script that draws the pictures; the crate hands it out behind others
/// (for formulas) that no page of ours needs.
fn plotly_script() -> String {
    let all = Plot::offline_js_sources();
    let end = "</script>";
    all.find(end)
        .map_or(all.clone(), |at| all[..at + end.len()].to_owned())
}

fn servers(manifest: &Manifest) -> Vec<Server> {
    let servers = manifest.servers.iter().map(|server| {
        // Every MariaDB has the variables of a cluster; they matter where it is in one.
        let cluster = server.cluster().map(|(mode, _)| mode);
        let matters = |name: &&&str| match () {
            () if name.starts_with("wsrep_") => cluster == Some("galera"),
            () if name.starts_with("group_replication_") => cluster == Some("group"),
            () => true,
        };
        let notable = NOTABLE
            .iter()
            .filter(matters)
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

/// What a page is about.
pub(super) struct Page<'a> {
    /// The template that fills the base's blocks.
    pub(super) template: &'static str,
    pub(super) command: &'static str,
    pub(super) heading: &'a str,
    pub(super) shape: &'a str,
    /// How much was measured, such as `1,000 samples`.
    pub(super) extent: String,
    /// The record, for its answer, error, warnings and whatever the template asks for.
    pub(super) document: Value,
    pub(super) manifest: &'a Manifest,
    pub(super) plan: &'a str,
    pub(super) several: bool,
    pub(super) pictures: Vec<Picture>,
    pub(super) text_report: String,
}

impl Page<'_> {
    /// Renders it; `more` is what only this template asks for.
    pub(super) fn render(self, more: Value) -> Result<String, HtmlError> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.add_template("base", BASE)?;
        environment.add_template("page", self.template)?;
        let data = serde_json::to_string(
            &self
                .pictures
                .iter()
                .map(|picture| &picture.figure)
                .collect::<Vec<_>>(),
        );
        // "<" inside the data must not end the script element that carries it.
        let data = data.unwrap_or_default().replace('<', "\\u003c");
        let sandboxes = self.manifest.sandboxes.iter();
        let sandboxes: Vec<Value> = sandboxes
            .map(|sandbox| context! { record => Value::from(Serde(sandbox)), start => time(sandbox.start_us) })
            .collect();
        let pictures = self.pictures.iter().map(|picture| {
            let table = Value::from(Serde(&picture.table));
            context! { id => picture.id, title => picture.title, note => picture.note.as_str(), table }
        });
        let base = context! {
            command => self.command,
            heading => self.heading,
            shape => self.shape,
            extent => self.extent,
            document => self.document,
            manifest => Value::from(Serde(self.manifest)),
            plan => self.plan,
            several => self.several,
            pictures => pictures.collect::<Vec<Value>>(),
            data,
            style => STYLE,
            script => SCRIPT,
            plotly => plotly_script(),
            drawings => Value::from(Serde(topology::drawings(self.manifest))),
            servers => Value::from(Serde(servers(self.manifest))),
            memory_gib => format!("{:.1}", self.manifest.machine.memory_bytes as f64 / f64::from(1 << 30)),
            sandboxes,
            text_report => self.text_report,
        };
        Ok(environment
            .get_template("page")?
            .render(context! { ..more, ..base })?)
    }
}
