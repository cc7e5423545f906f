//! Accounts whose privileges limit what a replica applies (`PRIVILEGE_CHECKS_USER`, MySQL from 8.0.18 on).

use replimeter_model::engine::Engine;

use crate::{ServerError, Session, facts, grants::Grants, session::StatusRow};

/// How to let the user read the accounts.
pub const READ_HINT: &str =
    "GRANT SELECT ON performance_schema.replication_applier_configuration to the user";

/// The account as which a channel applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplierUser {
    /// The channel's name; empty for the default one.
    pub channel: String,
    /// The account as the server reports it, quoted.
    pub account: String,
    /// Whether it needs the privilege to set restricted variables of a session for each `CREATE TABLE`, which has the source's
    /// `sql_require_primary_key`.
    pub sets_variables: bool,
    /// Its privileges, with those of its default roles; `None` when the user may not read them.
    pub grants: Option<Grants>,
}

/// Returns whether a channel stops at what is logged as a statement (`REQUIRE_ROW_FORMAT`, MySQL from 8.0.19 on).
///
/// # Errors
/// When the user may not read it, or the connection breaks.
pub fn requires_rows(
    engine: Engine,
    session: &mut Session,
    channel: &str,
) -> Result<bool, ServerError> {
    if engine == Engine::MariaDb {
        return Ok(false);
    }
    let rows = session.rows(
        "cannot read which format its replication requires",
        "SELECT * FROM performance_schema.replication_applier_configuration",
    )?;
    let is = |row: &StatusRow, name: &str, value: &str| row.get(name).is_some_and(|is| is == value);
    Ok(rows
        .iter()
        .any(|row| is(row, "CHANNEL_NAME", channel) && is(row, "REQUIRE_ROW_FORMAT", "YES")))
}

/// Returns the accounts of all channels that have one.
///
/// # Errors
/// When the user may not read them, or the connection breaks.
pub fn applier_users(
    engine: Engine,
    session: &mut Session,
) -> Result<Vec<ApplierUser>, ServerError> {
    if engine == Engine::MariaDb {
        return Ok(Vec::new());
    }
    let operation = "cannot read the accounts as which replication applies";
    let rows = session.rows(
        operation,
        "SELECT * FROM performance_schema.replication_applier_configuration",
    )?;
    let users = rows.into_iter().filter_map(|mut row| {
        // Versions without the column have no such accounts; NULL is empty.
        let account = row.remove("PRIVILEGE_CHECKS_USER")?;
        (!account.is_empty()).then_some((account, row))
    });
    let users = users.map(|(account, mut row)| {
        let mut take = |name: &str| row.remove(name).unwrap_or_default();
        Ok(ApplierUser {
            channel: take("CHANNEL_NAME"),
            sets_variables: take("REQUIRE_TABLE_PRIMARY_KEY_CHECK") == "STREAM",
            grants: facts::grants_of(session, &account)?,
            account,
        })
    });
    users.collect()
}
