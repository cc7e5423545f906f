//! From samples to the document of a run.

use std::path::Path;

use replimeter_measure::{clock::Clock, lag::Compared};
use replimeter_model::{
    backlog::BacklogRow,
    load::LoadRecord,
    manifest::Manifest,
    plan::{LagPlan, Method, Pace, Plan, Writes},
    record::{
        Against, ClientRecord, Floor, LAG_SCHEMA, LagDocument, LagRow, NodeRecord, SweepLoop,
        SweepTable, TargetRecord, missing_rows,
    },
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
    series::{Series, distribution},
    signed::SignedHistogram,
};

use super::{Part, status};
use crate::failure::Failure;

/// Summaries gathered while the run goes on.
pub(crate) struct Gathered {
    names: Vec<String>,
    observed: Vec<Observed>,
    floors: Vec<(Method, FloorSummary)>,
    warm_up: u64,
    /// Rows in a step, when there is a sweep.
    per_step: Option<u32>,
    /// The last row of each step, for experiment 1's table.
    last_rows: Vec<LagSample>,
}

/// One replica by one method.
struct Observed {
    replica: usize,
    method: Method,
    summary: ReplicaSummary,
    /// The method it is held against, and by how much it differs.
    against: Option<(Method, Series)>,
}

impl Gathered {
    /// For replicas of these names.
    pub(crate) fn new(plan: &LagPlan, names: Vec<String>, methods: &[Method]) -> Self {
        let per_step = match &plan.writes {
            Writes::Sweep { per_step, .. } => Some(*per_step),
            Writes::Rounds { .. } => None,
        };
        let observed = |replica| {
            methods.iter().map(move |method| Observed {
                replica,
                method: *method,
                summary: ReplicaSummary::default(),
                against: None,
            })
        };
        Self {
            observed: (0..names.len()).flat_map(observed).collect(),
            names,
            floors: Vec::new(),
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
                record_floor(&mut self.floors, sample);
            }
            // The very first row only proves that rows arrive.
            Phase::WarmUp => {
                let first = self.observed.first().is_some_and(|first| {
                    (first.replica, first.method) == (sample.replica, sample.method)
                });
                self.warm_up += u64::from(first && sample.write.seq > 1);
            }
            Phase::Measure => {
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

    fn of(&mut self, replica: usize, method: Method) -> Option<&mut Observed> {
        self.observed
            .iter_mut()
            .find(|observed| (observed.replica, observed.method) == (replica, method))
    }

    /// Adds how two methods differed on a row.
    pub(crate) fn compare(&mut self, compared: &Compared) {
        if compared.write.phase != Phase::Measure {
            return;
        }
        if let Some(observed) = self.of(compared.replica, compared.method) {
            let (_, series) = observed
                .against
                .get_or_insert_with(|| (compared.reference, Series::default()));
            series.record(compared.write.send, compared.difference);
        }
    }
}

/// Adds a sample of the null replica to its method's.
pub(crate) fn record_floor(floors: &mut Vec<(Method, FloorSummary)>, sample: &LagSample) {
    let index = floors
        .iter()
        .position(|(method, _)| *method == sample.method)
        .unwrap_or_else(|| {
            floors.push((sample.method, FloorSummary::default()));
            floors.len() - 1
        });
    floors[index].1.record(sample);
}

/// A run that is over.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) lag: &'a LagPlan,
    pub(crate) manifest: &'a Manifest,
    pub(crate) clock: &'a Clock,
    pub(crate) run_dir: &'a Path,
    pub(crate) kept_awake: bool,
    pub(crate) real_time: bool,
    pub(crate) failure: Option<&'a Failure>,
}

/// The document.
pub(crate) fn build(run: &Run<'_>, parts: &[Part], mut warnings: Vec<Warning>) -> LagDocument {
    let lag = run.lag;
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
    let missing = missing_rows(
        results
            .iter()
            .filter(|row| row.size_bytes.is_some() || !sweep),
    );
    if missing > 0 {
        warnings.push(Warning::new(
            WarningCode::MissingRows,
            format!(
                "{} rows were not seen within the time-out; they are counted and not averaged in",
                count(missing)
            ),
            "look at the replica's state, or raise --timeout",
        ));
    }
    warnings.extend(run.failure.map(Failure::warning));
    let mut document = LagDocument {
        schema: LAG_SCHEMA.to_owned(),
        run_dir: run.run_dir.display().to_string(),
        title: run.plan.title.clone(),
        status: status(run.failure),
        error: run.failure.map(|failure| failure.message.clone()),
        answer: String::new(),
        started_at: run.manifest.started_at.clone(),
        measured_us: parts
            .iter()
            .map(|part| part.outcome.measured.as_micros())
            .sum(),
        target: target(run, parts),
        settings: run.lag.to_spec(),
        warm_up_rounds: parts.iter().map(|part| part.gathered.warm_up).sum(),
        results,
        floors: parts.iter().flat_map(floors).collect(),
        load: parts.iter().flat_map(loads).collect(),
        backlog: parts.iter().flat_map(backlogs).collect(),
        client: ClientRecord {
            start_lateness: lateness,
            keep_awake: run.kept_awake,
            real_time: run.real_time,
            clock_step_us: Nanos::from(run.clock.step()).as_micros(),
        },
        // A sweep has one shape.
        size_sweep: parts
            .first()
            .map(|part| sweep_tables(run, &part.gathered))
            .unwrap_or_default(),
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
    for sandbox in &run.manifest.sandboxes {
        if let Some(link) = &sandbox.link {
            add(format!("replication links: {link}"));
        }
        if let Some(share) = &sandbox.cpus_per_server {
            add(format!("CPUs of each server: {share}"));
        }
    }
    run.plan
        .target
        .server_options
        .iter()
        .for_each(|option| add(format!("server option {option}")));
    options
}

/// Every server of the run.
pub(crate) fn nodes(manifest: &Manifest) -> Vec<NodeRecord> {
    let nodes = manifest.servers.iter().map(|server| NodeRecord {
        shape: server.shape.clone(),
        name: server.name.clone(),
        address: server.address.clone(),
        version: server.title(),
    });
    nodes.collect()
}

fn target(run: &Run<'_>, parts: &[Part]) -> TargetRecord {
    let labels: Vec<&str> = parts.iter().map(|part| part.label.as_str()).collect();
    TargetRecord {
        shape: labels.join(", "),
        options: options(run),
        modes: parts.iter().map(|part| part.mode.clone()).collect(),
        sandbox: !run.manifest.sandboxes.is_empty(),
        nodes: nodes(run.manifest),
    }
}

fn loads(part: &Part) -> impl Iterator<Item = LoadRecord> + '_ {
    part.beside.load.iter().map(|record| LoadRecord {
        shape: part.label.clone(),
        ..record.clone()
    })
}

fn backlogs(part: &Part) -> impl Iterator<Item = BacklogRow> + '_ {
    part.beside.backlog.iter().map(|row| BacklogRow {
        shape: part.label.clone(),
        ..row.clone()
    })
}

