//! The samples and the record of a `stale` run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    envelope::Envelope,
    load::LoadRecord,
    plan::StaleSettings,
    record::{Distribution, Window},
    time::Nanos,
};

/// What a round is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StalePhase {
    /// Not counted.
    WarmUp,
    /// For the price of synchronous reads: read without.
    Plain,
    /// For the same: read with.
    Synced,
    /// Read at once after the acknowledgement.
    AtOnce,
    /// Read at a chosen time after it.
    Curve,
    /// A write, or a read, of traffic that is judged.
    Judged,
}

impl StalePhase {
    /// The name in samples.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WarmUp => "warm-up",
            Self::Plain => "plain",
            Self::Synced => "synced",
            Self::AtOnce => "at-once",
            Self::Curve => "curve",
            Self::Judged => "judged",
        }
    }
}

/// What a round's first read on a reader was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It showed the write, or (with the pace `ack`) a later one of ours.
    Fresh,
    /// It showed an older version.
    Stale,
    /// The server refused it, since the wait before it took too long.
    Refused,
    /// It showed what nobody but somebody else can have written.
    Foreign,
}

impl Verdict {
    /// The name in samples.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Refused => "refused",
            Self::Foreign => "foreign",
        }
    }
}

/// What one reader showed of one round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StaleRead {
    /// The reader's number.
    pub reader: usize,
    /// When the first read was issued.
    pub begin: Nanos,
    /// When its answer was there.
    pub end: Nanos,
    /// What it was.
    pub verdict: Verdict,
    /// The version that it showed; the number of a round, 0 for the row as it was made.
    pub seen: u64,
    /// How many versions of the row were newer, up to the one that was just acknowledged.
    pub behind: u32,
    /// When the last read that did not show the write was issued.
    pub last_stale: Option<Nanos>,
    /// When the first read that showed it was issued.
    pub fresh_begin: Option<Nanos>,
    /// When that read's answer was there.
    pub fresh_end: Option<Nanos>,
    /// Reads of this round.
    pub reads: u32,
    /// It showed an older version of the row than this connection had seen before.
    pub went_back: bool,
    /// It showed an older version than some read of this run had returned before it was issued; told of judged traffic only.
    pub went_back_across: bool,
    /// Where it went back: the newer version that had been shown before; else 0.
    pub newer: u64,
    /// A wait for the write's GTID was sent before it.
    pub waited: bool,
}

impl StaleRead {
    /// What a reader's read, issued at `begin` and answered at `end`, has shown by itself; nothing
    /// is known yet of those before and after it.
    #[must_use]
    pub fn new(reader: usize, begin: Nanos, end: Nanos, verdict: Verdict) -> Self {
        Self {
            reader,
            begin,
            end,
            verdict,
            seen: 0,
            behind: 0,
            last_stale: None,
            fresh_begin: None,
            fresh_end: None,
            reads: 0,
            went_back: false,
            went_back_across: false,
            newer: 0,
            waited: false,
        }
    }
}

/// One round: a write, and what every reader showed of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StaleRound {
    /// What it is for.
    pub phase: StalePhase,
    /// Its number; what it wrote into the row.
    pub round: u64,
    /// The row's id.
    pub row: u64,
    /// When after the acknowledgement the first reads were to be issued.
    pub offset: Nanos,
    /// When the write was sent.
    pub send: Nanos,
    /// When it was acknowledged.
    pub ack: Nanos,
    /// How often it had to be written again after a conflict.
    pub conflicts: u32,
    /// When the connections were reset before it, as by a pool: when that began, and when it was done.
    pub reset: Option<[Nanos; 2]>,
    /// What the readers showed.
    pub reads: Vec<StaleRead>,
}

impl StaleRound {
    /// The first reader that had shown the write before another one was asked and did not show it, with
    /// that other one: who reads the one after the other goes back in time.
    #[must_use]
    pub fn across(&self) -> Option<(&StaleRead, &StaleRead)> {
        let shown = self
            .reads
            .iter()
            .filter_map(|read| Some((read.fresh_end?, read)));
        let (end, first) = shown.min_by_key(|(end, _)| *end)?;
        let late = self.reads.iter().filter(|read| {
            read.verdict != Verdict::Foreign && read.last_stale.is_some_and(|issued| issued > end)
        });
        late.max_by_key(|read| read.last_stale)
            .map(|late| (first, late))
    }
}

