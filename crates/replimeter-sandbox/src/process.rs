//! Server processes that cannot outlive the tool.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{OnceLock, mpsc},
    thread,
};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use crate::user::SystemUser;

type Request = (Command, mpsc::Sender<io::Result<Child>>);

/// The thread that spawns every server. The death signal fires when the
/// *thread* that spawned a child ends, so this one lives as long as the tool.
fn spawner() -> &'static mpsc::Sender<Request> {
    static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, reply) in receiver {
                // When nobody waits for the answer any more the child must not stay.
                if let Err(mpsc::SendError(Ok(mut orphan))) = reply.send(command.spawn()) {
                    let _ = orphan.kill();
                    let _ = orphan.wait();
                }
            }
        });
        sender
    })
}

/// Spawns `command` as `user`, in a process group of its own (a Ctrl-C at the
/// terminal is ours to handle), with a death signal.
pub(crate) fn spawn(mut command: Command, user: &SystemUser) -> io::Result<Child> {
    let tool = getpid();
    command.process_group(0);
    if let Some((uid, gid)) = user.become_ids {
        command.uid(uid).gid(gid);
    }
    #[allow(
        unsafe_code,
        reason = "the death signal must be set between fork and exec; the closure makes three system calls and allocates nothing"
    )]
    // SAFETY: prctl, getppid and the comparison are async-signal-safe.
    unsafe {
        // std changes the user before it calls this: a change of user afterwards
        // would clear the death signal (prctl(2)).
        command.pre_exec(move || die_with(tool));
    }
    let (reply, answer) = mpsc::channel();
    let gone = || io::Error::other("the spawning thread is gone");
    spawner().send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

fn die_with(tool: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The tool may have died before the signal was set.
    if getppid() != Some(tool) {
        return Err(io::Error::from_raw_os_error(3));
    }
    Ok(())
}

/// Runs a short command to its end and returns its standard output; under the
/// same guard and as the same user as servers.
pub(crate) fn output(mut command: Command, user: &SystemUser) -> io::Result<Vec<u8>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(spawn(command, user)?.wait_with_output()?.stdout)
}

/// Redirects both outputs of `command` to the end of a log file.
pub(crate) fn log_to(command: &mut Command, log: &Path) -> io::Result<()> {
    let file = File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    Ok(())
}

/// The last lines of a log, or a word about why there are none.
pub(crate) fn log_tail(log: &Path) -> String {
    const MOST_BYTES: u64 = 16 * 1024;
    const MOST_LINES: usize = 15;
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MOST_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) => {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            lines[lines.len().saturating_sub(MOST_LINES)..].iter().map(|line| format!("  {line}\n")).collect()
        }
        Err(error) => format!("  (cannot be read: {error})\n"),
    }
}

/// Kills servers whose data directory lies below `folder`: those of a tool that
/// was killed, in the moment before the kernel ends them. Matched by what they
/// were started with, never by a remembered number, which may be another
/// process's by now, nor by folder alone, in which somebody may be reading a log.
pub(crate) fn kill_inside(folder: &Path) {
    let Ok(folder) = fs::canonicalize(folder) else { return };
    let Ok(processes) = procfs::process::all_processes() else { return };
    for process in processes.flatten() {
        if serves_below(&process, &folder)
            && let Some(pid) = Pid::from_raw(process.pid)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

fn serves_below(process: &procfs::process::Process, folder: &Path) -> bool {
    let below = |word: &String| word.strip_prefix("--datadir=").is_some_and(|data| Path::new(data).starts_with(folder));
    process.cmdline().is_ok_and(|words| words.iter().any(below))
}

/// How a process ended, for people.
pub(crate) fn describe(status: ExitStatus) -> String {
    status.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_short() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, (0..5000).map(|line| format!("line {line}\n")).collect::<String>()).unwrap();
        let tail = log_tail(&log);
        assert_eq!(tail.lines().count(), 15);
        assert!(tail.ends_with("line 4999\n"));
    }

    #[test]
    fn a_child_has_its_own_group_and_can_be_ended() {
        let user = SystemUser { name: String::new(), become_ids: None };
        let mut command = Command::new("sleep");
        command.arg("1000");
        let mut child = spawn(command, &user).unwrap();
        let stat = procfs::process::Process::new(i32::try_from(child.id()).unwrap()).unwrap().stat().unwrap();
        assert_eq!(stat.pgrp, stat.pid);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
