//! The settings of `exposure`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PlanError, Settings, TargetSettings, contradiction,
    core_use::{CoreUse, ServerPlace},
    settings::on_off,
    units,
};
use crate::{target::Target, time_span::TimeSpan};

/// Minimum poll interval.
const CLOSEST: TimeSpan = TimeSpan::from_millis(1);
/// Maximum poll interval.
const FARTHEST: TimeSpan = TimeSpan::from_secs(10);
/// Maximum number of writer connections.
const MAX_WRITERS: u32 = 256;

/// The settings of `exposure`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct ExposureSettings {
    /// Measure for this time [default: {default}]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<TimeSpan>,

    /// Report figures once per interval [default: {default}]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_interval: Option<TimeSpan>,

    /// Ask every replica once per interval what it has received [default: {default}]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<TimeSpan>,

    /// Number of writer connections, in a sandbox started for the run [default: {default}]
    ///
    /// 0 for none. Other servers have traffic of their own.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,

    /// Inserts per second of all writers together [default: back to back]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,

    /// Payload of each row, in bytes [default: 100]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_size: Option<u64>,

    /// Follow the primary under this server_id [default: random]
    ///
    /// No server and no replica may have it.
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<u32>,

    /// Keep cores awake [default: on for a new sandbox with at most one writer]
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
}

/// An `exposure` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposurePlan {
    /// Duration of the measurement.
    pub duration: TimeSpan,
    /// Report interval: length of each window.
    pub report_interval: TimeSpan,
    /// Poll interval.
    pub poll_interval: TimeSpan,
    /// Writer connections; 0 for none.
    pub writers: u32,
    /// Inserts per second; back to back when `None`.
    pub rate: Option<u64>,
    /// Payload bytes of each such row.
    pub row_size: u64,
    /// The `server_id` to follow the primary under.
    pub server_id: Option<u32>,
    /// How the client uses the cores of this machine.
    pub cores: CoreUse,
}

impl Settings for ExposureSettings {
    const NAME: &'static str = "exposure";
    type Plan = ExposurePlan;

    fn plan(
        &mut self,
        target: &mut TargetSettings,
    ) -> Result<(Vec<Target>, ExposurePlan), PlanError> {
        let duration = *self.duration.get_or_insert(TimeSpan::from_secs(60));
        let report_interval = units::report_interval(&mut self.report_interval, Some(duration))?;
        let targets = target.plan()?;
        let [only] = targets.as_slice() else {
            return contradiction("exposure measures one target; run it once for each");
        };
        if let Target::Sandbox(spec) = only
            && spec.shape.servers() < 2
        {
            return contradiction(
                "the sandbox has no replica, so exposure is undefined; choose a shape that replicates",
            );
        }
        if duration == TimeSpan::from_secs(0) {
            return contradiction("duration must be above 0");
        }
        let poll_interval = *self.poll_interval.get_or_insert(TimeSpan::from_millis(10));
        if poll_interval < CLOSEST || poll_interval > FARTHEST {
            return Err(PlanError::Contradiction(format!(
                "poll-interval must be from {CLOSEST} to {FARTHEST}"
            )));
        }
        // A sandbox started for the run has no traffic without writers.
        let own = matches!(only, Target::Sandbox(_));
        let writers = *self.writers.get_or_insert(if own { 4 } else { 0 });
        if writers > 0 && !own {
            return contradiction(
                "exposure writes only to servers that it starts: writers require --sandbox SHAPE; on other servers it measures their own traffic",
            );
        }
        if writers > MAX_WRITERS {
            return Err(PlanError::Contradiction(format!(
                "writers must be from 0 to {MAX_WRITERS}"
            )));
        }
        if self.rate.is_some() && writers == 0 {
            return contradiction("a rate requires writers");
        }
        if self.rate == Some(0) {
            return contradiction("rate must be above 0; omit it to write back to back");
        }
        let row_size = self.row_size.unwrap_or(100);
        if row_size == 0 || row_size > super::loss::MAX_ROW_BYTES {
            return Err(PlanError::Contradiction(format!(
                "row-size must be from 1 to {} bytes",
                super::loss::MAX_ROW_BYTES
            )));
        }
        self.row_size = (writers > 0).then_some(row_size);
        if self.server_id == Some(0) {
            return contradiction("server-id must be above 0");
        }
        let plan = ExposurePlan {
            duration,
            report_interval,
            poll_interval,
            writers,
            rate: self.rate,
            row_size,
            server_id: self.server_id,
            cores: CoreUse::decide(
                &mut self.keep_awake,
                Some(&mut self.real_time),
                writers,
                ServerPlace::of(&targets),
            ),
        };
        Ok((targets, plan))
    }
}
