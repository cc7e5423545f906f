//! `lag`: measures when each row becomes visible on each replica.

pub(crate) mod charts;
mod costs;
mod figures;
pub(crate) mod headline;
mod load;
pub(crate) mod methods;
pub mod report;
mod results;
pub mod samples;
mod shapes;
mod sweep;
pub(crate) mod waterfall;

use std::path::Path;

use crate::lag::{report::report, samples::Samples};
use clap::{Args, Command};
use replimeter_engine::{follow::FOLLOWS, source::Servers};
use replimeter_instruments::{
    Listener,
    lag::{
        self, AvailableMethods, Event, MAX_PACKET_SIZE, Outcome,
        results::{LagDocument, LagResults},
        sample::Phase,
        settings::{LagPlan, LagSettings, Method, StampJoin, WritePattern},
    },
    load::Workload,
    preflight::{self, CheckedReplica, Cluster},
    table::{ProbeTable, RowBudget},
};
use replimeter_model::{
    compare::Quantity,
    plan::{CoreUse, Request, StopCondition, WarmUp},
    target::{NULL_REPLICA, Target},
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Finished, Leading, Measurement, Progress, ProgressDetail, RunContext, Stage,
    cli_error::CliError,
    dry_run::PlanEffects,
    each_start,
    figures::{FigureSpec, Figures, SampleFile, StatedFigures},
    machine,
    options::{OutputArgs, raw_option},
    with_causes,
    workloads::{check_loads, workloads},
};

pub(super) use self::results::{floor, record_floor, target};
use self::{
    headline::{headline, leading},
    load::under_load,
    results::{Accumulator, Call},
};

/// The measurement `lag`.
pub(crate) struct Lag;

impl Measurement for Lag {
    const ABOUT: &'static str = "Measure how late rows become visible on each replica";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const TRIAL_FIGURE: Option<&'static str> = Some("lag.from_send.p50");
    const EXAMPLES: &'static str = "\
Examples:
  replimeter lag --sandbox async:2 --duration 60s --interval 5ms
  replimeter lag --sandbox async:1 --method all
  replimeter lag --method tap --writers 8 --interval 100us --duration 30s
  replimeter lag --row-sizes 1000..10000:1000 --rows-per-step 5 --sweeps 20
  replimeter lag --sandbox async:1 --server-option {flush option}=1
  replimeter lag --sandbox semi-sync:2 --wait-point after-sync --link-delay 1ms
  replimeter lag --sandbox async:1 --sandbox semi-sync:1 --sandbox group:3
  replimeter lag --topology cluster.toml --duration 60s
  replimeter lag --duration 60s --load insert:8@primary --rate 2000
  replimeter lag --primary {scheme}://u@db1/ --replica {scheme}://u@db2/ --json

Terms of the report:
  lag        from a write's acknowledgement (ack) to its visibility on a replica
  bracket    the time in which a row became visible: the error of its lag
  estimate   the most probable lag, given the brackets
  floor      the lag that the method shows without replication (--floor-rounds):
             nothing finer can be measured
  start      servers that are started again; starts share the rounds (--starts)
  timed out  rows that did not become visible within --timeout
  90 to 480  the 95 % interval of a figure, also as [90, 480]

Writes only to the schema `replimeter`, which it creates and drops. Privileges:
  primary  CREATE, DROP, INSERT, DELETE, SELECT ON `replimeter`.*
  replica  SELECT ON `replimeter`.*, and to see its state on *.*:
           {to monitor}
`replimeter doctor` shows what is missing as the GRANT that gives it.";

    type Settings = LagSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = Samples;
    type Results = LagResults;

    fn output(command: Command) -> Command {
        OutputArgs::augment_args(command).arg(raw_option().conflicts_with("stream"))
    }

    fn starts(plan: &LagPlan) -> u32 {
        plan.starts
    }

    fn client(plan: &LagPlan) -> CoreUse {
        plan.cores
    }

    fn has_raw(plan: &LagPlan) -> bool {
        matches!(plan.writes, WritePattern::Sweep { .. })
    }

