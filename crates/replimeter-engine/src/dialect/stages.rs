//! The progress of single transactions on a replica: received, being applied, applied.
//!
//! MySQL keeps only the last transaction of each thread, with timestamps of its own clock;
//! transactions between two queries are overwritten. MariaDB reports positions without times, which
//! the times of the queries bracket. A Galera node reports neither.

use mysql::{Row, Value};
use replimeter_model::{bug::REPORT_BUG, engine::Engine, stages::Mark};

use super::{first_known, mariadb};
use crate::position::{DomainCommit, WrittenId, domain_commits};
use crate::{ServerError, Session, facts::ServerFacts, membership::Membership, session::Prepared};

const OPERATION: &str = "cannot read the progress of transactions";

/// The last transaction of every thread in one statement. Timestamps follow the session's time
/// zone; they are transferred unconverted, since converting them costs more than reading them.
const REMEMBERED: &str = "\
SELECT 0, CHANNEL_NAME, LAST_QUEUED_TRANSACTION, LAST_QUEUED_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP, \
LAST_QUEUED_TRANSACTION_IMMEDIATE_COMMIT_TIMESTAMP, LAST_QUEUED_TRANSACTION_START_QUEUE_TIMESTAMP, \
LAST_QUEUED_TRANSACTION_END_QUEUE_TIMESTAMP \
FROM performance_schema.replication_connection_status WHERE LAST_QUEUED_TRANSACTION <> '' \
UNION ALL \
SELECT 1, CHANNEL_NAME, LAST_PROCESSED_TRANSACTION, LAST_PROCESSED_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP, \
LAST_PROCESSED_TRANSACTION_IMMEDIATE_COMMIT_TIMESTAMP, LAST_PROCESSED_TRANSACTION_START_BUFFER_TIMESTAMP, \
LAST_PROCESSED_TRANSACTION_END_BUFFER_TIMESTAMP \
FROM performance_schema.replication_applier_status_by_coordinator WHERE LAST_PROCESSED_TRANSACTION <> '' \
UNION ALL \
SELECT 2, CHANNEL_NAME, LAST_APPLIED_TRANSACTION, LAST_APPLIED_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP, \
LAST_APPLIED_TRANSACTION_IMMEDIATE_COMMIT_TIMESTAMP, LAST_APPLIED_TRANSACTION_START_APPLY_TIMESTAMP, \
LAST_APPLIED_TRANSACTION_END_APPLY_TIMESTAMP \
FROM performance_schema.replication_applier_status_by_worker WHERE LAST_APPLIED_TRANSACTION <> ''";

/// Returns the chain of marks that a replica of this engine can report, each with the clock that stamps it. On MariaDB the chain
/// includes the binary log if a tap reports it (`tap`); MySQL stamps it itself, more precisely than a tap.
#[must_use]
pub fn chain(engine: Engine, replica: &str, tap: bool) -> Vec<(Mark, &str)> {
    match engine {
        Engine::MySql => vec![
            (Mark::Send, "client"),
            (Mark::Logged, "primary"),
            (Mark::Received, replica),
            (Mark::ApplyBegan, replica),
            (Mark::Applied, replica),
            (Mark::Visible, "client"),
        ],
        Engine::MariaDb => {
            let marks = [
                Mark::Send,
                Mark::Logged,
                Mark::Received,
                Mark::Applied,
                Mark::Visible,
            ];
            marks
                .into_iter()
                .filter(|mark| tap || *mark != Mark::Logged)
                .map(|mark| (mark, "client"))
                .collect()
        }
    }
}

/// The chain of a Galera node, which reports no stages: the writer's latency contains replication and
/// certification, the rest is applying.
pub const CHAIN_OF_A_NODE: [(Mark, &str); 3] = [
    (Mark::Send, "client"),
    (Mark::Ack, "client"),
    (Mark::Visible, "client"),
];

/// Checks that the writes of a session can be joined with what replicas report.
///
/// # Errors
/// When they have no ids, with the setting to enable.
pub fn check_writer(session: &mut Session, facts: &ServerFacts) -> Result<(), ServerError> {
    WrittenId::prepare(session, facts)
        .map(|_| ())
        .map_err(|error| ServerError {
            operation: "cannot observe the stages".to_owned(),
            hint: "set gtid_mode=ON on every server, or remove --stages".to_owned(),
            ..error
        })
}

