//! How fast a replica catches up: its applier is stopped while a load goes on, and
//! started again, first beside the load and then without it.

mod applier;
mod course;
pub(crate) mod position;
mod release;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use replimeter_model::{
    backlog::{BacklogPhase, BacklogRow},
    engine::Engine,
    plan::BacklogPlan,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_server::{
    ErrorKind, Node, ServerError, Session,
    facts::grants,
    flavour::{Channel, appliers::appliers, settings::quoted_user},
};
use serde::{Deserialize, Serialize};

pub use self::release::restore_all;
use self::{
    applier::Applier,
    course::{Reading, Stretch},
    position::Position,
};
use crate::{
    MeasureError, SCHEMA, TABLE,
    clock::Clock,
    load::BackgroundLoad,
    preflight::{CheckedReplica, Cluster},
    record,
    survey::Relation,
    table::keep_alive,
};

/// How far apart readings are at most, and at least.
const READINGS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// How often the caller hears of progress, and the replica is asked for its state.
const LOOK: Nanos = Nanos(1_000_000_000);
/// How often the session that holds the run's lock is used.
const KEEP_ALIVE: Nanos = Nanos(10_000_000_000);
/// How long a server may take to answer which transactions it has.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a statement that stops or starts the applier may take: `STOP` waits for the transaction that is being applied.
const ORDER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the applier is tried to be started again when the measurement ends, even when by an error or a panic.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);
/// How many times as long as the backlog grew a replica may take to catch up.
const LIMIT: u32 = 20;
/// And this much in any case.
const LIMIT_AT_LEAST: Duration = Duration::from_secs(30);

/// How far the measurement is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Which replica.
    pub replica: String,
    /// With how many workers, when that is asked for.
    pub workers: Option<u32>,
    /// What it is doing.
    pub phase: BacklogPhase,
    /// For how long.
    pub since: Duration,
    /// Transactions that it has not applied.
    pub behind: u64,
}

/// How long servers are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For which transactions they have.
    pub answer: Duration,
    /// For one statement that stops or starts the applier.
    pub order: Duration,
    /// For all attempts to bring the applier back to how it was.
    pub release: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            answer: ANSWER_TIMEOUT,
            order: ORDER_TIMEOUT,
            release: RELEASE_TIMEOUT,
        }
    }
}

/// What the caller does with the measurement as it goes.
pub struct Listener<'a> {
    /// Takes word of how far it is, about once a second.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Takes a line that the user must see: an applier could not be started again yet.
    pub say: &'a dyn Fn(&str),
    /// How long servers are waited for.
    pub timeouts: Timeouts,
    /// Becomes true when the user wants it to end.
    pub stop: &'a AtomicBool,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// A row for each replica and number of workers, the last one perhaps not to its end.
    pub rows: Vec<BacklogRow>,
    /// Whether the user ended it.
    pub interrupted: bool,
    /// What ended it early.
    pub failure: Option<MeasureError>,
    /// What a reader must know.
    pub warnings: Vec<Warning>,
    /// From the first reading to the last.
    pub measured: Nanos,
}

/// Looks whether every replica has an applier that we may stop, before anything is
/// written or stopped.
///
/// # Errors
/// Naming the server and the reason.
pub fn check(cluster: &mut Cluster, plan: &BacklogPlan) -> Result<(), ServerError> {
    let doing = "cannot make a backlog";
    if cluster.replicas.is_empty() {
        return Err(cluster.primary.session.unfit(
            doing,
            "it has no replica",
            "name a target with one, such as --sandbox async:1",
        ));
    }
    without_gtid(&cluster.primary.facts, &cluster.primary.session)?;
    let engine = cluster.primary.facts.engine;
    for replica in &mut cluster.replicas {
        let server = &mut replica.server;
        let unfit = |cause: String, hint: &str| Err(server.session.unfit(doing, cause, hint));
        match &replica.relation {
            Relation::Channel { delay_s: 0, .. } => {}
            Relation::Channel { delay_s, .. } => {
                return unfit(
                    format!(
                        "it is deliberately delayed by {delay_s} s, and what it catches up with would wait for that"
                    ),
                    "set the delay to 0 for the time of the measurement",
                );
            }
            Relation::Galera | Relation::Group | Relation::Writer => {
                return unfit(
                    "a member of a cluster has no applier that could be stopped by itself: it would leave, or stop the writers by flow control".to_owned(),
                    "take replicas by channels, such as --sandbox async:1; --load puts a cluster under load",
                );
            }
        }
        if server.facts.engine != engine {
            return unfit("it counts transactions in another way than its primary, a server of another engine".to_owned(), "");
        }
        without_gtid(&server.facts, &server.session)?;
        if plan.workers.is_empty() {
            may(&mut server.session, engine, false)?;
            continue;
        }
        let channels = server.channels.as_ref().map_or(0, Vec::len);
        if appliers(&server.facts).is_none() {
            return unfit(
                "it does not tell its number of applier workers".to_owned(),
                "leave --workers out",
            );
        }
        if engine == Engine::MariaDb && channels > 1 {
            return unfit(
                format!(
                    "its number of applier workers can only be set with all of its {channels} channels stopped"
                ),
                "leave --workers out",
            );
        }
        may(&mut server.session, engine, true)?;
    }
    Ok(())
}

