//! What a watch has gathered so far, in bounded memory.

use std::collections::VecDeque;

use replimeter_instruments::watch::results::{
    State, WatchChange, WatchResults, WatchRound, WatchRow, WatchSample, WatchWindow,
};

use crate::window_series::{MAX_WINDOWS, WindowSeries};

/// Changes that are kept.
const MAX_CHANGES: usize = 1000;

/// A server over the run.
struct Totals {
    row: WatchRow,
    /// Time at whose end its lag was above the limit for certain, may have been, and was known or not.
    late_us: f64,
    maybe_late_us: f64,
    total_us: f64,
    /// Whether an upper end was not known.
    is_unbounded: bool,
}

/// State gathered during the run.
pub(crate) struct Gathered {
    shape: String,
    max_lag_us: f64,
    servers: Vec<Totals>,
    changes: VecDeque<WatchChange>,
    changes_seen: u64,
    polls: u64,
    until_us: f64,
    windows: WindowSeries<WatchWindow>,
    window: Vec<WatchWindow>,
    window_us: f64,
}

impl Gathered {
    pub(super) fn new(max_lag_us: f64, window_us: f64) -> Self {
        Self {
            shape: String::new(),
            max_lag_us,
            servers: Vec::new(),
            changes: VecDeque::new(),
            changes_seen: 0,
            polls: 0,
            until_us: 0.0,
            windows: WindowSeries::new(MAX_WINDOWS, extend),
            window: Vec::new(),
            window_us,
        }
    }

    pub(super) fn name(&mut self, shape: String) {
        self.shape = shape;
    }

    pub(super) fn polls(&self) -> u64 {
        self.polls
    }

    pub(super) fn until_us(&self) -> f64 {
        self.until_us
    }

    pub(super) fn shape(&self) -> &str {
        &self.shape
    }

    pub(super) fn change(&mut self, change: WatchChange) {
        self.changes_seen += 1;
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    pub(super) fn round(&mut self, round: &WatchRound) {
        self.polls += 1;
        let Some(first) = round.servers.first() else {
            return;
        };
        if self.servers.is_empty() {
            let totals = |sample: &WatchSample| Totals {
                row: WatchRow {
                    server: sample.server.clone(),
                    ..WatchRow::default()
                },
                late_us: 0.0,
                maybe_late_us: 0.0,
                total_us: 0.0,
                is_unbounded: false,
            };
            self.servers = round.servers.iter().map(totals).collect();
        }
        let since_us = first.at_us - std::mem::replace(&mut self.until_us, first.at_us);
        for (totals, sample) in self.servers.iter_mut().zip(&round.servers) {
            totals.add(sample, since_us, self.max_lag_us);
        }
        let is_new = self.window.is_empty();
        if is_new {
            self.window = round.servers.iter().map(window).collect();
        } else {
            for (whole, sample) in self.window.iter_mut().zip(&round.servers) {
                extend(whole, &window(sample));
            }
        }
        if let Some(whole) = self.window.first()
            && whole.end_us - whole.start_us >= self.window_us
        {
            self.windows.push(&std::mem::take(&mut self.window));
        }
    }

    /// Returns the results so far.
    pub(super) fn results(&self) -> WatchResults {
        WatchResults {
            shape: self.shape.clone(),
            rows: self.servers.iter().map(Totals::row).collect(),
            windows: [self.windows.windows.as_slice(), &self.window].concat(),
            changes: self.changes.iter().cloned().collect(),
            changes_seen: self.changes_seen,
            polls: self.polls,
        }
    }
}

impl Totals {
    fn add(&mut self, sample: &WatchSample, since_us: f64, max_lag_us: f64) {
        let state = sample.state();
        let row = &mut self.row;
        row.state = Some(state);
        *row.state_us.entry(state.name().to_owned()).or_default() += since_us;
        row.errant = sample.errant;
        row.behind_max = row.behind_max.max(sample.behind);
        if state == State::Primary {
            return;
        }
        self.total_us += since_us;
        let Some(lag) = sample.lag else {
            self.maybe_late_us += since_us;
            return;
        };
        row.samples += 1;
        row.lag_max_low_us = Some(row.lag_max_low_us.unwrap_or(0.0).max(lag.low_us));
        match lag.high_us {
            Some(high) => row.lag_max_high_us = Some(row.lag_max_high_us.unwrap_or(0.0).max(high)),
            None => self.is_unbounded = true,
        }
        if lag.low_us > max_lag_us {
            self.late_us += since_us;
        }
        if lag.high_us.is_none_or(|high| high > max_lag_us) {
            self.maybe_late_us += since_us;
        }
    }

