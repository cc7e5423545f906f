//! One start's part of a price list: a load in blocks on servers that replicate in one way,
//! with what they spent on it, how far replicas were behind, and whether they still
//! replicated as they should.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session,
    flavour::{
        self, galera, group,
        semi_sync::{self, PrimaryState},
    },
    source::Member,
};
use replimeter_model::{
    engine::Engine, load::Size, manifest::ServerRecord, plan::CostKind, resources::ServerUse,
    time::Nanos,
};
use serde::{Deserialize, Serialize};

use crate::{
    MeasureError,
    backlog::position::Position,
    clock::Clock,
    heed,
    load::{Crew, DataSet, Filled, Second, Squad, SquadResult, Workload, fill},
    resources::Meter,
    survey::Surveyed,
};

/// Threads that fill a data set.
const FILLERS: u32 = 2;
/// How long replicas may take to have what was written, between two cells.
const SETTLE: Duration = Duration::from_secs(120);
/// How long semi-synchronous replication that has fallen back may take to be back.
const RECOVERY: Duration = Duration::from_secs(15);
/// How often is looked whether something has come.
const LOOK: Duration = Duration::from_millis(10);
/// How long the client's own limit is measured.
const LIMIT: Duration = Duration::from_secs(1);

/// A block of a load.
#[derive(Debug, Serialize, Deserialize)]
pub struct Block {
    /// What the load came to.
    pub result: SquadResult,
    /// What each server spent, in the servers' order.
    pub uses: Vec<ServerUse>,
    /// Transactions that each other server had not applied at the block's end.
    pub behind: Vec<(String, u64)>,
    /// Why it does not count.
    pub invalid: Option<String>,
}

/// How the load of a cell is to run.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Connections.
    pub threads: u32,
    /// How long it runs before it counts.
    pub ramp: Duration,
    /// How many blocks.
    pub blocks: u32,
    /// How long each.
    pub length: Duration,
}

/// What happens in the course of a cell.
#[derive(Debug)]
pub enum Event {
    /// Operations a second, about once a second.
    Rate(f64),
    /// A block, whole.
    Block(Box<Block>),
}

/// What the caller does with the cell as it goes.
pub struct Listener<'a> {
    /// Takes every event; an error ends the cell.
    pub on: &'a mut dyn FnMut(Event) -> Result<(), String>,
    /// The user's wish to end.
    pub stop: &'a AtomicBool,
}

/// Another server than the one that is written to.
struct Follower {
    name: String,
    session: Session,
}

/// Servers under test.
pub struct Bench<'a> {
    kind: CostKind,
    engine: Engine,
    workload: &'a Workload,
    clock: Clock,
    writer: Node,
    session: Session,
    followers: Vec<Follower>,
    meter: Meter,
    data: DataSet,
    /// What the servers are, for the manifest.
    records: Vec<ServerRecord>,
}

