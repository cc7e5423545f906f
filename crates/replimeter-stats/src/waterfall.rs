//! The stages of transactions, accumulated in bounded memory.

use std::collections::BTreeMap;

use replimeter_model::{
    stages::{Mark, MarkRecord, QuantileBreakdown, Stage, Stages},
    time::Nanos,
};
use serde::Deserialize;

use crate::{
    grid,
    series::distribution,
    signed::{BEYOND, SignedHistogram, rank_of},
};

/// Quantiles with a breakdown of nearby transactions.
const LEVELS: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];
/// Share of the transactions that are near a quantile.
const QUANTILE_DISTANCE: f64 = 0.01;
/// Minimum number of such transactions.
const MIN_TRANSACTIONS: f64 = 10.0;
/// Maximum error of a stamp in whole microseconds, on its own clock.
const RESOLUTION: Nanos = Nanos(1_000);

/// A point in time, with its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Point {
    /// On the run's clock.
    pub at: Nanos,
    /// Half-width of the error.
    pub error: Nanos,
    /// The server's own stamp, where there is one.
    pub stamp: Option<Stamp>,
}

/// A server's own stamp.
///
/// Two stamps of one clock are compared on that clock, even when its offset is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Stamp {
    /// A number for each clock; servers on one machine share it.
    pub clock: u8,
    /// The stamp, relative to any zero.
    pub at: Nanos,
}

impl Point {
    /// Returns a point on the run's clock, known to ± `error`.
    #[must_use]
    pub fn new(at: Nanos, error: Nanos) -> Self {
        Self {
            at,
            error,
            stamp: None,
        }
    }

    /// Returns a point that lies in (`low`, `high`]: the middle, and half of the width.
    #[must_use]
    pub fn within(low: Nanos, high: Nanos) -> Self {
        Self::new(low.midpoint(high), Nanos((high - low).0 / 2))
    }
}

/// The known points of one transaction. Ordered as the enum [`Mark`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Points {
    /// The client is about to hand the statement to the socket.
    pub send: Option<Point>,
    /// In the primary's binary log.
    #[serde(rename = "in_binlog")]
    pub logged: Option<Point>,
    /// In the replica's relay log.
    pub received: Option<Point>,
    /// A thread of the replica begins to apply it.
    pub apply_began: Option<Point>,
    /// Applied and committed on the replica.
    pub applied: Option<Point>,
    /// A reader of the replica sees it.
    pub visible: Option<Point>,
    /// The client has the primary's answer.
    pub ack: Option<Point>,
    /// Whether a point is missing because another transaction had overwritten it.
    pub overwritten: bool,
}

impl Points {
    /// Returns the point at a mark.
    #[must_use]
    pub fn at(&self, mark: Mark) -> Option<Point> {
        match mark {
            Mark::Send => self.send,
            Mark::Logged => self.logged,
            Mark::Received => self.received,
            Mark::ApplyBegan => self.apply_began,
            Mark::Applied => self.applied,
            Mark::Visible => self.visible,
            Mark::Ack => self.ack,
        }
    }
}

/// Returns the duration between two points, and its error.
fn length(from: Point, to: Point) -> (Nanos, Nanos) {
    match (from.stamp, to.stamp) {
        (Some(a), Some(b)) if a.clock == b.clock => (b.at - a.at, RESOLUTION),
        _ => (to.at - from.at, from.error + to.error),
    }
}

/// Durations between two marks.
#[derive(Clone, Debug)]
struct StageDurations {
    from: Mark,
    to: Mark,
    durations: SignedHistogram,
    errors: SignedHistogram,
    inversions: u64,
    worst: Option<Nanos>,
}

impl StageDurations {
    fn new(from: Mark, to: Mark) -> Self {
        Self {
            from,
            to,
            durations: SignedHistogram::default(),
            errors: SignedHistogram::new(1),
            inversions: 0,
            worst: None,
        }
    }

    fn record(&mut self, duration: Nanos, error: Nanos) {
        self.durations.record(duration);
        self.errors.record(error);
        if duration.0 < -error.0 {
            self.inversions += 1;
            self.worst = Some(self.worst.map_or(duration, |worst| worst.min(duration)));
        }
    }

    fn record_of(&self) -> Stage {
        Stage {
            name: self.from.stage(self.to).to_owned(),
            from: self.from,
            to: self.to,
            duration: distribution(&self.durations),
            error_mean_us: self.errors.mean().unwrap_or(0.0) / 1e3,
            inversions: self.inversions,
            worst_inversion_us: self.worst.map(Nanos::as_micros),
        }
    }
}

/// Transactions of about the same end-to-end time.
#[derive(Clone, Debug)]
struct Cell {
    count: u64,
    end_to_end: f64,
    residue: f64,
    stages: Vec<f64>,
}

/// Accumulates the stages of one replica's transactions.
///
/// Transactions are kept as sums in cells of about equal end-to-end time (0.4 to
/// 0.8 %), so that memory does not grow with their number.
#[derive(Clone, Debug)]
pub struct Waterfall {
    marks: Vec<(Mark, String, SignedHistogram)>,
    chain: Vec<StageDurations>,
    parallel: Vec<StageDurations>,
    cells: BTreeMap<i32, Cell>,
    transactions: u64,
    covered: u64,
    overwritten: u64,
    end_to_end: SignedHistogram,
    residue: SignedHistogram,
    residue_beyond: u64,
}

