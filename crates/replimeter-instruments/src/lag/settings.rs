//! The settings of `lag`.

mod values;

use clap::ArgAction;
use replimeter_model::{
    load::{Arrivals, RatedLoad},
    plan::{
        PlanError, Settings, TargetSettings, WarmUp,
        checks::{HOUR, MINUTE, above_zero, at_most, from_to},
        contradiction,
        core_use::{CoreUse, ServerPlace},
        load, starts,
        stop_condition::{DEFAULT_ROUNDS, StopCondition},
        warm_up,
    },
    settings,
    sizes::Sizes,
    target::Target,
    time_span::TimeSpan,
};

pub use self::values::{Method, Methods, Pace, StampJoin};

/// Default payload of a round, in bytes (as in experiment 1).
pub const DEFAULT_SIZE: u64 = 1000;
/// Maximum number of writer connections.
const MAX_WRITERS: u32 = 256;
/// Maximum number of steps of all sweeps together.
const MAX_STEPS: u64 = 1_000_000;

settings! {
    /// The settings of `lag`.
    LagSettings;
    /// A `lag` measurement.
    LagPlan(given, targets);

    [Measurement]
    /// How to observe that a row is visible [default: {default}]
    ///
    /// poll reads in a tight loop; wait waits in the replica for the row's GTID; stamp compares the times at which
    /// the statement ran on each server, by SYSDATE; stamp-udf does so by NOW_USEC; tap follows both binary logs.
    /// Several with commas, or all that the servers permit.
    method "METHOD[,…]|all": Methods = Methods::default();

    /// Number of concurrent writer connections [default: {default}]
    writers "N": u32 = 1, from_to(1, MAX_WRITERS, "");

    /// Also observe the stages of transactions: in binlog, received, applied
    ///
    /// It queries the replica continuously. On MariaDB, `in binlog` needs --method poll,tap.
    #[arg(action = ArgAction::SetTrue)]
    stages: bool = false;

    /// Where to join the stamps of both servers [default: client]
    ///
    /// federated: in the replica, through a FEDERATED table that is created there, as published. While the table
    /// exists, its definition holds the password.
    join "WHERE" if (join == StampJoin::Federated): StampJoin = StampJoin::Client;

    /// Number of counted rounds [default: {default}]
    #[arg(conflicts_with_all = ["duration", "row_sizes"])]
    only rounds "N" if (!given.is_sweep() && given.duration.is_none()): u64 = DEFAULT_ROUNDS;

    /// Measure for this time instead of a number of rounds, such as 60s
    #[arg(conflicts_with = "row_sizes")]
    only duration "TIME": Option<TimeSpan>;

    /// Fresh starts of the servers, which share the rounds [default: at most 10]
    ///
    /// Starts differ more than the rounds of one, so only several starts show what another run would give. The default
    /// is one start for each 100 rounds or second. It is 1 for servers that run already, in a sweep, and with --stages
    /// or --load.
    #[arg(conflicts_with = "row_sizes")]
    starts "N": u32 = starts::enough_for(given.shared()?), starts::share(given.shared()?);

    /// Spread the starts over this time, such as 1h [default: one after another]
    ///
    /// The run measures as much as without it, and waits between the starts. Ten starts in half a minute share its minutes
    /// of the machine; spread over hours, their interval covers hours.
    #[arg(conflicts_with = "row_sizes")]
    over "TIME": Option<TimeSpan>, starts::spread(starts);

    /// Write one row per interval (open loop) [default: 10ms; none in a sweep]
    ///
    /// Rows are written on schedule, without waiting for earlier ones. It is a mean, unless --row-arrivals is constant.
    only interval "TIME": Option<TimeSpan>;

    /// When rows are due: constant or poisson [default: poisson with an interval]
    ///
    /// poisson: at random, with the interval as mean. Rows at a constant interval meet the same moment of everything that
    /// recurs with it, such as a CPU quota of 10 ms.
    row_arrivals "HOW" if (given.has_interval()): Arrivals = if given.has_interval() { Arrivals::Poisson } else { Arrivals::Constant };

    /// Seed of the random intervals between rows [default: 1 with poisson]
    seed "NUMBER" if (row_arrivals == Arrivals::Poisson): u64 = 1;

    /// Write the next row on this event (closed loop) [default: none; ack in a sweep]
    #[arg(value_parser = Pace::closed(), conflicts_with = "interval")]
    pace: Pace = given.default_pace();

    /// Payload of each row, in bytes [default: {default}]
    #[arg(conflicts_with = "row_sizes")]
    only row_size "BYTES" if (!given.is_sweep()): u64 = DEFAULT_SIZE;

    /// Sweep over payloads, in bytes (experiment 1): A..B:STEP
    ///
    /// Ranges and single sizes, several with commas. The table is emptied before each step.
    only row_sizes "A..B:STEP": Option<Sizes>;

    /// Rows in each step of a sweep [default: 5]
    #[arg(requires = "row_sizes")]
    only rows_per_step "N" if (given.is_sweep()): u32 = 5;

    /// Pause before each step of a sweep [default: 200ms]
    #[arg(requires = "row_sizes")]
    only step_pause "TIME" if (given.is_sweep()): TimeSpan = TimeSpan::from_millis(200), at_most(MINUTE, "step-pause");

    /// Repetitions of the whole sweep [default: 1]
    #[arg(requires = "row_sizes")]
    only sweeps "N" if (given.is_sweep()): u32 = 1;

    /// Uncounted rounds, or time, of each start [default: {default}; 50 for one start]
    ///
    /// A number of rounds (50), or a time (2s): rounds that begin before it has passed are not counted. A sweep has
    /// none by default.
    warm_up "N|TIME": WarmUp = if given.is_sweep() { WarmUp::Rounds(0) } else { starts::warm_up(starts) }, warm_up::of_rounds;

    /// Rounds that observe the primary as its own replica; 0 for none [default: {default}]
    ///
    /// They measure the floor: the lag that the method shows without replication.
    floor_rounds "N": u64 = 200;

    /// Fail if a row is not visible within this time [default: {default}]
    ///
    /// A replica's deliberate delay is added to it.
    timeout "TIME": TimeSpan = TimeSpan::from_secs(10), at_most(HOUR, "the timeout for a row"), above_zero("; the default is 10s");

    /// Keep cores awake [default: on for a new sandbox with at most one load thread]
    keep_awake_under_load;
    real_time;

    /// Run a workload during the measurement; may be repeated
    ///
    /// THREADS connections to the server NODE run it over and over. WORKLOAD is insert, select, post-insert,
    /// point-select, oltp-mix, update-key, big-update, mix, or the path of a workload file, as
    /// `replimeter load --help` shows.
    background_load;

    plan
    /// The rows to write.
    writes: WritePattern = match row_sizes {
        Some(sizes) => WritePattern::Sweep { sizes, per_step: rows_per_step, pause: step_pause, sweeps },
        None => WritePattern::Rounds { until: StopCondition::of(given.rounds, duration)?, size: row_size },
    };
    /// Background loads.
    load: Vec<RatedLoad> = load::loads(&given.load, &mut given.rate, &mut given.arrivals, given.load_data_size)?;
    /// How the client uses the cores of this machine: a lone writer is idle between its rows.
    cores: CoreUse = CoreUse::decide(
        &mut given.keep_awake,
        Some(&mut given.real_time),
        load::threads(&load).max(if writers > 1 { writers } else { 0 }),
        ServerPlace::of(targets),
    );
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

impl LagPlan {
    /// Returns when rows are written, in words.
    #[must_use]
    pub fn schedule(&self) -> String {
        match self.row_arrivals {
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
        let targets = target.plan()?;
        if targets.len() > 1 && self.is_sweep() {
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

impl LagSettings {
    /// Fills in the defaults for a sandbox's servers or the user's.
    pub(crate) fn lag_plan(&mut self, targets: &[Target]) -> Result<LagPlan, PlanError> {
        self.check_rows()?;
        self.check_schedule()?;
        let methods = self.method.clone().unwrap_or_default().wanted();
        if self.stages == Some(true) && !methods.contains(&Method::Poll) {
            return contradiction("stages requires the method poll, which reads the row");
        }
        if self.join.is_some() && !methods.iter().any(|method| method.stamps()) {
            return contradiction("join requires stamps; add --method stamp");
        }
        let plan = Self::resolve(self, targets)?;
        if plan.writers > 1 && self.is_sweep() {
            return contradiction(
                "a sweep over sizes requires one writer, because it empties the table between steps",
            );
        }
        if plan.writers > 1 && plan.pace == Pace::Visible {
            return contradiction(
                "the pace `visible` requires one writer: it waits for each row before the next",
            );
        }
        Ok(plan)
    }

    /// Returns whether it is a sweep over sizes.
    fn is_sweep(&self) -> bool {
        self.row_sizes.is_some()
    }

    /// Returns whether rows are written once per interval.
    fn has_interval(&self) -> bool {
        let pace = self.pace.unwrap_or_else(|| self.default_pace());
        matches!(pace, Pace::Interval(_))
    }

    fn default_pace(&self) -> Pace {
        match self.is_sweep() {
            true => Pace::Ack,
            false => Pace::Interval(TimeSpan::from_millis(10)),
        }
    }

    /// Returns whether it has one start: a table that is emptied between steps, a waterfall and a load are of one.
    fn has_one_start(&self) -> bool {
        self.is_sweep() || self.stages == Some(true) || !self.load.is_empty()
    }

    /// Returns the rounds or the time that starts share.
    fn shared(&self) -> Result<StopCondition, PlanError> {
        match self.has_one_start() {
            true => Ok(StopCondition::Rounds(1)),
            false => StopCondition::of(self.rounds, self.duration),
        }
    }

    /// Rejects settings that contradict each other about when rows are written.
    fn check_schedule(&self) -> Result<(), PlanError> {
        if let Some(Pace::Interval(interval)) = self.pace {
            at_most(MINUTE, "the interval between rows")("pace (interval)", &interval)?;
            if interval.0.is_zero() {
                return contradiction(
                    "interval must be above 0; to write without a pause use --pace visible",
                );
            }
        }
        let arrivals = self.row_arrivals;
        if !self.has_interval() && (arrivals.is_some() || self.seed.is_some()) {
            return contradiction("row-arrivals and seed need an interval between rows");
        }
        if arrivals == Some(Arrivals::Constant) && self.seed.is_some() {
            return contradiction("constant row-arrivals use no seed; remove it");
        }
        if self.has_one_start() && self.starts.is_some_and(|starts| starts > 1) {
            return contradiction(
                "sweeps, stages and loads are observed in one start: give starts 1, and compare several runs",
            );
        }
        Ok(())
    }

    /// Rejects settings that contradict each other about the rows.
    fn check_rows(&self) -> Result<(), PlanError> {
        let Some(sizes) = &self.row_sizes else {
            if self.rows_per_step.is_some() || self.sweeps.is_some() || self.step_pause.is_some() {
                return contradiction(
                    "rows-per-step, step-pause and sweeps require a sweep; add row-sizes, such as 1000..10000:1000",
                );
            }
            StopCondition::of(self.rounds, self.duration)?;
            return match self.row_size {
                Some(0) => contradiction("row-size must be at least 1 byte"),
                _ => Ok(()),
            };
        };
        if self.row_size.is_some() {
            return contradiction("give either row-size or row-sizes, not both");
        }
        if self.rounds.is_some() || self.duration.is_some() {
            return contradiction(
                "a sweep over sizes accepts neither rounds nor duration; use rows-per-step and sweeps",
            );
        }
        if self.rows_per_step == Some(0) || self.sweeps == Some(0) {
            return contradiction("rows-per-step and sweeps must be at least 1");
        }
        let sweeps = u64::from(self.sweeps.unwrap_or(1));
        if sizes.steps().len() as u64 * sweeps > MAX_STEPS {
            return contradiction(
                "a sweep may have at most a million steps in total; choose fewer sweeps or sizes",
            );
        }
        Ok(())
    }
}
