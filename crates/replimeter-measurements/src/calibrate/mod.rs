//! `calibrate`: injects known delays and reports the error of each method.

pub(crate) mod charts;
mod delays;
mod figures;
mod reference;
pub(crate) mod report;
mod results;

use std::path::Path;

use crate::{
    calibrate::report::{answer, report},
    lag::samples::Samples,
};
use clap::{Arg, Command};
use replimeter_instruments::{
    Listener,
    calibrate::{
        results::{CalibrateDocument, CalibrateResults},
        settings::{CalibratePlan, CalibrateSettings, Conditions},
    },
    lag::{
        self, AvailableMethods, Event, Outcome,
        sample::LagSample,
        settings::{LagPlan, Method, Pace},
        summary::FloorSummary,
    },
    preflight::{self, Cluster},
    table::{ProbeTable, RowBudget},
};
use replimeter_model::{
    plan::{CoreUse, Request},
    replication::Mode,
    sandbox::LinkSpec,
    shape::form,
    target::Target,
    time::Nanos,
    time_span::TimeSpan,
    warning::Warning,
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Finished, Histograms, Measurement, RunContext,
    cli_error::{CliError, unexpected},
    dry_run::PlanEffects,
    figures::{FigureSpec, StatedFigures},
    options::{is_sandbox_option, with_help},
};
use replimeter_stats::{series::distribution, signed::SignedHistogram};
use serde::{Deserialize, Serialize};

use self::delays::{Condition, conditions, measure_repetitions};
use super::lag::{floor, run_progress};

/// An event of the measurement.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// The servers have started and passed the checks.
    Shape {
        label: String,
        mode: Mode,
        replicas: Vec<String>,
        methods: Vec<Method>,
    },
    /// A part with one delay begins, in this repetition (from 0).
    Repetition { delay: TimeSpan, repetition: usize },
    /// One observation of a row by one method.
    Sample(LagSample),
    /// The part is over.
    RepetitionEnded(Box<Outcome>),
    /// A part against the reference begins.
    Reference {
        condition: reference::Condition,
        replicas: Vec<String>,
    },
    /// One observation of a row of the reference.
    Observation(reference::Observation),
}

/// State gathered during the run.
pub(crate) struct Accumulator {
    label: String,
    mode: Mode,
    names: Vec<String>,
    conditions: Vec<Condition>,
    /// Parts against the reference.
    parts: Vec<reference::Part>,
    floors: Vec<(Method, FloorSummary)>,
    delay: TimeSpan,
    repetition: usize,
    /// The interval between writes.
    every: Nanos,
    lateness: SignedHistogram,
    warnings: Vec<Warning>,
}

/// The measurement `calibrate`: the error of each method.
pub(crate) struct Calibrate;

impl Measurement for Calibrate {
    const ABOUT: &'static str = "Measure the error of each method against known delays";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const EXAMPLES: &'static str = "\
Examples:
  replimeter calibrate
  replimeter calibrate --method poll,wait,tap
  replimeter calibrate --link-delay 0,1ms,10ms --rounds 500 --json
  replimeter calibrate --reference --observers 1,8

Terms of the report:
  injected  delay that the link adds, one way
  measured  lag through the link with this delay
  error     measured, less that without delay, less injected;
            with --reference: middle of the bracket, less the true instant
  outside   share of rows whose true instant is not inside the bracket
  floor     the lag that the method shows without replication";
    const OWN_SERVERS: Option<fn(&Arg) -> bool> = Some(|option| match option.get_id().as_str() {
        "sandbox" => true,
        // The measurement sets the delays; its links have no other settings.
        "link_delay" | "link_jitter" | "link_bandwidth" | "client_link_delay" => false,
        // Of other modes than async.
        "wait_point" | "wait_for_replicas" | "multi_primary" => false,
        _ => is_sandbox_option(option),
    });

    type Settings = CalibrateSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = Samples;
    type Results = CalibrateResults;

    fn target(command: Command) -> Command {
        with_help(
            command,
            "sandbox",
            "Shape to start: async:N of either engine [default: async:1]",
            &format!(
                "{}; its servers are removed after the run. One per run.",
                form(|mode| mode == Mode::Async)
            ),
        )
    }

