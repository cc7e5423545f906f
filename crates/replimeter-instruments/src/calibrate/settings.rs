//! The settings of `calibrate`.

use clap::ArgAction;
use replimeter_model::{
    load::Arrivals,
    plan::{
        PlanError, Settings, StopCondition, TargetSettings, WarmUp,
        checks::{MINUTE, at_most},
        contradiction, on_off,
    },
    replication::Mode,
    target::Target,
    time_span::TimeSpan,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    lag::settings::{LagPlan, LagSettings, Method, Methods, Pace, WritePattern},
    reference::delay_shape::DelayShape,
};

/// Maximum number of delays, and of repetitions, of a calibration.
const MAX_CONDITIONS: usize = 100;
/// Maximum injected delay.
const MAX_LINK_DELAY: TimeSpan = TimeSpan::from_secs(10);
/// Default delays.
const USUAL: [TimeSpan; 6] = [
    TimeSpan::from_millis(0),
    TimeSpan(std::time::Duration::from_micros(500)),
    TimeSpan::from_millis(1),
    TimeSpan::from_millis(5),
    TimeSpan::from_millis(20),
    TimeSpan::from_millis(100),
];

/// Default numbers of observers of the reference.
const OBSERVERS: [u32; 3] = [1, 8, 64];
/// Default numbers of neighbors.
const NEIGHBORS: [u32; 2] = [0, 2];
/// Maximum number of observers, and of neighbors.
const MAX_THREADS: u32 = 256;
/// Rounds before those that count.
const WARM_UP: u64 = 20;
/// Default delays of the reference.
const ROW_DELAYS: [DelayShape; 5] = [
    DelayShape::Constant(TimeSpan::from_millis(0)),
    DelayShape::Constant(TimeSpan::from_millis(1)),
    DelayShape::Constant(TimeSpan::from_millis(100)),
    DelayShape::Bimodal,
    DelayShape::HeavyTailed,
];

/// The settings of `calibrate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct CalibrateSettings {
    /// How to observe that a row is visible, as for `lag` [default: {default}]
    ///
    /// With --reference poll and wait, which is its default.
    #[arg(long, value_name = "METHOD[,…]|all")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Methods>,

    /// One-way delays of the replication link; 0 is always added [default: {default}]
    #[arg(long = "link-delay", value_name = "TIME,…", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_delays: Option<Vec<TimeSpan>>,

    /// Rounds at each delay, in each repetition [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,

    /// Repetitions of all delays, in alternating order [default: {default}]
    ///
    /// With --reference the default is 1.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetitions: Option<u32>,

    /// Write one row per interval (open loop) [default: {default}]
    ///
    /// The default is near a multiple of no default delay.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<TimeSpan>,

    /// Measure servers of Replimeter that choose when each row is visible
    ///
    /// Their instants are on the clock of the run, so the error of poll and wait is known apart from what real
    /// servers add. No sandbox is started.
    #[arg(long, action = ArgAction::SetTrue)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<bool>,

    /// Replicas of the reference, each with an observer [default: 1,8,64]
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        requires = "reference"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observers: Option<Vec<u32>>,

    /// Threads that compute without a pause, as a load [default: 0,2]
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        requires = "reference"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbors: Option<Vec<u32>>,

    /// Delays of rows [default: 0s,1ms,100ms,bimodal,heavy-tailed]
    ///
    /// A time; bimodal: 1 ms for 70 % of the rows, else 20 ms; heavy-tailed: log-normal with a median of 1 ms, σ = 1.5,
    /// at most 100 ms. Rows become visible in the order of their writes.
    #[arg(
        long = "row-delay",
        value_name = "TIME|SHAPE,…",
        value_delimiter = ',',
        requires = "reference"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_delays: Option<Vec<DelayShape>>,

    /// Keep this machine's idle cores from halting [default: {default}]
    ///
    /// Spinners at idle priority do it: a core that has to wake up delays what is measured.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,

    /// Give measuring threads real-time priority [default: on without local servers]
    ///
    /// They then do not wait for a busy core. Where servers run on this machine they would take its cores from them, which
    /// raises the lag.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,
}

