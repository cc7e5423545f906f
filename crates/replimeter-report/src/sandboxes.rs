//! Kept sandboxes for people.

use std::fmt::Write as _;

use replimeter_model::sandboxes::{ListedLink, ListedSandbox};

use crate::{
    figures::{count, time},
    terminal::{aligned, plain_table},
};

/// The list.
#[must_use]
pub fn list(sandboxes: &[ListedSandbox]) -> String {
    if sandboxes.is_empty() {
        return "No sandbox is running; start one with `replimeter sandbox up SHAPE`.\n".to_owned();
    }
    let mut out = String::new();
    for (index, sandbox) in sandboxes.iter().enumerate() {
        let blank = if index == 0 { "" } else { "\n" };
        let shape = sandbox
            .shape
            .as_deref()
            .map_or_else(String::new, |shape| format!(" · {shape}"));
        let since = sandbox
            .since
            .as_deref()
            .map_or_else(String::new, |since| format!(" since {since}"));
        let _ = writeln!(
            out,
            "{blank}{}{shape} · {}{since}",
            sandbox.name, sandbox.state
        );
        if sandbox.nodes.is_empty() {
            continue;
        }
        let mut table = plain_table(
            [
                "node", "role", "source", "port", "version", "state", "socket",
            ]
            .map(str::to_owned)
            .to_vec(),
        );
        for node in &sandbox.nodes {
            table.add_row([
                node.name.clone(),
                node.role.name().to_owned(),
                node.source.clone().unwrap_or_else(|| "–".to_owned()),
                node.port.to_string(),
                node.version.clone(),
                node.state.clone(),
                node.socket.display().to_string(),
            ]);
        }
        out.push_str(&aligned(table, 7));
        if !sandbox.links.is_empty() {
            out.push_str(&links(&sandbox.links));
        }
    }
    out
}

/// The replication links of one sandbox.
#[must_use]
pub fn links(links: &[ListedLink]) -> String {
    let mut table = plain_table(
        [
            "link",
            "state",
            "one way",
            "jitter",
            "bandwidth",
            "bytes to source",
            "from source",
        ]
        .map(str::to_owned)
        .to_vec(),
    );
    for link in links {
        table.add_row([
            link.name.clone(),
            link.state.clone(),
            time(link.delay_us as f64),
            time(link.jitter_us as f64),
            link.bandwidth_bits_per_s.map_or_else(
                || "no limit".to_owned(),
                |bits| format!("{} bit/s", count(bits)),
            ),
            count(link.bytes[0]),
            count(link.bytes[1]),
        ]);
    }
    aligned(table, 2)
}
