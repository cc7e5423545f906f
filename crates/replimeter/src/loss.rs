//! Carries out a `loss`: sandboxes that are crashed one after another, and what each
//! crash took with it.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use replimeter_measure::{
    MeasureError,
    loss::{self, Ground, SEMI_SYNC_TIMEOUT, Scene},
    preflight,
};
use replimeter_model::{
    loss::{CrashRecord, LOSS_SCHEMA, LossDocument, LossRow},
    plan::{LossCase, LossPlan, Plan},
    sandbox::SandboxSpec,
    shape::Mode,
    target::{Passwords, Target},
    warning::{Warning, WarningCode},
};
use replimeter_report::{crashes::CrashesWriter, loss::answer};
use replimeter_sandbox::{Sandbox, SandboxError};
use replimeter_server::Node;
use replimeter_stats::crashes::{counts, share, times};

use crate::{
    cli::OutputArgs,
    document::Document,
    failure::{Failure, Kind, unexpected},
    frame::Frame,
    measure::{
        self,
        servers::{self, obtain},
    },
    run_dir::SAMPLES,
};

/// A sandbox whose primary is crashed.
struct Ring<'a> {
    sandbox: &'a mut Sandbox,
    primary: String,
    stop: &'a AtomicBool,
}

fn of_sandbox(error: SandboxError) -> MeasureError {
    match error {
        SandboxError::Interrupted => MeasureError::Interrupted,
        SandboxError::Server(error) => error.into(),
        error => MeasureError::Sandbox {
            message: error.to_string(),
            hint: error.hint(),
        },
    }
}

impl Ground for Ring<'_> {
    fn cut(&mut self) -> Result<(), MeasureError> {
        self.sandbox.isolate(&self.primary).map_err(of_sandbox)
    }

    fn strike(&mut self) -> Result<(), MeasureError> {
        self.sandbox.kill(&self.primary).map_err(of_sandbox)
    }

    fn promote(&mut self, wished: &str) -> Result<String, MeasureError> {
        self.sandbox
            .promote(wished, &self.primary, self.stop)
            .map_err(of_sandbox)
    }

    fn bring_back(&mut self) -> Result<Node, MeasureError> {
        self.sandbox
            .bring_back(&self.primary, self.stop)
            .map_err(of_sandbox)
    }
}

/// What the crashes of one way of replicating came to.
struct Cell {
    case: LossCase,
    engine: String,
    mode: String,
    records: Vec<CrashRecord>,
}

/// Whether the user has chosen how long a semi-synchronous primary waits.
fn timeout_chosen(spec: &SandboxSpec) -> bool {
    spec.server_options.iter().any(|option| {
        let name = option.option.name.as_str();
        name.contains("rpl_semi_sync") && name.ends_with("_timeout")
    })
}

