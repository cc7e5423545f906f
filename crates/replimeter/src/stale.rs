//! Carries out a `stale` plan: every case on every target, and the report.

mod gathered;
mod load;

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use replimeter_measure::{
    clock::Clock,
    load::{Gauged, Gauges, Versions, Workload},
    preflight::{self, Cluster},
    stale::{self, Listener, Outcome, Part, ReaderRef, rows},
    survey::Declared,
    table::ProbeTable,
};
use replimeter_model::{
    engine::Engine,
    load::LoadRecord,
    plan::{Case, Plan, Pool, READERS, StalePlan, SyncReads},
    record::{ClientRecord, TargetRecord},
    shape::{Mode, Shape},
    stale::{
        LoadWindow, STALE_SCHEMA, StaleCourse, StaleDocument, StaleLoad, StalePhase, StaleRound,
        StaleRow, StaleWindow,
    },
    target::{PRIMARY, Role, Target},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_report::{
    figures::count,
    stale::answer,
    stale_samples::{Labels, StaleWriter},
};
use replimeter_server::flavour::sync_reads;
use replimeter_stats::signed::rank_of;

use self::{
    gathered::Gathered,
    load::{Judging, Loads, Placed, judged_readers, load_on, workloads, writers_of},
};
use crate::{
    document::Document,
    environment,
    failure::{Failure, Kind},
    frame::{Frame, Request},
    measure::{self, document, servers},
    progress::Line,
    run_dir::SAMPLES,
};

/// How long the replicas may take to apply the removal of our table.
const REMOVAL: Duration = Duration::from_secs(5);
/// Names that stand for servers by their part in the measurement.
const PARTS: [&str; 5] = [PRIMARY, "writer", "reader", "third", READERS];

/// Refuses what makes no sense, before anything is touched.
pub(crate) fn check(plan: &Plan, work: &StalePlan) -> Result<(), Failure> {
    for target in &plan.targets {
        // The servers of a running sandbox are known when it is found.
        let names = match target {
            Target::Sandbox(spec) => spec.shape.nodes(),
            Target::Nodes(nodes) => nodes.iter().map(|node| node.name.clone()).collect(),
            Target::Running(_) => continue,
        };
        let known = |name: &str| names.iter().any(|known| known == name);
        let refuse = |what: &str, name: &str, hint: &str| {
            let message = format!(
                "{what}: {} has no server called `{name}`; it has {}",
                servers::label(target),
                names.join(", ")
            );
            Failure::usage(message, hint)
        };
        if let Some(writer) = work
            .writer
            .iter()
            .find(|writer| !known(writer) && *writer != PRIMARY)
        {
            return Err(refuse("the writer", writer, "name one of them"));
        }
        if let Some(reader) = work
            .readers
            .iter()
            .find(|reader| !known(reader) && !PARTS[1..3].contains(&reader.as_str()))
        {
            return Err(refuse(
                "the reader",
                reader,
                "name one of them; writer and reader (the first other one) stand for servers too",
            ));
        }
        let nodes = work
            .cases
            .iter()
            .flat_map(|case| &case.0)
            .map(|load| load.node.as_str());
        if let Some(node) = nodes
            .into_iter()
            .find(|node| !known(node) && !PARTS.contains(node))
        {
            let hint = "name one of them; writer, reader, readers (each of them) and third (neither) stand for servers too";
            return Err(refuse("the load", node, hint));
        }
        if let Target::Sandbox(spec) = target {
            waitable(spec.shape, work)?;
        }
    }
    Ok(())
}

/// Refuses a shape that has none of the ways in which reads are to be made to wait.
fn waitable(shape: Shape, work: &StalePlan) -> Result<(), Failure> {
    let kind = match shape.mode() {
        Mode::Galera => sync_reads::Kind::Galera,
        Mode::Group => sync_reads::Kind::Group,
        // What a channel can do is the same on every engine.
        Mode::None | Mode::Async | Mode::SemiSync | Mode::Chain => {
            sync_reads::Kind::Channel(Engine::MariaDb)
        }
    };
    let mut why = None;
    for level in &work.sync_reads {
        match sync_reads::guarantee(*level, kind, work.timeout.0) {
            Ok(_) => return Ok(()),
            Err(reason) => why = Some(reason),
        }
    }
    why.map_or(Ok(()), |(cause, hint)| {
        Err(Failure::usage(format!("{shape}: {cause}"), hint))
    })
}

/// What a run comes to, part by part.
struct Run<'a> {
    request: &'a Request<'a, StalePlan>,
    frame: Frame,
    writer: StaleWriter,
    results: Vec<StaleRow>,
    series: Vec<StaleCourse>,
    loads: Vec<StaleLoad>,
    modes: Vec<String>,
    labels: Vec<String>,
    measured: Nanos,
    workloads: &'a [(String, Workload)],
    stop: &'a AtomicBool,
}

