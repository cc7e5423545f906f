//! The method `stamp`: the replica executes the statement that writes a row again, and both
//! executions stamp the row with their server's clock.
//!
//! This requires that the statement is replicated, not its row: a session with
//! binlog_format=STATEMENT. The stamps are times of execution, not of visibility, by two clocks;
//! [`crate::clock_offset`] measures their offset.

mod federated;

use std::ops::RangeInclusive;

pub use replimeter_engine::dialect::stamp::prepare;
use replimeter_engine::{
    ServerError, Session,
    dialect::stamp::{
        NO_CLOCK_HINT, OPERATION, SHIPPED_HINT, check_between, check_channel, check_writer,
        lacks_sysdate, lacks_udf, micros, udf_micros,
    },
    session::Fields,
};
use replimeter_model::time::Nanos;

use crate::{
    SCHEMA, TABLE, clock_offset::ServerClock, discovery::DiscoveredServer, preflight::Cluster,
};

pub use self::federated::Federated;
pub(crate) use self::federated::{FEDERATED, REMOVE_FEDERATED, remove_leftover};

/// Maximum rows of one read, whose result is held in memory.
pub const PAGE: u64 = 5_000;
/// Number of pairs of equal stamps that excludes a coincidence.
const NO_COINCIDENCE: usize = 4;
/// Resolution of servers' microseconds: each truncates less than that.
const RESOLUTION: Nanos = Nanos(1_000);
/// The clocks that stamp the rows; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// `SYSDATE(6)`.
    pub sysdate: bool,
    /// The function `NOW_USEC()`.
    pub udf: bool,
    /// Why one of them is missing.
    pub lacking: Vec<String>,
}

impl Stamps {
    /// Determines which stamps all servers support. Only reads, and changes the format of a
    /// separate session only.
    ///
    /// # Errors
    /// When rows cannot be stamped on their replicas at all, with the reason: the binary log is
    /// off, binlog_format=STATEMENT is refused, the row would be replicated, or there is no stamp
    /// function.
    pub fn find(cluster: &mut Cluster) -> Result<Self, ServerError> {
        let mode = cluster.mode;
        let primary = &mut cluster.primary;
        check_writer(&primary.session, &primary.facts, mode)?;
        // The discovery's session writes the table's definition and is not changed.
        prepare(&mut Session::open(&primary.node)?, &primary.facts)?;
        refuse_rows_in_between(cluster)?;
        refuse_rows_only(cluster)?;
        let mut lacking = Vec::new();
        let mut all = |ask: &mut dyn FnMut(&mut Session) -> Result<Option<String>, ServerError>| -> Result<bool, ServerError> {
            for server in cluster.servers_mut() {
                if let Some(cause) = ask(&mut server.session)? {
                    lacking.push(format!("{}: {cause}", server.session));
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let sysdate = all(&mut lacks_sysdate)?;
        // On every server, before anything is written: a replica that lacks a function of a
        // replicated statement stops there.
        let udf = all(&mut lacks_udf)?;
        if !sysdate && !udf {
            return Err(cluster.primary.session.precondition(
                OPERATION,
                lacking.join("; "),
                NO_CLOCK_HINT,
            ));
        }
        Ok(Self {
            sysdate,
            udf,
            lacking,
        })
    }

    /// Returns the expressions for the columns `stamp` and `stamp_udf`.
    #[must_use]
    pub fn expressions(&self) -> [&'static str; 2] {
        [
            if self.sysdate { "SYSDATE(6)" } else { "NULL" },
            if self.udf { "NOW_USEC()" } else { "NULL" },
        ]
    }

    /// Returns the statement that writes and stamps one row; its parameters are those of
    /// [`crate::table::INSERT`].
    #[must_use]
    pub fn insert(&self) -> String {
        let [sysdate, udf] = self.expressions();
        format!(
            "INSERT INTO `{SCHEMA}`.`{}` (id, sequence, sent_us, payload, stamp, stamp_udf) VALUES (?, ?, ?, ?, {sysdate}, {udf})",
            *TABLE
        )
    }
}

/// Refuses intermediate replicas that log rows: replicas behind them would have their stamps.
fn refuse_rows_in_between(cluster: &Cluster) -> Result<(), ServerError> {
    for replica in &cluster.replicas {
        let Some(channel) = replica.channel() else {
            continue;
        };
        let between = cluster
            .replicas
            .iter()
            .find(|other| channel.comes_from(&other.server.facts.identity()));
        let Some(DiscoveredServer { session, facts, .. }) = between.map(|other| &other.server)
        else {
            continue;
        };
        check_between(session, facts, replica.server.session.name())?;
    }
    Ok(())
}

/// Refuses replicas whose replication stops at a statement, before one is written.
fn refuse_rows_only(cluster: &mut Cluster) -> Result<(), ServerError> {
    for replica in &mut cluster.replicas {
        let Some(channel) = replica.channel().map(|channel| channel.name.clone()) else {
            continue;
        };
        let server = &mut replica.server;
        check_channel(&mut server.session, server.facts.engine, &channel)?;
    }
    Ok(())
}

/// A row's stamps of one server, in microseconds since 1970 by that server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// The row.
    pub id: u64,
    /// By `SYSDATE(6)`.
    pub sysdate: Option<i64>,
    /// By `NOW_USEC()`.
    pub udf: Option<i64>,
}

impl Stamped {
    /// Takes both stamps of a row from the next columns.
    fn of(id: u64, row: &mut Fields) -> Self {
        Self {
            id,
            sysdate: row.signed(),
            udf: row.text().as_deref().and_then(udf_micros),
        }
    }
}

/// Splits ids into ranges for one read each.
pub fn pages(ids: RangeInclusive<u64>) -> impl Iterator<Item = RangeInclusive<u64>> {
    let (mut next, last) = (Some(*ids.start()).filter(|_| !ids.is_empty()), *ids.end());
    std::iter::from_fn(move || {
        let first = next?;
        let end = first.saturating_add(PAGE - 1).min(last);
        next = (end < last).then(|| end + 1);
        Some(first..=end)
    })
}

/// Reads a server's stamps of these rows, in order; rows that it does not have are omitted. Use
/// [`pages`] for a large range.
///
/// # Errors
/// When the server refuses it or the connection breaks.
pub fn read(session: &mut Session, ids: RangeInclusive<u64>) -> Result<Vec<Stamped>, ServerError> {
    let sql = format!(
        "SELECT id, {}, stamp_udf FROM `{SCHEMA}`.`{}` WHERE id BETWEEN {} AND {} ORDER BY id",
        micros("stamp"),
        *TABLE,
        ids.start(),
        ids.end()
    );
    let mut rows = Vec::new();
    let operation = "cannot read the stamps";
    session.each_row(operation, &sql, number_of(&ids), |mut row| {
        let id = row.number();
        rows.push(Stamped::of(id, &mut row));
    })?;
    Ok(rows)
}

fn number_of(ids: &RangeInclusive<u64>) -> u64 {
    ids.end().saturating_sub(*ids.start()).saturating_add(1)
}

/// Lag of one row between the two executions. Negative lag is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedLag {
    /// The row.
    pub id: u64,
    /// By `SYSDATE(6)`.
    pub sysdate: Option<Nanos>,
    /// By `NOW_USEC()`.
    pub udf: Option<Nanos>,
    /// The true lag lies within ± this: the bounds of both clocks, and the resolution of
    /// microseconds.
    pub bound: Nanos,
}

/// Rows of the primary, joined with a replica's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedStamps {
    /// Lags, in order of the rows.
    pub lags: Vec<StampedLag>,
    /// Rows that the replica does not have.
    pub missing: u64,
    /// Rows whose lag is unknown because a server's clock was set at about that time.
    pub unplaced: u64,
    /// Rows whose stamps on the replica are identical.
    pub equal: u64,
}

