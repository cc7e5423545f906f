//! Aggregates the blocks of one phase with one number of replicas.

use std::collections::{BTreeMap, BTreeSet};

use replimeter_instruments::scale::{Block, OperationResult, results::ScaleServer};
use replimeter_model::{load::LoadError, resources::ServerUse, time::Nanos};
use replimeter_run::workloads::add_errors;
use replimeter_stats::{signed::SignedHistogram, starts::Rounds};

use crate::selected_blocks::{BlockRates, rounds};

/// One phase with one number of replicas.
#[derive(Default)]
pub(super) struct Condition {
    pub(super) shape: String,
    /// Writes per second of the blocks, by start, over the time in which they were written and applied on
    /// every replica.
    pub(super) sustained: Rounds,
    pub(super) write_latency: SignedHistogram,
    pub(super) select_latency: SignedHistogram,
    pub(super) blocks: u32,
    pub(super) invalid: u32,
    /// All blocks, also those that do not count.
    pub(super) seen: Vec<BlockRates>,
    pub(super) counted: Nanos,
    pub(super) operations: u64,
    pub(super) retries: u64,
    pub(super) failed: u64,
    pub(super) errors: Vec<LoadError>,
    pub(super) caught_up_us: Option<f64>,
    pub(super) uses: Vec<ServerUse>,
    /// The same until every replica had applied the blocks.
    until_applied: Vec<ServerUse>,
    /// Selects by server.
    pub(super) selects: BTreeMap<String, u64>,
    pub(super) client_us: f64,
    /// Nanoseconds in which load threads waited for a core, and threads × time.
    pub(super) delayed: Option<f64>,
    pub(super) thread_us: f64,
    /// The largest share of the client's ping limit, in percent.
    pub(super) limit_percent: Option<f64>,
}

impl Condition {
    /// Takes what a block's choice depends on.
    pub(super) fn see(&mut self, start: u32, block: &Block, counts: bool) {
        let per_s = |part: &OperationResult| {
            let seconds = part.result.counted.0 as f64 / 1e9;
            (seconds > 0.0).then(|| (part.kind.clone(), part.result.operations as f64 / seconds))
        };
        self.seen.push(BlockRates {
            start,
            counts,
            disturbed: block.disturbance.is_some(),
            disk_wait: block.disk_wait,
            per_s: block.parts.iter().filter_map(per_s).collect(),
        });
    }

    /// Returns operations of a kind per second in the blocks that count, by start.
    pub(super) fn rates(&self, kind: &str) -> Rounds {
        rounds(&self.seen, kind, |block| block.counts)
    }

    /// Returns the number of starts with a block that counts.
    pub(super) fn starts(&self) -> u32 {
        let counted = self
            .seen
            .iter()
            .filter(|block| block.counts && !block.per_s.is_empty());
        let starts: BTreeSet<u32> = counted.map(|block| block.start).collect();
        starts.len() as u32
    }

    pub(super) fn add(&mut self, start: u32, block: Block) {
        self.blocks += 1;
        self.counted = self.counted + block.counted;
        self.operations += block.operations();
        if let Some(caught_up) = block.caught_up {
            let us = caught_up.as_secs_f64() * 1e6;
            self.caught_up_us = Some(self.caught_up_us.map_or(us, |longest| longest.max(us)));
        }
        ServerUse::add_all(&mut self.uses, &block.uses);
        ServerUse::add_all(&mut self.until_applied, block.used_until_applied());
        for OperationResult { kind, result, .. } in block.parts {
            let seconds = result.counted.0 as f64 / 1e9;
            if kind != "select" && seconds > 0.0 {
                let applied = block.caught_up.unwrap_or_default().as_secs_f64();
                let per_s = result.operations as f64 / (seconds + applied);
                self.sustained.entry(start).or_default().push(per_s);
            }
            if kind == "select" {
                self.select_latency.merge(&result.response);
                for share in &result.by_node {
                    *self.selects.entry(share.node.clone()).or_default() += share.operations;
                }
            } else {
                self.write_latency.merge(&result.response);
            }
            self.retries += result
                .retries
                .iter()
                .map(|retried| retried.count)
                .sum::<u64>();
            self.failed += result.failed;
            add_errors(&mut self.errors, &result.errors);
            if let Some(share) = result.client().limit_share {
                self.limit_percent = Some(self.limit_percent.unwrap_or(0.0).max(share * 100.0));
            }
            self.client_us += result.client_cpu.as_secs_f64() * 1e6;
            self.thread_us += result.counted.as_micros() * f64::from(result.threads);
            if let Some(delay) = result.client_delay {
                self.delayed = Some(self.delayed.unwrap_or(0.0) + delay.as_secs_f64() * 1e6);
            }
        }
    }

    pub(super) fn servers(&self) -> Vec<ScaleServer> {
        let seconds = self.counted.0 as f64 / 1e9;
        let one = |(used, applied): (&ServerUse, &ServerUse)| {
            let percent = |cpu: Option<f64>| {
                cpu.filter(|_| used.length_us > 0.0)
                    .map(|cpu| cpu / used.length_us * 100.0)
            };
            ScaleServer {
                per_operation: applied.per_operation(self.operations),
                cpu_percent: used.cpu_percent(),
                cpu_system_percent: percent(used.cpu_system_us),
                read_bytes_per_s: used.per_s(used.read_bytes),
                write_bytes_per_s: used.per_s(used.write_bytes),
                reads_per_s: used.per_s(used.reads),
                writes_per_s: used.per_s(used.writes),
                fsyncs_per_s: used.per_s(used.fsyncs),
                context_switches_per_s: used.per_s(used.context_switches),
                selects_per_s: self
                    .selects
                    .get(&used.name)
                    .filter(|_| seconds > 0.0)
                    .map(|count| *count as f64 / seconds),
            }
        };
        self.uses.iter().zip(&self.until_applied).map(one).collect()
    }
}
