//! The loads of the cases: data sets filled once per target, threads for each case.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use replimeter_engine::{Node, ServerError, dialect::sync_reads::Guarantee};
use replimeter_instruments::{
    MeasureError,
    load::{BackgroundLoad, DataSet, FillProgress, LoadGroup, Versions, Workload, fill},
    preflight::Cluster,
    stale::{
        self, ReaderRef,
        settings::{LoadCase, READERS, StalePlan},
    },
};
use replimeter_model::{
    load::{LoadRate, LoadSpec, OpenLoop},
    replication::Relation,
    target::PRIMARY,
    time::Nanos,
    warning::Warning,
};
use replimeter_run::{
    RunContext, Stage,
    cli_error::CliError,
    workloads::{filling, workload},
};

use super::Stale;

/// Timeout for the replicas to apply a data set.
const ARRIVAL: Duration = Duration::from_secs(600);

/// How long the loads of a case run back to back to find their rate.
const TRIAL: Duration = Duration::from_secs(3);
/// Operations of a trial from which a load has a rate.
const LEAST_OPERATIONS: u64 = 10;
/// How often the end of a trial is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A load, and where it runs.
pub(super) struct PlacedLoad<'a> {
    workload: &'a Workload,
    spec: &'a LoadSpec,
    node: Node,
    server: ReaderRef,
    reads_only: bool,
    rate: Option<OpenLoop>,
}

impl PlacedLoad<'_> {
    pub(super) fn workload(&self) -> &Workload {
        self.workload
    }

    /// Returns its name in reports.
    pub(super) fn name(&self) -> String {
        format!(
            "{}:{}@{}",
            self.workload.name, self.spec.threads, self.node.name
        )
    }
}

/// Returns the readers of a case with checked loads: the servers on which a load reads versions, among the
/// requested ones.
///
/// # Errors
/// The reason why nothing can be checked.
pub(super) fn judged_readers(
    placed: &[PlacedLoad<'_>],
    wanted: Option<&[ReaderRef]>,
    case: &LoadCase,
) -> Result<Vec<ReaderRef>, String> {
    if placed
        .iter()
        .all(|load| load.workload.writes_versions().is_none())
    {
        return Err(format!(
            "no load of `{case}` writes row versions, so its reads cannot be checked"
        ));
    }
    let mut readers: Vec<ReaderRef> = Vec::new();
    for load in placed
        .iter()
        .filter(|load| load.workload.reads_versions().is_some())
    {
        if !readers.contains(&load.server)
            && wanted.is_none_or(|wanted| wanted.contains(&load.server))
        {
            readers.push(load.server);
        }
    }
    if readers.is_empty() {
        return Err(format!(
            "no load of `{case}` reads row versions on a reader"
        ));
    }
    Ok(readers)
}

/// Returns the servers on which loads write versions.
pub(super) fn writers_of(placed: &[PlacedLoad<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for load in placed
        .iter()
        .filter(|load| load.workload.writes_versions().is_some())
    {
        if !names.contains(&load.node.name) {
            names.push(load.node.name.clone());
        }
    }
    names
}

/// How the reads of a load wait, and where they are checked.
pub(super) struct ReadJudging<'a> {
    pub(super) versions: Arc<Versions>,
    /// The servers whose reads are checked, and how they are made to wait.
    pub(super) readers: &'a [ReaderRef],
    pub(super) guarantees: &'a [Guarantee],
}

impl ReadJudging<'_> {
    /// Returns the first statements of a load's connections.
    fn session(&self, load: &PlacedLoad<'_>) -> Vec<String> {
        let reader = self
            .readers
            .iter()
            .position(|reader| *reader == load.server);
        let mut session = Vec::new();
        if let Some(guarantee) = reader.and_then(|at| self.guarantees.get(at))
            && load.workload.reads_versions().is_some()
        {
            session.extend_from_slice(&guarantee.reader);
        }
        // The writer's statements are the same for every reader, if there are any.
        let writer = self
            .guarantees
            .iter()
            .find(|guarantee| !guarantee.writer.is_empty());
        if let Some(guarantee) = writer.filter(|_| load.workload.writes_versions().is_some()) {
            session.extend_from_slice(&guarantee.writer);
        }
        session
    }

    /// Returns the index of a load's server among the readers; beyond them for an unchecked load.
    fn place(&self, load: &PlacedLoad<'_>) -> usize {
        self.readers
            .iter()
            .position(|reader| *reader == load.server)
            .unwrap_or(usize::MAX)
    }
}

