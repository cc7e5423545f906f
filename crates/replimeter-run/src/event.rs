//! Events of a run for its observers: the progress line, the file of samples, a stream of figures.
//!
//! Events are sent by the collecting thread, never by a measuring one. Of the observers, only the file may
//! wait for its disk.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use replimeter_instruments::host::HostWatch;
use replimeter_model::warning::Warning;
use replimeter_render::{
    figures::{count, time},
    live::LiveView,
    rows::{RowBatch, RowFile},
};

use crate::{cli_error::CliError, figures::StatedFigure};

/// An event.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// The current operation and its progress.
    Progress(&'a Progress),
    /// A line that the user must see.
    Note(&'a str),
    /// A warning for readers of the report.
    Warning(&'a Warning),
    /// The figures of the run so far.
    Figures(&'a [StatedFigure]),
    /// The servers as they are now.
    Live(&'a LiveView),
    /// Rows of the samples as JSON lines, soon after they were taken.
    Lines(&'a str),
    /// Rows of the samples.
    Rows(&'a dyn RowBatch),
    /// Other output to the terminal follows.
    Quiet,
}

/// Whether a run continues.
pub enum Flow {
    /// The run continues.
    Continue,
    /// The run ends, for this reason.
    Finish(Warning),
}

/// An observer of a run.
pub trait Observer {
    /// Handles an event; an error ends the run.
    fn event(&mut self, event: Event<'_>) -> Result<Flow, CliError>;

    /// Handles the end of the run.
    fn end(self: Box<Self>) -> Result<(), CliError> {
        Ok(())
    }
}

/// All observers of a run.
pub struct Observers<'a> {
    all: RefCell<Vec<Box<dyn Observer + 'a>>>,
    /// Why one of them ended the run, and the first failure.
    ended: RefCell<(Option<Warning>, Option<CliError>)>,
    stop: &'a AtomicBool,
    /// Whether an observer has set it, before the user did.
    stopped_it: Cell<bool>,
    /// While the clean-up lasts: whether the user had stopped the run when it began.
    stopped_before: Cell<Option<bool>>,
}

impl<'a> Observers<'a> {
    /// Creates the observers of a run that `stop` ends.
    pub(super) fn new(all: Vec<Box<dyn Observer + 'a>>, stop: &'a AtomicBool) -> Self {
        Self {
            all: RefCell::new(all),
            ended: RefCell::default(),
            stop,
            stopped_it: Cell::new(false),
            stopped_before: Cell::new(None),
        }
    }

    /// Sends an event to all of them. A failure is returned by `check`, which ends the run at its next call.
    pub fn emit(&self, event: Event<'_>) {
        for observer in self.all.borrow_mut().iter_mut() {
            let mut ended = self.ended.borrow_mut();
            match observer.event(event) {
                Ok(Flow::Continue) => {}
                Ok(Flow::Finish(reason)) => {
                    ended.0.get_or_insert(reason);
                    if !self.stop.swap(true, Ordering::Relaxed) {
                        self.stopped_it.set(true);
                    }
                }
                Err(failure) => _ = ended.1.get_or_insert(failure),
            }
        }
    }

    /// Sends the current progress.
    pub fn progress(&self, progress: Progress) {
        if !matches!(progress.stage, Stage::CleanUp | Stage::Report) {
            self.stopped_before.set(None);
        }
        self.emit(Event::Progress(&progress));
    }

    /// Sends the current operation of the run; the clean-up of it, or of a part, begins with the first such one.
    pub(super) fn stage(&self, stage: Stage, operation: &'static str) {
        if stage == Stage::CleanUp {
            self.stopped_before.set(Some(self.was_interrupted()));
        }
        self.progress(Progress::new(stage, operation));
    }

    /// Returns the failure of an observer, if there was one.
    pub(super) fn check(&self) -> Result<(), CliError> {
        self.ended.borrow().1.clone().map_or(Ok(()), Err)
    }

    /// Sends the end of the run to all of them.
    pub(super) fn end(self) -> Result<(), CliError> {
        let mut result = self.check();
        for observer in self.all.into_inner() {
            result = result.and(observer.end());
        }
        result
    }

    /// Returns whether the user stopped the run, before its clean-up if that has begun: a failure is earlier than that.
    pub(super) fn was_interrupted(&self) -> bool {
        let now = self.stop.load(Ordering::Relaxed) && !self.stopped_it.get();
        self.stopped_before.get().unwrap_or(now)
    }

    /// Returns why an observer ended the run, if one did.
    pub fn finished(&self) -> Option<Warning> {
        self.ended.borrow().0.clone()
    }
}

/// An observer of several runs, one after another: it ends with the last one.
pub(super) type SharedObserver = Rc<RefCell<Box<dyn Observer>>>;

impl Observer for SharedObserver {
    fn event(&mut self, event: Event<'_>) -> Result<Flow, CliError> {
        self.borrow_mut().event(event)
    }

    fn end(self: Box<Self>) -> Result<(), CliError> {
        Rc::into_inner(*self).map_or(Ok(()), |last| last.into_inner().end())
    }
}

/// The machine, in the windows in which the run measures.
impl Observer for Rc<RefCell<HostWatch>> {
    fn event(&mut self, event: Event<'_>) -> Result<Flow, CliError> {
        if let Event::Progress(progress) = event {
            let measured = progress.stage == Stage::Measure;
            self.borrow_mut()
                .measuring(measured.then_some(progress.part.as_str()));
        }
        Ok(Flow::Continue)
    }
}

/// The file of samples.
impl Observer for RowFile {
    fn event(&mut self, event: Event<'_>) -> Result<Flow, CliError> {
        if let Event::Rows(batch) = event {
            self.write(batch)?;
        }
        Ok(Flow::Continue)
    }

    fn end(self: Box<Self>) -> Result<(), CliError> {
        Ok(self.finish()?)
    }
}

/// The kind of the current operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Servers are started or found, and checked.
    Servers,
    /// Tables, data and load are created.
    Prepare,
    /// Results are not counted yet.
    WarmUp,
    /// The measurement itself.
    Measure,
    /// Load stops, replicas catch up, tables and data are removed.
    CleanUp,
    /// The report is written.
    Report,
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The kind of operation.
    pub stage: Stage,
    /// The current part of the run, such as a start or a case.
    pub part: String,
    /// The current operation, in words.
    pub operation: Cow<'static, str>,
    /// The amount done, the total if known, and the unit.
    pub done: Option<(f64, Option<f64>, &'static str)>,
    /// Additional values.
    pub details: Vec<ProgressDetail>,
}

/// An additional value of the progress.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgressDetail {
    /// A count.
    Count(u64, Cow<'static, str>),
    /// A time in µs.
    Time(Cow<'static, str>, f64),
    /// A rate per second.
    Rate(Cow<'static, str>, f64),
    /// The estimated time left, in seconds.
    Left(f64),
}

impl Progress {
    /// Creates progress without an amount.
    pub fn new(stage: Stage, operation: impl Into<Cow<'static, str>>) -> Self {
        Self {
            stage,
            part: String::new(),
            operation: operation.into(),
            done: None,
            details: Vec::new(),
        }
    }

    /// Returns the progress with the current part of the run.
    pub fn part(mut self, part: impl Into<String>) -> Self {
        self.part = part.into();
        self
    }

    /// Returns the progress with the amount done and the total.
    pub fn done(mut self, done: f64, of: Option<f64>, unit: &'static str) -> Self {
        self.done = Some((done, of, unit));
        self
    }

    /// Returns the progress with an additional value.
    pub fn with(mut self, detail: ProgressDetail) -> Self {
        self.details.push(detail);
        self
    }

    /// Returns the progress in one line.
    pub fn line(&self) -> String {
        let mut line = match self.part.as_str() {
            "" => self.operation.to_string(),
            part => format!("{part}: {}", self.operation),
        };
        if let Some((done, of, unit)) = self.done {
            let whole = |number: f64| count(number.max(0.0).round() as u64);
            let of = of.map_or_else(String::new, |of| format!(" of {}", whole(of)));
            line.push_str(&format!(" {}{of} {unit}", whole(done)));
        }
        for detail in &self.details {
            line.push_str(&format!(", {detail}"));
        }
        line
    }
}

impl fmt::Display for ProgressDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(number, what) => write!(f, "{} {what}", count(*number)),
            Self::Time(what, us) => write!(f, "{what} {}", time(*us)),
            Self::Rate(what, per_s) => {
                let per_s = count(per_s.max(0.0).round() as u64);
                let gap = if what.is_empty() { "" } else { " " };
                write!(f, "{what}{gap}{per_s}/s")
            }
            Self::Left(seconds) => {
                let left = seconds.max(0.0).round() as u64;
                match left / 60 {
                    0 => write!(f, "{left} s left"),
                    minutes => write!(f, "{minutes} min {:02} s left", left % 60),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_one_line() {
        let progress = Progress::new(Stage::Measure, "measuring")
            .part("round 2, async:1")
            .done(5.4, Some(60.0), "s")
            .with(ProgressDetail::Count(12, "stale".into()))
            .with(ProgressDetail::Time("lag".into(), 1_500.0))
            .with(ProgressDetail::Rate("oltp-mix:8".into(), 1_234.0))
            .with(ProgressDetail::Left(61.0));
        assert_eq!(
            progress.line(),
            "round 2, async:1: measuring 5 of 60 s, 12 stale, lag 1,500 µs, oltp-mix:8 1,234/s, 1 min 01 s left"
        );
        assert_eq!(
            Progress::new(Stage::Servers, "checking the servers").line(),
            "checking the servers"
        );
    }

    #[test]
    fn observer_can_end_a_run_with_its_error() {
        struct ActiveStage;
        impl Observer for ActiveStage {
            fn event(&mut self, event: Event<'_>) -> Result<Flow, CliError> {
                match event {
                    Event::Note(text) => Err(CliError::failed(text, "")),
                    Event::Quiet => Ok(Flow::Finish(Warning::new(
                        replimeter_model::warning::WarningCode::Interrupted,
                        "enough",
                        "",
                    ))),
                    _ => Ok(Flow::Continue),
                }
            }
        }
        let stop = AtomicBool::new(false);
        let observers = Observers::new(vec![Box::new(ActiveStage)], &stop);
        observers.progress(Progress::new(Stage::Report, "writing the report"));
        assert!(!stop.load(Ordering::Relaxed) && observers.check().is_ok());
        observers.emit(Event::Quiet);
        assert!(stop.load(Ordering::Relaxed));
        assert_eq!(observers.finished().unwrap().message, "enough");
        observers.emit(Event::Note("the first"));
        observers.emit(Event::Note("the second"));
        assert_eq!(observers.check().unwrap_err().message, "the first");
        assert!(!observers.was_interrupted(), "the user did not stop it");
        let observers = Observers::new(vec![Box::new(ActiveStage)], &stop);
        observers.emit(Event::Quiet);
        assert!(observers.was_interrupted(), "the user was first");
    }

    #[test]
    fn stop_during_the_clean_up_is_no_cause_of_a_failure() {
        let stop = AtomicBool::new(false);
        let observers = Observers::new(Vec::new(), &stop);
        observers.stage(Stage::CleanUp, "stopping the load");
        stop.store(true, Ordering::Relaxed);
        observers.stage(Stage::CleanUp, "removing the table");
        assert!(!observers.was_interrupted());
        // It was the clean-up of a part.
        observers.progress(Progress::new(Stage::Measure, "measuring"));
        assert!(observers.was_interrupted());
        observers.stage(Stage::CleanUp, "removing the table");
        assert!(observers.was_interrupted());
    }
}
