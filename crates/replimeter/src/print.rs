//! Standard output: documents, text, and readers that leave; failures on standard error.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Prints the one document of a command.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).map_err(|error| {
        Failure::failed(
            format!("cannot write the document: {error}"),
            "please report this as a defect",
        )
    })?;
    print(&(text + "\n"))
}

/// Prints on standard output; a reader that has left (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(text).map(|_| ())
}

/// Whether there is still somebody who reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

/// Prints on standard output, and says whether somebody reads it.
pub(crate) fn print_to_reader(text: &str) -> Result<Reader, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::failed(
            format!("cannot write to standard output: {error}"),
            "the run directory has everything",
        )),
    }
}

/// A text without control characters: names from plans and servers must not
/// command the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|character| {
            if character.is_control() && character != '\n' {
                '\u{fffd}'
            } else {
                character
            }
        })
        .collect()
}

impl Failure {
    /// Tells the user, on standard error.
    pub(crate) fn print(&self) {
        let mut err = std::io::stderr().lock();
        // Nothing can be done about a closed standard error.
        let _ = writeln!(err, "error: {}", plain(self.message.trim_end()));
        if !self.hint.is_empty() {
            let _ = writeln!(err, "  try: {}", self.hint);
        }
    }
}
