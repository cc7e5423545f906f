//! Distributions of random parameters.

use replimeter_model::random::Random;

/// Number of uniform numbers whose sum approximates a bell curve (as in sysbench).
const GAUSSIAN_DRAWS: u32 = 12;
/// The share of sysbench's `special` numbers, and the width of their part of the range.
const SPECIAL_SHARE: f64 = 0.75;
const SPECIAL_WIDTH: f64 = 0.01;
/// sysbench's parameter of its Pareto distribution: 20 % of the range get 80 % of the numbers.
const PARETO: f64 = 0.2;
/// sysbench's exponent of its Zipf distribution.
pub(super) const ZIPF: f64 = 0.8;

/// Shape of a distribution over a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// Every number with the same probability.
    Uniform,
    /// A quarter in a bell over the whole range, three quarters uniform in its middle hundredth: the
    /// default of sysbench 1.0.
    Special,
    /// A bell around the middle.
    Gaussian,
    /// The lowest numbers most often, with sysbench's default parameter.
    Pareto,
    /// The n-th lowest with a probability proportional to 1/nˢ.
    Zipf(f64),
}

/// Whole numbers from a range that includes both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Distribution {
    low: u64,
    high: u64,
    kind: DistributionKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum DistributionKind {
    Uniform,
    Special,
    Gaussian,
    Pareto(f64),
    Zipf(Zipf),
}

impl Distribution {
    /// Creates the distribution over a range with `low` at most `high`.
    pub(super) fn new(shape: Shape, low: u64, high: u64) -> Self {
        let high = high.max(low);
        let kind = match shape {
            Shape::Uniform => DistributionKind::Uniform,
            Shape::Special => DistributionKind::Special,
            Shape::Gaussian => DistributionKind::Gaussian,
            Shape::Pareto => DistributionKind::Pareto(PARETO.ln() / (1.0 - PARETO).ln()),
            Shape::Zipf(exponent) => {
                DistributionKind::Zipf(Zipf::new((high - low).saturating_add(1), exponent))
            }
        };
        Self { low, high, kind }
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let width = self.high - self.low;
        let offset = match &self.kind {
            DistributionKind::Uniform => return random.between(self.low, self.high),
            DistributionKind::Special => {
                let place = random.fraction();
                let width = width as f64;
                if place < 1.0 - SPECIAL_SHARE {
                    gaussian(random) * width
                } else {
                    // The middle hundredth, placed as in sysbench: its first quarter stays empty.
                    let special = width * SPECIAL_WIDTH;
                    (place * (special + 1.0) + width / 2.0 - special / 2.0).trunc()
                }
            }
            DistributionKind::Gaussian => gaussian(random) * (width as f64 + 1.0),
            DistributionKind::Pareto(power) => {
                random.fraction().powf(*power) * (width as f64 + 1.0)
            }
            DistributionKind::Zipf(zipf) => (zipf.draw(random) - 1) as f64,
        };
        // Rounding must not leave the range.
        self.low + (offset as u64).min(width)
    }
}

fn gaussian(random: &mut Random) -> f64 {
    (0..GAUSSIAN_DRAWS).map(|_| random.fraction()).sum::<f64>() / f64::from(GAUSSIAN_DRAWS)
}

