//! The schema `replimeter` on every server, and its contents.

use std::{
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorKind, Node, ServerError, Session,
    facts::{ServerFacts, grants},
    grants::Grants,
};
use replimeter_model::warning::{Warning, WarningCode};

use super::{HURRIED, POLL_INTERVAL, SETTLE, lock::with_schema_lock, readers::Readers};
use crate::{
    MARK, SCHEMA, TABLE, TABLES, WATCH_TABLES, definition::define, preflight::hidden_contents,
    stamp::FEDERATED,
};

/// Follows the mark when the schema was created along with the table.
const MADE_SCHEMA: &str = "; with the schema";
const INSPECT: &str = "cannot inspect the schema `replimeter`";
/// Selects the schema, if there is one.
const THERE: &str =
    "SELECT schema_name FROM information_schema.schemata WHERE schema_name = 'replimeter'";
/// Timeout for reading a server's objects in the schema.
const ANSWER: Duration = Duration::from_secs(5);

/// A server's objects in the schema, as far as the user may see them.
pub(crate) struct SchemaState {
    schema: bool,
    /// The tables for rows of this run and of killed ones.
    pub(crate) probes: Vec<String>,
    /// The tables of watches that probe, and of killed ones.
    pub(super) watched: Vec<String>,
    /// Whether it has the table of Replimeter that holds a password.
    pub(crate) federated: bool,
    /// Number of tables with Replimeter's mark.
    ours: u64,
    /// Names of all other objects: tables, views, routines, events.
    foreign: Vec<String>,
}

impl SchemaState {
    /// Returns whether the server has this run's table.
    pub(crate) fn has_table(&self) -> bool {
        self.probes.contains(&TABLE)
    }

    /// Returns why the schema stays, when `server` has foreign objects in it.
    fn not_ours(&self, server: &str) -> Option<Obstacle> {
        let first = self.foreign.first()?;
        let more = match self.foreign.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Some(Obstacle::new(format!(
            "{server} has `{first}`{more} in it, which Replimeter did not create"
        )))
    }
}

pub(crate) fn find(session: &mut Session) -> Result<SchemaState, ServerError> {
    let operation = INSPECT;
    let schema = session.value(operation, THERE)?;
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
    let (ours, foreign): (Vec<_>, Vec<_>) = tables
        .iter()
        .partition(|row| get(row, "comment").starts_with(MARK));
    let foreign = foreign
        .into_iter()
        .chain(&routines)
        .chain(&events)
        .map(|row| get(row, "name"));
    let named = |beginning: &str| {
        let names = ours.iter().map(|row| get(row, "name"));
        names.filter(|name| name.starts_with(beginning)).collect()
    };
    Ok(SchemaState {
        schema: schema.is_some(),
        probes: named(TABLES),
        watched: named(WATCH_TABLES),
        federated: ours.iter().any(|row| get(row, "name") == FEDERATED),
        ours: ours.len() as u64,
        foreign: foreign.collect(),
    })
}

