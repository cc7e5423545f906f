//! What measurements need of the program that runs them: servers, and a screen.

use std::path::PathBuf;

use replimeter_engine::source::ServerSource;

use super::event::Observer;
use crate::{failure::Failure, options::Given};

/// Whether there is still somebody who reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Somebody reads.
    There,
    /// Whoever read has left.
    Gone,
}

/// Where people read results and watch runs.
pub trait Screen {
    /// Prints results, and says whether somebody reads them.
    ///
    /// # Errors
    /// When what is printed cannot be written, such as to a full disk.
    fn print(&self, text: &str) -> Result<Reader, Failure>;

    /// Says something besides the results; names from servers and plans cannot command the terminal.
    fn say(&self, text: &str);

    /// Whether a person sees what is said.
    fn is_watched(&self) -> bool;

    /// Shows the progress of a run.
    fn progress(&self) -> Box<dyn Observer>;
}

/// Where servers come from, given what the command line says and the plan's option file.
pub type Opening = dyn Fn(&Given, Option<PathBuf>) -> Box<dyn ServerSource>;

/// The program that runs measurements.
pub struct Host<'a> {
    /// Where their servers come from.
    pub servers: &'a Opening,
    /// Where people read results and watch.
    pub screen: &'a dyn Screen,
    /// Where to record what is measured, so that it can be summed up again.
    pub record: Option<PathBuf>,
    /// A fault to commit on purpose, for tests.
    pub fault: Option<String>,
}

/// A text without control characters: names from plans and servers must not
/// command the terminal.
pub fn plain(text: &str) -> String {
    let shown = |character: char| match character {
        '\n' => character,
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    };
    text.chars().map(shown).collect()
}

/// A document as it is printed and kept.
///
/// # Errors
/// When it cannot be JSON, which is a defect.
pub fn json_text(document: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(document).map_err(|error| {
        Failure::failed(
            format!("cannot write the document: {error}"),
            "report this as a bug",
        )
    })?;
    Ok(text + "\n")
}
