//! The figures of `calibrate`.

use replimeter_instruments::calibrate::results::CalibrateResults;
use replimeter_run::{
    figures,
    figures::{DimensionSpec, METHOD, REPLICA, StatedFigures, digits},
};

const ROW: &[DimensionSpec] = &[
    REPLICA,
    METHOD,
    DimensionSpec::new("injected_us")
        .label("{} µs injected")
        .never_compared(),
];

const REFERENCE: &[DimensionSpec] = &[
    METHOD,
    DimensionSpec::new("observers")
        .label("{} observers")
        .never_compared(),
    DimensionSpec::new("neighbors")
        .label("{} neighbors")
        .never_compared(),
    DimensionSpec::new("delays").never_compared(),
];

figures! {
    LAG = "calibrate.measured" [p50 p99]: Us, Lower, Ratio, of ROW;
    // An error can have either sign.
    ERROR = "calibrate.error" [p50 p99]: Us, Neither, Difference, of ROW;
    BIAS = "calibrate.reference_error" [p50]: Us, Neither, Difference, of REFERENCE;
}

pub(super) fn stated(results: &CalibrateResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    for row in &results.rows {
        let injected = digits(row.injected_us);
        let of = [row.replica.as_str(), &row.method, &injected];
        figures.distribution(LAG, &of, &row.measured);
        let errors = [
            (row.error_p50_us, row.error_p50_us_ci95),
            (row.error_p99_us, row.error_p99_us_ci95),
        ];
        for (spec, (value, ends)) in ERROR.iter().zip(errors) {
            figures.add(spec, &of, value, ends, row.rounds);
        }
    }
    for row in &results.reference {
        let [observers, neighbors] = [row.observers, row.neighbors].map(|count| count.to_string());
        let of = [row.method.as_str(), &observers, &neighbors, &row.delays];
        let error = &row.error_us;
        figures.add(&BIAS[0], &of, error.p50_us, error.p50_us_ci95, row.rounds);
    }
    figures
}
