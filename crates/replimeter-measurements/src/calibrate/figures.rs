//! The figures of `calibrate`.

use replimeter_instruments::calibrate::results::CalibrateDocument;
use replimeter_run::{
    cli_error::CliError,
    figures,
    figures::{DimensionSpec, Figures, METHOD, REPLICA, digits},
};
use replimeter_stats::compare::Resampled;

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

pub(super) fn figures(document: &CalibrateDocument) -> Result<Figures, CliError> {
    let mut figures = Figures::default();
    for row in &document.results.rows {
        let injected = digits(row.injected_us);
        let of = [row.replica.as_str(), &row.method, &injected];
        figures.stated(LAG, &of, &row.measured);
        let errors = [
            (row.error_p50_us, row.error_p50_us_ci95),
            (row.error_p99_us, row.error_p99_us_ci95),
        ];
        for (spec, (value, ends)) in ERROR.iter().zip(errors) {
            let drawn = value.map(|value| Resampled::of_interval(value, ends, row.rounds));
            figures.add(spec, &of, drawn);
        }
    }
    for row in &document.results.reference {
        let [observers, neighbors] = [row.observers, row.neighbors].map(|count| count.to_string());
        let of = [row.method.as_str(), &observers, &neighbors, &row.delays];
        let error = &row.error_us;
        let drawn = error
            .p50_us
            .map(|p50| Resampled::of_interval(p50, error.p50_us_ci95, row.rounds));
        figures.add(&BIAS[0], &of, drawn);
    }
    Ok(figures)
}
