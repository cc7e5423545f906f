//! The readings of a backlog over time, in bounded memory, and their rates.

use replimeter_model::{load::Rate, time::Nanos};
use replimeter_stats::rate::of_readings;

use crate::backlog::results::{BacklogPhase, BacklogWindow};

/// Maximum number of readings kept per phase; every other one is dropped above it.
const MAX_READINGS: usize = 2000;
/// Maximum number of windows reported per phase.
const WINDOWS: usize = 40;

/// The positions of both servers at about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct BacklogReading {
    /// When the replica was read.
    pub(super) at: Nanos,
    /// When the primary was read, right after the replica.
    pub(super) primary_at: Nanos,
    /// Number of the primary's transactions.
    pub(super) written: u64,
    /// Number of transactions applied by the replica.
    pub(super) applied: u64,
    /// Number of transactions not applied by the replica.
    pub(super) behind: u64,
}

/// Readings during one state of the applier.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct PhaseReadings {
    phase: BacklogPhase,
    readings: Vec<BacklogReading>,
    /// One of this number of readings is kept.
    stride: usize,
    skipped: usize,
    last: Option<BacklogReading>,
}

impl PhaseReadings {
    pub(super) fn new(phase: BacklogPhase) -> Self {
        Self {
            phase,
            readings: Vec::new(),
            stride: 1,
            skipped: 0,
            last: None,
        }
    }

    /// Adds a reading; readings come in order of time.
    pub(super) fn push(&mut self, reading: BacklogReading) {
        self.last = Some(reading);
        self.skipped += 1;
        if !self.readings.is_empty() && self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        self.readings.push(reading);
        if self.readings.len() > MAX_READINGS {
            let mut index = 0;
            self.readings.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
    }

    /// Returns the kept readings, including the first and the last.
    fn all(&self) -> Vec<BacklogReading> {
        let mut all = self.readings.clone();
        if let Some(last) = self.last.filter(|last| all.last() != Some(last)) {
            all.push(last);
        }
        all
    }

    pub(super) fn first(&self) -> Option<BacklogReading> {
        self.readings.first().copied()
    }

    pub(super) fn last(&self) -> Option<BacklogReading> {
        self.last
    }

    /// Returns the time from the first reading to the last.
    pub(super) fn length(&self) -> Nanos {
        self.first()
            .zip(self.last)
            .map_or(Nanos(0), |(first, last)| last.at - first.at)
    }

    fn rate(&self, pick: impl Fn(&BacklogReading) -> (Nanos, u64)) -> Rate {
        of_readings(&self.all().iter().map(pick).collect::<Vec<_>>())
    }

    /// Returns the primary's committed transactions per second.
    pub(super) fn written(&self) -> Rate {
        self.rate(|reading| (reading.primary_at, reading.written))
    }

    /// Returns the replica's applied transactions per second.
    pub(super) fn applied(&self) -> Rate {
        self.rate(|reading| (reading.at, reading.applied))
    }

    /// Returns whether the backlog became smaller: determined by halving, or by the interval of its
    /// growth; `None` when neither is conclusive.
    pub(super) fn converges(&self) -> Option<bool> {
        let (first, last) = (self.first()?, self.last?);
        if first.behind > 0 && last.behind <= first.behind / 2 {
            return Some(true);
        }
        let growth = self.rate(|reading| (reading.at, reading.behind));
        match (growth.ci95.low?, growth.ci95.high?) {
            (_, high) if high < 0.0 => Some(true),
            (low, _) if low > 0.0 => Some(false),
            _ => None,
        }
    }

    /// Returns the windows for the report, with times since `origin`.
    pub(super) fn windows(&self, origin: Nanos) -> Vec<BacklogWindow> {
        let all = self.all();
        let steps = all.len().saturating_sub(1);
        let windows = steps.min(WINDOWS);
        let window = |index: usize| {
            let (from, to) = (
                all[index * steps / windows],
                all[(index + 1) * steps / windows],
            );
            BacklogWindow {
                phase: self.phase,
                start_us: (from.at - origin).as_micros(),
                end_us: (to.at - origin).as_micros(),
                written: to.written.saturating_sub(from.written),
                applied: to.applied.saturating_sub(from.applied),
                behind: to.behind,
            }
        };
        (0..windows).map(window).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns readings 100 ms apart, with `written` and `applied` transactions between two.
    fn phase(count: u64, written: u64, applied: u64, behind: u64) -> PhaseReadings {
        let mut phase = PhaseReadings::new(BacklogPhase::WithLoad);
        for index in 0..count {
            let at = Nanos(index as i64 * 100_000_000);
            let (written, applied) = (behind + written * index, applied * index);
            phase.push(BacklogReading {
                at,
                primary_at: at,
                written,
                applied,
                behind: written - applied,
            });
        }
        phase
    }

    #[test]
    fn write_and_apply_rates_are_computed() {
        let phase = phase(50, 100, 150, 10_000);
        let near = |rate: Rate, wanted: f64| (rate.mean.unwrap() - wanted).abs() < 1e-6;
        assert!(near(phase.written(), 1000.0) && near(phase.applied(), 1500.0));
        assert_eq!(phase.converges(), Some(true));
        assert_eq!(phase.length(), Nanos(4_900_000_000));
    }

    #[test]
    fn growing_backlog_or_single_reading_does_not_converge() {
        assert_eq!(phase(50, 150, 100, 10_000).converges(), Some(false));
        assert_eq!(phase(50, 100, 100, 10_000).converges(), None);
        assert_eq!(phase(1, 100, 100, 10_000).converges(), None);
        assert_eq!(phase(3, 0, 1000, 2000).converges(), Some(true), "halved");
    }

    #[test]
    fn readings_are_thinned_and_keep_first_and_last() {
        let phase = phase(50_000, 2, 1, 5);
        assert!(phase.readings.len() <= MAX_READINGS);
        let all = phase.all();
        assert_eq!(
            (all[0].applied, all.last().map(|last| last.applied)),
            (0, Some(49_999))
        );
        let windows = phase.windows(Nanos(0));
        assert!(windows.len() <= WINDOWS);
        assert_eq!(
            windows.iter().map(|window| window.applied).sum::<u64>(),
            49_999
        );
        assert_eq!(windows.last().map(|window| window.behind), Some(50_004));
    }
}
