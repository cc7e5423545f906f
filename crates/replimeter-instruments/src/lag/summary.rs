//! Summaries of lag samples, accumulated in bounded memory.

use std::collections::BTreeMap;

use replimeter_model::{
    record::{Distribution, EstimateBounds},
    time::Nanos,
};
use replimeter_stats::{
    bins::bins,
    censored::Brackets,
    measured_time::MeasuredTime,
    series::{Series, distribution},
    share::Proportion,
    signed::SignedHistogram,
};

use crate::lag::{
    results::{HistogramBin, LagRow, ReadableRows},
    row_numbers::RowNumbers,
    sample::LagSample,
    settings::Method,
};

/// A lag beyond this multiple of the median is far later than the others.
pub const FAR: i64 = 5;

/// Maximum bars of a row's histogram.
const BARS: usize = 24;

/// How [`LagRow::estimate`] is made: by maximum likelihood from brackets (Turnbull
/// 1976), see [`replimeter_stats::censored`].
pub const ESTIMATOR: &str = "turnbull-npmle";

/// How [`LagRow::estimate`] of `wait` is made: the upper ends of the brackets. A wait ends soon after the row became
/// visible, and its bracket begins long before, so the position in a bracket depends on the lag, which the maximum
/// likelihood estimate assumes it does not.
pub const UPPER_ENDS: &str = "upper-ends";

/// The summary of one replica and one row size.
#[derive(Clone, Debug, Default)]
pub struct LagSummary {
    time: MeasuredTime,
    rounds: u64,
    missing: u64,
    unplaced: u64,
    from_ack: Series,
    from_send: Series,
    // Without windows over the run, and so without intervals: windows need most of the memory.
    from_intended: Series,
    brackets: Brackets,
    /// Lower ends, from the acknowledgement, of brackets that are not for [`Brackets`].
    lower_ends: Series,
    error: SignedHistogram,
    insert: SignedHistogram,
    retrieval: SignedHistogram,
    from_primary: Series,
    /// Rows by `from_primary`, or lag from ack without it, in bins of 0.1 ms.
    bins: BTreeMap<i64, u64>,
    gap: SignedHistogram,
    not_at_once: u64,
}

impl LagSummary {
    /// Adds a sample; one without a visibility time counts as timed out.
    pub fn record(&mut self, sample: &LagSample) {
        self.rounds += 1;
        self.insert.record(sample.insert());
        let at = self.time.of(sample.write.send);
        match (
            sample.from_ack(),
            sample.from_send(),
            sample.from_intended(),
            sample.error(),
        ) {
            (Some(ack), Some(send), Some(intended), Some(error)) => {
                self.from_ack.record(at, ack);
                self.from_send.record(at, send);
                self.from_intended.record(at, intended);
                match (sample.method, sample.between_reads()) {
                    (Method::Wait, _) => self.lower_ends.record(at, ack - error),
                    (_, Some((low, high))) => {
                        let zero = sample.write.ack;
                        self.brackets.record(Some(low - zero), high - zero);
                    }
                    _ => {}
                }
                self.error.record(error);
                if let Some(retrieval) = sample.retrieval() {
                    self.retrieval.record(retrieval);
                }
                let from_primary = sample.from_primary();
                if let Some(difference) = from_primary {
                    self.from_primary.record(at, difference);
                }
                *self
                    .bins
                    .entry(bin_of(from_primary.unwrap_or(ack)))
                    .or_default() += 1;
                if let Some((gap, reads)) = sample.readable() {
                    self.gap.record(gap);
                    self.not_at_once += u64::from(reads > 1);
                }
            }
            _ if sample.unplaced => self.unplaced += 1,
            _ => self.missing += 1,
        }
    }

