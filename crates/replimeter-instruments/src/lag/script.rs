//! The order of writes, step by step.

use std::sync::atomic::{AtomicU64, Ordering};

use replimeter_model::{
    load::Arrivals,
    plan::{StopCondition, WarmUp},
    random::Random,
    time::Nanos,
    time_span::TimeSpan,
};

use crate::lag::{
    sample::Phase,
    settings::{LagPlan, Pace, WritePattern},
};

/// Pace of the floor's rounds: fast, but slow enough for the observer to return to its loop. Their intervals are constant:
/// rounds of reads and of selects must not overlap, and five rounds meet five moments of a quota's usual 10 ms.
const FLOOR_PACE: Pace = Pace::Interval(TimeSpan::from_millis(2));

/// Consecutive rows of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) phase: Phase,
    pub(super) sweep: u32,
    pub(super) index: u32,
    pub(super) size: u64,
    /// Number of rows; `None` to continue until the time is over.
    pub(super) rows: Option<u64>,
    /// Pause before the first row, after which the table is emptied.
    pub(super) pause: Option<TimeSpan>,
}

/// All steps of one part of a run.
#[derive(Clone, Debug)]
pub(super) struct Script {
    steps: Vec<Step>,
    /// For each step, the number of writes up to its end.
    ends: Vec<u64>,
    /// A warm-up by time, which comes before the steps.
    warm_up: Option<(Step, TimeSpan)>,
    pub(super) pace: Pace,
    arrivals: Arrivals,
    seed: u64,
    /// Duration of the part, counted from the first counted row.
    pub(super) elapsed: Option<TimeSpan>,
}

fn rows(phase: Phase, size: u64, rows: Option<u64>) -> Step {
    Step {
        phase,
        sweep: 0,
        index: 0,
        size,
        rows,
        pause: None,
    }
}

impl Script {
    fn of(steps: Vec<Step>, pace: Pace, elapsed: Option<TimeSpan>) -> Self {
        let ends = steps.iter().scan(0u64, |end, step| {
            *end = end.saturating_add(step.rows.unwrap_or(u64::MAX));
            Some(*end)
        });
        Self {
            ends: ends.collect(),
            steps,
            warm_up: None,
            pace,
            arrivals: Arrivals::Constant,
            seed: 0,
            elapsed,
        }
    }

    /// Returns a script with one small row, to check that it arrives.
    pub(super) fn single_row() -> Self {
        Self::of(vec![rows(Phase::WarmUp, 1, Some(1))], Pace::Visible, None)
    }

    /// Returns the floor's rounds with the plan's first size. Every other round is for the reference.
    pub(super) fn floor(plan: &LagPlan) -> Self {
        Self::of(
            vec![rows(
                Phase::Floor,
                plan.first_size(),
                Some(plan.floor_rounds * 2),
            )],
            FLOOR_PACE,
            None,
        )
    }

    /// Returns the script of the plan.
    pub(super) fn measure(plan: &LagPlan) -> Self {
        let mut steps = Vec::new();
        let mut warm_up = None;
        match plan.warm_up {
            WarmUp::Rounds(0) => {}
            WarmUp::Rounds(count) => {
                steps.push(rows(Phase::WarmUp, plan.first_size(), Some(count)));
            }
            WarmUp::Time(span) => {
                warm_up = Some((rows(Phase::WarmUp, plan.first_size(), None), span));
            }
        }
        let mut elapsed = None;
        match &plan.writes {
            WritePattern::Rounds { until, size } => {
                let count = match until {
                    StopCondition::Rounds(count) => Some(*count),
                    StopCondition::Elapsed(span) => {
                        elapsed = Some(*span);
                        None
                    }
                };
                steps.push(rows(Phase::Measure, *size, count));
            }
            WritePattern::Sweep {
                sizes,
                per_step,
                pause,
                sweeps,
            } => {
                for sweep in 0..*sweeps {
                    for (index, size) in (0..).zip(sizes.steps()) {
                        steps.push(Step {
                            phase: Phase::Measure,
                            sweep,
                            index,
                            size: *size,
                            rows: Some(u64::from(*per_step)),
                            pause: Some(*pause),
                        });
                    }
                }
            }
        }
        Self {
            warm_up,
            arrivals: plan.row_arrivals,
            seed: plan.seed,
            ..Self::of(steps, plan.pace, elapsed)
        }
    }