    fn client(plan: &CalibratePlan) -> CoreUse {
        plan.lag.cores
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<CalibrateSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        effects.written_targets();
        let all = |parts: usize| {
            let rows = plan.rounds * parts as u64 * u64::from(plan.repetitions);
            format!("1 writer, {rows} rows in total")
        };
        let methods = plan.lag.method.wanted().len();
        match &plan.conditions {
            Conditions::LinkDelays(delays) => {
                effects.servers("routes replication through a link whose delay it changes");
                effects.table("the writer's rows");
                let count = delays.len();
                effects.load(format!("{}, {count} delays", all(count)));
                Ok(())
            }
            Conditions::Reference(reference) => {
                let most = reference.observers.iter().max().copied().unwrap_or(0);
                let parts = methods
                    * reference.observers.len()
                    * reference.neighbors.len()
                    * reference.delays.len();
                effects.servers(format!(
                    "serves a primary and up to {most} replicas itself, on loopback"
                ));
                effects.load(all(parts));
                Ok(())
            }
        }
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let plan = cx.plan;
        let link_delays = match &plan.conditions {
            Conditions::LinkDelays(delays) => delays,
            Conditions::Reference(plan) => return reference::run(cx, plan),
        };
        let [Target::Sandbox(spec)] = cx.request.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        // The link is in place from the start, so every lag is measured through it.
        let zero = TimeSpan::from_secs(0);
        let mut spec = spec.clone();
        spec.link = Some(LinkSpec {
            delay: zero,
            jitter: zero,
            bandwidth: None,
        });
        cx.on_checked(
            &Target::Sandbox(spec),
            preflight::check,
            |cx, servers, mut cluster| {
                // The link starts without a delay; the record lists the delays that follow.
                if let Some(record) = cx.manifest.sandboxes.last_mut() {
                    let delays: Vec<String> = link_delays.iter().map(ToString::to_string).collect();
                    record.link = Some(format!("{} one way, one after another", delays.join(", ")));
                }
                cx.write_manifest()?;
                let possible = lag::available_methods(&mut cluster, &plan.lag.method)?;
                cx.warn(possible.warnings.iter().cloned());
                let (table, found) = ProbeTable::create(&mut cluster, plan.lag.timeout.0)?;
                cx.warn(found);
                cx.take(Call::Shape {
                    label: servers.label().to_owned(),
                    mode: cluster.mode,
                    replicas: cluster.replica_names(),
                    methods: possible.methods.clone(),
                })?;
                let faults = servers
                    .faults()
                    .ok_or_else(|| unexpected("these servers support no fault injection"))?;
                let result = measure_repetitions(cx, faults, &mut cluster, &possible, link_delays);
                // The servers are removed anyway.
                table.abandon();
                result
            },
        )
    }

    fn accumulator(request: &Request<CalibrateSettings>) -> Accumulator {
        Accumulator {
            label: String::new(),
            mode: Mode::None,
            names: Vec::new(),
            conditions: Vec::new(),
            parts: Vec::new(),
            floors: Vec::new(),
            delay: TimeSpan::from_secs(0),
            repetition: 0,
            every: match request.plan.lag.pace {
                Pace::Interval(interval) => Nanos::from(interval.0),
                // The plan always has a write interval.
                Pace::Visible | Pace::Ack => Nanos(0),
            },
            lateness: SignedHistogram::default(),
            warnings: Vec::new(),
        }
    }

    fn take(
        accumulator: &mut Accumulator,
        plan: &CalibratePlan,
        call: Call,
        rows: &mut Rows<Samples>,
    ) {
        match call {
            Call::Shape {
                label,
                mode,
                replicas,
                methods,
            } => {
                accumulator.conditions = conditions(plan, replicas.len(), &methods);
                (accumulator.label, accumulator.mode, accumulator.names) = (label, mode, replicas);
            }
            Call::Repetition { delay, repetition } => {
                rows.switch(Samples::new(
                    format!("{} +{delay}", accumulator.label),
                    1,
                    accumulator.names.clone(),
                ));
                (accumulator.delay, accumulator.repetition) = (delay, repetition);
            }
            Call::Sample(sample) => {
                accumulator.record(&sample);
                rows.add(sample);
            }
            Call::Reference {
                condition,
                replicas,
            } => {
                rows.switch(Samples::new(condition.label(), 1, replicas));
                // Repetitions share a part; the last one is measured now.
                let parts = &mut accumulator.parts;
                let known = parts.iter().position(|part| part.condition == condition);
                let part = known.map_or_else(
                    || reference::Part::new(condition),
                    |known| parts.remove(known),
                );
                parts.push(part);
            }
            Call::Observation(observation) => {
                if let Some(part) = accumulator.parts.last_mut() {
                    part.record(&observation);
                }
                rows.add(observation.sample);
            }
            Call::RepetitionEnded(outcome) => {
                accumulator.lateness.merge(&outcome.lateness);
                // Most warnings are the same in each part; a clock that was set is one of a later part, too.
                for warning in outcome.warnings {
                    if !accumulator.warnings.contains(&warning) {
                        accumulator.warnings.push(warning);
                    }
                }
            }
        }
    }

    fn warnings(accumulator: &Accumulator) -> &[Warning] {
        &accumulator.warnings
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator
            .conditions
            .iter()
            .all(|condition| condition.rounds == 0)
            && accumulator.parts.iter().all(reference::Part::is_empty)
    }

