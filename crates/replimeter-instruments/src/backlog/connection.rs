//! A connection that stops and starts an applier and reads its state.

use std::time::Duration;

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{
        ThreadState, channel_gone, channels,
        connections::{OpenedConnection, still_open},
    },
};
use replimeter_model::engine::Engine;

pub(super) const OPERATION: &str = "cannot read the applier's state";

/// A connection to the replica; tests use one without a server.
pub(super) trait Replica {
    fn connection(&self) -> OpenedConnection;
    fn execute(&mut self, statement: &str) -> Result<(), ServerError>;
    /// Returns whether an earlier connection is still open.
    fn is_open(&mut self, earlier: OpenedConnection) -> Result<bool, ServerError>;
    /// Returns whether the applier runs, and its last error.
    fn applier(&mut self) -> Result<(bool, String), ServerError>;
    fn global(&mut self, variable: &str) -> Result<Option<u64>, ServerError>;
    fn precondition(&self, cause: String) -> ServerError;
}

/// A session for one channel.
pub(super) struct Connection {
    session: Session,
    engine: Engine,
    channel: String,
}

impl Connection {
    /// Connects. `channel` is the channel's name; `answer` is the timeout of each answer.
    pub(super) fn open(
        node: &Node,
        engine: Engine,
        channel: &str,
        answer: Duration,
    ) -> Result<Self, ServerError> {
        // The applier must be restored as soon as the server answers again.
        let session = Session::open_again(&Node {
            answer,
            ..node.clone()
        })?;
        Ok(Self {
            session,
            engine,
            channel: channel.to_owned(),
        })
    }
}

impl Replica for Connection {
    fn connection(&self) -> OpenedConnection {
        self.session.opened()
    }

    fn execute(&mut self, statement: &str) -> Result<(), ServerError> {
        self.session.run(
            &format!("cannot execute `{}`", statement.trim_end_matches(';')),
            statement,
        )
    }

    fn is_open(&mut self, earlier: OpenedConnection) -> Result<bool, ServerError> {
        let open = still_open(&mut self.session, &[earlier])?;
        Ok(!open.is_empty())
    }

    fn applier(&mut self) -> Result<(bool, String), ServerError> {
        let channels = channels(self.engine, &mut self.session)?;
        match channels
            .into_iter()
            .find(|channel| channel.name == self.channel)
        {
            Some(channel) => Ok((channel.applier == ThreadState::Running, channel.sql_error)),
            None => Err(channel_gone(&self.session, OPERATION)),
        }
    }

    fn global(&mut self, variable: &str) -> Result<Option<u64>, ServerError> {
        let value = self
            .session
            .value(OPERATION, &format!("SELECT @@GLOBAL.{variable}"))?;
        Ok(value.and_then(|value| value.parse().ok()))
    }

    fn precondition(&self, cause: String) -> ServerError {
        self.session.precondition(OPERATION, cause, "")
    }
}
