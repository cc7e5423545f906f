//! The target: the servers to measure.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlanError, contradiction, one_or_more::OneOrMore, units};
use crate::{
    sandbox::{Bandwidth, Cpus, LinkSpec, SandboxRef, SandboxSpec, WaitPoint},
    server_option::NodeOption,
    shape::Shape,
    target::{Endpoint, NodeSpec, PRIMARY, Role, Target, replica_name},
    time_span::TimeSpan,
};

/// The target, as command line and plan files have it. The URLs of the user's servers with passwords are options of
/// the command line alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Sandbox")]
pub struct TargetSettings {
    /// Shape to start, or running sandbox; may be repeated [default: async:1]
    ///
    /// A shape is `[mariadb/|mysql/]MODE:N` with the modes none, async:N, semi-sync:N, chain:N, galera:N and
    /// group:N; its servers are removed after the run. A running sandbox stays. Several are measured one after
    /// another.
    #[arg(long, value_name = "SHAPE|NAME", help_heading = "Target")]
    #[serde(
        with = "OneOrMore::<SandboxRef>",
        skip_serializing_if = "Option::is_none"
    )]
    pub sandbox: Option<Vec<SandboxRef>>,

    /// Start the sandbox's servers with this option; may be repeated
    ///
    /// `sync_binlog=1` is for all servers, `replica1:slave_parallel_threads=4` for one. NODE is primary, replicas,
    /// replica1 …, or node1 ….
    #[arg(long = "server-option", value_name = "[NODE:]NAME=VALUE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_options: Vec<NodeOption>,

    /// Start the servers of this directory only [default: all that are found]
    ///
    /// Without it they are searched in PATH, in the usual directories and in the private one (REPLIMETER_HOME), which
    /// `replimeter servers add` fills. `replimeter servers` lists them.
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<PathBuf>,

    /// Run the replicas on another server [default: the primary's]
    ///
    /// Its directory, or the beginning of its version as `replimeter servers` lists it.
    #[arg(long, value_name = "DIR|VERSION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_server: Option<String>,

    /// When a semi-synchronous primary waits [default: the server's own]
    #[arg(long, value_name = "POINT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_point: Option<WaitPoint>,

    /// Replicas that a semi-synchronous MySQL primary waits for [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_replicas: Option<u32>,

    /// Let every member of a group (Group Replication) accept writes
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub multi_primary: bool,

    /// Put links with this one-way delay between the sandbox's servers
    ///
    /// There is one link between every two servers that replicate, with this delay in each direction, such as 250us
    /// or 5ms; 0 is the link alone.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_delay: Option<TimeSpan>,

    /// Vary the delay of links by up to this time, up and down
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_jitter: Option<TimeSpan>,

    /// Limit the bandwidth of each link, in each direction, such as 100mbit
    #[arg(long, value_name = "BANDWIDTH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_bandwidth: Option<Bandwidth>,

    /// Put a link with this one-way delay in front of each server
    ///
    /// Replimeter then measures from another host, as it were: each statement and each answer takes this time longer.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_link_delay: Option<TimeSpan>,

    /// Make each flush of a server to the disk take at least this time
    ///
    /// Flushes (fsync, fdatasync) of a server wait for one another, as on a disk of its own. A library that is loaded
    /// into the servers waits.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_delay: Option<TimeSpan>,

    /// Load NOW_USEC() and NOW_NSEC() into every server
    ///
    /// They return the server's clock; --method stamp-udf needs them.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub udf: bool,

    /// Enable the FEDERATED engine in every server
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub federated: bool,

    /// Give each server a fixed share of this machine, in cores
    ///
    /// Whole numbers (1, 2) are cores of its own; a fraction (0.5) needs a control group that Replimeter may
    /// create.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_per_server: Option<Cpus>,

    /// Make each server and the client a host of its own, as far as possible
    ///
    /// Each server gets the same share of this machine's cores, and the client as many or the rest: whole ones if there are enough, or
    /// else a quota on one core, which needs a control group that Replimeter may create. Otherwise they share the cores, and a
    /// warning says why. For throughput: a server that has used up its quota pauses for some milliseconds.
    #[arg(long, conflicts_with = "cpus_per_server")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hosts: bool,

    /// Your primary
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<Endpoint>,

    /// Its replicas
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Endpoint>,

    /// Your servers, each with its name
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeSpec>,

    /// Option file with user and password [default: ~/.my.cnf]
    ///
    /// A password is taken from the first of: the URL, the environment (REPLIMETER_PRIMARY_PASSWORD,
    /// REPLIMETER_REPLICA1_PASSWORD …, REPLIMETER_PASSWORD, MYSQL_PWD), this file, the prompt of --ask-password.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Target",
        display_order = 100
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults_file: Option<PathBuf>,
}