    fn conclude(
        run: &mut Finished<'_, Self>,
        accumulator: Accumulator,
    ) -> Concluded<CalibrateResults> {
        let Accumulator {
            label,
            mode,
            names,
            conditions,
            parts,
            floors,
            lateness,
            warnings,
            ..
        } = &accumulator;
        run.ended.warnings.extend_from_slice(warnings);
        let series = conditions
            .iter()
            .map(|condition| (condition.tag(names), condition.all.histogram().clone()));
        let series = series.chain(parts.iter().map(reference::Part::histogram));
        let floor = |(method, summary): &_| floor(label, *method, summary);
        let target = match run.plan.conditions {
            Conditions::Reference(_) => run.target("reference".to_owned(), Vec::new()),
            _ => run.target(label.clone(), vec![mode.to_string()]),
        };
        let mut measured: Vec<_> = parts.iter().filter(|part| !part.is_empty()).collect();
        measured.sort_by_key(|part| part.condition);
        Concluded {
            target,
            start_lateness: distribution(lateness),
            histograms: Some(Histograms {
                took: run.ended.at,
                series: series.collect(),
            }),
            results: CalibrateResults {
                rows: results::results(&accumulator, names),
                floors: floors.iter().map(floor).collect(),
                reference: measured.into_iter().map(reference::Part::row).collect(),
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &CalibrateDocument) -> String {
        answer(document)
    }

    fn stated(_: &CalibrateSettings, results: &CalibrateResults) -> StatedFigures {
        figures::stated(results)
    }

    fn report(document: &CalibrateDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &CalibrateDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::calibrate::charts::charts(document))
    }
}

/// Measures a part; `call` is the event of an observation.
fn observe(
    cx: &mut RunContext<'_, Calibrate>,
    cluster: &mut Cluster,
    plan: &LagPlan,
    possible: &AvailableMethods,
    held: &mut RowBudget,
    mut call: impl FnMut(&LagSample) -> Result<Call, CliError>,
) -> Result<Outcome, CliError> {
    let (clock, stop) = (cx.clock, cx.stop);
    let mut on = |event| match event {
        Event::Sample(sample) => call(&sample)
            .and_then(|call| cx.take(call))
            .map_err(|failure| failure.message),
        Event::Compared(_) => Ok(()),
        Event::Progress(progress) => {
            cx.observers.progress(run_progress(&progress));
            Ok(())
        }
    };
    let mut listener = Listener {
        on: &mut on,
        stop,
        so_far: false,
    };
    let outcome = lag::run(cluster, plan, possible, held.clone(), &clock, &mut listener)?;
    *held = outcome.held.clone();
    Ok(outcome)
}

/// Ends a part with this name.
fn end(cx: &mut RunContext<'_, Calibrate>, outcome: Outcome, label: &str) -> Result<(), CliError> {
    let failure = CliError::of_measuring(outcome.failure.as_ref(), outcome.interrupted);
    cx.take(Call::RepetitionEnded(Box::new(outcome)))?;
    failure.map_or(Ok(()), |failure| Err(failure.for_shape(label, true)))
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::{
        calibrate::settings::CalibrateSettings,
        lag::sample::{Phase, Write},
    };
    use replimeter_model::{
        plan::{PlanFile, Section},
        warning::WarningCode,
    };

    use super::*;

    #[test]
    fn clock_set_in_a_later_part_is_reported() {
        let text = "command = 'calibrate'";
        let file: PlanFile<CalibrateSettings> =
            PlanFile::from_toml(text, &[Section::of::<CalibrateSettings>()]).unwrap();
        let planned = file.plan().unwrap();
        let mut accumulator = Calibrate::accumulator(&planned);
        accumulator.names = vec!["replica1".to_owned()];
        accumulator.conditions = conditions(&planned.plan, 1, &[Method::Stamp]);
        let sample = |unplaced| LagSample {
            replica: 0,
            method: Method::Stamp,
            write: Write {
                seq: 1,
                phase: Phase::Measure,
                sweep: 0,
                step: 0,
                row_in_step: 1,
                size_bytes: 1,
                intended: Nanos(0),
                send: Nanos(0),
                ack: Nanos(1),
            },
            sighting: None,
            unplaced,
        };
        accumulator.record(&sample(true));
        accumulator.record(&sample(false));
        let row = &results::results(&accumulator, &accumulator.names)[0];
        assert_eq!((row.rounds, row.unplaced, row.timed_out), (2, 1, 1));
        let mut rows = Rows::new(Samples::new("", 1, Vec::new()));
        for code in [
            WarningCode::PayloadClamped,
            WarningCode::ClockStepped,
            WarningCode::PayloadClamped,
        ] {
            let outcome = Outcome {
                warnings: vec![Warning::new(code, "", "")],
                ..Outcome::default()
            };
            let call = Call::RepetitionEnded(Box::new(outcome));
            Calibrate::take(&mut accumulator, &planned.plan, call, &mut rows);
        }
        assert_eq!(accumulator.warnings.len(), 2, "each once");
    }
}
