//! Reads everything from one server before any check. Writes nothing, takes no lock, and continues
//! without data that the user may not read.

use std::collections::BTreeMap;

use replimeter_engine::{
    ServerError, Session,
    dialect::{
        self, Channel,
        applier_user::{ApplierUser, applier_users},
        locks::{self, Obstacles},
        settings,
    },
    facts::{ServerFacts, grants},
    filter::Filters,
    grants::Grants,
    membership::Membership,
    position::Executed,
    source::Member,
    unless_disconnected,
};
use replimeter_model::{
    doctor::{ClockOffset, RoundTrip},
    target::Role,
    time::Nanos,
};

use crate::{
    clock::Calendar,
    clock_offset::{self, ProbeLimits, repeat},
    discovery::{DiscoveredServer, unverified},
    preflight::UnnamedReplicas,
    table::{LOCK, find},
};

/// One server of the target.
#[derive(Clone, Debug)]
pub(super) struct Examination {
    /// Its name.
    pub(super) name: String,
    /// Host and port.
    pub(super) address: String,
    /// Its declared role.
    pub(super) role: Option<Role>,
    /// Whether a run may write to it although it replicates from a server that is not named.
    pub(super) write_to_replica: bool,
    /// Its state, or why it could not be examined.
    pub(super) state: Result<Box<ServerState>, ServerError>,
}

impl Examination {
    /// Returns its name in messages.
    pub(super) fn title(&self) -> String {
        format!("{} ({})", self.name, self.address)
    }

    /// Returns its state, when it could be examined.
    pub(super) fn seen(&self) -> Option<&ServerState> {
        self.state.as_ref().ok().map(Box::as_ref)
    }
}

/// The state of one server.
#[derive(Clone, Debug)]
pub(super) struct ServerState {
    /// Whether the connection is encrypted.
    pub(super) tls: bool,
    /// Why the connection is not safe, and a hint.
    pub(super) unverified: Option<(String, &'static str)>,
    /// Time to connect and log in.
    pub(super) connect_us: f64,
    /// The round trip of an empty select.
    pub(super) round_trip: RoundTrip,
    /// Its clock relative to this machine's.
    pub(super) clock: Option<ClockOffset>,
    /// Every global variable.
    pub(super) facts: ServerFacts,
    /// The user as the server reports it, quoted.
    pub(super) user: String,
    /// The user's privileges; `None` when the server does not show them.
    pub(super) grants: Option<Grants>,
    /// How it takes part in replication.
    pub(super) membership: Membership,
    /// Accounts with whose privileges channels apply.
    pub(super) applier_users: Result<Vec<ApplierUser>, ServerError>,
    /// Whether `SYSDATE()` is the start of the statement.
    pub(super) sysdate_is_now: bool,
    /// Every counter.
    pub(super) counters: BTreeMap<String, String>,
    /// How long flow control stopped writes during the examination, and the length of the
    /// examination, in nanoseconds.
    pub(super) stopped: Option<(u64, u64)>,
    /// Filters of its log; `None` when that is off.
    pub(super) log_filters: Result<Option<Filters>, ServerError>,
    /// Which transactions it has executed.
    pub(super) executed: Executed,
    /// The tables for rows of runs.
    pub(super) tables: Result<Vec<String>, ServerError>,
    /// Connected replicas that are not named.
    pub(super) unnamed: UnnamedReplicas,
    /// What definitions would have to wait for.
    pub(super) obstacles: Obstacles,
    /// Whether a run left the table that holds a password.
    pub(super) federated: bool,
    /// The connection that holds the lock of a run.
    pub(super) measured_by: Option<String>,
    /// Earlier entries that are the same server, under another address.
    pub(super) same_as: Vec<usize>,
}

impl ServerState {
    /// Returns a counter's value.
    pub(super) fn counter(&self, name: &str) -> Option<u64> {
        self.counters.get(name)?.parse().ok()
    }

    /// Returns its channels, as far as the user may read them.
    pub(super) fn channels(&self) -> &[Channel] {
        self.membership.channels()
    }

    /// Returns the product and version.
    pub(super) fn version(&self) -> String {
        let number = self
            .facts
            .version
            .split(['-', ' '])
            .next()
            .unwrap_or_default();
        format!("{} {number}", self.facts.engine.product())
    }
}

/// An open server, for queries after all servers have been read.
pub(super) struct OpenServer {
    /// With its own session.
    pub(super) discovered: DiscoveredServer,
    visit: ServerVisit,
}

/// The context of an examination.
pub(super) struct ServerVisit {
    /// When the examination began, by the calendar clock.
    begun: Nanos,
    /// The address of the session's client, as this server sees it.
    client: Option<String>,
}

impl OpenServer {
    /// Splits off the server, for functions that need several servers.
    pub(super) fn split(self) -> (DiscoveredServer, ServerVisit) {
        (self.discovered, self.visit)
    }

    /// Joins what was split.
    pub(super) fn join(discovered: DiscoveredServer, visit: ServerVisit) -> Self {
        Self { discovered, visit }
    }

