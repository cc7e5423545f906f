//! How a server takes part in replication, as it reports it. Relations between servers are determined in
//! `replimeter-instruments`.

use replimeter_model::{
    engine::Engine,
    replication::{Mode, Relation},
};

use crate::{
    ServerError, Session,
    dialect::{
        self, Channel,
        acknowledgement::{self, PrimaryState, ReplicaState},
        galera::{self, NodeState},
        group::{self, GroupState},
    },
    error::unless_disconnected,
};

/// The state of a cluster's member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// A Galera node.
    Galera(NodeState),
    /// A member of a group.
    Group(GroupState),
}

impl ClusterState {
    /// Reads the state in a cluster of this mode; `None` when the server is in no such cluster.
    ///
    /// # Errors
    /// When the privilege is missing or the connection breaks.
    pub fn read(mode: Mode, session: &mut Session) -> Result<Option<Self>, ServerError> {
        match mode {
            Mode::Galera => Ok(galera::node_state(session)?.map(Self::Galera)),
            Mode::Group => Ok(group::group_state(session)?.map(Self::Group)),
            Mode::None | Mode::Async | Mode::SemiSync | Mode::Chain => Ok(None),
        }
    }

    /// Reads the state in the cluster that the server is in, of any mode; `None` when it is in none.
    ///
    /// # Errors
    /// When the privilege is missing or the connection breaks.
    pub fn current(session: &mut Session) -> Result<Option<Self>, ServerError> {
        match Self::read(Mode::Galera, session)? {
            Some(node) => Ok(Some(node)),
            None => Self::read(Mode::Group, session),
        }
    }

    /// Reads the state in a cluster of this mode, which the server was a member of.
    ///
    /// # Errors
    /// When it has left the cluster, the privilege is missing or the connection breaks.
    pub fn still(mode: Mode, session: &mut Session) -> Result<Self, ServerError> {
        let left = match mode {
            Mode::Galera => "it has left the Galera cluster",
            _ => "it has left the group",
        };
        Self::read(mode, session)?.ok_or_else(|| {
            let operation = "cannot read the replica's state";
            session.precondition(operation, left, "see the server's error log")
        })
    }

