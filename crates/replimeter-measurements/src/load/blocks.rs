//! Runs the workloads with one number of threads after another.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use replimeter_engine::{Node, ServerError};
use replimeter_instruments::{
    MeasureError,
    load::{
        self, GroupResult, LoadGroup, LoadProgress, Settling, WorkerPool, Workload,
        settings::LoadRunPlan,
    },
    preflight::Cluster,
    resources::ResourceWatch,
    table::keep_alive,
};
use replimeter_model::{load::ReadTarget, replication::Relation, time::Nanos};
use replimeter_run::{
    Progress, ProgressDetail, RunContext, Stage,
    cli_error::{CliError, FailureKind},
};

use super::{
    Load,
    accumulator::Call,
    data::{make_data, settle},
    saturation::saturation,
};
use crate::data::Data;

/// How long the client's ping limit is measured before each number of threads.
const LIMIT: Duration = Duration::from_millis(400);
/// Interval between checks that the run holds its lock.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Creates the data, and runs every workload with each number of threads.
pub(super) fn measure(
    cx: &mut RunContext<'_, Load>,
    workloads: &[Workload],
    cluster: &mut Cluster,
    watch: &ResourceWatch,
    data: &mut Data,
) -> Result<(), CliError> {
    let plan = cx.plan;
    let mut settling = Settling::begin(cluster);
    let set_of = make_data(cx, workloads, cluster, data)?;
    for threads in &plan.threads {
        match settle(cx, &mut settling, cluster, *threads) {
            // The blocks so far are complete.
            Err(error)
                if error.kind == FailureKind::Interrupted && !cx.accumulator.results.is_empty() =>
            {
                return Ok(());
            }
            settled => settled?,
        }
        let load_groups: Vec<LoadGroup<'_>> = workloads
            .iter()
            .zip(&set_of)
            .map(|(workload, set)| {
                let (nodes, reads_only) = places(workload, plan.reads, cluster);
                LoadGroup {
                    data: Some(&data.sets[*set]),
                    rate: plan.rate,
                    reads_only,
                    connect_rate: plan.connect_rate,
                    ..LoadGroup::new(workload, nodes, *threads)
                }
            })
            .collect();
        let (call, lock) = measure_threads(cx, &load_groups, *threads, watch, cluster)?;
        cx.take(call)?;
        lock?;
        let failure = cx.accumulator.failure.as_ref();
        if failure.is_some_and(|failure| failure.kind != FailureKind::Invalid)
            || cx.stop.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        if plan.until_saturated && is_last(cx, &load_groups, *threads)? {
            return Ok(());
        }
        if plan.threads.last() != Some(threads) {
            // Each number of threads starts with the same number of rows.
            for set in &data.sets {
                match set.restore(&data.primary, cx.stop) {
                    // The blocks so far are complete.
                    Err(MeasureError::Interrupted) => return Ok(()),
                    restored => restored?,
                }
            }
        }
    }
    Ok(())
}

/// Returns whether the throughput no longer rises with the number of threads, or a server takes no more connections.
fn is_last(
    cx: &mut RunContext<'_, Load>,
    load_groups: &[LoadGroup<'_>],
    threads: u32,
) -> Result<bool, CliError> {
    if saturation(&cx.accumulator.results).is_some_and(|found| found.reached) {
        return Ok(true);
    }
    let Some(limit) = load::connection_limit(load_groups, threads * 2)? else {
        return Ok(false);
    };
    cx.take(Call::Warnings(vec![limit]))?;
    Ok(true)
}

/// Returns the servers that a workload runs on, and whether it is read-only there.
fn places(workload: &Workload, reads: ReadTarget, cluster: &Cluster) -> (Vec<Node>, bool) {
    let primary = cluster.primary.node.clone();
    if !workload.reads_only() || reads == ReadTarget::Primary || cluster.replicas.is_empty() {
        return (vec![primary], false);
    }
    let reads_only = cluster
        .replicas
        .iter()
        .any(|replica| replica.relation == Relation::Channel);
    let replicas = cluster.replica_nodes();
    let nodes = if reads == ReadTarget::All {
        std::iter::once(primary).chain(replicas).collect()
    } else {
        replicas
    };
    (nodes, reads_only)
}

/// Runs every workload with this number of threads; also returns whether the run kept its lock.
fn measure_threads(
    cx: &RunContext<'_, Load>,
    load_groups: &[LoadGroup<'_>],
    threads: u32,
    watch: &ResourceWatch,
    cluster: &mut Cluster,
) -> Result<(Call, Result<(), ServerError>), CliError> {
    let plan = cx.plan;
    cx.stage(Stage::Prepare, "connecting the threads");
    let mut pool = WorkerPool::open(load_groups, &cx.clock, cx.stop)?;
    let before = pool.measure_limit(LIMIT, cx.stop);
    let (mut lock, mut checked) = (Ok(()), Instant::now());
    let mut passes = vec![0; load_groups.len()];
    let mut on_second = |second: &LoadProgress| {
        cx.observers.progress(shown(plan, load_groups, second));
        if second.counted {
            let more = second.load_groups.iter();
            let sums = passes.iter_mut().zip(more);
            sums.for_each(|(sum, more)| *sum += more.operations);
            let counted = second.at - Nanos::from(plan.warm_up.0);
            cx.so_far(|accumulator| accumulator.so_far(load_groups, &passes, counted));
        }
        if lock.is_ok() && checked.elapsed() >= KEEP_ALIVE {
            lock = keep_alive(cluster);
            checked = Instant::now();
        }
    };
    let _ = watch.read();
    let mut results = pool.run_interval(plan.warm_up.0, plan.duration.0, cx.stop, &mut on_second);
    let (uses, timeline) = results.first().map_or_else(Default::default, |first| {
        watch.of_load(first.began, first.counted)
    });
    let whole = |result: &GroupResult| result.failure.is_none() && !result.interrupted;
    if results.iter().all(whole) {
        // The higher of two readings is the limit: interference can only lower one.
        let after = pool.measure_limit(LIMIT, cx.stop);
        for ((result, before), after) in results.iter_mut().zip(before).zip(after) {
            result.limit_per_s = before
                .zip(after)
                .map(|(before, after)| before.max(after))
                .or(before);
        }
    }
    let call = Call::Threads {
        threads,
        results,
        uses,
        timeline,
    };
    // Before the run changes its tables again.
    Ok((call, lock.and_then(|()| keep_alive(cluster))))
}

/// Converts the load's progress for display.
fn shown(plan: &LoadRunPlan, load_groups: &[LoadGroup<'_>], second: &LoadProgress) -> Progress {
    let (stage, operation) = match second.counted {
        true => (Stage::Measure, "measuring"),
        false => (Stage::WarmUp, "warming up"),
    };
    let whole = (plan.warm_up.0 + plan.duration.0).as_secs_f64();
    let mut shown =
        Progress::new(stage, operation).done(second.at.0 as f64 / 1e9, Some(whole), "s");
    for (load_group, progress) in load_groups.iter().zip(&second.load_groups) {
        let name = format!("{}:{}", load_group.workload.name, load_group.threads);
        shown = shown.with(ProgressDetail::Rate(
            name.into(),
            progress.operations as f64,
        ));
        if let Some(waiting) = progress.waiting.filter(|waiting| *waiting > 0) {
            shown = shown.with(ProgressDetail::Count(waiting, "waiting".into()));
        }
        if progress.failed > 0 {
            shown = shown.with(ProgressDetail::Count(progress.failed, "failed".into()));
        }
    }
    shown
}
