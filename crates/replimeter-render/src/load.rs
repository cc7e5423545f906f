//! Background loads of a measurement.

use replimeter_model::load::LoadRecord;

use crate::{
    cell::throughput,
    figures::{Unit, count},
    report::{Block, Cell, Table},
};

/// Returns a workload's name without its folders.
pub fn name(load: &LoadRecord) -> &str {
    load.workload.rsplit('/').next().unwrap_or(&load.workload)
}

/// Returns workload, threads and servers in short; with the shape if there are several.
pub fn description(load: &LoadRecord, several: bool) -> String {
    let shape = if several {
        format!("{} ", load.shape)
    } else {
        String::new()
    };
    format!("{}:{}@{shape}{}", name(load), load.threads, load.node)
}

/// Formats a time of a load, in the common unit of its latencies.
pub fn latency(load: &LoadRecord, us: Option<f64>) -> Cell {
    let typical = load.latency.p50_us.or(load.latency.mean_us);
    let unit = Unit::for_size(typical.unwrap_or(0.0));
    us.map(|us| unit.with(us)).into()
}

/// Returns the schedule of its threads.
fn schedule(load: &LoadRecord) -> String {
    load.rate.map_or_else(
        || "closed loop".to_owned(),
        |rate| format!("open, {}/s", count(rate)),
    )
}

fn table(loads: &[LoadRecord], several: bool) -> Table {
    let errors = |load: &LoadRecord| load.errors.iter().map(|error| error.count).sum::<u64>();
    Table::of(
        2,
        loads,
        &[
            ("load", &|load| Cell::from(description(load, several))),
            ("loop", &|load| schedule(load).into()),
            ("passes/s, 95 %", &|load| throughput(&load.throughput)),
            ("passes", &|load| load.passes.into()),
            ("latency p50", &|load| latency(load, load.latency.p50_us)),
            ("p99", &|load| latency(load, load.latency.p99_us)),
            ("service p50", &|load| latency(load, load.service.p50_us)),
            ("p99", &|load| latency(load, load.service.p99_us)),
            ("retried", &|load| load.retries.into()),
            ("failed", &|load| load.failed.into()),
            ("errors", &|load| errors(load).into()),
        ],
    )
}

/// Returns one line per load, and its failed operations; `several` is whether there are several shapes.
pub fn block(loads: &[LoadRecord], several: bool) -> Block {
    let mut notes = vec![format!(
        "A pass is one execution of a thread's script; latency counts from its intended start, service from its actual start. \
         Measured after a warm-up of {:.0} s.",
        loads.first().map_or(0.0, |load| load.warm_up_us) / 1e6
    )];
    for load in loads {
        for error in &load.errors {
            let code = error
                .code
                .map_or_else(String::new, |code| format!("error {code}, "));
            notes.push(format!(
                "{}@{}: {code}{} times: {}",
                load.workload,
                load.node,
                count(error.count),
                error.message
            ));
        }
    }
    Block::table("load", "Load", table(loads, several))
        .with_notes(notes)
        .after_charts()
}
