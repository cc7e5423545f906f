//! The program's terminal, as measurements see it.

use std::io::{self, IsTerminal};

use replimeter_run::{Observer, OutputReader, Screen, cli_error::CliError};

use crate::{
    live::LiveServers,
    print::{print_results, say},
    progress::StatusLine,
};

/// The program's terminal.
pub(crate) struct Terminal;

impl Screen for Terminal {
    fn print(&self, text: &str) -> Result<OutputReader, CliError> {
        print_results(text)
    }

    fn say(&self, text: &str) {
        say(text);
    }

    #[allow(clippy::disallowed_methods, reason = "prints nothing")]
    fn is_watched(&self) -> bool {
        io::stderr().is_terminal()
    }

    fn progress(&self) -> Box<dyn Observer> {
        Box::new(StatusLine::new())
    }

    fn live(&self) -> Box<dyn Observer> {
        Box::new(LiveServers::new())
    }
}