    fn check(request: &Request<LagSettings>) -> Result<(), CliError> {
        check(&request.targets, &request.plan)
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<LagSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        effects.written_targets();
        effects.table("one row per round");
        if plan.join == StampJoin::Federated {
            effects.writes(
                "table `lag_primary` on each replica, whose definition contains the primary's password until it is dropped",
            );
        }
        costs::add(effects, plan);
        let methods = plan.method.wanted();
        if methods.contains(&Method::Tap) {
            effects.servers(FOLLOWS);
        }
        let writers = if plan.writers == 1 {
            "1 writer".to_owned()
        } else {
            format!("{} writers", plan.writers)
        };
        effects.starts(plan.starts, plan.over);
        effects.load(match &plan.writes {
            WritePattern::Rounds {
                until: StopCondition::Rounds(rounds),
                size,
            } => {
                let (uncounted, more) = match plan.warm_up {
                    WarmUp::Rounds(rounds) => (rounds, String::new()),
                    WarmUp::Time(span) => (0, format!(", after {span} of warm-up")),
                };
                format!(
                    "{writers}, {} rows of {size} bytes, {}{more}",
                    rounds + uncounted * u64::from(plan.starts) + plan.floor_rounds,
                    plan.schedule()
                )
            }
            WritePattern::Rounds {
                until: StopCondition::Elapsed(span),
                size,
            } => {
                format!(
                    "{writers} for {span}, rows of {size} bytes, {}",
                    plan.schedule()
                )
            }
            WritePattern::Sweep {
                sizes,
                per_step,
                sweeps,
                ..
            } => {
                let steps = sizes.steps();
                let bytes: u64 =
                    steps.iter().sum::<u64>() * u64::from(*per_step) * u64::from(*sweeps);
                format!(
                    "{writers}, {} rows, {bytes} bytes in total",
                    steps.len() as u64 * u64::from(*per_step) * u64::from(*sweeps)
                )
            }
        });
        effects.rated_loads(&plan.load)
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let workloads = workloads(&cx.plan.load)?;
        each_start(cx, cx.plan.starts, cx.plan.over, |cx, target, start| {
            measure_start(cx, target, start, &workloads)
        })
    }

    fn accumulator(request: &Request<LagSettings>) -> Accumulator {
        Accumulator::new(&request.plan)
    }

    fn take(accumulator: &mut Accumulator, _: &LagPlan, call: Call, rows: &mut Rows<Samples>) {
        accumulator.take(call, rows);
    }

    fn cut_off(accumulator: &mut Accumulator) {
        accumulator.cut_off();
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.is_empty()
    }

    fn conclude(run: &mut Finished<'_, Self>, accumulator: Accumulator) -> Concluded<LagResults> {
        results::conclude(run, accumulator)
    }

    fn headline(document: &LagDocument) -> String {
        headline(document)
    }

    fn leading(document: &LagDocument) -> Option<Leading> {
        let (replica, value) = leading(document)?;
        Leading::of(replica, Some(value), Quantity::Us)
    }

    fn stated(settings: &LagSettings, results: &LagResults) -> StatedFigures {
        figures::stated(settings, results)
    }

    fn figures(document: &LagDocument, samples: &SampleFile) -> Result<Figures, CliError> {
        figures::figures(document, samples)
    }

    fn report(document: &LagDocument, raw: bool) -> Report {
        report(document, raw)
    }

    fn charts(document: &LagDocument, samples: &Path) -> Result<Vec<Chart>, HtmlError> {
        crate::lag::charts::charts(document, samples)
    }

    fn kept_raw(document: &LagDocument) -> bool {
        !document.results.size_sweep.is_empty()
    }
}

/// Measures one start of a target.
fn measure_start(
    cx: &mut RunContext<'_, Lag>,
    target: &Target,
    start: u32,
    workloads: &[Workload],
) -> Result<(), CliError> {
    let plan = &cx.plan.of_start(start);
    cx.on_checked(target, preflight::check, |cx, servers, cluster| {
        on_servers(cx, servers, cluster, plan, start, workloads)
    })
}

