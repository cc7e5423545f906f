//! The command line: everything except the settings of measurements is declared here.

mod help;
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
use replimeter_measurements::across::{compare::CompareArgs, trial::TrialArgs};
use replimeter_run::{
    Entry, Registry,
    cli_error::CliError,
    options::{FormArgs, OutputArgs, TargetArgs, raw_option},
    run_dir::{PAGE, SUMMARY},
};

pub(crate) use self::{
    program::{CompletionsArgs, ManArgs, SchemaArgs},
    refused::parse,
    reproduce::{ReproduceArgs, ReproduceExtent},
    sandbox::{
        DownArgs, EnvArgs, ExecArgs, LinkArgs, ListArgs, SandboxCommand, SandboxCommandArgs, UpArgs,
    },
    servers::{AddArgs, ServersArgs, ServersCommand},
};

/// Measure database replication: lag, stale reads, cost and lost writes
#[derive(Debug, Parser)]
#[command(
    version,
    about = "Measure database replication: lag, stale reads, cost and lost writes",
    arg_required_else_help = true,
    after_help = help::BEGIN,
    after_long_help = help::all_of_it()
)]
struct Cli {}

/// The requested action.
pub(crate) enum Invocation {
    /// A measurement, with its given settings.
    Measure(&'static dyn Entry, ArgMatches),
    /// Another command.
    Other(Command),
}

/// Returns the whole command line: the measurements, then the other commands.
pub(crate) fn command(registry: &Registry) -> clap::Command {
    let program = Cli::command().subcommand_required(true);
    let about = program.get_about().cloned().unwrap_or_default();
    let measurements = registry.entries().map(|entry| entry.command());
    let schemas = PossibleValuesParser::new(registry.schemas());
    let all = Command::augment_subcommands(program.subcommands(measurements))
        .about(about)
        .mut_subcommands(|command| match command.get_name() {
            // Added one by one they would come after the others.
            "schema" => command.mut_args(|option| match option.get_id().as_str() {
                "name" => option.value_parser(schemas.clone()),
                _ => option,
            }),
            "compare" => {
                help::with_target(command).after_long_help(CompareArgs::after_help(registry))
            }
            _ => help::with_target(command),
        });
    help::wrapped(help::grouped(help::filled(all)))
}

/// Reads a command line.
fn read<T: Into<std::ffi::OsString> + Clone>(
    registry: &'static Registry,
    words: impl IntoIterator<Item = T>,
) -> Result<Invocation, clap::Error> {
    let mut matches = command(registry).try_get_matches_from(words)?;
    let Some(entry) = matches
        .subcommand_name()
        .and_then(|name| registry.get(name))
    else {
        return Command::from_arg_matches(&matches).map(Invocation::Other);
    };
    let given = matches.remove_subcommand();
    Ok(Invocation::Measure(
        entry,
        given.map(|(_, given)| given).unwrap_or_default(),
    ))
}

/// The commands that are not measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run plan files; every run keeps its own as plan.toml
    Run(Box<RunArgs>),
    /// Run the five published experiments and compare with their tables
    Reproduce(ReproduceArgs),
    /// Render runs again from their directories, without any server
    Report(ReportArgs),
    /// Compare runs or sets of runs, with intervals; fail on conditions
    Compare(Box<CompareArgs>),
    /// Decide whether two plans differ, by pairs of starts
    Trial(Box<TrialArgs>),
    /// Check servers for problems that would invalidate a measurement
    Doctor(Box<DoctorArgs>),
    /// Start servers and keep them running for your own work
    Sandbox(SandboxCommandArgs),
    /// List the database servers that can be started here, or add one
    Servers(ServersArgs),
    /// Print the JSON Schema of plan files or of a command's results
    Schema(SchemaArgs),
    /// Print shell completions
    Completions(CompletionsArgs),
    /// Print the manual, or write a page for each command
    Man(ManArgs),
}

/// `replimeter run`.
#[derive(Debug, Args)]
#[command(
    arg(raw_option().conflicts_with("stream")),
    after_long_help = "\
Examples:
  replimeter lag --row-sizes 1000..10000:1000 --dry-run > sweep.toml
  replimeter run sweep.toml --raw
  replimeter run sweep.toml --topology cluster.toml
  replimeter run plans/ --dry-run
  replimeter run replimeter-runs/…/plan.toml

