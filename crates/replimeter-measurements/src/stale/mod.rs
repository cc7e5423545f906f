//! `stale`: measures how often, and for how long, reads miss acknowledged writes.

mod accumulator;
mod case_rounds;
pub(crate) mod charts;
mod check;
mod conditions;
mod figures;
mod load;
mod remedy;
pub(crate) mod report;
mod samples;
mod site;

use std::{path::Path, sync::atomic::Ordering};

use crate::stale::{
    report::{answer, label, report},
    samples::SampleLabels,
};
use replimeter_engine::{
    dialect::sync_reads,
    source::{Member, Servers},
};
use replimeter_instruments::{
    load::Workload,
    preflight::{self, Cluster},
    stale::{
        self, ReaderRef,
        results::{StaleDocument, StaleResults},
        rows,
        settings::{StalePlan, StaleSettings},
    },
    table::ProbeTable,
};
use replimeter_model::{
    compare::Quantity,
    load::{LoadRate, LoadSpec},
    plan::{CoreUse, Request, StopCondition},
    read_consistency::ReadConsistency,
    target::Target,
    warning::{Warning, WarningCode},
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Finished, Leading, Measurement, RunContext, Stage,
    cli_error::{CliError, FailureKind},
    dry_run::{PlanEffects, load_connections},
    each_start,
    figures::{FigureSpec, Figures, SampleFile, StatedFigures},
    with_causes,
};

use self::{
    accumulator::{Accumulator, Call},
    check::{check, declare_writer},
    conditions::{Curves, ServerStart, measure_cases},
    load::{CaseLoads, workloads},
};

/// The measurement `stale`.
pub(crate) struct Stale;

impl Measurement for Stale {
    const ABOUT: &'static str = "Measure how often, and how long, reads miss an acknowledged write";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const EXAMPLES: &'static str = "\
Examples:
  replimeter stale --sandbox galera:3 --writer node1 --reader node2
  replimeter stale --sandbox async:1 --sandbox galera:3 --sandbox group:3
  replimeter stale --sandbox galera:3 --rounds 10000 --read-delays 0,1ms,2ms,5ms
  # reads as they are, and reads that wait
  replimeter stale --sandbox galera:3 --read-consistency=off,on
  # a pooled connection forgets what makes reads wait
  replimeter stale --sandbox galera:3 --read-consistency --session-reset reset
  # through a web site: post, and reload until the post is there
  replimeter stale --sandbox async:2 --link-delay 5ms --through http
  replimeter stale --sandbox async:2 --through http --remedy none,wait-for-gtid
  # the reads of the load itself
  replimeter stale --sandbox async:2 --check-load-reads 4:8 --duration 30s
  replimeter stale --load versioned:8@primary --check-load-reads
  # the published experiment
  replimeter reproduce --experiments 4

Terms of the report:
  stale          a read, sent when the write was acknowledged, that missed it
  staleness      from the acknowledgement to the reply that showed the write
  fresh after    the wait after which 99 or 99.9 % of reads show the write
  non-monotonic  a read that showed an older version than an earlier one
  start          servers that are started again; starts share the rounds
                 (--starts)
  < 2.50         none was seen: the upper limit of the share, in percent

Writes only to the schema `replimeter`, which it creates and drops.";
    const HISTOGRAMS: bool = false;

    type Settings = StaleSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = SampleLabels;
    type Results = StaleResults;

    fn starts(plan: &StalePlan) -> u32 {
        plan.starts
    }

    fn client(plan: &StalePlan) -> CoreUse {
        plan.cores
    }

