//! The command line: each flag is declared once, with its documentation.

mod compare;
mod cost;
mod load;
mod loading;
mod loss;
mod program;
mod reproduce;
mod sandbox;
mod scale;
mod servers;
mod stale;
mod tap;
mod target;

use std::{io::Read, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use replimeter_model::{
    plan::{CalibrateSpec, Join, LagSpec, Methods, OneOrMore, Pace, PlanFile, TargetSpec},
    sandbox::SandboxRef,
    sizes::Sizes,
    span::Span,
};

use crate::failure::Failure;

pub(crate) use self::{
    compare::CompareArgs,
    cost::CostArgs,
    load::LoadArgs,
    loading::LoadingArgs,
    loss::{ExposureArgs, LossArgs},
    program::{CompletionsArgs, ManArgs, SchemaArgs},
    reproduce::{Extent, ReproduceArgs},
    sandbox::{
        DownArgs, EnvArgs, ExecArgs, LinkArgs, ListArgs, SandboxCommand, SandboxCommandArgs, UpArgs,
    },
    scale::ScaleArgs,
    servers::{AddArgs, ServersArgs, ServersCommand},
    stale::StaleArgs,
    tap::{Stream, TapArgs},
    target::{SandboxArgs, TargetArgs},
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
  replimeter lag --primary mysql://u@db1/ --replica mysql://u@db2/ --for 60s
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

Exit codes: 0 done, 1 the measurement is void, 2 usage, 3 a server, the sandbox or the disk failed, 130 interrupted (partial results kept)."
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
    /// Inject known delays into a sandbox's replication and say what each method makes of them: the tool's own error
    Calibrate(Box<CalibrateArgs>),
    /// Follow the binary logs and say how late every transaction of the real traffic is; writes nothing
    Tap(Box<TapArgs>),
    /// Run a workload by itself and say how much the servers do: operations per second, their times, and what it costs the client
    Load(Box<LoadingArgs>),
    /// Measure what each read replica costs the writes and gives the reads, on sandboxes with more and more of them
    Scale(Box<ScaleArgs>),
    /// Measure what each mode of replication costs: throughput, latency and processor time against a lone server, with intervals
    Cost(Box<CostArgs>),
    /// Measure how often a read misses a write that was just acknowledged, and for how long
    Stale(Box<StaleArgs>),
    /// Kill the primary of a sandbox under load and count what died with it: acknowledged transactions that no replica has
    Loss(Box<LossArgs>),
    /// Say what a crash of the primary would take at any moment: acknowledged transactions that no replica has received; writes nothing
    Exposure(Box<ExposureArgs>),
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

/// Where and how results go.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Keep the run in this new or empty folder [default: replimeter-runs/TIME-COMMAND]
    #[arg(long, value_name = "DIR")]
    pub(crate) run_dir: Option<PathBuf>,

    /// Print one JSON document on standard output instead of the report
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the report as Markdown, for a ticket; it is also kept as report.md
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,

    /// Print the rows of the results as CSV; docs/formats.md explains the columns
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    pub(crate) csv: bool,

    /// What a [sweep](SweepOutputArgs) adds: the raw lines of experiment 1.
    #[arg(skip)]
    pub(crate) raw: bool,

    /// Print nothing: the run is part of another.
    #[arg(skip)]
    pub(crate) silent: bool,
}

/// The same where there may be a sweep over sizes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct SweepOutputArgs {
    #[command(flatten)]
    output: OutputArgs,

    /// Add the raw lines of experiment 1: step, row id, sequence, inserted and fetched (s, µs); needs a sweep over sizes
    #[arg(long, conflicts_with_all = ["json", "markdown", "csv"])]
    raw: bool,
}

impl SweepOutputArgs {
    /// Where and how results go.
    pub(crate) fn output(&self) -> OutputArgs {
        OutputArgs {
            raw: self.raw,
            ..self.output.clone()
        }
    }
}

/// What a report is printed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people at a terminal; `raw` adds experiment 1's raw lines.
    Text {
        raw: bool,
    },
    Json,
    Markdown,
    /// Nothing at all.
    Silent,
    Csv,
}

impl Form {
    fn of(json: bool, markdown: bool, csv: bool, raw: bool) -> Self {
        match (json, markdown, csv) {
            (true, ..) => Self::Json,
            (_, true, _) => Self::Markdown,
            (.., true) => Self::Csv,
            _ => Self::Text { raw },
        }
    }
}

impl OutputArgs {
    /// What the report is printed as.
    pub(crate) fn form(&self) -> Form {
        if self.silent {
            Form::Silent
        } else {
            Form::of(self.json, self.markdown, self.csv, self.raw)
        }
    }

    /// For every plan whose runs have no sweep.
    pub(crate) fn refuse_raw(&self) -> Result<(), Failure> {
        if self.raw {
            Err(Failure::usage(
                "--raw is for a sweep over sizes",
                "leave it out",
            ))
        } else {
            Ok(())
        }
    }
}

/// A switch that defaults by target.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