/// One case, read in one way.
struct Cell<'a> {
    case: &'a Case,
    level: SyncReads,
    pool: Pool,
    placed: &'a [Placed<'a>],
}

/// Carries it out.
pub(crate) fn carry_out(
    mut request: Request<'_, StalePlan>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let (plan, work, output) = (request.plan, request.work, request.output);
    if plan.targets.len() > 1 {
        servers::possible(&plan.targets)?;
    }
    let workloads = workloads(work)?;
    let warnings = std::mem::take(&mut request.warnings);
    let frame = Frame::begin(
        "stale",
        plan,
        output,
        work.keep_awake,
        work.real_time,
        warnings,
    )?;
    let writer = StaleWriter::create(&frame.run_dir.file(SAMPLES))?;
    let mut run = Run {
        request: &request,
        frame,
        writer,
        results: Vec::new(),
        series: Vec::new(),
        loads: Vec::new(),
        modes: Vec::new(),
        labels: Vec::new(),
        measured: Nanos(0),
        workloads: &workloads,
        stop,
    };
    let failure = measure::each(&plan.targets, |target| run.target(target).err());
    let Run {
        mut frame,
        writer,
        results,
        series,
        loads,
        modes,
        labels,
        measured,
        ..
    } = run;
    let kept_awake = frame.let_sleep();
    if results.iter().all(|row| row.rounds == 0) {
        frame.give_up();
        return Err(failure.unwrap_or_else(|| {
            Failure::failed("no round was measured", "the messages above say more")
        }));
    }
    let finished = writer.finish();
    frame.run_dir.keep();
    let failure = failure.or_else(|| finished.err().map(Failure::from));
    let mut warnings = std::mem::take(&mut frame.warnings);
    warnings.extend(failure.as_ref().map(Failure::warning));
    let mut options: Vec<String> = plan
        .target
        .server_options
        .iter()
        .map(|option| format!("server option {option}"))
        .collect();
    options.extend(
        frame
            .manifest
            .sandboxes
            .iter()
            .filter_map(|sandbox| Some(format!("replication links: {}", sandbox.link.as_ref()?))),
    );
    if plan.target.multi_primary {
        options.push("multi-primary".to_owned());
    }
    let mut document = StaleDocument {
        schema: STALE_SCHEMA.to_owned(),
        run_dir: frame.run_dir.path().display().to_string(),
        title: plan.title.clone(),
        status: measure::status(failure.as_ref()),
        error: failure.as_ref().map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: frame.manifest.started_at.clone(),
        measured_us: measured.as_micros(),
        target: TargetRecord {
            shape: labels.join(", "),
            modes,
            options,
            sandbox: !frame.manifest.sandboxes.is_empty(),
            nodes: document::nodes(&frame.manifest),
        },
        settings: work.to_spec(),
        results,
        series,
        load: loads,
        client: ClientRecord {
            keep_awake: kept_awake,
            real_time: frame.real_time,
            clock_step_us: Nanos::from(frame.clock.step()).as_micros(),
            ..ClientRecord::default()
        },
        warnings,
    };
    document.answer = answer(&document);
    frame.publish(&Document::Stale(Box::new(document)), output, failure)
}

