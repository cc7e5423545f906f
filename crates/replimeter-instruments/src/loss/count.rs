//! Counts the rows of the load on a server.

use std::time::Instant;

use replimeter_engine::{
    ServerError, Session,
    dialect::sync_reads,
    facts::ServerFacts,
    position::{Executed, executed},
    source::Faults,
};
use replimeter_model::{bug::REPORT_BUG, replication::Mode};

use super::{
    CrashContext,
    id_set::{IdSet, MAX_ID},
    patient,
    writers::{self, JournalEntry},
};
use crate::{MeasureError, loss::results::ErrantTransactions, preflight::Cluster};

/// Returns the rows of the load on a server.
fn rows(session: &mut Session) -> Result<IdSet, ServerError> {
    let sql = "SELECT id FROM `replimeter`.`loss_probe` WHERE id > 0";
    let mut ids = IdSet::default();
    session.each_row("cannot count the rows", sql, MAX_ID, |mut row| {
        ids.insert(row.number());
    })?;
    Ok(ids)
}

/// Returns the rows on the new primary, including all that it received.
pub(super) fn present(
    session: &mut Session,
    facts: &ServerFacts,
    mode: Mode,
) -> Result<IdSet, ServerError> {
    sync_reads::enable(session, facts, mode)?;
    rows(session)
}

/// Checks that there are no rows that no writer inserted.
pub(super) fn check(
    session: &Session,
    journal: &[JournalEntry],
    present: &IdSet,
) -> Result<(), MeasureError> {
    let mut begun = IdSet::default();
    journal.iter().for_each(|entry| _ = begun.insert(entry.id));
    match present.iter().find(|id| !begun.contains(*id)) {
        None => Ok(()),
        Some(id) => {
            let hint = format!(
                "stop other writers of the sandbox's table; if there are none, {REPORT_BUG}"
            );
            Err(session
                .precondition(
                    "cannot count the rows",
                    format!("it has row {id}, which no writer inserted"),
                    hint,
                )
                .into())
        }
    }
}

/// Waits for the old primary to return, and reads what only it has.
pub(super) fn restart_primary(
    cluster: &Cluster,
    context: &CrashContext<'_>,
    faults: &mut dyn Faults,
    journal: &[JournalEntry],
    present: &IdSet,
    new: &Executed,
) -> Result<(Instant, ErrantTransactions), MeasureError> {
    let node = faults.restart(&cluster.primary.node.name, context.stop)?;
    let answered = Instant::now();
    let mut session = Session::open(&patient(&node))?;
    let facts = ServerFacts::read(&mut session)?;
    let old = executed(&facts, &mut session)?;
    let own = rows(&mut session)?;
    let mut errant = ErrantTransactions {
        lost: present.iter().filter(|id| !own.contains(*id)).count() as u64,
        ..ErrantTransactions::default()
    };
    if let Some((transactions, commit_ids)) = old.errant(new) {
        (errant.transactions, errant.commit_ids) = (Some(transactions), commit_ids);
    }
    for entry in journal
        .iter()
        .filter(|entry| own.contains(entry.id) && !present.contains(entry.id))
    {
        errant.rows += 1;
        errant.acknowledged += u64::from(matches!(
            entry.outcome,
            writers::WriteOutcome::Acknowledged(_)
        ));
    }
    Ok((answered, errant))
}
