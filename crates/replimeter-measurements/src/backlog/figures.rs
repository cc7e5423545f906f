//! The figures of `backlog`.

use replimeter_instruments::backlog::results::{BacklogResults, BacklogRow};
use replimeter_run::{
    figures,
    figures::{DimensionSpec, REPLICA, SHAPE, StatedFigures},
};

use super::super::load::figures as load;

const ROW: &[DimensionSpec] = &[
    SHAPE,
    REPLICA,
    DimensionSpec::new("workers").label("{} workers"),
];

figures! {
    LOAD_THROUGHPUT = "backlog.load.throughput": PerS, Higher, Ratio, of load::ROW;
    LOAD_LATENCY = "backlog.load.latency" [mean p50 p95 p99 max]: Us, Lower, Ratio, of load::ROW;
    SUSTAINED = "backlog.sustained": PerS, Higher, Ratio, of ROW;
    CATCH_UP = "backlog.catch_up": PerS, Higher, Ratio, of ROW;
    CAUGHT_UP_AFTER = "backlog.caught_up_after": Us, Lower, Ratio, of ROW;
}

pub(super) fn stated(results: &BacklogResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    for load in &results.load {
        load::add(&mut figures, &LOAD_THROUGHPUT, LOAD_LATENCY, load);
    }
    for row in &results.rows {
        add(row, &mut figures);
    }
    figures
}

fn add(row: &BacklogRow, figures: &mut StatedFigures) {
    let workers = row.workers.map(|workers| workers.to_string());
    let of = [
        row.shape.as_str(),
        &row.replica,
        &workers.unwrap_or_default(),
    ];
    let readings = row.windows.len() as u64;
    figures.rate(&SUSTAINED, &of, &row.sustained_per_s, readings);
    figures.rate(&CATCH_UP, &of, &row.catch_up_per_s, readings);
    figures.add(&CAUGHT_UP_AFTER, &of, row.caught_up_after_us, None, 1);
}
