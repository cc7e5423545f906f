//! A visitor of a site in front of the servers posts, and reloads until the post is shown.

use std::time::Instant;

use replimeter_engine::{
    position::ENABLE_IDS,
    source::{ServerSource, Servers, SourceError},
};
use replimeter_instruments::{
    clock::Clock,
    front::settings::Remedy,
    load::{self, FillProgress, Workload},
    preflight::Cluster,
    resources::{METER_INTERVAL, Meter, ResourceWatch},
    stale::{
        ReaderRef,
        settings::{SessionReset, StaleSite},
    },
};
use replimeter_model::{
    load::DataSize,
    read_consistency::ReadConsistency,
    target::Target,
    warning::{Warning, WarningCode},
};
use replimeter_run::{
    RunContext, Stage,
    cli_error::{CliError, FailureKind, unexpected},
    dry_run::PlanEffects,
    to_measure,
    workloads::{filling, workload},
};
use replimeter_web::{
    client::{PostingVisitor, check_ports},
    front::FrontSpec,
};

use super::{
    Stale,
    accumulator::Call,
    conditions::{CaseCondition, Curves, RoundsSeen, ServerStart, measure_case, place},
    end,
    load::CaseLoads,
    remedy::{Counted, SiteCase, SiteInUse},
};
use crate::{
    outages::Outages,
    site::{self, Site},
};

/// The workload whose table the posts are in, and its rows before the run.
const WORKLOAD: &str = "post-insert";
const ROWS: DataSize = DataSize::Rows(1000);
/// Connections of a front to each server: the one visitor needs one.
const CONNECTIONS: u32 = 2;

/// Checks what the site needs, before a server is started.
///
/// # Errors
/// When HAProxy is not installed, or ports are too few.
pub(super) fn check(source: &dyn ServerSource, through: &StaleSite) -> Result<(), SourceError> {
    site::check(source, through.site.fronts)?;
    if through.keep_alive.contains(&false) {
        check_ports()?;
    }
    Ok(())
}

/// Adds the site's part of a dry run.
///
/// # Errors
/// When the workload of the posts cannot be read, which is a bug.
pub(super) fn effects(
    effects: &mut PlanEffects<'_>,
    through: &StaleSite,
    more: u64,
) -> Result<(), CliError> {
    effects.tables(WORKLOAD, false)?;
    let remedies = through.remedies.iter().map(|remedy| remedy.name());
    effects.load(format!(
        "a visitor of a site posts and reloads, under each remedy ({}){}",
        remedies.collect::<Vec<_>>().join(", "),
        if through.keep_alive.len() > 1 {
            ", over a connection that is kept and over new ones"
        } else {
            ""
        }
    ));
    // The run's own, those of a start of fronts, the monitor's, and the meter's.
    let connections = u64::from(CONNECTIONS * through.site.fronts) + more + 5;
    for role in ["primary", "each replica"] {
        let done = "an insert or a select per request; a question for its state, twice a second";
        effects.cost(role, connections, done);
    }
    Ok(())
}

/// Measures every case in one start of a target, through a site.
pub(super) fn measure_start(
    cx: &mut RunContext<'_, Stale>,
    target: &Target,
    start: u32,
    workloads: &[(String, Workload)],
    curves: &mut Curves,
) -> Result<(), CliError> {
    let plan = &cx.plan.of_start(start);
    cx.on_checked(target, load::check, |cx, servers, mut cluster| {
        let found = load::claim(&mut cluster)?;
        cx.warn(found);
        cx.take(Call::Shape {
            label: servers.label().to_owned(),
            start,
            mode: cluster.mode,
        })?;
        let mut sets = CaseLoads::new(plan, workloads);
        let mut start = ServerStart {
            number: start,
            shape: servers.label(),
            plan,
            curves,
        };
        let result = posts(cx, &mut cluster, &mut sets)
            .and_then(|rows| cases(cx, &*servers, rows, &mut cluster, &mut start, &mut sets));
        cx.stage(
            Stage::CleanUp,
            "removing the posts and the data of the loads",
        );
        cx.warn(sets.remove(&cluster, servers.is_temporary()));
        end(cx, servers, cluster, &[], None, result)
    })
}

/// Creates the table of posts; returns its rows.
fn posts(
    cx: &mut RunContext<'_, Stale>,
    cluster: &mut Cluster,
    sets: &mut CaseLoads<'_>,
) -> Result<u64, CliError> {
    let replicas = cluster.replica_nodes();
    let mut progress = |filled: &FillProgress| cx.observers.progress(filling(filled));
    let posts = workload(WORKLOAD)?;
    let mut set = load::fill(
        cluster,
        &posts,
        ROWS,
        cx.plan.timeout.0,
        &mut progress,
        cx.stop,
    )?;
    cx.warn(std::mem::take(&mut set.warnings));
    let arrived = set.wait_on(&replicas, cx.plan.timeout.0, cx.stop);
    let rows = set.rows;
    sets.add(set);
    arrived?;
    Ok(rows)
}

