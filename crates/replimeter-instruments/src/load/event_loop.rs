//! One thread that runs many operations: it polls futures when their sockets are ready or their times have come.
//!
//! A socket's event, a timer and a permit each name the future to poll. A future is therefore also polled when it waits for
//! something else, and must check what it waits for. One that wakes itself is polled again after the others.

use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    future::{Future, poll_fn},
    io,
    num::NonZeroU64,
    os::fd::{AsFd, OwnedFd},
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use replimeter_engine::{Node, ServerError};
use replimeter_model::time::Nanos;
use replimeter_stats::signed::SignedHistogram;
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use crate::{MeasureError, clock::Clock};

mod accuracy;

pub use self::accuracy::{LoopAccuracy, loop_accuracy};

/// How often the end of a load is checked, and the resolution of the limits of answers.
const TICK: Duration = Duration::from_millis(20);
/// Ticks between two checks of the limits of answers.
const CHECK: u64 = 25;
/// Maximum number of events taken at a time.
const EVENTS: usize = 1024;
/// The timer's number among the events.
const TIMER: u64 = u64::MAX;
/// A wait up to this long did not block: the events were there before.
const NO_WAIT: Nanos = Nanos(2_000);
/// Maximum number of logins in progress, so that a server that returns is not met by all connections at once.
const LOGINS: u32 = 32;

/// A future of an event loop.
pub(super) type Task<'f> = Pin<Box<dyn Future<Output = ()> + 'f>>;

/// Whether a loop continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopControl {
    Continue,
    /// Futures that wait for a time are polled now.
    Wake,
    /// The futures are dropped.
    Abandon,
}

/// Polls futures until they are complete.
pub(super) struct EventLoop {
    state: Rc<LoopState>,
}

/// State that futures share with their loop.
struct LoopState {
    epoll: OwnedFd,
    timer: OwnedFd,
    clock: Clock,
    tasks: RefCell<Vec<Rc<TaskState>>>,
    /// Due times of futures, the earliest first.
    timers: RefCell<BinaryHeap<Reverse<(Nanos, u32)>>>,
    /// Increases when futures that wait for a time are polled early.
    woken: Cell<u64>,
    tick: Cell<u64>,
    logins: Cell<u32>,
    awaiting_login: RefCell<VecDeque<u32>>,
    /// Futures to poll before the next wait.
    ready: RefCell<Vec<u32>>,
    /// Whether delays are recorded, and how long futures were ready before they were polled.
    counts: Cell<bool>,
    delays: RefCell<SignedHistogram>,
}

/// State of one future.
#[derive(Default)]
struct TaskState {
    /// The tick at which its answer is overdue; 0 for none.
    overdue: Cell<u64>,
    expired: Cell<bool>,
}

/// A future's connection to its loop.
#[derive(Clone)]
pub(super) struct TaskHandle {
    index: u32,
    task: Rc<TaskState>,
    state: Rc<LoopState>,
}

/// The permission to log in; the next future gets it when it is dropped.
pub(super) struct LoginPermit {
    state: Rc<LoopState>,
}

impl Drop for LoginPermit {
    fn drop(&mut self) {
        let state = &self.state;
        state.logins.set(state.logins.get() - 1);
        if let Some(next) = state.awaiting_login.borrow_mut().pop_front() {
            state.ready.borrow_mut().push(next);
        }
    }
}

