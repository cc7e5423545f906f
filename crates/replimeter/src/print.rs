//! The terminal: results on standard output, everything else on standard error.

use std::io::{self, IsTerminal, Write};

use replimeter_run::{Observer, OutputReader, Screen, cli_error::CliError, json_text, plain};
use serde::Serialize;

use crate::progress::StatusLine;

/// The program's terminal.
pub(crate) struct Terminal;

impl Screen for Terminal {
    /// A reader that has closed the pipe (`| head`) is not an error.
    fn print(&self, text: &str) -> Result<OutputReader, CliError> {
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => Ok(OutputReader::There),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
            Err(error) => Err(CliError::failed(
                format!("cannot write to standard output: {error}"),
                "see the run directory for all results",
            )),
        }
    }

    fn say(&self, text: &str) {
        // An error on standard error cannot be reported.
        let _ = write!(io::stderr(), "{}", plain(text));
    }

    fn is_watched(&self) -> bool {
        io::stderr().is_terminal()
    }

    fn progress(&self) -> Box<dyn Observer> {
        Box::new(StatusLine::new())
    }
}

/// Prints the JSON document of a command.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), CliError> {
    print(&json_text(document)?)
}

/// Prints on standard output.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    Terminal.print(text).map(|_| ())
}

/// Prints a failure.
pub(crate) fn print_failure(failure: &CliError) {
    let mut text = format!("error: {}\n", failure.message.trim_end());
    if !failure.hint.is_empty() {
        text.push_str(&format!("  hint: {}\n", failure.hint));
    }
    Terminal.say(&text);
}
