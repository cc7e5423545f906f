//! Computes the rows of the results.

use replimeter_instruments::cost::{
    results::{
        AddedLatency, CostClient, CostRow, CostStep, RelativeFigure, RelativeLatency,
        SelfComparison,
    },
    settings::LoggedMode,
};
use replimeter_model::{engine::Engine, estimate::Estimate, load::Rate, sandbox::WaitPoint};
use replimeter_stats::{
    series::distribution,
    starts::{Rounds, of_difference, of_mean, of_ratio},
};

use crate::selected_blocks::selection;

use super::condition::{Condition, ConditionKey, StartBlocks, StartFigures};

impl Condition {
    /// Returns values of each start by its round, for comparisons; of a row with several starts in a round, as in a self-test, use
    /// [`Self::of_starts`].
    fn rounds(&self, pick: impl Fn(&StartBlocks) -> Vec<f64>) -> Rounds {
        self.starts
            .iter()
            .map(|start| (start.round, pick(start)))
            .collect()
    }

    fn throughputs(&self) -> Rounds {
        self.rounds(|start| start.throughput.clone())
    }

    fn means(&self) -> Rounds {
        self.per_operation(|start| &start.mean)
    }

    /// Returns values per operation of each start, with blocks weighted by their operations.
    fn per_operation(&self, pick: fn(&StartBlocks) -> &Vec<f64>) -> Rounds {
        self.rounds(|start| weighted(pick(start), &start.operations))
    }

    /// Returns a figure of each whole start; empty if one start is too short for it.
    fn figures(&self, pick: fn(&StartFigures) -> Option<f64>) -> Rounds {
        let all: Option<Rounds> = self
            .starts
            .iter()
            .map(|start| Some((start.round, vec![pick(start.figures.as_ref()?)?])))
            .collect();
        all.unwrap_or_default()
    }

    fn of_starts(&self, pick: impl Fn(&StartBlocks) -> Vec<f64>) -> Vec<Vec<f64>> {
        self.starts.iter().map(pick).collect()
    }

    fn throughput(&self) -> Rate {
        rate(&self.of_starts(|start| start.throughput.clone()))
    }

    /// Returns the operations per second that all servers sustain: written and applied everywhere; unknown if
    /// a block was not applied in time.
    fn sustained(&self) -> Rate {
        let complete = |start: &StartBlocks| start.sustained.len() == start.throughput.len();
        if self.starts.iter().all(complete) {
            rate(&self.of_starts(|start| start.sustained.clone()))
        } else {
            Rate::default()
        }
    }

    fn relative(&self, none: &Self) -> RelativeFigure {
        if self.key == none.key {
            // The ratio to itself needs no interval.
            return RelativeFigure {
                baseline: LoggedMode::NONE.name().to_owned(),
                throughput: Some(1.0),
                ..RelativeFigure::default()
            };
        }
        let throughput = of_ratio(&self.throughputs(), &none.throughputs());
        let figure = |pick: fn(&StartFigures) -> Option<f64>| {
            of_ratio(&self.figures(pick), &none.figures(pick))
        };
        RelativeFigure {
            baseline: LoggedMode::NONE.name().to_owned(),
            throughput: throughput.value,
            throughput_ci95: [throughput.ci95.low, throughput.ci95.high].into(),
            latency: RelativeLatency {
                mean: of_ratio(&self.means(), &none.means()),
                stdev: figure(|figures| figures.stdev),
                p50: figure(|figures| figures.p50),
                p95: figure(|figures| figures.p95),
                p99: figure(|figures| figures.p99),
                max: figure(|figures| figures.max),
            },
        }
    }

    /// Returns what this mode adds to another.
    fn added(&self, to: &Self) -> AddedLatency {
        let difference = |own: Rounds, other: Rounds| {
            // No difference is given if a block has no CPU time.
            let whole = |values: &Rounds, condition: &Self| {
                values
                    .values()
                    .zip(&condition.starts)
                    .all(|(values, start)| values.len() == start.mean.len())
            };
            if whole(&own, self) && whole(&other, to) {
                of_difference(&own, &other)
            } else {
                Estimate::default()
            }
        };
        AddedLatency {
            latency_us: difference(self.means(), to.means()),
            primary_cpu_us: difference(
                self.per_operation(|start| &start.primary_cpu),
                to.per_operation(|start| &start.primary_cpu),
            ),
            all_cpu_us: difference(
                self.per_operation(|start| &start.all_cpu),
                to.per_operation(|start| &start.all_cpu),
            ),
        }
    }

