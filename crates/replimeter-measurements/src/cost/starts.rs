//! Starts the servers of one mode after another, and measures them under load.

use std::{sync::atomic::Ordering, time::Duration};

use replimeter_engine::{dialect::settings::flushes, source::Servers};
use replimeter_instruments::{
    clock::Clock,
    cost::{
        results::{CostResults, StartRecord},
        settings::{CostPlan, LoggedMode},
    },
    load::{FillProgress, Workload},
    trial::{
        BlockError, BlockProgress, ConditionLoad, ONE_KIND, Operations, Preparation, TrialServers,
    },
};
use replimeter_model::{load::DataSize, random::Random, target::Target, time_span::TimeSpan};
use replimeter_run::{
    Progress, ProgressDetail, RunContext, Stage,
    cli_error::{CliError, FailureKind, unexpected},
    workloads::filling,
};

use super::{Cost, accumulator::Call, entries::CostEntry, results::rows};
use crate::trial::shown;

/// How long other servers may take to apply a block, so that its resource use includes it.
pub(super) const CATCH_UP: Duration = Duration::from_secs(30);
/// How long the client's own limit is measured.
const LIMIT: Duration = Duration::from_secs(1);

/// Typical start time of servers in seconds, for the estimate of the time left.
const STARTING_S: f64 = 3.0;

/// State shared by all starts.
pub(super) struct Starts<'a> {
    plan: &'a CostPlan,
    workload: &'a Workload,
    size: DataSize,
    random: Random,
    round: u32,
    /// Planned seconds: done and total.
    done_s: f64,
    all_s: f64,
}

impl<'a> Starts<'a> {
    pub(super) fn new(plan: &'a CostPlan, workload: &'a Workload, size: DataSize) -> Self {
        Self {
            plan,
            workload,
            size,
            random: Random::new(plan.seed),
            round: 0,
            done_s: 0.0,
            all_s: 0.0,
        }
    }
}

