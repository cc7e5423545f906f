//! The rounds of one case at one level of read consistency, of all starts of the servers.

use std::time::Duration;

use replimeter_engine::dialect::sync_reads::{AFTER_A_RESET, hint_of_early_wait};
use replimeter_instruments::{
    load::{GroupResult, Workload},
    stale::{
        changed_by_others,
        results::{
            FreshAfter, StaleLoad, StaleRead, StaleResults, StaleRound, StaleRow, StaleTimeline,
            StaleWindow, Verdict, Violations, Witness, WitnessStep,
        },
        settings::SessionReset,
        summary::StaleSummary,
    },
};
use replimeter_model::{
    bug::REPORT_BUG,
    load::LoadRecord,
    read_consistency::ReadConsistency,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_render::{figures::count, format::number};
use serde::{Deserialize, Serialize};

use super::{
    load::PlacedLoad,
    remedy::{SiteCase, SiteUse},
};
use crate::window_series::WindowSeries;

/// Maximum number of windows in the document; adjacent windows are joined above it.
const MAX_WINDOWS: usize = 1200;

/// What a page of a site shows, before the number of its round.
const POST: &str = "the post of round";

/// A violation, and its delay.
struct Violation {
    late: Nanos,
    witness: Witness,
}

/// One case at one level of read consistency.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CaseAccumulator {
    pub(super) shape: String,
    pub(super) load: String,
    /// Where its loads run, relative to the measurement.
    pub(super) load_on: String,
    /// The requested level of read consistency, and its meaning on these servers.
    pub(super) asked: ReadConsistency,
    pub(super) sync_reads: ReadConsistency,
    /// The reset of connections between rounds.
    pub(super) pool: SessionReset,
    /// The servers that are written to.
    pub(super) writers: Vec<String>,
    pub(super) readers: Vec<ReaderAccumulator>,
    /// The statements that write and read a version, of a checked load, with the parameter as `?`.
    pub(super) judged: Option<[String; 2]>,
    /// How a visitor of a site is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) site: Option<SiteCase>,
}

/// A server that is read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReaderAccumulator {
    pub(super) name: String,
    /// Whether it is also a writer.
    pub(super) writer: bool,
    /// How its reads are made to wait, in words, and whether they wait for a commit id.
    pub(super) guarantee: String,
    pub(super) by_commit_id: bool,
    /// Configured delay on the path to it.
    pub(super) delay: Duration,
}

impl CaseAccumulator {
    /// Returns whether it is the same case at the same level of read consistency, of another start.
    pub(super) fn is(&self, other: &Self) -> bool {
        let key = |case: &Self| {
            let place = (case.shape.clone(), case.load.clone());
            (place, case.asked, case.pool, case.site)
        };
        key(self) == key(other)
    }

    /// Returns the level of read consistency, or the remedy of the site.
    pub(super) fn level(&self) -> &'static str {
        self.site
            .map_or(self.sync_reads.name(), |site| site.remedy.name())
    }

    /// Returns what happens to connections.
    pub(super) fn connections(&self) -> &'static str {
        self.site.map_or(self.pool.name(), SiteCase::connections)
    }
}

/// Returns the warning about a violated guarantee.
fn broken(row: &StaleRow, case: &CaseAccumulator) -> Option<Warning> {
    let violations: &Violations = &row.violations;
    let promises = match case.site {
        Some(site) => site.promises_own_post(),
        None => case.asked != ReadConsistency::Off,
    };
    // A site promises nothing about the posts of others.
    let back = case
        .site
        .map_or(violations.monotonic_same_connection, |_| 0);
    if !promises || violations.read_your_writes + back == 0 {
        return None;
    }
    let hint = match case.pool {
        SessionReset::Keep => {
            "see the witness in the report, and check for a proxy or load balancer between client and server"
        }
        SessionReset::Reset | SessionReset::ChangeUser => AFTER_A_RESET,
    };
    let bug = format!("{REPORT_BUG}, with the witness: the site promises the visitor's own post");
    let hint = if let Some(early) = hint_of_early_wait(&row.guarantee) {
        early
    } else if case.site.is_some() {
        &bug
    } else {
        hint
    };
    Some(Warning::new(
        WarningCode::GuaranteeBroken,
        format!(
            "{} {}: the guarantee of synchronous reads was violated: {} of {} reads missed an acknowledged write, {} of {} returned an older \
             version than their own connection had read before ({}), connections: {}",
            row.shape,
            row.reader,
            count(violations.read_your_writes),
            count(violations.read_your_writes_of),
            count(violations.monotonic_same_connection),
            count(violations.monotonic_reads_of),
            row.guarantee,
            row.session_reset
        ),
        hint,
    ))
}

