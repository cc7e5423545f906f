//! Carries out a calibration: known delays, and what each method makes of them.

use std::{
    cell::RefCell,
    sync::{Arc, atomic::AtomicBool},
};

use replimeter_measure::{
    lag::{self, Compared, Listener, Possible},
    preflight::{self, Cluster},
    table::ProbeTable,
};
use replimeter_model::{
    calibrate::{CALIBRATE_SCHEMA, CalibrateDocument, CalibrateRow},
    plan::{CalibratePlan, LagPlan, Method, Pace, Plan},
    record::{ClientRecord, Distribution, Floor},
    sample::{LagSample, Phase},
    sandbox::LinkSpec,
    span::Span,
    target::{Passwords, Target},
    time::Nanos,
    warning::Warning,
};
use replimeter_report::{calibrate::answer, samples::SamplesWriter};
use replimeter_sandbox::{Sandbox, kept::LinkChange};
use replimeter_stats::{
    lag::FloorSummary,
    series::{Series, distribution},
    signed::SignedHistogram,
};

use crate::{
    cli::OutputArgs,
    document::Document,
    failure::{Failure, unexpected},
    frame::Frame,
    measure::{self, document, servers},
};

/// What one method made of one delay on one replica.
struct Cell {
    replica: usize,
    method: Method,
    delay: Span,
    all: Series,
    /// Of each repetition by itself.
    turns: Vec<SignedHistogram>,
    rounds: u64,
    missing: u64,
}

impl Cell {
    /// What its histogram is called.
    fn tag(&self, names: &[String]) -> String {
        format!(
            "{}/{}/{}/lag",
            names[self.replica],
            self.method.name(),
            self.delay
        )
    }
}

/// The lag that must rise by the delay. Not from the acknowledgement: without a delay
/// the replica and whoever looks at it compete with the primary's answer for the
/// cores, which makes the answer late and that lag small.
fn lag_of(sample: &LagSample) -> Option<Nanos> {
    sample.from_primary().or_else(|| sample.from_send())
}

/// Everything gathered.
struct Gathered {
    cells: Vec<Cell>,
    floors: Vec<(Method, FloorSummary)>,
    delay: Span,
    turn: usize,
    /// From one row to the next.
    every: Nanos,
}

impl Gathered {
    fn record(&mut self, sample: &LagSample) {
        match sample.write.phase {
            Phase::Floor => document::record_floor(&mut self.floors, sample),
            Phase::Measure => {
                let (delay, turn) = (self.delay, self.turn);
                let own = |cell: &&mut Cell| {
                    (cell.replica, cell.method, cell.delay)
                        == (sample.replica, sample.method, delay)
                };
                let Some(cell) = self.cells.iter_mut().find(own) else {
                    return;
                };
                cell.rounds += 1;
                match (lag_of(sample), cell.turns.get_mut(turn)) {
                    (Some(lag), Some(of_turn)) => {
                        // The turns stand apart in time; how the lag goes on is judged as if they did not.
                        cell.all
                            .record(Nanos(self.every.0 * cell.rounds.cast_signed()), lag);
                        of_turn.record(lag);
                    }
                    _ => cell.missing += 1,
                }
            }
            _ => {}
        }
    }

    fn cell(&self, replica: usize, method: Method, delay: Span) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| (cell.replica, cell.method, cell.delay) == (replica, method, delay))
    }
}

/// The difference of two quantiles less the delay, with its interval.
fn error(
    value: [Option<f64>; 2],
    ends: [Option<[f64; 2]>; 2],
    injected: f64,
) -> (Option<f64>, Option<[f64; 2]>) {
    let [Some(with), Some(without)] = value else {
        return (None, None);
    };
    let error = with - without - injected;
    let half = |ends: Option<[f64; 2]>| ends.map(|[low, high]| (high - low) / 2.0);
    let ci = half(ends[0])
        .zip(half(ends[1]))
        .map(|(a, b)| (a * a + b * b).sqrt());
    (Some(error), ci.map(|half| [error - half, error + half]))
}

