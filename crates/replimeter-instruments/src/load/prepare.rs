//! Creates the data of background loads before they run, and tries their statements.

use std::{sync::atomic::AtomicBool, time::Duration};

use replimeter_engine::{ServerError, wire::StatementError};
use replimeter_model::{load::RatedLoad, replication::Relation, target::PRIMARY};

use super::{
    OPERATION, about,
    background::BackgroundLoad,
    created_objects::{CreatedObjects, retry_until},
    event_loop::EventLoop,
    fill::fill,
    insert::FillProgress,
    program::{Program, Scratch},
    trial::TRIALS,
    value::Draw,
    worker::{LoadTarget, LoopTarget, WorkerConnection, run},
    worker_pool::{LoadGroup, WorkerPool},
    workload::Workload,
};
use crate::{MeasureError, clock::Clock, preflight::Cluster};

/// How long a lost connection is retried during another measurement: a year.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

impl BackgroundLoad {
    /// Finds the servers, fills each data set and runs each script's setup once, tries every statement
    /// until it has succeeded once, and connects every thread. `workloads` are those of the plans, in
    /// order; a replica may take up to `patience` to receive the data created on the primary.
    /// `progress` is called with the progress of the filling. When a server returns during the load,
    /// its load continues.
    ///
    /// # Errors
    /// When a server cannot be reached, or a statement never succeeds: with the server's message.
    /// Nothing is left behind.
    pub fn prepare(
        plans: &[RatedLoad],
        workloads: &[Workload],
        cluster: &mut Cluster,
        clock: &Clock,
        patience: Duration,
        progress: &mut dyn FnMut(&FillProgress),
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let mut made = CreatedObjects::on_server(&cluster.primary.node);
        let mut places = Vec::new();
        for (plan, workload) in plans.iter().zip(workloads) {
            let place = place(cluster, &plan.spec.node)?;
            made.run_script(&place, workload, patience, stop)?;
            places.push(place);
        }
        for (index, (plan, workload)) in plans.iter().zip(workloads).enumerate() {
            apart(workload, &workloads[..index], cluster)?;
            if workload.inner.tables.is_empty() || made.data(workload).is_some() {
                continue;
            }
            let size = plan.size.filter(|_| workload.has_data());
            let size = size.unwrap_or_else(|| workload.default_size());
            let set = fill(cluster, workload, size, patience, progress, stop)?;
            made.sets.push(set);
        }
        for (place, workload) in places.iter().zip(workloads) {
            let rows = made.data(workload).map_or(0, |set| set.rows);
            try_out(place, workload, rows, clock, patience, stop)?;
        }
        let loads = plans.iter().zip(workloads).zip(&places);
        let load_groups: Vec<LoadGroup<'_>> = loads
            .map(|((plan, workload), place)| LoadGroup {
                data: made.data(workload),
                rate: plan.open_loop(),
                reads_only: place.reads_only,
                patience: FOREVER,
                ..LoadGroup::new(workload, vec![place.node.clone()], plan.spec.threads)
            })
            .collect();
        // Every statement has already been tried in whole passes.
        let pool = WorkerPool::open_after_trial(&load_groups, clock, false, stop)?;
        drop(load_groups);
        Ok(Self::new(pool, clock, made))
    }
}

/// Refuses a workload that defines another table with the name of an earlier one's.
fn apart(workload: &Workload, earlier: &[Workload], cluster: &Cluster) -> Result<(), ServerError> {
    let mut earlier = earlier.iter();
    let Some((other, table)) =
        earlier.find_map(|other| Some((&other.name, workload.collides(other)?)))
    else {
        return Ok(());
    };
    Err(cluster.primary.session.precondition(
        OPERATION,
        format!(
            "{} and {other} define different tables named `{table}`",
            workload.name
        ),
        "rename one of the tables",
    ))
}

/// Returns the server with this name; `primary` is also an alias of the server that rows are written
/// to.
fn place(cluster: &Cluster, name: &str) -> Result<LoadTarget, ServerError> {
    let writer = &cluster.primary.node;
    if writer.name == name {
        return Ok(LoadTarget::new(writer.clone(), false));
    }
    if let Some(replica) = cluster
        .replicas
        .iter()
        .find(|replica| replica.server.node.name == name)
    {
        let reads_only = replica.relation == Relation::Channel;
        return Ok(LoadTarget::new(replica.server.node.clone(), reads_only));
    }
    if name == PRIMARY {
        return Ok(LoadTarget::new(writer.clone(), false));
    }
    let mut names = vec![writer.name.clone()];
    names.extend(cluster.replica_names());
    Err(cluster.primary.session.precondition(
        "cannot place the load",
        format!(
            "the target has no server called `{name}`; it has {}",
            names.join(", ")
        ),
        "name one of them after the @ of --load",
    ))
}

/// Runs operations until each statement has succeeded once; some may fail occasionally, as with locks.
fn try_out(
    place: &LoadTarget,
    workload: &Workload,
    rows: u64,
    clock: &Clock,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    let program = Program::new(workload, rows);
    let events = EventLoop::open(clock, &place.node)?;
    let (task, target) = (events.handle(0), LoopTarget::new(place));
    let open = || {
        let opening = WorkerConnection::open(&target, &program, &task);
        let opened = events.block_on(opening, stop)?;
        opened.map_err(|error| program.explain(error).into())
    };
    // A replica may not have received the tables yet.
    let mut link = retry_until(place, patience, stop, open)?;
    let (mut scratch, mut buffer) = (Scratch::default(), String::new());
    // The load's own sequences begin with the first thread.
    let mut draw = Draw::new(0, 1, program.sequences);
    for (routine, operation) in program.operations.iter().zip(&workload.inner.operations) {
        retry_until(place, patience, stop, || {
            // The last statement that a pass reached, and the number of passes that ended there.
            let (mut reached, mut stuck) = (0, 0);
            for trial in 1.. {
                let pass = run(
                    &mut link,
                    &program,
                    routine,
                    &mut draw,
                    &mut scratch,
                    &mut buffer,
                );
                let done = events.block_on(pass, stop)?;
                let Err((index, failed)) = done else {
                    break;
                };
                let error = match failed {
                    StatementError::Broken(error) => return Err(error.into()),
                    StatementError::Refused(refusal) => {
                        events.block_on(link.channel.roll_back(), stop)??;
                        link.channel.refused(&refusal)
                    }
                };
                stuck = if index > reached {
                    1
                } else {
                    stuck + u32::from(index == reached)
                };
                reached = reached.max(index);
                if stuck >= TRIALS || trial >= TRIALS * 10 {
                    let step = &operation.steps[index.min(operation.steps.len() - 1)];
                    return Err(about(error, workload, step.line(), &step.excerpt()).into());
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
