//! Summarizes matched transactions, in memory that does not grow with the run.

use std::collections::BTreeMap;

use replimeter_model::time::Nanos;
use replimeter_stats::{
    series::{Series, distribution},
    signed::SignedHistogram,
};

use super::{
    groups::Groups,
    matcher::{Match, Unmatched},
};
use crate::tap::results::{TapFloor, TapGroup, TapRow, TapWindow, UnmatchedReason};

/// Digits of lag by group; there may be a thousand groups.
const GROUP_DIGITS: u8 = 2;

/// The primary's transactions in a group.
#[derive(Debug, Default)]
struct GroupSummary {
    transactions: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct ReplicaTapSummary {
    lag: Series,
    window: SignedHistogram,
    window_inverted: u64,
    inverted: u64,
    largest_inversion: Nanos,
    by: BTreeMap<usize, SignedHistogram>,
    commit_to_arrival: SignedHistogram,
    by_servers: SignedHistogram,
}

/// A transaction's commits by the servers' clocks, converted to the local clock; `None` where the
/// clock is unknown.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub(super) struct PlacedCommits {
    pub(super) on_primary: Option<Nanos>,
    pub(super) on_replica: Option<Nanos>,
}

/// The summary of a run.
#[derive(Debug)]
pub(super) struct TapSummary {
    names: Vec<String>,
    transactions: u64,
    bytes: u64,
    /// Since the last window.
    window: GroupSummary,
    groups: BTreeMap<usize, GroupSummary>,
    replicas: Vec<ReplicaTapSummary>,
    floor: Series,
    floor_abs: SignedHistogram,
}

/// The transactions of a replica that have not been matched.
pub(super) struct ReplicaEnd {
    /// The number that has not arrived from it yet.
    pub(super) pending: u64,
    /// The age of the oldest of these.
    pub(super) behind: Option<Nanos>,
    /// Those that will not arrive.
    pub(super) unmatched: Unmatched,
    /// The number from before the start.
    pub(super) before_start: u64,
}

impl TapSummary {
    pub(super) fn new(names: Vec<String>) -> Self {
        Self {
            replicas: names.iter().map(|_| ReplicaTapSummary::default()).collect(),
            names,
            transactions: 0,
            bytes: 0,
            window: GroupSummary::default(),
            groups: BTreeMap::new(),
            floor: Series::default(),
            floor_abs: SignedHistogram::default(),
        }
    }

    /// Adds a transaction of the primary.
    pub(super) fn primary(&mut self, bytes: u64, groups: &[usize]) {
        self.transactions += 1;
        self.bytes += bytes;
        self.window.transactions += 1;
        self.window.bytes += bytes;
        for group in groups {
            let group = self.groups.entry(*group).or_default();
            group.transactions += 1;
            group.bytes += bytes;
        }
    }

    /// Adds a match.
    pub(super) fn matched(
        &mut self,
        one: &Match,
        groups: &[usize],
        commits: Option<PlacedCommits>,
    ) {
        let replica = &mut self.replicas[one.replica];
        let lag = one.lag();
        replica.lag.record(one.on_primary, lag);
        replica.window.record(lag);
        if lag < Nanos(0) {
            replica.inverted += 1;
            replica.window_inverted += 1;
            replica.largest_inversion = replica.largest_inversion.max(Nanos(0) - lag);
        }
        for group in groups {
            replica
                .by
                .entry(*group)
                .or_insert_with(|| SignedHistogram::new(GROUP_DIGITS))
                .record(lag);
        }
        let Some(PlacedCommits {
            on_primary: Some(committed),
            on_replica,
        }) = commits
        else {
            return;
        };
        replica.commit_to_arrival.record(one.on_replica - committed);
        if let Some(again) = on_replica {
            replica.by_servers.record(again - committed);
        }
    }

    /// Adds a match of both connections to the primary.
    pub(super) fn floor(&mut self, one: &Match) {
        self.floor.record(one.on_primary, one.lag());
        self.floor_abs.record(Nanos(one.lag().0.abs()));
    }

    /// Returns the figures since the last window; `standing` has each replica's pending
    /// transactions and the age of the oldest.
    pub(super) fn window(
        &mut self,
        start: Nanos,
        end: Nanos,
        standing: &[(u64, Option<Nanos>)],
    ) -> Vec<TapWindow> {
        let primary = std::mem::take(&mut self.window);
        let us = |nanos: Option<Nanos>| nanos.map(Nanos::as_micros);
        let whole = TapWindow {
            start_us: start.as_micros(),
            end_us: end.as_micros(),
            transactions: primary.transactions,
            bytes: primary.bytes,
            ..TapWindow::default()
        };
        if self.replicas.is_empty() {
            return vec![whole];
        }
        let each = self.replicas.iter_mut().zip(&self.names).zip(standing).map(
            |((replica, name), (pending, behind))| {
                let lag = std::mem::take(&mut replica.window);
                TapWindow {
                    replica: name.clone(),
                    matched: lag.count(),
                    inverted: std::mem::take(&mut replica.window_inverted),
                    min_us: us(lag.min()),
                    p50_us: us(lag.quantile(0.5)),
                    p99_us: us(lag.quantile(0.99)),
                    max_us: us(lag.max()),
                    pending: *pending,
                    behind_us: us(*behind),
                    ..whole.clone()
                }
            },
        );
        each.collect()
    }

    /// Returns the lag of a replica's transactions.
    pub(super) fn lags(&self, index: usize) -> &SignedHistogram {
        self.replicas[index].lag.histogram()
    }