/// The Zipf distribution on 1…n by rejection-inversion (Hörmann & Derflinger, ACM
/// TOMACS 6.3, 1996), in constant time and memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Zipf {
    count: f64,
    exponent: f64,
    /// The area of the hat below 3/2, minus 1, and below n + 1/2.
    first: f64,
    last: f64,
    /// A point closer than this to its number is accepted without a further check.
    near: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self {
            count: count as f64,
            exponent,
            first: 0.0,
            last: 0.0,
            near: 0.0,
        };
        zipf.first = zipf.area(1.5) - 1.0;
        zipf.last = zipf.area(zipf.count + 0.5);
        zipf.near = 2.0 - zipf.point(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// Returns x⁻ˢ.
    fn height(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Returns its integral from 1: (x¹⁻ˢ − 1) / (1 − s), and ln x for s = 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.exponent) * log;
        if t.abs() > 1e-8 {
            t.exp_m1() / t * log
        } else {
            (1.0 + t / 2.0) * log
        }
    }

    /// Returns the inverse of [`area`](Self::area).
    fn point(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        if t.abs() > 1e-8 {
            (t.ln_1p() / t * area).exp()
        } else {
            ((1.0 - t / 2.0) * area).exp()
        }
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.last + random.fraction() * (self.first - self.last);
            let x = self.point(area);
            let number = (x + 0.5).floor().clamp(1.0, self.count);
            if number - x <= self.near || area >= self.area(number + 0.5) - self.height(number) {
                return number as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DRAWS: usize = 200_000;

    fn shares(shape: Shape, low: u64, high: u64) -> Vec<f64> {
        let distribution = Distribution::new(shape, low, high);
        let mut random = Random::numbered(42);
        let mut counts = vec![0u32; (high - low + 1) as usize];
        for _ in 0..DRAWS {
            counts[(distribution.draw(&mut random) - low) as usize] += 1;
        }
        counts
            .into_iter()
            .map(|count| f64::from(count) / DRAWS as f64)
            .collect()
    }

    /// Returns Pearson's statistic for the true probabilities.
    fn chi_square(shares: &[f64], wanted: &[f64]) -> f64 {
        shares
            .iter()
            .zip(wanted)
            .map(|(got, wanted)| (got - wanted).powi(2) / wanted * DRAWS as f64)
            .sum()
    }

    #[test]
    fn zipf_matches_its_distribution() {
        for exponent in [0.0, 0.5, 0.8, 1.0, 1.0 + 1e-12, 1.3, 2.5] {
            let weights: Vec<f64> = (1..=50).map(|n| f64::from(n).powf(-exponent)).collect();
            let sum: f64 = weights.iter().sum();
            let wanted: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
            let got = shares(Shape::Zipf(exponent), 10, 59);
            // 49 degrees of freedom: above 90 once in several thousand tries.
            let chi = chi_square(&got, &wanted);
            assert!(chi < 90.0, "exponent {exponent}: {chi}");
        }
    }

    #[test]
    fn zipf_of_large_range_has_known_head() {
        // H(10⁶, 1) = 14.392726722865723 (harmonic number).
        let distribution = Distribution::new(Shape::Zipf(1.0), 1, 1_000_000);
        let mut random = Random::numbered(7);
        let ones = (0..DRAWS)
            .filter(|_| distribution.draw(&mut random) == 1)
            .count() as f64
            / DRAWS as f64;
        let wanted = 1.0 / 14.392_726_722_865_723;
        // Five standard errors.
        assert!(
            (ones - wanted).abs() < 5.0 * (wanted * (1.0 - wanted) / DRAWS as f64).sqrt(),
            "{ones} for {wanted}"
        );
    }

    #[test]
    fn uniform_pareto_and_special_match_their_shapes() {
        let even = vec![0.02; 50];
        assert!(chi_square(&shares(Shape::Uniform, 0, 49), &even) < 90.0);
        let pareto = shares(Shape::Pareto, 1, 100);
        let lowest: f64 = pareto[..20].iter().sum();
        assert!(
            (lowest - 0.8).abs() < 0.01,
            "80 % in the lowest fifth: {lowest}"
        );
        let special = shares(Shape::Special, 1, 10_000);
        let middle: f64 = special[4950..5052].iter().sum();
        // Three quarters uniform in the middle hundredth, and the bell's share of it: in the
        // middle a sum of twelve has the density 0.3989 / 0.0833 (Irwin–Hall).
        assert!(
            (middle - 0.75 - 0.25 * 0.01 * 4.73).abs() < 0.01,
            "{middle}"
        );
        let gaussian = shares(Shape::Gaussian, 0, 99);
        let inner: f64 = gaussian[41..58].iter().sum();
        assert!(
            (inner - 0.68).abs() < 0.03,
            "one deviation is a twelfth of the range: {inner}"
        );
    }

    #[test]
    fn exponential_has_a_mean_of_one() {
        let mut random = Random::numbered(3);
        let mean = (0..DRAWS).map(|_| random.exponential()).sum::<f64>() / DRAWS as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }

    proptest! {
        #[test]
        fn drawn_numbers_stay_in_range(low in 0u64..u64::MAX, width in 0u64..u64::MAX, seed in any::<u64>(), exponent in 0.0f64..4.0) {
            let high = low.saturating_add(width);
            for shape in [Shape::Uniform, Shape::Special, Shape::Gaussian, Shape::Pareto, Shape::Zipf(exponent)] {
                let distribution = Distribution::new(shape, low, high);
                let mut random = Random::numbered(seed);
                for _ in 0..20 {
                    prop_assert!((low..=high).contains(&distribution.draw(&mut random)));
                }
            }
        }
    }
}
