//! The settings of `lag`.

mod values;

use clap::ArgAction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::values::{Join, Method, Methods, Pace};
use super::{
    PlanError, Settings, TargetSettings, WarmUp, contradiction, load,
    one_or_more::OneOrMore,
    settings::{on_off, own_servers},
    units::{self, HOUR, MINUTE},
};
use crate::{
    load::{Arrivals, LoadPlan, LoadSpec, Size},
    sizes::Sizes,
    span::Span,
    target::Target,
};

/// Payload of a round when no size is asked for, in bytes (as in experiment 1).
pub const DEFAULT_SIZE: u64 = 1000;
/// The most connections that write.
const MOST_WRITERS: u32 = 256;
/// The most steps of all sweeps together.
const MOST_STEPS: u64 = 1_000_000;
/// Rounds of a run when neither a number nor a time is asked for.
pub const DEFAULT_ROUNDS: u64 = 1000;

/// The settings of `lag`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct LagSettings {
    /// How the moment is observed at which a row is there: poll (read in a tight loop), wait (for its GTID, in the replica), stamp (the time at which the statement ran on each, by SYSDATE), stamp-udf (the same by NOW_USEC), tap (follow both binary logs); several with commas, or all that the servers permit [default: {default}]
    #[arg(long, value_name = "METHOD[,…]|all")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Methods>,

    /// Write over so many connections beside one another [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,

    /// Also observe the stages of each transaction (in binlog, received, applied, visible) by asking the replica all the time; on MariaDB `in binlog` needs --method poll,tap
    #[arg(long, action = ArgAction::SetTrue)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<bool>,

    /// Where the stamps of both servers are joined; federated: in the replica, through a FEDERATED table that is made there, as published. Its definition holds the password while it exists [default: client]
    #[arg(long, value_name = "WHERE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<Join>,

    /// Counted rounds [default: {default}]
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "row_sizes"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,

    /// Measure for this long instead of a number of rounds, such as 60s
    #[arg(long, value_name = "TIME", conflicts_with = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,

    /// Write a row at every such beat, whatever became of the one before (open loop) [default: 10ms; without a default in a sweep]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,

    /// Write the next row when this has happened instead (closed loop) [default in a sweep: ack]
    #[arg(long, value_parser = Pace::closed(), conflicts_with = "interval")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,

    /// Payload bytes of each row [default: {default}]
    #[arg(long, value_name = "BYTES", conflicts_with = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_size: Option<u64>,

    /// Payload bytes step by step (experiment 1): A..B:STEP, single sizes, or several with commas
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
    pub step_pause: Option<Span>,

    /// Repeat the whole sweep so often [default: 1]
    #[arg(long, value_name = "N", requires = "row_sizes")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweeps: Option<u32>,

    /// Rounds at the beginning that are measured but not counted [default: {default}; 0 in a sweep]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,

    /// Rounds with the primary observed as its own replica, to know the method's floor; 0 for none [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_rounds: Option<u64>,

    /// End with an error when a row is not seen for so long (beyond a deliberate delay) [default: {default}]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,

    /// Keep this machine's idle cores from halting, by spinners at idle priority [default: on for a sandbox]
    #[arg(long, value_name = "ON|OFF", value_parser = on_off())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,

    /// Give the few measuring threads real-time priority, so that they do not wait behind servers on a busy core [default: on where permitted]
    #[arg(long, value_name = "ON|OFF", value_parser = on_off())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,

    /// Measure while THREADS connections run a workload on that server, over and over: one of insert, select, post-insert, point-select, oltp-mix, update-key, big-update and mix, or the path of a file of statements (docs/reference/workloads.md); may be repeated
    #[arg(long, value_name = "WORKLOAD:THREADS@NODE", help_heading = "Load")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<LoadSpec>,

    /// Begin so many passes of the workload per second, over all its threads, whatever became of the ones before (open loop); once for every load or once for each [default: each thread back to back, a closed loop]
    #[arg(long, value_name = "R", help_heading = "Load")]
    #[serde(with = "OneOrMore::<u64>", skip_serializing_if = "Option::is_none")]
    pub rate: Option<Vec<u64>>,

    /// When the passes of a rate are due: constant, or poisson as many independent users would come [default: constant]
    #[arg(long, value_name = "HOW", requires = "rate", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,

    /// How much data the loads' workloads have: rows, such as 100000, or bytes on the disk, such as 300MB [default: what the workload says]
    #[arg(long, value_name = "SIZE", requires = "load", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_data_size: Option<Size>,
}

