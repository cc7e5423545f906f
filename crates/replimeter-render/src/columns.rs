//! The columns of a distribution in every output.

use replimeter_model::record::Distribution;

use crate::{figures::Unit, precision::Precision, report::Cell};

/// The headings.
pub const HEADINGS: [&str; 11] = [
    "n",
    "min",
    "mean",
    "stdev",
    "p50",
    "95 % of p50",
    "p90",
    "p95",
    "p99",
    "p99.9",
    "max",
];

/// Returns a distribution's cells, without digits that are not significant.
pub fn cells(unit: Unit, distribution: &Distribution, precision: Precision<'_>) -> [Cell; 11] {
    let show = |us, half_us| Cell::time(us, half_us, unit);
    let quantile = |us, p| show(us, precision.quantile(p));
    let interval = distribution.p50_us_ci95;
    [
        Cell::Count(distribution.count),
        show(distribution.min_us, precision.single()),
        show(distribution.mean_us, precision.mean()),
        show(distribution.stdev_us, precision.mean()),
        quantile(distribution.p50_us, 0.5),
        Cell::interval(interval, unit),
        quantile(distribution.p90_us, 0.9),
        quantile(distribution.p95_us, 0.95),
        quantile(distribution.p99_us, 0.99),
        quantile(distribution.p999_us, 0.999),
        show(distribution.max_us, precision.single()),
    ]
}
