//! A connection of a load in an event loop.

use std::time::Duration;

use replimeter_engine::{
    ErrorKind, ServerError,
    dialect::connections::OpenedConnection,
    wire::{
        Answer, Binder, PreparedStatement, ServerRefusal, StatementError, StatementResult,
        WireConnection, WireTarget,
    },
};

use super::event_loop::TaskHandle;

/// Timeout of a login as a whole.
const LOGIN: Duration = Duration::from_secs(30);

/// A connection in an event loop; an answer that takes too long breaks it.
pub(super) struct Channel {
    wire: WireConnection,
    task: TaskHandle,
    limit: Duration,
}

impl Channel {
    /// Connects, and logs in.
    ///
    /// # Errors
    /// Those of the login.
    pub(super) async fn open(
        target: &WireTarget,
        task: &TaskHandle,
        limit: Duration,
    ) -> Result<Self, ServerError> {
        let _permit = task.login_permit().await;
        let mut wire = WireConnection::start(target)?;
        task.register(&wire).map_err(|error| {
            target.node().precondition(
                "cannot connect",
                format!("the socket cannot be watched: {error}"),
                "use fewer threads",
            )
        })?;
        let logged_in = task.limited(LOGIN, wire.log_in()).await;
        logged_in.unwrap_or_else(|| {
            let late = wire.unanswered(LOGIN);
            Err(ServerError {
                operation: "cannot connect".to_owned(),
                kind: ErrorKind::Unreachable,
                ..late
            })
        })?;
        Ok(Self {
            wire,
            task: task.clone(),
            limit,
        })
    }

    /// Returns what other sessions recognize the connection by.
    pub(super) fn opened(&self) -> OpenedConnection {
        self.wire.opened()
    }

    /// Returns a refusal as this server's error.
    pub(super) fn refused(&self, refusal: &ServerRefusal) -> ServerError {
        self.wire.refused(refusal)
    }

    /// Returns a statement's error as this server's.
    pub(super) fn explained(&self, error: StatementError) -> ServerError {
        self.wire.explained(error)
    }

    /// Prepares a statement.
    pub(super) async fn prepare(&mut self, sql: &str) -> Result<PreparedStatement, ServerError> {
        let done = self.task.limited(self.limit, self.wire.prepare(sql)).await;
        done.unwrap_or_else(|| Err(self.wire.unanswered(self.limit)))
    }

    /// Runs a prepared statement; `bind` supplies its parameters, in order.
    #[inline]
    pub(super) async fn execute(
        &mut self,
        prepared: &mut PreparedStatement,
        of: Answer,
        bind: impl FnOnce(&mut Binder<'_>),
    ) -> Result<StatementResult, StatementError> {
        let execution = self.wire.execute(prepared, of, bind);
        let done = self.task.limited(self.limit, execution).await;
        done.unwrap_or_else(|| Err(self.unanswered()))
    }

    /// Runs a statement given as text.
    pub(super) async fn query(&mut self, sql: &str) -> Result<StatementResult, StatementError> {
        let done = self.task.limited(self.limit, self.wire.query(sql)).await;
        done.unwrap_or_else(|| Err(self.unanswered()))
    }

    /// Runs a `LOAD DATA LOCAL`, whose file has these contents.
    pub(super) async fn load(
        &mut self,
        sql: &str,
        rows: &mut String,
    ) -> Result<StatementResult, StatementError> {
        let done = self
            .task
            .limited(self.limit, self.wire.load(sql, rows))
            .await;
        done.unwrap_or_else(|| Err(self.unanswered()))
    }

    /// Runs a statement given as text, a refusal of which is this server's error.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), ServerError> {
        let done = self.query(sql).await;
        done.map(drop).map_err(|error| self.explained(error))
    }

    /// Lets the following statements, which are the user's, have the server's defaults.
    pub(super) async fn use_server_defaults(&mut self) -> Result<(), ServerError> {
        let setting = self.wire.use_server_defaults();
        let done = self.task.limited(self.limit, setting).await;
        done.unwrap_or_else(|| Err(self.wire.unanswered(self.limit)))
    }

    /// Sends the cheapest command that a server answers, and waits for the answer.
    pub(super) async fn ping(&mut self) -> Result<StatementResult, StatementError> {
        let done = self.task.limited(self.limit, self.wire.ping()).await;
        done.unwrap_or_else(|| Err(self.unanswered()))
    }

    fn unanswered(&self) -> StatementError {
        StatementError::Broken(self.wire.unanswered(self.limit))
    }

    /// Rolls back: after a lock timeout the server keeps the earlier statements of the transaction.
    ///
    /// # Errors
    /// When the connection breaks; a refusal is ignored.
    pub(super) async fn roll_back(&mut self) -> Result<(), ServerError> {
        match self.query("ROLLBACK").await {
            Err(StatementError::Broken(error)) => Err(error),
            Ok(_) | Err(StatementError::Refused(_)) => Ok(()),
        }
    }

    /// Returns whether no answer is outstanding. Otherwise the next statement would get the answer to an earlier one.
    pub(super) fn is_idle(&self) -> bool {
        self.wire.is_idle()
    }
}
