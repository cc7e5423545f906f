//! Builds the document from the events of a lag measurement.

mod so_far;
mod warnings;

use std::time::Duration;

use crate::lag::samples::Samples;
use replimeter_instruments::lag::{
    MethodComparison, Outcome,
    results::{Floor, LagResults, LagRow, MethodDifference},
    sample::{LagSample, Phase},
    settings::{LagPlan, Method, WritePattern},
    summary::{FloorSummary, ReplicaSummary},
};
use replimeter_model::{
    load::LoadRecord,
    manifest::Manifest,
    plan::{Request, Settings},
    record::{TargetRecord, first_start, is_first_start},
    replication::Mode,
    target::Target,
    time::Nanos,
};
use replimeter_render::rows::Rows;
use replimeter_run::{Concluded, Finished, Histograms, Measurement};
use replimeter_stats::{
    measured_time::MeasuredTime,
    series::{Series, distribution},
    signed::SignedHistogram,
};
use serde::{Deserialize, Serialize};

use super::{Lag, sweep::sweep_tables};

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers of a shape have started and passed the checks.
    Shape {
        /// The label in reports.
        label: String,
        /// The start of these servers, from 1.
        #[serde(default = "first_start", skip_serializing_if = "is_first_start")]
        start: u32,
        /// The replication mode, as reported by its servers.
        mode: Mode,
        replicas: Vec<String>,
        methods: Vec<Method>,
        /// Configured delays on the path to each replica.
        delays: Vec<Duration>,
    },
    /// One observation of a row by one method.
    Sample(LagSample),
    /// One row, observed by two methods.
    Compared(MethodComparison),
    /// The measurement of a shape ended, perhaps early.
    ShapeEnded {
        outcome: Box<Outcome>,
        load: Vec<LoadRecord>,
    },
}

/// State gathered during the run.
pub(crate) struct Accumulator {
    /// Rows per step, in a sweep.
    per_step: Option<u32>,
    /// The index of the shape that is measured.
    under_way: usize,
    parts: Vec<ShapeResults>,
}

/// The results of one shape of a run.
struct ShapeResults {
    label: String,
    mode: Mode,
    names: Vec<String>,
    delays: Vec<Duration>,
    /// Starts that ended, perhaps early.
    starts: u32,
    observed: Vec<ObservedReplica>,
    floors: Vec<(Method, FloorSummary)>,
    warm_up: u64,
    per_step: Option<u32>,
    /// The last row of each step, for experiment 1's table.
    last_rows: Vec<LagSample>,
    /// From the first counted send to the last acknowledgement of the start under way, and the largest payload, for a
    /// run that is cut off.
    span: Option<[Nanos; 2]>,
    largest: u64,
    outcome: Outcome,
    load: Vec<LoadRecord>,
}

/// One replica by one method.
struct ObservedReplica {
    replica: usize,
    method: Method,
    summary: ReplicaSummary,
    /// The method it is compared with, and the differences at times of measuring.
    against: Option<(Method, MeasuredTime, Series)>,
}

impl Accumulator {
    /// Creates an empty state.
    pub(crate) fn new(plan: &LagPlan) -> Self {
        let per_step = match &plan.writes {
            WritePattern::Sweep { per_step, .. } => Some(*per_step),
            WritePattern::Rounds { .. } => None,
        };
        Self {
            per_step,
            under_way: 0,
            parts: Vec::new(),
        }
    }

