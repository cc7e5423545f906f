//! From blocks to the rows of a price list.

use replimeter_measure::cost::Block;
use replimeter_model::{
    cost::{
        Added, Behind, BlockRecord, CostClient, CostKind, CostRow, CostStep, Relative,
        RelativeLatency, SelfComparison, StartRecord,
    },
    engine::Engine,
    estimate::Estimate,
    load::{LoadError, Rate},
    resources::ServerUse,
    sandbox::WaitPoint,
    span::Span,
    time::Nanos,
};
use replimeter_report::{cost_blocks::CostBlocks, rows::Rows};
use replimeter_stats::{
    bootstrap::{self, of_difference, of_positive_mean, of_ratio},
    series::distribution,
    signed::SignedHistogram,
};
use serde::{Deserialize, Serialize};

use crate::workloads::add_errors;

/// What is measured, piece by piece.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The modes for which there are servers, and why there are none for others.
    Modes {
        modes: Vec<Mode>,
        left_out: Vec<String>,
    },
    /// The rows that there will be, which are numbered from 0.
    Rows(Vec<Key>),
    /// A mode is to be compared with itself: the rows of the two sides begin anew.
    Comparison,
    /// Servers were started.
    Start(StartRecord),
    /// How durably servers write, in words.
    Durability(String),
    /// Empty questions a second that the client gets answered.
    Limit {
        engine: Engine,
        threads: u32,
        per_s: f64,
    },
    /// Blocks of a row begin, and of a side of a comparison.
    Row { row: usize, side: Option<usize> },
    /// A block.
    Block(Box<Block>),
    /// The servers are gone that these rows were measured on.
    StartEnded {
        rows: Vec<usize>,
        side: Option<usize>,
    },
    /// The two sides are measured.
    Compared,
    /// The share of the run in which this machine's cores were idle.
    Idle(f64),
}

/// A mode of which there are servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mode {
    pub(crate) engine: Engine,
    /// The mode and its wait point.
    pub(crate) mode: String,
    /// What the manifest calls its servers.
    pub(crate) label: String,
}

/// Everything gathered while the run goes on.
#[derive(Default)]
pub(crate) struct PriceList {
    pub(crate) modes: Vec<Mode>,
    pub(crate) left_out: Vec<String>,
    pub(crate) all: Vec<Gathered>,
    /// For each engine and number of threads the client's own limit.
    pub(crate) limits: Vec<(Engine, u32, f64)>,
    pub(crate) order: Vec<StartRecord>,
    /// What the settings of durability are, for each engine.
    pub(crate) durability: Vec<String>,
    /// Comparisons of a mode with itself.
    pub(crate) compared: Vec<SelfComparison>,
    pub(crate) idle: Option<f64>,
    sides: Vec<Gathered>,
    /// The row, and the side, that blocks are of.
    under_way: (usize, Option<usize>),
    /// The blocks of it so far.
    blocks: u32,
}

impl PriceList {
    /// Adds a piece, and its row to the samples.
    pub(crate) fn take(&mut self, call: Call, rows: &mut Rows<CostBlocks>) {
        match call {
            Call::Modes { modes, left_out } => (self.modes, self.left_out) = (modes, left_out),
            Call::Rows(keys) => self.all.extend(keys.into_iter().map(Gathered::new)),
            Call::Comparison => {
                self.sides = self
                    .all
                    .iter()
                    .take(1)
                    .flat_map(|row| [row, row])
                    .map(|row| Gathered::new(row.key.clone()))
                    .collect();
            }
            Call::Start(record) => self.order.push(record),
            Call::Durability(words) => self.durability.push(words),
            Call::Limit {
                engine,
                threads,
                per_s,
            } => self.limits.push((engine, threads, per_s)),
            Call::Row { row, side } => {
                (self.under_way, self.blocks) = ((row, side), 0);
                self.each(&[row], side, Gathered::begin);
            }
            Call::Block(block) => {
                let (row, side) = self.under_way;
                self.blocks += 1;
                if let Some(of) = self.all.get(row) {
                    let round = self.order.last().map_or(0, |start| start.round);
                    rows.add(record(&of.key, round, self.blocks, &block));
                }
                self.each(&[row], side, |gathered| gathered.record(&block));
            }
            Call::StartEnded { rows, side } => self.each(&rows, side, Gathered::end),
            Call::Compared => {
                if let [one, other] = self.sides.as_slice() {
                    self.compared.push(against_itself(one, other));
                }
            }
            Call::Idle(share) => self.idle = Some(share),
        }
    }

