//! The trait of all measurements.

mod advice;
mod context;
mod cores;
mod end;
mod reached;

use std::{path::Path, sync::atomic::AtomicBool};

use clap::{Arg, Args, Command};
use replimeter_model::{
    compare::Quantity,
    envelope::Envelope,
    manifest::Manifest,
    plan::{CoreUse, Request, Settings},
    record::{ClientRecord, Distribution, NodeRecord, RunStatus, TargetRecord},
    schema,
    target::Target,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_render::{
    chart::Chart,
    html::HtmlError,
    report::Report,
    rows::{Columns, Rows},
};
use replimeter_stats::signed::SignedHistogram;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

pub use self::{
    advice::outcome_of,
    context::{RunContext, RunSurroundings, to_measure},
    end::RunEnd,
};
pub(super) use self::{advice::with_advice, context::plan_text, end::LastCall};
use crate::{
    cli_error::{CliError, FailureKind, unexpected},
    dry_run::PlanEffects,
    figures::{FigureSpec, Figures, SampleFile, StatedFigures},
    options::{CommandLineSettings, OutputArgs},
};

/// The plan of a measurement: its settings with defaults.
pub type Plan<M> = <<M as Measurement>::Settings as Settings>::Plan;

/// The record of a measurement's run.
pub type Document<M> = Envelope<<M as Measurement>::Settings, <M as Measurement>::Results>;

/// A kind of measurement. Measuring emits [calls](Self::Call), which are gathered and then summarized as
/// results; a replay of a recorded run uses the same two functions.
pub trait Measurement: Sized + 'static {
    /// Its summary in the list of commands.
    const ABOUT: &'static str;
    /// The text below the options in its help.
    const EXAMPLES: &'static str;
    /// Returns the specifications of its figures, in display order.
    const FIGURES: fn() -> Vec<&'static FigureSpec>;
    /// The figure that decides a trial of it; `None` if it has no trials.
    const TRIAL_FIGURE: Option<&'static str> = None;
    /// The target options if it starts its own servers; `None` if it accepts every target.
    const OWN_SERVERS: Option<fn(&Arg) -> bool> = None;
    /// Whether its runs keep histograms.
    const HISTOGRAMS: bool = true;
    /// Whether it shows its servers as they are while it runs, instead of its progress.
    const LIVE: bool = false;

    /// Its settings and their plan.
    type Settings: Settings + 'static;
    /// Options on the command line that a plan cannot have.
    type Options: Default;
    /// An event of measuring.
    type Call: Serialize + DeserializeOwned;
    /// The state gathered from calls.
    type Accumulator;
    /// The columns of its samples.
    type Columns: Columns + Default;
    /// The results of a run.
    type Results: Serialize + DeserializeOwned + JsonSchema + 'static;

    /// Changes the text of target options that accept less here than elsewhere, or have another default.
    fn target(command: Command) -> Command {
        command
    }

    /// Returns how often it starts the servers of each shape, if it starts them.
    fn starts(_plan: &Plan<Self>) -> u32 {
        1
    }

    /// Adds the options for output.
    fn output(command: Command) -> Command {
        OutputArgs::augment_args(command)
    }

    /// Returns the options besides the plan.
    fn options(_given: &CommandLineSettings) -> Self::Options {
        Self::Options::default()
    }

    /// Returns its requirements on this machine.
    fn client(_plan: &Plan<Self>) -> CoreUse {
        CoreUse::default()
    }

    /// Rejects invalid settings before anything is changed.
    fn check(_request: &Request<Self::Settings>) -> Result<(), CliError> {
        Ok(())
    }

    /// Returns whether it begins a new run directory from time to time ([`begin_next`](super::begin_next)).
    fn rotates(_plan: &Plan<Self>) -> bool {
        false
    }

    /// Returns whether such a run has raw lines.
    fn has_raw(_plan: &Plan<Self>) -> bool {
        false
    }

    /// Adds the effects of a run, for a dry run.
    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<Self::Settings>,
    ) -> Result<(), CliError>;

    /// Answers without a run, for a command with the option `once`.
    ///
    /// # Errors
    /// When the answer is no, or not known.
    fn once(
        _request: &Request<Self::Settings>,
        _surroundings: &mut RunSurroundings<'_>,
        _stop: &AtomicBool,
    ) -> Result<(), CliError> {
        Err(unexpected("it has no such option"))
    }

    /// Measures, and passes calls to the context.
    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError>;

    /// Returns the initial state.
    fn accumulator(request: &Request<Self::Settings>) -> Self::Accumulator;

    /// Adds a call to the state, and its row to the samples.
    fn take(
        accumulator: &mut Self::Accumulator,
        plan: &Plan<Self>,
        call: Self::Call,
        rows: &mut Rows<Self::Columns>,
    );

    /// Adds the rows that come after all others.
    fn last_rows(_gathered: &Self::Accumulator, _rows: &mut Rows<Self::Columns>) {}

    /// Ends what was under way when the run was cut off, as far as its calls allow.
    fn cut_off(_gathered: &mut Self::Accumulator) {}

    /// Returns the warnings to print even if there is no report.
    fn warnings(_gathered: &Self::Accumulator) -> &[Warning] {
        &[]
    }

    /// Returns whether there are no results for a report; then no directory is kept.
    fn is_empty(accumulator: &Self::Accumulator) -> bool;

    /// Returns the results of a run; adds its warnings and failure to those of the run.
    fn conclude(
        run: &mut Finished<'_, Self>,
        accumulator: Self::Accumulator,
    ) -> Concluded<Self::Results>;

    /// Returns the headline, in one or a few sentences.
    fn headline(document: &Document<Self>) -> String;

    /// Returns the figure that the headline leads with, by which runs of one plan are told apart; `None` if it has no such figure.
    fn leading(_document: &Document<Self>) -> Option<Leading> {
        None
    }

    /// Returns the figures that results state: of a run, or of one that is under way.
    fn stated(settings: &Self::Settings, results: &Self::Results) -> StatedFigures;

    /// Returns the figures of a run for a comparison.
    fn figures(document: &Document<Self>, _samples: &SampleFile) -> Result<Figures, CliError> {
        Ok(Self::stated(&document.settings, &document.results).into())
    }

    /// Returns the report of a run; `raw` adds the raw lines, if there are any.
    fn report(document: &Document<Self>, raw: bool) -> Report;

    /// Returns the charts of its page.
    fn charts(document: &Document<Self>, samples: &Path) -> Result<Vec<Chart>, HtmlError>;

    /// Returns whether a run's report has raw lines.
    fn kept_raw(_document: &Document<Self>) -> bool {
        false
    }
}

