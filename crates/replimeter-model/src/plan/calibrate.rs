//! The settings of `calibrate`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LagPlan, LagSpec, Methods, Pace, PlanError, TargetSpec, contradiction};
use crate::{shape::Mode, span::Span, target::Target};

/// The most delays, and repetitions, of a calibration.
const MOST: usize = 100;
/// The longest delay that is injected.
const LONGEST: Span = Span::from_secs(10);

/// The settings of `calibrate` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CalibrateSpec {
    /// How the arrival of a row is observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Methods>,
    /// One-way delays of the link; 0 is always among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delays: Option<Vec<Span>>,
    /// Rounds at each delay, each time it has its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// How often all delays have their turn, there and back again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    /// Time from one row to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// Keep every core of this machine from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
    /// Give the measuring threads real-time priority where that is permitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,
}

/// A resolved `calibrate` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibratePlan {
    /// One-way delays, ascending, each once; the first is 0.
    pub delays: Vec<Span>,
    /// How often all delays have their turn.
    pub repeats: u32,
    /// The measurement at each delay.
    pub lag: LagPlan,
}

impl CalibrateSpec {
    pub(super) fn resolve(&self) -> Result<CalibratePlan, PlanError> {
        let usual = ["0", "500us", "1ms", "5ms", "20ms", "100ms"];
        let mut delays = match &self.delays {
            Some(delays) => delays.clone(),
            None => usual.iter().filter_map(|text| text.parse().ok()).collect(),
        };
        delays.push(Span::from_secs(0));
        delays.sort_unstable();
        delays.dedup();
        if delays.len() < 2 {
            return contradiction("a calibration needs a delay above 0, such as 5ms");
        }
        if delays.len() > MOST {
            return contradiction("a calibration takes at most a hundred delays");
        }
        if let Some(longest) = delays.last().filter(|delay| **delay > LONGEST) {
            return Err(PlanError::Contradiction(format!(
                "a delay of {longest} is longer than {LONGEST}, the longest that is injected"
            )));
        }
        let repeats = self.repeats.unwrap_or(4);
        if repeats == 0 || repeats as usize > MOST {
            return contradiction("repeats must be from 1 to 100");
        }
        // No delay is near a multiple of it: a row would arrive together with the next write.
        let every = self.every.unwrap_or(Span::from_millis(13));
        let lag = LagSpec {
            method: self.method.clone().unwrap_or(Methods::All),
            rounds: Some(self.rounds.unwrap_or(200)),
            pace: Some(Pace::Every(every)),
            warm_up: Some(20),
            keep_awake: self.keep_awake,
            real_time: self.real_time,
            ..LagSpec::default()
        };
        Ok(CalibratePlan {
            delays,
            repeats,
            lag: lag.resolve(true)?,
        })
    }
}

impl CalibratePlan {
    /// The same as a plan file spells it, with every default.
    pub(super) fn to_spec(&self) -> CalibrateSpec {
        let lag = self.lag.to_spec();
        CalibrateSpec {
            method: Some(lag.method),
            delays: Some(self.delays.clone()),
            rounds: lag.rounds,
            repeats: Some(self.repeats),
            every: match lag.pace {
                Some(Pace::Every(every)) => Some(every),
                _ => None,
            },
            keep_awake: lag.keep_awake,
            real_time: lag.real_time,
        }
    }
}

/// Settings that keep a slow or busy disk out of the lag, unless the user gives others.
const QUIET: [&str; 2] = ["innodb_flush_log_at_trx_commit=0", "sync_binlog=0"];

/// Adds what keeps the disk out of the lag: the delay is to be found in it, not flushes.
pub(super) fn quiet(target: &mut TargetSpec) {
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

/// Refuses targets whose links we do not hold, or where a delay does not simply add
/// to the lag.
pub(super) fn check_target(spec: &TargetSpec, targets: &[Target]) -> Result<(), PlanError> {
    let [Target::Sandbox(sandbox)] = targets else {
        return contradiction(
            "calibrate injects delays into a replication link of ours: give one sandbox shape, such as --sandbox async:1",
        );
    };
    if sandbox.shape.mode() != Mode::Async {
        return Err(PlanError::Contradiction(format!(
            "calibrate takes async:N only: with {} a delayed link also delays the acknowledgement, or is crossed more than once, and lag(d) − lag(0) is not d",
            sandbox.shape
        )));
    }
    if spec.link_delay.is_some() || spec.link_jitter.is_some() || spec.link_bandwidth.is_some() {
        return contradiction("calibrate sets the link's delay itself; use --delays");
    }
    Ok(())
}
