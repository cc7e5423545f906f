//! Carries out a plan from beginning to end: run directory, target, checks,
//! measurement, clean-up, report.

pub(crate) mod document;
pub(crate) mod load;
pub(crate) mod servers;

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use replimeter_measure::{
    backlog,
    lag::{self, Compared, LARGEST_PACKET, Listener, Outcome, Possible},
    load::Workload,
    preflight::{self, CheckedReplica, Cluster},
    table::ProbeTable,
};
use replimeter_model::{
    plan::{LagPlan, Writes},
    record::RunStatus,
    sample::{LagSample, Phase},
    target::{NULL_REPLICA, PRIMARY, Target},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_report::samples::SamplesWriter;
use replimeter_server::ServerError;

use self::{
    document::Gathered,
    load::{Beside, Setting, under_load},
};
use crate::{
    cli::OutputArgs,
    document::Document,
    environment,
    failure::{Failure, Kind},
    frame::{Frame, Request},
    machine,
};

/// How long a server may take to answer a question outside the measuring path.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// How long the replicas may take to apply the removal of our table.
const REMOVAL: Duration = Duration::from_secs(5);

/// Everything that one shape of a run came to.
pub(crate) struct Part {
    /// What reports call it.
    pub(crate) label: String,
    /// How it replicates, as its servers say.
    pub(crate) mode: String,
    /// Configured delays on the way to each replica.
    pub(crate) delays: Vec<Duration>,
    pub(crate) gathered: Gathered,
    pub(crate) outcome: Outcome,
    pub(crate) beside: Beside,
    /// What ended it, or makes it void.
    pub(crate) failure: Option<Failure>,
}

/// What the parts of a run share.
struct Run<'a> {
    request: &'a Request<'a, LagPlan>,
    frame: Frame,
    writer: SamplesWriter,
    workloads: Vec<Workload>,
    stop: &'a AtomicBool,
}

/// Carries out a plan.
pub(crate) fn carry_out(
    mut request: Request<'_, LagPlan>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let (plan, lag, output) = (request.plan, request.work, request.output);
    check(&plan.targets, lag, output)?;
    let workloads = load::workloads(&lag.load)?;
    if plan.targets.len() > 1 {
        servers::possible(&plan.targets)?;
    }
    let warnings = std::mem::take(&mut request.warnings);
    let frame = Frame::begin("lag", plan, output, lag.keep_awake, lag.real_time, warnings)?;
    let writer = frame.samples()?;
    let mut run = Run {
        request: &request,
        frame,
        writer,
        workloads,
        stop,
    };
    let mut parts: Vec<Part> = Vec::new();
    let failure = each(&plan.targets, |target| match run.part(target) {
        Ok(mut part) => {
            let ended = part.failure.take();
            parts.push(part);
            ended
        }
        Err(error) => Some(error),
    });
    let Run {
        mut frame, writer, ..
    } = run;
    let kept_awake = frame.let_sleep();
    if parts.is_empty() {
        frame.give_up();
        return Err(failure.unwrap_or_else(|| Failure::failed("there is nothing to measure", "")));
    }
    frame.line.say("writing the report");
    let finished = writer.finish();
    frame.run_dir.keep();
    let failure = failure.or_else(|| finished.err().map(Failure::from));
    let warnings = std::mem::take(&mut frame.warnings);
    let run = document::Run {
        plan,
        lag,
        manifest: &frame.manifest,
        clock: &frame.clock,
        run_dir: frame.run_dir.path(),
        kept_awake,
        real_time: frame.real_time,
        failure: failure.as_ref(),
    };
    let document = document::build(&run, &parts, warnings);
    let measured = Nanos(parts.iter().map(|part| part.outcome.measured.0).sum());
    let logged = frame.log(measured, &document::histograms(&parts));
    frame
        .publish(&Document::Lag(Box::new(document)), output, failure)
        .and(logged)
}

