//! The target: the servers to measure.

use std::path::PathBuf;

use super::{
    PlanError,
    checks::{SECOND, at_most},
    contradiction,
};
use crate::{
    sandbox::{Bandwidth, Cpus, LinkSpec, SandboxRef, SandboxSpec, WaitPoint},
    server_option::NodeOption,
    settings,
    shape::Shape,
    target::{Endpoint, NodeSpec, PRIMARY, Role, Target, replica_name},
    time_span::TimeSpan,
};

/// Maximum delay of a link, and its jitter.
const MAX_LINK_DELAY: TimeSpan = TimeSpan::from_secs(10);

settings! {
    /// The target, as command line and plan files have it. The URLs of the user's servers with passwords are options of
    /// the command line alone.
    TargetSettings;

    [Target]
    /// Shape to start, or running sandbox; may be repeated [default: async:1]
    ///
    /// A shape is `[mariadb/|mysql/]MODE:N` with the modes none, async:N, semi-sync:N, chain:N, galera:N and
    /// group:N; its servers are removed after the run. A running sandbox stays. Several are measured one after
    /// another.
    #[serde(with = "super::OneOrMore::<SandboxRef>")]
    sandbox "SHAPE|NAME": Option<Vec<SandboxRef>>;

    [Sandbox]
    /// Start the sandbox's servers with this option; may be repeated
    ///
    /// `sync_binlog=1` is for all servers, `replica1:slave_parallel_threads=4` for one. NODE is primary, replicas,
    /// replica1 …, or node1 ….
    #[arg(long = "server-option")]
    server_options "[NODE:]NAME=VALUE": Vec<NodeOption>;

    /// Start the servers of this directory only [default: all that are found]
    ///
    /// Without it they are searched in PATH, in the usual directories and in the private one (REPLIMETER_HOME), which
    /// `replimeter servers add` fills. `replimeter servers` lists them.
    servers "DIR": Option<PathBuf>;

    /// Run the replicas on another server [default: the primary's]
    ///
    /// Its directory, or the beginning of its version as `replimeter servers` lists it.
    replica_server "DIR|VERSION": Option<String>;

    /// When a semi-synchronous primary waits [default: the server's own]
    wait_point "POINT": Option<WaitPoint>;

    /// Replicas that a semi-synchronous MySQL primary waits for [default: 1]
    wait_for_replicas "N": Option<u32>;

    /// Let every member of a group (Group Replication) accept writes
    multi_primary: bool;

    /// Put links with this one-way delay between the sandbox's servers
    ///
    /// There is one link between every two servers that replicate, with this delay in each direction, such as 250us
    /// or 5ms; 0 is the link alone.
    link_delay "TIME": Option<TimeSpan>, at_most(MAX_LINK_DELAY, "a link");

    /// Vary the delay of links by up to this time, up and down
    link_jitter "TIME": Option<TimeSpan>, at_most(MAX_LINK_DELAY, "the jitter of a link");

    /// Limit the bandwidth of each link, in each direction, such as 100mbit
    link_bandwidth "BANDWIDTH": Option<Bandwidth>;

    /// Put a link with this one-way delay in front of each server
    ///
    /// Replimeter then measures from another host, as it were: each statement and each answer takes this time longer.
    client_link_delay "TIME": Option<TimeSpan>, at_most(SECOND, "the link of a client");

    /// Make each flush of a server to the disk take at least this time
    ///
    /// Flushes (fsync, fdatasync) of a server wait for one another, as on a disk of its own. A library that is loaded
    /// into the servers waits.
    flush_delay "TIME": Option<TimeSpan>, at_most(SECOND, "the flush of a disk");

    /// Load NOW_USEC() and NOW_NSEC() into every server
    ///
    /// They return the server's clock; --method stamp-udf needs them.
    udf: bool;

    /// Enable the FEDERATED engine in every server
    federated: bool;

    /// Give each server a fixed share of this machine, in cores
    ///
    /// Whole numbers (1, 2) are cores of its own; a fraction (0.5) needs a control group that Replimeter may
    /// create.
    cpus_per_server "N": Option<Cpus>;

    /// Make each server and the client a host of its own, as far as possible
    ///
    /// Each server gets the same share of this machine's cores, and the client as many or the rest: whole ones if there are enough, or
    /// else a quota on one core, which needs a control group that Replimeter may create. Otherwise they share the cores, and a
    /// warning says why. For throughput: a server that has used up its quota pauses for some milliseconds.
    #[arg(conflicts_with = "cpus_per_server")]
    hosts: bool;

    /// Your primary
    file primary: Option<Endpoint>;

    /// Its replicas
    file replicas: Vec<Endpoint>;

    /// Your servers, each with its name
    file nodes: Vec<NodeSpec>;

    [Target]
    /// Option file with user and password [default: ~/.my.cnf]
    ///
    /// A password is taken from the first of: the URL, the environment (REPLIMETER_PRIMARY_PASSWORD,
    /// REPLIMETER_REPLICA1_PASSWORD …, REPLIMETER_PASSWORD, MYSQL_PWD), this file, the prompt of --ask-password.
    #[arg(display_order = 100)]
    defaults_file "FILE": Option<PathBuf>;
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

    /// Returns all named targets, with their defaults filled in.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    pub fn resolve(&self) -> Result<Vec<Target>, PlanError> {
        if self.own_servers_given() {
            return Ok(vec![Target::Nodes(self.own_servers()?)]);
        }
        self.check_values()?;
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
    #[must_use]
    pub fn common(&self, shape: Shape) -> SandboxSpec {
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
