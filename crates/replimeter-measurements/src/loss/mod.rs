//! `loss`: crashes sandboxes one after another and counts the lost transactions.

pub(crate) mod charts;
mod crashes;
mod figures;
pub(crate) mod report;

use std::{path::Path, time::Duration};

use crate::loss::{
    crashes::Crashes,
    report::{answer, report},
};
use clap::{Arg, Command};
use replimeter_engine::dialect::acknowledgement::is_timeout;
use replimeter_instruments::{
    loss::{
        self, ACKNOWLEDGEMENT_TIMEOUT, CrashContext,
        crashes::{counts, share, times},
        results::{CrashRecord, LossDocument, LossResults, LossRow},
        settings::{CrashKind, LossCase, LossPlan, LossSettings},
    },
    preflight,
};
use replimeter_model::{
    plan::{CoreUse, Request},
    replication::Mode,
    sandbox::SandboxSpec,
    shape::form,
    target::Target,
    warning::{Warning, WarningCode},
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Finished, Measurement, Progress, RunContext, Stage,
    cli_error::{CliError, FailureKind, unexpected},
    dry_run::{PlanEffects, started},
    figures::{FigureSpec, Figures, SampleFile, StatedFigures},
    options::{is_sandbox_option, with_both_wait_points, with_help},
    to_measure,
};
use serde::{Deserialize, Serialize};

/// The crashes of one case.
struct Condition {
    case: LossCase,
    engine: String,
    mode: Mode,
    records: Vec<CrashRecord>,
}

/// An event of the measurement; cases are numbered as in the plan.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The first servers of a case have started and passed the checks.
    Case {
        case: usize,
        engine: String,
        mode: Mode,
    },
    /// A crash.
    Crash {
        case: usize,
        record: Box<CrashRecord>,
    },
}

/// State gathered during the run.
pub(crate) struct Accumulator {
    cells: Vec<Condition>,
}

/// The measurement `loss`: transactions lost in a crash of the primary.
pub(crate) struct Loss;

impl Measurement for Loss {
    const ABOUT: &'static str = "Kill a sandbox's primary under load and count lost transactions";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const EXAMPLES: &'static str = "\
Examples:
  # async:1, five crashes
  replimeter loss
  replimeter loss --sandbox semi-sync:1 --crash partition --crashes 20
  replimeter loss --sandbox semi-sync:1 --wait-point after-sync
  replimeter loss --sandbox galera:3 --sandbox group:3 --json

Terms of the report:
  acknowledged    the writer had the server's answer to the commit
  lost            acknowledged, and not on the server that took over
  seen then lost  read by another session, and gone
  unacked         begun and never acknowledged; some of them are present
  recovery        from the crash to the first acknowledged write afterwards
  errant rows     only on the old primary, after its restart

Kills database servers, and so accepts only sandboxes that it starts and removes
itself; every crash has new ones. `replimeter exposure` reports what a crash of
your own primary would lose.";
    const OWN_SERVERS: Option<fn(&Arg) -> bool> = Some(|option| match option.get_id().as_str() {
        "sandbox" => true,
        "client_link_delay" => false,
        _ => is_sandbox_option(option),
    });
    const HISTOGRAMS: bool = false;

    type Settings = LossSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = Crashes;
    type Results = LossResults;

    fn target(command: Command) -> Command {
        with_help(
            with_both_wait_points(command),
            "sandbox",
            "Shape to start; may be repeated [default: async:1]",
            &format!(
                "{}. Several are measured one after another.",
                form(|mode| mode != Mode::None)
            ),
        )
    }

    fn starts(plan: &LossPlan) -> u32 {
        plan.crashes
    }

    fn client(plan: &LossPlan) -> CoreUse {
        plan.cores
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<LossSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        for case in plan.cases(&request.targets) {
            effects.servers(format!(
                "{}: {}, {} times, and removes them",
                case.label,
                started(&case.spec),
                plan.crashes
            ));
        }
        let end = match plan.crash {
            CrashKind::Kill => "kills the primary".to_owned(),
            CrashKind::Partition => format!(
                "isolates the primary and kills it {} later",
                plan.kill_delay
            ),
        };
        effects.servers(format!(
            "{end} each time, promotes a replica and restarts the old primary"
        ));
        effects.own_schema();
        effects.load(format!(
            "{} writers for {} before each crash, rows of {} bytes",
            plan.writers, plan.duration, plan.row_size
        ));
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        cx.check_available()?;
        // The shapes alternate, so that changes on the machine affect all alike.
        for number in 1..=u64::from(cx.plan.crashes) {
            for case in 0..cx.accumulator.cells.len() {
                let crashed = crash(cx, case, number).and_then(|record| {
                    let record = Box::new(record);
                    cx.take(Call::Crash { case, record })
                });
                if let Err(error) = crashed {
                    // The current crash is lost; earlier ones are kept.
                    if error.kind == FailureKind::Interrupted && !Self::is_empty(&cx.accumulator) {
                        return Err(CliError::partial());
                    }
                    let label = &cx.accumulator.cells[case].case.label;
                    return Err(error.for_shape(&format!("{label}, crash {number}"), true));
                }
            }
        }
        Ok(())
    }

