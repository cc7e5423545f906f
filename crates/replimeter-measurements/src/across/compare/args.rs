//! The command line of `replimeter compare`.

use std::path::PathBuf;

use clap::Args;
use replimeter_model::compare::FailWhen;
use replimeter_run::{Registry, cli_error::CliError, options::FormArgs};

use super::named;

/// The text below the options in the help, before the list of figures.
const EXAMPLES: &str = "\
Examples:
  replimeter compare replimeter-runs/…1 replimeter-runs/…2
  # sets of runs that alternated: A B B A A B
  replimeter compare before1,before2,before3 after1,after2,after3
  # every run in these directories
  replimeter compare baseline/ candidate/
  # two runs, and five of equal settings that show how much runs differ
  replimeter compare before after --known-from equal/
  replimeter compare --a before1 --a before2 --b after1 --b after2
  # for continuous integration: exit code 1
  replimeter compare before after --fail-if 'lag.p99 > +10%'
  # fails unless it is shown to be no worse than that
  replimeter compare before after --fail-if 'lag.p99 of replica1 > +10%' \\
    --fail-when possible
  replimeter compare before after --markdown > ticket.md

Needs no server. Exit codes: 0 compared, 1 a condition failed, 2 a mistake in
the request, or runs that cannot be compared, 3 a run with incomplete or damaged
files.";

/// `replimeter compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Baseline and candidate: run directories, or sets of them
    ///
    /// Each is a run directory, several with commas, or a directory of runs.
    #[arg(value_name = "A B", num_args = 0..=2)]
    pub sides: Vec<String>,

    /// Run of the baseline, instead of A; may be repeated
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "sides",
        requires = "b",
        help_heading = "Runs"
    )]
    pub a: Vec<String>,

    /// Run of the candidate, instead of B; may be repeated
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "sides",
        requires = "a",
        help_heading = "Runs"
    )]
    pub b: Vec<String>,

    /// Runs of equal settings, which show how much runs differ; may be repeated
    ///
    /// At least five, made one after another on the machine of A and B: run directories, or a directory of them. A
    /// difference of runs that did not alternate counts only if it is larger.
    #[arg(long, value_name = "DIR", help_heading = "Runs")]
    pub known_from: Vec<String>,

    /// Exit with code 1 if a figure of B is beyond this limit; may be repeated
    ///
    /// FIGURE [of WORD] > LIMIT, or <. +10% and +200us limit the change from A to B, 5ms limits B itself. The figures
    /// are listed below. --fail-when decides whether the figure or its interval has to be beyond the limit.
    #[arg(long, value_name = "CONDITION", help_heading = "Conditions")]
    pub fail_if: Vec<String>,

    /// Part of the interval that has to be beyond the limit of --fail-if
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value = "proven",
        requires = "fail_if",
        help_heading = "Conditions"
    )]
    pub fail_when: FailWhen,

    /// Keep it in this new directory [default: replimeter-runs/TIME-compare]
    ///
    /// It may exist if it is empty.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub run_dir: Option<PathBuf>,

    /// The form of the report.
    #[command(flatten)]
    pub form: FormArgs<2>,
}

impl CompareArgs {
    /// Returns the text below the options in the help: examples, and the figures of every measurement.
    pub fn after_help(registry: &Registry) -> String {
        format!("{}\n\n{EXAMPLES}", named::list(registry))
    }

    /// Returns the runs of both sides.
    pub fn sides(&self) -> Result<(Vec<String>, Vec<String>), CliError> {
        match &self.sides[..] {
            [a, b] => Ok((vec![a.clone()], vec![b.clone()])),
            [] if !self.a.is_empty() => Ok((self.a.clone(), self.b.clone())),
            _ => Err(CliError::usage(
                "a comparison needs two sides",
                "name two run directories, such as `replimeter compare before after`, or sets of them with commas",
            )),
        }
    }
}
