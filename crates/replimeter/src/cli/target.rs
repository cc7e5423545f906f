//! What is measured or examined: flags that several commands share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use replimeter_model::{
    plan::{OneOrMore, TargetSpec},
    sandbox::{Bandwidth, Cpus, NodeOption, SandboxRef, WaitPoint},
    shape::node_name,
    span::Span,
    target::{Endpoint, NodeSpec, PRIMARY, Passwords, Role, replica_name},
    warning::{Warning, WarningCode},
};

use crate::{failure::Failure, topology_file};

/// How the servers of a sandbox are to be.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxArgs {
    /// Start the sandbox's servers with this option, such as sync_binlog=1 for all or replica1:slave_parallel_threads=4 for one (primary, replicas, replica1 …, node1 …); may be repeated
    #[arg(long = "server-option", value_name = "[NODE:]NAME=VALUE")]
    pub(crate) server_options: Vec<NodeOption>,

    /// Take the sandbox's server binaries from this folder only [default: PATH, the usual folders, then the private one of `make servers`]
    #[arg(long, value_name = "DIR")]
    pub(crate) servers: Option<PathBuf>,

    /// Run the replicas on another server than the primary's: its folder, or the beginning of its version as `replimeter servers` lists it
    #[arg(long, value_name = "DIR|VERSION")]
    pub(crate) replica_server: Option<String>,

    /// Semi-synchronous: when the primary waits for its replicas [default: the server's own]
    #[arg(long, value_enum, value_name = "POINT")]
    pub(crate) wait_point: Option<WaitPointName>,

    /// Semi-synchronous MySQL: for how many replicas the primary waits [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) wait_for_replicas: Option<u32>,

    /// Group Replication: every member takes writes
    #[arg(long)]
    pub(crate) multi_primary: bool,

    /// Put a link of ours with this one-way delay, in each direction, between every two servers that replicate, such as 250us or 5ms; 0 for the link alone
    #[arg(long, value_name = "TIME")]
    pub(crate) link_delay: Option<Span>,

    /// Let the links' delay vary by so much, up and down
    #[arg(long, value_name = "TIME")]
    pub(crate) link_jitter: Option<Span>,

    /// Let no more pass through each link, in each direction, such as 100mbit
    #[arg(long, value_name = "BANDWIDTH")]
    pub(crate) link_bandwidth: Option<Bandwidth>,

    /// Load our functions NOW_USEC() and NOW_NSEC() into every server (docs/udf.md)
    #[arg(long)]
    pub(crate) udf: bool,

    /// Turn on the engine FEDERATED in every server
    #[arg(long)]
    pub(crate) federated: bool,

    /// Give each server a fixed share of this machine, in cores: whole ones of its own (1, 2), or a fraction (0.5), which needs a control group that we may make
    #[arg(long, value_name = "N")]
    pub(crate) cpus_per_server: Option<Cpus>,
}

/// When a semi-synchronous primary waits.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WaitPointName {
    /// After the commit in the engine: other clients may see the row before
    AfterCommit,
    /// Before the commit in the engine: nobody sees what no replica has
    AfterSync,
}

impl SandboxArgs {
    /// The settings for a plan.
    pub(crate) fn spec(&self) -> TargetSpec {
        TargetSpec {
            server_options: self.server_options.clone(),
            servers: self.servers.clone(),
            replica_server: self.replica_server.clone(),
            wait_point: self.wait_point.map(|point| match point {
                WaitPointName::AfterCommit => WaitPoint::AfterCommit,
                WaitPointName::AfterSync => WaitPoint::AfterSync,
            }),
            wait_for_replicas: self.wait_for_replicas,
            multi_primary: self.multi_primary,
            link_delay: self.link_delay,
            link_jitter: self.link_jitter,
            link_bandwidth: self.link_bandwidth,
            udf: self.udf,
            federated: self.federated,
            cpus_per_server: self.cpus_per_server,
            ..TargetSpec::default()
        }
    }
}

/// What is measured.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Target")]
pub(crate) struct TargetArgs {
    /// Start servers of our own in this shape and remove them afterwards: [mariadb/|mysql/]MODE:N with none, async:N, semi-sync:N, chain:N, galera:N or group:N [default: async:1]; or take the running sandbox of this name; several are measured one after another (exposure looks at one)
    #[arg(long, value_name = "SHAPE|NAME")]
    pub(crate) sandbox: Vec<SandboxRef>,

    /// The primary of your own: mysql://user@host:3306/?ssl-mode=verify-ca&ssl-ca=FILE (ssl-mode: disabled, preferred, required, verify-ca, verify-identity)
    #[arg(long, value_name = "URL")]
    pub(crate) primary: Option<String>,

    /// A replica of it; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) replica: Vec<String>,

    /// A node of a Galera cluster or a group of your own; may be repeated. Rows are written to the first one, or to the group's primary
    #[arg(long, value_name = "URL", conflicts_with_all = ["primary", "replica"])]
    pub(crate) node: Vec<String>,

    /// A file that names your servers, their URLs and, if you like, their roles; docs/topology.md shows one
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["primary", "replica", "node"])]
    pub(crate) topology: Option<PathBuf>,

    /// Option file with user and password [default: ~/.my.cnf; before it count REPLIMETER_PRIMARY_PASSWORD, REPLIMETER_REPLICA1_PASSWORD …, REPLIMETER_PASSWORD and MYSQL_PWD]
    #[arg(long, value_name = "FILE")]
    pub(crate) defaults_file: Option<PathBuf>,

    /// Ask for a password, one for all servers, at the terminal
    #[arg(long)]
    pub(crate) ask_password: bool,

    #[command(flatten)]
    pub(crate) servers: SandboxArgs,
}

impl TargetArgs {
    /// The target for a plan, and the passwords that its URLs carried.
    pub(crate) fn spec(&self) -> Result<(TargetSpec, Passwords, Vec<Warning>), Failure> {
        let mut passwords = Passwords::new();
        let mut warnings = Vec::new();
        let mut read = |name: String, text: &str| -> Result<Endpoint, Failure> {
            let (endpoint, password) = Endpoint::parse(text).map_err(|error| {
                Failure::usage(error.to_string(), "see `replimeter lag --help`")
            })?;
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
        let primary = self
            .primary
            .as_deref()
            .map(|url| read(PRIMARY.to_owned(), url))
            .transpose()?;
        let replicas = (0..)
            .zip(&self.replica)
            .map(|(index, url)| read(replica_name(index), url))
            .collect::<Result<_, _>>()?;
        let mut nodes = Vec::new();
        for (index, url) in self.node.iter().enumerate() {
            let name = node_name(index);
            let url = read(name.clone(), url)?;
            nodes.push(NodeSpec {
                name,
                role: Some(Role::Node),
                source: None,
                url,
            });
        }
        let mut defaults_file = self.defaults_file.clone();
        if let Some(path) = &self.topology {
            let file = topology_file::read(path)?;
            nodes = file.nodes;
            defaults_file = defaults_file.or(file.defaults_file);
        }
        let spec = TargetSpec {
            sandbox: OneOrMore::of(self.sandbox.iter().map(ToString::to_string).collect()),
            primary,
            replicas,
            nodes,
            defaults_file,
            ..self.servers.spec()
        };
        Ok((spec, passwords, warnings))
    }

    /// Whether a target is named here that replaces a plan's own.
    pub(crate) fn is_given(&self) -> bool {
        !self.sandbox.is_empty()
            || self.primary.is_some()
            || !self.replica.is_empty()
            || !self.node.is_empty()
            || self.topology.is_some()
    }
}