fn without_gtid(
    facts: &replimeter_server::facts::Facts,
    session: &Session,
) -> Result<(), ServerError> {
    let counted = facts.variables.contains_key("gtid_binlog_pos") || facts.get("gtid_mode") == "ON";
    if counted {
        return Ok(());
    }
    let cause = format!(
        "transactions are counted by their GTIDs, and gtid_mode is {}",
        facts.get("gtid_mode")
    );
    Err(session.unfit(
        "cannot make a backlog",
        cause,
        "turn GTIDs on: gtid_mode=ON, enforce_gtid_consistency=ON",
    ))
}

/// Looks whether the user may stop the applier, and set its workers.
fn may(session: &mut Session, engine: Engine, workers: bool) -> Result<(), ServerError> {
    // A server that does not tell its grants says so when it is asked to stop.
    let Some(grants) = grants(session, engine)? else {
        return Ok(());
    };
    let wanted: &[&str] = match (engine, workers) {
        (Engine::MariaDb, _) => &["REPLICATION SLAVE ADMIN"],
        (Engine::MySql, false) => &["REPLICATION_SLAVE_ADMIN"],
        (Engine::MySql, true) => &["REPLICATION_SLAVE_ADMIN", "SYSTEM_VARIABLES_ADMIN"],
    };
    let missing = grants.missing(wanted, SCHEMA, TABLE);
    if missing.is_empty() || grants.has("SUPER", SCHEMA, TABLE) {
        return Ok(());
    }
    let (missing, user) = (missing.join(", "), quoted_user(session)?);
    let mut error = session.unfit(
        "the user may not stop the applier",
        format!(
            "a backlog stops it and starts it again{}; missing: {missing}",
            if workers {
                ", and --workers sets its number of workers"
            } else {
                ""
            }
        ),
        format!("GRANT {missing} ON *.* TO {user};"),
    );
    error.kind = ErrorKind::Privilege;
    Err(error)
}

/// Measures every replica with every number of workers; the target must have
/// passed [`check`], and the load be prepared.
pub fn run(
    cluster: &mut Cluster,
    plan: &BacklogPlan,
    load: &mut BackgroundLoad,
    clock: &Clock,
    listener: &mut Listener<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let workers: Vec<Option<u32>> = if plan.workers.is_empty() {
        vec![None]
    } else {
        plan.workers.iter().copied().map(Some).collect()
    };
    for index in 0..cluster.replicas.len() {
        for workers in &workers {
            let mut round = Round {
                plan,
                clock,
                index,
                workers: *workers,
                listener,
                origin: clock.now(),
                next_look: Nanos(0),
                next_keep_alive: clock.now() + KEEP_ALIVE,
                warnings: Vec::new(),
            };
            let mut row = None;
            let ended = round.measure(cluster, load, &mut row);
            outcome.measured = outcome.measured + (clock.now() - round.origin);
            outcome.warnings.append(&mut round.warnings);
            outcome.rows.extend(row);
            match ended {
                Ok(()) if !listener.stop.load(Ordering::Relaxed) => {}
                Ok(()) | Err(MeasureError::Interrupted) => {
                    outcome.interrupted = true;
                    return outcome;
                }
                Err(error) => {
                    outcome.failure = Some(error);
                    return outcome;
                }
            }
        }
    }
    outcome
}

/// Whether nothing is left: less than what was written between two readings, since
/// others may write too.
fn caught_up(reading: &Reading, before: Option<Reading>) -> bool {
    reading.behind <= before.map_or(0, |before| reading.written.saturating_sub(before.written))
}

