//! The masses of innermost intervals that maximize the likelihood of the brackets.

/// Returns the intervals that begin at a low end, end at a high end and contain no other end (Peto
/// 1973); ascending and disjoint.
pub(super) fn turnbull_intervals(pairs: impl Iterator<Item = (i32, i32)>) -> Vec<(i32, i32)> {
    // Of equal ends the high one comes first: (a, b] and (b, c] do not overlap.
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

/// Brackets as runs of innermost intervals: `from` is included, `to` is not.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) runs: Vec<(usize, usize)>,
    pub(super) weights: Vec<f64>,
    intervals: usize,
}

/// Masses of the innermost intervals.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    pub(super) masses: Vec<f64>,
    pub(super) steps: usize,
    pub(super) gap: f64,
}

impl Problem {
    pub(super) fn new(pairs: &[((i32, i32), u64)], intervals: &[(i32, i32)]) -> Self {
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

    /// Returns the masses that maximize Σ w·ln P(bracket), starting from `masses`.
    ///
    /// Alternates a step of Turnbull's self-consistency, which is EM, with one of the iterative
    /// convex minorant (Groeneboom & Wellner 1992; damped as by Jongbloed 1998), as Wellner & Zhan
    /// (1997) do: EM alone would need thousands. The gap is an upper bound of the remaining
    /// increase of the log-likelihood, max Dⱼ − n with Dⱼ the derivative by the mass j (Lindsay
    /// 1983).
    pub(super) fn fit(
        &self,
        weights: &[f64],
        mut masses: Vec<f64>,
        tolerance: f64,
        most: usize,
    ) -> Fit {
        let total: f64 = weights.iter().sum();
        let mut gap = f64::INFINITY;
        let mut steps = 0;
        let mut sums = vec![0.0; self.intervals + 1];
        while steps < most {
            accumulate(&masses, &mut sums);
            // D, accumulated as differences at the ends of each run.
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

    /// Returns the log-likelihood of a distribution function.
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

    /// Takes a Newton step with the diagonal of the Hessian, projected onto monotone functions, and
    /// halved until the likelihood increases.
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

/// Computes running sums, from 0 to 1.
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

/// Returns the monotone sequence nearest to weighted values, by pooling adjacent
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