impl EventLoop {
    /// Creates a loop for futures of this thread.
    ///
    /// # Errors
    /// When the system refuses file descriptors.
    pub(super) fn new(clock: &Clock) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        epoll::add(
            &epoll,
            &timer,
            EventData::new_u64(TIMER),
            EventFlags::IN | EventFlags::ET,
        )?;
        // Only sleeps end on time; the priority stays that of others, since a load must not displace the servers.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Ok(Self {
            state: Rc::new(LoopState {
                epoll,
                timer,
                clock: *clock,
                tasks: RefCell::default(),
                timers: RefCell::default(),
                woken: Cell::new(0),
                tick: Cell::new(1),
                logins: Cell::new(0),
                awaiting_login: RefCell::default(),
                ready: RefCell::default(),
                counts: Cell::new(false),
                delays: RefCell::default(),
            }),
        })
    }

    /// Returns the handle of the future with this index.
    pub(super) fn handle(&self, index: u32) -> TaskHandle {
        let mut tasks = self.state.tasks.borrow_mut();
        while tasks.len() <= index as usize {
            tasks.push(Rc::default());
        }
        TaskHandle {
            index,
            task: Rc::clone(&tasks[index as usize]),
            state: Rc::clone(&self.state),
        }
    }

    /// Returns the delays recorded since the last call, and ends recording them.
    pub(super) fn take_delays(&self) -> SignedHistogram {
        self.state.counts.set(false);
        self.state.delays.take()
    }

    /// Polls futures, which have the indices of their handles, until all are complete or `control`, which is called with each
    /// tick, abandons them. Returns the number of incomplete ones.
    pub(super) fn run(
        &self,
        futures: Vec<Task<'_>>,
        control: &mut dyn FnMut() -> LoopControl,
    ) -> usize {
        let state = &*self.state;
        let woken = Arc::<Woken>::default();
        let mut running = Running {
            left: futures.len(),
            tasks: futures.into_iter().map(Some).collect(),
            waker: Waker::from(Arc::clone(&woken)),
            woken,
            state,
        };
        state.timers.borrow_mut().clear();
        for index in 0..running.tasks.len() {
            running.poll(index);
        }
        let mut events = Vec::with_capacity(EVENTS);
        let mut armed: Option<Nanos> = None;
        // When the last pass began and when it was done.
        let mut pass = [state.clock.now(); 2];
        let mut next_tick = pass[1] + Nanos::from(TICK);
        while running.left > 0 {
            let due = state.timers.borrow().peek().map(|Reverse((due, _))| *due);
            let timeout =
                if !state.ready.borrow().is_empty() || due.is_some_and(|due| due <= pass[1]) {
                    Duration::ZERO
                } else {
                    if due.is_some() && due != armed {
                        state.arm(due, pass[1]);
                        armed = due;
                    }
                    TICK
                };
            events.clear();
            let timeout = Timespec::try_from(timeout).ok();
            let waited = epoll::wait(&state.epoll, spare_capacity(&mut events), timeout.as_ref());
            let now = state.clock.now();
            if waited.is_err() {
                // Interrupted by a signal.
                events.clear();
            }
            let blocked = now - pass[1] > NO_WAIT;
            let earlier = pass[1] - pass[0];
            let count = events.len() as i64;
            for (position, event) in (0..).zip(&events) {
                let index = event.data.u64();
                if index == TIMER {
                    armed = None;
                    continue;
                }
                if state.counts.get() {
                    // Events that were there before arrived, in this order, at any time since the last wait.
                    let ready = if blocked {
                        now
                    } else {
                        pass[0] + Nanos(earlier.0 * (2 * position + 1) / (2 * count))
                    };
                    let delay = state.clock.now() - ready;
                    state.delays.borrow_mut().record(delay);
                }
                running.poll(index as usize);
            }
            let due = state.due(now);
            due.into_iter().for_each(|index| running.poll(index));
            let ready = state.ready.take();
            ready
                .into_iter()
                .for_each(|index| running.poll(index as usize));
            pass = [now, state.clock.now()];
            if pass[1] >= next_tick {
                next_tick = pass[1] + Nanos::from(TICK);
                match control() {
                    LoopControl::Continue => {}
                    LoopControl::Wake => state.wake(),
                    LoopControl::Abandon => break,
                }
                state.tick.set(state.tick.get() + 1);
                if state.tick.get().is_multiple_of(CHECK) {
                    let overdue = state.overdue();
                    overdue.into_iter().for_each(|index| running.poll(index));
                }
            }
        }
        let left = running.left;
        drop(running);
        // What abandoned futures awaited is not for those that follow.
        state.awaiting_login.borrow_mut().clear();
        state.ready.borrow_mut().clear();
        for task in &*state.tasks.borrow() {
            task.overdue.set(0);
            task.expired.set(false);
        }
        left
    }

    /// Creates a loop for connections to a server.
    ///
    /// # Errors
    /// When the system refuses file descriptors.
    pub(super) fn open(clock: &Clock, node: &Node) -> Result<Self, ServerError> {
        Self::new(clock).map_err(|error| {
            node.precondition(
                "cannot watch the connections of the load",
                error.to_string(),
                "raise the limit of open files (ulimit -n)",
            )
        })
    }

    /// Polls one future, with the handle of index 0, until it is complete.
    ///
    /// # Errors
    /// When the user stops the run first.
    pub(super) fn block_on<T>(
        &self,
        future: impl Future<Output = T>,
        stop: &AtomicBool,
    ) -> Result<T, MeasureError> {
        let mut output = None;
        let task: Task<'_> = Box::pin(async { output = Some(future.await) });
        self.run(vec![task], &mut || match stop.load(Ordering::Relaxed) {
            true => LoopControl::Abandon,
            false => LoopControl::Continue,
        });
        output.ok_or(MeasureError::Interrupted)
    }
}

