//! The median of independent values, with an interval by order statistics.

use replimeter_model::estimate::Estimate;

/// Returns the ranks (from 1) between which the median lies with at least 95 % confidence, by the
/// binomial distribution of the number below it (David & Nagaraja 2003, 7.1); `None` below six,
/// which are too few, and above a thousand, where the first term is no longer a number.
fn ranks(count: usize) -> Option<(usize, usize)> {
    let mut term = 0.5f64.powi(i32::try_from(count).ok()?);
    let (mut below, mut rank) = (0.0, 0);
    while rank < count {
        below += term;
        if below > 0.025 {
            break;
        }
        term *= (count - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    (rank > 0 && rank <= count / 2).then(|| (rank, count + 1 - rank))
}

/// Returns the median of independent values with its 95 % interval; without one below six values and above a thousand.
#[must_use]
pub fn of_values(values: &[f64]) -> Estimate {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    };
    let ends = ranks(sorted.len()).map(|(low, high)| [sorted[low - 1], sorted[high - 1]]);
    Estimate::with_ends(median, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_match_the_table() {
        // Conover 1999, table A3 with p = 0.5.
        assert_eq!(ranks(5), None);
        assert_eq!(ranks(6), Some((1, 6)));
        assert_eq!(ranks(10), Some((2, 9)));
        assert_eq!(ranks(20), Some((6, 15)));
        assert_eq!(ranks(1000), Some((469, 532)));
        assert_eq!(ranks(2000), None);
    }

    #[test]
    fn median_is_between_the_middle_values() {
        assert_eq!(of_values(&[]), Estimate::default());
        assert_eq!(of_values(&[3.0, 1.0, 2.0]), Estimate::of(2.0));
        let six = of_values(&[6.0, 1.0, 5.0, 2.0, 4.0, 3.0]);
        assert_eq!((six.value, six.ends()), (Some(3.5), Some([1.0, 6.0])));
    }
}
