//! Loads that ran beside a measurement.

use std::fmt::Write as _;

use replimeter_model::{
    load::{LoadRecord, Rate},
    record::LagDocument,
    resources::PerOperation,
};

use crate::{
    figures::{Unit, count, rate},
    terminal::{aligned, plain_table},
};

/// A rate with its interval, no finer than the interval supports.
pub(crate) fn with_interval(per_s: &Rate) -> String {
    match (per_s.mean, per_s.low, per_s.high) {
        (Some(mean), Some(low), Some(high)) => {
            let half = (high - low) / 2.0;
            format!(
                "{} [{}, {}]",
                rate(mean, half),
                rate(low, half),
                rate(high, half)
            )
        }
        (Some(mean), ..) => format!("about {}", rate(mean, mean.abs() / 10.0)),
        _ => "–".to_owned(),
    }
}

/// A figure with so many decimals.
pub(crate) fn decimal(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
}

/// What a server spends on an operation: processor time (all, user, system), context switches, bytes written, fsyncs.
pub(crate) fn spent(server: &PerOperation) -> [String; 6] {
    [
        decimal(server.cpu_us_per_op, 1),
        decimal(server.cpu_user_us_per_op, 1),
        decimal(server.cpu_system_us_per_op, 1),
        decimal(server.context_switches_per_op, 2),
        decimal(server.write_bytes_per_op, 0),
        decimal(server.fsyncs_per_op, 3),
    ]
}

fn line(document: &LagDocument, load: &LoadRecord) -> Vec<String> {
    let unit = Unit::for_size(load.latency.p50_us.or(load.latency.mean_us).unwrap_or(0.0));
    let show = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| unit.with(us));
    let workload = load.workload.rsplit('/').next().unwrap_or(&load.workload);
    let place = if document.several() {
        format!("{} {}", load.shape, load.node)
    } else {
        load.node.clone()
    };
    let errors: u64 = load.errors.iter().map(|error| error.count).sum();
    vec![
        format!("{workload}:{}@{place}", load.threads),
        load.rate.map_or_else(
            || "closed loop".to_owned(),
            |rate| format!("open, {}/s", count(rate)),
        ),
        with_interval(&load.throughput),
        count(load.passes),
        show(load.latency.p50_us),
        show(load.latency.p99_us),
        show(load.service.p50_us),
        show(load.service.p99_us),
        count(load.retries),
        count(load.failed),
        count(errors),
    ]
}

/// A line for each load; empty without any.
#[must_use]
pub(crate) fn text(document: &LagDocument) -> String {
    let Some(first) = document.load.first() else {
        return String::new();
    };
    let headings = [
        "load",
        "loop",
        "passes/s, 95 %",
        "passes",
        "latency p50",
        "p99",
        "service p50",
        "p99",
        "retried",
        "given up",
        "errors",
    ];
    let mut table = plain_table(headings.map(str::to_owned).to_vec());
    for load in &document.load {
        table.add_row(line(document, load));
    }
    let mut out = aligned(table, 2);
    let _ = writeln!(
        out,
        "  A pass is a thread's way through its script once; latency counts from its intended start, service from its own.\n  \
         Counted after a ramp of {:.0} s.",
        first.ramp_us / 1e6
    );
    for (load, error) in document
        .load
        .iter()
        .flat_map(|load| load.errors.iter().map(move |error| (load, error)))
    {
        let code = error
            .code
            .map_or_else(String::new, |code| format!("error {code}, "));
        let _ = writeln!(
            out,
            "  {}@{}: {code}{} times: {}",
            load.workload,
            load.node,
            count(error.count),
            error.message
        );
    }
    out
}