/// The default target.
const DEFAULT_SANDBOX: &str = "async:1";

impl TargetSettings {
    /// Returns whether the user's servers are named.
    #[must_use]
    pub fn own_servers_given(&self) -> bool {
        self.primary.is_some() || !self.replicas.is_empty() || !self.nodes.is_empty()
    }

    /// Returns whether it names a target, and not only settings of one.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.sandbox.is_some() || self.own_servers_given()
    }

    /// Returns the options that only a sandbox of the run has, and whether they are given.
    fn of_a_run(&self) -> [(&'static str, bool); 3] {
        [
            ("client-link-delay", self.client_link_delay.is_some()),
            ("flush-delay", self.flush_delay.is_some()),
            ("hosts", self.hosts),
        ]
    }

    /// Returns whether only a sandbox of the run has this option.
    #[must_use]
    pub fn is_of_a_run(option: &str) -> bool {
        let options = Self::default().of_a_run();
        options.iter().any(|(name, _)| *name == option)
    }

    /// Fills in all defaults, and returns the targets, measured one after another.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn plan(&mut self) -> Result<Vec<Target>, PlanError> {
        let targets = self.resolve()?;
        self.fill(&targets);
        Ok(targets)
    }

    /// Rejects implausibly long times.
    pub(super) fn check_times(&self) -> Result<(), PlanError> {
        let most = TimeSpan::from_secs(10);
        units::check_at_most("link-delay", self.link_delay, most, "a link")?;
        units::check_at_most(
            "client-link-delay",
            self.client_link_delay,
            TimeSpan::from_secs(1),
            "the link of a client",
        )?;
        units::check_at_most(
            "flush-delay",
            self.flush_delay,
            TimeSpan::from_secs(1),
            "the flush of a disk",
        )?;
        units::check_at_most(
            "link-jitter",
            self.link_jitter,
            most,
            "the jitter of a link",
        )
    }

    /// Returns all named targets, with their defaults filled in.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    pub fn resolve(&self) -> Result<Vec<Target>, PlanError> {
        if self.own_servers_given() {
            return Ok(vec![Target::Nodes(self.own_servers()?)]);
        }
        self.check_times()?;
        let named = match &self.sandbox {
            Some(named) => named.clone(),
            None => vec![DEFAULT_SANDBOX.parse().map_err(PlanError::Contradiction)?],
        };
        let shapes: Vec<Shape> = named
            .iter()
            .filter_map(|name| match name {
                SandboxRef::Shape(shape) => Some(*shape),
                SandboxRef::Running(_) => None,
            })
            .collect();
        if named.is_empty() {
            return contradiction("the list of sandboxes is empty");
        }
        for (index, name) in named.iter().enumerate() {
            if named[..index].contains(name) {
                return Err(PlanError::Contradiction(format!(
                    "{name} is given twice; rows of a report are distinguished by their shape"
                )));
            }
        }
        if shapes.is_empty()
            && *self
                != (Self {
                    sandbox: self.sandbox.clone(),
                    ..Self::default()
                })
        {
            return contradiction(
                "the servers of a running sandbox cannot be changed; give server settings to `sandbox up` (client-link-delay, flush-delay and hosts need a sandbox of the run)",
            );
        }
        let given = self.of_a_run().into_iter().find(|(_, given)| *given);
        if let Some((name, _)) = given.filter(|_| shapes.len() < named.len()) {
            return Err(PlanError::Contradiction(format!(
                "a running sandbox cannot be changed: {name} needs sandboxes of the run"
            )));
        }
        let mut specs = match shapes.first() {
            Some(first) => SandboxSpec::resolve(&shapes, &self.common(*first))
                .map_err(PlanError::Contradiction)?
                .into_iter(),
            None => Vec::new().into_iter(),
        };
        let targets = named.into_iter().filter_map(|name| match name {
            SandboxRef::Shape(_) => specs.next().map(Target::Sandbox),
            SandboxRef::Running(name) => Some(Target::Running(name)),
        });
        Ok(targets.collect())
    }

    /// Writes all defaults into the settings; `targets` are the named ones.
    fn fill(&mut self, targets: &[Target]) {
        let names = targets.iter().filter_map(|target| match target {
            Target::Sandbox(sandbox) => Some(SandboxRef::Shape(sandbox.shape)),
            Target::Running(name) => Some(SandboxRef::Running(name.clone())),
            Target::Nodes(_) => None,
        });
        self.sandbox = Some(names.collect()).filter(|names: &Vec<_>| !names.is_empty());
        if self.sandbox.is_some() {
            // Sandboxes have credentials of their own.
            self.defaults_file = None;
        }
        let linked = targets.iter().find_map(|target| match target {
            Target::Sandbox(sandbox) => sandbox.link,
            _ => None,
        });
        if let Some(link) = linked {
            (self.link_delay, self.link_jitter) = (Some(link.delay), Some(link.jitter));
        }
    }

    /// Returns the settings that several shapes share.
    pub(super) fn common(&self, shape: Shape) -> SandboxSpec {
        let linked = self.link_delay.is_some()
            || self.link_jitter.is_some()
            || self.link_bandwidth.is_some();
        let zero = TimeSpan::from_secs(0);
        SandboxSpec {
            shape,
            server_options: self.server_options.clone(),
            servers: self.servers.clone(),
            replica_server: self.replica_server.clone(),
            wait_point: self.wait_point,
            wait_for_replicas: self.wait_for_replicas,
            multi_primary: self.multi_primary,
            link: linked.then(|| LinkSpec {
                delay: self.link_delay.unwrap_or(zero),
                jitter: self.link_jitter.unwrap_or(zero),
                bandwidth: self.link_bandwidth,
            }),
            client_link: self.client_link_delay,
            flush_delay: self.flush_delay,
            udf: self.udf,
            federated: self.federated,
            binary_log: true,
            cpus: self.cpus_per_server,
            hosts: self.hosts.then(|| shape.servers() + 1),
        }
    }

    fn own_servers(&self) -> Result<Vec<NodeSpec>, PlanError> {
        let own = Self {
            primary: self.primary.clone(),
            replicas: self.replicas.clone(),
            nodes: self.nodes.clone(),
            defaults_file: self.defaults_file.clone(),
            ..Self::default()
        };
        if *self != own {
            return contradiction(
                "a target is either a sandbox (sandbox, server options, servers, links, cpus) or the user's servers (primary and replicas, or nodes), not both",
            );
        }
        if !self.nodes.is_empty() {
            if self.primary.is_some() || !self.replicas.is_empty() {
                return contradiction(
                    "give the user's servers either as primary and replicas or as nodes, not both",
                );
            }
            check_nodes(&self.nodes).map_err(PlanError::Contradiction)?;
            return Ok(self.nodes.clone());
        }
        let Some(primary) = self.primary.clone() else {
            return contradiction("a replica is given without its primary; add --primary URL");
        };
        if self.replicas.is_empty() {
            return contradiction("a primary is given without a replica; add --replica URL");
        }
        let node = |name: String, role, url: &Endpoint| NodeSpec {
            name,
            role: Some(role),
            source: None,
            url: url.clone(),
        };
        let replicas = self.replicas.iter().enumerate();
        let replicas = replicas.map(|(index, url)| node(replica_name(index), Role::Replica, url));
        Ok(
            std::iter::once(node(PRIMARY.to_owned(), Role::Primary, &primary))
                .chain(replicas)
                .collect(),
        )
    }
}