/// When a run of rounds ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many counted rounds.
    Rounds(u64),
    /// After so much time.
    Elapsed(Span),
}

impl Until {
    /// Of a number of rounds or a time, one of which may be given.
    pub(super) fn of(rounds: Option<u64>, duration: Option<Span>) -> Result<Self, PlanError> {
        match (rounds, duration) {
            (Some(_), Some(_)) => contradiction("rounds and duration exclude each other"),
            (Some(0), None) => contradiction("rounds must be at least 1"),
            (None, Some(span)) if span.0.is_zero() => {
                contradiction("a run for 0s measures nothing")
            }
            (None, Some(span)) => Ok(Self::Elapsed(span)),
            (rounds, None) => Ok(Self::Rounds(rounds.unwrap_or(DEFAULT_ROUNDS))),
        }
    }

    /// The number of rounds or the time.
    pub(super) fn spelled(self) -> (Option<u64>, Option<Span>) {
        match self {
            Self::Rounds(rounds) => (Some(rounds), None),
            Self::Elapsed(span) => (None, Some(span)),
        }
    }
}

/// What is written, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Rows of one size.
    Rounds {
        /// When to stop.
        until: Until,
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
        pause: Span,
        /// Repetitions of the whole.
        sweeps: u32,
    },
}

/// A `lag` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LagPlan {
    /// How the arrival of a row is observed.
    pub methods: Methods,
    /// Connections that write beside one another.
    pub writers: u32,
    /// Observe how far single transactions have come.
    pub stages: bool,
    /// Stamps are joined in the replica, through a FEDERATED table.
    pub federated: bool,
    /// What is written.
    pub writes: Writes,
    /// What the next write waits for.
    pub pace: Pace,
    /// What is measured at the beginning but not counted.
    pub warm_up: WarmUp,
    /// Rounds with the primary observed as its own replica.
    pub floor_rounds: u64,
    /// How long a row may stay unseen.
    pub timeout: Span,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
    /// Give the measuring threads real-time priority where that is permitted.
    pub real_time: bool,
    /// Load meanwhile.
    pub load: Vec<LoadPlan>,
}

impl LagPlan {
    /// The largest payload asked for, in bytes.
    #[must_use]
    pub fn largest_size(&self) -> u64 {
        match &self.writes {
            Writes::Rounds { size, .. } => *size,
            Writes::Sweep { sizes, .. } => sizes.steps().iter().copied().max().unwrap_or(1),
        }
    }

    /// The first payload written, in bytes.
    #[must_use]
    pub fn first_size(&self) -> u64 {
        match &self.writes {
            Writes::Rounds { size, .. } => *size,
            Writes::Sweep { sizes, .. } => sizes.steps().first().copied().unwrap_or(1),
        }
    }
}