/// How often what must not happen did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Violations {
    /// Reads that did not show what the same client had been told was written: first reads at once and, where there is a curve, at
    /// its times.
    pub read_your_writes: u64,
    /// Of how many.
    #[serde(default)]
    pub read_your_writes_of: u64,
    /// Reads that showed an older version of a row than an earlier read: on the same connection, or, by a
    /// client that asks one reader after another, on another reader.
    pub monotonic_reads: u64,
    /// Of how many.
    #[serde(default)]
    pub monotonic_reads_of: u64,
    /// Of the violations, the ones on the same connection.
    #[serde(default)]
    pub monotonic_same_connection: u64,
    /// The share of read-your-writes violations is below this with 97.5 % confidence, in percent.
    #[serde(default)]
    pub read_your_writes_percent_upper_bound: f64,
    /// The same for monotonic reads.
    #[serde(default)]
    pub monotonic_reads_percent_upper_bound: f64,
}

/// One point of the curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// When after the acknowledgement the reads were issued: the median of what was achieved.
    pub after_us: f64,
    /// When they were to be.
    pub asked_us: f64,
    /// Reads.
    pub reads: u64,
    /// Of these, stale.
    pub stale: u64,
    /// Their share.
    pub probability: f64,
    /// Its 95 % confidence interval.
    pub probability_ci95: [f64; 2],
    /// The 1st and the 99th percentile of what was achieved; null for fewer than a thousand reads.
    pub achieved_us: Option<[f64; 2]>,
}

/// How long to wait after an acknowledgement until so many reads are fresh; null where the rounds were too few to
/// tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FreshAfter {
    /// 99 %. 0 when more are fresh at once.
    pub p99: Option<f64>,
    /// 99.9 %.
    pub p999: Option<f64>,
    /// The 95 % interval of the former.
    pub p99_ci95: Option<[f64; 2]>,
    /// Of the latter.
    pub p999_ci95: Option<[f64; 2]>,
}

/// Reads that were so many versions behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Behind {
    /// Versions of the row that the read did not show.
    pub versions: u32,
    /// How many first reads.
    pub reads: u64,
}

/// What synchronous reads cost, from rounds that took turns with and without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// Reads without, from their issue to their answer.
    pub read_without: Distribution,
    /// Reads with; a wait before the read is part of it.
    pub read_with: Distribution,
    /// Writes without, send to acknowledgement.
    pub write_without: Distribution,
    /// Writes with.
    pub write_with: Distribution,
}

/// One statement of a witness.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WitnessStep {
    /// The server.
    pub node: String,
    /// The statement.
    pub statement: String,
    /// When it was issued, since the write was sent.
    pub begin_us: f64,
    /// When its answer was there.
    pub end_us: f64,
    /// What it wrote, or showed.
    pub value: String,
}

/// The shortest story of a violation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Witness {
    /// `read-your-writes` or `monotonic-reads`.
    pub guarantee: String,
    /// The number of the round.
    pub round: u64,
    /// The statements, in order.
    pub steps: Vec<WitnessStep>,
}

