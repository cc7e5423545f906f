//! The form in which a command prints its document, and the options for it.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use replimeter_render::{markdown, report::Report, terminal};

use crate::cli_error::{CliError, unexpected};

/// The form in which a command prints its document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputForm {
    /// The report, for people at a terminal.
    #[default]
    Text,
    /// The same, with the raw lines of experiment 1.
    Raw,
    /// One JSON document.
    Json,
    /// The report in Markdown, for issues and reviews.
    Markdown,
    /// The rows of the results, for a spreadsheet.
    Csv,
    /// No output: the run is a part of another one.
    Silent,
}

impl OutputForm {
    /// Returns a document about servers or runs in this form: its report, with the text `below` it for people at a terminal, or `json`.
    ///
    /// # Errors
    /// When `json` fails, or the document is to be printed as rows, or not at all.
    pub(crate) fn of(
        self,
        report: &Report,
        json: impl FnOnce() -> Result<String, CliError>,
        below: &str,
    ) -> Result<String, CliError> {
        match self {
            Self::Text | Self::Raw => Ok(terminal::render(report) + below),
            Self::Json => json(),
            Self::Markdown => Ok(markdown::render(report)),
            Self::Csv | Self::Silent => Err(unexpected("only a run has rows, or is silent")),
        }
    }
}

/// The option of a form: its name, the first line of its help, and details.
struct FormOption(OutputForm, &'static str, &'static str, &'static str);

/// The options, each of which excludes the others.
static OPTIONS: [FormOption; 4] = [
    FormOption(
        OutputForm::Json,
        "json",
        "Print one JSON document instead of the report",
        "",
    ),
    FormOption(
        OutputForm::Markdown,
        "markdown",
        "Print the report as Markdown",
        "It is also kept as report.md.",
    ),
    FormOption(
        OutputForm::Csv,
        "csv",
        "Print the rows of the results as CSV",
        "A row per row of `results` in the JSON document; `replimeter schema COMMAND` describes its keys.",
    ),
    FormOption(
        OutputForm::Raw,
        "raw",
        "Add the raw lines of experiment 1; needs a sweep over row sizes",
        "Step, row id, sequence, inserted and fetched (s, µs).",
    ),
];

/// Returns the option at this place of [`OPTIONS`].
fn option(index: usize) -> Arg {
    let FormOption(_, name, help, details) = OPTIONS[index];
    let option = Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
        .help_heading("Output")
        .conflicts_with_all(OPTIONS[..index].iter().map(|other| other.1));
    match details {
        "" => option,
        details => option.long_help(format!("{help}\n\n{details}")),
    }
}

/// Returns the option `--raw`, for commands with sweeps over row sizes.
#[must_use]
pub fn raw_option() -> Arg {
    option(OPTIONS.len() - 1)
}

/// The options for the form: the first `N` of `--json`, `--markdown` and `--csv`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FormArgs<const N: usize> {
    /// The chosen form.
    pub chosen: OutputForm,
}

impl<const N: usize> Args for FormArgs<N> {
    fn augment_args(command: Command) -> Command {
        command.args((0..N).map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const N: usize> FromArgMatches for FormArgs<N> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // Options that the command does not have are an error here.
        let is_given =
            |option: &&FormOption| matches!(matches.try_get_one(option.1), Ok(Some(true)));
        let chosen = OPTIONS.iter().find(is_given);
        Ok(Self {
            chosen: chosen.map(|option| option.0).unwrap_or_default(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(words: &[&str]) -> Option<OutputForm> {
        let command = FormArgs::<3>::augment_args(Command::new("lag")).arg(raw_option());
        let matches = command
            .try_get_matches_from([&["lag"], words].concat())
            .ok()?;
        Some(FormArgs::<3>::from_arg_matches(&matches).unwrap().chosen)
    }

    #[test]
    fn each_option_is_a_form_and_excludes_others() {
        assert_eq!(chosen(&[]), Some(OutputForm::Text));
        for FormOption(form, name, ..) in &OPTIONS {
            let option = format!("--{name}");
            assert_eq!(chosen(&[&option]), Some(*form));
            for FormOption(_, other, ..) in OPTIONS.iter().filter(|other| other.1 != *name) {
                assert_eq!(chosen(&[&option, &format!("--{other}")]), None);
            }
        }
    }
}
