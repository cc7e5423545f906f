//! The list of servers, for people.

use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table, presets};
use replimeter_model::servers::{ServerRow, ServersDocument};

use crate::terminal;

/// A table of the servers, then what they lack and what cannot be used.
#[must_use]
pub fn list(document: &ServersDocument) -> String {
    let mut out = String::new();
    if !document.results.is_empty() {
        out.push_str(&table(&document.results));
        out.push_str(&missing(&document.results));
    }
    out.push_str(&terminal::warnings(&document.warnings));
    out
}

fn product(row: &ServerRow) -> String {
    let product = match row.engine.as_str() {
        "mariadb" => "MariaDB",
        "mysql" => "MySQL",
        other => other,
    };
    format!("{product} {}", row.version)
}

fn table(rows: &[ServerRow]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["server", "origin", "program, and what it can do"]);
    for row in rows {
        table.add_row([product(row), row.origin.clone(), row.program.clone()]);
        // The list of abilities stands below its server: beside the path it would not fit.
        table.add_row([String::new(), String::new(), row.abilities.join(", ")]);
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

fn missing(rows: &[ServerRow]) -> String {
    let mut out = String::new();
    for row in rows {
        for missing in &row.missing {
            let sentence = format!(
                "{} cannot do {}: {}",
                product(row),
                missing.ability,
                missing.hint
            );
            let _ = writeln!(out, "  – {}", terminal::wrapped(&sentence, 110, "    "));
        }
    }
    if out.is_empty() {
        out
    } else {
        format!("\nMissing\n{out}")
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        servers::{MissingAbility, SERVERS_SCHEMA},
        warning::{Warning, WarningCode},
    };

    use super::*;

    #[test]
    fn what_is_missing_and_what_cannot_be_used_is_said() {
        let row = ServerRow {
            engine: "mariadb".to_owned(),
            version: "11.4.2".to_owned(),
            program: "/opt/mariadb/bin/mariadbd".to_owned(),
            origin: "system".to_owned(),
            abilities: vec!["async".to_owned(), "chain".to_owned()],
            missing: vec![MissingAbility {
                ability: "galera".to_owned(),
                hint: "install galera-4".to_owned(),
            }],
        };
        let warning = Warning::new(
            WarningCode::ServerUnusable,
            "/x/mysqld cannot be used: it is built for aarch64",
            "take another",
        );
        let document = ServersDocument {
            schema: SERVERS_SCHEMA.to_owned(),
            results: vec![row],
            warnings: vec![warning],
        };
        let text = list(&document);
        for wanted in [
            "MariaDB 11.4.2",
            "/opt/mariadb/bin/mariadbd",
            "async, chain",
            "cannot do galera: install galera-4",
            "built for aarch64",
            "→ take another",
        ] {
            assert!(text.contains(wanted), "{text}");
        }
    }
}
