//! Clocks of servers relative to the local one, for the commit times in MySQL's log.

use replimeter_engine::{Node, Session};
use replimeter_model::{tap::TapClock, time::Nanos};

use crate::{
    clock::Clock,
    clock_offset::{ClockStep, ServerClock},
};

/// Interval between measurements of the clocks.
const EVERY: Nanos = Nanos(30_000_000_000);

/// One server's clock and the connection over which it is measured.
struct ClockProbe {
    node: Node,
    session: Option<Session>,
    known: Option<ServerClock>,
}

impl ClockProbe {
    fn open(node: &Node, clock: &Clock) -> Self {
        let mut asked = Self {
            node: node.clone(),
            session: None,
            known: None,
        };
        asked.ask(clock);
        asked
    }

    /// Measures the clock; a server that does not answer is measured the next time.
    fn ask(&mut self, clock: &Clock) -> Option<ClockStep> {
        if self.session.is_none() {
            self.session = Session::open(&self.node).ok();
        }
        let session = self.session.as_mut()?;
        let asked = match &mut self.known {
            Some(known) => known.remeasure(session, clock),
            None => ServerClock::measure(session, clock).map(|first| {
                self.known = first;
                None
            }),
        };
        if asked.is_err() {
            self.session = None;
        }
        asked.ok().flatten()
    }
}

/// The clocks of all followed servers, the primary's first; empty when the servers write no times
/// into their logs.
#[derive(Default)]
pub(super) struct Clocks {
    asked: Vec<ClockProbe>,
    due: Nanos,
}

impl Clocks {
    /// Measures each clock for the first time.
    pub(super) fn measure<'a>(nodes: impl Iterator<Item = &'a Node>, clock: &Clock) -> Self {
        let asked = nodes.map(|node| ClockProbe::open(node, clock)).collect();
        Self {
            asked,
            due: clock.now() + EVERY,
        }
    }

    /// Measures again when due; returns messages about clocks that were set.
    pub(super) fn remeasure(&mut self, clock: &Clock) -> Vec<String> {
        if self.asked.is_empty() || clock.now() < self.due {
            return Vec::new();
        }
        let steps: Vec<String> = self
            .asked
            .iter_mut()
            .filter_map(|asked| {
                let step = asked.ask(clock)?;
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
        let known = self.asked.get(server)?.known.as_ref()?;
        Some(
            known
                .to_run_clock(Nanos(unix_us.checked_mul(1000)?), near)?
                .0,
        )
    }

    /// Returns the record of each clock's offset.
    pub(super) fn records(&mut self, clock: &Clock) -> Vec<TapClock> {
        self.due = Nanos(0);
        self.remeasure(clock);
        self.asked
            .iter()
            .filter_map(|asked| {
                let known = asked.known.as_ref()?;
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
