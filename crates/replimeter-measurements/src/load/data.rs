//! Creates the data of the workloads, and waits until the servers have settled.

use replimeter_instruments::{
    load::{
        self, FillProgress, Settling, Workload,
        results::{DataRecord, SettlingRecord},
    },
    preflight::Cluster,
};
use replimeter_model::resources::PostponedWork;
use replimeter_run::{
    Progress, ProgressDetail, RunContext, Stage, cli_error::CliError, workloads::filling,
};

use super::{Load, accumulator::Call};
use crate::data::Data;

/// Creates the data of every workload; returns the data set of each workload.
pub(super) fn make_data(
    cx: &mut RunContext<'_, Load>,
    workloads: &[Workload],
    cluster: &mut Cluster,
    data: &mut Data,
) -> Result<Vec<usize>, CliError> {
    let (plan, stop) = (cx.plan, cx.stop);
    let replicas = cluster.replica_nodes();
    let mut set_of: Vec<usize> = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        let mut before = workloads[..index].iter();
        if let Some(known) = before.position(|other| other.same_data(workload)) {
            let set = set_of[known];
            cx.take(Call::Shared {
                data: set,
                workload: workload.name.clone(),
            })?;
            set_of.push(set);
            continue;
        }
        let observers = &cx.observers;
        let size = plan
            .data_size
            .filter(|_| workload.has_data())
            .unwrap_or_else(|| workload.default_size());
        let mut progress = |filled: &FillProgress| observers.progress(filling(filled));
        let mut set = load::fill(cluster, workload, size, plan.timeout.0, &mut progress, stop)?;
        let record = DataRecord {
            workloads: vec![workload.name.clone()],
            rows: set.rows,
            bytes: set.bytes,
            sent_bytes: set.sent,
            duration_us: set.took.as_secs_f64() * 1e6,
            reused: set.reused,
        };
        let warnings = std::mem::take(&mut set.warnings);
        set_of.push(data.sets.len());
        data.sets.push(set);
        cx.take(Call::Warnings(warnings))?;
        cx.take(Call::Data(record))?;
    }
    for set in &data.sets {
        cx.stage(
            Stage::Prepare,
            "waiting for the replicas to receive the data",
        );
        set.wait_on(&replicas, plan.timeout.0, stop)?;
    }
    Ok(set_of)
}

/// Waits until the servers have settled, before the load begins with this number of threads.
pub(super) fn settle(
    cx: &mut RunContext<'_, Load>,
    settling: &mut Settling,
    cluster: &mut Cluster,
    threads: u32,
) -> Result<(), CliError> {
    let observers = &cx.observers;
    let mut progress = |work: PostponedWork| observers.progress(shown(work));
    if let Some(settled) = settling.wait(cluster, &mut progress, cx.stop)? {
        cx.take(Call::Warnings(settled.warnings()))?;
        cx.take(Call::Settled(SettlingRecord {
            threads,
            settled_us: settled.took.as_secs_f64() * 1e6,
            servers: settled.servers,
        }))?;
    }
    Ok(())
}

/// Converts the work of servers for display.
fn shown(work: PostponedWork) -> Progress {
    let shown = Progress::new(Stage::Prepare, "waiting for the servers to settle");
    work.counts().fold(shown, |shown, (count, what)| {
        shown.with(ProgressDetail::Count(count, what.into()))
    })
}
