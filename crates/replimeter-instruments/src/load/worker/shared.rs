//! State that the threads of one load group share: the end, and the schedule.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use replimeter_engine::{ServerError, sync::lock};
use replimeter_model::{
    load::{Arrivals, OpenLoop},
    random::Random,
    time::Nanos,
};

/// State that the threads of one load group share.
#[derive(Debug)]
pub(in crate::load) struct Shared {
    /// Whether the window must end.
    stop: AtomicBool,
    /// Begin of the time in which started operations count.
    from: AtomicI64,
    until: AtomicI64,
    /// When the open loop's first operation was due.
    began: AtomicI64,
    /// Operations of the open loop that were started.
    tickets: AtomicU64,
    /// The next intended starts of a Poisson process.
    poisson: Mutex<Poisson>,
    /// The error that ended the load group.
    failure: Mutex<Option<ServerError>>,
    pub(in crate::load) rate: Option<OpenLoop>,
    /// How long a lost connection is retried.
    pub(in crate::load) patience: Duration,
}

#[derive(Debug)]
struct Poisson {
    random: Random,
    /// Nanoseconds after the beginning.
    next: f64,
    /// Number of intended starts generated so far, to count those that no thread has taken.
    ahead: u64,
}

const NEVER: i64 = i64::MAX;

impl Shared {
    pub(in crate::load) fn new(rate: Option<OpenLoop>, patience: Duration, seed: u64) -> Self {
        Self {
            stop: AtomicBool::new(false),
            from: AtomicI64::new(NEVER),
            until: AtomicI64::new(NEVER),
            began: AtomicI64::new(0),
            tickets: AtomicU64::new(0),
            poisson: Mutex::new(Poisson {
                random: Random::numbered(seed ^ 0x5EED),
                next: 0.0,
                ahead: 0,
            }),
            failure: Mutex::new(None),
            rate,
            patience,
        }
    }

    /// Prepares a window that begins now; operations that start in the span count.
    pub(in crate::load) fn start(&self, now: Nanos, from: Option<Nanos>, until: Option<Nanos>) {
        self.stop.store(false, Ordering::Release);
        self.from
            .store(from.map_or(NEVER, |from| from.0), Ordering::Release);
        self.until
            .store(until.map_or(NEVER, |until| until.0), Ordering::Release);
        self.began.store(now.0, Ordering::Release);
        self.tickets.store(0, Ordering::Release);
        let mut poisson = lock(&self.poisson);
        (poisson.next, poisson.ahead) = (0.0, 0);
        *lock(&self.failure) = None;
    }

    /// Starts counting now.
    pub(in crate::load) fn count_from(&self, now: Nanos) {
        self.from.store(now.0, Ordering::Release);
    }

    /// Lets no operation start from now on; those in progress are completed, with their retries.
    pub(in crate::load) fn close(&self, now: Nanos) {
        let _ = self.until.fetch_min(now.0, Ordering::AcqRel);
    }

    /// The same, but operations in progress are not retried.
    pub(in crate::load) fn stop(&self, now: Nanos) {
        self.close(now);
        self.stop.store(true, Ordering::Release);
    }

    /// Returns the counted span, as far as it is known.
    pub(in crate::load) fn span(&self) -> (Nanos, Nanos) {
        (
            Nanos(self.from.load(Ordering::Acquire)),
            Nanos(self.until.load(Ordering::Acquire)),
        )
    }

    #[inline]
    pub(in crate::load) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns the error that ended the load group, if any.
    pub(in crate::load) fn failure(&self) -> Option<ServerError> {
        lock(&self.failure).clone()
    }

    pub(super) fn fail(&self, error: ServerError) {
        lock(&self.failure).get_or_insert(error);
    }

    /// Returns whether an error ended the load group.
    pub(in crate::load) fn failed(&self) -> bool {
        lock(&self.failure).is_some()
    }

    /// Returns the operations of the open loop that are due at `now` but not started; `None` for a
    /// closed loop.
    pub(in crate::load) fn waiting(&self, now: Nanos) -> Option<u64> {
        let open = self.rate?;
        let since = (now.0 - self.began.load(Ordering::Acquire)).max(0);
        let due = match open.arrivals {
            Arrivals::Constant => {
                u64::try_from(u128::from(open.rate) * since.unsigned_abs() as u128 / 1_000_000_000)
                    .unwrap_or(u64::MAX)
            }
            Arrivals::Poisson => {
                // Generates the intended starts up to now on a copy: those taken, and the rest.
                let poisson = lock(&self.poisson);
                let (mut random, mut next, mut due) = (poisson.random, poisson.next, poisson.ahead);
                drop(poisson);
                while next <= since as f64 {
                    due += 1;
                    next += random.exponential() * 1e9 / open.rate as f64;
                }
                due
            }
        };
        Some(due.saturating_sub(self.tickets.load(Ordering::Acquire)))
    }

    /// Returns the intended start of the next operation of an open loop; any free thread takes it.
    pub(super) fn take_due_time(&self, open: OpenLoop) -> Nanos {
        let began = Nanos(self.began.load(Ordering::Acquire));
        match open.arrivals {
            Arrivals::Constant => {
                let ticket = self.tickets.fetch_add(1, Ordering::AcqRel);
                let after = u128::from(ticket) * 1_000_000_000 / u128::from(open.rate.max(1));
                began + Nanos(i64::try_from(after).unwrap_or(i64::MAX / 2))
            }
            Arrivals::Poisson => {
                let mut poisson = lock(&self.poisson);
                let due = poisson.next;
                let distance = poisson.random.exponential() * 1e9 / open.rate.max(1) as f64;
                poisson.next += distance;
                poisson.ahead += 1;
                self.tickets.fetch_add(1, Ordering::AcqRel);
                began + Nanos(due as i64)
            }
        }
    }

    /// Puts back a due time that was taken but whose operation was not started.
    pub(super) fn return_due_time(&self) {
        self.tickets.fetch_sub(1, Ordering::AcqRel);
    }
}