    /// Returns whether no shape was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.starts == 0)
    }

    /// Ends the start under way of a run that was cut off. Its floor has no point selects, and it has no stages.
    pub(super) fn cut_off(&mut self) {
        let part = self.parts.get_mut(self.under_way);
        if let Some(part) = part
            && let Some([first, last]) = part.span
        {
            part.end_start(Outcome {
                size_limit: part.largest,
                measured: last - first,
                ..Outcome::default()
            });
        }
    }

    /// Adds an event, and its row to the samples.
    pub(super) fn take(&mut self, call: Call, rows: &mut Rows<Samples>) {
        match (call, self.parts.get_mut(self.under_way)) {
            (
                Call::Shape {
                    label,
                    start,
                    mode,
                    replicas,
                    methods,
                    delays,
                },
                _,
            ) => {
                rows.switch(Samples::new(&label, start, replicas.clone()));
                let known = self.parts.iter().position(|part| part.label == label);
                self.under_way = known.unwrap_or(self.parts.len());
                if known.is_none() {
                    self.parts.push(ShapeResults::new(
                        label,
                        mode,
                        replicas,
                        &methods,
                        delays,
                        self.per_step,
                    ));
                }
                self.parts[self.under_way].begin_start();
            }
            (Call::Sample(sample), Some(part)) => {
                part.record(&sample);
                rows.add(sample);
            }
            (Call::Compared(compared), Some(part)) => part.compare(&compared),
            (Call::ShapeEnded { outcome, load }, Some(part)) => {
                part.end_start(*outcome);
                part.load.extend(load);
            }
            (Call::Sample(_) | Call::Compared(_) | Call::ShapeEnded { .. }, None) => {}
        }
    }
}

impl ShapeResults {
    fn new(
        label: String,
        mode: Mode,
        names: Vec<String>,
        methods: &[Method],
        delays: Vec<Duration>,
        per_step: Option<u32>,
    ) -> Self {
        let observed = |replica| {
            methods.iter().map(move |method| ObservedReplica {
                replica,
                method: *method,
                summary: ReplicaSummary::default(),
                against: None,
            })
        };
        Self {
            observed: (0..names.len()).flat_map(observed).collect(),
            label,
            mode,
            names,
            delays,
            starts: 0,
            floors: Vec::new(),
            warm_up: 0,
            per_step,
            last_rows: Vec::new(),
            span: None,
            largest: 0,
            outcome: Outcome::default(),
            load: Vec::new(),
        }
    }

    /// Separates the samples that follow from those of earlier starts.
    fn begin_start(&mut self) {
        for observed in &mut self.observed {
            observed.summary.begin_start();
            if let Some((_, time, series)) = &mut observed.against {
                time.begin_start();
                series.begin_start();
            }
        }
        for (_, floor) in &mut self.floors {
            floor.begin_start();
        }
    }

    /// Adds how a start ended.
    fn end_start(&mut self, outcome: Outcome) {
        self.starts += 1;
        self.span = None;
        self.outcome.absorb(outcome);
    }

    /// Adds a sample.
    fn record(&mut self, sample: &LagSample) {
        match sample.write.phase {
            Phase::ReferenceSelect | Phase::Settle => {}
            Phase::Floor => {
                record_floor(&mut self.floors, sample);
            }
            // The first row only shows that rows arrive.
            Phase::WarmUp => {
                let first = self.observed.first().is_some_and(|first| {
                    (first.replica, first.method) == (sample.replica, sample.method)
                });
                self.warm_up += u64::from(first && sample.write.seq > 1);
            }
            Phase::Measure => {
                let write = &sample.write;
                self.span.get_or_insert([write.send; 2])[1] = write.ack;
                self.largest = self.largest.max(write.size_bytes);
                let by_size = self.per_step.is_some();
                if let Some(observed) = self.of(sample.replica, sample.method) {
                    observed.summary.record(sample, by_size);
                }
                if self.per_step == Some(sample.write.row_in_step) && sample.method == Method::Poll
                {
                    self.last_rows.push(*sample);
                }
            }
        }
    }

    fn of(&mut self, replica: usize, method: Method) -> Option<&mut ObservedReplica> {
        self.observed
            .iter_mut()
            .find(|observed| (observed.replica, observed.method) == (replica, method))
    }

    /// Adds the difference of two methods on a row.
    fn compare(&mut self, compared: &MethodComparison) {
        if compared.write.phase != Phase::Measure {
            return;
        }
        if let Some(observed) = self.of(compared.replica, compared.method) {
            let (_, time, series) = observed.against.get_or_insert_with(|| {
                let mut series = Series::default();
                series.begin_start();
                (compared.reference, MeasuredTime::default(), series)
            });
            series.record(time.of(compared.write.send), compared.difference);
        }
    }
}