/// One replica with one number of workers.
struct Round<'a, 'l> {
    plan: &'a BacklogPlan,
    clock: &'a Clock,
    index: usize,
    workers: Option<u32>,
    listener: &'a mut Listener<'l>,
    origin: Nanos,
    next_look: Nanos,
    next_keep_alive: Nanos,
    warnings: Vec<Warning>,
}

/// What a row is made of, for a record of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Walked {
    replica: String,
    /// Workers, and the variable that says how many.
    workers: Option<(u64, String)>,
    parallel_mode: String,
    moments: Moments,
    /// How far apart readings are.
    every: Duration,
    growing: Stretch,
    with_load: Stretch,
    without_load: Stretch,
}

impl Walked {
    fn row(self) -> Option<BacklogRow> {
        let Self {
            growing,
            with_load,
            without_load,
            moments,
            ..
        } = &self;
        let origin = growing.first()?.at;
        let last = growing.last()?;
        let started = moments.started.unwrap_or(last.at);
        let caught_up = without_load.last().filter(|_| moments.caught);
        let windows = [growing, with_load, without_load]
            .into_iter()
            .flat_map(|stretch| stretch.windows(origin))
            .collect();
        Some(BacklogRow {
            shape: String::new(),
            workers: self.workers.as_ref().map(|(workers, _)| *workers),
            grown_us: (started - moments.stopped).as_micros(),
            load_per_s: growing.written(),
            backlog_transactions: with_load.first().map_or(last.behind, |first| first.behind),
            load_while_applying_per_s: with_load.written(),
            sustained_per_s: with_load.applied(),
            keeps_up: with_load.converges(),
            catch_up_per_s: without_load.applied(),
            under_load_us: with_load.length().as_micros(),
            caught_up_after_us: caught_up.map(|last| (last.at - started).as_micros()),
            resolution_us: Nanos::from(self.every).as_micros(),
            complete: caught_up.is_some(),
            windows,
            replica: self.replica,
            workers_variable: self.workers.map(|(_, variable)| variable),
            parallel_mode: self.parallel_mode,
        })
    }
}

/// When the applier was stopped and started, and whether it came to its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Moments {
    stopped: Nanos,
    started: Option<Nanos>,
    caught: bool,
}

/// Sessions that are asked for positions, and nothing else.
struct Eyes {
    engine: Engine,
    primary: Session,
    replica: Session,
}

impl Eyes {
    fn open(cluster: &Cluster, index: usize, answer: Duration) -> Result<Self, ServerError> {
        let open = |node: &Node| {
            Session::open(&Node {
                answer,
                ..node.clone()
            })
        };
        let replica = open(&cluster.replicas[index].server.node)?;
        Ok(Self {
            engine: cluster.primary.facts.engine,
            primary: open(&cluster.primary.node)?,
            replica,
        })
    }

    /// The replica first: what it has, the primary has had before.
    fn read(&mut self, clock: &Clock) -> Result<Reading, ServerError> {
        let began = clock.now();
        let applied = Position::applied(self.engine, &mut self.replica)?;
        let between = clock.now();
        let written = Position::written(self.engine, &mut self.primary)?;
        let ended = clock.now();
        Ok(Reading {
            at: began.midpoint(between),
            primary_at: between.midpoint(ended),
            written: written.count(&written),
            applied: applied.count(&written),
            behind: applied.behind(&written),
        })
    }
}

impl Round<'_, '_> {
    /// How far apart readings are.
    fn every(&self) -> Duration {
        (self.plan.grow.0 / 100).clamp(READINGS[0], READINGS[1])
    }

    fn limit(&self) -> Nanos {
        Nanos::from((self.plan.grow.0 * LIMIT).max(LIMIT_AT_LEAST))
    }

    fn stopped(&self) -> bool {
        self.listener.stop.load(Ordering::Relaxed)
    }

