//! Clients that reach the servers through a site.

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use replimeter_engine::source::{ServerSource, SourceError, SourceErrorKind};
use replimeter_instruments::{
    MeasureError,
    clock::Clock,
    front::{results::RequestKind, site::HttpDriver},
    load::{GroupProgress, GroupResult, LoadProgress},
    preflight::Cluster,
    resources::NamedProcess,
    scale::settings::ScaleSite,
    trial::{Clients, OperationResult},
};
use replimeter_model::{
    load::{Arrivals, LoadError, NodeShare, OpenLoop},
    time::Nanos,
};
use replimeter_run::{
    RunContext,
    cli_error::CliError,
    run_dir::{AB, RunDir, replace},
};
use replimeter_web::{
    client::{self, Ab, AbResult, Request, RequestsResult, Visitors},
    front::{FrontSpec, Traffic},
};

use super::{Scale, accumulator::BlockPlace};
use crate::site::{self, Site};

/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
const SECOND: i64 = 1_000_000_000;

/// Returns the site's part of a dry run.
pub(super) fn effect(through: &ScaleSite) -> String {
    format!(
        "they are visitors of a site, sent by {}: {} in front of the servers, each with as many connections to every server",
        match through.driver {
            HttpDriver::Ab => "ab",
            HttpDriver::Replimeter => "this tool",
        },
        if through.site.fronts > 1 {
            format!("HAProxy and {} fronts", through.site.fronts)
        } else {
            "one front".to_owned()
        }
    )
}

/// Checks what the site and its driver need, before a server is started.
///
/// # Errors
/// When a program is not installed, or ports are too few.
pub(super) fn check(source: &dyn ServerSource, through: &ScaleSite) -> Result<(), SourceError> {
    site::check(source, through.site.fronts)?;
    if through.driver == HttpDriver::Ab {
        Ab::check(source)?;
    }
    if !through.keep_alive {
        client::check_ports()?;
    }
    Ok(())
}

enum Driver {
    Ab(Ab),
    Visitors(Visitors),
}

/// A site in front of one start of the servers, and what sends it requests.
pub(super) struct ScaleClients {
    site: Site,
    driver: Driver,
    clock: Clock,
    clients: u32,
    /// The names of the servers, the primary first.
    servers: Vec<String>,
}

impl ScaleClients {
    /// Starts a site in front of servers whose data set has this number of rows.
    ///
    /// # Errors
    /// When a server refuses, or the system.
    pub(super) fn start(
        cx: &RunContext<'_, Scale>,
        through: &ScaleSite,
        mut cluster: Cluster,
        rows: u64,
    ) -> Result<Self, CliError> {
        let plan = cx.plan;
        let primary = cluster.primary.node.name.clone();
        let servers = std::iter::once(primary).chain(cluster.replica_names());
        let servers: Vec<String> = servers.collect();
        // A front gets any share of the requests.
        let connections = plan.threads;
        let spec = FrontSpec {
            reads: plan.reads,
            ..site::measured(cx, through.site, rows, connections)
        };
        let behind = site::servers(&mut cluster);
        let site = Site::start(cx, site::listen()?, behind, &spec, through.site.fronts)?;
        let (address, clients) = (site.address, plan.threads);
        let driver = match through.driver {
            HttpDriver::Ab => Driver::Ab(Ab::find(
                &*cx.source(),
                address,
                clients,
                through.keep_alive,
            )?),
            HttpDriver::Replimeter => Driver::Visitors(Visitors {
                address,
                number: clients,
                keep_alive: through.keep_alive,
                rate: through.rate,
                seed: plan.seed,
            }),
        };
        Ok(Self {
            site,
            driver,
            clock: cx.clock,
            clients,
            servers,
        })
    }

    /// Returns why a block does not count: a server was out of use.
    pub(super) fn absence(&self) -> Option<String> {
        let changes = self.site.fronts.take_changes();
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        (!changes.is_empty()).then(|| changes.join("; "))
    }

    /// Returns the processes of the site.
    pub(super) fn processes(&self) -> Vec<NamedProcess> {
        self.site.processes()
    }

