//! What brackets say of the times inside them.
//!
//! A poll tells of a time only that it lies in (low, high]. The distribution of
//! such times is estimated by the non-parametric maximum likelihood estimate for
//! interval-censored data (Peto 1973, Turnbull 1976): of all distributions it is
//! the one under which the brackets that were seen are the most probable. It puts
//! mass only into *innermost* intervals, which begin at some bracket's low end,
//! end at some bracket's high end and hold no other end between; how the mass lies
//! within one of them the brackets do not say, and so a quantile is known only
//! to within an interval.
//!
//! The estimate assumes that when reads happen does not depend on when the time
//! to be bracketed comes, beyond what the bracket says.

use std::collections::HashMap;

use replimeter_model::{
    record::{Distribution, Innermost, Intervals},
    time::Nanos,
};

use crate::{
    grid,
    random::Random,
    signed::{BEYOND, rank_of},
};

/// Different brackets kept; with more, the grid is made coarser.
const MOST_PAIRS: usize = 8192;
/// Each coarsening leaves every other point; this many leave one to a doubling.
const COARSEST: u32 = 7;
/// Number of the low end of a bracket without one.
const OPEN: i32 = i32::MIN;
/// The iteration ends when the log-likelihood is at most this far below its
/// maximum, which moves nothing by more than 0.05 standard errors.
const TOLERANCE: f64 = 1e-3;
/// Or after so many steps; [`Npmle::gap`] says how far it came.
const MOST_STEPS: usize = 300;
/// Resamples behind an interval, and the steps that each of them gets.
const RESAMPLES: usize = 100;
const RESAMPLE_STEPS: usize = 6;
const RESAMPLE_TOLERANCE: f64 = 0.05;
/// The bootstrap's seed: the same brackets always give the same interval.
const SEED: u64 = 0x5EED_0F1E_A50F_1976;
/// Mass below which an interval counts as empty.
const NOTHING: f64 = 1e-9;

/// Brackets (low, high], counted on a grid, so that memory does not grow with
/// their number.
///
/// Ends are moved outwards to the next point of the grid, whose points are 0.4 to
/// 0.8 % of their value apart (64 ns below 16 µs); when there would be more than
/// 8192 different brackets, every other point is given up.
#[derive(Clone, Debug, Default)]
pub struct Brackets {
    pairs: HashMap<(i32, i32), u64>,
    coarse: u32,
    count: u64,
}

impl Brackets {
    /// Adds a time that lies in (`low`, `high`]; without `low` there is no lower
    /// end. Ends that are the same stand for a time that is known exactly.
    pub fn record(&mut self, low: Option<Nanos>, high: Nanos) {
        let high_number = grid::ceil(high.0);
        let low_number = low.map_or(OPEN, |low| {
            grid::floor(low.0.min(high.0)).min(high_number - 1)
        });
        *self
            .pairs
            .entry(coarsened((low_number, high_number), self.coarse))
            .or_insert(0) += 1;
        self.count += 1;
        while self.pairs.len() > MOST_PAIRS && self.coarse < COARSEST {
            self.coarse += 1;
            for (pair, count) in std::mem::take(&mut self.pairs) {
                *self.pairs.entry(coarsened(pair, self.coarse)).or_insert(0) += count;
            }
        }
    }

    /// Brackets so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The estimate; `None` without brackets.
    #[must_use]
    pub fn estimate(&self) -> Option<Npmle> {
        let mut pairs: Vec<((i32, i32), u64)> = self
            .pairs
            .iter()
            .map(|(pair, count)| (*pair, *count))
            .collect();
        if pairs.is_empty() {
            return None;
        }
        pairs.sort_unstable();
        let intervals = innermost(pairs.iter().map(|(pair, _)| *pair));
        let problem = Problem::new(&pairs, &intervals);
        let even = vec![1.0 / intervals.len() as f64; intervals.len()];
        let fit = problem.fit(&problem.weights, even, TOLERANCE, MOST_STEPS);
        let place = |number: i32| {
            if number == OPEN {
                Nanos(i64::MIN)
            } else {
                Nanos(grid::at(number))
            }
        };
        let intervals: Vec<(Nanos, Nanos)> = intervals
            .into_iter()
            .map(|(low, high)| (place(low), place(high)))
            .collect();
        Some(Npmle {
            intervals,
            problem,
            fit,
            count: self.count,
        })
    }
}

