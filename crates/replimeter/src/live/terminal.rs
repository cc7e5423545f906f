//! The terminal of this process while it has a screen. A process has one, and signals, messages and panics must reach it.
//!
//! Nothing here waits for a terminal that takes no bytes: it is opened again, so that other users of it still wait.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::{Errno, read, write},
    process::getpgrp,
    termios::{
        LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
        tcsetattr,
    },
};

/// The other page of the terminal, without a cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// Messages that are kept.
const MESSAGES: usize = 100;
/// How long the end waits for a terminal that takes no bytes, and how often it asks.
const PATIENCE: (Duration, u32) = (Duration::from_millis(20), 10);
/// Where a terminal does not have a size, and the largest that is drawn.
const SIZE: (u16, u16) = (80, 24);
const LARGEST: u16 = 1_000;

/// The terminal of this process.
pub(crate) static TERMINAL: LiveTerminal = LiveTerminal(Mutex::new(None));

/// The terminal of a process, if a screen is on it.
pub(crate) struct LiveTerminal(Mutex<Option<Tty>>);

struct Tty {
    file: Arc<OwnedFd>,
    /// Its settings before the screen; known until it is left.
    before: Option<Termios>,
    is_entered: bool,
    /// Whether the process is about to be suspended.
    is_paused: bool,
    messages: VecDeque<String>,
    /// How many of them the screen has.
    taken: usize,
}

/// Whether the screen can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// It is there; empty since the last time, or not.
    Shown { is_empty: bool },
    /// The terminal has another use: the process is suspended or in the background.
    Hidden,
    /// The screen has ended.
    Gone,
}

/// Opens the terminal if results and messages go to it. Fails for other files, and for terminals that are not this process's.
#[allow(clippy::disallowed_methods, reason = "prints nothing")]
pub(super) fn open_terminal() -> io::Result<OwnedFd> {
    tcgetpgrp(io::stdout())?;
    tcgetpgrp(io::stderr())?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open("/dev/tty", flags, Mode::empty())?)
}

/// Waits until the terminal has keys or, if there are bytes to write, takes some.
pub(super) fn wait(file: &OwnedFd, to_write: bool, limit: Duration) {
    let mut events = PollFlags::IN;
    events.set(PollFlags::OUT, to_write);
    wait_for(file, events, limit);
}

/// Waits for less than a second. A signal ends the wait too.
fn wait_for(file: &OwnedFd, events: PollFlags, limit: Duration) {
    let limit = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let _ = poll(&mut [PollFd::new(file, events)], Some(&limit));
}

/// Returns the bytes of the keys that were pressed; empty if there are none.
///
/// # Errors
/// If the terminal is gone.
pub(super) fn read_keys(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = [0; 256];
    match read(file, &mut bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => Ok(bytes[..count].to_vec()),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the width and height of the terminal.
pub(super) fn size(file: &OwnedFd) -> (u16, u16) {
    match tcgetwinsize(file) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (size.ws_col.min(LARGEST), size.ws_row.min(LARGEST))
        }
        _ => SIZE,
    }
}

impl LiveTerminal {
    fn lock(&self) -> MutexGuard<'_, Option<Tty>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a screen, which [`page`](Self::page) then enters.
    pub(super) fn begin(&self, file: &Arc<OwnedFd>) {
        *self.lock() = Some(Tty {
            file: Arc::clone(file),
            before: None,
            is_entered: false,
            is_paused: false,
            messages: VecDeque::new(),
            taken: 0,
        });
    }

    /// Enters the screen's page if the process is in the foreground: changing the terminal would suspend it in the background.
    pub(super) fn page(&self) -> Page {
        let mut guard = self.lock();
        let Some(tty) = guard.as_mut() else {
            return Page::Gone;
        };
        if tty.is_paused || !tty.is_in_foreground() {
            return Page::Hidden;
        }
        let is_empty = !tty.is_entered;
        if is_empty {
            tty.enter();
        }
        Page::Shown { is_empty }
    }

