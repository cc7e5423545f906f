//! The exposed transactions, and statistics over all polls.

use replimeter_engine::binlog::Gtid;
use replimeter_model::{
    exposure::{AmountDistribution, ExposureRow, ExposureSample},
    time::Nanos,
};
use replimeter_stats::{series::distribution, signed::SignedHistogram};
use serde::{Deserialize, Serialize};

use super::pending::{Pending, Received};
use crate::record;

/// Statistics of an amount over all polls.
#[derive(Debug, Default)]
struct AmountSummary {
    histogram: SignedHistogram,
}

impl AmountSummary {
    fn record(&mut self, amount: u64) {
        self.histogram
            .record(Nanos(i64::try_from(amount).unwrap_or(i64::MAX)));
    }

    fn amount(&self) -> AmountDistribution {
        let value = |value: Option<Nanos>| value.map(|value| value.0 as f64);
        let quantile = |p| value(self.histogram.quantile(p));
        AmountDistribution {
            mean: self.histogram.mean(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: value(self.histogram.max()),
        }
    }
}

/// Statistics over all polls.
#[derive(Default)]
pub(super) struct PollSummary {
    pub(super) looks: u64,
    exposed: u64,
    pub(super) ineffective: u64,
    pub(super) committed: u64,
    bytes_committed: u64,
    transactions: AmountSummary,
    bytes: AmountSummary,
    pub(super) age: SignedHistogram,
    look: SignedHistogram,
}

impl PollSummary {
    pub(super) fn fill_row(&self, row: &mut ExposureRow) {
        row.polls = self.looks;
        row.committed = self.committed;
        row.bytes_committed = self.bytes_committed;
        row.transactions = self.transactions.amount();
        row.bytes = self.bytes.amount();
        row.age = distribution(&self.age);
        row.exposed_percent = self.exposed as f64 / self.looks.max(1) as f64 * 100.0;
        row.poll_duration_us = distribution(&self.look);
    }
}

/// The exposed transactions, and statistics over all polls.
#[derive(Default)]
pub(super) struct ExposureSummary {
    pending: Pending,
    /// The last answer of each replica.
    received: Vec<Option<Received>>,
    pub(super) figures: PollSummary,
}

/// Input of the polls, for a recording of the run; times are of its clock.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExposureReading {
    /// The primary logged a transaction.
    Logged { gtid: String, bytes: u64, at: Nanos },
    /// A replica reported its received transactions.
    Received { replica: usize, gtids: String },
    /// Received transactions are removed from the logged ones.
    Settled,
    /// A poll, in a run that began at this time.
    Look {
        began: Nanos,
        asked: Nanos,
        last: Nanos,
        answered: u64,
        semi_sync: Option<bool>,
    },
}

impl ExposureSummary {
    pub(super) fn new(replicas: usize) -> Self {
        Self {
            received: vec![None; replicas],
            ..Self::default()
        }
    }

    pub(super) fn logged(&mut self, gtid: &Gtid, bytes: u64, at: Nanos) {
        record::reading(|| ExposureReading::Logged {
            gtid: gtid.to_string(),
            bytes,
            at,
        });
        self.figures.committed += 1;
        self.figures.bytes_committed += bytes;
        self.pending.add(gtid, bytes, at);
    }

    pub(super) fn received(&mut self, replica: usize, received: Received) {
        record::reading(|| ExposureReading::Received {
            replica,
            gtids: received.to_string(),
        });
        self.received[replica] = Some(received);
    }

    pub(super) fn drop_settled(&mut self) {
        record::reading(|| ExposureReading::Settled);
        let known: Vec<&Received> = self.received.iter().flatten().collect();
        self.pending.received(known.into_iter());
    }

    pub(super) fn record_poll(
        &mut self,
        began: Nanos,
        asked: Nanos,
        last: Nanos,
        answered: u64,
        semi_sync: Option<bool>,
    ) -> ExposureSample {
        record::reading(|| ExposureReading::Look {
            began,
            asked,
            last,
            answered,
            semi_sync,
        });
        let age = self.pending.oldest().map(|oldest| last - oldest);
        let (transactions, bytes) = (self.pending.transactions(), self.pending.bytes());
        let figures = &mut self.figures;
        figures.looks += 1;
        figures.exposed += u64::from(transactions > 0);
        figures.ineffective += u64::from(semi_sync == Some(false));
        figures.transactions.record(transactions);
        figures.bytes.record(bytes);
        figures.age.record(age.unwrap_or_default());
        figures.look.record(last - asked);
        ExposureSample {
            at_us: (last - began).as_micros(),
            poll_duration_us: (last - asked).as_micros(),
            answered,
            transactions,
            bytes,
            age_us: age.map(Nanos::as_micros),
            semi_sync,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Outcome, *};

    #[test]
    fn recorded_polls_reproduce_the_same_figures() {
        for case in record::cases("exposure") {
            let mut exposed = ExposureSummary::new(2);
            let mut samples = Vec::new();
            for reading in case.readings::<ExposureReading>() {
                match reading {
                    ExposureReading::Logged { gtid, bytes, at } => {
                        exposed.logged(&gtid.parse().unwrap(), bytes, at)
                    }
                    ExposureReading::Received { replica, gtids } => {
                        exposed.received(replica, gtids.parse().unwrap())
                    }
                    ExposureReading::Settled => exposed.drop_settled(),
                    ExposureReading::Look {
                        began,
                        asked,
                        last,
                        answered,
                        semi_sync,
                    } => {
                        samples.push(
                            serde_json::to_value(
                                exposed.record_poll(began, asked, last, answered, semi_sync),
                            )
                            .unwrap(),
                        );
                    }
                }
            }
            assert_eq!(samples, case.calls("sample"), "{}", case.name);
            let outcome: Outcome = serde_json::from_value(case.calls("outcome").remove(0)).unwrap();
            let mut row = outcome.row.clone();
            exposed.figures.fill_row(&mut row);
            assert_eq!(row, outcome.row, "{}", case.name);
        }
    }
}
