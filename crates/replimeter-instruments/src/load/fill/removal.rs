//! Removes data sets.

use std::time::Duration;

use replimeter_engine::{ErrorKind, Node, ServerError, Session};
use replimeter_model::warning::{Warning, WarningCode};

use super::{DataSet, found::comment};
use crate::{
    MARK,
    definition::define,
    load::{OPERATION, script::Template, value::Draw, workload::Workload},
    table::SETTLE,
};

/// Timeout of one statement of a removal, including waits for locks.
pub(in crate::load) const REMOVAL: Duration = Duration::from_secs(60);

const CLEANING: &str = "cannot clean up after the load";

impl DataSet {
    /// Removes what this set created: its tables, unless they existed before, and the schema, if it was
    /// created with them and no named server has other objects in it; runs the `-- teardown` of a
    /// script. Returns warnings about failures.
    pub fn remove(mut self, primary: &Node) -> Vec<Warning> {
        let former = self.session.take();
        let session =
            open_for_removal(primary, REMOVAL).or_else(|error| match (error.kind, former) {
                (ErrorKind::Statement(refused), Some(former))
                    if refused.is_limit_of_connections() =>
                {
                    Ok(former)
                }
                _ => Err(error),
            });
        self.clean_up(session, primary)
    }

    /// Like [`remove`](Self::remove), over a connection to `primary`.
    pub(super) fn clean_up(
        &self,
        session: Result<Session, ServerError>,
        primary: &Node,
    ) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut note = |error: ServerError, what: &str| {
            warnings.push(Warning::new(
                WarningCode::CleanUpIncomplete,
                format!("{error}{what}"),
                removal_hint(&self.workload),
            ));
        };
        let mut session = match session {
            Ok(session) => session,
            Err(error) => {
                if self.workload.needs_setup() {
                    note(error, "");
                }
                return warnings;
            }
        };
        for (statement, error) in tear_down(&mut session, &self.workload) {
            note(
                error,
                &format!(
                    " (line {} of {}: {})",
                    statement.line,
                    self.workload.name,
                    statement.excerpt()
                ),
            );
        }
        if !self.reused {
            let mut replaced = false;
            for table in self.tables() {
                let dropped =
                    comment(&mut session, &table.name).and_then(|comment| match comment {
                        Some(comment) if self.made(&comment) => define(
                            primary,
                            &mut session,
                            "cannot remove the table",
                            &format!("DROP TABLE IF EXISTS `{}`", table.name),
                        ),
                        // Another run has replaced it.
                        other => {
                            replaced |= other.is_some();
                            Ok(())
                        }
                    });
                if let Err(error) = dropped {
                    note(
                        error,
                        &format!("; its table `replimeter`.`{}` still exists", table.name),
                    );
                }
            }
            if !replaced && let Err(error) = self.mark_incomplete(&mut session) {
                note(error, "");
            }
        }
        match self.schema.remove(primary, &mut session, SETTLE) {
            Ok(kept) => warnings.extend(kept),
            Err(error) => note(error, ""),
        }
        warnings
    }

    /// Returns whether this run created a table with this comment.
    pub(super) fn made(&self, comment: &str) -> bool {
        comment.starts_with(MARK) && comment.contains(&format!("; run {};", self.run))
    }

    /// Leaves the tables for later runs.
    pub fn keep(self) {}
}

/// Returns how to remove by hand what a workload has created.
pub(in crate::load) fn removal_hint(workload: &Workload) -> String {
    let tables: Vec<String> = workload
        .inner
        .tables
        .iter()
        .map(|table| format!("`replimeter`.`{}`", table.name))
        .collect();
    if tables.is_empty() && workload.is_built_in() {
        return "run this workload again: it first removes its tables".to_owned();
    }
    if tables.is_empty() {
        return "run the statements after `-- teardown` of the script in the schema `replimeter`"
            .to_owned();
    }
    format!(
        "run this workload again, or run on the primary: DROP TABLE IF EXISTS {}",
        tables.join(", ")
    )
}

pub(in crate::load) fn open_for_removal(
    node: &Node,
    patience: Duration,
) -> Result<Session, ServerError> {
    let mut session = Session::open(&Node {
        answer: patience + Duration::from_secs(2),
        ..node.clone()
    })?;
    session.run(OPERATION, "SET SESSION lock_wait_timeout = 10")?;
    session.run(OPERATION, "USE `replimeter`")?;
    Ok(session)
}

/// Runs a script's teardown; failures do not stop the rest.
pub(in crate::load) fn tear_down<'a>(
    session: &mut Session,
    workload: &'a Workload,
) -> Vec<(&'a Template, ServerError)> {
    let mut failed = Vec::new();
    let statements = &workload.inner.teardown;
    if statements.is_empty() {
        return failed;
    }
    if workload.is_of_user() {
        // A connection that broke fails the statements, too.
        let _ = session.use_server_defaults(CLEANING);
    }
    let mut words = String::new();
    for statement in statements {
        statement.fill(&mut Draw::new(0, 1, 0), &mut words);
        if let Err(error) = session.run(CLEANING, &words) {
            failed.push((statement, error));
        }
    }
    let _ = session.restore_settings(CLEANING);
    failed
}
