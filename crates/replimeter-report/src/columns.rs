//! The columns in which every output shows a distribution.

use replimeter_model::record::Distribution;

use crate::figures::{Unit, count};

/// Their headings.
pub(crate) const HEADINGS: [&str; 11] = ["n", "min", "mean", "stdev", "p50", "95 % of p50", "p90", "p95", "p99", "p99.9", "max"];

/// A distribution's cells; a dash for what the sample cannot carry.
pub(crate) fn cells(unit: Unit, distribution: &Distribution) -> Vec<String> {
    let show = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| unit.show(us));
    let interval = distribution.ci95.as_ref().and_then(|ci| ci.p50_us);
    let mut cells = vec![count(distribution.count)];
    cells.extend([distribution.min_us, distribution.mean_us, distribution.stdev_us, distribution.p50_us].map(show));
    cells.push(interval.map_or_else(|| "–".to_owned(), |[low, high]| format!("{}–{}", unit.show(low), unit.show(high))));
    cells.extend(
        [distribution.p90_us, distribution.p95_us, distribution.p99_us, distribution.p999_us, distribution.max_us].map(show),
    );
    cells
}
