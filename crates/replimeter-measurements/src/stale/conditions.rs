//! Measures the cases on a target's servers one after another, at each level of read consistency.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use replimeter_engine::dialect::sync_reads::Guarantee;
use replimeter_instruments::{
    Listener,
    load::{BackgroundLoad, GroupResult, IntervalLatencies, LatencyRecorders, Versions},
    preflight::Cluster,
    stale::{
        self, Event, MeasuredCase, Outcome, ReaderRef,
        results::{LoadWindow, StalePhase, StaleWindow},
        settings::{LoadCase, ReadDelays, SessionReset, StalePlan},
    },
};
use replimeter_model::{
    read_consistency::ReadConsistency,
    time::Nanos,
    time_span::TimeSpan,
    warning::{Warning, WarningCode},
};
use replimeter_run::{Progress, ProgressDetail, RunContext, Stage, cli_error::CliError};
use replimeter_stats::signed::rank_of;

use super::{
    Stale,
    accumulator::{Accumulator, Call},
    case_rounds::{self, CaseAccumulator, ReaderAccumulator},
    load::{CaseLoads, PlacedLoad, ReadJudging, judged_readers, load_on, writers_of},
    remedy::{SiteCase, SiteInUse, words},
};

/// The delays of each curve in the first start that had one, by shape and condition. Curves of later starts have the same, so
/// that starts have equal weights at each point and in the wait.
pub(super) type Curves = BTreeMap<String, BTreeSet<Nanos>>;

/// One start of a target's servers.
pub(super) struct ServerStart<'a> {
    /// Its number, from 1.
    pub(super) number: u32,
    /// The servers' shape.
    pub(super) shape: &'a str,
    /// Its part of the rounds.
    pub(super) plan: &'a StalePlan,
    pub(super) curves: &'a mut Curves,
}

/// What the rounds of a case leave.
#[derive(Default)]
pub(super) struct RoundsSeen<'a> {
    /// The delays of the curve.
    delays: BTreeSet<Nanos>,
    /// The site, of rounds that go through one.
    site: Option<SiteInUse<'a>>,
}

impl<'a> RoundsSeen<'a> {
    /// Returns the state before rounds through a site.
    pub(super) fn through(site: SiteInUse<'a>) -> Self {
        Self {
            site: Some(site),
            ..Self::default()
        }
    }
}

impl ServerStart<'_> {
    /// Keeps the delays of a condition's curve for later starts.
    pub(super) fn keep_curve(&mut self, condition: String, seen: RoundsSeen<'_>) {
        if !seen.delays.is_empty() {
            self.curves.entry(condition).or_insert(seen.delays);
        }
    }

    /// Returns the plan of a condition, with the delays of its curve if they are known.
    pub(super) fn plan_of(&self, condition: &str) -> StalePlan {
        let plan = self.plan.clone();
        match (&plan.read_delays, self.curves.get(condition)) {
            (ReadDelays::Auto, Some(delays)) => {
                let spans = delays.iter().map(|delay| delay.0.unsigned_abs());
                let spans = spans.map(|nanos| TimeSpan(Duration::from_nanos(nanos)));
                StalePlan {
                    read_delays: ReadDelays::At(spans.collect()),
                    ..plan
                }
            }
            _ => plan,
        }
    }
}

/// One case at one level of read consistency.
pub(super) struct CaseCondition<'a> {
    pub(super) shape: &'a str,
    pub(super) case: &'a LoadCase,
    pub(super) level: ReadConsistency,
    pub(super) pool: SessionReset,
    pub(super) site: Option<SiteCase>,
    /// What one start measures.
    pub(super) plan: StalePlan,
    /// The condition and the start, in words.
    pub(super) what: String,
    pub(super) placed: &'a [PlacedLoad<'a>],
}

/// Returns where the loads of a case run; `None`, with a warning, for one of several cases that is not possible here.
pub(super) fn place<'s>(
    cx: &mut RunContext<'_, Stale>,
    sets: &CaseLoads<'s>,
    case: &'s LoadCase,
    cluster: &Cluster,
    readers: &[ReaderRef],
    shape: &str,
) -> Result<Option<Vec<PlacedLoad<'s>>>, CliError> {
    match sets.placed(case, cluster, readers)? {
        Ok(placed) => Ok(Some(placed)),
        Err(reason) if cx.plan.cases.len() > 1 => {
            let hint = "name another server behind the @ of --load, or leave this case out";
            cx.warn([Warning::new(
                WarningCode::CaseLeftOut,
                format!("{shape}: {reason}"),
                hint,
            )]);
            Ok(None)
        }
        Err(reason) => Err(CliError::usage(
            reason,
            "name another server behind the @ of --load",
        )),
    }
}

