//! From samples to the document of a run.

use std::path::Path;

use replimeter_measure::clock::Clock;
use replimeter_model::{
    manifest::Manifest,
    plan::{LagPlan, Method, Pace, Plan, Writes},
    record::{ClientRecord, Floor, LAG_SCHEMA, LagDocument, LagRow, NodeRecord, SweepLoop, SweepTable, TargetRecord},
    sample::{LagSample, Phase},
    target::Target,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_report::{
    answer::answer,
    figures::{count, time},
};
use replimeter_stats::{
    lag::{FloorSummary, ReplicaSummary},
    series::distribution,
    signed::SignedHistogram,
};

use super::{Part, status};
use crate::failure::{Failure, Kind};

/// Summaries gathered while the run goes on.
pub(crate) struct Gathered {
    names: Vec<String>,
    replicas: Vec<ReplicaSummary>,
    floor: FloorSummary,
    floor_rounds: u64,
    warm_up: u64,
    /// Rows in a step, when there is a sweep.
    per_step: Option<u32>,
    /// The last row of each step, for experiment 1's table.
    last_rows: Vec<LagSample>,
}

impl Gathered {
    /// For replicas of these names.
    pub(crate) fn new(plan: &LagPlan, names: Vec<String>) -> Self {
        let per_step = match &plan.writes {
            Writes::Sweep { per_step, .. } => Some(*per_step),
            Writes::Rounds { .. } => None,
        };
        Self {
            replicas: names.iter().map(|_| ReplicaSummary::default()).collect(),
            names,
            floor: FloorSummary::default(),
            floor_rounds: 0,
            warm_up: 0,
            per_step,
            last_rows: Vec::new(),
        }
    }

    /// Adds a sample.
    pub(crate) fn record(&mut self, sample: &LagSample) {
        match sample.write.phase {
            Phase::Yardstick | Phase::Settle => {}
            Phase::Floor => {
                self.floor_rounds += 1;
                self.floor.record(sample);
            }
            // The very first row only proves that rows arrive.
            Phase::WarmUp => self.warm_up += u64::from(sample.replica == 0 && sample.write.seq > 1),
            Phase::Measure => {
                if let Some(replica) = self.replicas.get_mut(sample.replica) {
                    replica.record(sample, self.per_step.is_some());
                }
                if self.per_step == Some(sample.write.row_in_step) {
                    self.last_rows.push(*sample);
                }
            }
        }
    }
}

/// A run that is over.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) manifest: &'a Manifest,
    pub(crate) clock: &'a Clock,
    pub(crate) run_dir: &'a Path,
    pub(crate) kept_awake: bool,
    pub(crate) real_time: bool,
    pub(crate) failure: Option<&'a Failure>,
}

/// The document.
pub(crate) fn build(run: &Run<'_>, parts: &[Part], mut warnings: Vec<Warning>) -> LagDocument {
    let lag = &run.plan.lag;
    let mut results = Vec::new();
    let mut lateness = SignedHistogram::default();
    for part in parts {
        warnings.extend(part.outcome.warnings.iter().cloned());
        results.extend(rows(run, part));
        lateness.merge(&part.outcome.lateness);
    }
    let lateness = distribution(&lateness);
    if let (Pace::Every(every), Some(p50)) = (lag.pace, lateness.p50_us) {
        let every = Nanos::from(every.0).as_micros();
        if p50 > every / 10.0 {
            warnings.push(Warning::new(
                WarningCode::WriterLate,
                format!(
                    "half of the writes started more than {} after their turn; the schedule of {} cannot be held",
                    time(p50),
                    time(every)
                ),
                "choose a larger --every; `from_intended` charges the wait to every row",
            ));
        }
    }
    let sweep = matches!(lag.writes, Writes::Sweep { .. });
    let missing: u64 = results.iter().filter(|row| row.size_bytes.is_some() || !sweep).map(|row| row.missing).sum();
    if missing > 0 {
        warnings.push(Warning::new(
            WarningCode::MissingRows,
            format!("{} rows were not seen within the time-out; they are counted and not averaged in", count(missing)),
            "look at the replica's state, or raise --timeout",
        ));
    }
    match run.failure {
        Some(failure) if failure.kind == Kind::Interrupted => {
            warnings.push(Warning::new(WarningCode::Interrupted, failure.message.clone(), "run the plan again for the whole"));
        }
        Some(failure) => warnings.push(Warning::new(WarningCode::Failed, failure.message.clone(), failure.hint.clone())),
        None => {}
    }
    let mut document = LagDocument {
        schema: LAG_SCHEMA.to_owned(),
        run_dir: run.run_dir.display().to_string(),
        title: run.plan.title.clone(),
        status: status(run.failure),
        error: run.failure.map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: run.manifest.started_at.clone(),
        measured_us: parts.iter().map(|part| part.outcome.measured.as_micros()).sum(),
        target: target(run, parts),
        settings: run.plan.to_file().lag,
        warm_up_rounds: parts.iter().map(|part| part.gathered.warm_up).sum(),
        results,
        floors: parts.iter().filter_map(|part| floor(lag.method, part)).collect(),
        client: ClientRecord {
            start_lateness: lateness,
            keep_awake: run.kept_awake,
            real_time: run.real_time,
            clock_step_us: Nanos::from(run.clock.step()).as_micros(),
        },
        // A sweep has one shape.
        size_sweep: parts.first().map(|part| sweep_tables(run, &part.gathered)).unwrap_or_default(),
        warnings,
    };
    document.answer = answer(&document);
    document
}

