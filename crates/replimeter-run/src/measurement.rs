//! A measurement, as everything that serves all of them sees it.

mod context;

use std::path::Path;

use clap::{Arg, Args, Command};
use replimeter_model::{
    envelope::Envelope,
    manifest::Manifest,
    plan::{Planned, Settings},
    record::{ClientRecord, Distribution, NodeRecord, RunStatus, TargetRecord},
    schema,
    time::Nanos,
    warning::Warning,
};
use replimeter_render::{
    chart::Chart,
    html::HtmlError,
    report::Report,
    rows::{Columns, Rows},
    together::Findings,
};
use replimeter_stats::signed::SignedHistogram;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

pub use self::context::Ended;
pub(super) use self::context::{LastCall, Request, plan_text};
pub use self::context::{RunContext, to_measure};
use super::{event::Observer, screen::Screen};
use crate::{
    compare::figures::{Figures, SampleFile},
    failure::{Failure, Kind},
    options::{Given, OutputArgs},
    touches::Touches,
};

/// What the settings of a measurement come to.
pub type Plan<M> = <<M as Measurement>::Settings as Settings>::Plan;

/// The record of a measurement's run.
pub type Document<M> = Envelope<<M as Measurement>::Settings, <M as Measurement>::Results>;

/// A kind of measurement. Measuring hands over [calls](Self::Call), which are gathered and in the
/// end made into results; a recorded run is summed up again by the same two functions.
pub trait Measurement: Sized + 'static {
    /// What it does, in the list of commands.
    const ABOUT: &'static str;
    /// What stands below the options in its help.
    const EXAMPLES: &'static str;
    /// The options of the target where it starts its own servers; `None` where it takes every target.
    const OWN_SERVERS: Option<fn(&Arg) -> bool> = None;
    /// Whether its runs keep histograms.
    const HISTOGRAMS: bool = true;
    /// Whether the intervals of its figures hold what differs from start to start of servers.
    const STARTS: bool = false;

    /// What can be chosen, and what it comes to.
    type Settings: Settings + 'static;
    /// What the command line can ask for and a plan cannot.
    type Options: Default;
    /// What measuring hands over, piece by piece.
    type Call: Serialize + DeserializeOwned;
    /// What was handed over so far.
    type Gathered;
    /// What the rows of its samples look like.
    type Columns: Columns + Default;
    /// What a run comes to.
    type Results: Serialize + DeserializeOwned + JsonSchema + 'static;

    /// Adds what says where and how results go.
    fn output(command: Command) -> Command {
        OutputArgs::augment_args(command)
    }

    /// What is asked for besides the plan.
    fn options(_given: &Given) -> Self::Options {
        Self::Options::default()
    }

    /// What it wants of this machine.
    fn client(_plan: &Plan<Self>) -> Client {
        Client::default()
    }

    /// Refuses what makes no sense, before anything is touched.
    fn check(_plan: &Planned<Self::Settings>) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether such a run has raw lines.
    fn has_raw(_work: &Plan<Self>) -> bool {
        false
    }

    /// Whether the run's own lines have standard output for themselves.
    fn streams(_options: &Self::Options) -> bool {
        false
    }

    /// Who else watches the run.
    fn observer<'a>(
        _options: &Self::Options,
        _screen: &'a dyn Screen,
    ) -> Option<Box<dyn Observer + 'a>> {
        None
    }

    /// Says what a run will touch.
    fn touches(touches: &mut Touches, plan: &Planned<Self::Settings>) -> Result<(), Failure>;

    /// Measures, and hands over what comes of it.
    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), Failure>;

    /// Nothing gathered yet.
    fn gathered(plan: &Planned<Self::Settings>) -> Self::Gathered;

    /// Adds a piece, and its rows to the samples.
    fn take(
        gathered: &mut Self::Gathered,
        work: &Plan<Self>,
        call: Self::Call,
        rows: &mut Rows<Self::Columns>,
    );

    /// Adds the rows that come after all others.
    fn last_rows(_gathered: &Self::Gathered, _rows: &mut Rows<Self::Columns>) {}

    /// What a user must know even when there is no report.
    fn warnings(_gathered: &Self::Gathered) -> &[Warning] {
        &[]
    }

    /// Whether there is nothing that a report could be made of; no directory is kept then.
    fn is_empty(gathered: &Self::Gathered) -> bool;

    /// What a run came to; its warnings, and what it ends with, are added to those of the run.
    fn conclude(run: &mut Finished<'_, Self>, gathered: Self::Gathered)
    -> Concluded<Self::Results>;

    /// The finding in a sentence or a few.
    fn headline(document: &Document<Self>) -> String;

    /// What can be compared of a run.
    fn figures(document: &Document<Self>, samples: &SampleFile) -> Result<Figures, Failure>;

    /// What people read of a run, with the raw lines where there are some.
    fn report(document: &Document<Self>, raw: bool) -> Report;

    /// The charts of its page.
    fn charts(document: &Document<Self>, samples: &Path) -> Result<Vec<Chart>, HtmlError>;

    /// What a page of several runs shows of this one.
    fn findings(_document: &Document<Self>) -> Findings<'_> {
        Findings::Other
    }

    /// Whether a run's report has raw lines.
    fn kept_raw(_document: &Document<Self>) -> bool {
        false
    }
}

