//! The table that rows are written to: ours, created by us, dropped by us.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_model::warning::{Warning, WarningCode};
use replimeter_server::{Node, ServerError, Session};

use crate::{preflight::Cluster, survey::Surveyed};

/// The only schema that is ever written to.
pub const SCHEMA: &str = "replimeter";
/// The table of the lag measurement.
pub const TABLE: &str = "lag_probe";
/// A lock by this name says that somebody is measuring.
pub(crate) const LOCK: &str = "replimeter.run";
/// Begins the comment of every table of ours.
pub(crate) const MARK: &str = "replimeter: made by a measurement and removed by it";
/// Follows the mark when the schema was made along with the table.
pub(crate) const MADE_SCHEMA: &str = "; with the schema";
/// How long a second attempt at the removal may take.
const PATIENT: Duration = Duration::from_secs(30);
/// How long a replica is waited for when the user wants to be gone.
const HURRIED: Duration = Duration::from_millis(500);

/// The statement that writes one row.
pub const INSERT: &str =
    "INSERT INTO `replimeter`.`lag_probe` (id, sequence, sent_us, payload) VALUES (?, ?, ?, ?)";
/// The statement that reads every row not seen yet.
pub const UNSEEN: &str = "SELECT id FROM `replimeter`.`lag_probe` WHERE id > ?";
/// The statement whose round trip is the yardstick of the floor.
pub const POINT_SELECT: &str = "SELECT id FROM `replimeter`.`lag_probe` WHERE id = ?";
/// Empties the table. Not TRUNCATE, which is DDL and would stall a Galera cluster.
pub const EMPTY: &str = "DELETE FROM `replimeter`.`lag_probe`";

/// The columns of the lag measurement's rows.
const LAG_COLUMNS: &str = "id BIGINT UNSIGNED NOT NULL PRIMARY KEY, sequence INT UNSIGNED NOT NULL, \
     sent_us BIGINT NOT NULL, payload LONGBLOB NOT NULL, stamp DATETIME(6) NULL, stamp_udf VARCHAR(26) NULL";

/// Our table on the primary, for as long as a measurement lasts. Dropped without
/// [`remove`](Self::remove), as a panic does, it still removes the table there.
#[derive(Debug)]
pub struct ProbeTable {
    primary: Node,
    /// Names this very run; a table with another comment is not ours to drop.
    comment: String,
    made_schema: bool,
    removed: bool,
}

impl Drop for ProbeTable {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        // The run's own session may be in the middle of anything; what fails here the next run removes.
        if let Ok(mut session) = Session::open(&self.primary) {
            let _ = self.drop_on(&mut session);
        }
    }
}

/// What a server has in our schema.
pub(crate) struct Found {
    schema: bool,
    /// The comment of our table's name.
    pub(crate) comment: Option<String>,
    /// Other tables.
    others: u64,
}

pub(crate) fn find(session: &mut Session) -> Result<Found, ServerError> {
    let doing = "cannot look into the schema `replimeter`";
    let schema = session.value(
        doing,
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name = 'replimeter'",
    )?;
    let tables = session.rows(
        doing,
        "SELECT table_name AS name, table_comment AS comment FROM information_schema.tables WHERE table_schema = 'replimeter'",
    )?;
    let get = |row: &replimeter_server::session::StatusRow, name: &str| {
        row.get(name).cloned().unwrap_or_default()
    };
    let comment = tables
        .iter()
        .find(|row| get(row, "name") == TABLE)
        .map(|row| get(row, "comment"));
    let others = tables
        .iter()
        .filter(|row| get(row, "name") != TABLE)
        .count() as u64;
    Ok(Found {
        schema: schema.is_some(),
        comment,
        others,
    })
}

fn refuse_foreign(session: &Session, found: &Found) -> Result<(), ServerError> {
    match &found.comment {
        Some(comment) if !comment.starts_with(MARK) => Err(session.unfit(
            "cannot use the schema `replimeter`",
            "it has a table `lag_probe` that this tool did not make, and will not touch",
            "rename that table or its schema",
        )),
        _ => Ok(()),
    }
}

impl ProbeTable {
    /// Makes the table, after looking on every server that nothing of anybody
    /// else's is in its place: a table that only a replica has would otherwise
    /// break its replication. A replica that has yet to apply the removal of an
    /// earlier run's table is waited for.
    ///
    /// # Errors
    /// When something is in its place, somebody else is measuring, or a server
    /// refuses.
    pub fn create(
        cluster: &mut Cluster,
        patience: Duration,
    ) -> Result<(Self, Vec<Warning>), ServerError> {
        Self::create_with(cluster, patience, LAG_COLUMNS)
    }

