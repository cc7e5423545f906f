//! The statements that stop and start a replica's applier, and the state after each.

use replimeter_engine::{ServerError, dialect::connections::OpenedConnection};

use super::connection::Replica;

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum AttemptError {
    /// Another attempt may succeed.
    Again(ServerError),
    /// The applier was started and failed.
    Broken(ServerError),
}

impl From<ServerError> for AttemptError {
    fn from(error: ServerError) -> Self {
        Self::Again(error)
    }
}

/// The statements that restore an applier.
#[derive(Debug)]
pub(super) struct RestoreStatements {
    pub(super) stop: String,
    /// The original number of workers and its variable, if the run changes it.
    pub(super) workers: Option<(u64, &'static str)>,
    pub(super) start: String,
}

impl RestoreStatements {
    /// Returns all statements, for the user: they are correct in every state of the applier.
    pub(super) fn manual_statements(&self) -> String {
        let set = self
            .workers
            .map(|(workers, variable)| set(variable, workers));
        [Some(self.stop.clone()), set, Some(self.start.clone())]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Returns the statement that sets the number of workers, from the applier's next start on.
pub(super) fn set(variable: &str, workers: u64) -> String {
    format!("SET GLOBAL {variable} = {workers};")
}

/// Known state of the statements sent to the replica.
#[derive(Debug, Default)]
pub(super) struct RestoreState {
    /// Whether a `STOP` was sent without a successful answer: the applier may stop at any time.
    stopping: bool,
    /// A connection whose last statement has no answer: it may still take effect.
    unanswered: Option<OpenedConnection>,
    /// Whether the applier was restored; then no statement may be sent.
    pub(super) released: bool,
}

impl RestoreState {
    /// Returns the state after statements of another process.
    pub(super) fn unknown() -> Self {
        Self {
            stopping: true,
            ..Self::default()
        }
    }

    /// Sends a statement that changes the applier.
    pub(super) fn send(
        &mut self,
        replica: &mut dyn Replica,
        statement: &str,
    ) -> Result<(), ServerError> {
        if self.released {
            return Err(replica.precondition("Replimeter is exiting".to_owned()));
        }
        self.unanswered = Some(replica.connection());
        let sent = replica.execute(statement);
        // A refusal is an answer.
        if sent.as_ref().err().is_none_or(|error| error.is_refusal()) {
            self.unanswered = None;
        }
        sent
    }

    pub(super) fn stop(
        &mut self,
        replica: &mut dyn Replica,
        statements: &RestoreStatements,
    ) -> Result<(), ServerError> {
        self.stopping = true;
        self.send(replica, &statements.stop)?;
        self.stopping = false;
        Ok(())
    }

    /// Restores the applier and reads whether it runs.
    pub(super) fn restore(
        &mut self,
        replica: &mut dyn Replica,
        statements: &RestoreStatements,
    ) -> Result<(), AttemptError> {
        if let Some(earlier) = self.unanswered {
            // A late STOP would stop the applier again afterwards.
            if replica.is_open(earlier)? {
                let number = earlier.number;
                let killed = replica.execute(&format!("KILL {number}"));
                let how = killed
                    .err()
                    .map_or_else(String::new, |error| format!(" ({})", error.cause));
                return Err(replica
                    .precondition(format!(
                        "the statement of connection {number} is still running{how}"
                    ))
                    .into());
            }
            self.unanswered = None;
        }
        if self.stopping || statements.workers.is_some() {
            self.stop(replica, statements)?;
        }
        if let Some((workers, variable)) = statements.workers {
            self.send(replica, &set(variable, workers))?;
        }
        self.send(replica, &statements.start)?;
        let (running, error) = replica.applier()?;
        if !running && !error.is_empty() {
            return Err(AttemptError::Broken(
                replica.precondition(format!("it was started and failed: {error}")),
            ));
        }
        if !running {
            return Err(replica
                .precondition("it was started but is not running".to_owned())
                .into());
        }
        if let Some((workers, variable)) = statements.workers {
            let now = replica.global(variable)?;
            if now != Some(workers) {
                let now = now.map_or_else(|| "unknown".to_owned(), |now| now.to_string());
                return Err(replica
                    .precondition(format!(
                        "{variable} is {now}; it was {workers} before the run"
                    ))
                    .into());
            }
        }
        self.released = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use replimeter_engine::{ErrorClass, ErrorKind};
    use std::time::Instant;

    use super::*;
    use crate::MeasureError;

    const WORKERS: Option<(u64, &str)> = Some((3, "slave_parallel_threads"));

    fn statements(workers: Option<(u64, &'static str)>) -> RestoreStatements {
        RestoreStatements {
            stop: "STOP SLAVE SQL_THREAD;".to_owned(),
            workers,
            start: "START SLAVE SQL_THREAD;".to_owned(),
        }
    }

    fn error(kind: ErrorKind, cause: &str) -> ServerError {
        ServerError {
            kind,
            ..ServerError::precondition("replica1", "h:1", "cannot execute", cause, "")
        }
    }

    /// A replica that answers every statement except one.
    struct ScriptedReplica {
        number: u64,
        fails: Option<(&'static str, ErrorKind)>,
        connections: Vec<u64>,
        applier: (bool, &'static str),
        workers: u64,
        sent: Vec<String>,
    }

    impl ScriptedReplica {
        fn new(number: u64) -> Self {
            Self {
                number,
                fails: None,
                connections: vec![number],
                applier: (true, ""),
                workers: 3,
                sent: Vec::new(),
            }
        }

        fn failing(number: u64, statement: &'static str, kind: ErrorKind) -> Self {
            Self {
                fails: Some((statement, kind)),
                ..Self::new(number)
            }
        }
    }

    impl Replica for ScriptedReplica {
        fn connection(&self) -> OpenedConnection {
            OpenedConnection {
                number: self.number,
                at: Instant::now(),
            }
        }

        fn execute(&mut self, statement: &str) -> Result<(), ServerError> {
            self.sent.push(statement.trim_end_matches(';').to_owned());
            match self.fails.filter(|(word, _)| statement.starts_with(word)) {
                Some((_, kind)) => Err(error(kind, "no answer in time")),
                None => Ok(()),
            }
        }

        fn is_open(&mut self, earlier: OpenedConnection) -> Result<bool, ServerError> {
            Ok(self.connections.contains(&earlier.number))
        }

        fn applier(&mut self) -> Result<(bool, String), ServerError> {
            Ok((self.applier.0, self.applier.1.to_owned()))
        }

        fn global(&mut self, _: &str) -> Result<Option<u64>, ServerError> {
            Ok(Some(self.workers))
        }

        fn precondition(&self, cause: String) -> ServerError {
            error(ErrorKind::Unfit, &cause)
        }
    }

    fn cause(failed: Result<(), AttemptError>) -> String {
        match failed {
            Err(AttemptError::Again(error)) => error.cause,
            other => panic!("expected another attempt: {other:?}"),
        }
    }

    #[test]
    fn unanswered_stop_ends_before_start() {
        let mut state = RestoreState::default();
        let mut first = ScriptedReplica::failing(7, "STOP", ErrorKind::Timeout);
        assert_eq!(
            state.stop(&mut first, &statements(None)).unwrap_err().cause,
            "no answer in time"
        );
        let mut early = ScriptedReplica {
            connections: vec![7, 8],
            ..ScriptedReplica::new(8)
        };
        let cause = cause(state.restore(&mut early, &statements(None)));
        assert_eq!(cause, "the statement of connection 7 is still running");
        assert_eq!(
            early.sent,
            ["KILL 7"],
            "a START would be undone by the STOP that is still in progress"
        );
        // After it ended its result is unknown: only an answered STOP is certain.
        let mut late = ScriptedReplica::new(9);
        state.restore(&mut late, &statements(None)).unwrap();
        assert_eq!(
            late.sent,
            ["STOP SLAVE SQL_THREAD", "START SLAVE SQL_THREAD"]
        );
    }

    #[test]
    fn stop_abandoned_by_the_server_is_repeated() {
        let mut state = RestoreState::default();
        // MySQL: the applier got the signal and will stop later (rpl_stop_replica_timeout).
        state
            .stop(
                &mut ScriptedReplica::failing(7, "STOP", ErrorKind::Statement(ErrorClass::Other)),
                &statements(None),
            )
            .unwrap_err();
        let mut again = ScriptedReplica {
            connections: vec![7, 8],
            ..ScriptedReplica::new(8)
        };
        state.restore(&mut again, &statements(None)).unwrap();
        assert_eq!(
            again.sent,
            ["STOP SLAVE SQL_THREAD", "START SLAVE SQL_THREAD"]
        );
    }

    #[test]
    fn stopped_applier_is_only_started() {
        let mut state = RestoreState::default();
        let mut replica = ScriptedReplica::new(7);
        state.stop(&mut replica, &statements(None)).unwrap();
        state.restore(&mut replica, &statements(None)).unwrap();
        assert_eq!(
            replica.sent,
            ["STOP SLAVE SQL_THREAD", "START SLAVE SQL_THREAD"]
        );
        assert!(
            state.send(&mut replica, "STOP SLAVE SQL_THREAD;").is_err(),
            "a released applier is not stopped again"
        );
        assert_eq!(replica.sent.len(), 2);
    }

    #[test]
    fn answer_without_state_change_is_not_success() {
        let mut idle = ScriptedReplica {
            applier: (false, ""),
            ..ScriptedReplica::new(7)
        };
        assert_eq!(
            cause(RestoreState::default().restore(&mut idle, &statements(WORKERS))),
            "it was started but is not running"
        );
        let mut other = ScriptedReplica {
            workers: 5,
            ..ScriptedReplica::new(7)
        };
        let mut state = RestoreState::default();
        assert_eq!(
            cause(state.restore(&mut other, &statements(WORKERS))),
            "slave_parallel_threads is 5; it was 3 before the run"
        );
        other.workers = 3;
        other.sent.clear();
        state.restore(&mut other, &statements(WORKERS)).unwrap();
        assert_eq!(
            other.sent,
            [
                "STOP SLAVE SQL_THREAD",
                "SET GLOBAL slave_parallel_threads = 3",
                "START SLAVE SQL_THREAD"
            ]
        );
        let mut broken = ScriptedReplica {
            applier: (false, "Duplicate entry"),
            ..ScriptedReplica::new(7)
        };
        let failed = RestoreState::default().restore(&mut broken, &statements(None));
        assert!(
            matches!(&failed, Err(AttemptError::Broken(error)) if error.cause.ends_with("Duplicate entry")),
            "{failed:?}"
        );
    }

    #[test]
    fn both_errors_are_shown() {
        let held = ServerError {
            hint: format!(
                "run on replica1: {}",
                statements(WORKERS).manual_statements()
            ),
            ..error(ErrorKind::Lost, "gone")
        };
        let first = MeasureError::Server(ServerError {
            hint: "restart it".to_owned(),
            ..error(ErrorKind::Timeout, "stalled")
        });
        let both = MeasureError::Held {
            first: Box::new(first),
            held,
        };
        assert_eq!(
            both.to_string(),
            "replica1 (h:1): cannot execute: stalled; replica1 (h:1): cannot execute: gone"
        );
        let statements =
            "STOP SLAVE SQL_THREAD; SET GLOBAL slave_parallel_threads = 3; START SLAVE SQL_THREAD;";
        assert_eq!(
            both.hint(),
            format!("restart it; run on replica1: {statements}")
        );
    }
}