    fn client(&self, limit: Option<f64>) -> CostClient {
        let totals = &self.totals;
        let operations = (totals.operations > 0).then_some(totals.operations as f64);
        let counted = totals.counted.0;
        let per_s = (counted > 0).then(|| totals.statements as f64 * 1e9 / counted as f64);
        CostClient {
            cpu_us_per_op: operations.map(|operations| totals.client_cpu_us / operations),
            limit_per_s: limit,
            percent_of_limit: limit
                .zip(per_s)
                .filter(|(limit, _)| *limit > 0.0)
                .map(|(limit, per_s)| per_s / limit * 100.0),
            delay_us_per_op: operations
                .zip(totals.client_delay_us.filter(|_| !totals.delay_is_unknown))
                .map(|(operations, delay)| delay / operations),
        }
    }

    fn row(&self, none: Option<&Self>, limit: Option<f64>, durability: &str) -> CostRow {
        let (key, totals) = (&self.key, &self.totals);
        CostRow {
            engine: key.engine.name().to_owned(),
            version: key.version.clone(),
            mode: key.kind,
            wait_point: key.wait_point.map(|point| point.name().to_owned()),
            replicas: key.replicas,
            threads: key.threads,
            durability: durability.to_owned(),
            link_delay_us: key.delay.map(|delay| delay.0.as_secs_f64() * 1e6),
            starts: self.starts.len() as u64,
            blocks: self
                .starts
                .iter()
                .map(|start| start.throughput.len() as u64)
                .sum(),
            invalid_blocks: totals.invalid.into(),
            selection: selection(&totals.seen),
            counted_us: totals.counted.as_micros(),
            operations: totals.operations,
            retries: totals.retries,
            failed: totals.failed,
            errors: totals.errors.clone(),
            throughput: self.throughput(),
            sustained: self.sustained(),
            latency: distribution(&self.latency),
            latency_mean_us: of_mean(
                &self.of_starts(|start| weighted(&start.mean, &start.operations)),
            ),
            relative: none.map(|none| self.relative(none)).unwrap_or_default(),
            added: none
                .filter(|none| none.key != *key)
                .map(|none| self.added(none))
                .unwrap_or_default(),
            servers: totals
                .until_applied
                .iter()
                .map(|used| used.per_operation(totals.operations))
                .collect(),
            behind: self.behind.clone(),
            client: self.client(limit),
        }
    }
}

/// Returns the mean over the starts, with the standard deviation between blocks.
fn rate(starts: &[Vec<f64>]) -> Rate {
    let estimate = of_mean(starts);
    let blocks = starts.concat();
    let count = blocks.len() as f64;
    let mean = blocks.iter().sum::<f64>() / count;
    let stdev = (blocks.len() > 1).then(|| {
        (blocks
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / (count - 1.0))
            .sqrt()
    });
    Rate {
        mean: estimate.value,
        stdev,
        ci95: [estimate.ci95.low, estimate.ci95.high].into(),
    }
}

/// Returns values whose plain mean is the weighted mean, and whose deviations are the residuals of the ratio
/// of the two sums (Cochran 1977, §6.3); unchanged if a weight is missing.
fn weighted(values: &[f64], weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    if values.len() != weights.len() || sum <= 0.0 {
        return values.to_vec();
    }
    let mean = values
        .iter()
        .zip(weights)
        .map(|(value, weight)| value * weight)
        .sum::<f64>()
        / sum;
    let count = values.len() as f64;
    values
        .iter()
        .zip(weights)
        .map(|(value, weight)| mean + (value - mean) * weight * count / sum)
        .collect()
}

/// Returns the baseline of a row, `none` or another mode: of the same binary, at the same number of threads,
/// with the same link delay if the baseline has links.
fn fellow<'g>(all: &'g [Condition], key: &ConditionKey, kind: LoggedMode) -> Option<&'g Condition> {
    all.iter().find(|other| {
        other.key.kind == kind
            && (&other.key.engine, &other.key.version, other.key.threads)
                == (&key.engine, &key.version, key.threads)
            && (!kind.replicates()
                || (other.key.delay, other.key.replicas) == (key.delay, key.replicas))
            && !other.is_empty()
    })
}