/// Whether a future woke itself while it was polled.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The futures of one run.
struct Running<'f> {
    tasks: Vec<Option<Task<'f>>>,
    left: usize,
    waker: Waker,
    woken: Arc<Woken>,
    state: &'f LoopState,
}

impl Running<'_> {
    #[inline]
    fn poll(&mut self, index: usize) {
        let Some(slot) = self.tasks.get_mut(index) else {
            return;
        };
        let Some(task) = slot else { return };
        let mut context = Context::from_waker(&self.waker);
        if task.as_mut().poll(&mut context).is_ready() {
            *slot = None;
            self.left -= 1;
        } else if self.woken.0.load(Ordering::Relaxed) {
            self.woken.0.store(false, Ordering::Relaxed);
            self.state.ready.borrow_mut().push(index as u32);
        }
    }
}

impl LoopState {
    /// Sets the timer.
    fn arm(&self, due: Option<Nanos>, now: Nanos) {
        let left = due.map_or(0, |due| (due - now).0.max(1));
        let spec = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: left / 1_000_000_000,
                tv_nsec: left % 1_000_000_000,
            },
        };
        // It fails for invalid times only.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
    }

    /// Takes the futures whose time has come.
    fn due(&self, now: Nanos) -> Vec<usize> {
        let mut timers = self.timers.borrow_mut();
        let mut due = Vec::new();
        while let Some(Reverse((at, index))) = timers.peek().copied()
            && at <= now
        {
            timers.pop();
            due.push(index as usize);
        }
        due
    }

    /// Has every future that waits for a time polled.
    fn wake(&self) {
        self.woken.set(self.woken.get() + 1);
        let timers = self.timers.take();
        self.ready
            .borrow_mut()
            .extend(timers.into_iter().map(|Reverse((_, index))| index));
    }

    /// Marks the futures whose answer takes too long.
    fn overdue(&self) -> Vec<usize> {
        let (tick, tasks) = (self.tick.get(), self.tasks.borrow());
        let overdue = tasks.iter().enumerate().filter(|(_, task)| {
            let late = task.overdue.get() != 0 && task.overdue.get() <= tick;
            task.expired.set(task.expired.get() || late);
            late
        });
        overdue.map(|(index, _)| index).collect()
    }
}

impl TaskHandle {
    /// Has the future polled when this socket can be read from or written to again.
    pub(super) fn register(&self, socket: impl AsFd) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(u64::from(self.index));
        Ok(epoll::add(&self.state.epoll, socket, data, flags)?)
    }

    /// Starts recording how long futures were ready before they were polled.
    pub(super) fn count_delays(&self) {
        self.state.counts.set(true);
    }

    /// Waits until a time, or until the loop [wakes](LoopControl::Wake) all futures that wait.
    pub(super) async fn sleep_until(&self, at: Nanos) {
        let state = &*self.state;
        if state.clock.now() >= at {
            return;
        }
        let woken = state.woken.get();
        state.timers.borrow_mut().push(Reverse((at, self.index)));
        poll_fn(|_| {
            if state.woken.get() != woken || state.clock.now() >= at {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Waits for this time; see [`sleep_until`](Self::sleep_until).
    pub(super) async fn sleep(&self, time: Duration) {
        self.sleep_until(self.state.clock.now() + Nanos::from(time))
            .await;
    }

    /// Waits for a future up to a limit of time, with the loop's resolution; `None` when it takes longer.
    #[inline]
    pub(super) async fn limited<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let ticks = u64::try_from(limit.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX / 2);
        let task = &*self.task;
        task.expired.set(false);
        task.overdue.set(self.state.tick.get() + ticks + 1);
        let mut future = pin!(future);
        let done = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if task.expired.get() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await;
        task.overdue.set(0);
        done
    }

    /// Waits until it may log in.
    pub(super) async fn login_permit(&self) -> LoginPermit {
        let state = &self.state;
        let mut queued = false;
        poll_fn(|_| {
            let queue = &mut *state.awaiting_login.borrow_mut();
            if state.logins.get() < LOGINS {
                queue.retain(|waiting| *waiting != self.index);
                return Poll::Ready(());
            }
            if !queued || !queue.contains(&self.index) {
                queue.push_back(self.index);
                queued = true;
            }
            Poll::Pending
        })
        .await;
        state.logins.set(state.logins.get() + 1);
        LoginPermit {
            state: Rc::clone(state),
        }
    }
}

#[cfg(test)]
mod tests;