impl Waterfall {
    /// Returns an empty waterfall for these marks in order, each with the clock that stamps it. An
    /// acknowledgement that is not in the chain is measured in parallel, from the binary log on.
    #[must_use]
    pub fn new(chain: &[(Mark, &str)]) -> Self {
        let legs = chain
            .windows(2)
            .map(|pair| StageDurations::new(pair[0].0, pair[1].0))
            .collect();
        let has = |mark| chain.iter().any(|(one, _)| *one == mark);
        let mut marks: Vec<_> = chain
            .iter()
            .map(|(mark, clock)| (*mark, (*clock).to_owned(), SignedHistogram::new(1)))
            .collect();
        let mut parallel = Vec::new();
        if has(Mark::Logged) && !has(Mark::Ack) {
            parallel.push(StageDurations::new(Mark::Logged, Mark::Ack));
            marks.push((Mark::Ack, "client".to_owned(), SignedHistogram::new(1)));
        }
        Self {
            marks,
            chain: legs,
            parallel,
            cells: BTreeMap::new(),
            transactions: 0,
            covered: 0,
            overwritten: 0,
            end_to_end: SignedHistogram::default(),
            residue: SignedHistogram::default(),
            residue_beyond: 0,
        }
    }

    /// Adds a transaction. One with an unknown mark of the chain is only counted.
    pub fn record(&mut self, points: &Points) {
        self.transactions += 1;
        let known: Option<Vec<(Nanos, Nanos)>> = self
            .chain
            .iter()
            .map(|leg| Some(length(points.at(leg.from)?, points.at(leg.to)?)))
            .collect();
        let ends = self
            .chain
            .first()
            .and_then(|leg| points.at(leg.from))
            .zip(self.chain.last().and_then(|leg| points.at(leg.to)));
        let (Some(lengths), Some((first, last))) = (known, ends) else {
            self.overwritten += u64::from(points.overwritten);
            return;
        };
        self.covered += 1;
        for (mark, _, errors) in &mut self.marks {
            if let Some(point) = points.at(*mark) {
                errors.record(point.error);
            }
        }
        for leg in &mut self.parallel {
            if let (Some(from), Some(to)) = (points.at(leg.from), points.at(leg.to)) {
                let (duration, error) = length(from, to);
                leg.record(duration, error);
            }
        }
        for (leg, (duration, error)) in self.chain.iter_mut().zip(&lengths) {
            leg.record(*duration, *error);
        }
        let total = last.at - first.at;
        let sum = lengths
            .iter()
            .fold(Nanos(0), |sum, (duration, _)| sum + *duration);
        // The errors of the ends are in the first and the last stage.
        let error = lengths
            .iter()
            .fold(Nanos(0), |sum, (_, error)| sum + *error);
        let residue = total - sum;
        self.end_to_end.record(total);
        self.residue.record(residue);
        self.residue_beyond += u64::from(residue.0.abs() > error.0);
        let stages = lengths.len();
        let cell = self
            .cells
            .entry(grid::floor(total.0))
            .or_insert_with(|| Cell {
                count: 0,
                end_to_end: 0.0,
                residue: 0.0,
                stages: vec![0.0; stages],
            });
        cell.count += 1;
        cell.end_to_end += total.as_micros();
        cell.residue += residue.as_micros();
        for (sum, (duration, _)) in cell.stages.iter_mut().zip(&lengths) {
            *sum += duration.as_micros();
        }
    }

    /// Returns the number of transactions.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Returns the results; `None` when no transaction's stages are known.
    #[must_use]
    pub fn stages(&self) -> Option<Stages> {
        if self.covered == 0 {
            return None;
        }
        let marks = self.marks.iter().map(|(mark, clock, errors)| MarkRecord {
            mark: *mark,
            clock: clock.clone(),
            error_mean_us: errors.mean().map(|nanos| nanos / 1e3),
            error_max_us: errors.max().map(Nanos::as_micros),
        });
        Some(Stages {
            transactions: self.transactions,
            covered: self.covered,
            overwritten: self.overwritten,
            marks: marks.collect(),
            end_to_end: distribution(&self.end_to_end),
            stages: self.chain.iter().map(StageDurations::record_of).collect(),
            parallel_stages: self
                .parallel
                .iter()
                .filter(|leg| leg.durations.count() > 0)
                .map(StageDurations::record_of)
                .collect(),
            residue: distribution(&self.residue),
            residue_beyond: self.residue_beyond,
            tail_breakdown: LEVELS
                .iter()
                .filter_map(|(name, p)| self.near(name, *p))
                .collect(),
        })
    }

    /// Returns the mean stages of the transactions near a quantile: those with ranks within half a
    /// percent of it on either side, at least five per side, with all others of the same cells.
    /// `None` when fewer than ten transactions lie beyond the quantile.
    fn near(&self, name: &str, p: f64) -> Option<QuantileBreakdown> {
        let samples = self.covered as f64;
        if self.covered.saturating_sub(rank_of(p, self.covered)) < BEYOND {
            return None;
        }
        let half = (samples * QUANTILE_DISTANCE / 2.0).max(MIN_TRANSACTIONS / 2.0);
        let (from, to) = (p * samples - half, p * samples + half);
        let mut seen = 0.0;
        let mut near = QuantileBreakdown {
            quantile: name.to_owned(),
            count: 0,
            end_to_end_us: 0.0,
            stages_us: vec![0.0; self.chain.len()],
            residue_us: 0.0,
        };
        for cell in self.cells.values() {
            let begins = seen;
            seen += cell.count as f64;
            if seen <= from || begins >= to {
                continue;
            }
            near.count += cell.count;
            near.end_to_end_us += cell.end_to_end;
            near.residue_us += cell.residue;
            near.stages_us
                .iter_mut()
                .zip(&cell.stages)
                .for_each(|(sum, more)| *sum += more);
        }
        let count = near.count.max(1) as f64;
        near.end_to_end_us /= count;
        near.residue_us /= count;
        near.stages_us.iter_mut().for_each(|sum| *sum /= count);
        Some(near)
    }
}

#[cfg(test)]
mod tests;
