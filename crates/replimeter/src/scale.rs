//! Carries out a scaling measurement: fresh servers for every number of replicas, in
//! rounds, phase by phase.

mod gathered;

use std::{
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use replimeter_measure::{
    preflight,
    resources::Metered,
    scale::{Broken, Field, Step, Workloads},
};
use replimeter_model::{
    plan::{Plan, ScalePhase, ScalePlan},
    scale::{SCALE_SCHEMA, ScaleDocument},
    target::{Passwords, Target},
    warning::{Warning, WarningCode},
};
use replimeter_report::{blocks::BlocksWriter, figures::count, scale::answer};
use replimeter_sandbox::Sandbox;
use replimeter_stats::random::Random;

use self::gathered::Gathered;
use crate::{
    cli::OutputArgs,
    document::Document,
    failure::{Failure, Kind, unexpected},
    frame::Frame,
    measure::{self, servers},
    run_dir::SAMPLES,
};

/// What the starts share.
struct Run<'a> {
    plan: &'a Plan,
    work: &'a ScalePlan,
    workloads: Workloads,
    frame: Frame,
    writer: BlocksWriter,
    gathered: Gathered,
    stop: &'a AtomicBool,
    /// Starts so far, and all of them.
    starts: (usize, usize),
}

/// Carries out a scaling measurement.
pub(crate) fn carry_out(
    plan: &Plan,
    work: &ScalePlan,
    output: &OutputArgs,
    warnings: Vec<Warning>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    servers::possible(&plan.targets)?;
    let workloads = Workloads::published().map_err(|error| {
        Failure::failed(
            format!("a workload of ours cannot be read: {error}"),
            "please report this as a defect",
        )
    })?;
    let frame = Frame::begin("scale", plan, output, work.keep_awake, false, warnings)?;
    let writer = BlocksWriter::create(&frame.run_dir.file(SAMPLES))?;
    let counts = work.replicas.counts().to_vec();
    let rounds = work.starts as usize;
    let more = usize::from(work.check_prediction);
    let starts = (0, rounds * (counts.len() + more));
    let mut run = Run {
        plan,
        work,
        workloads,
        frame,
        writer,
        gathered: Gathered::default(),
        stop,
        starts,
    };
    let mut random = Random::new(work.seed);
    let mut order: Vec<Vec<u32>> = Vec::new();
    let mut failure = None;
    'rounds: for round in 1..=work.starts {
        let mut shuffled = counts.clone();
        random.shuffle(&mut shuffled);
        order.push(Vec::new());
        for replicas in shuffled {
            if let Some(order) = order.last_mut() {
                order.push(replicas);
            }
            failure = run.start(replicas, round).err();
            if failure.is_some() {
                break 'rounds;
            }
        }
    }
    run.gathered.fit(work);
    if failure.is_none() && work.check_prediction {
        let replicas = work.replicas.most() + 1;
        for round in 1..=work.starts {
            failure = run.start(replicas, round).err();
            if failure.is_some() {
                break;
            }
        }
        run.gathered.check(work, replicas);
    }
    let Run {
        mut frame,
        writer,
        gathered,
        ..
    } = run;
    let kept_awake = frame.let_sleep();
    if gathered.is_empty() {
        frame.give_up();
        return Err(failure.unwrap_or_else(unexpected));
    }
    // What was begun is kept, whichever step it was interrupted in.
    let failure = failure.map(|failure| match failure.kind {
        Kind::Interrupted => Failure::cut_short(),
        _ => failure,
    });
    let finished = writer.finish();
    frame.run_dir.keep();
    let failure = failure.or_else(|| finished.err().map(Failure::from));
    let failure = failure.or_else(|| gathered.void());
    let cores = u32::try_from(frame.manifest.machine.cores).unwrap_or(u32::MAX);
    let mut warnings = std::mem::take(&mut frame.warnings);
    let cpus_per_server = frame
        .manifest
        .sandboxes
        .iter()
        .find_map(|sandbox| sandbox.cpus_per_server.clone());
    warnings.extend(gathered.warnings(cores, cpus_per_server.is_none()));
    warnings.extend(uneven(work));
    warnings.extend(failure.as_ref().map(Failure::warning));
    let logged = frame.log(gathered.counted(), &gathered.latencies());
    let mut document = ScaleDocument {
        schema: SCALE_SCHEMA.to_owned(),
        run_dir: frame.run_dir.path().display().to_string(),
        title: plan.title.clone(),
        status: measure::status(failure.as_ref()),
        error: failure.as_ref().map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: frame.manifest.started_at.clone(),
        target: frame.target(
            plan,
            format!("{}:{}", work.mode, work.replicas),
            vec![work.mode.mode().name().to_owned()],
        ),
        settings: plan.to_file().scale.unwrap_or_default(),
        data_rows: gathered.data.0,
        data_bytes: gathered.data.1,
        cores,
        cpus_per_server,
        order,
        results: gathered.rows(work),
        fits: gathered.fits,
        keep_awake: kept_awake,
        warnings,
    };
    document.answer = answer(&document);
    frame
        .publish(&Document::Scale(Box::new(document)), output, failure)
        .and(logged)
}

