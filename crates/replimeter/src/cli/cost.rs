//! The command line of `replimeter cost`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use replimeter_model::{
    cost::{CostModes, Durability},
    load::{BUILT_IN, Size},
    plan::{CostSpec, PlanFile, TargetSpec},
    sandbox::{Bandwidth, Cpus, NodeOption, WaitPoint},
    span::Span,
};

use super::{OutputArgs, Switch, target::WaitPointName};

/// How much of a commit is on the disk when it is acknowledged.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DurabilityName {
    /// innodb_flush_log_at_trx_commit=2, sync_binlog=0
    Relaxed,
    /// innodb_flush_log_at_trx_commit=1, sync_binlog=1
    Strict,
    /// Nothing is set
    ServerDefault,
}

/// `replimeter cost`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter cost
  replimeter cost --modes none,async,semi-sync --threads 1 --for 30s
  replimeter cost --modes mysql/async,mysql/semi-sync,group:3 --durability strict
  replimeter cost --modes semi-sync,galera --link-delay 0,1ms,10ms --threads 1
  replimeter cost --workload oltp-mix --size 100MB --threads 8 --json
  replimeter cost --modes async --self-test
  replimeter run plans/semi-sync-cost.toml

Servers are started for each mode and removed afterwards; yours are never touched. docs/cost.md explains the figures.")]
pub(crate) struct CostArgs {
    /// Which modes: none (no binary log), binlog, async, semi-sync (with both wait points), galera (MariaDB), group (MySQL), each as MODE, MODE:N or ENGINE/MODE:N; `none` of the same binary is added where it is missing [default: all that the servers found here can do]
    #[arg(long, value_name = "MODE,…|all", help_heading = "Modes")]
    pub(crate) modes: Option<CostModes>,

    /// Replicas of the modes that do not say how many; clusters have one member more [default: 1]
    #[arg(long, value_name = "N", help_heading = "Modes")]
    pub(crate) replicas: Option<u32>,

    /// Semi-synchronous: only this wait point
    #[arg(long, value_enum, value_name = "POINT", help_heading = "Modes")]
    pub(crate) wait_point: Option<WaitPointName>,

    /// How much of a commit is on the disk when it is acknowledged, for all modes alike [default: relaxed]
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Modes")]
    pub(crate) durability: Option<DurabilityName>,

    /// Put links of ours between the servers and measure at each of these one-way delays, such as 0,1ms,10ms; 0 is the link alone [default: no links]
    #[arg(
        long,
        value_name = "TIME,…",
        value_delimiter = ',',
        help_heading = "Modes"
    )]
    pub(crate) link_delay: Vec<Span>,

    /// Let no more pass through each link, in each direction, such as 100mbit
    #[arg(long, value_name = "BANDWIDTH", help_heading = "Modes")]
    pub(crate) link_bandwidth: Option<Bandwidth>,

    /// Start servers with this option, such as innodb_flush_method=O_DIRECT for all or replica1:slave_parallel_threads=4 for one; may be repeated
    #[arg(
        long = "server-option",
        value_name = "[NODE:]NAME=VALUE",
        help_heading = "Modes"
    )]
    pub(crate) server_options: Vec<NodeOption>,

    /// Take server binaries from this folder only
    #[arg(long, value_name = "DIR", help_heading = "Modes")]
    pub(crate) servers: Option<PathBuf>,

    /// Give each server this share of the machine, in cores, and no more
    #[arg(long, value_name = "N", help_heading = "Modes")]
    pub(crate) cpus_per_server: Option<Cpus>,

    /// Numbers of connections, one after another [default: 1,8]
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        help_heading = "Measurement"
    )]
    pub(crate) threads: Vec<u32>,

    /// Counted time of each mode at each number of threads (and each distance), over all its starts together [default: 30s]
    #[arg(long = "for", value_name = "TIME", help_heading = "Measurement")]
    pub(crate) duration: Option<Span>,

    /// Fresh starts of each mode; with fewer than 4 intervals are wide, with one there are none [default: 5]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) starts: Option<u32>,

    /// About how long a block is [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Measurement")]
    pub(crate) block: Option<Span>,

    /// How long the load runs before it counts, each time [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Measurement")]
    pub(crate) ramp: Option<Span>,

    /// What is run: a workload of ours (docs/load.md lists them), or the path of a file [default: insert]
    #[arg(long, value_name = "WORKLOAD", help_heading = "Measurement")]
    pub(crate) workload: Option<String>,

    /// How much data the workload's tables hold, such as 300MB or 10000rows [default: the workload's own]
    #[arg(long, value_name = "SIZE", help_heading = "Measurement")]
    pub(crate) size: Option<Size>,

    /// What shuffles the modes in each round [default: 1]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) seed: Option<u64>,

    /// Compare the first mode with itself so often, each time fresh starts against fresh starts, and test whether differences are found significantly more often than in 5 % [default number: 20]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20", help_heading = "Measurement")]
    pub(crate) self_test: Option<u32>,

    /// Keep this machine's idle cores from halting [default: on]
    #[arg(long, value_enum, value_name = "ON|OFF", help_heading = "Measurement")]
    pub(crate) keep_awake: Option<Switch>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl CostArgs {
    /// The plan.
    pub(crate) fn plan(&self) -> PlanFile {
        let target = TargetSpec {
            server_options: self.server_options.clone(),
            servers: self.servers.clone(),
            wait_point: self.wait_point.map(|point| match point {
                WaitPointName::AfterCommit => WaitPoint::AfterCommit,
                WaitPointName::AfterSync => WaitPoint::AfterSync,
            }),
            link_bandwidth: self.link_bandwidth,
            cpus_per_server: self.cpus_per_server,
            ..TargetSpec::default()
        };
        let cost = CostSpec {
            modes: self.modes.clone(),
            threads: Some(self.threads.clone()).filter(|threads| !threads.is_empty()),
            duration: self.duration,
            starts: self.starts,
            block: self.block,
            ramp: self.ramp,
            durability: self.durability.map(|durability| match durability {
                DurabilityName::Relaxed => Durability::Relaxed,
                DurabilityName::Strict => Durability::Strict,
                DurabilityName::ServerDefault => Durability::ServerDefault,
            }),
            link_delays: self.link_delay.clone(),
            workload: self.workload.clone().map(found_from_anywhere),
            size: self.size,
            replicas: self.replicas,
            seed: self.seed,
            self_test: self.self_test,
            keep_awake: self.keep_awake.map(Switch::is_on),
        };
        PlanFile::cost(target, cost)
    }
}

/// A file by its whole path, so that a run's own plan runs from every folder.
fn found_from_anywhere(workload: String) -> String {
    if BUILT_IN.contains(&workload.as_str()) {
        return workload;
    }
    let path = std::path::absolute(&workload)
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok());
    path.unwrap_or(workload)
}
