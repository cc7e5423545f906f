//! Load beside a measurement: connections that run a script of statements over and
//! over, each on an ordinary thread of its own.
//!
//! A *closed loop* begins a thread's next pass when its last one is done, and so
//! slows down with the server. An *open loop* begins passes by a schedule; what
//! comes late is charged to it from its intended start (coordinated omission).

mod script;
mod split;
mod tally;
mod worker;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use replimeter_model::{
    load::{LoadPlan, LoadRecord},
    target::PRIMARY,
    warning::{Warning, WarningCode},
};
use replimeter_server::{ErrorKind, Node, ServerError, Session, error::code};
use replimeter_stats::series::distribution;

pub use self::script::{LARGEST_SCRIPT, Script, ScriptError};
use self::{
    script::Values,
    worker::{DOING, Seat, Shared, Worker, pass},
};
use crate::{MeasureError, clock::Clock, preflight::Cluster, survey::Relation};

/// How long a load runs before it is counted.
pub const RAMP: Duration = Duration::from_secs(1);
/// How long a statement of a load may take.
const ANSWER: Duration = Duration::from_secs(60);
/// How long threads may take to end by themselves.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long they may take when their connections were ended.
const AFTER_KILL: Duration = Duration::from_secs(1);
/// How long one statement of a teardown may take, waiting for locks included.
const REMOVAL: Duration = Duration::from_secs(10);
/// How often a statement is tried before anything is measured.
const TRIALS: u32 = 5;
/// Statements that a server in read-only mode, or a session of ours that only reads, refuses.
const READ_ONLY: [u16; 3] = [code::READ_ONLY, 1792, 1836];

/// A workload by its name, ready to be run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// As the user named it.
    pub name: String,
    script: Arc<Script>,
}

impl Workload {
    /// The script of one of ours.
    #[must_use]
    pub fn built_in(name: &str) -> Option<&'static str> {
        match name {
            "insert" => Some(include_str!("../../../../loads/insert.sql")),
            "mix" => Some(include_str!("../../../../loads/mix.sql")),
            _ => None,
        }
    }

    /// A workload from its script.
    ///
    /// # Errors
    /// With the line that cannot be understood.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScriptError> {
        Ok(Self { name: name.to_owned(), script: Arc::new(Script::parse(text)?) })
    }
}

/// Where a load's statements go.
#[derive(Clone)]
struct Place {
    node: Node,
    /// A replica by a channel: what is written there would be nowhere else.
    reads_only: bool,
}

impl Place {
    fn open(&self) -> Result<Session, ServerError> {
        let mut session = Session::open(&Node { answer: ANSWER, ..self.node.clone() })?;
        if self.reads_only {
            // Privileged users may write to a server in read-only mode.
            session.run(DOING, "SET SESSION TRANSACTION READ ONLY")?;
        }
        session.run(DOING, "USE `replimeter`")?;
        Ok(session)
    }
}

/// One load and its threads.
struct Load {
    plan: LoadPlan,
    workload: Workload,
    place: Place,
    shared: Arc<Shared>,
    threads: Vec<(JoinHandle<()>, Arc<Seat>)>,
    seats: Vec<Arc<Seat>>,
    waiting: u64,
}

/// Every load of a run. Dropped without [`finish`](Self::finish), as an error or a
/// panic does, it still ends its threads and removes what the scripts made.
pub struct Loads {
    clock: Clock,
    loads: Vec<Load>,
    /// Scripts whose setup was begun, and where.
    made: Vec<(Place, Workload)>,
}

