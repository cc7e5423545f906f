//! The settings of `lag`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMore, PlanError, contradiction, load};
use crate::{
    backlog::BacklogPlan,
    load::{Arrivals, LoadPlan, LoadSpec, Size},
    sizes::Sizes,
    span::Span,
    suggest,
};

/// Payload of a round when no size is asked for, in bytes (as in experiment 1).
pub const DEFAULT_SIZE: u64 = 1000;
/// The most connections that write.
const MOST_WRITERS: u32 = 256;
/// The most steps of all sweeps together.
const MOST_STEPS: u64 = 1_000_000;
/// Rounds of a run when neither a number nor a time is asked for.
pub const DEFAULT_ROUNDS: u64 = 1000;

/// How the moment of visibility is observed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Reads in a tight loop.
    #[default]
    Poll,
    /// Waiting in the replica for the transaction's GTID.
    Wait,
    /// The time at which the statement ran, on the primary and again on the replica, by
    /// the server's `SYSDATE(6)`.
    Stamp,
    /// The same by our function `NOW_USEC()`, where it is installed.
    StampUdf,
    /// Following the binary logs of both.
    Tap,
}

impl Method {
    /// The name in plans and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Wait => "wait",
            Self::Stamp => "stamp",
            Self::StampUdf => "stamp-udf",
            Self::Tap => "tap",
        }
    }

    /// The method of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Every method.
    pub const ALL: [Self; 5] = [
        Self::Poll,
        Self::Wait,
        Self::Stamp,
        Self::StampUdf,
        Self::Tap,
    ];

    /// Whether it compares the times at which a statement ran.
    #[must_use]
    pub fn stamps(self) -> bool {
        matches!(self, Self::Stamp | Self::StampUdf)
    }
}

/// Where the stamps of both servers are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Join {
    /// Here.
    Client,
    /// In the replica, through a FEDERATED table on it that points to the primary, as published.
    Federated,
}

/// Which methods observe each row; written `all`, or names with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Methods {
    /// Every one that the servers permit; those they do not are a warning.
    All,
    /// These; one that the servers do not permit is an error. Sorted, never empty.
    Named(Vec<Method>),
}

impl Default for Methods {
    fn default() -> Self {
        Self::Named(vec![Method::Poll])
    }
}

impl Methods {
    /// The methods to try.
    #[must_use]
    pub fn wanted(&self) -> Vec<Method> {
        match self {
            Self::All => Method::ALL.to_vec(),
            Self::Named(methods) => methods.clone(),
        }
    }
}

impl std::str::FromStr for Methods {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "all" {
            return Ok(Self::All);
        }
        let mut methods = Vec::new();
        for name in text.split(',').map(str::trim) {
            let method = Method::from_name(name).ok_or_else(|| {
                let nearest = suggest::hint(name, Method::ALL.map(Method::name).into_iter().chain(["all"]));
                format!("unknown method `{name}`{nearest}; known: poll, wait, stamp, stamp-udf, tap, several with commas, or all")
            })?;
            if methods.contains(&method) {
                return Err(format!("the method `{name}` is given twice"));
            }
            methods.push(method);
        }
        methods.sort_unstable();
        Ok(Self::Named(methods))
    }
}

impl std::fmt::Display for Methods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Named(methods) => f.write_str(
                &methods
                    .iter()
                    .map(|method| method.name())
                    .collect::<Vec<_>>()
                    .join(","),
            ),
        }
    }
}

serde_as_text!(
    Methods,
    "description": "Ways of observing, with commas between them, or all",
    "pattern": "^ *(all|(poll|wait|stamp|stamp-udf|tap)( *, *(poll|wait|stamp|stamp-udf|tap))*) *$",
    "examples": ["poll", "wait", "stamp", "stamp-udf", "tap", "poll,tap", "all"]
);

/// What the next write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The next beat of a schedule (open loop: a slow round does not move the next).
    Every(Span),
    /// The previous row having been seen on every replica.
    Visible,
    /// The previous write's acknowledgement.
    Ack,
}