/// A `calibrate` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibratePlan {
    /// What is varied.
    pub conditions: Conditions,
    /// Number of repetitions of all conditions.
    pub repetitions: u32,
    /// The measurement under each condition.
    pub lag: LagPlan,
}

impl CalibratePlan {
    /// Returns the number of rounds under each condition, in each repetition.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        match self.lag.writes {
            WritePattern::Rounds {
                until: StopCondition::Rounds(rounds),
                ..
            } => rounds,
            _ => 0,
        }
    }
}

/// What a calibration varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// The one-way delay of the link: ascending, each once; the first is 0.
    LinkDelays(Vec<TimeSpan>),
    /// The rows and the observers of the reference.
    Reference(ReferencePlan),
}

/// The conditions under which the reference is measured, each combination of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencePlan {
    /// Numbers of observers.
    pub observers: Vec<u32>,
    /// Numbers of threads that compute without a pause.
    pub neighbors: Vec<u32>,
    /// Delays of the rows.
    pub delays: Vec<DelayShape>,
}

impl Settings for CalibrateSettings {
    const NAME: &'static str = "calibrate";
    type Plan = CalibratePlan;

    fn plan(
        &mut self,
        target: &mut TargetSettings,
    ) -> Result<(Vec<Target>, CalibratePlan), PlanError> {
        let interval = self.interval.unwrap_or_default();
        at_most(MINUTE, "the interval between rows")("interval", &interval)?;
        let longest = self.link_delays.iter().flatten().max().copied();
        let longest = longest.unwrap_or_default();
        at_most(MAX_LINK_DELAY, "an injected delay")("link_delays", &longest)?;
        let reference = self.reference == Some(true);
        let of_reference =
            self.observers.is_some() || self.neighbors.is_some() || self.row_delays.is_some();
        if of_reference && !reference {
            return contradiction(
                "observers, neighbors and row-delays are those of the reference; add reference = true",
            );
        }
        if reference {
            return self.reference_plan(target).map(|plan| (Vec::new(), plan));
        }
        check_target(target)?;
        quiet(target);
        let targets = target.plan()?;
        let delays = self.link_delays.get_or_insert_with(|| USUAL.to_vec());
        delays.push(TimeSpan::from_secs(0));
        delays.sort_unstable();
        delays.dedup();
        if delays.len() < 2 {
            return contradiction("calibrate requires a delay above 0, such as 5ms");
        }
        if delays.len() > MAX_CONDITIONS {
            return contradiction("calibrate accepts at most 100 delays");
        }
        let link_delays = delays.clone();
        self.method.get_or_insert(Methods::All);
        let plan = CalibratePlan {
            conditions: Conditions::LinkDelays(link_delays),
            repetitions: self.repetitions(4)?,
            lag: self.lag(&targets)?,
        };
        Ok((targets, plan))
    }
}

impl CalibrateSettings {
    fn repetitions(&mut self, usual: u32) -> Result<u32, PlanError> {
        let repetitions = *self.repetitions.get_or_insert(usual);
        if repetitions == 0 || repetitions as usize > MAX_CONDITIONS {
            return contradiction("repetitions must be from 1 to 100");
        }
        Ok(repetitions)
    }

    /// Returns the measurement under each condition.
    fn lag(&mut self, targets: &[Target]) -> Result<LagPlan, PlanError> {
        // Not near a multiple of a delay: a row would arrive at the time of the next write.
        let interval = *self.interval.get_or_insert(TimeSpan::from_millis(13));
        let mut lag = LagSettings {
            method: self.method.clone(),
            starts: Some(1),
            rounds: Some(*self.rounds.get_or_insert(200)),
            pace: Some(Pace::Interval(interval)),
            row_arrivals: Some(Arrivals::Constant),
            warm_up: Some(WarmUp::Rounds(WARM_UP)),
            keep_awake: self.keep_awake,
            real_time: self.real_time,
            ..LagSettings::default()
        };
        let plan = lag.lag_plan(targets)?;
        (self.keep_awake, self.real_time) = (lag.keep_awake, lag.real_time);
        Ok(plan)
    }

