//! Waiting in a server until it has applied a transaction.

use std::time::Duration;

use replimeter_model::engine::Engine;

use crate::{
    ErrorClass, ServerError, Session,
    dialect::galera,
    facts::ServerFacts,
    membership::Membership,
    session::{Bound, Prepared},
};

const OPERATION: &str = "cannot wait for a transaction";
/// The wait of MariaDB.
pub(super) const OF_MARIADB: &str = "SELECT MASTER_GTID_WAIT(?, ?)";

/// A prepared wait.
pub struct PreparedWait {
    statement: Prepared,
    /// Values that mean "applied".
    done: &'static [i64],
    /// Whether the server takes whole seconds only.
    whole_seconds: bool,
}

/// Returns the statement with the GTID and the seconds to wait as parameters, and the values that
/// mean "applied".
///
/// MariaDB: `MASTER_GTID_WAIT` returns 0, or -1 on timeout. MySQL: `WAIT_FOR_EXECUTED_GTID_SET`
/// returns 0, or 1 on timeout. Galera: `WSREP_SYNC_WAIT_UPTO_GTID` returns 1, or an error on
/// timeout.
fn wording(engine: Engine, galera: bool) -> (&'static str, &'static [i64]) {
    match (engine, galera) {
        (_, true) => ("SELECT WSREP_SYNC_WAIT_UPTO_GTID(?, ?)", &[1]),
        (Engine::MariaDb, false) => (OF_MARIADB, &[0]),
        (Engine::MySql, false) => ("SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", &[0]),
    }
}

/// Returns whether the wait works on the writer: MariaDB's wait regards only transactions applied
/// as a replica.
#[must_use]
pub fn supported_on_writer(engine: Engine, membership: &Membership) -> bool {
    membership.galera().is_some() || engine == Engine::MySql
}

impl PreparedWait {
    /// Prepares the wait.
    ///
    /// # Errors
    /// When the server cannot wait for a GTID.
    pub fn prepare(session: &mut Session, facts: &ServerFacts) -> Result<Self, ServerError> {
        let galera = galera::node_state(session)?.is_some();
        if facts.engine == Engine::MySql && !facts.get("gtid_mode").eq_ignore_ascii_case("on") {
            let cause = format!(
                "gtid_mode is {}, so there is no GTID to wait for",
                facts.get("gtid_mode")
            );
            return Err(session.precondition(
                OPERATION,
                cause,
                "set gtid_mode=ON, or use --method poll",
            ));
        }
        let (sql, done) = wording(facts.engine, galera);
        let statement = session.prepare(OPERATION, sql)?;
        Ok(Self {
            statement,
            done,
            whole_seconds: galera,
        })
    }

    /// Waits for at most this time, on Galera rounded up to whole seconds; returns false on timeout.
    ///
    /// # Errors
    /// When the server refuses or the connection breaks.
    pub fn wait(
        &self,
        session: &mut Session,
        gtid: &str,
        limit: Duration,
    ) -> Result<bool, ServerError> {
        let seconds = limit.as_secs_f64();
        let seconds = if self.whole_seconds {
            Bound::Number(seconds.ceil() as u64)
        } else {
            Bound::Real(seconds)
        };
        let values = [Bound::Text(gtid), seconds];
        match session.signed(OPERATION, &self.statement, values) {
            Ok(Some(answer)) => Ok(self.done.contains(&answer)),
            Ok(None) => Err(session.precondition(
                OPERATION,
                format!("it cannot wait for {gtid}"),
                "check that it replicates by GTID; otherwise use --method poll",
            )),
            // Galera reports the timeout as this error.
            Err(error) if error.class() == Some(ErrorClass::LockTimeout) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
