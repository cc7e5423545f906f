//! Matches arrivals on the primary's stream with those on the replicas'.
//!
//! Needs neither servers nor clocks: it receives arrivals and returns pairs. Memory does not grow
//! with the replicas' lag.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
};

use replimeter_engine::position::{CommitId, CommitSource, DomainCommit, Executed, OriginServer};
use replimeter_model::time::Nanos;

use super::log::{ArrivalEntry, ArrivalLog, LogCursor, SpillFile};

/// How far ahead a transaction is searched that is not next: replicas may commit in another order
/// than the primary, within the range of their parallel appliers.
const LOOKAHEAD: usize = 1 << 14;
/// Maximum skipped arrivals kept per source.
const MAX_SKIPPED: usize = 1 << 16;
/// Maximum transactions that are both in the primary's executed set and in its stream.
const OVERLAP: usize = 256;
/// Maximum arrivals on a replica kept for the primary's stream.
const MAX_EARLY: usize = 1 << 17;
/// Timeout for the primary's stream when a replica shows a transaction first.
pub(super) const MATCH_TIMEOUT: Nanos = Nanos(10_000_000_000);
/// Number of later transactions of the same source after which a missing one counts as left out.
const PASSED: u64 = 1000;
/// Maximum number of sources: each server, domain or tag is one.
const MAX_SOURCES: usize = 1 << 12;

/// An arrival on one stream.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The transaction.
    pub commit_id: CommitId,
    /// When; `None` while a connection was lost.
    pub at: Option<Nanos>,
    /// The set of tables that it changes, numbered by the caller; for the primary's arrivals only.
    pub set: u32,
}

/// A transaction that arrived on both streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The replica's index, from 0.
    pub replica: usize,
    /// Its arrival from the primary.
    pub on_primary: Nanos,
    /// Its arrival from the replica.
    pub on_replica: Nanos,
    /// The set of tables that it changes.
    pub set: u32,
}

impl Match {
    /// Returns the replica's arrival less the primary's; negative when the replica was first.
    #[must_use]
    pub fn lag(&self) -> Nanos {
        self.on_replica - self.on_primary
    }
}

/// Reasons for transactions without lag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Unmatched {
    /// They arrived on one of the streams while its connection was lost.
    pub unheard: u64,
    /// The replica skipped them: it showed or applied later ones of the domain (MariaDB), or showed a thousand later
    /// ones of the source. A filter, no row to change, or a gap in its stream.
    pub left_out: u64,
    /// They are on the replica, and the primary has not executed them: written there.
    pub foreign: u64,
    /// Too many were waiting for the primary's stream.
    pub overflow: u64,
    /// The replica wrote them itself, so they were there before they were on the primary.
    pub own: u64,
}

impl Unmatched {
    /// Returns the number of the primary's transactions without lag; those only on the replica are
    /// not included.
    #[must_use]
    pub fn of_primary(&self) -> u64 {
        self.unheard + self.left_out + self.own
    }
}

/// A transaction skipped by a replica.
#[derive(Clone, Copy, Debug)]
struct Skipped {
    entry: ArrivalEntry,
    /// The number of transactions of the source that the replica had shown by then.
    shown: u64,
}

/// The state of one source on one replica.
#[derive(Debug, Default)]
struct SourceProgress {
    cursor: LogCursor,
    /// Taken from the log and not shown yet.
    head: Option<ArrivalEntry>,
    skipped: HashMap<u64, Skipped>,
    /// Shown before the primary's stream did; to be skipped in the log.
    done: HashSet<u64>,
    shown: u64,
    /// The highest number of those that it has shown and the primary, too.
    passed: u64,
    /// The highest number in its stream.
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct EarlyArrival {
    at: Option<Nanos>,
    since: Nanos,
}

impl EarlyArrival {
    fn is_overdue(&self, now: Nanos) -> bool {
        now.0.saturating_sub(self.since.0) >= MATCH_TIMEOUT.0
    }
}

#[derive(Debug, Default)]
struct ReplicaStream {
    /// The replica, as GTIDs name it.
    origin: Option<OriginServer>,
    /// What it had logged before its stream began.
    logged: Executed,
    /// MariaDB: the number up to which it has applied each domain, as far as its stream shows all that this logged.
    applied: HashMap<u32, u64>,
    sources: Vec<SourceProgress>,
    early: HashMap<(usize, u64), EarlyArrival>,
    unmatched: Unmatched,
    before_start: u64,
    /// The primary's arrivals that need no further matching.
    settled: u64,
    retired: bool,
}

/// Matches streams by GTID.
#[derive(Debug)]
pub struct Matcher {
    numbers: HashMap<CommitSource, usize>,
    sources: Vec<CommitSource>,
    /// The last source and its index: most transactions have the same source as the previous one.
    last: Option<(CommitSource, usize)>,
    logs: Vec<ArrivalLog>,
    replicas: Vec<ReplicaStream>,
    baseline: Executed,
    spill: SpillFile,
    arrivals: u64,
    closed: bool,
}

impl Matcher {
    /// Returns a matcher for this number of replicas. `executed` is the primary's executed set when
    /// its stream began; `folder` is for arrivals that exceed memory.
    ///
    /// # Errors
    /// When a file cannot be created there.
    pub fn new(replicas: usize, executed: &str, folder: Option<&Path>) -> io::Result<Self> {
        Ok(Self {
            numbers: HashMap::new(),
            sources: Vec::new(),
            last: None,
            logs: Vec::new(),
            replicas: (0..replicas).map(|_| ReplicaStream::default()).collect(),
            baseline: Executed::listed(executed),
            spill: SpillFile::new(folder)?,
            arrivals: 0,
            closed: false,
        })
    }

