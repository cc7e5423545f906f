//! Joins a replica's reports on transactions with these transactions.
//!
//! Pure: answers, times of the queries and transactions go in, points come out. Stamps of a MySQL
//! replica are moved to the run's clock by a measured offset; a MariaDB position is bracketed by
//! queries, as a row is by reads.

use std::collections::{HashMap, VecDeque};

use replimeter_engine::{
    dialect::stages::{AppliedPositions, LastTransaction, StageAnswer, ThreadHistory},
    position::{DomainCommit, domain_commits},
};
use replimeter_model::time::Nanos;
use replimeter_stats::waterfall::{Point, Points, Stamp};

/// Maximum number of reported transactions that are kept until their row is known.
const MAX_OBSERVED: usize = 16_384;
/// Maximum number of kept steps of a position, per domain.
const MAX_STEPS: usize = 4_096;
/// Maximum number of domains whose positions are followed.
const MAX_DOMAINS: usize = 64;
/// Maximum number of transactions that wait for an answer.
const MAX_WAITING: usize = 65_536;
/// How long after a row is visible its replica may take to report it.
const GRACE: Nanos = Nanos(20_000_000);
/// Error of a stamp in whole microseconds.
const RESOLUTION: Nanos = Nanos(1_000);

/// A server's clock in relation to the run's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerClock {
    /// Number of the clock; servers on one machine share it.
    pub number: u8,
    /// The server's nanoseconds since 1970 minus the run's clock.
    pub offset: Nanos,
    /// Maximum error of the offset.
    pub bound: Nanos,
}

impl ServerClock {
    /// Returns a stamp in microseconds since 1970 as a point on the run's clock; `None` when it is out
    /// of range.
    #[must_use]
    pub fn point(&self, unix_us: i64) -> Option<Point> {
        // From 1970 to 2112, so that no difference overflows.
        let unix = Nanos(
            (0..1 << 52)
                .contains(&unix_us)
                .then_some(unix_us)?
                .checked_mul(1_000)?,
        );
        let at = Nanos(unix.0.checked_sub(self.offset.0)?);
        Some(Point {
            stamp: Some(Stamp {
                clock: self.number,
                at: unix,
            }),
            ..Point::new(at, self.bound + RESOLUTION)
        })
    }
}

/// A transaction of this run that a reader has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The row's sequence number.
    pub seq: u64,
    /// Its GTID, as the server returned it to the writer.
    pub commit_id: String,
    /// The last moment before the statement was handed to the socket.
    pub send: Nanos,
    /// The first moment after the answer was read.
    pub ack: Nanos,
    /// When a tap received it from the primary's log, if the server itself does not report that
    /// (MariaDB).
    pub logged: Option<Point>,
    /// The row became visible in (this, `visible_until`]; `None` when unknown, then the send bounds it.
    pub visible_after: Option<Nanos>,
    /// End of the first read that showed it.
    pub visible_until: Nanos,
}

/// The stamps of one transaction, in microseconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct TransactionStamps {
    committed: Option<i64>,
    received: Option<i64>,
    apply_began: Option<i64>,
    applied: Option<i64>,
}

/// Progress of a domain's position: the number it reached, and the time (after, until] in which it
/// did.
#[derive(Clone, Debug, Default)]
struct DomainSteps {
    steps: VecDeque<(u64, Option<Nanos>, Nanos)>,
    /// Whether steps before the first were dropped.
    forgotten: bool,
}

/// Whether and when a transaction passed a position.
enum PositionPassage {
    In(Option<Nanos>, Nanos),
    Forgotten,
    NotYet,
}

impl DomainSteps {
    fn advance(&mut self, sequence: u64, after: Option<Nanos>, until: Nanos) {
        match self.steps.back() {
            Some((last, ..)) if *last == sequence => return,
            // Positions move back when a replica is set up again; earlier steps are useless then.
            Some((last, ..)) if *last > sequence => {
                self.steps.clear();
                self.forgotten = false;
            }
            _ => {}
        }
        self.steps.push_back((sequence, after, until));
        if self.steps.len() > MAX_STEPS {
            self.steps.pop_front();
            self.forgotten = true;
        }
    }

