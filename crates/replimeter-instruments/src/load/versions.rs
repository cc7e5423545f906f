//! Versions of rows that a load writes and reads with its own statements: a read is checked against
//! the version that was acknowledged when the read was sent. No additional row is read or written.
//!
//! An update increments a row's version under the row's lock and returns it with its answer
//! (`LAST_INSERT_ID(v + 1)`), so that any number of connections may write the same row, on any
//! node. A version is recorded as acknowledged slightly after it was: a read is never checked
//! against more than its client could have seen.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
};

use replimeter_engine::{
    dialect::sync_reads,
    sync::lock,
    wire::{Answer, Binder, ParameterValue, PreparedStatement, StatementError, StatementResult},
};
use replimeter_model::time::Nanos;

use super::{channel::Channel, value::ParameterSink, workload::Version};
use crate::clock::Clock;

/// Number of shards, so that threads seldom wait for one another; a power of two.
const SHARDS: u64 = 64;
/// Maximum number of recorded rows; reads of other rows are not checked.
const MAX_ROWS: u64 = 1 << 20;
/// Maximum number of rows whose last version a connection records.
const MAX_PENDING: usize = 1 << 16;

/// Recorded state of a row.
#[derive(Clone, Copy, Debug)]
struct KnownVersion {
    /// The newest acknowledged version.
    version: u64,
    /// When that version was sent and acknowledged.
    sent: Nanos,
    acknowledged: Nanos,
    /// The newest version that a read has returned.
    shown: u64,
}

/// A written version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionWrite {
    /// The row.
    pub row: u64,
    /// Its new version.
    pub version: u64,
    /// When the write was sent.
    pub sent: Nanos,
    /// When the write, or its transaction, was acknowledged.
    pub acknowledged: Nanos,
}

/// A read version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRead {
    /// Index of the server among those whose reads are checked.
    pub place: usize,
    /// The row, and its newest version acknowledged before the read was sent.
    pub known: VersionWrite,
    /// When the read was sent.
    pub begin: Nanos,
    /// When its answer arrived.
    pub end: Nanos,
    /// The version; `None` when the row does not exist or holds no number.
    pub seen: Option<u64>,
    /// Whether the server refused the read because its wait took too long.
    pub refused: bool,
    /// Whether the same connection had seen a later version before.
    pub went_back: bool,
    /// Whether another read of this load had returned a later version before this one was sent.
    pub went_back_across: bool,
    /// That later version if the read went back; otherwise 0.
    pub newer: u64,
}

/// An event of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionEvent {
    /// An acknowledged write.
    Wrote(VersionWrite),
    /// A read of a row that was written before.
    Read(VersionRead),
}

/// The rows of a load, as its clients have seen them.
#[derive(Debug)]
pub struct Versions {
    clock: Clock,
    shards: Vec<Mutex<HashMap<u64, KnownVersion>>>,
    listening: AtomicBool,
    events: Sender<VersionEvent>,
    heard: Mutex<Receiver<VersionEvent>>,
    beyond: AtomicU64,
    foreign: AtomicU64,
}

impl Versions {
    /// Creates an empty state.
    #[must_use]
    pub fn new(clock: &Clock) -> Arc<Self> {
        let (events, heard) = channel();
        Arc::new(Self {
            clock: *clock,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            listening: AtomicBool::new(false),
            events,
            heard: Mutex::new(heard),
            beyond: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
        })
    }

    /// Sets whether events are recorded for a listener. Acknowledged versions are always recorded.
    pub fn set_listening(&self, on: bool) {
        self.listening.store(on, Ordering::Release);
    }

    /// Passes on the events since the last call.
    pub fn drain(&self, mut each: impl FnMut(VersionEvent)) {
        lock(&self.heard).try_iter().for_each(&mut each);
    }

    /// Returns the number of writes to rows beyond the limit, whose reads are not checked.
    #[must_use]
    pub fn unremembered_writes(&self) -> u64 {
        self.beyond.load(Ordering::Relaxed)
    }

