//! What is asked of a server again and again while it is watched: which transactions it has, its channels, its part in a cluster.
//! Only reads.

use crate::{
    ServerError, Session,
    dialect::{
        self, Channel,
        acknowledgement::{self, PrimaryState, VariableNames},
        flow_control::{FlowControlCounters, FlowControlReading},
        heartbeats::{Heartbeats, heartbeats},
    },
    error::unless_disconnected,
    facts::ServerFacts,
    membership::ClusterState,
    position::{Executed, Position, check_counted, executed},
};

/// The answers of one server, read one after another over one connection.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The transactions that it has executed.
    pub executed: Executed,
    /// Those that it has written or logged, as the server that is written to; `None` if that is not known.
    pub written: Option<Position>,
    /// Those that it has applied, as a replica or a member; `None` if that is not known.
    pub applied: Option<Position>,
    /// Those that it has received, as a replica; `None` if that is not known.
    pub received: Option<Position>,
    /// Its channels to other servers; an error if the user may not read them.
    pub channels: Result<Vec<Channel>, ServerError>,
    /// The heartbeats of its sources; `None` if it is no replica, or the user may not read them.
    pub heartbeats: Option<Heartbeats>,
    /// Its part in the cluster that it was in when it was first asked.
    pub member: Option<MemberReading>,
    /// Its state as a semi-synchronous primary; `None` for a replica, and where it cannot be one.
    pub waits: Option<PrimaryState>,
}

/// A member of a cluster.
#[derive(Clone, Debug)]
pub struct MemberReading {
    /// Its state; `None` if it has left.
    pub state: Option<ClusterState>,
    /// Its queues and counters, as far as the user may read them.
    pub counters: Vec<FlowControlReading>,
}

impl MemberReading {
    /// Returns the number of transactions that wait to be applied.
    #[must_use]
    pub fn queue(&self) -> Option<f64> {
        self.counter(&[
            "wsrep_local_recv_queue",
            "transactions in the applier's queue",
        ])
    }

    /// Returns the time that flow control has paused it, in ms, since it was started.
    #[must_use]
    pub fn paused_ms(&self) -> Option<f64> {
        self.counter(&["wsrep_flow_control_paused (ms)"])
    }

    fn counter(&self, names: &[&str]) -> Option<f64> {
        let found = self.counters.iter().find(|one| names.contains(&one.name));
        found.map(|one| one.value)
    }
}

/// The variables on which the questions depend, besides those of semi-synchronous replication. A watch has many servers, and the others
/// would take a hundred kilobytes of each.
const NEEDED: [&str; 7] = [
    "gtid_binlog_pos",
    "gtid_binlog_state",
    "gtid_executed",
    "gtid_mode",
    "log_bin",
    "log_replica_updates",
    "log_slave_updates",
];

/// Asks one server.
#[derive(Debug)]
pub struct Reader {
    /// Those of its facts on which the questions depend.
    pub facts: ServerFacts,
    /// How long it had run when the reader was created, in seconds; `None` if it does not tell.
    pub uptime_s: Option<u64>,
    /// The state by which it was found to be a member.
    cluster: Option<ClusterState>,
    counters: FlowControlCounters,
    /// Why its transactions have no numbers that can be compared, if so.
    not_numbered: Option<String>,
}

impl Reader {
    /// Finds out what to ask, and passes all facts of the server to `see`.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn new(
        session: &mut Session,
        see: impl FnOnce(&Session, &ServerFacts),
    ) -> Result<Self, ServerError> {
        let mut facts = ServerFacts::read(session)?;
        see(session, &facts);
        let is_needed =
            |name: &String| NEEDED.contains(&name.as_str()) || name.starts_with("rpl_semi_sync");
        facts.variables.retain(|name, _| is_needed(name));
        let uptime = session.pairs(
            "cannot read how long it has run",
            "SHOW GLOBAL STATUS LIKE 'Uptime'",
        )?;
        let cluster = unless_disconnected(ClusterState::current(session))?
            .ok()
            .flatten();
        let counters = match &cluster {
            Some(ClusterState::Galera(_)) => FlowControlCounters::Galera,
            Some(ClusterState::Group(_)) => FlowControlCounters::Group,
            None => FlowControlCounters::Channel(facts.engine),
        };
        if cluster.is_some() {
            counters.prepare(session)?;
        }
        let numbers = check_counted(session, &facts, "cannot read its position");
        Ok(Self {
            uptime_s: uptime.values().next().and_then(|text| text.parse().ok()),
            facts,
            cluster,
            counters,
            not_numbered: numbers.err().map(|error| error.cause),
        })
    }

    /// Asks once.
    ///
    /// # Errors
    /// When the connection breaks, or the server does not answer in time.
    pub fn read(&self, session: &mut Session) -> Result<Reading, ServerError> {
        let engine = self.facts.engine;
        let member = match &self.cluster {
            None => None,
            Some(cluster) => Some(MemberReading {
                state: ClusterState::read(cluster.mode(), session)?,
                counters: self.counters.read(session)?,
            }),
        };
        // What it received is read before what it applied, and that before what it logged: each is a part of the next.
        let channels = unless_disconnected(dialect::source_channels(engine, session))?;
        let received = channels
            .as_deref()
            .ok()
            .filter(|channels| !channels.is_empty() && channels.iter().all(|one| one.by_gtid))
            .and_then(|channels| Position::received(engine, channels).ok());
        let heartbeats = match channels.as_deref() {
            Ok(channels) if !channels.is_empty() => heartbeats(engine, session, channels)?,
            _ => None,
        };
        let executed = match &self.not_numbered {
            Some(reason) => Executed::Unknown(reason.clone()),
            None => unless_disconnected(executed(&self.facts, session))?
                .unwrap_or_else(|error| Executed::Unknown(error.to_string())),
        };
        let own = match &self.cluster {
            Some(cluster) if cluster.numbers_itself() => {
                unless_disconnected(Position::applied_in(cluster.mode(), engine, session))?.ok()
            }
            _ => None,
        };
        let (written, applied) = match own {
            Some(own) => (Some(own.clone()), Some(own)),
            None => (executed.written(&self.facts), executed.clone().applied()),
        };
        let received = match (received, &applied) {
            (Some(received), Some(applied)) if Position::forgets_received(engine) => {
                Some(received.joined(applied))
            }
            (received, _) => received,
        };
        let is_replica = channels.as_ref().is_ok_and(|channels| !channels.is_empty());
        let waits = match VariableNames::of(&self.facts) {
            Some(names) if !is_replica && member.is_none() => {
                acknowledgement::primary_state(session, names)?
            }
            _ => None,
        };
        Ok(Reading {
            executed,
            written,
            applied,
            received,
            channels,
            heartbeats,
            member,
            waits,
        })
    }
}
