//! The schema `replimeter` on every server, and its contents.

use std::{
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session,
    facts::{ServerFacts, grants},
};
use replimeter_model::warning::{Warning, WarningCode};

use super::{HURRIED, MARK, POLL_INTERVAL, SETTLE};
use crate::{SCHEMA, TABLE};

/// Follows the mark when the schema was created along with the table.
const MADE_SCHEMA: &str = "; with the schema";
/// Timeout for reading a server's objects in the schema.
const ANSWER: Duration = Duration::from_secs(5);

/// A server's objects in the schema, as far as the user may see them.
pub(crate) struct SchemaState {
    schema: bool,
    /// The comment of the table with the probe table's name.
    pub(crate) comment: Option<String>,
    /// Number of tables with Replimeter's mark.
    ours: u64,
    /// Names of all other objects: tables, views, routines, events.
    foreign: Vec<String>,
}

pub(crate) fn find(session: &mut Session) -> Result<SchemaState, ServerError> {
    let operation = "cannot inspect the schema `replimeter`";
    let schema = session.value(
        operation,
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name = 'replimeter'",
    )?;
    let names = |table: &str, columns: &str, of: &str| {
        format!(
            "SELECT {columns} FROM information_schema.{table} WHERE {of}_schema = 'replimeter' ORDER BY name"
        )
    };
    let tables = session.rows(
        operation,
        &names(
            "tables",
            "table_name AS name, table_comment AS comment",
            "table",
        ),
    )?;
    let routines = session.rows(
        operation,
        &names("routines", "routine_name AS name", "routine"),
    )?;
    let events = session.rows(operation, &names("events", "event_name AS name", "event"))?;
    let get = |row: &replimeter_engine::session::StatusRow, name: &str| {
        row.get(name).cloned().unwrap_or_default()
    };
    let comment = tables
        .iter()
        .find(|row| get(row, "name") == TABLE)
        .map(|row| get(row, "comment"));
    let (ours, foreign): (Vec<_>, Vec<_>) = tables
        .iter()
        .partition(|row| get(row, "comment").starts_with(MARK));
    let foreign = foreign
        .into_iter()
        .chain(&routines)
        .chain(&events)
        .map(|row| get(row, "name"));
    Ok(SchemaState {
        schema: schema.is_some(),
        comment,
        ours: ours.len() as u64,
        foreign: foreign.collect(),
    })
}

/// The schema `replimeter` of a run. Dropping it replicates, so every named server is checked for objects in it:
/// when the run begins, and immediately before the drop.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    /// The named servers other than the primary.
    others: Vec<Node>,
    /// Whether Replimeter created it on the primary.
    made: bool,
    /// Why it must not be dropped nevertheless.
    kept_for: Option<String>,
}

impl Schema {
    /// Creates the schema on the primary unless it exists. A server that has it before the primary keeps it.
    ///
    /// # Errors
    /// When the primary refuses.
    pub(crate) fn make(primary: &mut Session, others: &[Node]) -> Result<Self, ServerError> {
        let operation = "cannot inspect the schema `replimeter`";
        let there =
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name = 'replimeter'";
        let mut schema = Self {
            others: others.to_vec(),
            made: false,
            kept_for: None,
        };
        if primary.value(operation, there)?.is_some() {
            let marked = format!(
                "SELECT 1 FROM information_schema.tables WHERE table_schema = 'replimeter' \
                 AND table_comment LIKE '{MARK}{MADE_SCHEMA}%' LIMIT 1"
            );
            schema.made = primary.value(operation, &marked)?.is_some();
        } else {
            let deadline = Instant::now() + SETTLE;
            // An empty one may be removed by an earlier run's removal that is still replicating.
            schema.kept_for = schema.others.iter().find_map(|node| {
                match ask(node, ANSWER, deadline, |found| {
                    !found.schema || !found.foreign.is_empty()
                }) {
                    Ok(found) if !found.schema => None,
                    Ok(_) => Some(format!("{node} had it before the run")),
                    Err(error) => Some(error.to_string()),
                }
            });
            schema.made = true;
            primary.run(
                "cannot create the schema",
                "CREATE DATABASE IF NOT EXISTS `replimeter`",
            )?;
        }
        Ok(schema)
    }

    /// Returns the beginning of the comments of this run's tables.
    pub(crate) fn mark(&self) -> String {
        format!(
            "{MARK}{}",
            if self.made && self.kept_for.is_none() {
                MADE_SCHEMA
            } else {
                ""
            }
        )
    }

    /// Drops the schema if Replimeter created it and neither the primary nor any other named server has foreign objects
    /// in it; a server may take `patience` to apply a script's removals. Returns the warning if it stays because of a
    /// server. Other tables of Replimeter on the primary, such as another data set, keep it without a warning.
    ///
    /// # Errors
    /// When the primary refuses.
    pub(crate) fn remove(
        &self,
        primary: &mut Session,
        patience: Duration,
    ) -> Result<Option<Warning>, ServerError> {
        if !self.made {
            return Ok(None);
        }
        let found = find(primary)?;
        if !found.schema || found.ours > 0 {
            return Ok(None);
        }
        let deadline = Instant::now() + patience;
        let not_ours = |name: &str, address: &str, found: &SchemaState| {
            let more = if found.foreign.len() > 1 {
                format!(" and {} more", found.foreign.len() - 1)
            } else {
                String::new()
            };
            let first = found.foreign.first()?;
            Some(format!(
                "{name} ({address}) has `{first}`{more} in it, which Replimeter did not create"
            ))
        };
        let kept_for = self
            .kept_for
            .clone()
            .or_else(|| not_ours(primary.name(), primary.address(), &found))
            .or_else(|| {
                self.others.iter().find_map(|node| {
                    match ask(
                        node,
                        patience.clamp(HURRIED * 2, ANSWER),
                        deadline,
                        |found| found.foreign.is_empty(),
                    ) {
                        Ok(found) => not_ours(&node.name, &node.endpoint.address(), &found),
                        Err(error) => Some(error.to_string()),
                    }
                })
            });
        let Some(reason) = kept_for else {
            primary.run(
                "cannot remove the schema",
                "DROP DATABASE IF EXISTS `replimeter`",
            )?;
            return Ok(None);
        };
        Ok(Some(Warning::new(
            WarningCode::CleanUpIncomplete,
            format!("{primary}: the schema `replimeter` was not removed: {reason}"),
            "once no server has other objects in it, on the primary: DROP DATABASE replimeter",
        )))
    }
}

/// Returns a server's objects in the schema, read over a separate connection until `settled` returns true or the
/// time is over.
///
/// # Errors
/// When it does not answer, or its user may not see all of the schema.
fn ask(
    node: &Node,
    answer: Duration,
    deadline: Instant,
    settled: impl Fn(&SchemaState) -> bool,
) -> Result<SchemaState, ServerError> {
    let mut session = Session::open(&Node {
        answer,
        ..node.clone()
    })?;
    let engine = ServerFacts::read(&mut session)?.engine;
    if !grants(&mut session, engine)?.is_some_and(|grants| grants.has("SELECT", SCHEMA, "")) {
        return Err(session.precondition(
            "cannot inspect the schema `replimeter`",
            "the user may not see everything in it",
            "GRANT SELECT ON `replimeter`.* to the user",
        ));
    }
    loop {
        let found = find(&mut session)?;
        if settled(&found) || Instant::now() >= deadline {
            return Ok(found);
        }
        thread::sleep(POLL_INTERVAL);
    }
}
