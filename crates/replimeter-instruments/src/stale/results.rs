//! The samples and the record of a `stale` run.

use std::collections::BTreeMap;

use replimeter_model::{
    envelope::Envelope,
    load::LoadRecord,
    record::{Distribution, StartSpread, Window, first_start, is_first_start},
    time::Nanos,
    words,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stale::settings::StaleSettings;

mod remedy;

pub use self::remedy::RemedyCost;

words! {
    /// Purpose of a round.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum StalePhase {
        /// Not counted.
        WarmUp = "warm-up",
        /// For the overhead of synchronous reads: read without.
        Plain = "plain",
        /// For the overhead of synchronous reads: read with.
        Synced = "synced",
        /// Read at once after the acknowledgement.
        AtOnce = "at-once",
        /// Read at a chosen time after it.
        Curve = "curve",
        /// A write, or a read, of traffic that is checked.
        Judged = "judged",
    }
}

words! {
    /// Result of a round's first read on a reader.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict {
        /// It showed the write, or (with the pace `ack`) a later one of this run.
        Fresh = "fresh",
        /// It showed an older version.
        Stale = "stale",
        /// The server refused it, because the wait before it took too long.
        Refused = "refused",
        /// It showed a value that another client must have written.
        Foreign = "foreign",
    }
}

/// Observation of one round on one reader.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct StaleRead {
    /// The reader's number.
    pub reader: usize,
    /// Time of issue of the first read.
    pub begin: Nanos,
    /// Time of its answer.
    pub end: Nanos,
    /// Result of the first read.
    pub verdict: Verdict,
    /// The version that it showed; the number of a round, 0 for the initial row.
    pub seen: u64,
    /// Number of newer versions of the row, up to the one that was just acknowledged.
    pub behind: u32,
    /// Time of issue of the last read that did not show the write.
    pub last_stale: Option<Nanos>,
    /// Time of issue of the first read that showed it.
    pub fresh_begin: Option<Nanos>,
    /// Time of that read's answer.
    pub fresh_end: Option<Nanos>,
    /// Reads of this round.
    pub reads: u32,
    /// Whether it showed an older version of the row than this connection had seen before.
    pub went_back: bool,
    /// Whether it showed an older version than any read of this run had returned before it was issued; for checked traffic only.
    pub went_back_across: bool,
    /// The newer version that had been shown before, when it went back; otherwise 0.
    pub newer: u64,
    /// Whether a wait for the write's GTID was sent before it.
    pub waited: bool,
}

impl StaleRead {
    /// Returns the observation of a single read, issued at `begin` and answered at `end`; reads
    /// before and after it are not known yet.
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

/// One round: a write, and its observation on every reader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StaleRound {
    /// Purpose of the round.
    pub phase: StalePhase,
    /// Number of the round; the value that it wrote into the row.
    pub round: u64,
    /// The row's id.
    pub row: u64,
    /// Scheduled time of the first reads, after the acknowledgement.
    pub offset: Nanos,
    /// Time at which the write was sent.
    pub send: Nanos,
    /// Time at which it was acknowledged.
    pub ack: Nanos,
    /// Number of repetitions of the write after a conflict.
    pub conflicts: u32,
    /// Begin and end of the reset of connections before it, as by a pool; `None` without one.
    pub reset: Option<[Nanos; 2]>,
    /// Observations of the readers.
    pub reads: Vec<StaleRead>,
}

impl StaleRound {
    /// Returns the first reader that had shown the write before another one was read and did not show it, with
    /// that other reader: a client that reads one after the other goes back in time.
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

/// Violations of guarantees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Violations {
    /// First reads that did not show the client's own acknowledged write: at once and, where there
    /// is a curve, at its times.
    pub read_your_writes: u64,
    /// Reads that were checked for this.
    #[serde(default)]
    pub read_your_writes_of: u64,
    /// Reads that showed an older version of a row than an earlier read: on the same connection,
    /// or, by a client that asks one reader after another, on another reader.
    pub monotonic_reads: u64,
    /// Reads that were checked for this.
    #[serde(default)]
    pub monotonic_reads_of: u64,
    /// Violations of monotonic reads on the same connection.
    #[serde(default)]
    pub monotonic_same_connection: u64,
    /// Upper bound of the share of read-your-writes violations, with 97.5 % confidence, in percent.
    #[serde(default)]
    pub read_your_writes_percent_upper_bound: f64,
    /// Upper bound of the share of violations of monotonic reads, with 97.5 % confidence, in
    /// percent.
    #[serde(default)]
    pub monotonic_reads_percent_upper_bound: f64,
}

/// One point of the curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// Median of the delays after the acknowledgement at which the reads were issued.
    pub after_us: f64,
    /// Delay at which the reads were scheduled.
    pub asked_us: f64,
    /// Reads.
    pub reads: u64,
    /// Stale reads among these.
    pub stale: u64,
    /// Share of stale reads, from 0 to 1.
    pub probability: f64,
    /// 95 % confidence interval of the share.
    pub probability_ci95: [f64; 2],
    /// 1st and 99th percentile of the delays at which the reads were issued; null for fewer than a
    /// thousand reads.
    pub achieved_us: Option<[f64; 2]>,
}

