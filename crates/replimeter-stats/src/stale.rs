//! Summaries of `stale` rounds, accumulated in bounded memory.

use std::collections::BTreeMap;

use replimeter_model::{
    record::Distribution,
    stale::{
        CurvePoint, FreshAfter, ReadOverhead, StalePhase, StaleRead, StaleRound, StaleRow, Verdict,
        VersionsBehind, Violations,
    },
    time::Nanos,
};

use crate::{
    censored::{Brackets, Quantile},
    series::{Series, distribution},
    share::{Share, wilson},
    signed::{BEYOND, SignedHistogram, rank_of},
};

/// Maximum number of versions behind; larger ones are counted as this.
pub const MAX_BEHIND: u32 = 64;

/// One point of the curve while it is accumulated.
#[derive(Clone, Debug, Default)]
struct Point {
    share: Share,
    achieved: SignedHistogram,
}

/// The summary of one reader in one case.
#[derive(Clone, Debug, Default)]
pub struct StaleSummary {
    at_once: Share,
    delay: Series,
    write: SignedHistogram,
    read: SignedHistogram,
    read_delay_error: SignedHistogram,
    points: BTreeMap<Nanos, Point>,
    /// When the write became visible, from the acknowledgement: after the start of the last read that did not
    /// show it, no later than the first that did.
    visible: Brackets,
    /// Whether the first read was stale, in all rounds; for the dependence.
    stale: Share,
    behind: BTreeMap<u32, u64>,
    refused: u64,
    foreign: u64,
    conflicts: u64,
    backwards: u64,
    across: u64,
    /// Rounds in which a monotonic-reads violation was possible.
    judged: u64,
    /// Reads and writes without and with synchronous reads.
    price: [(SignedHistogram, SignedHistogram); 2],
    /// For immediate reads: when the first was sent and the last had ended.
    span: Option<(Nanos, Nanos)>,
    all_at_once: u64,
}

impl StaleSummary {
    /// Adds this reader's result of a round; `delays` says whether rounds waited until the write was visible.
    pub fn record(&mut self, round: &StaleRound, read: &StaleRead, delays: bool) {
        match round.phase {
            StalePhase::WarmUp => return,
            StalePhase::Plain | StalePhase::Synced => {
                if matches!(read.verdict, Verdict::Fresh | Verdict::Stale) {
                    let (reads, writes) =
                        &mut self.price[usize::from(round.phase == StalePhase::Synced)];
                    reads.record(read.end - read.begin);
                    writes.record(round.ack - round.send);
                }
                return;
            }
            StalePhase::AtOnce | StalePhase::Curve | StalePhase::Judged => {}
        }
        self.conflicts += u64::from(round.conflicts);
        let judged = round.phase == StalePhase::Judged;
        if judged || round.phase == StalePhase::AtOnce {
            self.all_at_once += 1;
            let over = read.fresh_end.unwrap_or(read.end);
            self.span = Some(self.span.map_or((read.begin, over), |(first, last)| {
                (first.min(read.begin), last.max(over))
            }));
        }
        match read.verdict {
            Verdict::Refused => return self.refused += 1,
            Verdict::Foreign => return self.foreign += 1,
            Verdict::Fresh | Verdict::Stale => {}
        }
        let stale = read.verdict == Verdict::Stale;
        let after = read.begin - round.ack;
        self.judged += 1;
        self.backwards += u64::from(read.went_back);
        self.across += u64::from(read.went_back_across && !read.went_back);
        self.stale.record(read.begin, stale);
        if !judged {
            self.read_delay_error.record(after - round.offset);
        }
        if stale {
            *self.behind.entry(read.behind.min(MAX_BEHIND)).or_default() += 1;
        }
        let point = self.points.entry(round.offset).or_default();
        point.share.record(read.begin, stale);
        point.achieved.record(after);
        if judged || round.phase == StalePhase::AtOnce {
            self.at_once.record(read.begin, stale);
            self.read.record(read.end - read.begin);
            if !judged {
                self.write.record(round.ack - round.send);
            }
            if let (true, true, Some(shown)) = (stale, delays, read.fresh_end) {
                self.delay.record(round.send, shown - round.ack);
            }
        }
        if let Some(fresh) = read.fresh_begin {
            self.visible.record(
                read.last_stale.map(|last| last - round.ack),
                fresh - round.ack,
            );
        }
    }

    /// Adds a write of checked load.
    pub fn wrote(&mut self, round: &StaleRound) {
        self.conflicts += u64::from(round.conflicts);
        self.write.record(round.ack - round.send);
    }

    /// Counts a client that read from two readers one after the other and saw an older version on
    /// the second.
    pub fn went_back_across(&mut self) {
        self.across += 1;
    }

