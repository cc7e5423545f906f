//! The figures of `load`, and of background loads.

use replimeter_instruments::load::results::LoadResults;
use replimeter_model::{load::LoadRecord, resources::PerOperation};
use replimeter_run::{
    figures,
    figures::{DimensionSpec, FigureSpec, SHAPE, StatedFigures, THREADS},
};

/// The dimensions of a load's figures.
pub(crate) const ROW: &[DimensionSpec] = &[
    SHAPE,
    DimensionSpec::new("workload"),
    THREADS,
    DimensionSpec::new("node"),
];

figures! {
    THROUGHPUT = "load.throughput": PerS, Higher, Ratio, of ROW;
    LATENCY = "load.latency" [mean p50 p95 p99 max]: Us, Lower, Ratio, of ROW;
    CPU_PER_OP = "load.cpu_per_op": Us, Lower, Ratio, of ROW;
}

/// Adds a load's throughput and latency.
pub(crate) fn add(
    figures: &mut StatedFigures,
    throughput: &'static FigureSpec,
    latency: &'static [FigureSpec],
    load: &LoadRecord,
) {
    let threads = load.threads.to_string();
    let of = of(load, &threads);
    figures.rate(throughput, &of, &load.throughput, load.passes);
    figures.distribution(latency, &of, &load.latency);
}

fn of<'a>(load: &'a LoadRecord, threads: &'a str) -> [&'a str; 4] {
    [&load.shape, &load.workload, threads, &load.node]
}

pub(super) fn stated(results: &LoadResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    for row in &results.rows {
        add(&mut figures, &THROUGHPUT, LATENCY, &row.load);
        let cpu = PerOperation::cpu_of_all(&row.servers);
        let threads = row.load.threads.to_string();
        let of = of(&row.load, &threads);
        figures.add(&CPU_PER_OP, &of, cpu, None, row.load.passes);
    }
    figures
}
