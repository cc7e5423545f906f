//! Work that cannot be interrupted, on threads that are abandoned when it takes too long.

use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// Interval between checks whether the result is still wanted.
const GIVEN_UP_INTERVAL: Duration = Duration::from_millis(50);

/// Does the work on a thread of its own. Returns `None` if it takes longer than `limit`, or when `given_up` returns true; the thread is
/// abandoned then.
///
/// # Errors
/// When the system refuses a thread.
pub(crate) fn attempt<T: Send + 'static>(
    name: &str,
    limit: Duration,
    given_up: &dyn Fn() -> bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    if given_up() {
        return Ok(None);
    }
    let (send, receive) = mpsc::sync_channel(1);
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _ = send.send(work());
        })
        .map_err(|error| {
            // Its own kind would be that of a server that does not answer.
            let cause = format!("cannot start a thread: {error}");
            io::Error::new(io::ErrorKind::OutOfMemory, cause)
        })?;
    let deadline = Instant::now() + limit;
    loop {
        match receive.recv_timeout(GIVEN_UP_INTERVAL) {
            Ok(done) => return Ok(Some(done)),
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline && !given_up() => {}
            Err(_) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::from_secs(3600);

    #[test]
    fn work_that_takes_too_long_is_abandoned() {
        let stuck = || thread::sleep(NEVER);
        let begun = Instant::now();
        let given_up = || begun.elapsed() > GIVEN_UP_INTERVAL * 3;
        assert_eq!(attempt("test", NEVER, &given_up, stuck).unwrap(), None);
        assert_eq!(
            attempt("test", GIVEN_UP_INTERVAL, &|| false, stuck).unwrap(),
            None
        );
        assert_eq!(attempt("test", NEVER, &|| true, || 7).unwrap(), None);
        assert_eq!(attempt("test", NEVER, &|| false, || 7).unwrap(), Some(7));
    }
}
