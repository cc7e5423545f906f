//! The settings of `exposure`.

use replimeter_model::{
    plan::{
        PlanError, Settings, TargetSettings,
        checks::{SECOND, above_zero, from_to, interval_in},
        contradiction,
        core_use::{CoreUse, ServerPlace},
    },
    settings,
    target::Target,
    time_span::TimeSpan,
};

use crate::loss::settings::MAX_ROW_BYTES;

/// Maximum number of writer connections.
const MAX_WRITERS: u32 = 256;

settings! {
    /// The settings of `exposure`.
    ExposureSettings;
    /// An `exposure` measurement.
    ExposurePlan(given, targets);

    [Measurement]
    /// Measure for this time [default: {default}]
    duration "TIME": TimeSpan = TimeSpan::from_secs(60), above_zero("");

    /// Report figures once per interval [default: {default}]
    report_interval "TIME": TimeSpan = SECOND, interval_in(Some(duration));

    /// Ask every replica once per interval what it has received [default: {default}]
    poll_interval "TIME": TimeSpan = TimeSpan::from_millis(10), from_to(TimeSpan::from_millis(1), TimeSpan::from_secs(10), "");

    /// Number of writer connections, in a sandbox started for the run [default: {default}]
    ///
    /// 0 for none. Other servers have traffic of their own.
    writers "N": u32 = if matches!(targets, [Target::Sandbox(_)]) { 4 } else { 0 }, from_to(0, MAX_WRITERS, "");

    /// Inserts per second of all writers together [default: back to back]
    rate "N": Option<u64>, above_zero("; omit it to write back to back");

    /// Payload of each row, in bytes [default: 100]
    row_size "BYTES" if (writers > 0): u64 = 100, from_to(1, MAX_ROW_BYTES, " bytes");

    /// Follow the primary under this server_id [default: random]
    ///
    /// No server and no replica may have it.
    server_id "ID": Option<u32>, above_zero("");

    /// Keep cores awake [default: on for a new sandbox with at most one writer]
    keep_awake_under_load;
    real_time;

    plan
    /// How the client uses the cores of this machine.
    cores: CoreUse = CoreUse::decide(&mut given.keep_awake, Some(&mut given.real_time), writers, ServerPlace::of(targets));
}

impl Settings for ExposureSettings {
    const NAME: &'static str = "exposure";
    type Plan = ExposurePlan;

    fn plan(
        &mut self,
        target: &mut TargetSettings,
    ) -> Result<(Vec<Target>, ExposurePlan), PlanError> {
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
        let plan = Self::resolve(self, &targets)?;
        if plan.writers > 0 && !matches!(only, Target::Sandbox(_)) {
            return contradiction(
                "exposure writes only to servers that it starts: writers require --sandbox SHAPE; on other servers it measures their own traffic",
            );
        }
        if plan.rate.is_some() && plan.writers == 0 {
            return contradiction("a rate requires writers");
        }
        Ok((targets, plan))
    }
}
