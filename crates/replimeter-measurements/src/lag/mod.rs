//! `lag`: measures when each row becomes visible on each replica.

pub(crate) mod charts;
mod figures;
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
use replimeter_instruments::{
    lag::{self, Event, LARGEST_PACKET, Listener, Outcome, Possible},
    load::Workload,
    preflight::{CheckedReplica, Cluster},
    table::{Held, ProbeTable},
};
use replimeter_model::{
    lag::{LagDocument, LagResults},
    plan::{LagPlan, LagSettings, Method, Planned, Until, WarmUp, Writes},
    sample::Phase,
    target::{NULL_REPLICA, Target},
};
use replimeter_render::{
    answer::answer, chart::Chart, html::HtmlError, report::Report, rows::Rows, together::Findings,
};
use replimeter_run::{
    Client, Concluded, Detail, Finished, Measurement, Progress, RunContext, Stage,
    compare::figures::{Figures, SampleFile},
    each_target,
    failure::Failure,
    machine,
    options::SweepOutputArgs,
    touches::{LOAD, SERVERS, Touches, WRITES},
    with_causes,
    workloads::{check_loads, workloads},
};

pub(super) use self::results::{floor, record_floor, target};
use self::{
    load::under_load,
    results::{Call, Gathered},
};

/// The measurement `lag`.
pub(crate) struct Lag;

impl Measurement for Lag {
    const ABOUT: &'static str = "Measure how late rows become visible on each replica";
    const EXAMPLES: &'static str = "\
Examples:
  replimeter lag --sandbox async:2 --duration 60s --interval 5ms
  replimeter lag --sandbox mysql/async:1 --method all
  replimeter lag --method tap --writers 8 --interval 100us --duration 30s
  replimeter lag --row-sizes 1000..10000:1000 --rows-per-step 5 --sweeps 20
  replimeter lag --sandbox async:1 --server-option sync_binlog=1
  replimeter lag --sandbox semi-sync:2 --wait-point after-sync --link-delay 1ms
  replimeter lag --sandbox async:1 --sandbox galera:3 --sandbox mysql/group:3
  replimeter lag --topology cluster.toml --duration 60s
  replimeter lag --duration 60s --load insert:8@primary --rate 2000
  replimeter lag --primary mysql://u@db1/ --replica mysql://u@db2/ --json

Writes only to the schema `replimeter`, which it creates and drops.
docs/reference/privileges.md lists the privileges that it needs.";

    type Settings = LagSettings;
    type Options = ();
    type Call = Call;
    type Gathered = Gathered;
    type Columns = Samples;
    type Results = LagResults;

    fn output(command: Command) -> Command {
        SweepOutputArgs::augment_args(command)
    }

    fn client(plan: &LagPlan) -> Client {
        Client {
            keep_awake: plan.keep_awake,
            real_time: plan.real_time,
        }
    }

    fn has_raw(work: &LagPlan) -> bool {
        matches!(work.writes, Writes::Sweep { .. })
    }

    fn check(plan: &Planned<LagSettings>) -> Result<(), Failure> {
        check(&plan.targets, &plan.plan)
    }

    fn touches(touches: &mut Touches, plan: &Planned<LagSettings>) -> Result<(), Failure> {
        let work = &plan.plan;
        touches.targets(&plan.targets);
        let specs: Vec<_> = work
            .load
            .iter()
            .map(|load| (&load.spec, load.rate))
            .collect();
        touches.table(&plan.targets, "lag_probe", "one row per round");
        if work.federated {
            touches.say(
                WRITES,
                "table `lag_probe_primary` on each replica, whose definition contains the primary's password until it is dropped",
            );
        }
        let methods = work.methods.wanted();
        if methods.contains(&Method::Tap) {
            touches.say(
                SERVERS,
                "follows the binary logs of the primary and of each replica, as a replica does",
            );
        }
        let writers = if work.writers == 1 {
            "1 writer".to_owned()
        } else {
            format!("{} writers", work.writers)
        };
        touches.say(
            LOAD,
            match &work.writes {
                Writes::Rounds {
                    until: Until::Rounds(rounds),
                    size,
                } => {
                    let (uncounted, more) = match work.warm_up {
                        WarmUp::Rounds(rounds) => (rounds, String::new()),
                        WarmUp::Time(span) => (0, format!(", after {span} of warm-up")),
                    };
                    format!(
                        "{writers}, {} rows of {size} bytes, {}{more}",
                        rounds + uncounted + work.floor_rounds,
                        work.pace
                    )
                }
                Writes::Rounds {
                    until: Until::Elapsed(span),
                    size,
                } => {
                    format!("{writers} for {span}, rows of {size} bytes, {}", work.pace)
                }
                Writes::Sweep {
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
            },
        );
        touches.loads(&specs)
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), Failure> {
        let workloads = workloads(&cx.work.load)?;
        each_target(cx, |cx, target| one(cx, target, &workloads))
    }

    fn gathered(plan: &Planned<LagSettings>) -> Gathered {
        Gathered::new(&plan.plan)
    }

    fn take(gathered: &mut Gathered, _: &LagPlan, call: Call, rows: &mut Rows<Samples>) {
        gathered.take(call, rows);
    }

    fn is_empty(gathered: &Gathered) -> bool {
        gathered.is_empty()
    }

    fn conclude(run: &mut Finished<'_, Self>, gathered: Gathered) -> Concluded<LagResults> {
        results::conclude(run, gathered)
    }

    fn headline(document: &LagDocument) -> String {
        answer(document)
    }

    fn figures(document: &LagDocument, samples: &SampleFile) -> Result<Figures, Failure> {
        figures::figures(document, samples)
    }

    fn report(document: &LagDocument, raw: bool) -> Report {
        report(document, raw)
    }

    fn charts(document: &LagDocument, samples: &Path) -> Result<Vec<Chart>, HtmlError> {
        crate::lag::charts::charts(document, samples)
    }

    fn findings(document: &LagDocument) -> Findings<'_> {
        Findings::Lag(document)
    }

