//! Ctrl-C, SIGTERM and SIGHUP: the first requests an orderly end; another, at least a second later, ends at
//! once. Neither leaves a server behind. Without a terminal, a run can take SIGHUP over, to read its servers again. Ctrl-Z suspends, but never while an applier is stopped.

use std::{
    fs,
    io::{self, IsTerminal},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use replimeter_run::cli_error::{CliError, FailureKind};
use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP},
    iterator::Signals,
    low_level::emulate_default_handler,
};

use crate::{active::Active, live::terminal::TERMINAL, print::say};

/// Time after the first signal from which another one counts.
const REPEAT_DELAY: Duration = Duration::from_secs(1);

/// Restarts appliers that a measurement stopped; returns what failed, with instructions.
fn release_appliers(active: &Active) -> Vec<String> {
    let held = &active.held_appliers;
    held.restore_all(&|text| print(&[text.to_owned()]))
}

/// Restarts them at the end of every command, since the measurement's own attempts can be long ago.
pub(crate) fn release_at_exit(active: &Active) {
    print(&release_appliers(active));
}

fn print(lines: &[String]) {
    for line in lines {
        say(&format!("{line}\n"));
    }
}

/// Has servers that do not answer end the waits of the run.
fn give_up_on_silent_servers(active: &Active) {
    let connections = active.connections.clone();
    // Without the thread, the run waits for each statement.
    let _ = thread::Builder::new().spawn(move || connections.give_up_on_silent_servers());
}

/// Returns whether a shell can continue this process: it gives each job a group of its own. Without one, the default is not to be
/// suspended. The session's number is read here, because it is 0 for a session that began outside of a container.
fn has_job_control() -> bool {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mut fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    // After the program's name: state, parent, group, session (proc(5)).
    let (group, session) = (fields.nth(2), fields.next());
    group != session
}

/// Suspends this process. A run that has stopped appliers starts them first, and ends when the process continues; if they cannot
/// be started, it ends without being suspended.
fn suspend(active: &Active) {
    if !has_job_control() {
        return;
    }
    // This stop cannot be handled; it fails for no process.
    let suspend = || {
        TERMINAL.pause();
        drop(emulate_default_handler(SIGTSTP));
    };
    let held = &active.held_appliers;
    if held.suspend_unless_held(suspend) {
        return;
    }
    active.stop.store(true, Ordering::Relaxed);
    say(
        "\nstarting the applier before this process is suspended; the run ends when it continues\n",
    );
    print(&held.restore_held(&|text| print(&[text.to_owned()])));
    if !held.suspend_unless_held(suspend) {
        say("not suspended: an applier may be stopped; the run ends\n");
    }
    give_up_on_silent_servers(active);
}

/// Returns whether this process reads from a terminal or writes to one, which hangs up when it is closed.
#[allow(clippy::disallowed_methods, reason = "nothing is printed")]
fn has_terminal() -> bool {
    io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal()
}

/// Installs the handlers; the first signal sets the stop.
pub(crate) fn install(active: &Active) -> Result<(), CliError> {
    let failed =
        |error: std::io::Error| CliError::failed(format!("cannot handle signals: {error}"), "");
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT]).map_err(failed)?;
    let active = active.clone();
    // Later, a closed one would not be recognized.
    let has_terminal = has_terminal();
    let handle = move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            match first {
                _ if signal == SIGTSTP => suspend(&active),
                _ if signal == SIGCONT => TERMINAL.resume(),
                None if signal == SIGHUP && !has_terminal && active.hang_ups.arrived() => {}
                None => {
                    first = Some(Instant::now());
                    active.stop.store(true, Ordering::Relaxed);
                    say("\nstopping and cleaning up; repeat to stop immediately\n");
                    // The run waits for no server longer than this.
                    give_up_on_silent_servers(&active);
                }
                // A closed terminal sends two hang-ups, and service managers send two signals at once: only
                // a later one is intended.
                Some(first) if signal == SIGHUP || first.elapsed() < REPEAT_DELAY => {}
                Some(_) => {
                    TERMINAL.leave().iter().for_each(|message| say(message));
                    // Existing servers first, then sandboxes.
                    let stopped = release_appliers(&active);
                    let left = "stopped without cleaning up; on existing servers a table replimeter.probe_… may remain until the next run removes it, and tables of a load's script may remain";
                    say(&format!("{left}\n"));
                    print(&stopped);
                    // Without its servers the run itself can end first.
                    active.sandboxes.destroy_all();
                    std::process::exit(FailureKind::Interrupted as i32);
                }
            }
        }
    };
    thread::Builder::new().spawn(handle).map_err(failed)?;
    Ok(())
}