    /// Returns the number of writes that returned a version which had been acknowledged before they
    /// were sent: another client has set the row back, or a server has lost an acknowledged write.
    #[must_use]
    pub fn foreign_writes(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    fn shard(&self, row: u64) -> MutexGuard<'_, HashMap<u64, KnownVersion>> {
        // Fibonacci hashing (Knuth 1973): neighbors are in different shards.
        let at = (row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % SHARDS;
        lock(&self.shards[usize::try_from(at).unwrap_or(0)])
    }

    fn known(&self, row: u64) -> Option<KnownVersion> {
        self.shard(row).get(&row).copied()
    }

    fn tell(&self, event: VersionEvent) {
        if self.listening.load(Ordering::Acquire) {
            let _ = self.events.send(event);
        }
    }

    /// Records an acknowledged write; `before` is the version recorded when it was sent.
    fn wrote(&self, write: VersionWrite, before: u64) {
        let VersionWrite {
            row,
            version,
            sent,
            acknowledged,
        } = write;
        if version <= before {
            self.foreign.fetch_add(1, Ordering::Relaxed);
        }
        let mut shard = self.shard(row);
        let room = (shard.len() as u64) < MAX_ROWS / SHARDS;
        match shard.get_mut(&row) {
            Some(known) if version > known.version => {
                (known.version, known.sent, known.acknowledged) = (version, sent, acknowledged);
            }
            Some(_) => {}
            None if room => {
                _ = shard.insert(
                    row,
                    KnownVersion {
                        version,
                        sent,
                        acknowledged,
                        shown: 0,
                    },
                )
            }
            None => _ = self.beyond.fetch_add(1, Ordering::Relaxed),
        }
        drop(shard);
        self.tell(VersionEvent::Wrote(write));
    }

    fn shown(&self, row: u64, version: u64) {
        if let Some(known) = self.shard(row).get_mut(&row) {
            known.shown = known.shown.max(version);
        }
    }
}

/// The view of one connection.
#[derive(Debug)]
pub(super) struct ConnectionView {
    versions: Arc<Versions>,
    place: usize,
    /// The newest version of each row that this connection has seen.
    seen: HashMap<u64, u64>,
    /// Writes of the current transaction, with the versions recorded before.
    pending: Vec<(VersionWrite, u64)>,
}

impl ConnectionView {
    pub(super) fn new(versions: &Arc<Versions>, place: usize) -> Self {
        Self {
            versions: Arc::clone(versions),
            place,
            seen: HashMap::new(),
            pending: Vec::new(),
        }
    }

    /// Begins a transaction; uncommitted writes of an earlier one are dropped.
    pub(super) fn begins(&mut self) {
        self.pending.clear();
    }

    /// Records that the transaction was acknowledged.
    pub(super) fn committed(&mut self) {
        let acknowledged = self.versions.clock.now();
        for (write, before) in self.pending.drain(..) {
            self.versions.wrote(
                VersionWrite {
                    acknowledged,
                    ..write
                },
                before,
            );
        }
    }

    /// Runs a statement with a version. `own` marks a statement that is its own transaction.
    pub(super) async fn run(
        &mut self,
        channel: &mut Channel,
        prepared: &mut PreparedStatement,
        version: Version,
        own: bool,
        bind: impl FnOnce(ParameterSink<'_>),
    ) -> Result<StatementResult, StatementError> {
        let (Version::Read(wanted) | Version::Written(wanted)) = version;
        let (mut row, mut at, mut before, mut begin) = (None, 0, None, Nanos(0));
        let (versions, clock) = (&self.versions, self.versions.clock);
        let bind = |binder: &mut Binder<'_>| {
            bind(&mut |value| {
                if at == wanted {
                    row = number(value);
                }
                at += 1;
                binder.push(value);
            });
            // The row is drawn, but the statement is not sent yet.
            before = row.and_then(|row| versions.known(row));
            begin = clock.now();
        };
        let result = channel.execute(prepared, Answer::Examined, bind).await;
        let end = clock.now();
        let Some(row) = row else {
            return result;
        };
        match (version, result) {
            (Version::Written(_), Ok(answer)) => {
                // A missing row has no version.
                if answer.last_id > 0 {
                    let write = VersionWrite {
                        row,
                        version: answer.last_id,
                        sent: begin,
                        acknowledged: end,
                    };
                    let before = before.map_or(0, |known| known.version);
                    if own {
                        self.versions.wrote(write, before)
                    } else {
                        self.pending.push((write, before))
                    }
                }
                Ok(answer)
            }
            (Version::Read(_), Ok(answer)) => {
                if let Some(known) = before {
                    self.saw(row, known, [begin, end], answer.first);
                }
                Ok(answer)
            }
            (Version::Read(_), Err(StatementError::Refused(refusal))) => {
                if let Some(known) = before
                    && sync_reads::is_wait_timeout(refusal.class())
                {
                    self.read(VersionRead {
                        refused: true,
                        ..self.unread(row, known, [begin, end])
                    });
                }
                Err(StatementError::Refused(refusal))
            }
            (_, Err(failed)) => Err(failed),
        }
    }