    fn kept_raw(document: &LagDocument) -> bool {
        !document.results.size_sweep.is_empty()
    }
}

/// Measures one target.
fn one(
    cx: &mut RunContext<'_, Lag>,
    target: &Target,
    workloads: &[Workload],
) -> Result<(), Failure> {
    let work = cx.work;
    let (servers, mut cluster) = cx.open_checked(target)?;
    let names = match cluster.replicas.len() {
        0 => vec![NULL_REPLICA.to_owned()],
        _ => cluster.replica_names(),
    };
    let possible = lag::possible(&mut cluster, &work.methods)?;
    cx.warn(possible.warnings.iter().cloned());
    lag::check_stages(&mut cluster, work)?;
    let (table, found) = ProbeTable::create(&mut cluster, work.timeout.0)?;
    cx.warn(found);
    cx.take(Call::Shape {
        label: servers.label().to_owned(),
        mode: cluster.mode.to_owned(),
        replicas: names,
        methods: possible.methods.clone(),
        delays: cluster.replicas.iter().map(CheckedReplica::delay).collect(),
    })?;
    let before = machine::CoreTime::read();
    let mut load = Vec::new();
    let result = under_load(cx, &mut cluster, workloads, &mut load, |cx, cluster| {
        measure(cx, cluster, &possible)
    });
    let idle = machine::idle_cores(before);
    let fallen_back = cluster.fallen_back();
    let failed = result
        .as_ref()
        .is_ok_and(|outcome| outcome.failure.is_some());
    let members = failed.then(|| cluster.members_now()).flatten();
    // On every outcome, the table is dropped first.
    cx.remove_table(table, &mut cluster, servers.as_ref());
    if !cx.kept_awake() {
        cx.warn(idle);
    }
    drop(cluster);
    let ended = match &result {
        Ok(outcome) => with_causes(
            Failure::of_measuring(outcome.failure.as_ref(), outcome.interrupted),
            fallen_back,
            members,
            servers.as_ref(),
        ),
        Err(_) => Ok(()),
    };
    cx.close(servers);
    cx.take(Call::ShapeEnded {
        outcome: Box::new(result?),
        load,
    })?;
    ended
}

/// Measures, and passes on the results.
fn measure(
    cx: &mut RunContext<'_, Lag>,
    cluster: &mut Cluster,
    possible: &Possible,
) -> Result<Outcome, Failure> {
    let panics = cx.fault() == Some("panic-while-measuring");
    let (work, clock, stop) = (cx.work, cx.clock, cx.stop);
    let mut on = |event: Event<'_>| {
        let call = match event {
            Event::Sample(sample) => {
                assert!(
                    !(panics && sample.write.phase == Phase::Measure),
                    "a fault was requested"
                );
                Call::Sample(*sample)
            }
            Event::Compared(compared) => Call::Compared(*compared),
            Event::Progress(progress) => {
                cx.observers.progress(shown(progress));
                return Ok(());
            }
        };
        cx.take(call).map_err(|failure| failure.message)
    };
    let mut listener = Listener { on: &mut on, stop };
    Ok(lag::run(
        cluster,
        work,
        possible,
        Held::default(),
        &clock,
        &mut listener,
    )?)
}

/// Converts the measurement's progress for display.
pub(super) fn shown(progress: &lag::Progress) -> Progress {
    let (stage, doing) = match progress.phase {
        Phase::Floor | Phase::Yardstick => (Stage::Prepare, "measuring the floor"),
        Phase::WarmUp | Phase::Settle => (Stage::WarmUp, "waiting for the first row"),
        Phase::Measure => (Stage::Measure, "measuring"),
    };
    let total = progress.total.map(|total| total as f64);
    let mut shown = Progress::new(stage, doing).done(progress.done as f64, total, "rows");
    if let Some(us) = progress.last_us {
        shown = shown.with(Detail::Time("lag".into(), us));
    }
    if progress.outstanding > 1 {
        shown = shown.with(Detail::Count(progress.outstanding, "in flight".into()));
    }
    shown
}

/// Rejects invalid settings before anything is changed.
fn check(targets: &[Target], plan: &LagPlan) -> Result<(), Failure> {
    check_loads(targets, &plan.load)?;
    let largest = plan.largest_size();
    if largest <= LARGEST_PACKET {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "a row of {largest} bytes exceeds the largest possible max_allowed_packet, {LARGEST_PACKET} bytes"
        ),
        "use a smaller size",
    ))
}