`replimeter schema plan --markdown` lists the keys of plan files."
)]
pub(crate) struct RunArgs {
    /// Plan files, or directories of them; all are checked first
    ///
    /// The *.toml files of a directory run in the order of their names, one after another; nothing begins before
    /// all are checked.
    #[arg(required = true, value_name = "PLAN.toml|DIR")]
    pub(crate) plans: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `replimeter doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  replimeter doctor --primary {scheme}://u@db1/ --replica {scheme}://u@db2/
  replimeter doctor --node {scheme}://u@n1/ --node {scheme}://u@n2/ --json
  replimeter doctor --topology cluster.toml
  replimeter doctor --sandbox work

A topology file (role and source are optional: they are found out):
  [[node]]
  name = \"db1\"
  url = \"{scheme}://probe@db1/\"
  role = \"primary\"
  [[node]]
  name = \"db2\"
  url = \"{scheme}://probe@db2/\"
  source = \"db1\"

Writes nothing and takes no lock. A missing privilege is shown as the GRANT that
gives it. Exit codes: 0 nothing that forbids a measurement, 1 something that
does, 2 a mistake in the request, 3 a server could not be examined.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) form: FormArgs<1>,
}

/// `replimeter report`.
#[derive(Debug, Args)]
#[command(
    arg(raw_option()),
    after_long_help = "\
Examples:
  replimeter report replimeter-runs/20261121T120000Z-lag
  replimeter report replimeter-runs/20261121T120000Z-lag --json
  replimeter report replimeter-runs/20261121T120000Z-lag --markdown > ticket.md"
)]
pub(crate) struct ReportArgs {
    /// Run directories
    #[arg(required = true, value_name = "RUN_DIR")]
    pub(crate) run_dirs: Vec<PathBuf>,

    /// Write one page of several runs here [default: replimeter-report.html]
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub(crate) page: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) form: FormArgs<3>,
}

/// Default file of the page of several runs.
const SIDE_BY_SIDE: &str = "replimeter-report.html";
/// Mark near the beginning of every page that Replimeter writes, and of no other file.
const MARK: &str = "· Replimeter</title>";

impl ReportArgs {
    /// Returns the path of the page of several runs; `None` for a single run.
    pub(crate) fn side_by_side(&self) -> Result<Option<PathBuf>, CliError> {
        if self.run_dirs.len() < 2 {
            return match &self.page {
                Some(_) => Err(CliError::usage(
                    "--page is for several runs",
                    "a single run has its page in its directory",
                )),
                None => Ok(None),
            };
        }
        let page = self
            .page
            .clone()
            .unwrap_or_else(|| PathBuf::from(SIDE_BY_SIDE));
        let page = std::path::absolute(&page).unwrap_or(page);
        let mut beginning = Vec::new();
        // A file that cannot be read has no mark, and is not overwritten.
        let _ = std::fs::File::open(&page)
            .and_then(|file| file.take(1 << 20).read_to_end(&mut beginning));
        let refuse = |reason: String| {
            let message = format!("cannot write the page {}: {reason}", page.display());
            CliError::usage(message, "name another file with --page")
        };
        let folder = page.parent().unwrap_or(&page);
        if !folder.is_dir() {
            return Err(refuse(format!("there is no folder {}", folder.display())));
        }
        if page.is_dir() {
            return Err(refuse("it is a folder".to_owned()));
        }
        if page.file_name().is_some_and(|name| name == PAGE) && folder.join(SUMMARY).exists() {
            return Err(refuse(
                "it is the page of the run in this folder".to_owned(),
            ));
        }
        if page.exists() && !String::from_utf8_lossy(&beginning).contains(MARK) {
            return Err(refuse("it exists, and is no page of Replimeter".to_owned()));
        }
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replimeter_measurements::registry;

    #[test]
    fn command_line_is_consistent() {
        command(registry()).debug_assert();
    }

    /// Every option has the name of its key in plans, except the listed ones.
    #[test]
    fn options_are_named_like_plan_keys() {
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
                "calibrate --row-delay",
                "cost --link-delay",
                "stale --case"
            ]
        );
    }

    /// Returns a command and all its visible subcommands.
    pub(super) fn all(command: &clap::Command) -> Vec<clap::Command> {
        let below = command.get_subcommands().filter(|one| !one.is_hide_set());
        std::iter::once(command.clone())
            .chain(below.flat_map(all))
            .collect()
    }

    fn length(text: &str) -> usize {
        text.chars().count()
    }

    #[test]
    fn summaries_and_short_helps_fit_into_a_line() {
        for command in all(&command(registry())) {
            let name = command.get_name();
            let about = command.get_about().unwrap().to_string();
            assert!(length(&about) <= 72, "{name}: {about}");
            for option in command.get_arguments() {
                let id = option.get_id();
                let help = option.get_help().map(ToString::to_string);
                let help = help.unwrap_or_else(|| panic!("{name} {id} has no help"));
                assert!(!help.contains('\n'), "{name} {id}: {help}");
                assert!(length(&help) <= 80, "{name} {id}: {help}");
            }
        }
    }

    #[test]
    fn examples_fit_into_80_columns() {
        for command in all(&command(registry())) {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            for text in texts.into_iter().flatten() {
                let text = text.to_string();
                let long: Vec<&str> = text.lines().filter(|line| length(line) > 80).collect();
                assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
            }
        }
    }

    #[test]
    fn long_help_of_a_measurement_has_details_that_short_help_omits() {
        for entry in registry().entries() {
            let mut command = entry.command();
            let short = command.render_help().to_string();
            let long = command.render_long_help().to_string();
            assert!(
                length(&short) < length(&long) && !short.contains("Examples:"),
                "{short}"
            );
            assert!(long.contains("Examples:"), "{long}");
        }
    }

    #[test]
    fn help_of_compare_lists_every_figure() {
        let help = CompareArgs::after_help(registry());
        let mut group = "";
        let mut listed = Vec::new();
        for word in help
            .split_whitespace()
            .map(|word| word.trim_end_matches(','))
        {
            if let Some(statistic) = word.strip_prefix('.') {
                listed.push(format!("{group}.{statistic}"));
            } else {
                group = word.rsplit_once('.').map_or(word, |(group, _)| group);
                listed.push(word.to_owned());
            }
        }
        for spec in registry().entries().flat_map(|entry| entry.figure_specs()) {
            assert!(listed.iter().any(|name| name == spec.name), "{}", spec.name);
        }
    }

    #[test]
    fn every_default_is_filled_in() {
        for entry in registry().entries() {
            let help = entry.command().render_long_help().to_string();
            assert!(!help.contains("{default}"), "{help}");
        }
    }
}
