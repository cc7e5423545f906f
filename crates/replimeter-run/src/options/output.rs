//! Output options: the destination and form of results.

use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};

use super::form::FormArgs;

/// Output options: the destination and form of results.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Keep the run in this new directory [default: replimeter-runs/TIME-COMMAND]
    ///
    /// It may exist if it is empty.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,

    /// Print the plan with its defaults and effects, and do nothing
    ///
    /// Effects are the servers, tables, load and files that the run would use. The plan can be saved as a file for
    /// `replimeter run`.
    #[arg(long)]
    pub dry_run: bool,

    /// The form of the results.
    #[command(flatten)]
    pub form: FormArgs<3>,

    /// Print figures once per report interval, and no report at the end
    #[arg(skip)]
    pub stream: Option<StreamFormat>,

    /// Write no page and no Markdown report: a trial has up to 200 runs.
    #[arg(skip)]
    pub without_page: bool,
}

/// A format of streamed figures, for other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamFormat {
    /// A header, then a line for each replica and interval
    Csv,
    /// An exposition for each interval, in OpenMetrics' text format
    Openmetrics,
}

/// Output options of a command with figures during the run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct StreamOutputArgs {
    #[command(flatten)]
    output: OutputArgs,

    /// Print figures once per report interval, and no report at the end
    #[arg(long, value_enum, value_name = "FORM", conflicts_with_all = ["json", "markdown"])]
    stream: Option<StreamFormat>,
}

impl OutputArgs {
    /// Returns the output options of any command.
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            // Commands without this option return an error here.
            stream: matches.try_get_one("stream").ok().flatten().copied(),
            ..Self::from_arg_matches(matches)?
        })
    }
}