/// Moves both ends outwards to points that are left after so many coarsenings.
fn coarsened((low, high): (i32, i32), coarse: u32) -> (i32, i32) {
    let low = if low == OPEN {
        OPEN
    } else {
        (low >> coarse) << coarse
    };
    (low, -((-high >> coarse) << coarse))
}

/// The intervals that begin at a low end, end at a high end and hold no other end
/// (Peto 1973); ascending and disjoint.
fn innermost(pairs: impl Iterator<Item = (i32, i32)>) -> Vec<(i32, i32)> {
    // Of equal ends the high one comes first: (a, b] and (b, c] share nothing.
    let mut ends: Vec<(i32, bool)> = pairs
        .flat_map(|(low, high)| [(low, true), (high, false)])
        .collect();
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2)
        .filter_map(|pair| match pair {
            [(low, true), (high, false)] => Some((*low, *high)),
            _ => None,
        })
        .collect()
}

/// Brackets as runs of innermost intervals: `from` is inside, `to` no longer.
#[derive(Clone, Debug)]
struct Problem {
    runs: Vec<(usize, usize)>,
    weights: Vec<f64>,
    intervals: usize,
}

/// Masses of the innermost intervals.
#[derive(Clone, Debug)]
struct Fit {
    masses: Vec<f64>,
    steps: usize,
    gap: f64,
}

impl Problem {
    fn new(pairs: &[((i32, i32), u64)], intervals: &[(i32, i32)]) -> Self {
        let mut weighted: Vec<((usize, usize), f64)> = pairs
            .iter()
            .map(|&((low, high), count)| {
                let from = intervals.partition_point(|interval| interval.0 < low);
                let to = intervals.partition_point(|interval| interval.1 <= high);
                ((from, to), count as f64)
            })
            .collect();
        weighted.sort_unstable_by_key(|(run, _)| *run);
        weighted.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        let (runs, weights) = weighted.into_iter().unzip();
        Self {
            runs,
            weights,
            intervals: intervals.len(),
        }
    }

    /// The masses that maximise Σ w·ln P(bracket), from `masses` on.
    ///
    /// Alternates a step of Turnbull's self-consistency, which is EM, with one of
    /// the iterative convex minorant (Groeneboom & Wellner 1992; damped as by
    /// Jongbloed 1998), as Wellner & Zhan (1997) do: EM alone would take
    /// thousands. The gap is an upper bound of what the log-likelihood still lacks,
    /// max Dⱼ − n with Dⱼ the derivative by the mass j (Lindsay 1983).
    fn fit(&self, weights: &[f64], mut masses: Vec<f64>, tolerance: f64, most: usize) -> Fit {
        let total: f64 = weights.iter().sum();
        let mut gap = f64::INFINITY;
        let mut steps = 0;
        let mut sums = vec![0.0; self.intervals + 1];
        while steps < most {
            accumulate(&masses, &mut sums);
            // D, gathered as differences at the ends of each run.
            let mut derivatives = vec![0.0; self.intervals + 1];
            for (&(from, to), &weight) in self.runs.iter().zip(weights) {
                let share = weight / (sums[to] - sums[from]).max(f64::MIN_POSITIVE);
                derivatives[from] += share;
                derivatives[to] -= share;
            }
            let mut derivative = 0.0;
            let mut largest: f64 = 0.0;
            for (mass, difference) in masses.iter_mut().zip(&derivatives) {
                derivative += difference;
                largest = largest.max(derivative);
                *mass *= (derivative / total).max(0.0);
            }
            gap = largest - total;
            steps += 1;
            if gap <= tolerance {
                break;
            }
            normalise(&mut masses);
            self.convex_minorant(weights, &mut masses, &mut sums);
        }
        normalise(&mut masses);
        Fit {
            masses,
            steps,
            gap: gap.max(0.0),
        }
    }

