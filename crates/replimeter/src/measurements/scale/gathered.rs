//! Blocks of a scaling measurement, and what they come to.

use std::collections::{BTreeMap, BTreeSet};

use replimeter_measure::scale::{Block, Part};
use replimeter_model::{
    estimate::Estimate,
    load::LoadError,
    plan::{FEWEST_COUNTS, ScalePhase, ScalePlan},
    resources::ServerUse,
    scale::{LawPoint, PercentOfNone, Prediction, Residual, ScaleFit, ScaleRow, ScaleServer},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_report::{
    blocks::{About, BlockRow, Blocks, Operations},
    rows::Rows,
};
use replimeter_stats::{
    bootstrap,
    series::distribution,
    signed::SignedHistogram,
    usl::{self, Fit, NoFit, Point},
};
use serde::{Deserialize, Serialize};

use crate::{
    failure::Failure,
    workloads::{NEAR_LIMIT, add_errors},
};

/// What is measured, piece by piece.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The round of this number begins.
    Round(u32),
    /// Servers with so many replicas are started in it.
    Start { replicas: u32 },
    /// Servers have their data set.
    Filled {
        rows: u64,
        bytes: u64,
        warnings: Vec<Warning>,
    },
    /// A block, perhaps not to its end.
    Block { place: Place, block: Box<Block> },
}

/// Where a block belongs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Place {
    pub(super) shape: String,
    pub(super) replicas: u32,
    pub(super) start: u32,
    pub(super) block: u32,
}

/// One phase with one number of replicas.
#[derive(Default)]
struct Cell {
    shape: String,
    /// For each kind of operation and each start: operations per second of its blocks.
    rates: BTreeMap<String, BTreeMap<u32, Vec<f64>>>,
    write_latency: SignedHistogram,
    select_latency: SignedHistogram,
    blocks: u32,
    void: u32,
    counted: Nanos,
    operations: u64,
    retries: u64,
    failed: u64,
    errors: Vec<LoadError>,
    caught_up_us: Option<f64>,
    uses: Vec<ServerUse>,
    /// Selects by server.
    selects: BTreeMap<String, u64>,
    client_us: f64,
    /// Nanoseconds in which load threads waited for a core, and threads × time.
    delayed: Option<f64>,
    thread_us: f64,
    /// The largest share of the client's own limit, in percent.
    limit_percent: Option<f64>,
}

/// Everything gathered.
#[derive(Default)]
pub(crate) struct Gathered {
    cells: BTreeMap<(u32, ScalePhase), Cell>,
    /// Blocks of any kind that began.
    seen: u64,
    /// Rows and bytes of the data set.
    pub(super) data: (u64, u64),
    pub(super) fits: Vec<ScaleFit>,
    /// Numbers of replicas as they were started, round by round.
    pub(super) order: Vec<Vec<u32>>,
    /// Warnings, and in how many blocks or starts there were such.
    found: Vec<(Warning, u32)>,
    voids: BTreeSet<String>,
}

impl Gathered {
    /// Adds a piece, and its rows to the samples.
    pub(crate) fn take(&mut self, work: &ScalePlan, call: Call, samples: &mut Rows<Blocks>) {
        match call {
            Call::Round(_) => self.order.push(Vec::new()),
            Call::Start { replicas } => self
                .order
                .last_mut()
                .into_iter()
                .for_each(|order| order.push(replicas)),
            Call::Filled {
                rows,
                bytes,
                warnings,
            } => {
                self.data = (rows, bytes);
                warnings.into_iter().for_each(|warning| self.note(warning));
            }
            Call::Block { place, block } => self.add(&place, *block, work, samples),
        }
    }