/// Workloads and their data, for all cases of a target.
pub(super) struct CaseLoads<'a> {
    plan: &'a StalePlan,
    workloads: &'a [(String, Workload)],
    sets: Vec<DataSet>,
}

/// Reads every workload of a plan before anything is changed.
pub(super) fn workloads(plan: &StalePlan) -> Result<Vec<(String, Workload)>, CliError> {
    let mut read: Vec<(String, Workload)> = Vec::new();
    for load in plan.cases.iter().flat_map(|case| &case.0) {
        if !read.iter().any(|(name, _)| *name == load.workload) {
            read.push((load.workload.clone(), workload(&load.workload)?));
        }
    }
    for (index, (name, one)) in read.iter().enumerate() {
        if let Some((other, table)) = read[..index]
            .iter()
            .find_map(|(other, before)| Some((other, one.collides(before)?)))
        {
            return Err(CliError::usage(
                format!("the workloads {other} and {name} define different tables named `{table}`"),
                "measure them in separate runs",
            ));
        }
    }
    Ok(read)
}

/// Returns the servers that a load's node stands for; none if there is no third server.
fn place(
    load: &LoadSpec,
    cluster: &Cluster,
    readers: &[ReaderRef],
) -> Result<Vec<ReaderRef>, ServerError> {
    let mut all = std::iter::once(ReaderRef::Writer)
        .chain((0..cluster.replicas.len()).map(ReaderRef::Replica));
    let found = match load.node.as_str() {
        PRIMARY | "writer" => Some(ReaderRef::Writer),
        "reader" => readers.first().copied(),
        READERS => return Ok(readers.to_vec()),
        "third" => all.find(|server| *server != ReaderRef::Writer && !readers.contains(server)),
        name => {
            let found = all.find(|server| server.name(cluster) == name);
            return found
                .map(|found| vec![found])
                .ok_or_else(|| stale::unknown(cluster, name, "cannot place the load"));
        }
    };
    Ok(found.into_iter().collect())
}

/// Returns where loads run, relative to the measurement.
pub(super) fn load_on(case: &LoadCase, cluster: &Cluster, readers: &[ReaderRef]) -> String {
    let part = |load: &LoadSpec| match place(load, cluster, readers).unwrap_or_default().first() {
        Some(ReaderRef::Writer) => "writer",
        Some(server) if readers.contains(server) => "reader",
        _ => "third",
    };
    let mut parts: Vec<&str> = case.0.iter().map(part).collect();
    parts.dedup();
    parts.join(", ")
}

impl<'a> CaseLoads<'a> {
    /// Creates a state without data.
    pub(super) fn new(plan: &'a StalePlan, workloads: &'a [(String, Workload)]) -> Self {
        Self {
            plan,
            workloads,
            sets: Vec::new(),
        }
    }

