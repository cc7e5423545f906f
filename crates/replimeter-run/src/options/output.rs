//! Output options: the destination and form of results.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

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

    /// Print samples or figures during the run, and no report at the end
    #[arg(long, value_enum, value_name = "FORM", conflicts_with_all = ["json", "markdown", "csv"])]
    pub stream: Option<StreamForm>,

    /// Write no page and no Markdown report: a trial has up to 200 runs.
    #[arg(skip)]
    pub without_page: bool,
}

/// What a run prints while it lasts, for other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamForm {
    /// Each row of `samples.parquet` as a line of JSON
    Samples,
    /// The figures of the run so far, once a second: a line each
    Csv,
    /// The same as an exposition in OpenMetrics' text format
    Openmetrics,
}