/// A run after measuring.
pub struct Finished<'a, M: Measurement> {
    /// What was requested, with every default.
    pub request: &'a Request<M::Settings>,
    /// Its plan.
    pub plan: &'a Plan<M>,
    /// The manifest of the run.
    pub manifest: &'a Manifest,
    /// How it ended.
    pub ended: RunEnd,
}

impl<M: Measurement> Finished<'_, M> {
    /// Adds warnings of the measurement, then the failure that ended the run.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        self.ended.warnings.extend(warnings);
        let failure = self.ended.failure.as_ref().map(CliError::warning);
        // Who gave no answer is told once, best by who met it.
        let lost = self.ended.warnings.iter();
        let lost = lost.filter(|warning| warning.code == WarningCode::ServerLost);
        let lost = lost.map(|warning| warning.message.clone());
        let lost: Vec<String> = lost
            .chain(failure.iter().map(|failure| failure.message.clone()))
            .collect();
        self.ended.warnings.retain(|warning| {
            let name = warning.message.split(' ').next().unwrap_or_default();
            warning.code != WarningCode::ServerSilent
                || !lost
                    .iter()
                    .any(|message| message.split([' ', ':']).any(|word| word == name))
        });
        // What ended the run can be there already.
        let failure = failure.filter(|failure| !self.ended.warnings.contains(failure));
        self.ended.warnings.extend(failure);
    }

    /// Returns the target as recorded, from its servers and the plan.
    pub fn target(&self, shape: String, modes: Vec<String>) -> TargetRecord {
        let options = self.request.target.server_options.iter();
        let options = options.map(|option| format!("server option {option}"));
        // All sandboxes of a run have the same.
        let sandbox = self.manifest.sandboxes.first();
        let client = sandbox.and_then(|sandbox| sandbox.client_link.as_ref());
        let client = client.map(|link| format!("links of the client: {link}"));
        let flush = sandbox.and_then(|sandbox| sandbox.flush_delay.as_ref());
        let flush = flush.map(|delay| format!("flushes to the disk: {delay}"));
        let mut targets = self.request.targets.iter();
        let fresh = targets.all(|target| matches!(target, Target::Sandbox(_)));
        let nodes = self.manifest.servers.iter().map(|server| NodeRecord {
            shape: server.shape.clone(),
            name: server.name.clone(),
            address: server.address.clone(),
            version: server.title(),
        });
        TargetRecord {
            shape,
            modes,
            options: options.chain(client).chain(flush).collect(),
            sandbox: !self.manifest.sandboxes.is_empty(),
            fresh_starts: if fresh { M::starts(self.plan) } else { 0 },
            nodes: nodes.collect(),
        }
    }

    /// Builds the record from the gathered state, and the other files of the run.
    pub(super) fn conclude(mut self, accumulator: M::Accumulator) -> RunOutput<M> {
        let concluded = M::conclude(&mut self, accumulator);
        let (ended, manifest) = (self.ended, self.manifest);
        let mut failure = ended.failure;
        let mut warnings = ended.warnings;
        let nothing = concluded.nothing || concluded.measured_us.is_some_and(|us| us <= 0.0);
        if let Some(failure) = failure.as_mut().filter(|_| nothing) {
            let before = failure.warning();
            *failure = failure
                .clone()
                .without_results("the run directory has only the preparation and the warm-up");
            for warning in &mut warnings {
                if *warning == before {
                    *warning = failure.warning();
                }
            }
        }
        let mut document = Envelope {
            schema: schema::run_schema::<M::Settings>(),
            command: M::Settings::NAME.to_owned(),
            title: self.request.title.clone(),
            run_dir: ended.run_dir,
            started_at: manifest.started_at.clone(),
            measured_us: concluded.measured_us,
            status: status(failure.as_ref()),
            error: failure.as_ref().map(|failure| failure.message.clone()),
            headline: String::new(),
            equal_runs: None,
            settings: self.request.settings.clone(),
            target: concluded.target,
            client: ClientRecord {
                start_lateness: concluded.start_lateness,
                keep_awake: ended.keep_awake,
                keep_awake_reason: ended.keep_awake_reason,
                real_time: ended.real_time,
                real_time_reason: ended.real_time_reason,
                clock_step_us: Nanos::from(ended.clock_step).as_micros(),
                cores: manifest.machine.cores as u64,
                host: ended.host,
            },
            warnings,
            results: concluded.results,
        };
        document.headline = match document.status {
            RunStatus::Interrupted if nothing => {
                "The run was interrupted before anything was measured.".to_owned()
            }
            RunStatus::Failed if nothing => {
                "The run failed before anything was measured.".to_owned()
            }
            _ => M::headline(&document),
        };
        RunOutput {
            document,
            histograms: concluded.histograms,
            failure,
        }
    }
}