    /// The log-likelihood of a distribution function.
    fn likelihood(&self, weights: &[f64], sums: &[f64]) -> f64 {
        let one = |(&(from, to), &weight): (&(usize, usize), &f64)| {
            if weight == 0.0 {
                return 0.0;
            }
            let share = sums[to] - sums[from];
            if share > 0.0 {
                weight * share.ln()
            } else {
                f64::NEG_INFINITY
            }
        };
        self.runs.iter().zip(weights).map(one).sum()
    }

    /// A Newton step with the diagonal of the Hessian, projected onto what is
    /// monotone, and halved until the likelihood grows.
    fn convex_minorant(&self, weights: &[f64], masses: &mut [f64], sums: &mut [f64]) {
        let last = self.intervals;
        accumulate(masses, sums);
        let mut slope = vec![0.0; last + 1];
        let mut bend = vec![0.0; last + 1];
        for (&(from, to), &weight) in self.runs.iter().zip(weights) {
            let probability = (sums[to] - sums[from]).max(1e-300);
            let (first, second) = (weight / probability, weight / (probability * probability));
            slope[to] += first;
            slope[from] -= first;
            bend[to] += second;
            bend[from] += second;
        }
        let wanted: Vec<(f64, f64)> = (1..last)
            .map(|at| {
                if bend[at] > 0.0 {
                    (sums[at] + slope[at] / bend[at], bend[at])
                } else {
                    (sums[at], 1e-12)
                }
            })
            .collect();
        let monotone = isotonic(&wanted);
        let before = self.likelihood(weights, sums);
        let mut share = 1.0;
        for _ in 0..12 {
            let tried: Vec<f64> = (0..=last)
                .map(|at| match at {
                    0 => 0.0,
                    at if at == last => 1.0,
                    at => sums[at] + share * (monotone[at - 1].clamp(0.0, 1.0) - sums[at]),
                })
                .collect();
            if self.likelihood(weights, &tried) > before {
                for (mass, pair) in masses.iter_mut().zip(tried.windows(2)) {
                    *mass = (pair[1] - pair[0]).max(0.0);
                }
                return;
            }
            share /= 2.0;
        }
    }
}

/// Running sums, from 0 to 1.
fn accumulate(masses: &[f64], sums: &mut [f64]) {
    let mut sum = 0.0;
    for (mass, into) in masses.iter().zip(sums.iter_mut().skip(1)) {
        sum += mass;
        *into = sum;
    }
}

fn normalise(masses: &mut [f64]) {
    let sum: f64 = masses.iter().sum();
    if sum > 0.0 {
        masses.iter_mut().for_each(|mass| *mass /= sum);
    }
}

/// The monotone sequence nearest to weighted values, by pooling adjacent
/// violators (Ayer et al. 1955).
fn isotonic(values: &[(f64, f64)]) -> Vec<f64> {
    let mut blocks: Vec<(f64, f64, usize)> = Vec::with_capacity(values.len());
    for &(value, weight) in values {
        let mut block = (value, weight, 1);
        while let Some(&(before, its_weight, members)) = blocks.last() {
            if before <= block.0 {
                break;
            }
            let weight = its_weight + block.1;
            block = (
                (before * its_weight + block.0 * block.1) / weight,
                weight,
                members + block.2,
            );
            blocks.pop();
        }
        blocks.push(block);
    }
    blocks
        .into_iter()
        .flat_map(|(value, _, members)| std::iter::repeat_n(value, members))
        .collect()
}

/// A quantile of an estimate: somewhere in (`low`, `high`], the brackets do not
/// say where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantile {
    /// Lower end of the innermost interval; `None` when it has none.
    pub low: Option<Nanos>,
    /// Its middle, or its upper end when there is no lower one.
    pub point: Nanos,
    /// Its upper end.
    pub high: Nanos,
}

