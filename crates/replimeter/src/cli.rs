//! The command line: each flag is declared once, with its documentation.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use replimeter_model::{
    plan::{LagSpec, Method, Pace, TargetSpec},
    shape::Shape,
    sizes::Sizes,
    span::Span,
    target::{Endpoint, PRIMARY, Passwords, ServerOption, replica_name},
    warning::{Warning, WarningCode},
};

use crate::failure::Failure;

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
  replimeter lag --primary mysql://u@db1/ --replica mysql://u@db2/ --for 60s
  replimeter run plans/size-sweep.toml             a published experiment
  replimeter report replimeter-runs/…              render a run again, no server needed

Exit codes: 0 done, 2 usage, 3 a server, the sandbox or the disk failed, 130 interrupted (partial results kept)."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure how late each replica shows what the primary wrote
    Lag(Box<LagArgs>),
    /// Carry out a plan file; every run keeps its own as plan.toml
    Run(RunArgs),
    /// Render a run again from its directory, without any server
    Report(ReportArgs),
}

/// What is measured.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Target")]
pub(crate) struct TargetArgs {
    /// Start servers of our own in this shape and remove them afterwards: [ENGINE/]async:N, such as async:1 (the default), async:0 or mysql/async:2
    #[arg(long, value_name = "SHAPE", conflicts_with_all = ["primary", "replica"])]
    pub(crate) sandbox: Option<Shape>,

    /// Start the sandbox's servers with this option, such as sync_binlog=1; may be repeated
    #[arg(long = "server-option", value_name = "NAME=VALUE", conflicts_with_all = ["primary", "replica"])]
    pub(crate) server_options: Vec<ServerOption>,

    /// Take the sandbox's server binaries from this folder only [default: PATH, the usual folders, then the private one of `make servers`]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["primary", "replica"])]
    pub(crate) servers: Option<PathBuf>,

    /// The primary of your own: mysql://user@host:3306/?ssl-mode=verify-ca&ssl-ca=FILE (ssl-mode: disabled, preferred, required, verify-ca, verify-identity)
    #[arg(long, value_name = "URL", requires = "replica")]
    pub(crate) primary: Option<String>,

    /// A replica of it; may be repeated
    #[arg(long, value_name = "URL", requires = "primary")]
    pub(crate) replica: Vec<String>,

    /// Option file with user and password [default: ~/.my.cnf; before it count REPLIMETER_PRIMARY_PASSWORD, REPLIMETER_REPLICA1_PASSWORD …, REPLIMETER_PASSWORD and MYSQL_PWD]
    #[arg(long, value_name = "FILE")]
    pub(crate) defaults_file: Option<PathBuf>,

    /// Ask for a password, one for all servers, at the terminal
    #[arg(long)]
    pub(crate) ask_password: bool,
}

/// Where and how results go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Keep the run in this new or empty folder [default: replimeter-runs/TIME-lag]
    #[arg(long, value_name = "DIR")]
    pub(crate) run_dir: Option<PathBuf>,

    /// Print one JSON document on standard output instead of the report
    #[arg(long)]
    pub(crate) json: bool,

    /// Add the raw lines of experiment 1: step, row id, sequence, inserted and fetched (s, µs); needs a sweep over sizes
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
}

/// A switch that defaults by target.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// The method's name on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum MethodName {
    /// Reads in a tight loop
    Poll,
}

/// What the next write waits for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PaceName {
    /// The previous row having been seen on every replica
    Visible,
    /// The previous write's acknowledgement
    Ack,
}

/// `replimeter lag`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter lag --sandbox async:2 --for 60s --every 5ms
  replimeter lag --sizes 1000..10000:1000 --per-step 5 --sweeps 20
  replimeter lag --sandbox async:1 --server-option sync_binlog=1 --server-option innodb_flush_log_at_trx_commit=1
  replimeter lag --primary 'mysql://dba@db1/?ssl-mode=verify-ca&ssl-ca=ca.pem' --replica mysql://dba@db2/ --json

Writes only to the schema `replimeter`, which it makes and drops. The privileges it needs are listed in docs/privileges.md.")]
pub(crate) struct LagArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How it is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measurement")]
pub(crate) struct MeasureArgs {
    /// How the moment is observed at which a replica shows a row
    #[arg(long, value_enum, default_value = "poll")]
    pub(crate) method: MethodName,