/// Returns the statements that write and read versions in checked loads.
pub(super) fn judged(loads: &[PlacedLoad<'_>]) -> [String; 2] {
    let first = |of: fn(&Workload) -> Option<&str>| {
        let found = loads.iter().find_map(|load| of(load.workload()));
        found
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    [
        first(Workload::writes_versions),
        first(Workload::reads_versions),
    ]
}

/// The rounds of one case, of all starts.
pub(super) struct CaseRounds {
    pub(super) case: CaseAccumulator,
    /// Whether a start of it ended, and in how many starts it was measured.
    pub(super) ended: bool,
    pub(super) starts: u32,
    loads: Vec<StaleLoad>,
    writer: String,
    pub(super) summaries: Vec<StaleSummary>,
    violations: Vec<[Option<Violation>; 2]>,
    timeline: WindowSeries<StaleWindow>,
    /// The time of the windows of earlier starts in µs.
    earlier_us: f64,
    /// Counted rounds, and others, whose row another client had changed in this start.
    foreign: [u64; 2],
    /// From the first counted write of this start to the last read, for a run that is cut off.
    pub(super) span: Option<[Nanos; 2]>,
    /// What the site did.
    pub(super) site: Option<SiteUse>,
}

impl CaseRounds {
    pub(super) fn new(case: CaseAccumulator) -> Self {
        Self {
            writer: case.writers.join(", "),
            ended: false,
            starts: 0,
            loads: Vec::new(),
            summaries: vec![StaleSummary::default(); case.readers.len()],
            violations: case.readers.iter().map(|_| [None, None]).collect(),
            timeline: WindowSeries::new(MAX_WINDOWS, StaleWindow::extend),
            earlier_us: 0.0,
            foreign: [0; 2],
            span: None,
            site: None,
            case,
        }
    }

    /// Separates the rounds that follow from those of earlier starts.
    pub(super) fn begin_start(&mut self) {
        self.summaries
            .iter_mut()
            .for_each(StaleSummary::begin_start);
        (self.foreign, self.span) = ([0; 2], None);
        let last = self.timeline.windows.last();
        self.earlier_us = last.map_or(0.0, |last| last.end_us);
    }

    /// Adds a round.
    pub(super) fn record(&mut self, round: &StaleRound) {
        use replimeter_instruments::stale::results::StalePhase::{AtOnce, Curve, Judged};
        let counted = matches!(round.phase, AtOnce | Curve);
        if counted || round.phase == Judged {
            let last = round.reads.iter().map(|read| read.end).max();
            let [_, end] = self.span.get_or_insert([round.send; 2]);
            *end = (*end).max(last.unwrap_or(round.ack));
        }
        if round.phase == Judged && round.reads.is_empty() {
            self.summaries
                .iter_mut()
                .for_each(|summary| summary.wrote(round));
        }
        let foreign = round
            .reads
            .iter()
            .any(|read| read.verdict == Verdict::Foreign);
        self.foreign[usize::from(!counted && round.phase != Judged)] += u64::from(foreign);
        for read in &round.reads {
            self.summaries[read.reader].record(round, read, read.fresh_end.is_some());
            let late = read.begin - round.ack;
            let counts = matches!(round.phase, AtOnce | Curve | Judged);
            if counts && read.verdict == Verdict::Stale && self.clearer(read.reader, 0, late) {
                let witness = self.read_your_writes(round, read);
                self.violations[read.reader][0] = Some(Violation { late, witness });
            }
            if counts
                && (read.went_back || read.went_back_across)
                && self.clearer(read.reader, 1, late)
            {
                let witness = self.went_back(round, read);
                self.violations[read.reader][1] = Some(Violation { late, witness });
            }
        }
        if let (true, Some((first, late))) = (counted, round.across()) {
            self.summaries[late.reader].went_back_across(round, late);
            let after = late
                .last_stale
                .zip(first.fresh_end)
                .map_or(Nanos(0), |(late, first)| late - first);
            if self.clearer(late.reader, 1, after) {
                let witness = self.monotonic(round, first, late);
                self.violations[late.reader][1] = Some(Violation {
                    late: after,
                    witness,
                });
            }
        }
    }

    /// Returns whether a violation is longer after its write than the recorded one, and so clearer.
    fn clearer(&self, reader: usize, kind: usize, late: Nanos) -> bool {
        self.violations[reader][kind]
            .as_ref()
            .is_none_or(|before| late > before.late)
    }

    /// Returns the write, after the reset of the connections if there was one.
    fn write(&self, round: &StaleRound) -> Vec<WitnessStep> {
        let reset = round.reset.map(|[begin, end]| WitnessStep {
            node: format!("{} and the readers", self.writer),
            statement: match self.case.pool {
                SessionReset::ChangeUser => "COM_CHANGE_USER".to_owned(),
                SessionReset::Keep | SessionReset::Reset => "COM_RESET_CONNECTION".to_owned(),
            },
            begin_us: (begin - round.send).as_micros(),
            end_us: (end - round.send).as_micros(),
            value: "session settings are cleared".to_owned(),
        });
        let write = WitnessStep {
            node: self.writer.clone(),
            statement: match &self.case.judged {
                _ if self.case.site.is_some() => format!("POST /insert (post {})", round.row),
                Some([write, _]) => format!("{write} (row {})", round.row),
                None => format!(
                    "UPDATE replimeter.probe SET k = {} WHERE id = {}",
                    round.round, round.row
                ),
            },
            begin_us: 0.0,
            end_us: (round.ack - round.send).as_micros(),
            value: match &self.case.judged {
                Some(_) => format!("version {} acknowledged", round.round),
                None => "acknowledged".to_owned(),
            },
        };
        reset.into_iter().chain([write]).collect()
    }

    fn read(
        &self,
        round: &StaleRound,
        read: &StaleRead,
        [begin, end]: [Nanos; 2],
        value: String,
    ) -> WitnessStep {
        let ReaderAccumulator {
            name,
            guarantee,
            by_commit_id,
            ..
        } = &self.case.readers[read.reader];
        let before = if *by_commit_id && read.waited {
            format!("{guarantee}; ")
        } else {
            String::new()
        };
        WitnessStep {
            node: name.clone(),
            statement: match &self.case.judged {
                _ if self.case.site.is_some() => "GET /".to_owned(),
                Some([_, read]) => format!("{before}{read} (row {})", round.row),
                None => format!(
                    "{before}SELECT k FROM replimeter.probe WHERE id = {}",
                    round.row
                ),
            },
            begin_us: (begin - round.send).as_micros(),
            end_us: (end - round.send).as_micros(),
            value,
        }
    }

    /// Returns what a read showed, before its number.
    fn what(&self) -> &'static str {
        match self.case {
            CaseAccumulator { site: Some(_), .. } => POST,
            CaseAccumulator {
                judged: Some(_), ..
            } => "version",
            _ => "k =",
        }
    }

    fn read_your_writes(&self, round: &StaleRound, read: &StaleRead) -> Witness {
        let what = self.what();
        let versions = if what == POST { "post" } else { "version" };
        let versions = if read.behind == 1 {
            format!("one {versions}")
        } else {
            number(read.behind, versions)
        };
        let value = format!("{what} {}, {versions} behind", read.seen);
        let mut steps = self.write(round);
        steps.push(self.read(round, read, [read.begin, read.end], value));
        Witness {
            guarantee: "read-your-writes".to_owned(),
            round: round.round,
            steps,
        }
    }

    /// Returns the witness of a read that returned an older version than its connection, or another one of
    /// the load, had read.
    fn went_back(&self, round: &StaleRound, read: &StaleRead) -> Witness {
        let what = self.what();
        let who = if read.went_back {
            "this connection"
        } else {
            "another connection"
        };
        let value = format!(
            "{what} {}; {who} had read {what} {} before",
            read.seen, read.newer
        );
        let mut steps = self.write(round);
        steps.push(self.read(round, read, [read.begin, read.end], value));
        Witness {
            guarantee: "monotonic-reads".to_owned(),
            round: round.round,
            steps,
        }
    }

    fn monotonic(&self, round: &StaleRound, first: &StaleRead, late: &StaleRead) -> Witness {
        let shown = [first.fresh_begin, first.fresh_end].map(Option::unwrap_or_default);
        let issued = late.last_stale.unwrap_or_default();
        let mut steps = self.write(round);
        steps.extend([
            self.read(round, first, shown, format!("k = {}", round.round)),
            // Of the reads after the first one, only the start time is kept.
            self.read(
                round,
                late,
                [issued, late.fresh_begin.unwrap_or(late.end).max(issued)],
                "an older version".to_owned(),
            ),
        ]);
        Witness {
            guarantee: "monotonic-reads".to_owned(),
            round: round.round,
            steps,
        }
    }

    /// Returns the warning about rounds of this start whose row another client had changed; uncounted rounds are included
    /// only if there are no counted ones.
    pub(super) fn warn_of_foreign(&self) -> Option<Warning> {
        let [counted, before] = self.foreign;
        let foreign = if counted > 0 { counted } else { before };
        let of_load = || {
            Warning::new(
                WarningCode::ChangedByOthers,
                format!(
                    "{foreign} reads of the load found no version in a written row: another client deletes rows; these reads are excluded"
                ),
                "stop other clients that write to the load's tables, then run again",
            )
        };
        (foreign > 0).then(|| match self.case.judged {
            Some(_) => of_load(),
            None => changed_by_others(foreign),
        })
    }

    /// Returns the warning about a load that completed no operation.
    pub(super) fn unfinished(&self, load: &GroupResult) -> Option<Warning> {
        let case = &self.case;
        let read = if case.asked == ReadConsistency::Off && case.site.is_none() {
            String::new()
        } else {
            format!(" (reads: {})", case.level())
        };
        (load.operations == 0 && load.failed == 0).then(|| {
            Warning::new(
                WarningCode::LoadUnfinished,
                format!(
                    "{}: the rounds of the case {}{read} ended before its load completed one operation, so they cover only part of an operation",
                    case.shape, case.load
                ),
                "use more --rounds, or a time such as --duration 60s",
            )
        })
    }

    /// Adds the results of a load in this start.
    pub(super) fn add_load(&mut self, load: &GroupResult, start: u32) {
        let case = &self.case;
        self.loads.push(StaleLoad {
            case: case.load.clone(),
            read_consistency: case.level().to_owned(),
            session_reset: case.connections().to_owned(),
            start,
            record: LoadRecord {
                shape: case.shape.clone(),
                ..load.record()
            },
        });
    }

    /// Adds a window, whose times are from the beginning of its start; the windows of each start follow those of the one before.
    pub(super) fn window(&mut self, mut window: StaleWindow) {
        window.start_us += self.earlier_us;
        window.end_us += self.earlier_us;
        self.timeline.push(&[window]);
    }

    /// Returns a row per reader, without witnesses.
    pub(super) fn rows(&self) -> Vec<StaleRow> {
        let case = &self.case;
        let judged = if case.judged.is_some() {
            "load"
        } else {
            "rounds"
        };
        let readers = self.summaries.iter().zip(&case.readers);
        let row = |(summary, reader): (&StaleSummary, &ReaderAccumulator)| {
            let delay = reader.delay.as_secs_f64() * 1e6;
            let mut row = StaleRow {
                shape: case.shape.clone(),
                writer: self.writer.clone(),
                reader: reader.name.clone(),
                // Writes of other clients replicate to the first writer too.
                null_replica: reader.writer && case.writers.len() == 1,
                guarantee: reader.guarantee.clone(),
                load: case.load.clone(),
                load_on: case.load_on.clone(),
                read_consistency: case.level().to_owned(),
                session_reset: case.connections().to_owned(),
                judged: judged.to_owned(),
                configured_delay_us: (!reader.delay.is_zero()).then_some(delay),
                ..summary.row()
            };
            if case.site.is_some_and(|site| site.several) {
                // A post that one server showed can be missing on the next: the first page that shows it does not end the wait.
                row.fresh_after_us = FreshAfter::default();
            }
            row
        };
        readers.map(row).collect()
    }

    /// Adds the rows, one per reader, the windows and the loads to the results, and warnings about them.
    pub(super) fn finish(self, results: &mut StaleResults, warnings: &mut Vec<Warning>) {
        let case = &self.case;
        for (row, violations) in self.rows().into_iter().zip(self.violations) {
            let [witness, monotonic_witness] = violations.map(|violation| Some(violation?.witness));
            let row = StaleRow {
                witness,
                monotonic_witness,
                ..row
            };
            warnings.extend(broken(&row, case));
            if let Some(site) = &self.site {
                results.site.push(site.cost(&row));
            }
            results.rows.push(row);
        }
        results.timelines.push(StaleTimeline {
            shape: case.shape.clone(),
            load: case.load.clone(),
            read_consistency: case.level().to_owned(),
            session_reset: case.connections().to_owned(),
            windows: self.timeline.windows,
        });
        results.load.extend(self.loads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_a_start_follow_those_before() {
        let mut rounds = CaseRounds::new(case());
        for _ in 0..3 {
            rounds.begin_start();
            for second in 0..4 {
                rounds.window(StaleWindow {
                    start_us: f64::from(second),
                    end_us: f64::from(second + 1),
                    ..StaleWindow::default()
                });
            }
        }
        let times: Vec<f64> = rounds
            .timeline
            .windows
            .iter()
            .map(|one| one.start_us)
            .collect();
        assert_eq!(times, (0..12).map(f64::from).collect::<Vec<_>>());
    }

    fn case() -> CaseAccumulator {
        CaseAccumulator {
            shape: "async:1".to_owned(),
            load: "none".to_owned(),
            load_on: String::new(),
            asked: ReadConsistency::Off,
            sync_reads: ReadConsistency::Off,
            pool: SessionReset::Keep,
            writers: vec!["a".to_owned()],
            readers: Vec::new(),
            judged: None,
            site: None,
        }
    }

    #[test]
    fn long_case_is_merged_into_few_complete_windows() {
        let mut accumulator = CaseRounds::new(case());
        for second in 0..10_007u64 {
            accumulator.window(StaleWindow {
                start_us: second as f64,
                end_us: (second + 1) as f64,
                rounds: 1,
                ..StaleWindow::default()
            });
        }
        let windows = accumulator.timeline.windows;
        assert!(windows.len() <= MAX_WINDOWS, "{}", windows.len());
        assert_eq!(
            windows.iter().map(|window| window.rounds).sum::<u64>(),
            10_007
        );
        assert!(
            windows
                .windows(2)
                .all(|pair| pair[0].end_us == pair[1].start_us)
        );
    }
}
