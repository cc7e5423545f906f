//! Carries out a `load`: makes the data, runs the workloads, and reports.

use std::{
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};

use replimeter_measure::{
    load::{self, Crew, DataSet, Filled, Second, Squad, Workload},
    preflight::Cluster,
    resources::{Meter, Metered, Watch},
    survey::Relation,
};
use replimeter_model::{
    load::{DataRecord, LOAD_SCHEMA, LoadDocument, LoadRow, Reads},
    plan::LoadingPlan,
    resources::PerOperation,
    target::Role,
    time::Nanos,
    warning::Warning,
};
use replimeter_report::{
    figures::count,
    loading::answer,
    seconds::{self, ServerSeconds},
};
use replimeter_server::Node;
use replimeter_stats::signed::SignedHistogram;

use crate::{
    document::Document,
    failure::{Failure, Kind, unexpected},
    frame::{Frame, Request},
    measure::{self, load as beside, servers},
    progress::Line,
    run_dir::SAMPLES,
};

/// For how long the client's own limit is measured before each stretch.
const LIMIT: Duration = Duration::from_millis(400);
/// How often what the servers use is looked at.
const GLANCE: Duration = Duration::from_millis(250);
const SECOND: Nanos = Nanos(1_000_000_000);
/// Connections that fill a data set.
const FILLERS: u32 = 4;

/// Refuses what makes no sense, before anything is touched.
pub(crate) fn check(work: &LoadingPlan) -> Result<(), Failure> {
    workloads(work).map(drop)
}

