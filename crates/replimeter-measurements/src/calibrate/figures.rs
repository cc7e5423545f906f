//! The figures of `calibrate`.

use replimeter_model::calibrate::CalibrateDocument;
use replimeter_render::format::on_off;
use replimeter_run::figures;
use replimeter_run::{
    cli_error::CliError,
    figures::{DimensionSpec, Figures, METHOD, REPLICA, THREADS, digits},
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

const ABLATION: &[DimensionSpec] = &[
    METHOD,
    THREADS.never_compared(),
    DimensionSpec::new("keep_awake")
        .label("keep-awake {}")
        .never_compared(),
    DimensionSpec::new("real_time")
        .label("real-time {}")
        .never_compared(),
    DimensionSpec::new("methods")
        .label("by {}")
        .never_compared(),
];

figures! {
    LAG = "calibrate.measured" [p50 p99]: Us, Lower, Ratio, of ROW;
    // An error can have either sign.
    ERROR = "calibrate.error" [p50 p99]: Us, Neither, Difference, of ROW;
    EFFECT = "calibrate.ablation" [p50]: Us, Lower, Ratio, of ABLATION;
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
    for row in &document.results.ablation {
        let Some(method) = &row.method else { continue };
        let (threads, methods) = (row.threads.to_string(), row.methods.join("+"));
        let of = [
            method.as_str(),
            &threads,
            on_off(row.keep_awake),
            on_off(row.real_time),
            &methods,
        ];
        figures.stated(EFFECT, &of, &row.from_send);
    }
    Ok(figures)
}