/// Returns the rows by engine, threads and link delay, in the order of the modes.
pub(super) fn rows(
    all: &[Condition],
    limits: &[(Engine, u32, f64)],
    durability: &str,
) -> Vec<CostRow> {
    let row = |condition: &Condition| {
        let key = &condition.key;
        let limit = limits
            .iter()
            .find(|(engine, threads, _)| (*engine, *threads) == (key.engine, key.threads));
        condition.row(
            fellow(all, key, LoggedMode::NONE),
            limit.map(|(_, _, limit)| *limit),
            durability,
        )
    };
    sorted(all).into_iter().map(row).collect()
}

fn sorted(all: &[Condition]) -> Vec<&Condition> {
    let mut counted: Vec<&Condition> = all
        .iter()
        .filter(|condition| !condition.is_empty())
        .collect();
    counted.sort_by_key(|condition| {
        let key = &condition.key;
        (
            key.engine,
            key.threads,
            key.kind,
            key.wait_point == Some(WaitPoint::AfterSync),
            key.replicas,
            key.delay,
        )
    });
    counted
}

/// Returns what each mode adds to the mode that it builds on, or to the next lower one that was measured.
pub(super) fn steps(all: &[Condition]) -> Vec<CostStep> {
    let step = |condition: &Condition| {
        let key = &condition.key;
        let mut below = key.kind.built_on();
        let other = loop {
            let kind = below?;
            match fellow(all, key, kind) {
                Some(other) => break other,
                None => below = kind.built_on(),
            }
        };
        Some(CostStep {
            engine: key.engine.name().to_owned(),
            mode: key.kind,
            wait_point: key.wait_point.map(|point| point.name().to_owned()),
            baseline: other.key.kind,
            threads: key.threads,
            link_delay_us: key.delay.map(|delay| delay.0.as_secs_f64() * 1e6),
            throughput: of_ratio(&condition.throughputs(), &other.throughputs()),
            added: condition.added(other),
        })
    };
    sorted(all).into_iter().filter_map(step).collect()
}