impl Run<'_> {
    /// Measures every phase on fresh servers with so many replicas.
    fn start(&mut self, replicas: u32, round: u32) -> Result<(), Failure> {
        self.starts.0 += 1;
        let shape = self
            .work
            .mode
            .shape(replicas)
            .map_err(|error| Failure::usage(error, "please report this as a defect"))?;
        let target = self
            .plan
            .targets
            .iter()
            .find(|target| matches!(target, Target::Sandbox(spec) if spec.shape == shape));
        let target = target.ok_or_else(unexpected)?;
        let place = format!("start {} of {}, {shape}", self.starts.0, self.starts.1);
        let servers = servers::obtain(
            target,
            &Passwords::new(),
            None,
            false,
            &self.frame.line,
            self.stop,
        )
        .map_err(|failure| failure.about(&place, true))?;
        let result = self.measure(&servers, replicas, round, &place);
        self.frame.close(servers);
        result.map_err(|failure| failure.about(&place, true))
    }

    fn measure(
        &mut self,
        servers: &servers::Servers,
        replicas: u32,
        round: u32,
        place: &str,
    ) -> Result<(), Failure> {
        let sandbox = servers.sandbox.as_ref().ok_or_else(unexpected)?;
        if !self
            .frame
            .manifest
            .sandboxes
            .iter()
            .any(|record| record.shape == servers.label)
        {
            let declared = servers.to_measure();
            let mut cluster = preflight::check(&declared)?;
            self.frame.met(servers, &mut cluster)?;
        }
        let metered: Vec<Metered> = sandbox
            .members()
            .iter()
            .map(|member| Metered {
                node: member.node.clone(),
                role: member.role,
                pid: Some(member.pid),
            })
            .collect();
        let (work, clock, stop) = (self.work, self.frame.clock, self.stop);
        let line = &self.frame.line;
        let mut filled = |filled: &replimeter_measure::load::Filled| {
            line.say(format!(
                "{place}: making the data set, {} of {} rows",
                count(filled.rows),
                count(filled.of)
            ));
        };
        let mut field = Field::open(metered, work, &self.workloads, &clock, &mut filled, stop)?;
        self.gathered.met(&field);
        let phases = work.phases();
        let mut block = 0;
        for turn in 0..work.blocks {
            let mut phases = phases.clone();
            // There and back again, over blocks and rounds, so that a drift of the servers hits all phases alike.
            if (turn + round).is_multiple_of(2) {
                phases.reverse();
            }
            for phase in phases {
                block += 1;
                let of = work.blocks as usize * work.phases().len();
                let mut step = |step: Step<'_>| {
                    line.say(format!("{place}: {}", words(phase, block, of, step)))
                };
                let result = field.block(phase, &mut step, stop);
                let (measured, error) = match result {
                    Ok(measured) => (Some(measured), None),
                    Err(Broken { error, until_then }) => {
                        (until_then.map(|block| *block), Some(error))
                    }
                };
                if let Some(measured) = measured {
                    let at = gathered::Place {
                        shape: &servers.label,
                        replicas,
                        start: round,
                        block: u32::try_from(block).unwrap_or(0),
                    };
                    let rows = self.gathered.add(&at, measured, work);
                    self.writer.write(rows)?;
                }
                if let Some(error) = error {
                    return Err(with_deaths(Failure::from(error), sandbox));
                }
            }
        }
        Ok(())
    }
}

/// Says which numbers of replicas cannot have equal shares of the clients.
fn uneven(work: &ScalePlan) -> Option<Warning> {
    let counts = work
        .replicas
        .counts()
        .iter()
        .filter(|count| !work.threads.is_multiple_of(work.readers(**count)));
    let counts: Vec<String> = counts.map(ToString::to_string).collect();
    (!counts.is_empty()).then(|| {
        Warning::new(
            WarningCode::UnevenLoad,
            format!(
                "{} clients cannot be shared evenly with {} replicas, since each keeps to one server: some servers had a client more than others",
                work.threads,
                counts.join(" and ")
            ),
            "ask for a number of threads that every number of servers divides, such as 12",
        )
    })
}

/// Adds which servers have died: that says more than their silence.
fn with_deaths(mut failure: Failure, sandbox: &Sandbox) -> Failure {
    if failure.kind == Kind::Interrupted {
        return failure;
    }
    let ended = |index: usize| sandbox.ended(index);
    let servers = sandbox.members().len();
    // A connection breaks a moment before its process can be waited for.
    for _ in 0..20 {
        if (0..servers).any(|index| ended(index).is_some()) {
            break;
        }
        thread::sleep(Duration::from_millis(25));
    }
    for (index, member) in sandbox.members().iter().enumerate() {
        if let Some(ended) = ended(index) {
            failure.message = format!(
                "{}; {} has ended ({ended})",
                failure.message, member.node.name
            );
        }
    }
    failure
}

/// What is going on, for the line of progress.
fn words(phase: ScalePhase, block: usize, of: usize, step: Step<'_>) -> String {
    let what = format!("block {block} of {of}, {}", phase.name());
    match step {
        Step::Load(second) => {
            let seconds = second.at.0 as f64 / 1e9;
            let operations: Vec<String> = second
                .squads
                .iter()
                .map(|squad| count(squad.operations))
                .collect();
            let counted = if second.counted { "" } else { ", warming up" };
            format!(
                "{what}: {seconds:.0} s, {} operations{counted}",
                operations.join(" + ")
            )
        }
        Step::CatchingUp(behind) => format!(
            "{what}: replicas apply, {} transactions behind",
            count(behind)
        ),
    }
}