/// Returns whether servers of this membership report stages.
#[must_use]
pub fn are_reported(membership: &Membership) -> bool {
    membership.galera().is_none()
}

/// The last transaction of a replica's thread. Times are microseconds since 1970, by the clock
/// named; `None` when the server has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastTransaction {
    /// The replication channel; a group's is `group_replication_applier`.
    pub channel: String,
    /// The transaction, as the server writes it.
    pub commit_id: String,
    /// Commit on the server where it was first written, by that server's clock: taken
    /// when the binary log is flushed, before any wait for replicas and before the
    /// commit in the engine.
    pub original_commit_us: Option<i64>,
    /// Commit on the server that it came from, by that server's clock.
    pub immediate_commit_us: Option<i64>,
    /// When the thread started with it, by the replica's clock.
    pub began_us: Option<i64>,
    /// When the thread finished with it, by the replica's clock.
    pub ended_us: Option<i64>,
}

/// The last transactions of a MySQL replica's threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadHistory {
    /// Written to the relay log by the receiving threads, one for each channel.
    pub queued: Vec<LastTransaction>,
    /// Handed to a worker by the coordinators; none where one thread applies.
    pub scheduled: Vec<LastTransaction>,
    /// Applied and committed, one for each worker.
    pub applied: Vec<LastTransaction>,
}

/// The position of a MariaDB replica: the last transaction of each domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedPositions {
    /// In the relay log, of all connections (`Gtid_IO_Pos`). Empty when no connection uses GTIDs as
    /// positions.
    pub received: Vec<DomainCommit>,
    /// Applied and committed (`Gtid_Slave_Pos`).
    pub applied: Vec<DomainCommit>,
}

/// The result of one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageAnswer {
    /// MySQL.
    Remembered(ThreadHistory),
    /// MariaDB.
    Positions(AppliedPositions),
}

/// Queries one replica repeatedly, at the lowest cost.
///
/// On an idle sandbox of two cores a query took 57 µs (p50) on a MySQL 9.7 replica with four
/// workers, 63 µs on a member of a group and 46 µs on a MariaDB 10.11 replica, where `SELECT 1`
/// took 20 µs. During it, the server briefly takes the locks of its receiver and its workers.
#[derive(Debug)]
pub struct StageSource {
    way: StageQuery,
}

#[derive(Debug)]
enum StageQuery {
    Remembered(Prepared),
    Positions(&'static str),
}

impl StageSource {
    /// Prepares the query on a session.
    ///
    /// # Errors
    /// When the server has no such data (`performance_schema` is off, or it is a Galera node), the
    /// user lacks a privilege, or the connection breaks.
    pub fn prepare(facts: &ServerFacts, session: &mut Session) -> Result<Self, ServerError> {
        let way = match facts.engine {
            Engine::MySql => {
                if facts.get("performance_schema") == "OFF" {
                    return Err(session.precondition(
                        "cannot measure the stages of a transaction",
                        "performance_schema is OFF",
                        "start the server with performance_schema=ON; lag is measured without it",
                    ));
                }
                StageQuery::Remembered(session.prepare(OPERATION, REMEMBERED)?)
            }
            Engine::MariaDb => {
                if facts.on("wsrep_on") {
                    return Err(session.precondition(
                        "cannot measure the stages of a transaction",
                        "a Galera node records no timestamps for them",
                        "use the write latency: it includes replication and certification; the time from then until a row is visible is spent applying",
                    ));
                }
                // The positions of every connection; there is no shorter statement before 11.6.
                StageQuery::Positions(first_known(session, OPERATION, mariadb::CHANNELS)?.0)
            }
        };
        Ok(Self { way })
    }

