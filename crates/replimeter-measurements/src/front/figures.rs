//! The figures of `front`.

use replimeter_instruments::front::results::FrontResults;
use replimeter_run::{
    figures,
    figures::{DimensionSpec, SHAPE, StatedFigures},
};

const ROW: &[DimensionSpec] = &[
    SHAPE,
    DimensionSpec::new("request"),
    DimensionSpec::new("server"),
];

figures! {
    RESPONSE = "front.response" [mean p50 p95 p99 max]: Us, Lower, Ratio, of ROW;
    AGE = "front.age" [mean p95 p99 max]: Us, Lower, Difference, of &[SHAPE];
}

pub(super) fn stated(results: &FrontResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    for row in &results.rows {
        let of = [row.shape.as_str(), &row.request, &row.server];
        figures.distribution(RESPONSE, &of, &row.response);
    }
    if let Some(row) = results.rows.first() {
        figures.distribution(AGE, &[&row.shape], &results.freshness.age);
    }
    figures
}
