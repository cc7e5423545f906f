//! `stale`: how often a read misses what was just written, and for how long.

mod figures;
mod gathered;
mod load;

use std::{path::Path, sync::atomic::Ordering};

use replimeter_measure::{
    load::{BackgroundLoad, Gauged, Gauges, SquadResult, Versions, Workload},
    preflight::{self, Cluster},
    stale::{self, Event, Listener, Outcome, Part, ReaderRef, rows},
    table::ProbeTable,
};
use replimeter_model::{
    engine::Engine,
    load::LoadSpec,
    plan::{Case, Planned, Pool, READERS, StalePlan, StaleSettings, SyncReads, Until},
    shape::{Mode, Shape},
    stale::{LoadWindow, StaleDocument, StalePhase, StaleResults, StaleWindow},
    target::{PRIMARY, Role, Target},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_report::{
    chart::Chart,
    charts,
    html::HtmlError,
    report::Report,
    rows::Rows,
    stale::{answer, report},
    stale_samples::Labels,
    together::Findings,
};
use replimeter_server::{
    flavour::sync_reads::{self, Guarantee},
    source::Member,
};
use replimeter_stats::signed::rank_of;

use self::{
    gathered::{Call, Gathered, Reader},
    load::{Judging, Loads, Placed, judged_readers, load_on, workloads, writers_of},
};
use crate::{
    compare::figures::{Figures, SampleFile},
    failure::{Failure, Kind},
    run::{
        Client, Concluded, Detail, Finished, Measurement, Progress, RunContext, Stage, each_target,
        to_measure, with_causes,
    },
    touches::{LOAD, Touches},
};

/// Names that stand for servers by their part in the measurement.
const PARTS: [&str; 5] = [PRIMARY, "writer", "reader", "third", READERS];

/// Refuses what makes no sense, before anything is touched.
fn check(plan: &Planned<StaleSettings>) -> Result<(), Failure> {
    let work = &plan.plan;
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
                target.label(),
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

/// How often a read misses what was just written.
pub(crate) struct Stale;

impl Measurement for Stale {
    const ABOUT: &'static str =
        "Measure how often a read misses a write that was just acknowledged, and for how long";
    const EXAMPLES: &'static str = "\
Examples:
  replimeter stale --sandbox galera:3 --writer node1 --reader node2
  replimeter stale --sandbox galera:3 --load oltp-mix:32@writer --sync-reads=off,on
  replimeter stale --sandbox async:1 --sandbox semi-sync:1 --sandbox galera:3 --sandbox mysql/group:3
  replimeter stale --node mysql://u@n1/ --node mysql://u@n2/ --rounds 10000 --offsets 0,1ms,2ms,5ms
  replimeter stale --sandbox galera:3 --sync-reads --pool reset     the known hole: a pooled connection forgets
  replimeter stale --sandbox async:2 --judge-load 4:8 --for 30s     reads of a load itself are judged
  replimeter stale --sandbox galera:3 --load versioned:8@node1 --load versioned:8@node2 --judge-load
  replimeter run plans/galera-stale-reads.toml                      the published experiment

Writes only to the schema `replimeter`, which it makes and drops. docs/stale.md explains every figure.";
    const HISTOGRAMS: bool = false;

    type Settings = StaleSettings;
    type Options = ();
    type Call = Call;
    type Gathered = Gathered;
    type Columns = Labels;
    type Results = StaleResults;

    fn client(plan: &StalePlan) -> Client {
        Client {
            keep_awake: plan.keep_awake,
            real_time: plan.real_time,
        }
    }

    fn check(plan: &Planned<StaleSettings>) -> Result<(), Failure> {
        check(plan)?;
        workloads(&plan.plan).map(drop)
    }

    fn touches(touches: &mut Touches, plan: &Planned<StaleSettings>) -> Result<(), Failure> {
        let work = &plan.plan;
        touches.targets(&plan.targets);
        touches.table(
            &plan.targets,
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
        touches.loads(&specs)
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), Failure> {
        let workloads = workloads(cx.work)?;
        each_target(cx, |cx, target| one(cx, target, &workloads))
    }

    fn gathered(_: &Planned<StaleSettings>) -> Gathered {
        Gathered::default()
    }

    fn take(gathered: &mut Gathered, _: &StalePlan, call: Call, rows: &mut Rows<Labels>) {
        gathered.take(call, rows);
    }

    fn warnings(gathered: &Gathered) -> &[Warning] {
        &gathered.warnings
    }

    fn is_empty(gathered: &Gathered) -> bool {
        gathered.results.iter().all(|row| row.rounds == 0)
    }

    fn conclude(run: &mut Finished<'_, Self>, mut gathered: Gathered) -> Concluded<StaleResults> {
        // What measuring gave cause for comes first.
        gathered.warnings.append(&mut run.ended.warnings);
        run.warn(gathered.warnings);
        let mut target = run.target(gathered.labels.join(", "), gathered.modes);
        let sandboxes = run.manifest.sandboxes.iter();
        target.options.extend(
            sandboxes.filter_map(|sandbox| {
                Some(format!("replication links: {}", sandbox.link.as_ref()?))
            }),
        );
        if run.plan.target.multi_primary {
            target.options.push("multi-primary".to_owned());
        }
        Concluded {
            target,
            measured_us: Some(gathered.measured.as_micros()),
            results: StaleResults {
                rows: gathered.results,
                series: gathered.series,
                load: gathered.loads,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &StaleDocument) -> String {
        answer(document)
    }

    fn figures(document: &StaleDocument, samples: &SampleFile) -> Result<Figures, Failure> {
        figures::figures(document, samples)
    }

    fn report(document: &StaleDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &StaleDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(charts::stale::charts(document))
    }

    fn findings(document: &StaleDocument) -> Findings<'_> {
        Findings::Stale(document)
    }
}

/// One case, read in one way.
struct Cell<'a> {
    case: &'a Case,
    level: SyncReads,
    pool: Pool,
    placed: &'a [Placed<'a>],
}

/// Declares who writes, when that was asked for.
fn declare(declared: &mut [Member], writer: Option<&str>) -> Result<(), Failure> {
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

/// Measures every case on one target, from its start to its end.
fn one(
    cx: &mut RunContext<'_, Stale>,
    target: &Target,
    workloads: &[(String, Workload)],
) -> Result<(), Failure> {
    let work = cx.work;
    let servers = cx.open(target)?;
    let mut declared = to_measure(servers.as_ref());
    declare(&mut declared, work.writer.as_deref())?;
    cx.stage(Stage::Servers, "checking the servers");
    let mut cluster = preflight::check_for(&declared, &stale::WRITER_PRIVILEGES)?;
    cx.met(servers.label(), servers.as_ref(), &mut cluster)?;
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
        Some(error) => cx.warn([Warning::new(
            WarningCode::CaseLeftOut,
            format!(
                "{}: a way of reading was left out: {error}",
                servers.label()
            ),
            error.hint,
        )]),
        None => {}
    }
    cx.take(Call::Shape {
        label: servers.label().to_owned(),
        mode: cluster.mode.to_owned(),
    })?;
    let (table, found) = ProbeTable::create_with(&mut cluster, work.timeout.0, rows::COLUMNS)?;
    cx.warn(found);
    let mut result = stale::fill(&mut cluster, &readers, work, cx.stop).map_err(Failure::from);
    if result.is_ok() {
        let mut sets = Loads::new(work, workloads);
        let shape = servers.label();
        result = cells(cx, &mut cluster, &readers, &levels, shape, &mut sets);
        cx.stage(Stage::CleanUp, "removing the data of the loads");
        cx.warn(sets.remove(&cluster, servers.is_temporary()));
    }
    let fallen_back = cluster.fallen_back();
    result = absent(cx, &cluster, &readers, result);
    let members = result
        .as_ref()
        .err()
        .filter(|failure| failure.kind == Kind::Failed)
        .and_then(|_| cluster.members_now());
    cx.remove_table(table, &mut cluster, servers.as_ref());
    drop(cluster);
    let ended = with_causes(result.err(), fallen_back, members, servers.as_ref());
    cx.close(servers);
    ended
}

/// Names the servers that do not take part any more: in the failure that this is perhaps the cause of, else in a warning.
fn absent(
    cx: &mut RunContext<'_, Stale>,
    cluster: &Cluster,
    readers: &[ReaderRef],
    result: Result<(), Failure>,
) -> Result<(), Failure> {
    if cx.stop.load(Ordering::Relaxed) {
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
        cx.warn([Warning::new(
            WarningCode::ServerLost,
            format!("at the end a server{read} no longer took part: {words}"),
            "what was measured is of the servers that were left from then on; the stretches of the course show since when it says nothing",
        )]);
    }
    result.map_err(|mut failure| {
        if !causes.is_empty() {
            failure.message = format!("{}; at the end: {}", failure.message, causes.join("; "));
        }
        failure
    })
}

/// Every case, read in every way.
fn cells<'s, 'a: 's>(
    cx: &mut RunContext<'a, Stale>,
    cluster: &mut Cluster,
    readers: &[ReaderRef],
    levels: &[SyncReads],
    shape: &str,
    sets: &mut Loads<'s>,
) -> Result<(), Failure> {
    let work = cx.work;
    let mut next_round = 1;
    for case in &work.cases {
        let placed = match sets.placed(case, cluster, readers)? {
            Ok(placed) => placed,
            Err(reason) if work.cases.len() > 1 => {
                let hint = "on these servers this case cannot be; name another server for it";
                cx.warn([Warning::new(
                    WarningCode::CaseLeftOut,
                    format!("{shape}: {reason}"),
                    hint,
                )]);
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
        let found = sets.fill(cx, &placed, cluster)?;
        cx.warn(found);
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
                next_round = measure_cell(cx, cluster, readers, shape, &cell, sets, next_round)?;
            }
        }
    }
    Ok(())
}

/// One case, read in one way; the number of the next round.
fn measure_cell(
    cx: &mut RunContext<'_, Stale>,
    cluster: &mut Cluster,
    readers: &[ReaderRef],
    shape: &str,
    cell: &Cell<'_>,
    sets: &Loads<'_>,
    first_round: u64,
) -> Result<u64, Failure> {
    let work = cx.work;
    let guarantees = stale::guarantees(cluster, readers, cell.level, work.timeout.0)?;
    let clock = cx.clock;
    let judging = work.judge_load.then(|| Judging {
        versions: Versions::new(&clock),
        readers,
        guarantees: &guarantees,
    });
    let case = case_of(cluster, readers, &guarantees, shape, cell, work.judge_load);
    cx.take(Call::Case(case))?;
    let part = Part {
        readers,
        guarantees: &guarantees,
        pool: cell.pool,
        first_round,
        real_time: cx.real_time,
        judged: judging.as_ref().map(|judging| &*judging.versions),
    };
    let load = sets.connect(cx, cell.placed, judging.as_ref());
    let result = load
        .map_err(Failure::from)
        .and_then(|load| under_load(cx, cluster, &part, cell, load));
    // The case's own follow those that were found before.
    let warnings = cx.take_warnings();
    cx.take(Call::Warnings(warnings))?;
    let (mut outcome, loads) = match result {
        Ok(measured) => measured,
        Err(error) => {
            cx.take(Call::CaseEnded {
                outcome: None,
                loads: Vec::new(),
            })?;
            return Err(error);
        }
    };
    let (failure, interrupted, next_round) = (
        outcome.failure.take(),
        outcome.interrupted,
        outcome.next_round,
    );
    cx.take(Call::CaseEnded {
        outcome: Some(outcome),
        loads,
    })?;
    if let Some(error) = failure {
        return Err(Failure::failed(error.to_string(), error.hint()));
    }
    if interrupted {
        return Err(Failure::cut_short());
    }
    Ok(next_round)
}

/// Who writes and who reads in a case, and how.
fn case_of(
    cluster: &Cluster,
    readers: &[ReaderRef],
    guarantees: &[Guarantee],
    shape: &str,
    cell: &Cell<'_>,
    judged: bool,
) -> gathered::Case {
    let writers = if judged {
        writers_of(cell.placed)
    } else {
        vec![cluster.primary.node.name.clone()]
    };
    let reader = |(reader, guarantee): (&ReaderRef, &Guarantee)| Reader {
        name: reader.name(cluster),
        writer: *reader == ReaderRef::Writer,
        guarantee: guarantee.words.clone(),
        gtid: guarantee.gtid,
        delay: reader.delay(cluster),
    };
    gathered::Case {
        shape: shape.to_owned(),
        load: cell.case.to_string(),
        load_on: load_on(cell.case, cluster, readers),
        asked: cell.level,
        sync_reads: guarantees
            .first()
            .map_or(cell.level, |guarantee| guarantee.level),
        pool: cell.pool,
        writers,
        readers: readers.iter().zip(guarantees).map(reader).collect(),
        judged: judged.then(|| gathered::judged(cell.placed)),
    }
}

/// Measures a case while its load runs; what came of both.
fn under_load(
    cx: &mut RunContext<'_, Stale>,
    cluster: &mut Cluster,
    part: &Part<'_>,
    cell: &Cell<'_>,
    mut load: BackgroundLoad,
) -> Result<(Outcome, Vec<SquadResult>), Failure> {
    let some = !cell.placed.is_empty();
    if some {
        cx.stage(Stage::WarmUp, "the load begins");
    }
    let stop = cx.stop;
    let (result, warnings) = load.run_while(stop, |running| {
        let stopped = || stop.load(Ordering::Relaxed) || running.has_failed();
        let result = measure(cx, cluster, part, cell, &running.gauges, &stopped);
        if some {
            cx.stage(Stage::CleanUp, "ending the load");
        }
        result
    })?;
    cx.warn(warnings);
    Ok((result?, load.results()))
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
fn measure(
    cx: &mut RunContext<'_, Stale>,
    cluster: &mut Cluster,
    part: &Part<'_>,
    cell: &Cell<'_>,
    gauges: &[Gauges],
    stopped: &dyn Fn() -> bool,
) -> Result<Outcome, Failure> {
    let panics = cx.fault() == Some("panic-while-measuring");
    let (work, clock) = (cx.work, cx.clock);
    let what = format!("{}, {}", cell.case, cell.level);
    let mut on = |event: Event<'_>| {
        let call = match event {
            Event::Round(round) => {
                assert!(
                    !(panics && round.phase == StalePhase::AtOnce),
                    "a fault was asked for"
                );
                Call::Round(round.clone())
            }
            Event::Window(window) => {
                let loads = cell.placed.iter().zip(gauges);
                let load = loads.map(|(load, gauge)| load_window(load.name(), &gauge.take()));
                Call::Window(StaleWindow {
                    load: load.collect(),
                    ..window
                })
            }
            Event::Progress(progress) => {
                let total = progress.total.map(|total| total as f64);
                cx.observers.progress(
                    Progress::new(Stage::Measure, progress.phase.name())
                        .part(&what)
                        .done(progress.done as f64, total, "rounds")
                        .with(Detail::Count(progress.stale, "stale".into())),
                );
                return Ok(());
            }
        };
        cx.take(call).map_err(|failure| failure.message)
    };
    let mut listener = Listener {
        on: &mut on,
        stop: stopped,
    };
    Ok(stale::run(cluster, work, part, &clock, &mut listener)?)
}