/// The schema `replimeter` of a run. Dropping it replicates, so every server that it reaches is checked for objects in it: when the
/// run begins, and immediately before the drop. A server that cannot be asked keeps it.
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
    /// Creates the schema on the primary, whose address is `node`, unless it exists. A server that has it before the primary keeps it.
    ///
    /// # Errors
    /// When the primary refuses.
    pub(crate) fn make(
        node: &Node,
        primary: &mut Session,
        others: &[Node],
    ) -> Result<Self, ServerError> {
        let mut schema = Self {
            others: others.to_vec(),
            made: false,
            kept_for: None,
        };
        if primary.value(INSPECT, THERE)?.is_some() {
            let marked = format!(
                "SELECT 1 FROM information_schema.tables WHERE table_schema = 'replimeter' \
                 AND table_comment LIKE '{MARK}{MADE_SCHEMA}%' LIMIT 1"
            );
            schema.made = primary.value(INSPECT, &marked)?.is_some();
            require_everywhere(&schema.others)?;
        } else {
            let deadline = Instant::now() + SETTLE;
            // An empty one may be removed by an earlier run's removal that is still replicating.
            schema.kept_for = schema.others.iter().find_map(|node| {
                match ask(node, ANSWER, deadline, |found| {
                    !found.schema || !found.foreign.is_empty()
                }) {
                    Ok((_, found)) if !found.schema => None,
                    Ok(_) => Some(format!("{node} had it before the run")),
                    Err(error) => Some(error.to_string()),
                }
            });
            schema.made = true;
            define(
                node,
                primary,
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

    /// Drops the schema if Replimeter created it, neither the primary nor any other server has foreign objects in it, and every
    /// server that the drop reaches was asked; a server may take `patience` to apply a script's removals. Returns the warning if it stays because of a
    /// server, or because its contents are hidden from the user. Other tables of Replimeter on the primary, such as
    /// another data set, keep it without a warning. Contents are checked and the schema is dropped under one lock.
    ///
    /// # Errors
    /// When the primary refuses.
    pub(crate) fn remove(
        &self,
        node: &Node,
        primary: &mut Session,
        patience: Duration,
    ) -> Result<Option<Warning>, ServerError> {
        if !self.made {
            return Ok(None);
        }
        let wait = patience.clamp(HURRIED, SETTLE);
        let kept = match with_schema_lock(primary, wait, |primary| {
            self.drop_unless_kept(node, primary, patience)
        }) {
            Err(error) if error.kind == ErrorKind::Unfit => Some(Obstacle {
                reason: error.cause,
                hint: error.hint,
            }),
            done => done?,
        };
        Ok(kept.map(|Obstacle { reason, hint }| {
            Warning::new(
                WarningCode::CleanUpIncomplete,
                format!("{primary}: the schema `replimeter` was not removed: {reason}"),
                format!("{hint}; once no server has other objects in it, on the primary: DROP DATABASE replimeter"),
            )
        }))
    }

    fn drop_unless_kept(
        &self,
        node: &Node,
        primary: &mut Session,
        patience: Duration,
    ) -> Result<Option<Obstacle>, ServerError> {
        let found = find(primary)?;
        if !found.schema || found.ours > 0 {
            return Ok(None);
        }
        let kept = match (&self.kept_for, found.not_ours(&primary.to_string())) {
            (Some(reason), _) => Some(Obstacle::new(reason)),
            (None, Some(kept)) => Some(kept),
            (None, None) => match require_sight(primary) {
                Err(error) if error.kind == ErrorKind::Unfit => Some(Obstacle {
                    reason: error.cause,
                    hint: error.hint,
                }),
                Err(error) => return Err(error),
                Ok(()) => self.kept_by_others(primary, patience),
            },
        };
        if kept.is_none() {
            define(
                node,
                primary,
                "cannot remove the schema",
                "DROP DATABASE IF EXISTS `replimeter`",
            )?;
        }
        Ok(kept)
    }

    /// Returns the first reason for which a server other than the primary keeps the schema.
    fn kept_by_others(&self, primary: &mut Session, patience: Duration) -> Option<Obstacle> {
        let deadline = Instant::now() + patience;
        let answer = patience.clamp(HURRIED * 2, ANSWER);
        let mut readers = Readers::default();
        if let Err(error) = readers.add(primary) {
            return Some(error.into());
        }
        let kept = self.others.iter().find_map(|node| {
            let asked = ask(node, answer, deadline, |found| found.foreign.is_empty());
            match asked.and_then(|(mut session, found)| readers.add(&mut session).map(|()| found)) {
                Ok(found) => found.not_ours(&node.to_string()),
                Err(error) => Some(error.into()),
            }
        });
        kept.or_else(|| {
            readers.unasked().map(|reason| Obstacle {
                reason,
                hint: "name every server, with a user that can log in there".to_owned(),
            })
        })
    }
}

/// Why the schema stays.
struct Obstacle {
    reason: String,
    hint: String,
}

impl From<ServerError> for Obstacle {
    fn from(error: ServerError) -> Self {
        Self {
            reason: error.to_string(),
            hint: error.hint,
        }
    }
}

impl Obstacle {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            hint: "look at what it contains".to_owned(),
        }
    }
}

/// Checks that the user sees everything in the schema.
///
/// # Errors
/// When something may be hidden from the user, or the connection breaks.
fn require_sight(session: &mut Session) -> Result<(), ServerError> {
    let engine = ServerFacts::read(session)?.engine;
    let hidden = match grants(session, engine)? {
        Some(grants) => hidden_contents(&grants),
        None => hidden_contents(&Grants::default()),
    };
    if hidden.is_empty() {
        return Ok(());
    }
    let privileges = hidden.join(", ");
    Err(session.precondition(
        "cannot inspect the schema `replimeter`",
        format!("the user may not see everything in it (no {privileges} on the schema)"),
        format!("GRANT {privileges} ON `{SCHEMA}`.* to the user"),
    ))
}

/// Refuses a server that lacks the schema, although the primary has it: a table that is created in it would stop its replication. A
/// server that does not answer is left to the measurement.
///
/// # Errors
/// Naming the first such server.
fn require_everywhere(others: &[Node]) -> Result<(), ServerError> {
    let deadline = Instant::now() + SETTLE;
    for node in others {
        let Ok(mut session) = Session::open(&Node {
            answer: ANSWER,
            ..node.clone()
        }) else {
            continue;
        };
        // The primary's may have been created just now.
        while !session
            .value(INSPECT, THERE)
            .is_ok_and(|found| found.is_some())
        {
            if Instant::now() >= deadline {
                return Err(session.precondition(
                    "cannot use the schema `replimeter`",
                    "the primary has it and this server does not: a table in it would stop the replication here",
                    "if this server is behind, wait until it has caught up; otherwise drop the schema on the primary, or create it here with \
                     SET SESSION sql_log_bin = 0",
                ));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// Returns a separate connection to a server, and its objects in the schema, read until `settled` returns true or the
/// time is over.
///
/// # Errors
/// When it does not answer, or its user may not see all of the schema.
fn ask(
    node: &Node,
    answer: Duration,
    deadline: Instant,
    settled: impl Fn(&SchemaState) -> bool,
) -> Result<(Session, SchemaState), ServerError> {
    let mut session = Session::open(&Node {
        answer,
        ..node.clone()
    })?;
    require_sight(&mut session)?;
    loop {
        let found = find(&mut session)?;
        if settled(&found) || Instant::now() >= deadline {
            return Ok((session, found));
        }
        thread::sleep(POLL_INTERVAL);
    }
}