    /// Sets how GTIDs name a replica, since what it wrote itself has no lag there, and what it had executed when its
    /// stream began.
    pub fn set_replica(&mut self, index: usize, origin: Option<OriginServer>, executed: &str) {
        self.replicas[index].origin = origin;
        self.replicas[index].logged = Executed::listed(executed);
    }

    fn source(&mut self, source: CommitSource) -> Option<usize> {
        if let Some((last, number)) = self.last
            && last == source
        {
            return Some(number);
        }
        let number = match self.numbers.get(&source) {
            Some(number) => *number,
            None if self.sources.len() == MAX_SOURCES => return None,
            None => {
                let number = self.sources.len();
                self.numbers.insert(source, number);
                self.sources.push(source);
                self.logs.push(ArrivalLog::default());
                for replica in &mut self.replicas {
                    replica.sources.push(SourceProgress::default());
                }
                number
            }
        };
        self.last = Some((source, number));
        Some(number)
    }

    /// Handles an arrival from the primary.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn primary(&mut self, arrival: &Arrival, out: &mut impl FnMut(Match)) -> io::Result<()> {
        let (source, number) = arrival.commit_id.split();
        self.arrivals += 1;
        let Some(source) = self.source(source) else {
            self.replicas.iter_mut().for_each(|replica| {
                replica.unmatched.unheard += 1;
                replica.settled += 1;
            });
            return Ok(());
        };
        let entry = ArrivalEntry {
            number,
            at: arrival.at,
            set: arrival.set,
        };
        self.logs[source].push(&entry, &mut self.spill)?;
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            let early = if replica.early.is_empty() {
                None
            } else {
                replica.early.remove(&(source, number))
            };
            if replica.wrote(&self.sources[source]) {
                replica.sources[source].cursor = LogCursor::at_end(&self.logs[source]);
                replica.settled += 1;
                replica.unmatched.own += 1;
            } else if let Some(early) = early {
                replica.sources[source].done.insert(number);
                replica.sources[source].count(number);
                replica.settle(index, &entry, early.at, out);
            }
        }
        Ok(())
    }

    /// Handles an arrival from a replica; `now` starts its timeout.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn replica(
        &mut self,
        index: usize,
        arrival: &Arrival,
        now: Nanos,
        out: &mut impl FnMut(Match),
    ) -> io::Result<()> {
        let (source, number) = arrival.commit_id.split();
        let Some(source) = self.source(source) else {
            self.replicas[index].unmatched.overflow += 1;
            return Ok(());
        };
        let (log, spill, replica) = (&self.logs[source], &self.spill, &mut self.replicas[index]);
        if replica.retired {
            return Ok(());
        }
        let shown = &mut replica.sources[source];
        shown.last = shown.last.max(number);
        let next = shown
            .head(log, spill)?
            .is_some_and(|head| head.number == number);
        // Transactions before the beginning are searched only within the possible overlap.
        let old = !next && self.baseline.has(&self.sources[source], number);
        if let Some(entry) =
            shown.find(number, if old { OVERLAP } else { MAX_SKIPPED }, log, spill)?
        {
            replica.settle(index, &entry, arrival.at, out);
        } else if number <= log.highest && replica.wrote(&self.sources[source]) {
            // The primary has shown it.
        } else if old && (number <= log.highest || replica.early.len() >= OVERLAP) {
            replica.before_start += 1;
        } else if self.closed {
            // It is after the end of the primary's stream.
        } else if replica.early.len() < MAX_EARLY {
            replica.early.insert(
                (source, number),
                EarlyArrival {
                    at: arrival.at,
                    since: now,
                },
            );
        } else {
            replica.unmatched.overflow += 1;
        }
        Ok(())
    }

    /// Returns whether a replica's transaction has waited for the primary's stream until its timeout: the primary is to
    /// be asked for it.
    #[must_use]
    pub fn is_overdue(&self, now: Nanos) -> bool {
        let mut early = self.replicas.iter().flat_map(|one| one.early.values());
        early.any(|early| early.is_overdue(now))
    }

    /// Drops expired arrivals, and frees memory. To be called about once a second. Without what the primary has executed
    /// by now, a replica's transactions wait further.
    pub fn expire(&mut self, now: Nanos, executed: Option<Executed>) {
        for replica in &mut self.replicas {
            replica.sweep(now, executed.as_ref(), &self.sources);
        }
        for (number, log) in self.logs.iter_mut().enumerate() {
            let live = self.replicas.iter().filter(|replica| !replica.retired);
            if let Some(oldest) = live
                .map(|replica| replica.sources[number].cursor.segment())
                .min()
            {
                log.forget_before(oldest, &mut self.spill);
            }
        }
    }

    /// Restarts a replica whose stream has a gap: the primary's arrivals so far count as unmatched.
    pub fn restart(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.unmatched.unheard += self.arrivals - replica.settled;
        replica.settled = self.arrivals;
        for (shown, log) in replica.sources.iter_mut().zip(&self.logs) {
            *shown = SourceProgress {
                cursor: LogCursor::at_end(log),
                shown: shown.shown,
                last: shown.last,
                ..SourceProgress::default()
            };
        }
        replica.early.clear();
    }

    /// Stops waiting for a replica.
    pub fn stop_expecting(&mut self, index: usize) {
        self.replicas[index].retired = true;
        self.replicas[index].early = HashMap::new();
        self.replicas[index]
            .sources
            .iter_mut()
            .for_each(|shown| *shown = SourceProgress::default());
    }

    /// Marks the end of the primary's stream: replicas are still awaited, but their later
    /// transactions do not count.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Takes what a replica of MariaDB had applied, and what it had logged afterwards: a transaction that left nothing
    /// to log is not awaited.
    pub fn applied(&mut self, index: usize, applied: &[DomainCommit], logged: &[DomainCommit]) {
        let replica = &mut self.replicas[index];
        let shown = |commit_id: &&DomainCommit| {
            let source = CommitSource::Domain(commit_id.domain, commit_id.server);
            let number = self.numbers.get(&source);
            let last = number.map_or(0, |number| replica.sources[*number].last);
            last >= commit_id.sequence || replica.logged.has(&source, commit_id.sequence)
        };
        let awaited: HashSet<u32> = logged
            .iter()
            .filter(|commit_id| !shown(commit_id))
            .map(|commit_id| commit_id.domain)
            .collect();
        let shown = applied
            .iter()
            .filter(|commit_id| !awaited.contains(&commit_id.domain));
        replica
            .applied
            .extend(shown.map(|commit_id| (commit_id.domain, commit_id.sequence)));
    }

    /// Returns the number of the primary's transactions that a replica has neither shown nor passed, and when the
    /// oldest of them arrived from the primary.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn pending(&mut self, index: usize) -> io::Result<(u64, Option<Nanos>)> {
        let replica = &mut self.replicas[index];
        let mut oldest = None;
        if replica.retired {
            return Ok((0, None));
        }
        let passed = replica.passed(&self.sources);
        for ((shown, log), passed) in replica.sources.iter_mut().zip(&self.logs).zip(passed) {
            let left_out = shown.pass(passed, log, &self.spill)?;
            replica.settled += left_out;
            replica.unmatched.left_out += left_out;
            let skipped = shown.skipped.values().map(|skipped| skipped.entry);
            let least = shown
                .head
                .into_iter()
                .chain(skipped)
                .filter_map(|entry| entry.at)
                .min();
            oldest = [oldest, least].into_iter().flatten().min();
        }
        Ok((self.arrivals.saturating_sub(replica.settled), oldest))
    }

    /// Returns the reasons for a replica's transactions without lag.
    #[must_use]
    pub fn unmatched(&self, index: usize) -> Unmatched {
        self.replicas[index].unmatched
    }

    /// Returns the number of a replica's transactions that the primary has executed, and that are not in its stream:
    /// before this began, or in a gap of it.
    #[must_use]
    pub fn before_start(&self, index: usize) -> u64 {
        self.replicas[index].before_start
    }

    /// Returns the maximum size of the file of pending arrivals, in bytes.
    #[must_use]
    pub fn spilled_bytes(&self) -> u64 {
        self.spill.bytes()
    }
}

