//! Plans: everything a run needs to know, with every default made concrete.

mod calibrate;
mod cost;
mod exposure;
mod lag;
mod load;
mod loading;
mod loss;
mod place;
mod scale;
mod stale;
mod tap;
mod target;
mod units;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    calibrate::{CalibratePlan, CalibrateSpec},
    cost::{CostPlan, CostShape, CostSpec},
    exposure::{ExposurePlan, ExposureSpec},
    lag::{
        DEFAULT_ROUNDS, DEFAULT_SIZE, Join, LagPlan, LagSpec, Method, Methods, Pace, Until, Writes,
    },
    loading::{LoadingPlan, LoadingSpec},
    loss::{Crash, LossCase, LossPlan, LossSpec},
    scale::{FEWEST_COUNTS, Replicas, ScaleMode, ScalePhase, ScalePlan, ScaleSpec},
    stale::{
        Case, JudgeLoad, Judged, Offsets, Pool, READERS, StalePace, StalePlan, StaleSpec, SyncReads,
    },
    tap::{By, TapPlan, TapSpec},
    target::{OneOrMore, TargetSpec, check_nodes},
};
use crate::{schema, suggest, target::Target};

/// Which measurement a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// How late is each replica.
    Lag,
    /// What each method makes of known delays.
    Calibrate,
    /// How late is every transaction of the real traffic.
    Tap,
    /// How much the servers do.
    Load,
    /// What each read replica costs and gives.
    Scale,
    /// What each mode of replication costs.
    Cost,
    /// How often reads miss what was acknowledged.
    Stale,
    /// What a crash of the primary takes with it.
    Loss,
    /// What a crash would take at any moment.
    Exposure,
}

impl Command {
    /// The name in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lag => "lag",
            Self::Calibrate => "calibrate",
            Self::Tap => "tap",
            Self::Load => "load",
            Self::Scale => "scale",
            Self::Cost => "cost",
            Self::Stale => "stale",
            Self::Loss => "loss",
            Self::Exposure => "exposure",
        }
    }
}

/// A plan as a file spells it; nothing need be there but what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlanFile {
    /// The measurement.
    pub command: Command,
    /// What the reader of the report should know it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What is measured.
    #[serde(default)]
    pub target: TargetSpec,
    /// How, for the command `lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<LagSpec>,
    /// How, for the command `calibrate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibrate: Option<CalibrateSpec>,
    /// How, for the command `tap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tap: Option<TapSpec>,
    /// How, for the command `load`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadingSpec>,
    /// How, for the command `scale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleSpec>,
    /// How, for the command `cost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostSpec>,
    /// How, for the command `stale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<StaleSpec>,
    /// How, for the command `loss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossSpec>,
    /// How, for the command `exposure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposure: Option<ExposureSpec>,
}

/// A resolved plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the reader should know it by.
    pub title: Option<String>,
    /// The target as it was given, every default made concrete.
    pub target: TargetSpec,
    /// What is measured, one after another; never empty.
    pub targets: Vec<Target>,
    /// How.
    pub work: Work,
}

/// What is done with the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// How late is each replica.
    Lag(LagPlan),
    /// What each method makes of known delays.
    Calibrate(CalibratePlan),
    /// How late is every transaction of the real traffic.
    Tap(TapPlan),
    /// How much the servers do.
    Load(LoadingPlan),
    /// What each read replica costs and gives.
    Scale(ScalePlan),
    /// What each mode of replication costs.
    Cost(CostPlan),
    /// How often reads miss what was acknowledged.
    Stale(StalePlan),
    /// What a crash of the primary takes with it.
    Loss(LossPlan),
    /// What a crash would take at any moment.
    Exposure(ExposurePlan),
}

/// Why a plan cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file is no plan; the message holds the line.
    #[error("{0}")]
    Syntax(String),
    /// Settings that contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

fn contradiction<T>(message: &str) -> Result<T, PlanError> {
    Err(PlanError::Contradiction(message.to_owned()))
}

