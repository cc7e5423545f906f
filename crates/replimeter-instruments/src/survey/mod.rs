//! What a set of servers says of itself, and who replicates from whom. Reads
//! only; judging whether a run may begin is `preflight`'s, telling a person
//! everything that is odd is `doctor`'s.

mod refusal;
mod relation;
mod writer;

use std::{collections::BTreeSet, time::Duration};

use replimeter_engine::{
    ErrorKind, Node, ServerError, Session,
    facts::Facts,
    flavour::{
        self, Channel,
        galera::{self, NodeState},
        group::{self, GroupState},
        semi_sync::{self, PrimaryState, ReplicaState},
    },
    source::Member,
};
use replimeter_model::{
    target::SslMode,
    warning::{Warning, WarningCode},
};

use self::{refusal::contradiction, relation::relation, writer::writer};
pub(crate) use self::{refusal::not_running, relation::one_cluster};

/// How long a question may take in the middle of a run.
const IMPATIENT: Duration = Duration::from_secs(1);

/// One server and what it says of itself.
pub struct Surveyed {
    /// How to reach it.
    pub node: Node,
    /// A session for questions outside the measuring path.
    pub session: Session,
    /// What it is.
    pub facts: Facts,
    /// Its replication channels; an error when the user may not see them.
    pub channels: Result<Vec<Channel>, ServerError>,
    /// Its Galera state, when it is such a node.
    pub galera: Option<NodeState>,
    /// Its group, when it is a member of one; an error when the user may not see it.
    pub group: Result<Option<GroupState>, ServerError>,
    /// Its part as a semi-synchronous primary, when it knows of that.
    pub semi_sync: Option<PrimaryState>,
    /// Its part as a semi-synchronous replica.
    pub acknowledges: ReplicaState,
}

impl Surveyed {
    /// Connects and asks.
    ///
    /// # Errors
    /// When the server cannot be reached or the connection breaks.
    pub fn read(node: &Node) -> Result<Self, ServerError> {
        node.check_files()?;
        let mut session = Session::open(node)?;
        let facts = Facts::read(&mut session)?;
        let mut channels = survivable(flavour::channels(facts.engine, &mut session))?;
        if let Ok(channels) = &mut channels {
            // Those of a group's own are no replication from elsewhere.
            channels.retain(|channel| !channel.name.starts_with("group_replication_"));
        }
        let channels = channels.map_err(|mut error| {
            error.hint = format!(
                "GRANT {} ON *.* to the user, to read the replica's state",
                flavour::monitor_privilege(facts.engine)
            );
            error
        });
        let galera = galera::node_state(&mut session)?;
        let group = survivable(group::group_state(&mut session))?.map_err(|mut error| {
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

    /// A warning when the connection is in the clear and leaves this machine.
    pub(crate) fn unencrypted(&self) -> Option<Warning> {
        let endpoint = &self.node.endpoint;
        let clear = !self.session.tls()
            && endpoint.ssl_mode == SslMode::Preferred
            && !endpoint.is_loopback();
        clear.then(|| {
            Warning::new(
                WarningCode::TlsNotVerified,
                format!("{}: the connection is not encrypted", self.session),
                "add ?ssl-mode=verify-ca&ssl-ca=FILE to its URL, unless only you use the network",
            )
        })
    }

    /// The server with little patience, for questions in the middle of a run.
    #[must_use]
    pub fn impatient(&self) -> Node {
        Node {
            answer: IMPATIENT,
            ..self.node.clone()
        }
    }

    /// Of a primary on which semi-synchronous replication was in effect: how many transactions it has committed since
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

    /// The group it belongs to, as far as the user may see.
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

/// Connects to every server and asks it.
///
/// # Errors
/// When one cannot be reached, or leads to the same server as one before it.
pub(crate) fn read_each(declared: &[Member]) -> Result<Vec<Surveyed>, ServerError> {
    let mut servers: Vec<Surveyed> = Vec::new();
    for one in declared {
        let server = Surveyed::read(&one.node)?;
        let identity = server.facts.identity();
        if let Some(other) = servers
            .iter()
            .find(|other| other.facts.identity() == identity)
        {
            return Err(server.session.unfit(
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

/// A setting by which reads or writes wait for replication, and its mending.
pub(crate) struct WaitingReads {
    /// The variable and its value.
    pub(crate) setting: String,
    /// The statement that ends it.
    pub(crate) mend: &'static str,
}

/// Whether a member's reads, or writes, wait for replication by themselves.
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

/// Keeps a missing privilege apart from a connection that broke.
pub(crate) fn survivable<T>(
    result: Result<T, ServerError>,
) -> Result<Result<T, ServerError>, ServerError> {
    match result {
        Err(error) if !matches!(error.kind, ErrorKind::Privilege | ErrorKind::Statement(_)) => {
            Err(error)
        }
        other => Ok(other),
    }
}

/// How a server comes by what the writer writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is where rows are written.
    Writer,
    /// By a replication channel.
    Channel {
        /// The number of the server it replicates from, among the surveyed.
        source: usize,
        /// The channel.
        channel: Box<Channel>,
        /// Configured delays on the whole way from the writer, in seconds.
        delay_s: u64,
    },
    /// As a node of the same Galera cluster.
    Galera,
    /// As a member of the same group.
    Group,
}

/// Who writes, and how every server comes by what is written.
#[derive(Debug)]
pub struct Relations {
    /// The number of the server that is written to.
    pub writer: usize,
    /// For each server, in order.
    pub of: Vec<Relation>,
    /// The mode in a word: `async`, `semi-sync`, `chain`, `galera`, `group`.
    pub mode: &'static str,
}

/// Who a channel of one of `servers` comes from: its number among them.
#[must_use]
pub fn source_of(servers: &[Surveyed], channel: &Channel) -> Option<usize> {
    servers
        .iter()
        .position(|server| channel.comes_from(&server.facts.identity()))
}

/// Finds out who is the writer and how everyone else hangs on it, and holds that
/// against what was declared.
///
/// # Errors
/// When a server does not hang on the writer, or contradicts what was declared:
/// naming both sides.
pub fn relate(servers: &[Surveyed], declared: &[Member]) -> Result<Relations, ServerError> {
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
            return Err(servers[index].session.unfit(
                "does not match its declared role",
                cause,
                hint,
            ));
        }
    }
    let mode = mode(servers, writer, &of);
    Ok(Relations { writer, of, mode })
}

/// The mode of replication, in a word.
fn mode(servers: &[Surveyed], writer: usize, of: &[Relation]) -> &'static str {
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

/// Whether `from` is `to`, or replicates from it over however many servers.
/// `sources` are those that a server replicates from.
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