    /// Keeps a warning, once of those that are about the same.
    fn note(&mut self, warning: Warning) {
        let about = |warning: &Warning| {
            (
                warning.code,
                warning
                    .message
                    .split(": ")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        };
        match self
            .found
            .iter_mut()
            .find(|(known, _)| about(known) == about(&warning))
        {
            Some((_, times)) => *times += 1,
            None => self.found.push((warning, 1)),
        }
    }

    /// Whether nothing was begun.
    pub(super) fn is_empty(&self) -> bool {
        self.seen == 0
    }

    /// Adds a block; one that did not come to its end is in the samples only.
    fn add(&mut self, place: &Place, block: Block, work: &ScalePlan, samples: &mut Rows<Blocks>) {
        self.seen += 1;
        let wanted = Nanos::from(work.duration.0);
        let whole = block.counted.0 * 100 >= wanted.0 * 99;
        let counts = whole && block.void.is_none();
        rows(place, &block, counts)
            .into_iter()
            .for_each(|row| samples.add(row));
        block
            .parts
            .iter()
            .flat_map(|part| part.result.warnings())
            .for_each(|warning| self.note(warning));
        let cell = self.cells.entry((place.replicas, block.phase)).or_default();
        cell.shape.clone_from(&place.shape);
        if let Some(void) = &block.void {
            cell.void += 1;
            self.voids
                .insert(format!("{}, {}: {void}", place.shape, block.phase.name()));
        }
        if counts {
            cell.add(place.start, block);
        }
    }

    /// What a reader must know; `free` when servers have no fixed share of the machine.
    pub(super) fn warnings(&self, cores: u32, free: bool) -> Vec<Warning> {
        let told = |(warning, times): &(Warning, u32)| match times {
            1 => warning.clone(),
            _ => Warning {
                message: format!("{} (the first of {times} times)", warning.message),
                ..warning.clone()
            },
        };
        let mut warnings: Vec<Warning> = self.found.iter().map(told).collect();
        for void in &self.voids {
            warnings.push(Warning::new(
                WarningCode::SemiSyncNotInEffect,
                format!("{void}; the block does not count"),
                "find out why no replica answered in time",
            ));
        }
        let most = self
            .cells
            .values()
            .map(|cell| cell.uses.len())
            .max()
            .unwrap_or(0);
        let shared = self
            .cells
            .values()
            .flat_map(|cell| &cell.uses)
            .any(|used| used.cpu_us.is_some());
        if shared && free && most + 1 > cores as usize {
            warnings.push(Warning::new(
                WarningCode::ClientLimited,
                format!("up to {most} servers and the load share {cores} cores: throughput is also what this machine can carry, not only what replicas add"),
                "run it on a machine with a core or more for each server, or give each a fixed share with --cpus-per-server",
            ));
        }
        for ((replicas, phase), cell) in &self.cells {
            if let Some(percent) = cell.limit_percent.filter(|percent| *percent >= NEAR_LIMIT) {
                warnings.push(Warning::new(
                    WarningCode::ClientLimited,
                    format!(
                        "{replicas} replicas, {}: the statements are {percent:.0} % of what this client can get answered at all, so part of the figure is the client's",
                        phase.name()
                    ),
                    "measure with fewer threads, or run the client on a machine with more cores",
                ));
            }
        }
        warnings
    }

    /// Why there is nothing to show although everything ran.
    pub(super) fn void(&self) -> Option<Failure> {
        let nothing = self.cells.values().all(|cell| cell.blocks == 0);
        let reason = self.voids.iter().next().filter(|_| nothing)?;
        Some(Failure::void(
            reason.clone(),
            "every block is of a mixture of modes: find out why no replica answered in time, and measure again",
        ))
    }

    /// Rates of each start, of those that there are.
    fn starts(&self, replicas: u32, phase: ScalePhase, kind: &str) -> Vec<Vec<f64>> {
        let cell = self.cells.get(&(replicas, phase));
        let rates = cell.and_then(|cell| cell.rates.get(kind));
        rates
            .map(|starts| starts.values().cloned().collect())
            .unwrap_or_default()
    }

    fn rate(
        &self,
        replicas: u32,
        phase: ScalePhase,
        kind: &str,
    ) -> (Option<f64>, Option<[f64; 2]>) {
        let mean = bootstrap::of_positive_mean(&self.starts(replicas, phase, kind));
        (mean.value, mean.ends())
    }

    fn percent(
        &self,
        replicas: u32,
        phase: ScalePhase,
        kind: &str,
    ) -> (Option<f64>, Option<[f64; 2]>) {
        let (of, to) = (
            self.starts(replicas, phase, kind),
            self.starts(0, phase, kind),
        );
        if replicas == 0 {
            return (self.rate(0, phase, kind).0.map(|_| 100.0), None);
        }
        let ratio = bootstrap::of_ratio(&of, &to);
        (
            ratio.value.map(|value| value * 100.0),
            ratio.ends().map(|ends| ends.map(|end| end * 100.0)),
        )
    }

    /// Latencies by number of replicas, phase and kind, with their names.
    pub(super) fn latencies(&self) -> Vec<(String, SignedHistogram)> {
        let cells = self.cells.iter().flat_map(|((replicas, phase), cell)| {
            [
                ("write", &cell.write_latency),
                ("select", &cell.select_latency),
            ]
            .map(|(kind, latency)| {
                (
                    format!("replicas:{replicas}/{}/{kind}", phase.name()),
                    latency.clone(),
                )
            })
        });
        cells.collect()
    }

    /// Counted time of all blocks.
    pub(super) fn counted(&self) -> Nanos {
        Nanos(self.cells.values().map(|cell| cell.counted.0).sum())
    }

    /// Rows by number of replicas and phase; those of a checked prediction are the law's.
    pub(super) fn rows(&self, work: &ScalePlan) -> Vec<ScaleRow> {
        let asked = |replicas: u32| work.replicas.counts().contains(&replicas);
        let cells = self
            .cells
            .iter()
            .filter(|((replicas, _), cell)| asked(*replicas) && (cell.blocks > 0 || cell.void > 0));
        cells
            .map(|((replicas, phase), cell)| self.row(*replicas, *phase, cell))
            .collect()
    }

    fn row(&self, replicas: u32, phase: ScalePhase, cell: &Cell) -> ScaleRow {
        let (inserts_per_s, inserts_ci) = self.rate(replicas, phase, "insert");
        let (selects_per_s, selects_ci) = self.rate(replicas, phase, "select");
        let (updates_per_s, updates_ci) = self.rate(replicas, phase, "update");
        let (inserts, inserts_of) = self.percent(replicas, phase, "insert");
        let (selects, selects_of) = self.percent(replicas, phase, "select");
        let (updates, updates_of) = self.percent(replicas, phase, "update");
        let counted_us = cell.counted.as_micros();
        ScaleRow {
            shape: cell.shape.clone(),
            replicas,
            phase: phase.name().to_owned(),
            starts: cell
                .rates
                .values()
                .map(|starts| starts.len() as u32)
                .max()
                .unwrap_or(0),
            blocks: cell.blocks,
            void_blocks: cell.void,
            counted_us,
            inserts_per_s,
            inserts_ci,
            selects_per_s,
            selects_ci,
            updates_per_s,
            updates_ci,
            percent_of_none: PercentOfNone {
                inserts,
                inserts_ci: inserts_of,
                selects,
                selects_ci: selects_of,
                updates,
                updates_ci: updates_of,
            },
            write_latency: distribution(&cell.write_latency),
            select_latency: distribution(&cell.select_latency),
            retries: cell.retries,
            failed: cell.failed,
            errors: cell.errors.clone(),
            caught_up_after_us: cell.caught_up_us,
            servers: cell.servers(),
            client_cpu_percent: if counted_us > 0.0 {
                cell.client_us / counted_us * 100.0
            } else {
                0.0
            },
            client_delay_percent: cell
                .delayed
                .filter(|_| cell.thread_us > 0.0)
                .map(|delayed| delayed / cell.thread_us * 100.0),
            client_limit_percent: cell.limit_percent,
        }
    }

    /// Fits laws to what was measured.
    pub(super) fn fit(&mut self, work: &ScalePlan) {
        let mut wanted = vec![
            (ScalePhase::Insert, "insert"),
            (ScalePhase::Select, "select"),
            (ScalePhase::Mixed, "insert"),
            (ScalePhase::Mixed, "select"),
        ];
        if work.updates {
            wanted.extend([
                (ScalePhase::Update, "update"),
                (ScalePhase::MixedUpdate, "update"),
                (ScalePhase::MixedUpdate, "select"),
            ]);
        }
        for (phase, kind) in wanted {
            let fit = self.law(work, phase, kind);
            self.fits.push(fit);
        }
    }

    /// What is measured at each start.
    fn points(&self, work: &ScalePlan, phase: ScalePhase, kind: &str) -> Vec<Measured> {
        let of = |replicas: &u32| {
            let starts = self
                .cells
                .get(&(*replicas, phase))
                .and_then(|cell| cell.rates.get(kind))
                .cloned()
                .unwrap_or_default();
            let replicas = *replicas;
            let mean = |rates: Vec<f64>| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
            starts
                .into_iter()
                .map(move |(start, rates)| (replicas, start, mean(rates)))
                .collect::<Vec<_>>()
        };
        work.replicas.counts().iter().flat_map(of).collect()
    }

    fn law(&self, work: &ScalePlan, phase: ScalePhase, kind: &str) -> ScaleFit {
        let points = self.points(work, phase, kind);
        let mut fit = ScaleFit {
            phase: phase.name().to_owned(),
            figure: format!("{kind}s"),
            counted: if kind == "select" {
                "readers"
            } else {
                "servers"
            }
            .to_owned(),
            ..ScaleFit::default()
        };
        match fitted(work, kind, &points) {
            Ok(law) => describe(&mut fit, &law, work, kind, &points),
            Err(refused) => fit.refused = Some(refused),
        }
        fit
    }

    /// Holds each law's prediction against what was measured with one more replica.
    pub(super) fn check(&mut self, work: &ScalePlan, replicas: u32) {
        let phases = work.phases();
        let mut fits = std::mem::take(&mut self.fits);
        for fit in &mut fits {
            let Some(prediction) = &mut fit.prediction else {
                continue;
            };
            let Some(phase) = phases.iter().find(|phase| phase.name() == fit.phase) else {
                continue;
            };
            let (measured, ends) = self.rate(replicas, *phase, fit.figure.trim_end_matches('s'));
            prediction.measured_per_s = measured;
            prediction.measured_ci = ends;
            let range = prediction.predicted.low.zip(prediction.predicted.high);
            prediction.holds = measured
                .zip(range)
                .map(|(measured, (low, high))| low <= measured && measured <= high);
        }
        self.fits = fits;
    }
}

/// What is measured at a start: replicas, start, operations per second.
type Measured = (u32, u32, f64);

/// Fits the law to these points.
///
/// # Errors
/// Why none can be fitted.
fn fitted(work: &ScalePlan, kind: &str, points: &[Measured]) -> Result<Fit, String> {
    let counts: BTreeSet<u32> = points.iter().map(|(replicas, ..)| *replicas).collect();
    if counts.len() < FEWEST_COUNTS {
        return Err(format!(
            "{} numbers of replicas were measured, and {FEWEST_COUNTS} are needed",
            counts.len()
        ));
    }
    let all: Vec<Point> = points
        .iter()
        .map(|(replicas, _, per_s)| Point {
            servers: servers_of(work, kind, *replicas),
            per_s: per_s * together(work, kind, *replicas),
        })
        .collect();
    usl::fit(&all).map_err(|error| {
        match error {
            NoFit::TooFew => "there are too few numbers of servers that do this work",
            NoFit::NoThroughput => "one of them did nothing",
            NoFit::Unfit => "the law does not describe what was measured",
        }
        .to_owned()
    })
}

/// Writes down what a law says of these points and of one replica more.
fn describe(fit: &mut ScaleFit, law: &Fit, work: &ScalePlan, kind: &str, points: &[Measured]) {
    let count = |replicas: u32| servers_of(work, kind, replicas);
    (fit.lambda, fit.sigma, fit.kappa) = (law.lambda, law.sigma, law.kappa);
    fit.error_percent = law.error * 100.0;
    fit.freedom = u32::try_from(law.freedom).unwrap_or(u32::MAX);
    let replicas_of =
        |servers: f64| servers - f64::from(count(0)) + if count(0) == count(1) { 1.0 } else { 0.0 };
    if kind == "select" && count(1) != count(2) {
        fit.stops_paying = Some(each(law.stops_paying, replicas_of));
    }
    fit.residuals = points
        .iter()
        .zip(&law.residuals)
        .map(|((replicas, start, per_s), residual)| Residual {
            replicas: *replicas,
            start: *start,
            per_s: *per_s,
            fitted_per_s: per_s / (1.0 + residual),
            percent: residual * 100.0,
        })
        .collect();
    let last = work.replicas.most();
    let per_s = |replicas: u32| Some(law.at(count(replicas))? / together(work, kind, replicas));
    fit.curve = (0..=last + 1)
        .filter_map(|replicas| {
            Some(LawPoint {
                replicas,
                per_s: per_s(replicas)?,
            })
        })
        .collect();
    let predicted = law.predict(count(last + 1), work.starts);
    fit.prediction = predicted.map(|predicted| Prediction {
        replicas: last + 1,
        predicted: each(predicted, |value| value / together(work, kind, last + 1)),
        ..Prediction::default()
    });
}

/// The same done to a value and to the ends of its interval.
fn each(estimate: Estimate, what: impl Fn(f64) -> f64) -> Estimate {
    Estimate {
        value: estimate.value.map(&what),
        low: estimate.low.map(&what),
        high: estimate.high.map(&what),
    }
}

/// How many servers a figure is of: those that are read from, or all, since each does
/// every write.
fn servers_of(work: &ScalePlan, kind: &str, replicas: u32) -> u32 {
    if kind == "select" {
        work.readers(replicas)
    } else {
        replicas + 1
    }
}

/// How often each operation is carried out: a write on every server.
fn together(work: &ScalePlan, kind: &str, replicas: u32) -> f64 {
    if kind == "select" {
        1.0
    } else {
        f64::from(servers_of(work, kind, replicas))
    }
}

impl Cell {
    fn add(&mut self, start: u32, block: Block) {
        self.blocks += 1;
        self.counted = self.counted + block.counted;
        self.operations += block.operations();
        if let Some(caught_up) = block.caught_up {
            let us = caught_up.as_secs_f64() * 1e6;
            self.caught_up_us = Some(self.caught_up_us.map_or(us, |longest| longest.max(us)));
        }
        if self.uses.is_empty() {
            self.uses.clone_from(&block.uses);
        } else {
            self.uses
                .iter_mut()
                .zip(&block.uses)
                .for_each(|(sum, more)| sum.add(more));
        }
        for Part { kind, result } in block.parts {
            let seconds = result.counted.0 as f64 / 1e9;
            if seconds > 0.0 {
                self.rates
                    .entry(kind.clone())
                    .or_default()
                    .entry(start)
                    .or_default()
                    .push(result.operations as f64 / seconds);
            }
            if kind == "select" {
                self.select_latency.merge(&result.response);
                for share in &result.by_node {
                    *self.selects.entry(share.node.clone()).or_default() += share.operations;
                }
            } else {
                self.write_latency.merge(&result.response);
            }
            self.retries += result
                .retries
                .iter()
                .map(|retried| retried.count)
                .sum::<u64>();
            self.failed += result.failed;
            add_errors(&mut self.errors, &result.errors);
            if let Some(share) = result.client().limit_share {
                self.limit_percent = Some(self.limit_percent.unwrap_or(0.0).max(share * 100.0));
            }
            self.client_us += result.client_cpu.as_secs_f64() * 1e6;
            self.thread_us += result.counted.as_micros() * f64::from(result.threads);
            if let Some(delay) = result.client_delay {
                self.delayed = Some(self.delayed.unwrap_or(0.0) + delay.as_secs_f64() * 1e6);
            }
        }
    }