/// The figure that leads a headline.
pub struct Leading {
    /// What it is of: a replica, a load.
    pub figure: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: Quantity,
}

impl Leading {
    /// Returns the figure, if it has a value.
    pub fn of(figure: String, value: Option<f64>, unit: Quantity) -> Option<Self> {
        let value = value?;
        Some(Self {
            figure,
            value,
            unit,
        })
    }
}

/// The results of a run, without its warnings.
#[derive(Default)]
pub struct Concluded<R> {
    /// The figures.
    pub results: R,
    /// The target.
    pub target: TargetRecord,
    /// The measured time in µs, if there is one.
    pub measured_us: Option<f64>,
    /// How late the writes started, if they had a schedule.
    pub start_lateness: Distribution,
    /// Whether no figure was measured, even if some time passed; an end of the run then leaves no partial results.
    pub nothing: bool,
    /// The histograms of the figures.
    pub histograms: Option<Histograms>,
}

/// The files of a run.
pub(super) struct RunOutput<M: Measurement> {
    pub(super) document: Document<M>,
    pub(super) histograms: Option<Histograms>,
    /// The failure of the command, if any.
    pub(super) failure: Option<CliError>,
}

/// The histograms of the figures, by name, and their common duration.
pub struct Histograms {
    /// The measured time.
    pub took: Nanos,
    /// A name and its histogram.
    pub series: Vec<(String, SignedHistogram)>,
}

/// Returns the status of a run by its failure.
fn status(failure: Option<&CliError>) -> RunStatus {
    match failure.map(|failure| failure.kind) {
        None => RunStatus::Complete,
        Some(FailureKind::Interrupted) => RunStatus::Interrupted,
        Some(FailureKind::Invalid) => RunStatus::Invalid,
        Some(FailureKind::Failed | FailureKind::Usage) => RunStatus::Failed,
    }
}
