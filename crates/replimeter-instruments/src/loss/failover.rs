//! Ends the primary and fails over to another server.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use replimeter_engine::{
    ErrorClass, ErrorKind, Fallback, Node, ServerError, Session, source::Faults,
};
use replimeter_model::{bug::REPORT_BUG, time::Nanos};

use super::{CrashContext, PAUSE, TAKEOVER_TIMEOUT, drain, patient, writers::WriterLoad};
use crate::{
    MeasureError, check_interrupted, clock::Clock, discovery::DiscoveredServer,
    loss::settings::CrashKind, pacing::wait_until, preflight::Cluster,
};

/// The first row on the new primary; not part of the load.
const FIRST_WRITE: &str = "INSERT INTO `replimeter`.`loss_probe` (id, payload) VALUES (0, '')";

/// Time after the cut for reading data that arrived before.
const SETTLE: Duration = Duration::from_millis(100);

/// How the primary ended.
pub(super) struct PrimaryFailure {
    /// When its links were cut.
    pub(super) cut: Option<Nanos>,
    /// When it was killed.
    pub(super) at: Nanos,
    /// Transactions that it committed without an acknowledgement of a replica.
    pub(super) fallen_back: u64,
}

/// The new primary, and the duration of the failover.
pub(super) struct Successor {
    pub(super) name: String,
    pub(super) drained: Option<Nanos>,
    pub(super) promoted: Nanos,
    pub(super) wrote: Nanos,
}

/// Waits for the load and ends the primary.
pub(super) fn fail_primary(
    cluster: &mut Cluster,
    context: &CrashContext<'_>,
    load: &WriterLoad,
    until: Nanos,
    faults: &mut dyn Faults,
) -> Result<PrimaryFailure, MeasureError> {
    let (clock, plan) = (context.clock, context.plan);
    let stopped = || context.stop.load(Ordering::Relaxed);
    if !wait_until(clock, until, stopped) {
        return Err(MeasureError::Interrupted);
    }
    if let Some(error) = load.failed_before(clock.now()) {
        return Err(error.into());
    }
    if load.acknowledged() == 0 {
        let session = &cluster.primary.session;
        let hint = "reduce the load on the machine and its disk, or write for longer before the crash (--duration)";
        return Err(session
            .precondition(
                "cannot measure loss",
                "no insert was acknowledged before the crash",
                hint,
            )
            .into());
    }
    let cut = if plan.crash == CrashKind::Partition {
        (context.say)("cutting the links");
        faults.isolate(&cluster.primary.node.name)?;
        let cut = clock.now();
        let gap = plan.kill_delay.0.max(SETTLE);
        if !wait_until(clock, cut + Nanos::from(gap), stopped) {
            return Err(MeasureError::Interrupted);
        }
        Some(cut)
    } else {
        None
    };
    let fallen_back = fallen_back(&mut cluster.primary)?;
    (context.say)("killing the primary");
    let at = clock.now();
    faults.kill(&cluster.primary.node.name)?;
    Ok(PrimaryFailure {
        cut,
        at,
        fallen_back,
    })
}

/// Returns the transactions that a semi-synchronous primary committed without an acknowledgement
/// since its discovery.
fn fallen_back(primary: &mut DiscoveredServer) -> Result<u64, ServerError> {
    Ok(match primary.fallback()? {
        None => 0,
        Some(Fallback {
            missed,
            active: true,
        }) => missed,
        // It was switched off, and nothing was written since.
        Some(Fallback { missed, .. }) => missed.max(1),
    })
}

/// Waits for the replicas, promotes one and writes to it.
pub(super) fn take_over(
    cluster: &mut Cluster,
    context: &CrashContext<'_>,
    fell: Nanos,
    faults: &mut dyn Faults,
) -> Result<Successor, MeasureError> {
    let (clock, stop) = (context.clock, context.stop);
    let (wished, drained) = if cluster.mode.has_members() {
        (
            cluster
                .replicas
                .first()
                .map(|replica| replica.server.node.name.clone()),
            None,
        )
    } else {
        (context.say)("waiting for the replicas to apply received transactions");
        let severed = context.plan.crash == CrashKind::Partition;
        let facts = cluster.primary.facts.clone();
        let direct = cluster
            .replicas
            .iter_mut()
            .filter(|replica| drain::is_direct(replica, &facts));
        let extents = thread::scope(|scope| {
            let threads: Vec<_> = direct
                .map(|replica| {
                    scope.spawn(move || {
                        let extent = drain::drain(replica, severed, stop)?;
                        Ok::<_, MeasureError>((extent, replica.server.node.name.clone()))
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(MeasureError::Thread)))
                .collect::<Vec<_>>()
        });
        let extents = extents.into_iter().collect::<Result<Vec<_>, _>>()?;
        // The first of equals.
        let most = extents
            .into_iter()
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        (most.map(|(_, name)| name), Some(clock.now()))
    };
    let Some(wished) = wished else {
        let session = &cluster.primary.session;
        return Err(session
            .precondition(
                "cannot fail over",
                "the primary has no replica to take over",
                "choose a shape that replicates",
            )
            .into());
    };
    (context.say)("promoting");
    let name = faults.promote(&wished, &cluster.primary.node.name, stop)?;
    let promoted = clock.now();
    let node = patient(&discovered(cluster, &name)?.node);
    let wrote = first_write(&node, clock, fell, stop)?;
    Ok(Successor {
        name,
        drained,
        promoted,
        wrote,
    })
}

/// Returns the remaining server with this name.
pub(super) fn discovered<'c>(
    cluster: &'c Cluster,
    name: &str,
) -> Result<&'c DiscoveredServer, MeasureError> {
    let found = cluster
        .replicas
        .iter()
        .map(|replica| &replica.server)
        .find(|server| server.node.name == name);
    found.ok_or_else(|| {
        let session = &cluster.primary.session;
        MeasureError::Server(session.precondition(
            "cannot find the new primary",
            format!("the server {name}, which took over, is unknown"),
            REPORT_BUG,
        ))
    })
}

/// Writes to the new primary until it accepts the write, and returns the time.
fn first_write(
    node: &Node,
    clock: &Clock,
    fell: Nanos,
    stop: &AtomicBool,
) -> Result<Nanos, MeasureError> {
    let operation = "cannot write to the new primary";
    let mut session = None;
    loop {
        check_interrupted(stop)?;
        let tried = match &mut session {
            Some(session) => Session::run(session, operation, FIRST_WRITE),
            None => Session::open(node)
                .map(|opened| session = Some(opened))
                .and_then(|()| match &mut session {
                    Some(session) => Session::run(session, operation, FIRST_WRITE),
                    None => Ok(()),
                }),
        };
        let now = clock.now();
        match tried {
            Ok(()) => return Ok(now),
            // An attempt whose answer was lost has inserted it.
            Err(error) if error.class() == Some(ErrorClass::Duplicate) => return Ok(now),
            Err(error) if now - fell > Nanos::from(TAKEOVER_TIMEOUT) => return Err(error.into()),
            Err(error) => {
                if !matches!(error.kind, ErrorKind::Statement(_)) {
                    session = None;
                }
                thread::sleep(PAUSE);
            }
        }
    }
}
