//! The settings of `calibrate`.

use clap::ArgAction;
use replimeter_engine::dialect::settings::FLUSHES_NOTHING;
use replimeter_model::{
    load::Arrivals,
    plan::{
        PlanError, Settings, TargetSettings, WarmUp,
        checks::{MINUTE, at_most, from_to},
        contradiction,
    },
    replication::Mode,
    settings,
    target::Target,
    time_span::TimeSpan,
};

use crate::{
    lag::settings::{LagPlan, LagSettings, Method, Methods, Pace},
    reference::delay_shape::DelayShape,
};

/// Maximum number of delays.
const MAX_DELAYS: usize = 100;
/// Maximum number of repetitions.
const MAX_REPETITIONS: u32 = 100;
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

/// Methods that the reference answers; all are its default.
const OF_REFERENCE: [Method; 2] = [Method::Poll, Method::Wait];
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

settings! {
    /// The settings of `calibrate`.
    CalibrateSettings;
    /// A `calibrate` measurement.
    CalibratePlan(given, targets);

    [Measurement]
    /// How to observe that a row is visible, as for `lag` [default: {default}]
    ///
    /// With --reference poll and wait, which is its default.
    only method "METHOD[,…]|all": Methods = given.default_methods(), methods_of(given.is_of_reference());

    /// One-way delays of the replication link; 0 is always added [default: {default}]
    #[arg(long = "link-delay", value_delimiter = ',')]
    only link_delays "TIME,…" if (!given.is_of_reference()): Vec<TimeSpan> = USUAL.to_vec(), delays_of_link;

    /// Rounds at each delay, in each repetition [default: {default}]
    rounds "N": u64 = 200;

    /// Repetitions of all delays, in alternating order [default: {default}]
    ///
    /// With --reference the default is 1.
    repetitions "N": u32 = if given.is_of_reference() { 1 } else { 4 }, from_to(1, MAX_REPETITIONS, "");

    /// Write one row per interval (open loop) [default: {default}]
    ///
    /// The default is near a multiple of no default delay.
    // A row would arrive at the time of the next write.
    only interval "TIME": TimeSpan = TimeSpan::from_millis(13), at_most(MINUTE, "the interval between rows");

    /// Measure servers of Replimeter that choose when each row is visible
    ///
    /// Their instants are on the clock of the run, so the error of poll and wait is known apart from what real
    /// servers add. No sandbox is started.
    #[arg(action = ArgAction::SetTrue)]
    only reference: Option<bool>;

    /// Replicas of the reference, each with an observer [default: 1,8,64]
    #[arg(value_delimiter = ',', requires = "reference")]
    only observers "N,…" if (given.is_of_reference()): Vec<u32> = OBSERVERS.into();

    /// Threads that compute without a pause, as a load [default: 0,2]
    #[arg(value_delimiter = ',', requires = "reference")]
    only neighbors "N,…" if (given.is_of_reference()): Vec<u32> = NEIGHBORS.into();

    /// Delays of rows [default: 0s,1ms,100ms,bimodal,heavy-tailed]
    ///
    /// A time; bimodal: 1 ms for 70 % of the rows, else 20 ms; heavy-tailed: log-normal with a median of 1 ms, σ = 1.5,
    /// at most 100 ms. Rows become visible in the order of their writes.
    #[arg(long = "row-delay", value_delimiter = ',', requires = "reference")]
    only row_delays "TIME|SHAPE,…" if (given.is_of_reference()): Vec<DelayShape> = ROW_DELAYS.into();

    /// Keep this machine's idle cores from halting [default: {default}]
    keep_awake;
    real_time;

    plan
    /// What is varied.
    conditions: Conditions = if given.is_of_reference() {
        Conditions::Reference(ReferencePlan { observers, neighbors, delays: row_delays })
    } else {
        Conditions::LinkDelays(link_delays)
    };
    /// The measurement under each condition.
    lag: LagPlan = given.lag(targets, rounds, interval)?;
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
        let targets = if self.is_of_reference() {
            self.check_reference(target)?;
            Vec::new()
        } else {
            if self.observers.is_some() || self.neighbors.is_some() || self.row_delays.is_some() {
                return contradiction(
                    "observers, neighbors and row-delays are those of the reference; add reference = true",
                );
            }
            check_target(target)?;
            quiet(target);
            target.plan()?
        };
        self.link_delays
            .iter_mut()
            .for_each(|delays| delays.push(TimeSpan::from_secs(0)));
        ascending(&mut self.link_delays);
        ascending(&mut self.observers);
        ascending(&mut self.neighbors);
        ascending(&mut self.row_delays);
        let plan = Self::resolve(self, &targets)?;
        Ok((targets, plan))
    }
}

