//! Finds existing data sets on servers, and restores their rows.

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{certifies, sync_reads::conflict},
};

use super::{ClusterNodes, DataSet, FillError, with_long_session};
use crate::{
    MARK, MeasureError,
    load::{
        FILLING, SETS,
        value::Source,
        workload::{Table, Workload},
    },
    pacing::poll,
    table::lacks_table,
    transaction,
};

/// Returns the comment of a table of the schema; `None` when the table does not exist.
pub(super) fn comment(session: &mut Session, table: &str) -> Result<Option<String>, ServerError> {
    let sql = format!(
        "SELECT CONCAT('=', table_comment) FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = '{table}'"
    );
    Ok(session
        .value(FILLING, &sql)?
        .map(|comment| comment.trim_start_matches('=').to_owned()))
}

/// Returns the comment of a table that Replimeter created; `None` when it does not exist.
///
/// # Errors
/// When another program created the table.
pub(super) fn own_comment(session: &mut Session, table: &str) -> Result<Option<String>, FillError> {
    match comment(session, table)? {
        Some(comment) if !comment.starts_with(MARK) => {
            Err(FillError::Foreign(foreign(session, table)))
        }
        comment => Ok(comment),
    }
}

/// Returns which of the workload's tables a server other than the writer has, from earlier runs.
///
/// # Errors
/// When another program created one: creating it there too would break its replication.
pub(super) fn held_tables(node: &Node, workload: &Workload) -> Result<Vec<String>, FillError> {
    let tables = &workload.inner.tables;
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let mut session = Session::open(node)?;
    own_comment(&mut session, SETS)?;
    let mut held = Vec::new();
    for table in tables {
        if own_comment(&mut session, &table.name)?.is_some() {
            held.push(table.name.clone());
        }
    }
    Ok(held)
}

fn foreign(session: &Session, table: &str) -> ServerError {
    session.precondition(
        FILLING,
        format!("the table `replimeter`.`{table}` was not created by Replimeter"),
        "rename that table or the workload's table",
    )
}

/// Returns the number of rows recorded in a table's comment.
pub(super) fn size_of(comment: &str) -> Option<u64> {
    comment.rsplit_once("; rows ")?.1.parse().ok()
}

pub(super) fn size_on_disk(session: &mut Session, workload: &Workload) -> Result<u64, ServerError> {
    let tables = &workload.inner.tables;
    if tables.is_empty() {
        return Ok(0);
    }
    let names = tables
        .iter()
        .map(|table| format!("'{}'", table.name))
        .collect::<Vec<_>>()
        .join(", ");
    let sql = format!(
        "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name IN ({names})"
    );
    Ok(session
        .value(FILLING, &sql)?
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or(0))
}

impl DataSet {
    /// Returns whether a set like this one is complete.
    pub(super) fn is_whole(&self, session: &mut Session) -> Result<bool, ServerError> {
        if !self.workload.has_data() || comment(session, SETS)?.is_none() {
            return Ok(false);
        }
        let sql = format!(
            "SELECT total FROM `replimeter`.`{SETS}` WHERE fingerprint = '{:016x}'",
            self.fingerprint
        );
        Ok(session.value(FILLING, &sql)?.as_deref() == Some(self.rows.to_string().as_str()))
    }

    /// Deletes the record that the set is complete. A missing record is no error.
    pub(super) fn mark_incomplete(&self, session: &mut Session) -> Result<(), ServerError> {
        if comment(session, SETS)?.is_none() {
            return Ok(());
        }
        session.run(
            FILLING,
            &format!(
                "DELETE FROM `{SETS}` WHERE fingerprint = '{:016x}'",
                self.fingerprint
            ),
        )?;
        if session
            .value(FILLING, &format!("SELECT COUNT(*) FROM `{SETS}`"))?
            .as_deref()
            == Some("0")
        {
            session.run(FILLING, &format!("DROP TABLE IF EXISTS `{SETS}`"))?;
        }
        Ok(())
    }

    /// Returns the column that numbers a table's rows.
    fn key(table: &Table) -> Option<&str> {
        table
            .columns
            .iter()
            .find(|(_, source)| *source == Source::Row)
            .map(|(name, _)| name.as_str())
    }

