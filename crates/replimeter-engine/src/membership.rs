//! How a server takes part in replication, as it reports it. Relations between servers are determined in
//! `replimeter-instruments`.

use replimeter_model::{engine::Engine, replication::Mode};

use crate::{
    ServerError, Session,
    dialect::{
        self, Channel,
        galera::{self, NodeState},
        group::{self, GroupState},
        semi_sync::{self, PrimaryState, ReplicaState},
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

    /// Returns the mode of the cluster.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self {
            Self::Galera(_) => Mode::Galera,
            Self::Group(_) => Mode::Group,
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
}

/// How a server takes part in replication.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Its state in its cluster, when it is a member of one; an error when the user may not read it.
    pub cluster: Result<Option<ClusterState>, ServerError>,
    /// Its replication channels, without those of its group; an error when the user may not read them.
    pub channels: Result<Vec<Channel>, ServerError>,
    /// Its state as a semi-synchronous primary, when it supports that.
    pub semi_sync: Option<PrimaryState>,
    /// Its state as a semi-synchronous replica.
    pub acknowledges: ReplicaState,
}

impl Membership {
    /// Reads it from a server of this engine.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn read(session: &mut Session, engine: Engine) -> Result<Self, ServerError> {
        let mut channels = unless_disconnected(dialect::channels(engine, session))?;
        if let Ok(channels) = &mut channels {
            // A group's own channels do not lead to other servers.
            channels.retain(|channel| !channel.name.starts_with("group_replication_"));
        }
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
        let (semi_sync, acknowledges) = semi_sync::state(session)?;
        Ok(Self {
            cluster,
            channels,
            semi_sync,
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

    /// Returns how a channel from `source` replicates, as in effect now: `async` or `semi-sync`.
    #[must_use]
    pub fn mode_from(&self, source: &Self) -> Mode {
        let waits = source
            .semi_sync
            .as_ref()
            .is_some_and(PrimaryState::in_effect);
        if waits && self.acknowledges.enabled && self.acknowledges.active {
            Mode::SemiSync
        } else {
            Mode::Async
        }
    }
}
