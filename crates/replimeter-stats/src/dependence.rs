//! How much wider an interval becomes because neighbors in time depend on one another.
//!
//! Neighboring samples share a busy moment or a stall, so a thousand of them may be worth a hundred. The factor on the
//! variance of a share is the power of the residuals (events less the expected ones) in slow waves over the run, compared
//! with that of independent trials: the spectrum near frequency zero, which is the variance of a mean (Müller 2007;
//! Lazarus, Lewis, Stock & Watson 2018). For independent trials it is 1. Few waves see dependence that lasts long, and are
//! few observations; many waves are more precise and see less. Which is right for a run is unknown, so the factor is
//! computed with 8, 16 and 32 waves, each is multiplied by (t/z)², the points of Student's distribution for that many degrees
//! of freedom and of the normal one, and the largest counts. `1.96 × √(factor × variance)` is then the half-width.
//!
//! The tests simulate the coverage, `docs/concepts/intervals.md` has the table. What remains: dependence that lasts longer
//! than about a twentieth of the run is underestimated, and a run that saw fewer than about ten stalls does not show how
//! often there are any.

use crate::{
    signed::BEYOND,
    student::{Z95, student_point},
};

/// With this many effective samples beyond a quantile, the variance is doubled.
const FEW: f64 = 15.0;
/// Minimum number of distinct clusters of samples beyond a quantile, such as stalls or starts of the servers, for an interval.
const CLUSTERS: f64 = 15.0;
/// Share of a kind of start that is rare, and still frequent enough to matter.
const RARE: f64 = 0.1;
/// Minimum number of starts for the interval of a tail: fewer miss a kind of start that is one in ten with more than 10 %.
pub const MIN_STARTS: usize = 22;
/// Numbers of half waves over the run at each scale.
const WAVES: [usize; 3] = [8, 16, 32];

/// The windows of a run, or of a part of it: trials, and how many more events there were than expected.
#[derive(Clone, Debug, Default)]
pub struct Residuals {
    windows: Vec<(f64, f64)>,
    /// The variance of the sum of events, if trials were independent.
    variance: f64,
}

impl Residuals {
    /// Returns the residuals of windows with these trials and events; windows without trials do not count.
    #[must_use]
    pub fn of(windows: &[(u64, u64)]) -> Self {
        Self::of_strata(&[windows])
    }

    /// Returns the residuals of strata, which have the same windows: each expects its own share of events, so strata that
    /// differ are no clusters.
    #[must_use]
    pub fn of_strata(strata: &[&[(u64, u64)]]) -> Self {
        let length = strata.iter().map(|windows| windows.len()).max();
        let mut sums = vec![(0.0, 0.0); length.unwrap_or(0)];
        let mut variance = 0.0;
        for windows in strata {
            let (trials, events) = windows
                .iter()
                .fold((0, 0), |sum, window| (sum.0 + window.0, sum.1 + window.1));
            let share = if trials == 0 {
                0.0
            } else {
                (events as f64 / trials as f64).min(1.0)
            };
            variance += trials as f64 * share * (1.0 - share);
            for (sum, (trials, events)) in sums.iter_mut().zip(*windows) {
                sum.0 += *trials as f64;
                sum.1 += *events as f64 - share * *trials as f64;
            }
        }
        sums.retain(|(trials, _)| *trials > 0.0);
        Self {
            windows: sums,
            variance,
        }
    }

    /// Returns the power in each of the first `waves` half waves; `variance` on average for independent trials.
    fn powers(&self, waves: usize) -> impl Iterator<Item = f64> + '_ {
        let total: f64 = self.windows.iter().map(|(trials, _)| trials).sum();
        (1..=waves).map(move |wave| {
            let mut seen = 0.0;
            let mut sum = 0.0;
            for (trials, residual) in &self.windows {
                let place = (seen + trials / 2.0) / total;
                sum += residual * (std::f64::consts::PI * wave as f64 * place).cos();
                seen += trials;
            }
            2.0 * sum * sum
        })
    }
}

/// Returns the factor by which dependence between neighbors increases the variance of a share, including the uncertainty
/// of that factor; never below 1.
///
/// `parts` follow one another in time, and their variances are pooled. `None` when no part has more than eight windows.
#[must_use]
pub fn inflation(parts: &[Residuals]) -> Option<f64> {
    let long = |part: &&Residuals| part.windows.len() > WAVES[0];
    if !parts.iter().any(|part| long(&part)) {
        return None;
    }
    let parts: Vec<&Residuals> = parts
        .iter()
        .filter(long)
        .filter(|part| part.variance > 0.0)
        .collect();
    let most = parts.iter().map(|part| part.windows.len() - 1).min();
    let variance: f64 = parts.iter().map(|part| part.variance).sum();
    let squares: f64 = parts.iter().map(|part| part.variance.powi(2)).sum();
    let mut largest: f64 = 1.0;
    for waves in WAVES.into_iter().filter(|waves| Some(*waves) <= most) {
        let power: f64 = parts.iter().flat_map(|part| part.powers(waves)).sum();
        // Satterthwaite's degrees of freedom: all waves of all parts, where these have equal variances.
        let reach = widening(waves as f64 * variance.powi(2) / squares);
        largest = largest.max(power / (waves as f64 * variance) * reach.powi(2));
    }
    Some(largest)
}

