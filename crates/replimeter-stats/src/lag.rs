//! Summaries of lag samples, accumulated in bounded memory.

use std::collections::BTreeMap;

use replimeter_model::{
    lag::{HistogramBin, LagRow, ReadableRows},
    record::Distribution,
    sample::LagSample,
    time::Nanos,
};

use crate::{
    bins::bins,
    censored::Brackets,
    series::{Series, distribution},
    signed::SignedHistogram,
};

/// Maximum bars of a row's histogram.
const BARS: usize = 24;

/// How [`LagRow::estimate`] is made: by maximum likelihood from brackets (Turnbull
/// 1976), see [`crate::censored`].
pub const ESTIMATOR: &str = "turnbull-npmle";

/// The summary of one replica and one row size.
#[derive(Clone, Debug, Default)]
pub struct LagSummary {
    rounds: u64,
    missing: u64,
    untold: u64,
    from_ack: Series,
    from_send: Series,
    // Without windows over the run, and so without intervals: windows need most of the memory.
    from_intended: SignedHistogram,
    brackets: Brackets,
    error: SignedHistogram,
    insert: SignedHistogram,
    retrieval: SignedHistogram,
    from_primary: Series,
    /// Rows by `from_primary`, or lag from ack without it, in bins of 0.1 ms.
    tenths: BTreeMap<i64, u64>,
    gap: SignedHistogram,
    not_at_once: u64,
}

impl LagSummary {
    /// Adds a sample; one without a visibility time counts as timed out.
    pub fn record(&mut self, sample: &LagSample) {
        self.rounds += 1;
        self.insert.record(sample.insert());
        let at = sample.write.send;
        match (
            sample.from_ack(),
            sample.from_send(),
            sample.from_intended(),
            sample.error(),
        ) {
            (Some(ack), Some(send), Some(intended), Some(error)) => {
                self.from_ack.record(at, ack);
                self.from_send.record(at, send);
                self.from_intended.record(intended);
                self.brackets.record(Some(ack - error), ack);
                self.error.record(error);
                if let Some(retrieval) = sample.retrieval() {
                    self.retrieval.record(retrieval);
                }
                let from_primary = sample.from_primary();
                if let Some(difference) = from_primary {
                    self.from_primary.record(at, difference);
                }
                *self
                    .tenths
                    .entry(tenth(from_primary.unwrap_or(ack)))
                    .or_default() += 1;
                if let Some((gap, reads)) = sample.readable() {
                    self.gap.record(gap);
                    self.not_at_once += u64::from(reads > 1);
                }
            }
            _ if sample.untold => self.untold += 1,
            _ => self.missing += 1,
        }
    }

    /// Returns the lag from the acknowledgement, upper end of each bracket.
    #[must_use]
    pub fn lags(&self) -> &SignedHistogram {
        self.from_ack.histogram()
    }

    /// Returns the writes, send to acknowledgement.
    #[must_use]
    pub fn inserts(&self) -> &SignedHistogram {
        &self.insert
    }

    /// Returns the samples so far, including timed-out ones.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Returns the figures as a row of the report; the caller fills in names.
    #[must_use]
    pub fn row(&self) -> LagRow {
        // Neighboring rounds depend on one another through their lag, which the upper end of a
        // bracket shows as well as its inside.
        let of = |estimate: crate::censored::Npmle| {
            estimate.figures(|value| self.from_ack.inflation(value))
        };
        let (estimate, estimate_within) = self.brackets.estimate().map(of).unwrap_or_default();
        LagRow {
            rounds: self.rounds,
            timed_out: self.missing,
            unplaced: self.untold,
            from_ack: self.from_ack.distribution(),
            from_send: self.from_send.distribution(),
            from_intended: distribution(&self.from_intended),
            bracket_us: distribution(&self.error),
            estimate,
            estimator: ESTIMATOR.to_owned(),
            estimate_within,
            write_latency: distribution(&self.insert),
            retrieval: distribution(&self.retrieval),
            from_primary: self.from_primary.distribution(),
            histogram_100us: self
                .tenths
                .iter()
                .map(|(tenth, count)| HistogramBin {
                    bin: *tenth,
                    count: *count,
                })
                .collect(),
            readable: (self.gap.count() > 0).then(|| ReadableRows {
                rounds: self.gap.count(),
                not_at_once: self.not_at_once,
                gap: distribution(&self.gap),
            }),
            histogram: bins(self.from_ack.histogram(), BARS),
            windows: self.from_ack.windows(),
            ..LagRow::default()
        }
    }
}

