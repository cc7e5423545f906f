//! The exposed transactions, and statistics over all polls.

use replimeter_engine::position::{CommitId, Position};
use replimeter_model::time::Nanos;
use replimeter_stats::{
    over_time::{OverTime, TimeMean},
    series::distribution,
    signed::SignedHistogram,
    stalls::{StallMeans, Stalls},
};

use super::pending::Pending;
use crate::exposure::results::{AmountDistribution, ExposureRow, ExposureSample};

fn amount(over: &OverTime, mean: Option<f64>, mean_ci95: Option<[f64; 2]>) -> AmountDistribution {
    let value = |value: Option<Nanos>| value.map(|value| value.0 as f64);
    let quantile = |p| value(over.quantile(p));
    AmountDistribution {
        mean: mean.or_else(|| over.mean()),
        mean_ci95,
        p50: quantile(0.5),
        p90: quantile(0.9),
        p95: quantile(0.95),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: value(over.max()),
    }
}

fn nanos(amount: u64) -> Nanos {
    Nanos(i64::try_from(amount).unwrap_or(i64::MAX))
}

/// A poll that awaits the next one, until which half of the time counts with it.
#[derive(Clone, Copy, Debug)]
struct HeldPoll {
    at: Nanos,
    /// Since the start of the run.
    since: Nanos,
    /// Time before it that counts with it.
    before: Nanos,
    transactions: u64,
    bytes: u64,
    age: Option<Nanos>,
    waits: Option<bool>,
}

/// Statistics over time: a poll stands for the time from the middle between it and the one before to the middle
/// between it and the next one, so polls that a stalled replica delays count with the length of its stall.
#[derive(Default)]
pub(super) struct PollSummary {
    polls: u64,
    held: Option<HeldPoll>,
    /// Transactions, bytes, and whether there is any.
    exposed: Stalls<3>,
    ineffective: TimeMean,
    pub(super) committed: u64,
    bytes_committed: u64,
    transactions: OverTime,
    bytes: OverTime,
    age: OverTime,
    poll_duration: SignedHistogram,
}

impl PollSummary {
    /// Counts the last poll, and the time after it until `at`, when the time that counts ends.
    fn end(&mut self, at: Nanos) {
        if let Some(held) = self.held.take() {
            self.count(held, held.before + Nanos((at - held.at).0.max(0)));
        }
    }

    /// Adds a poll.
    fn add(&mut self, poll: HeldPoll) {
        let before = match self.held.take() {
            Some(held) => {
                let gap = poll.at - held.at;
                let half = Nanos(gap.0 / 2);
                self.count(held, held.before + half);
                gap - half
            }
            None => Nanos(0),
        };
        self.held = Some(HeldPoll { before, ..poll });
        self.polls += 1;
    }

    fn count(&mut self, poll: HeldPoll, time: Nanos) {
        let share = |yes: bool| f64::from(u8::from(yes));
        let (transactions, bytes) = (poll.transactions, poll.bytes);
        self.transactions.record(nanos(transactions), time);
        self.bytes.record(nanos(bytes), time);
        self.age.record(poll.age.unwrap_or_default(), time);
        let any = share(transactions > 0);
        self.exposed
            .record(poll.since, [transactions as f64, bytes as f64, any], time);
        self.ineffective
            .record(poll.since, share(poll.waits == Some(false)), time);
    }

    /// Returns the share of the time in which the semi-synchronous primary was not in effect, in percent.
    pub(super) fn ineffective_percent(&self) -> f64 {
        self.ineffective.mean().unwrap_or_default() * 100.0
    }

    /// Returns the age of the oldest exposed transaction over time, a count for each 0.1 ms.
    pub(super) fn age(&self) -> &SignedHistogram {
        self.age.histogram()
    }

    /// Returns the figures that take little time, for a run that continues: those without intervals, up to the last poll.
    pub(super) fn so_far(&self) -> ExposureRow {
        let mut row = ExposureRow::default();
        self.fill(&mut row, self.exposed.plain_means(), [None; 3]);
        row
    }