    /// Returns the clients of one block.
    pub(super) fn of_block<'a>(
        &'a mut self,
        source: &'a dyn ServerSource,
        run_dir: &'a RunDir,
        place: &BlockPlace,
    ) -> BlockClients<'a> {
        BlockClients {
            clients: self,
            source,
            run_dir,
            place: format!(
                "{}-replicas-start-{}-block-{}",
                place.replicas, place.start, place.block
            ),
        }
    }

    /// Ends the site.
    pub(super) fn end(self) {
        self.site.end();
    }
}

/// The clients of a block.
pub(super) struct BlockClients<'a> {
    clients: &'a mut ScaleClients,
    source: &'a dyn ServerSource,
    run_dir: &'a RunDir,
    /// The block in names of files.
    place: String,
}

fn kind_of(name: &str) -> (Request, RequestKind) {
    match name {
        "select" => (client::SELECT, RequestKind::Select),
        _ => (client::INSERT, RequestKind::Insert),
    }
}

/// Returns the number of answers to requests of a kind.
fn answers(traffic: &Traffic, kind: RequestKind) -> u64 {
    let answered = traffic.answered.iter();
    answered.filter(|one| one.kind == kind).count() as u64
}

impl Clients for BlockClients<'_> {
    fn run(
        &mut self,
        kinds: &[&'static str],
        length: Duration,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&LoadProgress),
    ) -> Result<Vec<OperationResult>, MeasureError> {
        let requests: Vec<Request> = kinds.iter().map(|name| kind_of(name).0).collect();
        let clock = self.clients.clock;
        // What came before.
        drop(self.clients.site.fronts.take_traffic());
        let began = clock.now();
        let mut reported = Instant::now();
        let mut traffic = Traffic::default();
        let site = &self.clients.site;
        let mut waiting = || {
            if reported.elapsed() < PROGRESS_INTERVAL {
                return;
            }
            reported = Instant::now();
            let more = site.fronts.take_traffic();
            let group = |name: &&str| GroupProgress {
                operations: answers(&more, kind_of(name).1),
                ..GroupProgress::default()
            };
            progress(&LoadProgress {
                at: clock.now() - began,
                counted: true,
                load_groups: kinds.iter().map(group).collect(),
            });
            traffic.append(more);
        };
        let mut parts = match &self.clients.driver {
            Driver::Ab(ab) => {
                let results =
                    ab.run(self.source, &requests, length.as_secs(), stop, &mut waiting)?;
                self.keep(kinds, &results)?;
                let results = kinds.iter().zip(results);
                results
                    .map(|(kind, one)| of_ab(kind, began, one))
                    .collect::<Vec<_>>()
            }
            Driver::Visitors(visitors) => {
                let run = visitors.run(&requests, length, clock, stop, &mut waiting);
                let run = run.map_err(system)?;
                let results = kinds.iter().zip(run.results);
                let mut parts: Vec<_> = results
                    .map(|(kind, one)| of_visitors(kind, visitors, one))
                    .collect();
                // One thread serves all kinds.
                if let Some(first) = parts.first_mut() {
                    first.result.client_cpu = run.cpu;
                    first.result.loops = 1;
                }
                parts
            }
        };
        if let Some(failure) = self.clients.site.failure() {
            return Err(failure.into());
        }
        traffic.append(self.clients.site.fronts.take_traffic());
        for part in &mut parts {
            self.complete(part, &traffic);
            if part.result.operations == 0 && part.result.failed > 0 {
                let reason = part.result.errors.first();
                let reason = reason.map_or("no answer", |error| &error.message);
                return Err(failed(format!("no {} was answered: {reason}", part.kind)));
            }
        }
        Ok(parts)
    }
}

fn failed(message: String) -> MeasureError {
    let hint = "see the logs of the servers, and of the site in the run directory";
    SourceError::new(SourceErrorKind::Failed, message, hint).into()
}

fn system(error: std::io::Error) -> MeasureError {
    failed(format!("cannot run the visitors: {error}"))
}

