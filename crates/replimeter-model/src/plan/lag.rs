//! The settings of `lag`.

mod values;

use clap::ArgAction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::values::{Method, Methods, Pace, StampJoin};
use super::{
    PlanError, Settings, TargetSettings, WarmUp, contradiction, load,
    one_or_more::OneOrMore,
    settings::{on_off, own_servers},
    units::{self, HOUR, MINUTE},
};
use crate::{
    load::{Arrivals, DataSize, LoadSpec, RatedLoad},
    sizes::Sizes,
    target::Target,
    time_span::TimeSpan,
};

/// Default payload of a round, in bytes (as in experiment 1).
pub const DEFAULT_SIZE: u64 = 1000;
/// Maximum number of writer connections.
const MAX_WRITERS: u32 = 256;
/// Maximum number of steps of all sweeps together.
const MAX_STEPS: u64 = 1_000_000;
/// Default number of rounds.
pub const DEFAULT_ROUNDS: u64 = 1000;

/// The settings of `lag`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct LagSettings {
    /// How to observe that a row is visible [default: {default}]
    ///
    /// poll reads in a tight loop; wait waits in the replica for the row's GTID; stamp compares the times at which
    /// the statement ran on each server, by SYSDATE; stamp-udf does so by NOW_USEC; tap follows both binary logs.
    /// Several with commas, or all that the servers permit.
    #[arg(long, value_name = "METHOD[,…]|all")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Methods>,

    /// Number of concurrent writer connections [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,

    /// Also observe the stages of transactions: in binlog, received, applied
    ///
    /// It queries the replica continuously. On MariaDB, `in binlog` needs --method poll,tap.
    #[arg(long, action = ArgAction::SetTrue)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<bool>,

    /// Where to join the stamps of both servers [default: client]
    ///
    /// federated: in the replica, through a FEDERATED table that is created there, as published. While the table
    /// exists, its definition holds the password.
    #[arg(long, value_name = "WHERE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<StampJoin>,

    /// Number of counted rounds [default: {default}]
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "row_sizes"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,

    /// Measure for this time instead of a number of rounds, such as 60s
    #[arg(long, value_name = "TIME", conflicts_with = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<TimeSpan>,

    /// Write one row per interval (open loop) [default: 10ms; none in a sweep]
    ///
    /// Rows are written on schedule, without waiting for earlier ones.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<TimeSpan>,

    /// Write the next row on this event (closed loop) [default: none; ack in a sweep]
    #[arg(long, value_parser = Pace::closed(), conflicts_with = "interval")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,

    /// Payload of each row, in bytes [default: {default}]
    #[arg(long, value_name = "BYTES", conflicts_with = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_size: Option<u64>,

    /// Sweep over payloads, in bytes (experiment 1): A..B:STEP
    ///
    /// Ranges and single sizes, several with commas. The table is emptied before each step.
    #[arg(long, value_name = "A..B:STEP")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_sizes: Option<Sizes>,

    /// Rows in each step of a sweep [default: 5]
    #[arg(long, value_name = "N", requires = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_per_step: Option<u32>,

    /// Pause before each step of a sweep [default: 200ms]
    #[arg(long, value_name = "TIME", requires = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_pause: Option<TimeSpan>,

    /// Repetitions of the whole sweep [default: 1]
    #[arg(long, value_name = "N", requires = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweeps: Option<u32>,

    /// Uncounted rounds, or time, at the beginning [default: {default}; 0 in a sweep]
    ///
    /// A number of rounds (50), or a time (2s): rounds that begin before it has passed are not counted.
    #[arg(long, value_name = "N|TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,

    /// Rounds that observe the primary as its own replica; 0 for none [default: {default}]
    ///
    /// They measure the floor: the lag that the method shows without replication.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_rounds: Option<u64>,

    /// Fail if a row is not visible within this time [default: {default}]
    ///
    /// A replica's deliberate delay is added to it.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<TimeSpan>,

    /// Keep this machine's idle cores from halting [default: on for a sandbox]
    ///
    /// Spinners at idle priority do it: a core that has to wake up delays what is measured.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,

    /// Give the measuring threads real-time priority [default: on where permitted]
    ///
    /// They then do not wait behind servers on a busy core.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,

    /// Run a workload during the measurement; may be repeated
    ///
    /// THREADS connections to the server NODE run it over and over. WORKLOAD is insert, select, post-insert,
    /// point-select, oltp-mix, update-key, big-update, mix, or the path of a workload file, as
    /// `replimeter load --help` shows.
    #[arg(long, value_name = "WORKLOAD:THREADS@NODE", help_heading = "Load")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<LoadSpec>,

    /// Passes of the workload per second (open loop) [default: back to back]
    ///
    /// A pass starts on schedule, without waiting for earlier ones; the threads of a load share its rate. Give one
    /// rate for all loads, or one for each. Without it, each thread starts its next pass when the last one has
    /// ended (closed loop).
    #[arg(long, value_name = "R", help_heading = "Load")]
    #[serde(with = "OneOrMore::<u64>", skip_serializing_if = "Option::is_none")]
    pub rate: Option<Vec<u64>>,

    /// When passes start: constant or poisson [default: constant]
    ///
    /// poisson: as those of many independent users.
    #[arg(long, value_name = "HOW", requires = "rate", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,

    /// Data of the loads: rows (100000) or bytes (300MB) [default: the workload's]
    ///
    /// Bytes are on disk.
    #[arg(long, value_name = "SIZE", requires = "load", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_data_size: Option<DataSize>,
}