impl Loads {
    /// Finds the servers, runs each script's setup once, and tries every statement
    /// until it has succeeded once. `workloads` are those of the plans, in order;
    /// a replica is given `patience` to have what a script made on the primary.
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
        stop: &AtomicBool,
    ) -> Result<Self, MeasureError> {
        let mut loads = Self { clock: *clock, loads: Vec::new(), made: Vec::new() };
        for (plan, workload) in plans.iter().zip(workloads) {
            let place = place(cluster, &plan.spec.node)?;
            // Two loads by one script share what it makes.
            if !loads.made.iter().any(|(_, made)| made.script == workload.script) {
                loads.made.push((place.clone(), workload.clone()));
                set_up(&place, workload, patience, stop)?;
            }
            loads.loads.push(Load {
                plan: plan.clone(),
                workload: workload.clone(),
                place,
                shared: Arc::default(),
                threads: Vec::new(),
                seats: (0..plan.spec.threads).map(|_| Arc::default()).collect(),
                waiting: 0,
            });
        }
        for load in &loads.loads {
            try_out(load, patience, stop)?;
        }
        Ok(loads)
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
    /// When a connection cannot be made; the threads that run already are ended.
    pub fn start(&mut self, stop: &AtomicBool) -> Result<(), ServerError> {
        if self.loads.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.spawn() {
            drop(self.stop());
            return Err(error);
        }
        let deadline = Instant::now() + RAMP;
        while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
            thread::sleep(deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(20)));
        }
        for load in &self.loads {
            load.shared.tally().begin(self.clock.now());
        }
        Ok(())
    }

    fn spawn(&mut self) -> Result<(), ServerError> {
        // All are connected before the first begins.
        let mut workers = Vec::new();
        for (index, load) in self.loads.iter().enumerate() {
            for (thread, seat) in (1..).zip(&load.seats) {
                let session = load.place.open()?;
                seat.connection.store(session.connection_id(), Ordering::Release);
                let worker = Worker {
                    session,
                    place: load.place.clone(),
                    script: Arc::clone(&load.workload.script),
                    rate: load.plan.rate,
                    shared: Arc::clone(&load.shared),
                    seat: Arc::clone(seat),
                    values: Values::new(thread),
                };
                workers.push((index, Arc::clone(seat), worker));
            }
        }
        for load in &self.loads {
            load.shared.start(self.clock.now());
        }
        for (index, seat, worker) in workers {
            let clock = self.clock;
            let spawned = thread::Builder::new().name("load".to_owned()).spawn(move || worker.run(&clock));
            let handle = spawned.map_err(|error| {
                let place = &self.loads[index].place.node;
                ServerError::unfit(
                    &place.name,
                    &place.endpoint.address(),
                    DOING,
                    format!("no more threads: {error}"),
                    "ask for fewer",
                )
            })?;
            self.loads[index].threads.push((handle, seat));
        }
        Ok(())
    }

    /// Ends every thread, and counts no more until the next start.
    pub fn stop(&mut self) -> Vec<Warning> {
        let now = self.clock.now();
        for load in self.loads.iter_mut().filter(|load| !load.threads.is_empty()) {
            load.shared.tally().end(now);
            if let Some(rate) = load.plan.rate {
                load.waiting += load.shared.waiting(rate, now);
            }
            load.shared.stop();
        }
        let mut warnings = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        for load in &mut self.loads {
            load.await_threads(deadline);
        }
        for load in self.loads.iter_mut().filter(|load| !load.threads.is_empty()) {
            load.kill();
            load.await_threads(Instant::now() + AFTER_KILL);
            if !load.threads.is_empty() {
                warnings.push(Warning::new(
                    WarningCode::CleanUpIncomplete,
                    format!(
                        "{} ({}): {} threads of the load do not end; their statements may still be under way",
                        load.place.node.name,
                        load.place.node.endpoint.address(),
                        load.threads.len()
                    ),
                    "is the server stalled? they end when it goes on",
                ));
                load.threads.clear();
            }
        }
        warnings
    }

    /// Ends the load, removes what the scripts made, and tells what it came to. The
    /// shape in the records is the caller's to fill in.
    #[must_use]
    pub fn finish(mut self) -> (Vec<LoadRecord>, Vec<Warning>) {
        let mut warnings = self.stop();
        warnings.extend(self.tear_down());
        let records: Vec<LoadRecord> = self.loads.iter().map(Load::record).collect();
        for record in &records {
            warnings.extend(judge(record));
        }
        (records, warnings)
    }

    /// Runs each script's last section; what fails does not keep the rest from it.
    fn tear_down(&mut self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        // The last one made is the first one removed.
        for (place, workload) in self.made.drain(..).rev() {
            let mut failed: Vec<String> = Vec::new();
            let mut words = String::new();
            match open_for_removal(&place) {
                Ok(mut session) => {
                    for statement in &workload.script.teardown {
                        statement.fill(&mut Values::new(0), &mut words);
                        if let Err(error) = session.run("cannot remove what a load made", &words) {
                            failed.push(format!(
                                "{error} (line {} of {}: {})",
                                statement.line,
                                workload.name,
                                statement.excerpt()
                            ));
                        }
                    }
                }
                Err(error) if !workload.script.teardown.is_empty() => failed.push(error.to_string()),
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

fn open_for_removal(place: &Place) -> Result<Session, ServerError> {
    let mut session = Session::open(&Node { answer: REMOVAL + Duration::from_secs(2), ..place.node.clone() })?;
    session.run(DOING, &format!("SET SESSION lock_wait_timeout = {}", REMOVAL.as_secs()))?;
    session.run(DOING, "USE `replimeter`")?;
    Ok(session)
}

/// The server of that name; `primary` is also the one that rows are written to,
/// whatever it is called.
fn place(cluster: &Cluster, name: &str) -> Result<Place, ServerError> {
    let writer = &cluster.primary.node;
    if writer.name == name {
        return Ok(Place { node: writer.clone(), reads_only: false });
    }
    if let Some(replica) = cluster.replicas.iter().find(|replica| replica.server.node.name == name) {
        let reads_only = matches!(replica.relation, Relation::Channel { .. });
        return Ok(Place { node: replica.server.node.clone(), reads_only });
    }
    if name == PRIMARY {
        return Ok(Place { node: writer.clone(), reads_only: false });
    }
    let mut names = vec![writer.name.clone()];
    names.extend(cluster.replica_names());
    Err(cluster.primary.session.unfit(
        "cannot place the load",
        format!("the target has no server called `{name}`; it has {}", names.join(", ")),
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
                    && (error.kind == absent || error.kind == ErrorKind::Statement(code::UNKNOWN_SCHEMA))
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
    } else if matches!(error.kind, ErrorKind::Statement(_)) {
        error.hint =
            "every statement of a script must succeed once before anything is measured; docs/load.md explains scripts".to_owned();
    }
    error
}

fn set_up(place: &Place, workload: &Workload, patience: Duration, stop: &AtomicBool) -> Result<(), MeasureError> {
    if workload.script.setup.is_empty() {
        return Ok(());
    }
    let mut session = patiently(place, patience, stop, || place.open())?;
    let mut words = String::new();
    for statement in &workload.script.setup {
        if stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        statement.fill(&mut Values::new(0), &mut words);
        session.run(DOING, &words).map_err(|error| about(error, workload, statement.line, &statement.excerpt()))?;
    }
    Ok(())
}

/// Runs passes until each statement has succeeded once; some may fail now and then,
/// as with locks.
fn try_out(load: &Load, patience: Duration, stop: &AtomicBool) -> Result<(), MeasureError> {
    let (place, workload) = (&load.place, &load.workload);
    let mut session = patiently(place, patience, stop, || place.open())?;
    let mut buffer = String::new();
    patiently(place, patience, stop, || {
        // How far a pass came, and how often it came no further.
        let (mut reached, mut stuck) = (0, 0);
        for trial in 1.. {
            let Err((index, error)) = pass(&mut session, &workload.script, &mut Values::new(0), &mut buffer) else { break };
            stuck = if index > reached { 1 } else { stuck + u32::from(index == reached) };
            reached = reached.max(index);
            if stuck >= TRIALS || trial >= TRIALS * 10 {
                let statement = &workload.script.run[index];
                return Err(about(error, workload, statement.line, &statement.excerpt()));
            }
        }
        Ok(())
    })
}

impl Load {
    /// Waits for threads to end, and takes up their counts.
    fn await_threads(&mut self, deadline: Instant) {
        while self.threads.iter().any(|(thread, _)| !thread.is_finished()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        self.threads.retain(|(thread, _)| !thread.is_finished());
    }

    /// Ends the connections of threads that wait in the server.
    fn kill(&self) {
        let node = Node { answer: AFTER_KILL, ..self.place.node.clone() };
        let Ok(mut session) = Session::open(&node) else { return };
        for (_, seat) in &self.threads {
            // It may have ended meanwhile.
            let _ = session.run(DOING, &format!("KILL {}", seat.connection.load(Ordering::Acquire)));
        }
    }

    fn record(&self) -> LoadRecord {
        let tally = self.shared.tally();
        LoadRecord {
            shape: String::new(),
            workload: self.workload.name.clone(),
            threads: self.plan.spec.threads,
            node: self.place.node.name.clone(),
            rate: self.plan.rate,
            statements: self.workload.script.statements() as u64,
            ramp_us: RAMP.as_secs_f64() * 1e6,
            counted_us: tally.counted.as_micros(),
            passes: tally.passes,
            throughput: tally.throughput(),
            latency: distribution(&tally.latency),
            service: distribution(&tally.service),
            retries: tally.retries,
            failed: tally.failed,
            waiting: self.plan.rate.map(|_| self.waiting),
            errors: tally.errors(),
        }
    }
}

/// What a reader must know of a load.
fn judge(record: &LoadRecord) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let what = format!("the load {}:{}@{}", record.workload, record.threads, record.node);
    if record.failed > 0 {
        let first = record.errors.first().map(|error| error.message.clone()).unwrap_or_default();
        warnings.push(Warning::new(
            WarningCode::LoadErrors,
            format!(
                "{what}: {} passes were given up beside {} that were done; the most frequent error: {first}",
                record.failed, record.passes
            ),
            "`load` in the JSON document has every error with its count",
        ));
    }
    let waiting = record.waiting.unwrap_or(0);
    if let Some(rate) = record.rate
        && waiting > u64::from(record.threads).max(rate / 10)
    {
        warnings.push(Warning::new(
            WarningCode::LoadNotHeld,
            format!("{what}: its rate of {rate} per second was not held; {waiting} passes were due and not begun at the end"),
            "ask for a lower rate or for more threads; its latency counts from the intended starts and says how late it was",
        ));
    }
    warnings
}
