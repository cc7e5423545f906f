//! Waiting in a server until it has applied a transaction.

use mysql::{Statement, prelude::Queryable};
use replimeter_model::engine::Engine;

use crate::{ServerError, Session, facts::Facts, flavour::galera};

const DOING: &str = "cannot wait for a transaction";

/// A prepared wait.
pub struct Wait {
    statement: Statement,
    /// What the server answers when the transaction is there.
    done: &'static [i64],
}

/// The statement with the GTID and the seconds to wait as parameters, and the
/// answers that mean "applied".
///
/// MariaDB: `MASTER_GTID_WAIT` answers 0, or -1 after the time. MySQL:
/// `WAIT_FOR_EXECUTED_GTID_SET` answers 0, or 1 after the time. Galera:
/// `WSREP_SYNC_WAIT_UPTO_GTID` answers 1, or an error after the time.
fn wording(engine: Engine, galera: bool) -> (&'static str, &'static [i64]) {
    match (engine, galera) {
        (_, true) => ("SELECT WSREP_SYNC_WAIT_UPTO_GTID(?, ?)", &[1]),
        (Engine::MariaDb, false) => ("SELECT MASTER_GTID_WAIT(?, ?)", &[0]),
        (Engine::MySql, false) => ("SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", &[0]),
    }
}

/// Whether a server can be waited for as its own replica: MariaDB's wait looks at
/// what was applied as a replica only.
#[must_use]
pub fn on_the_writer(engine: Engine, galera: bool) -> bool {
    galera || engine == Engine::MySql
}

impl Wait {
    /// Prepares the wait.
    ///
    /// # Errors
    /// When the server has none.
    pub fn prepare(session: &mut Session, facts: &Facts) -> Result<Self, ServerError> {
        let galera = galera::node_state(session)?.is_some();
        if facts.engine == Engine::MySql && !facts.get("gtid_mode").eq_ignore_ascii_case("on") {
            let cause = format!(
                "gtid_mode is {}, so there is no GTID to wait for",
                facts.get("gtid_mode")
            );
            return Err(session.unfit(DOING, cause, "set gtid_mode=ON, or use --method poll"));
        }
        let (sql, done) = wording(facts.engine, galera);
        let prepared = session.conn().prep(sql);
        let statement = prepared.map_err(|error| session.error(DOING, &error))?;
        Ok(Self { statement, done })
    }

    /// Waits for at most so many whole seconds; false when that was not enough.
    ///
    /// # Errors
    /// When the server refuses or the connection breaks.
    pub fn wait(
        &self,
        session: &mut Session,
        gtid: &str,
        seconds: u32,
    ) -> Result<bool, ServerError> {
        let answer: Result<Option<Option<i64>>, mysql::Error> =
            session.conn().exec_first(&self.statement, (gtid, seconds));
        match answer {
            Ok(Some(Some(answer))) => Ok(self.done.contains(&answer)),
            Ok(_) => Err(session.unfit(
                DOING,
                format!("it cannot wait for {gtid}"),
                "check that it replicates by GTID; otherwise use --method poll",
            )),
            // Galera's way to say that the time is over.
            Err(mysql::Error::MySqlError(error)) if error.code == LOCK_WAIT_TIMEOUT => Ok(false),
            Err(error) => Err(session.error(DOING, &error)),
        }
    }
}

/// `ER_LOCK_WAIT_TIMEOUT`.
const LOCK_WAIT_TIMEOUT: u16 = 1205;
