//! The method `stamp`: the replica executes the statement that writes a row again, and both
//! executions stamp the row with their server's clock.
//!
//! This requires that the statement is replicated, not its row: a session with
//! binlog_format=STATEMENT. The stamps are times of execution, not of visibility, by two clocks;
//! [`crate::clock_offset`] measures their offset.

mod federated;

use std::ops::RangeInclusive;

use replimeter_engine::{
    ErrorClass, ErrorKind, ServerError, Session,
    dialect::{
        applier_user::requires_rows, settings::sysdate_is_now,
        statements::restricted_variables_privilege,
    },
    facts::ServerFacts,
    session::Fields,
};
use replimeter_model::{engine::Engine, replication::Mode, time::Nanos};

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
/// Maximum difference between `NOW_USEC()` and `SYSDATE(6)` for the same clock in the same zone.
const SAME_CLOCK_US: i64 = 10_000_000;

const OPERATION: &str = "cannot measure by `stamp`";

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
        let galera = cluster.mode == Mode::Galera;
        let primary = &mut cluster.primary;
        if cluster.mode == Mode::Group {
            return Err(primary.session.precondition(
                OPERATION,
                "Group Replication refuses binlog_format=STATEMENT (error 3098) and replicates rows, so members have the writer's stamps and none of their own",
                "use --method poll, wait or tap",
            ));
        }
        if !galera && !primary.facts.on("log_bin") {
            return Err(primary.session.precondition(
                OPERATION,
                "its binary log is off (log_bin=OFF)",
                "enable the binary log",
            ));
        }
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
                "start the servers without sysdate_is_now, or install NOW_USEC() on all of them, the primary last: CREATE FUNCTION now_usec RETURNS STRING SONAME 'libreplimeter_udf.so'",
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

/// Makes the replicas execute the session's statements again. The schema `replimeter` becomes its
/// default if it exists, since filters judge a statement by the default schema.
///
/// # Errors
/// When the server does not let the session change its format, with the reason.
pub fn prepare(writer: &mut Session, facts: &ServerFacts) -> Result<(), ServerError> {
    if !facts.variables.contains_key("binlog_format") {
        return Err(writer.precondition(
            OPERATION,
            format!(
                "{} {} has no binlog_format: it replicates rows only, with the primary's stamps in them",
                facts.engine.product(),
                facts.version
            ),
            "use --method poll, wait or tap",
        ));
    }
    // Every session of Replimeter has UTC, as which stamps are read, and REPEATABLE READ: InnoDB refuses logged statements under
    // READ COMMITTED (error 1665).
    match writer.run(OPERATION, "SET SESSION binlog_format = STATEMENT") {
        Ok(()) => {}
        // The session may already have the format.
        Err(_) if statement_format(writer)? => {}
        Err(error) if error.kind == ErrorKind::Privilege => {
            let stays = facts.get("binlog_format");
            return Err(ServerError {
                cause: format!(
                    "the session's format stays {stays}, which replicates the row with the primary's stamp: {}",
                    error.cause
                ),
                hint: format!(
                    "GRANT {} ON *.* to the user, or use --method poll, wait or tap",
                    restricted_variables_privilege(facts.engine, &facts.version)
                ),
                ..error
            });
        }
        Err(error) => return Err(error),
    }
    match writer.run(OPERATION, "USE `replimeter`") {
        Err(error)
            if error.class() == Some(ErrorClass::NoSchema)
                || error.kind == ErrorKind::Privilege =>
        {
            Ok(())
        }
        other => other,
    }
}

fn statement_format(session: &mut Session) -> Result<bool, ServerError> {
    Ok(session
        .value(OPERATION, "SELECT @@SESSION.binlog_format")?
        .as_deref()
        == Some("STATEMENT"))
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
        let format = facts.get("binlog_format");
        if format != "STATEMENT" {
            return Err(session.precondition(
                OPERATION,
                format!(
                    "{} replicates from it, and its binlog_format is {format}: it passes on rows with its own stamps",
                    replica.server.session.name()
                ),
match facts.engine {
                    Engine::MariaDb => {
                        "SET GLOBAL binlog_format=STATEMENT there and restart its applier (a sandbox: --server-option replicas:binlog_format=STATEMENT), or leave out the servers that replicate from it"
                    }
                    // A MySQL replica that logs statements stops at the first row (error 1666).
                    Engine::MySql => {
                        "leave out the servers that replicate from it, or, if nothing writes rows, set binlog_format=STATEMENT on every server (a sandbox: --server-option binlog_format=STATEMENT)"
                    }
                },
            ));
        }
    }
    Ok(())
}

