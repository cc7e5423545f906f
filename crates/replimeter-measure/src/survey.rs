//! What a set of servers says of itself, and who replicates from whom. Reads
//! only; judging whether a run may begin is `preflight`'s, telling a person
//! everything that is odd is `doctor`'s.

use std::{collections::BTreeSet, time::Duration};

use replimeter_model::{
    target::{Role, SslMode},
    warning::{Warning, WarningCode},
};
use replimeter_server::{
    ErrorKind, Node, ServerError, Session,
    facts::Facts,
    flavour::{
        self, Channel,
        galera::{self, NodeState},
        group::{self, GroupState},
        semi_sync::{self, PrimaryState, ReplicaState},
    },
};

/// How long a question may take in the middle of a run.
const IMPATIENT: Duration = Duration::from_secs(1);

/// A server, and what is said of it beforehand.
#[derive(Clone, Debug)]
pub struct Declared {
    /// How to reach it.
    pub node: Node,
    /// What it is said to be; to be found out when `None`.
    pub role: Option<Role>,
    /// Whom it is said to replicate from.
    pub source: Option<String>,
}

impl From<&Node> for Declared {
    /// A server of which nothing is said.
    fn from(node: &Node) -> Self {
        Self {
            node: node.clone(),
            role: None,
            source: None,
        }
    }
}

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
                "GRANT {} ON *.* to the user, so that the replica's state can be read",
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
                format!(
                    "{} ({}): the connection is not encrypted",
                    self.session.name(),
                    self.session.address()
                ),
                "add ?ssl-mode=verify-ca&ssl-ca=FILE to its URL if the network is not yours alone",
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
pub(crate) fn read_each(declared: &[Declared]) -> Result<Vec<Surveyed>, ServerError> {
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
                    "{} ({}) leads to the same server, {}",
                    other.session.name(),
                    other.session.address(),
                    identity.place
                ),
                "name each server once",
            ));
        }
        servers.push(server);
    }
    Ok(servers)
}

/// The cluster that two servers are both of, if any: [`Relation::Galera`] or
/// [`Relation::Group`].
pub(crate) fn one_cluster(
    galera: [Option<&NodeState>; 2],
    group: [Option<&GroupState>; 2],
) -> Option<Relation> {
    match (galera, group) {
        ([Some(one), Some(other)], _) if one.same_cluster(other) => Some(Relation::Galera),
        (_, [Some(one), Some(other)]) if one.name == other.name => Some(Relation::Group),
        _ => None,
    }
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
pub fn relate(servers: &[Surveyed], declared: &[Declared]) -> Result<Relations, ServerError> {
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
                "is not what it is declared to be",
                cause,
                hint,
            ));
        }
    }
    let chained = of
        .iter()
        .any(|relation| matches!(relation, Relation::Channel { source, .. } if *source != writer));
    let semi_sync = servers[writer]
        .semi_sync
        .as_ref()
        .is_some_and(|state| state.active && state.clients > 0)
        && servers.iter().any(|server| server.acknowledges.active);
    let mode = if of.contains(&Relation::Galera)
        || (servers.len() == 1 && servers[0].galera.is_some())
    {
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
    };
    Ok(Relations { writer, of, mode })
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