/// Measures every case at every level of read consistency.
pub(super) fn measure_cases<'s, 'a: 's>(
    cx: &mut RunContext<'a, Stale>,
    cluster: &mut Cluster,
    readers: &[ReaderRef],
    levels: &[ReadConsistency],
    start: &mut ServerStart<'_>,
    sets: &mut CaseLoads<'s>,
) -> Result<(), CliError> {
    let plan = cx.plan;
    let mut next_round = 1;
    for case in &plan.cases {
        let Some(mut placed) = place(cx, sets, case, cluster, readers, start.shape)? else {
            continue;
        };
        // A load is read on its own server, unless readers are given.
        let wanted = (!plan.reader.is_empty()).then_some(readers);
        let found = if plan.check_load_reads {
            judged_readers(&placed, wanted, case)
        } else {
            Ok(readers.to_vec())
        };
        let readers = &match found {
            Ok(readers) => readers,
            Err(reason) => {
                let hint = "use a load that writes or reads versions, such as versioned-update:4@writer, versioned-select:8@reader or \
                            versioned:8@node1";
                return Err(CliError::usage(reason, hint));
            }
        };
        sets.prepare(cx, &mut placed, cluster)?;
        for level in levels {
            for pool in &plan.session_reset {
                if *level == ReadConsistency::Off && *pool != SessionReset::Keep {
                    continue;
                }
                let mut what = format!("{case}, {level}");
                let condition = format!("{}, {what}, {}", start.shape, pool.name());
                if plan.starts > 1 {
                    what = format!("{what}, start {} of {}", start.number, plan.starts);
                }
                let case_condition = CaseCondition {
                    shape: start.shape,
                    case,
                    level: *level,
                    pool: *pool,
                    site: None,
                    plan: start.plan_of(&condition),
                    what,
                    placed: &placed,
                };
                let mut seen = RoundsSeen::default();
                let next = measure_case(
                    cx,
                    cluster,
                    readers,
                    &case_condition,
                    sets,
                    next_round,
                    &mut seen,
                );
                start.keep_curve(condition, seen);
                next_round = next?;
            }
        }
    }
    Ok(())
}

/// Measures one case at one level, or through a site; returns the number of the next round.
pub(super) fn measure_case(
    cx: &mut RunContext<'_, Stale>,
    cluster: &mut Cluster,
    readers: &[ReaderRef],
    case_condition: &CaseCondition<'_>,
    sets: &CaseLoads<'_>,
    first_round: u64,
    seen: &mut RoundsSeen<'_>,
) -> Result<u64, CliError> {
    let plan = cx.plan;
    let guarantees = stale::guarantees(cluster, readers, case_condition.level, plan.timeout.0)?;
    let clock = cx.clock;
    let judging = plan.check_load_reads.then(|| ReadJudging {
        versions: Versions::new(&clock),
        readers,
        guarantees: &guarantees,
    });
    let case = case_of(
        cluster,
        readers,
        &guarantees,
        case_condition,
        plan.check_load_reads,
    );
    cx.take(Call::Case(case))?;
    let part = MeasuredCase {
        readers,
        guarantees: &guarantees,
        pool: case_condition.pool,
        first_round,
        real_time: cx.real_time,
        judged: judging.as_ref().map(|judging| &*judging.versions),
    };
    let load = sets.connect(cx, case_condition.placed, judging.as_ref());
    let result = load
        .map_err(CliError::from)
        .and_then(|load| under_load(cx, cluster, &part, case_condition, load, seen));
    if let Some(site) = &mut seen.site {
        cx.take(Call::Site(site.take_use()))?;
    }
    // The warnings of the case follow those found earlier.
    let warnings = cx.take_warnings();
    cx.take(Call::Warnings(warnings))?;
    let (mut outcome, loads) = match result {
        Ok(measured) => measured,
        Err(error) => {
            cx.take(Call::CaseEnded {
                outcome: None,
                loads: Vec::new(),
            })?;
            return Err(error);
        }
    };
    let (failure, interrupted, next_round) = (
        outcome.failure.take(),
        outcome.interrupted,
        outcome.next_round,
    );
    cx.take(Call::CaseEnded {
        outcome: Some(outcome),
        loads,
    })?;
    CliError::of_measuring(failure.as_ref(), interrupted).map_or(Ok(next_round), Err)
}

/// Returns the writers, the readers and the reads of a case.
fn case_of(
    cluster: &Cluster,
    readers: &[ReaderRef],
    guarantees: &[Guarantee],
    case_condition: &CaseCondition<'_>,
    judged: bool,
) -> CaseAccumulator {
    if let Some(site) = case_condition.site {
        return case_of_visitor(cluster, case_condition, site);
    }
    let writers = if judged {
        writers_of(case_condition.placed)
    } else {
        vec![cluster.primary.node.name.clone()]
    };
    let reader = |(reader, guarantee): (&ReaderRef, &Guarantee)| ReaderAccumulator {
        name: reader.name(cluster),
        writer: *reader == ReaderRef::Writer,
        guarantee: guarantee.words.clone(),
        by_commit_id: guarantee.by_commit_id,
        delay: reader.delay(cluster),
    };
    CaseAccumulator {
        shape: case_condition.shape.to_owned(),
        load: case_condition.case.to_string(),
        load_on: load_on(case_condition.case, cluster, readers),
        asked: case_condition.level,
        sync_reads: guarantees
            .first()
            .map_or(case_condition.level, |guarantee| guarantee.level),
        pool: case_condition.pool,
        writers,
        readers: readers.iter().zip(guarantees).map(reader).collect(),
        judged: judged.then(|| case_rounds::judged(case_condition.placed)),
        site: None,
    }
}

