//! The settings of `calibrate`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    LagPlan, LagSettings, Methods, Pace, PlanError, Settings, TargetSettings, WarmUp,
    contradiction,
    settings::on_off,
    units::{self, MINUTE},
};
use crate::{shape::Mode, target::Target, time_span::TimeSpan};

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

/// The settings of `calibrate`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct CalibrateSettings {
    /// How to observe that a row is visible, as for `lag` [default: {default}]
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
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetitions: Option<u32>,

    /// Write one row per interval (open loop) [default: {default}]
    ///
    /// The default is near a multiple of no default delay.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<TimeSpan>,

    /// Keep this machine's idle cores from halting [default: {default}]
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
}

/// A `calibrate` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibratePlan {
    /// One-way delays, ascending, each once; the first is 0.
    pub link_delays: Vec<TimeSpan>,
    /// Number of repetitions of all delays.
    pub repetitions: u32,
    /// The measurement at each delay.
    pub lag: LagPlan,
}

impl Settings for CalibrateSettings {
    const NAME: &'static str = "calibrate";
    type Plan = CalibratePlan;

    fn plan(
        &mut self,
        target: &mut TargetSettings,
    ) -> Result<(Vec<Target>, CalibratePlan), PlanError> {
        units::check_at_most(
            "interval",
            self.interval,
            MINUTE,
            "the interval between rows",
        )?;
        let longest = self.link_delays.iter().flatten().max().copied();
        units::check_at_most("link-delays", longest, MAX_LINK_DELAY, "an injected delay")?;
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
        let repetitions = *self.repetitions.get_or_insert(4);
        if repetitions == 0 || repetitions as usize > MAX_CONDITIONS {
            return contradiction("repetitions must be from 1 to 100");
        }
        // Not near a multiple of a delay: a row would arrive at the time of the next write.
        let interval = *self.interval.get_or_insert(TimeSpan::from_millis(13));
        let mut lag = LagSettings {
            method: Some(self.method.get_or_insert(Methods::All).clone()),
            rounds: Some(*self.rounds.get_or_insert(200)),
            pace: Some(Pace::Interval(interval)),
            warm_up: Some(WarmUp::Rounds(20)),
            keep_awake: Some(*self.keep_awake.get_or_insert(true)),
            real_time: Some(*self.real_time.get_or_insert(true)),
            ..LagSettings::default()
        };
        let plan = CalibratePlan {
            link_delays: delays.clone(),
            repetitions,
            lag: lag.lag_plan(true)?,
        };
        Ok((targets, plan))
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
    {
        return contradiction(
            "calibrate sets the link's delay itself; give the delays as link-delays in [calibrate]",
        );
    }
    Ok(())
}