/// Sorts the values of a list, and leaves each once.
fn ascending<T: Ord>(list: &mut Option<Vec<T>>) {
    if let Some(values) = list {
        values.sort_unstable();
        values.dedup();
    }
}

/// Checks the delays of the link, of which the first is 0.
fn delays_of_link(field: &str, delays: &[TimeSpan]) -> Result<(), PlanError> {
    let longest = delays.last().copied().unwrap_or_default();
    at_most(MAX_LINK_DELAY, "an injected delay")(field, &longest)?;
    match delays.len() {
        0..2 => contradiction("calibrate requires a delay above 0, such as 5ms"),
        2..=MAX_DELAYS => Ok(()),
        _ => contradiction("calibrate accepts at most 100 delays"),
    }
}

/// Rejects methods that the reference has no answer to.
fn methods_of(reference: bool) -> impl Fn(&str, &Methods) -> Result<(), PlanError> {
    move |_, methods| match methods {
        Methods::Named(named) if named.iter().all(|one| OF_REFERENCE.contains(one)) => Ok(()),
        _ if reference => contradiction("the reference supports the methods poll and wait only"),
        _ => Ok(()),
    }
}

impl CalibrateSettings {
    /// Returns whether the reference is measured, not a sandbox.
    fn is_of_reference(&self) -> bool {
        self.reference == Some(true)
    }

    fn default_methods(&self) -> Methods {
        match self.is_of_reference() {
            true => Methods::Named(OF_REFERENCE.into()),
            false => Methods::All,
        }
    }

    /// Returns the measurement under each condition.
    fn lag(
        &mut self,
        targets: &[Target],
        rounds: u64,
        interval: TimeSpan,
    ) -> Result<LagPlan, PlanError> {
        let mut lag = LagSettings {
            method: self.method.clone(),
            starts: Some(1),
            rounds: Some(rounds),
            pace: Some(Pace::Interval(interval)),
            row_arrivals: Some(Arrivals::Constant),
            warm_up: Some(WarmUp::Rounds(WARM_UP)),
            // It stands in for the true instants, which the reference knows.
            floor_rounds: self.is_of_reference().then_some(0),
            keep_awake: self.keep_awake,
            real_time: self.real_time,
            ..LagSettings::default()
        };
        let plan = lag.lag_plan(targets)?;
        (self.keep_awake, self.real_time) = (lag.keep_awake, lag.real_time);
        Ok(plan)
    }

    /// Checks what is given for the reference.
    fn check_reference(&self, target: &TargetSettings) -> Result<(), PlanError> {
        if *target != TargetSettings::default() {
            return contradiction("the reference has servers of its own; remove the target");
        }
        if self.link_delays.is_some() {
            return contradiction("the reference has no link; give its delays as row-delays");
        }
        let empty = [&self.observers, &self.neighbors]
            .iter()
            .any(|list| list.as_ref().is_some_and(Vec::is_empty));
        if empty || self.row_delays.as_ref().is_some_and(Vec::is_empty) {
            return contradiction("observers, neighbors and row-delays need a value each");
        }
        let observers = self.observers.iter().flatten();
        let threads = observers.clone().chain(self.neighbors.iter().flatten());
        if observers.min() == Some(&0) || threads.max() > Some(&MAX_THREADS) {
            return contradiction("observers must be from 1 to 256, neighbors at most 256");
        }
        Ok(())
    }
}

/// Adds server options that keep disk flushes out of the lag, which must show the delay only, unless the user sets them.
fn quiet(target: &mut TargetSettings) {
    let given: Vec<String> = target
        .server_options
        .iter()
        .map(ToString::to_string)
        .collect();
    for option in FLUSHES_NOTHING {
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
