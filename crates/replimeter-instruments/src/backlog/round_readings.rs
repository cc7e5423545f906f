//! The readings of a round, and the row computed from them.

use std::time::Duration;

use replimeter_model::time::Nanos;

use super::readings::PhaseReadings;
use crate::backlog::results::BacklogRow;

/// Input of a row.
#[derive(Debug)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct RoundReadings {
    pub(super) replica: String,
    /// Number of workers, and its variable.
    pub(super) workers: Option<(u64, String)>,
    pub(super) parallel_mode: String,
    pub(super) moments: RoundTimes,
    /// The interval between readings.
    pub(super) every: Duration,
    pub(super) growing: PhaseReadings,
    pub(super) with_load: PhaseReadings,
    pub(super) without_load: PhaseReadings,
}

impl RoundReadings {
    pub(super) fn row(self) -> Option<BacklogRow> {
        let Self {
            growing,
            with_load,
            without_load,
            moments,
            ..
        } = &self;
        let origin = growing.first()?.at;
        let last = growing.last()?;
        let started = moments.started.unwrap_or(last.at);
        let caught_up = without_load.last().filter(|_| moments.caught);
        let windows = [growing, with_load, without_load]
            .into_iter()
            .flat_map(|phase| phase.windows(origin))
            .collect();
        Some(BacklogRow {
            shape: String::new(),
            workers: self.workers.as_ref().map(|(workers, _)| *workers),
            grown_us: (started - moments.stopped).as_micros(),
            load_per_s: growing.written(),
            backlog_transactions: with_load.first().map_or(last.behind, |first| first.behind),
            load_while_applying_per_s: with_load.written(),
            sustained_per_s: with_load.applied(),
            keeps_up: with_load.converges(),
            catch_up_per_s: without_load.applied(),
            under_load_us: with_load.length().as_micros(),
            caught_up_after_us: caught_up.map(|last| (last.at - started).as_micros()),
            resolution_us: Nanos::from(self.every).as_micros(),
            complete: caught_up.is_some(),
            windows,
            replica: self.replica,
            workers_variable: self.workers.map(|(_, variable)| variable),
            parallel_mode: self.parallel_mode,
        })
    }
}

/// When the applier was stopped and started, and whether the round was completed.
#[derive(Debug)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct RoundTimes {
    pub(super) stopped: Nanos,
    pub(super) started: Option<Nanos>,
    pub(super) caught: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known::{Known, known};

    #[test]
    fn recorded_readings_reproduce_the_same_rows() {
        for Known {
            name,
            input,
            result,
        } in known::<RoundReadings>("backlog")
        {
            let rows: Vec<_> = input.into_iter().filter_map(RoundReadings::row).collect();
            assert_eq!(serde_json::to_value(rows).unwrap(), result, "{name}");
        }
    }
}