/// The non-parametric maximum likelihood estimate.
#[derive(Clone, Debug)]
pub struct Npmle {
    intervals: Vec<(Nanos, Nanos)>,
    problem: Problem,
    fit: Fit,
    count: u64,
}

impl Npmle {
    /// The innermost intervals (low, high], ascending, with their masses, which
    /// sum to 1. A low end of `i64::MIN` is none.
    pub fn intervals(&self) -> impl Iterator<Item = (Nanos, Nanos, f64)> + '_ {
        self.intervals
            .iter()
            .zip(&self.fit.masses)
            .map(|(&(low, high), &mass)| (low, high, mass))
    }

    /// How far the log-likelihood is below its maximum, at most.
    #[must_use]
    pub fn gap(&self) -> f64 {
        self.fit.gap
    }

    /// Steps that the iteration took.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.fit.steps
    }

    /// The quantile `p` (0 to 1).
    #[must_use]
    pub fn quantile(&self, p: f64) -> Quantile {
        self.quantile_of(&self.fit.masses, p)
    }

    /// How many of the brackets say on which side of the quantile `p` their time lay: all but those that hold its innermost
    /// interval and others.
    #[must_use]
    pub fn telling(&self, p: f64) -> f64 {
        let at = Self::reached(&self.fit.masses, p);
        let runs = self.problem.runs.iter().zip(&self.problem.weights);
        runs.filter(|((from, to), _)| !(*from..*to).contains(&at) || to - from == 1)
            .map(|(_, weight)| weight)
            .sum()
    }

    fn quantile_of(&self, masses: &[f64], p: f64) -> Quantile {
        let (low, high) = self
            .intervals
            .get(Self::reached(masses, p))
            .copied()
            .unwrap_or_default();
        let low = (low.0 != i64::MIN).then_some(low);
        Quantile {
            low,
            point: low.map_or(high, |low| low.midpoint(high)),
            high,
        }
    }

    /// The number of the innermost interval in which the distribution passes `p`.
    fn reached(masses: &[f64], p: f64) -> usize {
        let mut sum = 0.0;
        let mut last = 0;
        for (at, mass) in masses
            .iter()
            .enumerate()
            .filter(|(_, mass)| **mass > NOTHING)
        {
            sum += mass;
            last = at;
            if sum >= p - NOTHING {
                break;
            }
        }
        last
    }

    /// 95 % confidence intervals of the quantiles `levels`, each with the inflation
    /// of its variance by dependence between neighbours, in microseconds.
    ///
    /// Percentiles of a bootstrap: 100 resamples of the brackets on the grid, each
    /// re-estimated; from the 2.5 % point of the innermost intervals' lower ends to
    /// the 97.5 % point of their upper ends, since what the brackets leave open is
    /// uncertain too. The distance of both from the estimate is stretched by
    /// √inflation. Where brackets are wide the estimate's error falls more slowly than
    /// 1/√n (Groeneboom & Wellner 1992), and there the plain bootstrap is not proved
    /// right; with the outer ends its simulated coverage was 92 to 98 % (100 to 3,000
    /// rounds, periods of polling from half to twice the spread of the lag).
    #[must_use]
    pub fn bootstrap<const N: usize>(&self, levels: [(f64, f64); N]) -> [[f64; 2]; N] {
        let mut random = Random::new(SEED);
        let mut found: Vec<[(Nanos, Nanos); N]> = Vec::with_capacity(RESAMPLES);
        let even = 1.0 / self.intervals.len() as f64;
        // Empty intervals may hold something in a resample.
        let start: Vec<f64> = self
            .fit
            .masses
            .iter()
            .map(|mass| 0.9 * mass + 0.1 * even)
            .collect();
        for _ in 0..RESAMPLES {
            let weights: Vec<f64> = self
                .problem
                .weights
                .iter()
                .map(|weight| random.poisson(*weight))
                .collect();
            if weights.iter().all(|weight| *weight == 0.0) {
                continue;
            }
            let fit = self
                .problem
                .fit(&weights, start.clone(), RESAMPLE_TOLERANCE, RESAMPLE_STEPS);
            found.push(levels.map(|(p, _)| {
                let quantile = self.quantile_of(&fit.masses, p);
                (quantile.low.unwrap_or(quantile.high), quantile.high)
            }));
        }
        let mut at = 0;
        levels.map(|(p, inflation)| {
            let own = self.quantile(p);
            let mut lows: Vec<Nanos> = found.iter().map(|levels| levels[at].0).collect();
            let mut highs: Vec<Nanos> = found.iter().map(|levels| levels[at].1).collect();
            at += 1;
            lows.sort_unstable();
            highs.sort_unstable();
            let rank = |p: f64| {
                usize::try_from(rank_of(p, found.len() as u64))
                    .unwrap_or(1)
                    .saturating_sub(1)
            };
            let low = lows.get(rank(0.025)).copied().unwrap_or(own.point);
            let high = highs.get(rank(0.975)).copied().unwrap_or(own.point);
            let stretch = inflation.max(1.0).sqrt();
            [-1.0, 1.0].map(|side| {
                let reach = if side < 0.0 {
                    own.point - low
                } else {
                    high - own.point
                };
                own.point.as_micros() + side * reach.as_micros().max(0.0) * stretch
            })
        })
    }

    /// The figures as they are reported, and how closely the brackets determine
    /// them. `inflation` tells by how much dependence between neighbours inflates
    /// the variance of the share of samples at most that late; where it is `None`
    /// there are no confidence intervals.
    #[must_use]
    pub fn figures(&self, inflation: impl Fn(Nanos) -> Option<f64>) -> (Distribution, Innermost) {
        let stated = |p: f64| {
            let beyond = self.count.saturating_sub(rank_of(p, self.count));
            (beyond >= BEYOND).then(|| self.quantile(p))
        };
        let point = |p: f64| stated(p).map(|quantile| quantile.point.as_micros());
        let within = |p: f64| {
            stated(p).map(|quantile| {
                [quantile.low.unwrap_or(quantile.high), quantile.high].map(Nanos::as_micros)
            })
        };
        let held: Vec<(f64, f64, f64)> = self
            .intervals()
            .filter(|(_, _, mass)| *mass > NOTHING)
            .map(|(low, high, mass)| {
                let low = if low.0 == i64::MIN { high } else { low };
                (low.as_micros(), high.as_micros(), mass)
            })
            .collect();
        let mean: f64 = held
            .iter()
            .map(|(low, high, mass)| low.midpoint(*high) * mass)
            .sum();
        let variance: f64 = held
            .iter()
            .map(|(low, high, mass)| (low.midpoint(*high) - mean).powi(2) * mass)
            .sum();
        let samples = self.count as f64;
        let ci95 = stated(0.5).map(|median| {
            let of = |p: f64| stated(p).and_then(|quantile| inflation(quantile.point));
            let inflations = LEVELS.map(of);
            let intervals = if inflations[0].is_some() {
                let mut at = 0;
                let levels = LEVELS.map(|p| {
                    at += 1;
                    (p, inflations[at - 1].unwrap_or(1.0))
                });
                let intervals = self.bootstrap(levels);
                let mut at = 0;
                intervals.map(|interval| {
                    at += 1;
                    inflations[at - 1].map(|_| interval)
                })
            } else {
                [None; LEVELS.len()]
            };
            let [p50_us, p90_us, p95_us, p99_us] = intervals;
            Intervals {
                p50_us,
                p90_us,
                p95_us,
                p99_us,
                p999_us: None,
                inflation: inflation(median.point),
            }
        });
        let distribution = Distribution {
            count: self.count,
            min_us: held.first().map(|(low, _, _)| *low),
            mean_us: Some(mean),
            stdev_us: (self.count > 1)
                .then(|| (variance * samples / (samples - 1.0)).max(0.0).sqrt()),
            p50_us: point(0.5),
            p90_us: point(0.9),
            p95_us: point(0.95),
            p99_us: point(0.99),
            p999_us: point(0.999),
            max_us: held.last().map(|(_, high, _)| *high),
            ci95,
        };
        let innermost = Innermost {
            p50_us: within(0.5),
            p90_us: within(0.9),
            p99_us: within(0.99),
            steps: self.fit.steps as u64,
            likelihood_gap: self.fit.gap,
        };
        (distribution, innermost)
    }
}

