//! The figures of `scale`.

use std::collections::BTreeMap;

use replimeter_instruments::scale::results::ScaleResults;
use replimeter_model::resources::PerOperation;
use replimeter_run::{
    cli_error::CliError,
    figures,
    figures::{DimensionSpec, Figures, REPLICAS, SampleFile, StatedFigures, digits},
};

use crate::block_figures::Blocks;

const PHASE: DimensionSpec = DimensionSpec::new("phase").never_compared();
const OPERATION: &[DimensionSpec] = &[
    REPLICAS,
    PHASE,
    DimensionSpec::new("operation").never_compared(),
];

figures! {
    THROUGHPUT = "scale.throughput": PerS, Higher, Ratio, of OPERATION;
    LATENCY = "scale.latency" [p50 p95 p99]: Us, Lower, Ratio, of OPERATION;
    CPU_PER_OP = "scale.cpu_per_op": Us, Lower, Ratio, of &[REPLICAS, PHASE];
}

pub(super) fn stated(results: &ScaleResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    for row in &results.rows {
        let (replicas, blocks) = (row.replicas.to_string(), u64::from(row.blocks));
        let rates = [
            ("insert", row.inserts_per_s, row.inserts_per_s_ci95),
            ("update", row.updates_per_s, row.updates_per_s_ci95),
            ("select", row.selects_per_s, row.selects_per_s_ci95),
        ];
        for (operation, per_s, ends) in rates.into_iter().filter(|(_, per_s, _)| per_s.is_some()) {
            let of = [replicas.as_str(), &row.phase, operation];
            figures.add(&THROUGHPUT, &of, per_s, ends, blocks);
            let latency = match operation {
                "select" => &row.select_latency,
                _ => &row.write_latency,
            };
            figures.distribution(LATENCY, &of, latency);
        }
        let cpu = row.servers.iter().map(|server| &server.per_operation);
        let cpu = PerOperation::cpu_of_all(cpu);
        figures.add(&CPU_PER_OP, &[&replicas, &row.phase], cpu, None, blocks);
    }
    figures
}

pub(super) fn figures(samples: &SampleFile) -> Result<Figures, CliError> {
    let names = [
        "phase",
        "counts",
        "kind",
        "name",
        "replicas",
        "start",
        "block",
        "length_us",
        "operations",
        "p50_us",
        "p95_us",
        "p99_us",
        "cpu_us",
    ];
    let mut loads = Blocks::default();
    // For each block: its operations of all kinds, and the CPU time of all servers.
    let mut sums: BTreeMap<([String; 2], u64, u64), (f64, f64)> = BTreeMap::new();
    samples.read(&names, |columns, rows| {
        for row in 0..rows {
            let word = |column: usize| columns[column].word(row);
            let number = |column: usize| columns[column].number(row);
            if number(1) <= 0.0 || !matches!(word(2), "load" | "server") {
                continue;
            }
            let replicas = digits(number(4));
            let of = [replicas.clone(), word(0).to_owned()];
            let sum = sums
                .entry((of, number(5) as u64, number(6) as u64))
                .or_default();
            if word(2) == "server" {
                sum.1 += number(12);
                continue;
            }
            sum.0 += number(8);
            let throughput = number(8) / number(7) * 1e6;
            let values = std::iter::once(throughput).chain((9..12).map(number));
            loads.push(&[&replicas, word(0), word(3)], number(5), values);
        }
    })?;
    let mut servers = Blocks::default();
    for (([replicas, phase], start, _), (operations, cpu)) in &sums {
        let cpu_per_op = std::iter::once(cpu / operations);
        servers.push(&[replicas, phase], *start as f64, cpu_per_op);
    }
    let mut figures = Figures::default();
    let specs = std::iter::once(&THROUGHPUT).chain(LATENCY);
    loads.figures(specs, &mut figures);
    servers.figures(std::iter::once(&CPU_PER_OP), &mut figures);
    Ok(figures)
}
