//! The program's services for measurements: servers and a screen.

use std::path::PathBuf;

use replimeter_engine::source::ServerSource;

use super::event::Observer;
use crate::{cli_error::CliError, options::CommandLineSettings};

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
    /// Prints results; returns whether they have a reader.
    ///
    /// # Errors
    /// If the output cannot be written, such as to a full disk.
    fn print(&self, text: &str) -> Result<OutputReader, CliError>;

    /// Prints a message besides the results; control characters in names are removed.
    fn say(&self, text: &str);

    /// Returns whether messages go to a terminal.
    fn is_watched(&self) -> bool;

    /// Returns an observer that shows the progress of a run.
    fn progress(&self) -> Box<dyn Observer>;
}

/// Opens a source of servers, given the command line and the plan's option file.
pub type SourceOpener = dyn Fn(&CommandLineSettings, Option<PathBuf>) -> Box<dyn ServerSource>;

/// The program that runs measurements.
pub struct Host<'a> {
    /// The source of their servers.
    pub servers: &'a SourceOpener,
    /// The output.
    pub screen: &'a dyn Screen,
    /// The file for recording calls, so that the run can be replayed.
    pub record: Option<PathBuf>,
    /// The fault to inject, for tests.
    pub fault: Option<String>,
}

/// Returns a text without control characters: names from plans and servers must not control the terminal.
pub fn plain(text: &str) -> String {
    let shown = |character: char| match character {
        '\n' => character,
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    };
    text.chars().map(shown).collect()
}

/// Returns a document as it is printed and kept.
///
/// # Errors
/// If it cannot be JSON, which is an internal error.
pub fn json_text(document: &impl serde::Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(document).map_err(|error| {
        CliError::failed(
            format!("cannot write the document: {error}"),
            "report this as a bug",
        )
    })?;
    Ok(text + "\n")
}