    fn servers(&self) -> Vec<ScaleServer> {
        let seconds = self.counted.0 as f64 / 1e9;
        let one = |used: &ServerUse| {
            let percent = |cpu: Option<f64>| {
                cpu.filter(|_| used.length_us > 0.0)
                    .map(|cpu| cpu / used.length_us * 100.0)
            };
            ScaleServer {
                per_operation: used.per_operation(self.operations),
                cpu_percent: used.cpu_percent(),
                cpu_system_percent: percent(used.cpu_system_us),
                read_bytes_per_s: used.per_s(used.read_bytes),
                write_bytes_per_s: used.per_s(used.write_bytes),
                reads_per_s: used.per_s(used.reads),
                writes_per_s: used.per_s(used.writes),
                fsyncs_per_s: used.per_s(used.fsyncs),
                context_switches_per_s: used.per_s(used.context_switches),
                selects_per_s: self
                    .selects
                    .get(&used.name)
                    .filter(|_| seconds > 0.0)
                    .map(|count| *count as f64 / seconds),
            }
        };
        self.uses.iter().map(one).collect()
    }
}

/// A block's rows in the file of samples.
fn rows(place: &Place, block: &Block, counts: bool) -> Vec<BlockRow> {
    const SECOND_US: f64 = 1e6;
    let (began_us, length_us) = (block.began.as_micros(), block.counted.as_micros());
    let row = |name: &str, second: Option<u32>, about: About| BlockRow {
        shape: place.shape.clone(),
        replicas: place.replicas,
        start: place.start,
        block: place.block,
        phase: block.phase.name().to_owned(),
        counts,
        name: name.to_owned(),
        second,
        began_us: began_us + second.map_or(0.0, |second| f64::from(second) * SECOND_US),
        length_us: if second.is_some() {
            SECOND_US
        } else {
            length_us
        },
        about,
    };
    let mut rows = Vec::new();
    for Part { kind, result } in &block.parts {
        let response = &result.response;
        let latency = [
            response.quantile(0.5),
            response.quantile(0.95),
            response.quantile(0.99),
            response.max(),
        ];
        let whole = Operations {
            ended: result.operations,
            latency_us: latency.map(|nanos| nanos.map(Nanos::as_micros)),
            retries: Some(result.retries.iter().map(|retried| retried.count).sum()),
            failed: Some(result.failed),
            caught_up_after_us: block.caught_up.map(|after| after.as_secs_f64() * 1e6),
        };
        rows.push(row(kind, None, About::Load(whole)));
        for (second, operations) in (0..).zip(&result.per_second) {
            let load = Operations {
                ended: *operations,
                ..Operations::default()
            };
            rows.push(row(kind, Some(second), About::Load(load)));
        }
    }
    for used in &block.uses {
        rows.push(row(&used.name, None, About::Server(Box::new(used.clone()))));
    }
    for (second, uses) in (0..).zip(&block.course) {
        rows.extend(uses.iter().map(|used| {
            row(
                &used.name,
                Some(second),
                About::Server(Box::new(used.clone())),
            )
        }));
    }
    rows
}
