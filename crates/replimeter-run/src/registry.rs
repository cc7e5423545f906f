//! The measurements by name.

use std::{
    fmt,
    marker::PhantomData,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use clap::{
    Arg, ArgMatches, Args, Command, FromArgMatches, builder::StyledStr, parser::ValueSource,
};
use replimeter_model::{
    manifest::Manifest,
    plan::{self, PlanError, PlanFile, Request, Section, Settings, default_text},
    schema,
    target::Target,
};
use replimeter_render::rows::{ColumnInfo, Columns as _, RowFile, Rows};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use toml::Table;

use super::{
    document::{AnyRun, RecordedDocument},
    driver,
    measurement::{Finished, Histograms, LastCall, Measurement, RunSurroundings, plan_text},
    screen::Host,
};
use crate::{
    cli_error::CliError,
    dry_run::PlanEffects,
    figures::FigureSpec,
    options::{CommandLineSettings, OutputArgs, TargetArgs, sandbox_options, target_of},
};

/// An entry of the registry: any measurement.
pub trait Entry: Send + Sync {
    /// Returns its command, which is also its section of a plan file.
    fn name(&self) -> &'static str;

    /// Returns the schema of its documents.
    fn schema(&self) -> String;

    /// Returns the JSON Schema of its documents.
    fn document(&self) -> Value;

    /// Returns its section of a plan file.
    fn section(&self) -> Section;

    /// Returns the columns of its samples.
    fn columns(&self) -> Vec<ColumnInfo>;

    /// Returns the specifications of its figures, in display order.
    fn figure_specs(&self) -> Vec<&'static FigureSpec>;

    /// Returns the figure that decides a trial; `None` if it has no trials.
    fn trial_figure(&self) -> Option<&'static str>;

    /// Returns its command line.
    fn command(&self) -> Command;

    /// Returns the settings given on a command line.
    fn given(&self, matches: &ArgMatches) -> Result<CommandLineSettings, CliError>;

    /// Returns a plan of the given settings.
    fn plan(&self, given: &CommandLineSettings) -> Result<Box<dyn PlannedRun>, PlanError>;

    /// Returns a plan from a file's text and given settings; `sections` are those of all measurements.
    fn plan_of(
        &self,
        text: &str,
        sections: &[Section],
        given: &CommandLineSettings,
    ) -> Result<Box<dyn PlannedRun>, PlanError>;

    /// Parses the record of a run.
    fn read(&self, document: Value) -> serde_json::Result<Box<dyn AnyRun>>;

    /// Summarizes the calls of a [recorded](super::Host) run or of a journal again, and writes its samples again.
    ///
    /// # Errors
    /// If a call cannot be read or is an error, the samples cannot be written, or `stop` becomes true; then there are no samples.
    fn replay(
        &self,
        plan: &str,
        manifest: &Manifest,
        calls: &mut dyn Iterator<Item = Result<Value, CliError>>,
        samples: &Path,
        stop: &AtomicBool,
    ) -> Result<Replayed, CliError>;
}

/// The results of a replay.
pub struct Replayed {
    /// The record; `None` if the calls have no results.
    pub run: Option<Box<dyn AnyRun>>,
    /// The histograms of its figures.
    pub histograms: Option<Histograms>,
}

/// What a trial repeats.
pub struct TrialUnit {
    /// A plan of one of the starts that share the rounds.
    pub plan: Box<dyn PlannedRun>,
    /// The title of the whole plan.
    pub title: Option<String>,
    /// The shapes of the targets.
    pub shape: String,
    /// Whether servers are started each time.
    pub restarts: bool,
}

/// A plan of any measurement.
pub trait PlannedRun {
    /// Returns the measurement's name.
    fn name(&self) -> &'static str;

    /// Returns what a trial repeats.
    ///
    /// # Errors
    /// When its settings contradict that.
    fn unit(&self) -> Result<TrialUnit, PlanError>;

    /// Rejects invalid settings before anything is changed.
    fn check(&self, output: &OutputArgs) -> Result<(), CliError>;

    /// Returns the plan as a file with every default.
    fn text(&self) -> Result<String, CliError>;

    /// Returns the effects of the run, as comments of such a file.
    fn effects(&self, output: &OutputArgs) -> Result<String, CliError>;

    /// Runs it, or answers without a run if that is asked for.
    fn carry_out(
        &self,
        given: &CommandLineSettings,
        host: &Host<'_>,
        stop: &AtomicBool,
    ) -> Result<(), CliError>;
}

struct RegisteredMeasurement<M>(PhantomData<fn() -> M>);

impl<M: Measurement> Entry for RegisteredMeasurement<M> {
    fn name(&self) -> &'static str {
        M::Settings::NAME
    }

    fn schema(&self) -> String {
        schema::run_schema::<M::Settings>()
    }

    fn document(&self) -> Value {
        schema::run::<M::Settings, M::Results>()
    }

    fn section(&self) -> Section {
        Section::of::<M::Settings>()
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        M::Columns::TABLE.infos()
    }

    fn figure_specs(&self) -> Vec<&'static FigureSpec> {
        M::FIGURES()
    }

    fn trial_figure(&self) -> Option<&'static str> {
        M::TRIAL_FIGURE
    }

    fn command(&self) -> Command {
        let command = Command::new(M::Settings::NAME);
        let command = match M::OWN_SERVERS {
            None => TargetArgs::augment_args(command),
            Some(takes) => sandbox_options(command, takes),
        };
        let command = settings::<M::Settings>(M::target(command));
        // Structs of options add their own descriptions.
        in_order(M::output(command))
            .about(M::ABOUT)
            .after_long_help(M::EXAMPLES)
    }

    fn given(&self, matches: &ArgMatches) -> Result<CommandLineSettings, CliError> {
        let mut settings =
            M::Settings::from_arg_matches(matches).map_err(|error| unwritable(&error))?;
        for workload in settings.workloads() {
            *workload = path_of_workload(workload);
        }
        let mut table = Table::try_from(&settings).map_err(|error| unwritable(&error))?;
        // A flag that is not given has a value too.
        table.retain(|key, _| {
            matches.value_source(&key.replace('-', "_")) == Some(ValueSource::CommandLine)
        });
        let mut given = match M::OWN_SERVERS {
            None => TargetArgs::from_arg_matches(matches)
                .map_err(|error| unwritable(&error))?
                .given()?,
            Some(_) => CommandLineSettings {
                target: target_of(matches).map_err(|error| unwritable(&error))?,
                ..CommandLineSettings::default()
            },
        };
        given.settings = table;
        given.once = matches!(matches.try_get_one("once"), Ok(Some(true)));
        given.output = OutputArgs::from_arg_matches(matches).map_err(|error| unwritable(&error))?;
        Ok(given)
    }

    fn plan(&self, given: &CommandLineSettings) -> Result<Box<dyn PlannedRun>, PlanError> {
        let plan = PlanFile::default().with(&given.target, given.settings.clone())?;
        Ok(Box::new(ReadyRun::<M>(plan.plan()?)))
    }

    fn plan_of(
        &self,
        text: &str,
        sections: &[Section],
        given: &CommandLineSettings,
    ) -> Result<Box<dyn PlannedRun>, PlanError> {
        let plan = PlanFile::from_toml(text, sections)?;
        let plan = plan.with(&given.target, given.settings.clone())?;
        Ok(Box::new(ReadyRun::<M>(plan.plan_of(text)?)))
    }

    fn read(&self, document: Value) -> serde_json::Result<Box<dyn AnyRun>> {
        Ok(Box::new(RecordedDocument::<M>(serde_json::from_value(
            document,
        )?)))
    }

    fn replay(
        &self,
        plan: &str,
        manifest: &Manifest,
        calls: &mut dyn Iterator<Item = Result<Value, CliError>>,
        samples: &Path,
        stop: &AtomicBool,
    ) -> Result<Replayed, CliError> {
        let request = PlanFile::<M::Settings>::from_toml(plan, &[self.section()])?.plan_of(plan)?;
        let mut accumulator = M::accumulator(&request);
        let mut rows = Rows::new(M::Columns::default());
        let mut file = RowFile::create::<M::Columns>(samples)?;
        let mut ended = None;
        for call in calls {
            let call = call?;
            if stop.load(Ordering::Relaxed) {
                return Err(CliError::interrupted(
                    "interrupted while the samples of a run were made from its journal; nothing of them is kept",
                ));
            }
            if ["ended", "cut_off"]
                .iter()
                .any(|end| call.get(end).is_some())
            {
                ended = Some(read_call(&call)?);
                continue;
            }
            M::take(
                &mut accumulator,
                &request.plan,
                read_call(&call)?,
                &mut rows,
            );
            let full = rows.take_full();
            full.iter().try_for_each(|batch| file.write(batch))?;
        }
        if let Some(LastCall::CutOff(_)) = ended {
            M::cut_off(&mut accumulator);
        }
        M::last_rows(&accumulator, &mut rows);
        let rest = rows.take_all();
        rest.iter().try_for_each(|batch| file.write(batch))?;
        file.finish()?;
        let ended = ended.filter(|_| !M::is_empty(&accumulator));
        let Some(LastCall::Ended(ended) | LastCall::CutOff(ended)) = ended else {
            return Ok(Replayed {
                run: None,
                histograms: None,
            });
        };
        let finished = Finished::<M> {
            request: &request,
            plan: &request.plan,
            manifest,
            ended,
        };
        let kept = finished.conclude(accumulator);
        Ok(Replayed {
            run: Some(Box::new(RecordedDocument::<M>(kept.document))),
            histograms: kept.histograms,
        })
    }
}