    fn check(request: &Request<StaleSettings>) -> Result<(), CliError> {
        check(request)?;
        workloads(&request.plan).map(drop)
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<StaleSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        effects.written_targets();
        // A second connection of each kind for reads that wait.
        let waits = u64::from(
            plan.read_consistency
                .iter()
                .any(|kind| *kind != ReadConsistency::Off),
        );
        let loads = plan
            .cases
            .iter()
            .map(|case| load_connections(&case.0))
            .max();
        let more = waits + loads.unwrap_or(0);
        if let Some(through) = &plan.site {
            site::effects(effects, through, more)?;
        } else {
            effects.table(&format!("{} rows, updated at random", plan.rows));
            effects.cost(
                "primary",
                4 + more,
                "an update of one row per round, one after another",
            );
            effects.cost(
                "each replica",
                3 + more,
                "a read by key per round, repeated without a pause until the row is visible",
            );
        }
        effects.starts(plan.starts, plan.over);
        let until = match plan.until {
            StopCondition::Rounds(rounds) => format!("{rounds} rounds"),
            StopCondition::Elapsed(span) => format!("rounds for {span}"),
        };
        effects.load(match plan.check_load_reads {
            true => "the load's own reads are checked; there are no separate rounds".to_owned(),
            false => format!(
                "{until}, {} rounds at each point of the curve",
                plan.curve_rounds
            ),
        });
        let mut specs: Vec<(&LoadSpec, Option<LoadRate>)> = Vec::new();
        for load in plan.cases.iter().flat_map(|case| &case.0) {
            if !specs.contains(&(load, plan.rate)) {
                specs.push((load, plan.rate));
            }
        }
        effects.loads(&specs)
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let workloads = workloads(cx.plan)?;
        let mut curves = Curves::new();
        if let Some(through) = &cx.plan.site {
            site::check(&*cx.source(), through)?;
            return each_start(cx, cx.plan.starts, cx.plan.over, |cx, target, start| {
                site::measure_start(cx, target, start, &workloads, &mut curves)
            });
        }
        each_start(cx, cx.plan.starts, cx.plan.over, |cx, target, start| {
            measure_start(cx, target, start, &workloads, &mut curves)
        })
    }

    fn accumulator(_: &Request<StaleSettings>) -> Accumulator {
        Accumulator::default()
    }

    fn take(
        accumulator: &mut Accumulator,
        _: &StalePlan,
        call: Call,
        rows: &mut Rows<SampleLabels>,
    ) {
        accumulator.take(call, rows);
    }

    fn cut_off(accumulator: &mut Accumulator) {
        accumulator.cut_off();
    }

    fn warnings(accumulator: &Accumulator) -> &[Warning] {
        &accumulator.warnings
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.is_empty()
    }

    fn conclude(
        run: &mut Finished<'_, Self>,
        mut accumulator: Accumulator,
    ) -> Concluded<StaleResults> {
        // An interrupted run has fewer starts than its plan.
        let starts = accumulator.starts();
        let (results, warnings) = accumulator.results();
        // Warnings of the measurement come first.
        accumulator.warnings.extend(warnings);
        accumulator.warnings.append(&mut run.ended.warnings);
        run.warn(accumulator.warnings);
        let mut target = run.target(accumulator.labels.join(", "), accumulator.modes);
        target.fresh_starts = target.fresh_starts.min(starts);
        let sandboxes = run.manifest.sandboxes.iter();
        target.options.extend(
            sandboxes.filter_map(|sandbox| {
                Some(format!("replication links: {}", sandbox.link.as_ref()?))
            }),
        );
        if run.request.target.multi_primary {
            target.options.push("multi-primary".to_owned());
        }
        Concluded {
            target,
            measured_us: Some(accumulator.measured.as_micros()),
            results,
            ..Concluded::default()
        }
    }

    fn headline(document: &StaleDocument) -> String {
        answer(document)
    }

    fn leading(document: &StaleDocument) -> Option<Leading> {
        let mut rows = document.results.rows.iter();
        let row = rows.find(|row| row.stale_percent.is_some())?;
        Leading::of(label(document, row), row.stale_percent, Quantity::Percent)
    }

    fn stated(_: &StaleSettings, results: &StaleResults) -> StatedFigures {
        figures::stated(results)
    }

    fn figures(document: &StaleDocument, samples: &SampleFile) -> Result<Figures, CliError> {
        figures::figures(document, samples)
    }

    fn report(document: &StaleDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &StaleDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::stale::charts::charts(document))
    }
}

/// Measures every case in one start of a target.
fn measure_start(
    cx: &mut RunContext<'_, Stale>,
    target: &Target,
    start: u32,
    workloads: &[(String, Workload)],
    curves: &mut Curves,
) -> Result<(), CliError> {
    let plan = &cx.plan.of_start(start);
    let check = |members: &[Member]| -> Result<Cluster, CliError> {
        let mut declared = members.to_vec();
        declare_writer(&mut declared, plan.writer.as_deref())?;
        Ok(preflight::check_for(&declared, &stale::WRITER_PRIVILEGES)?)
    };
    cx.on_checked(target, check, |cx, servers, cluster| {
        on_servers(cx, servers, cluster, plan, start, workloads, curves)
    })
}

