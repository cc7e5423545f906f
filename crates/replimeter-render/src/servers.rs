//! The list of servers.

use replimeter_model::{
    engine::product,
    servers::{ServerRow, ServersDocument},
};

use crate::report::{Block, Cell, Report, Table};

fn title(row: &ServerRow) -> String {
    format!("{} {}", product(&row.engine), row.version)
}

/// Returns the servers, then their missing capabilities and unusable programs.
#[must_use]
pub fn report(document: &ServersDocument) -> Report {
    let mut report = Report {
        warnings: document.warnings.clone(),
        ..Report::default()
    };
    // A server's capabilities are below its program, since they do not fit next to it.
    let lines = document.results.iter().flat_map(|row| {
        let program = [title(row), row.origin.clone(), row.program.clone()];
        let abilities = [String::new(), String::new(), row.abilities.join(", ")];
        [program, abilities].map(|line| line.map(Cell::from).to_vec())
    });
    let headings = ["server", "origin", "program and capabilities"];
    let table = Table {
        unbroken: true,
        ..Table::new(&headings, 3, lines)
    };
    report.add(Block::table("servers", "", table));
    let missing = document.results.iter().flat_map(|row| {
        let missing = row.missing.iter();
        missing.map(|one| {
            format!(
                "{} does not support {}: {}",
                title(row),
                one.ability,
                one.hint
            )
        })
    });
    report.add(Block::list("missing", "Missing", missing.collect()));
    report
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        servers::{MissingCapability, SERVERS_SCHEMA},
        warning::{Warning, WarningCode},
    };

    use super::*;
    use crate::terminal;

    #[test]
    fn missing_and_unusable_servers_are_listed() {
        let row = ServerRow {
            engine: "mariadb".to_owned(),
            version: "11.4.2".to_owned(),
            program: "/opt/mariadb/bin/mariadbd".to_owned(),
            origin: "system".to_owned(),
            abilities: vec!["async".to_owned(), "chain".to_owned()],
            missing: vec![MissingCapability {
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
        let text = terminal::render(&report(&document));
        for wanted in [
            "MariaDB 11.4.2",
            "/opt/mariadb/bin/mariadbd",
            "async, chain",
            "does not support galera: install galera-4",
            "built for aarch64",
            "→ take another",
        ] {
            assert!(text.contains(wanted), "{text}");
        }
    }
}