/// What is wrong with a TOML text, with its line and column and what was probably meant;
/// shown as an excerpt unless that could hold a URL and so a password.
#[must_use]
pub fn explain(error: &toml::de::Error, text: &str) -> String {
    let excerpt = error.to_string();
    let mut explained = if excerpt.contains("://") {
        let (line, column) =
            place::line_and_column(text, error.span().map_or(0, |span| span.start));
        format!("line {line}, column {column}: {}", error.message())
    } else {
        excerpt.trim_end().to_owned()
    };
    if let Some((wrong, known)) = suggest::unknown(error.message()) {
        let hint = suggest::nearest(wrong, known).map(|word| format!("did you mean `{word}`?"));
        let hint = hint.or_else(|| {
            let sections = schema::sections_of(wrong);
            (!sections.is_empty())
                .then(|| format!("`{wrong}` is a key of [{}]", sections.join("] and [")))
        });
        explained.extend(hint.map(|hint| format!("\n{hint}")));
    }
    explained
}

impl PlanFile {
    /// A plan for `lag` from its parts.
    #[must_use]
    pub fn lag(target: TargetSpec, lag: LagSpec) -> Self {
        Self {
            lag: Some(lag),
            ..Self::of(Command::Lag, target)
        }
    }

    /// A plan for `calibrate` from its parts.
    #[must_use]
    pub fn calibrate(target: TargetSpec, calibrate: CalibrateSpec) -> Self {
        Self {
            calibrate: Some(calibrate),
            ..Self::of(Command::Calibrate, target)
        }
    }

    /// A plan for `tap` from its parts.
    #[must_use]
    pub fn tap(target: TargetSpec, tap: TapSpec) -> Self {
        Self {
            tap: Some(tap),
            ..Self::of(Command::Tap, target)
        }
    }

    /// A plan for `load` from its parts.
    #[must_use]
    pub fn load(target: TargetSpec, load: LoadingSpec) -> Self {
        Self {
            load: Some(load),
            ..Self::of(Command::Load, target)
        }
    }

    /// A plan for `scale` from its parts.
    #[must_use]
    pub fn scale(target: TargetSpec, scale: ScaleSpec) -> Self {
        Self {
            scale: Some(scale),
            ..Self::of(Command::Scale, target)
        }
    }

    /// A plan for `cost` from its parts.
    #[must_use]
    pub fn cost(target: TargetSpec, cost: CostSpec) -> Self {
        Self {
            cost: Some(cost),
            ..Self::of(Command::Cost, target)
        }
    }

    /// A plan for `stale` from its parts.
    #[must_use]
    pub fn stale(target: TargetSpec, stale: StaleSpec) -> Self {
        Self {
            stale: Some(stale),
            ..Self::of(Command::Stale, target)
        }
    }

    /// A plan for `loss` from its parts.
    #[must_use]
    pub fn loss(target: TargetSpec, loss: LossSpec) -> Self {
        Self {
            loss: Some(loss),
            ..Self::of(Command::Loss, target)
        }
    }

    /// A plan for `exposure` from its parts.
    #[must_use]
    pub fn exposure(target: TargetSpec, exposure: ExposureSpec) -> Self {
        Self {
            exposure: Some(exposure),
            ..Self::of(Command::Exposure, target)
        }
    }

    /// A plan without settings.
    fn of(command: Command, target: TargetSpec) -> Self {
        Self {
            command,
            title: None,
            target,
            lag: None,
            calibrate: None,
            tap: None,
            load: None,
            scale: None,
            cost: None,
            stale: None,
            loss: None,
            exposure: None,
        }
    }

