//! Reduces the points of a chart, keeping every extreme.

/// Points of a series in buckets of equal number, each reduced to its smallest and largest. Takes
/// any number of points in bounded memory: when there would be more than `most` buckets, neighbors
/// are merged.
#[derive(Clone, Debug)]
pub struct Envelope {
    most: usize,
    per_bucket: usize,
    in_last: usize,
    buckets: Vec<[(f64, f64); 2]>,
}

impl Envelope {
    /// Returns an empty envelope of at most `most` buckets (at least 2), that is, twice as many
    /// points.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(2),
            per_bucket: 1,
            in_last: 1,
            buckets: Vec::new(),
        }
    }

    /// Adds a point, in order of x.
    pub fn push(&mut self, x: f64, y: f64) {
        if self.in_last < self.per_bucket
            && let Some(last) = self.buckets.last_mut()
        {
            *last = wider(*last, [(x, y); 2]);
            self.in_last += 1;
            return;
        }
        if self.buckets.len() == self.most {
            self.buckets = self
                .buckets
                .chunks(2)
                .map(|pair| pair.iter().copied().reduce(wider).unwrap_or(pair[0]))
                .collect();
            self.per_bucket *= 2;
            // An odd bucket at the end is only half full.
            if self.most % 2 == 1 {
                self.in_last = self.per_bucket / 2;
                return self.push(x, y);
            }
        }
        self.buckets.push([(x, y); 2]);
        self.in_last = 1;
    }

    /// Returns the points in order of x: every bucket's smallest and largest.
    #[must_use]
    pub fn points(&self) -> Vec<(f64, f64)> {
        let mut points = Vec::with_capacity(self.buckets.len() * 2);
        for [low, high] in &self.buckets {
            let (first, second) = if low.0 <= high.0 {
                (low, high)
            } else {
                (high, low)
            };
            points.push(*first);
            if first != second {
                points.push(*second);
            }
        }
        points
    }

    /// Returns the samples behind each pair of points.
    #[must_use]
    pub fn per_bucket(&self) -> usize {
        self.per_bucket
    }
}

fn wider(a: [(f64, f64); 2], b: [(f64, f64); 2]) -> [(f64, f64); 2] {
    [
        if b[0].1 < a[0].1 { b[0] } else { a[0] },
        if b[1].1 > a[1].1 { b[1] } else { a[1] },
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn extremes_are_kept_and_points_bounded(values in proptest::collection::vec(-1e6f64..1e6, 1..500), most in 2usize..20) {
            let mut envelope = Envelope::new(most);
            for (x, y) in values.iter().enumerate() {
                envelope.push(x as f64, *y);
            }
            let points = envelope.points();
            prop_assert!(points.len() <= 2 * most);
            let max = values.iter().copied().fold(f64::MIN, f64::max);
            let min = values.iter().copied().fold(f64::MAX, f64::min);
            prop_assert!(points.iter().any(|point| point.1 == max) && points.iter().any(|point| point.1 == min));
            prop_assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        }
    }

    #[test]
    fn few_points_are_kept_unchanged() {
        let mut envelope = Envelope::new(10);
        for x in 0..10 {
            envelope.push(f64::from(x), f64::from(-x));
        }
        assert_eq!(envelope.points().len(), 10);
        assert_eq!(envelope.per_bucket(), 1);
    }
}
