//! Plans: everything a run needs to know, with every default made concrete.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    sandbox::{Bandwidth, LinkSpec, NodeOption, SandboxRef, SandboxSpec, WaitPoint},
    shape::Shape,
    sizes::Sizes,
    span::Span,
    target::{Endpoint, NodeSpec, PRIMARY, Role, Target, replica_name},
};

/// Payload of a round when no size is asked for, in bytes (as in experiment 1).
pub const DEFAULT_SIZE: u64 = 1000;
/// The most steps of all sweeps together.
const MOST_STEPS: u64 = 1_000_000;
/// Rounds of a run when neither a number nor a time is asked for.
pub const DEFAULT_ROUNDS: u64 = 1000;

/// Which measurement a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// How late is each replica.
    Lag,
}

/// How the moment of visibility is observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Reads in a tight loop.
    #[default]
    Poll,
}

impl Method {
    /// The name in plans and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
        }
    }
}

/// What the next write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The next beat of a schedule (open loop: a slow round does not move the next).
    Every(Span),
    /// The previous row having been seen on every replica.
    Visible,
    /// The previous write's acknowledgement.
    Ack,
}

impl std::str::FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "visible" => Ok(Self::Visible),
            "ack" => Ok(Self::Ack),
            _ => {
                let every = text
                    .strip_prefix("every ")
                    .ok_or_else(|| format!("unknown pace `{text}`; known: visible, ack, `every 10ms`"))?;
                let span: Span = every.parse().map_err(|error: crate::span::SpanError| error.to_string())?;
                if span.0.is_zero() {
                    return Err("`every 0` is no schedule; for writes without a pause use the pace `visible` or `ack`".to_owned());
                }
                Ok(Self::Every(span))
            }
        }
    }
}

impl std::fmt::Display for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Every(span) => write!(f, "every {span}"),
            Self::Visible => f.write_str("visible"),
            Self::Ack => f.write_str("ack"),
        }
    }
}

serde_as_text!(Pace);

/// One value or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore<T> {
    /// One.
    One(T),
    /// Several, measured one after another and shown side by side.
    More(Vec<T>),
}

impl<T: Clone> OneOrMore<T> {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one.clone()],
            Self::More(more) => more.clone(),
        }
    }

    /// `None` for an empty list.
    #[must_use]
    pub fn of(mut values: Vec<T>) -> Option<Self> {
        match values.len() {
            0 => None,
            1 => values.pop().map(Self::One),
            _ => Some(Self::More(values)),
        }
    }
}

/// The target as a plan file spells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TargetSpec {
    /// Shape of a sandbox or the name of a running one; several are measured one after another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<OneOrMore<String>>,
    /// Options for the sandbox's servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_options: Vec<NodeOption>,
    /// Where the sandbox's server binaries are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<PathBuf>,
    /// Where the replicas' binaries are, or the beginning of their version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_server: Option<String>,
    /// When a semi-synchronous primary waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_point: Option<WaitPoint>,
    /// For how many replicas it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_replicas: Option<u32>,
    /// Whether every member of a group takes writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multi_primary: bool,
    /// One-way delay of the sandbox's replication links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_delay: Option<Span>,
    /// By how much it varies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_jitter: Option<Span>,
    /// How much passes through them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_bandwidth: Option<Bandwidth>,
    /// Whether our functions are loaded into the sandbox's servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub udf: bool,
    /// Whether the engine FEDERATED is turned on in the sandbox's servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub federated: bool,
    /// The user's primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<Endpoint>,
    /// The user's replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Endpoint>,
    /// The user's servers with names of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeSpec>,
    /// Option file with user and password for the user's servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults_file: Option<PathBuf>,
}

/// The settings of `lag` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LagSpec {
    /// How visibility is observed.
    #[serde(default)]
    pub method: Method,
    /// How many rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// How long, instead of a number of rounds.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// What the next write waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Payload bytes of every round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Payload bytes step by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    /// Rows in each step of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_step: Option<u32>,
    /// Pause before each step of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_pause: Option<Span>,
    /// How often the whole sweep is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweeps: Option<u32>,
    /// Rounds at the beginning that are measured but not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<u64>,
    /// Rounds with the primary observed as its own replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_rounds: Option<u64>,
    /// How long a row may stay unseen before the run ends in an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Keep every core of this machine from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
    /// Give the measuring threads real-time priority where that is permitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,
}

/// A plan as a file spells it; nothing need be there but what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlanFile {
    /// The measurement.
    pub command: Command,
    /// What the reader of the report should know it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What is measured.
    #[serde(default)]
    pub target: TargetSpec,
    /// How, for the command `lag`.
    #[serde(default)]
    pub lag: LagSpec,
}

