//! `scale`: fresh servers for every number of replicas, in rounds, phase by phase.

mod accumulator;
mod blocks;
pub(crate) mod charts;
mod condition;
mod figures;
mod law;
pub(crate) mod report;
mod results;
mod site;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::scale::{
    blocks::Blocks,
    report::{answer, report},
};
use clap::Arg;
use replimeter_engine::source::Servers;
use replimeter_instruments::{
    load::FillProgress,
    preflight,
    scale::{
        Workloads,
        results::{ScaleDocument, ScaleResults},
        settings::{ScalePlan, ScaleSettings},
    },
    trial::{BlockError, BlockProgress, Clients, Disturbance, Preparation, TrialServers},
};
use replimeter_model::{
    plan::{CoreUse, Request},
    random::Random,
    target::Target,
    warning::{Warning, WarningCode},
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Finished, Histograms, Measurement, RunContext,
    cli_error::{CliError, FailureKind, unexpected},
    dry_run::PlanEffects,
    figures::{FigureSpec, Figures, SampleFile, StatedFigures},
    machine,
    options::is_sandbox_option,
    to_measure,
    workloads::filling,
};

use self::{
    accumulator::{Accumulator, BlockPlace, Call},
    site::ScaleClients,
};
use crate::trial::shown;

/// Share of the cores' time that other virtual machines had, in percent, from which a run decides nothing and a block does not count.
pub(crate) const STEAL_PERCENT: f64 = 5.0;
/// How often a block that does not count for that reason is measured again; the last one counts.
const REPEATS: usize = 2;

/// The measurement `scale`: throughput by number of read replicas.
pub(crate) struct Scale;

impl Measurement for Scale {
    const ABOUT: &'static str = "Measure what each read replica costs writes and gives reads";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const EXAMPLES: &'static str = "\
Examples:
  # 0, 1 and 2 replicas; some minutes
  replimeter scale
  # a short run, without intervals
  replimeter scale --starts 1 --duration 3s
  # with a fitted law, and its prediction for 5 replicas measured
  replimeter scale --replicas 0..4 --starts 4 --check-prediction
  replimeter scale --mode semi-sync --updates --reads all
  # through a web site: HAProxy, two fronts, and ab as the driver
  replimeter scale --through http
  # a fixed share of this machine for each server
  replimeter scale --cpus-per-server 0.4
  # the published experiment
  replimeter reproduce --experiments 2

Terms of the report:
  alone       inserts or selects without the other kind
  while       both kinds at the same time
  share       throughput relative to the same without replicas
  fitted law  throughput by number of replicas, from five numbers on; beyond its
              peak another replica costs more than it adds
  unknown     too few starts for an interval

Starts its own servers for every number of replicas, and removes them.";
    const OWN_SERVERS: Option<fn(&Arg) -> bool> =
        // Of no mode that scales by its replicas.
        Some(|option| option.get_id() != "multi_primary" && is_sandbox_option(option));

    type Settings = ScaleSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = Blocks;
    type Results = ScaleResults;

    fn starts(plan: &ScalePlan) -> u32 {
        plan.starts
    }

    fn client(plan: &ScalePlan) -> CoreUse {
        plan.cores
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<ScaleSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        let most = plan.replicas.max();
        effects.servers(format!(
            "starts a primary with {} replicas on this machine, each number {} times, up to {} servers at once, and removes them",
            plan.replicas,
            plan.starts,
            most + 1 + u32::from(plan.check_prediction)
        ));
        if let Some(folder) = &request.target.servers {
            effects.servers(format!("with the binaries in {}", folder.display()));
        }
        effects.own_schema();
        effects.load(format!(
            "{} writer clients and as many reader clients; {} of data",
            plan.threads, plan.data_size
        ));
        if let Some(through) = &plan.site {
            effects.load(site::effect(through));
        }
        let numbers = plan.replicas.counts().len() as u32 + u32::from(plan.check_prediction);
        let blocks = numbers * plan.starts * plan.blocks * plan.phases().len() as u32;
        effects.time_without_starts((plan.duration.0 + plan.warm_up.0) * blocks);
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        // Blocks that began are kept, regardless of the interrupted step.
        rounds(cx).map_err(|failure| match failure.kind {
            FailureKind::Interrupted if !Self::is_empty(&cx.accumulator) => CliError::partial(),
            _ => failure,
        })
    }

