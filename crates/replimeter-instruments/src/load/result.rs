//! Results of a workload's threads, and warnings about them.

use std::time::Duration;

use replimeter_engine::ServerError;
use replimeter_model::{
    load::{ClientUse, LoadError, LoadRecord, NodeShare, OpenLoop, Rate, Retried},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_stats::{series::distribution, signed::SignedHistogram};
use serde::{Deserialize, Serialize};

/// Share of the client's limit above which the client is the bottleneck.
const LIMITED: f64 = 0.8;
/// Share of the cores used by load threads above which a warning is given.
const BUSY: f64 = 0.9;
/// Share of the median latency above which the client's own delay is warned of.
const DELAYED: f64 = 0.5;

/// A server with few connections left when a load's were open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScarceConnections {
    /// The server's name.
    pub name: String,
    /// Connections that it still took.
    pub left: u64,
    /// Its `max_connections`.
    pub maximum: u64,
}

/// Result of a load group in one window.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GroupResult {
    /// The workload's name.
    pub workload: String,
    /// Number of connections.
    pub threads: u32,
    /// Number of this machine's threads that served them; 0 in runs that were recorded when each connection had one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub loops: u32,
    /// The servers' names.
    pub nodes: Vec<String>,
    /// Schedule of an open loop.
    pub rate: Option<OpenLoop>,
    /// Statements per operation.
    pub statements_per_operation: u64,
    /// Duration of the uncounted warm-up.
    pub ramp: Nanos,
    /// When the counted part began.
    pub began: Nanos,
    /// Duration of the counted part.
    pub counted: Nanos,
    /// Operations that started in the counted part and were completed.
    pub operations: u64,
    /// Statements of these operations.
    pub statements: u64,
    /// Operations per second, with a batch-means interval.
    pub throughput: Rate,
    /// The same by the whole second of their start, for the first ten hours.
    pub per_second: Vec<u64>,
    /// Share of each server.
    pub by_node: Vec<NodeShare>,
    /// Latency from an operation's intended start; in a closed loop that is the end of the one before.
    pub response: SignedHistogram,
    /// Latency from the actual start. Both include retries.
    pub service: SignedHistogram,
    /// Retries, by reason.
    pub retries: Vec<Retried>,
    /// Operations that failed.
    pub failed: u64,
    /// Errors by number, including the retried ones.
    pub errors: Vec<LoadError>,
    /// Operations of an open loop that were due but not started at the end.
    pub waiting: Option<u64>,
    /// The same count at the end of each counted second.
    pub waiting_per_second: Vec<u64>,
    /// Processor time of the load's threads in the counted part.
    pub client_cpu: Duration,
    /// Sum of the threads' times from the start of the first counted operation to the end of the last.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub busy: Nanos,
    /// Time that the threads were ready to run but had no core, in total; `None` where the system does
    /// not report it.
    pub client_delay: Option<Duration>,
    /// How long answers had arrived before their thread read them.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub loop_delay: SignedHistogram,
    /// This machine's cores.
    pub cores: usize,
    /// Pings per second measured before ([`super::WorkerPool::measure_limit`]).
    pub limit_per_s: Option<f64>,
    /// Servers that had few connections left for others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scarce: Vec<ScarceConnections>,
    /// The error that ended the load early.
    #[serde(skip)]
    pub failure: Option<ServerError>,
    /// Whether the user stopped it.
    pub interrupted: bool,
}