/// Quantiles that get confidence intervals.
const LEVELS: [f64; 4] = [0.5, 0.9, 0.95, 0.99];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One unit of the textbook examples: on the grid, and far from its finest points.
    const UNIT: i64 = 64_000;

    fn of(brackets: &[(i64, i64)]) -> Npmle {
        let mut all = Brackets::default();
        for (low, high) in brackets {
            all.record(Some(Nanos(low * UNIT)), Nanos(high * UNIT));
        }
        all.estimate().unwrap()
    }

    /// Intervals with mass in units, and the mass.
    fn masses(estimate: &Npmle) -> Vec<(f64, f64, f64)> {
        let unit = UNIT as f64;
        let held = estimate.intervals().filter(|(_, _, mass)| *mass > 1e-4);
        held.map(|(low, high, mass)| (low.0 as f64 / unit, high.0 as f64 / unit, mass))
            .collect()
    }

    fn assert_masses(brackets: &[(i64, i64)], wanted: &[(f64, f64, f64)]) {
        let estimate = of(brackets);
        let got = masses(&estimate);
        let near = |a: f64, b: f64| (a - b).abs() < 0.02;
        let same = got.len() == wanted.len()
            && got
                .iter()
                .zip(wanted)
                .all(|(a, b)| near(a.0, b.0) && near(a.1, b.1) && (a.2 - b.2).abs() < 0.01);
        assert!(
            same,
            "{got:?} for {wanted:?}, {} steps, gap {}",
            estimate.steps(),
            estimate.gap()
        );
        assert!(estimate.gap() <= TOLERANCE, "{}", estimate.gap());
    }

    #[test]
    fn one_bracket_says_no_more_than_itself() {
        assert_masses(&[(2, 4)], &[(2.0, 4.0, 1.0)]);
    }

    #[test]
    fn brackets_that_overlap_leave_what_they_share() {
        // Peto 1973: all of the mass is where all could be.
        assert_masses(&[(0, 3), (2, 5), (1, 4)], &[(2.0, 3.0, 1.0)]);
        // Ends that only touch share nothing: (0, 1] and (1, 2].
        assert_masses(&[(0, 1), (1, 2)], &[(0.0, 1.0, 0.5), (1.0, 2.0, 0.5)]);
    }

    #[test]
    fn the_chain_of_four_by_hand() {
        // (0,1], (0,2], (1,3], (2,3]: innermost are (0,1], (1,2], (2,3] with masses
        // a, b, c; a(a+b)(b+c)c under a+b+c = 1 is largest at a = c = ½, b = 0.
        assert_masses(
            &[(0, 1), (0, 2), (1, 3), (2, 3)],
            &[(0.0, 1.0, 0.5), (2.0, 3.0, 0.5)],
        );
    }

    #[test]
    fn current_status_data_by_the_formula() {
        // Only "before" or "after" the time of looking: the estimate at the times of
        // looking is the isotonic regression of the answers (Ayer et al. 1955).
        // Looked at 1, 2, 3, 4, 5: before is 0, 1, 0, 1, 1; regression 0, ½, ½, 1, 1.
        let brackets = [(1, 100), (0, 2), (3, 100), (0, 4), (0, 5)];
        let estimate = of(&brackets);
        let at = |units: i64| -> f64 {
            estimate
                .intervals()
                .filter(|(_, high, _)| high.0 <= units * UNIT + UNIT / 50)
                .map(|(_, _, mass)| mass)
                .sum()
        };
        for (units, wanted) in [(1, 0.0), (2, 0.5), (3, 0.5), (4, 1.0), (5, 1.0)] {
            assert!(
                (at(units) - wanted).abs() < 0.01,
                "F({units}) = {} for {wanted}",
                at(units)
            );
        }
    }

    #[test]
    fn self_consistent_as_turnbull_asks() {
        // Each mass is the mean share of the brackets that hold its interval.
        let brackets = [
            (0, 3),
            (1, 5),
            (2, 4),
            (3, 7),
            (5, 8),
            (6, 9),
            (0, 9),
            (7, 8),
            (1, 2),
        ];
        let estimate = of(&brackets);
        let held: Vec<(Nanos, Nanos, f64)> = estimate.intervals().collect();
        for (low, high, mass) in &held {
            let share: f64 = brackets
                .iter()
                .map(|(from, to)| {
                    let inside = |low: &Nanos, high: &Nanos| {
                        low.0 >= grid::at(grid::floor(from * UNIT))
                            && high.0 <= grid::at(grid::ceil(to * UNIT))
                    };
                    let total: f64 = held
                        .iter()
                        .filter(|(low, high, _)| inside(low, high))
                        .map(|(_, _, mass)| mass)
                        .sum();
                    if inside(low, high) { mass / total } else { 0.0 }
                })
                .sum();
            assert!(
                (share / brackets.len() as f64 - mass).abs() < 1e-3,
                "{low:?} {high:?} {mass}"
            );
        }
    }

    #[test]
    fn exact_times_give_the_empirical_distribution() {
        let mut all = Brackets::default();
        for value in 1..=1000i64 {
            all.record(Some(Nanos(value * 1_000_000)), Nanos(value * 1_000_000));
        }
        let estimate = all.estimate().unwrap();
        for p in [0.01, 0.1, 0.5, 0.9, 0.99] {
            let quantile = estimate.quantile(p);
            let exact = (p * 1e9) as i64;
            assert!(
                quantile.low.unwrap().0 < exact && exact <= quantile.high.0,
                "{p}: {quantile:?}"
            );
            assert!(
                (quantile.point.0 - exact).abs() <= exact / 127,
                "{p}: {quantile:?}"
            );
        }
        let (figures, within) = estimate.figures(|_| None);
        assert_eq!((figures.count, figures.p999_us), (1000, None));
        assert!(
            (figures.mean_us.unwrap() - 500_500.0).abs() < 500.0,
            "{figures:?}"
        );
        assert!(
            within
                .p50_us
                .is_some_and(|[low, high]| low < 500_000.0 && high >= 500_000.0)
        );
    }

    #[test]
    fn a_missing_lower_end_is_none() {
        let mut all = Brackets::default();
        all.record(None, Nanos(5 * UNIT));
        assert_eq!(all.estimate().unwrap().quantile(0.5).low, None);
        all.record(Some(Nanos(UNIT)), Nanos(3 * UNIT));
        all.record(None, Nanos(2 * UNIT));
        let median = all.estimate().unwrap().quantile(0.5);
        assert!(
            median.low.is_some_and(|low| low.0 >= UNIT - UNIT / 50)
                && median.high.0 <= 2 * UNIT + UNIT / 50,
            "{median:?}"
        );
    }

    /// Times with an exponential tail, seen by polls of a period with a random
    /// phase, in microseconds.
    fn polled(
        random: &mut Random,
        rounds: usize,
        period: f64,
        truth: impl Fn(f64) -> f64,
    ) -> Vec<(i64, i64)> {
        let ns = |us: f64| (us * 1e3) as i64;
        (0..rounds)
            .map(|_| {
                let time = truth(random.uniform());
                let phase = random.uniform() * period;
                let low = ((time - phase) / period).floor() * period + phase;
                (ns(low.max(0.0)), ns(low + period))
            })
            .collect()
    }

    #[test]
    fn recovers_what_midpoints_miss() {
        // Exponential with mean 100 µs, polled every 150 µs.
        let mut random = Random::new(1);
        let truth = |uniform: f64| -100.0 * uniform.ln();
        let brackets = polled(&mut random, 20_000, 150.0, truth);
        let mut all = Brackets::default();
        brackets
            .iter()
            .for_each(|(low, high)| all.record(Some(Nanos(*low)), Nanos(*high)));
        let estimate = all.estimate().unwrap();
        let mut middles: Vec<f64> = brackets
            .iter()
            .map(|(low, high)| (low + high) as f64 / 2e3)
            .collect();
        middles.sort_by(f64::total_cmp);
        for p in [0.1, 0.25, 0.5, 0.9] {
            let wanted = truth(1.0 - p);
            let got = estimate.quantile(p).point.as_micros();
            let middle = middles[(p * middles.len() as f64) as usize];
            assert!(
                (got - wanted).abs() < 0.12 * wanted.max(60.0),
                "{p}: {got} for {wanted} (midpoint {middle})"
            );
            if p < 0.5 {
                assert!(
                    (middle - wanted).abs() > 2.0 * (got - wanted).abs(),
                    "{p}: midpoint {middle}, estimate {got}, truth {wanted}"
                );
            }
        }
    }

    #[test]
    fn intervals_cover_the_truth() {
        // 100 runs of 300 rounds; lag 100 µs and an exponential tail of 50 µs, polled every 30 µs.
        let mut random = Random::new(7);
        let truth = |uniform: f64| 100.0 - 50.0 * uniform.ln();
        let mut covered = [0; 2];
        for _ in 0..100 {
            let mut all = Brackets::default();
            for (low, high) in polled(&mut random, 300, 30.0, truth) {
                all.record(Some(Nanos(low)), Nanos(high));
            }
            let intervals = all.estimate().unwrap().bootstrap([(0.5, 1.0), (0.9, 1.0)]);
            for ((p, [low, high]), covered) in
                [0.5, 0.9].into_iter().zip(intervals).zip(&mut covered)
            {
                *covered += u32::from(low <= truth(1.0 - p) && truth(1.0 - p) <= high);
            }
        }
        // Nominal 95 of 100; three standard errors are 6.5.
        assert!(covered.iter().all(|covered| *covered >= 89), "{covered:?}");
    }

    #[test]
    fn memory_does_not_grow_with_the_rounds() {
        let mut random = Random::new(3);
        let mut all = Brackets::default();
        for _ in 0..300_000 {
            let low = (random.uniform() * 1e9) as i64 - 100_000_000;
            all.record(
                Some(Nanos(low)),
                Nanos(low + (random.uniform() * 1e8) as i64),
            );
        }
        assert!(all.pairs.len() <= MOST_PAIRS, "{}", all.pairs.len());
        assert_eq!(all.pairs.values().sum::<u64>(), 300_000);
    }

    proptest! {
        #[test]
        fn mass_is_one_and_the_function_rises(
            brackets in proptest::collection::vec((any::<i64>(), proptest::option::of(-2_000_000i64..2_000_000), 0i64..3_000_000), 1..60)
        ) {
            let mut all = Brackets::default();
            for (far, low, width) in &brackets {
                match low {
                    Some(low) => all.record(Some(Nanos(*low)), Nanos(low + width)),
                    // Anything at all, even the wrong way round.
                    None => all.record((far % 2 == 0).then_some(Nanos(far.rotate_left(7))), Nanos(*far)),
                }
            }
            let estimate = all.estimate().unwrap();
            let total: f64 = estimate.intervals().map(|(_, _, mass)| mass).sum();
            prop_assert!((total - 1.0).abs() < 1e-9, "{total}");
            prop_assert!(estimate.intervals().all(|(low, high, mass)| low < high && mass >= 0.0));
            let mut last = Nanos(i64::MIN);
            for p in [0.0, 0.1, 0.5, 0.9, 1.0] {
                let quantile = estimate.quantile(p);
                prop_assert!(quantile.point >= last && quantile.high >= quantile.point);
                last = quantile.point;
            }
            let _ = estimate.figures(|_| Some(2.0));
        }
    }
}