/// What a reader must know of the servers to repeat the run; the plan has it too.
fn options(run: &Run<'_>) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    let mut add = |option: String| {
        if !options.contains(&option) {
            options.push(option);
        }
    };
    for target in &run.plan.targets {
        let Target::Sandbox(spec) = target else { continue };
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
    for sandbox in &run.manifest.sandboxes {
        if let Some(link) = &sandbox.link {
            add(format!("replication links: {link}"));
        }
    }
    run.plan.target.server_options.iter().for_each(|option| add(format!("server option {option}")));
    options
}

fn target(run: &Run<'_>, parts: &[Part]) -> TargetRecord {
    let nodes = run.manifest.servers.iter().map(|server| NodeRecord {
        shape: server.shape.clone(),
        name: server.name.clone(),
        address: server.address.clone(),
        version: server.title(),
    });
    let labels: Vec<&str> = parts.iter().map(|part| part.label.as_str()).collect();
    TargetRecord {
        shape: labels.join(", "),
        options: options(run),
        modes: parts.iter().map(|part| part.mode.clone()).collect(),
        sandbox: !run.manifest.sandboxes.is_empty(),
        nodes: nodes.collect(),
    }
}

fn rows(run: &Run<'_>, part: &Part) -> Vec<LagRow> {
    let (gathered, size_limit) = (&part.gathered, part.outcome.size_limit);
    let plan = &run.plan.lag;
    let mut rows = Vec::new();
    for (index, (name, summary)) in gathered.names.iter().zip(&gathered.replicas).enumerate() {
        let delay = part.delays.get(index).filter(|delay| !delay.is_zero());
        let named = |row: LagRow, size_bytes| LagRow {
            shape: part.label.clone(),
            replica: name.clone(),
            method: plan.method.name().to_owned(),
            size_bytes,
            configured_delay_us: delay.map(|delay| delay.as_secs_f64() * 1e6),
            ..row
        };
        match &plan.writes {
            Writes::Rounds { size, .. } => rows.push(named(summary.all().row(), Some(*size.min(&size_limit)))),
            Writes::Sweep { .. } => {
                rows.push(named(summary.all().row(), None));
                rows.extend(summary.sizes().map(|(size, part)| named(part.row(), Some(size))));
            }
        }
    }
    rows
}

fn floor(method: Method, part: &Part) -> Option<Floor> {
    let (gathered, outcome) = (&part.gathered, &part.outcome);
    if gathered.floor_rounds == 0 {
        return None;
    }
    let row = gathered.floor.row();
    Some(Floor {
        shape: part.label.clone(),
        method: method.name().to_owned(),
        rounds: gathered.floor_rounds,
        from_ack: row.from_ack,
        estimate: row.estimate,
        midpoint_abs: gathered.floor.midpoint_abs(),
        error_us: row.error_us,
        point_select: distribution(&outcome.point_select),
        point_select_at_ack: distribution(&outcome.point_select_at_ack),
    })
}

fn sweep_tables(run: &Run<'_>, gathered: &Gathered) -> Vec<SweepTable> {
    if gathered.per_step.is_none() {
        return Vec::new();
    }
    let origin = run.clock.origin_unix_us();
    let line = |sample: &LagSample| -> Option<SweepLoop> {
        Some(SweepLoop {
            sweep: sample.write.sweep + 1,
            step: sample.write.step + 1,
            size_bytes: sample.write.size_bytes,
            sequence: sample.write.seq,
            insert_us: sample.insert().as_micros(),
            retrieval_us: sample.retrieval()?.as_micros(),
            total_us: sample.from_send()?.as_micros(),
            bare_us: sample.bare()?.as_micros(),
            inserted_unix_us: origin + sample.write.send.0 / 1000,
            fetched_unix_us: origin + sample.upper()?.0 / 1000,
        })
    };
    let tables = gathered.names.iter().enumerate().map(|(index, name)| {
        let mut loops: Vec<SweepLoop> =
            gathered.last_rows.iter().filter(|sample| sample.replica == index).filter_map(line).collect();
        loops.sort_by_key(|row| row.sequence);
        SweepTable { replica: name.clone(), loops }
    });
    tables.collect()
}
