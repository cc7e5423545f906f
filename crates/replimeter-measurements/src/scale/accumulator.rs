//! Blocks of a scaling measurement, and their aggregates.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    scale::blocks::{BlockRow, BlockSubject, Blocks, Operations},
    selected_blocks,
};
use replimeter_instruments::{
    scale::{
        results::ScaleFit,
        settings::{ScalePhase, ScalePlan},
    },
    trial::{Block, OperationResult},
};
use replimeter_model::{
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_render::rows::Rows;
use replimeter_run::{cli_error::CliError, workloads::NEAR_LIMIT};
use replimeter_stats::signed::SignedHistogram;
use serde::{Deserialize, Serialize};

use super::condition::Condition;

/// What to do about a server that was out of use.
const OUT_OF_USE: &str =
    "see the error logs of the servers that were out of use, and whether the machine is overloaded";

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The round of this number begins.
    Round(u32),
    /// Servers with this number of replicas are started in it.
    Start { replicas: u32 },
    /// Servers have their data set.
    Filled {
        rows: u64,
        bytes: u64,
        warnings: Vec<Warning>,
    },
    /// A block, perhaps incomplete.
    Block {
        place: BlockPlace,
        block: Box<Block>,
    },
}

/// The round, start and shape of a block.
#[derive(Serialize, Deserialize)]
pub(crate) struct BlockPlace {
    pub(super) shape: String,
    pub(super) replicas: u32,
    pub(super) start: u32,
    pub(super) block: u32,
    pub(super) phase: ScalePhase,
}

/// State gathered during the run.
#[derive(Default)]
pub(crate) struct Accumulator {
    pub(super) conditions: BTreeMap<(u32, ScalePhase), Condition>,
    /// Blocks of any kind that began.
    seen: u64,
    /// Rows and bytes of the data set.
    pub(super) data: (u64, u64),
    pub(super) fits: Vec<ScaleFit>,
    /// Numbers of replicas in start order, by round.
    pub(super) order: Vec<Vec<u32>>,
    /// Warnings, and the number of blocks or starts that had them.
    found: Vec<(Warning, u32)>,
    invalid: BTreeSet<String>,
    /// Why blocks do not count behind a site.
    absences: BTreeSet<String>,
}

impl Accumulator {
    /// Adds an event, and its rows to the samples.
    pub(crate) fn take(&mut self, plan: &ScalePlan, call: Call, samples: &mut Rows<Blocks>) {
        match call {
            Call::Round(_) => self.order.push(Vec::new()),
            Call::Start { replicas } => self
                .order
                .last_mut()
                .into_iter()
                .for_each(|order| order.push(replicas)),
            Call::Filled {
                rows,
                bytes,
                warnings,
            } => {
                self.data = (rows, bytes);
                warnings.into_iter().for_each(|warning| self.note(warning));
            }
            Call::Block { place, block } => {
                self.add(&place, *block, Nanos::from(plan.duration.0), samples);
            }
        }
    }

