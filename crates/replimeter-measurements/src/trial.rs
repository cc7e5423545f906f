//! Blocks of a load on fresh starts of servers: sums over those that count, and their progress.

use replimeter_instruments::trial::{Block, BlockProgress};
use replimeter_model::{load::LoadError, resources::ServerUse, time::Nanos};
use replimeter_run::{Progress, ProgressDetail, Stage, workloads::add_errors};

use crate::selected_blocks::BlockRates;

/// Sums over the blocks of a condition.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockTotals {
    /// All blocks, also those that do not count.
    pub(crate) seen: Vec<BlockRates>,
    /// Invalid blocks.
    pub(crate) invalid: u32,
    pub(crate) counted: Nanos,
    pub(crate) operations: u64,
    pub(crate) statements: u64,
    pub(crate) retries: u64,
    pub(crate) failed: u64,
    pub(crate) errors: Vec<LoadError>,
    /// Resource use in the counted time.
    pub(crate) uses: Vec<ServerUse>,
    /// The same until every server had applied the blocks.
    pub(crate) until_applied: Vec<ServerUse>,
    /// Processor time of the load's threads.
    pub(crate) client_cpu_us: f64,
    /// Time in which they waited for a core, as far as it is known; `None` if it is for no block.
    pub(crate) client_delay_us: Option<f64>,
    /// Whether it is unknown for a block.
    pub(crate) delay_is_unknown: bool,
}

impl BlockTotals {
    /// Takes the rates of a block, whether or not it counts.
    pub(crate) fn see(&mut self, start: u32, block: &Block, counts: bool) {
        let per_s = block.parts.iter().filter_map(|part| {
            let seconds = part.result.counted.0 as f64 / 1e9;
            let per_s = part.result.operations as f64 / seconds;
            (seconds > 0.0).then(|| (part.kind.clone(), per_s))
        });
        self.seen.push(BlockRates {
            start,
            counts,
            disturbed: block.disturbance.is_some(),
            disk_wait: block.disk_wait,
            per_s: per_s.collect(),
        });
    }

    /// Adds a block that counts.
    pub(crate) fn add(&mut self, block: &Block) {
        self.counted = self.counted + block.counted();
        self.operations += block.operations();
        ServerUse::add_all(&mut self.uses, &block.uses);
        ServerUse::add_all(&mut self.until_applied, block.used_until_applied());
        for part in &block.parts {
            let result = &part.result;
            self.statements += result.statements;
            let retries = result.retries.iter().map(|retried| retried.count);
            self.retries += retries.sum::<u64>();
            self.failed += result.failed;
            add_errors(&mut self.errors, &result.errors);
            self.client_cpu_us += result.client_cpu.as_secs_f64() * 1e6;
            match result.client_delay {
                Some(delay) => {
                    *self.client_delay_us.get_or_insert_default() += delay.as_secs_f64() * 1e6;
                }
                None => self.delay_is_unknown = true,
            }
        }
    }
}

/// Converts a block's progress for display.
pub(crate) fn shown(step: BlockProgress<'_>) -> Progress {
    match step {
        BlockProgress::Load(second) => {
            let (stage, operation) = match second.counted {
                true => (Stage::Measure, "measuring"),
                false => (Stage::WarmUp, "warming up"),
            };
            let mut shown =
                Progress::new(stage, operation).done(second.at.0 as f64 / 1e9, None, "s");
            for load_group in &second.load_groups {
                shown = shown.with(ProgressDetail::Count(
                    load_group.operations,
                    "operations".into(),
                ));
            }
            shown
        }
        BlockProgress::Restoring => Progress::new(Stage::CleanUp, "restoring the data set"),
        BlockProgress::CatchingUp(behind) => {
            Progress::new(Stage::CleanUp, "waiting for replicas to apply")
                .with(ProgressDetail::Count(behind, "transactions behind".into()))
        }
    }
}
