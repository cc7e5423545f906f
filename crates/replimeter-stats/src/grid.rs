//! A fixed grid of signed nanoseconds for counting.
//!
//! Its points are those of an HDR histogram mirrored at zero: equidistant near zero, and from there
//! on 128 per doubling, so that neighbors are 0.4 to 0.8 % apart.

/// Distance of the points near zero, in nanoseconds: less than any method resolves.
const FINEST: u32 = 6;
/// Points per doubling.
const PER_DOUBLING: u64 = 128;
/// Below this distance from zero, points are equidistant.
const LINEAR: u64 = 2 * PER_DOUBLING;

/// Returns the index of the last point at or below a magnitude, and whether it equals that point.
fn below(magnitude: u64) -> (i32, bool) {
    let units = magnitude >> FINEST;
    let doublings = if units < LINEAR {
        0
    } else {
        units.ilog2() - PER_DOUBLING.ilog2()
    };
    let number = u64::from(doublings) * PER_DOUBLING + (units >> doublings);
    // 64 doublings of 128 points fit easily.
    (
        i32::try_from(number).unwrap_or(i32::MAX),
        magnitude.trailing_zeros() >= doublings + FINEST,
    )
}

/// Returns the index of the last point at or below `value`.
pub(crate) fn floor(value: i64) -> i32 {
    let (number, exact) = below(value.unsigned_abs());
    match value {
        0.. => number,
        _ if exact => -number,
        _ => -number - 1,
    }
}

/// Returns the index of the first point at or above `value`.
pub(crate) fn ceil(value: i64) -> i32 {
    let (number, exact) = below(value.unsigned_abs());
    match value {
        0.. if exact => number,
        0.. => number + 1,
        _ => -number,
    }
}

/// Returns the point with this index, in nanoseconds; saturates at the largest number.
pub(crate) fn at(number: i32) -> i64 {
    let magnitude = u64::from(number.unsigned_abs());
    let doublings = if magnitude < LINEAR {
        0
    } else {
        magnitude / PER_DOUBLING - 1
    };
    let units = magnitude - doublings * PER_DOUBLING;
    let place = i64::try_from(u128::from(units) << (doublings.min(63) + u64::from(FINEST)))
        .unwrap_or(i64::MAX);
    if number < 0 { -place } else { place }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn grid_points_are_ordered_and_dense() {
        for number in -6000..6000 {
            let (here, next) = (at(number), at(number + 1));
            assert!(here < next, "{number}");
            assert!(
                next - here <= 64.max(here.abs().max(next.abs()) / 127),
                "{number}: {here} {next}"
            );
            assert_eq!((floor(here), ceil(here)), (number, number));
            assert_eq!((floor(next - 1), ceil(here + 1)), (number, number + 1));
        }
    }

    proptest! {
        #[test]
        fn every_value_lies_between_grid_points(value in any::<i64>()) {
            prop_assert!(at(floor(value)) <= value && at(ceil(value)) >= value);
            prop_assert!(ceil(value) - floor(value) <= 1);
        }
    }
}