/// Time to wait after an acknowledgement until a share of the reads is fresh, in microseconds;
/// null for too few rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FreshAfter {
    /// Time for 99 % of the reads; 0 when more are fresh at once.
    pub p99: Option<f64>,
    /// Time for 99.9 % of the reads.
    pub p999: Option<f64>,
    /// 95 % confidence interval of `p99`; null from 2 to 21 starts of the servers, and where few of them decide it.
    pub p99_ci95: Option<[f64; 2]>,
    /// 95 % confidence interval of `p999`.
    pub p999_ci95: Option<[f64; 2]>,
    /// `p99` of each start of the servers; absent for fewer than two starts with five reads beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_starts: Option<StartSpread>,
    /// `p999` of each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_starts: Option<StartSpread>,
    /// Longest wait of a round for its write, if it took more than 1 % (0.1 %) of the time: `p99` (`p999`) would describe
    /// that round alone and is null. Missing where no time is null for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by_us: Option<f64>,
}

/// Reads that were a number of versions behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionsBehind {
    /// Versions of the row that the read did not show.
    pub versions: u32,
    /// Number of first reads.
    pub reads: u64,
}

/// Overhead of synchronous reads, from rounds that alternate with and without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadOverhead {
    /// Latency of reads without, from issue to answer.
    pub read_without: Distribution,
    /// Latency of reads with, including a wait before the read.
    pub read_with: Distribution,
    /// Latency of writes without, from send to acknowledgement.
    pub write_without: Distribution,
    /// Latency of writes with.
    pub write_with: Distribution,
}

/// One statement of a witness.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WitnessStep {
    /// The server.
    pub node: String,
    /// The statement.
    pub statement: String,
    /// Time of issue, since the write was sent.
    pub begin_us: f64,
    /// Time of the answer, since the write was sent.
    pub end_us: f64,
    /// Value that was written or shown.
    pub value: String,
}

/// Shortest sequence of statements that shows a violation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Witness {
    /// `read-your-writes` or `monotonic-reads`.
    pub guarantee: String,
    /// Number of the round.
    pub round: u64,
    /// The statements, in order.
    pub steps: Vec<WitnessStep>,
}

/// Reads of one reader in one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleRow {
    /// Shape of the sandbox, or `endpoints:N` for the user's servers.
    pub shape: String,
    /// Server that was written to.
    pub writer: String,
    /// Server that was read.
    pub reader: String,
    /// Whether the reader is the writer: nothing is replicated between them.
    pub null_replica: bool,
    /// Background loads, `none` without.
    pub load: String,
    /// Servers of the loads, seen from the measurement: `writer`, `reader`, `third`; empty without
    /// a load.
    pub load_on: String,
    /// Way in which reads wait: `off`, `before`, `after`, `before-and-after`, `gtid`.
    pub read_consistency: String,
    /// Statements that make reads wait; empty without.
    pub guarantee: String,
    /// Reset of connections between rounds: `keep`, `reset` or `change-user`.
    pub session_reset: String,
    /// Reads that are judged: `rounds`, or the `load`'s own reads.
    pub judged: String,
    /// Rounds with a read at once, without refused and foreign ones.
    pub rounds: u64,
    /// Rounds whose first read was stale.
    pub stale: u64,
    /// Share of stale rounds, in percent.
    pub stale_percent: Option<f64>,
    /// 95 % confidence interval of the share, in percent: of starts of the servers like those of the run.
    pub stale_percent_ci95: Option<[f64; 2]>,
    /// The share in each start of the servers, in percent; absent for fewer than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_percent_starts: Option<StartSpread>,
    /// Share of the time in which a write, read at once, would have been stale, in percent: the rounds, and those that
    /// would have begun while a round waited. Null for the reads of a load, which wait for no round.
    #[serde(default)]
    pub stale_percent_over_time: Option<f64>,
    /// 95 % confidence interval of `stale_percent_over_time`, from windows of time; null for a short run.
    #[serde(default)]
    pub stale_percent_over_time_ci95: Option<[f64; 2]>,
    /// Rounds that would have begun while a round waited, at the median interval of rounds.
    #[serde(default)]
    pub withheld_rounds: u64,
    /// Longest time from the acknowledgement of a round to that of the next one; null without two rounds.
    #[serde(default)]
    pub longest_round_us: Option<f64>,
    /// Factor by which dependence between neighboring rounds increases the variance; null when the
    /// run was too short to estimate it, and 1 was taken.
    pub inflation: Option<f64>,
    /// Time from the acknowledgement to the answer that showed the write, of stale rounds only.
    pub staleness: Distribution,
    /// Violations of guarantees.
    pub violations: Violations,
    /// Reads that the server refused because their wait took too long.
    pub refused: u64,
    /// Writes that were repeated after a conflict.
    pub conflicts: u64,
    /// Rounds whose row another client changed.
    pub foreign: u64,
    /// Numbers of versions that stale reads were behind.
    pub versions_behind: Vec<VersionsBehind>,
    /// Share of stale reads by the time after the acknowledgement.
    pub curve: Vec<CurvePoint>,
    /// Time to wait for fresh reads.
    pub fresh_after_us: FreshAfter,
    /// Latency of writes, from send to acknowledgement.
    pub write_latency: Distribution,
    /// Latency of first reads, from issue to answer.
    pub read_latency: Distribution,
    /// Difference between the actual and the scheduled time at which reads were issued.
    pub read_delay_error: Distribution,
    /// Rounds with a read at once per second.
    pub rounds_per_s: Option<f64>,
    /// Overhead of synchronous reads; null without.
    pub overhead: Option<ReadOverhead>,
    /// Clearest violation of read-your-writes; null without one.
    pub witness: Option<Witness>,
    /// Clearest violation of monotonic reads; null without one.
    #[serde(default)]
    pub monotonic_witness: Option<Witness>,
    /// Staleness in consecutive windows of the run.
    #[serde(default)]
    pub windows: Vec<Window>,
    /// Configured delay of the reader, which every time includes; null without one.
    pub configured_delay_us: Option<f64>,
}