/// Compares one half of a mode's starts with the other.
pub(super) fn self_comparison(one: &Condition, other: &Condition) -> SelfComparison {
    let throughput = of_ratio(&one.throughputs(), &other.throughputs());
    SelfComparison {
        throughput,
        latency_us: of_difference(&one.means(), &other.means()),
        differs: throughput.excludes(1.0) == Some(true),
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::{replication::Mode, time::Nanos};

    use super::*;

    fn key(kind: LoggedMode, threads: u32) -> ConditionKey {
        ConditionKey {
            engine: Engine::MariaDb,
            version: "MariaDB 1".to_owned(),
            kind,
            wait_point: kind
                .mode
                .waits_for_receipt()
                .then_some(WaitPoint::AfterSync),
            replicas: u32::from(kind.replicates()),
            threads,
            delay: None,
        }
    }

    /// Starts of three blocks of one second each, with operations of these latencies in µs.
    fn condition(kind: LoggedMode, latencies: &[f64]) -> Condition {
        let mut condition = Condition::new(key(kind, 1));
        for (round, latency) in (1..).zip(latencies) {
            condition.begin(round);
            for block in 0..3 {
                let us = latency + f64::from(block);
                let start = condition.starts.last_mut().unwrap();
                start.throughput.push(1e6 / us);
                start.sustained.push(5e5 / us);
                start.mean.push(us);
                start.operations.push(100.0);
                start.primary_cpu.push(us / 2.0);
                start.all_cpu.push(us);
                (0..100).for_each(|_| start.latency.record(Nanos((us * 1e3) as i64)));
            }
            condition.totals.operations += 300;
            condition.totals.counted.0 += 3_000_000_000;
            condition.end();
        }
        condition
    }

    #[test]
    fn mode_is_compared_with_its_own_baseline() {
        let mut all = vec![
            condition(
                LoggedMode::of(Mode::SemiSync),
                &[300.0, 302.0, 305.0, 299.0],
            ),
            condition(LoggedMode::NONE, &[100.0, 101.0, 102.0, 99.0]),
            condition(LoggedMode::of(Mode::Async), &[120.0, 121.0, 119.0, 122.0]),
        ];
        all[2].key.version = "MariaDB 2".to_owned();
        let rows = rows(&all, &[(Engine::MariaDb, 1, 20_000.0)], "relaxed");
        assert_eq!(
            rows.iter().map(|row| row.mode.name()).collect::<Vec<_>>(),
            ["none", "async", "semi-sync"]
        );
        assert_eq!(
            (
                rows[0].relative.throughput,
                rows[0].relative.throughput_ci95.low
            ),
            (Some(1.0), None)
        );
        assert_eq!(rows[1].relative.throughput, None, "of another binary");
        let semi_sync = &rows[2];
        let added = semi_sync.added.latency_us;
        assert!(
            (added.value.unwrap() - 201.0).abs() < 0.01
                && added.ci95.low.unwrap() < 201.0
                && 201.0 < added.ci95.high.unwrap()
        );
        assert!((semi_sync.added.primary_cpu_us.value.unwrap() - 100.5).abs() < 0.01);
        assert!(
            semi_sync.relative.throughput_ci95.high.unwrap() < 0.5,
            "{:?}",
            semi_sync.relative
        );
        assert!(semi_sync.relative.latency.p50.value.unwrap() > 2.5);
        assert_eq!(
            (
                semi_sync.starts,
                semi_sync.blocks,
                semi_sync.label().as_str()
            ),
            (4, 12, "semi-sync after-sync")
        );
    }

    #[test]
    fn steps_skip_unmeasured_modes() {
        let all = [
            condition(LoggedMode::NONE, &[100.0, 101.0]),
            condition(LoggedMode::of(Mode::SemiSync), &[300.0, 302.0]),
        ];
        let steps = steps(&all);
        assert_eq!(
            (steps.len(), steps[0].mode.name(), steps[0].baseline.name()),
            (1, "semi-sync", "none")
        );
        let all = [
            condition(LoggedMode::of(Mode::Async), &[100.0, 101.0]),
            condition(LoggedMode::of(Mode::SemiSync), &[300.0, 302.0]),
        ];
        assert_eq!(self::steps(&all)[0].baseline.mode, Mode::Async);
    }

    #[test]
    fn sustained_rate_is_unknown_if_a_block_was_not_applied() {
        let mut condition = condition(LoggedMode::of(Mode::Async), &[100.0, 101.0]);
        let row = condition.row(None, None, "relaxed");
        let ratio = row.throughput.mean.unwrap() / row.sustained.mean.unwrap();
        assert!((ratio - 2.0).abs() < 1e-9);
        condition.starts[0].sustained.pop();
        assert_eq!(
            condition.row(None, None, "relaxed").sustained,
            Rate::default()
        );
    }

    #[test]
    fn block_weight_is_its_operation_count() {
        // 90 operations of 100 µs and 10 of 1,000 µs are 190 µs on average, not 550.
        let values = weighted(&[100.0, 1000.0], &[90.0, 10.0]);
        assert!(
            (values.iter().sum::<f64>() / 2.0 - 190.0).abs() < 1e-9,
            "{values:?}"
        );
        assert_eq!(weighted(&[5.0, 7.0], &[3.0, 3.0]), [5.0, 7.0]);
        assert_eq!(weighted(&[5.0], &[]), [5.0]);
    }

    #[test]
    fn both_starts_of_a_round_count_in_a_self_test() {
        let mut both = condition(LoggedMode::NONE, &[100.0, 200.0]);
        both.starts.iter_mut().for_each(|start| start.round = 1);
        let row = both.row(None, None, "relaxed");
        // The means of the starts are 101 and 201 µs.
        assert_eq!(row.latency_mean_us.value, Some(151.0));
        assert!(row.throughput.ci95.low.is_some(), "{:?}", row.throughput);
    }

    #[test]
    fn start_without_counted_block_is_ignored() {
        let mut one = condition(LoggedMode::NONE, &[100.0]);
        one.begin(2);
        one.end();
        assert_eq!(one.starts.len(), 1);
        // One start has no interval.
        assert_eq!(one.row(None, None, "relaxed").throughput.ci95.low, None);
        assert!(Condition::new(key(LoggedMode::NONE, 1)).is_empty());
    }
}
