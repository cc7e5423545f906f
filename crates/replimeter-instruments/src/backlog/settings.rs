//! The settings of `backlog`.

use replimeter_model::{
    load::{LoadSpec, RatedLoad},
    plan::{
        PlanError, Settings, TargetSettings,
        checks::{HOUR, above_zero, at_most},
        contradiction,
        core_use::{CoreUse, ServerPlace},
        load,
    },
    settings,
    target::{PRIMARY, Target},
    time_span::TimeSpan,
};

/// Default number of connections of the load under which a backlog builds up.
const THREADS: u32 = 8;
/// Maximum number of applier workers of any server.
const MAX_WORKERS: u32 = 1024;

settings! {
    /// The settings of `backlog`.
    BacklogSettings;
    /// A `backlog` measurement.
    BacklogPlan(given, targets);

    [Measurement]
    /// Stop each replica's applier for this time, under load [default: {default}]
    ///
    /// The backlog builds up; then the applier is started again, and the replica catches up.
    build_up "TIME": TimeSpan = TimeSpan::from_secs(30), above_zero("");

    /// Numbers of applier workers, such as 1,2,4 [default: the replica's own number]
    ///
    /// They are measured one after another.
    #[arg(value_delimiter = ',')]
    workers "N,…": Vec<u32>;

    /// Fail if a replica has not received the data within this time [default: {default}]
    ///
    /// The data is what the measurement and its loads create.
    timeout "TIME": TimeSpan = TimeSpan::from_secs(10),
        at_most(HOUR, "the timeout for a replica to receive the data"), above_zero("; the default is 10s");

    /// Keep cores awake [default: on for a new sandbox with at most one load thread]
    keep_awake_under_load;

    /// Load under which the backlog builds up; may be repeated [default: {default}]
    ///
    /// THREADS connections to the server NODE run a workload over and over. WORKLOAD is insert, select,
    /// post-insert, point-select, oltp-mix, update-key, big-update, mix, or the path of a workload file, as
    /// `replimeter load --help` shows.
    background_load;

    plan
    /// The load under which the backlog builds up; never empty.
    load: Vec<RatedLoad> = load::loads(&given.load, &mut given.rate, &mut given.arrivals, given.load_data_size)?;
    /// How the client uses the cores of this machine.
    cores: CoreUse = CoreUse::decide(&mut given.keep_awake, None, load::threads(&load), ServerPlace::of(targets));
}

impl Settings for BacklogSettings {
    const NAME: &'static str = "backlog";
    type Plan = BacklogPlan;

    fn plan(
        &mut self,
        target: &mut TargetSettings,
    ) -> Result<(Vec<Target>, BacklogPlan), PlanError> {
        let targets = target.plan()?;
        if self.workers.iter().any(|workers| *workers > MAX_WORKERS) {
            return contradiction("workers must be at most 1024: no server accepts more");
        }
        if self.load.is_empty() {
            self.load.push(LoadSpec {
                workload: "insert".to_owned(),
                threads: THREADS,
                node: PRIMARY.to_owned(),
            });
        }
        let plan = Self::resolve(self, &targets)?;
        Ok((targets, plan))
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        let loads = self.load.iter_mut();
        loads.map(|load| &mut load.workload).collect()
    }
}