/// Adds a sample of the null replica to its method.
pub(crate) fn record_floor(floors: &mut Vec<(Method, FloorSummary)>, sample: &LagSample) {
    let index = floors
        .iter()
        .position(|(method, _)| *method == sample.method)
        .unwrap_or_else(|| {
            let mut floor = FloorSummary::default();
            floor.begin_start();
            floors.push((sample.method, floor));
            floors.len() - 1
        });
    floors[index].1.record(sample);
}

/// Returns the results of a run.
pub(super) fn conclude(
    run: &mut Finished<'_, Lag>,
    accumulator: Accumulator,
) -> Concluded<LagResults> {
    let mut parts = accumulator.parts;
    parts.retain(|part| part.starts > 0);
    // An interrupted run has fewer starts than its plan.
    let starts = parts.iter().map(|part| part.starts).min().unwrap_or(0);
    let mut warnings = Vec::new();
    let mut rows = Vec::new();
    let mut lateness = SignedHistogram::default();
    for part in &parts {
        warnings.extend(part.outcome.warnings.iter().cloned());
        rows.extend(rows_of(run, part));
        lateness.merge(&part.outcome.lateness);
    }
    let start_lateness = distribution(&lateness);
    warnings.extend(warnings::late(run.plan.pace, start_lateness.p50_us));
    warnings.extend(warnings::missing(run.plan, &rows));
    let servers = &run.manifest.servers;
    warnings.extend(warnings::slow_flushes(&run.ended.host, servers, &rows));
    run.warn(warnings);
    let measured = |part: &ShapeResults| part.outcome.measured;
    let shapes = parts.iter().map(|part| (part.label.as_str(), part.mode));
    let target = target(run, shapes);
    Concluded {
        nothing: false,
        target: TargetRecord {
            fresh_starts: target.fresh_starts.min(starts),
            ..target
        },
        measured_us: Some(parts.iter().map(|part| measured(part).as_micros()).sum()),
        start_lateness,
        histograms: Some(Histograms {
            took: Nanos(parts.iter().map(|part| measured(part).0).sum()),
            series: histograms(&parts),
        }),
        results: LagResults {
            rows,
            warm_up_rounds: parts.iter().map(|part| part.warm_up).sum(),
            floors: parts.iter().flat_map(floors).collect(),
            load: parts.iter().flat_map(loads).collect(),
            // A sweep has one shape.
            size_sweep: parts
                .first()
                .filter(|part| part.per_step.is_some())
                .map(|part| sweep_tables(&part.names, &part.last_rows, run.manifest.origin_unix_us))
                .unwrap_or_default(),
        },
    }
}

/// Returns the options of the servers that are needed to repeat the run, before those that every command records; the plan has
/// them too.
fn options<S: Settings>(
    request: &Request<S>,
    manifest: &Manifest,
    recorded: Vec<String>,
) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    let mut add = |option: String| {
        if !options.contains(&option) {
            options.push(option);
        }
    };
    for target in &request.targets {
        let Target::Sandbox(spec) = target else {
            continue;
        };
        if let Some(point) = spec.wait_point {
            add(format!("wait point {}", point.variable()));
        }
        if let Some(count) = spec.wait_for_replicas {
            add(format!("the primary waits for {count} replicas"));
        }
        if spec.multi_primary {
            add("multi-primary".to_owned());
        }
        if spec.udf {
            add("NOW_USEC() loaded".to_owned());
        }
        if spec.federated {
            add("FEDERATED on".to_owned());
        }
        if let Some(server) = &spec.replica_server {
            add(format!("replicas on {server}"));
        }
    }
    for sandbox in &manifest.sandboxes {
        if let Some(link) = &sandbox.link {
            add(format!("replication links: {link}"));
        }
        if let Some(share) = &sandbox.cpus_per_server {
            add(format!("CPUs of each server: {share}"));
        }
    }
    recorded.into_iter().for_each(add);
    options
}

