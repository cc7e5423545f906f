//! An ablation: what the methods, and the client's use of the cores, do to the lag and to a load.

use std::{sync::atomic::Ordering, thread, time::Duration};

use replimeter_instruments::{
    keep_awake::KeepAwake,
    lag::{self, Outcome},
    load::{BackgroundLoad, Workload},
    preflight::Cluster,
    table::RowBudget,
};
use replimeter_model::{
    calibrate::AblationRow,
    load::RatedLoad,
    plan::{CalibratePlan, CoreUse, Decision, LagPlan, Method, Methods},
    sample::{LagSample, Phase},
    time::Nanos,
};
use replimeter_render::format::on_off;
use replimeter_run::{
    RunContext, Stage,
    cli_error::{CliError, FailureKind, unexpected},
    workloads::workloads,
};
use replimeter_stats::{compare::of_starts, series::Series, signed::SignedHistogram};
use serde::{Deserialize, Serialize};

use super::{Calibrate, Call, begin, end, observe};

/// Interval between checks for an interruption while only the load runs.
const LOOK: Duration = Duration::from_millis(20);

/// The conditions of a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Condition {
    pub(super) threads: u32,
    pub(super) keep_awake: bool,
    pub(super) real_time: bool,
    /// Those that measure at the same time; none if only the load runs.
    pub(super) methods: Vec<Method>,
}

impl Condition {
    /// Returns the name of its samples.
    pub(super) fn label(&self) -> String {
        let names: Vec<_> = self.methods.iter().map(|method| method.name()).collect();
        format!(
            "ablation:{} by {}, keep-awake {}, real-time {}",
            self.threads,
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join("+")
            },
            on_off(self.keep_awake),
            on_off(self.real_time)
        )
    }

    /// Returns all conditions with this load. Settings change last, because the speed of a machine drifts.
    fn all(threads: u32, methods: &[Method], real_time: bool) -> Vec<Self> {
        let alone = methods.iter().map(|method| vec![*method]);
        let together = (methods.len() > 1).then(|| methods.to_vec());
        let none = (threads > 0).then(Vec::new);
        let sets = none.into_iter().chain(alone).chain(together);
        let each = sets.flat_map(|methods| {
            [false, true].into_iter().flat_map(move |keep_awake| {
                let methods = methods.clone();
                let priorities = [false, true].into_iter();
                // Priority makes no difference to a load alone.
                let possible = real_time && !methods.is_empty();
                priorities
                    .filter(move |on| possible || !on)
                    .map(move |real_time| Self {
                        threads,
                        keep_awake,
                        real_time,
                        methods: methods.clone(),
                    })
            })
        });
        each.collect()
    }
}

/// The repetitions of one condition.
pub(super) struct Part {
    pub(super) condition: Condition,
    of_methods: Vec<OfMethod>,
    /// Operations of the load per second, in each repetition.
    throughputs: Vec<Option<f64>>,
}

struct OfMethod {
    method: Method,
    from_send: Series,
    /// The same in each repetition.
    repetitions: Vec<SignedHistogram>,
    rounds: u64,
    missing: u64,
    unplaced: u64,
}

impl Part {
    pub(super) fn new(condition: Condition) -> Self {
        let of_methods = condition.methods.iter().map(|&method| OfMethod {
            method,
            from_send: Series::default(),
            repetitions: Vec::new(),
            rounds: 0,
            missing: 0,
            unplaced: 0,
        });
        Self {
            of_methods: of_methods.collect(),
            condition,
            throughputs: Vec::new(),
        }
    }

    pub(super) fn begin_repetition(&mut self) {
        self.throughputs.push(None);
        for of in &mut self.of_methods {
            of.from_send.begin_start();
            of.repetitions.push(SignedHistogram::default());
        }
    }

    /// Adds an observation of the measurement proper.
    pub(super) fn record(&mut self, sample: &LagSample) {
        let mut all = self.of_methods.iter_mut();
        let Some(of) = all.find(|of| of.method == sample.method) else {
            return;
        };
        if sample.write.phase != Phase::Measure {
            return;
        }
        of.rounds += 1;
        match (sample.from_send(), of.repetitions.last_mut()) {
            (Some(lag), Some(last)) => {
                of.from_send.record(sample.write.send, lag);
                last.record(lag);
            }
            _ if sample.untold => of.unplaced += 1,
            _ => of.missing += 1,
        }
    }