    fn accumulator(_: &Request<ScaleSettings>) -> Accumulator {
        Accumulator::default()
    }

    fn take(accumulator: &mut Accumulator, plan: &ScalePlan, call: Call, rows: &mut Rows<Blocks>) {
        accumulator.take(plan, call, rows);
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.is_empty()
    }

    fn conclude(
        run: &mut Finished<'_, Self>,
        mut accumulator: Accumulator,
    ) -> Concluded<ScaleResults> {
        let plan = run.plan;
        accumulator.fit(plan);
        if plan.check_prediction {
            accumulator.check(plan, plan.replicas.max() + 1);
        }
        let cores = u32::try_from(run.manifest.machine.cores).unwrap_or(u32::MAX);
        let mut sandboxes = run.manifest.sandboxes.iter();
        let cpus_per_server = sandboxes.find_map(|sandbox| sandbox.cpus_per_server.clone());
        let mut warnings = accumulator.warnings(cores, cpus_per_server.is_none());
        warnings.extend(uneven(plan));
        run.ended.failure = run.ended.failure.take().or_else(|| accumulator.invalid());
        run.warn(warnings);
        let rows = accumulator.rows(plan);
        Concluded {
            nothing: rows.iter().all(|row| row.blocks == 0),
            target: run.target(
                format!("{}:{}", plan.mode, plan.replicas),
                vec![plan.mode.mode().to_string()],
            ),
            histograms: Some(Histograms {
                took: accumulator.counted(),
                series: accumulator.latencies(),
            }),
            results: ScaleResults {
                rows,
                data_rows: accumulator.data.0,
                data_bytes: accumulator.data.1,
                cpus_per_server,
                order: accumulator.order,
                fits: accumulator.fits,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &ScaleDocument) -> String {
        answer(document)
    }

    fn stated(_: &ScaleSettings, results: &ScaleResults) -> StatedFigures {
        figures::stated(results)
    }

    fn figures(_: &ScaleDocument, samples: &SampleFile) -> Result<Figures, CliError> {
        figures::figures(samples)
    }

    fn report(document: &ScaleDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &ScaleDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::scale::charts::charts(document))
    }
}

/// Measures every number of replicas in every round, in a new random order each time.
fn rounds(cx: &mut RunContext<'_, Scale>) -> Result<(), CliError> {
    cx.check_available()?;
    let plan = cx.plan;
    if let Some(through) = &plan.site {
        site::check(&*cx.source(), through)?;
    }
    let workloads = Workloads::published()
        .map_err(|error| unexpected(format_args!("a built-in workload cannot be read: {error}")))?;
    let counts = plan.replicas.counts();
    let more = usize::from(plan.check_prediction);
    let mut starts = Starts {
        workloads,
        begun: 0,
        all: plan.starts as usize * (counts.len() + more),
    };
    let mut random = Random::new(plan.seed);
    for round in 1..=plan.starts {
        let mut shuffled = counts.to_vec();
        random.shuffle(&mut shuffled);
        cx.take(Call::Round(round))?;
        for replicas in shuffled {
            cx.take(Call::Start { replicas })?;
            starts.start(cx, replicas, round)?;
        }
    }
    if plan.check_prediction {
        for round in 1..=plan.starts {
            starts.start(cx, plan.replicas.max() + 1, round)?;
        }
    }
    Ok(())
}

/// Servers with their data, and the clients of a site if operations pass through one.
struct ReadyServers {
    prepared: TrialServers,
    site: Option<ScaleClients>,
}

/// State shared by all starts.
struct Starts {
    workloads: Workloads,
    /// Starts so far, and in total.
    begun: usize,
    all: usize,
}

impl Starts {
    /// Measures every phase on fresh servers with this number of replicas.
    fn start(
        &mut self,
        cx: &mut RunContext<'_, Scale>,
        replicas: u32,
        round: u32,
    ) -> Result<(), CliError> {
        self.begun += 1;
        let shape = cx.plan.mode.shape(replicas).map_err(unexpected)?;
        let mut targets = cx.request.targets.iter();
        let target = targets
            .find(|target| matches!(target, Target::Sandbox(spec) if spec.shape == shape))
            .ok_or_else(|| unexpected("no target has this shape"))?;
        let place = format!("start {} of {}, {shape}", self.begun, self.all);
        let result = cx.on_servers(target, |cx, servers| {
            self.measure(cx, servers, replicas, round, &place)
        });
        result.map_err(|failure| failure.for_shape(&place, true))
    }