/// Condition that ends the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCondition {
    /// After this number of counted rounds.
    Rounds(u64),
    /// After this time.
    Elapsed(TimeSpan),
}

impl StopCondition {
    /// Returns the condition from a number of rounds or a time, one of which may be given.
    pub(super) fn of(rounds: Option<u64>, duration: Option<TimeSpan>) -> Result<Self, PlanError> {
        match (rounds, duration) {
            (Some(_), Some(_)) => contradiction("give either rounds or duration, not both"),
            (Some(0), None) => contradiction("rounds must be at least 1"),
            (None, Some(span)) if span.0.is_zero() => contradiction("duration must be above 0"),
            (None, Some(span)) => Ok(Self::Elapsed(span)),
            (rounds, None) => Ok(Self::Rounds(rounds.unwrap_or(DEFAULT_ROUNDS))),
        }
    }

    /// Returns the number of rounds or the time.
    pub(super) fn rounds_and_duration(self) -> (Option<u64>, Option<TimeSpan>) {
        match self {
            Self::Rounds(rounds) => (Some(rounds), None),
            Self::Elapsed(span) => (None, Some(span)),
        }
    }
}

/// The rows to write, and their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WritePattern {
    /// Rows of one size.
    Rounds {
        /// When the rounds end.
        until: StopCondition,
        /// Payload bytes.
        size: u64,
    },
    /// Steps of growing size (experiment 1).
    Sweep {
        /// Payload bytes of each step.
        sizes: Sizes,
        /// Rows in each step.
        per_step: u32,
        /// Pause before each step.
        pause: TimeSpan,
        /// Repetitions of the whole sweep.
        sweeps: u32,
    },
}

/// A `lag` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LagPlan {
    /// Methods that observe visibility.
    pub methods: Methods,
    /// Number of concurrent writer connections.
    pub writers: u32,
    /// Observe the stages of transactions.
    pub stages: bool,
    /// Join stamps in the replica, through a FEDERATED table.
    pub federated: bool,
    /// The rows to write.
    pub writes: WritePattern,
    /// Event that starts the next write.
    pub pace: Pace,
    /// The warm-up, which is not counted.
    pub warm_up: WarmUp,
    /// Rounds that observe the primary as its own replica.
    pub floor_rounds: u64,
    /// Timeout for a row to become visible.
    pub timeout: TimeSpan,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
    /// Give the measuring threads real-time priority where that is permitted.
    pub real_time: bool,
    /// Background loads.
    pub load: Vec<RatedLoad>,
}

impl LagPlan {
    /// Returns the largest payload, in bytes.
    #[must_use]
    pub fn largest_size(&self) -> u64 {
        match &self.writes {
            WritePattern::Rounds { size, .. } => *size,
            WritePattern::Sweep { sizes, .. } => sizes.steps().iter().copied().max().unwrap_or(1),
        }
    }

    /// Returns the first payload, in bytes.
    #[must_use]
    pub fn first_size(&self) -> u64 {
        match &self.writes {
            WritePattern::Rounds { size, .. } => *size,
            WritePattern::Sweep { sizes, .. } => sizes.steps().first().copied().unwrap_or(1),
        }
    }
}

impl Settings for LagSettings {
    const NAME: &'static str = "lag";
    type Plan = LagPlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, LagPlan), PlanError> {
        if let Some(interval) = self.interval.take() {
            if self.pace.is_some() {
                return contradiction("give either interval or pace, not both");
            }
            self.pace = Some(Pace::Interval(interval));
        }
        let interval = match self.pace {
            Some(Pace::Interval(interval)) => Some(interval),
            _ => None,
        };
        let what = "the interval between rows";
        units::check_at_most("pace (interval)", interval, MINUTE, what)?;
        units::check_at_most("step-pause", self.step_pause, MINUTE, "step-pause")?;
        let warm_up = self.warm_up.and_then(WarmUp::as_time);
        units::check_at_most("warm-up", warm_up, HOUR, "a warm-up")?;
        let what = "the timeout for a row";
        units::check_at_most("timeout", self.timeout, HOUR, what)?;
        let targets = target.plan()?;
        if targets.len() > 1 && self.row_sizes.is_some() {
            return contradiction("a sweep over sizes accepts one sandbox; run it once for each");
        }
        let plan = self.lag_plan(!own_servers(&targets))?;
        Ok((targets, plan))
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        let loads = self.load.iter_mut();
        loads.map(|load| &mut load.workload).collect()
    }
}

