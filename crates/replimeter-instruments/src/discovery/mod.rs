//! Discovers the state of a set of servers and their topology. Only reads; `preflight` decides
//! whether a run may begin, `doctor` reports everything to the user.

mod refusal;
mod relation;
mod writer;

use std::{collections::BTreeSet, time::Duration};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{
        self, Channel,
        galera::{self, NodeState},
        group::{self, GroupState},
        semi_sync::{self, PrimaryState, ReplicaState},
    },
    facts::ServerFacts,
    position::OriginServer,
    source::Member,
};
use replimeter_model::{
    target::SslMode,
    warning::{Warning, WarningCode},
};

use self::{refusal::contradiction, relation::relation, writer::writer};
pub(crate) use self::{
    refusal::{applier_stops, not_running, stopped_applier, stopped_hint, writable_transactions},
    relation::one_cluster,
};

/// Timeout of a query during a run.
const IMPATIENT: Duration = Duration::from_secs(1);

/// One server and its state.
pub struct DiscoveredServer {
    /// How to reach it.
    pub node: Node,
    /// A session for queries outside the measuring path.
    pub session: Session,
    /// Its facts.
    pub facts: ServerFacts,
    /// Its replication channels; an error when the user may not read them.
    pub channels: Result<Vec<Channel>, ServerError>,
    /// Its Galera state, when it is a Galera node.
    pub galera: Option<NodeState>,
    /// Its group, when it is a member; an error when the user may not read it.
    pub group: Result<Option<GroupState>, ServerError>,
    /// Its state as a semi-synchronous primary, when it supports that.
    pub semi_sync: Option<PrimaryState>,
    /// Its state as a semi-synchronous replica.
    pub acknowledges: ReplicaState,
}

impl DiscoveredServer {
    /// Connects and reads the state.
    ///
    /// # Errors
    /// When the server cannot be reached, the connection breaks, or its address leads to several servers.
    pub fn read(node: &Node) -> Result<Self, ServerError> {
        node.check_files()?;
        let mut session = Session::open(node)?;
        // Behind a load balancer, the next connection reaches another server: that is refused before anything is written.
        drop(Session::open(node)?);
        let facts = ServerFacts::read(&mut session)?;
        let mut channels = unless_disconnected(dialect::channels(facts.engine, &mut session))?;
        if let Ok(channels) = &mut channels {
            // A group's own channels do not lead to other servers.
            channels.retain(|channel| !channel.name.starts_with("group_replication_"));
        }
        let channels = channels.map_err(|mut error| {
            error.hint = format!(
                "run on the primary, from where it replicates: GRANT {} ON *.* to the user, to read the replica's state",
                dialect::monitor_privilege(facts.engine)
            );
            error
        });
        let galera = galera::node_state(&mut session)?;
        let group = unless_disconnected(group::group_state(&mut session))?.map_err(|mut error| {
            error.hint = "GRANT SELECT ON performance_schema.* to the user, so that the group's state can be read".to_owned();
            error
        });
        let (semi_sync, acknowledges) = semi_sync::state(&mut session)?;
        Ok(Self {
            node: node.clone(),
            session,
            facts,
            channels,
            galera,
            group,
            semi_sync,
            acknowledges,
        })
    }

    /// Returns a warning when the connection leaves this machine and exposes the password or, without one, the rows.
    pub(crate) fn unverified(&self) -> Option<Warning> {
        let (message, hint) = unverified(&self.node, self.session.tls())?;
        let message = format!("{}: {message}", self.session);
        Some(Warning::new(WarningCode::TlsNotVerified, message, hint))
    }

    /// Returns the server with a short timeout, for queries during a run.
    #[must_use]
    pub fn with_short_timeouts(&self) -> Node {
        Node {
            answer: IMPATIENT,
            ..self.node.clone()
        }
    }

    /// Returns, for a primary on which semi-synchronous replication was in effect: the transactions committed since
    /// without an acknowledgement, and whether it is in effect now.
    pub(crate) fn semi_sync_since(&mut self) -> Result<Option<(u64, bool)>, ServerError> {
        let Some(before) = self
            .semi_sync
            .as_ref()
            .filter(|state| state.active && state.clients > 0)
        else {
            return Ok(None);
        };
        let (now, _) = semi_sync::state(&mut self.session)?;
        Ok(now.map(|now| {
            let missed = now.unacknowledged.saturating_sub(before.unacknowledged);
            (missed, now.active)
        }))
    }

    /// Returns how GTIDs name what it wrote itself; `None` for a member of a cluster, where they name the cluster.
    pub(crate) fn origin(&self) -> Option<OriginServer> {
        if self.galera.is_some() || self.group().is_some() {
            return None;
        }
        OriginServer::of(&self.facts.identity())
    }

    /// Returns its group, as far as the user may read it.
    #[must_use]
    pub fn group(&self) -> Option<&GroupState> {
        self.group.as_ref().ok().and_then(Option::as_ref)
    }

    fn same_cluster(&self, other: &Self) -> Option<Relation> {
        one_cluster(
            [self.galera.as_ref(), other.galera.as_ref()],
            [self.group(), other.group()],
        )
    }
}

/// Returns why a connection that leaves this machine is not safe, and a hint.
pub(crate) fn unverified(node: &Node, encrypted: bool) -> Option<(String, &'static str)> {
    let clear = !encrypted && node.endpoint.tls.mode() == SslMode::Preferred;
    node.exposed_password(encrypted).or_else(|| {
        (clear && !node.endpoint.is_loopback()).then(|| {
            (
                "the connection is not encrypted: others on the network can read and change what is sent".to_owned(),
                "add ?ssl-ca=FILE with the server's authority to its URL, unless only you use the network",
            )
        })
    })
}