    /// Returns where the loads of a case run, or the reason why they cannot.
    ///
    /// # Errors
    /// If a load names a server that does not exist.
    pub(super) fn placed(
        &self,
        case: &'a LoadCase,
        cluster: &Cluster,
        readers: &[ReaderRef],
    ) -> Result<Result<Vec<PlacedLoad<'a>>, String>, ServerError> {
        let mut placed = Vec::new();
        for spec in &case.0 {
            let servers = place(spec, cluster, readers)?;
            if servers.is_empty() {
                return Ok(Err(format!(
                    "`{spec}` needs a third server, which is neither written to nor read"
                )));
            }
            let mut workloads = self.workloads.iter();
            let Some((_, workload)) = workloads.find(|(name, _)| *name == spec.workload) else {
                return Ok(Err(format!("`{spec}` names an unknown workload")));
            };
            for server in servers {
                let (discovered, relation) = server.of(cluster);
                let takes_writes =
                    relation != Relation::Channel && discovered.facts.read_only().is_none();
                if !takes_writes && !workload.reads_only() {
                    return Ok(Err(format!(
                        "`{spec}` writes, but {} accepts no writes",
                        discovered.node.name
                    )));
                }
                placed.push(PlacedLoad {
                    workload,
                    spec,
                    node: discovered.node.clone(),
                    server,
                    reads_only: !takes_writes,
                    rate: match self.plan.rate {
                        Some(LoadRate::PerSecond(rate)) => Some(self.open_loop(rate)),
                        // It is found by a trial.
                        Some(LoadRate::Percent(_)) | None => None,
                    },
                });
            }
        }
        Ok(Ok(placed))
    }

    /// Adds a data set that is there already, and is removed with the others.
    pub(super) fn add(&mut self, set: DataSet) {
        self.sets.push(set);
    }

    /// Fills the missing data of a case's loads, and finds their rates.
    pub(super) fn prepare(
        &mut self,
        cx: &mut RunContext<'_, Stale>,
        placed: &mut [PlacedLoad<'_>],
        cluster: &mut Cluster,
    ) -> Result<(), CliError> {
        self.fill(cx, placed, cluster)?;
        self.find_rates(cx, placed)
    }

    /// Fills the missing data of a case's loads.
    fn fill(
        &mut self,
        cx: &mut RunContext<'_, Stale>,
        placed: &[PlacedLoad<'_>],
        cluster: &mut Cluster,
    ) -> Result<(), CliError> {
        for load in placed.iter().filter(|load| load.workload.needs_setup()) {
            if self.sets.iter().any(|set| set.is_of(load.workload)) {
                continue;
            }
            let size = self
                .plan
                .load_data_size
                .unwrap_or_else(|| load.workload.default_size());
            let replicas = cluster.replica_nodes();
            let mut progress = |filled: &FillProgress| cx.observers.progress(filling(filled));
            let mut set = fill(
                cluster,
                load.workload,
                size,
                ARRIVAL,
                &mut progress,
                cx.stop,
            )?;
            cx.warn(std::mem::take(&mut set.warnings));
            cx.stage(Stage::Prepare, "waiting until every server has the data");
            let arrived = set.wait_on(&replicas, ARRIVAL, cx.stop);
            self.sets.push(set);
            arrived?;
        }
        Ok(())
    }

    fn open_loop(&self, rate: u64) -> OpenLoop {
        OpenLoop {
            rate,
            arrivals: self.plan.arrivals,
        }
    }

    /// Gives the loads of a case their share of what they reach together, back to back.
    fn find_rates(
        &self,
        cx: &mut RunContext<'_, Stale>,
        placed: &mut [PlacedLoad<'_>],
    ) -> Result<(), CliError> {
        let Some(LoadRate::Percent(percent)) = self.plan.rate.filter(|_| !placed.is_empty()) else {
            return Ok(());
        };
        let mut load = self.connect(cx, placed, None)?;
        cx.stage(Stage::WarmUp, "trying what the load reaches back to back");
        let (clock, stop) = (cx.clock, cx.stop);
        let ran = load.run_while(stop, |running| {
            let end = clock.now() + Nanos::from(TRIAL);
            while clock.now() < end && !stop.load(Ordering::Relaxed) && !running.has_failed() {
                thread::sleep(POLL_INTERVAL);
            }
        });
        cx.warn(ran.warnings);
        ran.failure
            .map_or(Ok(()), |error| Err(MeasureError::from(error)))?;
        for (placed, reached) in placed.iter_mut().zip(load.results()) {
            let seconds = reached.counted.as_micros() / 1e6;
            let rate = reached.operations as f64 / seconds * f64::from(percent) / 100.0;
            placed.rate = (reached.operations >= LEAST_OPERATIONS)
                .then(|| self.open_loop((rate.round() as u64).max(1)));
        }
        Ok(())
    }

    /// Removes the data, except from servers that will be removed anyway.
    pub(super) fn remove(self, cluster: &Cluster, goes_anyway: bool) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for set in self.sets {
            if goes_anyway {
                set.keep();
            } else {
                warnings.extend(set.remove(&cluster.primary.node));
            }
        }
        warnings
    }

    /// Connects a case's loads.
    pub(super) fn connect(
        &self,
        cx: &RunContext<'_, Stale>,
        placed: &[PlacedLoad<'_>],
        judging: Option<&ReadJudging<'_>>,
    ) -> Result<BackgroundLoad, MeasureError> {
        let load_groups: Vec<LoadGroup<'_>> = placed
            .iter()
            .map(|load| LoadGroup {
                data: self.sets.iter().find(|set| set.is_of(load.workload)),
                rate: load.rate,
                reads_only: load.reads_only,
                session: judging
                    .map(|judging| judging.session(load))
                    .unwrap_or_default(),
                versions: judging
                    .map(|judging| (Arc::clone(&judging.versions), judging.place(load))),
                latencies: true,
                ..LoadGroup::new(load.workload, vec![load.node.clone()], load.spec.threads)
            })
            .collect();
        if !placed.is_empty() {
            cx.stage(Stage::Prepare, "connecting the load");
        }
        BackgroundLoad::open(&load_groups, &cx.clock, cx.stop)
    }
}
