//! Counters of a load's threads while they run, and the latencies since the last reading.

use std::{
    net::TcpStream,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use replimeter_engine::wire::WireConnection;
use replimeter_model::time::Nanos;
use replimeter_stats::signed::SignedHistogram;

use crate::{clock::Clock, sync::lock};

/// Significant digits of a window's latencies: an error of one percent, with a tenth of the memory
/// of three digits.
const DIGITS: u8 = 2;

/// Latencies of one thread.
#[derive(Debug)]
pub(super) struct LatencyRecorder {
    /// When the current operation was due; 0 for none.
    since: AtomicI64,
    /// Latencies of the operations that ended since the last reading.
    ended: Mutex<SignedHistogram>,
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        Self {
            since: AtomicI64::new(0),
            ended: Mutex::new(SignedHistogram::new(DIGITS)),
        }
    }
}

impl LatencyRecorder {
    /// Records the start of an operation that was due at this time.
    pub(super) fn begins(&self, due: Nanos) {
        self.since.store(due.0, Ordering::Relaxed);
    }

    /// Records the end of the operation, with its latency if it was completed.
    pub(super) fn ended(&self, latency: Option<Nanos>) {
        self.since.store(0, Ordering::Relaxed);
        if let Some(latency) = latency {
            lock(&self.ended).record(latency);
        }
    }
}

/// Counters and connection handle of a worker, readable by other threads.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct WorkerStatus {
    /// Operations completed in the window, including uncounted ones.
    pub(super) operations: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) retries: AtomicU64,
    /// The server's number of its connection, to kill the connection.
    pub(super) connection: AtomicU64,
    /// Its socket, to close it when the server does not.
    pub(super) socket: Mutex<Option<TcpStream>>,
    /// Latencies of the last window, if the load group's latencies are recorded.
    pub(super) recorder: Option<LatencyRecorder>,
}

impl WorkerStatus {
    /// Closes the connection on this side.
    pub(super) fn cut(&self) {
        if let Some(socket) = &*self.socket() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    fn socket(&self) -> MutexGuard<'_, Option<TcpStream>> {
        lock(&self.socket)
    }

    pub(super) fn takes(&self, channel: &mut WireConnection) {
        self.connection.store(
            u64::from(channel.session().connection_id()),
            Ordering::Release,
        );
        *self.socket() = channel.socket();
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
    statuses: Vec<Arc<WorkerStatus>>,
    clock: Clock,
}

impl LatencyRecorders {
    pub(super) fn new(statuses: &[Arc<WorkerStatus>], clock: &Clock) -> Self {
        Self {
            statuses: statuses.to_vec(),
            clock: *clock,
        }
    }

    /// Returns the latencies since the last call.
    #[must_use]
    pub fn take(&self) -> IntervalLatencies {
        let mut latency = SignedHistogram::new(DIGITS);
        let mut oldest: Option<i64> = None;
        for recorder in self
            .statuses
            .iter()
            .filter_map(|status| status.recorder.as_ref())
        {
            let ended =
                std::mem::replace(&mut *lock(&recorder.ended), SignedHistogram::new(DIGITS));
            latency.merge(&ended);
            let since = recorder.since.load(Ordering::Relaxed);
            if since != 0 {
                oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
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
        let statuses: Vec<Arc<WorkerStatus>> = (0..2)
            .map(|_| {
                Arc::new(WorkerStatus {
                    recorder: Some(LatencyRecorder::default()),
                    ..WorkerStatus::default()
                })
            })
            .collect();
        let clock = Clock::start();
        let recorders = LatencyRecorders::new(&statuses, &clock);
        for (status, latency) in statuses.iter().zip([10_000, 30_000]) {
            let recorder = status.recorder.as_ref().unwrap();
            recorder.begins(Nanos(1));
            recorder.ended(Some(Nanos(latency)));
        }
        let recorder = statuses[1].recorder.as_ref().unwrap();
        recorder.begins(Nanos(1));
        let first = recorders.take();
        assert_eq!(
            (first.latency.count(), first.latency.max()),
            (2, Some(Nanos(30_000)))
        );
        let second = recorders.take();
        assert_eq!(second.latency.count(), 0);
        assert!(second.under_way.unwrap() >= first.under_way.unwrap());
        recorder.ended(None);
        let third = recorders.take();
        assert_eq!((third.latency.count(), third.under_way), (0, None));
    }
}