impl LagSettings {
    /// Fills in the defaults for a sandbox's servers or the user's.
    pub(super) fn lag_plan(&mut self, sandbox: bool) -> Result<LagPlan, PlanError> {
        let writes = self.writes()?;
        let sweep = matches!(writes, WritePattern::Sweep { .. });
        let pace = self.pace.unwrap_or(if sweep {
            Pace::Ack
        } else {
            Pace::Interval(TimeSpan::from_millis(10))
        });
        if matches!(pace, Pace::Interval(span) if span.0.is_zero()) {
            return contradiction(
                "interval must be above 0; to write without a pause use --pace visible",
            );
        }
        let timeout = *self.timeout.get_or_insert(TimeSpan::from_secs(10));
        if timeout.0.is_zero() {
            return contradiction("timeout must be above 0; the default is 10s");
        }
        let writers = self.writers.unwrap_or(1);
        if !(1..=MAX_WRITERS).contains(&writers) {
            return Err(PlanError::Contradiction(format!(
                "writers must be from 1 to {MAX_WRITERS}"
            )));
        }
        if writers > 1 && sweep {
            return contradiction(
                "a sweep over sizes requires one writer, because it empties the table between steps",
            );
        }
        if writers > 1 && pace == Pace::Visible {
            return contradiction(
                "the pace `visible` requires one writer: it waits for each row before the next",
            );
        }
        let methods = self.method.get_or_insert_default().clone();
        if self.stages == Some(true) && !methods.wanted().contains(&Method::Poll) {
            return contradiction("stages requires the method poll, which reads the row");
        }
        if self.join.is_some() && !methods.wanted().iter().any(|method| method.stamps()) {
            return contradiction("join requires stamps; add --method stamp");
        }
        let plan = LagPlan {
            methods,
            writers,
            stages: self.stages.unwrap_or(false),
            federated: self.join == Some(StampJoin::Federated),
            pace,
            warm_up: self
                .warm_up
                .unwrap_or(WarmUp::Rounds(if sweep { 0 } else { 50 })),
            floor_rounds: self.floor_rounds.unwrap_or(200),
            timeout,
            keep_awake: *self.keep_awake.get_or_insert(sandbox),
            real_time: *self.real_time.get_or_insert(true),
            writes,
            load: load::loads(
                &self.load,
                &mut self.rate,
                &mut self.arrivals,
                self.load_data_size,
            )?,
        };
        self.fill(&plan);
        Ok(plan)
    }

    fn writes(&self) -> Result<WritePattern, PlanError> {
        if let Some(sizes) = &self.row_sizes {
            if self.row_size.is_some() {
                return contradiction("give either row-size or row-sizes, not both");
            }
            if self.rounds.is_some() || self.duration.is_some() {
                return contradiction(
                    "a sweep over sizes accepts neither rounds nor duration; use rows-per-step and sweeps",
                );
            }
            let (per_step, sweeps) = (self.rows_per_step.unwrap_or(5), self.sweeps.unwrap_or(1));
            if per_step == 0 || sweeps == 0 {
                return contradiction("rows-per-step and sweeps must be at least 1");
            }
            if sizes.steps().len() as u64 * u64::from(sweeps) > MAX_STEPS {
                return contradiction(
                    "a sweep may have at most a million steps in total; choose fewer sweeps or sizes",
                );
            }
            let pause = self.step_pause.unwrap_or(TimeSpan::from_millis(200));
            return Ok(WritePattern::Sweep {
                sizes: sizes.clone(),
                per_step,
                pause,
                sweeps,
            });
        }
        if self.rows_per_step.is_some() || self.sweeps.is_some() || self.step_pause.is_some() {
            return contradiction(
                "rows-per-step, step-pause and sweeps require a sweep; add row-sizes, such as 1000..10000:1000",
            );
        }
        let until = StopCondition::of(self.rounds, self.duration)?;
        match self.row_size {
            Some(0) => contradiction("row-size must be at least 1 byte"),
            size => Ok(WritePattern::Rounds {
                until,
                size: size.unwrap_or(DEFAULT_SIZE),
            }),
        }
    }

    /// Writes the plan's values into the settings.
    fn fill(&mut self, plan: &LagPlan) {
        self.join = plan.federated.then_some(StampJoin::Federated);
        self.writers = Some(plan.writers);
        self.stages = Some(plan.stages);
        self.pace = Some(plan.pace);
        self.warm_up = Some(plan.warm_up);
        self.floor_rounds = Some(plan.floor_rounds);
        match &plan.writes {
            WritePattern::Rounds { until, size } => {
                self.row_size = Some(*size);
                (self.rounds, self.duration) = until.rounds_and_duration();
            }
            WritePattern::Sweep {
                per_step,
                pause,
                sweeps,
                ..
            } => {
                self.rows_per_step = Some(*per_step);
                self.step_pause = Some(*pause);
                self.sweeps = Some(*sweeps);
            }
        }
    }
}
