//! `load`: makes the data, runs the workloads, and says how much the servers do.

pub(super) mod figures;

use std::{path::Path, sync::atomic::Ordering, time::Duration};

use replimeter_measure::{
    load::{self, Crew, DataSet, Filled, Second, Squad, SquadResult, Workload},
    preflight::Cluster,
    resources::{Meter, Watch},
    survey::Relation,
};
use replimeter_model::{
    load::{DataRecord, LoadDocument, LoadResults, LoadRow, Reads},
    plan::{LoadingPlan, LoadingSettings, Planned},
    resources::{PerOperation, ServerUse},
    target::Role,
    time::Nanos,
    warning::Warning,
};
use replimeter_report::{
    chart::Chart,
    charts,
    html::HtmlError,
    loading::{answer, report},
    report::Report,
    rows::Rows,
    seconds::{Seconds, ServerSeconds},
    together::Findings,
};
use replimeter_server::{
    Node,
    source::{Member, Servers},
};
use replimeter_stats::signed::SignedHistogram;
use serde::{Deserialize, Serialize};

use crate::{
    compare::figures::{Figures, SampleFile},
    failure::{Failure, Kind, unexpected},
    run::{
        Client, Concluded, Detail, Finished, Histograms, Measurement, Progress, RunContext, Stage,
        to_measure, with_causes,
    },
    touches::{LOAD, TIME, Touches},
    workloads::{filling, refuse_size, workload},
};

/// For how long the client's own limit is measured before each stretch.
const LIMIT: Duration = Duration::from_millis(400);
/// How often what the servers use is looked at.
const GLANCE: Duration = Duration::from_millis(250);
const SECOND: Nanos = Nanos(1_000_000_000);
/// Connections that fill a data set.
const FILLERS: u32 = 4;

fn workloads(work: &LoadingPlan) -> Result<Vec<Workload>, Failure> {
    let workloads: Vec<Workload> = work
        .workloads
        .iter()
        .map(|name| workload(name))
        .collect::<Result<_, _>>()?;
    for (index, one) in workloads.iter().enumerate() {
        for other in &workloads[..index] {
            if let Some(table) = one.collides(other) {
                return Err(Failure::usage(
                    format!(
                        "{} and {} each define a table `{table}` of their own",
                        other.name, one.name
                    ),
                    "rename one of the tables",
                ));
            }
        }
    }
    refuse_size(work.size, &workloads)?;
    Ok(workloads)
}

/// The data of all workloads; removed when dropped, unless it is to stay.
struct Data {
    primary: Node,
    sets: Vec<DataSet>,
    stays: bool,
}

impl Data {
    fn remove(&mut self) -> Vec<Warning> {
        let stays = self.stays;
        let sets = std::mem::take(&mut self.sets).into_iter().rev();
        sets.flat_map(|set| {
            if stays {
                Vec::new()
            } else {
                set.remove(&self.primary)
            }
        })
        .collect()
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// What is measured, piece by piece.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers are there and checked.
    Shape { label: String, mode: String },
    /// What servers, data and clean-up gave cause for.
    Warnings(Vec<Warning>),
    /// A data set is there.
    Data(DataRecord),
    /// Another workload runs on the data set of this number.
    Shared { data: usize, workload: String },
    /// Every workload ran with so many threads; what each server used, in all and in each whole second.
    Stretch {
        threads: u32,
        results: Vec<SquadResult>,
        uses: Vec<ServerUse>,
        course: Vec<Vec<ServerUse>>,
    },
}

/// Everything gathered while the run goes on.
#[derive(Default)]
pub(crate) struct Gathered {
    label: String,
    mode: String,
    data: Vec<DataRecord>,
    results: Vec<LoadRow>,
    histograms: Vec<(String, SignedHistogram)>,
    uses: Vec<ServerSeconds>,
    warnings: Vec<Warning>,
    failure: Option<Failure>,
    measured_us: f64,
}

impl Gathered {
    fn stretch(
        &mut self,
        threads: u32,
        results: Vec<SquadResult>,
        uses: &[ServerUse],
        course: Vec<Vec<ServerUse>>,
    ) {
        let operations: u64 = results.iter().map(|result| result.operations).sum();
        let servers: Vec<PerOperation> = uses
            .iter()
            .map(|used| used.per_operation(operations))
            .collect();
        if !results.is_empty() {
            self.uses.push(ServerSeconds { threads, course });
        }
        let workloads = results.len() as f64;
        for result in results {
            self.measured_us = self.measured_us.max(0.0) + result.counted.as_micros() / workloads;
            self.warnings.extend(result.warnings());
            let row = LoadRow {
                load: result.record(),
                servers: servers.clone(),
            };
            let tag = format!("{}:{threads}", result.workload);
            self.histograms
                .push((format!("{tag}/response"), result.response.clone()));
            self.histograms
                .push((format!("{tag}/service"), result.service.clone()));
            if let Some(error) = result.failure {
                self.failure.get_or_insert(error.into());
            } else if result.interrupted {
                self.failure.get_or_insert(Failure::cut_short());
            } else if result.operations == 0 {
                let errors = row
                    .load
                    .errors
                    .first()
                    .map_or_else(String::new, |error| format!(": {}", error.message));
                let message = format!(
                    "{}: no operation was completed in the counted time{errors}",
                    result.workload
                );
                self.failure.get_or_insert(Failure::void(
                    message,
                    "measure for longer, or mend the statement",
                ));
            }
            self.results.push(row);
        }
    }
}

/// How much the servers do.
pub(crate) struct Load;

impl Measurement for Load {
    const ABOUT: &'static str = "Run a workload by itself and say how much the servers do: operations per second, their times, and what it costs the client";
    const EXAMPLES: &'static str = "\
Examples:
  replimeter load --workload point-select --threads 1,8,64
  replimeter load --sandbox async:2 --workload post-insert --workload select --for 60s
  replimeter load --workload insert --threads 16 --rate 2000 --arrivals poisson
  replimeter load --primary mysql://u@db1/ --workload orders.toml --size 1GB --keep-data

Workloads: insert, select, post-insert, point-select, oltp-mix, update-key, big-update, mix, or the path of a file:
statements with typed parameters (.toml) or a script (anything else); docs/load.md explains both. The data is made in
the schema `replimeter` and removed at the end. A workload of which every statement reads goes to the replicas.";

