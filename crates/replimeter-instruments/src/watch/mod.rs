//! Watches servers that replicate: the state of each, and the bound of its lag, from positions that are polled. Only reads.

mod history;
mod monitor;
mod poller;
mod recent;
pub mod results;
mod roles;
pub mod settings;
mod state;

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{Node, source::Member};
use replimeter_model::target::Role;

use self::{
    monitor::Monitor,
    poller::Poller,
    results::{WatchChange, WatchRound},
    settings::WatchPlan,
};
use crate::{Listener, MeasureError, clock::Clock};

/// Longest time for one answer.
const MAX_ANSWER: Duration = Duration::from_secs(5);
/// How long the end of the watch may take to be noticed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Stack of a thread that asks a server: there may be a thousand of them.
const STACK: usize = 512 << 10;

/// An event during a watch.
#[derive(Clone, Debug)]
pub enum Event {
    /// The states of all servers.
    Round(WatchRound),
    /// Something happened.
    Change(WatchChange),
}

/// Watches until the plan's time is over or the user ends it.
///
/// # Errors
/// When the system refuses a thread, or the listener an event.
pub fn run(
    members: &[Member],
    plan: &WatchPlan,
    clock: &Clock,
    listener: &mut Listener<'_, Event>,
) -> Result<(), MeasureError> {
    let declared = |member: &Member| member.role == Some(Role::Primary);
    let primary = members.iter().position(declared).or(Some(0));
    let names = members.iter().map(|member| member.node.name.clone());
    let began = clock.now();
    let mut monitor = Monitor::new(names, primary, plan, began);
    let (sender, news) = mpsc::channel();
    thread::scope(|scope| {
        // The threads end when it is dropped.
        let mut ends = Vec::new();
        for (server, member) in members.iter().enumerate() {
            let (end, ended) = mpsc::channel();
            ends.push(end);
            let poller = Poller {
                server,
                node: Node {
                    answer: MAX_ANSWER.min(member.node.answer),
                    ..member.node.clone()
                },
                interval: plan.poll_interval.0,
            };
            let sender = sender.clone();
            thread::Builder::new()
                .name("watch".to_owned())
                .stack_size(STACK)
                .spawn_scoped(scope, move || poller.run(&ended, &sender, clock))
                .map_err(|_| MeasureError::Thread)?;
        }
        drop(sender);
        let ends_at = plan.duration.map(|duration| began + duration.0.into());
        let mut due = Instant::now() + plan.poll_interval.0;
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            match news.recv_timeout(wait.min(CHECK_INTERVAL)) {
                Ok(news) => match news.answer {
                    Ok(answer) => monitor.take(news.server, news.at, *answer),
                    Err(error) => monitor.fail(news.server, error.to_string()),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(MeasureError::Thread),
            }
            let now = clock.now();
            let is_over = listener.is_stopped() || ends_at.is_some_and(|end| now >= end);
            if Instant::now() < due && !is_over {
                continue;
            }
            due = Instant::now() + plan.poll_interval.0;
            let (round, changes) = monitor.decide(now);
            let mut sent = changes
                .into_iter()
                .try_for_each(|change| listener.send(Event::Change(change)));
            sent = sent.and_then(|()| listener.send(Event::Round(round)));
            if sent.is_err() || is_over {
                return sent;
            }
        }
    })
}