/// Declares who writes, when that was asked for.
fn declare(declared: &mut [Declared], writer: Option<&str>) -> Result<(), Failure> {
    let Some(writer) = writer.filter(|writer| !PARTS[..2].contains(writer)) else {
        return Ok(());
    };
    if !declared.iter().any(|one| one.node.name == writer) {
        let names: Vec<&str> = declared.iter().map(|one| one.node.name.as_str()).collect();
        return Err(Failure::usage(
            format!(
                "the writer: there is no server called `{writer}`; there are {}",
                names.join(", ")
            ),
            "name one of them",
        ));
    }
    for one in declared {
        if one.node.name == writer {
            one.role = Some(Role::Primary);
        } else if one.role == Some(Role::Primary) {
            one.role = None;
        }
    }
    Ok(())
}

impl<'a> Run<'a> {
    /// Measures every case on one target, from its start to its end.
    fn target(&mut self, target: &Target) -> Result<(), Failure> {
        let work = self.request.work;
        let servers = self.request.obtain(target, &self.frame.line, self.stop)?;
        let mut declared = servers.to_measure();
        declare(&mut declared, work.writer.as_deref())?;
        self.frame.line.say("checking the servers");
        let mut cluster = preflight::check_for(&declared, &stale::WRITER_PRIVILEGES)?;
        self.frame.met(&servers, &mut cluster)?;
        let readers = stale::readers(&cluster, &work.readers)
            .map_err(|error| Failure::usage(format!("the reader: {}", error.cause), error.hint))?;
        // Every way is looked for before the first row is written; one of several that these servers do not have is left out.
        let mut levels = Vec::new();
        let mut without = None;
        for level in &work.sync_reads {
            let found = match stale::guarantees(&cluster, &readers, *level, work.timeout.0) {
                Ok(found) => found,
                Err(error) => {
                    without.get_or_insert(error);
                    continue;
                }
            };
            levels.push(*level);
            if work.judge_load && found.iter().any(|guarantee| guarantee.gtid) {
                let error = cluster.primary.session.unfit(
                    "cannot make the load's reads wait",
                    "its replicas are waited for by GTID, and that would be one statement more in the load whose reads are judged",
                    "leave --sync-reads out, or leave --judge-load out and have rounds read synchronously",
                );
                return Err(error.into());
            }
        }
        match without {
            Some(error) if levels.is_empty() => return Err(error.into()),
            Some(error) => self.frame.warnings.push(Warning::new(
                WarningCode::CaseLeftOut,
                format!("{}: a way of reading was left out: {error}", servers.label),
                error.hint,
            )),
            None => {}
        }
        self.modes.push(cluster.mode.to_owned());
        self.labels.push(servers.label.clone());
        let (table, found) = ProbeTable::create_with(&mut cluster, work.timeout.0, rows::COLUMNS)?;
        self.frame.warnings.extend(found);
        let mut result =
            stale::fill(&mut cluster, &readers, work, self.stop).map_err(Failure::from);
        if result.is_ok() {
            let mut sets = Loads::new(work, self.workloads);
            result = self.cells(&mut cluster, &readers, &levels, &servers.label, &mut sets);
            self.frame.line.say("removing the data of the loads");
            self.frame
                .warnings
                .extend(sets.remove(&cluster, servers.sandbox.is_some()));
        }
        let fallen_back = cluster.fallen_back();
        result = self.absent(&cluster, &readers, result);
        let members = result
            .as_ref()
            .err()
            .filter(|failure| failure.kind == Kind::Failed)
            .and_then(|_| cluster.members_now());
        self.frame.line.say("removing our table");
        match &servers.sandbox {
            Some(_) => table.abandon(),
            None => self
                .frame
                .warnings
                .extend(table.remove(&mut cluster, REMOVAL, self.stop)),
        }
        drop(cluster);
        self.frame.close(servers);
        measure::with_causes(result.err(), fallen_back, members, target).map_or(Ok(()), Err)
    }