    fn measure(
        &mut self,
        cluster: &mut Cluster,
        load: &mut BackgroundLoad,
        out: &mut Option<BacklogRow>,
    ) -> Result<(), MeasureError> {
        let mut eyes = Eyes::open(cluster, self.index, self.listener.timeouts.answer)?;
        self.settle(cluster, &mut eyes)?;
        let replica = &cluster.replicas[self.index];
        let applier = Applier::hold(
            replica,
            &channel(replica)?,
            self.workers,
            self.listener.timeouts,
            self.listener.say,
        )?;
        let mut walked = Walked {
            replica: replica.server.node.name.clone(),
            workers: applier
                .workers
                .map(|(workers, variable)| (workers, variable.to_owned())),
            parallel_mode: self.parallel_mode(replica),
            moments: Moments {
                stopped: self.clock.now(),
                started: None,
                caught: false,
            },
            every: self.every(),
            growing: Stretch::new(BacklogPhase::Growing),
            with_load: Stretch::new(BacklogPhase::WithLoad),
            without_load: Stretch::new(BacklogPhase::WithoutLoad),
        };
        let ended = self.walk(cluster, load, &mut eyes, &applier, &mut walked);
        record::reading(|| walked.clone());
        let row = walked.row();
        if ended.is_ok() && !self.stopped() {
            self.judge(&row);
        }
        *out = row;
        applier.release(ended)
    }

    /// How the replica shares work out among its workers; warns when it does not.
    fn parallel_mode(&mut self, replica: &CheckedReplica) -> String {
        let mode = appliers(&replica.server.facts)
            .map(|appliers| appliers.mode)
            .unwrap_or_default();
        if mode == "none" && self.workers.is_some_and(|workers| workers > 1) {
            self.warnings.push(Warning::new(
                WarningCode::BacklogUnclear,
                format!(
                    "{}: its parallel mode is `none`, so more workers have nothing to do",
                    replica.server.node.name
                ),
                "set slave_parallel_mode to conservative or optimistic",
            ));
        }
        mode
    }

    /// Reads both servers from the applier's stop until the replica has caught up; what it came to is in `walked`
    /// whatever happens.
    fn walk(
        &mut self,
        cluster: &mut Cluster,
        load: &mut BackgroundLoad,
        eyes: &mut Eyes,
        applier: &Applier<'_>,
        walked: &mut Walked,
    ) -> Result<(), MeasureError> {
        let stop = self.listener.stop;
        let (ended, mut warnings) = load.run_while(stop, |_| {
            self.walk_beside_load(cluster, eyes, applier, walked)
        })?;
        self.warnings.append(&mut warnings);
        ended?;
        if self.stopped() {
            return Ok(());
        }
        let limit = self.limit();
        let caught = &mut walked.moments.caught;
        self.read_while(
            cluster,
            eyes,
            &mut walked.without_load,
            BacklogPhase::WithoutLoad,
            |reading, before, since| {
                *caught = caught_up(reading, before);
                !*caught && since < limit
            },
        )
    }

    /// Lets the backlog grow, starts the applier, and lets it work for a while.
    fn walk_beside_load(
        &mut self,
        cluster: &mut Cluster,
        eyes: &mut Eyes,
        applier: &Applier<'_>,
        walked: &mut Walked,
    ) -> Result<(), MeasureError> {
        let grow = Nanos::from(self.plan.grow.0);
        self.origin = self.clock.now();
        self.read_while(
            cluster,
            eyes,
            &mut walked.growing,
            BacklogPhase::Growing,
            |_, _, since| since < grow,
        )?;
        let mut connection = applier.connect()?;
        // The rate counts from here, the applier's start included.
        walked.with_load.push(eyes.read(self.clock)?);
        walked.moments.started = Some(self.clock.now());
        applier.start(&mut connection)?;
        drop(connection);
        if self.stopped() {
            return Ok(());
        }
        // The second half is left for the time without load.
        let enough = walked.with_load.last().map_or(0, |last| last.behind / 2);
        self.read_while(
            cluster,
            eyes,
            &mut walked.with_load,
            BacklogPhase::WithLoad,
            |reading, _, since| since < grow && reading.behind > enough,
        )
    }

    /// Waits until the replica has everything, so that the backlog is of this round.
    fn settle(&mut self, cluster: &mut Cluster, eyes: &mut Eyes) -> Result<(), MeasureError> {
        let mut before = Stretch::new(BacklogPhase::WithoutLoad);
        let limit = self.limit();
        let mut settled = false;
        self.read_while(
            cluster,
            eyes,
            &mut before,
            BacklogPhase::WithoutLoad,
            |reading, before, since| {
                settled = caught_up(reading, before);
                !settled && since < limit
            },
        )?;
        if self.stopped() {
            return Err(MeasureError::Interrupted);
        }
        if !settled {
            let last = before.last().map_or(0, |last| last.behind);
            let session = &cluster.replicas[self.index].server.session;
            let cause = format!(
                "it is {last} transactions behind, and was behind for all of {:.0} s",
                limit.as_micros() / 1e6
            );
            return Err(session
                .unfit(
                    "cannot make a backlog",
                    cause,
                    "wait until it has caught up; does somebody else write?",
                )
                .into());
        }
        Ok(())
    }

