//! Servers that passed the checks, and their state during a run.

use std::{cmp::Ordering, time::Duration};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{self, Channel},
    membership::ClusterState,
    position::EnginesDiffer,
};
use replimeter_model::{
    manifest::ServerRecord,
    replication::{Mode, Relation},
    warning::{Warning, WarningCode},
};

use super::Unnamed;
use crate::{
    SCHEMA,
    discovery::{DiscoveredServer, Source, Topology, stopped_hint},
};

/// A replica that passed; also a member of a cluster other than the writer.
pub struct CheckedReplica {
    /// The server.
    pub server: DiscoveredServer,
    /// How it receives writes.
    pub relation: Relation,
    /// Its source, if that is by a channel: an index among all servers, the primary first.
    pub source: Option<Source>,
}

/// The state of a replica during a run.
#[derive(Clone, Debug)]
pub struct ReplicaState {
    /// Whether it replicates.
    pub running: bool,
    /// Whether it only waits for its connection to the source, which it repeats by itself.
    pub reconnecting: bool,
    /// Whether it has failed and does not recover automatically.
    pub failed: bool,
    /// A one-line description.
    pub words: String,
    /// What helps if it does not replicate.
    pub hint: String,
}

impl CheckedReplica {
    /// Returns the delay configured between it and the primary.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_secs(self.source.map_or(0, |source| source.delay_s))
    }

    /// Returns the channel by which it receives, as it was when it was checked.
    #[must_use]
    pub fn channel(&self) -> Option<&Channel> {
        self.server.channel(self.source)
    }

    /// Returns the warning that it did not replicate when it was checked, with the effect on the figures.
    #[must_use]
    pub fn stopped(&self, effect: &str) -> Option<Warning> {
        let channel = self.channel()?;
        let warning = || {
            let name = self.server.session.name();
            Warning::new(
                WarningCode::ReplicaStopped,
                format!("{name} does not replicate ({}): {effect}", channel.state()),
                stopped_hint(self.server.facts.engine, channel),
            )
        };
        (!channel.running()).then(warning)
    }

    /// Returns whether it leaves the writer's cluster, or votes the writer out, at the first row of a table that it lacks.
    pub(crate) fn needs_tables(&self) -> bool {
        let member = self.server.membership.as_member();
        self.relation.in_cluster() && member.is_some_and(ClusterState::needs_tables)
    }

    /// Returns its current state, read on a new connection with a short timeout: the replica may
    /// hang.
    ///
    /// # Errors
    /// When the replica does not answer or no longer belongs to the target.
    pub fn state_now(&self) -> Result<ReplicaState, ServerError> {
        let mut session = Session::open(&self.server.with_short_timeouts())?;
        if let Some(channel) = self.channel() {
            let channels = dialect::channels(self.server.facts.engine, &mut session)?;
            let Some(now) = channels.into_iter().find(|now| now.name == channel.name) else {
                return Err(dialect::channel_gone(
                    &session,
                    "cannot read the replica's state",
                ));
            };
            return Ok(ReplicaState {
                running: now.running(),
                reconnecting: now.reconnecting(),
                failed: !now.sql_error.is_empty(),
                words: now.state(),
                hint: stopped_hint(self.server.facts.engine, &now),
            });
        }
        let state = ClusterState::still(self.relation.cluster().unwrap_or_default(), &mut session)?;
        Ok(ReplicaState {
            running: state.active(),
            reconnecting: false,
            failed: state.failed(),
            words: state.description(),
            hint: "see the server's error log".to_owned(),
        })
    }

    /// Checks that it still replicates.
    fn verify(&self) -> Result<(), ServerError> {
        let state = self.state_now()?;
        if state.running {
            return Ok(());
        }
        Err(self.server.session.precondition(
            "no longer replicates",
            state.words,
            "see the server's error log; measure again",
        ))
    }
}