    /// Keeps a warning, or counts it if it is about the same as an earlier one.
    fn note(&mut self, warning: Warning) {
        let about = |warning: &Warning| {
            (
                warning.code,
                warning
                    .message
                    .split(": ")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        };
        match self
            .found
            .iter_mut()
            .find(|(known, _)| about(known) == about(&warning))
        {
            Some((_, times)) => *times += 1,
            None => self.found.push((warning, 1)),
        }
    }

    /// Returns whether no block began.
    pub(super) fn is_empty(&self) -> bool {
        self.seen == 0
    }

    /// Adds a block; one that does not count, or is shorter than `wanted`, is added only to the samples.
    fn add(&mut self, place: &BlockPlace, block: Block, wanted: Nanos, samples: &mut Rows<Blocks>) {
        self.seen += 1;
        let whole = block.counted().0 * 100 >= wanted.0 * 99;
        let repeated = block.disturbance.as_ref().is_some_and(|one| one.repeated);
        let valid = block.invalid.is_none() && block.absence.is_none() && !repeated;
        let counts = whole && valid;
        rows(place, &block, counts)
            .into_iter()
            .for_each(|row| samples.add(row));
        block
            .parts
            .iter()
            .flat_map(|part| part.result.warnings())
            .for_each(|warning| self.note(warning));
        let (shape, phase) = (&place.shape, place.phase.name());
        for (reason, reasons) in [
            (&block.invalid, &mut self.invalid),
            (&block.absence, &mut self.absences),
        ] {
            if let Some(reason) = reason {
                reasons.insert(format!("{shape}, {phase}: {reason}"));
            }
        }
        if let Some(disturbance) = &block.disturbance {
            let (what, hint) = match disturbance.repeated {
                true => (
                    "a block does not count and was measured again",
                    "no action needed, unless it happens often: then use a machine whose cores are not shared",
                ),
                false => (
                    "a block counts although it was disturbed, after its repetitions",
                    "run again on a machine whose cores are not shared",
                ),
            };
            let message = format!("{what}: {shape}, {phase}: {}", disturbance.reason);
            self.note(Warning::new(WarningCode::MachineDisturbed, message, hint));
        }
        let key = (place.replicas, place.phase);
        let condition = self.conditions.entry(key).or_default();
        condition.shape.clone_from(shape);
        condition.totals.invalid += u32::from(!valid);
        condition.totals.see(place.start, &block, counts);
        if counts {
            condition.add(place.start, &block);
        }
    }

    /// Returns the warnings; `free` if servers have no fixed share of the machine.
    pub(super) fn warnings(&self, cores: u32, free: bool) -> Vec<Warning> {
        let counted = |(warning, times): &(Warning, u32)| match times {
            1 => warning.clone(),
            _ => Warning {
                message: format!("{} ({times} times; the first)", warning.message),
                ..warning.clone()
            },
        };
        let mut warnings: Vec<Warning> = self.found.iter().map(counted).collect();
        for invalid in &self.invalid {
            warnings.push(Warning::new(
                WarningCode::AcknowledgementNotInEffect,
                format!("{invalid}; the block is excluded"),
                "find out why no replica acknowledged before the timeout",
            ));
        }
        for absence in &self.absences {
            warnings.push(Warning::new(
                WarningCode::ServerLost,
                format!("{absence}; the block is excluded"),
                OUT_OF_USE,
            ));
        }
        let most = self
            .conditions
            .values()
            .map(|condition| {
                let uses = condition.totals.uses.iter();
                uses.filter(|used| !matches!(used.role.as_str(), "front" | "balancer"))
                    .count()
            })
            .max()
            .unwrap_or(0);
        let shared = self
            .conditions
            .values()
            .flat_map(|condition| &condition.totals.uses)
            .any(|used| used.cpu_us.is_some());
        if shared && free && most + 1 > cores as usize {
            warnings.push(Warning::new(
                WarningCode::ClientLimited,
                format!("up to {most} servers and the load share {cores} cores: throughput includes this machine's limit, not only the effect of replicas"),
                "run on a machine with at least one core per server, or give each server a fixed share with --cpus-per-server",
            ));
        }
        for ((replicas, phase), condition) in &self.conditions {
            if let Some(waits) = selected_blocks::disk_waits(&condition.totals.seen) {
                warnings.push(Warning::new(
                    WarningCode::MachineDisturbed,
                    format!(
                        "{replicas} replicas, {}: threads waited for a disk in up to {:.0} % of a block's time, and in {:.0} % of that of the median block: others \
                         may have used it",
                        phase.name(),
                        waits.longest * 100.0,
                        waits.median * 100.0
                    ),
                    "see the rates without such blocks, or run again while nothing else writes to the disk",
                ));
            }
            if let Some(percent) = condition
                .limit_percent
                .filter(|percent| *percent >= NEAR_LIMIT)
            {
                warnings.push(Warning::new(
                    WarningCode::ClientLimited,
                    format!(
                        "{replicas} replicas, {}: the client is the bottleneck: throughput reached {percent:.0} % of its ping limit",
                        phase.name()
                    ),
                    "use fewer threads, or run the client on a machine with more cores",
                ));
            }
        }
        warnings
    }

    /// Returns why there are no results although all blocks ran, if so.
    pub(super) fn invalid(&self) -> Option<CliError> {
        let nothing = self
            .conditions
            .values()
            .all(|condition| condition.blocks == 0);
        let first = |reasons: &BTreeSet<String>| reasons.first().filter(|_| nothing).cloned();
        let invalid = first(&self.invalid).map(|reason| {
            CliError::invalid(
                reason,
                "every block mixes semi-synchronous and asynchronous commits; find out why no replica acknowledged before the timeout, then run again",
            )
        });
        invalid.or_else(|| Some(CliError::invalid(first(&self.absences)?, OUT_OF_USE)))
    }

    /// Returns latencies by number of replicas, phase and kind, with their names.
    pub(super) fn latencies(&self) -> Vec<(String, SignedHistogram)> {
        let conditions = self
            .conditions
            .iter()
            .flat_map(|((replicas, phase), condition)| {
                [
                    ("write", &condition.write_latency),
                    ("select", &condition.select_latency),
                ]
                .map(|(kind, latency)| {
                    (
                        format!("replicas:{replicas}/{}/{kind}", phase.name()),
                        latency.clone(),
                    )
                })
            });
        conditions.collect()
    }

    /// Returns the measured time of all blocks.
    pub(super) fn counted(&self) -> Nanos {
        Nanos(
            self.conditions
                .values()
                .map(|condition| condition.totals.counted.0)
                .sum(),
        )
    }
}

/// Returns a block's rows for the samples.
fn rows(place: &BlockPlace, block: &Block, counts: bool) -> Vec<BlockRow> {
    const SECOND_US: f64 = 1e6;
    let (began_us, length_us) = (block.began().as_micros(), block.counted().as_micros());
    let row = |name: &str, second: Option<u32>, about: BlockSubject| BlockRow {
        shape: place.shape.clone(),
        replicas: place.replicas,
        start: place.start,
        block: place.block,
        phase: place.phase.name().to_owned(),
        counts,
        name: name.to_owned(),
        second,
        began_us: began_us + second.map_or(0.0, |second| f64::from(second) * SECOND_US),
        length_us: if second.is_some() {
            SECOND_US
        } else {
            length_us
        },
        about,
    };
    let mut rows = Vec::new();
    for part in &block.parts {
        let OperationResult { kind, result, .. } = part;
        let response = &result.response;
        let latency = || {
            [
                response.quantile(0.5),
                response.quantile(0.95),
                response.quantile(0.99),
                response.max(),
            ]
            .map(|nanos| nanos.map(Nanos::as_micros))
        };
        let whole = Operations {
            completed: result.operations,
            latency_us: part.latency_us.unwrap_or_else(latency),
            retries: Some(result.retries.iter().map(|retried| retried.count).sum()),
            failed: Some(result.failed),
            caught_up_after_us: block.caught_up.map(|after| after.as_secs_f64() * 1e6),
        };
        rows.push(row(kind, None, BlockSubject::Load(whole)));
        for (second, operations) in (0..).zip(&result.per_second) {
            let load = Operations {
                completed: *operations,
                ..Operations::default()
            };
            rows.push(row(kind, Some(second), BlockSubject::Load(load)));
        }
    }
    for used in block.used_until_applied() {
        let subject = BlockSubject::Server(Box::new(used.clone()));
        rows.push(BlockRow {
            length_us: used.length_us,
            ..row(&used.name, None, subject)
        });
    }
    for (second, uses) in (0..).zip(&block.timeline) {
        rows.extend(uses.iter().map(|used| {
            row(
                &used.name,
                Some(second),
                BlockSubject::Server(Box::new(used.clone())),
            )
        }));
    }
    rows
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::{
        load::GroupResult,
        trial::{Disturbance, OperationResult},
    };

    use super::*;

    #[test]
    fn disturbed_blocks_do_not_count_and_are_named_once() {
        const SECOND: Nanos = Nanos(1_000_000_000);
        let block = |repeated: Option<bool>| Block {
            parts: vec![OperationResult {
                kind: "insert".to_owned(),
                result: GroupResult {
                    counted: SECOND,
                    ..GroupResult::default()
                },
                latency_us: None,
            }],
            disturbance: repeated.map(|repeated| Disturbance {
                reason: "steal".to_owned(),
                repeated,
            }),
            ..Block::default()
        };
        let place = BlockPlace {
            shape: "none".to_owned(),
            replicas: 0,
            start: 1,
            block: 1,
            phase: ScalePhase::Insert,
        };
        let mut rows = Rows::new(Blocks);
        let mut accumulator = Accumulator::default();
        for repeated in [Some(true), Some(true), None] {
            accumulator.add(&place, block(repeated), SECOND, &mut rows);
        }
        let condition = &accumulator.conditions[&(0, ScalePhase::Insert)];
        assert_eq!((condition.blocks, condition.totals.invalid), (1, 2));
        let warnings = accumulator.warnings(8, true);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].message.contains("none, insert: steal (2 times"),
            "{warnings:?}"
        );
        assert!(accumulator.invalid().is_none());
        // The last repetition counts, and is named.
        accumulator.add(&place, block(Some(false)), SECOND, &mut rows);
        let condition = &accumulator.conditions[&(0, ScalePhase::Insert)];
        assert_eq!((condition.blocks, condition.totals.invalid), (2, 2));
        let warnings = accumulator.warnings(8, true);
        assert!(
            warnings[1]
                .message
                .contains("counts although it was disturbed"),
            "{warnings:?}"
        );
    }
}