/// Carries it out.
pub(crate) fn carry_out(
    plan: &Plan,
    work: &LossPlan,
    output: &OutputArgs,
    warnings: Vec<Warning>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    servers::possible(&plan.targets)?;
    let mut frame = Frame::begin("loss", plan, output, work.keep_awake, false, warnings)?;
    let mut writer = CrashesWriter::create(&frame.run_dir.file(SAMPLES))?;
    let cases = work.cases(&plan.targets);
    let mut cells: Vec<Cell> = cases
        .into_iter()
        .map(|case| Cell {
            case,
            engine: String::new(),
            mode: String::new(),
            records: Vec::new(),
        })
        .collect();
    let mut failure: Option<Failure> = None;
    // The shapes take turns, so that whatever changes on the machine hits all alike.
    'crashes: for number in 1..=u64::from(work.crashes) {
        for cell in &mut cells {
            let crashed = one(&mut frame, work, cell, number, stop).and_then(|record| {
                writer.write(&cell.mode, &record)?;
                Ok(record)
            });
            match crashed {
                Ok(record) => cell.records.push(record),
                Err(error) => {
                    failure =
                        Some(error.about(&format!("{}, crash {number}", cell.case.label), true));
                    break 'crashes;
                }
            }
        }
    }
    let kept_awake = frame.let_sleep();
    // The crash that was under way is lost, those before it are not.
    if failure
        .as_ref()
        .is_some_and(|failure| failure.kind == Kind::Interrupted)
        && cells.iter().any(|cell| !cell.records.is_empty())
    {
        failure = Some(Failure::cut_short());
    }
    if cells.iter().all(|cell| cell.records.is_empty()) {
        frame.give_up();
        return Err(failure.unwrap_or_else(unexpected));
    }
    let finished = writer.finish();
    frame.run_dir.keep();
    let mut failure = failure.or_else(|| finished.err().map(Failure::from));
    let void = fell_back(&cells, &mut frame.warnings);
    failure = failure.or(void);
    for cell in &cells {
        let stayed = cell
            .records
            .iter()
            .filter_map(|record| record.return_error.as_ref())
            .collect::<Vec<_>>();
        if let Some(first) = stayed.first() {
            frame.warnings.push(Warning::new(
                WarningCode::Failed,
                format!(
                    "{}: the old primary did not come back in {} of {} crashes: {first}",
                    cell.case.label,
                    stayed.len(),
                    cell.records.len()
                ),
                "its errant transactions are not known there; the loss itself is",
            ));
        }
    }
    frame
        .warnings
        .extend(failure.as_ref().map(Failure::warning));
    let document = build(plan, work, &frame, cells, failure.as_ref(), kept_awake);
    frame.publish(&Document::Loss(Box::new(document)), output, failure)
}

/// Starts servers, crashes them once, and removes them.
fn one(
    frame: &mut Frame,
    work: &LossPlan,
    cell: &mut Cell,
    number: u64,
    stop: &Arc<AtomicBool>,
) -> Result<CrashRecord, Failure> {
    let target = Target::Sandbox(cell.case.spec.clone());
    let head = format!("crash {number} of {}, {}", work.crashes, cell.case.label);
    frame.line.say(format!("{head}: starting the servers"));
    let mut servers = obtain(&target, &Passwords::new(), None, false, &frame.line, stop)?;
    servers.label = cell.case.label.clone();
    let declared = servers.to_measure();
    let mut cluster = preflight::check(&declared)?;
    if cell.records.is_empty() {
        frame.met(&servers, &mut cluster)?;
        cell.engine = cluster.primary.facts.engine.name().to_owned();
        cell.mode = cluster.mode.to_owned();
    }
    let primary = cluster.primary.node.name.clone();
    let crashed = {
        let line = &frame.line;
        let say = |text: &str| line.say(format!("{head}: {text}"));
        let scene = Scene {
            plan: work,
            clock: &frame.clock,
            say: &say,
            stop,
            set_timeout: !timeout_chosen(&cell.case.spec),
        };
        let Some(sandbox) = servers.sandbox.as_mut() else {
            return Err(unexpected());
        };
        loss::crash(
            &mut cluster,
            &scene,
            number,
            &mut Ring {
                sandbox,
                primary,
                stop,
            },
        )
    };
    drop(cluster);
    frame.close(servers);
    Ok(CrashRecord {
        shape: cell.case.label.clone(),
        ..crashed?
    })
}

/// A semi-synchronous primary that fell back acknowledged what no replica had: the figures
/// are of another mode. Where the user chose the time-out, that is what was to be seen.
fn fell_back(cells: &[Cell], warnings: &mut Vec<Warning>) -> Option<Failure> {
    let mut void = None;
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
            "{}: before {crashes} of {} crashes the primary had fallen back to asynchronous replication, and acknowledged what no replica had",
            cell.case.label,
            cell.records.len()
        );
        let hint = "find out why no replica answered in time, and measure again";
        if timeout_chosen(&cell.case.spec) {
            let hint = "the time-out is the one that was asked for; leave the option out for one above every gap";
            warnings.push(Warning::new(
                WarningCode::SemiSyncNotInEffect,
                message,
                hint,
            ));
        } else {
            void.get_or_insert_with(|| Failure::void(message, hint));
        }
    }
    void
}

