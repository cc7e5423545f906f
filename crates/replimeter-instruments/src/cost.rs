//! Measures one start of a cost comparison: a load in blocks on servers with one replication mode, the
//! servers' resource use, the lag of replicas, and whether the mode stayed in effect.

pub mod results;
pub mod settings;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{
        self,
        acknowledgement::{self, PrimaryState},
        galera, group,
    },
    position::Position,
    source::Member,
};
use replimeter_model::{
    bug::REPORT_BUG, engine::Engine, load::DataSize, manifest::ServerRecord, replication::Mode,
    resources::ServerUse, time::Nanos,
};
use serde::{Deserialize, Serialize};

use crate::{
    Listener, MeasureError, check_interrupted,
    clock::Clock,
    discovery::DiscoveredServer,
    load::{
        DataSet, FillProgress, GroupResult, LoadGroup, LoadProgress, WorkerPool, Workload,
        fill_sandbox,
    },
    pacing,
    resources::Meter,
};

/// How long replicas may take to apply all writes, between two cells.
const SETTLE: Duration = Duration::from_secs(120);
/// How long replicas may take to apply a block, so that their resource use includes it.
pub const CATCH_UP: Duration = Duration::from_secs(30);
/// How long semi-synchronous replication may take to recover from a fallback.
const RECOVERY: Duration = Duration::from_secs(15);
/// Interval between checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long the client's own limit is measured.
const LIMIT: Duration = Duration::from_secs(1);

/// One block of a load.
#[derive(Debug, Serialize, Deserialize)]
pub struct Block {
    /// Results of the load; their duration is the mean time that its threads took for their operations.
    pub result: GroupResult,
    /// Resource use of each server, in the servers' order, until every server had applied the block.
    pub uses: Vec<ServerUse>,
    /// Number of transactions that each other server had not applied at the end.
    pub behind: Vec<(String, u64)>,
    /// Time from the end of the load until every server had applied it; `None` if that took longer than
    /// [`CATCH_UP`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caught_up: Option<Duration>,
    /// Why the block is invalid.
    pub invalid: Option<String>,
}

/// Settings of the load of a cell, that is, of one number of threads with one link delay.
#[derive(Clone, Copy, Debug)]
pub struct ConditionLoad {
    /// Number of connections.
    pub threads: u32,
    /// How long it runs before it counts.
    pub ramp: Duration,
    /// Number of blocks.
    pub blocks: u32,
    /// Length of a block.
    pub length: Duration,
}

/// An event during a cell.
#[derive(Debug)]
pub enum Event {
    /// Operations per second, about once a second.
    Rate(f64),
    /// A complete block.
    Block(Box<Block>),
}

/// How far each server was behind, and how long it took them to catch up.
type CaughtUp = (Vec<(String, u64)>, Option<Duration>);

/// A server other than the one that is written to.
struct ReplicaServer {
    name: String,
    session: Session,
}

/// The servers under test.
pub struct ServersUnderTest<'a> {
    mode: Mode,
    engine: Engine,
    workload: &'a Workload,
    clock: Clock,
    writer: Node,
    session: Session,
    followers: Vec<ReplicaServer>,
    meter: Meter,
    data: DataSet,
    /// Records of the servers for the manifest.
    records: Vec<ServerRecord>,
}

impl<'a> ServersUnderTest<'a> {
    /// Connects to the servers, beginning with the one that is written to, and fills the workload's
    /// tables.
    ///
    /// # Errors
    /// When a server does not answer, or the tables cannot be created.
    pub fn open(
        servers: &[Member],
        mode: Mode,
        workload: &'a Workload,
        size: DataSize,
        clock: &Clock,
        filled: &mut dyn FnMut(&FillProgress),
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let mut discovered = servers
            .iter()
            .map(|server| DiscoveredServer::read(&server.node))
            .collect::<Result<Vec<_>, _>>()?;
        let records = discovered
            .iter()
            .map(|server| server.facts.record(&server.session))
            .collect();
        let nodes: Vec<Node> = servers.iter().map(|server| server.node.clone()).collect();
        let first = discovered.remove(0);
        let followers = discovered.into_iter().map(|server| ReplicaServer {
            name: server.node.name.clone(),
            session: server.session,
        });
        let data = fill_sandbox(&nodes, workload, size, filled, stop)?;
        data.wait_on(&nodes[1..], SETTLE, stop)?;
        Ok(Self {
            mode,
            engine: first.facts.engine,
            workload,
            clock: *clock,
            writer: nodes[0].clone(),
            session: first.session,
            followers: followers.collect(),
            meter: Meter::open(servers, clock)?,
            data,
            records,
        })
    }

    /// Returns the servers for the manifest.
    #[must_use]
    pub fn records(&self) -> &[ServerRecord] {
        &self.records
    }

    /// Returns warnings about resources that cannot be measured.
    #[must_use]
    pub fn meter_warnings(&self) -> Vec<replimeter_model::warning::Warning> {
        self.meter.warnings()
    }

