//! What is seen of a load's threads while they run; latencies are taken by whoever draws
//! its course.

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

/// The digits of a stretch's latencies: one percent, in a tenth of the memory of a thousandth.
const DIGITS: u8 = 2;

/// What one thread shows of its operations.
#[derive(Debug)]
pub(super) struct Gauge {
    /// When the operation under way was due; 0 for none.
    since: AtomicI64,
    /// Of those that ended since somebody looked.
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
    /// An operation begins that was due then.
    pub(super) fn begins(&self, due: Nanos) {
        self.since.store(due.0, Ordering::Relaxed);
    }

    /// It ended, with its latency unless it was given up.
    pub(super) fn ended(&self, latency: Option<Nanos>) {
        self.since.store(0, Ordering::Relaxed);
        if let Some(latency) = latency {
            lock(&self.ended).record(latency);
        }
    }
}

/// What others see of a thread.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Seat {
    /// Operations completed in the stretch, the uncounted among them.
    pub(super) operations: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) retries: AtomicU64,
    /// The server's number of its connection, for whoever must end it.
    pub(super) connection: AtomicU64,
    /// Its socket, for whoever must end it when the server does not.
    pub(super) socket: Mutex<Option<TcpStream>>,
    /// Latencies of the last stretch, where somebody wants them.
    pub(super) gauge: Option<Gauge>,
}

impl Seat {
    /// Ends the connection from this side.
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

/// A stretch of a squad's operations.
#[derive(Clone, Debug)]
pub struct Gauged {
    /// From when each was due to its end, of those that ended in it; with two significant digits.
    pub latency: SignedHistogram,
    /// How long the oldest operation under way has been.
    pub under_way: Option<Nanos>,
}

/// Shows a squad's latencies.
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

    /// What ended since the last time.
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
        // A schedule's next operation may be due only later.
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