fn workloads(work: &LoadingPlan) -> Result<Vec<Workload>, Failure> {
    let workloads: Vec<Workload> = work
        .workloads
        .iter()
        .map(|name| beside::workload(name))
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
    beside::refuse_size(work.size, &workloads)?;
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

/// What was measured.
#[derive(Default)]
struct Measured {
    data: Vec<DataRecord>,
    results: Vec<LoadRow>,
    histograms: Vec<(String, SignedHistogram)>,
    uses: Vec<ServerSeconds>,
    warnings: Vec<Warning>,
    failure: Option<Failure>,
    measured_us: f64,
}

/// Carries it out.
pub(crate) fn carry_out(
    mut request: Request<'_, LoadingPlan>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let (plan, work, output) = (request.plan, request.work, request.output);
    let [target] = plan.targets.as_slice() else {
        return Err(unexpected());
    };
    let workloads = workloads(work)?;
    let warnings = std::mem::take(&mut request.warnings);
    let mut frame = Frame::begin("load", plan, output, work.keep_awake, false, warnings)?;
    let servers = request.obtain(target, &frame.line, stop)?;
    let declared = servers.to_measure();
    frame.line.say("checking the servers");
    let mut cluster = load::check(&declared)?;
    load::hold(&mut cluster.primary.session)?;
    frame.met(&servers, &mut cluster)?;
    let mut data = Data {
        primary: cluster.primary.node.clone(),
        sets: Vec::new(),
        stays: work.keep_data || servers.sandbox.is_some(),
    };
    let mut measured = Measured::default();
    let meter = Meter::open(metered(&servers, &cluster), &frame.clock)?;
    measured.warnings.extend(meter.warnings());
    let watch = Watch::start(meter, GLANCE);
    let result = measure(
        work,
        &workloads,
        &cluster,
        &frame,
        &watch,
        &mut data,
        &mut measured,
        stop,
    );
    watch.finish();
    // A load that no replica followed, or that did not wait as it was to, is not one of this mode.
    let fallen_back = cluster.fallen_back();
    let members = result.as_ref().err().and_then(|_| cluster.members_now());
    let ended = measured
        .failure
        .take()
        .or_else(|| cluster.verify().err().map(Failure::from));
    measured.failure = measure::with_causes(ended, fallen_back, members, target);
    frame.line.say("removing the data");
    measured.warnings.extend(data.remove());
    let mode = cluster.mode.to_owned();
    drop(cluster);
    let label = servers.label.clone();
    frame.close(servers);
    let kept_awake = frame.let_sleep();
    if let Err(failure) = result {
        if measured.results.is_empty() {
            frame.give_up();
            return Err(failure);
        }
        measured.failure.get_or_insert(failure);
    }
    frame.run_dir.keep();
    let written = seconds::write(
        &frame.run_dir.file(SAMPLES),
        &measured.results,
        &measured.uses,
    );
    let mut failure = measured.failure.take();
    if let Err(error) = written {
        failure.get_or_insert(error.into());
    }
    let mut warnings = std::mem::take(&mut frame.warnings);
    warnings.append(&mut measured.warnings);
    warnings.extend(failure.as_ref().map(Failure::warning));
    for row in &mut measured.results {
        row.load.shape.clone_from(&label);
    }
    let mut document = LoadDocument {
        schema: LOAD_SCHEMA.to_owned(),
        run_dir: frame.run_dir.path().display().to_string(),
        title: plan.title.clone(),
        status: measure::status(failure.as_ref()),
        error: failure.as_ref().map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: frame.manifest.started_at.clone(),
        measured_us: measured.measured_us,
        target: frame.target(plan, label, vec![mode]),
        settings: work.to_spec(),
        data: measured.data,
        results: measured.results,
        keep_awake: kept_awake,
        warnings,
    };
    document.answer = answer(&document);
    let series: Vec<_> = measured
        .histograms
        .iter()
        .map(|(tag, histogram)| (tag.clone(), histogram))
        .collect();
    let logged = frame.log(Nanos((measured.measured_us * 1e3) as i64), &series);
    frame
        .publish(&Document::Load(Box::new(document)), output, failure)
        .and(logged)
}

/// Every server, with its process where it is known.
fn metered(servers: &servers::Servers, cluster: &Cluster) -> Vec<Metered> {
    let nodes = std::iter::once((&cluster.primary.node, Role::Primary)).chain(
        cluster
            .replicas
            .iter()
            .map(|replica| (&replica.server.node, Role::Replica)),
    );
    let members = servers
        .sandbox
        .as_ref()
        .map_or(&[][..], |sandbox| sandbox.members());
    nodes
        .map(|(node, role)| {
            let member = members.iter().find(|member| member.node.name == node.name);
            Metered {
                node: node.clone(),
                role: member.map_or(role, |member| member.role),
                pid: member.map(|member| member.pid),
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
    let replicas = cluster
        .replicas
        .iter()
        .map(|replica| replica.server.node.clone());
    let nodes = if reads == Reads::All {
        std::iter::once(primary).chain(replicas).collect()
    } else {
        replicas.collect()
    };
    (nodes, reads_only)
}

#[allow(
    clippy::too_many_arguments,
    reason = "the parts of one run, each used once"
)]
fn measure(
    work: &LoadingPlan,
    workloads: &[Workload],
    cluster: &Cluster,
    frame: &Frame,
    watch: &Watch,
    data: &mut Data,
    measured: &mut Measured,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let line = &frame.line;
    // Which set each workload runs on.
    let mut set_of = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        if let Some(known) = workloads[..index]
            .iter()
            .position(|other| other.same_data(workload))
        {
            let set: usize = set_of[known];
            measured.data[set].workloads.push(workload.name.clone());
            set_of.push(set);
            continue;
        }
        for replica in &cluster.replicas {
            load::refuse_foreign(&replica.server.node, workload)?;
        }
        line.say(format!("making the data of {}", workload.name));
        let size = work
            .size
            .filter(|_| workload.has_data())
            .unwrap_or_else(|| workload.default_size());
        let mut progress = |filled: &Filled| line.say(beside::filling(filled));
        let mut set = load::fill(&data.primary, workload, size, FILLERS, &mut progress, stop)?;
        measured.warnings.append(&mut set.warnings);
        measured.data.push(DataRecord {
            workloads: vec![workload.name.clone()],
            rows: set.rows,
            bytes: set.bytes,
            sent_bytes: set.sent,
            took_us: set.took.as_secs_f64() * 1e6,
            reused: set.reused,
        });
        set_of.push(data.sets.len());
        data.sets.push(set);
    }
    let replicas: Vec<Node> = cluster
        .replicas
        .iter()
        .map(|replica| replica.server.node.clone())
        .collect();
    for set in &data.sets {
        line.say("waiting for the replicas to receive the data");
        set.await_on(&replicas, work.timeout.0, stop)?;
    }
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
        line.say(format!(
            "connecting {} threads",
            threads * squads.len() as u32
        ));
        let mut crew = Crew::open(&squads, &frame.clock)?;
        let before = crew.measure_limit(LIMIT);
        let mut told = |second: &Second| tell(line, work, &squads, second);
        let _ = watch.read();
        let mut results = crew.stretch(work.ramp.0, work.duration.0, stop, &mut told);
        // Nothing is known behind the last reading.
        let _ = watch.read();
        let operations: u64 = results.iter().map(|result| result.operations).sum();
        let used = results
            .first()
            .map(|first| watch.over(first.began, first.began + first.counted))
            .unwrap_or_default();
        let servers: Vec<PerOperation> = used
            .iter()
            .map(|used| used.per_operation(operations))
            .collect();
        if let Some(first) = results.first() {
            let seconds = (first.counted.0 / SECOND.0).max(0);
            let until = first.began + Nanos(seconds * SECOND.0);
            let course = watch.course(
                first.began,
                until,
                u32::try_from(seconds).unwrap_or(u32::MAX),
            );
            measured.uses.push(ServerSeconds {
                threads: *threads,
                course,
            });
        }
        if results
            .iter()
            .all(|result| result.failure.is_none() && !result.interrupted)
        {
            // The higher of two is the limit: something else may have slowed one down.
            let after = crew.measure_limit(LIMIT);
            for ((result, before), after) in results.iter_mut().zip(before).zip(after) {
                result.limit_per_s = before
                    .zip(after)
                    .map(|(before, after)| before.max(after))
                    .or(before);
            }
        }
        drop(crew);
        for result in results {
            measured.measured_us =
                measured.measured_us.max(0.0) + result.counted.as_micros() / workloads.len() as f64;
            measured.warnings.extend(result.warnings());
            let row = LoadRow {
                load: result.record(),
                servers: servers.clone(),
            };
            let tag = format!("{}:{threads}", result.workload);
            measured
                .histograms
                .push((format!("{tag}/response"), result.response.clone()));
            measured
                .histograms
                .push((format!("{tag}/service"), result.service.clone()));
            if let Some(error) = result.failure {
                measured.failure.get_or_insert(error.into());
            } else if result.interrupted {
                measured.failure.get_or_insert(Failure::cut_short());
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
                measured.failure.get_or_insert(Failure::void(
                    message,
                    "measure for longer, or mend the statement",
                ));
            }
            measured.results.push(row);
        }
        if measured
            .failure
            .as_ref()
            .is_some_and(|failure| failure.kind != Kind::Void)
            || stop.load(Ordering::Relaxed)
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

fn tell(line: &Line, work: &LoadingPlan, squads: &[Squad<'_>], second: &Second) {
    let parts = squads.iter().zip(&second.squads).map(|(squad, told)| {
        let waiting = told
            .waiting
            .filter(|waiting| *waiting > 0)
            .map_or_else(String::new, |waiting| {
                format!(", {} waiting", count(waiting))
            });
        let failed = if told.failed > 0 {
            format!(", {} given up", count(told.failed))
        } else {
            String::new()
        };
        format!(
            "{}:{} {}/s{waiting}{failed}",
            squad.workload.name,
            squad.threads,
            count(told.operations)
        )
    });
    let at = second.at.0 as f64 / 1e9;
    let whole = (work.ramp.0 + work.duration.0).as_secs_f64();
    let phase = if second.counted {
        ""
    } else {
        " (not counted yet)"
    };
    line.say(format!(
        "{at:.0} of {whole:.0} s{phase}: {}",
        parts.collect::<Vec<_>>().join("; ")
    ));
}