    fn accumulator(request: &Request<LossSettings>) -> Accumulator {
        let cell = |case| Condition {
            case,
            engine: String::new(),
            mode: Mode::None,
            records: Vec::new(),
        };
        Accumulator {
            cells: request
                .plan
                .cases(&request.targets)
                .into_iter()
                .map(cell)
                .collect(),
        }
    }

    fn take(accumulator: &mut Accumulator, _: &LossPlan, call: Call, rows: &mut Rows<Crashes>) {
        let (Call::Case { case, .. } | Call::Crash { case, .. }) = &call;
        let Some(cell) = accumulator.cells.get_mut(*case) else {
            return;
        };
        match call {
            Call::Case { engine, mode, .. } => (cell.engine, cell.mode) = (engine, mode),
            Call::Crash { record, .. } => {
                rows.add((cell.mode, (*record).clone()));
                cell.records.push(*record);
            }
        }
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.cells.iter().all(|cell| cell.records.is_empty())
    }

    fn conclude(run: &mut Finished<'_, Self>, accumulator: Accumulator) -> Concluded<LossResults> {
        let cells = accumulator.cells;
        let mut warnings = Vec::new();
        let invalid = fell_back(&cells, &mut warnings);
        run.ended.failure = run.ended.failure.take().or(invalid);
        for cell in &cells {
            let stayed = cell
                .records
                .iter()
                .filter_map(|record| record.return_error.as_ref())
                .collect::<Vec<_>>();
            if let Some(first) = stayed.first() {
                warnings.push(Warning::new(
                    WarningCode::Failed,
                    format!(
                        "{}: the old primary did not restart in {} of {} crashes, so their errant transactions are unknown: {first}",
                        cell.case.label,
                        stayed.len(),
                        cell.records.len()
                    ),
                    "see the old primary's error; the lost transactions are counted all the same",
                ));
            }
        }
        run.warn(warnings);
        let crashed = |cell: &&Condition| !cell.records.is_empty();
        let measured: Vec<&Condition> = cells.iter().filter(crashed).collect();
        let waits = |cell: &&&Condition| {
            cell.case.spec.shape.mode().waits_for_receipt() && !timeout_chosen(&cell.case.spec)
        };
        let timeout = measured.iter().find(waits).map(|_| ACKNOWLEDGEMENT_TIMEOUT);
        let labels: Vec<&str> = measured.iter().map(|cell| &*cell.case.label).collect();
        let modes = measured.iter().map(|cell| cell.mode.to_string());
        let mut target = run.target(labels.join(", "), modes.collect());
        if let Some(link) = measured.iter().find_map(|cell| cell.case.spec.link) {
            target.options.push(format!("replication links: {link}"));
        }
        Concluded {
            target,
            results: LossResults {
                rows: measured.iter().map(|cell| row(cell, run.plan)).collect(),
                acknowledgement_timeout_us: timeout
                    .map(|timeout: Duration| timeout.as_secs_f64() * 1e6),
                crashes: cells.into_iter().flat_map(|cell| cell.records).collect(),
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &LossDocument) -> String {
        answer(document)
    }

    fn stated(_: &LossSettings, results: &LossResults) -> StatedFigures {
        figures::figures(results).into()
    }

    fn figures(document: &LossDocument, _: &SampleFile) -> Result<Figures, CliError> {
        Ok(figures::figures(&document.results))
    }

    fn report(document: &LossDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &LossDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::loss::charts::charts(document))
    }
}

/// Returns whether the user set how long a semi-synchronous primary waits.
fn timeout_chosen(spec: &SandboxSpec) -> bool {
    let mut options = spec.server_options.iter();
    options.any(|option| is_timeout(&option.option.name))
}

/// Starts servers, crashes them once, and removes them.
fn crash(cx: &mut RunContext<'_, Loss>, case: usize, number: u64) -> Result<CrashRecord, CliError> {
    let plan = cx.plan;
    let LossCase { label, spec } = cx.accumulator.cells[case].case.clone();
    let head = format!("crash {number} of {}, {label}", plan.crashes);
    let target = Target::Sandbox(spec.clone());
    let crashed = cx.on_servers(&target, |cx, servers| {
        let mut cluster = preflight::check(&to_measure(servers))?;
        if cx.accumulator.cells[case].records.is_empty() {
            cx.record_servers(&label, servers, &mut cluster)?;
            cx.take(Call::Case {
                case,
                engine: cluster.primary.facts.engine.name().to_owned(),
                mode: cluster.mode,
            })?;
        }
        let observers = &cx.observers;
        let context = CrashContext {
            plan,
            clock: &cx.clock,
            say: &|text| {
                let operation = Progress::new(Stage::Measure, text.to_owned());
                observers.progress(operation.part(&head));
            },
            stop: cx.stop,
            set_timeout: !timeout_chosen(&spec),
        };
        let faults = servers
            .faults()
            .ok_or_else(|| unexpected("these servers support no fault injection"))?;
        Ok(loss::crash(&mut cluster, &context, number, faults)?)
    })?;
    Ok(CrashRecord {
        shape: label,
        ..crashed
    })
}

/// Returns the failure if every crash followed a fallback, and warns of others. A semi-synchronous primary
/// that fell back acknowledged transactions that no replica had, so the figures describe another mode. If the
/// user chose the timeout, the fallback is part of the intended conditions.
fn fell_back(cells: &[Condition], warnings: &mut Vec<Warning>) -> Option<CliError> {
    let mut invalid = None;
    for cell in cells {
        let crashes = cell
            .records
            .iter()
            .filter(|record| record.fallen_back > 0)
            .count();
        if crashes == 0 {
            continue;
        }
        let message = format!(
            "{}: before {crashes} of {} crashes the primary had fallen back to asynchronous replication, so the results mix semi-synchronous and asynchronous commits",
            cell.case.label,
            cell.records.len()
        );
        let hint = "find out why no replica acknowledged before the timeout, then run again";
        if timeout_chosen(&cell.case.spec) {
            let hint = "leave the timeout option out; the default is longer than any kill delay";
            warnings.push(Warning::new(
                WarningCode::AcknowledgementNotInEffect,
                message,
                hint,
            ));
        } else {
            invalid.get_or_insert_with(|| CliError::invalid(message, hint));
        }
    }
    invalid
}

fn row(cell: &Condition, plan: &LossPlan) -> LossRow {
    let records = &cell.records;
    let sum = |pick: fn(&CrashRecord) -> u64| records.iter().map(pick).sum::<u64>();
    let each = |pick: fn(&CrashRecord) -> u64| records.iter().map(pick).collect::<Vec<_>>();
    let with = |pick: fn(&CrashRecord) -> u64| {
        records.iter().filter(|record| pick(record) > 0).count() as u64
    };
    let errant = |pick: fn(&replimeter_instruments::loss::results::ErrantTransactions) -> u64| {
        records
            .iter()
            .filter_map(|record| record.errant.as_ref())
            .map(pick)
            .sum()
    };
    let crashes = records.len() as u64;
    let recoveries: Vec<f64> = records.iter().map(|record| record.recovery_us).collect();
    let (recovery_us, recovery_ci, recovery) = times(&recoveries);
    let rate = |record: &CrashRecord| {
        let before = record.acknowledged - record.acknowledged_after_cut;
        before as f64 / (record.load_us / 1e6).max(1e-6)
    };
    let rates: Vec<f64> = records.iter().map(rate).collect();
    LossRow {
        shape: cell.case.label.clone(),
        engine: cell.engine.clone(),
        mode: cell.mode,
        wait_point: cell
            .case
            .spec
            .wait_point
            .map(|point| point.name().to_owned()),
        crash: plan.crash.name().to_owned(),
        crashes,
        acknowledged: sum(|record| record.acknowledged),
        lost: sum(|record| record.lost),
        seen_then_lost: sum(|record| record.seen_then_lost),
        seen_unacknowledged_lost: sum(|record| record.seen_unacknowledged_lost),
        unacknowledged_present: sum(|record| record.unacknowledged_present),
        recovery_us,
        recovery,
        recovery_us_ci95: recovery_ci,
        lossy: share(with(|record| record.lost), crashes),
        lossy_to_readers: share(with(|record| record.seen_then_lost), crashes),
        lost_per_crash: counts(&each(|record| record.lost)),
        seen_then_lost_per_crash: counts(&each(|record| record.seen_then_lost)),
        acknowledged_per_s: times(&rates).0,
        lost_since_us: records
            .iter()
            .filter_map(|record| record.lost_since_us)
            .reduce(f64::max),
        errant_rows: errant(|errant| errant.rows),
        errant_acknowledged: errant(|errant| errant.acknowledged),
        fallen_back: with(|record| record.fallen_back),
    }
}