/// What one reader showed in one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleRow {
    /// The sandbox's shape, or `endpoints:N` for servers of the user's.
    pub shape: String,
    /// The server that was written to.
    pub writer: String,
    /// The server that was read.
    pub reader: String,
    /// The reader is the writer: nothing is replicated between them.
    pub null_replica: bool,
    /// The loads meanwhile, `none` without.
    pub load: String,
    /// Where they ran, seen from the measurement: `writer`, `reader`, `third`; empty without a load.
    pub load_on: String,
    /// How reads were made to wait; `off`, `before`, `after`, `before-and-after`, `gtid`.
    pub read_consistency: String,
    /// The statements by which that was done; empty without.
    pub guarantee: String,
    /// What became of the connections between rounds.
    pub session_reset: String,
    /// What was judged: `rounds`, or the `load`'s own reads.
    pub judged: String,
    /// Rounds with a read at once, refused and foreign ones not among them.
    pub rounds: u64,
    /// Of these, those whose first read was stale.
    pub stale: u64,
    /// Their share.
    pub stale_percent: Option<f64>,
    /// Its 95 % confidence interval, in percent.
    pub stale_percent_ci95: Option<[f64; 2]>,
    /// By how much dependence between neighbouring rounds inflates the variance; null when the run was too short to
    /// tell, and 1 was taken.
    pub inflation: Option<f64>,
    /// From the acknowledgement to the answer that showed the write, of stale rounds only.
    pub staleness: Distribution,
    /// What must not happen with synchronous reads.
    pub violations: Violations,
    /// Reads that the server refused because their wait took too long.
    pub refused: u64,
    /// Writes that were repeated after a conflict.
    pub conflicts: u64,
    /// Rounds spoilt by a write of somebody else's.
    pub foreign: u64,
    /// How many versions stale reads were behind.
    pub versions_behind: Vec<Behind>,
    /// The share of stale reads by the time after the acknowledgement.
    pub curve: Vec<CurvePoint>,
    /// How long to wait.
    pub fresh_after_us: FreshAfter,
    /// Writes, send to acknowledgement.
    pub write_latency: Distribution,
    /// First reads, from their issue to their answer.
    pub read_latency: Distribution,
    /// How much later than asked for the reads were issued.
    pub read_delay_error: Distribution,
    /// Rounds with a read at once per second.
    pub rounds_per_s: Option<f64>,
    /// What synchronous reads cost; null without.
    pub overhead: Option<Price>,
    /// The clearest violation of read-your-writes; null when there was none.
    pub witness: Option<Witness>,
    /// The clearest violation of monotonic reads; null when there was none.
    #[serde(default)]
    pub monotonic_witness: Option<Witness>,
    /// Delays over the course of the run.
    #[serde(default)]
    pub windows: Vec<Window>,
    /// The reader's configured delay, which every time includes; null when none.
    pub configured_delay_us: Option<f64>,
}

/// What a load met in a stretch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadWindow {
    /// The load, `WORKLOAD:THREADS@NODE`.
    pub load: String,
    /// Operations that ended in it.
    pub operations: u64,
    /// Half of them took less, from when each was due; two significant digits.
    pub p50_us: Option<f64>,
    /// 99 % did; of fewer than a hundred the slowest.
    pub p99_us: Option<f64>,
    /// The slowest.
    pub max_us: Option<f64>,
    /// How long the oldest operation under way at the end had been due.
    pub under_way_us: f64,
}

/// The larger one, of those that are there.
fn larger(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

impl LoadWindow {
    /// Joins the stretch that follows: of each figure the larger one stays.
    fn extend(&mut self, next: &Self) {
        self.operations += next.operations;
        self.p50_us = larger(self.p50_us, next.p50_us);
        self.p99_us = larger(self.p99_us, next.p99_us);
        self.max_us = larger(self.max_us, next.max_us);
        self.under_way_us = self.under_way_us.max(next.under_way_us);
    }
}

/// A stretch of a case: what our own requests met, and what the servers said meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleWindow {
    /// Beginning, since the case's.
    pub start_us: f64,
    /// End.
    pub end_us: f64,
    /// Rounds that ended in it.
    pub rounds: u64,
    /// First reads that were stale, of all readers.
    pub stale: u64,
    /// The slowest write that ended in it.
    pub write_max_us: Option<f64>,
    /// Their mean.
    pub write_mean_us: Option<f64>,
    /// The slowest first read.
    pub read_max_us: Option<f64>,
    /// The longest delay.
    pub staleness_max_us: Option<f64>,
    /// How long the request under way at the end had been under way.
    pub under_way_us: f64,
    /// How long the oldest acknowledged write had not been shown by a reader at the end, where rounds wait for that.
    #[serde(default)]
    pub unshown_us: f64,
    /// Counters of the servers, as `server name`: what they grew by, or what they were at the end, by their kind. A server
    /// that did not answer has none.
    pub counters: BTreeMap<String, f64>,
    /// Each load of the case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<LoadWindow>,
}