/// Measures every case on checked servers.
fn on_servers(
    cx: &mut RunContext<'_, Stale>,
    servers: &dyn Servers,
    mut cluster: Cluster,
    plan: &StalePlan,
    start: u32,
    workloads: &[(String, Workload)],
    curves: &mut Curves,
) -> Result<(), CliError> {
    let readers = stale::readers(&cluster, &plan.reader)
        .map_err(|error| CliError::usage(format!("the reader: {}", error.cause), error.hint))?;
    // Every level is checked before the first row is written; if these servers support only some, the others
    // are left out.
    let mut levels = Vec::new();
    let mut without = None;
    for level in &plan.read_consistency {
        let found = match stale::guarantees(&cluster, &readers, *level, plan.timeout.0) {
            Ok(found) => found,
            Err(error) => {
                without.get_or_insert(error);
                continue;
            }
        };
        levels.push(*level);
        if plan.check_load_reads && found.iter().any(|guarantee| guarantee.by_commit_id) {
            let error = cluster.primary.session.precondition(
                "making the load's reads wait",
                sync_reads::ADDS_A_STATEMENT,
                "leave --read-consistency out, or leave --check-load-reads out to read synchronously in rounds",
            );
            return Err(error.into());
        }
    }
    match without {
        Some(error) if levels.is_empty() => return Err(error.into()),
        Some(error) => cx.warn([Warning::new(
            WarningCode::CaseLeftOut,
            format!(
                "{}: a level of read consistency was left out: {error}",
                servers.label()
            ),
            error.hint,
        )]),
        None => {}
    }
    cx.take(Call::Shape {
        label: servers.label().to_owned(),
        start,
        mode: cluster.mode,
    })?;
    let (table, found) = ProbeTable::create_with(&mut cluster, plan.timeout.0, rows::COLUMNS)?;
    cx.warn(found);
    let mut result = stale::fill(&mut cluster, &readers, plan, cx.stop).map_err(CliError::from);
    if result.is_ok() {
        let mut sets = CaseLoads::new(plan, workloads);
        let mut start = ServerStart {
            number: start,
            shape: servers.label(),
            plan,
            curves,
        };
        result = measure_cases(cx, &mut cluster, &readers, &levels, &mut start, &mut sets);
        cx.stage(Stage::CleanUp, "removing the data of the loads");
        cx.warn(sets.remove(&cluster, servers.is_temporary()));
    }
    end(cx, servers, cluster, &readers, Some(table), result)
}

/// Ends a start: adds the states of its servers to a failure, and removes the table.
fn end(
    cx: &mut RunContext<'_, Stale>,
    servers: &dyn Servers,
    mut cluster: Cluster,
    readers: &[ReaderRef],
    table: Option<ProbeTable>,
    result: Result<(), CliError>,
) -> Result<(), CliError> {
    let fallen_back = cluster.fall_back_reason();
    let result = absent(cx, &cluster, readers, result);
    let members = result
        .as_ref()
        .err()
        .filter(|failure| failure.kind == FailureKind::Failed)
        .and_then(|_| cluster.members_now());
    if let Some(table) = table {
        cx.remove_table(table, &mut cluster, servers);
    }
    with_causes(result.err(), fallen_back, members, servers)
}

/// Names the servers that stopped replicating: in the failure that they may have caused, else in a warning.
fn absent(
    cx: &mut RunContext<'_, Stale>,
    cluster: &Cluster,
    readers: &[ReaderRef],
    result: Result<(), CliError>,
) -> Result<(), CliError> {
    if cx.stop.load(Ordering::Relaxed) {
        return result;
    }
    let failed = result
        .as_ref()
        .is_err_and(|failure| failure.kind == FailureKind::Failed);
    let mut causes = Vec::new();
    for (index, words) in cluster.absent() {
        // Every failure includes the states of the cluster's members.
        if failed && readers.contains(&ReaderRef::Replica(index)) {
            if !cluster.mode.has_members() {
                causes.push(words);
            }
            continue;
        }
        let read = if readers.contains(&ReaderRef::Replica(index)) {
            ""
        } else {
            " that was not read"
        };
        cx.warn([Warning::new(
            WarningCode::ServerLost,
            format!("at the end, a server{read} no longer replicated, so later results cover the remaining servers only: {words}"),
            cluster.replicas[index].server.node.hint("see the timeline for the time from which it has no data, and the server's error log"),
        )]);
    }
    result.map_err(|mut failure| {
        if !causes.is_empty() {
            failure.message = format!("{}; at the end: {}", failure.message, causes.join("; "));
        }
        failure
    })
}