    /// Queries the server once.
    ///
    /// # Errors
    /// When the connection breaks or the answer cannot be parsed.
    pub fn ask(&self, session: &mut Session) -> Result<StageAnswer, ServerError> {
        match &self.way {
            StageQuery::Remembered(statement) => {
                let rows = session.status(OPERATION, statement)?;
                Ok(StageAnswer::Remembered(remembered(rows)))
            }
            StageQuery::Positions(statement) => {
                let rows = session.answer(OPERATION, statement, |row| row)?;
                let text = |name: &str| {
                    rows.iter()
                        .map(|row| bytes(row, name))
                        .collect::<Vec<_>>()
                        .join(",")
                };
                let read = |text: &str| {
                    domain_commits(text).map_err(|error| {
                        session.precondition(OPERATION, error.to_string(), REPORT_BUG)
                    })
                };
                // The applied position belongs to the server, the same in every row.
                let applied = rows
                    .first()
                    .map(|row| bytes(row, "Gtid_Slave_Pos"))
                    .unwrap_or_default();
                Ok(StageAnswer::Positions(AppliedPositions {
                    received: read(&text("Gtid_IO_Pos"))?,
                    applied: read(&applied)?,
                }))
            }
        }
    }
}

/// Returns a column's text; "" when it is missing or NULL.
fn bytes(row: &Row, name: &str) -> String {
    let value = row
        .columns_ref()
        .iter()
        .position(|column| column.name_str().eq_ignore_ascii_case(name));
    match value.and_then(|at| row.as_ref(at)) {
        Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

fn remembered(rows: Vec<Row>) -> ThreadHistory {
    let mut all = ThreadHistory::default();
    for row in rows {
        let mut values = row.unwrap().into_iter();
        let mut next = || values.next().unwrap_or(Value::NULL);
        let kind = next();
        let mut text = || match next() {
            Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        };
        let (channel, commit_id) = (text(), text());
        let [original_commit_us, immediate_commit_us, began_us, ended_us] =
            std::array::from_fn(|_| unix_us(&next()));
        let last = LastTransaction {
            channel,
            commit_id,
            original_commit_us,
            immediate_commit_us,
            began_us,
            ended_us,
        };
        match kind {
            Value::Int(0) | Value::UInt(0) => all.queued.push(last),
            Value::Int(1) | Value::UInt(1) => all.scheduled.push(last),
            _ => all.applied.push(last),
        }
    }
    all
}

/// Returns a timestamp in UTC as microseconds since 1970; `None` for NULL and for zero, which means
/// none.
fn unix_us(value: &Value) -> Option<i64> {
    let &Value::Date(year, month, day, hour, minute, second, micros) = value else {
        return None;
    };
    if month == 0 || day == 0 {
        return None;
    }
    let seconds = days(i64::from(year), i64::from(month), i64::from(day)) * 86_400
        + i64::from(hour) * 3_600
        + i64::from(minute) * 60
        + i64::from(second);
    Some(seconds * 1_000_000 + i64::from(micros))
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar (Hinnant 2013,
/// `days_from_civil`).
pub(super) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_chain_matches_what_the_engine_reports() {
        assert_eq!(chain(Engine::MySql, "replica1", false).len(), 6);
        assert_eq!(chain(Engine::MariaDb, "replica1", false).len(), 4);
        assert_eq!(
            chain(Engine::MariaDb, "replica1", true)[1],
            (Mark::Logged, "client")
        );
    }

    #[test]
    fn timestamps_are_converted_to_unix_microseconds() {
        let at = |year, month, day, hour, minute, second, micros| {
            unix_us(&Value::Date(year, month, day, hour, minute, second, micros))
        };
        assert_eq!(at(1970, 1, 1, 0, 0, 0, 0), Some(0));
        assert_eq!(at(1970, 1, 1, 0, 0, 1, 7), Some(1_000_007));
        assert_eq!(at(2000, 2, 29, 12, 0, 0, 0), Some(951_825_600_000_000));
        assert_eq!(at(2025, 11, 21, 9, 5, 23, 1), Some(1_763_715_923_000_001));
        assert_eq!(
            at(2100, 3, 1, 0, 0, 0, 0),
            Some(4_107_542_400_000_000),
            "2100 is no leap year"
        );
        assert_eq!(
            (
                at(0, 0, 0, 0, 0, 0, 0),
                unix_us(&Value::NULL),
                unix_us(&Value::Int(5))
            ),
            (None, None, None)
        );
    }
}