    /// Fills in the figures, of all polls and the time between them.
    pub(super) fn fill_row(&mut self, row: &mut ExposureRow) {
        if let Some(held) = self.held {
            self.end(held.at);
        }
        let StallMeans {
            stalls,
            means,
            intervals,
        } = self.exposed.means();
        row.stalls = stalls;
        self.fill(row, means, intervals);
    }

    /// Fills in all but the number of stalls, from the means of the exposed transactions and their intervals.
    fn fill(
        &self,
        row: &mut ExposureRow,
        means: [Option<f64>; 3],
        intervals: [Option<[f64; 2]>; 3],
    ) {
        let percent = |share: f64| share * 100.0;
        row.polls = self.polls;
        row.committed = self.committed;
        row.bytes_committed = self.bytes_committed;
        row.transactions = amount(&self.transactions, means[0], intervals[0]);
        row.bytes = amount(&self.bytes, means[1], intervals[1]);
        row.age = self.age.distribution();
        row.exposed_percent = percent(means[2].unwrap_or_default());
        row.exposed_percent_ci95 = intervals[2].map(|ends| ends.map(|end| percent(end.min(1.0))));
        row.poll_duration_us = distribution(&self.poll_duration);
    }
}

/// The exposed transactions, and statistics over all polls.
#[derive(Default)]
pub(super) struct ExposureSummary {
    pending: Pending,
    /// The last answer of each replica.
    received: Vec<Option<Position>>,
    pub(super) figures: PollSummary,
}

impl ExposureSummary {
    pub(super) fn new(replicas: usize) -> Self {
        Self {
            received: vec![None; replicas],
            ..Self::default()
        }
    }

    pub(super) fn logged(&mut self, commit_id: &CommitId, bytes: u64, at: Nanos) {
        self.figures.committed += 1;
        self.figures.bytes_committed += bytes;
        self.pending.add(commit_id, bytes, at);
    }

    pub(super) fn received(&mut self, replica: usize, received: Position) {
        self.received[replica] = Some(received);
    }

    pub(super) fn drop_settled(&mut self) {
        let known: Vec<&Position> = self.received.iter().flatten().collect();
        self.pending.received(known.into_iter());
    }

    /// Ends the time that the last poll stands for: the primary's log cannot be followed since `at`.
    pub(super) fn unfollowed(&mut self, at: Nanos) {
        self.figures.end(at);
    }