    /// Does something to rows, and to a side of a comparison.
    fn each(&mut self, rows: &[usize], side: Option<usize>, mut what: impl FnMut(&mut Gathered)) {
        let side = side.and_then(|side| self.sides.get_mut(side));
        side.into_iter().for_each(&mut what);
        for row in rows {
            self.all.get_mut(*row).into_iter().for_each(&mut what);
        }
    }
}

/// A block's row.
fn record(key: &Key, round: u32, number: u32, block: &Block) -> BlockRecord {
    let result = &block.result;
    let operations = (result.operations > 0).then_some(result.operations as f64);
    let cpu: Vec<Option<f64>> = block.uses.iter().map(|used| used.cpu_us).collect();
    let per_operation =
        |us: Option<f64>| us.zip(operations).map(|(us, operations)| us / operations);
    BlockRecord {
        round,
        engine: key.engine.name().to_owned(),
        mode: key.kind.name().to_owned(),
        wait_point: key.wait_point.map(|point| point.name().to_owned()),
        replicas: key.replicas,
        threads: key.threads,
        link_delay_us: key.delay.map(|delay| delay.0.as_secs_f64() * 1e6),
        block: number,
        void: block.void.clone(),
        began_us: result.began.as_micros(),
        counted_us: result.counted.as_micros(),
        operations: result.operations,
        retries: result.retries.iter().map(|retried| retried.count).sum(),
        failed: result.failed,
        latency: distribution(&result.service),
        primary_cpu_us_per_op: per_operation(cpu.first().copied().flatten()),
        all_cpu_us_per_op: per_operation(cpu.iter().copied().sum()),
        client_cpu_us_per_op: per_operation(Some(result.client_cpu.as_secs_f64() * 1e6)),
        behind: block.behind.iter().map(|(_, behind)| *behind).max(),
    }
}

/// What a row is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) engine: Engine,
    /// Product and version.
    pub(crate) version: String,
    pub(crate) kind: CostKind,
    pub(crate) wait_point: Option<WaitPoint>,
    /// Servers beside the one that is written to.
    pub(crate) replicas: u32,
    pub(crate) threads: u32,
    /// One-way delay of the links.
    pub(crate) delay: Option<Span>,
}

/// One start's counted blocks.
#[derive(Clone, Debug, Default)]
struct Start {
    /// Operations per second of each block.
    throughput: Vec<f64>,
    /// Operations of each block that has some.
    operations: Vec<f64>,
    /// Mean latency of each such block, in microseconds.
    mean: Vec<f64>,
    /// Processor time per operation of the server that is written to, of each block.
    primary_cpu: Vec<f64>,
    /// Of all servers.
    all_cpu: Vec<f64>,
    /// Latencies of all blocks; given up for the figures when the start is over.
    latency: SignedHistogram,
    figures: Option<Figures>,
}

/// What is left of a start's latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    stdev: Option<f64>,
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

/// Everything gathered for one row.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    pub(crate) key: Key,
    starts: Vec<Start>,
    latency: SignedHistogram,
    uses: Vec<ServerUse>,
    operations: u64,
    statements: u64,
    counted_ns: i64,
    void: u64,
    retries: u64,
    failed: u64,
    errors: Vec<LoadError>,
    behind: Vec<Behind>,
    client_cpu_us: f64,
    client_delay_us: Option<f64>,
}

