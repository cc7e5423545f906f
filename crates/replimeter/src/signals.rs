//! Ctrl-C, SIGTERM and SIGHUP: the first asks for an orderly end, the second
//! ends at once, and neither leaves a server behind.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::failure::{Failure, Kind};

/// Installs the handlers; the flag becomes true at the first signal.
pub(crate) fn install() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |error: std::io::Error| Failure::failed(format!("cannot handle signals: {error}"), "");
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let told = Arc::clone(&stop);
    thread::spawn(move || {
        for _ in signals.forever() {
            if told.swap(true, Ordering::Relaxed) {
                replimeter_sandbox::destroy_all();
                std::process::exit(Kind::Interrupted as i32);
            }
            let _ = writeln!(std::io::stderr(), "\nending and cleaning up; once more to end at once");
        }
    });
    Ok(stop)
}
