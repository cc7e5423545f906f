//! Summaries of `stale` rounds, accumulated in bounded memory.

mod visible;
mod withheld;

use std::collections::BTreeMap;

use replimeter_model::{record::Distribution, time::Nanos};
use replimeter_stats::{
    by_start::{self, ByStart},
    censored::{NEVER, Quantile},
    dependence,
    measured_time::MeasuredTime,
    series::{Series, distribution},
    share::{Proportion, Share, wilson},
    signed::{BEYOND, SignedHistogram, rank_of},
};

use self::{visible::Visible, withheld::Withheld};
use crate::stale::results::{
    CurvePoint, FreshAfter, ReadOverhead, StalePhase, StaleRead, StaleRound, StaleRow, Verdict,
    VersionsBehind, Violations,
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
    visible: Visible,
    /// Of immediate reads and of the curve: the time of measuring, and when it began. Points of the curve have common windows, so
    /// that their dependence can be pooled.
    time: [MeasuredTime; 2],
    began: [Option<Nanos>; 2],
    /// Number of starts of the servers so far.
    starts: usize,
    /// Rounds with a monotonic-reads violation, of immediate reads and of the curve.
    went_back: [Share; 2],
    /// Rounds that would have begun while others waited.
    withheld: Withheld,
    behind: BTreeMap<u32, u64>,
    refused: u64,
    foreign: u64,
    conflicts: u64,
    backwards: u64,
    /// Reads and writes without and with synchronous reads.
    overhead: [(ByStart, ByStart); 2],
    /// For immediate reads of this start: when the first was sent and the last had ended.
    span: Option<(Nanos, Nanos)>,
    /// The time from the one to the other in earlier starts.
    earlier: Nanos,
    all_at_once: u64,
}

impl StaleSummary {
    /// Separates the rounds that follow, which are of a new start of the servers: starts are independent, and the time between
    /// them is not measured.
    pub fn begin_start(&mut self) {
        self.starts += 1;
        if let Some((first, last)) = self.span.take() {
            self.earlier = self.earlier + (last - first);
        }
        self.time.iter_mut().for_each(MeasuredTime::begin_start);
        let points = self.points.values_mut().map(|point| &mut point.share);
        let shares = points.chain([&mut self.at_once]).chain(&mut self.went_back);
        shares.for_each(Share::begin_start);
        self.delay.begin_start();
        self.withheld.begin_start(&mut self.visible);
        self.visible.waits.begin_start();
        for (reads, writes) in &mut self.overhead {
            reads.begin_start();
            writes.begin_start();
        }
    }

