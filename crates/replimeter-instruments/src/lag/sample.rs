//! One observation of a lag measurement.

use replimeter_model::{time::Nanos, words};
use serde::{Deserialize, Serialize};

use crate::lag::settings::Method;

words! {
    /// Part of a run that a sample belongs to; only [`Phase::Measure`] counts.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Phase {
        /// The primary observed as if it were its own replica.
        Floor = "floor",
        /// As `Floor`, but with point selects in place of the observer's reads: the
        /// reference under the same load.
        #[serde(rename = "yardstick")]
        ReferenceSelect = "yardstick",
        /// Warm-up; left out of the statistics.
        WarmUp = "warm-up",
        /// Written after the table was emptied, to confirm that on every server.
        Settle = "settle",
        /// The measurement proper.
        Measure = "measure",
    }
}

/// The write of one row on the primary. All times are on the run's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The row's sequence number, unique in the run, from 1.
    pub seq: u64,
    /// Part of the run.
    pub phase: Phase,
    /// The sweep over all sizes, from 0; 0 without a sweep.
    pub sweep: u32,
    /// The step (size) within the sweep, from 0; 0 without a sweep.
    pub step: u32,
    /// The row within its step, from 1.
    pub row_in_step: u32,
    /// Payload bytes.
    pub size_bytes: u64,
    /// Scheduled start of the write.
    pub intended: Nanos,
    /// The last moment before the statement was handed to the socket.
    pub send: Nanos,
    /// The first moment after the server's answer was read.
    pub ack: Nanos,
}

/// A row seen on a replica, somewhere in (`after`, `until`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The row's sequence number.
    pub seq: u64,
    /// A time at which it was not visible yet: `poll`, and `wait`, the beginning of the last read
    /// that did not show it, or unknown (the smallest number) when the first read showed it; `stamp`,
    /// the stamp minus its error; `tap`, the arrival.
    pub after: Nanos,
    /// Beginning of the first read that showed it, or of the wait; otherwise `until`.
    pub hit_began: Nanos,
    /// A time at which it was visible: `poll`, the end of the first read that showed it; `wait`, the
    /// wait's return if the read after it showed the row, otherwise the end of the first read that did;
    /// `stamp`, the stamp plus its error; `tap`, the arrival.
    pub until: Nanos,
    /// Additional facts from the method.
    pub detail: SightingDetail,
}

/// Facts that a method observes besides the time of visibility.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SightingDetail {
    /// Nothing.
    #[default]
    Nothing,
    /// `wait`: the reads after the wait's return. A row that a read showed before has none.
    Readable {
        /// End of the first read that showed the row.
        at: Nanos,
        /// Reads until then; 1 when the row was readable at once.
        reads: u32,
        /// The wait's return, when the row was not readable at once; otherwise the row is taken as visible at
        /// that time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        returned: Option<Nanos>,
    },
    /// `stamp` and `tap`: the same event on the primary.
    Primary(Nanos),
}

/// A write and its observation on one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LagSample {
    /// The replica's index in the target.
    pub replica: usize,
    /// Method of observation.
    pub method: Method,
    /// The write on the primary.
    pub write: Write,
    /// When the replica showed it; `None` when it did not within the timeout.
    pub sighting: Option<Sighting>,
    /// It was seen, but its time is unknown: a clock was set about then.
    pub unplaced: bool,
}

impl LagSample {
    /// Returns the bracket's lower end: no row is visible before it was sent.
    #[must_use]
    pub fn lower(&self) -> Option<Nanos> {
        self.sighting
            .map(|sighting| sighting.after.max(self.write.send))
    }

    /// Returns the bracket's upper end.
    #[must_use]
    pub fn upper(&self) -> Option<Nanos> {
        self.sighting.map(|sighting| sighting.until)
    }

    /// Returns the upper end of the bracket, counted from `ack`; may be negative.
    #[must_use]
    pub fn from_ack(&self) -> Option<Nanos> {
        self.upper().map(|until| until - self.write.ack)
    }

    /// Returns the upper end of the bracket, counted from `send`.
    #[must_use]
    pub fn from_send(&self) -> Option<Nanos> {
        self.upper().map(|until| until - self.write.send)
    }

    /// Returns the upper end of the bracket, counted from the intended start.
    #[must_use]
    pub fn from_intended(&self) -> Option<Nanos> {
        self.upper().map(|until| until - self.write.intended)
    }

    /// Returns the width of the bracket: how far the true time may lie below the upper end.
    #[must_use]
    pub fn error(&self) -> Option<Nanos> {
        Some(self.upper()? - self.lower()?)
    }

    /// Returns the time that stands for the row where a single one must: the middle of the bracket; for `wait` its upper
    /// end, because the wait ends soon after the row, and begins long before.
    #[must_use]
    pub fn point(&self) -> Option<Nanos> {
        let high = self.upper()?;
        match self.method {
            Method::Wait => Some(high),
            _ => Some(self.lower()?.midpoint(high)),
        }
    }

