//! Aggregates the blocks of one row of the results.

use replimeter_instruments::{
    cost::{results::ReplicaBehind, settings::LoggedMode},
    trial::Block,
};
use replimeter_model::{engine::Engine, sandbox::WaitPoint, time_span::TimeSpan};
use replimeter_stats::{series::distribution, signed::SignedHistogram};
use serde::{Deserialize, Serialize};

use crate::trial::BlockTotals;

/// The conditions of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConditionKey {
    pub(super) engine: Engine,
    /// Product and version.
    pub(super) version: String,
    pub(super) kind: LoggedMode,
    pub(super) wait_point: Option<WaitPoint>,
    /// Servers besides the one that is written to.
    pub(super) replicas: u32,
    pub(super) threads: u32,
    /// One-way delay of the links.
    pub(super) delay: Option<TimeSpan>,
}

/// The valid blocks of one start.
#[derive(Clone, Debug, Default)]
pub(super) struct StartBlocks {
    /// Round, from 1.
    pub(super) round: u32,
    /// Operations per second of each block.
    pub(super) throughput: Vec<f64>,
    /// The same with the time that the other servers took to apply the block; a block that they did not
    /// apply in time has none.
    pub(super) sustained: Vec<f64>,
    /// Operations of each block that has any.
    pub(super) operations: Vec<f64>,
    /// Mean latency of each such block, in µs.
    pub(super) mean: Vec<f64>,
    /// CPU time per operation of the server that is written to, of each block, in µs.
    pub(super) primary_cpu: Vec<f64>,
    /// The same for all servers.
    pub(super) all_cpu: Vec<f64>,
    /// Latencies of all blocks; dropped for the figures at the end of the start.
    pub(super) latency: SignedHistogram,
    pub(super) figures: Option<StartFigures>,
}

/// Quantiles of a start's latencies, in µs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StartFigures {
    pub(super) stdev: Option<f64>,
    pub(super) p50: Option<f64>,
    pub(super) p95: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) max: Option<f64>,
}

/// State gathered for one row.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) key: ConditionKey,
    pub(super) starts: Vec<StartBlocks>,
    pub(super) latency: SignedHistogram,
    pub(super) totals: BlockTotals,
    /// Starts that began, also those without a valid block.
    begun: u32,
    /// Blocks that some server did not apply in time.
    pub(super) unapplied: u64,
    pub(super) behind: Vec<ReplicaBehind>,
}

impl Condition {
    pub(super) fn new(key: ConditionKey) -> Self {
        Self {
            key,
            starts: Vec::new(),
            latency: SignedHistogram::default(),
            totals: BlockTotals::default(),
            begun: 0,
            unapplied: 0,
            behind: Vec::new(),
        }
    }

    /// Begins the start of a round.
    pub(super) fn begin(&mut self, round: u32) {
        self.begun += 1;
        self.starts.push(StartBlocks {
            round,
            ..StartBlocks::default()
        });
    }

    /// Ends the start.
    pub(super) fn end(&mut self) {
        let Some(start) = self.starts.last_mut() else {
            return;
        };
        if start.throughput.is_empty() {
            // A start without a valid block has no figures.
            self.starts.pop();
            return;
        }
        let figures = distribution(&start.latency);
        start.figures = Some(StartFigures {
            stdev: figures.stdev_us,
            p50: figures.p50_us,
            p95: figures.p95_us,
            p99: figures.p99_us,
            max: figures.max_us,
        });
        self.latency.merge(&std::mem::take(&mut start.latency));
    }

    /// Adds a block of the current start.
    pub(super) fn record(&mut self, block: &Block) {
        let Some(part) = block.parts.first() else {
            return;
        };
        let result = &part.result;
        let seconds = block.counted().0 as f64 / 1e9;
        self.totals.see(self.begun, block, block.invalid.is_none());
        if block.invalid.is_some() {
            self.totals.invalid += 1;
            return;
        }
        let operations = result.operations as f64;
        let Some(start) = self.starts.last_mut().filter(|_| seconds > 0.0) else {
            return;
        };
        self.totals.add(block);
        start.throughput.push(operations / seconds);
        let applied = block.caught_up.map(|after| after.as_secs_f64());
        let sustained = applied.map(|applied| operations / (seconds + applied));
        start.sustained.extend(sustained);
        self.unapplied += u64::from(applied.is_none() && !block.behind.is_empty());
        for (name, behind) in &block.behind {
            if !self.behind.iter().any(|known| known.name == *name) {
                self.behind.push(ReplicaBehind {
                    name: name.clone(),
                    ..ReplicaBehind::default()
                });
            }
            if let Some(known) = self.behind.iter_mut().find(|known| known.name == *name) {
                known.mean =
                    (known.mean * known.blocks as f64 + *behind as f64) / (known.blocks + 1) as f64;
                known.blocks += 1;
                known.max = known.max.max(*behind);
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
        let uses = block.used_until_applied().iter();
        let cpu: Vec<Option<f64>> = uses.map(|used| used.cpu_us).collect();
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

    /// Returns whether no block is valid.
    pub(super) fn is_empty(&self) -> bool {
        self.starts.iter().all(|start| start.throughput.is_empty())
    }

    /// Returns whether there are valid blocks without an operation.
    pub(super) fn idle(&self) -> bool {
        !self.is_empty() && self.totals.operations == 0
    }

    /// Returns the text of the first error, if there was one.
    pub(super) fn first_error(&self) -> Option<&str> {
        self.totals
            .errors
            .first()
            .map(|error| error.message.as_str())
    }

    /// Returns the latencies of the valid blocks of all ended starts, and their name.
    pub(super) fn latencies(&self) -> (String, SignedHistogram) {
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
}
