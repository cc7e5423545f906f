//! `replimeter sandbox`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use replimeter_model::{
    sandbox::{Bandwidth, SandboxName},
    shape::Shape,
    time_span::TimeSpan,
};
use replimeter_run::options::{FormArgs, SandboxArgs};

/// `replimeter sandbox`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  replimeter sandbox up galera:3
  replimeter sandbox up mysql/semi-sync:2 --name work --link-delay 1ms
  replimeter sandbox exec work replica1 -- mysql -E -e 'SHOW REPLICA STATUS'
  eval \"$(replimeter sandbox env work)\"
  replimeter lag --sandbox work
  replimeter sandbox link work --cut
  replimeter sandbox down work

A sandbox belongs to a supervisor process: when that ends, its servers end with
it.")]
pub(crate) struct SandboxCommandArgs {
    #[command(subcommand)]
    pub(crate) command: SandboxCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Start servers and keep them running for your own work
    Up(Box<UpArgs>),
    /// List the running sandboxes and their servers
    List(ListArgs),
    /// Print shell variables for clients, or the URLs of all servers
    Env(EnvArgs),
    /// Run a command, such as mysql, with the environment of one server
    Exec(ExecArgs),
    /// Show or change the replication links of a sandbox
    Link(LinkArgs),
    /// Stop sandboxes and remove all their files
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
    /// The process that restores the applier that a killed backlog stopped
    #[command(hide = true)]
    RestoreApplier,
}

/// `replimeter sandbox up`.
#[derive(Debug, Args)]
#[command(mut_arg("json", |json| json.help("Print one JSON document, as `sandbox list --json` does")))]
#[command(after_long_help = "\
Examples:
  replimeter sandbox up async:2
  replimeter sandbox up semi-sync:1 --wait-point after-sync --name work
  replimeter sandbox up chain:2 --link-delay 5ms
  replimeter sandbox up async:2 --server-option replica1:sync_binlog=0")]
pub(crate) struct UpArgs {
    /// Shape of servers to start: [mariadb/|mysql/]MODE:N
    ///
    /// The modes are none, async:N, semi-sync:N, chain:N, galera:N and group:N.
    #[arg(value_name = "SHAPE")]
    pub(crate) shape: Shape,

    /// Name of the sandbox [default: after its shape, such as async-2]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<SandboxName>,

    #[command(flatten)]
    pub(crate) servers: SandboxArgs,

    #[command(flatten)]
    pub(crate) form: FormArgs<1>,
}

/// `replimeter sandbox list`.
#[derive(Debug, Args)]
#[command(mut_arg("json", |json| json.help("Print one JSON document instead of the list")))]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) form: FormArgs<1>,
}

/// `replimeter sandbox env`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  eval \"$(replimeter sandbox env work)\"
  replimeter lag --topology \"$REPLIMETER_TOPOLOGY\"
  eval \"$(replimeter sandbox env work primary)\"
  mysql -u \"$REPLIMETER_USER\"")]
pub(crate) struct EnvArgs {
    /// The sandbox
    #[arg(value_name = "NAME")]
    pub(crate) name: SandboxName,

    /// Print the variables for this server, instead of the URLs of all
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
}

/// `replimeter sandbox exec`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  replimeter sandbox exec work primary -- mysql
  replimeter sandbox exec work node2 -- mysql -e 'SHOW STATUS LIKE \"wsrep%\"'
  replimeter sandbox exec work replica1 -- sh -c 'mysqldump shop > dump.sql'

The command finds MYSQL_HOST, MYSQL_TCP_PORT, MYSQL_UNIX_PORT, MYSQL_PWD,
REPLIMETER_USER and REPLIMETER_URL; and, in front of its PATH, the clients of
the sandbox's own server, which log in without options.")]
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
#[command(after_long_help = "\
Examples:
  replimeter sandbox link work
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

    /// Cut the link: nothing passes, no connection is closed
    #[arg(long, conflicts_with = "heal")]
    pub(crate) cut: bool,

    /// Heal the link: what was held back passes first
    #[arg(long)]
    pub(crate) heal: bool,

    /// One-way delay from now on, in each direction
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<TimeSpan>,

    /// Vary the delay by up to this time, up and down
    #[arg(long, value_name = "TIME")]
    pub(crate) jitter: Option<TimeSpan>,

    /// Limit the bandwidth, in each direction, such as 100mbit
    #[arg(long, value_name = "BANDWIDTH")]
    pub(crate) bandwidth: Option<Bandwidth>,

    /// Remove the limit of the bandwidth
    #[arg(long, conflicts_with = "bandwidth")]
    pub(crate) no_bandwidth: bool,

    #[command(flatten)]
    pub(crate) form: FormArgs<1>,
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