impl std::str::FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "visible" => Ok(Self::Visible),
            "ack" => Ok(Self::Ack),
            _ => {
                let every = text.strip_prefix("every ").ok_or_else(|| {
                    format!(
                        "unknown pace `{text}`{}; known: visible, ack, `every 10ms`",
                        suggest::hint(text, ["visible", "ack"])
                    )
                })?;
                let span: Span = every
                    .parse()
                    .map_err(|error: crate::span::SpanError| error.to_string())?;
                if span.0.is_zero() {
                    return Err("`every 0` is no schedule; for writes without a pause use the pace `visible` or `ack`".to_owned());
                }
                Ok(Self::Every(span))
            }
        }
    }
}

impl std::fmt::Display for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Every(span) => write!(f, "every {span}"),
            Self::Visible => f.write_str("visible"),
            Self::Ack => f.write_str("ack"),
        }
    }
}

serde_as_text!(
    Pace,
    "description": "When the next row is written: every so often, when the last one was acknowledged (ack), or when it was seen everywhere (visible)",
    "pattern": "^(ack|visible|every [0-9].*)$",
    "examples": ["every 10ms", "ack", "visible"]
);

/// The settings of `lag` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LagSpec {
    /// How the arrival of a row is observed.
    #[serde(default)]
    pub method: Methods,
    /// Connections that write beside one another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,
    /// Observe how far single transactions have come, for the waterfall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<bool>,
    /// Where stamps are joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<Join>,
    /// How many rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// How long, instead of a number of rounds.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// What the next write waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Payload bytes of every round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Payload bytes step by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    /// Rows in each step of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_step: Option<u32>,
    /// Pause before each step of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_pause: Option<Span>,
    /// How often the whole sweep is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweeps: Option<u32>,
    /// Rounds at the beginning that are measured but not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<u64>,
    /// Rounds with the primary observed as its own replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_rounds: Option<u64>,
    /// How long a row may stay unseen before the run ends in an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Keep every core of this machine from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
    /// Give the measuring threads real-time priority where that is permitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,
    /// Load meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<LoadSpec>,
    /// Passes per second, for every load or one for each; back to back otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<OneOrMore<u64>>,
    /// When the passes of a rate are due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// How much data the loads' workloads have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_size: Option<Size>,
    /// How long a backlog grows that the replicas then catch up with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<Span>,
    /// With how many applier workers they do, one after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<u32>,
}

/// When a run of rounds ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many counted rounds.
    Rounds(u64),
    /// After so much time.
    Elapsed(Span),
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

/// A resolved `lag` measurement.
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
    /// Rounds that are measured but not counted.
    pub warm_up: u64,
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
    /// A backlog to be made and caught up with; no rounds are measured then.
    pub backlog: Option<BacklogPlan>,
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

impl LagPlan {
    /// The same as a plan file spells it, with every default.
    #[must_use]
    pub fn to_spec(&self) -> LagSpec {
        let plan = self;
        let load::Spelled {
            load,
            rate,
            arrivals,
            load_size,
        } = load::to_spec(&plan.load);
        if let Some(backlog) = &plan.backlog {
            return LagSpec {
                timeout: Some(plan.timeout),
                keep_awake: Some(plan.keep_awake),
                real_time: Some(plan.real_time),
                load,
                rate,
                arrivals,
                load_size,
                backlog: Some(backlog.grow),
                workers: backlog.workers.clone(),
                ..LagSpec::default()
            };
        }
        let mut lag = LagSpec {
            method: plan.methods.clone(),
            writers: Some(plan.writers),
            stages: Some(plan.stages),
            join: plan.federated.then_some(Join::Federated),
            pace: Some(plan.pace),
            warm_up: Some(plan.warm_up),
            floor_rounds: Some(plan.floor_rounds),
            timeout: Some(plan.timeout),
            keep_awake: Some(plan.keep_awake),
            real_time: Some(plan.real_time),
            load,
            rate,
            arrivals,
            load_size,
            ..LagSpec::default()
        };
        match &plan.writes {
            Writes::Rounds { until, size } => {
                lag.size = Some(*size);
                match until {
                    Until::Rounds(rounds) => lag.rounds = Some(*rounds),
                    Until::Elapsed(span) => lag.duration = Some(*span),
                }
            }
            Writes::Sweep {
                sizes,
                per_step,
                pause,
                sweeps,
            } => {
                lag.sizes = Some(sizes.clone());
                lag.per_step = Some(*per_step);
                lag.step_pause = Some(*pause);
                lag.sweeps = Some(*sweeps);
            }
        }
        lag
    }
}

