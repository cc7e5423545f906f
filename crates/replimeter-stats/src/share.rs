//! A share of events with an interval that is valid for clustered events.

use replimeter_model::time::Nanos;

use crate::{
    dependence::{Residuals, inflation, with_starts},
    student::Z95,
};

/// Maximum number of windows; twice as many are merged in pairs.
const WINDOWS: usize = 128;
/// Initial length of a window, in nanoseconds.
const FIRST_LENGTH: i64 = 20_000_000;
/// A share with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Proportion {
    /// Trials.
    pub trials: u64,
    /// The number of events among them.
    pub events: u64,
    /// Their share; 0 for no trials.
    pub share: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end; 1 for no trials.
    pub high: f64,
    /// The factor by which dependence between neighbors inflates the variance ([`inflation`]); `None` when there were too
    /// few trials to estimate it, and the interval treats them as independent.
    pub inflation: Option<f64>,
}

impl Proportion {
    /// Returns the share with Wilson's interval for an effective sample size of trials / inflation.
    #[must_use]
    pub fn of(trials: u64, events: u64, inflation: Option<f64>) -> Self {
        let effective = 1.0 / inflation.unwrap_or(1.0);
        let [low, high] = wilson(events as f64 * effective, trials as f64 * effective);
        let share = if trials == 0 {
            0.0
        } else {
            events as f64 / trials as f64
        };
        Self {
            trials,
            events,
            share,
            low,
            high,
            inflation,
        }
    }
}

/// Returns the interval of Wilson (1927) for `events` out of `trials`, which need not be integers:
/// with an effective sample size `trials / inflation` the interval is wider. For no event its lower
/// end is 0, and its upper end z² / (n + z²).
#[must_use]
pub fn wilson(events: f64, trials: f64) -> [f64; 2] {
    if trials <= 0.0 {
        return [0.0, 1.0];
    }
    let share = (events / trials).clamp(0.0, 1.0);
    let squared = Z95 * Z95;
    let scale = 1.0 + squared / trials;
    let middle = (share + squared / (2.0 * trials)) / scale;
    let half =
        Z95 / scale * (share * (1.0 - share) / trials + squared / (4.0 * trials * trials)).sqrt();
    let low = if share == 0.0 {
        0.0
    } else {
        (middle - half).max(0.0)
    };
    let high = if share == 1.0 {
        1.0
    } else {
        (middle + half).min(1.0)
    };
    [low, high]
}

/// Events and trials by time, in bounded memory.
#[derive(Clone, Debug)]
pub struct Share {
    origin: Option<Nanos>,
    length: i64,
    /// Trials and events.
    windows: Vec<(u64, u64)>,
    /// Trials and events of each start of the servers; empty where starts are not separated.
    starts: Vec<(u64, u64)>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            origin: None,
            length: FIRST_LENGTH,
            windows: Vec::new(),
            starts: Vec::new(),
        }
    }
}

impl Share {
    /// Returns an empty one whose first window begins at `origin`, in the last one of this number of starts so far.
    #[must_use]
    pub fn starting(origin: Nanos, starts: usize) -> Self {
        Self {
            origin: Some(origin),
            starts: vec![(0, 0); starts],
            ..Self::default()
        }
    }

    /// Adds a trial; the first one sets the origin.
    pub fn record(&mut self, at: Nanos, event: bool) {
        self.add(at, 1, u64::from(event));
    }

    /// Adds an event of a trial that was recorded as none.
    pub fn add_event(&mut self, at: Nanos) {
        self.add(at, 0, 1);
    }

    fn add(&mut self, at: Nanos, trials: u64, events: u64) {
        let origin = *self.origin.get_or_insert(at);
        let since = (at - origin).0.max(0);
        while since / self.length >= WINDOWS as i64 {
            self.windows = joined(&self.windows);
            self.length *= 2;
        }
        let index = usize::try_from(since / self.length).unwrap_or(WINDOWS - 1);
        if self.windows.len() <= index {
            self.windows.resize(index + 1, (0, 0));
        }
        for counts in [Some(&mut self.windows[index]), self.starts.last_mut()]
            .into_iter()
            .flatten()
        {
            counts.0 += trials;
            counts.1 += events;
        }
    }

    /// Separates the trials that follow, which are of a new start of the servers. Their times are those of measuring
    /// ([`crate::measured_time`]).
    pub fn begin_start(&mut self) {
        self.starts.push((0, 0));
    }

    /// Returns the trials and events of each start; empty where starts are not separated.
    #[must_use]
    pub fn starts(&self) -> &[(u64, u64)] {
        &self.starts
    }