    /// Returns whether `other` is a session of the same server.
    pub(super) fn is_same_server(&mut self, other: &Self) -> Result<bool, ServerError> {
        let Some(client) = &other.visit.client else {
            return Ok(false);
        };
        let seen = settings::client_of(
            &mut self.discovered.session,
            other.discovered.session.connection_id(),
        )?;
        Ok(seen.as_ref() == Some(client))
    }

    /// Returns the server's clock relative to this machine's.
    pub(super) fn clock(
        &mut self,
        calendar: &Calendar,
    ) -> Result<Option<ClockOffset>, ServerError> {
        Ok(
            unless_disconnected(offset(&mut self.discovered.session, calendar))?
                .ok()
                .flatten(),
        )
    }

    /// Returns how long flow control stopped writes since the beginning, and the time since then.
    pub(super) fn flow_control_stopped(
        &mut self,
        state: &ServerState,
        calendar: &Calendar,
    ) -> Result<Option<(u64, u64)>, ServerError> {
        let Some(before) = settings::flow_control_ns(&state.counters) else {
            return Ok(None);
        };
        let now = settings::counters(&mut self.discovered.session)?;
        let passed = u64::try_from((calendar.now() - self.visit.begun).0).unwrap_or(0);
        Ok(settings::flow_control_ns(&now).map(|after| (after.saturating_sub(before), passed)))
    }
}

/// Examines one server.
pub(super) fn examine(declared: &Member, calendar: &Calendar) -> (Examination, Option<OpenServer>) {
    let node = &declared.node;
    let examination = |state| Examination {
        name: node.name.clone(),
        address: node.endpoint.address(),
        role: declared.role,
        write_to_replica: declared.allowed.write_to_replica,
        state,
    };
    match read(declared, calendar) {
        Ok((state, open)) => (examination(Ok(Box::new(state))), Some(open)),
        Err(error) => (examination(Err(error)), None),
    }
}

fn read(declared: &Member, calendar: &Calendar) -> Result<(ServerState, OpenServer), ServerError> {
    let node = &declared.node;
    node.check_files()?;
    let before = calendar.now();
    // A separate session: the first one has warmed up name resolution and caches.
    let mut timed = Session::open(node)?;
    let connect_us = (calendar.now() - before).as_micros();
    let round_trip = round_trip(&mut timed, calendar)?;
    drop(timed);

    let mut discovered = DiscoveredServer::read(node)?;
    let begun = calendar.now();
    let DiscoveredServer {
        session,
        facts,
        membership,
        ..
    } = &mut discovered;
    let own = session.connection_id();
    let schema = unless_disconnected(find(session))?;
    let state = ServerState {
        tls: session.tls(),
        unverified: unverified(node, session.tls()),
        connect_us,
        round_trip,
        // All clocks are read together at the end, before they drift apart.
        clock: None,
        user: settings::quoted_user(session)?,
        grants: grants(session, facts.engine)?,
        membership: membership.clone(),
        applier_users: unless_disconnected(applier_users(facts.engine, session))?,
        sysdate_is_now: settings::sysdate_is_now(session)?,
        counters: settings::counters(session)?,
        stopped: None,
        log_filters: unless_disconnected(dialect::log_filters(facts.engine, session))?,
        // Read once the writer is known: from replicas before their sources.
        executed: Executed::Unknown("not queried".to_owned()),
        unnamed: UnnamedReplicas::default(),
        obstacles: locks::obstacles(facts.engine, session)?,
        federated: schema.as_ref().is_ok_and(|found| found.federated),
        tables: schema.map(|found| found.probes),
        measured_by: session.value(
            "cannot check for a running measurement",
            &format!("SELECT IS_USED_LOCK('{LOCK}')"),
        )?,
        same_as: Vec::new(),
        facts: facts.clone(),
    };
    let client = settings::client_of(session, own)?;
    Ok((
        state,
        OpenServer::join(discovered, ServerVisit { begun, client }),
    ))
}

/// Measures round trips of an empty select.
fn round_trip(session: &mut Session, calendar: &Calendar) -> Result<RoundTrip, ServerError> {
    let answers = repeat(&|| calendar.now(), ProbeLimits::EXAMINE, || {
        session.run("cannot be queried", "SELECT 1")
    })?;
    let mut widths: Vec<Nanos> = answers
        .iter()
        .map(|answer| answer.after - answer.before)
        .collect();
    widths.sort_unstable();
    let at = |index: usize| widths.get(index).copied().unwrap_or_default().as_micros();
    Ok(RoundTrip {
        min_us: at(0),
        p50_us: at(widths.len() / 2),
        count: widths.len() as u64,
    })
}

/// Returns the server's clock relative to this machine's; `None` when it returns no time.
fn offset(session: &mut Session, calendar: &Calendar) -> Result<Option<ClockOffset>, ServerError> {
    let measured = clock_offset::measure(session, &|| calendar.now(), ProbeLimits::EXAMINE)?;
    Ok(measured.map(|measured| ClockOffset {
        offset_us: measured.offset.as_micros(),
        bound_us: (measured.bound + calendar.bound()).as_micros(),
        count: measured.count,
    }))
}