    fn passed(&self, sequence: u64) -> PositionPassage {
        let at = self
            .steps
            .partition_point(|(reached, ..)| *reached < sequence);
        match self.steps.get(at) {
            None => PositionPassage::NotYet,
            Some(_) if at == 0 && self.forgotten => PositionPassage::Forgotten,
            Some((_, after, until)) => PositionPassage::In(*after, *until),
        }
    }
}

/// Positions of all domains.
#[derive(Clone, Debug, Default)]
struct PositionHistory(HashMap<u32, DomainSteps>);

impl PositionHistory {
    fn advance(&mut self, positions: &[DomainCommit], after: Option<Nanos>, until: Nanos) {
        for position in positions {
            if self.0.len() < MAX_DOMAINS || self.0.contains_key(&position.domain) {
                self.0
                    .entry(position.domain)
                    .or_default()
                    .advance(position.sequence, after, until);
            }
        }
    }

    fn passed(&self, commit_id: DomainCommit) -> PositionPassage {
        self.0
            .get(&commit_id.domain)
            .map_or(PositionPassage::NotYet, |steps| {
                steps.passed(commit_id.sequence)
            })
    }
}

/// Joins one replica's answers with transactions, in bounded memory.
///
/// Query the replica at least after each sighting, or in a loop: between two queries a MySQL thread
/// overwrites its stamps, and the interval between queries bounds a MariaDB position.
#[derive(Debug)]
pub struct StageJoiner {
    primary: ServerClock,
    replica: ServerClock,
    heard: HashMap<String, TransactionStamps>,
    order: VecDeque<String>,
    /// Whether the replica reports receiving and applying at all.
    tells: (bool, bool),
    received: PositionHistory,
    applied: PositionHistory,
    last_began: Option<Nanos>,
    waiting: VecDeque<Transaction>,
    joined: Vec<(u64, Points)>,
}

impl StageJoiner {
    /// Creates a joiner with the clocks of both servers; those of MariaDB are not used.
    #[must_use]
    pub fn new(primary: ServerClock, replica: ServerClock) -> Self {
        Self {
            primary,
            replica,
            heard: HashMap::new(),
            order: VecDeque::new(),
            tells: (false, false),
            received: PositionHistory::default(),
            applied: PositionHistory::default(),
            last_began: None,
            waiting: VecDeque::new(),
            joined: Vec::new(),
        }
    }

    /// Replaces the clocks after a new measurement, for transactions joined from now on.
    pub fn set_clocks(&mut self, primary: ServerClock, replica: ServerClock) {
        (self.primary, self.replica) = (primary, replica);
    }

    /// Adds a transaction that was seen. It is joined when it is complete, or when an answer comes so
    /// late that nothing more can follow.
    pub fn transaction(&mut self, transaction: Transaction) {
        self.waiting.push_back(transaction);
        if self.waiting.len() > MAX_WAITING
            && let Some(oldest) = self.waiting.pop_front()
        {
            let (points, _) = self.points(&oldest);
            self.joined.push((oldest.seq, points));
        }
    }

    /// Adds the answer to a query with these times of begin and end. Queries come in order.
    pub fn answer(&mut self, began: Nanos, ended: Nanos, answer: &StageAnswer) {
        match answer {
            StageAnswer::Remembered(remembered) => self.remember(remembered),
            StageAnswer::Positions(AppliedPositions { received, applied }) => {
                self.tells = (
                    self.tells.0 || !received.is_empty(),
                    self.tells.1 || !applied.is_empty(),
                );
                self.received.advance(received, self.last_began, ended);
                self.applied.advance(applied, self.last_began, ended);
            }
        }
        self.last_began = Some(began);
        let waiting = std::mem::take(&mut self.waiting);
        for transaction in waiting {
            let (points, complete) = self.points(&transaction);
            if complete || Nanos(began.0.saturating_sub(GRACE.0)) >= transaction.visible_until {
                self.joined.push((transaction.seq, points));
            } else {
                self.waiting.push_back(transaction);
            }
        }
    }