/// Returns the same for the visitor of a site.
fn case_of_visitor(
    cluster: &Cluster,
    case_condition: &CaseCondition<'_>,
    site: SiteCase,
) -> CaseAccumulator {
    let readers: Vec<ReaderRef> = (0..cluster.replicas.len())
        .map(ReaderRef::Replica)
        .collect();
    let delay = readers.iter().map(|reader| reader.delay(cluster)).max();
    CaseAccumulator {
        shape: case_condition.shape.to_owned(),
        load: case_condition.case.to_string(),
        load_on: load_on(case_condition.case, cluster, &readers),
        asked: ReadConsistency::Off,
        sync_reads: ReadConsistency::Off,
        pool: SessionReset::Keep,
        writers: vec!["the site".to_owned()],
        readers: vec![ReaderAccumulator {
            name: "site".to_owned(),
            writer: false,
            guarantee: words(site.remedy).to_owned(),
            by_commit_id: false,
            delay: delay.unwrap_or_default(),
        }],
        judged: None,
        site: Some(site),
    }
}

/// Measures a case under its load; returns the results of both.
fn under_load(
    cx: &mut RunContext<'_, Stale>,
    cluster: &mut Cluster,
    part: &MeasuredCase<'_>,
    case_condition: &CaseCondition<'_>,
    mut load: BackgroundLoad,
    seen: &mut RoundsSeen<'_>,
) -> Result<(Outcome, Vec<GroupResult>), CliError> {
    let some = !case_condition.placed.is_empty();
    if some {
        cx.stage(Stage::WarmUp, "starting the load");
    }
    let stop = cx.stop;
    let ran = load.run_while(stop, |running| {
        let failed = || running.has_failed();
        let result = measure(
            cx,
            cluster,
            part,
            case_condition,
            &running.recorders,
            &failed,
            seen,
        );
        if some {
            cx.stage(Stage::CleanUp, "stopping the load");
        }
        result
    });
    cx.warn(ran.warnings);
    let mut outcome = ran.value?;
    if let Some(error) = ran.failure {
        outcome.failure = Some(error.into());
    }
    Ok((outcome, load.results()))
}

/// Returns a load's results in a window.
fn load_window(load: String, latencies: &IntervalLatencies) -> LoadWindow {
    let latency = &latencies.latency;
    let rank = |p: f64| {
        latency
            .at_rank(rank_of(p, latency.count()))
            .map(Nanos::as_micros)
    };
    let some = latency.count() > 0;
    LoadWindow {
        load,
        operations: latency.count(),
        p50_us: rank(0.5).filter(|_| some),
        p99_us: rank(0.99).filter(|_| some),
        max_us: latency.max().map(Nanos::as_micros).filter(|_| some),
        under_way_us: latencies.under_way.map_or(0.0, Nanos::as_micros),
    }
}

/// Measures one part; adds the delays of its curve.
fn measure(
    cx: &mut RunContext<'_, Stale>,
    cluster: &mut Cluster,
    part: &MeasuredCase<'_>,
    case_condition: &CaseCondition<'_>,
    recorders: &[LatencyRecorders],
    load_failed: &dyn Fn() -> bool,
    seen: &mut RoundsSeen<'_>,
) -> Result<Outcome, CliError> {
    let RoundsSeen { delays, site } = seen;
    let (visitor, mut counted) = site.as_mut().map(SiteInUse::parts).unzip();
    let panics = cx.fault() == Some("panic-while-measuring");
    let (clock, stop) = (cx.clock, cx.stop);
    let mut on = |event| {
        let call = match event {
            Event::Round(round) => {
                assert!(
                    !(panics && round.phase == StalePhase::AtOnce),
                    "a fault was requested"
                );
                if round.phase == StalePhase::Curve {
                    delays.insert(round.offset);
                }
                if let Some(counted) = &mut counted {
                    counted.add(&round);
                }
                Call::Round(round)
            }
            Event::Window(window) => {
                if let Some(counted) = &mut counted {
                    counted.take_traffic();
                }
                let loads = case_condition.placed.iter().zip(recorders);
                let load = loads.map(|(load, recorder)| load_window(load.name(), &recorder.take()));
                Call::Window(StaleWindow {
                    load: load.collect(),
                    ..window
                })
            }
            Event::Progress(progress) => {
                let total = progress.total.map(|total| total as f64);
                cx.observers.progress(
                    Progress::new(Stage::Measure, progress.phase.name())
                        .part(&case_condition.what)
                        .done(progress.done as f64, total, "rounds")
                        .with(ProgressDetail::Count(progress.stale, "stale".into())),
                );
                cx.so_far(Accumulator::so_far);
                return Ok(());
            }
        };
        cx.take(call).map_err(|failure| failure.message)
    };
    let mut listener = Listener {
        on: &mut on,
        stop,
        so_far: false,
    };
    Ok(stale::run(
        cluster,
        &case_condition.plan,
        part,
        &clock,
        visitor,
        load_failed,
        &mut listener,
    )?)
}