/// Measures every case under every remedy; the servers have this number of posts.
fn cases<'s, 'a: 's>(
    cx: &mut RunContext<'a, Stale>,
    servers: &dyn Servers,
    rows: u64,
    cluster: &mut Cluster,
    start: &mut ServerStart<'_>,
    sets: &mut CaseLoads<'s>,
) -> Result<(), CliError> {
    let plan = cx.plan;
    let through = plan.site.as_ref();
    let through = through.ok_or_else(|| unexpected("the plan has no site"))?;
    let readers: Vec<ReaderRef> = (0..cluster.replicas.len())
        .map(ReaderRef::Replica)
        .collect();
    let mut next_round = 1;
    for case in &plan.cases {
        let Some(mut placed) = place(cx, sets, case, cluster, &readers, start.shape)? else {
            continue;
        };
        sets.prepare(cx, &mut placed, cluster)?;
        for remedy in &through.remedies {
            let mut site = match open(cx, servers, through, *remedy, rows) {
                Ok(site) => site,
                Err(failure)
                    if *remedy == Remedy::WaitForCommit
                        && through.remedies.len() > 1
                        && failure.kind == FailureKind::Failed =>
                {
                    cx.warn([Warning::new(
                        WarningCode::CaseLeftOut,
                        format!(
                            "{}: the remedy {} was left out: {}",
                            start.shape,
                            remedy.name(),
                            failure.message
                        ),
                        format!("{ENABLE_IDS}, or leave this remedy out"),
                    )]);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let (mut watched, mut outages) = (Ok(()), Outages::default());
            for keep_alive in &through.keep_alive {
                let site_case = SiteCase {
                    remedy: *remedy,
                    keep_alive: *keep_alive,
                    several: *remedy == Remedy::None && readers.len() > 1,
                };
                let mut what = format!("{case}, {}, {}", remedy.name(), site_case.connections());
                let condition = format!("{}, {what}", start.shape);
                if plan.starts > 1 {
                    what = format!("{what}, start {} of {}", start.number, plan.starts);
                }
                let case_condition = CaseCondition {
                    shape: start.shape,
                    case,
                    level: ReadConsistency::Off,
                    pool: SessionReset::Keep,
                    site: Some(site_case),
                    plan: start.plan_of(&condition),
                    what,
                    placed: &placed,
                };
                let mut seen = RoundsSeen::through(site.visited(*keep_alive, cx.clock)?);
                watched = measure_case(
                    cx,
                    cluster,
                    &readers[..readers.len().min(1)],
                    &case_condition,
                    sets,
                    next_round,
                    &mut seen,
                )
                .map(|next| next_round = next);
                start.keep_curve(condition, seen);
                let failure = watched
                    .as_ref()
                    .is_err_and(|failure| failure.kind == FailureKind::Failed);
                if let Some(failure) = site.site.failure().filter(|_| failure) {
                    watched = Err(failure.into());
                }
                let changes = site.site.fronts.take_changes();
                changes.iter().for_each(|change| outages.add(change));
                if watched.is_err() {
                    break;
                }
            }
            let hint = |server: &str, hint: &str| cluster.hint(server, hint);
            cx.warn(
                outages
                    .warnings(Instant::now(), hint)
                    .map(|warning| Warning {
                        message: format!("{}, {}: {}", start.shape, remedy.name(), warning.message),
                        ..warning
                    }),
            );
            cx.warn(site.site.end());
            watched?;
        }
    }
    Ok(())
}

/// A site, and the meter of it and its servers.
struct MeteredSite {
    site: Site,
    watch: ResourceWatch,
}

impl MeteredSite {
    /// Returns it with a visitor.
    fn visited(&self, keep_alive: bool, clock: Clock) -> Result<SiteInUse<'_>, CliError> {
        let visitor = PostingVisitor::new(self.site.address, keep_alive, clock);
        let visitor = visitor.map_err(|error| {
            CliError::failed(
                format!("cannot start the visitor: {error}"),
                "raise the limit of open files (ulimit -n)",
            )
        })?;
        Ok(SiteInUse {
            watch: &self.watch,
            visitor,
            counted: Counted::new(&self.site.fronts),
        })
    }
}

/// Starts a site, and the meter of it and its servers.
fn open(
    cx: &RunContext<'_, Stale>,
    servers: &dyn Servers,
    through: &StaleSite,
    remedy: Remedy,
    rows: u64,
) -> Result<MeteredSite, CliError> {
    // Its own connections to the servers.
    let mut cluster = load::check(&to_measure(servers))?;
    let meter = Meter::open(servers.members(), &cx.clock)?;
    let spec = FrontSpec {
        remedy,
        primary_for: through.primary_for.0,
        ..site::measured(cx, through.site, rows, CONNECTIONS)
    };
    let behind = site::servers(&mut cluster);
    let site = Site::start(cx, site::listen()?, behind, &spec, through.site.fronts)?;
    let watch = ResourceWatch::start(meter, METER_INTERVAL);
    watch.add(site.processes());
    Ok(MeteredSite { site, watch })
}
