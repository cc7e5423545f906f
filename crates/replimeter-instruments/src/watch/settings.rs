//! The settings of `watch`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use replimeter_model::{
    plan::{
        PlanError, Settings, TargetSettings,
        checks::{SECOND, above_zero, from_to, interval_in},
        contradiction,
    },
    settings,
    table_name::TableName,
    target::Target,
    time_span::TimeSpan,
};

use crate::front::settings::host_name;

/// Time of a window of the report.
const WINDOW: TimeSpan = TimeSpan::from_secs(10);

/// Shortest and longest time of a run before the next one.
const MIN_ROTATION: TimeSpan = SECOND;
const MAX_ROTATION: TimeSpan = TimeSpan::from_secs(366 * 24 * 3600);

settings! {
    /// The settings of `watch`.
    WatchSettings;
    /// A `watch` measurement.
    WatchPlan(given, targets);

    [Measurement]
    /// Watch for this time, such as 1h [default: until Ctrl-C]
    duration "TIME": Option<TimeSpan>, above_zero("; omit it to watch until Ctrl-C");

    /// Ask every server once per interval [default: {default}]
    poll_interval "TIME": TimeSpan = SECOND, from_to(TimeSpan::from_millis(10), TimeSpan::from_secs(60), "");

    /// A replica is late above this lag [default: {default}]
    max_lag "TIME": TimeSpan = TimeSpan::from_secs(5), above_zero("");

    /// A replica that has not advanced for this time is blocked [default: {default}]
    ///
    /// Unless it has everything that the primary has.
    blocked_after "TIME": TimeSpan = TimeSpan::from_secs(5), above_zero("");

    /// Also read this heartbeat table, such as that of pt-heartbeat
    ///
    /// Its first 16 rows are compared by value on every server: a writer that pauses is no lag. They prove that a link works, and give the
    /// lag of servers whose transactions have no GTIDs.
    #[schemars(with = "Option<String>")]
    heartbeat "SCHEMA.TABLE": Option<TableName>;

    /// Write a row of its own on the primary once per interval [default: never]
    ///
    /// It proves that an idle link works: each replica has to apply it. The row is in the schema replimeter, which is removed at the end. It
    /// needs the privileges of lag, which can run at the same time; --heartbeat needs a table that is there already, and writes nothing.
    probe "TIME": Option<TimeSpan>, from_to(TimeSpan::from_millis(100), TimeSpan::from_secs(60), "");

    /// Report figures once per interval [default: 10s]
    report_interval "TIME": TimeSpan = duration.map_or(WINDOW, |duration| duration.min(WINDOW)), interval_in(duration);

    /// Begin a new run directory each time this has passed [default: one run]
    ///
    /// The run before is complete, and can be read as soon as the next one has begun.
    rotate "TIME": Option<TimeSpan>, from_to(MIN_ROTATION, MAX_ROTATION, "");

    /// Keep this many earlier runs, and remove older ones [default: 7]
    ///
    /// Only runs of the same plan in the same folder are removed, and no directory with a file that is not of a run.
    keep "N" if (rotate.is_some()) else "rotate": u32 = 7, from_to(1, 100_000, "");

    /// Serve metrics, checks and a page at this address [default: none]
    #[schemars(with = "Option<String>")]
    listen "ADDRESS:PORT": Option<SocketAddr>;

    /// Accept an address that other machines can reach
    ///
    /// Anyone who reaches it can then read the names and states of the servers, unless --token-file is given.
    only allow_remote if (listen.is_some()) else "listen": bool;

    /// Also answer requests for this host name; repeatable
    ///
    /// Addresses and localhost are always answered.
    allow_host "NAME" if (listen.is_some()) else "listen": Vec<String>, host_name;

    /// Answer only requests with the token in this file
    ///
    /// As a bearer token, or as the password of any user.
    token_file "FILE" if (listen.is_some()) else "listen": Option<PathBuf>;
}

impl Settings for WatchSettings {
    const NAME: &'static str = "watch";
    type Plan = WatchPlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, WatchPlan), PlanError> {
        let targets = target.plan()?;
        if targets.len() > 1 {
            return contradiction("watch has one target; run it once for each");
        }
        let plan = Self::resolve(self, &targets)?;
        if let Some(address) = plan.listen
            && !address.ip().is_loopback()
            && !self.allow_remote
        {
            return contradiction(format!(
                "listen = {address} can be reached from other machines; add allow-remote, or listen at 127.0.0.1"
            ));
        }
        Ok((targets, plan))
    }
}

impl WatchPlan {
    /// Returns the age of an answer from which it is old: a server that has given none since does not answer.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        /// What a slow answer may take beyond the interval.
        const SLACK: Duration = Duration::from_secs(2);
        self.poll_interval.0 * 2 + SLACK
    }
}
