//! Standard output for results, and standard error for everything else.

#![allow(
    clippy::disallowed_methods,
    reason = "the functions here are the only ones that print"
)]

use std::io::{self, Write};

use replimeter_render::terminal::controls_terminal;
use replimeter_run::{OutputReader, cli_error::CliError};

use crate::live::terminal::TERMINAL;

/// Returns a text without what a terminal obeys: names of plans and servers must not control it.
pub(crate) fn plain(text: &str) -> String {
    text.replace(controls_terminal, "\u{fffd}")
}

/// Prints on standard error; nothing else writes to it. While the screen is up, it shows the text.
pub(crate) fn say(text: &str) {
    if TERMINAL.add_message(text) {
        return;
    }
    // An error on standard error cannot be reported.
    let _ = io::stderr().write_all(plain(text).as_bytes());
}

/// Prints results on standard output. A reader that has closed the pipe (`| head`) is not an error.
pub(crate) fn print_results(text: &str) -> Result<OutputReader, CliError> {
    let mut out = io::stdout().lock();
    match out
        .write_all(plain(text).as_bytes())
        .and_then(|()| out.flush())
    {
        Ok(()) => Ok(OutputReader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
        Err(error) => Err(CliError::failed(
            format!("cannot write to standard output: {error}"),
            "see the run directory for all results",
        )),
    }
}

/// Prints on standard output.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_results(text).map(|_| ())
}

/// Prints a failure.
pub(crate) fn print_failure(failure: &CliError) {
    let mut text = format!("error: {}\n", failure.message.trim_end());
    if !failure.hint.is_empty() {
        text.push_str(&format!("  hint: {}\n", failure.hint));
    }
    say(&text);
}
