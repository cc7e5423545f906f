//! Stops and starts a replica's applier, and leaves it as it was found.

use std::{fmt::Display, sync::Arc};

use replimeter_engine::{
    ErrorKind, ServerError,
    flavour::{Channel, appliers::appliers},
};

use super::{
    Timeouts,
    connection::{Connection, Replica},
    release::Held,
};
use crate::{MeasureError, preflight::CheckedReplica};

/// A replica's applier, stopped. Dropped without [`release`](Self::release), as a panic does, it is
/// released too.
pub(super) struct Applier<'a> {
    held: Arc<Held>,
    /// The number of workers in effect, and its setting.
    pub(super) workers: Option<(u64, &'static str)>,
    timeouts: Timeouts,
    say: &'a dyn Fn(&str),
    released: bool,
}

impl<'a> Applier<'a> {
    /// Stops the applier and gives it this number of workers, if any is asked for. `say` takes lines
    /// about its release for the user.
    ///
    /// # Errors
    /// When the server refuses or does not answer; the applier is released then.
    pub(super) fn hold(
        replica: &CheckedReplica,
        channel: &Channel,
        workers: Option<u32>,
        timeouts: Timeouts,
        say: &'a dyn Fn(&str),
    ) -> Result<Self, MeasureError> {
        let (node, facts) = (&replica.server.node, &replica.server.facts);
        let known = appliers(facts).map(|appliers| (appliers.threads, appliers.threads_variable));
        let wanted = workers
            .map(u64::from)
            .zip(known)
            .filter(|(wanted, (was, _))| wanted != was);
        let held = Held::new(
            node,
            facts.engine,
            channel,
            wanted.map(|(_, former)| former),
        );
        let mut connection = held.connect(timeouts.order)?;
        let mut applier = Self {
            held: held.keep(),
            workers: known,
            timeouts,
            say,
            released: false,
        };
        let held = match applier.held.stop(&mut connection) {
            // A user that may not stop it has changed nothing.
            Err(error) if error.kind == ErrorKind::Privilege => {
                applier.forget();
                return Err(error.into());
            }
            stopped => stopped.and_then(|()| applier.set_workers(&mut connection, wanted)),
        };
        // The server has to see the end of a connection on which it has left a statement unanswered.
        drop(connection);
        match held {
            Ok(()) => Ok(applier),
            Err(error) => Err(applier.release_after(error.into())),
        }
    }

    fn set_workers(
        &mut self,
        connection: &mut Connection,
        wanted: Option<(u64, (u64, &'static str))>,
    ) -> Result<(), ServerError> {
        let Some((wanted, (_, variable))) = wanted else {
            return Ok(());
        };
        self.held.set_workers(connection, variable, wanted)?;
        // A server may make another number of it.
        self.workers = connection.global(variable)?.map(|now| (now, variable));
        Ok(())
    }

    /// A new connection to start it with: the one that stopped it may have been closed as idle since.
    pub(super) fn connect(&self) -> Result<Connection, ServerError> {
        self.held.connect(self.timeouts.order)
    }

    /// Starts it with the workers that were set.
    pub(super) fn start(&self, connection: &mut Connection) -> Result<(), ServerError> {
        self.held.start(connection)
    }

    /// Brings it back to how it was, whatever the measurement came to.
    ///
    /// # Errors
    /// The measurement's, and when it is not certain that the applier runs as before that one too,
    /// with the statements that bring it back.
    pub(super) fn release(
        mut self,
        measured: Result<(), MeasureError>,
    ) -> Result<(), MeasureError> {
        match measured {
            Ok(()) => self.bring_back(None).map_err(MeasureError::from),
            Err(first) => Err(self.release_after(first)),
        }
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
            self.timeouts.release,
            first.map(|first| first as &dyn Display),
            self.say,
        )
    }
}

impl Drop for Applier<'_> {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        if let Err(error) = self.bring_back(None) {
            (self.say)(&format!("{error}; {}", error.hint));
        }
    }
}