    /// Adds what the load did in the last repetition.
    pub(super) fn loaded(&mut self, operations: u64, took: Nanos) {
        if let Some(last) = self.throughputs.last_mut().filter(|_| took > Nanos(0)) {
            *last = Some(operations as f64 * 1e9 / took.0 as f64);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.throughputs.iter().all(Option::is_none)
            && self.of_methods.iter().all(|of| of.rounds == 0)
    }

    /// Returns the median lag of a method in a repetition, in ns.
    pub(super) fn median(&self, repetition: usize, method: Method) -> Option<f64> {
        let of = self.of_methods.iter().find(|of| of.method == method)?;
        let lags = of.repetitions.get(repetition)?;
        Some(lags.quantile(0.5)?.0 as f64).filter(|lag| *lag > 0.0)
    }

    /// Returns the operations of the load per second in a repetition.
    pub(super) fn throughput(&self, repetition: usize) -> Option<f64> {
        let per_s = *self.throughputs.get(repetition)?;
        per_s.filter(|per_s| *per_s > 0.0)
    }

    pub(super) fn repetitions(&self) -> usize {
        self.throughputs.len()
    }

    /// Returns the lags of each method, for the file of histograms.
    pub(super) fn histograms(&self) -> impl Iterator<Item = (String, SignedHistogram)> + '_ {
        self.of_methods.iter().map(|of| {
            let name = format!("{}/{}/lag", self.condition.label(), of.method.name());
            (name, of.from_send.histogram().clone())
        })
    }

    /// Returns the results: a row for each method, or one if only the load ran.
    pub(super) fn rows(&self) -> Vec<AblationRow> {
        let all = 0..self.repetitions();
        let rates: Vec<f64> = all.filter_map(|one| self.throughput(one)).collect();
        let rate = of_starts(&rates, 0).map(|rate| rate.estimate());
        let names = self.condition.methods.iter();
        let row = AblationRow {
            threads: self.condition.threads,
            keep_awake: self.condition.keep_awake,
            real_time: self.condition.real_time,
            methods: names.map(|method| method.name().to_owned()).collect(),
            throughput: rate.unwrap_or_default(),
            ..AblationRow::default()
        };
        if self.of_methods.is_empty() {
            return vec![row];
        }
        let of_methods = self.of_methods.iter();
        of_methods
            .map(|of| AblationRow {
                method: Some(of.method.name().to_owned()),
                rounds: of.rounds,
                timed_out: of.missing,
                unplaced: of.unplaced,
                from_send: of.from_send.distribution(),
                ..row.clone()
            })
            .collect()
    }
}

/// Measures under each combination of conditions, in alternating order.
pub(super) fn run(
    cx: &mut RunContext<'_, Calibrate>,
    loads: &[Option<RatedLoad>],
) -> Result<(), CliError> {
    let work = cx.work;
    let rated: Vec<RatedLoad> = loads.iter().flatten().cloned().collect();
    let workloads = workloads(&rated)?;
    let [target] = cx.plan.targets.as_slice() else {
        return Err(unexpected("expected exactly one target"));
    };
    let (servers, mut cluster) = cx.open_checked(target)?;
    let (possible, table) = begin(cx, servers.label(), &mut cluster)?;
    let mut ablation = Ablation {
        work,
        cluster: &mut cluster,
        held: RowBudget::default(),
        measured: false,
    };
    let real_time = cx.real_time;
    let result = (0..work.repetitions).try_for_each(|repetition| {
        for load in in_turn(loads.iter().collect(), repetition) {
            let threads = load.as_ref().map_or(0, |load| load.spec.threads);
            let conditions = Condition::all(threads, &possible.methods, real_time);
            let conditions = in_turn(conditions, repetition);
            ablation.under(cx, load.as_ref(), &workloads, conditions)?;
        }
        Ok(())
    });
    let measured = ablation.measured;
    let result = result.map_err(|failure: CliError| match failure.kind {
        FailureKind::Interrupted if measured => CliError::partial(),
        _ => failure,
    });
    // The servers are removed anyway.
    table.abandon();
    drop(cluster);
    cx.close(servers);
    result
}

/// Returns them in order or in reverse, so that a drift of the machine affects all alike.
fn in_turn<T>(mut all: Vec<T>, repetition: u32) -> Vec<T> {
    if repetition % 2 == 1 {
        all.reverse();
    }
    all
}

