//! Counters of a load's threads while they run, and the latencies since the last reading.

use std::{
    net::TcpStream,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use replimeter_engine::wire::Channel;
use replimeter_model::time::Nanos;
use replimeter_stats::signed::SignedHistogram;

use crate::{clock::Clock, sync::lock};

/// Significant digits of a window's latencies: an error of one percent, in a tenth of the memory of a
/// thousandth.
const DIGITS: u8 = 2;

/// Latencies of one thread.
#[derive(Debug)]
pub(super) struct Gauge {
    /// When the operation under way was due; 0 for none.
    since: AtomicI64,
    /// Latencies of the operations that ended since the last reading.
    ended: Mutex<SignedHistogram>,
}

impl Default for Gauge {
    fn default() -> Self {
        Self {
            since: AtomicI64::new(0),
            ended: Mutex::new(SignedHistogram::new(DIGITS)),
        }
    }
}

impl Gauge {
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
pub(super) struct Seat {
    /// Operations completed in the window, including uncounted ones.
    pub(super) operations: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) retries: AtomicU64,
    /// The server's number of its connection, to kill the connection.
    pub(super) connection: AtomicU64,
    /// Its socket, to close it when the server does not.
    pub(super) socket: Mutex<Option<TcpStream>>,
    /// Latencies of the last window, if the squad is gauged.
    pub(super) gauge: Option<Gauge>,
}

impl Seat {
    /// Closes the connection on this side.
    pub(super) fn cut(&self) {
        if let Some(socket) = &*self.socket() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    fn socket(&self) -> MutexGuard<'_, Option<TcpStream>> {
        lock(&self.socket)
    }

    pub(super) fn takes(&self, channel: &mut Channel) {
        self.connection.store(
            u64::from(channel.session().connection_id()),
            Ordering::Release,
        );
        *self.socket() = channel.socket();
    }
}

/// A window of a squad's operations.
#[derive(Clone, Debug)]
pub struct Gauged {
    /// Latencies from due time to end, of the operations that ended in the window; with two significant
    /// digits.
    pub latency: SignedHistogram,
    /// Age of the oldest operation under way.
    pub under_way: Option<Nanos>,
}

/// Provides a squad's latencies.
#[derive(Clone, Debug)]
pub struct Gauges {
    seats: Vec<Arc<Seat>>,
    clock: Clock,
}

impl Gauges {
    pub(super) fn new(seats: &[Arc<Seat>], clock: &Clock) -> Self {
        Self {
            seats: seats.to_vec(),
            clock: *clock,
        }
    }

    /// Returns the latencies since the last call.
    #[must_use]
    pub fn take(&self) -> Gauged {
        let mut latency = SignedHistogram::new(DIGITS);
        let mut oldest: Option<i64> = None;
        for gauge in self.seats.iter().filter_map(|seat| seat.gauge.as_ref()) {
            let ended = std::mem::replace(&mut *lock(&gauge.ended), SignedHistogram::new(DIGITS));
            latency.merge(&ended);
            let since = gauge.since.load(Ordering::Relaxed);
            if since != 0 {
                oldest = Some(oldest.map_or(since, |oldest| oldest.min(since)));
            }
        }
        // In an open loop the next operation may be due in the future.
        let under_way = oldest
            .map(|since| self.clock.now() - Nanos(since))
            .filter(|since| *since > Nanos(0));
        Gauged { latency, under_way }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_has_what_ended_in_it_and_what_is_under_way() {
        let seats: Vec<Arc<Seat>> = (0..2)
            .map(|_| {
                Arc::new(Seat {
                    gauge: Some(Gauge::default()),
                    ..Seat::default()
                })
            })
            .collect();
        let clock = Clock::start();
        let gauges = Gauges::new(&seats, &clock);
        for (seat, latency) in seats.iter().zip([10_000, 30_000]) {
            let gauge = seat.gauge.as_ref().unwrap();
            gauge.begins(Nanos(1));
            gauge.ended(Some(Nanos(latency)));
        }
        let gauge = seats[1].gauge.as_ref().unwrap();
        gauge.begins(Nanos(1));
        let first = gauges.take();
        assert_eq!(
            (first.latency.count(), first.latency.max()),
            (2, Some(Nanos(30_000)))
        );
        let second = gauges.take();
        assert_eq!(second.latency.count(), 0);
        assert!(second.under_way.unwrap() >= first.under_way.unwrap());
        gauge.ended(None);
        let third = gauges.take();
        assert_eq!((third.latency.count(), third.under_way), (0, None));
    }
}