fn rows(run: &Run<'_>, part: &Part) -> Vec<LagRow> {
    if run.lag.backlog.is_some() {
        return Vec::new();
    }
    let (gathered, size_limit) = (&part.gathered, part.outcome.size_limit);
    let plan = run.lag;
    let sweep = matches!(plan.writes, Writes::Sweep { .. });
    let mut rows = Vec::new();
    for observed in &gathered.observed {
        let Observed {
            replica,
            method,
            summary,
            against,
        } = observed;
        let delay = part.delays.get(*replica).filter(|delay| !delay.is_zero());
        let named = |row: LagRow, size_bytes| LagRow {
            shape: part.label.clone(),
            replica: gathered.names[*replica].clone(),
            method: method.name().to_owned(),
            size_bytes,
            stages: if *method == Method::Poll && (size_bytes.is_none() || !sweep) {
                part.outcome.stages.get(*replica).cloned().flatten()
            } else {
                None
            },
            against: size_bytes
                .is_none_or(|_| !sweep)
                .then_some(())
                .and(against.as_ref())
                .map(|(reference, series)| Against {
                    method: reference.name().to_owned(),
                    difference: series.distribution(),
                }),
            configured_delay_us: delay.map(|delay| delay.as_secs_f64() * 1e6),
            ..row
        };
        match &plan.writes {
            Writes::Rounds { size, .. } => {
                rows.push(named(summary.all().row(), Some(*size.min(&size_limit))))
            }
            Writes::Sweep { .. } => {
                rows.push(named(summary.all().row(), None));
                rows.extend(
                    summary
                        .sizes()
                        .map(|(size, part)| named(part.row(), Some(size))),
                );
            }
        }
    }
    rows
}

/// The times behind the rows, by name.
pub(crate) fn histograms(parts: &[Part]) -> Vec<(String, &SignedHistogram)> {
    let of = |part: &Part, observed: &Observed, what: &str| {
        format!(
            "{}/{}/{}/{what}",
            part.label,
            part.gathered.names[observed.replica],
            observed.method.name()
        )
    };
    let each = parts.iter().flat_map(|part| {
        part.gathered
            .observed
            .iter()
            .map(move |observed| (part, observed))
    });
    each.flat_map(|(part, observed)| {
        let all = observed.summary.all();
        [
            (of(part, observed, "lag"), all.lags()),
            (of(part, observed, "insert"), all.inserts()),
        ]
    })
    .collect()
}

/// What each method itself adds, as the null replica shows it.
fn floors(part: &Part) -> Vec<Floor> {
    let floor = |(method, summary): &(Method, FloorSummary)| {
        let floor = self::floor(&part.label, *method, summary);
        // The yardstick of reads says something about reads only.
        if *method != Method::Poll {
            return floor;
        }
        Floor {
            point_select: distribution(&part.outcome.point_select),
            point_select_at_ack: distribution(&part.outcome.point_select_at_ack),
            ..floor
        }
    };
    part.gathered.floors.iter().map(floor).collect()
}

/// One method's floor, without a yardstick.
pub(crate) fn floor(shape: &str, method: Method, summary: &FloorSummary) -> Floor {
    let row = summary.row();
    Floor {
        shape: shape.to_owned(),
        method: method.name().to_owned(),
        rounds: row.rounds,
        from_ack: row.from_ack,
        estimate: row.estimate,
        midpoint_abs: summary.midpoint_abs(),
        error_us: row.error_us,
        from_primary: row.from_primary,
        ..Floor::default()
    }
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
        let mut loops: Vec<SweepLoop> = gathered
            .last_rows
            .iter()
            .filter(|sample| sample.replica == index)
            .filter_map(line)
            .collect();
        loops.sort_by_key(|row| row.sequence);
        SweepTable {
            replica: name.clone(),
            loops,
        }
    });
    tables.collect()
}
