//! The settings of `lag`.

mod values;

use clap::ArgAction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::values::{Method, Methods, Pace, StampJoin};
use super::{
    PlanError, Settings, TargetSettings, WarmUp, contradiction,
    core_use::{CoreUse, ServerPlace},
    load,
    one_or_more::OneOrMore,
    settings::on_off,
    starts,
    stop_condition::StopCondition,
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

    /// Fresh starts of the servers, which share the rounds [default: at most 10]
    ///
    /// Starts differ more than the rounds of one, so only several starts show what another run would give. The default
    /// is one start for each 100 rounds or second. It is 1 for servers that run already, in a sweep, and with --stages
    /// or --load.
    #[arg(long, value_name = "N", conflicts_with = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<u32>,

    /// Spread the starts over this time, such as 1h [default: one after another]
    ///
    /// The run measures as much as without it, and waits between the starts. Ten starts in half a minute share its minutes
    /// of the machine; spread over hours, their interval covers hours.
    #[arg(long, value_name = "TIME", conflicts_with = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<TimeSpan>,

    /// Write one row per interval (open loop) [default: 10ms; none in a sweep]
    ///
    /// Rows are written on schedule, without waiting for earlier ones. It is a mean, unless --row-arrivals is constant.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<TimeSpan>,

    /// When rows are due: constant or poisson [default: poisson with an interval]
    ///
    /// poisson: at random, with the interval as mean. Rows at a constant interval meet the same moment of everything that
    /// recurs with it, such as a CPU quota of 10 ms.
    #[arg(long, value_name = "HOW")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_arrivals: Option<Arrivals>,

    /// Seed of the random intervals between rows [default: 1 with poisson]
    #[arg(long, value_name = "NUMBER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,

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

    /// Uncounted rounds, or time, of each start [default: {default}; 50 for one start]
    ///
    /// A number of rounds (50), or a time (2s): rounds that begin before it has passed are not counted. A sweep has
    /// none by default.
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

    /// Keep cores awake [default: on for a new sandbox with at most one load thread]
    ///
    /// Spinners at idle priority do it: a core that has to wake up delays what is measured. A load of more than
    /// one thread keeps the cores busy, and the spinners would cost it throughput.
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
    /// Fresh starts of the servers, which share the rounds.
    pub starts: u32,
    /// The time over which the starts are spread.
    pub over: Option<TimeSpan>,
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
    /// When rows of an interval are due.
    pub arrivals: Arrivals,
    /// Seed of random intervals.
    pub seed: u64,
    /// The warm-up, which is not counted.
    pub warm_up: WarmUp,
    /// Rounds that observe the primary as its own replica.
    pub floor_rounds: u64,
    /// Timeout for a row to become visible.
    pub timeout: TimeSpan,
    /// How the client uses the cores of this machine.
    pub cores: CoreUse,
    /// Background loads.
    pub load: Vec<RatedLoad>,
}

impl LagPlan {
    /// Returns when rows are written, in words.
    #[must_use]
    pub fn schedule(&self) -> String {
        match self.arrivals {
            Arrivals::Constant => self.pace.to_string(),
            Arrivals::Poisson => format!("{} on average", self.pace),
        }
    }

    /// Returns what the start with this number measures, from 1.
    #[must_use]
    pub fn of_start(&self, start: u32) -> Self {
        let mut plan = self.clone();
        if let WritePattern::Rounds { until, .. } = &mut plan.writes {
            *until = starts::part(*until, start, self.starts);
        }
        plan.floor_rounds = starts::share_of_start(self.floor_rounds, start, self.starts);
        plan.seed = starts::seed(self.seed, start);
        plan
    }

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
        starts::only_of_sandboxes(&mut self.starts, &targets)?;
        let plan = self.lag_plan(&targets)?;
        Ok((targets, plan))
    }

    fn leave_one_start(&mut self) {
        let starts = self.starts.replace(1).unwrap_or(1).max(1);
        self.over = None;
        let share = |rounds: u64| rounds.div_ceil(u64::from(starts));
        self.rounds = self.rounds.map(share);
        self.floor_rounds = self.floor_rounds.map(share);
        self.duration = self.duration.map(|span| TimeSpan(span.0 / starts));
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        let loads = self.load.iter_mut();
        loads.map(|load| &mut load.workload).collect()
    }
}

/// Returns the number of threads that write or load at one time; 0 for a lone writer, which is idle between its rows.
fn threads(load: &[RatedLoad], writers: u32) -> u32 {
    let loads: u32 = load.iter().map(|load| load.spec.threads).sum();
    loads.max(if writers > 1 { writers } else { 0 })
}

impl LagSettings {
    /// Fills in the defaults for a sandbox's servers or the user's.
    pub(super) fn lag_plan(&mut self, targets: &[Target]) -> Result<LagPlan, PlanError> {
        let writes = self.writes()?;
        let sweep = matches!(writes, WritePattern::Sweep { .. });
        let starts = self.starts(&writes)?;
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
        let arrivals = self.row_arrivals(pace)?;
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
        let load = load::loads(
            &self.load,
            &mut self.rate,
            &mut self.arrivals,
            self.load_data_size,
        )?;
        let plan = LagPlan {
            methods,
            starts,
            over: starts::over(self.over, starts)?,
            writers,
            stages: self.stages.unwrap_or(false),
            federated: self.join == Some(StampJoin::Federated),
            pace,
            arrivals,
            seed: self.seed.unwrap_or(1),
            warm_up: self.warm_up.unwrap_or(match sweep {
                true => WarmUp::Rounds(0),
                false => starts::warm_up(starts),
            }),
            floor_rounds: self.floor_rounds.unwrap_or(200),
            timeout,
            cores: CoreUse::decide(
                &mut self.keep_awake,
                Some(&mut self.real_time),
                threads(&load, writers),
                ServerPlace::of(targets),
            ),
            writes,
            load,
        };
        self.fill(&plan);
        Ok(plan)
    }

    /// Fills in when rows are due, and the seed if that is random.
    fn row_arrivals(&mut self, pace: Pace) -> Result<Arrivals, PlanError> {
        if !matches!(pace, Pace::Interval(_)) {
            return match self.row_arrivals.is_some() || self.seed.is_some() {
                true => contradiction("row-arrivals and seed need an interval between rows"),
                false => Ok(Arrivals::Constant),
            };
        }
        let arrivals = *self.row_arrivals.get_or_insert(Arrivals::Poisson);
        match arrivals {
            Arrivals::Poisson => _ = self.seed.get_or_insert(1),
            Arrivals::Constant if self.seed.is_some() => {
                return contradiction("constant row-arrivals use no seed; remove it");
            }
            Arrivals::Constant => {}
        }
        Ok(arrivals)
    }

    /// Returns the number of starts of a sandbox.
    fn starts(&self, writes: &WritePattern) -> Result<u32, PlanError> {
        // A table that is emptied between steps, a waterfall and a load are of one start.
        let several = self.stages != Some(true) && self.load.is_empty();
        match writes {
            WritePattern::Rounds { until, .. } if several => starts::number(self.starts, *until),
            _ if self.starts.is_some_and(|starts| starts > 1) => contradiction(
                "sweeps, stages and loads are observed in one start: give starts 1, and compare several runs",
            ),
            _ => Ok(1),
        }
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
        self.starts = Some(plan.starts);
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
