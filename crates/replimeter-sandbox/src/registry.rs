//! All running sandboxes of this process, so that all can be ended at once.

use std::{
    path::PathBuf,
    process::{Child, ExitStatus},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use replimeter_engine::sync::lock;

use crate::{cpus::ControlGroup, error::SandboxError, home, reaper::Reaper};

/// The processes of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    children: Vec<Child>,
    closed: bool,
}

impl Servers {
    /// Takes ownership of a process and returns its index here.
    pub(crate) fn adopt(&self, mut child: Child) -> usize {
        let mut state = lock(&self.state);
        if state.closed {
            let _ = child.kill();
        }
        state.children.push(child);
        state.children.len() - 1
    }

    /// Returns how the process ended, if it did.
    pub(crate) fn ended(&self, number: usize) -> Option<ExitStatus> {
        lock(&self.state)
            .children
            .get_mut(number)?
            .try_wait()
            .ok()
            .flatten()
    }

    /// Returns its process id.
    pub(crate) fn pid(&self, number: usize) -> Option<u32> {
        lock(&self.state).children.get(number).map(Child::id)
    }

    /// Ends one process and waits for it.
    pub(crate) fn kill(&self, number: usize) {
        if let Some(child) = lock(&self.state).children.get_mut(number) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills one process without waiting for it.
    pub(crate) fn kill_server(&self, number: usize) {
        if let Some(child) = lock(&self.state).children.get_mut(number) {
            let _ = child.kill();
        }
    }

    /// Asks a process to shut down cleanly.
    pub(crate) fn request_shutdown(&self, number: usize) {
        if let Some(child) = lock(&self.state).children.get_mut(number)
            // Not reaped yet, so the id is still this child's.
            && matches!(child.try_wait(), Ok(None))
            && let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }

    /// Ends all processes; more may be started afterwards.
    pub(crate) fn kill_started(&self) {
        let mut state = lock(&self.state);
        for child in &mut state.children {
            let _ = child.kill();
        }
        for child in &mut state.children {
            let _ = child.wait();
        }
    }

    fn kill_all(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        for child in &mut state.children {
            let _ = child.kill();
        }
        for child in &mut state.children {
            let _ = child.wait();
        }
        state.children.clear();
    }
}

/// A sandbox's processes and folder.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) servers: Servers,
    pub(crate) folder: PathBuf,
    pub(crate) reaper: Reaper,
    /// The control groups that limit its servers.
    pub(crate) groups: Mutex<Vec<ControlGroup>>,
    /// Known only to its processes and its reaper.
    pub(crate) token: String,
    /// Locked while it is removed, so that another thread that ends it, too, does not exit before.
    gone: Mutex<bool>,
    /// The sandboxes among which it is registered.
    running: RunningSandboxes,
}

/// The running sandboxes of a program, so that all can be ended at once; copies share them.
#[derive(Clone, Debug, Default)]
pub struct RunningSandboxes(Arc<Mutex<Vec<Arc<Entry>>>>);

impl RunningSandboxes {
    /// Ends and removes all, for a second Ctrl-C, and waits for it for at most 10 s: a hung disk can block a removal. The next start
    /// removes what could not be removed; servers end with this process.
    pub fn destroy_all(&self) {
        let entries = lock(&self.0).clone();
        destroy(entries, LIMIT);
    }

    /// Registers a sandbox before any of its processes is started.
    pub(crate) fn register(&self, folder: PathBuf, token: String) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            servers: Servers::default(),
            folder,
            reaper: Reaper::default(),
            groups: Mutex::default(),
            token,
            gone: Mutex::default(),
            running: self.clone(),
        });
        lock(&self.0).push(Arc::clone(&entry));
        entry
    }
}

impl Entry {
    /// Ends its processes immediately (the data is discarded, so a clean shutdown has no benefit),
    /// and removes its folder.
    pub(crate) fn destroy(self: &Arc<Self>) -> Result<(), SandboxError> {
        // Once: afterwards the folder may belong to another sandbox of the same name.
        let mut gone = lock(&self.gone);
        if std::mem::replace(&mut *gone, true) {
            return Ok(());
        }
        self.servers.kill_all();
        // Control groups can be removed only when empty.
        lock(&self.groups).clear();
        let removed = home::remove_sandbox(&self.folder);
        self.reaper.end();
        // Last: until then `destroy_all` must find it.
        lock(&self.running.0).retain(|entry| !Arc::ptr_eq(entry, self));
        removed
    }
}

/// How long a second Ctrl-C waits for them.
const LIMIT: Duration = Duration::from_secs(10);

fn destroy(entries: Vec<Arc<Entry>>, limit: Duration) {
    let (send, ended) = mpsc::channel::<()>();
    for entry in entries {
        // Each thread drops its end of the channel.
        let (same, send) = (Arc::clone(&entry), send.clone());
        let started = thread::Builder::new().spawn(move || {
            let _send = send;
            let _ = same.destroy();
        });
        if started.is_err() {
            let _ = entry.destroy();
        }
    }
    drop(send);
    let _ = ended.recv_timeout(limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_that_hangs_delays_neither_the_end_nor_others() {
        let folder = tempfile::tempdir().unwrap();
        let running = RunningSandboxes::default();
        let entry = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            running.register(path, name.to_owned())
        };
        let (hanging, other) = (entry("hanging"), entry("other"));
        // Another thread that removes it.
        let held = lock(&hanging.gone);
        destroy(
            vec![Arc::clone(&hanging), Arc::clone(&other)],
            Duration::from_millis(300),
        );
        assert!(!*held && *lock(&other.gone));
        drop(held);
        running.destroy_all();
        assert!(lock(&running.0).is_empty());
    }
}
