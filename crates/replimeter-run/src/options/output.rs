//! Where and how results go, for all commands that have some.

use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};

/// Where and how results go.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Keep the run in this new or empty directory
    ///
    /// Default: replimeter-runs/TIME-COMMAND.
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,

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
    /// docs/reference/formats.md explains the columns.
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

    /// Print nothing: the run is part of another.
    #[arg(skip)]
    pub silent: bool,
}

/// The same where there may be a sweep over sizes.
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
    /// Where and how results go.
    pub fn output(&self) -> OutputArgs {
        OutputArgs {
            raw: self.raw,
            ..self.output.clone()
        }
    }
}

/// A form for other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamFormat {
    /// A header, then a line for each replica and interval
    Csv,
    /// An exposition for each interval, in OpenMetrics' text format
    Openmetrics,
}

/// The same where figures come while it is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct StreamOutputArgs {
    #[command(flatten)]
    output: OutputArgs,

    /// Print figures once per report interval, and no report at the end
    #[arg(long, value_enum, value_name = "FORM", conflicts_with_all = ["json", "markdown"])]
    stream: Option<StreamFormat>,
}

/// What a report is printed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// For people at a terminal; `raw` adds experiment 1's raw lines.
    Text {
        /// Whether with the raw lines.
        raw: bool,
    },
    /// One JSON document.
    Json,
    /// For a ticket.
    Markdown,
    /// Nothing at all.
    Silent,
    /// The rows of the results, for a spreadsheet.
    Csv,
}

impl OutputFormat {
    /// The first of these that is asked for; text otherwise.
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
    /// Of whichever command.
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            // Of commands without these options they are errors.
            raw: matches!(matches.try_get_one("raw"), Ok(Some(true))),
            stream: matches.try_get_one("stream").ok().flatten().copied(),
            ..Self::from_arg_matches(matches)?
        })
    }

    /// What the report is printed as.
    pub fn format(&self) -> OutputFormat {
        if self.silent {
            OutputFormat::Silent
        } else {
            OutputFormat::of(self.json, self.markdown, self.csv, self.raw)
        }
    }
}