/// Returns the factor by which the variation between fresh starts of servers increases the variance of a share, from the
/// trials and events of each: the variance between clusters (Kish 1965, §5.4), with Student's distribution; never below 1.
///
/// Starts are independent, so none of their scales is unseen; below two starts it is 1.
#[must_use]
pub fn of_starts(starts: &[(u64, u64)]) -> f64 {
    let known: Vec<(f64, f64)> = starts
        .iter()
        .filter(|(trials, _)| *trials > 0)
        .map(|(trials, events)| (*trials as f64, *events as f64))
        .collect();
    let count = known.len() as f64;
    let (trials, events) = known
        .iter()
        .fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
    let share = events / trials;
    let variance = trials * share * (1.0 - share);
    if count < 2.0 || variance <= 0.0 {
        return 1.0;
    }
    let residual = |(trials, events): &(f64, f64)| (events - share * trials).powi(2);
    let between = known.iter().map(residual).sum::<f64>() * count / (count - 1.0);
    (between / variance * widening(count - 1.0).powi(2)).max(1.0)
}

/// Returns the larger one of the factors of neighbors ([`inflation`]) and of starts ([`of_starts`]), whose trials and events
/// these are; `None` where neighbors are unknown and starts do not differ.
#[must_use]
pub fn with_starts(neighbors: Option<f64>, starts: &[(u64, u64)]) -> Option<f64> {
    let between = of_starts(starts);
    neighbors
        .or((between > 1.0).then_some(1.0))
        .map(|neighbors| neighbors.max(between))
}

/// Returns the interval that holds both, or the one that there is.
#[must_use]
pub fn wider(one: Option<[f64; 2]>, other: Option<[f64; 2]>) -> Option<[f64; 2]> {
    match (one, other) {
        (Some(one), Some(other)) => Some([one[0].min(other[0]), one[1].max(other[1])]),
        _ => one.or(other),
    }
}

/// Returns the factor by which Student's interval is wider than that of a normal distribution; 1 without a degree of freedom.
fn widening(freedom: f64) -> f64 {
    student_point(0.975, freedom).unwrap_or(Z95) / Z95
}

/// Returns the factor on the variance of the share of samples up to a quantile, with `beyond` samples beyond it; `None`
/// when fewer than [`BEYOND`] effective ones (`beyond / inflation`) lie there.
///
/// Near this limit the factor is larger than `inflation`, by 1 + 15 / effective: of the runs for which the limit is near,
/// those whose dependence happens to be underestimated have an interval, and few clusters beyond the quantile have a skewed
/// number. Without it, intervals at 20 correlation times covered 81 % in simulations, with it 94 %.
#[must_use]
pub fn of_quantile(inflation: f64, beyond: f64) -> Option<f64> {
    let effective = beyond / inflation;
    // The small addition keeps 1,000 × 0.01 from being just below ten.
    (effective + 1e-9 >= BEYOND as f64).then(|| inflation * (1.0 + FEW / effective))
}

/// Returns whether the samples beyond a quantile, counted in consecutive windows of the run, are of enough clusters: no
/// window, such as that of a stall, has more than a fifteenth of them and a standard deviation of that.
#[must_use]
pub fn enough_stalls(beyond: &[u64]) -> bool {
    let share = beyond.iter().sum::<u64>() as f64 / CLUSTERS;
    let most = beyond.iter().max().copied().unwrap_or_default();
    share >= 1.0 && most as f64 <= share + share.sqrt()
}

/// Returns whether the samples beyond a quantile, counted in each start of the servers, are of enough starts: there are
/// [`MIN_STARTS`], and the effective number of those with samples beyond (Simpson 1949, without the part of chance) is at
/// least fifteen, so that no few slow starts have them all.
#[must_use]
pub fn enough_starts(beyond: &[u64]) -> bool {
    let all: f64 = beyond.iter().map(|count| *count as f64).sum();
    let pairs: f64 = beyond
        .iter()
        .map(|count| *count as f64)
        .map(|count| count * (count - 1.0))
        .sum();
    beyond.len() >= MIN_STARTS && all > CLUSTERS && all * (all - 1.0) >= CLUSTERS * pairs
}

/// Returns the probability that a kind of start that is one in ten is not among this number of starts.
#[must_use]
pub fn missed(starts: u32) -> f64 {
    (1.0 - RARE).powf(f64::from(starts))
}

#[cfg(test)]
mod tests;