    /// Returns the phase of a row: in the floor every other row is for the reference.
    pub(super) fn phase_of(step: &Step, row: u64) -> Phase {
        if step.phase == Phase::Floor && row % 2 == 1 {
            Phase::ReferenceSelect
        } else {
            step.phase
        }
    }

    /// Returns the step of a write (numbered from 0 over the whole script) and its row in this
    /// step, from 1; `warmed` has the number of writes of a warm-up by time.
    pub(super) fn row_at(&self, number: u64, warmed: &Warmed) -> Option<(&Step, u64)> {
        let warmed = warmed.writes();
        let number = match &self.warm_up {
            Some((step, _)) if number < warmed => return Some((step, number + 1)),
            _ => number.saturating_sub(warmed),
        };
        let index = self.ends.partition_point(|end| *end <= number);
        let before = index.checked_sub(1).map_or(0, |last| self.ends[last]);
        Some((self.steps.get(index)?, number - before + 1))
    }

    /// Returns the total number of rows; `None` when a time ends the part.
    pub(super) fn total(&self) -> Option<u64> {
        let steps = self.warm_up.iter().map(|(step, _)| step);
        steps.chain(&self.steps).map(|step| step.rows).sum()
    }

    /// Returns the main phase of the part: that of its last step.
    pub(super) fn phase(&self) -> Phase {
        self.steps.last().map_or(Phase::Measure, |step| step.phase)
    }

    /// Returns the intervals between writes, if there is a schedule.
    pub(super) fn gaps(&self) -> Option<Gaps> {
        match self.pace {
            Pace::Interval(span) => Some(Gaps {
                mean: Nanos::from(span.0),
                random: (self.arrivals == Arrivals::Poisson).then(|| Random::numbered(self.seed)),
            }),
            Pace::Visible | Pace::Ack => None,
        }
    }
}

/// The intervals between the intended starts of writes.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    mean: Nanos,
    /// `None` if all are the same.
    random: Option<Random>,
}

impl Gaps {
    /// Returns the next interval.
    pub(super) fn next(&mut self) -> Nanos {
        match &mut self.random {
            Some(random) => Nanos((self.mean.0 as f64 * random.exponential()) as i64),
            None => self.mean,
        }
    }
}

/// The number of writes of a warm-up by time.
#[derive(Debug)]
pub(super) struct Warmed {
    length: Option<Nanos>,
    /// `u64::MAX` until it is over.
    writes: AtomicU64,
}

impl Warmed {
    pub(super) fn new(script: &Script) -> Self {
        let length = script.warm_up.as_ref().map(|(_, span)| Nanos::from(span.0));
        Self {
            writes: AtomicU64::new(if length.is_some() { u64::MAX } else { 0 }),
            length,
        }
    }