/// What a measurement wants of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client {
    /// Idle cores are kept from halting.
    pub keep_awake: bool,
    /// The measuring threads go before all others.
    pub real_time: bool,
}

/// A run that is over.
pub struct Finished<'a, M: Measurement> {
    /// The plan with every default.
    pub plan: &'a Planned<M::Settings>,
    /// What the settings come to.
    pub work: &'a Plan<M>,
    /// What produced the run.
    pub manifest: &'a Manifest,
    /// How it ended.
    pub ended: Ended,
}

impl<M: Measurement> Finished<'_, M> {
    /// Adds warnings of the measurement, and then what ended the run.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        self.ended.warnings.extend(warnings);
        self.ended
            .warnings
            .extend(self.ended.failure.as_ref().map(Failure::warning));
    }

    /// What was measured, as its servers and the plan have it.
    pub fn target(&self, shape: String, modes: Vec<String>) -> TargetRecord {
        let options = self.plan.target.server_options.iter();
        let nodes = self.manifest.servers.iter().map(|server| NodeRecord {
            shape: server.shape.clone(),
            name: server.name.clone(),
            address: server.address.clone(),
            version: server.title(),
        });
        TargetRecord {
            shape,
            modes,
            options: options
                .map(|option| format!("server option {option}"))
                .collect(),
            sandbox: !self.manifest.sandboxes.is_empty(),
            nodes: nodes.collect(),
        }
    }

    /// The record of what was gathered, and what else is kept of the run.
    pub(super) fn conclude(mut self, gathered: M::Gathered) -> Kept<M> {
        let concluded = M::conclude(&mut self, gathered);
        let (ended, manifest) = (self.ended, self.manifest);
        let failure = ended.failure;
        let mut document = Envelope {
            schema: schema::run_schema::<M::Settings>(),
            command: M::Settings::NAME.to_owned(),
            title: self.plan.title.clone(),
            run_dir: ended.run_dir,
            started_at: manifest.started_at.clone(),
            measured_us: concluded.measured_us,
            status: status(failure.as_ref()),
            error: failure.as_ref().map(|failure| failure.message.clone()),
            headline: String::new(),
            settings: self.plan.settings.clone(),
            target: concluded.target,
            client: ClientRecord {
                start_lateness: concluded.start_lateness,
                keep_awake: ended.keep_awake,
                real_time: ended.real_time,
                clock_step_us: Nanos::from(ended.clock_step).as_micros(),
                cores: manifest.machine.cores as u64,
            },
            warnings: ended.warnings,
            results: concluded.results,
        };
        document.headline = M::headline(&document);
        Kept {
            document,
            histograms: concluded.histograms,
            failure,
        }
    }
}

/// What a run came to, besides its warnings.
#[derive(Default)]
pub struct Concluded<R> {
    /// The figures.
    pub results: R,
    /// What was measured.
    pub target: TargetRecord,
    /// How long was measured, where there is such a time.
    pub measured_us: Option<f64>,
    /// How late the writes started, where they had a schedule.
    pub start_lateness: Distribution,
    /// The histograms behind the figures.
    pub histograms: Option<Histograms>,
}

/// What is kept of a run.
pub(super) struct Kept<M: Measurement> {
    pub(super) document: Document<M>,
    pub(super) histograms: Option<Histograms>,
    /// What the command ends with, when not with success.
    pub(super) failure: Option<Failure>,
}

/// The histograms behind the figures, by name, and the length of what they are of.
pub struct Histograms {
    /// How long was measured.
    pub took: Nanos,
    /// A name and its histogram.
    pub series: Vec<(String, SignedHistogram)>,
}

/// The status that goes with an ending.
fn status(failure: Option<&Failure>) -> RunStatus {
    match failure.map(|failure| failure.kind) {
        None => RunStatus::Complete,
        Some(Kind::Interrupted) => RunStatus::Interrupted,
        Some(Kind::Invalid) => RunStatus::Invalid,
        Some(Kind::Failed | Kind::Usage) => RunStatus::Failed,
    }
}