    /// Reads a plan file's text.
    ///
    /// # Errors
    /// With the line and column of what is unknown or malformed.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        toml::from_str(text).map_err(|error| PlanError::Syntax(explain(&error, text)))
    }

    /// [`Self::resolve`] for a plan that was read from this text: errors show the lines
    /// of the settings that they name.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    pub fn resolve_from(&self, text: &str) -> Result<Plan, PlanError> {
        self.resolve().map_err(|error| match error {
            PlanError::Contradiction(message) => {
                let lines = place::named(&message, text, &["target", self.command.name()]);
                PlanError::Contradiction(message + &lines)
            }
            error @ PlanError::Syntax(_) => error,
        })
    }

    /// Fills in every default and checks the whole.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    pub fn resolve(&self) -> Result<Plan, PlanError> {
        let sections = [
            (Command::Lag, self.lag.is_some()),
            (Command::Calibrate, self.calibrate.is_some()),
            (Command::Tap, self.tap.is_some()),
            (Command::Load, self.load.is_some()),
            (Command::Scale, self.scale.is_some()),
            (Command::Cost, self.cost.is_some()),
            (Command::Stale, self.stale.is_some()),
            (Command::Loss, self.loss.is_some()),
            (Command::Exposure, self.exposure.is_some()),
        ];
        if let Some((other, _)) = sections
            .iter()
            .find(|(command, there)| *there && *command != self.command)
        {
            let (other, own) = (other.name(), self.command.name());
            return Err(PlanError::Contradiction(format!(
                "a plan for `{own}` has no section [{other}]; its own is [{own}]"
            )));
        }
        units::check(self)?;
        if self.command == Command::Scale {
            // Its numbers of replicas are its targets.
            let work = self.scale.clone().unwrap_or_default().resolve()?;
            let targets = scale::targets(&self.target, &work)?;
            return Ok(Plan {
                title: self.title.clone(),
                target: self.target.clone(),
                targets,
                work: Work::Scale(work),
            });
        }
        if self.command == Command::Cost {
            // Its modes are its targets.
            let work = self
                .cost
                .clone()
                .unwrap_or_default()
                .resolve(&self.target)?;
            let targets = work.targets();
            return Ok(Plan {
                title: self.title.clone(),
                target: self.target.clone(),
                targets,
                work: Work::Cost(work),
            });
        }
        let mut target = self.target.clone();
        match self.command {
            Command::Calibrate => {
                calibrate::check_target(&target, &target.resolve()?)?;
                calibrate::quiet(&mut target);
            }
            Command::Load => loading::alone(&mut target),
            Command::Loss => {
                loss::check_target(&mut target, &self.loss.clone().unwrap_or_default())?
            }
            _ => {}
        }
        let targets = target.resolve()?;
        let sandbox = !matches!(targets.as_slice(), [Target::Nodes(_)]);
        let several = targets.len() > 1;
        let lag = self.lag.clone().unwrap_or_default();
        if several && lag.sizes.is_some() {
            return contradiction("a sweep over sizes takes one sandbox; run it once for each");
        }
        let work = match self.command {
            Command::Lag => Work::Lag(lag.resolve(sandbox)?),
            Command::Calibrate => {
                Work::Calibrate(self.calibrate.clone().unwrap_or_default().resolve()?)
            }
            Command::Load => Work::Load(self.load.clone().unwrap_or_default().resolve(&targets)?),
            Command::Stale => Work::Stale(self.stale.clone().unwrap_or_default().resolve(sandbox)?),
            Command::Loss => Work::Loss(self.loss.clone().unwrap_or_default().resolve()?),
            Command::Exposure => Work::Exposure(
                self.exposure
                    .clone()
                    .unwrap_or_default()
                    .resolve(&targets)?,
            ),
            // The others have been resolved above.
            Command::Tap | Command::Scale | Command::Cost => {
                Work::Tap(self.tap.clone().unwrap_or_default().resolve(&targets)?)
            }
        };
        Ok(Plan {
            title: self.title.clone(),
            target: target.concrete(&targets),
            targets,
            work,
        })
    }
}

impl Plan {
    /// The plan as a file that spells out every default.
    #[must_use]
    pub fn to_file(&self) -> PlanFile {
        let (title, target) = (self.title.clone(), self.target.clone());
        match &self.work {
            Work::Lag(plan) => PlanFile {
                title,
                ..PlanFile::lag(target, plan.to_spec())
            },
            Work::Calibrate(plan) => PlanFile {
                title,
                ..PlanFile::calibrate(target, plan.to_spec())
            },
            Work::Tap(plan) => PlanFile {
                title,
                ..PlanFile::tap(target, plan.to_spec())
            },
            Work::Load(plan) => PlanFile {
                title,
                ..PlanFile::load(target, plan.to_spec())
            },
            Work::Scale(plan) => PlanFile {
                title,
                ..PlanFile::scale(target, plan.to_spec())
            },
            Work::Cost(plan) => PlanFile {
                title,
                ..PlanFile::cost(target, plan.to_spec())
            },
            Work::Stale(plan) => PlanFile {
                title,
                ..PlanFile::stale(target, plan.to_spec())
            },
            Work::Loss(plan) => PlanFile {
                title,
                ..PlanFile::loss(target, plan.to_spec())
            },
            Work::Exposure(plan) => PlanFile {
                title,
                ..PlanFile::exposure(target, plan.to_spec())
            },
        }
    }