/// Returns a call without members that are null or empty lists: they state nothing.
fn stated(call: &Value) -> Value {
    let nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match call {
        Value::Object(members) => members
            .iter()
            .filter(|(_, value)| !nothing(value))
            .map(|(name, value)| (name.clone(), stated(value)))
            .collect(),
        Value::Array(all) => all.iter().map(stated).collect(),
        _ => call.clone(),
    }
}

/// Parses one line of a recorded run.
fn read_call<T: Serialize + DeserializeOwned>(call: &Value) -> Result<T, CliError> {
    let refuse = |reason: &str| {
        let call: String = call.to_string().chars().take(300).collect();
        CliError::failed(
            format!("cannot read a recorded call: {reason}: {call}"),
            "another version recorded it: record the run again",
        )
    };
    let read = T::deserialize(call).map_err(|error| refuse(&error.to_string()))?;
    // A value that is not serialized again was not understood.
    match serde_json::to_value(&read) {
        Ok(written) if stated(&written) == stated(call) => Ok(read),
        _ => Err(refuse("it has unknown parts")),
    }
}

/// A plan that is ready to run.
struct ReadyRun<M: Measurement>(Request<M::Settings>);

impl<M: Measurement> PlannedRun for ReadyRun<M> {
    fn name(&self) -> &'static str {
        M::Settings::NAME
    }

    fn unit(&self) -> Result<TrialUnit, PlanError> {
        let mut one = self.0.clone();
        one.settings.leave_one_start();
        (one.targets, one.plan) = one.settings.plan(&mut one.target)?;
        let mut targets = one.targets.iter();
        let labels: Vec<String> = targets.clone().map(Target::label).collect();
        Ok(TrialUnit {
            title: one.title.clone(),
            shape: labels.join(", "),
            restarts: targets.all(|target| matches!(target, Target::Sandbox(_))),
            plan: Box::new(Self(one)),
        })
    }

    fn check(&self, output: &OutputArgs) -> Result<(), CliError> {
        driver::check::<M>(&self.0, output)
    }

    fn text(&self) -> Result<String, CliError> {
        plan_text(&self.0)
    }

    fn effects(&self, output: &OutputArgs) -> Result<String, CliError> {
        let mut effects = PlanEffects::of(&self.0.targets);
        M::effects(&mut effects, &self.0)?;
        effects.files(output, self.name(), M::HISTOGRAMS);
        Ok(effects.comments())
    }

    fn carry_out(
        &self,
        given: &CommandLineSettings,
        host: &Host<'_>,
        stop: &AtomicBool,
    ) -> Result<(), CliError> {
        let mut servers = (host.servers)(given, self.0.target.defaults_file.clone());
        let mut surroundings = RunSurroundings {
            servers: servers.as_mut(),
            host,
            output: &given.output,
            warnings: given.warnings.clone(),
        };
        if given.once {
            return M::once(&self.0, &mut surroundings, stop);
        }
        driver::run::<M>(&self.0, surroundings, M::options(given), stop)
    }
}