/// Returns the servers of all shapes, each with its label and mode.
pub(crate) fn target<'a, M: Measurement>(
    run: &Finished<'_, M>,
    shapes: impl IntoIterator<Item = (&'a str, Mode)>,
) -> TargetRecord {
    let (labels, modes): (Vec<&str>, Vec<String>) = shapes
        .into_iter()
        .map(|(label, mode)| (label, mode.to_string()))
        .unzip();
    let target = run.target(labels.join(", "), modes);
    TargetRecord {
        options: options(run.request, run.manifest, target.options),
        ..target
    }
}

fn loads(part: &ShapeResults) -> impl Iterator<Item = LoadRecord> + '_ {
    part.load.iter().map(|record| LoadRecord {
        shape: part.label.clone(),
        ..record.clone()
    })
}

fn rows_of(run: &Finished<'_, Lag>, part: &ShapeResults) -> Vec<LagRow> {
    let size_limit = part.outcome.size_limit;
    let plan = run.plan;
    let sweep = matches!(plan.writes, WritePattern::Sweep { .. });
    let mut rows = Vec::new();
    for observed in &part.observed {
        let ObservedReplica {
            replica,
            method,
            summary,
            against,
        } = observed;
        let delay = part.delays.get(*replica).filter(|delay| !delay.is_zero());
        let named = |row: LagRow, size_bytes| LagRow {
            shape: part.label.clone(),
            replica: part.names[*replica].clone(),
            method: method.name().to_owned(),
            size_bytes,
            stages: if *method == Method::Poll && (size_bytes.is_none() || !sweep) {
                part.outcome.stages.get(*replica).cloned().flatten()
            } else {
                None
            },
            method_differences: size_bytes
                .is_none_or(|_| !sweep)
                .then_some(())
                .and(against.as_ref())
                .map(|(reference, _, series)| MethodDifference {
                    method: reference.name().to_owned(),
                    difference: series.distribution(),
                }),
            configured_delay_us: delay.map(|delay| delay.as_secs_f64() * 1e6),
            ..row
        };
        match &plan.writes {
            WritePattern::Rounds { size, .. } => {
                rows.push(named(summary.row(), Some(*size.min(&size_limit))))
            }
            WritePattern::Sweep { .. } => {
                rows.push(named(summary.row(), None));
                rows.extend(
                    summary
                        .sizes()
                        .map(|(size, of_size)| named(of_size.row(), Some(size))),
                );
            }
        }
    }
    rows
}

/// Returns the histograms of the rows, by name.
fn histograms(parts: &[ShapeResults]) -> Vec<(String, SignedHistogram)> {
    let of = |part: &ShapeResults, observed: &ObservedReplica, what: &str| {
        format!(
            "{}/{}/{}/{what}",
            part.label,
            part.names[observed.replica],
            observed.method.name()
        )
    };
    let each = parts
        .iter()
        .flat_map(|part| part.observed.iter().map(move |observed| (part, observed)));
    each.flat_map(|(part, observed)| {
        let all = observed.summary.all();
        [
            (of(part, observed, "lag"), all.lags().clone()),
            (of(part, observed, "insert"), all.inserts().clone()),
        ]
    })
    .collect()
}

/// Returns the floor of each method, from the null replica.
fn floors(part: &ShapeResults) -> Vec<Floor> {
    let floor = |(method, summary): &(Method, FloorSummary)| {
        let floor = self::floor(&part.label, *method, summary);
        // The point select is a reference for reads only.
        if *method != Method::Poll {
            return floor;
        }
        Floor {
            point_select: distribution(&part.outcome.point_select),
            point_select_at_ack: distribution(&part.outcome.point_select_at_ack),
            ..floor
        }
    };
    part.floors.iter().map(floor).collect()
}

/// Returns one method's floor, without the point select.
pub(crate) fn floor(shape: &str, method: Method, summary: &FloorSummary) -> Floor {
    let row = summary.row();
    Floor {
        shape: shape.to_owned(),
        method: method.name().to_owned(),
        rounds: row.rounds,
        from_ack: row.from_ack,
        estimate: row.estimate,
        midpoint_abs: summary.midpoint_abs(),
        bracket_us: row.bracket_us,
        from_primary: row.from_primary,
        ..Floor::default()
    }
}