    /// Names the servers that do not take part any more: in the failure that this is perhaps the cause of, else in a warning.
    fn absent(
        &mut self,
        cluster: &Cluster,
        readers: &[ReaderRef],
        result: Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return result;
        }
        let failed = result
            .as_ref()
            .is_err_and(|failure| failure.kind == Kind::Failed);
        let mut causes = Vec::new();
        for (index, words) in cluster.absent() {
            // How members of a cluster stand is told with every failure.
            if failed && readers.contains(&ReaderRef::Replica(index)) {
                if !matches!(cluster.mode, "galera" | "group") {
                    causes.push(words);
                }
                continue;
            }
            let read = if readers.contains(&ReaderRef::Replica(index)) {
                ""
            } else {
                ", which was not read,"
            };
            self.frame.warnings.push(Warning::new(
                WarningCode::ServerLost,
                format!("at the end a server{read} no longer took part: {words}"),
                "what was measured is of the servers that were left from then on; the stretches of the course show since when it says nothing",
            ));
        }
        result.map_err(|mut failure| {
            if !causes.is_empty() {
                failure.message = format!("{}; at the end: {}", failure.message, causes.join("; "));
            }
            failure
        })
    }

    /// Every case, read in every way.
    fn cells(
        &mut self,
        cluster: &mut Cluster,
        readers: &[ReaderRef],
        levels: &[SyncReads],
        shape: &str,
        sets: &mut Loads<'a>,
    ) -> Result<(), Failure> {
        let work = self.request.work;
        let mut next_round = 1;
        for case in &work.cases {
            let placed = match sets.placed(case, cluster, readers)? {
                Ok(placed) => placed,
                Err(reason) if work.cases.len() > 1 => {
                    let hint = "on these servers this case cannot be; name another server for it";
                    self.frame.warnings.push(Warning::new(
                        WarningCode::CaseLeftOut,
                        format!("{shape}: {reason}"),
                        hint,
                    ));
                    continue;
                }
                Err(reason) => {
                    return Err(Failure::usage(
                        reason,
                        "name another server behind the @ of --load",
                    ));
                }
            };
            // A load is read where it is, unless somebody chose.
            let wanted = (!work.readers.is_empty()).then_some(readers);
            let found = if work.judge_load {
                judged_readers(&placed, wanted, case)
            } else {
                Ok(readers.to_vec())
            };
            let readers = &match found {
                Ok(readers) => readers,
                Err(reason) => {
                    let hint = "such loads are versioned-update:4@writer, versioned-select:8@reader and versioned:8@node1; \
                                docs/stale.md says how a workload of yours names its versions";
                    return Err(Failure::usage(reason, hint));
                }
            };
            self.frame
                .warnings
                .extend(sets.fill(&placed, cluster, &self.frame.line, self.stop)?);
            for level in levels {
                for pool in &work.pools {
                    if *level == SyncReads::Off && *pool != Pool::Keep {
                        continue;
                    }
                    let cell = Cell {
                        case,
                        level: *level,
                        pool: *pool,
                        placed: &placed,
                    };
                    next_round = self.cell(cluster, readers, shape, &cell, sets, next_round)?;
                }
            }
        }
        Ok(())
    }

    /// One case, read in one way; the number of the next round.
    fn cell(
        &mut self,
        cluster: &mut Cluster,
        readers: &[ReaderRef],
        shape: &str,
        cell: &Cell<'_>,
        sets: &Loads<'_>,
        first_round: u64,
    ) -> Result<u64, Failure> {
        let work = self.request.work;
        let guarantees = stale::guarantees(cluster, readers, cell.level, work.timeout.0)?;
        let names: Vec<String> = readers.iter().map(|reader| reader.name(cluster)).collect();
        let labels = Labels {
            shape: shape.to_owned(),
            load: cell.case.to_string(),
            sync_reads: guarantees
                .first()
                .map_or(cell.level, |guarantee| guarantee.level)
                .name()
                .to_owned(),
            pool: cell.pool.name().to_owned(),
            readers: names.clone(),
        };
        self.writer.begin(labels.clone())?;
        let clock = self.frame.clock;
        let judging = work.judge_load.then(|| Judging {
            versions: Versions::new(&clock),
            readers,
            guarantees: &guarantees,
        });
        let writers = match &judging {
            Some(_) => writers_of(cell.placed),
            None => vec![cluster.primary.node.name.clone()],
        };
        let mut gathered = Gathered::new(&writers.join(", "), &names, &guarantees, cell.pool);
        if judging.is_some() {
            gathered.judges(cell.placed);
        }
        let (stop, line) = (self.stop, &self.frame.line);
        let (writer, work_plan, real_time) =
            (&mut self.writer, self.request.work, self.frame.real_time);
        let result = sets.under(
            cell.placed,
            judging.as_ref(),
            &clock,
            line,
            stop,
            |gauges, stopped| {
                let judged = judging.as_ref().map(|judging| &*judging.versions);
                let part = Part {
                    readers,
                    guarantees: &guarantees,
                    pool: cell.pool,
                    first_round,
                    real_time,
                    judged,
                };
                measure(
                    cluster,
                    work_plan,
                    &part,
                    cell,
                    &clock,
                    line,
                    writer,
                    &mut gathered,
                    gauges,
                    stopped,
                )
            },
        );
        let delays: Vec<Duration> = readers.iter().map(|reader| reader.delay(cluster)).collect();
        let load_on = load_on(cell.case, cluster, readers);
        let foreign = gathered.foreign();
        let (rows, course) = gathered.finish();
        if foreign > 0 && judging.is_some() {
            self.frame.warnings.push(Warning::new(
                WarningCode::ChangedByOthers,
                format!(
                    "{foreign} reads of the load found no version in a row that had been written: somebody else removes rows"
                ),
                "these reads count for nothing; nobody else may write to the load's tables meanwhile",
            ));
        } else if foreign > 0 {
            self.frame.warnings.push(stale::changed_by_others(foreign));
        }
        for ((row, reader), delay) in rows.into_iter().zip(readers).zip(delays) {
            let row = StaleRow {
                shape: shape.to_owned(),
                // What others write is replicated to the first writer too.
                null_replica: *reader == ReaderRef::Writer && writers.len() == 1,
                load: labels.load.clone(),
                load_on: load_on.clone(),
                sync_reads: labels.sync_reads.clone(),
                pool: labels.pool.clone(),
                judged: if work.judge_load { "load" } else { "rounds" }.to_owned(),
                configured_delay_us: (!delay.is_zero()).then_some(delay.as_secs_f64() * 1e6),
                ..row
            };
            self.broken(&row, cell);
            self.results.push(row);
        }
        let way = (labels.sync_reads.clone(), labels.pool.clone());
        let (load, sync_reads, pool) = (labels.load, labels.sync_reads, labels.pool);
        self.series.push(StaleCourse {
            shape: shape.to_owned(),
            load,
            sync_reads,
            pool,
            windows: course,
        });
        let (outcome, squads) = result?;
        for squad in squads {
            self.frame.warnings.extend(squad.warnings());
            if squad.operations == 0 && squad.failed == 0 {
                let read = if cell.level == SyncReads::Off {
                    String::new()
                } else {
                    format!(" (reads: {})", way.0)
                };
                self.frame.warnings.push(Warning::new(
                    WarningCode::LoadUnfinished,
                    format!(
                        "{shape}: the rounds of the case {}{read} were over before its load completed one operation",
                        cell.case
                    ),
                    "they are of the part of one operation that was under way; ask for more --rounds, or a time such as --for 60s",
                ));
            }
            let record = LoadRecord {
                shape: shape.to_owned(),
                ..squad.record()
            };
            let (case, sync_reads, pool) = (cell.case.to_string(), way.0.clone(), way.1.clone());
            self.loads.push(StaleLoad {
                case,
                sync_reads,
                pool,
                record,
            });
        }
        self.measured = self.measured + outcome.measured;
        self.frame.warnings.extend(outcome.warnings);
        if let Some(error) = outcome.failure {
            return Err(Failure::failed(error.to_string(), error.hint()));
        }
        if outcome.interrupted {
            return Err(Failure::cut_short());
        }
        Ok(outcome.next_round)
    }

    /// Warns of a promise that did not hold.
    fn broken(&mut self, row: &StaleRow, cell: &Cell<'_>) {
        let violations = &row.violations;
        if cell.level == SyncReads::Off
            || violations.read_your_writes + violations.monotonic_same_connection == 0
        {
            return;
        }
        let hint = match cell.pool {
            Pool::Keep => {
                "the witness in the report shows one, statement by statement; is a proxy or a balancer in between?"
            }
            Pool::Reset | Pool::ChangeUser => {
                "a connection that a pool resets forgets its session's settings, and GTIDs that come with the answer: set them again after every reset, or globally"
            }
        };
        let hint = if row.guarantee.contains("WSREP_SYNC_WAIT_UPTO_GTID") {
            "on Galera this wait can return a little before the row can be read; wsrep_sync_wait=1 (--sync-reads=before) does not"
        } else {
            hint
        };
        self.frame.warnings.push(Warning::new(
            WarningCode::GuaranteeBroken,
            format!(
                "{} {}: the guarantee of synchronous reads was broken: {} of {} reads did not show what had been acknowledged, {} of {} went \
                 back behind what their own connection had been shown ({}), connections: {}",
                row.shape,
                row.reader,
                count(violations.read_your_writes),
                count(violations.read_your_writes_of),
                count(violations.monotonic_same_connection),
                count(violations.monotonic_reads_of),
                row.guarantee,
                row.pool
            ),
            hint,
        ));
    }
}