impl Gathered {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            starts: Vec::new(),
            latency: SignedHistogram::default(),
            uses: Vec::new(),
            operations: 0,
            statements: 0,
            counted_ns: 0,
            void: 0,
            retries: 0,
            failed: 0,
            errors: Vec::new(),
            behind: Vec::new(),
            client_cpu_us: 0.0,
            client_delay_us: Some(0.0),
        }
    }

    /// Another start of the servers.
    pub(crate) fn begin(&mut self) {
        self.starts.push(Start::default());
    }

    /// The start is over.
    pub(crate) fn end(&mut self) {
        let Some(start) = self.starts.last_mut() else {
            return;
        };
        if start.throughput.is_empty() {
            // One without a block that counts says nothing.
            self.starts.pop();
            return;
        }
        let figures = distribution(&start.latency);
        start.figures = Some(Figures {
            stdev: figures.stdev_us,
            p50: figures.p50_us,
            p95: figures.p95_us,
            p99: figures.p99_us,
            max: figures.max_us,
        });
        self.latency.merge(&std::mem::take(&mut start.latency));
    }

    /// A block of the start under way.
    pub(crate) fn record(&mut self, block: &Block) {
        if block.void.is_some() {
            self.void += 1;
            return;
        }
        let result = &block.result;
        self.retries += result
            .retries
            .iter()
            .map(|retried| retried.count)
            .sum::<u64>();
        self.failed += result.failed;
        add_errors(&mut self.errors, &result.errors);
        let (seconds, operations) = (result.counted.0 as f64 / 1e9, result.operations as f64);
        let Some(start) = self.starts.last_mut().filter(|_| seconds > 0.0) else {
            return;
        };
        start.throughput.push(operations / seconds);
        self.counted_ns += result.counted.0;
        self.operations += result.operations;
        self.statements += result.statements;
        self.client_cpu_us += result.client_cpu.as_secs_f64() * 1e6;
        self.client_delay_us = self
            .client_delay_us
            .zip(result.client_delay)
            .map(|(sum, delay)| sum + delay.as_secs_f64() * 1e6);
        for (name, behind) in &block.behind {
            if !self.behind.iter().any(|known| known.name == *name) {
                self.behind.push(Behind {
                    name: name.clone(),
                    ..Behind::default()
                });
            }
            if let Some(known) = self.behind.iter_mut().find(|known| known.name == *name) {
                known.mean =
                    (known.mean * known.blocks as f64 + *behind as f64) / (known.blocks + 1) as f64;
                known.blocks += 1;
                known.max = known.max.max(*behind);
            }
        }
        for used in &block.uses {
            match self.uses.iter_mut().find(|known| known.name == used.name) {
                Some(known) => known.add(used),
                None => self.uses.push(used.clone()),
            }
        }
        if result.operations == 0 {
            return;
        }
        start.operations.push(operations);
        start
            .mean
            .extend(result.service.mean().map(|nanos| nanos / 1e3));
        start.latency.merge(&result.service);
        let cpu: Vec<Option<f64>> = block.uses.iter().map(|used| used.cpu_us).collect();
        start
            .primary_cpu
            .extend(cpu.first().copied().flatten().map(|cpu| cpu / operations));
        start.all_cpu.extend(
            cpu.iter()
                .copied()
                .sum::<Option<f64>>()
                .map(|cpu| cpu / operations),
        );
    }

    /// Whether anything counts.
    pub(crate) fn is_empty(&self) -> bool {
        self.starts.iter().all(|start| start.throughput.is_empty())
    }

    /// Whether blocks counted and nothing was done in them.
    pub(crate) fn idle(&self) -> bool {
        !self.is_empty() && self.operations == 0
    }

    /// The words of an error, if there was any.
    pub(crate) fn first_error(&self) -> Option<&str> {
        self.errors.first().map(|error| error.message.as_str())
    }

    /// Latencies of the counted blocks of all starts that are over, and their name.
    pub(crate) fn latencies(&self) -> (String, SignedHistogram) {
        let key = &self.key;
        let engine = key.engine.name();
        let point = key
            .wait_point
            .map_or_else(String::new, |point| format!("/{}", point.name()));
        let delay = key
            .delay
            .map_or_else(String::new, |delay| format!("/{delay}"));
        (
            format!(
                "{engine}/{}{point}/{}{delay}/latency",
                key.kind.name(),
                key.threads
            ),
            self.latency.clone(),
        )
    }

    /// Counted time.
    pub(crate) fn counted(&self) -> Nanos {
        Nanos(self.counted_ns)
    }

    /// Blocks that do not count.
    pub(crate) fn void(&self) -> u64 {
        self.void
    }

    fn values(&self, pick: impl Fn(&Start) -> Vec<f64>) -> Vec<Vec<f64>> {
        self.starts.iter().map(pick).collect()
    }

    fn throughputs(&self) -> Vec<Vec<f64>> {
        self.values(|start| start.throughput.clone())
    }

    fn means(&self) -> Vec<Vec<f64>> {
        self.per_operation(|start| &start.mean)
    }

    /// Values per operation of each start, whose blocks weigh as many operations as they have.
    fn per_operation(&self, pick: fn(&Start) -> &Vec<f64>) -> Vec<Vec<f64>> {
        self.values(|start| weighted(pick(start), &start.operations))
    }

    /// A figure of each start as a whole; empty when one start is too short for it.
    fn figures(&self, pick: fn(&Figures) -> Option<f64>) -> Vec<Vec<f64>> {
        let all: Option<Vec<Vec<f64>>> = self
            .starts
            .iter()
            .map(|start| Some(vec![pick(start.figures.as_ref()?)?]))
            .collect();
        all.unwrap_or_default()
    }

    fn throughput(&self) -> Rate {
        let values = self.throughputs();
        let estimate = of_positive_mean(&values);
        let blocks = values.concat();
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
            low: estimate.low,
            high: estimate.high,
        }
    }

    fn relative(&self, none: &Self) -> Relative {
        if self.key == none.key {
            // What it is of itself is known without an interval.
            return Relative {
                against: CostKind::None.name().to_owned(),
                throughput: Some(1.0),
                ..Relative::default()
            };
        }
        let throughput = of_ratio(&self.throughputs(), &none.throughputs());
        let figure =
            |pick: fn(&Figures) -> Option<f64>| of_ratio(&self.figures(pick), &none.figures(pick));
        Relative {
            against: CostKind::None.name().to_owned(),
            throughput: throughput.value,
            low: throughput.low,
            high: throughput.high,
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

    /// What it adds to another.
    fn added(&self, to: &Self) -> Added {
        let difference = |own: Vec<Vec<f64>>, other: Vec<Vec<f64>>| {
            // A server whose processor time was not known all the while has none.
            let whole = |values: &bootstrap::Starts, gathered: &Self| {
                values
                    .iter()
                    .zip(&gathered.starts)
                    .all(|(values, start)| values.len() == start.mean.len())
            };
            if whole(&own, self) && whole(&other, to) {
                of_difference(&own, &other)
            } else {
                Estimate::default()
            }
        };
        Added {
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
        let operations = (self.operations > 0).then_some(self.operations as f64);
        let per_s =
            (self.counted_ns > 0).then(|| self.statements as f64 * 1e9 / self.counted_ns as f64);
        CostClient {
            cpu_us_per_op: operations.map(|operations| self.client_cpu_us / operations),
            limit_per_s: limit,
            percent_of_limit: limit
                .zip(per_s)
                .filter(|(limit, _)| *limit > 0.0)
                .map(|(limit, per_s)| per_s / limit * 100.0),
            delay_us_per_op: operations
                .zip(self.client_delay_us)
                .map(|(operations, delay)| delay / operations),
        }
    }

    fn row(&self, none: Option<&Self>, limit: Option<f64>, durability: &str) -> CostRow {
        let key = &self.key;
        CostRow {
            engine: key.engine.name().to_owned(),
            version: key.version.clone(),
            mode: key.kind.name().to_owned(),
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
            void_blocks: self.void,
            counted_us: self.counted_ns as f64 / 1e3,
            operations: self.operations,
            retries: self.retries,
            failed: self.failed,
            errors: self.errors.clone(),
            throughput: self.throughput(),
            latency: distribution(&self.latency),
            latency_mean_us: of_positive_mean(&self.means()),
            relative: none.map(|none| self.relative(none)).unwrap_or_default(),
            added: none
                .filter(|none| none.key != *key)
                .map(|none| self.added(none))
                .unwrap_or_default(),
            servers: self
                .uses
                .iter()
                .map(|used| used.per_operation(self.operations))
                .collect(),
            behind: self.behind.clone(),
            client: self.client(limit),
        }
    }
}

/// Values whose plain mean is the weighted one, and which deviate from it as the ratio of
/// the two sums does, by their residuals (Cochran 1977, §6.3); as they are where a weight
/// is missing.
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

/// Whose `none`, or whose other mode, a row is held against: of the same binary, at as
/// many threads, over the same distance where the other has one.
fn fellow<'g>(all: &'g [Gathered], key: &Key, kind: CostKind) -> Option<&'g Gathered> {
    all.iter().find(|other| {
        other.key.kind == kind
            && (&other.key.engine, &other.key.version, other.key.threads)
                == (&key.engine, &key.version, key.threads)
            && (!kind.replicates()
                || (other.key.delay, other.key.replicas) == (key.delay, key.replicas))
            && !other.is_empty()
    })
}