/// Returns a difference in units of 0.1 ms, rounded.
fn tenth(difference: Nanos) -> i64 {
    (difference.0 + 50_000).div_euclid(100_000)
}

/// Summary of the floor: the primary observed as its own replica.
#[derive(Clone, Debug, Default)]
pub struct FloorSummary {
    lag: LagSummary,
    midpoint_abs: SignedHistogram,
}

impl FloorSummary {
    /// Adds a sample of the null replica.
    pub fn record(&mut self, sample: &LagSample) {
        self.lag.record(sample);
        if let Some(midpoint) = sample.midpoint_from_ack() {
            self.midpoint_abs.record(Nanos(midpoint.0.abs()));
        }
    }

    /// Returns the lag figures of the null replica.
    #[must_use]
    pub fn row(&self) -> LagRow {
        self.lag.row()
    }

    /// Returns the distance of the bracket's midpoint from the acknowledgement.
    #[must_use]
    pub fn midpoint_abs(&self) -> Distribution {
        distribution(&self.midpoint_abs)
    }
}

/// Summaries of one replica: by row size, and of all rows.
#[derive(Clone, Debug, Default)]
pub struct ReplicaSummary {
    all: LagSummary,
    by_size: BTreeMap<u64, LagSummary>,
}

impl ReplicaSummary {
    /// Adds a sample; with `by_size`, also to the summary of its row size.
    pub fn record(&mut self, sample: &LagSample, by_size: bool) {
        self.all.record(sample);
        if by_size {
            self.by_size
                .entry(sample.write.size_bytes)
                .or_default()
                .record(sample);
        }
    }

    /// Returns the summary of all rows.
    #[must_use]
    pub fn all(&self) -> &LagSummary {
        &self.all
    }

    /// Returns the summaries by row size, ascending.
    pub fn sizes(&self) -> impl Iterator<Item = (u64, &LagSummary)> {
        self.by_size.iter().map(|(size, summary)| (*size, summary))
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        plan::Method,
        sample::{Phase, Sighting, SightingDetail, Write},
    };

    use super::*;

    fn sample(round: i64, seen: bool) -> LagSample {
        let send = Nanos(round * 10_000_000);
        LagSample {
            replica: 0,
            method: Method::Poll,
            untold: false,
            write: Write {
                seq: round as u64,
                phase: Phase::Measure,
                sweep: 0,
                step: 0,
                row_in_step: 1,
                size_bytes: 1000 + (round as u64 % 2),
                intended: send,
                send,
                ack: send + Nanos(100_000),
            },
            sighting: seen.then_some(Sighting {
                seq: round as u64,
                after: send + Nanos(120_000),
                hit_began: send + Nanos(160_000),
                until: send + Nanos(200_000 + round),
                beside: SightingDetail::Primary(send + Nanos(1_000)),
            }),
        }
    }

    #[test]
    fn missing_rows_are_counted_and_not_averaged() {
        let mut summary = LagSummary::default();
        for round in 1..=40 {
            summary.record(&sample(round, round % 4 != 0));
        }
        let row = summary.row();
        assert_eq!(
            (row.rounds, row.timed_out, row.from_ack.count),
            (40, 10, 30)
        );
        assert_eq!(row.from_ack.min_us, Some(100.001));
        // The middle of the bracket is 160.0xx after the send, 159 after the event on the primary.
        assert_eq!(row.histogram_100us, [HistogramBin { bin: 2, count: 30 }]);
        assert_eq!(row.histogram.iter().map(|bin| bin.count).sum::<u64>(), 30);
    }

    #[test]
    fn bins_round_to_nearest_on_both_sides_of_zero() {
        for (nanos, want) in [
            (0, 0),
            (49_999, 0),
            (50_000, 1),
            (149_999, 1),
            (-50_000, 0),
            (-50_001, -1),
            (-149_999, -1),
        ] {
            assert_eq!(tenth(Nanos(nanos)), want, "{nanos}");
        }
    }

    #[test]
    fn sizes_are_separate_when_requested() {
        let mut summary = ReplicaSummary::default();
        for round in 1..=10 {
            summary.record(&sample(round, true), true);
        }
        assert_eq!(
            summary
                .sizes()
                .map(|(size, part)| (size, part.rounds()))
                .collect::<Vec<_>>(),
            [(1000, 5), (1001, 5)]
        );
        assert_eq!(summary.all().rounds(), 10);
    }
}