/// Rejects duplicate or unprintable names, and contradictory roles.
///
/// # Errors
/// With a message that names the node.
pub fn check_nodes(nodes: &[NodeSpec]) -> Result<(), String> {
    if nodes.is_empty() {
        return Err("no server is named".to_owned());
    }
    for (index, node) in nodes.iter().enumerate() {
        let valid = !node.name.is_empty()
            && node.name.len() <= 64
            && node
                .name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if !valid {
            return Err(format!(
                "`{}` is not a valid server name; use up to 64 letters, digits, `-`, `_` and `.`",
                node.name
            ));
        }
        let before = &nodes[..index];
        if before.iter().any(|other| other.name == node.name) {
            return Err(format!("two servers are named `{}`", node.name));
        }
        if let Some(other) = before
            .iter()
            .find(|other| other.url.address() == node.url.address())
        {
            return Err(format!(
                "`{}` and `{}` have the same address {}",
                other.name,
                node.name,
                node.url.address()
            ));
        }
        if let Some(other) = before
            .iter()
            .find(|other| other.role == Some(Role::Primary) && node.role == Some(Role::Primary))
        {
            return Err(format!(
                "`{}` and `{}` are both primaries; give servers that all take writes the role node",
                other.name, node.name
            ));
        }
        if let Some(source) = &node.source
            && (source == &node.name || !nodes.iter().any(|other| &other.name == source))
        {
            return Err(format!(
                "the source of `{}` is `{source}`, which is not another server of the file",
                node.name
            ));
        }
    }
    Ok(())
}
