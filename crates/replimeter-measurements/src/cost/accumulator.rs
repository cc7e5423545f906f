//! Aggregates blocks during the measurement.

use crate::cost::blocks::CostBlocks;
use replimeter_instruments::{
    cost::results::{BlockRecord, SelfComparison, StartRecord},
    load::GroupResult,
    trial::Block,
};
use replimeter_model::engine::Engine;
use replimeter_render::rows::Rows;
use replimeter_stats::series::distribution;
use serde::{Deserialize, Serialize};

use super::{
    condition::{Condition, ConditionKey},
    results::self_comparison,
};

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The modes with servers, and why other modes have none.
    Modes {
        modes: Vec<MeasuredMode>,
        left_out: Vec<String>,
    },
    /// The rows of the results, numbered from 0.
    Rows(Vec<ConditionKey>),
    /// A comparison of a mode with itself begins: resets the rows of the two sides.
    Comparison,
    /// Servers were started.
    Start(StartRecord),
    /// The durability settings of servers, as text.
    Durability(String),
    /// The client's ping limit, per second.
    Limit {
        engine: Engine,
        threads: u32,
        per_s: f64,
    },
    /// Blocks of a row, and of a side of a comparison, begin.
    Row { row: usize, side: Option<usize> },
    /// A block.
    Block(Box<Block>),
    /// The servers of these rows stopped.
    StartEnded {
        rows: Vec<usize>,
        side: Option<usize>,
    },
    /// Both sides of a comparison are measured.
    Compared,
    /// The share of the run in which this machine's cores were idle.
    Idle(f64),
}

/// A mode with servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MeasuredMode {
    pub(super) engine: Engine,
    /// The mode and its wait point.
    pub(super) mode: String,
    /// The label of its servers in the manifest.
    pub(super) label: String,
}

/// State gathered during the run.
#[derive(Default)]
pub(crate) struct Accumulator {
    pub(super) modes: Vec<MeasuredMode>,
    pub(super) left_out: Vec<String>,
    pub(super) all: Vec<Condition>,
    /// The client's ping limit for each engine and number of threads, per second.
    pub(super) limits: Vec<(Engine, u32, f64)>,
    pub(super) order: Vec<StartRecord>,
    /// The durability settings of each engine.
    pub(super) durability: Vec<String>,
    /// Comparisons of a mode with itself.
    pub(super) compared: Vec<SelfComparison>,
    pub(super) idle: Option<f64>,
    sides: Vec<Condition>,
    /// The row and side of the current blocks.
    under_way: (usize, Option<usize>),
    /// The number of its blocks so far.
    blocks: u32,
}

impl Accumulator {
    /// Adds an event, and its row to the samples.
    pub(super) fn take(&mut self, call: Call, rows: &mut Rows<CostBlocks>) {
        match call {
            Call::Modes { modes, left_out } => (self.modes, self.left_out) = (modes, left_out),
            Call::Rows(keys) => self.all.extend(keys.into_iter().map(Condition::new)),
            Call::Comparison => {
                self.sides = self
                    .all
                    .iter()
                    .take(1)
                    .flat_map(|row| [row, row])
                    .map(|row| Condition::new(row.key.clone()))
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
                let round = self.round();
                self.each(&[row], side, |condition| condition.begin(round));
            }
            Call::Block(block) => {
                let (row, side) = self.under_way;
                self.blocks += 1;
                if let (Some(of), Some(part)) = (self.all.get(row), block.parts.first()) {
                    rows.add(BlockRecord {
                        round: self.round(),
                        block: self.blocks,
                        ..record(&of.key, &block, &part.result)
                    });
                }
                self.each(&[row], side, |condition| condition.record(&block));
            }
            Call::StartEnded { rows, side } => self.each(&rows, side, Condition::end),
            Call::Compared => {
                if let [one, other] = self.sides.as_slice() {
                    self.compared.push(self_comparison(one, other));
                }
            }
            Call::Idle(share) => self.idle = Some(share),
        }
    }

    /// Returns the round of the current start.
    fn round(&self) -> u32 {
        self.order.last().map_or(0, |start| start.round)
    }

    /// Applies a change to rows, and to a side of a comparison.
    fn each(&mut self, rows: &[usize], side: Option<usize>, mut what: impl FnMut(&mut Condition)) {
        let side = side.and_then(|side| self.sides.get_mut(side));
        side.into_iter().for_each(&mut what);
        for row in rows {
            self.all.get_mut(*row).into_iter().for_each(&mut what);
        }
    }
}

/// Returns a block's row for the samples.
fn record(key: &ConditionKey, block: &Block, result: &GroupResult) -> BlockRecord {
    let operations = (result.operations > 0).then_some(result.operations as f64);
    let uses = block.used_until_applied().iter();
    let cpu: Vec<Option<f64>> = uses.map(|used| used.cpu_us).collect();
    let per_operation =
        |us: Option<f64>| us.zip(operations).map(|(us, operations)| us / operations);
    BlockRecord {
        engine: key.engine.name().to_owned(),
        mode: key.kind.name().to_owned(),
        wait_point: key.wait_point.map(|point| point.name().to_owned()),
        replicas: key.replicas,
        threads: key.threads,
        link_delay_us: key.delay.map(|delay| delay.0.as_secs_f64() * 1e6),
        invalid: block.invalid.clone(),
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
        caught_up_after_us: block.caught_up.map(|after| after.as_secs_f64() * 1e6),
        ..BlockRecord::default()
    }
}