    /// Ends the warm-up before this write if it begins after the warm-up time.
    pub(super) fn see(&self, number: u64, since_first: Nanos) {
        if self.length.is_some_and(|length| since_first >= length) {
            // Of several writers, the first that finds it over determines where it ends.
            let _ =
                self.writes
                    .compare_exchange(u64::MAX, number, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn writes(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::plan::{PlanFile, Section};

    use super::*;
    use crate::lag::settings::LagSettings;

    fn plan(lag: &str) -> LagPlan {
        let text = format!("command = 'lag'\n[lag]\n{lag}");
        let file: PlanFile<LagSettings> =
            PlanFile::from_toml(&text, &[Section::of::<LagSettings>()]).unwrap();
        file.plan().unwrap().plan
    }

    #[test]
    fn sweep_visits_every_size_in_order_and_repeats() {
        let script = Script::measure(&plan(
            "row-sizes = '10,10..30:10'\nsweeps = 2\nrows-per-step = 5",
        ));
        let order: Vec<(u32, u32, u64)> = script
            .steps
            .iter()
            .map(|step| (step.sweep, step.index, step.size))
            .collect();
        assert_eq!(
            order,
            [
                (0, 0, 10),
                (0, 1, 10),
                (0, 2, 20),
                (0, 3, 30),
                (1, 0, 10),
                (1, 1, 10),
                (1, 2, 20),
                (1, 3, 30)
            ]
        );
        assert_eq!(script.total(), Some(40));
    }

    #[test]
    fn every_row_number_has_its_step() {
        let script = Script::measure(&plan("warm-up = 2\nrounds = 3"));
        let writes: Vec<_> = (0..6)
            .map(|number| {
                let found = script.row_at(number, &Warmed::new(&script));
                found.map(|(step, row)| (step.phase, row))
            })
            .collect();
        let (warm, counted) = (Phase::WarmUp, Phase::Measure);
        assert_eq!(
            writes,
            [
                Some((warm, 1)),
                Some((warm, 2)),
                Some((counted, 1)),
                Some((counted, 2)),
                Some((counted, 3)),
                None
            ]
        );
        let endless = Script::measure(&plan("warm-up = 0\nduration = '1s'"));
        let found = endless.row_at(1_000_000, &Warmed::new(&endless));
        assert_eq!(found.map(|(_, row)| row), Some(1_000_001));
    }

    /// Returns the share of rows in the last 3 ms of each 10 ms, when the first row is at `first` µs.
    fn share_disturbed(script: &Script, first: i64) -> f64 {
        let mut gaps = script.gaps().unwrap();
        let mut at = first * 1_000;
        let mut disturbed = 0;
        for _ in 0..1_000 {
            disturbed += u32::from(at % 10_000_000 >= 7_000_000);
            at += gaps.next().0;
        }
        f64::from(disturbed) / 1_000.0
    }

    #[test]
    fn random_intervals_find_the_share_of_a_periodic_stall() {
        for first in (0..10_000).step_by(500) {
            let constant = Script::measure(&plan("interval = '10ms'\nrow-arrivals = 'constant'"));
            let share = share_disturbed(&constant, first);
            assert!(share == 0.0 || share == 1.0, "{share}");
            let seed = first + 1;
            let random = Script::measure(&plan(&format!("interval = '10ms'\nseed = {seed}")));
            let share = share_disturbed(&random, first);
            // Five standard errors of 1,000 independent rows.
            assert!((share - 0.3).abs() < 0.073, "{share}");
        }
    }

    #[test]
    fn random_intervals_have_the_mean_and_repeat() {
        let script = Script::measure(&plan("interval = '10ms'"));
        let intervals = || {
            let mut gaps = script.gaps().unwrap();
            (0..10_000).map(|_| gaps.next().0).collect::<Vec<_>>()
        };
        assert_eq!(intervals(), intervals());
        let mean = intervals().iter().sum::<i64>() as f64 / 1e4;
        // Five standard errors, of intervals that scatter as much as they last.
        assert!((mean / 1e7 - 1.0).abs() < 0.05, "{mean}");
        let floor = Script::floor(&plan("")).gaps().unwrap();
        assert!(floor.random.is_none());
    }

    #[test]
    fn rows_that_begin_after_a_warm_up_by_time_are_counted() {
        let script = Script::measure(&plan("warm-up = '1ms'\nrounds = 2"));
        let warmed = Warmed::new(&script);
        let mut phases = Vec::new();
        for number in 0..8 {
            warmed.see(number, Nanos(300_000 * number.cast_signed()));
            let found = script.row_at(number, &warmed);
            phases.extend(found.map(|(step, row)| (step.phase, row)));
        }
        let (warm, counted) = (Phase::WarmUp, Phase::Measure);
        assert_eq!(
            phases,
            [
                (warm, 1),
                (warm, 2),
                (warm, 3),
                (warm, 4),
                (counted, 1),
                (counted, 2)
            ]
        );
        assert_eq!(script.total(), None);
        // A second writer, with the write before, finds the same.
        warmed.see(9, Nanos(9_000_000));
        assert_eq!(
            script.row_at(3, &warmed).map(|(step, _)| step.phase),
            Some(warm)
        );
    }

    #[test]
    fn warm_up_comes_first_and_timed_run_has_no_total() {
        let script = Script::measure(&plan("duration = '3s'\nwarm-up = 7"));
        assert_eq!(
            (script.steps[0].phase, script.steps[0].rows),
            (Phase::WarmUp, Some(7))
        );
        assert_eq!(
            (script.total(), script.elapsed),
            (None, Some(TimeSpan::from_secs(3)))
        );
    }
}