    /// Returns the mode of the cluster.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self {
            Self::Galera(_) => Mode::Galera,
            Self::Group(_) => Mode::Group,
        }
    }

    /// Returns how a member receives what another one writes.
    #[must_use]
    pub fn relation(&self) -> Relation {
        match self {
            Self::Galera(_) => Relation::Galera,
            Self::Group(_) => Relation::Group,
        }
    }

    /// Returns the number of members that it sees.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Galera(node) => node.size as usize,
            Self::Group(group) => group.members.len(),
        }
    }

    /// Returns the number of members that take writes.
    #[must_use]
    pub fn writers(&self) -> usize {
        match self {
            Self::Group(group) if group.single_primary => 1,
            _ => self.size(),
        }
    }

    /// Returns whether a member that lacks a table leaves, or votes the writer out, at its first row.
    #[must_use]
    pub fn needs_tables(&self) -> bool {
        matches!(self, Self::Galera(_))
    }

    /// Returns the setting that makes its reads, or writes, wait for replication, if it does.
    #[must_use]
    pub fn waiting_reads(&self) -> Option<WaitingReads> {
        match self {
            Self::Galera(node) => (node.sync_wait != 0).then(|| WaitingReads {
                setting: format!("wsrep_sync_wait={}", node.sync_wait),
                mend: "SET GLOBAL wsrep_sync_wait=0;",
            }),
            Self::Group(group) => matches!(
                group.consistency.as_str(),
                "BEFORE" | "BEFORE_AND_AFTER" | "AFTER"
            )
            .then(|| WaitingReads {
                setting: format!("group_replication_consistency={}", group.consistency),
                mend: "SET GLOBAL group_replication_consistency='EVENTUAL';",
            }),
        }
    }

    /// Returns whether another member is in the same cluster.
    #[must_use]
    pub fn same_cluster(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Galera(one), Self::Galera(other)) => one.same_cluster(other),
            (Self::Group(one), Self::Group(other)) => one.name == other.name,
            _ => false,
        }
    }

    /// Returns whether its cluster numbers transactions, and not its members.
    #[must_use]
    pub fn numbers_itself(&self) -> bool {
        matches!(self, Self::Galera(_))
    }

    /// Returns whether it is in the part of the cluster that has the majority, and takes writes.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        match self {
            Self::Galera(node) => node.component == "Primary",
            Self::Group(group) => group.online() * 2 > group.members.len(),
        }
    }

    /// Returns whether it takes the writes of a cluster with one writer; `None` if every member may.
    #[must_use]
    pub fn takes_writes(&self) -> Option<bool> {
        match self {
            Self::Group(group) if group.single_primary => {
                Some(group.own_member().is_some_and(|own| own.role == "PRIMARY"))
            }
            _ => None,
        }
    }

    /// Returns whether it is a full member.
    #[must_use]
    pub fn active(&self) -> bool {
        match self {
            Self::Galera(node) => node.synced(),
            Self::Group(group) => group.own_member().is_some_and(|own| own.state == "ONLINE"),
        }
    }

    /// Returns whether it has failed and does not recover automatically.
    #[must_use]
    pub fn failed(&self) -> bool {
        match self {
            Self::Galera(_) => false,
            Self::Group(group) => group.own_member().is_some_and(|own| own.state == "ERROR"),
        }
    }

    /// Returns a one-line description.
    #[must_use]
    pub fn description(&self) -> String {
        match self {
            Self::Galera(node) => node.description(),
            Self::Group(group) => group.description(),
        }
    }

    /// Returns a one-line description with its part in the cluster.
    #[must_use]
    pub fn description_and_role(&self) -> String {
        let Self::Group(group) = self else {
            return self.description();
        };
        let role = group.own_member().map_or("", |own| own.role.as_str());
        let kind = match group.single_primary {
            true => "single-primary group",
            false => "multi-primary group",
        };
        format!("{}, {role} of a {kind}", group.description())
    }

    /// Returns its state, and its part in the cluster, in a few words; `None` for a group without it.
    #[must_use]
    pub fn state_and_part(&self) -> Option<String> {
        let (state, part) = match self {
            Self::Galera(node) => (&node.state, &node.component),
            Self::Group(group) => group.own_member().map(|own| (&own.state, &own.role))?,
        };
        Some(format!("{state}, {part}"))
    }

    /// Returns what it is in the cluster of a primary, as the rest of a sentence.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Galera(_) => "a node of the primary's Galera cluster",
            Self::Group(_) => "a member of the primary's group",
        }
    }

    /// Returns what to wait for if it is not active.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Galera(_) => "wait until the node is Synced; see its error log",
            Self::Group(_) => "wait until the member is ONLINE; see its error log",
        }
    }

    /// Returns the error of a member, with this session, of whose cluster the primary with this name is not.
    #[must_use]
    pub fn without_primary(&self, session: &Session, primary: &str) -> ServerError {
        let (operation, what, cluster, hint) = match self {
            Self::Galera(_) => (
                "is not in the primary's cluster",
                "a Galera node",
                "its cluster",
                "name nodes of one cluster only",
            ),
            Self::Group(_) => (
                "is not in the primary's group",
                "a member of a group",
                "that group",
                "name members of one group only",
            ),
        };
        let own = self.description();
        let cause = format!("it is {what} ({own}), and {primary} is not in {cluster}");
        session.precondition(operation, cause, hint)
    }
}

/// A setting that makes reads or writes wait for replication, with a hint.
pub struct WaitingReads {
    /// The variable and its value.
    pub setting: String,
    /// The statement that resets it.
    pub mend: &'static str,
}

/// The fact about a server that is in no cluster.
pub const NO_CLUSTER: &str = "it is in no Galera cluster and in no group";
/// The privilege for reading the state of a cluster, as GRANT spells it.
pub const CLUSTER_PRIVILEGE: &str = "SELECT ON `performance_schema`.*";