impl StaleWindow {
    /// Joins the window that follows.
    pub fn extend(&mut self, next: &Self) {
        let sum = |window: &Self| {
            window
                .write_mean_us
                .map_or(0.0, |mean| mean * window.rounds as f64)
        };
        let all = sum(self) + sum(next);
        self.end_us = next.end_us;
        self.rounds += next.rounds;
        self.stale += next.stale;
        self.write_mean_us = (self.rounds > 0).then(|| all / self.rounds as f64);
        self.write_max_us = larger(self.write_max_us, next.write_max_us);
        self.read_max_us = larger(self.read_max_us, next.read_max_us);
        self.staleness_max_us = larger(self.staleness_max_us, next.staleness_max_us);
        self.under_way_us = self.under_way_us.max(next.under_way_us);
        self.unshown_us = self.unshown_us.max(next.unshown_us);
        for (mine, theirs) in self.load.iter_mut().zip(&next.load) {
            mine.extend(theirs);
        }
        for (name, value) in &next.counters {
            let mine = self.counters.entry(name.clone()).or_insert(0.0);
            // What grows is summed; of what stands, the largest is kept.
            *mine = if name.ends_with('+') {
                *mine + value
            } else {
                mine.max(*value)
            };
        }
    }
}

/// A case's course.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleCourse {
    /// The shape.
    pub shape: String,
    /// The loads.
    pub load: String,
    /// How reads were made to wait.
    pub read_consistency: String,
    /// What became of the connections.
    pub session_reset: String,
    /// The stretches, in order; neighbours are joined when there are many.
    pub windows: Vec<StaleWindow>,
}

/// A load of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleLoad {
    /// The case's loads.
    pub case: String,
    /// How reads were made to wait meanwhile.
    pub read_consistency: String,
    /// What became of the connections meanwhile.
    pub session_reset: String,
    /// What it came to.
    #[serde(flatten)]
    pub record: LoadRecord,
}

/// The record of a `stale` run.
pub type StaleDocument = Envelope<StaleSettings, StaleResults>;

/// What a `stale` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleResults {
    /// The figures, a row for each case and reader.
    pub rows: Vec<StaleRow>,
    /// The course of each case.
    pub timelines: Vec<StaleCourse>,
    /// The loads that ran meanwhile.
    pub load: Vec<StaleLoad>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: usize, last_stale: Option<i64>, fresh_end: Option<i64>) -> StaleRead {
        StaleRead {
            last_stale: last_stale.map(Nanos),
            fresh_begin: fresh_end.map(|end| Nanos(end - 1)),
            fresh_end: fresh_end.map(Nanos),
            reads: 1,
            ..StaleRead::new(reader, Nanos(0), Nanos(1), Verdict::Fresh)
        }
    }

    fn round(reads: Vec<StaleRead>) -> StaleRound {
        let zero = Nanos(0);
        StaleRound {
            phase: StalePhase::AtOnce,
            round: 1,
            row: 1,
            offset: zero,
            send: zero,
            ack: zero,
            conflicts: 0,
            reset: None,
            reads,
        }
    }

    #[test]
    fn one_reader_after_another_may_go_back_in_time() {
        let back = round(vec![read(0, None, Some(10)), read(1, Some(12), Some(20))]);
        assert_eq!(
            back.across()
                .map(|(first, late)| (first.reader, late.reader)),
            Some((0, 1))
        );
        let both_read_at_the_same_time =
            round(vec![read(0, None, Some(10)), read(1, Some(9), Some(20))]);
        assert!(both_read_at_the_same_time.across().is_none());
        assert!(round(vec![read(0, Some(5), Some(10))]).across().is_none());
    }

    #[test]
    fn windows_add_up() {
        let window = |rounds: u64, mean: f64, name: &str| StaleWindow {
            rounds,
            write_mean_us: (rounds > 0).then_some(mean),
            counters: BTreeMap::from([(name.to_owned(), 2.0)]),
            ..StaleWindow::default()
        };
        let mut one = window(1, 10.0, "node1 paused+");
        one.extend(&window(3, 30.0, "node1 paused+"));
        assert_eq!(
            (one.rounds, one.write_mean_us, one.counters["node1 paused+"]),
            (4, Some(25.0), 4.0)
        );
    }
}