/// When a run of rounds ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many counted rounds.
    Rounds(u64),
    /// After so much time.
    Elapsed(Span),
}

/// What is written, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Rows of one size.
    Rounds {
        /// When to stop.
        until: Until,
        /// Payload bytes.
        size: u64,
    },
    /// Steps of growing size (experiment 1).
    Sweep {
        /// Payload bytes of each step.
        sizes: Sizes,
        /// Rows in each step.
        per_step: u32,
        /// Pause before each step.
        pause: Span,
        /// Repetitions of the whole.
        sweeps: u32,
    },
}

/// A resolved `lag` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LagPlan {
    /// How visibility is observed.
    pub method: Method,
    /// What is written.
    pub writes: Writes,
    /// What the next write waits for.
    pub pace: Pace,
    /// Rounds that are measured but not counted.
    pub warm_up: u64,
    /// Rounds with the primary observed as its own replica.
    pub floor_rounds: u64,
    /// How long a row may stay unseen.
    pub timeout: Span,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
    /// Give the measuring threads real-time priority where that is permitted.
    pub real_time: bool,
}

impl LagPlan {
    /// The largest payload asked for, in bytes.
    #[must_use]
    pub fn largest_size(&self) -> u64 {
        match &self.writes {
            Writes::Rounds { size, .. } => *size,
            Writes::Sweep { sizes, .. } => sizes.steps().iter().copied().max().unwrap_or(1),
        }
    }

    /// The first payload written, in bytes.
    #[must_use]
    pub fn first_size(&self) -> u64 {
        match &self.writes {
            Writes::Rounds { size, .. } => *size,
            Writes::Sweep { sizes, .. } => sizes.steps().first().copied().unwrap_or(1),
        }
    }
}

/// A resolved plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the reader should know it by.
    pub title: Option<String>,
    /// The target as it was given, every default made concrete.
    pub target: TargetSpec,
    /// What is measured, one after another; never empty.
    pub targets: Vec<Target>,
    /// How.
    pub lag: LagPlan,
}

/// Why a plan cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file is no plan; the message holds the line.
    #[error("{0}")]
    Syntax(String),
    /// Settings that contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

fn contradiction<T>(message: &str) -> Result<T, PlanError> {
    Err(PlanError::Contradiction(message.to_owned()))
}

impl TargetSpec {
    /// Every target that is named, with its defaults filled in.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    pub fn resolve(&self) -> Result<Vec<Target>, PlanError> {
        if self.primary.is_some() || !self.replicas.is_empty() || !self.nodes.is_empty() {
            return Ok(vec![Target::Nodes(self.own_servers()?)]);
        }
        let named = self.sandbox.as_ref().map_or_else(|| vec!["async:1".to_owned()], OneOrMore::all);
        let named: Vec<SandboxRef> =
            named.iter().map(|text| text.parse()).collect::<Result<_, String>>().map_err(PlanError::Contradiction)?;
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
                    "{name} is given twice; rows of a report are told apart by their shape"
                )));
            }
        }
        if shapes.is_empty() && *self != (Self { sandbox: self.sandbox.clone(), ..Self::default() }) {
            return contradiction("the servers of a running sandbox are what they are; settings for servers go to `sandbox up`");
        }
        let mut specs = match shapes.first() {
            Some(first) => SandboxSpec::resolve(&shapes, &self.common(*first)).map_err(PlanError::Contradiction)?.into_iter(),
            None => Vec::new().into_iter(),
        };
        let targets = named.into_iter().filter_map(|name| match name {
            SandboxRef::Shape(_) => specs.next().map(Target::Sandbox),
            SandboxRef::Running(name) => Some(Target::Running(name)),
        });
        Ok(targets.collect())
    }

    /// The same with every default spelled out; `targets` are what it resolves to.
    fn concrete(&self, targets: &[Target]) -> Self {
        let mut spec = self.clone();
        let names = targets.iter().filter_map(|target| match target {
            Target::Sandbox(sandbox) => Some(sandbox.shape.to_string()),
            Target::Running(name) => Some(name.to_string()),
            Target::Nodes(_) => None,
        });
        spec.sandbox = OneOrMore::of(names.collect());
        if spec.sandbox.is_some() {
            // Sandboxes have credentials of their own.
            spec.defaults_file = None;
        }
        let linked = targets.iter().find_map(|target| match target {
            Target::Sandbox(sandbox) => sandbox.link,
            _ => None,
        });
        if let Some(link) = linked {
            (spec.link_delay, spec.link_jitter) = (Some(link.delay), Some(link.jitter));
        }
        spec
    }

    /// The settings that several shapes share.
    fn common(&self, shape: Shape) -> SandboxSpec {
        let linked = self.link_delay.is_some() || self.link_jitter.is_some() || self.link_bandwidth.is_some();
        let zero = Span::from_secs(0);
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
            udf: self.udf,
            federated: self.federated,
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
                "a target is either a sandbox (sandbox, server options, servers, links) or the user's servers (primary and replicas, or nodes), not both",
            );
        }
        if !self.nodes.is_empty() {
            if self.primary.is_some() || !self.replicas.is_empty() {
                return contradiction("give the user's servers either as primary and replicas or as nodes, not both");
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
        let node = |name: String, role, url: &Endpoint| NodeSpec { name, role: Some(role), source: None, url: url.clone() };
        let replicas = self.replicas.iter().enumerate();
        let replicas = replicas.map(|(index, url)| node(replica_name(index), Role::Replica, url));
        Ok(std::iter::once(node(PRIMARY.to_owned(), Role::Primary, &primary)).chain(replicas).collect())
    }
}

