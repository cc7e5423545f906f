//! Load: connections that run a workload over and over, each on an ordinary thread
//! of its own; beside a measurement ([`Loads`]) or by itself ([`Crew`]).
//!
//! A *closed loop* begins a thread's next operation when its last one is done, and so
//! slows down with the server. An *open loop* begins operations by a schedule; what
//! comes late is charged to it from its intended start (coordinated omission).

mod check;
mod crew;
mod disk;
mod file;
mod fill;
mod gauge;
mod program;
mod random;
mod result;
mod script;
mod split;
mod tally;
mod trial;
mod value;
mod versions;
mod worker;
mod workload;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_model::{
    load::{LoadPlan, LoadRecord},
    target::PRIMARY,
    warning::{Warning, WarningCode},
};
use replimeter_server::{ErrorKind, Node, ServerError, error::code, wire::Failed};

pub use self::{
    check::{check, hold},
    crew::{Crew, Second, Squad, SquadSecond},
    fill::{DataSet, Filled, fill, refuse_foreign},
    gauge::{Gauged, Gauges},
    result::SquadResult,
    script::ScriptError,
    tally::recording_cost,
    versions::{Told, VersionRead, VersionWrite, Versions},
    workload::{LARGEST_FILE, Workload},
};
use self::{
    crew::{HURRIED, Outcome},
    program::{Program, Scratch},
    result::judge,
    trial::TRIALS,
    value::Draw,
    worker::{DOING, Link, Place, roll_back, run},
};
use crate::{MeasureError, clock::Clock, preflight::Cluster, survey::Relation};

/// How long a load runs before it is counted.
pub const RAMP: Duration = Duration::from_secs(1);
/// How long a lost connection is tried again beside a measurement: a year.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Connections that fill a data set beside a measurement.
const FILLERS: u32 = 4;
/// Statements that a server in read-only mode, or a session of ours that only reads, refuses.
const READ_ONLY: [u16; 3] = [code::READ_ONLY, 1792, 1836];
/// A disk or a table is full: the error's own hint says what to do.
const DISK_FULL: [u16; 6] = [1021, 1026, 1030, 1114, 1180, 28];

/// One load and its threads.
struct Load {
    plan: LoadPlan,
    workload: Workload,
    place: Place,
    /// What its stretches came to.
    total: Option<Outcome>,
}

/// Every load of a run. Dropped without [`finish`](Self::finish), as an error or a
/// panic does, it still ends its threads and removes what was made for them.
pub struct Loads {
    clock: Clock,
    loads: Vec<Load>,
    /// Connected threads, from the first start on.
    crew: Option<Crew>,
    running: bool,
    /// Where data sets were made.
    writer: Option<Node>,
    sets: Vec<DataSet>,
    /// Scripts whose setup was begun, and where.
    made: Vec<(Place, Workload)>,
}

