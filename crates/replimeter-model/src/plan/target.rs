//! The target as a plan file spells it.

use std::{fmt, marker::PhantomData, path::PathBuf};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, IntoDeserializer, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use super::{PlanError, contradiction};
use crate::{
    sandbox::{Bandwidth, Cpus, LinkSpec, NodeOption, SandboxRef, SandboxSpec, WaitPoint},
    shape::Shape,
    span::Span,
    target::{Endpoint, NodeSpec, PRIMARY, Role, Target, replica_name},
};

/// One value or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMore<T> {
    /// One.
    One(T),
    /// Several, measured one after another and shown side by side.
    More(Vec<T>),
}

// By hand, since an untagged enum says only that nothing fits, and not what is wrong with the value.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(text.into_deserializer()).map(OneOrMore::One)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                T::deserialize(number.into_deserializer()).map(OneOrMore::One)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                T::deserialize(number.into_deserializer()).map(OneOrMore::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMore::More)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The share of the machine that each of the sandbox's servers has, in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_per_server: Option<Cpus>,
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

impl TargetSpec {
    /// Every target that is named, with its defaults filled in.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    pub fn resolve(&self) -> Result<Vec<Target>, PlanError> {
        if self.primary.is_some() || !self.replicas.is_empty() || !self.nodes.is_empty() {
            return Ok(vec![Target::Nodes(self.own_servers()?)]);
        }
        let named = self
            .sandbox
            .as_ref()
            .map_or_else(|| vec!["async:1".to_owned()], OneOrMore::all);
        let named: Vec<SandboxRef> = named
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, String>>()
            .map_err(PlanError::Contradiction)?;
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
        if shapes.is_empty()
            && *self
                != (Self {
                    sandbox: self.sandbox.clone(),
                    ..Self::default()
                })
        {
            return contradiction(
                "the servers of a running sandbox are what they are; settings for servers go to `sandbox up`",
            );
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

    /// The same with every default spelled out; `targets` are what it resolves to.
    pub(super) fn concrete(&self, targets: &[Target]) -> Self {
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
    pub(super) fn common(&self, shape: Shape) -> SandboxSpec {
        let linked = self.link_delay.is_some()
            || self.link_jitter.is_some()
            || self.link_bandwidth.is_some();
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
            binary_log: true,
            cpus: self.cpus_per_server,
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
            && node
                .name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if !valid {
            return Err(format!(
                "`{}` is no name for a server; use up to 64 letters, digits, `-`, `_` and `.`",
                node.name
            ));
        }
        let before = &nodes[..index];
        if before.iter().any(|other| other.name == node.name) {
            return Err(format!("two servers are called `{}`", node.name));
        }
        if let Some(other) = before
            .iter()
            .find(|other| (&other.url.host, other.url.port) == (&node.url.host, node.url.port))
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
                "`{}` and `{}` are both primaries; servers that all take writes have the role node",
                other.name, node.name
            ));
        }
        if let Some(source) = &node.source
            && (source == &node.name || !nodes.iter().any(|other| &other.name == source))
        {
            return Err(format!(
                "the source of `{}` is `{source}`, which is no other server of the file",
                node.name
            ));
        }
    }
    Ok(())
}