    type Settings = LoadingSettings;
    type Options = ();
    type Call = Call;
    type Gathered = Gathered;
    type Columns = Seconds;
    type Results = LoadResults;

    fn client(plan: &LoadingPlan) -> Client {
        Client {
            keep_awake: plan.keep_awake,
            real_time: false,
        }
    }

    fn check(plan: &Planned<LoadingSettings>) -> Result<(), Failure> {
        workloads(&plan.plan).map(drop)
    }

    fn touches(touches: &mut Touches, plan: &Planned<LoadingSettings>) -> Result<(), Failure> {
        let work = &plan.plan;
        touches.targets(&plan.targets);
        for name in &work.workloads {
            touches.tables(name, work.keep_data)?;
        }
        let threads: Vec<String> = work.threads.iter().map(ToString::to_string).collect();
        let how = work.rate.map_or_else(
            || "back to back".to_owned(),
            |open| format!("{} a second", open.rate),
        );
        let size = work.size.map_or_else(
            || "as much data as each workload says".to_owned(),
            |size| format!("{size} of data"),
        );
        touches.say(
            LOAD,
            format!(
                "{} with {} connections each, {how}; {size}",
                work.workloads.join(", "),
                threads.join(", then ")
            ),
        );
        touches.say(
            TIME,
            format!("{} each time, after {}", work.duration, work.ramp),
        );
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), Failure> {
        let work = cx.work;
        let [target] = cx.plan.targets.as_slice() else {
            return Err(unexpected());
        };
        let workloads = workloads(work)?;
        let servers = cx.open(target)?;
        cx.stage(Stage::Servers, "checking the servers");
        let mut cluster = load::check(&to_measure(servers.as_ref()))?;
        load::hold(&mut cluster.primary.session)?;
        cx.met(servers.label(), servers.as_ref(), &mut cluster)?;
        let mut data = Data {
            primary: cluster.primary.node.clone(),
            sets: Vec::new(),
            stays: work.keep_data || servers.is_temporary(),
        };
        cx.take(Call::Shape {
            label: servers.label().to_owned(),
            mode: cluster.mode.to_owned(),
        })?;
        let meter = Meter::open(&metered(servers.as_ref(), &cluster), &cx.clock)?;
        cx.take(Call::Warnings(meter.warnings()))?;
        let watch = Watch::start(meter, GLANCE);
        let result = measure(cx, &workloads, &cluster, &watch, &mut data);
        watch.finish();
        // A load that no replica followed, or that did not wait as it was to, is not one of this mode.
        let fallen_back = cluster.fallen_back();
        let members = result.as_ref().err().and_then(|_| cluster.members_now());
        let failure = cx.gathered.failure.take();
        let failure = failure.or_else(|| cluster.verify().err().map(Failure::from));
        let ended = with_causes(failure, fallen_back, members, servers.as_ref());
        cx.stage(Stage::CleanUp, "removing the data");
        cx.take(Call::Warnings(data.remove()))?;
        drop(cluster);
        cx.close(servers);
        match result {
            Err(error) if cx.gathered.results.is_empty() => Err(error),
            result => ended.and(result),
        }
    }