impl Loads {
    /// Finds the servers, fills each data set and runs each script's setup once, and
    /// tries every statement until it has succeeded once. `workloads` are those of the
    /// plans, in order; a replica is given `patience` to have what was made on the
    /// primary. `progress` is told how far the filling is.
    ///
    /// # Errors
    /// When a server is not there, or a statement never succeeds: with the server's
    /// words. Nothing is left behind then.
    pub fn prepare(
        plans: &[LoadPlan],
        workloads: &[Workload],
        cluster: &Cluster,
        clock: &Clock,
        patience: Duration,
        progress: &mut dyn FnMut(&Filled),
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let writer = cluster.primary.node.clone();
        let mut loads = Self {
            clock: *clock,
            loads: Vec::new(),
            crew: None,
            running: false,
            writer: Some(writer.clone()),
            sets: Vec::new(),
            made: Vec::new(),
        };
        for (plan, workload) in plans.iter().zip(workloads) {
            let place = place(cluster, &plan.spec.node)?;
            // Two loads by one script share what it makes.
            let script = !workload.inner.setup.is_empty() || !workload.inner.teardown.is_empty();
            if script
                && !loads
                    .made
                    .iter()
                    .any(|(_, made)| made.inner == workload.inner)
            {
                loads.made.push((place.clone(), workload.clone()));
                set_up(&place, workload, patience, stop)?;
            }
            loads.loads.push(Load {
                plan: plan.clone(),
                workload: workload.clone(),
                place,
                total: None,
            });
        }
        for index in 0..loads.loads.len() {
            let Load { plan, workload, .. } = &loads.loads[index];
            let earlier = &loads.loads[..index];
            if let Some((other, table)) = earlier
                .iter()
                .find_map(|load| Some((&load.workload.name, workload.collides(&load.workload)?)))
            {
                return Err(cluster
                    .primary
                    .session
                    .unfit(
                        DOING,
                        format!(
                            "{} and {other} each define a table `{table}` of their own",
                            workload.name
                        ),
                        "rename one",
                    )
                    .into());
            }
            let known = earlier.iter().any(|load| load.workload.same_data(workload));
            if workload.inner.tables.is_empty() || known {
                continue;
            }
            for replica in &cluster.replicas {
                fill::refuse_foreign(&replica.server.node, workload)?;
            }
            let size = plan
                .size
                .filter(|_| workload.has_data())
                .unwrap_or_else(|| workload.default_size());
            let set = fill(&writer, workload, size, FILLERS, progress, stop)?;
            loads.sets.push(set);
        }
        for load in &loads.loads {
            try_out(load, loads.rows(load), patience, stop)?;
        }
        Ok(loads)
    }

    /// How many rows a load's data has.
    fn rows(&self, load: &Load) -> u64 {
        self.data(load).map_or(0, |set| set.rows)
    }

    fn data(&self, load: &Load) -> Option<&DataSet> {
        self.sets.iter().find(|set| set.is_of(&load.workload))
    }