    fn measure(
        &self,
        cx: &mut RunContext<'_, Scale>,
        servers: &dyn Servers,
        replicas: u32,
        round: u32,
        place: &str,
    ) -> Result<(), CliError> {
        let mut known = cx.manifest.sandboxes.iter();
        let is_known = known.any(|record| record.shape == servers.label());
        // A site also needs what was found.
        let cluster = if is_known && cx.plan.site.is_none() {
            None
        } else {
            let mut cluster = preflight::check(&to_measure(servers))?;
            if !is_known {
                cx.record_servers(servers.label(), servers, &mut cluster)?;
            }
            Some(cluster)
        };
        let (plan, clock, stop) = (cx.plan, cx.clock, cx.stop);
        let observers = &cx.observers;
        let mut filled = |filled: &FillProgress| observers.progress(filling(filled).part(place));
        let preparation = Preparation {
            mode: plan.mode.mode(),
            workload: &self.workloads.insert,
            size: plan.data_size,
            by_time: true,
        };
        let prepared =
            TrialServers::open(servers.members(), &preparation, &clock, &mut filled, stop)?;
        let (rows, bytes) = (prepared.data.rows, prepared.data.bytes);
        cx.take(Call::Filled {
            rows,
            bytes,
            warnings: prepared.warnings.clone(),
        })?;
        let site = match (&plan.site, cluster) {
            (Some(through), Some(cluster)) => {
                Some(ScaleClients::start(cx, through, cluster, rows)?)
            }
            _ => None,
        };
        if let Some(site) = &site {
            prepared.meter(site.processes());
        }
        let mut ready = ReadyServers { prepared, site };
        let result = self.blocks(cx, servers, &mut ready, replicas, round, place);
        if let Some(site) = ready.site {
            site.end();
        }
        result
    }

    /// Measures every block on servers that are ready.
    fn blocks(
        &self,
        cx: &mut RunContext<'_, Scale>,
        servers: &dyn Servers,
        ready: &mut ReadyServers,
        replicas: u32,
        round: u32,
        place: &str,
    ) -> Result<(), CliError> {
        let plan = cx.plan;
        let phases = plan.phases();
        let of = plan.blocks as usize * phases.len();
        let (mut block, mut repeated) = (0, 1);
        for index in 0..plan.blocks {
            let mut phases = phases.clone();
            // In order and in reverse, over blocks and rounds, so that a drift of the servers affects all
            // phases alike.
            if (index + round).is_multiple_of(2) {
                phases.reverse();
            }
            for phase in phases {
                block += 1;
                let part = format!("{place}, block {block} of {of}, {}", phase.name());
                for repeat in 0..=REPEATS {
                    // A repeated block has a number of its own.
                    let number = if repeat == 0 { block } else { of + repeated };
                    let at = BlockPlace {
                        shape: servers.label().to_owned(),
                        replicas,
                        start: round,
                        block: u32::try_from(number).unwrap_or(0),
                        phase,
                    };
                    let last = repeat == REPEATS;
                    if !self.block(cx, servers, ready, at, &part, last)? {
                        break;
                    }
                    repeated += 1;
                }
            }
        }
        Ok(())
    }

