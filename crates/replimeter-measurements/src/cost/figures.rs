//! The figures of `cost`.

use replimeter_instruments::cost::results::CostResults;
use replimeter_model::resources::PerOperation;
use replimeter_run::{
    cli_error::CliError,
    figures,
    figures::{
        DimensionSpec, ENGINE, Figures, MODE, REPLICAS, SampleFile, StatedFigures, THREADS,
        WAIT_POINT, digits,
    },
};

use crate::block_figures::Blocks;

const ROW: &[DimensionSpec] = &[
    ENGINE,
    MODE,
    WAIT_POINT,
    REPLICAS,
    THREADS,
    DimensionSpec::new("link_delay_us").label("links of {} µs"),
];

figures! {
    THROUGHPUT = "cost.throughput": PerS, Higher, Ratio, of ROW;
    LATENCY = "cost.latency" [mean p50 p95 p99]: Us, Lower, Ratio, of ROW;
    PRIMARY_CPU = "cost.cpu_per_op.primary": Us, Lower, Ratio, of ROW;
    ALL_CPU = "cost.cpu_per_op.all": Us, Lower, Ratio, of ROW;
}

pub(super) fn stated(results: &CostResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    for row in &results.rows {
        let (replicas, threads) = (row.replicas.to_string(), row.threads.to_string());
        let delay = row.link_delay_us.map(digits).unwrap_or_default();
        let wait_point = row.wait_point.as_deref().unwrap_or_default();
        let of = [
            row.engine.as_str(),
            row.mode.name(),
            wait_point,
            &replicas,
            &threads,
            &delay,
        ];
        figures.rate(&THROUGHPUT, &of, &row.throughput, row.blocks);
        let [mean, quantiles @ ..] = LATENCY else {
            continue;
        };
        let (value, ends) = (row.latency_mean_us.value, row.latency_mean_us.ends());
        figures.add(mean, &of, value, ends, row.blocks);
        figures.distribution(quantiles, &of, &row.latency);
        let primary = row.servers.first().and_then(|server| server.cpu_us_per_op);
        figures.add(&PRIMARY_CPU, &of, primary, None, row.operations);
        let all = PerOperation::cpu_of_all(&row.servers);
        figures.add(&ALL_CPU, &of, all, None, row.operations);
    }
    figures
}

pub(super) fn figures(samples: &SampleFile) -> Result<Figures, CliError> {
    let names = [
        "engine",
        "mode",
        "wait_point",
        "replicas",
        "threads",
        "link_delay_us",
        "invalid",
        "round",
        "counted_us",
        "operations",
        "mean_us",
        "p50_us",
        "p95_us",
        "p99_us",
        "primary_cpu_us_per_op",
        "all_cpu_us_per_op",
    ];
    let mut blocks = Blocks::default();
    samples.read(&names, |columns, rows| {
        for row in 0..rows {
            let word = |column: usize| columns[column].word(row);
            let number = |column: usize| columns[column].number(row);
            if !word(6).is_empty() {
                continue;
            }
            let [replicas, threads, delay] = [3, 4, 5].map(|column| digits(number(column)));
            let of = [word(0), word(1), word(2), &replicas, &threads, &delay];
            let throughput = number(9) / number(8) * 1e6;
            let values = std::iter::once(throughput).chain((10..16).map(number));
            blocks.push(&of, number(7), values);
        }
    })?;
    let mut figures = Figures::default();
    let latency = std::iter::once(&THROUGHPUT).chain(LATENCY);
    blocks.figures(latency.chain([&PRIMARY_CPU, &ALL_CPU]), &mut figures);
    Ok(figures)
}
