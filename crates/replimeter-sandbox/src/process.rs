//! Server processes that cannot outlive the tool.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{OnceLock, mpsc},
    thread,
    time::Duration,
};

use replimeter_engine::namespace::Namespace;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};

use crate::user::SystemUser;

/// Timeout for a running server to answer, to replicate, or to shut down after its data directory
/// was created. Generous: disks and virtual machines can stall for a minute.
pub(crate) const READY: Duration = Duration::from_secs(180);

/// Returns a command for a program that Replimeter starts: a server, its bootstrap, a version check, a
/// supervisor, a reaper. It inherits nothing of Replimeter's environment but the folder for temporary
/// files: the rest may contain passwords (`MYSQL_PWD`, `REPLIMETER_PASSWORD`), which would stay in
/// every program that a server starts. The caller sets other variables by name, as
/// [`crate::Install::environment`], [`MARK`] and [`TOKEN`].
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("TMPDIR", std::env::temp_dir());
    command
}

/// Returns a command for a program of the user (`sandbox exec`): it keeps the user's environment,
/// as when it is called from a shell.
pub(crate) fn users_command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

type Request = (Command, Option<Namespace>, mpsc::Sender<io::Result<Child>>);

/// Returns the thread that spawns every server. The death signal is sent when the *thread* that
/// spawned a child ends, so this one lives as long as the tool.
fn spawner() -> &'static mpsc::Sender<Request> {
    static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, namespace, reply) in receiver {
                // When the caller no longer waits for the answer, the child must not stay.
                if let Err(mpsc::SendError(Ok(mut orphan))) =
                    reply.send(spawn_inside(&mut command, namespace.as_ref()))
                {
                    let _ = orphan.kill();
                    let _ = orphan.wait();
                }
            }
        });
        sender
    })
}

/// Spawns in a network namespace: the child inherits the namespace of the thread that spawns it.
/// (Afterwards, as another user, it could not enter it.)
fn spawn_inside(command: &mut Command, namespace: Option<&Namespace>) -> io::Result<Child> {
    let Some(namespace) = namespace else {
        return command.spawn();
    };
    let own = Namespace::open(Path::new("/proc/thread-self/ns/net"))?;
    namespace.enter()?;
    let child = command.spawn();
    match (own.enter(), child) {
        (Ok(()), child) => child,
        (Err(error), child) => {
            // A server without an owner.
            if let Ok(mut child) = child {
                let _ = child.kill();
                let _ = child.wait();
            }
            Err(error)
        }
    }
}

/// Spawns `command` as `user`, in a separate process group (the tool handles Ctrl-C at the
/// terminal), with a death signal.
pub(crate) fn spawn(
    mut command: Command,
    user: &SystemUser,
    namespace: Option<&Namespace>,
) -> io::Result<Child> {
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
        // std changes the user before it calls this: a later change of user would clear the death
        // signal (prctl(2)).
        command.pre_exec(move || die_with(tool));
    }
    let (reply, answer) = mpsc::channel();
    let gone = || io::Error::other("the spawning thread has ended");
    spawner()
        .send((command, namespace.cloned(), reply))
        .map_err(|_| gone())?;
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

/// Redirects both outputs of `command` to the end of a log file.
pub(crate) fn log_to(command: &mut Command, log: &Path) -> io::Result<()> {
    let file = File::options().create(true).append(true).open(log)?;
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    Ok(())
}

/// Returns the end of a file, at most this number of bytes.
pub(crate) fn tail(file: &mut File, most: u64) -> io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the last lines of a log, or why there are none.
pub(crate) fn log_tail(log: &Path) -> String {
    const MAX_BYTES: u64 = 16 * 1024;
    const MAX_LINES: usize = 15;
    match File::open(log).and_then(|mut file| tail(&mut file, MAX_BYTES)) {
        Ok(text) => {
            let lines: Vec<&str> = text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .collect();
            lines[lines.len().saturating_sub(MAX_LINES)..]
                .iter()
                .map(|line| format!("  {line}\n"))
                .collect()
        }
        Err(error) => format!("  (cannot be read: {error})\n"),
    }
}

/// Marks a server and every program that it starts as belonging to a sandbox, by the sandbox's
/// folder.
pub(crate) const MARK: &str = "REPLIMETER_SANDBOX_FOLDER";
/// Marks them by a token that no other sandbox has, not even the next in the same folder.
pub(crate) const TOKEN: &str = "REPLIMETER_SANDBOX_TOKEN";

/// Kills the processes of the sandbox in `folder`: servers of a killed tool, just before the kernel
/// ends them, and programs that they started, which nothing else ends. Returns their number.
/// Matched by command line and environment, never by a stored process id, which may now be another
/// process's, nor by folder alone, in which a user may be reading a log.
pub(crate) fn kill_in_folder(folder: &Path) -> usize {
    kill_matching(|process| {
        serves_below(process, folder) || is_marked(process, MARK, folder.as_os_str())
    })
}

/// Kills the processes with a sandbox's token. Returns their number.
pub(crate) fn kill_by_token(token: &str) -> usize {
    kill_matching(|process| is_marked(process, TOKEN, OsStr::new(token)))
}

fn kill_matching(matches: impl Fn(&procfs::process::Process) -> bool) -> usize {
    let Ok(processes) = procfs::process::all_processes() else {
        return 0;
    };
    let mut found = 0;
    for process in processes.flatten() {
        let Some(pid) = Pid::from_raw(process.pid).filter(|pid| *pid != getpid()) else {
            continue;
        };
        if !matches(&process) {
            continue;
        }
        // Opened first and checked again: the id may pass to another process in the meantime.
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        if procfs::process::Process::new(process.pid).is_ok_and(|again| matches(&again)) {
            // A zombie does not count.
            found += usize::from(process.stat().is_ok_and(|stat| stat.state != 'Z'));
            let _ = pidfd_send_signal(&held, Signal::KILL);
        }
    }
    found
}

fn serves_below(process: &procfs::process::Process, folder: &Path) -> bool {
    let below = |word: &String| {
        word.strip_prefix("--datadir=")
            .is_some_and(|data| Path::new(data).starts_with(folder))
    };
    process.cmdline().is_ok_and(|words| words.iter().any(below))
}

fn is_marked(process: &procfs::process::Process, name: &str, mark: &OsStr) -> bool {
    process.environ().is_ok_and(|environment| {
        environment
            .get(OsStr::new(name))
            .is_some_and(|value| value == mark)
    })
}

/// Returns how a process ended, as text.
pub(crate) fn describe(status: ExitStatus) -> String {
    status.to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn log_tail_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(
            &log,
            (0..5000)
                .map(|line| format!("line {line}\n"))
                .collect::<String>(),
        )
        .unwrap();
        let tail = log_tail(&log);
        assert_eq!(tail.lines().count(), 15);
        assert!(tail.ends_with("line 4999\n"));
    }

    #[test]
    fn programs_inherit_only_the_temporary_folder() {
        let output = command("/usr/bin/env").output().unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            format!("TMPDIR={}\n", std::env::temp_dir().display())
        );
    }

    #[test]
    fn child_has_its_own_group_and_can_be_ended() {
        let user = SystemUser {
            name: String::new(),
            become_ids: None,
        };
        let mut command = command("sleep");
        command.arg("1000");
        let mut child = spawn(command, &user, None).unwrap();
        let stat = procfs::process::Process::new(i32::try_from(child.id()).unwrap())
            .unwrap()
            .stat()
            .unwrap();
        assert_eq!(stat.pgrp, stat.pid);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
