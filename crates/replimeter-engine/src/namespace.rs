//! Network namespaces: a server may have its own, which only the server and Replimeter's links
//! enter.

use std::{fs::File, io, path::Path, sync::Arc, thread};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, open while this value or a copy of it exists.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
}

impl Namespace {
    /// Returns the namespace of an open file of `/proc/…/ns/net`.
    #[must_use]
    pub fn of(file: File) -> Self {
        Self {
            file: Arc::new(file),
        }
    }

    /// Returns the namespace at a path such as `/proc/1/ns/net`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self::of)
    }

    /// Returns the open file, for `/proc/…/fd`.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Moves the calling thread into it.
    ///
    /// # Errors
    /// When the system does not permit it.
    pub fn enter(&self) -> io::Result<()> {
        use std::os::fd::AsFd;
        Ok(move_into_link_name_space(
            self.file.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }

    /// Runs `work` in the namespace, on a separate thread; sockets created there stay there.
    ///
    /// # Errors
    /// When the system does not permit it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| self.enter().map(|()| work()));
            inside.join().unwrap_or_else(|_| {
                Err(io::Error::other(
                    "internal error: a thread ended unexpectedly",
                ))
            })
        })
    }
}