/// Operations of a load in one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadWindow {
    /// The load, `WORKLOAD:THREADS@NODE`.
    pub load: String,
    /// Operations that ended in the window.
    pub operations: u64,
    /// Median latency since each operation was due; two significant digits.
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency; the largest of fewer than a hundred.
    pub p99_us: Option<f64>,
    /// Largest latency.
    pub max_us: Option<f64>,
    /// Time since the oldest unfinished operation at the end was due.
    pub under_way_us: f64,
}

/// Returns the larger of the values that exist.
fn larger(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

impl LoadWindow {
    /// Joins the window that follows, with the larger value of each figure.
    fn extend(&mut self, next: &Self) {
        self.operations += next.operations;
        self.p50_us = larger(self.p50_us, next.p50_us);
        self.p99_us = larger(self.p99_us, next.p99_us);
        self.max_us = larger(self.max_us, next.max_us);
        self.under_way_us = self.under_way_us.max(next.under_way_us);
    }
}

/// One window of a case: requests of the measurement, and counters of the servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleWindow {
    /// Start of the window, since the start of the case.
    pub start_us: f64,
    /// End of the window, since the start of the case.
    pub end_us: f64,
    /// Rounds that ended in the window.
    pub rounds: u64,
    /// Stale first reads, of all readers.
    pub stale: u64,
    /// Largest latency of a write that ended in the window.
    pub write_max_us: Option<f64>,
    /// Mean latency of these writes.
    pub write_mean_us: Option<f64>,
    /// Largest latency of a first read.
    pub read_max_us: Option<f64>,
    /// Longest staleness.
    pub staleness_max_us: Option<f64>,
    /// Time for which the unfinished request at the end had been in progress.
    pub under_way_us: f64,
    /// Time for which the oldest acknowledged write had not been shown by a reader at the end,
    /// where rounds wait for that.
    #[serde(default)]
    pub unshown_us: f64,
    /// Counters of the servers, as `server name`: their growth, or their value at the end, by
    /// kind. A server that did not answer has none.
    pub counters: BTreeMap<String, f64>,
    /// Loads of the case.
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
            // Growth is summed; of states, the largest is kept.
            *mine = if name.ends_with('+') {
                *mine + value
            } else {
                mine.max(*value)
            };
        }
    }
}

/// Timeline of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleTimeline {
    /// The shape.
    pub shape: String,
    /// Background loads.
    pub load: String,
    /// Way in which reads wait.
    pub read_consistency: String,
    /// Reset of connections between rounds.
    pub session_reset: String,
    /// Consecutive windows; neighboring ones are joined when there are many.
    pub windows: Vec<StaleWindow>,
}

/// A load of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleLoad {
    /// Background loads of the case.
    pub case: String,
    /// Way in which reads wait.
    pub read_consistency: String,
    /// Reset of connections between rounds.
    pub session_reset: String,
    /// The start of the servers, from 1; absent for the first.
    #[serde(default = "first_start", skip_serializing_if = "is_first_start")]
    pub start: u32,
    /// Result of the load.
    #[serde(flatten)]
    pub record: LoadRecord,
}

/// The record of a `stale` run.
pub type StaleDocument = Envelope<StaleSettings, StaleResults>;

/// Results of a `stale` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StaleResults {
    /// Figures: one row for each case and reader.
    pub rows: Vec<StaleRow>,
    /// Timeline of each case.
    pub timelines: Vec<StaleTimeline>,
    /// Background loads.
    pub load: Vec<StaleLoad>,
    /// What the remedies of a site cost; empty without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub site: Vec<RemedyCost>,
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
    fn monotonic_reads_are_checked_across_readers() {
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
    fn stale_windows_are_merged() {
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