    /// Removes rows that loads added; returns whether all rows of the set exist then.
    pub(super) fn restore_rows(&self, session: &mut Session) -> Result<bool, ServerError> {
        for table in self.tables() {
            if table.columns.is_empty() {
                empty(session, table)?;
                continue;
            }
            if let Some(key) = Self::key(table) {
                let added = format!("WHERE `{key}` > {} OR `{key}` < 1", self.rows);
                remove_rows(session, table, &added)?;
            }
            let count = session.value(
                FILLING,
                &format!("SELECT COUNT(*) FROM `replimeter`.`{}`", table.name),
            )?;
            if count.as_deref() != Some(self.rows.to_string().as_str()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the rows that loads added, so that the next block begins with as many as the first:
    /// those after the set's own rows, and all rows of a table that begins empty. Updates are not
    /// reverted.
    ///
    /// # Errors
    /// When the server refuses, rows of the set are missing, or the user stops the run.
    pub fn restore(&self, primary: &Node, stop: &AtomicBool) -> Result<(), MeasureError> {
        with_long_session(primary, stop, |session| {
            if self.restore_rows(session)? {
                return Ok(());
            }
            let cause = "rows of the data set are missing";
            let hint = "create the data set again: the workload deletes its rows";
            Err(session.precondition(FILLING, cause, hint).into())
        })
    }

    /// Waits until each of these servers has the complete set, whose completion record is written last.
    ///
    /// # Errors
    /// When a server cannot be reached or does not receive it in time.
    pub fn wait_on(
        &self,
        replicas: &[Node],
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<(), MeasureError> {
        let Some(session) = absent(replicas, patience, stop, |session| self.is_on(session))? else {
            return Ok(());
        };
        let cause = format!(
            "the data of the load did not arrive within {:.0} s",
            patience.as_secs_f64()
        );
        let hint = "see the server's error log (`replimeter doctor` shows its state), or use a smaller data set";
        Err(session
            .precondition("cannot start the load", cause, hint)
            .into())
    }

    /// Waits until each of these nodes of a cluster has the empty tables.
    ///
    /// # Errors
    /// When a server cannot be reached or does not have them in time.
    pub(super) fn wait_for_tables(
        &self,
        primary: &Node,
        nodes: &ClusterNodes,
        stop: &AtomicBool,
    ) -> Result<(), MeasureError> {
        let absent = absent(&nodes.others, nodes.patience, stop, |session| {
            for table in self.tables() {
                if !comment(session, &table.name)?.is_some_and(|comment| self.made(&comment)) {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        absent.map_or(Ok(()), |session| {
            Err(lacks_table(&session, &primary.to_string(), nodes.patience).into())
        })
    }

    /// Returns whether a server has the complete set.
    fn is_on(&self, session: &mut Session) -> Result<bool, ServerError> {
        let own = format!("{:016x}", self.fingerprint);
        for table in self.tables() {
            if !comment(session, &table.name)?.is_some_and(|comment| comment.contains(&own)) {
                return Ok(false);
            }
        }
        Ok(!self.workload.has_data() || self.is_whole(session)?)
    }
}

/// Waits until each of these servers has something; returns a connection to the first that does not have it in time.
fn absent(
    nodes: &[Node],
    patience: Duration,
    stop: &AtomicBool,
    has: impl Fn(&mut Session) -> Result<bool, ServerError>,
) -> Result<Option<Session>, MeasureError> {
    let deadline = Instant::now() + patience;
    for node in nodes {
        let mut session = Session::open(node)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let arrived = poll(left, Duration::from_millis(50), stop, || {
            match has(&mut session) {
                // A node that executes a definition aborts others' statements.
                Err(error) if conflict(&error) => Ok(None),
                has => Ok(has?.then_some(())),
            }
        })?;
        if arrived.is_none() {
            return Ok(Some(session));
        }
    }
    Ok(None)
}

/// Returns the approximate bytes of a row: what the workload states, or the server's estimate if that is larger.
fn row_bytes(session: &mut Session, table: &Table) -> Result<u64, ServerError> {
    let _ = session.rows(FILLING, &format!("ANALYZE LOCAL TABLE `{}`", table.name));
    let sql = format!(
        "SELECT avg_row_length FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = '{}'",
        table.name
    );
    let estimated = session.value(FILLING, &sql)?;
    let estimated = estimated.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    Ok(table.row_bytes.max(estimated))
}

/// Empties a table: at once where no other node has to wait, otherwise in slices (TRUNCATE is DDL,
/// which stalls a whole Galera cluster).
fn empty(session: &mut Session, table: &Table) -> Result<(), ServerError> {
    if certifies(session, FILLING)? {
        return remove_rows(session, table, "");
    }
    session.run(
        FILLING,
        &format!("TRUNCATE TABLE `replimeter`.`{}`", table.name),
    )
}

/// Deletes rows in transactions of limited size.
fn remove_rows(session: &mut Session, table: &Table, which: &str) -> Result<(), ServerError> {
    let slice = transaction::rows(row_bytes(session, table)?);
    let delete = format!(
        "DELETE FROM `replimeter`.`{}` {which} LIMIT {slice}",
        table.name
    );
    loop {
        session.run(FILLING, &delete)?;
        // Fewer rows than a slice were left.
        if session
            .value(FILLING, "SELECT ROW_COUNT()")?
            .and_then(|count| count.parse::<u64>().ok())
            .unwrap_or(0)
            < slice
        {
            return Ok(());
        }
    }
}
