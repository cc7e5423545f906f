//! Carries out a plan from beginning to end: run directory, target, checks,
//! measurement, clean-up, report.

mod document;

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use replimeter_measure::{
    MeasureError,
    awake::KeepAwake,
    clock::Clock,
    lag::{LARGEST_PACKET, Listener, Outcome},
    preflight::{self, Cluster},
    priority::real_time_permitted,
    table::ProbeTable,
};
use replimeter_model::{
    manifest::{MANIFEST_SCHEMA, Manifest},
    plan::{LagPlan, Plan, Writes},
    record::RunStatus,
    sample::{LagSample, Phase},
    target::{NULL_REPLICA, Passwords, Target, replica_name},
    warning::{Warning, WarningCode},
};
use replimeter_report::{samples::SamplesWriter, terminal};
use replimeter_sandbox::{Sandbox, Settings};
use replimeter_server::Node;

use self::document::Gathered;
use crate::{
    cli::OutputArgs,
    commands::report,
    credentials, environment,
    failure::{Failure, Kind},
    machine,
    progress::Line,
    run_dir::{MANIFEST, PLAN, RunDir, SAMPLES, SUMMARY, write_json, write_text},
};

/// How long a server may take to answer a question outside the measuring path.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the replicas may take to apply the removal of our table.
const REMOVAL: Duration = Duration::from_secs(5);

/// A plan and what goes with it.
pub(crate) struct Request<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) passwords: &'a Passwords,
    pub(crate) ask_password: bool,
    pub(crate) output: &'a OutputArgs,
    pub(crate) warnings: Vec<Warning>,
}

/// The text of `plan.toml`.
pub(crate) fn plan_text(plan: &Plan) -> Result<String, Failure> {
    plan.to_toml().map_err(|error| Failure::failed(format!("cannot write the plan: {error}"), "please report this as a defect"))
}

/// The servers of a run; a sandbox goes when this is dropped.
struct Servers {
    sandbox: Option<Sandbox>,
    nodes: Vec<Node>,
}

/// Carries out a plan.
pub(crate) fn carry_out(request: Request<'_>, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let Request { plan, output, mut warnings, .. } = request;
    check(plan, output)?;
    let mut run_dir = RunDir::create(output.run_dir.as_deref(), "lag")?;
    let plan_text = plan_text(plan)?;
    write_text(&run_dir.file(PLAN), &plan_text)?;

    let line = Line::new();
    let servers = obtain(plan, request.passwords, request.ask_password, &line, stop)?;
    if let Some(sandbox) = servers.sandbox.as_ref().filter(|sandbox| sandbox.in_memory()) {
        warnings.push(Warning::new(
            WarningCode::MemoryFileSystem,
            format!("the sandbox's data lies in memory ({}), where a flush costs nothing", sandbox.record().file_system),
            "set REPLIMETER_HOME to a folder on a disk",
        ));
    }
    let nodes: Vec<Node> = servers.nodes.iter().map(|node| Node { answer: ANSWER, ..node.clone() }).collect();
    let (primary, replicas) = nodes.split_first().ok_or_else(|| Failure::failed("there is no server to measure", ""))?;
    line.say("checking the servers");
    let mut cluster = preflight::check(primary, replicas)?;
    interrupted(stop)?;

    let awake = keep_awake(&plan.lag, &mut warnings);
    let real_time = plan.lag.real_time && real_time(&mut warnings);
    let clock = Clock::start();
    let started_at = jiff::Timestamp::now();
    let manifest = Manifest {
        schema: MANIFEST_SCHEMA.to_owned(),
        replimeter: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: started_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        origin_unix_us: clock.origin_unix_us(),
        machine: machine::describe(),
        servers: cluster.records(),
        sandbox: servers.sandbox.as_ref().map(|sandbox| sandbox.record().clone()),
    };
    write_json(&run_dir.file(MANIFEST), &manifest)?;
    let names: Vec<String> = match replicas.len() {
        0 => vec![NULL_REPLICA.to_owned()],
        count => (0..count).map(replica_name).collect(),
    };
    let mut writer = SamplesWriter::create(&run_dir.file(SAMPLES), names.clone(), NULL_REPLICA)
        .map_err(|error| MeasureError::Sink(error.to_string()))?;
    warnings.append(&mut cluster.warnings);

    let (table, found) = ProbeTable::create(&mut cluster, plan.lag.timeout.0)?;
    warnings.extend(found);
    let mut gathered = Gathered::new(&plan.lag, names);
    let before = machine::CoreTime::read();
    let result = measure(&mut cluster, &plan.lag, &clock, &mut writer, &mut gathered, &line, stop);
    let idle = before.zip(machine::CoreTime::read()).and_then(|(before, after)| after.idle_share(before));
    // Whatever happened, our table goes first.
    line.say("removing our table");
    match &servers.sandbox {
        Some(_) => table.abandon(),
        None => warnings.extend(table.remove(&mut cluster, REMOVAL, stop)),
    }
    if let (None, Some(share)) = (&awake, idle.filter(|share| *share > 0.5)) {
        warnings.push(Warning::new(
            WarningCode::KeepAwakeOff,
            format!("this machine's cores were idle for {:.0} % of the run and were not kept awake: waking them is part of every time", share * 100.0),
            "use --keep-awake on",
        ));
    }
    drop(cluster);
    let kept_awake = awake.is_some();
    drop(awake);
    if let Some(sandbox) = servers.sandbox {
        line.say("removing the sandbox");
        if let Err(error) = sandbox.close() {
            warnings.push(Warning::new(WarningCode::CleanUpIncomplete, error.to_string(), "the next start removes it"));
        }
    }
    line.say("writing the report");
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(failure) => {
            line.clear();
            // There will be no report to carry them.
            let mut err = std::io::stderr();
            let _ = write!(err, "{}", terminal::warnings(&warnings).trim_start());
            return Err(failure);
        }
    };
    let finished = writer.finish();
    run_dir.keep();
    let failure = end_of(&outcome, finished.err().map(|error| error.to_string()));
    let run = document::Run {
        plan,
        manifest: &manifest,
        clock: &clock,
        run_dir: run_dir.path(),
        kept_awake,
        real_time,
        failure: failure.as_ref(),
    };
    let document = document::build(&run, &gathered, &outcome, warnings);
    let written = write_json(&run_dir.file(SUMMARY), &document)
        .and_then(|()| report::render(run_dir.path(), &document, &manifest, &plan_text));
    line.clear();
    // The figures are shown even when the disk took the page no more.
    report::show(&document, output.json, output.raw)?;
    match (failure, written) {
        (Some(failure), _) => Err(failure),
        (None, written) => written,
    }
}

