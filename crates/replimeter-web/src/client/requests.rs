//! Visitors that repeat a request: each as soon as the one before has its answer (closed loop), or when it is due (open loop).

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    net::SocketAddr,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use replimeter_instruments::clock::{Clock, thread_cpu};
use replimeter_model::{random::Random, time::Nanos};
use replimeter_stats::signed::SignedHistogram;
use tokio::{
    runtime::Builder,
    task::{JoinSet, LocalSet},
    time::sleep,
};

use super::{Browser, Request, alarm::Alarm};
use crate::front::add_error;

/// Interval between looks whether the visitors have ended.
const TICK: Duration = Duration::from_millis(100);
/// Pause of a visitor after a failure, so that failures do not become a busy loop.
const FAILED_PAUSE: Duration = Duration::from_millis(10);
const SECOND: i64 = 1_000_000_000;

/// Visitors of a site.
#[derive(Clone, Copy, Debug)]
pub struct Visitors {
    /// The site's address.
    pub address: SocketAddr,
    /// Number of visitors for each kind of request.
    pub number: u32,
    /// Whether a visitor keeps its connection.
    pub keep_alive: bool,
    /// Requests of each kind per second, due at random times (Poisson process); `None` in a closed loop.
    pub rate: Option<u64>,
    /// Seed of these times.
    pub seed: u64,
}

/// Results of one kind of request.
#[derive(Clone, Debug, Default)]
pub struct RequestsResult {
    /// When the first request was sent, and for how long requests were sent.
    pub began: Nanos,
    /// See `began`.
    pub counted: Nanos,
    /// Requests with a regular answer.
    pub completed: u64,
    /// The same by the whole second of their start.
    pub per_second: Vec<u64>,
    /// Time to the complete answer from when the request was due; in a closed loop, from when it was sent. With new connections, it
    /// includes the opening.
    pub response: SignedHistogram,
    /// The same from when it was sent.
    pub service: SignedHistogram,
    /// Requests of an open loop that were due and not sent at the end.
    pub waiting: u64,
    /// Requests without one.
    pub failed: u64,
    /// Their errors.
    pub errors: BTreeMap<String, u64>,
    /// Sum of the visitors' times from their first request to their last answer.
    pub busy: Nanos,
}

/// Results of all kinds.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// In the order of the kinds.
    pub results: Vec<RequestsResult>,
    /// Processor time of the client's thread.
    pub cpu: Duration,
}

impl Visitors {
    /// Sends all kinds of requests at once for this time; `waiting` is called several times a second.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn run(
        self,
        kinds: &[Request],
        length: Duration,
        clock: Clock,
        stop: &AtomicBool,
        waiting: &mut dyn FnMut(),
    ) -> io::Result<Requests> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        thread::scope(|scope| {
            let visiting = move || {
                let local = LocalSet::new();
                local.block_on(&runtime, self.visit(kinds, length, clock, stop))
            };
            let visitors = thread::Builder::new()
                .name("visitors".to_owned())
                .spawn_scoped(scope, visiting)?;
            while !visitors.is_finished() {
                thread::sleep(TICK);
                waiting();
            }
            visitors
                .join()
                .map_err(|_| io::Error::other("internal error: the visitors ended unexpectedly"))
        })
    }

    /// Returns when the requests of the kind with this index are due.
    fn schedule(&self, index: u64, began: Nanos) -> Schedule {
        let mut schedule = Schedule {
            rate: self.rate,
            next: began,
            random: Random::new(self.seed.wrapping_add(index)),
        };
        // The beginning is no arrival.
        let _ = schedule.take();
        schedule
    }

    async fn visit(
        self,
        kinds: &[Request],
        length: Duration,
        clock: Clock,
        stop: &AtomicBool,
    ) -> Requests {
        let cpu = thread_cpu();
        let began = clock.now();
        let until = began + Nanos::from(length);
        let results: Rc<RefCell<Vec<RequestsResult>>> = Rc::default();
        results.borrow_mut().resize(
            kinds.len(),
            RequestsResult {
                began,
                ..RequestsResult::default()
            },
        );
        let ended = Rc::new(Cell::new(false));
        let mut visitors = JoinSet::new();
        for (index, kind) in kinds.iter().copied().enumerate() {
            let schedule = Rc::new(RefCell::new(self.schedule(index as u64, began)));
            for _ in 0..self.number {
                let schedule = Rc::clone(&schedule);
                let mut browser = Browser::new(self.address, self.keep_alive);
                let (results, ended) = (Rc::clone(&results), Rc::clone(&ended));
                visitors.spawn_local(async move {
                    let mut last = began;
                    let alarm = Alarm::new();
                    while !ended.get() {
                        let due = schedule.borrow_mut().take();
                        if due.unwrap_or_else(|| clock.now()) >= until {
                            break;
                        }
                        if let (Some(due), Ok(alarm)) = (due, &alarm) {
                            // Without a timer the request is sent at once.
                            let _ = alarm.wait_until(&clock, due).await;
                        }
                        let sent = clock.now();
                        if sent >= until {
                            results.borrow_mut()[index].waiting += 1;
                            continue;
                        }
                        let failure = match browser.ask(kind).await {
                            Ok(reply) => reply.failure(),
                            Err(error) => Some(error.to_string()),
                        };
                        last = clock.now();
                        let failed = failure.is_some();
                        results.borrow_mut()[index].add([due.unwrap_or(sent), sent, last], failure);
                        if failed {
                            sleep(FAILED_PAUSE).await;
                        }
                    }
                    let busy = &mut results.borrow_mut()[index].busy;
                    *busy = *busy + (last - began);
                });
            }
        }
        while !visitors.is_empty() {
            if stop.load(Ordering::Relaxed) {
                ended.set(true);
            }
            tokio::select! {
                _ = visitors.join_next() => {}
                () = sleep(TICK) => {}
            }
        }
        let mut results = results.take();
        for result in &mut results {
            // In a closed loop the mean time of the visitors: over the planned time, the last requests would be too many.
            result.counted = match self.rate {
                Some(_) => Nanos::from(length),
                None => Nanos(result.busy.0 / i64::from(self.number.max(1))),
            };
        }
        Requests {
            results,
            cpu: thread_cpu().saturating_sub(cpu),
        }
    }
}

/// When the requests of one kind are due.
struct Schedule {
    rate: Option<u64>,
    next: Nanos,
    random: Random,
}

impl Schedule {
    /// Returns when the next request is due; `None` in a closed loop.
    fn take(&mut self) -> Option<Nanos> {
        let rate = self.rate?;
        let due = self.next;
        let mean = SECOND as f64 / rate as f64;
        self.next = due + Nanos((self.random.exponential() * mean) as i64);
        Some(due)
    }
}

impl RequestsResult {
    fn add(&mut self, [due, sent, answered]: [Nanos; 3], failure: Option<String>) {
        if let Some(failure) = failure {
            self.failed += 1;
            add_error(&mut self.errors, &failure, 1);
            return;
        }
        self.completed += 1;
        self.response.record(answered - due);
        self.service.record(answered - sent);
        let second = usize::try_from((due - self.began).0 / SECOND).unwrap_or(0);
        if self.per_second.len() <= second {
            self.per_second.resize(second + 1, 0);
        }
        self.per_second[second] += 1;
    }
}
