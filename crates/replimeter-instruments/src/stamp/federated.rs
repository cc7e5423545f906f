//! Joins the stamps of both servers on the replica, through a FEDERATED table.

use std::ops::RangeInclusive;

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{
        federated::{self, OPERATION},
        stamp::micros,
    },
};
use replimeter_model::warning::{Warning, WarningCode};

use super::{Stamped, number_of};
use crate::{MARK, SCHEMA, TABLE, definition::bound_lock_waits, discovery::DiscoveredServer};

/// The primary's table as a FEDERATED table on a replica, so that the replica joins the two, as
/// published. It is created and dropped with the binary log off and is not replicated.
///
/// While it exists, its definition on the replica contains the password of the primary's user,
/// readable by users who may read that definition and in any statement log of the replica.
pub struct Federated {
    session: Session,
    dropped: bool,
}

impl Drop for Federated {
    fn drop(&mut self) {
        if !self.dropped {
            // Best effort: `remove` reports errors.
            let _ = self
                .session
                .run("cannot remove the federated table", DROP_FEDERATED);
        }
    }
}

/// The table's name.
pub(crate) const FEDERATED: &str = "lag_primary";
/// How to remove the table by hand.
pub(crate) const REMOVE_FEDERATED: &str =
    "on that server: SET sql_log_bin=0; DROP TABLE IF EXISTS replimeter.lag_primary;";
const DROP_FEDERATED: &str = "DROP TABLE IF EXISTS `replimeter`.`lag_primary`";

impl Federated {
    /// Creates the table on a replica; `primary` is how the replica reaches the primary, with user
    /// and password.
    ///
    /// # Errors
    /// When the engine is missing, the replica or the primary refuses, or the user or password
    /// cannot be expressed in such a definition.
    pub fn create(replica: &DiscoveredServer, primary: &Node) -> Result<Self, ServerError> {
        let mut session = unlogged(replica, OPERATION)?;
        federated::require(&mut session, replica.facts.engine)?;
        let connection = federated::connection(&session, primary, SCHEMA, &TABLE)?;
        refuse_foreign(&mut session)?;
        session.run(OPERATION, DROP_FEDERATED)?;
        let create = format!(
            "CREATE TABLE `replimeter`.`lag_primary` (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, stamp DATETIME(6), \
             stamp_udf VARCHAR(26)) ENGINE=FEDERATED COMMENT='{MARK}' CONNECTION='{connection}'"
        );
        session
            .run(OPERATION, &create)
            .map_err(|error| federated::without_password(error, primary, replica.facts.engine))?;
        let mut made = Self {
            session,
            dropped: false,
        };
        // MySQL connects only when the table is read.
        made.session
            .run(
                OPERATION,
                "SELECT id FROM `replimeter`.`lag_primary` WHERE id = 0",
            )
            .map_err(|error| federated::without_password(error, primary, replica.facts.engine))?;
        Ok(made)
    }

    /// Returns the stamps of both servers, joined by row on the replica: the primary's and the
    /// replica's, for rows that both have. Use `pages` for a large range.
    ///
    /// # Errors
    /// When the replica does not reach the primary, or a connection breaks.
    pub fn join(&mut self, ids: RangeInclusive<u64>) -> Result<[Vec<Stamped>; 2], ServerError> {
        // One range of the primary's rows is fetched, and each is looked up here; the other order
        // would query the primary for each row.
        let sql = format!(
            "SELECT p.id, {}, p.stamp_udf, {}, r.stamp_udf FROM `replimeter`.`lag_primary` p \
             STRAIGHT_JOIN `replimeter`.`{}` r ON r.id = p.id WHERE p.id BETWEEN {} AND {} ORDER BY p.id",
            micros("p.stamp"),
            micros("r.stamp"),
            *TABLE,
            ids.start(),
            ids.end()
        );
        let [mut primary, mut replica] = [Vec::new(), Vec::new()];
        self.session
            .each_row(OPERATION, &sql, number_of(&ids), |mut row| {
                let id = row.number();
                primary.push(Stamped::of(id, &mut row));
                replica.push(Stamped::of(id, &mut row));
            })?;
        Ok([primary, replica])
    }

    /// Drops the table.
    ///
    /// # Errors
    /// When the replica refuses or the connection is lost; the password is still in the table's
    /// definition then.
    pub fn remove(mut self) -> Result<(), ServerError> {
        self.dropped = true;
        self.session
            .run("cannot remove the federated table", DROP_FEDERATED)
            .map_err(|error| ServerError {
                hint: format!("{REMOVE_FEDERATED} its definition contains a password"),
                ..error
            })
    }
}

/// Returns a session whose definitions stay on the server.
fn unlogged(server: &DiscoveredServer, operation: &str) -> Result<Session, ServerError> {
    let DiscoveredServer { node, facts, .. } = server;
    let mut session = Session::open(node)?;
    bound_lock_waits(&mut session, operation)?;
    federated::stop_logging(&mut session, facts, &server.membership, operation)?;
    Ok(session)
}

/// Removes the table that a killed run left on this server, and returns a warning about it; `find` has found one.
pub(crate) fn remove_leftover(server: &DiscoveredServer) -> Warning {
    const OPERATION: &str = "cannot remove the federated table";
    const HELD: &str = "whose definition holds the password of the primary's user";
    let session = &server.session;
    let dropped =
        unlogged(server, OPERATION).and_then(|mut session| session.run(OPERATION, DROP_FEDERATED));
    match dropped {
        Ok(()) => Warning::new(
            WarningCode::LeftoverRemoved,
            format!(
                "{session}: removed the table `replimeter`.`{FEDERATED}` that a killed run left, {HELD}"
            ),
            "change that password if other users may read definitions or statement logs there",
        ),
        Err(error) => Warning::new(
            WarningCode::CleanUpIncomplete,
            format!(
                "{session}: the table `replimeter`.`{FEDERATED}` that a killed run left, {HELD}, could not be removed: {}",
                error.cause
            ),
            REMOVE_FEDERATED,
        ),
    }
}

fn refuse_foreign(session: &mut Session) -> Result<(), ServerError> {
    let comment = session.value(
        OPERATION,
        "SELECT table_comment FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = 'lag_primary'",
    )?;
    match comment {
        Some(comment) if !comment.starts_with(MARK) => Err(session.precondition(
            OPERATION,
            "the schema `replimeter` has a table `lag_primary` that Replimeter did not create and will not change",
            "rename that table or its schema",
        )),
        _ => Ok(()),
    }
}
