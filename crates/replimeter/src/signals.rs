//! Ctrl-C, SIGTERM and SIGHUP: the first requests an orderly end; another, at least a second later, ends at
//! once. Neither leaves a server behind.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_run::cli_error::{CliError, FailureKind};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::print::say;

/// Time after the first signal from which another one counts.
const REPEAT_DELAY: Duration = Duration::from_secs(1);

/// Restarts appliers that a measurement stopped; returns what failed, with instructions.
fn release_appliers() -> Vec<String> {
    replimeter_instruments::backlog::restore_all(&|text| print(&[text.to_owned()]))
}

/// Restarts them at the end of every command, since the measurement's own attempts can be long ago.
pub(crate) fn release_at_exit() {
    print(&release_appliers());
}

fn print(lines: &[String]) {
    for line in lines {
        say(&format!("{line}\n"));
    }
}

/// Installs the handlers; the flag becomes true at the first signal.
pub(crate) fn install() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed =
        |error: std::io::Error| CliError::failed(format!("cannot handle signals: {error}"), "");
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let told = Arc::clone(&stop);
    let handle = move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            match first {
                None => {
                    first = Some(Instant::now());
                    told.store(true, Ordering::Relaxed);
                    say("\nstopping and cleaning up; repeat to stop immediately\n");
                    // The run waits for no server longer than this.
                    // Without the thread, it waits for each statement.
                    let _ =
                        thread::Builder::new().spawn(replimeter_engine::give_up_on_silent_servers);
                }
                // A closed terminal sends two hang-ups, and service managers send two signals at once: only
                // a later one is intended.
                Some(first) if signal == SIGHUP || first.elapsed() < REPEAT_DELAY => {}
                Some(_) => {
                    // Existing servers first, then sandboxes.
                    let stopped = release_appliers();
                    let left = "stopped without cleaning up; on existing servers the table replimeter.lag_probe may remain until the next run removes it, and tables of a load's script may remain";
                    say(&format!("{left}\n"));
                    print(&stopped);
                    // Without its servers the run itself can end first.
                    replimeter_sandbox::destroy_all();
                    std::process::exit(FailureKind::Interrupted as i32);
                }
            }
        }
    };
    thread::Builder::new().spawn(handle).map_err(failed)?;
    Ok(stop)
}