/// Where stamps are joined.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum JoinName {
    /// Here
    Client,
    /// In the replica
    Federated,
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
  replimeter lag --sandbox mysql/async:1 --method all
  replimeter lag --method tap --writers 8 --every 100us --for 30s
  replimeter lag --sizes 1000..10000:1000 --per-step 5 --sweeps 20
  replimeter lag --sandbox async:1 --server-option sync_binlog=1 --server-option innodb_flush_log_at_trx_commit=1
  replimeter lag --sandbox semi-sync:2 --wait-point after-sync --link-delay 1ms
  replimeter lag --sandbox async:1 --sandbox galera:3 --sandbox mysql/group:3
  replimeter lag --topology cluster.toml --for 60s
  replimeter lag --for 60s --load insert:8@primary --rate 2000
  replimeter lag --backlog 30s --workers 1,2,4
  replimeter lag --primary 'mysql://dba@db1/?ssl-mode=verify-ca&ssl-ca=ca.pem' --replica mysql://dba@db2/ --json

Writes only to the schema `replimeter`, which it makes and drops. The privileges it needs are listed in docs/privileges.md.")]
pub(crate) struct LagArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    #[command(flatten)]
    pub(crate) load: LoadArgs,

    #[command(flatten)]
    pub(crate) output: SweepOutputArgs,
}

/// How it is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measurement")]
pub(crate) struct MeasureArgs {
    /// How the moment is observed at which a row is there: poll (read in a tight loop), wait (for its GTID, in the replica), stamp (the time at which the statement ran on each, by SYSDATE), stamp-udf (the same by NOW_USEC), tap (follow both binary logs); several with commas, or all that the servers permit
    #[arg(long, value_name = "METHOD[,…]|all", default_value = "poll")]
    pub(crate) method: Methods,

    /// Write over so many connections beside one another
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) writers: u32,

    /// Also observe the stages of each transaction (in binlog, received, applied, visible) by asking the replica all the time; on MariaDB `in binlog` needs --method poll,tap
    #[arg(long)]
    pub(crate) stages: bool,

    /// Where the stamps of both servers are joined; federated: in the replica, through a FEDERATED table that is made there, as published. Its definition holds the password while it exists [default: client]
    #[arg(long, value_enum, value_name = "WHERE")]
    pub(crate) join: Option<JoinName>,

    /// Counted rounds [default: 1000]
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "sizes"])]
    pub(crate) rounds: Option<u64>,

    /// Measure for this long instead of a number of rounds, such as 60s
    #[arg(
        long = "for",
        id = "duration",
        value_name = "TIME",
        conflicts_with = "sizes"
    )]
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

/// `replimeter calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter calibrate
  replimeter calibrate --sandbox mysql/async:1 --method poll,wait,tap
  replimeter calibrate --delays 0,1ms,10ms --rounds 500 --json")]
pub(crate) struct CalibrateArgs {
    /// Start servers of our own in this shape and remove them afterwards: [mariadb/|mysql/]async:N
    #[arg(
        long,
        value_name = "SHAPE",
        default_value = "async:1",
        help_heading = "Target"
    )]
    pub(crate) sandbox: SandboxRef,

    #[command(flatten)]
    pub(crate) servers: SandboxArgs,

    /// How the arrival of a row is observed, as for `lag`
    #[arg(
        long,
        value_name = "METHOD[,…]|all",
        default_value = "all",
        help_heading = "Measurement"
    )]
    pub(crate) method: Methods,

    /// One-way delays of the link between primary and replica; 0 is always among them [default: 0,500us,1ms,5ms,20ms,100ms]
    #[arg(
        long,
        value_name = "TIME,…",
        value_delimiter = ',',
        help_heading = "Measurement"
    )]
    pub(crate) delays: Vec<Span>,

    /// Rounds at each delay, each time it has its turn [default: 200]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) rounds: Option<u64>,

    /// How often all delays have their turn, there and back again [default: 4]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) repeats: Option<u32>,

    /// Time from one row to the next [default: 13ms, of which no default delay is near a multiple]
    #[arg(long, value_name = "TIME", help_heading = "Measurement")]
    pub(crate) every: Option<Span>,

    /// Keep this machine's idle cores from halting [default: on]
    #[arg(long, value_enum, value_name = "ON|OFF", help_heading = "Measurement")]
    pub(crate) keep_awake: Option<Switch>,

    /// Give the few measuring threads real-time priority [default: on where permitted]
    #[arg(long, value_enum, value_name = "ON|OFF", help_heading = "Measurement")]
    pub(crate) real_time: Option<Switch>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl CalibrateArgs {
    /// The plan.
    pub(crate) fn plan(&self) -> PlanFile {
        let target = TargetSpec {
            sandbox: Some(OneOrMore::One(self.sandbox.to_string())),
            ..self.servers.spec()
        };
        let calibrate = CalibrateSpec {
            method: Some(self.method.clone()),
            delays: Some(self.delays.clone()).filter(|delays| !delays.is_empty()),
            rounds: self.rounds,
            repeats: self.repeats,
            every: self.every,
            keep_awake: self.keep_awake.map(Switch::is_on),
            real_time: self.real_time.map(Switch::is_on),
        };
        PlanFile::calibrate(target, calibrate)
    }
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
3 a server could not be examined. docs/doctor.md explains every finding.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// Print one JSON document on standard output instead of the findings
    #[arg(long)]
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
            method: self.method.clone(),
            writers: Some(self.writers),
            stages: Some(self.stages),
            join: self.join.map(|join| match join {
                JoinName::Client => Join::Client,
                JoinName::Federated => Join::Federated,
            }),
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
            keep_awake: self.keep_awake.map(Switch::is_on),
            real_time: self.real_time.map(Switch::is_on),
            ..LagSpec::default()
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