    /// Measures the client's ping limit: pings per second over this number of connections. The client
    /// cannot run more statements than that on this server.
    ///
    /// # Errors
    /// When the server fails, or the user stops the run.
    pub fn ping_limit(&self, threads: u32, stop: &AtomicBool) -> Result<Option<f64>, MeasureError> {
        let load_group = LoadGroup {
            data: Some(&self.data),
            ..LoadGroup::new(self.workload, vec![self.writer.clone()], threads)
        };
        let mut pool = WorkerPool::open(&[load_group], &self.clock, stop)?;
        Ok(pool.measure_limit(LIMIT, stop).first().copied().flatten())
    }

    /// Waits until every other server has applied all writes.
    ///
    /// # Errors
    /// When a server does not finish in time, or the user stops the run.
    pub fn wait_until_applied(&mut self, stop: &AtomicBool) -> Result<(), MeasureError> {
        if self.followers.is_empty() {
            return Ok(());
        }
        let written = self.written()?;
        let deadline = Instant::now() + SETTLE;
        while let Some((name, behind)) = self
            .behind(&written)?
            .into_iter()
            .find(|(_, behind)| *behind > 0)
        {
            check_interrupted(stop)?;
            if Instant::now() > deadline {
                self.verify()?;
                return Err(self.session.precondition(
                    "cannot start the next measurement",
                    format!("{name} still has {behind} transactions to apply after {} s", SETTLE.as_secs()),
                    "use fewer threads or a shorter time (--duration), or run `replimeter backlog` to see whether it keeps up",
                ).into());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Removes the rows that loads added, and waits until every server has applied that.
    ///
    /// # Errors
    /// When a server fails, or the user stops the run.
    pub fn empty(&mut self, stop: &AtomicBool) -> Result<(), MeasureError> {
        self.data.restore(&self.writer, stop)?;
        self.wait_until_applied(stop)
    }

    /// Runs the load of one cell, block by block.
    ///
    /// # Errors
    /// When a server fails, or no longer replicates correctly; earlier blocks have been passed to the
    /// listener.
    pub fn run(
        &mut self,
        condition: ConditionLoad,
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        let load_group = LoadGroup {
            data: Some(&self.data),
            ..LoadGroup::new(self.workload, vec![self.writer.clone()], condition.threads)
        };
        let Listener { on, stop, .. } = listener;
        let mut pool = WorkerPool::open(&[load_group], &self.clock, stop)?;
        let mut last = Nanos(0);
        let mut rate = |second: &LoadProgress, on: &mut dyn FnMut(Event) -> Result<(), String>| {
            // Another window starts at 0 again.
            let since = if second.at > last {
                second.at - last
            } else {
                second.at
            };
            last = second.at;
            let operations = second
                .load_groups
                .first()
                .map_or(0, |load_group| load_group.operations);
            if since > Nanos(0) {
                // An error of the listener ends the cell at the next block.
                let _ = on(Event::Rate(operations as f64 * 1e9 / since.0 as f64));
            }
        };
        let mut applied = true;
        if !condition.ramp.is_zero() {
            // Separately, so that the meter's readings enclose counted time only.
            one(
                pool.run_interval(Duration::ZERO, condition.ramp, stop, &mut |second| {
                    rate(second, on)
                }),
                &self.session,
            )?;
            applied = self.catch_up(stop)?.1.is_some();
        }
        for _ in 0..condition.blocks {
            // What is left of the load before would count in this block's resources, and in the time to apply it.
            if !applied {
                self.wait_until_applied(stop)?;
            }
            self.await_semi_sync(stop)?;
            let before = (self.meter.read(), self.semi_sync()?);
            let results =
                pool.run_interval(Duration::ZERO, condition.length, stop, &mut |second| {
                    rate(second, on)
                });
            let result = one(results, &self.session)?.over_threads_time();
            if result.interrupted || stop.load(Ordering::Relaxed) {
                // An incomplete block is dropped.
                return Err(MeasureError::Interrupted);
            }
            // Read afterwards, the resources include all that the block has the replicas do.
            let (behind, caught_up) = self.catch_up(stop)?;
            applied = caught_up.is_some();
            let after = self.meter.read();
            let invalid = match (before.1, self.semi_sync()?) {
                (Some(before), Some(now)) => fallen_back(&before, &now),
                _ => None,
            };
            let uses = self.meter.between(&before.0, &after);
            let block = Block {
                result,
                uses,
                behind,
                caught_up,
                invalid,
            };
            on(Event::Block(Box::new(block))).map_err(MeasureError::Sink)?;
        }
        self.verify()?;
        Ok(())
    }

    /// Returns the state of semi-synchronous replication, where that is measured.
    fn semi_sync(&mut self) -> Result<Option<PrimaryState>, ServerError> {
        if self.mode != Mode::SemiSync {
            return Ok(None);
        }
        Ok(acknowledgement::state(&mut self.session)?.0)
    }

    /// Waits until semi-synchronous replication is in effect again.
    fn await_semi_sync(&mut self, stop: &AtomicBool) -> Result<(), MeasureError> {
        let deadline = Instant::now() + RECOVERY;
        while let Some(state) = self.semi_sync()?.filter(|state| !state.active) {
            check_interrupted(stop)?;
            if Instant::now() > deadline {
                return Err(self.session.precondition(
                    "cannot measure semi-synchronous replication",
                    format!(
                        "it fell back to asynchronous replication and did not recover within {} s; {} replicas acknowledge",
                        RECOVERY.as_secs(),
                        state.clients
                    ),
                    "check the replica and its receiver, lower the load, or raise the timeout (--server-option)",
                ).into());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Returns the position of the server that is written to.
    fn written(&mut self) -> Result<Position, ServerError> {
        match self.mode {
            Mode::Galera => Position::of_member(&mut self.session),
            _ => Position::written(self.engine, &mut self.session),
        }
    }

    /// Returns the number of transactions up to a position that each other server has not applied.
    fn behind(&mut self, written: &Position) -> Result<Vec<(String, u64)>, ServerError> {
        let (mode, engine) = (self.mode, self.engine);
        self.followers
            .iter_mut()
            .map(|follower| {
                let applied = match mode {
                    Mode::Galera => Position::of_member(&mut follower.session)?,
                    _ => Position::applied(engine, &mut follower.session)?,
                };
                let behind = applied
                    .behind(written)
                    .map_err(|error| error.on(&follower.session))?;
                Ok((follower.name.clone(), behind))
            })
            .collect()
    }

    /// Waits until every other server has applied all writes; returns the number of transactions that each
    /// lacked at first, and the time it took, `None` if it took longer than [`CATCH_UP`].
    ///
    /// # Errors
    /// When a server fails or no longer replicates, or the user stops the run.
    fn catch_up(&mut self, stop: &AtomicBool) -> Result<CaughtUp, MeasureError> {
        if self.followers.is_empty() {
            return Ok((Vec::new(), Some(Duration::ZERO)));
        }
        // The server that is written to is asked once: its answers would count among its resources.
        let written = self.written()?;
        let mut at_first = None;
        let took = pacing::catch_up(CATCH_UP, || {
            if at_first.is_some() {
                check_interrupted(stop)?;
            }
            let behind = self.behind(&written)?;
            let lacks = behind.iter().any(|(_, behind)| *behind > 0);
            at_first.get_or_insert(behind);
            Ok(lacks)
        })?;
        if took.is_none() {
            self.verify()?;
        }
        Ok((at_first.unwrap_or_default(), took))
    }

    /// Returns an error when a server no longer replicates correctly.
    fn verify(&mut self) -> Result<(), ServerError> {
        let operation = "no longer replicates";
        let size = self.followers.len() + 1;
        for follower in &mut self.followers {
            let session = &mut follower.session;
            let (fine, words) = match self.mode {
                Mode::Galera => {
                    let state = galera::node_state(session)?.unwrap_or_default();
                    (
                        state.synced() && state.size == size as u64,
                        state.description(),
                    )
                }
                Mode::Group => {
                    let state = group::group_state(session)?.unwrap_or_default();
                    (state.online() == size, state.description())
                }
                _ => {
                    let channels = dialect::channels(self.engine, session)?;
                    let channel = channels.first();
                    let channel =
                        channel.ok_or_else(|| dialect::channel_gone(session, operation))?;
                    (channel.running(), channel.state())
                }
            };
            if !fine {
                return Err(session.precondition(
                    operation,
                    words,
                    "see the server's error log, then measure again",
                ));
            }
        }
        Ok(())
    }
}

/// Returns the result of the only load group, or the error that ended it.
fn one(results: Vec<GroupResult>, session: &Session) -> Result<GroupResult, ServerError> {
    let Some(result) = results.into_iter().next() else {
        return Err(session.precondition(
            "internal error",
            "the load returned no result",
            REPORT_BUG,
        ));
    };
    if let Some(failure) = result.failure {
        return Err(failure);
    }
    // A block is too short for the load to give up retrying: a server that disappeared must not
    // contribute to the figures.
    if let Some(lost) = result.errors.iter().find(|error| error.code.is_none()) {
        return Err(session.precondition(
            "the load lost its connections",
            &lost.message,
            "check whether the server stopped; see its error log",
        ));
    }
    Ok(result)
}

/// Returns why a block was not entirely semi-synchronous.
fn fallen_back(before: &PrimaryState, now: &PrimaryState) -> Option<String> {
    let missed = now.unacknowledged.saturating_sub(before.unacknowledged);
    if now.active && missed == 0 {
        return None;
    }
    let state = if now.active {
        "it is semi-synchronous again"
    } else {
        "it is asynchronous now"
    };
    Some(format!(
        "{missed} transactions were committed without an acknowledgement, and {state}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_with_any_fall_back_is_invalid() {
        let state = |active, unacknowledged| PrimaryState {
            enabled: true,
            active,
            unacknowledged,
            ..PrimaryState::default()
        };
        assert_eq!(fallen_back(&state(true, 7), &state(true, 7)), None);
        assert!(
            fallen_back(&state(true, 7), &state(true, 8))
                .unwrap()
                .contains("semi-synchronous again")
        );
        assert!(
            fallen_back(&state(true, 7), &state(false, 7))
                .unwrap()
                .contains("asynchronous now")
        );
    }
}
