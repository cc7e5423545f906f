//! Watches servers that replicate: the state of each, and the bound of its lag, from positions that are polled. Only reads,
//! except for a row of its own, on request.

mod heartbeats;
mod history;
mod monitor;
pub mod once;
mod poller;
mod probe;
mod recent;
pub mod results;
mod roles;
pub mod settings;
mod state;

use std::{
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{ErrorKind, Node, source::Member};
use replimeter_model::{manifest::ServerRecord, target::Role};

use self::{
    monitor::Monitor,
    poller::{Poller, RecordedFacts},
    probe::{Probe, Writer},
    results::{WatchChange, WatchRound},
    settings::WatchPlan,
};
use crate::{Listener, MeasureError, clock::Clock};

/// Polls after which the servers are recorded; one that answers later is not.
const RECORDED_AFTER: u64 = 3;
/// Servers whose variables are recorded.
const MAX_RECORDED: usize = 50;
/// How long the end of the watch may take to be noticed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Shortest time between readings of the list of servers because one refuses the login.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// Stack of a thread that asks a server: there may be a thousand of them.
const STACK: usize = 512 << 10;

/// An event during a watch.
#[derive(Clone, Debug)]
pub enum Event {
    /// The states of all servers.
    Round(WatchRound),
    /// Something happened.
    Change(WatchChange),
    /// The servers that have answered in the first polls, as they are recorded.
    Servers(Vec<ServerRecord>),
}

/// Where the servers of a watch come from while it lasts.
pub struct ServerList<'a> {
    /// Returns whether the user asks for them to be read again now.
    pub asked: &'a dyn Fn() -> bool,
    /// Reads them again; `None` if they cannot have changed.
    pub read: &'a mut dyn FnMut() -> Result<Option<Vec<Member>>, String>,
}

