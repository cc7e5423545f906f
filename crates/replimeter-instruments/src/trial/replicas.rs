//! The servers that a start's writes replicate to.

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use replimeter_engine::{ServerError, Session, membership::fault, position::Position};
use replimeter_model::{engine::Engine, replication::Mode};

use crate::{MeasureError, check_interrupted, pacing};

/// Interval between checks, while servers catch up, whether they still replicate.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The servers other than the one that is written to.
pub(super) struct Replicas {
    mode: Mode,
    engine: Engine,
    servers: Vec<Session>,
}

/// How servers applied all writes.
#[derive(Default)]
pub(super) struct CaughtUp {
    /// The number of transactions that each server lacked at first.
    pub(super) behind: Vec<(String, u64)>,
    /// How long it took; `None` if it took longer than the limit.
    pub(super) took: Option<Duration>,
    /// The number of transactions that a server lacks at the end, and its name.
    pub(super) lacking: Option<(u64, String)>,
}

impl Replicas {
    pub(super) fn new(mode: Mode, engine: Engine, servers: Vec<Session>) -> Self {
        Self {
            mode,
            engine,
            servers,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Waits until every server has applied all writes, for at most `limit`; `progress` gets the largest number of transactions that
    /// one lacks.
    ///
    /// # Errors
    /// When a server fails or no longer replicates, or the user stops the run.
    pub(super) fn catch_up(
        &mut self,
        written_on: &mut Session,
        limit: Duration,
        progress: &mut dyn FnMut(u64),
        stop: &AtomicBool,
    ) -> Result<CaughtUp, MeasureError> {
        let mut caught_up = CaughtUp::default();
        if self.is_empty() {
            caught_up.took = Some(Duration::ZERO);
            return Ok(caught_up);
        }
        // Only once: its answers count among its resources.
        let written = Position::written_in(self.mode, self.engine, written_on)?;
        let mut lacking: Vec<usize> = (0..self.servers.len()).collect();
        let mut checked = Instant::now();
        let behind = &mut caught_up.behind;
        let most = &mut caught_up.lacking;
        caught_up.took = pacing::catch_up(limit, || {
            let first = behind.is_empty();
            if !first {
                check_interrupted(stop)?;
            }
            *most = None;
            for index in std::mem::take(&mut lacking) {
                let server = &mut self.servers[index];
                let count = Position::applied_in(self.mode, self.engine, server)?
                    .behind(&written)
                    .map_err(|error| error.on(server))?;
                if first {
                    behind.push((server.name().to_owned(), count));
                }
                if count > 0 {
                    lacking.push(index);
                    *most = most.take().max(Some((count, server.name().to_owned())));
                }
            }
            if let Some((count, _)) = most
                && checked.elapsed() > CHECK_INTERVAL
            {
                progress(*count);
                self.verify()?;
                checked = Instant::now();
            }
            Ok(most.is_some())
        })?;
        if caught_up.took.is_none() {
            self.verify()?;
        }
        Ok(caught_up)
    }

    /// Checks that every server still replicates.
    ///
    /// # Errors
    /// When one does not, or does not answer.
    pub(super) fn verify(&mut self) -> Result<(), ServerError> {
        let all = self.servers.len() + 1;
        for session in &mut self.servers {
            if let Some(words) = fault(self.mode, self.engine, all, session)? {
                let hint = "see the server's error log, then measure again";
                return Err(session.precondition("no longer replicates", words, hint));
            }
        }
        Ok(())
    }
}