/// What a load met in a stretch.
fn load_window(load: String, gauged: &Gauged) -> LoadWindow {
    let latency = &gauged.latency;
    let rank = |p: f64| {
        latency
            .at_rank(rank_of(p, latency.count()))
            .map(Nanos::as_micros)
    };
    let some = latency.count() > 0;
    LoadWindow {
        load,
        operations: latency.count(),
        p50_us: rank(0.5).filter(|_| some),
        p99_us: rank(0.99).filter(|_| some),
        max_us: latency.max().map(Nanos::as_micros).filter(|_| some),
        under_way_us: gauged.under_way.map_or(0.0, Nanos::as_micros),
    }
}

/// Measures one part.
#[allow(
    clippy::too_many_arguments,
    reason = "what the parts of a run share, taken apart so that the load can run beside"
)]
fn measure(
    cluster: &mut Cluster,
    work: &StalePlan,
    part: &Part<'_>,
    cell: &Cell<'_>,
    clock: &Clock,
    line: &Line,
    writer: &mut StaleWriter,
    gathered: &mut Gathered,
    gauges: &[Gauges],
    stopped: &dyn Fn() -> bool,
) -> Result<Outcome, Failure> {
    let panics = environment::fault().as_deref() == Some("panic-while-measuring");
    let gathered = RefCell::new(gathered);
    let mut round = |round: &StaleRound| {
        assert!(
            !(panics && round.phase == StalePhase::AtOnce),
            "a fault was asked for"
        );
        gathered.borrow_mut().record(round);
        writer.write(round).map_err(|error| error.to_string())
    };
    let mut window = |window: StaleWindow| {
        let load = cell
            .placed
            .iter()
            .zip(gauges)
            .map(|(load, gauge)| load_window(load.name(), &gauge.take()));
        gathered.borrow_mut().window(StaleWindow {
            load: load.collect(),
            ..window
        });
    };
    let what = format!("{}, {}", cell.case, cell.level);
    let mut progress = |progress: stale::Progress| {
        let of = progress
            .total
            .map_or_else(String::new, |total| format!(" of {}", count(total)));
        line.say(format!(
            "{what}: {} {}{of}, {} stale",
            progress.phase.name(),
            count(progress.done),
            count(progress.stale)
        ));
    };
    let mut listener = Listener {
        round: &mut round,
        window: &mut window,
        progress: &mut progress,
        stop: stopped,
    };
    Ok(stale::run(cluster, work, part, clock, &mut listener)?)
}
