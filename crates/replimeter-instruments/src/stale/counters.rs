//! Status counters of the servers during a run, read a few times a second on separate threads: a server
//! that stalls delays only its own readings.

use std::{collections::BTreeMap, sync::Mutex, thread, time::Duration};

use replimeter_engine::{
    Node, Session,
    dialect::flow_control::{FlowControlCounters, FlowControlReading},
    sync::lock,
};

use super::shared::Shared;

/// Interval between readings.
const EVERY: Duration = Duration::from_millis(250);
/// Timeout of a reading.
const ANSWER: Duration = Duration::from_secs(1);

/// The last reading of one server.
#[derive(Debug, Default)]
pub(super) struct LatestReading {
    number: u64,
    readings: Vec<FlowControlReading>,
}

/// A server whose counters are read.
pub(super) struct CountedServer {
    node: Node,
    pressure: FlowControlCounters,
    latest: Mutex<LatestReading>,
}

impl CountedServer {
    pub(super) fn new(node: &Node, pressure: FlowControlCounters) -> Self {
        Self {
            node: Node {
                answer: ANSWER,
                ..node.clone()
            },
            pressure,
            latest: Mutex::default(),
        }
    }

    /// Reads until the run is over.
    pub(super) fn watch(&self, shared: &Shared<'_>) {
        let mut session: Option<Session> = None;
        while !shared.over() {
            if session.is_none() {
                let opened = Session::open(&self.node);
                session = opened.ok().and_then(|mut opened| {
                    self.pressure.prepare(&mut opened).is_ok().then_some(opened)
                });
            }
            if let Some(open) = &mut session {
                match self.pressure.read(open) {
                    Ok(readings) => {
                        let mut latest = lock(&self.latest);
                        latest.number += 1;
                        latest.readings = readings;
                    }
                    Err(_) => session = None,
                }
            }
            thread::park_timeout(EVERY);
        }
    }
}

/// Converts readings to the values of a window.
#[derive(Debug, Default)]
pub(super) struct CounterDifferences {
    /// By server, the number of the last used reading and the values of its growing counters.
    before: Vec<(u64, BTreeMap<&'static str, f64>)>,
}

impl CounterDifferences {
    /// Returns the values since the last call, by server and counter name; a `+` after the name marks a
    /// difference.
    pub(super) fn take(&mut self, servers: &[CountedServer]) -> BTreeMap<String, f64> {
        self.before.resize(servers.len(), (0, BTreeMap::new()));
        let mut shown = BTreeMap::new();
        for (server, (number, grown)) in servers.iter().zip(&mut self.before) {
            let latest = lock(&server.latest);
            if latest.number == *number {
                continue;
            }
            *number = latest.number;
            for reading in &latest.readings {
                let name = &server.node.name;
                if !reading.grows {
                    shown.insert(format!("{name} {}", reading.name), reading.value);
                } else if let Some(before) = grown.insert(reading.name, reading.value) {
                    shown.insert(format!("{name} {}+", reading.name), reading.value - before);
                }
            }
        }
        shown
    }
}
