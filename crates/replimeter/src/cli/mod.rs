//! The command line: what is no setting of a measurement is declared here.

mod program;
mod refused;
mod reproduce;
mod sandbox;
mod servers;

use std::{io::Read, path::PathBuf};

use clap::{
    ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand,
    builder::PossibleValuesParser,
};
use replimeter_run::{
    Entry, Registry,
    compare::CompareArgs,
    failure::Failure,
    options::{Form, SweepOutputArgs, TargetArgs},
};

pub(crate) use self::{
    program::{CompletionsArgs, ManArgs, SchemaArgs},
    refused::parse,
    reproduce::{Extent, ReproduceArgs},
    sandbox::{
        DownArgs, EnvArgs, ExecArgs, LinkArgs, ListArgs, SandboxCommand, SandboxCommandArgs, UpArgs,
    },
    servers::{AddArgs, ServersArgs, ServersCommand},
};

/// Measures database replication: how late is a replica?
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    arg_required_else_help = true,
    max_term_width = 110,
    after_help = "\
Examples:
  replimeter lag                                   a sandbox of a primary and one replica, 1000 rounds
  replimeter lag --sandbox async:1 --sandbox semi-sync:1 --sandbox galera:3
                                                   modes side by side
  replimeter lag --primary mysql://u@db1/ --replica mysql://u@db2/ --duration 60s
  replimeter backlog                               how fast does each replica catch up?
  replimeter calibrate                             how far off is each method?
  replimeter tap --primary mysql://u@db1/ --replica mysql://u@db2/
                                                   how late is the real traffic? nothing is written
  replimeter load --workload oltp-mix --threads 8 how much does it do, and how long does each take?
  replimeter cost                                  what does each mode of replication cost?
  replimeter scale --replicas 0..3                 what does each read replica cost, and give?
  replimeter stale --sandbox galera:3              how often does a read miss what was just written?
  replimeter loss --sandbox async:1 --sandbox semi-sync:1
                                                   what dies with the primary?
  replimeter exposure --primary mysql://u@db1/ --replica mysql://u@db2/
                                                   what would, right now? nothing is written
  replimeter run plans/size-sweep.toml             a published experiment
  replimeter report replimeter-runs/…              render a run again, no server needed
  replimeter compare replimeter-runs/…1 replimeter-runs/…2
                                                   did a change help? every figure with intervals
  replimeter doctor --topology cluster.toml        what is odd about these servers?
  replimeter sandbox up galera:3                   servers to keep and to play with
  replimeter servers                               which database servers can be started here
  replimeter schema plan                           what may stand in a plan, for editors

Exit codes: 0 done, 1 the measurement is invalid, 2 usage, 3 a server, the sandbox or the disk failed, 130 interrupted (partial results kept)."
)]
struct Cli {}

/// What is asked for.
pub(crate) enum Asked {
    /// A measurement, with what is given for it.
    Measure(&'static dyn Entry, ArgMatches),
    /// Another command.
    Other(Command),
}

/// The whole command line: the measurements, and then the others.
pub(crate) fn command(registry: &Registry) -> clap::Command {
    let program = Cli::command().subcommand_required(true);
    let about = program.get_about().cloned().unwrap_or_default();
    let measurements = registry.entries().map(|entry| entry.command());
    let schemas = PossibleValuesParser::new(registry.schemas());
    Command::augment_subcommands(program.subcommands(measurements))
        .about(about)
        .mut_subcommands(|command| match command.get_name() {
            // One at a time would come behind the others.
            "schema" => command.mut_args(|option| match option.get_id().as_str() {
                "name" => option.value_parser(schemas.clone()),
                _ => option,
            }),
            _ => command,
        })
}

/// Reads a command line.
fn read<T: Into<std::ffi::OsString> + Clone>(
    registry: &'static Registry,
    words: impl IntoIterator<Item = T>,
) -> Result<Asked, clap::Error> {
    let mut matches = command(registry).try_get_matches_from(words)?;
    let Some(entry) = matches
        .subcommand_name()
        .and_then(|name| registry.get(name))
    else {
        return Command::from_arg_matches(&matches).map(Asked::Other);
    };
    let given = matches.remove_subcommand();
    Ok(Asked::Measure(
        entry,
        given.map(|(_, given)| given).unwrap_or_default(),
    ))
}

/// The commands that measure nothing.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Carry out a plan file; every run keeps its own as plan.toml
    Run(Box<RunArgs>),
    /// Carry out the five published experiments on sandboxes, and set every published table beside ours
    Reproduce(ReproduceArgs),
    /// Render a run again from its directory, without any server; several side by side in one page
    Report(ReportArgs),
    /// Say whether two runs, or two sets of runs, differ: every figure with intervals, what differs beside, a verdict; exit code 1 for CI
    Compare(Box<CompareArgs>),
    /// Look at servers and say what is odd: who replicates from whom and how really, privileges, clocks, settings that would falsify a run
    Doctor(Box<DoctorArgs>),
    /// Start servers and keep them for your own work: up, list, env, exec, link, down
    Sandbox(SandboxCommandArgs),
    /// List the database servers that can be started here, with what they can do; or add one
    Servers(ServersArgs),
    /// Print the JSON Schema of plan files or of a command's JSON document
    Schema(SchemaArgs),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual, or write a page for each command into a folder
    Man(ManArgs),
}

