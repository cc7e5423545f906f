//! `watch`: which replica is in step, and since when.

mod charts;
mod figures;
mod gathered;
mod live;
mod metrics;
mod once;
mod report;
mod samples;
mod serve;

use std::{cell::RefCell, path::Path, sync::atomic::AtomicBool};

use clap::{Args, Command};
use replimeter_engine::source::{Member, Servers};
use replimeter_instruments::{
    Listener,
    watch::{
        self, Event, ServerList,
        results::{State, WatchChange, WatchDocument, WatchResults, WatchRound, WatchSample},
        settings::{WatchPlan, WatchSettings},
    },
};
use replimeter_model::plan::Request;
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    self as run, Concluded, Finished, HangUps, Measurement, RunContext, RunSurroundings,
    cli_error::{CliError, unexpected},
    dry_run::PlanEffects,
    figures::{FigureSpec, StatedFigures},
    options::{OutputArgs, one_target},
    to_measure,
};
use serde::{Deserialize, Serialize};

use self::{gathered::Gathered, live::Live, samples::WatchSamples, serve::Bound};

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers were found.
    Shape(String),
    /// The states of all servers.
    Round(WatchRound),
    /// Something happened.
    Change(WatchChange),
}

/// The measurement `watch`: the state of every server, until it is ended.
pub(crate) struct Watch;

impl Measurement for Watch {
    const ABOUT: &'static str = "Watch which replica is in step, and since when; read-only";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const HISTOGRAMS: bool = false;
    const LIVE: bool = true;
    const EXAMPLES: &'static str = "\
Examples:
  replimeter watch --topology cluster.toml
  replimeter watch --topology cluster.toml --listen 127.0.0.1:9404
  replimeter watch --sandbox async:2 --link-delay 20ms --duration 1m
  replimeter watch --topology cluster.toml --once --max-lag 5s

Terms of the report:
  lag       age of the oldest transaction that a replica has not applied; it
            lies between two ends, which come from positions alone
  late      share of time in which the lower end was above --max-lag
  idle      the primary is silent, the replica has everything, the link works
  blocked   the primary advances, the replica does not
  ahead     it has transactions that the primary does not have

Writes nothing, except with --probe, and reads no clock of a server. Without
--duration, Ctrl-C ends the watch regularly.";

    type Settings = WatchSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Gathered;
    type Columns = WatchSamples;
    type Results = WatchResults;

    fn target(command: Command) -> Command {
        one_target(command)
    }

    fn output(command: Command) -> Command {
        once::with_option(OutputArgs::augment_args(command))
    }

    fn once(
        request: &Request<WatchSettings>,
        surroundings: &mut RunSurroundings<'_>,
        stop: &AtomicBool,
    ) -> Result<(), CliError> {
        once::answer(request, surroundings, stop)
    }

    fn rotates(plan: &WatchPlan) -> bool {
        plan.rotate.is_some()
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<WatchSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        effects.targets();
        effects.servers(format!(
            "asks every server each {} for its positions, channels and membership",
            plan.poll_interval
        ));
        let per_s = 1.0 / plan.poll_interval.0.as_secs_f64().max(f64::MIN_POSITIVE);
        let work = format!("about {:.0} status queries/s", 4.0 * per_s);
        effects.cost("primary", 1 + u64::from(plan.probe.is_some()), &work);
        effects.cost("each replica", 1, &work);
        effects.writes(match plan.probe {
            None => "nothing".to_owned(),
            Some(interval) => {
                format!("one row of the schema `replimeter` each {interval}, removed at the end")
            }
        });
        if let Some(rotate) = plan.rotate {
            effects.time(format!(
                "in a new directory each {rotate}, of which {} are kept besides",
                plan.keep
            ));
        }
        effects.until(plan.duration);
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let [target] = cx.request.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        // Before anything else happens.
        let bound = serve::bind(cx.plan)?;
        cx.on_servers(target, |cx, servers| watch_servers(cx, servers, bound))
    }

    fn accumulator(request: &Request<WatchSettings>) -> Gathered {
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        Gathered::new(
            us(request.plan.max_lag.0),
            us(request.plan.report_interval.0),
        )
    }

    fn take(gathered: &mut Gathered, _: &WatchPlan, call: Call, rows: &mut Rows<WatchSamples>) {
        match call {
            Call::Shape(label) => gathered.name(label),
            Call::Change(change) => gathered.change(change),
            Call::Round(round) => {
                gathered.round(&round);
                round
                    .servers
                    .into_iter()
                    .for_each(|sample| rows.add(sample));
            }
        }
    }

    fn is_empty(gathered: &Gathered) -> bool {
        gathered.polls() == 0
    }