/// The servers of an ablation.
struct Ablation<'a> {
    work: &'a CalibratePlan,
    cluster: &'a mut Cluster,
    held: RowBudget,
    /// Whether a part is complete.
    measured: bool,
}

impl Ablation<'_> {
    /// Measures all conditions under one load, or without any.
    fn under(
        &mut self,
        cx: &mut RunContext<'_, Calibrate>,
        load: Option<&RatedLoad>,
        workloads: &[Workload],
        conditions: Vec<Condition>,
    ) -> Result<(), CliError> {
        let timeout = self.work.lag.timeout.0;
        let Some(rated) = load else {
            return conditions
                .into_iter()
                .try_for_each(|condition| self.measure(cx, condition, None));
        };
        let mut load = cx.background_load(
            std::slice::from_ref(rated),
            &workloads[..1],
            self.cluster,
            timeout,
        )?;
        let result = conditions
            .into_iter()
            .try_for_each(|condition| self.measure(cx, condition, Some(&mut load)));
        let (_, warnings) = load.finish();
        cx.warn(warnings);
        result
    }

    /// Measures under one combination of conditions.
    fn measure(
        &mut self,
        cx: &mut RunContext<'_, Calibrate>,
        condition: Condition,
        load: Option<&mut BackgroundLoad>,
    ) -> Result<(), CliError> {
        let label = condition.label();
        cx.take(Call::Ablation {
            condition: condition.clone(),
            replicas: self.cluster.replica_names(),
        })?;
        let awake = match condition.keep_awake {
            true => Some(KeepAwake::start().map_err(|reason| {
                CliError::failed(
                    format!("idle cores could not be kept awake: {reason}"),
                    "run where idle priority is permitted; an ablation compares with it",
                )
            })?),
            false => None,
        };
        let stop = cx.stop;
        let outcome = match load {
            None => self.wait_or_observe(cx, &condition)?,
            Some(load) => {
                let before = counted(load);
                let ran = load.run_while(stop, |_| self.wait_or_observe(cx, &condition));
                cx.warn(ran.warnings);
                if let Some(error) = ran.failure {
                    return Err(CliError::from(error).for_shape(&label, true));
                }
                let after = counted(load);
                let outcome = ran.value?;
                // An interrupted part is too short to be a repetition.
                if !stop.load(Ordering::Relaxed) {
                    cx.take(Call::AblationLoad {
                        operations: after.0 - before.0,
                        took: after.1 - before.1,
                    })?;
                }
                outcome
            }
        };
        drop(awake);
        let interrupted = stop.load(Ordering::Relaxed);
        self.measured |= !interrupted;
        let Some(outcome) = outcome else {
            return match interrupted {
                true => Err(CliError::partial()),
                false => Ok(()),
            };
        };
        end(cx, outcome, &label)
    }

    /// Measures the lag; without methods it only lets as much time pass.
    fn wait_or_observe(
        &mut self,
        cx: &mut RunContext<'_, Calibrate>,
        condition: &Condition,
    ) -> Result<Option<Outcome>, CliError> {
        if condition.methods.is_empty() {
            cx.stage(Stage::Measure, "measuring the load alone");
            let (clock, stop) = (cx.clock, cx.stop);
            let until = clock.now() + Nanos::from(self.work.part_duration());
            while clock.now() < until && !stop.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
            }
            return Ok(None);
        }
        let plan = LagPlan {
            methods: Methods::Named(condition.methods.clone()),
            cores: CoreUse {
                real_time: Decision {
                    on: condition.real_time,
                    ..self.work.lag.cores.real_time
                },
                ..self.work.lag.cores
            },
            ..self.work.lag.clone()
        };
        let possible = lag::available_methods(self.cluster, &plan.methods)?;
        let call = |sample: &LagSample| Ok(Call::AblationSample(*sample));
        let Self { cluster, held, .. } = self;
        observe(cx, cluster, &plan, &possible, held, call).map(Some)
    }
}

/// Returns the operations of a load so far, and the time in which they were counted.
fn counted(load: &BackgroundLoad) -> (u64, Nanos) {
    let groups = load.results();
    let first = groups.first();
    first.map_or((0, Nanos(0)), |group| (group.operations, group.counted))
}