    /// Returns the bracket's midpoint, counted from `ack`.
    #[must_use]
    pub fn midpoint_from_ack(&self) -> Option<Nanos> {
        Some(self.lower()?.midpoint(self.upper()?) - self.write.ack)
    }

    /// Returns the latency of the write, from send to ack.
    #[must_use]
    pub fn insert(&self) -> Nanos {
        self.write.ack - self.write.send
    }

    /// Returns the duration of the read that showed the row; only `poll` reads for it.
    #[must_use]
    pub fn retrieval(&self) -> Option<Nanos> {
        self.sighting
            .filter(|_| self.method == Method::Poll)
            .map(|sighting| sighting.until - sighting.hit_began)
    }

    /// Returns the bracket between the moments at which the server looked, taken as the middles of the
    /// last read that did not show the row and of the first that did; that one's duration is taken for
    /// both. For methods that do not read it is the bracket itself.
    #[must_use]
    pub fn between_reads(&self) -> Option<(Nanos, Nanos)> {
        let (low, high) = (self.lower()?, self.upper()?);
        let (Some(retrieval), Some(sighting)) = (self.retrieval(), self.sighting) else {
            return Some((low, high));
        };
        let half = Nanos(retrieval.0 / 2);
        // The read that did not show it ended before the next one began.
        let missed = Nanos(sighting.after.0.saturating_add(half.0)).min(sighting.hit_began);
        let low = low.max(missed);
        let shown = high - half;
        // A row that was sent after the middle was shown after it.
        Some((low, if shown > low { shown } else { high }))
    }

    /// Returns the lag from the same event on the primary: from execution to execution (`stamp`), from
    /// binary log to binary log (`tap`). Both times are measured alike, so it may be negative.
    #[must_use]
    pub fn from_primary(&self) -> Option<Nanos> {
        match self.sighting?.detail {
            SightingDetail::Primary(there) => {
                let sighting = self.sighting?;
                Some(sighting.after.midpoint(sighting.until) - there)
            }
            _ => None,
        }
    }

    /// Returns the time from the return of the wait to the end of the first read that showed
    /// the row, and the number of reads.
    #[must_use]
    pub fn readable(&self) -> Option<(Nanos, u32)> {
        match self.sighting?.detail {
            SightingDetail::Readable {
                at,
                reads,
                returned,
            } => Some((at - returned.or(self.upper())?, reads)),
            _ => None,
        }
    }

    /// Returns Maxia's "bare" time: total − insert − retrieval, that is, from the
    /// acknowledgement to the beginning of the read that showed the row.
    #[must_use]
    pub fn bare(&self) -> Option<Nanos> {
        Some(self.from_send()? - self.insert() - self.retrieval()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> LagSample {
        LagSample {
            replica: 0,
            method: Method::Poll,
            unplaced: false,
            write: Write {
                seq: 1,
                phase: Phase::Measure,
                sweep: 0,
                step: 0,
                row_in_step: 1,
                size_bytes: 1000,
                intended: Nanos(90),
                send: Nanos(100),
                ack: Nanos(200),
            },
            sighting: Some(Sighting {
                seq: 1,
                after: Nanos(210),
                hit_began: Nanos(240),
                until: Nanos(300),
                detail: SightingDetail::Nothing,
            }),
        }
    }

    #[test]
    fn lag_is_computed_from_every_zero_point() {
        let sample = sample();
        assert_eq!(sample.from_ack(), Some(Nanos(100)));
        assert_eq!(sample.from_send(), Some(Nanos(200)));
        assert_eq!(sample.from_intended(), Some(Nanos(210)));
        assert_eq!(sample.error(), Some(Nanos(90)));
        assert_eq!(sample.midpoint_from_ack(), Some(Nanos(55)));
    }

    #[test]
    fn rows_are_seen_in_the_middle_of_reads() {
        let mut sample = sample();
        // Reads of 60: the first from 210 to 240 at most, the second from 240 to 300.
        assert_eq!(sample.between_reads(), Some((Nanos(240), Nanos(270))));
        sample.method = Method::Wait;
        assert_eq!(sample.between_reads(), Some((Nanos(210), Nanos(300))));
    }

    #[test]
    fn bare_lag_is_total_less_insert_and_retrieval() {
        let sample = sample();
        assert_eq!(sample.bare(), Some(Nanos(40)));
        assert_eq!(sample.retrieval(), Some(Nanos(60)));
    }

    #[test]
    fn read_before_send_does_not_widen_the_bracket() {
        let mut sample = sample();
        sample.sighting = Some(Sighting {
            seq: 1,
            after: Nanos(0),
            hit_began: Nanos(120),
            until: Nanos(150),
            detail: SightingDetail::Nothing,
        });
        assert_eq!(sample.lower(), Some(Nanos(100)));
        assert_eq!(
            sample.from_ack(),
            Some(Nanos(-50)),
            "visible before the acknowledgement keeps its sign"
        );
    }
}