/// Servers that passed, with warnings.
pub struct Cluster {
    /// The writer.
    pub primary: DiscoveredServer,
    /// The servers on which rows are awaited.
    pub replicas: Vec<CheckedReplica>,
    /// Servers that replicate from these and were not named.
    pub unnamed: Unnamed,
    /// The replication mode.
    pub mode: Mode,
    /// Findings that do not prevent the run.
    pub warnings: Vec<Warning>,
}

impl Cluster {
    /// Returns the servers with their relations.
    pub(crate) fn of(
        servers: Vec<DiscoveredServer>,
        topology: Topology,
        warnings: Vec<Warning>,
    ) -> Self {
        let writer = topology.writer;
        let place = |index: usize| match index.cmp(&writer) {
            Ordering::Less => index + 1,
            Ordering::Equal => 0,
            Ordering::Greater => index,
        };
        let servers = servers.into_iter().zip(topology.relations);
        let mut replicas: Vec<CheckedReplica> = servers
            .zip(topology.sources)
            .map(|((server, relation), source)| CheckedReplica {
                server,
                relation,
                source: source.map(|source| Source {
                    server: place(source.server),
                    ..source
                }),
            })
            .collect();
        Self {
            primary: replicas.remove(writer).server,
            replicas,
            unnamed: Unnamed::default(),
            mode: topology.mode,
            warnings,
        }
    }