    /// Returns the transactions joined since the last call: the row's number and its points.
    #[must_use]
    pub fn take(&mut self) -> Vec<(u64, Points)> {
        std::mem::take(&mut self.joined)
    }

    /// Returns all waiting transactions with their points so far, when no answer follows.
    #[must_use]
    pub fn finish(mut self) -> Vec<(u64, Points)> {
        let waiting = std::mem::take(&mut self.waiting);
        let rest: Vec<_> = waiting
            .iter()
            .map(|transaction| (transaction.seq, self.points(transaction).0))
            .collect();
        self.joined.extend(rest);
        self.joined
    }

    fn remember(&mut self, remembered: &ThreadHistory) {
        self.tells = (
            self.tells.0 || !remembered.queued.is_empty(),
            self.tells.1 || !remembered.applied.is_empty(),
        );
        for last in &remembered.queued {
            self.note(last, |stamps| {
                stamps.received = last.ended_us.or(stamps.received)
            });
        }
        for last in &remembered.applied {
            self.note(last, |stamps| {
                stamps.apply_began = last.began_us.or(stamps.apply_began);
                stamps.applied = last.ended_us.or(stamps.applied);
            });
        }
    }

    fn note(&mut self, last: &LastTransaction, set: impl FnOnce(&mut TransactionStamps)) {
        let key = last.commit_id.to_ascii_lowercase();
        if !self.heard.contains_key(&key) {
            self.order.push_back(key.clone());
        }
        let stamps = self.heard.entry(key).or_default();
        stamps.committed = last.original_commit_us.or(stamps.committed);
        set(stamps);
        if self.order.len() > MAX_OBSERVED
            && let Some(oldest) = self.order.pop_front()
        {
            self.heard.remove(&oldest);
        }
    }

    /// Returns the known points of a transaction, and whether no more can follow.
    fn points(&self, transaction: &Transaction) -> (Points, bool) {
        let send = transaction.send;
        let exact = |at| Some(Point::new(at, Nanos(0)));
        // No stage of a transaction ends before its send.
        let within = |after: Option<Nanos>, until: Nanos| {
            Some(Point::within(
                after.map_or(send, |after| after.max(send)),
                until,
            ))
        };
        let mut points = Points {
            send: exact(send),
            ack: exact(transaction.ack),
            visible: within(transaction.visible_after, transaction.visible_until),
            logged: transaction.logged,
            ..Points::default()
        };
        let own = domain_commits(&transaction.commit_id)
            .ok()
            .and_then(|commit_ids| commit_ids.first().copied());
        let Some(commit_id) = own else {
            let stamps = self
                .heard
                .get(&transaction.commit_id.to_ascii_lowercase())
                .copied()
                .unwrap_or_default();
            let of_replica = |stamp: Option<i64>| stamp.and_then(|stamp| self.replica.point(stamp));
            points.logged = stamps.committed.and_then(|stamp| self.primary.point(stamp));
            points.received = of_replica(stamps.received);
            points.apply_began = of_replica(stamps.apply_began);
            points.applied = of_replica(stamps.applied);
            let complete = points.received.is_some() && points.applied.is_some();
            points.overwritten = (self.tells.0 && points.received.is_none())
                || (self.tells.1 && points.applied.is_none());
            return (points, complete);
        };
        let mut of = |track: &PositionHistory| match track.passed(commit_id) {
            PositionPassage::In(after, until) => within(after, until),
            PositionPassage::Forgotten => {
                points.overwritten = true;
                None
            }
            PositionPassage::NotYet => None,
        };
        let (received, applied) = (of(&self.received), of(&self.applied));
        (points.received, points.applied) = (received, applied);
        (points, received.is_some() && applied.is_some())
    }
}

#[cfg(test)]
mod tests;
