//! Serves until the run ends.

use std::{
    net::TcpListener,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::Node;
use replimeter_instruments::{
    load::{self, FillProgress},
    preflight::Cluster,
    table::keep_alive,
};
use replimeter_model::{
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_run::{
    Event, Progress, ProgressDetail, RunContext, Stage,
    cli_error::CliError,
    workloads::{filling, workload},
};
use replimeter_web::front::FrontSpec;

use super::{
    Call, Front, WORKLOAD,
    gathered::{Gathered, ProcessorTime},
};
use crate::{
    data::Data,
    outages::Outages,
    site::{self, Site},
};

/// Timeout for a replica to receive the first rows.
const FILL_TIMEOUT: Duration = Duration::from_secs(600);
/// Interval between checks whether the run ends.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between checks of the run's lock.
const LOCK_INTERVAL: Nanos = Nanos(10_000_000_000);

/// Takes the address, and checks that the load balancer is there if one is needed.
pub(super) fn listen(cx: &RunContext<'_, Front>) -> Result<TcpListener, CliError> {
    site::check(&*cx.source(), cx.plan.fronts)?;
    TcpListener::bind(cx.plan.listen).map_err(|error| {
        CliError::usage(
            format!("cannot listen at {}: {error}", cx.plan.listen),
            "give another address with --listen; port 0 is any free port",
        )
    })
}

/// Creates the table, serves, and ends the front and what it runs on the servers.
pub(super) fn serve(
    cx: &mut RunContext<'_, Front>,
    listener: TcpListener,
    cluster: &mut Cluster,
    data: &mut Data,
) -> Result<(), CliError> {
    let plan = cx.plan;
    let observers = &cx.observers;
    let mut progress = |filled: &FillProgress| observers.progress(filling(filled));
    let mut set = load::fill(
        cluster,
        &workload(WORKLOAD)?,
        plan.data_size,
        FILL_TIMEOUT,
        &mut progress,
        cx.stop,
    )?;
    let warnings = std::mem::take(&mut set.warnings);
    let rows = set.rows;
    data.sets.push(set);
    cx.take(Call::Warnings(warnings))?;
    cx.stage(
        Stage::Prepare,
        "waiting for the replicas to receive the data",
    );
    let replicas: Vec<Node> = cluster.replica_nodes();
    for set in &data.sets {
        set.wait_on(&replicas, FILL_TIMEOUT, cx.stop)?;
    }
    let names = std::iter::once(cluster.primary.node.name.clone()).chain(cluster.replica_names());
    let gathered = Gathered::of(names.collect());
    let servers = site::servers(cluster);
    let spec = FrontSpec {
        names: plan.allow_host.clone(),
        reads: plan.reads,
        remedy: plan.remedy,
        primary_for: plan.primary_for.0,
        connections: plan.connections,
        cost: plan.front_cost.0,
        max_rows: plan.max_rows,
        rows,
        run: cx.clock.origin_unix_us() as u64,
        shows_servers: plan.listen.ip().is_loopback(),
        own_visitors: 0,
    };
    cx.stage(Stage::Prepare, "starting the fronts");
    let mut site = Site::start(cx, listener, servers, &spec, plan.fronts)?;
    let watched = watch(cx, &mut site, gathered, cluster);
    let left = site.end();
    let taken = cx.take(Call::Warnings(left.into_iter().collect()));
    watched.and(taken)
}

/// Takes the fronts' requests window by window, until the run ends.
fn watch(
    cx: &mut RunContext<'_, Front>,
    site: &mut Site,
    mut gathered: Gathered,
    cluster: &mut Cluster,
) -> Result<(), CliError> {
    let plan = cx.plan;
    let label = cx.accumulator.label.clone();
    let address = site.address.to_string();
    let until = plan
        .duration
        .map_or_else(|| "until Ctrl-C".to_owned(), |time| format!("for {time}"));
    let limit = match site.fronts.visitors() {
        (_, false) => String::new(),
        (visitors, true) => format!(
            ", with {visitors} connections of visitors at most, for which the limit of open files leaves room (ulimit -Hn)"
        ),
    };
    cx.observers.emit(Event::Note(&format!(
        "serving at http://{address}/ {until}{limit}"
    )));
    let (began, before) = (cx.clock.now(), site.processor_time());
    let end = plan
        .duration
        .map(|duration| began + Nanos::from(duration.0));
    let mut start = began;
    let mut outages = Outages::default();
    let mut lock_due = began + LOCK_INTERVAL;
    loop {
        let due = start + Nanos::from(plan.report_interval.0);
        let due = end.map_or(due, |end| if end < due { end } else { due });
        let mut failure = None;
        while cx.clock.now() < due && !cx.stop.load(Ordering::Relaxed) && failure.is_none() {
            thread::sleep(CHECK_INTERVAL);
            failure = site.failure();
        }
        // Asked first: a change whose effect led to the interruption is still taken.
        let interrupted = cx.stop.load(Ordering::Relaxed);
        for change in site.fronts.take_changes() {
            cx.observers.emit(Event::Note(&change.to_string()));
            outages.add(&change);
        }
        let now = cx.clock.now();
        let window = gathered.add(site.fronts.take_traffic(), start - began, now - began);
        let seconds = (now - began).as_micros() / 1e6;
        let after = site.processor_time();
        let us = |from: Duration, to: Duration| Nanos::from(to.saturating_sub(from)).as_micros();
        let used = ProcessorTime {
            fronts_us: us(before.0, after.0),
            balancer_us: before.1.zip(after.1).map(|(from, to)| us(from, to)),
        };
        cx.observers.progress(
            Progress::new(Stage::Measure, format!("serving at http://{address}/"))
                .done(seconds, plan.duration.map(|time| time.0.as_secs_f64()), "s")
                .with(ProgressDetail::Count(window.requests, "requests".into())),
        );
        let so_far = gathered.results(&label, &address, seconds, &used);
        cx.take(Call::Window {
            window,
            so_far: Box::new(so_far),
            outages: outages
                .warnings(Instant::now(), |server, hint| cluster.hint(server, hint))
                .collect(),
        })?;
        cx.so_far(|accumulator| accumulator.results.clone().unwrap_or_default());
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        if interrupted || end.is_some_and(|end| now >= end) {
            break;
        }
        start = now;
        if now >= lock_due {
            keep_alive(cluster)?;
            lock_due = now + LOCK_INTERVAL;
        }
    }
    if gathered.left_out() > 0 {
        cx.take(Call::Warnings(vec![Warning::new(
            WarningCode::LoadClientBound,
            format!(
                "{} requests are in no figure: they came faster than they could be recorded",
                gathered.left_out()
            ),
            "use a shorter --report-interval",
        )]))?;
    }
    // Without a requested end, an interruption by the user is the normal end.
    if plan.duration.is_some() && cx.stop.load(Ordering::Relaxed) {
        return Err(CliError::partial());
    }
    Ok(())
}