    pub(super) fn record_poll(
        &mut self,
        began: Nanos,
        asked: Nanos,
        last: Nanos,
        answered: u64,
        waits: Option<bool>,
    ) -> ExposureSample {
        let age = self.pending.oldest().map(|oldest| last - oldest);
        let (transactions, bytes) = (self.pending.transactions(), self.pending.bytes());
        self.figures.add(HeldPoll {
            at: last,
            since: last - began,
            before: Nanos(0),
            transactions,
            bytes,
            age,
            waits,
        });
        self.figures.poll_duration.record(last - asked);
        ExposureSample {
            at_us: (last - began).as_micros(),
            poll_duration_us: (last - asked).as_micros(),
            answered,
            transactions,
            bytes,
            age_us: age.map(Nanos::as_micros),
            waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::known::known;

    /// Input of the polls, in order; times are of its clock.
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Input {
        /// The primary logged a transaction.
        Logged {
            commit_id: String,
            bytes: u64,
            at: Nanos,
        },
        /// A replica reported its received transactions.
        Received { replica: usize, position: String },
        /// Received transactions are removed from the logged ones.
        Settled,
        /// The primary's log cannot be followed since this time.
        Unfollowed { at: Nanos },
        /// A poll, in a run that began at this time.
        Poll {
            began: Nanos,
            asked: Nanos,
            last: Nanos,
            answered: u64,
            #[serde(rename = "semi_sync")]
            waits: Option<bool>,
        },
    }

    /// A minute of 1,000 transactions a second, polled every 10 ms; the replica stalls for 6 s, in which a poll waits
    /// for 100 ms and gets no answer.
    #[test]
    fn stall_counts_with_its_time_and_not_with_its_polls() {
        const MS: i64 = 1_000_000;
        let mut exposed = ExposureSummary::new(1);
        let (mut now, mut logged) = (0, 0);
        while now < 60_000 * MS {
            while logged * MS < now {
                logged += 1;
                let commit_id = format!("0-1-{logged}").parse().unwrap();
                exposed.logged(&commit_id, 100, Nanos(logged * MS));
            }
            let stalled = (30_000 * MS..36_000 * MS).contains(&now);
            if !stalled && logged > 0 {
                exposed.received(0, format!("0-1-{logged}").parse().unwrap());
            }
            exposed.drop_settled();
            let at = Nanos(now);
            exposed.record_poll(Nanos(0), at, at, u64::from(!stalled), None);
            now += if stalled { 100 * MS } else { 10 * MS };
        }
        let mut row = ExposureRow::default();
        exposed.figures.fill_row(&mut row);
        let near = |value: f64, truth: f64| (value - truth).abs() <= truth * 0.02;
        assert!(near(row.exposed_percent, 10.0), "{row:#?}");
        assert!(near(row.transactions.mean.unwrap(), 300.0), "{row:#?}");
        assert!(near(row.transactions.p95.unwrap(), 3000.0), "{row:#?}");
        assert!(near(row.age.p95_us.unwrap(), 3e6), "{row:#?}");
        assert_eq!(row.transactions.p50, Some(0.0));
        // A lone stall does not show how often there are any.
        assert_eq!(row.stalls, 1);
        assert_eq!(row.transactions.mean_ci95, None);
        assert_eq!(row.exposed_percent_ci95, None);
    }

    #[test]
    fn time_without_the_primarys_log_is_not_counted() {
        let mut exposed = ExposureSummary::new(1);
        let commit_id = "0-1-1".parse().unwrap();
        let poll = |exposed: &mut ExposureSummary, ms: i64| {
            let at = Nanos(ms * 1_000_000);
            exposed.record_poll(Nanos(0), at, at, 1, None);
        };
        for ms in 0..100 {
            poll(&mut exposed, ms);
        }
        exposed.unfollowed(Nanos(100_000_000));
        exposed.unfollowed(Nanos(5_000_000_000));
        exposed.logged(&commit_id, 1, Nanos(9_000_000_000));
        for ms in 9_900..=10_000 {
            poll(&mut exposed, ms);
        }
        let mut row = ExposureRow::default();
        exposed.figures.fill_row(&mut row);
        assert!((row.exposed_percent - 50.0).abs() < 0.1, "{row:#?}");
    }

    #[test]
    fn recorded_polls_reproduce_the_same_figures() {
        for case in known::<Input>("exposure") {
            let mut exposed = ExposureSummary::new(2);
            let mut samples = Vec::new();
            for input in case.input {
                match input {
                    Input::Logged {
                        commit_id,
                        bytes,
                        at,
                    } => exposed.logged(&commit_id.parse().unwrap(), bytes, at),
                    Input::Received { replica, position } => {
                        exposed.received(replica, position.parse().unwrap())
                    }
                    Input::Settled => exposed.drop_settled(),
                    Input::Unfollowed { at } => exposed.unfollowed(at),
                    Input::Poll {
                        began,
                        asked,
                        last,
                        answered,
                        waits,
                    } => {
                        samples.push(
                            serde_json::to_value(
                                exposed.record_poll(began, asked, last, answered, waits),
                            )
                            .unwrap(),
                        );
                    }
                }
            }
            let [recorded, row] = ["samples", "row"].map(|key| &case.result[key]);
            assert_eq!(samples, *recorded.as_array().unwrap(), "{}", case.name);
            let recorded = ExposureRow::deserialize(row).unwrap();
            let mut row = recorded.clone();
            exposed.figures.fill_row(&mut row);
            assert_eq!(row, recorded, "{}", case.name);
        }
    }
}