/// All measurements, in the order of the help.
#[derive(Default)]
pub struct Registry(Vec<Box<dyn Entry>>);

impl Registry {
    /// Adds a measurement.
    pub fn with<M: Measurement>(mut self) -> Self {
        self.0
            .push(Box::new(RegisteredMeasurement::<M>(PhantomData)));
        self
    }

    /// Returns the measurement of this name.
    pub fn get(&self, name: &str) -> Option<&dyn Entry> {
        self.entries().find(|entry| entry.name() == name)
    }

    /// Returns all measurements.
    pub fn entries(&self) -> impl Iterator<Item = &dyn Entry> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// Returns their sections of plan files.
    fn sections(&self) -> Vec<Section> {
        self.entries().map(Entry::section).collect()
    }

    /// Returns the plan from a file's text, for any measurement, and given settings.
    pub fn plan(
        &self,
        text: &str,
        given: &CommandLineSettings,
    ) -> Result<Box<dyn PlannedRun>, PlanError> {
        let sections = self.sections();
        let name = plan::command(text, &sections)?;
        let entry = self
            .get(name)
            .ok_or_else(|| PlanError::Contradiction(format!("there is no measurement `{name}`")))?;
        entry.plan_of(text, &sections, given)
    }

    /// Returns the names of all schemas: plan files, and the document of each command.
    pub fn schemas(&self) -> impl Iterator<Item = &'static str> {
        let measured = self.entries().map(Entry::name);
        let others = schema::OTHERS.iter().map(|(name, _)| *name);
        std::iter::once(schema::PLAN).chain(measured).chain(others)
    }

    /// Returns the JSON Schema of this name.
    pub fn schema(&self, name: &str) -> Option<Value> {
        if name == schema::PLAN {
            return Some(schema::plan(&self.sections()));
        }
        if let Some(entry) = self.get(name) {
            return Some(entry.document());
        }
        let (_, document) = schema::OTHERS.iter().find(|(other, _)| *other == name)?;
        Some(document())
    }
}

