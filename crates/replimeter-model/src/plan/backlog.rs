//! The settings of `backlog`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PlanError, Settings, TargetSettings, contradiction,
    core_use::{CoreUse, ServerPlace},
    load,
    one_or_more::OneOrMore,
    settings::on_off,
    units::{self, HOUR},
};
use crate::{
    load::{Arrivals, DataSize, LoadSpec, RatedLoad},
    target::{PRIMARY, Target},
    time_span::TimeSpan,
};

/// Default number of connections of the load under which a backlog builds up.
const THREADS: u32 = 8;
/// Maximum number of applier workers of any server.
const MAX_WORKERS: u32 = 1024;

/// The settings of `backlog`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct BacklogSettings {
    /// Stop each replica's applier for this time, under load [default: {default}]
    ///
    /// The backlog builds up; then the applier is started again, and the replica catches up.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_up: Option<TimeSpan>,

    /// Numbers of applier workers, such as 1,2,4 [default: the replica's own number]
    ///
    /// They are measured one after another.
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<u32>,

    /// Fail if a replica has not received the data within this time [default: {default}]
    ///
    /// The data is what the measurement and its loads create.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<TimeSpan>,

    /// Keep cores awake [default: on for a new sandbox with at most one load thread]
    ///
    /// Spinners at idle priority do it: a core that has to wake up delays what is measured. A load of more than
    /// one thread keeps the cores busy, and the spinners would cost it throughput.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,

    /// Load under which the backlog builds up; may be repeated [default: {default}]
    ///
    /// THREADS connections to the server NODE run a workload over and over. WORKLOAD is insert, select,
    /// post-insert, point-select, oltp-mix, update-key, big-update, mix, or the path of a workload file, as
    /// `replimeter load --help` shows.
    #[arg(long, value_name = "WORKLOAD:THREADS@NODE", help_heading = "Load")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<LoadSpec>,

    /// Passes of the workload per second (open loop) [default: back to back]
    ///
    /// A pass starts on schedule, without waiting for earlier ones; the threads of a load share its rate. Give one
    /// rate for all loads, or one for each. Without it, each thread starts its next pass when the last one has
    /// ended (closed loop).
    #[arg(long, value_name = "R", help_heading = "Load")]
    #[serde(with = "OneOrMore::<u64>", skip_serializing_if = "Option::is_none")]
    pub rate: Option<Vec<u64>>,

    /// When passes start: constant or poisson [default: constant]
    ///
    /// poisson: as those of many independent users.
    #[arg(long, value_name = "HOW", requires = "rate", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,

    /// Data of the loads: rows (100000) or bytes (300MB) [default: the workload's]
    ///
    /// Bytes are on disk.
    #[arg(long, value_name = "SIZE", requires = "load", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_data_size: Option<DataSize>,
}

/// A `backlog` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacklogPlan {
    /// Time for which the applier is stopped under the load.
    pub build_up: TimeSpan,
    /// Numbers of applier workers, measured one after another; empty for the replica's own setting.
    pub workers: Vec<u32>,
    /// Timeout for the replicas to receive the data of the measurement.
    pub timeout: TimeSpan,
    /// How the client uses the cores of this machine.
    pub cores: CoreUse,
    /// The load under which the backlog builds up; never empty.
    pub load: Vec<RatedLoad>,
}

impl Settings for BacklogSettings {
    const NAME: &'static str = "backlog";
    type Plan = BacklogPlan;

    fn plan(
        &mut self,
        target: &mut TargetSettings,
    ) -> Result<(Vec<Target>, BacklogPlan), PlanError> {
        let what = "the timeout for a replica to receive the data";
        units::check_at_most("timeout", self.timeout, HOUR, what)?;
        let targets = target.plan()?;
        let build_up = *self.build_up.get_or_insert(TimeSpan::from_secs(30));
        if build_up.0.is_zero() {
            return contradiction("build-up must be above 0");
        }
        let timeout = *self.timeout.get_or_insert(TimeSpan::from_secs(10));
        if timeout.0.is_zero() {
            return contradiction("timeout must be above 0; the default is 10s");
        }
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
        let load = load::loads(
            &self.load,
            &mut self.rate,
            &mut self.arrivals,
            self.load_data_size,
        )?;
        let plan = BacklogPlan {
            build_up,
            workers: self.workers.clone(),
            timeout,
            cores: CoreUse::decide(
                &mut self.keep_awake,
                None,
                load.iter().map(|load| load.spec.threads).sum(),
                ServerPlace::of(&targets),
            ),
            load,
        };
        Ok((targets, plan))
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        let loads = self.load.iter_mut();
        loads.map(|load| &mut load.workload).collect()
    }
}