    /// The same with other columns, for another measurement.
    ///
    /// # Errors
    /// As of [`create`](Self::create).
    pub fn create_with(
        cluster: &mut Cluster,
        patience: Duration,
        columns: &str,
    ) -> Result<(Self, Vec<Warning>), ServerError> {
        let mut warnings = Vec::new();
        let session = &mut cluster.primary.session;
        take_lock(session)?;
        let found = find(session)?;
        refuse_foreign(session, &found)?;
        let mut schema_anywhere = found.schema;
        let mut others = found.others;
        for replica in &mut cluster.replicas {
            let delay = replica.delay();
            let session = &mut replica.server.session;
            // A lock does not replicate: in a cluster another run may write to this server.
            if let Some(holder) =
                session.value("cannot begin", &format!("SELECT IS_USED_LOCK('{LOCK}')"))?
            {
                return Err(busy(session, &holder));
            }
            let mut on_replica = find(session)?;
            refuse_foreign(session, &on_replica)?;
            if on_replica.comment.is_some() && found.comment.is_none() {
                if !gone(session, Instant::now() + patience + delay) {
                    return Err(session.unfit(
                        "cannot use the schema `replimeter`",
                        "it still has an earlier run's table `lag_probe`, which its primary has not; making it there would break replication",
                        "is the replica far behind? if not, and that table came some other way, on the replica: SET sql_log_bin=0; DROP TABLE replimeter.lag_probe;",
                    ));
                }
                on_replica = find(session)?;
            }
            schema_anywhere |= on_replica.schema;
            others += on_replica.others;
        }
        let session = &mut cluster.primary.session;
        let mut made_schema = !schema_anywhere;
        if let Some(comment) = &found.comment {
            // We hold the lock, so the run that made it is over. A replica from which
            // it was removed by hand must not stumble.
            session.run(
                "cannot remove an earlier run's table",
                "DROP TABLE IF EXISTS `replimeter`.`lag_probe`",
            )?;
            made_schema = comment.contains(MADE_SCHEMA) && others == 0;
            warnings.push(Warning::new(
                WarningCode::LeftoverRemoved,
                format!(
                    "{} ({}): removed the table that an earlier, killed run had left",
                    session.name(),
                    session.address()
                ),
                "nothing to do",
            ));
        }
        if !found.schema {
            session.run(
                "cannot make the schema",
                "CREATE DATABASE IF NOT EXISTS `replimeter`",
            )?;
        }
        let run = session
            .value("cannot name the run", "SELECT UUID()")?
            .unwrap_or_default();
        let comment = format!(
            "{MARK}{}; run {run}",
            if made_schema { MADE_SCHEMA } else { "" }
        );
        let table = Self {
            primary: cluster.primary.node.clone(),
            comment: comment.clone(),
            made_schema,
            removed: false,
        };
        // The default schema is ours, so that filters by default schema treat the
        // definition as they treat the rows.
        session.run("cannot use the schema", "USE `replimeter`")?;
        let create = format!(
            "CREATE TABLE `replimeter`.`lag_probe` ({columns}) ENGINE=InnoDB COMMENT='{comment}'"
        );
        session.run("cannot make the table", &create)?;
        Ok((table, warnings))
    }

    /// Leaves the table where it is, because its servers go anyway.
    pub fn abandon(mut self) {
        self.removed = true;
    }