impl LagSpec {
    pub(super) fn resolve(&self, sandbox: bool) -> Result<LagPlan, PlanError> {
        let writes = self.writes()?;
        let sweep = matches!(writes, Writes::Sweep { .. });
        let pace = self.pace.unwrap_or(if sweep {
            Pace::Ack
        } else {
            Pace::Every(Span::from_millis(10))
        });
        if matches!(pace, Pace::Every(span) if span.0.is_zero()) {
            return contradiction(
                "a schedule needs a distance between rounds above 0; for no pause use --pace visible",
            );
        }
        let timeout = self.timeout.unwrap_or(Span::from_secs(10));
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
        if self.stages == Some(true) && !self.method.wanted().contains(&Method::Poll) {
            return contradiction("stages end with a read that shows the row: add the method poll");
        }
        if self.join.is_some() && !self.method.wanted().iter().any(|method| method.stamps()) {
            return contradiction("join is about stamps; add --method stamp");
        }
        Ok(LagPlan {
            methods: self.method.clone(),
            writers,
            stages: self.stages.unwrap_or(false),
            federated: self.join == Some(Join::Federated),
            pace,
            warm_up: self.warm_up.unwrap_or(if sweep { 0 } else { 50 }),
            floor_rounds: self.floor_rounds.unwrap_or(200),
            timeout,
            keep_awake: self.keep_awake.unwrap_or(sandbox),
            real_time: self.real_time.unwrap_or(true),
            writes,
            load: self.loads()?,
            backlog: self.backlog_plan()?,
        })
    }

    fn writes(&self) -> Result<Writes, PlanError> {
        if let Some(sizes) = &self.sizes {
            if self.size.is_some() {
                return contradiction("size and sizes exclude each other");
            }
            if self.rounds.is_some() || self.duration.is_some() {
                return contradiction(
                    "a sweep over sizes has no rounds or time of its own; use per-step and sweeps",
                );
            }
            let (per_step, sweeps) = (self.per_step.unwrap_or(5), self.sweeps.unwrap_or(1));
            if per_step == 0 || sweeps == 0 {
                return contradiction("per-step and sweeps must be at least 1");
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
        if self.per_step.is_some() || self.sweeps.is_some() || self.step_pause.is_some() {
            return contradiction(
                "per-step, step-pause and sweeps belong to a sweep; add sizes, such as 1000..10000:1000",
            );
        }
        let until = match (self.rounds, self.duration) {
            (Some(_), Some(_)) => return contradiction("rounds and for exclude each other"),
            (Some(0), None) => return contradiction("rounds must be at least 1"),
            (None, Some(span)) if span.0.is_zero() => {
                return contradiction("a run for 0s measures nothing");
            }
            (None, Some(span)) => Until::Elapsed(span),
            (rounds, None) => Until::Rounds(rounds.unwrap_or(DEFAULT_ROUNDS)),
        };
        match self.size {
            Some(0) => contradiction("a size of 0 bytes cannot be written; the smallest is 1"),
            size => Ok(Writes::Rounds {
                until,
                size: size.unwrap_or(DEFAULT_SIZE),
            }),
        }
    }
}
