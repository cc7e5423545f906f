//! Statements after the rows.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use replimeter_engine::{Node, ServerError, Session, sync::lock};

use super::{FILLERS, with_long_session};
use crate::{
    MeasureError, check_interrupted,
    load::{
        FILLING, about,
        script::excerpt,
        workload::{Table, Workload},
    },
};

/// Runs the statements after the rows of filled tables. Indexes of several tables are created concurrently;
/// other statements may depend on each other, and run in order over `session`.
pub(super) fn run_after(
    session: &mut Session,
    primary: &Node,
    workload: &Workload,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    let tables = workload.inner.tables.iter();
    let tables: Vec<&Table> = tables
        .filter(|table| !table.columns.is_empty() && !table.after.is_empty())
        .collect();
    let mut statements = tables.iter().flat_map(|table| &table.after);
    if tables.len() < 2 || !statements.all(|statement| creates_index(statement)) {
        return tables
            .iter()
            .try_for_each(|table| finish(session, workload, table, stop));
    }
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || -> Result<(), MeasureError> {
        with_long_session(primary, stop, |session| {
            while let Some(table) = tables.get(next.fetch_add(1, Ordering::Relaxed)) {
                finish(session, workload, table, stop)?;
            }
            Ok(())
        })
    };
    thread::scope(|scope| {
        for _ in 0..tables.len().min(FILLERS as usize) {
            scope.spawn(|| {
                if let Err(error) = work() {
                    // The others begin no further table.
                    next.store(tables.len(), Ordering::Relaxed);
                    lock(&failed).get_or_insert(error);
                }
            });
        }
    });
    let failed = lock(&failed).take();
    failed.map_or(Ok(()), Err)
}

/// Runs the statements of one table.
fn finish(
    session: &mut Session,
    workload: &Workload,
    table: &Table,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    for statement in &table.after {
        let explain = |error: ServerError| about(error, workload, table.line, &excerpt(statement));
        session.run(FILLING, statement).map_err(explain)?;
        check_interrupted(stop)?;
    }
    Ok(())
}

fn creates_index(statement: &str) -> bool {
    let words: Vec<String> = statement
        .split_whitespace()
        .take(3)
        .map(str::to_uppercase)
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    matches!(
        words.as_slice(),
        ["CREATE", "INDEX", ..] | ["CREATE", "UNIQUE", "INDEX"]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_that_creates_an_index_is_recognized() {
        assert!(creates_index("CREATE INDEX k ON t (k)"));
        assert!(creates_index("create unique\nindex k ON t (k)"));
        assert!(!creates_index(
            "ALTER TABLE t ADD FOREIGN KEY (k) REFERENCES u (k)"
        ));
        assert!(!creates_index("CREATE TABLE i (k INT)"));
    }
}
