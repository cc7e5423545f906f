//! What is asked of the followed servers besides their streams: their clocks, for the commit times in their logs, and
//! which transactions they have executed.

use replimeter_engine::{
    Node, Session,
    facts::ServerFacts,
    follow::has_commit_times,
    position::{Executed, executed},
};
use replimeter_model::time::Nanos;

use crate::{
    clock::Clock,
    clock_offset::{ClockStep, ServerClock},
    discovery::DiscoveredServer,
    tap::results::TapClock,
};

/// Interval between measurements of the clocks.
const EVERY: Nanos = Nanos(10_000_000_000);

/// One server, and the connection over which it is asked.
struct AskedServer {
    node: Node,
    facts: ServerFacts,
    session: Option<Session>,
    /// `None` if its log has no commit times.
    clock: Option<ServerClock>,
}

impl AskedServer {
    /// Connects if needed; a server that does not answer is asked the next time.
    fn connect(&mut self) {
        if self.session.is_none() {
            self.session = Session::open(&self.node).ok();
        }
    }

    /// Measures the clock.
    fn measure(&mut self, clock: &Clock) -> Option<ClockStep> {
        if !has_commit_times(self.facts.engine) {
            return None;
        }
        self.connect();
        let session = self.session.as_mut()?;
        let measured = match &mut self.clock {
            Some(known) => known.remeasure(session, clock),
            None => ServerClock::measure(session, &self.node, clock).map(|first| {
                self.clock = first;
                None
            }),
        };
        if measured.is_err() {
            self.session = None;
        }
        measured.ok().flatten()
    }

    fn executed(&mut self) -> Option<Executed> {
        self.connect();
        let read = executed(&self.facts, self.session.as_mut()?);
        if read.is_err() {
            self.session = None;
        }
        read.ok()
            .filter(|executed| !matches!(executed, Executed::Unknown(_)))
    }
}

/// The followed servers, the primary first.
pub(super) struct AskedServers {
    servers: Vec<AskedServer>,
    due: Nanos,
}

impl AskedServers {
    /// Measures each clock for the first time.
    pub(super) fn new<'a>(
        servers: impl Iterator<Item = &'a DiscoveredServer>,
        clock: &Clock,
    ) -> Self {
        let servers = servers.map(|server| {
            let mut asked = AskedServer {
                node: server.with_short_timeouts(),
                facts: server.facts.clone(),
                session: None,
                clock: None,
            };
            asked.measure(clock);
            asked
        });
        Self {
            servers: servers.collect(),
            due: clock.now() + EVERY,
        }
    }

    /// Returns the servers.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.servers.iter().map(|server| &server.node)
    }

    /// Returns what a server has executed; `None` if it does not answer.
    pub(super) fn executed(&mut self, server: usize) -> Option<Executed> {
        self.servers.get_mut(server)?.executed()
    }

    /// Measures again when due; returns messages about clocks that were set.
    pub(super) fn remeasure_clocks(&mut self, clock: &Clock) -> Vec<String> {
        if clock.now() < self.due {
            return Vec::new();
        }
        let steps: Vec<String> = self
            .servers
            .iter_mut()
            .filter_map(|asked| {
                let step = asked.measure(clock)?;
                Some(format!(
                    "{}: its clock was adjusted by {:.6} s (± {:.0} µs)",
                    asked.node.name,
                    step.by.as_micros() / 1e6,
                    step.bound.as_micros()
                ))
            })
            .collect();
        self.due = clock.now() + EVERY;
        steps
    }

    /// Converts a time of a server's clock, in µs since 1970, to the local clock; `near` is a point
    /// close to it. `None` when the clock is unknown or was set at about that time.
    pub(super) fn to_run_clock(&self, server: usize, unix_us: i64, near: Nanos) -> Option<Nanos> {
        let known = self.servers.get(server)?.clock.as_ref()?;
        Some(
            known
                .to_run_clock(Nanos(unix_us.checked_mul(1000)?), near)?
                .0,
        )
    }

    /// Returns the record of each clock's offset.
    pub(super) fn clocks(&mut self, clock: &Clock) -> Vec<TapClock> {
        self.due = Nanos(0);
        self.remeasure_clocks(clock);
        self.servers
            .iter()
            .filter_map(|asked| {
                let known = asked.clock.as_ref()?;
                let (first, last) = (known.first(), known.last());
                Some(TapClock {
                    name: asked.node.name.clone(),
                    offset_us: (first.offset - Nanos(clock.origin_unix_us() * 1000)).as_micros(),
                    bound_us: known.worst_bound().as_micros(),
                    drift_us: (last.offset - first.offset).as_micros(),
                    steps: known.steps().len() as u64,
                })
            })
            .collect()
    }
}