impl Run<'_> {
    /// Measures one target, from its start to its end.
    fn part(&mut self, target: &Target) -> Result<Part, Failure> {
        let lag = self.request.work;
        let servers = self.request.obtain(target, &self.frame.line, self.stop)?;
        let declared = servers.to_measure();
        self.frame.line.say("checking the servers");
        let mut cluster = preflight::check(&declared)?;
        interrupted(self.stop)?;
        self.frame.met(&servers, &mut cluster)?;
        let names = match cluster.replicas.len() {
            0 => vec![NULL_REPLICA.to_owned()],
            _ => cluster.replica_names(),
        };
        self.writer.begin(&servers.label, names.clone())?;
        let possible = lag::possible(&mut cluster, &lag.methods)?;
        self.frame
            .warnings
            .extend(possible.warnings.iter().cloned());
        lag::check_stages(&mut cluster, lag)?;
        if let Some(wanted) = &lag.backlog {
            backlog::check(&mut cluster, wanted)?;
        }
        let (table, found) = ProbeTable::create(&mut cluster, lag.timeout.0)?;
        self.frame.warnings.extend(found);
        let mut gathered = Gathered::new(lag, names, &possible.methods);
        let before = machine::CoreTime::read();
        let mut beside = Beside::default();
        let (clock, line) = (self.frame.clock, &self.frame.line);
        let setting = Setting {
            plan: lag,
            workloads: &self.workloads,
            clock: &clock,
            line,
            stop: self.stop,
        };
        let writer = &mut self.writer;
        let result = under_load(&setting, &mut cluster, &mut beside, |cluster| {
            measure(&setting, cluster, &possible, writer, &mut gathered)
        });
        self.frame.warnings.append(&mut beside.warnings);
        let idle = before
            .zip(machine::CoreTime::read())
            .and_then(|(before, after)| after.idle_share(before));
        let fallen_back = cluster.fallen_back();
        let members = result
            .as_ref()
            .ok()
            .filter(|outcome| outcome.failure.is_some())
            .and_then(|_| cluster.members_now());
        // Whatever happened, our table goes first.
        self.frame.line.say("removing our table");
        match &servers.sandbox {
            Some(_) => table.abandon(),
            None => self
                .frame
                .warnings
                .extend(table.remove(&mut cluster, REMOVAL, self.stop)),
        }
        if let (false, Some(share)) = (self.frame.kept_awake(), idle.filter(|share| *share > 0.5)) {
            self.frame.warnings.push(Warning::new(
                WarningCode::KeepAwakeOff,
                format!("this machine's cores were idle for {:.0} % of the run and were not kept awake: waking them is part of every time", share * 100.0),
                "use --keep-awake on",
            ));
        }
        let mode = cluster.mode.to_owned();
        let delays = cluster.replicas.iter().map(CheckedReplica::delay).collect();
        drop(cluster);
        let label = servers.label.clone();
        self.frame.close(servers);
        let outcome = result?;
        let failure = with_causes(end_of(&outcome), fallen_back, members, target);
        Ok(Part {
            label,
            mode,
            delays,
            gathered,
            outcome,
            beside,
            failure,
        })
    }
}

/// Measures, and always leaves the samples in a state that can be finished.
fn measure(
    setting: &Setting<'_>,
    cluster: &mut Cluster,
    possible: &Possible,
    writer: &mut SamplesWriter,
    gathered: &mut Gathered,
) -> Result<Outcome, Failure> {
    let panics = environment::fault().as_deref() == Some("panic-while-measuring");
    let gathered = RefCell::new(gathered);
    let mut sample = |sample: &LagSample| {
        assert!(
            !(panics && sample.write.phase == Phase::Measure),
            "a fault was asked for"
        );
        gathered.borrow_mut().record(sample);
        writer.write(sample).map_err(|error| error.to_string())
    };
    let mut compared = |compared: &Compared| gathered.borrow_mut().compare(compared);
    let mut progress = |progress| setting.line.show(&progress);
    let mut listener = Listener {
        sample: &mut sample,
        compared: &mut compared,
        progress: &mut progress,
        stop: setting.stop,
    };
    Ok(lag::run(
        cluster,
        setting.plan,
        possible,
        1,
        setting.clock,
        &mut listener,
    )?)
}

