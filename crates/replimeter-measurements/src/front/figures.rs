//! The figures of `front`.

use replimeter_instruments::front::results::FrontDocument;
use replimeter_run::{
    figures,
    figures::{DimensionSpec, Figures, SHAPE},
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

pub(super) fn figures(document: &FrontDocument) -> Figures {
    let mut figures = Figures::default();
    for row in &document.results.rows {
        figures.stated(
            RESPONSE,
            &[&row.shape, &row.request, &row.server],
            &row.response,
        );
    }
    let age = &document.results.freshness.age;
    if age.count > 0 {
        figures.stated(AGE, &[&document.target.shape], age);
    }
    figures
}
