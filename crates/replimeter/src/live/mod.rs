//! The servers of a running measurement as they are: a screen on a terminal, or a line for each poll in a pipe.
//!
//! The observer keeps the newest view for a thread that reads keys and draws, so the run never waits for the terminal. `state` is what
//! the screen shows and keys change, `draw` draws it, `encode` makes bytes of that, and `terminal` is the terminal of the process.

mod draw;
mod encode;
mod keys;
mod state;
pub(crate) mod terminal;
#[cfg(test)]
mod tests;

use std::{
    mem,
    os::fd::OwnedFd,
    panic,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use ratatui_core::{layout::Size, terminal::Terminal};
use replimeter_model::warning::{Warning, WarningCode};
use replimeter_render::live::{LiveChange, LiveView};
use replimeter_run::{Event, Flow, Observer, OutputReader, Stage, cli_error::CliError};
use rustix::process::{Signal, getpid, kill_process};

use self::{
    encode::EncodedScreen,
    keys::KeyDecoder,
    state::{ScreenState, TimedView},
    terminal::{Page, TERMINAL},
};
use crate::{
    environment,
    print::{print_results, say},
    progress::StatusLine,
};

/// The screen is drawn at most this often, besides after keys.
const DRAWING: Duration = Duration::from_millis(250);

/// Leaves the screen before the message of a panic, which would be lost with it.
pub(crate) fn leave_on_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        TERMINAL.leave();
        print(panic);
    }));
}

/// Shows the servers while there are views of them, and the progress before and after.
pub(crate) struct LiveServers {
    progress: StatusLine,
    /// The terminal, if it can have a screen.
    terminal: Option<Arc<OwnedFd>>,
    screen: Option<LiveScreen>,
    /// Whether there was a view.
    is_shown: bool,
    /// The newest change that was printed where there is no screen.
    changes: Option<LiveChange>,
}

impl LiveServers {
    pub(crate) fn new() -> Self {
        let terminal = environment::terminal_draws().then(terminal::open_terminal);
        Self {
            progress: StatusLine::new(),
            terminal: terminal.and_then(Result::ok).map(Arc::new),
            screen: None,
            is_shown: false,
            changes: None,
        }
    }

    fn show(&mut self, view: &LiveView) -> Result<Flow, CliError> {
        if !mem::replace(&mut self.is_shown, true) {
            self.progress.clear();
        }
        let Some(terminal) = &self.terminal else {
            // The newest come first.
            let newest = self.changes.take();
            let new = view
                .changes
                .iter()
                .take_while(|one| Some(*one) != newest.as_ref());
            for change in new.collect::<Vec<_>>().into_iter().rev() {
                say(&format!("{} {}\n", change.at, draw::inert(&change.text)));
            }
            self.changes = view.changes.first().cloned();
            let line = draw::inert(&view.line) + "\n";
            return Ok(match print_results(&line)? {
                OutputReader::There => Flow::Continue,
                OutputReader::Gone => Flow::Finish(Warning::new(
                    WarningCode::Interrupted,
                    "the reader of standard output closed the pipe; the run stopped",
                    "add --json to measure without a reader",
                )),
            });
        };
        let screen = self
            .screen
            .get_or_insert_with(|| LiveScreen::begin(terminal));
        screen.show(view);
        Ok(Flow::Continue)
    }

    /// Ends the screen, if there is one; the next view begins another.
    fn hide(&mut self) {
        self.screen = None;
        self.is_shown = false;
    }
}

impl Observer for LiveServers {
    fn event(&mut self, event: Event<'_>) -> Result<Flow, CliError> {
        match event {
            Event::Live(view) => return self.show(view),
            Event::Quiet => self.hide(),
            Event::Progress(progress) => match progress.stage {
                Stage::CleanUp | Stage::Report => self.hide(),
                _ if self.is_shown => return Ok(Flow::Continue),
                _ => {}
            },
            Event::Note(text) if self.screen.is_some() => {
                say(&format!("{text}\n"));
                return Ok(Flow::Continue);
            }
            Event::Warning(warning) if self.screen.is_some() => {
                say(&format!("warning: {}\n", warning.message));
                return Ok(Flow::Continue);
            }
            _ => {}
        }
        self.progress.event(event)
    }
}

/// A screen, drawn by a thread until it is dropped.
struct LiveScreen {
    newest: Arc<Mutex<Option<TimedView>>>,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LiveScreen {
    fn begin(terminal: &Arc<OwnedFd>) -> Self {
        TERMINAL.begin(terminal);
        let (newest, has_ended) = (Arc::default(), Arc::default());
        let drawing = DrawingThread {
            terminal: Arc::clone(terminal),
            newest: Arc::clone(&newest),
            has_ended: Arc::clone(&has_ended),
        };
        // Without the thread, the run continues without a screen.
        let thread = thread::Builder::new().spawn(move || drawing.run()).ok();
        Self {
            newest,
            has_ended,
            thread,
        }
    }

    fn show(&self, view: &LiveView) {
        let view = TimedView {
            view: view.clone(),
            at: time_of_day(),
        };
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(view);
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The message of its panic was printed.
            let _ = thread.join();
        }
        TERMINAL.leave().iter().for_each(|message| say(message));
    }
}

/// Reads keys and draws.
struct DrawingThread {
    terminal: Arc<OwnedFd>,
    newest: Arc<Mutex<Option<TimedView>>>,
    has_ended: Arc<AtomicBool>,
}

impl DrawingThread {
    fn run(&self) {
        let colors = environment::wants_colors();
        let Ok(mut screen) = Terminal::new(EncodedScreen::default());
        let (mut state, mut decoder) = (ScreenState::default(), KeyDecoder::default());
        // What the terminal has not taken yet; nothing more is drawn before.
        let mut bytes = Vec::new();
        let mut is_drawn = false;
        while !self.has_ended.load(Ordering::Relaxed) {
            let is_empty = match TERMINAL.page() {
                Page::Shown { is_empty } => is_empty,
                Page::Hidden => {
                    thread::sleep(DRAWING);
                    continue;
                }
                Page::Gone => return,
            };
            let Ok(pressed) = terminal::read_keys(&self.terminal) else {
                return;
            };
            for key in decoder.decode(&pressed) {
                is_drawn = false;
                if state.press(key) {
                    // As Ctrl-C; this process is there.
                    let _ = kill_process(getpid(), Signal::INT);
                }
            }
            for message in TERMINAL.new_messages() {
                is_drawn = false;
                state.add_message(&message, time_of_day());
            }
            let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(view) = newest.take() {
                is_drawn = false;
                state.update(view);
            }
            drop(newest);
            let (width, height) = terminal::size(&self.terminal);
            let size = Size { width, height };
            if is_empty {
                bytes.clear();
                let Ok(()) = screen.clear();
            }
            TERMINAL.write(&mut bytes);
            let is_current = is_drawn && !is_empty && screen.backend().size == size;
            if bytes.is_empty() && !is_current {
                screen.backend_mut().size = size;
                let Ok(_) = screen.draw(|frame| {
                    draw::draw(&mut state, colors, frame.area(), frame.buffer_mut());
                });
                is_drawn = true;
                bytes = mem::take(&mut screen.backend_mut().text).into_bytes();
                TERMINAL.write(&mut bytes);
            }
            terminal::wait(&self.terminal, !bytes.is_empty(), DRAWING);
        }
    }
}

/// Returns the time of day, in UTC.
fn time_of_day() -> String {
    jiff::Timestamp::now().strftime("%H:%M:%S").to_string()
}