impl SourceProgress {
    /// Counts a transaction that both have shown.
    fn count(&mut self, number: u64) {
        self.shown += 1;
        self.passed = self.passed.max(number);
    }

    /// Removes what waits up to this number, and returns how many these are.
    fn pass(&mut self, last: u64, log: &ArrivalLog, spill: &SpillFile) -> io::Result<u64> {
        let before = self.skipped.len();
        self.skipped.retain(|number, _| *number > last);
        let mut removed = (before - self.skipped.len()) as u64;
        while self
            .head(log, spill)?
            .is_some_and(|head| head.number <= last)
        {
            self.head = None;
            removed += 1;
        }
        Ok(removed)
    }

    /// Returns the next entry of the log that was not shown yet.
    fn head(&mut self, log: &ArrivalLog, spill: &SpillFile) -> io::Result<Option<ArrivalEntry>> {
        while self.head.is_none() {
            let Some(entry) = self.cursor.next(log, spill)? else {
                return Ok(None);
            };
            if self.done.is_empty() || !self.done.remove(&entry.number) {
                self.head = Some(entry);
            }
        }
        Ok(self.head)
    }

    /// Removes the arrival with this number, wherever it waits; skips others while fewer than
    /// `most` are skipped.
    fn find(
        &mut self,
        number: u64,
        most: usize,
        log: &ArrivalLog,
        spill: &SpillFile,
    ) -> io::Result<Option<ArrivalEntry>> {
        if !self.skipped.is_empty()
            && let Some(skipped) = self.skipped.remove(&number)
        {
            self.count(number);
            return Ok(Some(skipped.entry));
        }
        // It has not arrived: a search would skip every entry.
        if number > log.highest {
            return Ok(None);
        }
        for _ in 0..LOOKAHEAD {
            let Some(entry) = self.head(log, spill)? else {
                return Ok(None);
            };
            if entry.number == number {
                self.head = None;
                self.count(number);
                return Ok(Some(entry));
            }
            if self.skipped.len() >= most {
                return Ok(None);
            }
            self.head = None;
            self.skipped.insert(
                entry.number,
                Skipped {
                    entry,
                    shown: self.shown,
                },
            );
        }
        Ok(None)
    }
}