/// The headings of options, in the order of the help.
const HEADINGS: [&str; 6] = [
    "Target",
    "Measurement",
    "Load",
    "Sandbox",
    "Client",
    "Output",
];

/// Returns the command with its options in the order of their headings.
fn in_order(command: Command) -> Command {
    let mut options: Vec<Arg> = command.get_arguments().cloned().collect();
    options.sort_by_key(|option| {
        let heading = option.get_help_heading();
        HEADINGS.iter().position(|known| Some(*known) == heading)
    });
    Command::new(command.get_name().to_owned()).args(options)
}

/// What stands for a default in a doc comment.
const DEFAULT: &str = " [default: {default}]";
/// What stands for its value.
const VALUE: &str = "{default}";

/// Adds the options of settings, with their defaults.
fn settings<S: Settings>(command: Command) -> Command {
    let defaults = S::defaults();
    let options = S::augment_args(Command::new(S::NAME));
    options
        .get_arguments()
        .fold(S::augment_args(command), |command, option| {
            let key = option.get_id().as_str().replace('_', "-");
            let default = defaults.get(&key).map(default_text);
            let in_text = default.clone().unwrap_or_default();
            let text = |text: Option<&StyledStr>| {
                let text = text?.to_string().replace(DEFAULT, "");
                // A default that depends on another option.
                Some(text.replace(VALUE, &in_text))
            };
            let (short, long) = (text(option.get_help()), text(option.get_long_help()));
            let about = option.get_help().map(ToString::to_string);
            let has_default = about.is_some_and(|about| about.contains(DEFAULT));
            command.mut_arg(option.get_id(), |option| {
                let option = option.help(short.unwrap_or_default());
                let option = match long {
                    Some(long) => option.long_help(long),
                    None => option,
                };
                // The parser shows it; `given` takes only what the command line has.
                match default.filter(|_| has_default) {
                    Some(default) => option.default_value(default),
                    None => option,
                }
            })
        })
}

/// Returns the failure for a value that a plan cannot express.
fn unwritable(error: &impl fmt::Display) -> CliError {
    CliError::usage(
        error.to_string(),
        "run the command with --help for its options",
    )
}

/// Returns the name of a built-in workload, or a file's absolute path, so that a run's own plan works from
/// every folder.
fn path_of_workload(name: &str) -> String {
    if replimeter_model::load::BUILT_IN.contains(&name) {
        return name.to_owned();
    }
    let path = std::path::absolute(name);
    let path = path
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok());
    path.unwrap_or_else(|| name.to_owned())
}
