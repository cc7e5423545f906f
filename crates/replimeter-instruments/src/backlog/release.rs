//! Restores a stopped applier: every exit of the program passes here.

use std::{
    fmt::{self, Display},
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError,
    dialect::{
        Channel,
        statements::{self, ChannelPart},
    },
    sync::lock,
};
use replimeter_model::{
    engine::Engine,
    warning::{Warning, WarningCode},
};

use super::{
    connection::{Connection, OPERATION},
    rescue::{RescueOrder, Rescuer, StartRescuer},
    restore::{AttemptError, RestoreState, RestoreStatements, set},
};
use crate::MeasureError;

/// How long the applier is retried when the process must end at once.
const HURRIED_TIMEOUT: Duration = Duration::from_secs(4);
/// Limits of the answer timeout within one attempt.
const ATTEMPT_TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Limits of the pause between two attempts, which doubles each time.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// Returns the pause after this number of failed attempts; `elapsed` is the time from the begin of the
/// first to the end of the last. `None` when the limit has passed. The last attempt begins at the
/// limit.
fn pause(failed: u32, elapsed: Duration, limit: Duration) -> Option<Duration> {
    let left = limit.checked_sub(elapsed).filter(|left| !left.is_zero())?;
    let doubled = 2u32.saturating_pow(failed.saturating_sub(1));
    Some(PAUSES[0].saturating_mul(doubled).min(PAUSES[1]).min(left))
}

/// Returns the answer timeout of an attempt: a short limit leaves time for a second attempt.
fn attempt_timeout(elapsed: Duration, limit: Duration) -> Duration {
    (limit.saturating_sub(elapsed) / 2).clamp(ATTEMPT_TIMEOUTS[0], ATTEMPT_TIMEOUTS[1])
}

/// An applier that is not in its original state.
#[derive(Debug)]
pub(super) struct HeldApplier {
    node: Node,
    engine: Engine,
    channel: String,
    statements: RestoreStatements,
    state: Mutex<RestoreState>,
    /// When the first attempt failed, and why: a later success must be reported too.
    failed_first: OnceLock<(Instant, String)>,
    /// Restores it when this process is killed.
    rescuer: Mutex<Option<Rescuer>>,
    /// The appliers among which it is registered.
    all: HeldAppliers,
}

impl HeldApplier {
    /// Creates the state of a replica's applier; [`register`](Self::register) registers it. `workers` is the
    /// original number and its variable, if the run changes it.
    pub(super) fn new(
        node: &Node,
        engine: Engine,
        channel: &Channel,
        workers: Option<(u64, &'static str)>,
        all: &HeldAppliers,
    ) -> Self {
        let statements = RestoreStatements {
            stop: statements::stop(engine, channel, ChannelPart::Applier),
            workers,
            start: statements::start(engine, channel, ChannelPart::Applier),
        };
        Self {
            node: node.clone(),
            engine,
            channel: channel.name.clone(),
            statements,
            state: Mutex::default(),
            failed_first: OnceLock::new(),
            rescuer: Mutex::default(),
            all: all.clone(),
        }
    }

    /// Creates the state of an applier that a killed process may have stopped.
    pub(super) fn in_unknown_state(
        node: Node,
        engine: Engine,
        channel: String,
        statements: RestoreStatements,
    ) -> Self {
        Self {
            node,
            engine,
            channel,
            statements,
            state: Mutex::new(RestoreState::unknown()),
            failed_first: OnceLock::new(),
            rescuer: Mutex::default(),
            all: HeldAppliers::default(),
        }
    }

    /// Starts the process that restores it when this one is killed.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn guard(&self) -> io::Result<()> {
        // The servers in a namespace end with Replimeter.
        let Some(start) = &self.all.0.rescuer else {
            return Ok(());
        };
        if self.node.namespace.is_some() {
            return Ok(());
        }
        let order = RescueOrder::new(&self.node, self.engine, &self.channel, &self.statements);
        *lock(&self.rescuer) = Some(Rescuer::start(start, &order)?);
        Ok(())
    }

    /// Removes it from the list and ends the process that would restore it: it was restored, never changed, or is left to
    /// the user.
    pub(super) fn forget(self: &Arc<Self>) {
        self.all.list().retain(|other| !Arc::ptr_eq(other, self));
        if let Some(rescuer) = lock(&self.rescuer).take() {
            rescuer.dismiss();
        }
    }

    /// Registers it: every exit restores it from now on.
    pub(super) fn register(self) -> Arc<Self> {
        let held = Arc::new(self);
        held.all.list().push(Arc::clone(&held));
        held
    }

    pub(super) fn connect(&self, answer: Duration) -> Result<Connection, ServerError> {
        Connection::open(&self.node, self.engine, &self.channel, answer)
    }

