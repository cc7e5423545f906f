//! The exact binomial test: whether a share exceeds its expected value.

use statrs::distribution::{Beta, ContinuousCDF};

/// A count with at most this probability is significant.
const LEVEL: f64 = 0.05;

/// An observed count, compared with an expected share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Excess {
    /// The number of events.
    pub count: u64,
    /// The number of trials.
    pub of: u64,
    /// The probability of this count or more if the true share were the expected one (one-sided
    /// exact binomial test).
    pub p_value: f64,
    /// The exact 95 % interval of the true share (Clopper & Pearson 1934).
    pub share: [f64; 2],
}

impl Excess {
    /// Compares `count` out of `of` with the `expected` share (0 to 1).
    #[must_use]
    pub fn over(count: u64, of: u64, expected: f64) -> Self {
        let count = count.min(of);
        let (happened, not) = (count as f64, (of - count) as f64);
        let low = if count == 0 {
            Some(0.0)
        } else {
            beta(happened, not + 1.0).map(|beta| beta.inverse_cdf(0.025))
        };
        let high = if count == of {
            Some(1.0)
        } else {
            beta(happened + 1.0, not).map(|beta| beta.inverse_cdf(0.975))
        };
        Self {
            count,
            of,
            p_value: at_least(count, of, expected),
            share: [low.unwrap_or(0.0), high.unwrap_or(1.0)],
        }
    }

    /// Returns whether the share is significantly above the expected one (at 5 %).
    #[must_use]
    pub fn significant(&self) -> bool {
        self.p_value < LEVEL
    }
}

fn beta(a: f64, b: f64) -> Option<Beta> {
    Beta::new(a, b).ok()
}

/// Returns the probability that at least `count` of `of` independent trials succeed, each with
/// probability `share`.
#[must_use]
pub fn at_least(count: u64, of: u64, share: f64) -> f64 {
    if count == 0 {
        return 1.0;
    }
    if count > of || share <= 0.0 {
        return 0.0;
    }
    if share >= 1.0 {
        return 1.0;
    }
    // The tail is a regularized incomplete beta function (Abramowitz & Stegun 1964, 26.5.24).
    beta(count as f64, (of - count) as f64 + 1.0).map_or(f64::NAN, |beta| beta.cdf(share))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_values_are_reproduced() {
        // 1 − 0.95²⁰ and 1 − 0.95²⁰ − 20 × 0.05 × 0.95¹⁹.
        assert!((at_least(1, 20, 0.05) - 0.641_514_077_8).abs() < 1e-9);
        assert!((at_least(2, 20, 0.05) - 0.264_160_475_5).abs() < 1e-9);
        assert!((at_least(4, 20, 0.05) - 0.015_901_527).abs() < 1e-7);
        assert!((at_least(5, 5, 0.5) - 1.0 / 32.0).abs() < 1e-12);
        assert_eq!(
            (
                at_least(0, 9, 0.1),
                at_least(10, 9, 0.1),
                at_least(3, 9, 0.0)
            ),
            (1.0, 0.0, 0.0)
        );
    }

    #[test]
    fn four_of_twenty_are_significant_and_three_are_not() {
        assert!(!Excess::over(3, 20, 0.05).significant());
        let four = Excess::over(4, 20, 0.05);
        assert!(four.significant());
        // R: binom.test(4, 20)$conf.int is 0.0573 … 0.4366.
        assert!(
            (four.share[0] - 0.057_334).abs() < 1e-5 && (four.share[1] - 0.436_614).abs() < 1e-5,
            "{four:?}"
        );
        assert_eq!(Excess::over(0, 20, 0.05).share[0], 0.0);
        assert_eq!(Excess::over(20, 20, 0.05).share[1], 1.0);
    }

    proptest! {
        #[test]
        fn tail_is_the_sum_of_probabilities(of in 1u64..30, count in 0u64..30, share in 0.01f64..0.99) {
            let count = count.min(of);
            let choose = |k: u64| (1..=k).fold(1.0, |product, i| product * (of - k + i) as f64 / i as f64);
            let term = |k: u64| choose(k) * share.powi(k as i32) * (1.0 - share).powi((of - k) as i32);
            let sum: f64 = (count..=of).map(term).sum();
            prop_assert!((at_least(count, of, share) - sum).abs() < 1e-9);
        }

        #[test]
        fn share_is_in_its_interval(of in 1u64..500, count in 0u64..500) {
            let excess = Excess::over(count.min(of), of, 0.05);
            let share = excess.count as f64 / of as f64;
            prop_assert!(excess.share[0] <= share + 1e-9 && share <= excess.share[1] + 1e-9);
        }
    }
}
