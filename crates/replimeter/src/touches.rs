//! What a plan will touch: servers, tables, load and files, said before anything is done.

use std::path::Path;

use replimeter_model::{
    cost::CostKind,
    cost::CostModes,
    load::LoadSpec,
    plan::{
        CostPlan, Crash, ExposurePlan, LagPlan, LoadingPlan, LossPlan, Method, Plan, ScalePlan,
        StalePlan, TapPlan, Until, Work, Writes,
    },
    sandbox::SandboxSpec,
    span::Span,
    target::Target,
};

use crate::{
    cli::OutputArgs,
    failure::Failure,
    measure::load::workload,
    run_dir::{HISTOGRAMS, MANIFEST, PAGE, PLAN, SAMPLES, SUMMARY, TICKET},
};

/// The name in front of each sentence.
const SERVERS: &str = "servers";
const WRITES: &str = "writes";
const LOAD: &str = "load";
const TIME: &str = "time";
const FILES: &str = "files";

/// What is touched, in the order in which it is said.
#[derive(Default)]
struct Touches(Vec<(&'static str, String)>);

impl Touches {
    fn say(&mut self, what: &'static str, sentence: impl Into<String>) {
        self.0.push((what, sentence.into()));
    }
}

/// As lines of a plan file that are comments, so that what a dry run prints is a plan.
///
/// # Errors
/// When a file that the plan names cannot be read.
pub(crate) fn comments(plan: &Plan, output: &OutputArgs) -> Result<String, Failure> {
    let mut touches = Touches::default();
    match &plan.work {
        Work::Lag(work) => lag(&mut touches, plan, work)?,
        Work::Calibrate(work) => {
            targets(&mut touches, plan);
            touches.say(
                SERVERS,
                "puts a link of its own between them, whose delay it changes",
            );
            table(&mut touches, plan, "lag_probe", "the writer's rows");
            let rounds = match work.lag.writes {
                Writes::Rounds {
                    until: Until::Rounds(rounds),
                    ..
                } => rounds,
                _ => 0,
            };
            let all = rounds * work.delays.len() as u64 * u64::from(work.repeats);
            touches.say(
                LOAD,
                format!("1 writer, {all} rows in all, {} delays", work.delays.len()),
            );
        }
        Work::Tap(work) => tap(&mut touches, plan, work),
        Work::Load(work) => load(&mut touches, plan, work)?,
        Work::Scale(work) => scale(&mut touches, plan, work),
        Work::Cost(work) => cost(&mut touches, work)?,
        Work::Stale(work) => stale(&mut touches, plan, work)?,
        Work::Loss(work) => loss(&mut touches, plan, work),
        Work::Exposure(work) => exposure(&mut touches, plan, work),
    }
    files(&mut touches, plan, output);
    let lines = touches
        .0
        .iter()
        .map(|(what, sentence)| format!("#   {what:<8} {sentence}\n"));
    Ok(std::iter::once("# What it will touch:\n".to_owned())
        .chain(lines)
        .collect())
}

/// What is started, or connected to.
fn targets(touches: &mut Touches, plan: &Plan) {
    for target in &plan.targets {
        touches.say(SERVERS, servers(target));
    }
}

fn servers(target: &Target) -> String {
    match target {
        Target::Sandbox(spec) => format!("{}, and removes them", started(spec)),
        Target::Running(name) => {
            format!("connects to those of the running sandbox `{name}`, which stay")
        }
        Target::Nodes(nodes) => {
            let named: Vec<String> = nodes
                .iter()
                .map(|node| format!("{} ({})", node.name, node.url.address()))
                .collect();
            format!("connects to yours: {}", named.join(", "))
        }
    }
}

fn started(spec: &SandboxSpec) -> String {
    let nodes = spec.shape.nodes();
    let plural = if nodes.len() == 1 { "" } else { "s" };
    format!(
        "starts {} server{plural} on this machine, {} ({})",
        nodes.len(),
        spec.shape,
        nodes.join(", ")
    )
}

/// Whether servers of the user's, or ones that he keeps, are among the targets.
fn foreign(plan: &Plan) -> bool {
    plan.targets
        .iter()
        .any(|target| !matches!(target, Target::Sandbox(_)))
}

/// One table of ours, which goes again.
fn table(touches: &mut Touches, plan: &Plan, name: &str, what: &str) {
    let gone = if foreign(plan) {
        "; schema and table are dropped at the end unless they were there before, and whatever is written replicates"
    } else {
        ""
    };
    touches.say(
        WRITES,
        format!("schema `replimeter`, table `{name}` ({what}), on the primary{gone}"),
    );
}

/// The tables of a workload, and what a script of the user's may do.
fn tables(touches: &mut Touches, name: &str, kept: bool) -> Result<(), Failure> {
    let workload = workload(name)?;
    let tables = workload.tables();
    if !tables.is_empty() {
        let gone = if kept {
            "they stay (keep-data)"
        } else {
            "removed at the end"
        };
        let listed: Vec<String> = tables.iter().map(|table| format!("`{table}`")).collect();
        touches.say(
            WRITES,
            format!(
                "schema `replimeter`, tables {} of the workload {name}, and `load_data`; {gone}",
                listed.join(", ")
            ),
        );
    }
    if workload.has_script() {
        touches.say(WRITES, format!("whatever the statements of {name} touch"));
    }
    Ok(())
}

fn loads(touches: &mut Touches, specs: &[(&LoadSpec, Option<u64>)]) -> Result<(), Failure> {
    let mut known: Vec<&str> = Vec::new();
    for (spec, rate) in specs {
        let connections = if spec.threads == 1 {
            "connection"
        } else {
            "connections"
        };
        let how = rate.map_or_else(
            || "back to back".to_owned(),
            |rate| format!("{rate} a second"),
        );
        touches.say(
            LOAD,
            format!(
                "{} {connections} run {} on {}, {how}",
                spec.threads, spec.workload, spec.node
            ),
        );
        if !known.contains(&spec.workload.as_str()) {
            known.push(&spec.workload);
            tables(touches, &spec.workload, false)?;
        }
    }
    Ok(())
}

fn lag(touches: &mut Touches, plan: &Plan, work: &LagPlan) -> Result<(), Failure> {
    targets(touches, plan);
    let specs: Vec<_> = work
        .load
        .iter()
        .map(|load| (&load.spec, load.rate))
        .collect();
    if let Some(backlog) = &work.backlog {
        touches.say(
            SERVERS,
            format!(
                "stops each replica's applier for {} and starts it again as it was",
                backlog.grow
            ),
        );
        if !backlog.workers.is_empty() {
            touches.say(
                SERVERS,
                "sets the number of applier workers for each turn, and then back",
            );
        }
        return loads(touches, &specs);
    }
    table(touches, plan, "lag_probe", "a row for each round");
    if work.federated {
        touches.say(
            WRITES,
            "table `lag_probe_primary` on each replica, whose definition holds the primary's password until it is dropped",
        );
    }
    let methods = work.methods.wanted();
    if methods.contains(&Method::Tap) {
        touches.say(
            SERVERS,
            "follows the binary logs of the primary and of each replica, as a replica would",
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
                format!(
                    "{writers}, {} rows of {size} bytes, {}",
                    rounds + work.warm_up + work.floor_rounds,
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
                    "{writers}, {} rows, {bytes} bytes in all",
                    steps.len() as u64 * u64::from(*per_step) * u64::from(*sweeps)
                )
            }
        },
    );
    loads(touches, &specs)
}

fn tap(touches: &mut Touches, plan: &Plan, work: &TapPlan) {
    targets(touches, plan);
    touches.say(
        SERVERS,
        "follows the binary logs of the primary and of each replica, as a replica would",
    );
    touches.say(WRITES, "nothing");
    let until = work.duration.map_or_else(
        || "until you end it".to_owned(),
        |duration| format!("for {duration}"),
    );
    touches.say(TIME, until);
}

fn load(touches: &mut Touches, plan: &Plan, work: &LoadingPlan) -> Result<(), Failure> {
    targets(touches, plan);
    for name in &work.workloads {
        tables(touches, name, work.keep_data)?;
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

fn scale(touches: &mut Touches, plan: &Plan, work: &ScalePlan) {
    let most = work.replicas.most();
    touches.say(
        SERVERS,
        format!(
            "starts a primary with {} replicas on this machine, each number {} times, up to {} servers at once, and removes them",
            work.replicas,
            work.starts,
            most + 1 + u32::from(work.check_prediction)
        ),
    );
    if let Some(folder) = &plan.target.servers {
        touches.say(
            SERVERS,
            format!("with the binaries in {}", folder.display()),
        );
    }
    touches.say(WRITES, "schema `replimeter` of these servers only");
    touches.say(
        LOAD,
        format!(
            "{} clients that write and as many that read; {} of data",
            work.threads, work.size
        ),
    );
    let numbers = work.replicas.counts().len() as u32 + u32::from(work.check_prediction);
    let turns = numbers * work.starts * work.blocks * work.phases().len() as u32;
    touches.say(
        TIME,
        format!(
            "about {} and the starts",
            Span((work.duration.0 + work.warm_up.0) * turns)
        ),
    );
}

fn cost(touches: &mut Touches, work: &CostPlan) -> Result<(), Failure> {
    let mut known: Vec<String> = Vec::new();
    // A mode against itself is the first of them, at one number of threads and one distance.
    let (tested, times) = match work.self_test {
        Some(comparisons) => (1, 2 * comparisons * work.starts),
        None => (work.shapes.len(), work.starts),
    };
    for shape in &work.shapes[..tested] {
        let point = shape
            .wait_point
            .map_or_else(String::new, |point| format!(", {}", point.name()));
        let line = format!(
            "{}: {}{point}, {} times, and removes them",
            shape.mode,
            started(&shape.spec),
            times
        );
        if !known.contains(&line) {
            touches.say(SERVERS, line.clone());
            known.push(line);
        }
    }
    if work.self_test.is_none()
        && !work
            .shapes
            .iter()
            .any(|shape| shape.mode.kind == CostKind::None)
    {
        touches.say(
            SERVERS,
            format!("none of each binary, which all are held against, {times} times"),
        );
    }
    if work.modes == CostModes::All && work.self_test.is_none() {
        touches.say(
            SERVERS,
            "modes that the servers found here cannot be started in are left out",
        );
    }
    touches.say(WRITES, "schema `replimeter` of these servers only");
    let workload = workload(&work.workload)?;
    let of = if work.self_test.is_some() {
        1
    } else {
        work.threads.len()
    };
    let threads: Vec<String> = work.threads[..of].iter().map(ToString::to_string).collect();
    touches.say(
        LOAD,
        format!(
            "{} with {} connections, back to back",
            workload.name,
            threads.join(", then ")
        ),
    );
    let distances = if work.self_test.is_some() {
        1
    } else {
        work.link_delays.len().max(1)
    };
    let cells = (of * distances) as u32;
    let times = work
        .self_test
        .map_or(work.shapes.len() as u32, |comparisons| 2 * comparisons);
    touches.say(
        TIME,
        format!(
            "about {} and the starts",
            Span((work.duration.0 + work.ramp.0 * work.starts) * cells * times)
        ),
    );
    Ok(())
}

fn stale(touches: &mut Touches, plan: &Plan, work: &StalePlan) -> Result<(), Failure> {
    targets(touches, plan);
    table(
        touches,
        plan,
        "lag_probe",
        &format!("{} rows, updated by turns", work.rows),
    );
    let until = match work.until {
        Until::Rounds(rounds) => format!("{rounds} rounds"),
        Until::Elapsed(span) => format!("rounds for {span}"),
    };
    match work.judge_load {
        true => touches.say(
            LOAD,
            "its own reads are judged, there are no rounds beside it".to_owned(),
        ),
        false => touches.say(
            LOAD,
            format!(
                "{until}, {} rounds at each point of the curve",
                work.curve_rounds
            ),
        ),
    }
    let mut specs: Vec<(&LoadSpec, Option<u64>)> = Vec::new();
    for load in work.cases.iter().flat_map(|case| &case.0) {
        if !specs.contains(&(load, work.rate)) {
            specs.push((load, work.rate));
        }
    }
    loads(touches, &specs)
}

fn loss(touches: &mut Touches, plan: &Plan, work: &LossPlan) {
    for case in work.cases(&plan.targets) {
        touches.say(
            SERVERS,
            format!(
                "{}: {}, {} times, and removes them",
                case.label,
                started(&case.spec),
                work.crashes
            ),
        );
    }
    let end = match work.crash {
        Crash::Kill => "kills the primary".to_owned(),
        Crash::Isolated => format!("cuts the primary off and kills it {} later", work.gap),
    };
    touches.say(
        SERVERS,
        format!("{end} each time, promotes a replica and starts the old primary again"),
    );
    touches.say(WRITES, "schema `replimeter` of these servers only");
    touches.say(
        LOAD,
        format!(
            "{} writers for {} before each crash, rows of {} bytes",
            work.writers, work.load, work.size
        ),
    );
}

fn exposure(touches: &mut Touches, plan: &Plan, work: &ExposurePlan) {
    targets(touches, plan);
    touches.say(
        SERVERS,
        format!(
            "follows the primary's binary log as a replica would, and asks every replica each {}",
            work.look
        ),
    );
    if work.writers == 0 {
        touches.say(WRITES, "nothing");
    } else {
        touches.say(WRITES, "schema `replimeter` of these servers only");
        let how = work.rate.map_or_else(
            || "back to back".to_owned(),
            |rate| format!("{rate} a second"),
        );
        touches.say(
            LOAD,
            format!(
                "{} writers, {how}, rows of {} bytes",
                work.writers, work.size
            ),
        );
    }
    touches.say(TIME, format!("for {}", work.duration));
}

fn files(touches: &mut Touches, plan: &Plan, output: &OutputArgs) {
    let command = plan.to_file().command.name();
    let folder = output.run_dir.as_deref().map_or_else(
        || format!("a new folder replimeter-runs/TIME-{command}"),
        |path: &Path| format!("the folder {}", path.display()),
    );
    let names = [PLAN, MANIFEST, SAMPLES, SUMMARY, PAGE, TICKET, HISTOGRAMS];
    let kept = match plan.work {
        // They keep no histograms.
        Work::Stale(_) | Work::Loss(_) => &names[..6],
        _ => &names[..],
    };
    touches.say(FILES, format!("{folder} with {}", kept.join(", ")));
    let own = plan
        .targets
        .iter()
        .any(|target| matches!(target, Target::Sandbox(_)));
    if own {
        touches.say(
            FILES,
            "data directories in the private folder (REPLIMETER_HOME), removed with their servers; seeds of them stay",
        );
    }
}