    fn state(&self) -> MutexGuard<'_, RestoreState> {
        lock(&self.state)
    }

    /// Sends statements that change it.
    fn order(
        &self,
        send: impl FnOnce(&mut RestoreState) -> Result<(), ServerError>,
    ) -> Result<(), MeasureError> {
        let mut state = self.state();
        match send(&mut state) {
            // Another thread has restored it, since the user stops the run.
            Err(_) if state.released => Err(MeasureError::Interrupted),
            sent => Ok(sent?),
        }
    }

    pub(super) fn stop(&self, connection: &mut Connection) -> Result<(), MeasureError> {
        self.order(|state| state.stop(connection, &self.statements))
    }

    pub(super) fn set_workers(
        &self,
        connection: &mut Connection,
        variable: &str,
        workers: u64,
    ) -> Result<(), MeasureError> {
        self.order(|state| state.send(connection, &set(variable, workers)))
    }

    pub(super) fn start(&self, connection: &mut Connection) -> Result<(), MeasureError> {
        self.order(|state| state.send(connection, &self.statements.start))
    }

    /// Makes one attempt. Two threads never do so at the same time: the `STOP` of one would follow the
    /// `START` of the other.
    fn attempt(&self, answer: Duration) -> Result<(), AttemptError> {
        let deadline = Instant::now() + answer;
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(10))
                }
                Err(TryLockError::WouldBlock) => {
                    let (name, address) = (&self.node.name, self.node.endpoint.address());
                    return Err(ServerError::precondition(
                        name,
                        &address,
                        OPERATION,
                        "an earlier statement has no answer yet",
                        "",
                    )
                    .into());
                }
            }
        };
        if state.released {
            return Ok(());
        }
        state.restore(&mut self.connect(answer)?, &self.statements)
    }

    /// Returns an error with the statements that restore the applier.
    fn failed(&self, error: ServerError) -> ServerError {
        let Self {
            node, statements, ..
        } = self;
        ServerError {
            operation: "cannot restore the applier, which may be stopped or have a changed number of workers".to_owned(),
            cause: format!("{}: {}", error.operation, error.cause),
            hint: format!("run on {}: {}", node.name, statements.manual_statements()),
            ..error
        }
    }

    fn note_failure(&self, error: &ServerError) {
        self.failed_first
            .get_or_init(|| (Instant::now(), error.to_string()));
    }

    /// Returns a warning if it was restored, but not by the first attempt.
    pub(super) fn restored_late(&self) -> Option<Warning> {
        let (since, cause) = self.failed_first.get()?;
        if !self.state().released {
            return None;
        }
        Some(Warning::new(
            WarningCode::Reconnected,
            format!(
                "{}: its applier could not be restored at first ({cause}); it was {:.1} s later",
                self.node.name,
                since.elapsed().as_secs_f64()
            ),
            self.node.hint("see the server's error log; reads from it were stale for longer than the backlog explains"),
        ))
    }

    /// Restores the applier and retries up to `limit`; a limit of zero means one attempt. `first` is an
    /// earlier error; `say` receives messages for the user.
    ///
    /// # Errors
    /// When it is not certain that the applier was restored; the hint has the statements that restore
    /// it.
    pub(super) fn release(
        self: &Arc<Self>,
        limit: Duration,
        first: Option<&dyn Display>,
        say: &dyn Fn(&str),
    ) -> Result<(), ServerError> {
        let (name, began, mut failed) = (&self.node.name, Instant::now(), 0);
        loop {
            let error = match self.attempt(attempt_timeout(began.elapsed(), limit)) {
                Ok(()) => {
                    self.forget();
                    if self.failed_first.get().is_some() {
                        let workers = self
                            .statements
                            .workers
                            .map(|(workers, variable)| format!(", with {variable} = {workers}"));
                        say(&format!(
                            "the applier of {name} was restored{}",
                            workers.unwrap_or_default()
                        ));
                    }
                    return Ok(());
                }
                Err(AttemptError::Broken(error)) => {
                    self.note_failure(&error);
                    return Err(self.failed(error));
                }
                Err(AttemptError::Again(error)) => error,
            };
            failed += 1;
            let known = self.failed_first.get().is_some();
            self.note_failure(&error);
            let elapsed = began.elapsed();
            let Some(pause) = pause(failed, elapsed, limit) else {
                if limit.is_zero() {
                    self.forget();
                }
                return Err(self.failed(error));
            };
            if !known {
                let first = first.map_or_else(String::new, |first| format!("{first}; "));
                let error = self.failed(error);
                say(&format!("{first}{error}; {}", error.hint));
            }
            let left = (limit.saturating_sub(elapsed)).as_secs_f64().ceil();
            say(&format!(
                "retrying to start the applier of {name}, {left:.0} s left"
            ));
            thread::sleep(pause);
        }
    }
}

