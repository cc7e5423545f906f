//! A thread with an event loop and its share of a load group's connections.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender},
    },
    time::Duration,
};

use replimeter_engine::ServerError;
use replimeter_model::time::Nanos;
use replimeter_stats::signed::SignedHistogram;

use crate::{
    clock::Clock,
    kill::GivenUp,
    load::{
        event_loop::{EventLoop, LoopControl, Task},
        latency_recorder::LoopStatus,
        program::Program,
        statistics::LoadStatistics,
        value::Draw,
        worker::{
            LoadTarget, LoopTarget, Shared, WindowCounts, Worker, WorkerConnection, WorkerContext,
        },
    },
};

/// A command to a thread.
#[derive(Clone, Copy, Debug)]
pub(in crate::load) enum LoopCommand {
    /// Connect every connection.
    Connect,
    /// Run operations until stopped.
    Load,
    /// Send pings for this time.
    Ping(Duration),
}

/// Results of a thread.
pub(super) struct LoopReport {
    /// The number of the command that it answers.
    pub(super) generation: u64,
    /// Index of the thread in the load group.
    pub(super) index: usize,
    pub(super) statistics: LoadStatistics,
    /// Operations per server.
    pub(super) by_node: Vec<u64>,
    pub(super) cpu: Duration,
    /// Time that the thread was ready to run but had no core.
    pub(super) delay: Option<Duration>,
    /// How long answers waited for the thread.
    pub(super) loop_delay: SignedHistogram,
    /// Sum of the connections' times from the start of the first counted operation to the end of the last one.
    pub(super) busy: Nanos,
    /// Number of pings answered per second.
    pub(super) pings: f64,
    /// The connection that could not be opened, and why.
    pub(super) refused: Option<(usize, ServerError)>,
}

/// Everything that a thread needs.
pub(super) struct LoopThread {
    /// Index of the thread in the load group, and the number of its threads.
    pub(super) index: usize,
    pub(super) loops: usize,
    /// Number of connections of the load group.
    pub(super) connections: usize,
    pub(super) places: Vec<LoadTarget>,
    pub(super) program: Arc<Program>,
    pub(super) shared: Arc<Shared>,
    pub(super) status: Arc<LoopStatus>,
    pub(super) given_up: Arc<GivenUp>,
    pub(super) clock: Clock,
    /// Time between the openings of two connections of the load group.
    pub(super) connect_interval: Nanos,
    /// Set to drop operations in progress, with their connections.
    pub(super) abandon: Arc<AtomicBool>,
}

impl LoopThread {
    /// Executes commands until the sender is dropped.
    pub(super) fn serve(
        self,
        commands: &Receiver<(u64, LoopCommand)>,
        reports: &Sender<LoopReport>,
    ) {
        let events = EventLoop::open(&self.clock, &self.places[0].node);
        let (events, failure) = match events {
            Ok(events) => (Some(events), None),
            Err(error) => (None, Some(error)),
        };
        let mut workers = events
            .as_ref()
            .map_or_else(Vec::new, |events| self.workers(events));
        let (open, nodes) = (self.shared.rate.is_some(), self.places.len());
        let context = WorkerContext {
            program: Arc::clone(&self.program),
            shared: Arc::clone(&self.shared),
            status: Arc::clone(&self.status),
            given_up: Arc::clone(&self.given_up),
            clock: self.clock,
            window: RefCell::new(WindowCounts::new(open, nodes)),
        };
        while let Ok((generation, command)) = commands.recv() {
            let mut refused = failure.clone().map(|error| (self.index, error));
            if let Some(events) = &events {
                refused = self.execute(command, events, &mut workers, &context);
            }
            let mut window = context.window.replace(WindowCounts::new(open, nodes));
            let (cpu, delay) = window.usage();
            let report = LoopReport {
                generation,
                index: self.index,
                statistics: window.statistics,
                by_node: window.by_node,
                cpu,
                delay,
                loop_delay: events
                    .as_ref()
                    .map(EventLoop::take_delays)
                    .unwrap_or_default(),
                busy: window.busy,
                pings: window.pings,
                refused,
            };
            if reports.send(report).is_err() {
                return;
            }
        }
    }

    /// Creates the state of this thread's connections, which alternate with those of the other threads.
    fn workers(&self, events: &EventLoop) -> Vec<Worker> {
        let targets: Vec<LoopTarget> = self.places.iter().map(LoopTarget::new).collect();
        let indices = (self.index..self.connections).step_by(self.loops);
        indices
            .zip(&self.status.connections)
            .enumerate()
            .map(|(own, (index, status))| Worker {
                index,
                node: index % self.places.len(),
                link: None,
                given_up: None,
                place: targets[index % self.places.len()].clone(),
                status: Arc::clone(status),
                task: events.handle(own as u32),
                draw: Draw::new(
                    index as u32 + 1,
                    self.connections as u32,
                    self.program.sequences,
                ),
                counts: false,
            })
            .collect()
    }

    /// Executes a command; returns the first connection that could not be opened.
    fn execute(
        &self,
        command: LoopCommand,
        events: &EventLoop,
        workers: &mut [Worker],
        context: &WorkerContext,
    ) -> Option<(usize, ServerError)> {
        let refused: RefCell<Option<(usize, ServerError)>> = RefCell::default();
        let began = self.clock.now();
        let futures: Vec<Task<'_>> = workers
            .iter_mut()
            .map(|worker| -> Task<'_> {
                match command {
                    LoopCommand::Connect => {
                        let due = began + Nanos(self.connect_interval.0 * worker.index as i64);
                        Box::pin(self.connect(worker, context, due, &refused))
                    }
                    LoopCommand::Load => Box::pin(worker.load(context)),
                    LoopCommand::Ping(length) => Box::pin(worker.ping(context, length)),
                }
            })
            .collect();
        let unfinished = events.run(futures, &mut || self.control());
        if unfinished > 0 {
            for worker in workers {
                // A connection that waits for an answer, or is in a transaction, cannot be used again.
                let used = worker.status.busy();
                let lost = |link: &WorkerConnection| used || !link.channel.is_idle();
                if worker.link.as_ref().is_some_and(lost) {
                    worker.give_up(&self.given_up);
                }
                worker.status.ends();
            }
        }
        refused.into_inner()
    }

    /// Connects one connection when it is due, unless another one could not be opened.
    async fn connect(
        &self,
        worker: &mut Worker,
        context: &WorkerContext,
        due: Nanos,
        refused: &RefCell<Option<(usize, ServerError)>>,
    ) {
        let failed = || refused.borrow().is_some() || self.abandon.load(Ordering::Relaxed);
        worker.task.sleep_until(due).await;
        if failed() {
            return;
        }
        if let Err(error) = worker.connect(context).await
            && !failed()
        {
            refused.replace(Some((worker.index, self.program.explain(error))));
            // The threads stop together.
            self.abandon.store(true, Ordering::Relaxed);
        }
    }

    fn control(&self) -> LoopControl {
        if self.abandon.load(Ordering::Relaxed) {
            LoopControl::Abandon
        } else if self.shared.stopped() || self.clock.now() >= self.shared.span().1 {
            LoopControl::Wake
        } else {
            LoopControl::Continue
        }
    }
}