impl Settings for LagSettings {
    const NAME: &'static str = "lag";
    type Plan = LagPlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, LagPlan), PlanError> {
        if let Some(interval) = self.interval.take() {
            if self.pace.is_some() {
                return contradiction("interval and pace exclude each other");
            }
            self.pace = Some(Pace::Interval(interval));
        }
        let interval = match self.pace {
            Some(Pace::Interval(interval)) => Some(interval),
            _ => None,
        };
        let what = "the time from one row to the next";
        units::at_most("pace (interval)", interval, MINUTE, what)?;
        units::at_most(
            "step-pause",
            self.step_pause,
            MINUTE,
            "the pause before a step",
        )?;
        let warm_up = self.warm_up.and_then(WarmUp::as_time);
        units::at_most("warm-up", warm_up, HOUR, "the time before it counts")?;
        let what = "the longest that a row may stay unseen";
        units::at_most("timeout", self.timeout, HOUR, what)?;
        let targets = target.plan()?;
        if targets.len() > 1 && self.row_sizes.is_some() {
            return contradiction("a sweep over sizes takes one sandbox; run it once for each");
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
    /// Fills in the defaults for servers of a sandbox or of the user's.
    pub(super) fn lag_plan(&mut self, sandbox: bool) -> Result<LagPlan, PlanError> {
        let writes = self.writes()?;
        let sweep = matches!(writes, Writes::Sweep { .. });
        let pace = self.pace.unwrap_or(if sweep {
            Pace::Ack
        } else {
            Pace::Interval(Span::from_millis(10))
        });
        if matches!(pace, Pace::Interval(span) if span.0.is_zero()) {
            return contradiction(
                "a schedule needs a distance between rounds above 0; for no pause use --pace visible",
            );
        }
        let timeout = *self.timeout.get_or_insert(Span::from_secs(10));
        if timeout.0.is_zero() {
            return contradiction("a time-out of 0 would void every round; the default is 10s");
        }
        let writers = self.writers.unwrap_or(1);
        if !(1..=MOST_WRITERS).contains(&writers) {
            return Err(PlanError::Contradiction(format!(
                "writers must be from 1 to {MOST_WRITERS}"
            )));
        }
        if writers > 1 && sweep {
            return contradiction(
                "a sweep over sizes has one writer, since it empties the table between steps",
            );
        }
        if writers > 1 && pace == Pace::Visible {
            return contradiction(
                "the pace `visible` has one writer: no row is written while another is awaited",
            );
        }
        let methods = self.method.get_or_insert_default().clone();
        if self.stages == Some(true) && !methods.wanted().contains(&Method::Poll) {
            return contradiction("stages end with a read that shows the row: add the method poll");
        }
        if self.join.is_some() && !methods.wanted().iter().any(|method| method.stamps()) {
            return contradiction("join is about stamps; add --method stamp");
        }
        let plan = LagPlan {
            methods,
            writers,
            stages: self.stages.unwrap_or(false),
            federated: self.join == Some(Join::Federated),
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

    fn writes(&self) -> Result<Writes, PlanError> {
        if let Some(sizes) = &self.row_sizes {
            if self.row_size.is_some() {
                return contradiction("row-size and row-sizes exclude each other");
            }
            if self.rounds.is_some() || self.duration.is_some() {
                return contradiction(
                    "a sweep over sizes has no rounds or time of its own; use rows-per-step and sweeps",
                );
            }
            let (per_step, sweeps) = (self.rows_per_step.unwrap_or(5), self.sweeps.unwrap_or(1));
            if per_step == 0 || sweeps == 0 {
                return contradiction("rows-per-step and sweeps must be at least 1");
            }
            if sizes.steps().len() as u64 * u64::from(sweeps) > MOST_STEPS {
                return contradiction(
                    "a sweep may have at most a million steps in all; choose fewer sweeps or sizes",
                );
            }
            let pause = self.step_pause.unwrap_or(Span::from_millis(200));
            return Ok(Writes::Sweep {
                sizes: sizes.clone(),
                per_step,
                pause,
                sweeps,
            });
        }
        if self.rows_per_step.is_some() || self.sweeps.is_some() || self.step_pause.is_some() {
            return contradiction(
                "rows-per-step, step-pause and sweeps belong to a sweep; add row-sizes, such as 1000..10000:1000",
            );
        }
        let until = Until::of(self.rounds, self.duration)?;
        match self.row_size {
            Some(0) => contradiction("a row-size of 0 bytes cannot be written; the smallest is 1"),
            size => Ok(Writes::Rounds {
                until,
                size: size.unwrap_or(DEFAULT_SIZE),
            }),
        }
    }

    /// Spells out what the plan has.
    fn fill(&mut self, plan: &LagPlan) {
        self.join = plan.federated.then_some(Join::Federated);
        self.writers = Some(plan.writers);
        self.stages = Some(plan.stages);
        self.pace = Some(plan.pace);
        self.warm_up = Some(plan.warm_up);
        self.floor_rounds = Some(plan.floor_rounds);
        match &plan.writes {
            Writes::Rounds { until, size } => {
                self.row_size = Some(*size);
                (self.rounds, self.duration) = until.spelled();
            }
            Writes::Sweep {
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