    /// Reads both servers as long as `goes_on` says.
    fn read_while(
        &mut self,
        cluster: &mut Cluster,
        eyes: &mut Eyes,
        stretch: &mut Stretch,
        phase: BacklogPhase,
        mut goes_on: impl FnMut(&Reading, Option<Reading>, Nanos) -> bool,
    ) -> Result<(), MeasureError> {
        let began = self.clock.now();
        let every = Nanos::from(self.every());
        let mut next = began;
        loop {
            let before = stretch.last();
            let reading = eyes.read(self.clock)?;
            stretch.push(reading);
            let now = self.clock.now();
            if !goes_on(&reading, before, now - began) || self.stopped() {
                return Ok(());
            }
            if now >= self.next_look {
                self.next_look = now + LOOK;
                (self.listener.progress)(Progress {
                    replica: cluster.replicas[self.index].server.node.name.clone(),
                    workers: self.workers,
                    phase,
                    since: Duration::from_nanos((now - began).0.unsigned_abs()),
                    behind: reading.behind,
                });
                // A moment is needed to start; a replica without anything to do is not asked.
                if phase != BacklogPhase::Growing && now - began >= LOOK {
                    still_applying(&cluster.replicas[self.index])?;
                }
            }
            if now >= self.next_keep_alive {
                self.next_keep_alive = now + KEEP_ALIVE;
                keep_alive(cluster)?;
            }
            next = next + every;
            let left = next - self.clock.now();
            if left > Nanos(0) {
                thread::sleep(Duration::from_nanos(left.0.unsigned_abs()));
            } else {
                next = self.clock.now();
            }
        }
    }

    fn judge(&mut self, row: &Option<BacklogRow>) {
        let Some(row) = row else { return };
        if row.backlog_transactions == 0 {
            self.warnings.push(Warning::new(
                WarningCode::BacklogUnclear,
                format!("{}: no backlog grew while its applier stood still: the load wrote nothing on the primary", row.replica),
                "take a load that writes, such as insert:8@primary",
            ));
        } else if row.caught_up_after_us.is_none() {
            self.warnings.push(Warning::new(
                WarningCode::BacklogUnclear,
                format!(
                    "{}: it had not caught up {:.0} s after the end of the load; it goes on by itself",
                    row.replica,
                    self.limit().as_micros() / 1e6
                ),
                "does somebody else write to the primary?",
            ));
        } else if row.sustained_per_s.low.is_none() || row.catch_up_per_s.low.is_none() {
            self.warnings.push(Warning::new(
                WarningCode::BacklogUnclear,
                format!(
                    "{}: it caught up within few readings ({} ms apart), too few for intervals",
                    row.replica,
                    row.resolution_us / 1e3
                ),
                "let the backlog grow for longer, or under more load",
            ));
        }
    }
}

fn channel(replica: &CheckedReplica) -> Result<Channel, ServerError> {
    match &replica.relation {
        Relation::Channel { channel, .. } => Ok((**channel).clone()),
        _ => Err(replica.server.session.unfit(
            "cannot make a backlog",
            "it has no channel",
            "report this as a defect",
        )),
    }
}

/// An applier that was started and does not run will never catch up.
fn still_applying(replica: &CheckedReplica) -> Result<(), ServerError> {
    let state = match replica.state_now() {
        // It has much to do; readings go on and say when it does not answer at all.
        Err(error) if matches!(error.kind, ErrorKind::Timeout) => return Ok(()),
        other => other?,
    };
    if state.running && !state.failed {
        return Ok(());
    }
    Err(replica.server.session.unfit(
        "does not catch up",
        state.words,
        "mend replication first; the server's error log says more",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_readings_come_to_the_same_rows_again() {
        for case in record::cases("backlog") {
            let rows: Vec<_> = case
                .readings::<Walked>()
                .into_iter()
                .filter_map(Walked::row)
                .collect();
            let rows = serde_json::to_value(rows).unwrap();
            assert_eq!(rows, case.calls("shape_ended")[0]["rows"], "{}", case.name);
        }
    }
}
