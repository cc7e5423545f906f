//! Output options: the destination and format of results.

use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};

/// Output options: the destination and format of results.
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

    /// Print one JSON document instead of the report
    #[arg(long)]
    pub json: bool,

    /// Print the report as Markdown
    ///
    /// It is also kept as report.md.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Print the rows of the results as CSV
    ///
    /// A row per row of `results` in the JSON document; `replimeter schema COMMAND` describes its keys.
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    pub csv: bool,

    /// Add the raw lines of experiment 1; needs a sweep over row sizes
    ///
    /// Step, row id, sequence, inserted and fetched (s, µs).
    #[arg(skip)]
    pub raw: bool,

    /// Print figures once per report interval, and no report at the end
    #[arg(skip)]
    pub stream: Option<StreamFormat>,

    /// Print nothing: the run is a part of another one.
    #[arg(skip)]
    pub silent: bool,

    /// Write no page and no Markdown report: a trial has up to 200 runs.
    #[arg(skip)]
    pub without_page: bool,
}

/// Output options of a command with sweeps over row sizes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct SweepOutputArgs {
    #[command(flatten)]
    output: OutputArgs,

    /// Add the raw lines of experiment 1; needs a sweep over row sizes
    ///
    /// Step, row id, sequence, inserted and fetched (s, µs).
    #[arg(long, conflicts_with_all = ["json", "markdown", "csv"])]
    raw: bool,
}

impl SweepOutputArgs {
    /// Returns these options in the common form.
    pub fn output(&self) -> OutputArgs {
        OutputArgs {
            raw: self.raw,
            ..self.output.clone()
        }
    }
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

/// The format of a printed report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// For people at a terminal; `raw` adds experiment 1's raw lines.
    Text {
        /// Whether the raw lines are included.
        raw: bool,
    },
    /// One JSON document.
    Json,
    /// Markdown, for issues and reviews.
    Markdown,
    /// No output.
    Silent,
    /// The rows of the results, for a spreadsheet.
    Csv,
}

impl OutputFormat {
    /// Returns the first requested format; text if none is requested.
    pub fn of(json: bool, markdown: bool, csv: bool, raw: bool) -> Self {
        match (json, markdown, csv) {
            (true, ..) => Self::Json,
            (_, true, _) => Self::Markdown,
            (.., true) => Self::Csv,
            _ => Self::Text { raw },
        }
    }
}

impl OutputArgs {
    /// Returns the output options of any command.
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            // Commands without these options return an error here.
            raw: matches!(matches.try_get_one("raw"), Ok(Some(true))),
            stream: matches.try_get_one("stream").ok().flatten().copied(),
            ..Self::from_arg_matches(matches)?
        })
    }

    /// Returns the format of the report.
    pub fn format(&self) -> OutputFormat {
        if self.silent {
            OutputFormat::Silent
        } else {
            OutputFormat::of(self.json, self.markdown, self.csv, self.raw)
        }
    }
}