    fn conclude(run: &mut Finished<'_, Self>, gathered: Gathered) -> Concluded<WatchResults> {
        run.warn([]);
        Concluded {
            nothing: gathered.polls() == 0,
            target: run.target(gathered.shape().to_owned(), Vec::new()),
            measured_us: Some(gathered.until_us()),
            results: gathered.results(),
            ..Concluded::default()
        }
    }

    fn headline(document: &WatchDocument) -> String {
        report::answer(document)
    }

    fn stated(_: &WatchSettings, results: &WatchResults) -> StatedFigures {
        figures::stated(results)
    }

    fn report(document: &WatchDocument, _: bool) -> Report {
        report::report(document)
    }

    fn charts(document: &WatchDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(charts::charts(document))
    }
}

/// Watches the servers of a target, and serves their states if an address is taken.
fn watch_servers(
    cx: &mut RunContext<'_, Watch>,
    servers: &mut dyn Servers,
    bound: Option<Bound>,
) -> Result<(), CliError> {
    let label = servers.label().to_owned();
    cx.take(Call::Shape(label.clone()))?;
    let (plan, clock, stop) = (cx.plan, cx.clock, cx.stop);
    let so_far = cx.streams_figures();
    let mut live = Live::new(format!("watch {label}"), clock.origin_unix_us());
    let served = match bound {
        None => None,
        Some(bound) => {
            let first = before_first_poll(servers);
            let view = live.view(&first);
            Some(bound.start(&label, plan, &first, view)?)
        }
    };
    if let Some(served) = &served {
        let text = format!("serving {}", served.url());
        cx.observers.emit(run::Event::Note(&text));
    }
    let sandbox = servers.record().cloned();
    let members = RefCell::new(to_measure(servers));
    let hang_ups = cx.hang_ups().filter(|_| sandbox.is_none());
    if let Some(hang_ups) = &hang_ups {
        hang_ups.take_over();
    }
    let mut read = || {
        if !servers.read_again().map_err(|error| error.to_string())? {
            return Ok(None);
        }
        let again = to_measure(servers);
        members.borrow_mut().clone_from(&again);
        Ok(Some(again))
    };
    let mut list = ServerList {
        asked: &|| hang_ups.as_ref().is_some_and(HangUps::take),
        read: &mut read,
    };
    // The watch continues from run to run, with its own time.
    let (mut run_began_us, mut before) = (0.0, (0.0, Vec::new()));
    let mut on = |event| {
        match event {
            Event::Change(mut change) => {
                live.change(&change);
                change.at_us -= run_began_us;
                cx.take(Call::Change(change))
            }
            Event::Round(mut round) => {
                let (us, names) = (round.at_us(), names(&round));
                let view = live.view(&round);
                cx.observers.emit(run::Event::Live(&view));
                let published = match &served {
                    Some(served) => served.publish(&round, view),
                    None => Ok(()),
                };
                let (before_us, named_before) = std::mem::replace(&mut before, (us, names.clone()));
                // A run has the same servers from its beginning to its end.
                let others = !named_before.is_empty() && named_before != names;
                let mut next = Ok(());
                if others || is_due(plan, before_us - run_began_us) {
                    let keep = plan.rotate.map_or(usize::MAX, |_| plan.keep as usize);
                    next = run::begin_next(cx, &members.borrow(), keep)
                        .and_then(|()| cx.take(Call::Shape(label.clone())));
                    run_began_us = before_us;
                }
                if others {
                    // They are recorded again.
                    cx.manifest.servers.clear();
                }
                for sample in &mut round.servers {
                    sample.at_us -= run_began_us;
                }
                let taken = next.and_then(|()| cx.take(Call::Round(round)));
                cx.so_far(Gathered::results);
                published.and(taken)
            }
            Event::Servers(records) => cx.record_sandbox(&label, sandbox.as_ref(), records),
        }
        .map_err(|failure| failure.message)
    };
    let mut listener = Listener {
        on: &mut on,
        stop,
        so_far,
    };
    let first = members.borrow().clone();
    Ok(watch::run(&first, &mut list, plan, &clock, &mut listener)?)
}

/// Returns the servers of a round.
fn names(round: &WatchRound) -> Vec<String> {
    let servers = round.servers.iter();
    servers.map(|sample| sample.server.clone()).collect()
}

/// Returns whether a run of this duration, in µs, is followed by another one.
fn is_due(plan: &WatchPlan, us: f64) -> bool {
    plan.rotate
        .is_some_and(|rotate| us >= rotate.0.as_secs_f64() * 1e6)
}

/// Returns the states of servers that were not asked yet.
fn before_first_poll(servers: &dyn Servers) -> WatchRound {
    let sample = |member: &Member| WatchSample {
        server: member.node.name.clone(),
        state: Some(State::Unknown),
        reason: "it was not asked yet".to_owned(),
        ..WatchSample::default()
    };
    WatchRound {
        servers: servers.members().iter().map(sample).collect(),
        ..WatchRound::default()
    }
}
