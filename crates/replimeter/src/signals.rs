//! Ctrl-C, SIGTERM and SIGHUP: the first asks for an orderly end; another, a
//! second later or more, ends at once, and neither leaves a server behind.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_run::{
    failure::{Failure, Kind},
    plain,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

/// How long after the first signal another one counts.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts appliers that a measurement has stopped and not started again; returns what could not be done, and what
/// to do instead.
fn release_appliers() -> Vec<String> {
    replimeter_instruments::backlog::restore_all(&|text| print(&[text.to_owned()]))
}

/// Does so at the end of every command, which may have gone on for a while since the measurement tried it.
pub(crate) fn release_at_exit() {
    print(&release_appliers());
}

fn print(lines: &[String]) {
    for line in lines {
        // Nothing can be done about a closed standard error.
        let _ = writeln!(std::io::stderr(), "{}", plain(line));
    }
}

/// Installs the handlers; the flag becomes true at the first signal.
pub(crate) fn install() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed =
        |error: std::io::Error| Failure::failed(format!("cannot handle signals: {error}"), "");
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let told = Arc::clone(&stop);
    thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            match first {
                None => {
                    first = Some(Instant::now());
                    told.store(true, Ordering::Relaxed);
                    let _ = writeln!(
                        std::io::stderr(),
                        "\nstopping and cleaning up; repeat to stop immediately"
                    );
                }
                // A closed terminal hangs up twice, supervisors send two signals at a
                // time: only a person who has waited means it.
                Some(first) if signal == SIGHUP || first.elapsed() < PATIENCE => {}
                Some(_) => {
                    // Users' servers before ours.
                    let stopped = release_appliers();
                    replimeter_sandbox::destroy_all();
                    let left = "stopped without cleaning up; on existing servers the table replimeter.lag_probe may remain until the next run removes it, and tables of a load's script may remain";
                    let _ = writeln!(std::io::stderr(), "{left}");
                    print(&stopped);
                    std::process::exit(Kind::Interrupted as i32);
                }
            }
        }
    });
    Ok(stop)
}
