//! Stops and starts a replica's applier, and restores its original state.

use std::{fmt::Display, sync::Arc};

use replimeter_engine::{
    ErrorKind, ServerError,
    dialect::{Channel, appliers::appliers},
};
use replimeter_model::warning::Warning;

use super::{
    Restoring,
    connection::{Connection, Replica},
    release::HeldApplier,
};
use crate::{MeasureError, preflight::CheckedReplica};

/// A stopped applier of a replica. When dropped without [`release`](Self::release), as after a panic,
/// it is released too.
pub(super) struct Applier<'a> {
    held: Arc<HeldApplier>,
    /// The current number of workers, and its variable.
    pub(super) workers: Option<(u64, &'static str)>,
    restoring: Restoring<'a>,
    released: bool,
}

impl<'a> Applier<'a> {
    /// Stops the applier and, if requested, sets its number of workers.
    ///
    /// # Errors
    /// When the server refuses or does not answer; then the applier is released.
    pub(super) fn stop_applier(
        replica: &CheckedReplica,
        channel: &Channel,
        workers: Option<u32>,
        restoring: Restoring<'a>,
    ) -> Result<Self, MeasureError> {
        let (node, facts) = (&replica.server.node, &replica.server.facts);
        let known = appliers(facts).map(|appliers| (appliers.threads, appliers.threads_variable));
        let wanted = workers
            .map(u64::from)
            .zip(known)
            .filter(|(wanted, (was, _))| wanted != was);
        let held = HeldApplier::new(
            node,
            facts.engine,
            channel,
            wanted.map(|(_, former)| former),
            restoring.held,
        );
        let mut connection = held.connect(restoring.timeouts.order)?;
        let mut applier = Self {
            held: held.register(),
            workers: known,
            restoring,
            released: false,
        };
        if let Err(error) = applier.held.guard() {
            (restoring.say)(&format!(
                "cannot start the process that would restore the applier of {} if this one is killed: {error}",
                node.name
            ));
        }
        let held = match applier.held.stop(&mut connection) {
            // A user without the privilege to stop it has changed nothing.
            Err(MeasureError::Server(error)) if error.kind == ErrorKind::Privilege => {
                applier.forget();
                return Err(error.into());
            }
            stopped => stopped.and_then(|()| applier.set_workers(&mut connection, wanted)),
        };
        // The server must see the end of a connection on which a statement is unanswered.
        drop(connection);
        match held {
            Ok(()) => Ok(applier),
            Err(error) => Err(applier.release_after(error)),
        }
    }

    fn set_workers(
        &mut self,
        connection: &mut Connection,
        wanted: Option<(u64, (u64, &'static str))>,
    ) -> Result<(), MeasureError> {
        let Some((wanted, (_, variable))) = wanted else {
            return Ok(());
        };
        self.held.set_workers(connection, variable, wanted)?;
        // The server may set another number.
        self.workers = connection.global(variable)?.map(|now| (now, variable));
        Ok(())
    }

    /// Opens a new connection to start it: the server may have closed the connection that stopped it as
    /// idle.
    pub(super) fn connect(&self) -> Result<Connection, ServerError> {
        self.held.connect(self.restoring.timeouts.order)
    }

    /// Starts it with the current number of workers.
    pub(super) fn start(&self, connection: &mut Connection) -> Result<(), MeasureError> {
        self.held.start(connection)
    }

    /// Restores its original state, also after a failed measurement. `late` receives a warning if the first attempt failed.
    ///
    /// # Errors
    /// The measurement's error; and, when it is not certain that the applier was restored, that error
    /// too, with the statements that restore it.
    pub(super) fn release(
        mut self,
        measured: Result<(), MeasureError>,
        late: &mut Vec<Warning>,
    ) -> Result<(), MeasureError> {
        let held = Arc::clone(&self.held);
        let released = match measured {
            Ok(()) => self.bring_back(None).map_err(MeasureError::from),
            Err(first) => Err(self.release_after(first)),
        };
        late.extend(held.restored_late());
        released
    }

    fn release_after(mut self, first: MeasureError) -> MeasureError {
        match self.bring_back(Some(&first)) {
            Ok(()) => first,
            Err(held) => MeasureError::Held {
                first: Box::new(first),
                held,
            },
        }
    }

    fn forget(&mut self) {
        self.released = true;
        self.held.forget();
    }

    fn bring_back(&mut self, first: Option<&MeasureError>) -> Result<(), ServerError> {
        self.released = true;
        self.held.release(
            self.restoring.timeouts.release,
            first.map(|first| first as &dyn Display),
            self.restoring.say,
        )
    }
}

impl Drop for Applier<'_> {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        if let Err(error) = self.bring_back(None) {
            (self.restoring.say)(&format!("{error}; {}", error.hint));
        }
    }
}