    /// Whether there is any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    /// Starts every thread, and counts from the end of the [`RAMP`] on, for which it
    /// waits unless the user ends the run.
    ///
    /// # Errors
    /// When a connection cannot be made.
    pub fn start(&mut self, stop: &AtomicBool) -> Result<(), ServerError> {
        if self.loads.is_empty() {
            return Ok(());
        }
        if self.crew.is_none() {
            let squads: Vec<Squad<'_>> = self
                .loads
                .iter()
                .map(|load| Squad {
                    data: self.data(load),
                    rate: load.plan.open_loop(),
                    reads_only: load.place.reads_only,
                    // A server that comes back is loaded again.
                    patience: FOREVER,
                    ..Squad::new(
                        &load.workload,
                        vec![load.place.node.clone()],
                        load.plan.spec.threads,
                    )
                })
                .collect();
            // What the statements are worth was tried by whole passes.
            self.crew = Some(Crew::open_tried(&squads, &self.clock, false)?);
        }
        let Some(crew) = &mut self.crew else {
            return Ok(());
        };
        crew.begin(None, None);
        self.running = true;
        let deadline = Instant::now() + RAMP;
        while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
            thread::sleep(
                deadline
                    .saturating_duration_since(Instant::now())
                    .min(Duration::from_millis(20)),
            );
        }
        crew.count_from_now();
        Ok(())
    }

    /// Ends every thread's operations, and counts no more until the next start.
    pub fn stop(&mut self) -> Vec<Warning> {
        let Some(crew) = self.crew.as_mut().filter(|_| self.running) else {
            return Vec::new();
        };
        self.running = false;
        let (outcomes, warnings) = crew.end(HURRIED);
        for (load, outcome) in self.loads.iter_mut().zip(outcomes) {
            match &mut load.total {
                None => load.total = Some(outcome),
                Some(total) => total.follow(&outcome),
            }
        }
        warnings
    }

    /// Ends the load, removes what was made for it, and tells what it came to. The
    /// shape in the records is the caller's to fill in.
    #[must_use]
    pub fn finish(mut self) -> (Vec<LoadRecord>, Vec<Warning>) {
        let mut warnings = self.stop();
        let records: Vec<LoadRecord> = self
            .loads
            .iter()
            .enumerate()
            .map(|(index, load)| self.record(index, load))
            .collect();
        warnings.extend(
            self.sets
                .iter_mut()
                .flat_map(|set| std::mem::take(&mut set.warnings)),
        );
        warnings.extend(self.tear_down());
        for record in &records {
            warnings.extend(judge(record));
        }
        (records, warnings)
    }

    fn record(&self, index: usize, load: &Load) -> LoadRecord {
        let known = self.crew.as_ref().zip(load.total.as_ref());
        let record = known
            .map(|(crew, total)| crew.result(index, total).record())
            .unwrap_or_default();
        LoadRecord {
            workload: load.workload.name.clone(),
            threads: load.plan.spec.threads,
            node: load.place.node.name.clone(),
            rate: load.plan.rate,
            statements: load.workload.statements(),
            ramp_us: RAMP.as_secs_f64() * 1e6,
            ..record
        }
    }

    /// Removes data sets and runs each script's last section; what fails does not keep
    /// the rest from it.
    fn tear_down(&mut self) -> Vec<Warning> {
        // Connections may hold locks on what goes.
        self.crew = None;
        let mut warnings = Vec::new();
        if let Some(writer) = &self.writer {
            for set in self.sets.drain(..).rev() {
                warnings.extend(set.remove(writer));
            }
        }
        // The last one made is the first one removed.
        for (place, workload) in self.made.drain(..).rev() {
            let mut failed: Vec<String> = Vec::new();
            match fill::open_for_removal(&place.node, fill::REMOVAL) {
                Ok(mut session) => {
                    for (statement, error) in
                        fill::tear_down(&mut session, &workload.inner.teardown)
                    {
                        failed.push(format!(
                            "{error} (line {} of {}: {})",
                            statement.line,
                            workload.name,
                            statement.excerpt()
                        ));
                    }
                }
                Err(error) if !workload.inner.teardown.is_empty() => failed.push(error.to_string()),
                Err(_) => {}
            }
            warnings.extend(failed.into_iter().map(|message| {
                Warning::new(
                    WarningCode::CleanUpIncomplete,
                    message,
                    "run the statements behind `-- teardown` of the script, in the schema `replimeter`, by hand",
                )
            }));
        }
        warnings
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        let _ = self.stop();
        let _ = self.tear_down();
    }
}

impl Outcome {
    /// Adds a later stretch; the time in between does not count.
    fn follow(&mut self, later: &Self) {
        self.tally.follow(&later.tally, self.counted);
        self.counted = self.counted + later.counted;
        self.cpu += later.cpu;
        self.delay = self.delay.zip(later.delay).map(|(sum, delay)| sum + delay);
        self.waiting = self
            .waiting
            .zip(later.waiting)
            .map(|(sum, waiting)| sum + waiting);
        for (mine, theirs) in self.by_node.iter_mut().zip(&later.by_node) {
            *mine += theirs;
        }
    }
}

/// The server of that name; `primary` is also the one that rows are written to,
/// whatever it is called.
fn place(cluster: &Cluster, name: &str) -> Result<Place, ServerError> {
    let writer = &cluster.primary.node;
    if writer.name == name {
        return Ok(Place::new(writer.clone(), false));
    }
    if let Some(replica) = cluster
        .replicas
        .iter()
        .find(|replica| replica.server.node.name == name)
    {
        let reads_only = matches!(replica.relation, Relation::Channel { .. });
        return Ok(Place::new(replica.server.node.clone(), reads_only));
    }
    if name == PRIMARY {
        return Ok(Place::new(writer.clone(), false));
    }
    let mut names = vec![writer.name.clone()];
    names.extend(cluster.replica_names());
    Err(cluster.primary.session.unfit(
        "cannot place the load",
        format!(
            "the target has no server called `{name}`; it has {}",
            names.join(", ")
        ),
        "name one of them behind the @ of --load",
    ))
}