/// `replimeter run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter run plans/size-sweep.toml --raw
  replimeter run plans/ --dry-run
  replimeter run plans/size-sweep.toml --primary mysql://u@db1/ --replica mysql://u@db2/
  replimeter run replimeter-runs/…/plan.toml")]
pub(crate) struct RunArgs {
    /// Plan files, or folders of them (*.toml in the order of their names), carried out one after another; all are checked before the first begins
    #[arg(required = true, value_name = "PLAN.toml|DIR")]
    pub(crate) plans: Vec<PathBuf>,

    /// Print each plan with every default made concrete and what it will touch (servers, tables, load, files), and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) output: SweepOutputArgs,
}

/// `replimeter doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter doctor --primary mysql://u@db1/ --replica mysql://u@db2/
  replimeter doctor --node mysql://u@n1/ --node mysql://u@n2/ --node mysql://u@n3/ --json
  replimeter doctor --topology cluster.toml
  replimeter doctor --sandbox work

Writes nothing and takes no lock. Exit codes: 0 nothing that forbids a measurement, 1 something that does,
3 a server could not be examined. docs/reference/doctor.md explains every finding.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Print one JSON document on standard output instead of the findings
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// `replimeter report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter report replimeter-runs/20261121T120000Z-lag
  replimeter report replimeter-runs/20261121T120000Z-lag --json
  replimeter report replimeter-runs/20261121T120000Z-lag --markdown > ticket.md")]
pub(crate) struct ReportArgs {
    /// Run directories
    #[arg(required = true, value_name = "RUN_DIR")]
    pub(crate) run_dirs: Vec<PathBuf>,

    /// Of several runs: write one page of all here [default: replimeter-report.html in this folder]
    #[arg(long, value_name = "FILE.html")]
    pub(crate) page: Option<PathBuf>,

    /// Print the JSON document instead of the report
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the report as Markdown, for a ticket
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,

    /// Print the rows of the results as CSV
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    pub(crate) csv: bool,

    /// Add the raw lines of experiment 1
    #[arg(long, conflicts_with_all = ["json", "markdown", "csv"])]
    pub(crate) raw: bool,
}

/// The page of several runs that nobody named a place for.
const TOGETHER: &str = "replimeter-report.html";
/// What every page of ours has near its beginning, and other files have not.
const MARK: &str = "· Replimeter</title>";

impl ReportArgs {
    /// Where the page of several runs goes; `None` for a single one.
    pub(crate) fn together(&self) -> Result<Option<PathBuf>, Failure> {
        if self.run_dirs.len() < 2 {
            return match &self.page {
                Some(_) => Err(Failure::usage(
                    "--page is for several runs",
                    "a single run has its page in its directory",
                )),
                None => Ok(None),
            };
        }
        let page = self.page.clone().unwrap_or_else(|| PathBuf::from(TOGETHER));
        let page = std::path::absolute(&page).unwrap_or(page);
        let mut beginning = Vec::new();
        // What is not to be read has no mark, and stays as it is.
        let _ = std::fs::File::open(&page)
            .and_then(|file| file.take(1 << 20).read_to_end(&mut beginning));
        if page.exists() && !String::from_utf8_lossy(&beginning).contains(MARK) {
            return Err(Failure::usage(
                format!("{} exists, and is no page of Replimeter's", page.display()),
                "name another file with --page",
            ));
        }
        Ok(Some(page))
    }

    /// What each report is printed as.
    pub(crate) fn form(&self) -> Form {
        Form::of(self.json, self.markdown, self.csv, self.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replimeter_measurements::registry;

    #[test]
    fn the_command_line_is_consistent() {
        command(registry()).debug_assert();
    }

    /// Options that are called otherwise than the key of a plan that they stand for.
    #[test]
    fn an_option_is_called_as_its_key() {
        let mut others: Vec<String> = Vec::new();
        for entry in registry().entries() {
            let command = entry.command();
            let options = command.get_arguments().filter_map(|option| {
                let (key, long) = (option.get_id().as_str(), option.get_long()?);
                (key.replace('_', "-") != long).then(|| format!("{} --{long}", command.get_name()))
            });
            others.extend(options);
        }
        others.retain(|other| !other.ends_with("--server-option"));
        assert_eq!(
            others,
            [
                "calibrate --link-delay",
                "cost --link-delay",
                "stale --case"
            ]
        );
    }

    #[test]
    fn every_default_is_filled_in() {
        for entry in registry().entries() {
            let help = entry.command().render_long_help().to_string();
            assert!(!help.contains("{default}"), "{help}");
        }
    }
}