/// Measures one target after another; what ended that, if anything did.
pub(crate) fn each(
    targets: &[Target],
    mut one: impl FnMut(&Target) -> Option<Failure>,
) -> Option<Failure> {
    let mut failure: Option<Failure> = None;
    for target in targets {
        let ended =
            one(target).map(|ended| ended.about(&servers::label(target), targets.len() > 1));
        // A void shape does not keep the next one from being measured, and is not forgotten over it.
        if ended.as_ref().is_some_and(|ended| ended.kind != Kind::Void) {
            return ended;
        }
        failure = failure.or(ended);
    }
    failure
}

/// What the measurement of a target ended with, given whether a semi-synchronous primary fell
/// back meanwhile and how the members of a cluster stand.
pub(crate) fn with_causes(
    ended: Option<Failure>,
    fallen_back: Result<Option<String>, ServerError>,
    members: Option<String>,
    target: &Target,
) -> Option<Failure> {
    match (ended, fallen_back) {
        (None, Ok(None)) => None,
        (None, Ok(Some(reason))) => Some(Failure::void(
            reason,
            "the figures are of a mixture of modes: find out why no replica answered in time, and measure again",
        )),
        (None, Err(error)) => Some(error.into()),
        (Some(mut failure), fallen_back) => {
            // What happened beside it may be its cause.
            let more = [
                fallen_back.ok().flatten(),
                members.map(|members| format!("the members say: {members}")),
            ];
            for more in more.into_iter().flatten() {
                failure.message = format!("{}; {more}", failure.message);
            }
            if let Some(cut) = servers::cut_links(target) {
                failure.hint = cut;
            }
            Some(failure)
        }
    }
}

/// What the command ends with, when not with success.
pub(crate) fn end_of(outcome: &Outcome) -> Option<Failure> {
    if let Some(error) = &outcome.failure {
        return Some(Failure::failed(error.to_string(), error.hint()));
    }
    outcome.interrupted.then(Failure::cut_short)
}

/// The status that goes with the ending.
pub(crate) fn status(failure: Option<&Failure>) -> RunStatus {
    match failure {
        None => RunStatus::Complete,
        Some(Failure {
            kind: Kind::Interrupted,
            ..
        }) => RunStatus::Interrupted,
        Some(Failure {
            kind: Kind::Void, ..
        }) => RunStatus::Void,
        Some(_) => RunStatus::Failed,
    }
}

/// Refuses what makes no sense, before anything is touched.
pub(crate) fn check(
    targets: &[Target],
    plan: &LagPlan,
    output: &OutputArgs,
) -> Result<(), Failure> {
    if output.raw && !matches!(plan.writes, Writes::Sweep { .. }) {
        return Err(Failure::usage(
            "--raw needs a sweep over sizes",
            "add --sizes 1000..10000:1000, or leave --raw out",
        ));
    }
    load::workloads(&plan.load)?;
    for target in targets {
        let Target::Sandbox(spec) = target else {
            continue;
        };
        let names = spec.shape.nodes();
        // `primary` is whoever is written to.
        let known = |name: &str| name == PRIMARY || names.iter().any(|known| known == name);
        if let Some(load) = plan.load.iter().find(|load| !known(&load.spec.node)) {
            return Err(Failure::usage(
                format!(
                    "the load {}: {} has no server `{}`; it has {}",
                    load.spec,
                    spec.shape,
                    load.spec.node,
                    names.join(", ")
                ),
                "name one of them behind the @ of --load",
            ));
        }
    }
    let largest = plan.largest_size();
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
    if stop.load(Ordering::Relaxed) {
        Err(Failure::interrupted(
            "interrupted before the measurement began",
        ))
    } else {
        Ok(())
    }
}