impl<'a> Bench<'a> {
    /// Connects to the servers, the one that is written to first, and fills the workload's
    /// tables.
    ///
    /// # Errors
    /// When a server does not answer, or the tables cannot be made.
    pub fn open(
        servers: &[Member],
        kind: CostKind,
        workload: &'a Workload,
        size: Size,
        clock: &Clock,
        filled: &mut dyn FnMut(&Filled),
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let mut surveyed = servers
            .iter()
            .map(|server| Surveyed::read(&server.node))
            .collect::<Result<Vec<_>, _>>()?;
        let records = surveyed
            .iter()
            .map(|server| server.facts.record(&server.session))
            .collect();
        let nodes: Vec<Node> = servers.iter().map(|server| server.node.clone()).collect();
        let first = surveyed.remove(0);
        let followers = surveyed.into_iter().map(|server| Follower {
            name: server.node.name.clone(),
            session: server.session,
        });
        let data = fill(
            &nodes[0],
            &nodes[1..],
            workload,
            size,
            FILLERS,
            filled,
            stop,
        )?;
        data.await_on(&nodes[1..], SETTLE, stop)?;
        Ok(Self {
            kind,
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

    /// The servers for the manifest.
    #[must_use]
    pub fn records(&self) -> &[ServerRecord] {
        &self.records
    }

    /// What the meter cannot know, in words.
    #[must_use]
    pub fn meter_warnings(&self) -> Vec<replimeter_model::warning::Warning> {
        self.meter.warnings()
    }

    /// Empty questions a second that the client gets answered over so many connections: more
    /// statements than that it cannot have of this server.
    ///
    /// # Errors
    /// When the server fails.
    pub fn limit(&self, threads: u32) -> Result<Option<f64>, MeasureError> {
        let squad = Squad {
            data: Some(&self.data),
            ..Squad::new(self.workload, vec![self.writer.clone()], threads)
        };
        let mut crew = Crew::open(&[squad], &self.clock)?;
        Ok(crew.measure_limit(LIMIT).first().copied().flatten())
    }

    /// Waits until every other server has applied everything that was written.
    ///
    /// # Errors
    /// When one does not in time, or the user ends it.
    pub fn settle(&mut self, stop: &AtomicBool) -> Result<(), MeasureError> {
        let deadline = Instant::now() + SETTLE;
        while let Some((name, behind)) = self.behind()?.into_iter().find(|(_, behind)| *behind > 0)
        {
            heed(stop)?;
            if Instant::now() > deadline {
                self.verify()?;
                return Err(self.session.unfit(
                    "cannot start the next measurement",
                    format!("{name} still has {behind} transactions to apply after {} s", SETTLE.as_secs()),
                    "use fewer threads or a shorter time (--duration), or run `replimeter backlog` to see whether it keeps up",
                ).into());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Empties what loads wrote, and has every server apply that.
    ///
    /// # Errors
    /// When a server fails, or the user ends it.
    pub fn empty(&mut self, stop: &AtomicBool) -> Result<(), MeasureError> {
        self.data.restore(&self.writer)?;
        self.settle(stop)
    }

    /// Runs the load of one cell, block by block.
    ///
    /// # Errors
    /// When a server fails, or no longer replicates as it should; the blocks until then have
    /// been told.
    pub fn run(&mut self, cell: Cell, listener: &mut Listener<'_>) -> Result<(), MeasureError> {
        let squad = Squad {
            data: Some(&self.data),
            ..Squad::new(self.workload, vec![self.writer.clone()], cell.threads)
        };
        let mut crew = Crew::open(&[squad], &self.clock)?;
        let Listener { on, stop } = listener;
        let mut last = Nanos(0);
        let mut rate = |second: &Second, on: &mut dyn FnMut(Event) -> Result<(), String>| {
            // Another stretch begins at 0 again.
            let since = if second.at > last {
                second.at - last
            } else {
                second.at
            };
            last = second.at;
            let operations = second.squads.first().map_or(0, |squad| squad.operations);
            if since > Nanos(0) {
                // Whoever does not want to hear more says so at the next block.
                let _ = on(Event::Rate(operations as f64 * 1e9 / since.0 as f64));
            }
        };
        if !cell.ramp.is_zero() {
            // By itself, so that the meter's readings enclose counted time only.
            one(
                crew.stretch(Duration::ZERO, cell.ramp, stop, &mut |second| {
                    rate(second, on)
                }),
                &self.session,
            )?;
        }
        for _ in 0..cell.blocks {
            self.await_semi_sync(stop)?;
            let before = (self.meter.read(), self.semi_sync()?);
            let results = crew.stretch(Duration::ZERO, cell.length, stop, &mut |second| {
                rate(second, on)
            });
            let after = self.meter.read();
            let behind = self.behind();
            let result = one(results, &self.session)?;
            if result.interrupted || stop.load(Ordering::Relaxed) {
                // Half a block is none.
                return Err(MeasureError::Interrupted);
            }
            let invalid = match (before.1, self.semi_sync()?) {
                (Some(before), Some(now)) => fallen_back(&before, &now),
                _ => None,
            };
            let uses = self.meter.between(&before.0, &after);
            let block = Block {
                result,
                uses,
                behind: behind?,
                invalid,
            };
            on(Event::Block(Box::new(block))).map_err(MeasureError::Sink)?;
        }
        self.verify()?;
        Ok(())
    }

    /// The primary's part in semi-synchronous replication, where that is measured.
    fn semi_sync(&mut self) -> Result<Option<PrimaryState>, ServerError> {
        if self.kind != CostKind::SemiSync {
            return Ok(None);
        }
        Ok(semi_sync::state(&mut self.session)?.0)
    }

    /// Waits until semi-synchronous replication is in effect again.
    fn await_semi_sync(&mut self, stop: &AtomicBool) -> Result<(), MeasureError> {
        let deadline = Instant::now() + RECOVERY;
        while let Some(state) = self.semi_sync()?.filter(|state| !state.active) {
            heed(stop)?;
            if Instant::now() > deadline {
                return Err(self.session.unfit(
                    "cannot measure semi-synchronous replication",
                    format!(
                        "it fell back to asynchronous replication and did not recover within {} s; {} replicas acknowledge",
                        RECOVERY.as_secs(),
                        state.clients
                    ),
                    "check the replica and its receiver, lower the load, or raise the timeout (--server-option)",
                ).into());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Transactions that each other server has not applied.
    fn behind(&mut self) -> Result<Vec<(String, u64)>, ServerError> {
        let galera = self.kind == CostKind::Galera;
        if self.followers.is_empty() {
            return Ok(Vec::new());
        }
        let written = match galera {
            true => Position::galera(&mut self.session)?,
            false => Position::written(self.engine, &mut self.session)?,
        };
        self.followers
            .iter_mut()
            .map(|follower| {
                let applied = match galera {
                    true => Position::galera(&mut follower.session)?,
                    false => Position::applied(self.engine, &mut follower.session)?,
                };
                Ok((follower.name.clone(), applied.behind(&written)))
            })
            .collect()
    }

    /// An error when a server no longer replicates as it should.
    fn verify(&mut self) -> Result<(), ServerError> {
        let doing = "no longer replicates";
        let size = self.followers.len() + 1;
        for follower in &mut self.followers {
            let session = &mut follower.session;
            let (fine, words) = match self.kind {
                CostKind::Galera => {
                    let state = galera::node_state(session)?.unwrap_or_default();
                    (state.synced() && state.size == size as u64, state.words())
                }
                CostKind::Group => {
                    let state = group::group_state(session)?.unwrap_or_default();
                    (state.online() == size, state.words())
                }
                _ => {
                    let channels = flavour::channels(self.engine, session)?;
                    let channel = channels.first();
                    (
                        channel.is_some_and(flavour::Channel::running),
                        channel.map_or_else(
                            || "its channel no longer exists".to_owned(),
                            flavour::Channel::state,
                        ),
                    )
                }
            };
            if !fine {
                return Err(session.unfit(
                    doing,
                    words,
                    "see the server's error log, then measure again",
                ));
            }
        }
        Ok(())
    }
}

/// The one squad's result, or what ended it.
fn one(results: Vec<SquadResult>, session: &Session) -> Result<SquadResult, ServerError> {
    let Some(result) = results.into_iter().next() else {
        return Err(session.unfit(
            "internal error",
            "the load returned no result",
            "report this as a defect",
        ));
    };
    if let Some(failure) = result.failure {
        return Err(failure);
    }
    // A block is too short for the load to have given up: a price is never taken from a server that went away.
    if let Some(lost) = result.errors.iter().find(|error| error.code.is_none()) {
        return Err(session.unfit(
            "the load lost its connections",
            &lost.message,
            "check whether the server stopped; see its error log",
        ));
    }
    Ok(result)
}

/// Why a block is not of semi-synchronous replication alone.
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
    fn a_block_is_void_when_the_primary_did_not_wait_even_for_a_while() {
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
