//! What one case comes to while it is measured.

use replimeter_measure::load::Workload;
use replimeter_model::{
    plan::Pool,
    stale::{StaleRead, StaleRound, StaleRow, StaleWindow, Verdict, Witness, WitnessStep},
    time::Nanos,
};
use replimeter_report::figures::count;
use replimeter_server::flavour::sync_reads::Guarantee;
use replimeter_stats::stale::StaleSummary;

use super::load::Placed;
use crate::course::Course;

/// Stretches in the document; neighbours are joined when there would be more.
const MOST_WINDOWS: usize = 1200;

/// A violation, and how late it was.
struct Violation {
    late: Nanos,
    witness: Witness,
}

/// The rounds of one case.
pub(super) struct Gathered {
    writer: String,
    names: Vec<String>,
    /// The words of each reader's guarantee, and whether a GTID is waited for.
    guarantees: Vec<(String, bool)>,
    summaries: Vec<StaleSummary>,
    violations: Vec<[Option<Violation>; 2]>,
    course: Course<StaleWindow>,
    /// The statements that write and read a version, of a load that is judged, with the parameter as `?`.
    statements: Option<[String; 2]>,
    /// Rounds that count, and others, whose row somebody else had changed.
    foreign: [u64; 2],
    /// What resets the connections between rounds.
    pool: Pool,
}

impl Gathered {
    pub(super) fn new(
        writer: &str,
        names: &[String],
        guarantees: &[Guarantee],
        pool: Pool,
    ) -> Self {
        Self {
            writer: writer.to_owned(),
            names: names.to_vec(),
            guarantees: guarantees
                .iter()
                .map(|guarantee| (guarantee.words.clone(), guarantee.gtid))
                .collect(),
            summaries: vec![StaleSummary::default(); names.len()],
            violations: names.iter().map(|_| [None, None]).collect(),
            course: Course::new(MOST_WINDOWS, StaleWindow::extend),
            statements: None,
            foreign: [0; 2],
            pool,
        }
    }

    /// What is judged are the statements of loads.
    pub(super) fn judges(&mut self, loads: &[Placed<'_>]) {
        let first = |of: fn(&Workload) -> Option<&str>| {
            let found = loads.iter().find_map(|load| of(load.workload()));
            found
                .unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        self.statements = Some([
            first(Workload::writes_versions),
            first(Workload::reads_versions),
        ]);
    }

    /// Adds a round.
    pub(super) fn record(&mut self, round: &StaleRound) {
        use replimeter_model::stale::StalePhase::{AtOnce, Curve, Judged};
        let counted = matches!(round.phase, AtOnce | Curve);
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
            self.summaries[late.reader].went_back_across();
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

    /// Whether a violation is later than the one kept, and so clearer.
    fn clearer(&self, reader: usize, kind: usize, late: Nanos) -> bool {
        self.violations[reader][kind]
            .as_ref()
            .is_none_or(|before| late > before.late)
    }

    /// The write, after the reset of the connections where there was one.
    fn write(&self, round: &StaleRound) -> Vec<WitnessStep> {
        let reset = round.reset.map(|[begin, end]| WitnessStep {
            node: format!("{} and the readers", self.writer),
            statement: match self.pool {
                Pool::ChangeUser => "COM_CHANGE_USER".to_owned(),
                Pool::Keep | Pool::Reset => "COM_RESET_CONNECTION".to_owned(),
            },
            begin_us: (begin - round.send).as_micros(),
            end_us: (end - round.send).as_micros(),
            value: "what the sessions were set to is forgotten".to_owned(),
        });
        let write = WitnessStep {
            node: self.writer.clone(),
            statement: match &self.statements {
                Some([write, _]) => format!("{write} (row {})", round.row),
                None => format!(
                    "UPDATE replimeter.lag_probe SET k = {} WHERE id = {}",
                    round.round, round.row
                ),
            },
            begin_us: 0.0,
            end_us: (round.ack - round.send).as_micros(),
            value: match &self.statements {
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
        let (words, gtid) = &self.guarantees[read.reader];
        let before = if *gtid && read.waited {
            format!("{words}; ")
        } else {
            String::new()
        };
        WitnessStep {
            node: self.names[read.reader].clone(),
            statement: match &self.statements {
                Some([_, read]) => format!("{before}{read} (row {})", round.row),
                None => format!(
                    "{before}SELECT k FROM replimeter.lag_probe WHERE id = {}",
                    round.row
                ),
            },
            begin_us: (begin - round.send).as_micros(),
            end_us: (end - round.send).as_micros(),
            value,
        }
    }

    fn read_your_writes(&self, round: &StaleRound, read: &StaleRead) -> Witness {
        let versions = if read.behind == 1 {
            "one version".to_owned()
        } else {
            format!("{} versions", count(read.behind.into()))
        };
        let what = if self.statements.is_some() {
            "version"
        } else {
            "k ="
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

    /// A read that went back behind what its connection, or another one of the load, had been shown.
    fn went_back(&self, round: &StaleRound, read: &StaleRead) -> Witness {
        let what = if self.statements.is_some() {
            "version"
        } else {
            "k ="
        };
        let who = if read.went_back {
            "this connection"
        } else {
            "another connection"
        };
        let value = format!(
            "{what} {}; {who} had been shown {what} {} before",
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
            // Of the reads after the first one only the beginning is kept.
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

    /// Rounds whose row somebody else had changed; those before the ones that count only where there were no others.
    pub(super) fn foreign(&self) -> u64 {
        let [counted, before] = self.foreign;
        if counted > 0 { counted } else { before }
    }

    /// Adds a stretch.
    pub(super) fn window(&mut self, window: StaleWindow) {
        self.course.push(&[window]);
    }

    /// The rows, one for each reader, and the course.
    pub(super) fn finish(self) -> (Vec<StaleRow>, Vec<StaleWindow>) {
        let rows = self.summaries.iter().zip(self.violations).enumerate().map(
            |(index, (summary, violations))| {
                let [witness, monotonic_witness] =
                    violations.map(|violation| Some(violation?.witness));
                StaleRow {
                    writer: self.writer.clone(),
                    reader: self.names[index].clone(),
                    guarantee: self.guarantees[index].0.clone(),
                    witness,
                    monotonic_witness,
                    ..summary.row()
                }
            },
        );
        (rows.collect(), self.course.windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_case_is_told_in_few_windows_and_nothing_is_lost() {
        let mut gathered = Gathered::new("a", &["b".to_owned()], &[], Pool::Keep);
        for second in 0..10_007u64 {
            gathered.window(StaleWindow {
                start_us: second as f64,
                end_us: (second + 1) as f64,
                rounds: 1,
                ..StaleWindow::default()
            });
        }
        let windows = gathered.course.windows;
        assert!(windows.len() <= MOST_WINDOWS, "{}", windows.len());
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
