//! The program's services for measurements: servers and a screen.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use replimeter_engine::source::ServerSource;
use replimeter_instruments::backlog::HeldAppliers;
use replimeter_render::terminal::controls_terminal;

use super::event::Observer;
use crate::{
    cli_error::{CliError, unexpected},
    options::CommandLineSettings,
};

/// Whether standard output still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputReader {
    /// There is a reader.
    There,
    /// The reader closed the pipe.
    Gone,
}

/// The output of results and progress.
pub trait Screen {
    /// Prints results; returns whether they have a reader. Control characters in names are replaced.
    ///
    /// # Errors
    /// If the output cannot be written, such as to a full disk.
    fn print(&self, text: &str) -> Result<OutputReader, CliError>;

    /// Prints a message besides the results; control characters in names are replaced.
    fn say(&self, text: &str);

    /// Returns whether messages go to a terminal.
    fn is_watched(&self) -> bool;

    /// Returns an observer that shows the progress of a run.
    fn progress(&self) -> Box<dyn Observer>;

    /// Returns an observer that shows the servers as they are, besides the progress.
    fn live(&self) -> Box<dyn Observer> {
        self.progress()
    }
}

/// Opens a source of servers, given the command line and the plan's option file.
pub type SourceOpener = dyn Fn(&CommandLineSettings, Option<PathBuf>) -> Box<dyn ServerSource>;

/// Hang-ups (SIGHUP), which end a run unless it takes them over as the request to read its servers again. Copies are the same.
#[derive(Clone, Default)]
pub struct HangUps {
    taken_over: Arc<AtomicBool>,
    pending: Arc<AtomicBool>,
}

impl HangUps {
    /// Has hang-ups not end the run.
    pub fn take_over(&self) {
        self.taken_over.store(true, Ordering::Relaxed);
    }

    /// Takes a hang-up; returns whether the run continues.
    #[must_use]
    pub fn arrived(&self) -> bool {
        let taken_over = self.taken_over.load(Ordering::Relaxed);
        self.pending.fetch_or(taken_over, Ordering::Relaxed);
        taken_over
    }

    /// Returns whether one has arrived since the last time.
    #[must_use]
    pub fn take(&self) -> bool {
        self.pending.swap(false, Ordering::Relaxed)
    }
}

/// The program that runs measurements.
pub struct Host<'a> {
    /// The source of their servers.
    pub servers: Box<SourceOpener>,
    /// The appliers that every exit of the program restores.
    pub held_appliers: HeldAppliers,
    /// The hang-ups that a run takes over.
    pub hang_ups: HangUps,
    /// The output.
    pub screen: &'a dyn Screen,
    /// Whether the journal of a complete run is kept, for tests.
    pub keep_journal: bool,
    /// The fault to inject, for tests.
    pub fault: Option<String>,
}

/// Returns a document as it is printed and kept. Characters that could control a terminal are escaped.
///
/// # Errors
/// If it cannot be JSON, which is an internal error.
pub fn json_text(document: &impl serde::Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| unexpected(format_args!("cannot write the document: {error}")))?;
    // They can only be in strings.
    let mut escaped = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if controls_terminal(character) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    escaped.push('\n');
    Ok(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_what_a_terminal_obeys_and_keeps_the_value() {
        let value = "\u{1b}[2J\u{9b}31m\u{202e}\r\n\té";
        let text = json_text(&value).unwrap();
        assert!(!text.contains(controls_terminal), "{text:?}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
    }
}
