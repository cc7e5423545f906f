//! Reproducible random numbers.

/// Steele, Lea & Flood's splitmix64 (2014): the same seed, the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    #[inline]
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the sequence of this number; neighboring sequences are independent.
    #[inline]
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        Self(number.wrapping_mul(0xA076_1D64_78BD_642F))
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number uniform on (0, 1).
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Returns a number uniform on [0, 1).
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns the waiting time until the next event of a Poisson process, in units of its mean.
    pub fn exponential(&mut self) -> f64 {
        // Never the logarithm of zero.
        -(1.0 - self.fraction()).ln()
    }

    /// Returns a whole number from `low` to `high`, both included. The bias of the multiplication is below 2⁻³² for
    /// ranges that tables have.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = u128::from(high - low) + 1;
        low + ((u128::from(self.bits()) * width) >> 64) as u64
    }

    /// Returns a whole number from 0 to `count` − 1 (Lemire 2019, without his rejection; the
    /// remaining bias is below `count` / 2⁶⁴); 0 for a `count` of 0.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.bits()) * count as u128) >> 64) as usize
    }

    /// Returns a number from the standard normal distribution (Box & Muller 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Returns a Poisson number of that mean, as for the count of an observation in a resample. Exact below 50
    /// (inversion), a normal approximation above.
    pub fn poisson(&mut self, mean: f64) -> f64 {
        if mean < 50.0 {
            let uniform = self.uniform();
            let mut term = (-mean).exp();
            let (mut sum, mut number) = (term, 0.0);
            while uniform > sum && number < 200.0 {
                number += 1.0;
                term *= mean / number;
                sum += term;
            }
            return number;
        }
        (mean + mean.sqrt() * self.normal()).round().max(0.0)
    }

    /// Puts items into random order, each order as probable as any (Durstenfeld 1964).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data sets and intervals of earlier runs were made with these.
    #[test]
    fn random_sequences_are_stable() {
        let bits = |mut random: Random| [random.bits(), random.bits(), random.bits()];
        assert_eq!(
            bits(Random::new(1)),
            [
                0x910A_2DEC_8902_5CC1,
                0xBEEB_8DA1_658E_EC67,
                0xF893_A2EE_FB32_555E
            ]
        );
        assert_eq!(
            bits(Random::numbered(1)),
            [
                0x4396_D60D_BD85_37AF,
                0xE98F_F1A0_396F_F552,
                0xFE06_12E3_95AB_3D91
            ]
        );
        let mut random = Random::numbered(7);
        assert_eq!(
            (
                random.between(1, 1000),
                random.fraction(),
                random.exponential()
            ),
            (803, 0.9344820117362765, 0.41544653833464673)
        );
    }

    #[test]
    fn shuffle_is_repeatable_and_complete() {
        let order = |seed| {
            let mut items: Vec<usize> = (0..20).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
        let mut sorted = order(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn shuffle_orders_are_equally_likely() {
        let mut random = Random::new(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *seen.entry(items).or_insert(0u32) += 1;
        }
        // 1,000 each; five standard deviations are 144.
        assert!(
            seen.len() == 6 && seen.values().all(|count| (856..=1144).contains(count)),
            "{seen:?}"
        );
        assert_eq!(random.below(0), 0);
    }
}