    /// Returns a read of a row that showed nothing.
    #[inline]
    fn unread(&self, row: u64, known: KnownVersion, [begin, end]: [Nanos; 2]) -> VersionRead {
        VersionRead {
            place: self.place,
            known: VersionWrite {
                row,
                version: known.version,
                sent: known.sent,
                acknowledged: known.acknowledged,
            },
            begin,
            end,
            seen: None,
            refused: false,
            went_back: false,
            went_back_across: false,
            newer: 0,
        }
    }

    /// Records the version that a read showed, and whether an earlier one had shown more.
    #[inline]
    fn saw(&mut self, row: u64, known: KnownVersion, span: [Nanos; 2], seen: Option<u64>) {
        let older = |than: &u64| seen.is_some_and(|seen| seen < *than);
        let last = self.seen.get(&row).copied().filter(older);
        let shown = Some(known.shown).filter(older);
        self.read(VersionRead {
            seen,
            went_back: last.is_some(),
            went_back_across: shown.is_some(),
            newer: last.or(shown).unwrap_or(0),
            ..self.unread(row, known, span)
        });
    }

    fn read(&mut self, read: VersionRead) {
        if let Some(seen) = read.seen {
            let row = read.known.row;
            if self.seen.len() < MAX_PENDING || self.seen.contains_key(&row) {
                self.seen.insert(row, seen);
            }
            self.versions.shown(row, seen);
        }
        self.versions.tell(VersionEvent::Read(read));
    }
}

fn number(value: ParameterValue<'_>) -> Option<u64> {
    match value {
        ParameterValue::Int(number) => u64::try_from(number).ok(),
        ParameterValue::UInt(number) => Some(number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(row: u64, version: u64, acknowledged: i64) -> VersionWrite {
        VersionWrite {
            row,
            version,
            sent: Nanos(acknowledged - 1),
            acknowledged: Nanos(acknowledged),
        }
    }

    #[test]
    fn newest_acknowledged_version_counts() {
        let versions = Versions::new(&Clock::start());
        versions.set_listening(true);
        // Two writers of one row: the later version's acknowledgement came first.
        versions.wrote(write(7, 2, 10), 0);
        versions.wrote(write(7, 1, 11), 0);
        let known = versions.known(7).unwrap();
        assert_eq!((known.version, known.acknowledged), (2, Nanos(10)));
        assert_eq!(
            versions.foreign_writes(),
            0,
            "neither was known to the other"
        );
        versions.wrote(write(7, 2, 20), 2);
        assert_eq!(versions.foreign_writes(), 1, "a version is given once");
        versions.shown(7, 2);
        versions.shown(7, 1);
        assert_eq!(versions.known(7).unwrap().shown, 2);
        let mut drained = 0;
        versions.drain(|_| drained += 1);
        assert_eq!(drained, 3);
        versions.set_listening(false);
        versions.wrote(write(8, 1, 30), 0);
        versions.drain(|_| drained += 1);
        assert_eq!((drained, versions.known(8).unwrap().version), (3, 1));
    }

    #[test]
    fn uncommitted_version_is_never_acknowledged() {
        let versions = Versions::new(&Clock::start());
        let mut witness = ConnectionView::new(&versions, 0);
        witness.begins();
        witness.pending.push((write(1, 5, 1), 0));
        // Rolled back and retried.
        witness.begins();
        witness.pending.push((write(2, 1, 1), 0));
        witness.committed();
        assert!(versions.known(1).is_none());
        assert!(
            versions.known(2).unwrap().acknowledged > Nanos(1),
            "at the commit's answer"
        );
    }

    #[test]
    fn memory_stays_bounded() {
        let versions = Versions::new(&Clock::start());
        for row in 0..2 * MAX_ROWS {
            versions.wrote(write(row, 1, 1), 0);
        }
        let known: usize = versions.shards.iter().map(|shard| lock(shard).len()).sum();
        assert!(
            known as u64 <= MAX_ROWS && versions.unremembered_writes() >= MAX_ROWS,
            "{known}"
        );
        let mut witness = ConnectionView::new(&versions, 0);
        for row in 0..2 * MAX_PENDING as u64 {
            let known = write(row, 1, 1);
            let (seen, refused, went_back, went_back_across) = (Some(1), false, false, false);
            let read = VersionRead {
                place: 0,
                known,
                begin: Nanos(2),
                end: Nanos(3),
                seen,
                refused,
                went_back,
                went_back_across,
                newer: 0,
            };
            witness.read(read);
        }
        assert_eq!(witness.seen.len(), MAX_PENDING);
    }
}