    /// Fills in the defaults of a run against the reference.
    fn reference_plan(&mut self, target: &TargetSettings) -> Result<CalibratePlan, PlanError> {
        if *target != TargetSettings::default() {
            return contradiction("the reference has servers of its own; remove the target");
        }
        if self.link_delays.is_some() {
            return contradiction("the reference has no link; give its delays as row-delays");
        }
        let methods = [Method::Poll, Method::Wait];
        let wanted = self
            .method
            .get_or_insert_with(|| Methods::Named(methods.into()));
        if !matches!(wanted, Methods::Named(named) if named.iter().all(|one| methods.contains(one)))
        {
            return contradiction("the reference supports the methods poll and wait only");
        }
        let observers = self.observers.get_or_insert_with(|| OBSERVERS.into());
        let neighbors = self.neighbors.get_or_insert_with(|| NEIGHBORS.into());
        let delays = self.row_delays.get_or_insert_with(|| ROW_DELAYS.into());
        if observers.is_empty() || neighbors.is_empty() || delays.is_empty() {
            return contradiction("observers, neighbors and row-delays need a value each");
        }
        if observers.contains(&0)
            || observers
                .iter()
                .chain(&*neighbors)
                .any(|one| *one > MAX_THREADS)
        {
            return contradiction("observers must be from 1 to 256, neighbors at most 256");
        }
        observers.sort_unstable();
        observers.dedup();
        neighbors.sort_unstable();
        neighbors.dedup();
        delays.sort_unstable();
        delays.dedup();
        let reference = ReferencePlan {
            observers: observers.clone(),
            neighbors: neighbors.clone(),
            delays: delays.clone(),
        };
        let repetitions = self.repetitions(1)?;
        let mut lag = self.lag(&[])?;
        // The floor stands in for the true instants, which are known here.
        lag.floor_rounds = 0;
        Ok(CalibratePlan {
            conditions: Conditions::Reference(reference),
            repetitions,
            lag,
        })
    }
}

/// Server options that keep disk flushes out of the lag, unless the user sets them.
const QUIET: [&str; 2] = ["innodb_flush_log_at_trx_commit=0", "sync_binlog=0"];

/// Adds server options that keep disk flushes out of the lag, which must show the delay only.
fn quiet(target: &mut TargetSettings) {
    let given: Vec<String> = target
        .server_options
        .iter()
        .map(ToString::to_string)
        .collect();
    for option in QUIET {
        let name = option.split('=').next().unwrap_or(option);
        if !given.iter().any(|one| one.contains(name)) {
            target.server_options.extend(option.parse().ok());
        }
    }
}

/// Rejects targets without Replimeter's links, or where a delay does not simply add
/// to the lag.
fn check_target(target: &TargetSettings) -> Result<(), PlanError> {
    let targets = target.resolve()?;
    let [Target::Sandbox(sandbox)] = targets.as_slice() else {
        return contradiction(
            "calibrate injects delays into a sandbox's replication link: give one sandbox shape, such as --sandbox async:1",
        );
    };
    if sandbox.shape.mode() != Mode::Async {
        return Err(PlanError::Contradiction(format!(
            "calibrate accepts async:N only: with {} a delayed link also delays the acknowledgement, or is used more than once, and lag(d) − lag(0) is not d",
            sandbox.shape
        )));
    }
    if target.link_delay.is_some()
        || target.link_jitter.is_some()
        || target.link_bandwidth.is_some()
        || target.client_link_delay.is_some()
    {
        return contradiction(
            "calibrate sets the link's delay itself; give the delays as link-delays in [calibrate]",
        );
    }
    Ok(())
}