    /// Returns the totals of a replica.
    pub(super) fn row(&self, index: usize, end: ReplicaEnd, groups: &Groups) -> TapRow {
        let replica = &self.replicas[index];
        let by = self.groups.iter().map(|(group, primary)| {
            let (schema, table) = groups.name(*group);
            let lag = replica.by.get(group).map(distribution).unwrap_or_default();
            TapGroup {
                schema,
                table,
                transactions: primary.transactions,
                bytes: primary.bytes,
                lag,
            }
        });
        let mut by: Vec<TapGroup> = by.collect();
        by.sort_by_key(|group| std::cmp::Reverse(group.transactions));
        TapRow {
            group_by: by,
            ..self.so_far(index, end)
        }
    }

    /// Returns the totals of a replica without those of groups.
    pub(super) fn so_far(&self, index: usize, end: ReplicaEnd) -> TapRow {
        let ReplicaEnd {
            pending,
            behind,
            unmatched,
            before_start,
        } = end;
        let replica = &self.replicas[index];
        let reasons = [
            ("arrived while a connection was lost", unmatched.unheard),
            (
                "were skipped by the replica (a filter, no row to change, or a gap in its log)",
                unmatched.left_out,
            ),
            ("were written on the replica itself", unmatched.own),
            (
                "are on the replica and not on the primary (written there)",
                unmatched.foreign,
            ),
            (
                "were dropped while waiting for the primary's stream",
                unmatched.overflow,
            ),
        ];
        let some =
            |histogram: &SignedHistogram| (histogram.count() > 0).then(|| distribution(histogram));
        TapRow {
            replica: self.names[index].clone(),
            transactions: self.transactions,
            matched: replica.lag.histogram().count(),
            inverted: replica.inverted,
            largest_inversion_us: (replica.inverted > 0)
                .then(|| replica.largest_inversion.as_micros()),
            unmatched: unmatched.of_primary(),
            unmatched_reasons: reasons
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(reason, count)| UnmatchedReason {
                    reason: reason.to_owned(),
                    count,
                })
                .collect(),
            pending,
            behind_us: behind.map(Nanos::as_micros),
            before_start,
            lag: replica.lag.distribution(),
            bytes: self.bytes,
            commit_to_arrival: some(&replica.commit_to_arrival),
            by_servers: some(&replica.by_servers),
            ..TapRow::default()
        }
    }

    /// Returns the floor, from the second connection to the primary; `None` when nothing was
    /// committed.
    pub(super) fn floor_row(&self) -> Option<TapFloor> {
        let transactions = self.floor.histogram().count();
        (transactions > 0).then(|| TapFloor {
            transactions,
            difference: self.floor.distribution(),
            difference_abs: distribution(&self.floor_abs),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::known::known;

    /// Input of the summary.
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Input {
        /// A transaction arrived from the primary.
        Primary { bytes: u64, groups: Vec<usize> },
        /// It arrived from a replica, too.
        Matched {
            replica: usize,
            on_primary: Nanos,
            on_replica: Nanos,
            groups: Vec<usize>,
            commits: Option<PlacedCommits>,
        },
        /// It arrived on the second connection to the primary, too.
        Floor {
            on_primary: Nanos,
            on_replica: Nanos,
        },
        /// The end of a window; with each replica's pending transactions and the age of the oldest.
        Window {
            start: Nanos,
            end: Nanos,
            standing: Vec<(u64, Option<Nanos>)>,
        },
        /// The end of the run for a replica.
        Row {
            replica: usize,
            pending: u64,
            behind: Option<Nanos>,
            unmatched: Unmatched,
            before_start: u64,
            groups: Vec<(String, String)>,
        },
    }

    #[test]
    fn recorded_transactions_reproduce_the_same_figures() {
        for case in known::<Input>("tap") {
            let rows = case.result["rows"].as_array().unwrap();
            let mut summary = TapSummary::new(
                rows.iter()
                    .map(|row| row["replica"].as_str().unwrap().to_owned())
                    .collect(),
            );
            let mut windows = Vec::new();
            for input in case.input {
                match input {
                    Input::Primary { bytes, groups } => summary.primary(bytes, &groups),
                    Input::Matched {
                        replica,
                        on_primary,
                        on_replica,
                        groups,
                        commits,
                    } => {
                        summary.matched(
                            &Match {
                                replica,
                                on_primary,
                                on_replica,
                                set: 0,
                            },
                            &groups,
                            commits,
                        );
                    }
                    Input::Floor {
                        on_primary,
                        on_replica,
                    } => {
                        summary.floor(&Match {
                            replica: 0,
                            on_primary,
                            on_replica,
                            set: 0,
                        });
                    }
                    Input::Window {
                        start,
                        end,
                        standing,
                    } => {
                        windows.push(
                            serde_json::to_value(summary.window(start, end, &standing)).unwrap(),
                        );
                    }
                    Input::Row {
                        replica,
                        pending,
                        behind,
                        unmatched,
                        before_start,
                        groups,
                    } => {
                        let row = summary.row(
                            replica,
                            ReplicaEnd {
                                pending,
                                behind,
                                unmatched,
                                before_start,
                            },
                            &Groups::named(groups),
                        );
                        assert_eq!(
                            serde_json::to_value(row).unwrap(),
                            rows[replica],
                            "{}",
                            case.name
                        );
                    }
                }
            }
            assert_eq!(
                serde_json::to_value(summary.floor_row()).unwrap(),
                case.result["floor"],
                "{}",
                case.name
            );
            let recorded = case.result["windows"].as_array().unwrap();
            // The remainder at the end may be empty.
            windows.truncate(recorded.len());
            assert_eq!(windows, *recorded, "{}", case.name);
        }
    }
}
