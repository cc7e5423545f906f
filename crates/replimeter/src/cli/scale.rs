//! The command line of `replimeter scale`.

use clap::Args;
use replimeter_model::{
    load::{Reads, Size},
    plan::{PlanFile, Replicas, ScaleMode, ScaleSpec},
    span::Span,
};

use super::{OutputArgs, SandboxArgs, Switch};

/// `replimeter scale`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter scale                                       0, 1 and 2 replicas; some minutes
  replimeter scale --starts 1 --for 3s                   a first look, without intervals
  replimeter scale --replicas 0..4 --starts 4 --check-prediction
                                                         with a fitted law, and its prediction for 5 replicas measured
  replimeter scale --mode mysql/semi-sync --updates --reads all
  replimeter scale --cpus-per-server 0.4                 each server a fixed share of this machine
  replimeter run plans/read-replica-scaling.toml         the published experiment

Starts servers of its own for every number of replicas, and removes them. docs/scale.md explains the figures.")]
pub(crate) struct ScaleArgs {
    /// Numbers of replicas: A..B, or several with commas [default: 0..2]
    #[arg(long, value_name = "A..B", help_heading = "Measurement")]
    pub(crate) replicas: Option<Replicas>,

    /// How they follow the primary: [mariadb/|mysql/]async, semi-sync or chain [default: async]
    #[arg(long, value_name = "MODE", help_heading = "Measurement")]
    pub(crate) mode: Option<ScaleMode>,

    /// Clients that write, and as many that read, back to back [default: 10]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) threads: Option<u32>,

    /// How long each block is counted [default: 5s]
    #[arg(long = "for", value_name = "TIME", help_heading = "Measurement")]
    pub(crate) duration: Option<Span>,

    /// How long a block runs before it is counted [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Measurement")]
    pub(crate) warm_up: Option<Span>,

    /// Blocks of each phase on each start [default: 1]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) blocks: Option<u32>,

    /// How often each number of replicas is started afresh; intervals need two, good ones four [default: 3]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) starts: Option<u32>,

    /// The data set: rows, or bytes with a unit; 300MB in the published experiment [default: 20MB]
    #[arg(long, value_name = "SIZE", help_heading = "Measurement")]
    pub(crate) size: Option<Size>,

    /// Which servers are read from: replicas (the primary where there is none), primary, all [default: replicas]
    #[arg(long, value_name = "WHERE", help_heading = "Measurement")]
    pub(crate) reads: Option<Reads>,

    /// Measure updates beside the inserts: alone, and while selecting
    #[arg(long, help_heading = "Measurement")]
    pub(crate) updates: bool,

    /// Measure one more replica than asked for, and hold the fitted law's prediction against it; needs five numbers of replicas
    #[arg(long, help_heading = "Measurement")]
    pub(crate) check_prediction: bool,

    /// Decides the order in which numbers of replicas have their turn [default: 1]
    #[arg(long, value_name = "N", help_heading = "Measurement")]
    pub(crate) seed: Option<u64>,

    /// Keep this machine's idle cores from halting [default: on]
    #[arg(long, value_enum, value_name = "ON|OFF", help_heading = "Measurement")]
    pub(crate) keep_awake: Option<Switch>,

    #[command(flatten)]
    pub(crate) servers: SandboxArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl ScaleArgs {
    /// The plan.
    pub(crate) fn plan(&self) -> PlanFile {
        let scale = ScaleSpec {
            mode: self.mode,
            replicas: self.replicas.clone(),
            threads: self.threads,
            duration: self.duration,
            warm_up: self.warm_up,
            blocks: self.blocks,
            starts: self.starts,
            size: self.size,
            reads: self.reads,
            updates: self.updates.then_some(true),
            check_prediction: self.check_prediction.then_some(true),
            seed: self.seed,
            keep_awake: self.keep_awake.map(Switch::is_on),
        };
        PlanFile::scale(self.servers.spec(), scale)
    }
}