/// The rows, by engine, threads and distance in the order of the modes.
pub(crate) fn rows(
    all: &[Gathered],
    limits: &[(Engine, u32, f64)],
    durability: &str,
) -> Vec<CostRow> {
    let row = |gathered: &Gathered| {
        let key = &gathered.key;
        let limit = limits
            .iter()
            .find(|(engine, threads, _)| (*engine, *threads) == (key.engine, key.threads));
        gathered.row(
            fellow(all, key, CostKind::None),
            limit.map(|(_, _, limit)| *limit),
            durability,
        )
    };
    sorted(all).into_iter().map(row).collect()
}

fn sorted(all: &[Gathered]) -> Vec<&Gathered> {
    let mut counted: Vec<&Gathered> = all.iter().filter(|gathered| !gathered.is_empty()).collect();
    counted.sort_by_key(|gathered| {
        let key = &gathered.key;
        (
            key.engine != Engine::MariaDb,
            key.threads,
            key.kind,
            key.wait_point == Some(WaitPoint::AfterSync),
            key.replicas,
            key.delay,
        )
    });
    counted
}

/// What each mode adds to the one that it is built on, or to the next below that was
/// measured.
pub(crate) fn steps(all: &[Gathered]) -> Vec<CostStep> {
    let step = |gathered: &Gathered| {
        let key = &gathered.key;
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
            mode: key.kind.name().to_owned(),
            wait_point: key.wait_point.map(|point| point.name().to_owned()),
            against: other.key.kind.name().to_owned(),
            threads: key.threads,
            link_delay_us: key.delay.map(|delay| delay.0.as_secs_f64() * 1e6),
            throughput: of_ratio(&gathered.throughputs(), &other.throughputs()),
            added: gathered.added(other),
        })
    };
    sorted(all).into_iter().filter_map(step).collect()
}