    /// Returns all servers, the primary first.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &DiscoveredServer> {
        let replicas = self.replicas.iter().map(|replica| &replica.server);
        std::iter::once(&self.primary).chain(replicas)
    }

    /// Returns the same, mutable.
    pub(crate) fn servers_mut(&mut self) -> impl Iterator<Item = &mut DiscoveredServer> {
        let replicas = self.replicas.iter_mut().map(|replica| &mut replica.server);
        std::iter::once(&mut self.primary).chain(replicas)
    }

    /// Returns the index of the server that a replica receives from, among all servers; `None` for members of the primary's
    /// cluster.
    fn source_of(&self, replica: &CheckedReplica) -> Option<usize> {
        let own = &replica.server.membership;
        let has_channel = |other: &CheckedReplica| {
            other.source.is_some() && other.server.membership.same_cluster(own)
        };
        match replica.source {
            Some(source) => Some(source.server),
            None if self.primary.membership.same_cluster(own) => None,
            // Of another cluster, it receives through the member that has the channel.
            None => Some(self.replicas.iter().position(has_channel)? + 1),
        }
    }

    /// Returns records of all servers for the manifest; the primary first.
    #[must_use]
    pub fn records(&self) -> Vec<ServerRecord> {
        let record = |server: &DiscoveredServer| server.facts.record(&server.session);
        let servers: Vec<&DiscoveredServer> = self.servers().collect();
        let member =
            |server: &DiscoveredServer| server.membership.as_member().map(ClusterState::mode);
        let primary = ServerRecord {
            mode: Some(member(&self.primary).unwrap_or_default()),
            ..record(&self.primary)
        };
        let replicas = self.replicas.iter().map(|replica| {
            let source = self.source_of(replica).map(|index| servers[index]);
            let mode = match (replica.relation, source) {
                (Relation::Channel, Some(source)) => {
                    Some(replica.server.membership.mode_from(&source.membership))
                }
                _ => member(&replica.server),
            };
            let channel = replica.channel();
            ServerRecord {
                mode,
                receives_from: source.map(|source| source.node.name.clone()),
                replication: channel
                    .map(|channel| channel.raw.clone())
                    .unwrap_or_default(),
                ..record(&replica.server)
            }
        });
        std::iter::once(primary).chain(replicas).collect()
    }

    /// Checks that the positions of the replicas, and ids of commits there, can be compared with the primary's.
    ///
    /// # Errors
    /// When a replica runs another engine.
    pub(crate) fn check_comparable(&self) -> Result<(), ServerError> {
        let engine = self.primary.facts.engine;
        let mut replicas = self.replicas.iter().map(|replica| &replica.server);
        match replicas.find(|server| server.facts.engine != engine) {
            Some(server) => Err(EnginesDiffer.on(&server.session)),
            None => Ok(()),
        }
    }

    /// Checks that every replica or member still replicates.
    ///
    /// # Errors
    /// When one does not, or does not answer: the first, with its state.
    pub fn verify(&self) -> Result<(), ServerError> {
        self.replicas.iter().try_for_each(CheckedReplica::verify)
    }

    /// Returns the names of the replicas, in order.
    #[must_use]
    pub fn replica_names(&self) -> Vec<String> {
        self.replicas
            .iter()
            .map(|replica| replica.server.node.name.clone())
            .collect()
    }

    /// Returns how to reach the replicas, in order.
    #[must_use]
    pub fn replica_nodes(&self) -> Vec<Node> {
        self.replicas
            .iter()
            .map(|replica| replica.server.node.clone())
            .collect()
    }

    /// Returns a hint about the server with this name.
    #[must_use]
    pub fn hint(&self, server: &str, hint: &str) -> String {
        let found = self.servers().find(|one| one.node.name == server);
        found.map_or_else(|| hint.to_owned(), |found| found.node.hint(hint))
    }

    /// Returns how to reach every server to which the primary's writes replicate, as far as it can be asked.
    #[must_use]
    pub fn other_nodes(&self) -> Vec<Node> {
        let mut nodes = self.replica_nodes();
        nodes.extend(self.unnamed.asked.iter().cloned());
        nodes
    }

    /// Refuses to create a workload's tables, whose names other tables can have, on replicas that were not asked for these.
    ///
    /// # Errors
    /// Naming such a replica.
    pub(crate) fn refuse_unasked(&self, tables: &[&str]) -> Result<(), ServerError> {
        let (Some(replica), Some(table)) = (&self.unnamed.unasked, tables.first()) else {
            return Ok(());
        };
        Err(self.primary.session.precondition(
            "cannot create the workload's tables",
            format!("{replica}: a table of its own `{SCHEMA}`.`{table}` would be replaced, or stop its replication"),
            "name it, with a user that can log in there; or allow it with --unasked-replicas",
        ))
    }

    /// Returns the replicas, or other members, that are no longer active: their indexes and states.
    #[must_use]
    pub fn absent(&self) -> Vec<(usize, String)> {
        let replicas = self.replicas.iter().enumerate();
        replicas
            .filter_map(|(index, replica)| Some((index, replica.verify().err()?.to_string())))
            .collect()
    }

    /// Returns the current state of a cluster's members, in one line; `None` for servers with
    /// replication channels, whose errors show it.
    #[must_use]
    pub fn members_now(&self) -> Option<String> {
        if !self.mode.has_members() {
            return None;
        }
        let now = |server: &DiscoveredServer| -> Result<Option<String>, ServerError> {
            let mut session = Session::open(&server.with_short_timeouts())?;
            let state = ClusterState::read(self.mode, &mut session)?;
            Ok(state.map(|state| state.description()))
        };
        let words = self.servers().map(|server| {
            let words = match now(server) {
                Ok(state) => state.unwrap_or_else(|| "not in a cluster".to_owned()),
                Err(error) => format!("does not answer ({})", error.cause),
            };
            format!("{}: {words}", server.node.name)
        });
        Some(words.collect::<Vec<_>>().join("; "))
    }

    /// Returns why the replication mode changed since the run began: a semi-synchronous primary
    /// fell back to asynchronous replication, even temporarily.
    ///
    /// # Errors
    /// When the primary does not answer.
    pub fn fall_back_reason(&mut self) -> Result<Option<String>, ServerError> {
        let fallback = self.primary.fallback()?;
        Ok(fallback.map(|fallback| {
            format!(
                "{} fell back from semi-synchronous to asynchronous replication during the run: {fallback}",
                self.primary.session
            )
        }))
    }

    /// Returns the smallest `max_allowed_packet` of all servers, in bytes.
    #[must_use]
    pub fn max_allowed_packet(&self) -> Option<u64> {
        self.servers()
            .filter_map(|server| server.facts.max_allowed_packet())
            .min()
    }
}
