//! Waits until a server has earlier writes, which are not to be measured.

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use replimeter_engine::{
    ErrorClass, ErrorKind, Node, ServerError, Session,
    dialect::{channels, sync_reads::conflict},
};

use replimeter_model::engine::Engine;

use crate::{MeasureError, pacing::poll};

/// Connects and waits until `there` returns true. `late` is the missing object and a hint. Also returns how long after `began` it
/// was there, if it was not there at once.
///
/// # Errors
/// When it does not arrive within `patience`, or the user interrupts.
pub(crate) fn arrival(
    node: &Node,
    engine: Engine,
    patience: Duration,
    stop: &AtomicBool,
    [what, hint]: [&str; 2],
    began: Instant,
    there: impl Fn(&mut Session) -> Result<bool, ServerError>,
) -> Result<(Session, Option<Duration>), MeasureError> {
    let mut session = Session::open(node)?;
    let mut reads = 0u64;
    let arrived = poll(patience, Duration::from_millis(1), stop, || {
        reads += 1;
        match there(&mut session) {
            Ok(there) => Ok(there.then_some(())),
            Err(ServerError {
                kind: ErrorKind::Statement(ErrorClass::NoTable | ErrorClass::NoSchema),
                ..
            }) => Ok(None),
            // A member of a cluster that is just creating the table.
            Err(error) if conflict(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })?;
    if arrived.is_none() {
        // The state is of use only; without it the cause remains true.
        let states = channels(engine, &mut session).unwrap_or_default();
        let states = states
            .iter()
            .map(|channel| format!("; {}", channel.state()));
        let cause = format!(
            "{what} did not arrive within {} s{}",
            patience.as_secs_f64(),
            states.collect::<String>()
        );
        return Err(session
            .precondition("is behind or does not replicate", cause, hint)
            .into());
    }
    Ok((session, (reads > 1).then(|| began.elapsed())))
}