/// Measures checked servers.
fn on_servers(
    cx: &mut RunContext<'_, Lag>,
    servers: &dyn Servers,
    mut cluster: Cluster,
    plan: &LagPlan,
    start: u32,
    workloads: &[Workload],
) -> Result<(), CliError> {
    let names = match cluster.replicas.len() {
        0 => vec![NULL_REPLICA.to_owned()],
        _ => cluster.replica_names(),
    };
    let possible = lag::available_methods(&mut cluster, &plan.method)?;
    // Every start leaves out the same ones, and the text has the address of the start's server.
    if start == 1 {
        cx.warn(possible.warnings.iter().cloned());
    }
    lag::check_stages(&mut cluster, plan)?;
    let (table, found) = ProbeTable::create(&mut cluster, plan.timeout.0)?;
    cx.warn(found);
    cx.take(Call::Shape {
        label: servers.label().to_owned(),
        start,
        mode: cluster.mode,
        replicas: names,
        methods: possible.methods.clone(),
        delays: cluster.replicas.iter().map(CheckedReplica::delay).collect(),
    })?;
    let before = machine::CoreTime::read();
    let mut load = Vec::new();
    let result = under_load(cx, &mut cluster, workloads, &mut load, |cx, cluster| {
        measure(cx, cluster, plan, start, &possible)
    });
    let idle = machine::idle_cores(before);
    let fallen_back = cluster.fall_back_reason();
    let failed = result
        .as_ref()
        .is_ok_and(|outcome| outcome.failure.is_some());
    let members = failed.then(|| cluster.members_now()).flatten();
    // On every outcome, the table is dropped first.
    cx.remove_table(table, &mut cluster, servers);
    if !cx.keep_cores_awake() {
        cx.warn(idle);
    }
    drop(cluster);
    let outcome = result?;
    let failure = CliError::of_measuring(outcome.failure.as_ref(), outcome.interrupted);
    cx.take(Call::ShapeEnded {
        outcome: Box::new(outcome),
        load,
    })?;
    with_causes(failure, fallen_back, members, servers)
}

/// Measures, and passes on the results.
fn measure(
    cx: &mut RunContext<'_, Lag>,
    cluster: &mut Cluster,
    plan: &LagPlan,
    start: u32,
    possible: &AvailableMethods,
) -> Result<Outcome, CliError> {
    let panics = cx.fault() == Some("panic-while-measuring");
    let (starts, clock, stop) = (cx.plan.starts, cx.clock, cx.stop);
    let mut on = |event| {
        let call = match event {
            Event::Sample(sample) => {
                assert!(
                    !(panics && sample.write.phase == Phase::Measure),
                    "a fault was requested"
                );
                Call::Sample(sample)
            }
            Event::Compared(compared) => Call::Compared(compared),
            Event::Progress(progress) => {
                let shown = run_progress(&progress);
                cx.observers.progress(if starts > 1 {
                    shown.part(format!("start {start} of {starts}"))
                } else {
                    shown
                });
                cx.so_far(Accumulator::so_far);
                return Ok(());
            }
        };
        cx.take(call).map_err(|failure| failure.message)
    };
    let mut listener = Listener {
        on: &mut on,
        stop,
        so_far: false,
    };
    Ok(lag::run(
        cluster,
        plan,
        possible,
        RowBudget::default(),
        &clock,
        &mut listener,
    )?)
}

/// Converts the measurement's progress for display.
pub(super) fn run_progress(progress: &lag::Progress) -> Progress {
    let (stage, operation) = match progress.phase {
        Phase::Floor | Phase::ReferenceSelect => (Stage::Prepare, "measuring the floor"),
        Phase::WarmUp | Phase::Settle => (Stage::WarmUp, "waiting for the first row"),
        Phase::Measure => (Stage::Measure, "measuring"),
    };
    let total = progress.total.map(|total| total as f64);
    let mut shown = Progress::new(stage, operation).done(progress.done as f64, total, "rows");
    if let Some(us) = progress.last_us {
        shown = shown.with(ProgressDetail::Time("lag".into(), us));
    }
    if progress.outstanding > 1 {
        shown = shown.with(ProgressDetail::Count(
            progress.outstanding,
            "in flight".into(),
        ));
    }
    shown
}

/// Rejects invalid settings before anything is changed.
fn check(targets: &[Target], plan: &LagPlan) -> Result<(), CliError> {
    check_loads(targets, &plan.load)?;
    let largest = plan.largest_size();
    if largest <= MAX_PACKET_SIZE {
        return Ok(());
    }
    Err(CliError::usage(
        format!(
            "a row of {largest} bytes exceeds the largest possible max_allowed_packet, {MAX_PACKET_SIZE} bytes"
        ),
        "use a smaller size",
    ))
}