/// Refuses names that cannot be told apart or shown, and roles that contradict each other.
///
/// # Errors
/// In a sentence that names the node.
pub fn check_nodes(nodes: &[NodeSpec]) -> Result<(), String> {
    if nodes.is_empty() {
        return Err("no server is named".to_owned());
    }
    for (index, node) in nodes.iter().enumerate() {
        let valid = !node.name.is_empty()
            && node.name.len() <= 64
            && node.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if !valid {
            return Err(format!("`{}` is no name for a server; use up to 64 letters, digits, `-`, `_` and `.`", node.name));
        }
        let before = &nodes[..index];
        if before.iter().any(|other| other.name == node.name) {
            return Err(format!("two servers are called `{}`", node.name));
        }
        if let Some(other) = before.iter().find(|other| (&other.url.host, other.url.port) == (&node.url.host, node.url.port)) {
            return Err(format!("`{}` and `{}` have the same address {}", other.name, node.name, node.url.address()));
        }
        if let Some(other) = before.iter().find(|other| other.role == Some(Role::Primary) && node.role == Some(Role::Primary)) {
            return Err(format!(
                "`{}` and `{}` are both primaries; servers that all take writes have the role node",
                other.name, node.name
            ));
        }
        if let Some(source) = &node.source
            && (source == &node.name || !nodes.iter().any(|other| &other.name == source))
        {
            return Err(format!("the source of `{}` is `{source}`, which is no other server of the file", node.name));
        }
    }
    Ok(())
}

impl LagSpec {
    fn resolve(&self, sandbox: bool) -> Result<LagPlan, PlanError> {
        let writes = self.writes()?;
        let sweep = matches!(writes, Writes::Sweep { .. });
        let pace = self.pace.unwrap_or(if sweep { Pace::Ack } else { Pace::Every(Span::from_millis(10)) });
        if matches!(pace, Pace::Every(span) if span.0.is_zero()) {
            return contradiction("a schedule needs a distance between rounds above 0; for no pause use --pace visible");
        }
        let timeout = self.timeout.unwrap_or(Span::from_secs(10));
        if timeout.0.is_zero() {
            return contradiction("a time-out of 0 would void every round; the default is 10s");
        }
        Ok(LagPlan {
            method: self.method,
            pace,
            warm_up: self.warm_up.unwrap_or(if sweep { 0 } else { 50 }),
            floor_rounds: self.floor_rounds.unwrap_or(200),
            timeout,
            keep_awake: self.keep_awake.unwrap_or(sandbox),
            real_time: self.real_time.unwrap_or(true),
            writes,
        })
    }

