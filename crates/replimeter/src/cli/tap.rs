//! The command line of `replimeter tap`.

use clap::{Args, ValueEnum};
use replimeter_model::{
    plan::{By, TapSpec},
    span::Span,
};

use super::{OutputArgs, Switch, TargetArgs};

/// What lag is broken down by.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ByName {
    Schema,
    Table,
}

/// A form for other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stream {
    /// A header, then a line for each replica and stretch
    Csv,
    /// An exposition for each stretch, in OpenMetrics' text format
    Openmetrics,
}

/// `replimeter tap`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter tap --primary mysql://u@db1/ --replica mysql://u@db2/
  replimeter tap --topology cluster.toml --for 10m --by table
  replimeter tap --sandbox work --only shop --except shop.sessions
  replimeter tap --primary mysql://u@db1/ --replica mysql://u@db2/ --stream csv > lag.csv

Writes nothing on any server. Needs binary logs and GTIDs on the primary and on every replica, and the privilege
REPLICATION SLAVE; docs/tap.md and docs/privileges.md say more. Without --for it runs until Ctrl-C, which is then
its proper end.")]
pub(crate) struct TapArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    #[command(flatten)]
    pub(crate) measure: TapMeasureArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Print the figures of every stretch on standard output as they come, and no report at the end
    #[arg(long, value_enum, value_name = "FORM", conflicts_with_all = ["json", "markdown"], help_heading = "Output")]
    pub(crate) stream: Option<Stream>,
}

/// How it is measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measurement")]
pub(crate) struct TapMeasureArgs {
    /// Follow for this long, such as 60s [default: until Ctrl-C]
    #[arg(long = "for", id = "duration", value_name = "TIME")]
    pub(crate) duration: Option<Span>,

    /// Give figures for every stretch of this length; given explicitly, they are shown on standard error where that is no terminal too [default: 1s]
    #[arg(long, value_name = "TIME")]
    pub(crate) every: Option<Span>,

    /// Break lag down by the schemas or tables that transactions touch
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) by: Option<ByName>,

    /// Only transactions that touch this schema, or this table as SCHEMA.TABLE; may be repeated
    #[arg(long, value_name = "NAME", alias = "schema", alias = "table")]
    pub(crate) only: Vec<String>,

    /// No transactions that touch nothing but this schema or table; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) except: Vec<String>,

    /// Follow the primary twice for so long, to know the method's own error; 0 for not at all [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub(crate) floor: Option<Span>,

    /// Rest for so long after what has arrived was read, such as 1ms: costs less processor time under heavy traffic, and every stamp is late by up to that [default: 0]
    #[arg(long, value_name = "TIME")]
    pub(crate) rest: Option<Span>,

    /// Follow under this server_id and those above it, which must be no server's and no replica's [default: random ones]
    #[arg(long, value_name = "ID")]
    pub(crate) server_id: Option<u32>,

    /// Keep this machine's idle cores from halting, by spinners at idle priority [default: on for a sandbox]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) keep_awake: Option<Switch>,

    /// Give the few measuring threads real-time priority, so that they do not wait behind servers on a busy core [default: on where permitted]
    #[arg(long, value_enum, value_name = "ON|OFF")]
    pub(crate) real_time: Option<Switch>,
}

impl TapMeasureArgs {
    /// The settings for a plan.
    pub(crate) fn spec(&self) -> TapSpec {
        TapSpec {
            duration: self.duration,
            every: self.every,
            floor: self.floor,
            by: self.by.map(|by| match by {
                ByName::Schema => By::Schema,
                ByName::Table => By::Table,
            }),
            only: self.only.clone(),
            except: self.except.clone(),
            rest: self.rest,
            server_id: self.server_id,
            keep_awake: self.keep_awake.map(Switch::is_on),
            real_time: self.real_time.map(Switch::is_on),
        }
    }
}