    /// Measures a block. Returns whether other virtual machines had so much of the cores during it that it does not count and is
    /// to be measured again; a `last` one counts.
    fn block(
        &self,
        cx: &mut RunContext<'_, Scale>,
        servers: &dyn Servers,
        ready: &mut ReadyServers,
        place: BlockPlace,
        part: &str,
        last: bool,
    ) -> Result<bool, CliError> {
        let ReadyServers { prepared, site } = ready;
        let before = machine::CoreTime::read();
        let (began, waited) = (Instant::now(), machine::disk_wait());
        let observers = &cx.observers;
        let mut step = |step: BlockProgress<'_>| observers.progress(shown(step).part(part));
        let source = cx.source();
        let clients = site.as_mut().map(|site| -> Box<dyn Clients> {
            Box::new(site.of_block(&*source, &cx.run_dir, &place))
        });
        let load = self.workloads.of_phase(place.phase, cx.plan, prepared);
        let warm = prepared.begin(&load, clients, &mut step, cx.stop);
        let block = warm
            .map_err(BlockError::from)
            .and_then(|mut clients| prepared.block(&load, &mut clients, &mut step, cx.stop));
        drop(source);
        let (measured, error) = match block {
            Ok(measured) => (Some(Box::new(measured)), None),
            Err(BlockError { error, until_then }) => (until_then, Some(error)),
        };
        let absence = site.as_ref().and_then(|site| site.absence());
        let disturbance = disturbance(before).filter(|_| error.is_none());
        let again = disturbance.is_some() && !last;
        if let Some(mut block) = measured {
            block.absence = absence;
            block.disturbance = disturbance.map(|reason| Disturbance {
                reason,
                repeated: again,
            });
            let since = machine::disk_wait()
                .zip(waited)
                .map(|(now, then)| now.saturating_sub(then));
            block.disk_wait =
                since.map(|since| since.as_secs_f64() / began.elapsed().as_secs_f64());
            cx.take(Call::Block { place, block })?;
            cx.so_far(|accumulator| ScaleResults {
                rows: accumulator.rows(cx.plan),
                ..ScaleResults::default()
            });
        }
        match error {
            Some(error) => Err(with_deaths(CliError::from(error), servers)),
            None => Ok(again),
        }
    }
}

/// Returns what other virtual machines had of the cores' time since `before`, if it is too much for a block.
fn disturbance(before: Option<machine::CoreTime>) -> Option<String> {
    let percent = machine::CoreTime::read()?.steal_share(before?)? * 100.0;
    (percent >= STEAL_PERCENT)
        .then(|| format!("other virtual machines had {percent:.0} % of the processor time"))
}

/// Returns the warning about numbers of replicas that cannot share the clients evenly.
fn uneven(plan: &ScalePlan) -> Option<Warning> {
    let counts =
        plan.replicas.counts().iter().filter(|count| {
            plan.site.is_none() && !plan.threads.is_multiple_of(plan.readers(**count))
        });
    let counts: Vec<String> = counts.map(ToString::to_string).collect();
    (!counts.is_empty()).then(|| {
        Warning::new(
            WarningCode::UnevenLoad,
            format!(
                "{} clients cannot be divided evenly with {} replicas, since each uses one server: some servers had one client more than others",
                plan.threads,
                counts.join(" and ")
            ),
            "use a number of threads that every number of servers divides, such as 12",
        )
    })
}

/// Adds the servers that exited, which explains more than a lost connection.
fn with_deaths(mut failure: CliError, servers: &dyn Servers) -> CliError {
    if failure.kind == FailureKind::Interrupted {
        return failure;
    }
    let members = servers.members();
    // A connection breaks just before its process can be waited for.
    for _ in 0..20 {
        if (0..members.len()).any(|index| servers.ended(index).is_some()) {
            break;
        }
        thread::sleep(Duration::from_millis(25));
    }
    for (index, member) in members.iter().enumerate() {
        if let Some(ended) = servers.ended(index) {
            failure.message = format!("{}; {} exited ({ended})", failure.message, member.node.name);
        }
    }
    failure
}