/// Waits for what may have to replicate first; `Ok` without a value means to wait on.
fn patiently<T>(
    place: &Place,
    patience: Duration,
    stop: &AtomicBool,
    mut step: impl FnMut() -> Result<T, ServerError>,
) -> Result<T, MeasureError> {
    let deadline = Instant::now() + patience;
    loop {
        let absent = ErrorKind::Statement(code::NO_SUCH_TABLE);
        match step() {
            Err(error)
                if place.reads_only
                    && (error.kind == absent
                        || error.kind == ErrorKind::Statement(code::UNKNOWN_SCHEMA))
                    && Instant::now() < deadline => {}
            other => return Ok(other?),
        }
        if stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Says which statement of which script an error is about.
fn about(mut error: ServerError, workload: &Workload, line: usize, excerpt: &str) -> ServerError {
    let read_only = matches!(error.kind, ErrorKind::Statement(code) if READ_ONLY.contains(&code));
    error.doing = format!("{DOING} {}", workload.name);
    error.cause = format!("line {line}, `{excerpt}`: {}", error.cause);
    if read_only {
        error.hint =
            "a replica takes only a load that reads: what is written there would be on no other server; name the primary behind the @"
                .to_owned();
    } else if matches!(error.kind, ErrorKind::Statement(code) if !DISK_FULL.contains(&code)) {
        error.hint =
            "every statement of a script must succeed once before anything is measured; docs/load.md explains scripts".to_owned();
    }
    error
}

fn set_up(
    place: &Place,
    workload: &Workload,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    if workload.inner.setup.is_empty() {
        return Ok(());
    }
    let mut channel = patiently(place, patience, stop, || place.open())?;
    let mut words = String::new();
    for statement in &workload.inner.setup {
        if stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        statement.fill(&mut Draw::new(0, 1, 0), &mut words);
        let done = channel.session().run(DOING, &words);
        done.map_err(|error| about(error, workload, statement.line, &statement.excerpt()))?;
    }
    Ok(())
}

/// Runs operations until each statement has succeeded once; some may fail now and
/// then, as with locks.
fn try_out(
    load: &Load,
    rows: u64,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    let (place, workload) = (&load.place, &load.workload);
    let program = Program::new(workload, rows);
    let open = || {
        Link::open(place, &program).map_err(|(statement, error)| match statement {
            Some(statement) => {
                let text = &program.statements[statement];
                about(error, workload, text.line, &workload::excerpt(&text.sql))
            }
            None => error,
        })
    };
    // A replica may have yet to receive the tables.
    let mut link = patiently(place, patience, stop, open)?;
    let (mut scratch, mut buffer) = (Scratch::default(), String::new());
    // Sequences of the load itself begin with the first thread.
    let mut draw = Draw::new(0, 1, program.sequences);
    for (routine, operation) in program.operations.iter().zip(&workload.inner.operations) {
        patiently(place, patience, stop, || {
            // How far a pass came, and how often it came no further.
            let (mut reached, mut stuck) = (0, 0);
            for trial in 1.. {
                let Err((index, failed)) = run(
                    &mut link,
                    &program,
                    routine,
                    &mut draw,
                    &mut scratch,
                    &mut buffer,
                ) else {
                    break;
                };
                let error = match failed {
                    Failed::Broken(error) => return Err(error),
                    Failed::Refused(refusal) => {
                        roll_back(&mut link.channel);
                        link.channel.refused(&refusal)
                    }
                };
                stuck = if index > reached {
                    1
                } else {
                    stuck + u32::from(index == reached)
                };
                reached = reached.max(index);
                if stuck >= TRIALS || trial >= TRIALS * 10 {
                    let step = &operation.steps[index.min(operation.steps.len() - 1)];
                    return Err(about(error, workload, step.line(), &step.excerpt()));
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
