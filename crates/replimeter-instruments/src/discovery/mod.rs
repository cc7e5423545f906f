//! Discovers the state of a set of servers and their topology. Only reads; `preflight` decides
//! whether a run may begin, `doctor` reports everything to the user.

mod refusal;
mod topology;
mod writer;

use std::time::Duration;

use replimeter_engine::{
    CommitGuard, Fallback, Node, ServerError, Session, dialect::Channel, facts::ServerFacts,
    membership::Membership, position::OriginServer, source::Member,
};
use replimeter_model::{
    replication::{Mode, Relation},
    target::SslMode,
    warning::{Warning, WarningCode},
};

pub use self::topology::Source;
pub(crate) use self::{
    refusal::{applier_stops, not_running, stopped_applier, stopped_hint, writable_transactions},
    topology::{ChannelSources, ReadServer, channel_sources, reaches, relation},
};
use self::{
    refusal::{contradiction, unknown_source},
    topology::mode,
    writer::writer,
};

/// Timeout of a query during a run.
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

/// One server and its state.
pub struct DiscoveredServer {
    /// How to reach it.
    pub node: Node,
    /// A session for queries outside the measuring path.
    pub session: Session,
    /// Its facts.
    pub facts: ServerFacts,
    /// How it takes part in replication.
    pub membership: Membership,
}

impl DiscoveredServer {
    /// Connects and reads the state.
    ///
    /// # Errors
    /// When the server cannot be reached, the connection breaks, or its address leads to several servers.
    pub fn read(node: &Node) -> Result<Self, ServerError> {
        node.check_files()?;
        let mut first = Session::open(node)?;
        let facts = ServerFacts::read(&mut first)?;
        let node = Node {
            log: node.log.clone().or_else(|| facts.error_log()),
            ..node.clone()
        };
        // Behind a load balancer, the next connection reaches another server: that is refused before anything is written.
        let mut session = Session::open(&node)?;
        drop(first);
        let membership = Membership::read(&mut session, facts.engine)?;
        Ok(Self {
            node,
            session,
            facts,
            membership,
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
            answer: SHORT_TIMEOUT,
            ..self.node.clone()
        }
    }

    /// Returns how a primary whose commits waited for a replica has fallen back since; `None` for others.
    pub(crate) fn fallback(&mut self) -> Result<Option<Fallback>, ServerError> {
        let before = self.membership.waits.as_ref();
        match before.filter(|state| state.in_effect()) {
            Some(before) => CommitGuard::since(before).fallback(&mut self.session),
            None => Ok(None),
        }
    }

    /// Returns how GTIDs name what it wrote itself; `None` for a member of a cluster, where they name the cluster.
    pub(crate) fn origin(&self) -> Option<OriginServer> {
        if self.membership.as_member().is_some() {
            return None;
        }
        OriginServer::of(&self.facts.identity())
    }

    /// Returns the channel by which it receives.
    pub(crate) fn channel(&self, source: Option<Source>) -> Option<&Channel> {
        self.membership.channels().get(source?.channel)
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

/// The servers of a measurement, and who receives from whom.
#[derive(Debug)]
pub struct Topology {
    /// The index of the writer.
    pub writer: usize,
    /// How each server receives the writes, in order.
    pub relations: Vec<Relation>,
    /// The source of each server that receives by a channel.
    pub sources: Vec<Option<Source>>,
    /// The sources of all channels of each server.
    pub(crate) channel_sources: ChannelSources,
    /// The replication mode.
    pub mode: Mode,
}

/// Returns the servers as their topology depends on them.
pub(crate) fn read_servers(servers: &[DiscoveredServer]) -> Vec<Option<ReadServer<'_>>> {
    let mut all = Vec::with_capacity(servers.len());
    for server in servers {
        all.push(Some(ReadServer {
            identity: server.facts.identity(),
            membership: &server.membership,
        }));
    }
    all
}

/// Determines the writer and every other server's relation to it, and compares them with the
/// declarations.
///
/// # Errors
/// When a server does not replicate from the writer, or contradicts its declaration, with both
/// sides.
pub fn find_topology(
    servers: &[DiscoveredServer],
    declared: &[Member],
) -> Result<Topology, ServerError> {
    let read = read_servers(servers);
    let channel_sources = channel_sources(&read);
    let writer = writer(servers, declared, &channel_sources)?;
    let relations =
        (0..servers.len()).map(|index| relation(&read, &channel_sources, writer, index));
    let (relations, sources): (Vec<Relation>, Vec<Option<Source>>) = relations.unzip();
    if let Some(index) = relations.iter().position(|one| *one == Relation::None) {
        return Err(unknown_source(&servers[writer], &servers[index]));
    }
    let memberships: Vec<&Membership> = servers.iter().map(|server| &server.membership).collect();
    let topology = Topology {
        writer,
        mode: mode(&memberships, writer, &relations, &sources),
        relations,
        sources,
        channel_sources,
    };
    for (index, declared) in declared.iter().enumerate() {
        if let Some((cause, hint)) = contradiction(servers, index, &topology, declared) {
            return Err(servers[index].session.precondition(
                "does not match its declared role",
                cause,
                hint,
            ));
        }
    }
    Ok(topology)
}
