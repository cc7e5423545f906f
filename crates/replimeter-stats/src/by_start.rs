//! Samples of a run together and by fresh start of the servers: starts are independent, and differ more than the samples of
//! one.

use replimeter_model::{record::StartSpread, time::Nanos};

use crate::{
    compare, dependence, median,
    signed::{SignedHistogram, rank_of},
    student::Z95,
};

/// Samples together, and those of each start.
#[derive(Clone, Debug, Default)]
pub struct ByStart {
    all: SignedHistogram,
    /// Empty where starts are not separated.
    starts: Vec<SignedHistogram>,
}

impl ByStart {
    /// Adds a sample.
    pub fn record(&mut self, value: Nanos) {
        self.all.record(value);
        if let Some(start) = self.starts.last_mut() {
            start.record(value);
        }
    }

    /// Separates the samples that follow, which are of a new start of the servers.
    pub fn begin_start(&mut self) {
        self.starts.push(SignedHistogram::default());
    }

    /// Returns the samples of all starts.
    pub fn all(&self) -> &SignedHistogram {
        &self.all
    }

    /// Returns the factor by which the variation between starts increases the variance of the share of samples up to
    /// `value` ([`dependence::of_starts`]).
    pub fn inflation(&self, value: Nanos) -> f64 {
        let counts = |start: &SignedHistogram| (start.count(), start.count_at_most(value));
        let starts: Vec<(u64, u64)> = self.starts.iter().map(counts).collect();
        dependence::of_starts(&starts)
    }

    /// Returns whether the samples beyond the quantile `p`, which is `value`, are of enough starts
    /// ([`dependence::enough_starts`]); true for fewer than two starts, and for the median.
    pub fn enough(&self, p: f64, value: Nanos) -> bool {
        let beyond = |start: &SignedHistogram| beyond(p, start.count(), start.count_at_most(value));
        let known = self.starts.iter().filter(|start| start.count() > 0);
        let counts: Vec<u64> = known.map(beyond).collect();
        !is_tail(p) || counts.len() < 2 || dependence::enough_starts(&counts)
    }

    /// Returns the quantile `p` of each start with a sample, however few it has, by the number of the start from 1.
    pub fn numbered_quantiles(&self, p: f64) -> impl Iterator<Item = (u32, Nanos)> {
        let of = move |start: &SignedHistogram| start.at_rank(rank_of(p, start.count()));
        (1..)
            .zip(&self.starts)
            .filter_map(move |(number, start)| Some((number, of(start)?)))
    }

    /// Returns the same without the numbers.
    pub fn quantiles(&self, p: f64) -> Vec<Nanos> {
        self.numbered_quantiles(p).map(|(_, value)| value).collect()
    }

    /// Returns the quantile `p` in µs of each start with at least five samples beyond it.
    fn known_quantiles(&self, p: f64) -> Vec<f64> {
        let quantile = |start: &SignedHistogram| {
            let beyond = start.count() as f64 * p.min(1.0 - p);
            // The small addition keeps 100 × 0.05 from being just below five.
            let enough = beyond + 1e-9 >= compare::BEYOND;
            let value = start.at_rank(rank_of(p, start.count()))?;
            enough.then(|| value.as_micros())
        };
        self.starts.iter().filter_map(quantile).collect()
    }

    /// Returns the spread of the starts' quantiles `p` in µs, of those with at least five samples beyond.
    pub fn spread(&self, p: f64) -> Option<StartSpread> {
        spread_of(&self.known_quantiles(p))
    }

    /// Returns the samples of these ranks in µs, or the smallest and the largest where a rank lies beyond them.
    pub fn between_ranks(&self, [low, high]: [f64; 2]) -> Option<[f64; 2]> {
        let at = |rank: f64| self.all.at_rank(rank.max(1.0) as u64).map(Nanos::as_micros);
        Some([at(low)?, at(high)?])
    }

    /// Returns the 95 % interval around `value`, an estimate of the quantile `p` in µs, that the variation between starts
    /// gives; `None` below two starts with at least five samples beyond their quantile.
    ///
    /// Student's t of the starts' quantiles ([`compare::between_starts`]). In the tail, the quantile of all starts is that of
    /// the slowest ones rather than a mean, so the interval reaches at least to the order statistics that
    /// [`dependence::of_starts`] gives.
    pub fn between(&self, p: f64, value: f64) -> Option<[f64; 2]> {
        let students = compare::between_starts(&self.known_quantiles(p), value)?;
        let own = self.all.at_rank(rank_of(p, self.all.count()))?;
        let by_ranks =
            self.between_ranks(ranks(p, self.all.count() as f64, self.inflation(own)))?;
        let moved = by_ranks.map(|end| end + value - own.as_micros());
        dependence::wider(Some(students), Some(moved))
    }
}

/// Returns the ranks, which may lie beyond 1 and `count`, between which the quantile `p` lies with 95 %, where the variance
/// of a share is `factor` times that of independent samples.
pub(crate) fn ranks(p: f64, count: f64, factor: f64) -> [f64; 2] {
    let half = Z95 * (factor * count * p * (1.0 - p)).sqrt();
    [(count * p - half).floor(), (count * p + half).ceil() + 1.0]
}

/// Returns the spread of a figure of each start; `None` below two starts.
pub fn spread_of(figures: &[f64]) -> Option<StartSpread> {
    let end = |pick: fn(f64, f64) -> f64| figures.iter().copied().reduce(pick);
    let spread = StartSpread {
        min: end(f64::min)?,
        median: median::of_values(figures).value?,
        max: end(f64::max)?,
    };
    (figures.len() > 1).then_some(spread)
}

/// Returns whether a quantile is in a tail: too far from the median for the middle of the starts to decide it.
pub(crate) fn is_tail(p: f64) -> bool {
    p.max(1.0 - p) > 0.75
}

/// Returns how many of `count` samples, of which `at_most` are up to the quantile `p`, lie beyond it.
pub(crate) fn beyond(p: f64, count: u64, at_most: u64) -> u64 {
    if p < 0.5 { at_most } else { count - at_most }
}
