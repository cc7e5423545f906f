//! The table of `watch --probe`: one row, which is replaced again and again.

use replimeter_engine::{
    Node, ServerError, Session, dialect::statements::TRANSACTIONAL, membership::ClusterState,
};
use replimeter_model::warning::Warning;

use super::{SETTLE, Schema, drop_table, find, lock::with_schema_lock};
use crate::{SCHEMA, WATCH_TABLE, definition::define};

/// The table on the server that is written to. The session that uses it holds the lock of a watch that probes.
#[derive(Debug)]
pub(crate) struct WatchTable {
    schema: Schema,
}

impl WatchTable {
    /// Creates the table, unless the server has it from the primary before. Removes those of killed watches first, except in a
    /// cluster with several writers: another one of them may have a watch of its own.
    ///
    /// # Errors
    /// When a server refuses.
    pub(crate) fn create(
        node: &Node,
        session: &mut Session,
        others: &[Node],
    ) -> Result<Self, ServerError> {
        let member = ClusterState::current(session)?;
        let is_only_writer = member.is_none_or(|member| member.writers() <= 1);
        with_schema_lock(session, SETTLE, |session| {
            let schema = Schema::make(node, session, others)?;
            session.run("cannot use the schema", &format!("USE `{SCHEMA}`"))?;
            let found = find(session)?.watched;
            let remains = found.iter().filter(|table| **table != *WATCH_TABLE);
            for table in remains.filter(|_| is_only_writer) {
                let operation = "cannot remove the table of a killed watch";
                define(node, session, operation, &drop_table(table))?;
            }
            if !found.contains(&WATCH_TABLE) {
                let create = format!(
                    "CREATE TABLE `{SCHEMA}`.`{}` (id INT NOT NULL PRIMARY KEY, written BIGINT UNSIGNED NOT NULL) \
                     {TRANSACTIONAL} COMMENT='{}'",
                    *WATCH_TABLE,
                    schema.mark()
                );
                define(node, session, "cannot create the table", &create)?;
            }
            Ok(Self { schema })
        })
    }

    /// Writes the row with this number. It takes the privileges that rows of runs take.
    ///
    /// # Errors
    /// When the server refuses, or does not answer in time.
    pub(crate) fn write(&self, session: &mut Session, number: u64) -> Result<(), ServerError> {
        let sql = format!(
            "REPLACE INTO `{SCHEMA}`.`{}` (id, written) VALUES (1, {number})",
            *WATCH_TABLE
        );
        session.run("cannot write to the probe's row", &sql)
    }

    /// Returns whether a server has the table.
    ///
    /// # Errors
    /// When the connection breaks.
    pub(crate) fn is_on(session: &mut Session) -> Result<bool, ServerError> {
        Ok(find(session)?.watched.contains(&WATCH_TABLE))
    }

    /// Drops the table, and the schema if Replimeter created it and no server has other objects in it; returns the warning if the
    /// schema stays.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn remove(
        self,
        node: &Node,
        session: &mut Session,
    ) -> Result<Option<Warning>, ServerError> {
        define(
            node,
            session,
            "cannot remove the probe's table",
            &drop_table(&WATCH_TABLE),
        )?;
        self.schema.remove(node, session, SETTLE)
    }
}
