//! The settings of `tap`.

use replimeter_model::{
    one_of,
    plan::{
        PlanError, Settings, TargetSettings,
        checks::{SECOND, above_zero, at_most, interval_in, part_of},
        contradiction,
        core_use::{CoreUse, ServerPlace},
    },
    settings,
    target::Target,
    time_span::TimeSpan,
};

/// Maximum pause between two reads of a stream.
const MAX_COALESCE: TimeSpan = TimeSpan::from_millis(100);
/// Default time for which the primary is followed twice.
const FLOOR_DURATION: TimeSpan = TimeSpan::from_secs(5);

one_of! {
    /// Grouping of the lag.
    pub enum GroupBy {
        /// The schemas that a transaction changes
        Schema = "schema",
        /// The tables that it changes
        Table = "table",
    }
}

settings! {
    /// The settings of `tap`.
    TapSettings;
    /// A `tap` measurement.
    TapPlan(given, targets);

    [Measurement]
    /// Follow for this time, such as 60s [default: until Ctrl-C]
    duration "TIME": Option<TimeSpan>, above_zero("; omit it to follow until Ctrl-C");

    /// Report figures once per interval [default: {default}]
    ///
    /// If given, each report is also printed on standard error where that is no terminal.
    report_interval "TIME": TimeSpan = SECOND, interval_in(duration);

    /// Break the lag down by the schemas or tables that transactions change
    group_by "WHAT": Option<GroupBy>;

    /// Include only transactions that change this schema or table; repeatable
    ///
    /// NAME is SCHEMA or SCHEMA.TABLE.
    include "NAME": Vec<String>;

    /// Exclude transactions that change only this schema or table; repeatable
    ///
    /// NAME is SCHEMA or SCHEMA.TABLE.
    exclude "NAME": Vec<String>;

    /// Follow the primary twice for this time; 0 for not at all [default: {default}]
    ///
    /// It measures the floor: the method's own error.
    floor_duration "TIME": TimeSpan = FLOOR_DURATION, part_of(duration, FLOOR_DURATION);

    /// Pause for this time after each read of a binary log, such as 1ms [default: {default}]
    ///
    /// It takes less processor time under heavy traffic; every stamp is late by up to this time.
    coalesce "TIME": TimeSpan = TimeSpan::default(), at_most(MAX_COALESCE, "a pause, by which stamps are late,");

    /// Follow under this server_id and those above it [default: random]
    ///
    /// No server and no replica may have any of them.
    server_id "ID": Option<u32>, above_zero("");

    /// Keep this machine's idle cores from halting [default: on for a new sandbox]
    keep_awake;
    real_time;

    plan
    /// How the client uses the cores of this machine.
    cores: CoreUse = CoreUse::decide(&mut given.keep_awake, Some(&mut given.real_time), 0, ServerPlace::of(targets));
}

impl Settings for TapSettings {
    const NAME: &'static str = "tap";
    type Plan = TapPlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, TapPlan), PlanError> {
        let targets = target.plan()?;
        if targets.len() > 1 {
            return contradiction("tap measures one target; run it once for each");
        }
        let plan = Self::resolve(self, &targets)?;
        if let Some(name) = plan.include.iter().chain(&plan.exclude).find(|name| {
            let parts: Vec<&str> = name.split('.').collect();
            parts.len() > 2 || parts.contains(&"")
        }) {
            return contradiction(format!(
                "`{name}` is not a schema or table; write schema or schema.table"
            ));
        }
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