    /// Counted rounds [default: 1000]
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "sizes"])]
    pub(crate) rounds: Option<u64>,

    /// Measure for this long instead of a number of rounds, such as 60s
    #[arg(long = "for", id = "duration", value_name = "TIME", conflicts_with = "sizes")]
    pub(crate) duration: Option<Span>,

    /// Write a row at every such beat, whatever became of the one before (open loop) [default: 10ms; without a default in a sweep]
    #[arg(long, value_name = "TIME")]
    pub(crate) every: Option<Span>,

    /// Write the next row when this has happened instead (closed loop) [default in a sweep: ack]
    #[arg(long, value_enum, conflicts_with = "every")]
    pub(crate) pace: Option<PaceName>,

    /// Payload bytes of each row [default: 1000]
    #[arg(long, value_name = "BYTES", conflicts_with = "sizes")]
    pub(crate) size: Option<u64>,

    /// Payload bytes step by step (experiment 1): A..B:STEP, single sizes, or several with commas
    #[arg(long, value_name = "A..B:STEP")]
    pub(crate) sizes: Option<Sizes>,

    /// Rows in each step of a sweep [default: 5]
    #[arg(long, value_name = "N", requires = "sizes")]
    pub(crate) per_step: Option<u32>,

    /// Pause before each step of a sweep [default: 200ms]
    #[arg(long, value_name = "TIME", requires = "sizes")]
    pub(crate) step_pause: Option<Span>,

    /// Repeat the whole sweep so often [default: 1]
    #[arg(long, value_name = "N", requires = "sizes")]
    pub(crate) sweeps: Option<u32>,

    /// Rounds at the beginning that are measured but not counted [default: 50; 0 in a sweep]
    #[arg(long, value_name = "N")]
    pub(crate) warm_up: Option<u64>,

    /// Rounds with the primary observed as its own replica, to know the method's floor; 0 for none [default: 200]
    #[arg(long, value_name = "N")]
    pub(crate) floor_rounds: Option<u64>,

    /// End with an error when a row is not seen for so long (beyond a deliberate delay) [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,

    /// Keep this machine's idle cores from halting, by spinners at idle priority [default: on for a sandbox]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) keep_awake: Option<Switch>,

    /// Give the few measuring threads real-time priority, so that they do not wait behind servers on a busy core [default: on where permitted]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) real_time: Option<Switch>,
}

/// `replimeter run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter run plans/size-sweep.toml --raw
  replimeter run plans/size-sweep.toml --primary mysql://u@db1/ --replica mysql://u@db2/
  replimeter run replimeter-runs/…/plan.toml")]
pub(crate) struct RunArgs {
    /// Plan files, carried out one after another
    #[arg(required = true, value_name = "PLAN.toml")]
    pub(crate) plans: Vec<PathBuf>,

    /// Print each plan with every default made concrete, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `replimeter report`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter report replimeter-runs/20261121T120000Z-lag
  replimeter report replimeter-runs/20261121T120000Z-lag --json")]
pub(crate) struct ReportArgs {
    /// Run directories
    #[arg(required = true, value_name = "RUN_DIR")]
    pub(crate) run_dirs: Vec<PathBuf>,

    /// Print the JSON document instead of the report
    #[arg(long)]
    pub(crate) json: bool,

    /// Add the raw lines of experiment 1
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
}

impl TargetArgs {
    /// The target for a plan, and the passwords that its URLs carried.
    pub(crate) fn spec(&self) -> Result<(TargetSpec, Passwords, Vec<Warning>), Failure> {
        let mut passwords = Passwords::new();
        let mut warnings = Vec::new();
        let mut read = |name: String, text: &str| -> Result<Endpoint, Failure> {
            let (endpoint, password) =
                Endpoint::parse(text).map_err(|error| Failure::usage(error.to_string(), "see `replimeter lag --help`"))?;
            if let Some(password) = password {
                warnings.push(Warning::new(
                    WarningCode::PasswordInUrl,
                    format!(
                        "the URL of {name} carries a password, which other users of this machine can see in the list of processes"
                    ),
                    "put it into an option file (--defaults-file) or into REPLIMETER_PASSWORD",
                ));
                passwords.insert(name, password);
            }
            Ok(endpoint)
        };
        let primary = self.primary.as_deref().map(|url| read(PRIMARY.to_owned(), url)).transpose()?;
        let replicas = (0..).zip(&self.replica).map(|(index, url)| read(replica_name(index), url)).collect::<Result<_, _>>()?;
        let spec = TargetSpec {
            sandbox: self.sandbox.map(|shape| shape.to_string()),
            server_options: self.server_options.clone(),
            servers: self.servers.clone(),
            primary,
            replicas,
            defaults_file: self.defaults_file.clone(),
        };
        Ok((spec, passwords, warnings))
    }

    /// Whether a target is named here that replaces a plan's own.
    pub(crate) fn is_given(&self) -> bool {
        self.sandbox.is_some() || self.primary.is_some()
    }
}

impl MeasureArgs {
    /// The settings for a plan.
    pub(crate) fn spec(&self) -> LagSpec {
        let pace = match (self.every, self.pace) {
            (Some(every), _) => Some(Pace::Every(every)),
            (None, Some(PaceName::Visible)) => Some(Pace::Visible),
            (None, Some(PaceName::Ack)) => Some(Pace::Ack),
            (None, None) => None,
        };
        LagSpec {
            method: match self.method {
                MethodName::Poll => Method::Poll,
            },
            rounds: self.rounds,
            duration: self.duration,
            pace,
            size: self.size,
            sizes: self.sizes.clone(),
            per_step: self.per_step,
            step_pause: self.step_pause,
            sweeps: self.sweeps,
            warm_up: self.warm_up,
            floor_rounds: self.floor_rounds,
            timeout: self.timeout,
            keep_awake: self.keep_awake.map(|switch| matches!(switch, Switch::On)),
            real_time: self.real_time.map(|switch| matches!(switch, Switch::On)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