/// Refuses replicas whose replication stops at a statement, before one is written.
fn refuse_rows_only(cluster: &mut Cluster) -> Result<(), ServerError> {
    for replica in &mut cluster.replicas {
        let Some(channel) = replica.channel().map(|channel| channel.name.clone()) else {
            continue;
        };
        let (engine, session) = (replica.server.facts.engine, &mut replica.server.session);
        let cause = match requires_rows(engine, session, &channel) {
            Ok(false) => continue,
            Ok(true) => {
                "its replication takes rows only (REQUIRE_ROW_FORMAT=1) and stops at a statement"
                    .to_owned()
            }
            Err(error) if error.kind == ErrorKind::Privilege => format!(
                "whether its replication takes rows only (REQUIRE_ROW_FORMAT) could not be read: {}",
                error.cause
            ),
            Err(error) => return Err(error),
        };
        return Err(session.precondition(
            OPERATION,
            cause,
            "use --method poll, wait or tap; or set REQUIRE_ROW_FORMAT=0 there with CHANGE REPLICATION SOURCE TO, where the user may read performance_schema.replication_applier_configuration",
        ));
    }
    Ok(())
}

/// Returns why `SYSDATE()` returns no current time there.
fn lacks_sysdate(session: &mut Session) -> Result<Option<String>, ServerError> {
    let words = "it runs with sysdate_is_now: SYSDATE() is the start of the statement, on a replica the primary's";
    Ok(sysdate_is_now(session)?.then(|| words.to_owned()))
}

/// Returns why `NOW_USEC()` returns no stamp there.
fn lacks_udf(session: &mut Session) -> Result<Option<String>, ServerError> {
    let sysdate = format!("SELECT CONCAT(NOW_USEC(), ' ', {})", micros("SYSDATE(6)"));
    let text = match session.value(OPERATION, &sysdate) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) if error.is_refusal() => {
            return Ok(Some("it has no function NOW_USEC()".to_owned()));
        }
        Err(error) => return Err(error),
    };
    let read = text
        .rsplit_once(' ')
        .and_then(|(udf, sysdate)| Some((udf_micros(udf)?, sysdate.parse::<i64>().ok()?)));
    Ok(match read {
        Some((udf, sysdate)) if (udf - sysdate).abs() < SAME_CLOCK_US => None,
        Some((udf, sysdate)) => Some(format!(
            "its NOW_USEC() is {} s away from UTC: it comes from another library",
            (udf - sysdate) / 1_000_000
        )),
        None => Some(format!(
            "its NOW_USEC() comes from another library: `{text}`"
        )),
    })
}

/// Returns an expression for the microseconds since 1970 of a DATETIME in UTC, regardless of the
/// session's zone.
fn micros(datetime: &str) -> String {
    format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', {datetime})")
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

/// Returns the microseconds since 1970 of a result of `NOW_USEC()`, `YYYY-MM-DD HH:MM:SS.uuuuuu` in
/// UTC.
fn udf_micros(text: &str) -> Option<i64> {
    let bytes: &[u8; 26] = text.as_bytes().try_into().ok()?;
    let digits = |from: usize, to: usize| {
        bytes[from..to].iter().try_fold(0i64, |number, byte| {
            byte.is_ascii_digit()
                .then(|| number * 10 + i64::from(byte - b'0'))
        })
    };
    let separators = [
        (4, b'-'),
        (7, b'-'),
        (10, b' '),
        (13, b':'),
        (16, b':'),
        (19, b'.'),
    ];
    if separators
        .iter()
        .any(|(at, separator)| bytes[*at] != *separator)
    {
        return None;
    }
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let seconds = ((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000 + digits(20, 26)?)
}

/// Returns the days since 1970-01-01 of a date (Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", days_from_civil).
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is a year's last.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
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
            format!("all {} rows have the primary's own stamps: rows were replicated, not statements", self.equal),
            "check for a server in between that logs rows, or for binlog_format=ROW on the primary; or use --method poll, wait or tap",
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
