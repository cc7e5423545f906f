//! The disk that holds a data set, if it is on this machine.

use std::path::PathBuf;

use replimeter_engine::{Node, ServerError, Session};

use super::FILLING;

/// Free space below this limit counts as none, in bytes: servers reserve some for themselves and wait
/// for more.
const NONE_LEFT: u64 = 16 << 20;

/// The data directory of a local server.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Returns the disk of a server on this machine; `None` for other servers and for unreadable
    /// folders.
    pub(super) fn of(node: &Node, session: &mut Session) -> Option<Self> {
        if !node.endpoint.is_loopback() {
            return None;
        }
        let folder = PathBuf::from(session.value(FILLING, "SELECT @@datadir").ok()??);
        // Behind a tunnel, or in a container, the folder is on another machine.
        let disk = Self { folder };
        disk.folder.join("ibdata1").exists().then_some(disk)
    }

    /// Returns the bytes that the server can still write.
    fn free(&self) -> Option<u64> {
        let file_system = rustix::fs::statvfs(&self.folder).ok()?;
        Some(file_system.f_bavail.saturating_mul(file_system.f_frsize))
    }

    /// Refuses a data set that does not fit.
    ///
    /// # Errors
    /// When `bytes` exceed the free space.
    pub(super) fn check_room(&self, session: &Session, bytes: u64) -> Result<(), ServerError> {
        match self.free() {
            Some(free) if free < bytes => Err(session.precondition(
                FILLING,
                format!(
                    "its disk has {} MB free ({}), but the data set needs {} MB, excluding logs and replicas",
                    free / 1_000_000,
                    self.folder.display(),
                    bytes / 1_000_000
                ),
                "use a smaller --data-size, or free disk space",
            )),
            _ => Ok(()),
        }
    }

    /// Returns an error when the disk is full.
    pub(super) fn full_error(&self, session: &Session) -> Option<ServerError> {
        let free = self.free().filter(|free| *free < NONE_LEFT)?;
        Some(session.precondition(
            FILLING,
            format!(
                "its disk is full: {:.1} MB free ({}), and the server waits for space instead of returning an error",
                free as f64 / 1e6,
                self.folder.display()
            ),
            "free disk space, or use a smaller --data-size",
        ))
    }
}