impl ReplicaStream {
    /// Returns whether the transactions of a source were written on the replica.
    fn wrote(&self, source: &CommitSource) -> bool {
        self.origin == Some(source.origin())
    }

    /// Returns the number up to which it has passed each source: MariaDB applies a domain in its order, so what is not
    /// shown before a later one left nothing to log. 0 for MySQL, which logs all.
    fn passed(&self, sources: &[CommitSource]) -> Vec<u64> {
        let mut last = self.applied.clone();
        for (source, shown) in sources.iter().zip(&self.sources) {
            if let CommitSource::Domain(domain, _) = source {
                let last = last.entry(*domain).or_default();
                *last = shown.passed.max(*last);
            }
        }
        let of = |source: &CommitSource| match source {
            CommitSource::Domain(domain, _) => last.get(domain).copied().unwrap_or(0),
            CommitSource::Uuid(..) => 0,
        };
        sources.iter().map(of).collect()
    }

    fn settle(
        &mut self,
        replica: usize,
        entry: &ArrivalEntry,
        on_replica: Option<Nanos>,
        out: &mut impl FnMut(Match),
    ) {
        self.settled += 1;
        match (entry.at, on_replica) {
            (Some(on_primary), Some(on_replica)) => out(Match {
                replica,
                on_primary,
                on_replica,
                set: entry.set,
            }),
            _ => self.unmatched.unheard += 1,
        }
    }

    fn sweep(&mut self, now: Nanos, executed: Option<&Executed>, sources: &[CommitSource]) {
        let Self {
            early,
            unmatched,
            before_start,
            settled,
            ..
        } = self;
        if let Some(executed) = executed {
            early.retain(|(source, number), early| {
                let overdue = early.is_overdue(now);
                if overdue && executed.has(&sources[*source], *number) {
                    *before_start += 1;
                } else if overdue {
                    unmatched.foreign += 1;
                }
                !overdue
            });
        }
        for shown in &mut self.sources {
            let by_now = shown.shown;
            shown.skipped.retain(|_, skipped| {
                let keep = by_now - skipped.shown < PASSED;
                if !keep {
                    unmatched.left_out += 1;
                    *settled += 1;
                }
                keep
            });
        }
    }
}

#[cfg(test)]
mod tests;