/// All appliers that are not in their original state, for exits that have no `HeldApplier`; copies share them.
#[derive(Clone, Debug, Default)]
pub struct HeldAppliers(Arc<Held>);

#[derive(Default)]
struct Held {
    all: Mutex<Vec<Arc<HeldApplier>>>,
    rescuer: Option<StartRescuer>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldAppliers")
    }
}

impl HeldAppliers {
    /// Returns none, with the start of the process that restores one when this one is killed; without it, a killed run leaves the
    /// applier stopped.
    #[must_use]
    pub fn with_rescuer(start: StartRescuer) -> Self {
        Self(Arc::new(Held {
            all: Mutex::default(),
            rescuer: Some(start),
        }))
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<HeldApplier>>> {
        lock(&self.0.all)
    }

    /// Restores all when the process ends. Returns messages about those that could not be restored, with the statements that do it;
    /// nothing but the user acts on them from then on. `say` receives messages for the user.
    pub fn restore_all(&self, say: &dyn Fn(&str)) -> Vec<String> {
        let held = self.list().clone();
        let failed = self.restore_held(say);
        // A STOP of the other process could follow the user's START.
        held.iter().for_each(HeldApplier::forget);
        failed
    }

    /// Restores all while the process continues. Returns messages about those that could not be restored; their measurement still
    /// tries. `say` receives messages for the user.
    pub fn restore_held(&self, say: &dyn Fn(&str)) -> Vec<String> {
        // No lock is kept during the attempts: another thread may be about to add or remove one.
        let held = self.list().clone();
        let failed = held
            .iter()
            .filter_map(|held| held.release(HURRIED_TIMEOUT, None, say).err());
        failed
            .map(|error| format!("{error}; {}", error.hint))
            .collect()
    }

    /// Calls `suspend`, which suspends this process, unless an applier is not in its original state; none can leave it before
    /// `suspend` returns. Returns whether it was called.
    pub fn suspend_unless_held(&self, suspend: impl FnOnce()) -> bool {
        let held = self.list();
        let none = held.is_empty();
        if none {
            suspend();
        }
        none
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::target::Endpoint;

    use super::*;
    use crate::backlog::{ORDER_TIMEOUT, RELEASE_TIMEOUT};

    #[test]
    fn last_attempt_begins_at_the_limit() {
        for (limit, most) in [(RELEASE_TIMEOUT, 20), (HURRIED_TIMEOUT, 6)] {
            let (mut elapsed, mut failed, mut pauses) = (Duration::ZERO, 0, Vec::new());
            while let Some(next) = pause(failed + 1, elapsed, limit) {
                failed += 1;
                elapsed += next;
                pauses.push(next);
            }
            assert_eq!(elapsed, limit);
            assert!((4..=most).contains(&failed), "{pauses:?}");
            assert!(
                pauses[..pauses.len() - 1].is_sorted()
                    && pauses.iter().all(|pause| *pause <= PAUSES[1]),
                "{pauses:?}"
            );
        }
        assert_eq!(
            pause(1, ORDER_TIMEOUT * 2, ORDER_TIMEOUT),
            None,
            "an attempt that takes longer than the limit is the last"
        );
        assert_eq!(
            pause(u32::MAX, Duration::ZERO, RELEASE_TIMEOUT),
            Some(PAUSES[1])
        );
    }

    #[test]
    fn silent_server_leaves_time_for_second_attempt() {
        for limit in [RELEASE_TIMEOUT, HURRIED_TIMEOUT] {
            assert!(attempt_timeout(Duration::ZERO, limit) <= limit / 2);
            assert_eq!(attempt_timeout(limit * 2, limit), ATTEMPT_TIMEOUTS[0]);
        }
    }

    #[test]
    fn zero_time_allows_one_attempt() {
        // Port 1 of this machine: the connection is refused.
        let endpoint = Endpoint::parse("mysql://127.0.0.1:1").unwrap().0;
        let node = Node::new("replica1", endpoint, "", Duration::from_secs(1));
        let all = HeldAppliers::default();
        let held =
            HeldApplier::new(&node, Engine::MariaDb, &Channel::default(), None, &all).register();
        let said = std::cell::RefCell::new(Vec::new());
        assert!(!all.suspend_unless_held(|| panic!("it is not restored")));
        let error = held
            .release(Duration::ZERO, None, &|line| {
                said.borrow_mut().push(line.to_owned())
            })
            .unwrap_err();
        assert!(
            error.hint.starts_with("run on replica1: STOP SLAVE"),
            "{error:?}"
        );
        assert!(said.borrow().is_empty(), "{said:?}");
        assert_eq!(held.restored_late(), None);
        held.state().released = true;
        let late = held.restored_late().unwrap().message;
        assert!(
            late.starts_with("replica1: its applier could not be restored at first (replica1 ("),
            "{late}"
        );
        assert!(all.list().is_empty(), "it is not tried again at exit");
    }
}