fn writer(
    servers: &[Surveyed],
    declared: &[Declared],
    sources: &[Vec<(usize, &Channel)>],
) -> Result<usize, ServerError> {
    let doing = "cannot be the primary";
    if let Some(index) = declared
        .iter()
        .position(|declared| declared.role == Some(Role::Primary))
    {
        let session = &servers[index].session;
        if let Some(group) = servers[index].group()
            && let Some(own) = group.own().filter(|own| own.role == "SECONDARY")
        {
            let primary = group.members.iter().find(|member| member.role == "PRIMARY");
            return Err(session.unfit(
                doing,
                format!(
                    "it is declared the primary, but its group says it is {} and the primary is {}",
                    own.role,
                    primary.map_or("nobody", |member| &member.address)
                ),
                "name the group's primary as the primary, or leave the roles out",
            ));
        }
        // Servers that replicate in a ring are usual with one writer.
        let of = |at: usize| sources[at].iter().map(|(source, _)| *source);
        if let Some(source) = of(index).find(|source| !reaches(of, *source, index)) {
            let source = &servers[source].session;
            return Err(session.unfit(
                doing,
                format!(
                    "it is declared the primary, but it replicates from {} ({})",
                    source.name(),
                    source.address()
                ),
                format!("declare {} the primary, or mend replication", source.name()),
            ));
        }
        return Ok(index);
    }
    let group = servers
        .iter()
        .filter_map(Surveyed::group)
        .find(|group| group.single_primary && group.own().is_some_and(|own| own.state == "ONLINE"));
    if let Some(primary) =
        group.and_then(|group| group.members.iter().find(|member| member.role == "PRIMARY"))
    {
        let named = servers
            .iter()
            .position(|server| server.facts.identity().uuid == primary.uuid);
        return named.ok_or_else(|| {
            servers[0].session.unfit(
                "is a member of a group whose primary is not named",
                format!("the group's primary is {}", primary.address),
                "name it too: it is the only member that takes writes",
            )
        });
    }
    let replica = |index: &usize| declared[*index].role == Some(Role::Replica);
    let roots: Vec<usize> = (0..servers.len())
        .filter(|index| sources[*index].is_empty())
        .filter(|index| !replica(index))
        .collect();
    match roots.as_slice() {
        [] => Err(servers[0].session.unfit(
            "cannot tell which server is the primary",
            "every server replicates from another one",
            "declare the one that is written to as the primary",
        )),
        [first, rest @ ..] => {
            // Members of one cluster are equal: the first one named takes the writes.
            let stranger = rest
                .iter()
                .find(|other| servers[*first].same_cluster(&servers[**other]).is_none());
            match stranger {
                None => Ok(*first),
                Some(other) => Err(servers[*other].session.unfit(
                    "cannot tell which server is the primary",
                    format!(
                        "neither it nor {} ({}) replicates from any of the others",
                        servers[*first].session.name(),
                        servers[*first].session.address()
                    ),
                    "are these servers of one cluster? declare the one that is written to as the primary, and check replication",
                )),
            }
        }
    }
}

/// A server on the way from a replica to the writer.
struct Upstream<'a> {
    at: usize,
    /// The replica's own channel on this way, and its source.
    first: Option<(usize, &'a Channel)>,
    /// Configured delays so far.
    delay_s: u64,
}

fn relation(
    servers: &[Surveyed],
    writer: usize,
    index: usize,
    sources: &[Vec<(usize, &Channel)>],
) -> Result<Relation, ServerError> {
    if let Some(member) = servers[index].same_cluster(&servers[writer]) {
        return Ok(member);
    }
    // Breadth first over the channels, upstream, until the writer or one of its cluster.
    let mut reached = vec![false; servers.len()];
    reached[index] = true;
    let mut frontier = vec![Upstream {
        at: index,
        first: None,
        delay_s: 0,
    }];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for step in frontier {
            // Of a cluster behind a replica every member has what one of them receives.
            for sibling in 0..servers.len() {
                if servers[step.at].same_cluster(&servers[sibling]).is_some()
                    && !std::mem::replace(&mut reached[sibling], true)
                {
                    next.push(Upstream {
                        at: sibling,
                        first: step.first,
                        delay_s: step.delay_s,
                    });
                }
            }
            for &(source, channel) in &sources[step.at] {
                let first = step.first.unwrap_or((source, channel));
                let delay_s = step.delay_s + channel.delay_s;
                if source == writer || servers[source].same_cluster(&servers[writer]).is_some() {
                    // Without a channel of its own it has it from its cluster.
                    if step.first.is_none() && step.at != index {
                        return Ok(servers[index]
                            .same_cluster(&servers[step.at])
                            .unwrap_or(Relation::Galera));
                    }
                    return Ok(Relation::Channel {
                        source: first.0,
                        channel: Box::new(first.1.clone()),
                        delay_s,
                    });
                }
                if !std::mem::replace(&mut reached[source], true) {
                    next.push(Upstream {
                        at: source,
                        first: Some(first),
                        delay_s,
                    });
                }
            }
        }
        frontier = next;
    }
    Err(stranger(&servers[writer], &servers[index]))
}