    fn row(&self) -> WatchRow {
        let percent = |us: f64| (self.total_us > 0.0).then(|| us / self.total_us * 100.0);
        WatchRow {
            late_percent: percent(self.late_us),
            maybe_late_percent: percent(self.maybe_late_us),
            lag_max_high_us: self.row.lag_max_high_us.filter(|_| !self.is_unbounded),
            ..self.row.clone()
        }
    }
}

/// Returns the window of one poll.
fn window(sample: &WatchSample) -> WatchWindow {
    WatchWindow {
        start_us: sample.at_us,
        end_us: sample.at_us,
        server: sample.server.clone(),
        state: Some(sample.state()),
        lag_max_low_us: sample.lag.map(|lag| lag.low_us),
        lag_max_high_us: sample.lag.and_then(|lag| lag.high_us),
        behind_max: sample.behind,
    }
}

/// How bad a state is in a window.
pub(super) fn badness(state: State) -> u8 {
    match state {
        State::Primary | State::Idle => 0,
        State::InStep => 1,
        State::Delayed => 2,
        State::Ahead => 3,
        State::Unknown => 4,
        State::Lagging => 5,
        State::Blocked => 6,
        State::Stopped => 7,
        State::Unreachable => 8,
    }
}

/// Joins the window that follows.
fn extend(window: &mut WatchWindow, next: &WatchWindow) {
    let larger = |one: Option<f64>, other: Option<f64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    };
    window.end_us = next.end_us;
    window.state = [window.state, next.state]
        .into_iter()
        .flatten()
        .max_by_key(|state| badness(*state));
    window.lag_max_low_us = larger(window.lag_max_low_us, next.lag_max_low_us);
    // One that is not known may be the largest.
    window.lag_max_high_us = match (window.lag_max_high_us, next.lag_max_high_us) {
        (Some(one), Some(other)) => Some(one.max(other)),
        _ => None,
    };
    window.behind_max = window.behind_max.max(next.behind_max);
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::watch::results::LagRange;

    use super::*;

    fn round(second: f64, state: State, lag: Option<(f64, Option<f64>)>) -> WatchRound {
        WatchRound {
            servers: vec![WatchSample {
                at_us: second * 1e6,
                server: "replica1".to_owned(),
                state: Some(state),
                lag: lag.map(|(low_us, high_us)| LagRange { low_us, high_us }),
                ..WatchSample::default()
            }],
            ..WatchRound::default()
        }
    }

    #[test]
    fn shares_of_time_tell_certain_from_possible() {
        let mut gathered = Gathered::new(2e6, 10e6);
        gathered.round(&round(1.0, State::InStep, Some((0.0, Some(1e6)))));
        gathered.round(&round(2.0, State::Lagging, Some((3e6, Some(4e6)))));
        gathered.round(&round(3.0, State::InStep, Some((1e6, Some(3e6)))));
        gathered.round(&round(4.0, State::Unreachable, None));
        let results = gathered.results();
        let row = &results.rows[0];
        assert_eq!(
            (row.late_percent, row.maybe_late_percent),
            (Some(25.0), Some(75.0))
        );
        assert_eq!(
            (row.lag_max_low_us, row.lag_max_high_us),
            (Some(3e6), Some(4e6))
        );
        assert_eq!(row.samples, 3);
        assert_eq!(row.state_us["in-step"], 2e6);
        gathered.round(&round(5.0, State::Lagging, Some((9e6, None))));
        assert_eq!(gathered.results().rows[0].lag_max_high_us, None);
    }

    #[test]
    fn long_watch_keeps_few_windows_and_changes() {
        let mut gathered = Gathered::new(2e6, 10e6);
        for second in 0..200_000 {
            let lag = if second == 77_777 { 9e6 } else { 0.0 };
            gathered.round(&round(
                f64::from(second),
                State::InStep,
                Some((lag, Some(lag))),
            ));
            gathered.change(WatchChange {
                at_us: f64::from(second) * 1e6,
                ..WatchChange::default()
            });
        }
        let results = gathered.results();
        assert!(results.windows.len() <= MAX_WINDOWS);
        let largest = results
            .windows
            .iter()
            .filter_map(|of| of.lag_max_low_us)
            .fold(0.0, f64::max);
        assert_eq!(largest, 9e6);
        assert_eq!(
            (results.changes.len(), results.changes_seen),
            (MAX_CHANGES, 200_000)
        );
        assert_eq!(results.changes.last().unwrap().at_us, 199_999e6);
    }
}