    /// Adds this reader's result of a round; `delays` says whether rounds waited until the write was visible.
    pub fn record(&mut self, round: &StaleRound, read: &StaleRead, delays: bool) {
        match round.phase {
            StalePhase::WarmUp => return,
            StalePhase::Plain | StalePhase::Synced => {
                if matches!(read.verdict, Verdict::Fresh | Verdict::Stale) {
                    let (reads, writes) =
                        &mut self.overhead[usize::from(round.phase == StalePhase::Synced)];
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
        let part = usize::from(round.phase == StalePhase::Curve);
        let at = self.time[part].of(read.begin);
        let began = *self.began[part].get_or_insert(at);
        self.backwards += u64::from(read.went_back);
        self.went_back[part].record(at, read.went_back || read.went_back_across);
        if !judged {
            self.read_delay_error.record(after - round.offset);
        }
        if stale {
            *self.behind.entry(read.behind.min(MAX_BEHIND)).or_default() += 1;
        }
        let starts = self.starts;
        let point = self.points.entry(round.offset).or_insert_with(|| Point {
            share: Share::starting(began, starts),
            achieved: SignedHistogram::default(),
        });
        point.share.record(at, stale);
        point.achieved.record(after);
        if judged || round.phase == StalePhase::AtOnce {
            self.at_once.record(at, stale);
            self.read.record(read.end - read.begin);
            if !judged {
                self.write.record(round.ack - round.send);
            }
            if let (true, true, Some(shown)) = (stale, delays, read.fresh_end) {
                let sent = self.time[part].of(round.send);
                self.delay.record(sent, shown - round.ack);
            }
        }
        if round.phase == StalePhase::AtOnce {
            self.withheld.record(round, read, &mut self.visible);
        }
        let since = |at: Nanos| at - round.ack;
        // Checked reads of a load do not follow a write.
        let last_stale = read
            .last_stale
            .filter(|_| !judged || read.fresh_begin.is_some())
            .map(since);
        let fresh = read.fresh_begin.map(since);
        match round.phase {
            StalePhase::AtOnce => self.visible.record_immediate(last_stale, fresh),
            _ => self.visible.record(last_stale, fresh),
        }
    }

    /// Adds a write of checked load.
    pub fn wrote(&mut self, round: &StaleRound) {
        self.conflicts += u64::from(round.conflicts);
        self.write.record(round.ack - round.send);
    }

    /// Counts a client that read from two readers one after the other and saw an older version on
    /// the second, in a round that was recorded already. A round counts once: not if it has a violation of its own, nor if
    /// its first read was refused.
    pub fn went_back_across(&mut self, round: &StaleRound, read: &StaleRead) {
        let counted = matches!(read.verdict, Verdict::Fresh | Verdict::Stale);
        if !counted || read.went_back || read.went_back_across {
            return;
        }
        let part = usize::from(round.phase == StalePhase::Curve);
        let at = self.time[part].of(read.begin);
        self.went_back[part].add_event(at);
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
        let all = self.first_reads();
        let monotonic = self.monotonic();
        let overhead = self.overhead[1].0.all().count() > 0;
        // More rounds may follow this row.
        let (mut withheld, mut visible) = (self.withheld.clone(), self.visible.clone());
        withheld.close(&mut visible);
        let [(read_without, write_without), (read_with, write_with)] = &self.overhead;
        StaleRow {
            rounds: share.trials,
            stale: share.events,
            stale_percent: some.then_some(share.share * 100.0),
            stale_percent_ci95: some.then_some([share.low, share.high].map(|share| share * 100.0)),
            stale_percent_starts: by_start::spread_of(&self.percent_of_starts()),
            stale_percent_over_time: withheld.percent(),
            stale_percent_over_time_ci95: withheld.percent_ci95(),
            withheld_rounds: withheld.count(),
            longest_round_us: withheld.longest().map(Nanos::as_micros),
            inflation: share.inflation,
            staleness: self.delay.distribution(),
            violations: Violations {
                read_your_writes: all.events,
                read_your_writes_of: all.trials,
                monotonic_reads: monotonic.events,
                monotonic_reads_of: monotonic.trials,
                monotonic_same_connection: self.backwards,
                read_your_writes_percent_upper_bound: all.high * 100.0,
                monotonic_reads_percent_upper_bound: monotonic.high * 100.0,
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
            fresh_after_us: self.fresh_after(&withheld, &visible),
            write_latency: distribution(&self.write),
            read_latency: distribution(&self.read),
            read_delay_error: distribution(&self.read_delay_error),
            rounds_per_s: self.rounds_per_s(),
            overhead: overhead.then(|| ReadOverhead {
                read_without: with_interval(read_without),
                read_with: with_interval(read_with),
                write_without: with_interval(write_without),
                write_with: with_interval(write_with),
            }),
            windows: self.delay.windows(),
            ..StaleRow::default()
        }
    }

    /// Returns the share of stale immediate reads of each start, in percent.
    fn percent_of_starts(&self) -> Vec<f64> {
        let starts = self.at_once.starts().iter();
        let known = starts.filter(|(reads, _)| *reads > 0);
        known
            .map(|(reads, stale)| *stale as f64 / *reads as f64 * 100.0)
            .collect()
    }

    /// Returns the share of stale first reads, immediate ones and those of the curve. Each delay is a stratum, so that
    /// their different shares do not count as clusters; the residuals of delays that alternate are added up, and those of
    /// immediate reads, which come before, are pooled with them.
    fn first_reads(&self) -> Proportion {
        let (trials, events) = self.points.values().fold((0, 0), |sum, point| {
            let (trials, events) = point.share.counts();
            (sum.0 + trials, sum.1 + events)
        });
        let in_curve = |(offset, _): &(&Nanos, &Point)| self.began[1].is_some() && offset.0 > 0;
        let (curve, at_once): (Vec<_>, Vec<_>) = self.points.iter().partition(in_curve);
        let part = |points: Vec<(&Nanos, &Point)>| {
            Share::residuals(points.into_iter().map(|(_, point)| &point.share))
        };
        let neighbors = dependence::inflation(&[part(at_once), part(curve)]);
        let starts = sum_of_starts(self.points.values().map(|point| &point.share));
        Proportion::of(trials, events, dependence::with_starts(neighbors, &starts))
    }

    /// Returns the share of rounds with a monotonic-reads violation.
    fn monotonic(&self) -> Proportion {
        let counts = self.went_back.each_ref().map(Share::counts);
        let parts = self
            .went_back
            .each_ref()
            .map(|share| Share::residuals([share]));
        let starts = sum_of_starts(&self.went_back);
        Proportion::of(
            counts[0].0 + counts[1].0,
            counts[0].1 + counts[1].1,
            dependence::with_starts(dependence::inflation(&parts), &starts),
        )
    }

    fn rounds_per_s(&self) -> Option<f64> {
        let last = self.span.map_or(Nanos(0), |(first, last)| last - first);
        let seconds = (self.earlier + last).0 as f64 / 1e9;
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
    /// brackets, reduced by their dependence (Wilson's). None when fewer than ten effective ones
    /// lie beyond. It reaches at least as far as the variation of the same quantile between starts.
    fn fresh_after(&self, withheld: &Withheld, visible: &Visible) -> FreshAfter {
        let Some(estimate) = visible.brackets.estimate() else {
            return FreshAfter::default();
        };
        let count = visible.brackets.count();
        let inflation = self
            .first_reads()
            .inflation
            .map(|one| one.max(withheld.inflation()));
        let of = |p: f64| {
            if count.saturating_sub(rank_of(p, count)) < BEYOND {
                return (None, None, None);
            }
            // It was not waited for until then.
            let unseen = |p: f64| estimate.quantile(p).high >= NEVER;
            if unseen(p) {
                return (None, None, None);
            }
            // Where one round took more than the share of time beyond the quantile, the quantile describes that round.
            if let Some(wait) = withheld.decides(p) {
                return (None, None, Some(wait.as_micros()));
            }
            // Without a lower end: it was visible when the first read arrived.
            let wait = |p: f64, of: fn(Quantile) -> Nanos| {
                let quantile = estimate.quantile(p);
                quantile
                    .low
                    .map_or(0.0, |_| of(quantile).as_micros().max(0.0))
            };
            let waits = &visible.waits;
            let between_starts = waits.inflation(estimate.quantile(p).high);
            let factor = inflation
                .map(|one| one.max(between_starts))
                .and_then(|inflation| dependence::of_quantile(inflation, count as f64 * (1.0 - p)));
            let shares = factor.map(|factor| {
                let trials = estimate.informative_brackets(p) / factor;
                wilson(p * trials, trials)
            });
            let ends = shares.filter(|[_, high]| {
                // Nothing is known beyond the last observed time.
                rank_of(*high, count) < count && !unseen(*high)
            });
            let ends = ends.map(|[low, high]| {
                [
                    wait(low, |quantile| quantile.low.unwrap_or(quantile.high)),
                    wait(high, |quantile| quantile.high),
                ]
            });
            let value = wait(p, |quantile| quantile.point);
            let between = waits
                .between(p, value)
                .map(|ends| ends.map(|end| end.max(0.0)));
            // An end, or a start, without an observed time leaves no interval: one from the others would be too short.
            let ends_unseen = shares.is_some_and(|[_, high]| unseen(high));
            let open = ends_unseen || visible.some_start_unseen(p);
            let few = !waits.enough(p, estimate.quantile(p).high);
            let interval = dependence::wider(ends, between)
                .filter(|ends| !open && !few && visible::seen(ends));
            (Some(value), interval, None)
        };
        let ((p99, p99_ci95, of_p99), (p999, p999_ci95, of_p999)) = (of(0.99), of(0.999));
        FreshAfter {
            decided_by_us: of_p99.or(of_p999),
            p99,
            p999,
            p99_ci95,
            p999_ci95,
            p99_starts: visible.waits_of_starts(0.99),
            p999_starts: visible.waits_of_starts(0.999),
        }
    }
}

/// Returns the trials and events of each start, of all shares together.
fn sum_of_starts<'a>(shares: impl IntoIterator<Item = &'a Share>) -> Vec<(u64, u64)> {
    let mut sums = Vec::new();
    for share in shares {
        sums.resize(share.starts().len(), (0, 0));
        for (sum, (trials, events)) in sums.iter_mut().zip(share.starts()) {
            sum.0 += trials;
            sum.1 += events;
        }
    }
    sums
}

/// Returns the figures with the 95 % interval of the median: between the order statistics for a
/// binomial share of one half, and at least that of the variation between starts. Alternating rounds are treated as
/// independent.
fn with_interval(samples: &ByStart) -> Distribution {
    let figures = distribution(samples.all());
    let count = samples.all().count() as f64;
    let ranks = wilson(count / 2.0, count).map(|share| (share * count).round().min(count));
    let p50_us_ci95 = figures
        .p50_us
        .and_then(|p50| dependence::wider(samples.between_ranks(ranks), samples.between(0.5, p50)));
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
