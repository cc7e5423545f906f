//! Counters of a load's connections while they run, and the latencies since the last reading.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use replimeter_engine::{dialect::connections::OpenedConnection, sync::lock};
use replimeter_model::time::Nanos;
use replimeter_stats::signed::SignedHistogram;

use super::channel::Channel;
use crate::clock::Clock;

/// Significant digits of a window's latencies: an error of one percent, with a tenth of the memory
/// of three digits.
const DIGITS: u8 = 2;

/// Counters of the connections of one thread, readable by other threads.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct LoopStatus {
    /// Operations completed in the window, including uncounted ones.
    operations: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) retries: AtomicU64,
    /// Latencies of the operations that ended since the last reading, if the load group's are recorded.
    ended: Option<Mutex<SignedHistogram>>,
    pub(super) connections: Vec<Arc<WorkerStatus>>,
}

impl LoopStatus {
    /// Creates the counters of this number of connections.
    pub(super) fn new(connections: usize, latencies: bool) -> Self {
        Self {
            ended: latencies.then(|| Mutex::new(SignedHistogram::new(DIGITS))),
            connections: (0..connections).map(|_| Arc::default()).collect(),
            ..Self::default()
        }
    }

    /// Begins a window.
    pub(super) fn reset(&self) {
        for counter in [&self.operations, &self.failed, &self.retries] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Counts an operation.
    #[inline]
    pub(super) fn completed(&self, latency: Nanos) {
        // There is one writer: a plain addition, visible to all readers.
        let count = self.operations.load(Ordering::Relaxed) + 1;
        self.operations.store(count, Ordering::Relaxed);
        if let Some(ended) = &self.ended {
            lock(ended).record(latency);
        }
    }

    /// Returns the number of operations completed in the window.
    pub(super) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }
}

/// State of one connection, readable by other threads.
#[derive(Debug, Default)]
pub(super) struct WorkerStatus {
    /// Its connection, to kill it.
    connection: Mutex<Option<OpenedConnection>>,
    /// When the current operation was due; 0 for none.
    since: AtomicI64,
}

impl WorkerStatus {
    /// Records the connection.
    pub(super) fn connected(&self, channel: &Channel) {
        *lock(&self.connection) = Some(channel.opened());
    }

    /// Records the loss of the connection.
    pub(super) fn disconnected(&self) {
        *lock(&self.connection) = None;
    }

    /// Returns the connection, if there is one.
    pub(super) fn connection(&self) -> Option<OpenedConnection> {
        *lock(&self.connection)
    }

    /// Records the start of an operation that was due at this time.
    #[inline]
    pub(super) fn begins(&self, due: Nanos) {
        self.since.store(due.0.max(1), Ordering::Relaxed);
    }

    /// Records the end of the operation.
    #[inline]
    pub(super) fn ends(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// Returns whether an operation is in progress.
    pub(super) fn busy(&self) -> bool {
        self.since.load(Ordering::Relaxed) != 0
    }
}

/// A window of a load group's operations.
#[derive(Clone, Debug)]
pub struct IntervalLatencies {
    /// Latencies from due time to end, of the operations that ended in the window; with two significant
    /// digits.
    pub latency: SignedHistogram,
    /// Age of the oldest operation in progress.
    pub under_way: Option<Nanos>,
}

/// Provides a load group's latencies.
#[derive(Clone, Debug)]
pub struct LatencyRecorders {
    loops: Vec<Arc<LoopStatus>>,
    clock: Clock,
}

impl LatencyRecorders {
    pub(super) fn new(loops: &[Arc<LoopStatus>], clock: &Clock) -> Self {
        Self {
            loops: loops.to_vec(),
            clock: *clock,
        }
    }

    /// Returns the latencies since the last call.
    #[must_use]
    pub fn take(&self) -> IntervalLatencies {
        let mut latency = SignedHistogram::new(DIGITS);
        let mut oldest: Option<i64> = None;
        for status in &self.loops {
            if let Some(ended) = &status.ended {
                let ended = std::mem::replace(&mut *lock(ended), SignedHistogram::new(DIGITS));
                latency.merge(&ended);
            }
            for connection in &status.connections {
                let since = connection.since.load(Ordering::Relaxed);
                if since != 0 {
                    oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
                }
            }
        }
        // In an open loop the next operation may be due in the future.
        let under_way = oldest
            .map(|since| self.clock.now() - Nanos(since))
            .filter(|since| *since > Nanos(0));
        IntervalLatencies { latency, under_way }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_has_completed_and_pending_operations() {
        let status = Arc::new(LoopStatus::new(2, true));
        let clock = Clock::start();
        let recorders = LatencyRecorders::new(&[Arc::clone(&status)], &clock);
        for (connection, latency) in status.connections.iter().zip([10_000, 30_000]) {
            connection.begins(Nanos(1));
            connection.ends();
            status.completed(Nanos(latency));
        }
        let connection = &status.connections[1];
        connection.begins(Nanos(1));
        let first = recorders.take();
        assert_eq!(
            (first.latency.count(), first.latency.max()),
            (2, Some(Nanos(30_000)))
        );
        let second = recorders.take();
        assert_eq!(second.latency.count(), 0);
        assert!(second.under_way.unwrap() >= first.under_way.unwrap());
        connection.ends();
        let third = recorders.take();
        assert_eq!((third.latency.count(), third.under_way), (0, None));
    }
}
