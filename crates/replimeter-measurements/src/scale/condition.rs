//! Aggregates the blocks of one phase with one number of replicas.

use std::collections::{BTreeMap, BTreeSet};

use replimeter_instruments::{scale::results::ScaleServer, trial::Block};
use replimeter_model::resources::ServerUse;
use replimeter_stats::{signed::SignedHistogram, starts::Rounds};

use crate::{selected_blocks::rounds, trial::BlockTotals};

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
    pub(super) totals: BlockTotals,
    pub(super) caught_up_us: Option<f64>,
    /// Selects by server.
    pub(super) selects: BTreeMap<String, u64>,
    /// Threads × time.
    pub(super) thread_us: f64,
    /// The largest share of the client's ping limit, in percent.
    pub(super) limit_percent: Option<f64>,
}

impl Condition {
    /// Returns operations of a kind per second in the blocks that count, by start.
    pub(super) fn rates(&self, kind: &str) -> Rounds {
        rounds(&self.totals.seen, kind, |block| block.counts)
    }

    /// Returns the number of starts with a block that counts.
    pub(super) fn starts(&self) -> u32 {
        let counted = self
            .totals
            .seen
            .iter()
            .filter(|block| block.counts && !block.per_s.is_empty());
        let starts: BTreeSet<u32> = counted.map(|block| block.start).collect();
        starts.len() as u32
    }

    pub(super) fn add(&mut self, start: u32, block: &Block) {
        self.blocks += 1;
        self.totals.add(block);
        if let Some(caught_up) = block.caught_up {
            let us = caught_up.as_secs_f64() * 1e6;
            self.caught_up_us = Some(self.caught_up_us.map_or(us, |longest| longest.max(us)));
        }
        for part in &block.parts {
            let result = &part.result;
            let seconds = result.counted.0 as f64 / 1e9;
            if part.kind == "select" {
                self.select_latency.merge(&result.response);
                for share in &result.by_node {
                    *self.selects.entry(share.node.clone()).or_default() += share.operations;
                }
            } else {
                self.write_latency.merge(&result.response);
                let applied = block.caught_up.unwrap_or_default().as_secs_f64();
                let per_s = result.operations as f64 / (seconds + applied);
                let rates = (seconds > 0.0).then(|| self.sustained.entry(start).or_default());
                rates.into_iter().for_each(|rates| rates.push(per_s));
            }
            if let Some(share) = result.client().limit_share {
                self.limit_percent = Some(self.limit_percent.unwrap_or(0.0).max(share * 100.0));
            }
            self.thread_us += result.counted.as_micros() * f64::from(result.threads);
        }
    }

    pub(super) fn servers(&self) -> Vec<ScaleServer> {
        let totals = &self.totals;
        let seconds = totals.counted.0 as f64 / 1e9;
        let one = |(used, applied): (&ServerUse, &ServerUse)| {
            let percent = |cpu: Option<f64>| {
                cpu.filter(|_| used.length_us > 0.0)
                    .map(|cpu| cpu / used.length_us * 100.0)
            };
            ScaleServer {
                per_operation: applied.per_operation(totals.operations),
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
        let uses = totals.uses.iter().zip(&totals.until_applied);
        uses.map(one).collect()
    }
}