    /// The text of `plan.toml`.
    ///
    /// # Errors
    /// When a value cannot be written as TOML, which no resolved plan contains.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&self.to_file())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{sandbox::SandboxSpec, span::Span};

    fn resolve(text: &str) -> Result<Plan, PlanError> {
        PlanFile::from_toml(text)?.resolve()
    }

    #[test]
    fn the_smallest_plan_has_every_default() {
        let plan = resolve("command = 'lag'").unwrap();
        assert_eq!(
            plan.targets,
            [Target::Sandbox(SandboxSpec::of("async:1".parse().unwrap()))]
        );
        let Work::Lag(lag) = plan.work else {
            panic!("a plan for another command")
        };
        assert_eq!(
            lag.writes,
            Writes::Rounds {
                until: Until::Rounds(1000),
                size: 1000
            }
        );
        assert_eq!(lag.pace, Pace::Every(Span::from_millis(10)));
        assert!(lag.keep_awake);
    }

    #[test]
    fn a_resolved_plan_reads_back_as_itself() {
        for text in [
            "command = 'lag'",
            "command = 'tap'",
            "command = 'scale'",
            "command = 'cost'",
            "command = 'cost'\ntitle = 'x'\n[target]\nserver-options = ['innodb_flush_method=O_DIRECT']\nwait-point = 'after-sync'\n[cost]\nmodes = 'mysql/semi-sync:2, galera'\nthreads = [1, 16]\nfor = '1m'\nlink-delays = ['0', '1ms']\nseed = 9",
            "command = 'cost'\n[cost]\nmodes = 'async'\nself-test = 7\nsize = '300MB'",
            "command = 'scale'\n[target]\ncpus-per-server = '0.25'\nwait-point = 'after-sync'\nserver-options = ['replicas:sync_binlog=1']\n[scale]\nmode = 'semi-sync'\nreplicas = '0,1,3'\nsize = '300MB'\nreads = 'all'\nupdates = true",
            "command = 'scale'\n[scale]\nreplicas = '0..4'\ncheck-prediction = true\nfor = '30s'\nseed = 9",
            "command = 'tap'\n[tap]\nfor = '60s'\nby = 'table'\nonly = ['shop', 'a.b']\nserver-id = 7",
            "command = 'loss'",
            "command = 'loss'\n[target]\nsandbox = ['async:1', 'semi-sync:2', 'galera:3']\n[loss]\ncrash = 'isolated'\ncrashes = 20\ngap = '1s'\nrate = 500",
            "command = 'exposure'",
            "command = 'exposure'\n[target]\nprimary = 'mysql://u@a/'\nreplicas = ['mysql://u@b/']\n[exposure]\nfor = '10m'\nlook = '50ms'",
            "command = 'lag'\n[lag]\nmethod = 'tap, poll'\nwriters = 8",
            "command = 'lag'\n[lag]\nmethod = 'all'\nfor = '60s'\npace = 'visible'\nsize = 5",
            "command = 'lag'\ntitle = 'x'\n[target]\nsandbox = 'async:2'\nserver-options = ['sync_binlog=1']\n[lag]\nsizes = '1..9:2'",
            "command = 'lag'\n[target]\nprimary = 'mysql://u@a/'\nreplicas = ['mysql://u@b/']\n[lag]\nkeep-awake = true",
            "command = 'lag'\n[target]\nsandbox = ['async:1', 'semi-sync:2', 'work']\nwait-point = 'after-sync'\nlink-delay = '5ms'\nserver-options = ['replica2:sync_binlog=1']",
            "command = 'lag'\n[target]\nsandbox = ['async:1', 'async:2']\nserver-options = ['replica2:sync_binlog=1', 'sync_binlog=2', 'replica1:sync_binlog=1', 'sync_binlog=2']",
            "command = 'lag'\n[lag]\nload = ['insert:8@primary', '/x/y.sql:2@replica1']\nrate = [100, 20]",
            "command = 'lag'\n[lag]\nload = ['insert:8@primary', 'mix:2@primary']\nrate = 100",
            "command = 'lag'\n[lag]\nbacklog = '30s'\nworkers = [1, 4, 1]",
            "command = 'lag'\n[lag]\nload = ['insert:8@primary']\nrate = 100\narrivals = 'poisson'\nload-size = '300MB'",
            "command = 'load'",
            "command = 'load'\n[load]\nworkload = ['post-insert', 'select']\nthreads = [1, 8]\nrate = 50\narrivals = 'poisson'\nsize = 1000\nkeep-data = true",
            "command = 'load'\n[target]\nprimary = 'mysql://a/'",
            "command = 'lag'\n[[target.nodes]]\nname = 'a'\nurl = 'mysql://a/'\n[[target.nodes]]\nname = 'b'\nrole = 'node'\nsource = 'a'\nurl = 'mysql://b/'",
        ] {
            let plan = resolve(text).unwrap();
            assert_eq!(resolve(&plan.to_toml().unwrap()).unwrap(), plan, "{text}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for (lag, want) in [
            ("size = 1\nsizes = '1'", "exclude"),
            ("rounds = 1\nfor = '1s'", "exclude"),
            ("rounds = 0", "at least 1"),
            ("per-step = 3", "belong to a sweep"),
            ("sizes = '1'\nrounds = 9", "per-step"),
            ("size = 0", "smallest is 1"),
            ("pace = 'every 0s'", "no schedule"),
            ("timeout = '0s'", "time-out"),
            ("method = 'poke'", "unknown method"),
            ("method = 'poll,poll'", "given twice"),
            ("writers = 0", "from 1 to"),
            ("writers = 2\nsizes = '1'", "one writer"),
            ("writers = 2\npace = 'visible'", "one writer"),
            ("rate = 5", "needs a load"),
            ("load = ['insert:1@primary']\nrate = 0", "rate of 0"),
            (
                "load = ['insert:1@primary']\nrate = [1, 2]",
                "as many rates",
            ),
            ("load = ['insert@primary']", "is no load"),
            ("workers = [1]", "belong to a backlog"),
            ("backlog = '0s'", "is none"),
            ("backlog = '1s'\nrounds = 5", "no rounds are measured"),
        ] {
            let error = resolve(&format!("command = 'lag'\n[lag]\n{lag}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(want), "{lag}: {error}");
        }
        for (plan, want) in [
            ("command = 'lag'\n[calibrate]", "no section [calibrate]"),
            (
                "command = 'scale'\n[target]\nsandbox = 'async:2'",
                "starts its own servers",
            ),
            (
                "command = 'scale'\n[scale]\nreplicas = '0..3'\ncheck-prediction = true",
                "5 numbers of replicas",
            ),
            ("command = 'scale'\n[scale]\nthreads = 0", "threads must be"),
            (
                "command = 'scale'\n[scale]\nmode = 'galera'",
                "no read replicas",
            ),
            (
                "command = 'scale'\n[scale]\nfor = '1ms'",
                "its own beginning",
            ),
            ("command = 'scale'\n[scale]\nstarts = 0", "from 1 to 1000"),
            ("command = 'tap'\n[tap]\nevery = '1ms'", "stretches of"),
            ("command = 'tap'\n[tap]\nonly = ['.t']", "no schema"),
            ("command = 'tap'\n[tap]\nrest = '1s'", "100ms at the most"),
            (
                "command = 'tap'\n[target]\nsandbox = ['async:1', 'async:2']",
                "one target",
            ),
            ("command = 'load'\n[load]\nthreads = 0", "1 to 1024 threads"),
            ("command = 'load'\n[load]\nrate = 0", "rate of 0"),
            (
                "command = 'load'\n[load]\narrivals = 'poisson'",
                "add a rate",
            ),
            (
                "command = 'load'\n[load]\nworkload = ['insert', 'insert']",
                "given twice",
            ),
            ("command = 'load'\n[load]\nfor = '0s'", "above 0"),
            (
                "command = 'loss'\n[target]\nsandbox = 'none'",
                "has no replica",
            ),
            (
                "command = 'loss'\n[target]\nsandbox = ['async:1', 'async:0']",
                "async:0 has no replica",
            ),
            (
                "command = 'loss'\n[target]\nsandbox = 'galera:1'",
                "has no replica",
            ),
            (
                "command = 'loss'\n[target]\nsandbox = 'work'",
                "starts and removes itself",
            ),
            (
                "command = 'loss'\n[target]\nprimary = 'mysql://a/'\nreplicas = ['mysql://b/']",
                "never servers of yours",
            ),
            (
                "command = 'loss'\n[target]\nprimary = 'mysql://a/'",
                "never servers of yours",
            ),
            ("command = 'loss'\n[loss]\ncrashes = 0", "crashes must be"),
            ("command = 'loss'\n[loss]\ngap = '1s'", "isolated crashes"),
            ("command = 'loss'\n[loss]\nfor = '1h'", "before a crash"),
            (
                "command = 'exposure'\n[target]\nsandbox = ['async:1', 'async:2']",
                "one target",
            ),
            (
                "command = 'exposure'\n[target]\nsandbox = 'work'\n[exposure]\nwriters = 2",
                "writes nothing",
            ),
            (
                "command = 'exposure'\n[exposure]\nlook = '1us'",
                "are asked every",
            ),
            (
                "command = 'calibrate'\n[calibrate]\ndelays = ['0']",
                "above 0",
            ),
            (
                "command = 'calibrate'\n[calibrate]\ndelays = ['11s']",
                "10s at the most",
            ),
            ("command = 'calibrate'\n[calibrate]\nrepeats = 0", "repeats"),
            (
                "command = 'calibrate'\n[target]\nsandbox = 'galera:3'",
                "async:N only",
            ),
            (
                "command = 'calibrate'\n[target]\nlink-delay = '1ms'",
                "--delays",
            ),
            (
                "command = 'calibrate'\n[target]\nprimary = 'mysql://a/'\nreplicas = ['mysql://b/']",
                "a replication link of ours",
            ),
        ] {
            let error = resolve(plan).unwrap_err().to_string();
            assert!(error.contains(want), "{plan}: {error}");
        }
        for (target, want) in [
            ("primary = 'mysql://a/'", "without a replica"),
            ("replicas = ['mysql://a/']", "without its primary"),
            (
                "sandbox = 'async:1'\nprimary = 'mysql://a/'\nreplicas = ['mysql://b/']",
                "either a sandbox",
            ),
            ("sandbox = ['async:1', 'async:1']", "given twice"),
            ("sandbox = []", "empty"),
            ("sandbox = 'ring:3'", "unknown sandbox shape"),
            ("sandbox = 'work'\nlink-delay = '1ms'", "sandbox up"),
            (
                "nodes = [{ name = 'a', url = 'mysql://a/' }, { name = 'a', url = 'mysql://b/' }]",
                "two servers are called",
            ),
            (
                "nodes = [{ name = 'a', url = 'mysql://a/' }, { name = 'b', url = 'mysql://a/' }]",
                "the same address",
            ),
            (
                "nodes = [{ name = 'a', url = 'mysql://a/' }, { name = 'b', source = 'c', url = 'mysql://b/' }]",
                "no other server",
            ),
        ] {
            let error = resolve(&format!("command = 'lag'\n[target]\n{target}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(want), "{target}: {error}");
        }
    }

    #[test]
    fn functions_and_engines_belong_to_sandboxes_that_are_started() {
        let plan = resolve("command = 'lag'\n[target]\nsandbox = ['async:1', 'galera:3']\nudf = true\nfederated = true").unwrap();
        let all = plan
            .targets
            .iter()
            .all(|target| matches!(target, Target::Sandbox(spec) if spec.udf && spec.federated));
        assert!(all && plan.target.udf, "{:?}", plan.targets);
        for target in [
            "sandbox = 'work'",
            "primary = 'mysql://a/'\nreplicas = ['mysql://b/']",
        ] {
            assert!(
                resolve(&format!("command = 'lag'\n[target]\n{target}\nudf = true")).is_err(),
                "{target}"
            );
        }
    }

    #[test]
    fn both_wait_points_are_crashed_unless_one_is_chosen() {
        let labels = |text: &str| {
            let plan = resolve(text).unwrap();
            let Work::Loss(loss) = &plan.work else {
                panic!("a plan for another command")
            };
            loss.cases(&plan.targets)
                .into_iter()
                .map(|case| case.label)
                .collect::<Vec<_>>()
        };
        let both = labels("command = 'loss'\n[target]\nsandbox = ['async:1', 'mysql/semi-sync:1']");
        assert_eq!(
            both,
            [
                "async:1",
                "mysql/semi-sync:1 after-commit",
                "mysql/semi-sync:1 after-sync"
            ]
        );
        let one = labels(
            "command = 'loss'\n[target]\nsandbox = 'semi-sync:1'\nwait-point = 'after-sync'",
        );
        assert_eq!(one, ["semi-sync:1 after-sync"]);
    }

    #[test]
    fn an_isolated_crash_has_a_link_to_cut() {
        let plan = resolve("command = 'loss'\n[loss]\ncrash = 'isolated'").unwrap();
        assert!(
            matches!(plan.targets.as_slice(), [Target::Sandbox(spec)] if spec.link.is_some()),
            "{:?}",
            plan.targets
        );
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = PlanFile::from_toml("command = 'lag'\n\n[lag]\nround = 5\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 4") && error.contains("round"),
            "{error}"
        );
    }

    #[test]
    fn what_was_meant_is_said() {
        for (text, want) in [
            ("command = 'lga'", "did you mean `lag`?"),
            (
                "command = 'lag'\n[lag]\nrouns = 5",
                "did you mean `rounds`?",
            ),
            (
                "command = 'lag'\n[lag]\nwarm_up = 5",
                "did you mean `warm-up`?",
            ),
            (
                "command = 'lag'\nrounds = 5",
                "`rounds` is a key of [lag] and [calibrate]",
            ),
            (
                "command = 'lag'\n[lag]\nmethod = 'pol'",
                "did you mean `poll`?",
            ),
            (
                "command = 'lag'\n[lag]\npace = 'visibel'",
                "did you mean `visible`?",
            ),
            (
                "command = 'lag'\n[target]\nsandbox = 'semisync:1'",
                "did you mean `semi-sync`?",
            ),
            (
                "command = 'lag'\n[target]\nwait-point = 'after-commmit'",
                "did you mean `after-commit`?",
            ),
            (
                "command = 'cost'\n[cost]\nmodes = 'none,galrea'",
                "did you mean `galera`?",
            ),
            (
                "command = 'cost'\n[cost]\ndurability = 'strikt'",
                "did you mean `strict`?",
            ),
            (
                "command = 'scale'\n[scale]\nmode = 'asinc'",
                "did you mean `async`?",
            ),
            (
                "command = 'stale'\n[stale]\nsync-reads = 'befor'",
                "did you mean `before`?",
            ),
        ] {
            let error = resolve(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn minutes_for_milliseconds_are_noticed_with_their_line() {
        for (text, wants) in [
            (
                "command = 'lag'\n[lag]\npace = 'every 10m'",
                ["line 3, column 1", "did you mean 10ms?"],
            ),
            (
                "command = 'lag'\n\n[target]\nlink-delay = '5m'",
                ["line 4, column 1", "did you mean 5ms?"],
            ),
            (
                "command = 'calibrate'\n[calibrate]\ndelays = ['1ms', '2m']",
                ["line 3, column 1", "did you mean 2ms?"],
            ),
            (
                "command = 'cost'\n[cost]\nblock = '11m'",
                ["line 3", "did you mean 11ms?"],
            ),
            (
                "command = 'lag'\n[lag]\nrounds = 0",
                ["line 3, column 1: rounds = 0", "at least 1"],
            ),
            (
                "command = 'lag'\n[lag]\nrounds = 5\nfor = '2s'",
                ["line 3", "exclude"],
            ),
        ] {
            let error = PlanFile::from_toml(text)
                .unwrap()
                .resolve_from(text)
                .unwrap_err()
                .to_string();
            for want in wants {
                assert!(error.contains(want), "{text}: {error}");
            }
        }
    }

    #[test]
    fn a_password_in_a_plan_is_refused() {
        let error = resolve("command = 'lag'\n[target]\nprimary = 'mysql://u:pw@a/'")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 3") && error.contains("must not hold a URL with a password"),
            "{error}"
        );
        assert!(!error.contains("pw"), "{error}");
    }

    proptest! {
        #[test]
        fn no_file_panics(text in "\\PC{0,120}") {
            let _ = resolve(&text);
            let _ = resolve(&format!("command = 'lag'\n[lag]\n{text}"));
        }
    }
}
