//! The figures of `load`, and of background loads.

use replimeter_instruments::load::results::LoadDocument;
use replimeter_model::load::LoadRecord;
use replimeter_run::{
    cli_error::CliError,
    figures,
    figures::{DimensionSpec, FigureSpec, Figures, SHAPE, THREADS},
};
use replimeter_stats::compare::Resampled;

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
    figures: &mut Figures,
    throughput: &'static FigureSpec,
    latency: &'static [FigureSpec],
    load: &LoadRecord,
) {
    let threads = load.threads.to_string();
    let of = of(load, &threads);
    figures.rate(throughput, &of, &load.throughput, load.passes);
    figures.stated(latency, &of, &load.latency);
}

fn of<'a>(load: &'a LoadRecord, threads: &'a str) -> [&'a str; 4] {
    [&load.shape, &load.workload, threads, &load.node]
}

pub(super) fn figures(document: &LoadDocument) -> Result<Figures, CliError> {
    let mut figures = Figures::default();
    for row in &document.results.rows {
        add(&mut figures, &THROUGHPUT, LATENCY, &row.load);
        let cpu: Option<f64> = row.servers.iter().map(|server| server.cpu_us_per_op).sum();
        let drawn = cpu
            .filter(|_| !row.servers.is_empty())
            .map(|cpu| Resampled::without_resamples(cpu, row.load.passes));
        let threads = row.load.threads.to_string();
        figures.add(&CPU_PER_OP, &of(&row.load, &threads), drawn);
    }
    Ok(figures)
}
