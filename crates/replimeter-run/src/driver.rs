//! Runs a measurement from start to end: checks, run directory, measuring, and what is kept and printed.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    ServerError,
    source::{Member, Servers},
};
use replimeter_model::{
    plan::{Request, Settings},
    random::Random,
    target::Target,
    time_span::TimeSpan,
};
use replimeter_render::terminal;

use super::{
    document::{AnyRun, RecordedDocument, keep, publish},
    measurement::{
        Finished, Measurement, RunContext, RunOutput, RunSurroundings, plan_text, with_advice,
    },
};
use crate::{
    cli_error::{CliError, FailureKind},
    equal_runs,
    event::{Event, Progress, ProgressDetail, Stage},
    options::{FormArgs, OutputArgs, OutputForm},
    rotation::remove_oldest,
    run_dir::{RunDir, is_complete},
};

/// The seed of the order of targets.
const ORDER: u64 = 1;
/// How long a wait for a start takes to notice that the user has ended it.
const WAITING: Duration = Duration::from_millis(100);

/// Rejects invalid settings before anything is changed.
pub(super) fn check<M: Measurement>(
    request: &Request<M::Settings>,
    output: &OutputArgs,
) -> Result<(), CliError> {
    if output.form.chosen == OutputForm::Raw && !M::has_raw(&request.plan) {
        return Err(CliError::usage(
            "--raw needs a sweep over sizes",
            "leave --raw out, or use a sweep: replimeter lag --row-sizes 1000..10000:1000 --raw",
        ));
    }
    if output.run_dir.is_some() && M::rotates(&request.plan) {
        return Err(CliError::usage(
            "a run with --rotate names its directories itself",
            "leave --run-dir out: they are created in replimeter-runs of the current folder",
        ));
    }
    M::check(request)?;
    RunDir::check(output.run_dir.as_deref())
}

/// Runs a plan.
pub(super) fn run<'a, M: Measurement>(
    request: &'a Request<M::Settings>,
    surroundings: RunSurroundings<'a>,
    options: M::Options,
    stop: &'a AtomicBool,
) -> Result<(), CliError> {
    check::<M>(request, surroundings.output)?;
    let mut cx = RunContext::<M>::begin(request, surroundings, options, stop)?;
    let failure = M::run(&mut cx)
        .err()
        .map(|failure| failure.of_stopped(cx.observers.was_interrupted()));
    let output = cx.lasting.output;
    complete(cx, failure, output)
}

/// Begins a run of the same plan, with the same servers and in a directory of its own, and completes the one before, which is not
/// printed; one that has nothing yet continues. Of such directories, the newest that are complete are kept, this many.
///
/// # Errors
/// When the new directory or the files of the run before cannot be written.
pub fn begin_next<M: Measurement>(
    cx: &mut RunContext<'_, M>,
    members: &[Member],
    keep: usize,
) -> Result<(), CliError> {
    if M::is_empty(&cx.accumulator) {
        return Ok(());
    }
    let next = cx.next(members)?;
    let before = std::mem::replace(cx, next);
    let dir = before.run_dir.path().display().to_string();
    let silent = OutputArgs {
        form: FormArgs {
            chosen: OutputForm::Silent,
        },
        ..before.lasting.output.clone()
    };
    complete(before, None, &silent)?;
    cx.observers
        .emit(Event::Note(&format!("run kept in {dir}")));
    let plan = plan_text(cx.request)?;
    remove_oldest(cx.run_dir.path(), M::Settings::NAME, &plan, keep);
    Ok(())
}

