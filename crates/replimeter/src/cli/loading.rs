//! The command line of `replimeter load`.

use clap::Args;
use replimeter_model::{
    load::{Arrivals, Reads, Size},
    plan::{LoadingSpec, OneOrMore},
    span::Span,
};

use super::{OutputArgs, Switch, TargetArgs, load::path_of_workload};

/// `replimeter load`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter load --workload point-select --threads 1,8,64
  replimeter load --sandbox async:2 --workload post-insert --workload select --for 60s
  replimeter load --workload insert --threads 16 --rate 2000 --arrivals poisson
  replimeter load --primary mysql://u@db1/ --workload orders.toml --size 1GB --keep-data

Workloads: insert, select, post-insert, point-select, oltp-mix, update-key, big-update, mix, or the path of a file:
statements with typed parameters (.toml) or a script (anything else); docs/load.md explains both. The data is made in
the schema `replimeter` and removed at the end. A workload of which every statement reads goes to the replicas.")]
pub(crate) struct LoadingArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) measure: LoadingMeasureArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How it is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadingMeasureArgs {
    /// What is run: a workload by its name or the path of its file; several run beside one another [default: insert]
    #[arg(long, value_name = "WORKLOAD")]
    pub(crate) workload: Vec<String>,

    /// Connections of each workload, a thread each; several numbers are tried one after another [default: 8]
    #[arg(long, value_name = "T,…", value_delimiter = ',')]
    pub(crate) threads: Vec<u32>,

    /// Begin so many operations of each workload per second, whatever became of the ones before (open loop) [default: each thread back to back, a closed loop]
    #[arg(long, value_name = "R")]
    pub(crate) rate: Option<u64>,

    /// When the operations of a rate are due: constant, or poisson as many independent users would come [default: constant]
    #[arg(long, value_name = "HOW", requires = "rate")]
    pub(crate) arrivals: Option<Arrivals>,

    /// Count for so long [default: 30s]
    #[arg(long = "for", id = "duration", value_name = "TIME")]
    pub(crate) duration: Option<Span>,

    /// Run for so long before it is counted [default: 2s]
    #[arg(long, value_name = "TIME")]
    pub(crate) ramp: Option<Span>,

    /// How much data: rows, such as 100000, or bytes on the disk, such as 300MB [default: what the workload says]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,

    /// Where workloads go of which every statement reads: replicas, primary or all [default: replicas]
    #[arg(long, value_name = "WHERE")]
    pub(crate) reads: Option<Reads>,

    /// Leave the data for a later run, which finds it when it asks for the same size
    #[arg(long)]
    pub(crate) keep_data: bool,

    /// Wait so long for replicas to receive the data [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,

    /// Keep this machine's idle cores from halting, by spinners at idle priority [default: on for a sandbox]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) keep_awake: Option<Switch>,
}

impl LoadingMeasureArgs {
    /// The settings for a plan.
    pub(crate) fn spec(&self) -> LoadingSpec {
        LoadingSpec {
            workload: OneOrMore::of(
                self.workload
                    .iter()
                    .map(|name| path_of_workload(name))
                    .collect(),
            ),
            threads: OneOrMore::of(self.threads.clone()),
            rate: self.rate,
            arrivals: self.arrivals,
            duration: self.duration,
            ramp: self.ramp,
            size: self.size,
            reads: self.reads,
            keep_data: self.keep_data,
            timeout: self.timeout,
            keep_awake: self.keep_awake.map(Switch::is_on),
        }
    }
}