    /// Separates the samples that follow, which are of a new start of the servers; the time between starts is in no window.
    pub fn begin_start(&mut self) {
        self.time.begin_start();
        self.from_ack.begin_start();
        self.from_send.begin_start();
        self.from_intended.begin_start();
        self.lower_ends.begin_start();
        self.from_primary.begin_start();
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

    /// Returns half of the mean duration of the reads that showed a row. The server looks at one
    /// moment of a read, and the brackets assume its middle: by as much may all times be earlier or
    /// later. 0 without reads.
    fn read_error(&self) -> Nanos {
        Nanos(self.retrieval.mean().map_or(0, |mean| (mean / 2.0) as i64))
    }

    /// Returns the estimate of times of which each is the upper end of its bracket. A quantile lies between that of the
    /// lower and that of the upper ends, for any positions within the brackets: its interval is from the low end
    /// of the one's to the high end of the other's.
    fn of_upper_ends(&self) -> (Distribution, EstimateBounds) {
        let (low, high) = (&self.lower_ends, &self.from_ack);
        let interval = |p: f64| Some([low.interval(p)?[0], high.interval(p)?[1]]);
        let within = |p: f64| {
            let ends = [low, high].map(|ends| ends.histogram().quantile(p).map(Nanos::as_micros));
            Some([ends[0]?, ends[1]?])
        };
        let estimate = Distribution {
            p50_us_ci95: interval(0.5),
            p90_us_ci95: interval(0.9),
            p95_us_ci95: interval(0.95),
            p99_us_ci95: interval(0.99),
            p999_us_ci95: None,
            ..high.distribution()
        };
        let bounds = EstimateBounds {
            p50_us: within(0.5),
            p90_us: within(0.9),
            p99_us: within(0.99),
            systematic_us: self.error.mean().map_or(0.0, |mean| mean / 1e3),
            ..EstimateBounds::default()
        };
        (estimate, bounds)
    }

    /// Returns the share of rows later than [`FAR`] times the median, of the lags that the published histogram is of. Its
    /// interval takes this limit as given: five times the median, not of where the true one may be.
    fn far(&self) -> Option<Proportion> {
        let series = match self.from_primary.histogram().count() {
            0 => &self.from_ack,
            _ => &self.from_primary,
        };
        let lags = series.histogram();
        let median = lags.quantile(0.5).filter(|median| median.0 > 0)?;
        let limit = Nanos(median.0.saturating_mul(FAR));
        let far = lags.count() - lags.count_at_most(limit);
        Some(Proportion::of(lags.count(), far, series.inflation(limit)))
    }

    /// Returns the figures as a row of the report; the caller fills in names.
    #[must_use]
    pub fn row(&self) -> LagRow {
        let far = self.far();
        // Neighboring rounds depend on one another through their lag, which the upper end of a
        // bracket shows as well as its inside.
        let of = |estimate: replimeter_stats::censored::Npmle| {
            estimate.figures(
                |p, value| {
                    let inflation = self.from_ack.inflation(value);
                    inflation.filter(|_| self.from_ack.enough_clusters(p))
                },
                |p, value| {
                    let between = self.from_ack.between_starts(p, value);
                    between.filter(|_| self.from_ack.enough_clusters(p))
                },
                self.read_error(),
            )
        };
        let upper_ends = self.lower_ends.histogram().count() > 0;
        let (estimate, estimate_within) = if upper_ends {
            self.of_upper_ends()
        } else {
            self.brackets.estimate().map(of).unwrap_or_default()
        };
        LagRow {
            bracket_us: distribution(&self.error),
            estimate,
            estimator: if upper_ends { UPPER_ENDS } else { ESTIMATOR }.to_owned(),
            estimate_within,
            retrieval: distribution(&self.retrieval),
            histogram_100us: self
                .bins
                .iter()
                .map(|(bin, count)| HistogramBin {
                    bin: *bin,
                    count: *count,
                })
                .collect(),
            far_percent: far.map(|far| far.share * 100.0),
            far_percent_ci95: far
                .filter(|far| far.inflation.is_some())
                .map(|far| [far.low, far.high].map(|share| share * 100.0)),
            readable: (self.gap.count() > 0).then(|| ReadableRows {
                rounds: self.gap.count(),
                not_at_once: self.not_at_once,
                gap: distribution(&self.gap),
            }),
            histogram: bins(self.from_ack.histogram(), BARS),
            windows: self.from_ack.windows(),
            ..self.so_far()
        }
    }

    /// Returns the figures that take little time, for a run that continues: those without an estimate.
    #[must_use]
    pub fn so_far(&self) -> LagRow {
        LagRow {
            rounds: self.rounds,
            timed_out: self.missing,
            unplaced: self.unplaced,
            from_ack: self.from_ack.distribution(),
            from_send: self.from_send.distribution(),
            from_intended: self.from_intended.distribution(),
            from_primary: self.from_primary.distribution(),
            write_latency: distribution(&self.insert),
            ..LagRow::default()
        }
    }
}

/// Returns a difference in units of 0.1 ms, rounded.
fn bin_of(difference: Nanos) -> i64 {
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

    /// Separates the samples that follow, which are of a new start of the servers.
    pub fn begin_start(&mut self) {
        self.lag.begin_start();
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
    row_numbers: RowNumbers,
    by_size: BTreeMap<u64, LagSummary>,
}

impl ReplicaSummary {
    /// Adds a sample; with `by_size`, also to the summary of its row size.
    pub fn record(&mut self, sample: &LagSample, by_size: bool) {
        self.all.record(sample);
        self.row_numbers.record(sample.from_ack());
        if by_size {
            self.by_size
                .entry(sample.write.size_bytes)
                .or_default()
                .record(sample);
        }
    }

    /// Separates the samples that follow, which are of a new start of the servers.
    pub fn begin_start(&mut self) {
        self.all.begin_start();
        self.row_numbers.begin_start();
        self.by_size.values_mut().for_each(LagSummary::begin_start);
    }

    /// Returns the summary of all rows.
    #[must_use]
    pub fn all(&self) -> &LagSummary {
        &self.all
    }

    /// Returns the figures of all rows.
    #[must_use]
    pub fn row(&self) -> LagRow {
        LagRow {
            by_row_number: self.row_numbers.parts(),
            ..self.all.row()
        }
    }

    /// Returns the summaries by row size, ascending.
    pub fn sizes(&self) -> impl Iterator<Item = (u64, &LagSummary)> {
        self.by_size.iter().map(|(size, summary)| (*size, summary))
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::random::Random;

    use super::*;
    use crate::lag::sample::{Phase, Sighting, SightingDetail, Write};

    fn sample(round: i64, seen: bool) -> LagSample {
        let send = Nanos(round * 10_000_000);
        LagSample {
            replica: 0,
            method: Method::Poll,
            unplaced: false,
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
                detail: SightingDetail::Primary(send + Nanos(1_000)),
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
    fn far_rows_have_an_interval_of_their_own() {
        // Ten starts with levels of their own, in which a row in fifty is late for no common cause.
        let mut random = Random::new(7);
        let mut summary = LagSummary::default();
        for start in 0..10 {
            summary.begin_start();
            let level = 100_000.0 * (0.3 * random.normal()).exp();
            for round in 1..=100 {
                let mut row = sample(start * 10_000 + round, true);
                let late = if round % 50 == 7 { 30.0 } else { 1.0 };
                if let Some(sighting) = &mut row.sighting {
                    let lag = Nanos((late * level * (0.1 * random.normal()).exp()) as i64);
                    (sighting.after, sighting.hit_began) = (row.write.ack, row.write.ack);
                    sighting.until = row.write.ack + lag;
                    sighting.detail = SightingDetail::Nothing;
                }
                summary.record(&row);
            }
        }
        let row = summary.row();
        assert_eq!(row.far_percent, Some(2.0));
        let [low, high] = row.far_percent_ci95.unwrap();
        assert!(low < 2.0 && 2.0 < high, "{low} {high}");
        // The medians of starts differ, which makes half of the rows depend on them, and the far ones do not.
        assert!(row.from_ack.inflation.unwrap() > 10.0);
        assert!(high < 4.0, "{high}");
    }

    #[test]
    fn estimate_includes_half_of_a_read() {
        let mut summary = LagSummary::default();
        for round in 1..=400 {
            summary.record(&sample(round, true));
        }
        let row = summary.row();
        // Reads take 40.2 µs on average.
        assert!((row.estimate_within.systematic_us - 20.1).abs() < 0.2);
        let [low, high] = row.estimate.p50_us_ci95.unwrap();
        assert!(high - low > 40.0, "{:?}", row.estimate);
    }

    #[test]
    fn estimate_of_waits_lies_between_all_ends() {
        let mut summary = LagSummary::default();
        // The true lag is from 1 to 2 ms, a wait answers 30 µs later, and the last read that missed the row was up to
        // 0.5 ms before it.
        for round in 1..=2_000i64 {
            let mut wait = sample(round, true);
            wait.method = Method::Wait;
            let visible = wait.write.ack + Nanos(1_000_000 + round * 7_919 % 1_000 * 1_000);
            wait.sighting = Some(Sighting {
                seq: round as u64,
                after: visible - Nanos(round * 104_729 % 500_000),
                hit_began: wait.write.ack,
                until: visible + Nanos(30_000),
                detail: SightingDetail::Nothing,
            });
            summary.record(&wait);
        }
        let row = summary.row();
        assert_eq!(row.estimator, UPPER_ENDS);
        assert!(
            (row.estimate.p50_us.unwrap() - 1_530.0).abs() < 5.0,
            "{:?}",
            row.estimate
        );
        let within = |bounds: Option<[f64; 2]>, us: f64| {
            let [low, high] = bounds.unwrap();
            assert!(low < us && us <= high, "{bounds:?} {us}");
        };
        within(row.estimate_within.p50_us, 1_500.0);
        within(row.estimate_within.p90_us, 1_900.0);
        within(row.estimate.p50_us_ci95, 1_500.0);
        within(row.estimate.p90_us_ci95, 1_900.0);
        assert!((row.estimate_within.systematic_us - 280.0).abs() < 5.0);
    }

    /// Returns the row of starts whose levels scatter by 30 %, 100 s apart, and which are separated or not. Each has 200 waits
    /// that answer 0.3 ms after the row became visible, right after the last look that missed it.
    fn waits_of_starts(random: &mut Random, separated: bool) -> LagRow {
        let mut summary = LagSummary::default();
        for start in 0..6 {
            if separated {
                summary.begin_start();
            }
            let level = 1_000_000.0 * (0.3 * random.normal()).exp();
            for round in 1..=200 {
                let mut wait = sample(start * 10_000 + round, true);
                wait.method = Method::Wait;
                let lag = Nanos((level * (0.1 * random.normal()).exp()) as i64);
                let visible = wait.write.ack + lag;
                wait.sighting = Some(Sighting {
                    seq: round as u64,
                    after: visible - Nanos(1_000),
                    hit_began: wait.write.ack,
                    until: visible + Nanos(300_000),
                    detail: SightingDetail::Nothing,
                });
                summary.record(&wait);
            }
        }
        summary.row()
    }

    #[test]
    fn estimate_of_waits_covers_starts_that_differ() {
        const RUNS: u32 = 200;
        let covered = |separated: bool| {
            let mut random = Random::new(18);
            let held = (0..RUNS).filter(|_| {
                let row = waits_of_starts(&mut random, separated);
                let ends = row.estimate.p50_us_ci95;
                ends.is_some_and(|[low, high]| low <= 1_000.0 && 1_000.0 <= high)
            });
            held.count() as f64 / f64::from(RUNS)
        };
        let (apart, as_one) = (covered(true), covered(false));
        assert!(apart >= 0.9 && as_one < 0.9, "{apart} {as_one}");
    }

    #[test]
    fn windows_leave_out_the_time_between_starts() {
        let row = waits_of_starts(&mut Random::new(1), true);
        // Six starts of 2 s.
        let last = row.windows.last().unwrap();
        assert!(last.end_us <= 13e6, "{last:?}");
        assert!(row.windows.len() > 30, "{}", row.windows.len());
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
            assert_eq!(bin_of(Nanos(nanos)), want, "{nanos}");
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