/// Returns why a server that receives writes in this mode, as one of this number of servers, does not replicate; `None` if it does.
///
/// # Errors
/// When the privilege is missing or the connection breaks.
pub fn fault(
    mode: Mode,
    engine: Engine,
    servers: usize,
    session: &mut Session,
) -> Result<Option<String>, ServerError> {
    if !mode.has_members() {
        let channels = dialect::channels(engine, session)?;
        return Ok(match channels.first() {
            Some(channel) => (!channel.running()).then(|| channel.state()),
            None => Some(dialect::CHANNEL_GONE.to_owned()),
        });
    }
    let state = ClusterState::read(mode, session)?;
    let whole = match &state {
        Some(ClusterState::Galera(node)) => node.synced() && node.size == servers as u64,
        Some(ClusterState::Group(group)) => group.online() == servers,
        None => false,
    };
    let left = || "it has left the cluster".to_owned();
    Ok((!whole).then(|| state.map_or_else(left, |state| state.description())))
}

/// How a server takes part in replication.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Its state in its cluster, when it is a member of one; an error when the user may not read it.
    pub cluster: Result<Option<ClusterState>, ServerError>,
    /// Its replication channels, without those of its group; an error when the user may not read them.
    pub channels: Result<Vec<Channel>, ServerError>,
    /// Its state as a semi-synchronous primary, when it supports that.
    pub waits: Option<PrimaryState>,
    /// Its state as a semi-synchronous replica.
    pub acknowledges: ReplicaState,
}

impl Membership {
    /// Reads it from a server of this engine.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn read(session: &mut Session, engine: Engine) -> Result<Self, ServerError> {
        let channels = unless_disconnected(dialect::source_channels(engine, session))?;
        let channels = channels.map_err(|mut error| {
            error.hint = format!(
                "run on the primary, from where it replicates: GRANT {} ON *.* to the user, to read the replica's state",
                dialect::monitor_privilege(engine)
            );
            error
        });
        let cluster = match ClusterState::read(Mode::Galera, session)? {
            Some(node) => Ok(Some(node)),
            None => unless_disconnected(ClusterState::read(Mode::Group, session))?.map_err(|mut error| {
                error.hint = "GRANT SELECT ON performance_schema.* to the user, so that the group's state can be read".to_owned();
                error
            }),
        };
        let (waits, acknowledges) = acknowledgement::state(session)?;
        Ok(Self {
            cluster,
            channels,
            waits,
            acknowledges,
        })
    }

    /// Returns its state as a member of a cluster, as far as the user may read it.
    #[must_use]
    pub fn as_member(&self) -> Option<&ClusterState> {
        self.cluster.as_ref().ok()?.as_ref()
    }

    /// Returns its state as a Galera node.
    #[must_use]
    pub fn galera(&self) -> Option<&NodeState> {
        match self.as_member()? {
            ClusterState::Galera(node) => Some(node),
            ClusterState::Group(_) => None,
        }
    }

    /// Returns its group, as far as the user may read it.
    #[must_use]
    pub fn group(&self) -> Option<&GroupState> {
        match self.as_member()? {
            ClusterState::Galera(_) => None,
            ClusterState::Group(group) => Some(group),
        }
    }

    /// Returns its channels, as far as the user may read them.
    #[must_use]
    pub fn channels(&self) -> &[Channel] {
        self.channels.as_deref().unwrap_or_default()
    }

    /// Returns whether both servers are members of one cluster.
    #[must_use]
    pub fn same_cluster(&self, other: &Self) -> bool {
        let both = self.as_member().zip(other.as_member());
        both.is_some_and(|(one, other)| one.same_cluster(other))
    }

    /// Returns whether it may have the `server_id` of another server: Galera nodes that share GTIDs have one.
    #[must_use]
    pub fn shares_server_id(&self, other: &Self) -> bool {
        self.galera().is_some() && self.same_cluster(other)
    }

    /// Returns how a channel from `source` replicates, as in effect now: `async` or `semi-sync`.
    #[must_use]
    pub fn mode_from(&self, source: &Self) -> Mode {
        let in_effect = source.waits.as_ref().is_some_and(PrimaryState::in_effect);
        if in_effect && self.acknowledges.enabled && self.acknowledges.active {
            Mode::SemiSync
        } else {
            Mode::Async
        }
    }
}