    /// Drops the table, and the schema if we made it and nobody else put
    /// anything into it; then waits, for `patience` and any deliberate delay, until
    /// the replicas have done the same, or until `stop`. Returns warnings about
    /// whatever could not be removed.
    pub fn remove(
        mut self,
        cluster: &mut Cluster,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Vec<Warning> {
        self.removed = true;
        let dropped = self.drop_on(&mut cluster.primary.session).or_else(|_| {
            // The session may have been lost with what ended the run, or the disk may stall: a
            // removal that is under way holds the next one up, so this one is patient.
            cluster.primary.session = Session::open(&Node {
                answer: PATIENT,
                ..cluster.primary.node.clone()
            })?;
            self.drop_on(&mut cluster.primary.session)
        });
        if let Err(error) = dropped {
            return vec![incomplete(format!(
                "{error}; its table `replimeter`.`lag_probe` is still there"
            ))];
        }
        let mut warnings = Vec::new();
        for replica in &mut cluster.replicas {
            let wait = if stop.load(Ordering::Relaxed) {
                HURRIED
            } else {
                patience + replica.delay()
            };
            // The run's own session may have idled out, and the replica be frozen.
            let session = &replica.server.session;
            match Session::open(&replica.server.impatient()) {
                Ok(mut now) => {
                    if !gone(&mut now, Instant::now() + wait) {
                        warnings.push(incomplete(format!(
                            "{} ({}) has not yet applied the removal of `replimeter`.`lag_probe`; it will when its replication goes on",
                            session.name(),
                            session.address()
                        )));
                    }
                }
                Err(error) => warnings.push(incomplete(format!(
                    "{} ({}) does not answer ({}): whether it still has `replimeter`.`lag_probe` is known when it is back",
                    session.name(),
                    session.address(),
                    error.cause
                ))),
            }
        }
        warnings
    }

    /// Removes the table if it is the one we made, and the schema if it was ours
    /// and is empty.
    fn drop_on(&self, session: &mut Session) -> Result<(), ServerError> {
        if find(session)?.comment.as_ref() == Some(&self.comment) {
            session.run(
                "cannot remove the table",
                "DROP TABLE IF EXISTS `replimeter`.`lag_probe`",
            )?;
        }
        if self.made_schema && is_empty(session)? {
            session.run(
                "cannot remove the schema",
                "DROP DATABASE IF EXISTS `replimeter`",
            )?;
        }
        let _ = session.value(
            "cannot release the lock",
            &format!("SELECT RELEASE_LOCK('{LOCK}')"),
        );
        Ok(())
    }
}

/// Keeps the primary's session beside the measuring path from being closed as
/// idle, and makes sure that the run still holds its lock.
///
/// # Errors
/// When another run has taken the lock meanwhile. A server that does not answer
/// is none: the measuring path will say so.
pub fn keep_alive(cluster: &mut Cluster) -> Result<(), ServerError> {
    let doing = "cannot keep the session alive";
    let Surveyed { node, session, .. } = &mut cluster.primary;
    match session.value(
        doing,
        &format!("SELECT IS_USED_LOCK('{LOCK}') = CONNECTION_ID()"),
    ) {
        Ok(Some(held)) if held == "1" => {}
        Ok(_) => take_lock(session)?,
        Err(_) => {
            if let Ok(opened) = Session::open(node) {
                *session = opened;
                take_lock(session)?;
            }
        }
    }
    Ok(())
}

fn incomplete(message: String) -> Warning {
    Warning::new(
        WarningCode::CleanUpIncomplete,
        message,
        "the next run on these servers removes it, or, on the primary: DROP TABLE IF EXISTS replimeter.lag_probe",
    )
}

/// Whether nothing is left in the schema: no table, view, routine or event.
pub(crate) fn is_empty(session: &mut Session) -> Result<bool, ServerError> {
    let count = session.value(
        "cannot look into the schema `replimeter`",
        "SELECT (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'replimeter') \
         + (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = 'replimeter') \
         + (SELECT COUNT(*) FROM information_schema.events WHERE event_schema = 'replimeter')",
    )?;
    Ok(count.as_deref() == Some("0"))
}

fn gone(session: &mut Session, deadline: Instant) -> bool {
    loop {
        match find(session) {
            Ok(found) if found.comment.is_none() => return true,
            Ok(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            _ => return false,
        }
    }
}

pub(crate) fn take_lock(session: &mut Session) -> Result<(), ServerError> {
    let doing = "cannot begin";
    if session
        .value(doing, &format!("SELECT GET_LOCK('{LOCK}', 0)"))?
        .as_deref()
        == Some("1")
    {
        return Ok(());
    }
    let holder = session
        .value(doing, &format!("SELECT IS_USED_LOCK('{LOCK}')"))?
        .unwrap_or_default();
    Err(busy(session, &holder))
}

fn busy(session: &Session, holder: &str) -> ServerError {
    session.unfit(
        "cannot begin",
        format!("another replimeter is measuring this server (its connection {holder})"),
        "wait for it to end, or end it",
    )
}

/// The payload of every row is a prefix of this: bytes without a pattern that a
/// compressing server could shrink.
#[must_use]
pub fn payload(longest: u64) -> Vec<u8> {
    // Weyl sequence with a mixing multiplication (Steele et al. 2014).
    let mut state = 0u64;
    (0..longest)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            b' ' + ((mixed >> 40) % 95) as u8
        })
        .collect()
}