/// One half of a mode's starts against the other.
pub(crate) fn against_itself(one: &Gathered, other: &Gathered) -> SelfComparison {
    let throughput = of_ratio(&one.throughputs(), &other.throughputs());
    SelfComparison {
        throughput,
        latency_us: of_difference(&one.means(), &other.means()),
        differs: throughput.excludes(1.0) == Some(true),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn key(kind: CostKind, threads: u32) -> Key {
        Key {
            engine: Engine::MariaDb,
            version: "MariaDB 1".to_owned(),
            kind,
            wait_point: (kind == CostKind::SemiSync).then_some(WaitPoint::AfterSync),
            replicas: u32::from(kind.replicates()),
            threads,
            delay: None,
        }
    }

    /// Starts of three blocks, each of one second with operations of so many microseconds.
    fn gathered(kind: CostKind, latencies: &[f64]) -> Gathered {
        let mut gathered = Gathered::new(key(kind, 1));
        for latency in latencies {
            gathered.begin();
            for block in 0..3 {
                let us = latency + f64::from(block);
                let start = gathered.starts.last_mut().unwrap();
                start.throughput.push(1e6 / us);
                start.mean.push(us);
                start.operations.push(100.0);
                start.primary_cpu.push(us / 2.0);
                start.all_cpu.push(us);
                (0..100).for_each(|_| start.latency.record(Nanos((us * 1e3) as i64)));
            }
            gathered.operations += 300;
            gathered.counted_ns += 3_000_000_000;
            gathered.end();
        }
        gathered
    }

    #[test]
    fn a_mode_is_held_against_none_of_the_same_binary_and_threads() {
        let mut all = vec![
            gathered(CostKind::SemiSync, &[300.0, 302.0, 305.0, 299.0]),
            gathered(CostKind::None, &[100.0, 101.0, 102.0, 99.0]),
            gathered(CostKind::Async, &[120.0, 121.0, 119.0, 122.0]),
        ];
        all[2].key.version = "MariaDB 2".to_owned();
        let rows = rows(&all, &[(Engine::MariaDb, 1, 20_000.0)], "relaxed");
        assert_eq!(
            rows.iter().map(|row| row.mode.as_str()).collect::<Vec<_>>(),
            ["none", "async", "semi-sync"]
        );
        assert_eq!(
            (rows[0].relative.throughput, rows[0].relative.low),
            (Some(1.0), None)
        );
        assert_eq!(rows[1].relative.throughput, None, "of another binary");
        let semi_sync = &rows[2];
        let added = semi_sync.added.latency_us;
        assert!(
            (added.value.unwrap() - 201.0).abs() < 0.01
                && added.low.unwrap() < 201.0
                && 201.0 < added.high.unwrap()
        );
        assert!((semi_sync.added.primary_cpu_us.value.unwrap() - 100.5).abs() < 0.01);
        assert!(
            semi_sync.relative.high.unwrap() < 0.5,
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
    fn steps_pass_over_what_was_not_measured() {
        let all = [
            gathered(CostKind::None, &[100.0, 101.0]),
            gathered(CostKind::SemiSync, &[300.0, 302.0]),
        ];
        let steps = steps(&all);
        assert_eq!(
            (
                steps.len(),
                steps[0].mode.as_str(),
                steps[0].against.as_str()
            ),
            (1, "semi-sync", "none")
        );
        let all = [
            gathered(CostKind::Async, &[100.0, 101.0]),
            gathered(CostKind::SemiSync, &[300.0, 302.0]),
        ];
        assert_eq!(self::steps(&all)[0].against, "async");
    }

    #[test]
    fn a_block_weighs_as_many_operations_as_it_has() {
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
    fn a_start_without_a_counted_block_does_not_count() {
        let mut one = gathered(CostKind::None, &[100.0]);
        one.begin();
        one.end();
        assert_eq!(one.starts.len(), 1);
        // One start has no interval.
        assert_eq!(one.row(None, None, "relaxed").throughput.low, None);
        assert!(Gathered::new(key(CostKind::None, 1)).is_empty());
    }
}