/// Watches until the plan's time is over or the user ends it. The servers are read again if the user asks for it, or one refuses the
/// login.
///
/// # Errors
/// When the system refuses a thread, or the listener an event.
pub fn run(
    members: &[Member],
    list: &mut ServerList<'_>,
    plan: &WatchPlan,
    clock: &Clock,
    listener: &mut Listener<'_, Event>,
) -> Result<(), MeasureError> {
    let names = members.iter().map(|member| member.node.name.clone());
    let began = clock.now();
    let mut monitor = Monitor::new(names, declared_primary(members), plan, began);
    let (sender, news) = mpsc::channel();
    let ticks = Ticks {
        began: Instant::now(),
        interval: plan.poll_interval.0,
    };
    let writer = Writer::unknown();
    thread::scope(|scope| {
        let recorded = match members.len() {
            few if few <= MAX_RECORDED => RecordedFacts::All,
            _ => RecordedFacts::WithoutVariables,
        };
        let mut started = 0;
        let mut start = |node: &Node| -> Result<Polled, MeasureError> {
            let (end, ended) = mpsc::channel();
            let poller = Poller::new(started, node, ticks, recorded, plan.heartbeat.clone());
            let sender = sender.clone();
            poller_thread()
                .spawn_scoped(scope, move || poller.run(&ended, &sender, clock))
                .map_err(|_| MeasureError::Thread)?;
            started += 1;
            Ok(Polled {
                number: started - 1,
                node: node.clone(),
                _end: end,
            })
        };
        let mut polled = members
            .iter()
            .map(|member| start(&member.node))
            .collect::<Result<Vec<_>, MeasureError>>()?;
        let (reports, probe_states) = mpsc::channel();
        let writer = &writer;
        let start_probe = |members: &[Member]| -> Result<_, MeasureError> {
            let Some(interval) = plan.probe else {
                return Ok(None);
            };
            let nodes: Vec<Node> = members.iter().map(|member| member.node.clone()).collect();
            let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
            writer.set(None);
            let probe = Probe::new(nodes.into_iter(), interval.0, writer);
            let (end, ended) = mpsc::channel::<()>();
            let reports = reports.clone();
            let thread = thread::Builder::new()
                .name("probe".to_owned())
                .spawn_scoped(scope, move || probe.run(&ended, &reports))
                .map_err(|_| MeasureError::Thread)?;
            Ok(Some((end, thread, names)))
        };
        let mut probe = start_probe(members)?;
        let ends_at = plan.duration.map(|duration| began + duration.0.into());
        let mut round = Round::new(members.len(), ticks);
        let (mut records, mut rounds): (Vec<ServerRecord>, u64) = (Vec::new(), 0);
        let (mut is_refused, mut read_due) = (false, Instant::now() + READ_AGAIN);
        loop {
            match news.recv_timeout(round.wait().min(CHECK_INTERVAL)) {
                Ok(news) => {
                    let mut servers = polled.iter();
                    let server = servers.position(|polled| polled.number == news.server);
                    if let Some(server) = server {
                        round.heard(server, news.answer.is_ok());
                        if let Some(record) = news.record {
                            records.retain(|other| other.name != record.name);
                            records.push(*record);
                        }
                    }
                    match (server, news.answer) {
                        (Some(server), Ok(answer)) => monitor.take(server, news.at, *answer),
                        (Some(server), Err(error)) => {
                            is_refused |= error.kind == ErrorKind::AccessDenied;
                            monitor.fail(server, error.to_string());
                        }
                        // It is not watched any more.
                        (None, _) => {}
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(MeasureError::Thread),
            }
            let now = clock.now();
            let is_over = listener.is_stopped() || ends_at.is_some_and(|end| now >= end);
            if (list.asked)() || (is_refused && Instant::now() >= read_due) {
                (is_refused, read_due) = (false, Instant::now() + READ_AGAIN);
                match (list.read)() {
                    Ok(Some(members)) => {
                        polled = follow(polled, &members, &mut start)?;
                        let names: Vec<_> =
                            members.iter().map(|one| one.node.name.clone()).collect();
                        if monitor.follow(&names, declared_primary(&members), now) {
                            if rounds < RECORDED_AFTER {
                                listener.send(Event::Servers(records.clone()))?;
                            }
                            round.follow(names.len());
                            records.retain(|record| names.contains(&record.name));
                            rounds = 0;
                        }
                        // Other servers, or other passwords. The one before ends by itself, and the new one waits for its lock.
                        probe = start_probe(&members)?;
                    }
                    Ok(None) => {}
                    Err(reason) => monitor.note(format!("not read again: {reason}"), now),
                }
            }
            if !round.is_complete() && !is_over {
                continue;
            }
            round.next();
            rounds += 1;
            if rounds == RECORDED_AFTER || (is_over && rounds < RECORDED_AFTER) {
                listener.send(Event::Servers(records.clone()))?;
            }
            for state in probe_states.try_iter() {
                monitor.take_probe(now, state);
            }
            let (states, changes) = monitor.decide(now);
            writer.set(monitor.writer(now));
            for change in changes {
                listener.send(Event::Change(change))?;
            }
            listener.send(Event::Round(states))?;
            if is_over {
                break;
            }
        }
        let Some((end, thread, names)) = probe else {
            return Ok(());
        };
        drop(end);
        match thread.join() {
            Ok(None) => Ok(()),
            Ok(Some((server, text))) => listener.send(Event::Change(WatchChange {
                at_us: (clock.now() - began).as_micros(),
                server: names[server].clone(),
                text,
                state: None,
            })),
            Err(_) => Err(MeasureError::Thread),
        }
    })
}

/// The instants at which all servers are asked.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    began: Instant,
    interval: Duration,
}

impl Ticks {
    /// Returns the first one after an instant: none is made up for.
    fn after(&self, instant: Instant) -> Instant {
        let passed = instant.saturating_duration_since(self.began).as_nanos()
            / self.interval.as_nanos().max(1);
        let next = u32::try_from(passed + 1).unwrap_or(u32::MAX);
        self.began + self.interval * next
    }
}

/// Waits, after a tick, for the servers that answered after the last one, so that all states are of one time; half an interval at most.
struct Round {
    ticks: Ticks,
    ends: Instant,
    /// Whether a server is awaited: it answered after the last tick.
    awaited: Vec<bool>,
    answers: Vec<bool>,
}

impl Round {
    fn new(servers: usize, ticks: Ticks) -> Self {
        Self {
            ticks,
            ends: ticks.began + ticks.interval / 2,
            awaited: vec![true; servers],
            answers: vec![false; servers],
        }
    }

    fn wait(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    fn heard(&mut self, server: usize, answered: bool) {
        self.awaited[server] = false;
        self.answers[server] = answered;
    }

    fn is_complete(&self) -> bool {
        let began = self.ends - self.ticks.interval / 2;
        let now = Instant::now();
        now >= self.ends || (now >= began && !self.awaited.contains(&true))
    }

    fn next(&mut self) {
        self.ends = self.ticks.after(Instant::now()) + self.ticks.interval / 2;
        self.awaited.clone_from(&self.answers);
    }

    /// Awaits this number of servers from now on.
    fn follow(&mut self, servers: usize) {
        self.awaited = vec![true; servers];
        self.answers = vec![false; servers];
    }
}

/// A server that is asked. The thread that asks ends when this is dropped.
struct Polled {
    number: usize,
    node: Node,
    _end: Sender<()>,
}

/// Asks these servers from now on. Those that were asked before stay connected, unless their address or login is another one.
fn follow(
    mut before: Vec<Polled>,
    members: &[Member],
    start: &mut dyn FnMut(&Node) -> Result<Polled, MeasureError>,
) -> Result<Vec<Polled>, MeasureError> {
    let mut polled = Vec::with_capacity(members.len());
    for Member { node, .. } in members {
        let same = |one: &Polled| {
            let of = |node: &Node| (node.name.clone(), node.endpoint.clone(), node.user.clone());
            of(&one.node) == of(node) && one.node.password == node.password
        };
        polled.push(match before.iter().position(same) {
            Some(index) => before.swap_remove(index),
            None => start(node)?,
        });
    }
    Ok(polled)
}

/// Returns the server that is declared to take the writes, or the first one.
fn declared_primary(members: &[Member]) -> Option<usize> {
    let declared = |member: &Member| member.role == Some(Role::Primary);
    members.iter().position(declared).or(Some(0))
}

fn poller_thread() -> thread::Builder {
    thread::Builder::new()
        .name("watch".to_owned())
        .stack_size(STACK)
}