    fn writes(&self) -> Result<Writes, PlanError> {
        if let Some(sizes) = &self.sizes {
            if self.size.is_some() {
                return contradiction("size and sizes exclude each other");
            }
            if self.rounds.is_some() || self.duration.is_some() {
                return contradiction("a sweep over sizes has no rounds or time of its own; use per-step and sweeps");
            }
            let (per_step, sweeps) = (self.per_step.unwrap_or(5), self.sweeps.unwrap_or(1));
            if per_step == 0 || sweeps == 0 {
                return contradiction("per-step and sweeps must be at least 1");
            }
            if sizes.steps().len() as u64 * u64::from(sweeps) > MOST_STEPS {
                return contradiction("a sweep may have at most a million steps in all; choose fewer sweeps or sizes");
            }
            let pause = self.step_pause.unwrap_or(Span::from_millis(200));
            return Ok(Writes::Sweep { sizes: sizes.clone(), per_step, pause, sweeps });
        }
        if self.per_step.is_some() || self.sweeps.is_some() || self.step_pause.is_some() {
            return contradiction("per-step, step-pause and sweeps belong to a sweep; add sizes, such as 1000..10000:1000");
        }
        let until = match (self.rounds, self.duration) {
            (Some(_), Some(_)) => return contradiction("rounds and for exclude each other"),
            (Some(0), None) => return contradiction("rounds must be at least 1"),
            (None, Some(span)) if span.0.is_zero() => return contradiction("a run for 0s measures nothing"),
            (None, Some(span)) => Until::Elapsed(span),
            (rounds, None) => Until::Rounds(rounds.unwrap_or(DEFAULT_ROUNDS)),
        };
        match self.size {
            Some(0) => contradiction("a size of 0 bytes cannot be written; the smallest is 1"),
            size => Ok(Writes::Rounds { until, size: size.unwrap_or(DEFAULT_SIZE) }),
        }
    }
}

/// What is wrong with a TOML text, with its line; shown as an excerpt unless that
/// could hold a URL and so a password.
#[must_use]
pub fn explain(error: &toml::de::Error, text: &str) -> String {
    let excerpt = error.to_string();
    if !excerpt.contains("://") {
        return excerpt;
    }
    let line = error.span().and_then(|span| text.get(..span.start)).map_or(1, |before| before.matches('\n').count() + 1);
    format!("line {line}: {}", error.message())
}

impl PlanFile {
    /// A plan for `lag` from its parts.
    #[must_use]
    pub fn lag(target: TargetSpec, lag: LagSpec) -> Self {
        Self { command: Command::Lag, title: None, target, lag }
    }

    /// Reads a plan file's text.
    ///
    /// # Errors
    /// With the line and column of what is unknown or malformed.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        toml::from_str(text).map_err(|error| PlanError::Syntax(explain(&error, text)))
    }

    /// Fills in every default and checks the whole.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    pub fn resolve(&self) -> Result<Plan, PlanError> {
        let targets = self.target.resolve()?;
        let sandbox = !matches!(targets.as_slice(), [Target::Nodes(_)]);
        let several = targets.len() > 1;
        if several && self.lag.sizes.is_some() {
            return contradiction("a sweep over sizes takes one sandbox; run it once for each");
        }
        Ok(Plan { title: self.title.clone(), target: self.target.concrete(&targets), targets, lag: self.lag.resolve(sandbox)? })
    }
}

impl Plan {
    /// The plan as a file that spells out every default.
    #[must_use]
    pub fn to_file(&self) -> PlanFile {
        let plan = self.lag.clone();
        let mut lag = LagSpec {
            method: plan.method,
            pace: Some(plan.pace),
            warm_up: Some(plan.warm_up),
            floor_rounds: Some(plan.floor_rounds),
            timeout: Some(plan.timeout),
            keep_awake: Some(plan.keep_awake),
            real_time: Some(plan.real_time),
            ..LagSpec::default()
        };
        match plan.writes {
            Writes::Rounds { until, size } => {
                lag.size = Some(size);
                match until {
                    Until::Rounds(rounds) => lag.rounds = Some(rounds),
                    Until::Elapsed(span) => lag.duration = Some(span),
                }
            }
            Writes::Sweep { sizes, per_step, pause, sweeps } => {
                lag.sizes = Some(sizes);
                lag.per_step = Some(per_step);
                lag.step_pause = Some(pause);
                lag.sweeps = Some(sweeps);
            }
        }
        PlanFile { command: Command::Lag, title: self.title.clone(), target: self.target.clone(), lag }
    }