/// Measures, and always leaves the samples in a state that can be finished.
fn measure(
    cluster: &mut Cluster,
    plan: &LagPlan,
    clock: &Clock,
    writer: &mut SamplesWriter,
    gathered: &mut Gathered,
    line: &Line,
    stop: &AtomicBool,
) -> Result<Outcome, Failure> {
    let panics = environment::fault().as_deref() == Some("panic-while-measuring");
    let mut sample = |sample: &LagSample| {
        assert!(!(panics && sample.write.phase == Phase::Measure), "a fault was asked for");
        gathered.record(sample);
        writer.write(sample).map_err(|error| error.to_string())
    };
    let mut progress = |progress| line.show(&progress);
    let mut listener = Listener { sample: &mut sample, progress: &mut progress, stop };
    Ok(replimeter_measure::lag::run(cluster, plan, clock, &mut listener)?)
}

/// What the command ends with, when not with success.
fn end_of(outcome: &Outcome, unfinished: Option<String>) -> Option<Failure> {
    if let Some(error) = &outcome.failure {
        return Some(Failure::failed(error.to_string(), error.hint()));
    }
    if let Some(error) = unfinished {
        return Some(MeasureError::Sink(error).into());
    }
    outcome.interrupted.then(|| Failure::interrupted("interrupted; what was measured until then is kept"))
}

/// The status that goes with the ending.
pub(crate) fn status(failure: Option<&Failure>) -> RunStatus {
    match failure {
        None => RunStatus::Complete,
        Some(Failure { kind: Kind::Interrupted, .. }) => RunStatus::Interrupted,
        Some(_) => RunStatus::Failed,
    }
}

/// Refuses what makes no sense, before anything is touched.
pub(crate) fn check(plan: &Plan, output: &OutputArgs) -> Result<(), Failure> {
    if output.raw && !matches!(plan.lag.writes, Writes::Sweep { .. }) {
        return Err(Failure::usage("--raw needs a sweep over sizes", "add --sizes 1000..10000:1000, or leave --raw out"));
    }
    let largest = plan.lag.largest_size();
    if largest <= LARGEST_PACKET {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "a row of {largest} bytes is more than any server takes: the largest max_allowed_packet there is, is {LARGEST_PACKET} bytes"
        ),
        "choose a smaller size",
    ))
}

fn interrupted(stop: &AtomicBool) -> Result<(), Failure> {
    if stop.load(Ordering::Relaxed) { Err(Failure::interrupted("interrupted before the measurement began")) } else { Ok(()) }
}

fn obtain(plan: &Plan, passwords: &Passwords, ask: bool, line: &Line, stop: &AtomicBool) -> Result<Servers, Failure> {
    match &plan.target {
        Target::Sandbox { shape, server_options, servers } => {
            line.say(format!("starting the sandbox {shape}"));
            let home = environment::private_home()?;
            let search = environment::search(&home, servers.clone());
            let settings = Settings { shape: *shape, options: server_options.clone(), search, home };
            let sandbox = Sandbox::start(&settings, stop)?;
            let nodes = sandbox.nodes().to_vec();
            Ok(Servers { sandbox: Some(sandbox), nodes })
        }
        Target::Endpoints { primary, replicas } => {
            // A prompt and a spinner would write over one another.
            line.clear();
            let nodes = credentials::nodes(primary, replicas, passwords, plan.defaults_file.as_deref(), ask)?;
            Ok(Servers { sandbox: None, nodes })
        }
    }
}

fn real_time(warnings: &mut Vec<Warning>) -> bool {
    let Err(reason) = real_time_permitted() else { return true };
    warnings.push(Warning::new(
        WarningCode::ClientLimited,
        format!("the measuring threads have no real-time priority ({reason}): on busy cores they wait behind the servers, and brackets are wider for it"),
        "run as root or with CAP_SYS_NICE, raise the limit (ulimit -r 1), or accept it with --real-time off",
    ));
    false
}

fn keep_awake(plan: &LagPlan, warnings: &mut Vec<Warning>) -> Option<KeepAwake> {
    if !plan.keep_awake {
        return None;
    }
    KeepAwake::start()
        .map_err(|reason| {
            warnings.push(Warning::new(
                WarningCode::ClientLimited,
                format!("idle cores could not be kept awake: {reason}"),
                "waking them is part of every time; compare only with runs that carry this warning too",
            ));
        })
        .ok()
}
