//! The settings of `tap`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PlanError, Settings, TargetSettings, contradiction,
    core_use::{CoreUse, ServerPlace},
    settings::on_off,
    units,
};
use crate::{target::Target, time_span::TimeSpan};

/// Maximum pause between two reads of a stream.
const MAX_COALESCE: TimeSpan = TimeSpan::from_millis(100);

one_of! {
    /// Grouping of the lag.
    pub enum GroupBy {
        /// The schemas that a transaction changes
        Schema = "schema",
        /// The tables that it changes
        Table = "table",
    }
}

/// The settings of `tap`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct TapSettings {
    /// Follow for this time, such as 60s [default: until Ctrl-C]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<TimeSpan>,

    /// Report figures once per interval [default: {default}]
    ///
    /// If given, each report is also printed on standard error where that is no terminal.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_interval: Option<TimeSpan>,

    /// Break the lag down by the schemas or tables that transactions change
    #[arg(long, value_name = "WHAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,

    /// Include only transactions that change this schema or table; repeatable
    ///
    /// NAME is SCHEMA or SCHEMA.TABLE.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,

    /// Exclude transactions that change only this schema or table; repeatable
    ///
    /// NAME is SCHEMA or SCHEMA.TABLE.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,

    /// Follow the primary twice for this time; 0 for not at all [default: {default}]
    ///
    /// It measures the floor: the method's own error.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_duration: Option<TimeSpan>,

    /// Pause for this time after each read of a binary log, such as 1ms [default: {default}]
    ///
    /// It takes less processor time under heavy traffic; every stamp is late by up to this time.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalesce: Option<TimeSpan>,

    /// Follow under this server_id and those above it [default: random]
    ///
    /// No server and no replica may have any of them.
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<u32>,

    /// Keep this machine's idle cores from halting [default: on for a new sandbox]
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

/// A `tap` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapPlan {
    /// Duration of the measurement; until the user ends it when `None`.
    pub duration: Option<TimeSpan>,
    /// Report interval: length of each window.
    pub report_interval: TimeSpan,
    /// Time for which the primary is followed twice; 0 for not at all.
    pub floor_duration: TimeSpan,
    /// Grouping of the lag.
    pub group_by: Option<GroupBy>,
    /// Only transactions that change one of these.
    pub include: Vec<String>,
    /// No transactions that change only these.
    pub exclude: Vec<String>,
    /// Pause after each read of a binary log; 0 for none.
    pub coalesce: TimeSpan,
    /// The first of the `server_id`s to follow under.
    pub server_id: Option<u32>,
    /// How the client uses the cores of this machine.
    pub cores: CoreUse,
}

impl Settings for TapSettings {
    const NAME: &'static str = "tap";
    type Plan = TapPlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, TapPlan), PlanError> {
        units::check_at_most(
            "coalesce",
            self.coalesce,
            MAX_COALESCE,
            "a pause, by which stamps are late,",
        )?;
        let report_interval = units::report_interval(&mut self.report_interval, self.duration)?;
        units::check_within(
            "floor-duration",
            self.floor_duration,
            TimeSpan::from_secs(5),
            self.duration,
        )?;
        let targets = target.plan()?;
        if targets.len() > 1 {
            return contradiction("tap measures one target; run it once for each");
        }
        if self.duration == Some(TimeSpan::from_secs(0)) {
            return contradiction("duration must be above 0; omit it to follow until Ctrl-C");
        }
        if self.server_id == Some(0) {
            return contradiction("server-id must be above 0");
        }
        if let Some(name) = self.include.iter().chain(&self.exclude).find(|name| {
            let parts: Vec<&str> = name.split('.').collect();
            parts.len() > 2 || parts.contains(&"")
        }) {
            return Err(PlanError::Contradiction(format!(
                "`{name}` is not a schema or table; write schema or schema.table"
            )));
        }
        let plan = TapPlan {
            duration: self.duration,
            report_interval,
            floor_duration: *self.floor_duration.get_or_insert(TimeSpan::from_secs(5)),
            group_by: self.group_by,
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            coalesce: *self.coalesce.get_or_insert(TimeSpan::from_secs(0)),
            server_id: self.server_id,
            cores: CoreUse::decide(
                &mut self.keep_awake,
                Some(&mut self.real_time),
                0,
                ServerPlace::of(&targets),
            ),
        };
        Ok((targets, plan))
    }
}

impl TapPlan {
    /// Returns whether the tables that transactions change are needed.
    #[must_use]
    pub fn needs_tables(&self) -> bool {
        self.group_by.is_some() || !self.include.is_empty() || !self.exclude.is_empty()
    }
}
