//! Lists of running sandboxes.

use replimeter_model::sandboxes::{ListedLink, ListedSandbox};

use crate::{
    figures::count,
    format::Format,
    report::{Block, Cell, Content, Report, Table},
};

/// Returns the list.
#[must_use]
pub fn list(sandboxes: &[ListedSandbox]) -> Report {
    let mut report = Report::default();
    if sandboxes.is_empty() {
        "No sandbox is running; start one with `replimeter sandbox up SHAPE`."
            .clone_into(&mut report.answer);
    }
    report.blocks = sandboxes.iter().map(block).collect();
    report
}

/// Returns a newly started sandbox, with commands to use it: with the stock client of its servers.
#[must_use]
pub fn started(sandbox: &ListedSandbox, start_us: f64, client: &str) -> Report {
    let mut report = list(std::slice::from_ref(sandbox));
    let name = &sandbox.name;
    let first = sandbox.nodes.first();
    let first = first.map_or("primary", |node| node.name.as_str());
    let commands = format!(
        "  replimeter sandbox exec {name} {first} -- {client}\n  replimeter lag --sandbox {name}\n  replimeter sandbox down {name}"
    );
    let title = format!("ready after {:.2} s", start_us / 1e6);
    report.add(Block::new("next", title, Content::Verbatim(commands)));
    report
}

/// Returns the replication links of one sandbox.
#[must_use]
pub fn links(links: &[ListedLink]) -> Report {
    let mut report = Report::default();
    report.add(Block::table("links", "", links_of(links)));
    report
}

fn block(sandbox: &ListedSandbox) -> Block {
    let shape = sandbox.shape.as_ref();
    let shape = shape.map_or_else(String::new, |shape| format!(" · {shape}"));
    let since = sandbox.since.as_ref();
    let since = since.map_or_else(String::new, |since| format!(" since {since}"));
    let title = format!("{}{shape} · {}{since}", sandbox.name, sandbox.state);
    let nodes = Table::of(
        3,
        &sandbox.nodes,
        &[
            ("node", &|node| Cell::from(&node.name)),
            ("role", &|node| node.role.name().into()),
            ("source", &|node| node.source.clone().into()),
            ("port", &|node| node.port.to_string().into()),
            ("version", &|node| (&node.version).into()),
            ("state", &|node| (&node.state).into()),
            ("socket", &|node| node.socket.display().to_string().into()),
        ],
    );
    let nodes = (4..7).fold(nodes, Table::with_text_column);
    let tables = [nodes, links_of(&sandbox.links)].into_iter();
    let tables = tables.filter(|table| !table.rows.is_empty());
    let tables = tables.map(|table| (String::new(), table));
    Block::new(&sandbox.name, title, Content::Columns(tables.collect()))
}

fn links_of(links: &[ListedLink]) -> Table {
    let limit = |bits| format!("{} bit/s", count(bits));
    Table::of(
        2,
        links,
        &[
            ("link", &|link| Cell::from(&link.name)),
            ("state", &|link| (&link.state).into()),
            ("one way", &|link| {
                Format::Time.cell(Some(link.delay_us as f64))
            }),
            ("jitter", &|link| {
                Format::Time.cell(Some(link.jitter_us as f64))
            }),
            ("bandwidth", &|link| {
                let bits = link.bandwidth_bits_per_s;
                bits.map_or_else(|| "no limit".into(), |bits| limit(bits).into())
            }),
            ("bytes to source", &|link| Cell::Count(link.bytes[0])),
            ("from source", &|link| Cell::Count(link.bytes[1])),
        ],
    )
}