    /// Returns the trials and events so far.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        sum(&self.windows)
    }

    /// Returns the residuals of shares with the same origin ([`Share::starting`]), each a stratum.
    #[must_use]
    pub fn residuals<'a>(strata: impl IntoIterator<Item = &'a Self>) -> Residuals {
        let strata: Vec<&Self> = strata.into_iter().collect();
        let length = strata.iter().map(|share| share.length).max().unwrap_or(1);
        let windows: Vec<Vec<(u64, u64)>> = strata
            .iter()
            .map(|share| {
                let doublings = (length / share.length).ilog2();
                (0..doublings).fold(share.windows.clone(), |windows, _| joined(&windows))
            })
            .collect();
        let strata: Vec<&[(u64, u64)]> = windows.iter().map(Vec::as_slice).collect();
        Residuals::of_strata(&strata)
    }

    /// Returns the share with its interval: Wilson's, for an effective sample size of trials /
    /// inflation, of neighbors or of starts.
    #[must_use]
    pub fn proportion(&self) -> Proportion {
        let (trials, events) = self.counts();
        let neighbors = inflation(&[Self::residuals([self])]);
        Proportion::of(trials, events, with_starts(neighbors, &self.starts))
    }
}

/// Joins windows in pairs.
fn joined(windows: &[(u64, u64)]) -> Vec<(u64, u64)> {
    windows.chunks(2).map(sum).collect()
}

fn sum(windows: &[(u64, u64)]) -> (u64, u64) {
    windows
        .iter()
        .fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A small deterministic generator (Marsaglia 2003), for repeatable tests.
    struct Xorshift(u64);

    impl Xorshift {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn known_values_are_reproduced() {
        // Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (events, trials, low, high) in [
            (81.0, 263.0, 0.2553, 0.3662),
            (15.0, 148.0, 0.0624, 0.1605),
            (0.0, 20.0, 0.0, 0.1611),
            (1.0, 29.0, 0.0061, 0.1718),
        ] {
            let [got_low, got_high] = wilson(events, trials);
            assert!(
                (got_low - low).abs() < 5e-5 && (got_high - high).abs() < 5e-5,
                "{events}/{trials}: {got_low} {got_high}"
            );
        }
        assert_eq!(wilson(0.0, 0.0), [0.0, 1.0]);
        assert!(wilson(0.0, 100_000.0)[1] < 4e-5);
    }

    #[test]
    fn zero_events_have_an_upper_bound() {
        let mut share = Share::default();
        (0..10_000i64).for_each(|at| share.record(Nanos(at * 500_000), false));
        let proportion = share.proportion();
        assert_eq!(
            (proportion.events, proportion.share, proportion.low),
            (0, 0.0, 0.0)
        );
        assert!(
            proportion.high > 0.0 && proportion.high < 4e-4,
            "{proportion:?}"
        );
    }

    /// Returns the share of `runs` simulated runs whose interval covers the true share.
    fn coverage(
        runs: u32,
        truth: f64,
        mut trial: impl FnMut(&mut Xorshift, &mut bool) -> bool,
    ) -> u32 {
        let mut random = Xorshift(88_172_645_463_325_252);
        let mut covered = 0;
        for _ in 0..runs {
            let mut share = Share::default();
            let mut state = false;
            (0..2000i64)
                .for_each(|at| share.record(Nanos(at * 1_000_000), trial(&mut random, &mut state)));
            let proportion = share.proportion();
            covered += u32::from(proportion.low <= truth && truth <= proportion.high);
        }
        covered
    }

    #[test]
    fn independent_trials_are_covered_at_nominal_rate() {
        let covered = coverage(500, 0.1, |random, _| random.uniform() < 0.1);
        // Nominal 95 %; the dispersion is never below 1, so the coverage is rather higher.
        assert!(covered >= 465, "{covered} of 500");
    }

    #[test]
    fn clustered_events_widen_the_interval() {
        // A stall begins with probability 1/200 and ends with 1/50: a fifth of the rounds are in
        // one, and stale.
        let covered = coverage(500, 0.2, |random, stalled| {
            let change = random.uniform() < if *stalled { 1.0 / 50.0 } else { 1.0 / 200.0 };
            *stalled ^= change;
            *stalled
        });
        // Treated as independent it would be about 30 %. A run has about eight clusters.
        println!("clusters: {covered} of 500");
        assert!(covered >= 450, "{covered} of 500");
    }

    proptest! {
        #[test]
        fn no_trial_is_lost_and_memory_is_bounded(trials in proptest::collection::vec((0i64..400_000_000_000, any::<bool>()), 1..200)) {
            let mut share = Share::default();
            let mut sorted = trials.clone();
            sorted.sort_unstable();
            sorted.iter().for_each(|(at, event)| share.record(Nanos(*at), *event));
            let events = trials.iter().filter(|(_, event)| *event).count() as u64;
            prop_assert_eq!(share.counts(), (trials.len() as u64, events));
            prop_assert!(share.windows.len() <= WINDOWS);
            let proportion = share.proportion();
            prop_assert!(proportion.low <= proportion.share && proportion.share <= proportion.high);
        }
    }
}
