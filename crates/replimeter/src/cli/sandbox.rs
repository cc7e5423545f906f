//! `replimeter sandbox`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use replimeter_model::{
    sandbox::{Bandwidth, SandboxName},
    shape::Shape,
    span::Span,
};
use replimeter_run::options::SandboxArgs;

/// `replimeter sandbox`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter sandbox up galera:3
  replimeter sandbox up mysql/semi-sync:2 --name work --link-delay 1ms
  replimeter sandbox exec work replica1 -- mysql -e 'SHOW REPLICA STATUS\\G'
  eval \"$(replimeter sandbox env work)\"
  replimeter lag --sandbox work
  replimeter sandbox link work --cut
  replimeter sandbox down work

A sandbox belongs to a keeper process: however that ends, its servers end with it.")]
pub(crate) struct SandboxCommandArgs {
    #[command(subcommand)]
    pub(crate) command: SandboxCommand,
}

/// What is done with sandboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Start servers and keep them running for your own work
    Up(Box<UpArgs>),
    /// List the sandboxes that are running, with role, port, socket, version and state of each server
    List(ListArgs),
    /// Print URLs and what clients need as shell variables
    Env(EnvArgs),
    /// Run a command with the environment of one server: clients such as mysql reach it without further options
    Exec(ExecArgs),
    /// Show or change the replication links of a sandbox that was started with --link-delay
    Link(LinkArgs),
    /// End sandboxes and remove everything of them
    Down(DownArgs),
    /// The process that keeps a sandbox; started by `up`
    #[command(hide = true)]
    Keep,
    /// The process that ends what a killed sandbox's servers have started
    #[command(hide = true)]
    Guard {
        /// The sandbox's token
        token: String,
    },
}

/// `replimeter sandbox up`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter sandbox up async:2
  replimeter sandbox up semi-sync:1 --wait-point after-sync --name work
  replimeter sandbox up chain:2 --server-option replicas:slave_parallel_threads=4 --link-delay 5ms")]
pub(crate) struct UpArgs {
    /// What to start: [mariadb/|mysql/]MODE:N with none, async:N, semi-sync:N, chain:N, galera:N or group:N
    #[arg(value_name = "SHAPE")]
    pub(crate) shape: Shape,

    /// What to call it [default: after its shape, such as async-2]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<SandboxName>,

    /// Print one JSON document on standard output, as `sandbox list --json` does
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) servers: SandboxArgs,
}

/// `replimeter sandbox list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print one JSON document on standard output instead of the list
    #[arg(long)]
    pub(crate) json: bool,
}

/// `replimeter sandbox env`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eval \"$(replimeter sandbox env work)\"; replimeter lag --topology \"$REPLIMETER_TOPOLOGY\"
  eval \"$(replimeter sandbox env work primary)\"; mysql -u \"$REPLIMETER_USER\"")]
pub(crate) struct EnvArgs {
    /// The sandbox
    #[arg(value_name = "NAME")]
    pub(crate) name: SandboxName,

    /// Print what clients need for this server, instead of the URLs of all
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
}

/// `replimeter sandbox exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter sandbox exec work primary -- mysql
  replimeter sandbox exec work node2 -- mysql -e 'SHOW STATUS LIKE \"wsrep%\"'
  replimeter sandbox exec work replica1 -- sh -c 'mysqldump --all-databases > dump.sql'

The command finds MYSQL_HOST, MYSQL_TCP_PORT, MYSQL_UNIX_PORT, MYSQL_PWD, REPLIMETER_USER and REPLIMETER_URL; and, in
front of its PATH, the clients of the sandbox's own server, which log in by themselves.")]
pub(crate) struct ExecArgs {
    /// The sandbox
    #[arg(value_name = "NAME")]
    pub(crate) name: SandboxName,

    /// The server: primary, replica1 …, node1 …
    #[arg(value_name = "NODE")]
    pub(crate) node: String,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

/// `replimeter sandbox link`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter sandbox link work                       how the links are
  replimeter sandbox link work --delay 20ms --jitter 2ms
  replimeter sandbox link work primary-replica1 --cut
  replimeter sandbox link work --heal --delay 0 --jitter 0")]
pub(crate) struct LinkArgs {
    /// The sandbox
    #[arg(value_name = "NAME")]
    pub(crate) name: SandboxName,

    /// The link [default: all of them]
    #[arg(value_name = "LINK")]
    pub(crate) link: Option<String>,

    /// Sever it: nothing passes, no connection is closed
    #[arg(long, conflicts_with = "heal")]
    pub(crate) cut: bool,

    /// Let everything pass again, what was held first
    #[arg(long)]
    pub(crate) heal: bool,

    /// One-way delay from now on, in each direction
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<Span>,

    /// By how much the delay varies, up and down
    #[arg(long, value_name = "TIME")]
    pub(crate) jitter: Option<Span>,

    /// How much passes, in each direction, such as 100mbit
    #[arg(long, value_name = "BANDWIDTH")]
    pub(crate) bandwidth: Option<Bandwidth>,

    /// Let everything pass that comes
    #[arg(long, conflicts_with = "bandwidth")]
    pub(crate) no_bandwidth: bool,

    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `replimeter sandbox down`.
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// The sandboxes
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub(crate) names: Vec<SandboxName>,

    /// All of them
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
}