fn is_empty(histogram: &SignedHistogram) -> bool {
    histogram.count() == 0
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Returns whether a time was not measured, as in runs that were recorded before it was.
fn is_unknown(time: &Nanos) -> bool {
    *time == Nanos(0)
}

impl GroupResult {
    /// Returns the record for the report; the caller fills in the shape.
    #[must_use]
    pub fn record(&self) -> LoadRecord {
        LoadRecord {
            shape: String::new(),
            workload: self.workload.clone(),
            threads: self.threads,
            node: self.nodes.join(", "),
            rate: self.rate.map(|open| open.rate),
            statements: self.statements_per_operation,
            warm_up_us: self.ramp.as_micros(),
            counted_us: self.counted.as_micros(),
            passes: self.operations,
            throughput: self.throughput,
            latency: distribution(&self.response),
            service: distribution(&self.service),
            retries: self.retries.iter().map(|retried| retried.count).sum(),
            failed: self.failed,
            waiting: self.waiting,
            errors: self.errors.clone(),
            arrivals: self.rate.map(|open| open.arrivals),
            retried: self.retries.clone(),
            by_node: if self.by_node.len() > 1 {
                self.by_node.clone()
            } else {
                Vec::new()
            },
            per_second: self.per_second.clone(),
            waiting_per_second: self.waiting_per_second.clone(),
            client: self.client(),
        }
    }

    /// Returns the result with the mean time that threads took for their operations as its duration, for a
    /// closed loop whose threads all started with the counted part. Operations over the planned duration
    /// would be too many by half an operation per thread, which matters in a short part.
    #[must_use]
    pub fn over_threads_time(self) -> Self {
        let counted = Nanos(self.busy.0 / i64::from(self.threads.max(1)));
        if counted <= Nanos(0) {
            return self;
        }
        Self { counted, ..self }
    }

    /// Returns the client's cost, and its share of the client's limit.
    #[must_use]
    pub fn client(&self) -> ClientUse {
        let seconds = self.counted.0 as f64 / 1e9;
        let cores = self.cores as f64;
        let share = |of: f64, whole: f64| (whole > 0.0).then(|| of / whole);
        let statements_per_s = share(self.statements as f64, seconds);
        let threads = if self.loops > 0 {
            self.loops
        } else {
            self.threads
        };
        ClientUse {
            cpu_us_per_op: share(self.client_cpu.as_secs_f64() * 1e6, self.operations as f64),
            cpu_share: share(self.client_cpu.as_secs_f64(), seconds * cores),
            ready_share: self
                .client_delay
                .and_then(|delay| share(delay.as_secs_f64(), seconds * f64::from(threads))),
            limit_per_s: self.limit_per_s,
            limit_share: statements_per_s
                .zip(self.limit_per_s)
                .and_then(|(got, limit)| share(got, limit)),
            loops: (self.loops > 0).then_some(self.loops),
            loop_delay_p50_us: self.loop_delay.quantile(0.5).map(Nanos::as_micros),
            loop_delay_p99_us: self.loop_delay.quantile(0.99).map(Nanos::as_micros),
        }
    }

    /// Returns warnings about the results.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = warnings_of(&self.record());
        warnings.extend(uneven(&self.workload, self.threads, &self.nodes));
        warnings.extend(self.scarce.iter().map(|scarce| {
            Warning::new(
                WarningCode::ConnectionsScarce,
                format!(
                    "{}: the load of {} threads left {} of its {} connections (max_connections) free",
                    scarce.name, self.threads, scarce.left, scarce.maximum
                ),
                "raise max_connections on the server, or use fewer threads: the server refuses other clients when none is free",
            )
        }));
        warnings
    }
}

/// Returns a warning when servers that share a load have different numbers of threads.
fn uneven(workload: &str, threads: u32, nodes: &[String]) -> Option<Warning> {
    let servers = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    (servers > 1 && !threads.is_multiple_of(servers)).then(|| {
        let idle = servers.saturating_sub(threads);
        let part = if idle > 0 { format!("{idle} of them had no thread") } else { "some had one thread more".to_owned() };
        Warning::new(
            WarningCode::UnevenLoad,
            format!(
                "the load {workload}: {threads} threads cannot be shared evenly by {servers} servers ({}); {part}",
                nodes.join(", ")
            ),
            format!("use a multiple of {servers} threads"),
        )
    })
}

/// Returns warnings about a load.
pub(super) fn warnings_of(record: &LoadRecord) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let what = format!(
        "the load {}:{}@{}",
        record.workload, record.threads, record.node
    );
    if record.failed > 0 {
        let first = record
            .errors
            .first()
            .map(|error| error.message.clone())
            .unwrap_or_default();
        warnings.push(Warning::new(
            WarningCode::LoadErrors,
            format!(
                "{what}: {} passes failed and {} completed; the most frequent error: {first}",
                record.failed, record.passes
            ),
            "see `errors` in the JSON document for each error and its count",
        ));
    }
    let waiting = record.waiting.unwrap_or(0);
    if let Some(rate) = record.rate
        && waiting > u64::from(record.threads).max(rate / 10)
    {
        let grew = match record.waiting_per_second.as_slice() {
            [first, .., last] if last > first => {
                format!(", {first} after the first counted second")
            }
            _ => String::new(),
        };
        warnings.push(Warning::new(
            WarningCode::LoadNotHeld,
            format!(
                "{what}: the rate of {rate} per second was not sustained; {waiting} passes were due but not started at the end{grew}"
            ),
            "use a lower rate or more threads; the latency counts from the intended starts",
        ));
    }
    if let (Some(limit), Some(share)) = (record.client.limit_per_s, record.client.limit_share)
        && share >= LIMITED
    {
        warnings.push(Warning::new(
            WarningCode::LoadClientBound,
            format!(
                "{what}: the client is the bottleneck: the load reached {:.0} % of its ping limit of {limit:.0}/s",
                share * 100.0
            ),
            "use heavier statements or another machine for the load; the figures describe the client, not the servers",
        ));
    } else if let Some(share) = record.client.cpu_share.filter(|share| *share >= BUSY) {
        warnings.push(Warning::new(
            WarningCode::LoadClientBound,
            format!(
                "{what}: the client is the bottleneck: its threads used {:.0} % of this machine's cores",
                share * 100.0
            ),
            "use another machine for the load, or a machine with more cores",
        ));
    } else if let (Some(delay), Some(median)) =
        (record.client.loop_delay_p50_us, record.latency.p50_us)
        && delay > DELAYED * median
    {
        warnings.push(Warning::new(
            WarningCode::LoadClientBound,
            format!(
                "{what}: the client is the bottleneck: half of the answers had arrived {delay:.0} µs or longer before it read them, of a median latency of {median:.0} µs"
            ),
            "use fewer threads, or another machine for the load; the latencies contain that delay",
        ));
    }
    warnings
}