/// Writes the record of a run, and prints it in this form.
fn complete<M: Measurement>(
    cx: RunContext<'_, M>,
    failure: Option<CliError>,
    output: &OutputArgs,
) -> Result<(), CliError> {
    let (request, host) = (cx.request, cx.lasting.host);
    let screen = host.screen;
    let (over, accumulator) = cx.end(failure)?;
    let finished = Finished::<M> {
        request,
        plan: &request.plan,
        manifest: &over.manifest,
        ended: over.ended.clone(),
    };
    let RunOutput {
        mut document,
        histograms,
        failure,
    } = finished.conclude(accumulator);
    equal_runs::add::<M>(&mut document, &over.manifest, &over.plan);
    let logged = over.keep_histograms(histograms.as_ref());
    let dir = over.run_dir.path();
    let last = over.stream.as_ref().map(|stream| {
        let figures = M::stated(&document.settings, &document.results);
        (stream, figures, terminal::warnings(&document.warnings))
    });
    let run: Box<dyn AnyRun> = Box::new(RecordedDocument::<M>(document));
    let written = if let Some((stream, figures, warnings)) = last {
        // First: a reader may let the stream wait.
        let kept = keep(run.as_ref(), dir, &over.manifest, &over.plan);
        let streamed = stream.borrow_mut().figures(figures.all());
        screen.say(&warnings);
        screen.say(&format!("Run kept in {}\n", dir.display()));
        kept.and(streamed.map(drop))
    } else {
        publish(
            run.as_ref(),
            dir,
            &over.manifest,
            &over.plan,
            output,
            screen,
        )
    };
    if is_complete(dir) && !host.keep_journal {
        over.journal.remove();
    }
    // A failure of the measurement takes precedence over one of the page.
    failure.map_or(written, Err).and(logged)
}

/// Measures every target in each of a number of starts, from 1: one after another, or spread `over` a time, and from the second start
/// on in a new random order each time. An invalid target does not keep the next from being measured; its failure is returned at the
/// end.
pub fn each_start<'a, M: Measurement>(
    cx: &mut RunContext<'a, M>,
    starts: u32,
    over: Option<TimeSpan>,
    mut one: impl FnMut(&mut RunContext<'a, M>, &Target, u32) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut targets: Vec<&Target> = cx.request.targets.iter().collect();
    if targets.len() > 1 {
        cx.check_available()?;
    }
    let several = targets.len() > 1;
    let mut random = Random::new(ORDER);
    let mut invalid = Ok(());
    let began = Instant::now();
    for start in 1..=starts {
        if start > 1 {
            if let Some(over) = over {
                let due = began + over.0 * (start - 1) / starts;
                wait_for_start(cx, due, &format!("start {start} of {starts}"))?;
            }
            random.shuffle(&mut targets);
        }
        for target in &targets {
            let ended = one(cx, target, start)
                .map_err(|failure| failure.for_shape(&target.label(), several));
            if ended
                .as_ref()
                .is_err_and(|failure| failure.kind != FailureKind::Invalid)
            {
                return ended;
            }
            invalid = invalid.and(ended);
        }
    }
    invalid
}

/// Waits until a start is due.
fn wait_for_start<M: Measurement>(
    cx: &mut RunContext<'_, M>,
    due: Instant,
    start: &str,
) -> Result<(), CliError> {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        if cx.stop.load(Ordering::Relaxed) {
            return Err(CliError::interrupted(format!(
                "interrupted before {start} was due"
            )));
        }
        let mut shown = Progress::new(Stage::Prepare, "waiting until it is due").part(start);
        shown.details.push(ProgressDetail::Left(left.as_secs_f64()));
        cx.observers.progress(shown);
        thread::sleep(left.min(WAITING));
    }
}

/// Measures one target after another, once each ([`each_start`]).
pub fn each_target<'a, M: Measurement>(
    cx: &mut RunContext<'a, M>,
    mut one: impl FnMut(&mut RunContext<'a, M>, &Target) -> Result<(), CliError>,
) -> Result<(), CliError> {
    each_start(cx, 1, None, |cx, target, _| one(cx, target))
}

/// Returns the outcome of measuring servers, with likely causes: whether a semi-synchronous primary fell back
/// during the run, and the states of the cluster's members.
pub fn with_causes(
    ended: Option<CliError>,
    fallen_back: Result<Option<String>, ServerError>,
    members: Option<String>,
    servers: &dyn Servers,
) -> Result<(), CliError> {
    match (ended, fallen_back) {
        (None, Ok(None)) => Ok(()),
        (None, Ok(Some(reason))) => Err(CliError::invalid(
            reason,
            "results mix semi-synchronous and asynchronous commits: find out why no replica acknowledged before the timeout, then run again",
        )),
        (None, Err(error)) => Err(error.into()),
        (Some(mut failure), fallen_back) => {
            // Another failure at the same time may be the cause.
            let more = [
                fallen_back.ok().flatten(),
                members.map(|members| format!("the members report: {members}")),
            ];
            for more in more.into_iter().flatten() {
                failure.message = format!("{}; {more}", failure.message);
            }
            Err(with_advice(failure, servers))
        }
    }
}