    /// Returns the number of counted rounds with an immediate read.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.at_once.counts().0
    }

    /// Returns the figures as a row of the report; the caller fills in names.
    #[must_use]
    pub fn row(&self) -> StaleRow {
        let share = self.at_once.proportion();
        let some = share.trials > 0;
        // Immediate reads and those of the curve.
        let all = self.stale.proportion();
        let monotonic = self.backwards + self.across;
        let price = self.price[1].0.count() > 0;
        let [(read_without, write_without), (read_with, write_with)] = &self.price;
        StaleRow {
            rounds: share.trials,
            stale: share.events,
            stale_percent: some.then_some(share.share * 100.0),
            stale_percent_ci95: some.then_some([share.low, share.high].map(|share| share * 100.0)),
            inflation: share.inflation,
            staleness: self.delay.distribution(),
            violations: Violations {
                read_your_writes: all.events,
                read_your_writes_of: all.trials,
                monotonic_reads: monotonic,
                monotonic_reads_of: self.judged,
                monotonic_same_connection: self.backwards,
                read_your_writes_percent_upper_bound: all.high * 100.0,
                monotonic_reads_percent_upper_bound: wilson(monotonic as f64, self.judged as f64)
                    [1]
                    * 100.0,
            },
            refused: self.refused,
            conflicts: self.conflicts,
            foreign: self.foreign,
            versions_behind: self
                .behind
                .iter()
                .map(|(versions, reads)| VersionsBehind {
                    versions: *versions,
                    reads: *reads,
                })
                .collect(),
            curve: self.curve(),
            fresh_after_us: self.fresh_after(),
            write_latency: distribution(&self.write),
            read_latency: distribution(&self.read),
            read_delay_error: distribution(&self.read_delay_error),
            rounds_per_s: self.rounds_per_s(),
            overhead: price.then(|| ReadOverhead {
                read_without: with_interval(read_without),
                read_with: with_interval(read_with),
                write_without: with_interval(write_without),
                write_with: with_interval(write_with),
            }),
            windows: self.delay.windows(),
            ..StaleRow::default()
        }
    }

    fn rounds_per_s(&self) -> Option<f64> {
        let (first, last) = self.span?;
        let seconds = (last - first).0 as f64 / 1e9;
        (seconds > 0.0 && self.all_at_once > 1).then(|| self.all_at_once as f64 / seconds)
    }

    fn curve(&self) -> Vec<CurvePoint> {
        let points = self.points.iter().map(|(asked, point)| {
            let share = point.share.proportion();
            let rank = |p: f64| point.achieved.quantile(p).map(Nanos::as_micros);
            let middle = point
                .achieved
                .at_rank(point.achieved.count().div_ceil(2))
                .unwrap_or_default();
            CurvePoint {
                after_us: middle.as_micros(),
                asked_us: asked.as_micros(),
                reads: share.trials,
                stale: share.events,
                probability: share.share,
                probability_ci95: [share.low, share.high],
                achieved_us: rank(0.01).zip(rank(0.99)).map(|(low, high)| [low, high]),
            }
        });
        points.collect()
    }

    /// Returns the time after which a share of reads is fresh: a quantile of the time at which
    /// writes become visible, which reads bracket. Its interval is that of an order statistic: the
    /// quantiles of the estimate that the share `p` may be, given the number of informative
    /// brackets, reduced by their dependence (Wilson's).
    fn fresh_after(&self) -> FreshAfter {
        let Some(estimate) = self.visible.estimate() else {
            return FreshAfter::default();
        };
        let count = self.visible.count();
        let inflation = self.stale.inflation();
        let of = |p: f64| {
            if count.saturating_sub(rank_of(p, count)) < BEYOND {
                return (None, None);
            }
            // Without a lower end: it was visible when the first read arrived.
            let wait = |p: f64, of: fn(Quantile) -> Nanos| {
                let quantile = estimate.quantile(p);
                quantile
                    .low
                    .map_or(0.0, |_| of(quantile).as_micros().max(0.0))
            };
            let ends = inflation.and_then(|inflation| {
                let trials = estimate.informative_brackets(p) / inflation.max(1.0);
                let [low, high] = wilson(p * trials, trials);
                // Nothing is known beyond the last observed time.
                (rank_of(high, count) < count).then(|| {
                    [
                        wait(low, |quantile| quantile.low.unwrap_or(quantile.high)),
                        wait(high, |quantile| quantile.high),
                    ]
                })
            });
            (Some(wait(p, |quantile| quantile.point)), ends)
        };
        let ((p99, p99_ci95), (p999, p999_ci95)) = (of(0.99), of(0.999));
        FreshAfter {
            p99,
            p999,
            p99_ci95,
            p999_ci95,
        }
    }
}

/// Returns the figures with the 95 % interval of the median: between the order statistics for a
/// binomial share of one half. Alternating rounds are treated as independent.
fn with_interval(histogram: &SignedHistogram) -> Distribution {
    let figures = distribution(histogram);
    let count = histogram.count() as f64;
    let [low, high] = wilson(count / 2.0, count)
        .map(|share| (share * count).round().clamp(1.0, count.max(1.0)) as u64);
    let ends = histogram
        .at_rank(low)
        .zip(histogram.at_rank(high))
        .map(|(low, high)| [low.as_micros(), high.as_micros()]);
    let p50_us_ci95 = figures.p50_us.and(ends);
    Distribution {
        p50_us_ci95,
        inflation: p50_us_ci95.map(|_| 1.0),
        ..figures
    }
}

/// Returns offsets for a curve from 0 to beyond the longest delay: 0, then 1, 2 and 5 times the powers of ten from
/// 10 µs on.
#[must_use]
pub fn offsets(longest: Option<Nanos>, most: Nanos) -> Vec<Nanos> {
    let longest = longest
        .unwrap_or(Nanos(100_000))
        .0
        .clamp(50_000, most.0.max(50_000));
    let mut offsets = vec![Nanos(0)];
    let mut decade = 10_000i64;
    while offsets.last().is_some_and(|last| last.0 < longest) {
        offsets.extend([1, 2, 5].map(|times| Nanos(times * decade)));
        decade *= 10;
    }
    // One beyond the longest delay is enough.
    let keep = offsets
        .iter()
        .position(|offset| offset.0 >= longest)
        .map_or(offsets.len(), |at| at + 1);
    offsets.truncate(keep);
    offsets
}

#[cfg(test)]
mod tests;