/// Why a server gets nothing of what the writer writes.
fn stranger(writer: &Surveyed, server: &Surveyed) -> ServerError {
    let session = &server.session;
    let doing = "is not a replica of the given primary";
    if let Some(own) = &server.galera {
        return session.unfit(
            "is not in the primary's cluster",
            format!(
                "it is a Galera node ({}), and {} is not in its cluster",
                own.words(),
                writer.session.name()
            ),
            "name nodes of one cluster only",
        );
    }
    if let Some(own) = server.group() {
        let primary = writer.session.name();
        return session.unfit(
            "is not in the primary's group",
            format!(
                "it is a member of a group ({}), and {primary} is not in that group",
                own.words()
            ),
            "name members of one group only",
        );
    }
    let channels = match &server.channels {
        Ok(channels) => channels,
        Err(error) => return error.clone(),
    };
    if channels.is_empty() {
        return session.unfit(
            doing,
            "it replicates from nowhere",
            "is this the right server? set up replication first",
        );
    }
    // A channel that never connected knows no source yet; its state tells why.
    if let Some(channel) = channels
        .iter()
        .find(|channel| channel.source_server_id == 0)
    {
        return not_running(session, channel);
    }
    let identity = writer.facts.identity();
    let called = |server_id: u64, uuid: &str| {
        if uuid.is_empty() {
            format!("server_id {server_id}")
        } else {
            format!("server_uuid {uuid}")
        }
    };
    let sources: Vec<String> = channels
        .iter()
        .map(|channel| {
            let called = called(channel.source_server_id, &channel.source_uuid);
            format!("{}:{} ({called})", channel.source_host, channel.source_port)
        })
        .collect();
    session.unfit(
        doing,
        format!(
            "it replicates from {}, and the primary {} has {}",
            sources.join(", "),
            writer.session.address(),
            called(identity.server_id, &identity.uuid)
        ),
        "name the primary that this replica replicates from, the server in between too, or another replica",
    )
}

/// A channel that does not do its work.
pub(crate) fn not_running(session: &Session, channel: &Channel) -> ServerError {
    session.unfit(
        "does not replicate",
        channel.state(),
        "mend replication first; the server's error log says more",
    )
}

/// What a server says that its declared role or source denies, and what to do.
fn contradiction(
    servers: &[Surveyed],
    index: usize,
    found: &Relation,
    declared: &Declared,
) -> Option<(String, &'static str)> {
    const ROLES: &str = "correct the roles, or leave them out";
    let named = |source: usize| {
        format!(
            "{} ({})",
            servers[source].session.name(),
            servers[source].session.address()
        )
    };
    let in_cluster = servers[index].galera.is_some() || servers[index].group().is_some();
    let of_role = match (declared.role, found) {
        (Some(Role::Node), _) if !in_cluster => Some((
            "it is declared a node, but it says it is in no Galera cluster and in no group"
                .to_owned(),
            "declare a primary and its replicas instead, or check the cluster",
        )),
        (Some(Role::Node), Relation::Channel { source, .. }) => Some((
            format!(
                "it is declared a node, but it is not in the writer's cluster: it replicates from {}",
                named(*source)
            ),
            ROLES,
        )),
        (Some(Role::Replica), Relation::Galera) => Some((
            "it is declared a replica, but it says it is a node of the primary's Galera cluster"
                .to_owned(),
            ROLES,
        )),
        (Some(Role::Replica), Relation::Group) => Some((
            "it is declared a replica, but it says it is a member of the primary's group"
                .to_owned(),
            ROLES,
        )),
        (Some(Role::Replica), Relation::Writer) => Some((
            "it is declared a replica, but it is the one that takes the writes".to_owned(),
            ROLES,
        )),
        _ => None,
    };
    of_role.or_else(|| match (declared.source.as_deref()?, found) {
        (wanted, Relation::Channel { source, .. }) if servers[*source].session.name() == wanted => None,
        (wanted, Relation::Channel { source, .. }) => Some((
            format!("its source is declared as {wanted}, but it replicates from {}", named(*source)),
            "correct the file, or point the replica at the source it should have",
        )),
        (wanted, _) => Some((
            format!("its source is declared as {wanted}, but it has no replication channel from any of these servers"),
            "correct the file",
        )),
    })
}