fn row(gathered: &Gathered, cell: &Cell, names: &[String]) -> CalibrateRow {
    let injected_us = cell.delay.0.as_secs_f64() * 1e6;
    let measured = cell.all.distribution();
    let base = gathered
        .cell(cell.replica, cell.method, Span::from_secs(0))
        .filter(|base| base.delay != cell.delay);
    let mut row = CalibrateRow {
        replica: names[cell.replica].clone(),
        method: cell.method.name().to_owned(),
        injected_us,
        rounds: cell.rounds,
        missing: cell.missing,
        ..CalibrateRow::default()
    };
    if let Some(base) = base {
        let without = base.all.distribution();
        let ci = |of: &Distribution, p99: bool| {
            of.ci95
                .as_ref()
                .and_then(|ci| if p99 { ci.p99_us } else { ci.p50_us })
        };
        let (p50, p50_ci) = error(
            [measured.p50_us, without.p50_us],
            [ci(&measured, false), ci(&without, false)],
            injected_us,
        );
        let (p99, p99_ci) = error(
            [measured.p99_us, without.p99_us],
            [ci(&measured, true), ci(&without, true)],
            injected_us,
        );
        (
            row.error_p50_us,
            row.error_p50_ci,
            row.error_p99_us,
            row.error_p99_ci,
        ) = (p50, p50_ci, p99, p99_ci);
        let p50 = |histogram: &SignedHistogram| histogram.quantile(0.5).map(Nanos::as_micros);
        let turns: Vec<f64> = cell
            .turns
            .iter()
            .zip(&base.turns)
            .filter_map(|(with, without)| Some(p50(with)? - p50(without)? - injected_us))
            .collect();
        let range = turns
            .iter()
            .fold([f64::MAX, f64::MIN], |[low, high], error| {
                [low.min(*error), high.max(*error)]
            });
        row.error_p50_range = (!turns.is_empty()).then_some(range);
    }
    row.measured = measured;
    row
}

/// What the turns share.
struct Turns<'a> {
    work: &'a CalibratePlan,
    possible: Possible,
    names: Vec<String>,
    gathered: RefCell<Gathered>,
    lateness: SignedHistogram,
    warnings: Vec<Warning>,
}

/// Carries out a calibration.
pub(crate) fn carry_out(
    plan: &Plan,
    work: &CalibratePlan,
    output: &OutputArgs,
    warnings: Vec<Warning>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let [Target::Sandbox(spec)] = plan.targets.as_slice() else {
        return Err(unexpected());
    };
    // The link is there from the beginning, so that every lag is measured through it.
    let zero = Span::from_secs(0);
    let mut spec = spec.clone();
    spec.link = Some(LinkSpec {
        delay: zero,
        jitter: zero,
        bandwidth: None,
    });
    let mut frame = Frame::begin(
        "calibrate",
        plan,
        output,
        work.lag.keep_awake,
        work.lag.real_time,
        warnings,
    )?;
    let mut writer = frame.samples()?;
    let mut servers = servers::obtain(
        &Target::Sandbox(spec),
        &Passwords::new(),
        None,
        false,
        &frame.line,
        stop,
    )?;
    // The link begins without a delay; the record says what it is given in the course of the run.
    if let Some(record) = &mut servers.record {
        let delays: Vec<String> = work.delays.iter().map(ToString::to_string).collect();
        record.link = Some(format!("{} one way, in turns", delays.join(", ")));
    }
    let declared = servers.to_measure();
    let mut cluster = preflight::check(&declared)?;
    frame.met(&servers, &mut cluster)?;
    let possible = lag::possible(&mut cluster, &work.lag.methods)?;
    frame.warnings.extend(possible.warnings.iter().cloned());
    let methods = possible.methods.clone();
    let (table, found) = ProbeTable::create(&mut cluster, work.lag.timeout.0)?;
    frame.warnings.extend(found);
    let names = cluster.replica_names();
    let cells = work.delays.iter().flat_map(|delay| {
        let methods = methods.iter();
        methods.flat_map(|method| {
            (0..names.len()).map(|replica| Cell {
                replica,
                method: *method,
                delay: *delay,
                all: Series::default(),
                turns: vec![SignedHistogram::default(); work.repeats as usize],
                rounds: 0,
                missing: 0,
            })
        })
    });
    let every = match work.lag.pace {
        Pace::Every(every) => Nanos::from(every.0),
        Pace::Visible | Pace::Ack => return Err(unexpected()),
    };
    let gathered = Gathered {
        cells: cells.collect(),
        floors: Vec::new(),
        delay: zero,
        turn: 0,
        every,
    };
    let mut turns = Turns {
        work,
        possible,
        names: names.clone(),
        gathered: RefCell::new(gathered),
        lateness: SignedHistogram::default(),
        warnings: Vec::new(),
    };
    let sandbox = servers.sandbox.as_ref().ok_or_else(unexpected)?;
    let result = turns.all(
        sandbox,
        &mut cluster,
        &mut frame,
        &mut writer,
        &servers.label,
        stop,
    );
    // The servers go anyway.
    table.abandon();
    let mode = cluster.mode.to_owned();
    drop(cluster);
    let label = servers.label.clone();
    frame.close(servers);
    let failure = result.err();
    let Turns {
        gathered,
        lateness,
        warnings,
        ..
    } = turns;
    let gathered = gathered.into_inner();
    frame.warnings.extend(warnings);
    let kept_awake = frame.let_sleep();
    if gathered.cells.iter().all(|cell| cell.rounds == 0) {
        frame.give_up();
        return Err(failure.unwrap_or_else(unexpected));
    }
    let finished = writer.finish();
    frame.run_dir.keep();
    let failure = failure.or_else(|| finished.err().map(Failure::from));
    let mut document = CalibrateDocument {
        schema: CALIBRATE_SCHEMA.to_owned(),
        run_dir: frame.run_dir.path().display().to_string(),
        title: plan.title.clone(),
        status: measure::status(failure.as_ref()),
        error: failure.as_ref().map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: frame.manifest.started_at.clone(),
        target: frame.target(plan, label.clone(), vec![mode]),
        settings: plan.to_file().calibrate.unwrap_or_default(),
        results: results(&gathered, &names),
        floors: gathered
            .floors
            .iter()
            .map(|(method, floor)| document::floor(&label, *method, floor))
            .collect::<Vec<Floor>>(),
        client: ClientRecord {
            start_lateness: distribution(&lateness),
            keep_awake: kept_awake,
            real_time: frame.real_time,
            clock_step_us: Nanos::from(frame.clock.step()).as_micros(),
        },
        warnings: std::mem::take(&mut frame.warnings),
    };
    document.answer = answer(&document);
    let series: Vec<_> = gathered
        .cells
        .iter()
        .map(|cell| (cell.tag(&names), cell.all.histogram()))
        .collect();
    let logged = frame.log(frame.clock.now(), &series);
    frame
        .publish(&Document::Calibrate(Box::new(document)), output, failure)
        .and(logged)
}