impl JoinedStamps {
    /// Returns whether rows were replicated instead of statements, so that the replica has no
    /// stamps of its own. A few equal microseconds may be a coincidence.
    #[must_use]
    pub fn shipped(&self) -> bool {
        let found = self.lags.len() as u64 + self.unplaced;
        self.equal >= NO_COINCIDENCE as u64 && self.equal == found
    }

    /// Refuses stamps that are the primary's own.
    ///
    /// # Errors
    /// When rows were replicated.
    pub fn refuse_shipped(&self, replica: &Session) -> Result<(), ServerError> {
        if !self.shipped() {
            return Ok(());
        }
        Err(replica.precondition(
            OPERATION,
            format!(
                "all {} rows have the primary's own stamps: rows were replicated, not statements",
                self.equal
            ),
            SHIPPED_HINT,
        ))
    }
}

/// Joins the rows of two servers, both in order, and corrects their clocks. `near` is a point on
/// the local clock close to a row's write, such as its send.
#[must_use]
pub fn join(
    primary: &[Stamped],
    replica: &[Stamped],
    clocks: [&ServerClock; 2],
    near: impl Fn(u64) -> Nanos,
) -> JoinedStamps {
    let mut joined = JoinedStamps::default();
    let mut others = replica.iter().peekable();
    for row in primary {
        while others.next_if(|other| other.id < row.id).is_some() {}
        let Some(other) = others.next_if(|other| other.id == row.id) else {
            joined.missing += 1;
            continue;
        };
        if other == row {
            joined.equal += 1;
        }
        let mut bound = Nanos(0);
        let mut lag = |one: Option<i64>, other: Option<i64>| -> Result<Option<Nanos>, ClockSet> {
            let (Some(one), Some(other)) = (one, other) else {
                return Ok(None);
            };
            let (from, from_bound) = clocks[0]
                .to_run_clock(nanos(one), near(row.id))
                .ok_or(ClockSet)?;
            // The replica executes it slightly later.
            let (to, to_bound) = clocks[1].to_run_clock(nanos(other), from).ok_or(ClockSet)?;
            bound = bound.max(from_bound + to_bound + RESOLUTION);
            Ok(Some(to - from))
        };
        match (lag(row.sysdate, other.sysdate), lag(row.udf, other.udf)) {
            (Ok(sysdate), Ok(udf)) => joined.lags.push(StampedLag {
                id: row.id,
                sysdate,
                udf,
                bound,
            }),
            _ => joined.unplaced += 1,
        }
    }
    joined
}

/// A clock was set at about that time.
struct ClockSet;

fn nanos(micros: i64) -> Nanos {
    Nanos(micros.saturating_mul(1_000))
}

#[cfg(test)]
mod tests;
