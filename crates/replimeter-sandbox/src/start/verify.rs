//! The proof that a sandbox replicates: a row written at one end is read at every other.

use replimeter_engine::{ErrorClass, ServerError, Session, dialect};
use replimeter_model::replication::Mode;

use super::{Started, Starter};
use crate::error::SandboxError;

/// Returns whether the error means that the sentinel's schema or table has not arrived yet, or is arriving: a
/// member of a Galera cluster ends a read that conflicts with what it applies, like a deadlock.
fn not_there_yet(error: &ServerError) -> bool {
    use ErrorClass::{Certification, Deadlock, NoSchema, NoTable, NotReady};
    matches!(
        error.class(),
        Some(NoTable | NoSchema | NotReady | Deadlock | Certification)
    )
}

impl Starter<'_> {
    /// Writes a row on the first server and waits until every other shows it, and then until every
    /// other has removed it.
    pub(super) fn prove(&self, started: &[Started]) -> Result<(), SandboxError> {
        let mut primary = Session::open(&started[0].member.node)?;
        let operation = "cannot write the sentinel row";
        let token = self.identity.uuid(0);
        primary.run(operation, "CREATE DATABASE replimeter")?;
        primary.run(
            operation,
            "CREATE TABLE replimeter.sentinel (token VARCHAR(36) PRIMARY KEY) ENGINE=InnoDB",
        )?;
        primary.run(
            operation,
            &format!("INSERT INTO replimeter.sentinel VALUES ('{token}')"),
        )?;
        let select = format!("SELECT token FROM replimeter.sentinel WHERE token='{token}'");
        self.on_all(&started[1..], |server| {
            self.await_row(server, &select, true)
        })?;
        primary.run("cannot remove the sentinel row", "DROP DATABASE replimeter")?;
        let select = "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'replimeter'";
        self.on_all(&started[1..], |server| {
            self.await_row(server, select, false)
        })?;
        if self.mode() == Mode::SemiSync {
            // Still active, after the first writes.
            self.await_semi_sync(&started[0], started.len() as u64 - 1)?;
        }
        Ok(())
    }

    fn await_row(&self, server: &Started, select: &str, wanted: bool) -> Result<(), SandboxError> {
        self.await_state(server, |session| {
            match session.value("cannot read the sentinel row", select) {
                Ok(row) if row.is_some() == wanted => return Ok(None),
                Ok(_) => {}
                Err(error) if not_there_yet(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if self.mode().has_members() {
                return Ok(Some("a row of the first node has not arrived".to_owned()));
            }
            let channels = dialect::channels(self.installs.replica.engine, session)?;
            self.refuse_broken(&channels, server)?;
            Ok(channels.first().map(dialect::Channel::state))
        })
    }
}
