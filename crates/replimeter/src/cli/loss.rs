//! The command lines of `replimeter loss` and `replimeter exposure`.

use clap::{Args, ValueEnum};
use replimeter_model::{
    plan::{Crash, ExposureSpec, LossSpec},
    span::Span,
};

use super::{OutputArgs, Switch, TargetArgs};

/// How the primary ends.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CrashName {
    /// By SIGKILL: what it had sent still arrives
    Kill,
    /// Its links are cut, and a while later it is killed: what it had sent is lost too
    Isolated,
}

/// `replimeter loss`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter loss                                    async:1, five crashes
  replimeter loss --sandbox async:1 --sandbox semi-sync:1 --crash isolated --crashes 20 --link-delay 1ms
  replimeter loss --sandbox mysql/semi-sync:1 --wait-point after-sync
  replimeter loss --sandbox galera:3 --sandbox group:3 --json

Kills database servers, and so takes only sandboxes that it starts and removes itself; every crash has new ones. What a
crash of your own primary would take says `replimeter exposure`. docs/loss.md explains every figure.")]
pub(crate) struct LossArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) measure: LossMeasureArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How it is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measurement")]
pub(crate) struct LossMeasureArgs {
    /// How the primary ends; isolated puts links between the servers [default: kill]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) crash: Option<CrashName>,

    /// Crash so often, each time with new servers; several shapes take turns [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) crashes: Option<u32>,

    /// Write for this long before each crash [default: 1s]
    #[arg(long = "for", id = "duration", value_name = "TIME")]
    pub(crate) duration: Option<Span>,

    /// Insert over so many connections [default: 8]
    #[arg(long, value_name = "N")]
    pub(crate) writers: Option<u32>,

    /// Inserts per second, all writers together [default: back to back]
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<u64>,

    /// Payload bytes of each row [default: 100]
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<u64>,

    /// Isolated: from the cut of the links to the end of the primary, which goes on taking writes meanwhile [default: 200ms]
    #[arg(long, value_name = "TIME")]
    pub(crate) gap: Option<Span>,

    /// Varies the moments of the crashes within a tenth of a second [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Keep this machine's idle cores from halting [default: on]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) keep_awake: Option<Switch>,
}

impl LossMeasureArgs {
    /// The settings for a plan.
    pub(crate) fn spec(&self) -> LossSpec {
        LossSpec {
            crash: self.crash.map(|crash| match crash {
                CrashName::Kill => Crash::Kill,
                CrashName::Isolated => Crash::Isolated,
            }),
            crashes: self.crashes,
            duration: self.duration,
            writers: self.writers,
            rate: self.rate,
            size: self.size,
            gap: self.gap,
            seed: self.seed,
            keep_awake: self.keep_awake.map(Switch::is_on),
        }
    }
}

/// `replimeter exposure`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter exposure --primary mysql://u@db1/ --replica mysql://u@db2/ --replica mysql://u@db3/
  replimeter exposure --topology cluster.toml --for 10m
  replimeter exposure --sandbox async:1 --link-delay 1ms --for 10s

Writes nothing on servers of yours. Needs the binary log and GTIDs on the primary, and the privileges of `tap` there; on the
replicas only the privilege to see their replication status. docs/exposure.md explains every figure.")]
pub(crate) struct ExposureArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) measure: ExposureMeasureArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How it is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measurement")]
pub(crate) struct ExposureMeasureArgs {
    /// Look for this long [default: 60s]
    #[arg(long = "for", id = "duration", value_name = "TIME")]
    pub(crate) duration: Option<Span>,

    /// Give figures for every stretch of this length [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub(crate) every: Option<Span>,

    /// Ask every replica what it has received at such a beat [default: 10ms]
    #[arg(long, value_name = "TIME")]
    pub(crate) look: Option<Span>,

    /// In a sandbox that is started for this: insert over so many connections meanwhile; 0 for none [default: 4]
    #[arg(long, value_name = "N")]
    pub(crate) writers: Option<u32>,

    /// Their inserts per second, all together [default: back to back]
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<u64>,

    /// Payload bytes of each of their rows [default: 100]
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<u64>,

    /// Follow the primary under this server_id, which must be no server's and no replica's [default: a random one]
    #[arg(long, value_name = "ID")]
    pub(crate) server_id: Option<u32>,

    /// Keep this machine's idle cores from halting [default: on for a sandbox]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) keep_awake: Option<Switch>,

    /// Give the few measuring threads real-time priority [default: on where permitted]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) real_time: Option<Switch>,
}

impl ExposureMeasureArgs {
    /// The settings for a plan.
    pub(crate) fn spec(&self) -> ExposureSpec {
        ExposureSpec {
            duration: self.duration,
            every: self.every,
            look: self.look,
            writers: self.writers,
            rate: self.rate,
            size: self.size,
            server_id: self.server_id,
            keep_awake: self.keep_awake.map(Switch::is_on),
            real_time: self.real_time.map(Switch::is_on),
        }
    }
}