    fn gathered(_: &Planned<LoadingSettings>) -> Gathered {
        Gathered::default()
    }

    fn take(gathered: &mut Gathered, _: &LoadingPlan, call: Call, _: &mut Rows<Seconds>) {
        match call {
            Call::Shape { label, mode } => (gathered.label, gathered.mode) = (label, mode),
            Call::Warnings(warnings) => gathered.warnings.extend(warnings),
            Call::Data(record) => gathered.data.push(record),
            Call::Shared { data, workload } => {
                let data = gathered.data.get_mut(data);
                data.into_iter()
                    .for_each(|data| data.workloads.push(workload.clone()));
            }
            Call::Stretch {
                threads,
                results,
                uses,
                course,
            } => gathered.stretch(threads, results, &uses, course),
        }
    }

    fn last_rows(gathered: &Gathered, rows: &mut Rows<Seconds>) {
        rows.add_all(&gathered.results, &gathered.uses);
    }

    fn warnings(gathered: &Gathered) -> &[Warning] {
        &gathered.warnings
    }

    fn is_empty(gathered: &Gathered) -> bool {
        gathered.results.is_empty()
    }

    fn conclude(run: &mut Finished<'_, Self>, gathered: Gathered) -> Concluded<LoadResults> {
        let Gathered {
            label,
            mode,
            data,
            mut results,
            measured_us,
            ..
        } = gathered;
        run.warn(gathered.warnings);
        for row in &mut results {
            row.load.shape.clone_from(&label);
        }
        Concluded {
            target: run.target(label, vec![mode]),
            measured_us: Some(measured_us),
            histograms: Some(Histograms {
                took: Nanos((measured_us * 1e3) as i64),
                series: gathered.histograms,
            }),
            results: LoadResults {
                rows: results,
                data,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &LoadDocument) -> String {
        answer(document)
    }

    fn figures(document: &LoadDocument, _: &SampleFile) -> Result<Figures, Failure> {
        figures::figures(document)
    }

    fn report(document: &LoadDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &LoadDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(charts::load::charts(document))
    }

    fn findings(document: &LoadDocument) -> Findings<'_> {
        Findings::Load(document)
    }
}

/// Every server, with its process where it is known.
fn metered(servers: &dyn Servers, cluster: &Cluster) -> Vec<Member> {
    let nodes = std::iter::once((&cluster.primary.node, Role::Primary)).chain(
        cluster
            .replicas
            .iter()
            .map(|replica| (&replica.server.node, Role::Replica)),
    );
    let known = |node: &Node| {
        let mut members = servers.members().iter();
        members.find(|member| member.node.name == node.name)
    };
    nodes
        .map(|(node, role)| {
            let known = known(node);
            Member {
                node: node.clone(),
                role: known.and_then(|member| member.role).or(Some(role)),
                source: None,
                pid: known.and_then(|member| member.pid),
            }
        })
        .collect()
}

/// The servers that a workload runs on, and whether it may only read there.
fn places(workload: &Workload, reads: Reads, cluster: &Cluster) -> (Vec<Node>, bool) {
    let primary = cluster.primary.node.clone();
    if !workload.reads_only() || reads == Reads::Primary || cluster.replicas.is_empty() {
        return (vec![primary], false);
    }
    let reads_only = cluster
        .replicas
        .iter()
        .any(|replica| matches!(replica.relation, Relation::Channel { .. }));
    let replicas = cluster.replica_nodes();
    let nodes = if reads == Reads::All {
        std::iter::once(primary).chain(replicas).collect()
    } else {
        replicas
    };
    (nodes, reads_only)
}

/// Makes the data, and runs every workload with each number of threads.
fn measure(
    cx: &mut RunContext<'_, Load>,
    workloads: &[Workload],
    cluster: &Cluster,
    watch: &Watch,
    data: &mut Data,
) -> Result<(), Failure> {
    let work = cx.work;
    let set_of = make_data(cx, workloads, cluster, data)?;
    for threads in &work.threads {
        let squads: Vec<Squad<'_>> = workloads
            .iter()
            .zip(&set_of)
            .map(|(workload, set)| {
                let (nodes, reads_only) = places(workload, work.reads, cluster);
                Squad {
                    data: Some(&data.sets[*set]),
                    rate: work.rate,
                    reads_only,
                    ..Squad::new(workload, nodes, *threads)
                }
            })
            .collect();
        let stretch = stretch(cx, &squads, *threads, watch)?;
        cx.take(stretch)?;
        let failure = cx.gathered.failure.as_ref();
        if failure.is_some_and(|failure| failure.kind != Kind::Void)
            || cx.stop.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        if work.threads.last() != Some(threads) {
            // The next number of threads begins with as many rows as the first.
            for set in &data.sets {
                set.restore(&data.primary)?;
            }
        }
    }
    Ok(())
}

/// Makes the data of every workload, and says which set each runs on.
fn make_data(
    cx: &mut RunContext<'_, Load>,
    workloads: &[Workload],
    cluster: &Cluster,
    data: &mut Data,
) -> Result<Vec<usize>, Failure> {
    let (work, stop) = (cx.work, cx.stop);
    let replicas = cluster.replica_nodes();
    let mut set_of: Vec<usize> = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        let mut before = workloads[..index].iter();
        if let Some(known) = before.position(|other| other.same_data(workload)) {
            let set = set_of[known];
            cx.take(Call::Shared {
                data: set,
                workload: workload.name.clone(),
            })?;
            set_of.push(set);
            continue;
        }
        let observers = &cx.observers;
        let size = work
            .size
            .filter(|_| workload.has_data())
            .unwrap_or_else(|| workload.default_size());
        let mut progress = |filled: &Filled| observers.progress(filling(filled));
        let mut set = load::fill(
            &data.primary,
            &replicas,
            workload,
            size,
            FILLERS,
            &mut progress,
            stop,
        )?;
        let record = DataRecord {
            workloads: vec![workload.name.clone()],
            rows: set.rows,
            bytes: set.bytes,
            sent_bytes: set.sent,
            took_us: set.took.as_secs_f64() * 1e6,
            reused: set.reused,
        };
        let warnings = std::mem::take(&mut set.warnings);
        set_of.push(data.sets.len());
        data.sets.push(set);
        cx.take(Call::Warnings(warnings))?;
        cx.take(Call::Data(record))?;
    }
    for set in &data.sets {
        cx.stage(
            Stage::Prepare,
            "waiting for the replicas to receive the data",
        );
        set.await_on(&replicas, work.timeout.0, stop)?;
    }
    Ok(set_of)
}

/// Runs every workload with so many threads.
fn stretch(
    cx: &RunContext<'_, Load>,
    squads: &[Squad<'_>],
    threads: u32,
    watch: &Watch,
) -> Result<Call, Failure> {
    let work = cx.work;
    cx.stage(Stage::Prepare, "connecting the threads");
    let mut crew = Crew::open(squads, &cx.clock)?;
    let before = crew.measure_limit(LIMIT);
    let mut told = |second: &Second| cx.observers.progress(shown(work, squads, second));
    let _ = watch.read();
    let mut results = crew.stretch(work.ramp.0, work.duration.0, cx.stop, &mut told);
    // Nothing is known behind the last reading.
    let _ = watch.read();
    let (mut uses, mut course) = (Vec::new(), Vec::new());
    if let Some(first) = results.first() {
        uses = watch.over(first.began, first.began + first.counted);
        let seconds = (first.counted.0 / SECOND.0).max(0);
        let until = first.began + Nanos(seconds * SECOND.0);
        course = watch.course(
            first.began,
            until,
            u32::try_from(seconds).unwrap_or(u32::MAX),
        );
    }
    let whole = |result: &SquadResult| result.failure.is_none() && !result.interrupted;
    if results.iter().all(whole) {
        // The higher of two is the limit: something else may have slowed one down.
        let after = crew.measure_limit(LIMIT);
        for ((result, before), after) in results.iter_mut().zip(before).zip(after) {
            result.limit_per_s = before
                .zip(after)
                .map(|(before, after)| before.max(after))
                .or(before);
        }
    }
    Ok(Call::Stretch {
        threads,
        results,
        uses,
        course,
    })
}

/// How far a stretch is, for whoever waits.
fn shown(work: &LoadingPlan, squads: &[Squad<'_>], second: &Second) -> Progress {
    let (stage, doing) = match second.counted {
        true => (Stage::Measure, "measuring"),
        false => (Stage::WarmUp, "warming up"),
    };
    let whole = (work.ramp.0 + work.duration.0).as_secs_f64();
    let mut shown = Progress::new(stage, doing).done(second.at.0 as f64 / 1e9, Some(whole), "s");
    for (squad, told) in squads.iter().zip(&second.squads) {
        let name = format!("{}:{}", squad.workload.name, squad.threads);
        shown = shown.with(Detail::Rate(name.into(), told.operations as f64));
        if let Some(waiting) = told.waiting.filter(|waiting| *waiting > 0) {
            shown = shown.with(Detail::Count(waiting, "waiting".into()));
        }
        if told.failed > 0 {
            shown = shown.with(Detail::Count(told.failed, "given up".into()));
        }
    }
    shown
}