/// Connects to every server and reads its state.
///
/// # Errors
/// When one cannot be reached, or leads to the same server as one before it.
pub(crate) fn read_each(declared: &[Member]) -> Result<Vec<DiscoveredServer>, ServerError> {
    let mut servers: Vec<DiscoveredServer> = Vec::new();
    for one in declared {
        let server = DiscoveredServer::read(&one.node)?;
        let identity = server.facts.identity();
        if let Some(other) = servers
            .iter()
            .find(|other| other.facts.identity() == identity)
        {
            return Err(server.session.precondition(
                "is named twice",
                format!(
                    "{} leads to the same server, {}",
                    other.session, identity.place
                ),
                "name each server once",
            ));
        }
        servers.push(server);
    }
    Ok(servers)
}

/// A setting that makes reads or writes wait for replication, with a hint.
pub(crate) struct WaitingReads {
    /// The variable and its value.
    pub(crate) setting: String,
    /// The statement that resets it.
    pub(crate) mend: &'static str,
}

/// Returns the setting that makes a member's reads, or writes, wait for replication.
pub(crate) fn waiting_reads(
    galera: Option<&NodeState>,
    group: Option<&GroupState>,
) -> Option<WaitingReads> {
    match (galera, group) {
        (Some(node), _) if node.sync_wait != 0 => Some(WaitingReads {
            setting: format!("wsrep_sync_wait={}", node.sync_wait),
            mend: "SET GLOBAL wsrep_sync_wait=0;",
        }),
        (_, Some(group))
            if matches!(
                group.consistency.as_str(),
                "BEFORE" | "BEFORE_AND_AFTER" | "AFTER"
            ) =>
        {
            Some(WaitingReads {
                setting: format!("group_replication_consistency={}", group.consistency),
                mend: "SET GLOBAL group_replication_consistency='EVENTUAL';",
            })
        }
        _ => None,
    }
}

/// Separates a missing privilege from a lost connection.
pub(crate) fn unless_disconnected<T>(
    result: Result<T, ServerError>,
) -> Result<Result<T, ServerError>, ServerError> {
    match result {
        Err(error) if !error.is_refusal() => Err(error),
        other => Ok(other),
    }
}

/// How a server receives the writer's writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is the writer.
    Writer,
    /// By a replication channel.
    Channel {
        /// The index of its source, among the discovered servers.
        source: usize,
        /// The channel.
        channel: Box<Channel>,
        /// Total configured delay between it and the writer, in seconds.
        delay_s: u64,
    },
    /// As a node of the same Galera cluster.
    Galera,
    /// As a member of the same group.
    Group,
}

/// The writer, and how every server receives its writes.
#[derive(Debug)]
pub struct Relations {
    /// The index of the writer.
    pub writer: usize,
    /// For each server, in order.
    pub of: Vec<Relation>,
    /// The mode: `async`, `semi-sync`, `chain`, `galera`, `group`.
    pub mode: &'static str,
}

/// Returns the index of the source of a channel among `servers`.
#[must_use]
pub fn source_of(servers: &[DiscoveredServer], channel: &Channel) -> Option<usize> {
    servers
        .iter()
        .position(|server| channel.comes_from(&server.facts.identity()))
}

/// Determines the writer and every other server's relation to it, and compares them with the
/// declarations.
///
/// # Errors
/// When a server does not replicate from the writer, or contradicts its declaration, with both
/// sides.
pub fn find_relations(
    servers: &[DiscoveredServer],
    declared: &[Member],
) -> Result<Relations, ServerError> {
    let sources: Vec<Vec<(usize, &Channel)>> = servers
        .iter()
        .map(|server| {
            let channels = server.channels.as_deref().unwrap_or_default();
            channels
                .iter()
                .filter_map(|channel| Some((source_of(servers, channel)?, channel)))
                .collect()
        })
        .collect();
    let writer = writer(servers, declared, &sources)?;
    let mut of = Vec::new();
    for index in 0..servers.len() {
        of.push(if index == writer {
            Relation::Writer
        } else {
            relation(servers, writer, index, &sources)?
        });
    }
    for (index, (relation, declared)) in of.iter().zip(declared).enumerate() {
        if let Some((cause, hint)) = contradiction(servers, index, relation, declared) {
            return Err(servers[index].session.precondition(
                "does not match its declared role",
                cause,
                hint,
            ));
        }
    }
    let mode = mode(servers, writer, &of);
    Ok(Relations { writer, of, mode })
}

/// Returns the replication mode.
fn mode(servers: &[DiscoveredServer], writer: usize, of: &[Relation]) -> &'static str {
    let chained = of
        .iter()
        .any(|relation| matches!(relation, Relation::Channel { source, .. } if *source != writer));
    let semi_sync = servers[writer]
        .semi_sync
        .as_ref()
        .is_some_and(|state| state.active && state.clients > 0)
        && servers.iter().any(|server| server.acknowledges.active);
    if of.contains(&Relation::Galera) || (servers.len() == 1 && servers[0].galera.is_some()) {
        "galera"
    } else if of.contains(&Relation::Group) || (servers.len() == 1 && servers[0].group().is_some())
    {
        "group"
    } else if servers.len() == 1 {
        "none"
    } else if chained {
        "chain"
    } else if semi_sync {
        "semi-sync"
    } else {
        "async"
    }
}

/// Returns whether `from` is `to`, or replicates from it directly or indirectly. `sources` returns
/// a server's sources.
pub(crate) fn reaches<I: IntoIterator<Item = usize>>(
    sources: impl Fn(usize) -> I,
    from: usize,
    to: usize,
) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            next.extend(sources(at));
        }
    }
    false
}