fn build(
    plan: &Plan,
    work: &LossPlan,
    frame: &Frame,
    cells: Vec<Cell>,
    failure: Option<&Failure>,
    kept_awake: bool,
) -> LossDocument {
    let measured: Vec<&Cell> = cells
        .iter()
        .filter(|cell| !cell.records.is_empty())
        .collect();
    let semi_sync = |cell: &&&Cell| {
        cell.case.spec.shape.mode() == Mode::SemiSync && !timeout_chosen(&cell.case.spec)
    };
    let timeout = measured.iter().find(semi_sync).map(|_| SEMI_SYNC_TIMEOUT);
    let shape = measured
        .iter()
        .map(|cell| cell.case.label.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let mut target = frame.target(
        plan,
        shape,
        measured.iter().map(|cell| cell.mode.clone()).collect(),
    );
    if let Some(link) = measured.iter().find_map(|cell| cell.case.spec.link) {
        target
            .options
            .push(format!("links of ours between the servers: {link}"));
    }
    let mut document = LossDocument {
        schema: LOSS_SCHEMA.to_owned(),
        run_dir: frame.run_dir.path().display().to_string(),
        title: plan.title.clone(),
        status: measure::status(failure),
        error: failure.map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: frame.manifest.started_at.clone(),
        target,
        settings: work.to_spec(),
        results: measured.iter().map(|cell| row(cell, work)).collect(),
        crashes: Vec::new(),
        semi_sync_timeout_us: timeout.map(|timeout: Duration| timeout.as_secs_f64() * 1e6),
        keep_awake: kept_awake,
        warnings: frame.warnings.clone(),
    };
    document.crashes = cells.into_iter().flat_map(|cell| cell.records).collect();
    document.answer = answer(&document);
    document
}

fn row(cell: &Cell, work: &LossPlan) -> LossRow {
    let records = &cell.records;
    let sum = |pick: fn(&CrashRecord) -> u64| records.iter().map(pick).sum::<u64>();
    let each = |pick: fn(&CrashRecord) -> u64| records.iter().map(pick).collect::<Vec<_>>();
    let with = |pick: fn(&CrashRecord) -> u64| {
        records.iter().filter(|record| pick(record) > 0).count() as u64
    };
    let errant = |pick: fn(&replimeter_model::loss::Errant) -> u64| {
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
        mode: cell.mode.clone(),
        wait_point: cell
            .case
            .spec
            .wait_point
            .map(|point| point.name().to_owned()),
        crash: work.crash.name().to_owned(),
        crashes,
        acknowledged: sum(|record| record.acknowledged),
        missing: sum(|record| record.missing),
        seen_then_lost: sum(|record| record.seen_then_lost),
        seen_unacknowledged_lost: sum(|record| record.seen_unacknowledged_lost),
        unacknowledged_present: sum(|record| record.unacknowledged_present),
        recovery_us,
        recovery,
        recovery_ci,
        lossy: share(with(|record| record.missing), crashes),
        lossy_to_readers: share(with(|record| record.seen_then_lost), crashes),
        missing_per_crash: counts(&each(|record| record.missing)),
        seen_then_lost_per_crash: counts(&each(|record| record.seen_then_lost)),
        acknowledged_per_s: times(&rates).0,
        missing_since_us: records
            .iter()
            .filter_map(|record| record.missing_since_us)
            .reduce(f64::max),
        errant_rows: errant(|errant| errant.rows),
        errant_acknowledged: errant(|errant| errant.acknowledged),
        fallen_back: with(|record| record.fallen_back),
    }
}