/// Rows by replica, method and delay.
fn results(gathered: &Gathered, names: &[String]) -> Vec<CalibrateRow> {
    let mut cells: Vec<&Cell> = gathered
        .cells
        .iter()
        .filter(|cell| cell.rounds > 0)
        .collect();
    cells.sort_by_key(|cell| (cell.replica, cell.method, cell.delay));
    cells
        .into_iter()
        .map(|cell| row(gathered, cell, names))
        .collect()
}

impl Turns<'_> {
    /// Every delay in its turn, there and back again, so that a drift of the servers
    /// hits all delays alike.
    fn all(
        &mut self,
        sandbox: &Sandbox,
        cluster: &mut Cluster,
        frame: &mut Frame,
        writer: &mut SamplesWriter,
        label: &str,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let mut next_id = 1;
        for turn in 0..self.work.repeats as usize {
            let mut delays = self.work.delays.clone();
            if turn % 2 == 1 {
                delays.reverse();
            }
            for (index, delay) in delays.iter().enumerate() {
                let nanos = u64::try_from(delay.0.as_nanos()).unwrap_or(u64::MAX);
                let change = LinkChange {
                    delay_ns: Some(nanos),
                    cut: None,
                    jitter_ns: None,
                    bandwidth_bits: None,
                };
                sandbox
                    .change_link(None, &change)
                    .map_err(|reason| Failure::failed(reason, "please report this as a defect"))?;
                writer.begin(&format!("{label} +{delay}"), self.names.clone())?;
                {
                    let mut gathered = self.gathered.borrow_mut();
                    (gathered.delay, gathered.turn) = (*delay, turn);
                }
                // The floor does not depend on the link.
                let floor_rounds = if turn == 0 && index == 0 {
                    self.work.lag.floor_rounds
                } else {
                    0
                };
                let plan = LagPlan {
                    floor_rounds,
                    ..self.work.lag.clone()
                };
                let gathered = &self.gathered;
                let mut sample = |sample: &LagSample| {
                    gathered.borrow_mut().record(sample);
                    writer.write(sample).map_err(|error| error.to_string())
                };
                let mut compared = |_: &Compared| {};
                let mut progress = |progress| frame.line.show(&progress);
                let mut listener = Listener {
                    sample: &mut sample,
                    compared: &mut compared,
                    progress: &mut progress,
                    stop,
                };
                let outcome = lag::run(
                    cluster,
                    &plan,
                    &self.possible,
                    next_id,
                    &frame.clock,
                    &mut listener,
                )?;
                next_id = outcome.next_id;
                self.lateness.merge(&outcome.lateness);
                if self.warnings.is_empty() {
                    self.warnings.extend(outcome.warnings.iter().cloned());
                }
                if let Some(failure) = measure::end_of(&outcome) {
                    return Err(failure.about(&format!("at a delay of {delay}"), true));
                }
            }
        }
        Ok(())
    }
}