    /// The text of `plan.toml`.
    ///
    /// # Errors
    /// When a value cannot be written as TOML, which no resolved plan contains.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&self.to_file())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolve(text: &str) -> Result<Plan, PlanError> {
        PlanFile::from_toml(text)?.resolve()
    }

    #[test]
    fn the_smallest_plan_has_every_default() {
        let plan = resolve("command = 'lag'").unwrap();
        assert_eq!(plan.targets, [Target::Sandbox(SandboxSpec::of("async:1".parse().unwrap()))]);
        assert_eq!(plan.lag.writes, Writes::Rounds { until: Until::Rounds(1000), size: 1000 });
        assert_eq!(plan.lag.pace, Pace::Every(Span::from_millis(10)));
        assert!(plan.lag.keep_awake);
    }

    #[test]
    fn a_resolved_plan_reads_back_as_itself() {
        for text in [
            "command = 'lag'",
            "command = 'lag'\n[lag]\nfor = '60s'\npace = 'visible'\nsize = 5",
            "command = 'lag'\ntitle = 'x'\n[target]\nsandbox = 'async:2'\nserver-options = ['sync_binlog=1']\n[lag]\nsizes = '1..9:2'",
            "command = 'lag'\n[target]\nprimary = 'mysql://u@a/'\nreplicas = ['mysql://u@b/']\n[lag]\nkeep-awake = true",
            "command = 'lag'\n[target]\nsandbox = ['async:1', 'semi-sync:2', 'work']\nwait-point = 'after-sync'\nlink-delay = '5ms'\nserver-options = ['replica2:sync_binlog=1']",
            "command = 'lag'\n[target]\nsandbox = ['async:1', 'async:2']\nserver-options = ['replica2:sync_binlog=1', 'sync_binlog=2', 'replica1:sync_binlog=1', 'sync_binlog=2']",
            "command = 'lag'\n[[target.nodes]]\nname = 'a'\nurl = 'mysql://a/'\n[[target.nodes]]\nname = 'b'\nrole = 'node'\nsource = 'a'\nurl = 'mysql://b/'",
        ] {
            let plan = resolve(text).unwrap();
            assert_eq!(resolve(&plan.to_toml().unwrap()).unwrap(), plan, "{text}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for (lag, want) in [
            ("size = 1\nsizes = '1'", "exclude"),
            ("rounds = 1\nfor = '1s'", "exclude"),
            ("rounds = 0", "at least 1"),
            ("per-step = 3", "belong to a sweep"),
            ("sizes = '1'\nrounds = 9", "per-step"),
            ("size = 0", "smallest is 1"),
            ("pace = 'every 0s'", "no schedule"),
            ("timeout = '0s'", "time-out"),
        ] {
            let error = resolve(&format!("command = 'lag'\n[lag]\n{lag}")).unwrap_err().to_string();
            assert!(error.contains(want), "{lag}: {error}");
        }
        for (target, want) in [
            ("primary = 'mysql://a/'", "without a replica"),
            ("replicas = ['mysql://a/']", "without its primary"),
            ("sandbox = 'async:1'\nprimary = 'mysql://a/'\nreplicas = ['mysql://b/']", "either a sandbox"),
            ("sandbox = ['async:1', 'async:1']", "given twice"),
            ("sandbox = []", "empty"),
            ("sandbox = 'ring:3'", "unknown sandbox shape"),
            ("sandbox = 'work'\nlink-delay = '1ms'", "sandbox up"),
            ("nodes = [{ name = 'a', url = 'mysql://a/' }, { name = 'a', url = 'mysql://b/' }]", "two servers are called"),
            ("nodes = [{ name = 'a', url = 'mysql://a/' }, { name = 'b', url = 'mysql://a/' }]", "the same address"),
            ("nodes = [{ name = 'a', url = 'mysql://a/' }, { name = 'b', source = 'c', url = 'mysql://b/' }]", "no other server"),
        ] {
            let error = resolve(&format!("command = 'lag'\n[target]\n{target}")).unwrap_err().to_string();
            assert!(error.contains(want), "{target}: {error}");
        }
    }

    #[test]
    fn functions_and_engines_belong_to_sandboxes_that_are_started() {
        let plan = resolve("command = 'lag'\n[target]\nsandbox = ['async:1', 'galera:3']\nudf = true\nfederated = true").unwrap();
        let all = plan.targets.iter().all(|target| matches!(target, Target::Sandbox(spec) if spec.udf && spec.federated));
        assert!(all && plan.target.udf, "{:?}", plan.targets);
        for target in ["sandbox = 'work'", "primary = 'mysql://a/'\nreplicas = ['mysql://b/']"] {
            assert!(resolve(&format!("command = 'lag'\n[target]\n{target}\nudf = true")).is_err(), "{target}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = PlanFile::from_toml("command = 'lag'\n\n[lag]\nround = 5\n").unwrap_err().to_string();
        assert!(error.contains("line 4") && error.contains("round"), "{error}");
    }

    #[test]
    fn a_password_in_a_plan_is_refused() {
        let error = resolve("command = 'lag'\n[target]\nprimary = 'mysql://u:pw@a/'").unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("must not hold a URL with a password"), "{error}");
        assert!(!error.contains("pw"), "{error}");
    }

    proptest! {
        #[test]
        fn no_file_panics(text in "\\PC{0,120}") {
            let _ = resolve(&text);
            let _ = resolve(&format!("command = 'lag'\n[lag]\n{text}"));
        }
    }
}