impl BlockClients<'_> {
    /// Keeps what `ab` printed and its percentiles in the run directory.
    fn keep(&self, kinds: &[&str], results: &[AbResult]) -> Result<(), MeasureError> {
        let failed =
            |error| MeasureError::Sink(format!("{}: {error}", self.run_dir.file(AB).display()));
        let folder = self.run_dir.folder(AB).map_err(failed)?;
        for (kind, result) in kinds.iter().zip(results) {
            let name = format!("{}-{kind}", self.place);
            for (ending, text) in [("txt", &result.output), ("csv", &result.csv)] {
                let path = folder.join(format!("{name}.{ending}"));
                replace(&path, text.as_bytes(), false).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Adds what only the fronts know: the servers that answered, reasons of errors, and for `ab` the answers of each second.
    fn complete(&self, part: &mut OperationResult, traffic: &Traffic) {
        let result = &mut part.result;
        let kind = kind_of(&part.kind).1;
        result.threads = self.clients.clients;
        result.cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let of_kind = || traffic.answered.iter().filter(|one| one.kind == kind);
        let seconds = result.counted.0 as f64 / 1e9;
        if part.latency_us.is_some() {
            // `ab` also counts answers that were cut off.
            let cut = result.operations.saturating_sub(answers(traffic, kind));
            let cut = if traffic.left_out > 0 { 0 } else { cut };
            result.operations -= cut;
            result.statements -= cut;
            result.failed += cut;
        }
        for (index, name) in self.clients.servers.iter().enumerate() {
            let operations = of_kind().filter(|one| one.server == index).count() as u64;
            if operations > 0 {
                result.nodes.push(name.clone());
                result.by_node.push(NodeShare {
                    node: name.clone(),
                    operations,
                    per_s: (seconds > 0.0).then(|| operations as f64 / seconds),
                });
            }
        }
        let whole = usize::try_from(result.counted.0 / SECOND).unwrap_or(0);
        if part.latency_us.is_some() {
            result.per_second = vec![0; whole];
            for one in of_kind() {
                let second =
                    usize::try_from((one.at - result.began).0 / SECOND).unwrap_or(usize::MAX);
                if let Some(count) = result.per_second.get_mut(second) {
                    *count += 1;
                }
            }
        }
        result.per_second.truncate(whole);
        if result.failed > 0 && result.errors.is_empty() {
            result.errors = errors(traffic.errors.iter());
        }
    }
}

fn errors<'a>(of: impl Iterator<Item = (&'a String, &'a u64)>) -> Vec<LoadError> {
    let mut errors: Vec<LoadError> = of
        .map(|(message, count)| LoadError {
            code: None,
            count: *count,
            message: message.clone(),
        })
        .collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    errors
}

fn of_ab(kind: &str, began: Nanos, one: AbResult) -> OperationResult {
    let latency_us = Some(one.latency_us());
    OperationResult {
        kind: kind.to_owned(),
        latency_us,
        result: GroupResult {
            workload: kind.to_owned(),
            statements_per_operation: 1,
            began,
            counted: Nanos((one.seconds * 1e9) as i64),
            operations: one.completed,
            statements: one.completed,
            failed: one.failed,
            client_cpu: one.cpu,
            ..GroupResult::default()
        },
    }
}

fn of_visitors(kind: &str, visitors: &Visitors, one: RequestsResult) -> OperationResult {
    OperationResult {
        kind: kind.to_owned(),
        latency_us: None,
        result: GroupResult {
            workload: kind.to_owned(),
            statements_per_operation: 1,
            rate: visitors.rate.map(|rate| OpenLoop {
                rate,
                arrivals: Arrivals::Poisson,
            }),
            waiting: visitors.rate.map(|_| one.waiting),
            began: one.began,
            counted: one.counted,
            operations: one.completed,
            statements: one.completed,
            per_second: one.per_second,
            response: one.response,
            service: one.service,
            failed: one.failed,
            errors: errors(one.errors.iter()),
            busy: one.busy,
            ..GroupResult::default()
        },
    }
}