impl Starts<'_> {
    /// Measures every mode in every round, in a new random order each time.
    pub(super) fn rounds(
        &mut self,
        cx: &mut RunContext<'_, Cost>,
        entries: &[CostEntry],
    ) -> Result<(), CliError> {
        // The rows of an entry are consecutive.
        let (mut first, mut keys) = (Vec::new(), Vec::new());
        for entry in entries {
            first.push(keys.len());
            keys.extend(
                entry
                    .conditions(self.plan)
                    .into_iter()
                    .map(|(threads, delay)| entry.key(threads, delay)),
            );
        }
        cx.take(Call::Rows(keys))?;
        let each = |entry: &CostEntry| self.planned(entry.conditions(self.plan).len());
        self.all_s = entries.iter().map(each).sum::<f64>() * f64::from(self.plan.starts);
        for round in 1..=self.plan.starts {
            self.round = round;
            let mut order: Vec<usize> = (0..entries.len()).collect();
            self.random.shuffle(&mut order);
            for index in order {
                let entry = &entries[index];
                let conditions = entry.conditions(self.plan);
                self.start(cx, entry, &conditions, first[index], None)?;
            }
        }
        Ok(())
    }

    /// Compares one mode with itself repeatedly, with the starts of both sides in random order.
    pub(super) fn self_test(
        &mut self,
        cx: &mut RunContext<'_, Cost>,
        entry: &CostEntry,
        comparisons: u32,
    ) -> Result<(), CliError> {
        let (threads, delay) = entry
            .conditions(self.plan)
            .first()
            .copied()
            .ok_or_else(|| unexpected("an entry has nothing to measure"))?;
        let condition = [(threads, delay)];
        // The row covers all starts together.
        cx.take(Call::Rows(vec![entry.key(threads, delay)]))?;
        self.all_s = self.planned(1) * f64::from(self.plan.starts) * 2.0 * f64::from(comparisons);
        for _ in 0..comparisons {
            cx.take(Call::Comparison)?;
            for _ in 0..self.plan.starts {
                self.round += 1;
                let mut order = [0, 1];
                self.random.shuffle(&mut order);
                for side in order {
                    self.start(cx, entry, &condition, 0, Some(side))?;
                }
            }
            cx.take(Call::Compared)?;
        }
        Ok(())
    }

    /// Returns the planned seconds of a start with this number of conditions.
    fn planned(&self, conditions: usize) -> f64 {
        let (blocks, length) = self.plan.blocks();
        STARTING_S
            + conditions as f64
                * (self.plan.warm_up.0.as_secs_f64() + f64::from(blocks) * length.0.as_secs_f64())
    }

    /// Returns the estimated time left.
    fn left(&self, clock: Clock) -> ProgressDetail {
        let passed = clock.now().as_micros() / 1e6;
        ProgressDetail::Left(match self.done_s > 0.0 {
            true => passed / self.done_s * (self.all_s - self.done_s),
            false => self.all_s - passed,
        })
    }

    /// Measures one start of one mode, with its conditions in random order. On every outcome,
    /// complete rows are kept. The conditions' rows begin at `first`; in a self-test, each block is
    /// also added to one of its sides.
    fn start(
        &mut self,
        cx: &mut RunContext<'_, Cost>,
        entry: &CostEntry,
        conditions: &[(u32, Option<TimeSpan>)],
        first: usize,
        side: Option<usize>,
    ) -> Result<(), CliError> {
        if cx.stop.load(Ordering::Relaxed) {
            return Err(CliError::partial());
        }
        let what = format!("round {}, {}", self.round, entry.label());
        let starting = Progress::new(Stage::Servers, "starting").part(&what);
        cx.observers.progress(starting.with(self.left(cx.clock)));
        let start = Start {
            entry,
            what,
            conditions,
            first,
            side,
        };
        let target = Target::Sandbox(entry.shape.spec.clone());
        let result = cx.on_servers(&target, |cx, servers| {
            let result = self.measure(cx, servers, &start);
            cx.take(Call::StartEnded {
                rows: (first..first + conditions.len()).collect(),
                side,
            })?;
            let durability = cx.plan.durability.name();
            cx.so_far(|accumulator| CostResults {
                rows: rows(&accumulator.all, &accumulator.limits, durability),
                ..CostResults::default()
            });
            result
        });
        self.done_s += self.planned(conditions.len());
        result.map_err(|failure| match failure.kind {
            FailureKind::Interrupted => CliError::partial(),
            _ => failure.for_shape(&entry.label(), true),
        })
    }

    fn measure(
        &mut self,
        cx: &mut RunContext<'_, Cost>,
        servers: &mut dyn Servers,
        start: &Start<'_>,
    ) -> Result<(), CliError> {
        let Start { entry, what, .. } = start;
        let kind = entry.shape.mode.kind;
        let (clock, stop, observers) = (cx.clock, cx.stop, &cx.observers);
        let mut filled = |filled: &FillProgress| observers.progress(filling(filled).part(what));
        let preparation = Preparation {
            mode: kind.mode,
            workload: self.workload,
            size: self.size,
            by_time: false,
        };
        let mut bench =
            TrialServers::open(servers.members(), &preparation, &clock, &mut filled, stop)?;
        self.met(cx, entry, servers, &bench)?;
        if kind == LoggedMode::NONE {
            self.limits(cx, start, &bench)?;
        }
        let mut order: Vec<usize> = (0..start.conditions.len()).collect();
        self.random.shuffle(&mut order);
        for index in order {
            let (threads, delay) = start.conditions[index];
            let left = self.left(clock);
            if let Some(delay) = delay {
                let faults = servers
                    .faults()
                    .ok_or_else(|| unexpected("these servers support no fault injection"))?;
                faults.set_delay(delay.0)?;
            }
            cx.take(Call::Row {
                row: start.first + index,
                side: start.side,
            })?;
            let load = self.load(&bench, threads);
            let distance = delay.map_or_else(String::new, |delay| format!(", {delay} one way"));
            let part = format!("{what}, {threads} threads{distance}");
            let show = |cx: &RunContext<'_, Cost>, step: BlockProgress<'_>| {
                let shown = shown(step).part(&part).with(left.clone());
                cx.observers.progress(shown);
            };
            let mut clients = bench.begin(&load, None, &mut |step| show(cx, step), stop)?;
            for _ in 0..self.plan.blocks().0 {
                let mut step = |step: BlockProgress<'_>| show(cx, step);
                let block = bench.block(&load, &mut clients, &mut step, stop);
                // An incomplete block is dropped.
                let mut block = block.map_err(|BlockError { error, .. }| error)?;
                if block.behind.is_empty() {
                    // Nothing was to be applied elsewhere.
                    block.caught_up = Some(Duration::ZERO);
                }
                for part in &mut block.parts {
                    part.result = std::mem::take(&mut part.result).over_threads_time();
                }
                cx.take(Call::Block(Box::new(block)))?;
            }
        }
        Ok(())
    }

    /// Returns the load of a condition.
    fn load(&self, bench: &TrialServers, threads: u32) -> ConditionLoad<'_> {
        ConditionLoad {
            operations: vec![Operations {
                kind: ONE_KIND,
                workload: self.workload,
                nodes: bench.nodes[..1].to_vec(),
                threads,
                reads_only: false,
            }],
            warm_up: self.plan.warm_up.0,
            length: self.plan.blocks().1.0,
            limit: None,
            catch_up: CATCH_UP,
            must_apply: false,
        }
    }

    /// Measures the client's ping limit at each number of threads that lacks one.
    fn limits(
        &self,
        cx: &mut RunContext<'_, Cost>,
        start: &Start<'_>,
        bench: &TrialServers,
    ) -> Result<(), CliError> {
        let engine = start.entry.engine();
        for (threads, _) in start.conditions {
            let mut known = cx.accumulator.limits.iter();
            if known.any(|(of, known, _)| (*of, *known) == (engine, *threads)) {
                continue;
            }
            let operation = format!("ping limit of the client at {threads} threads");
            let limit = Progress::new(Stage::Prepare, operation);
            cx.observers.progress(limit.part(&start.what));
            let load = self.load(bench, *threads);
            if let Some(per_s) = bench.ping_limit(&load, LIMIT, cx.stop)? {
                cx.take(Call::Limit {
                    engine,
                    threads: *threads,
                    per_s,
                })?;
            }
        }
        Ok(())
    }

    /// Records the servers at their first start.
    fn met(
        &self,
        cx: &mut RunContext<'_, Cost>,
        entry: &CostEntry,
        servers: &dyn Servers,
        bench: &TrialServers,
    ) -> Result<(), CliError> {
        let label = entry.label();
        cx.take(Call::Start(StartRecord {
            round: self.round,
            engine: entry.engine().name().to_owned(),
            mode: entry.mode(),
            start_us: servers.record().map_or(0.0, |record| record.start_us),
        }))?;
        let mut known = cx.manifest.sandboxes.iter();
        if known.any(|known| known.shape == label) {
            return Ok(());
        }
        cx.record_sandbox(&label, servers.record(), bench.records.clone())?;
        cx.warn(bench.warnings.iter().cloned());
        if let Some(server) = bench.records.first() {
            let words = format!("{}: {}", entry.version(), flushes(&server.variables));
            if !cx.accumulator.durability.contains(&words) {
                cx.take(Call::Durability(words))?;
            }
        }
        Ok(())
    }
}

/// One start of one mode.
struct Start<'a> {
    entry: &'a CostEntry,
    what: String,
    conditions: &'a [(u32, Option<TimeSpan>)],
    /// The number of the first condition's row.
    first: usize,
    /// The side of a self-test.
    side: Option<usize>,
}