    /// Writes what the terminal takes at once, and removes that; nothing if it does not show the screen.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        if let Some(tty) = self.lock().as_ref().filter(|tty| tty.is_entered) {
            tty.write(bytes);
        }
    }

    /// Adds a message to the screen; returns whether there is one.
    pub(crate) fn add_message(&self, text: &str) -> bool {
        let mut guard = self.lock();
        let Some(tty) = guard.as_mut() else {
            return false;
        };
        tty.messages.push_back(text.to_owned());
        if tty.messages.len() > MESSAGES {
            tty.messages.pop_front();
            tty.taken = tty.taken.saturating_sub(1);
        }
        true
    }

    /// Returns the messages since the last time.
    pub(super) fn new_messages(&self) -> Vec<String> {
        let mut guard = self.lock();
        guard.as_mut().map_or_else(Vec::new, |tty| {
            let from = std::mem::replace(&mut tty.taken, tty.messages.len());
            tty.messages.range(from..).cloned().collect()
        })
    }

    /// Leaves the screen until [`resume`](Self::resume), before the process is suspended.
    pub(crate) fn pause(&self) {
        if let Some(tty) = self.lock().as_mut() {
            tty.is_paused = true;
            tty.leave();
        }
    }

    /// Has the screen entered again after the process was suspended, also if that was not announced.
    pub(crate) fn resume(&self) {
        if let Some(tty) = self.lock().as_mut() {
            tty.is_paused = false;
            tty.is_entered = false;
        }
    }

    /// Ends the screen; returns its messages, which were not printed.
    pub(crate) fn leave(&self) -> Vec<String> {
        let Some(mut tty) = self.lock().take() else {
            return Vec::new();
        };
        tty.leave();
        tty.messages.into()
    }
}

impl Tty {
    fn is_in_foreground(&self) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|group| group == getpgrp())
    }

    /// Keys arrive at once and are not shown; those of signals still send them.
    fn enter(&mut self) {
        let Ok(now) = tcgetattr(&self.file) else {
            return;
        };
        let mut settings = self.before.get_or_insert(now).clone();
        settings
            .local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        settings.special_codes[SpecialCodeIndex::VMIN] = 1;
        settings.special_codes[SpecialCodeIndex::VTIME] = 0;
        let _ = tcsetattr(&self.file, OptionalActions::Now, &settings);
        self.write_soon(ENTER);
        self.is_entered = true;
    }

    /// Restores the terminal, unless a shell has done so and uses it.
    fn leave(&mut self) {
        self.is_entered = false;
        if let Some(before) = self.before.take().filter(|_| self.is_in_foreground()) {
            self.write_soon(LEAVE);
            let _ = tcsetattr(&self.file, OptionalActions::Now, &before);
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        while let Ok(count @ 1..) = write(&self.file, bytes) {
            bytes.drain(..count);
        }
    }

    /// Writes bytes, and waits a short time for the terminal to take them.
    fn write_soon(&self, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        for _ in 0..PATIENCE.1 {
            self.write(&mut bytes);
            if bytes.is_empty() {
                return;
            }
            wait_for(&self.file, PollFlags::OUT, PATIENCE.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn terminal_that_takes_no_bytes_is_not_waited_for() {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let tty = Tty {
            file: Arc::new(near.into()),
            before: None,
            is_entered: true,
            is_paused: false,
            messages: VecDeque::new(),
            taken: 0,
        };
        let all = 10_000_000;
        let mut bytes = vec![b'x'; all];
        tty.write(&mut bytes);
        assert!(!bytes.is_empty() && bytes.len() < all);
        tty.write_soon(&bytes);
        drop(far);
    }

    #[test]
    fn messages_belong_to_the_screen_while_there_is_one() {
        let terminal = LiveTerminal(Mutex::new(None));
        assert!(!terminal.add_message("before"));
        let (file, _other) = UnixStream::pair().unwrap();
        terminal.begin(&Arc::new(file.into()));
        for number in 1..=MESSAGES + 2 {
            assert!(terminal.add_message(&number.to_string()));
            assert_eq!(terminal.new_messages(), [number.to_string()]);
        }
        // It is no terminal of this process.
        assert_eq!(terminal.page(), Page::Hidden);
        assert!(terminal.add_message("last"));
        let all = terminal.leave();
        assert_eq!((all.len(), all[0].as_str()), (MESSAGES, "4"));
        assert_eq!(terminal.page(), Page::Gone);
    }
}
