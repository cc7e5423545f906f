//! The settings of `backlog`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PlanError, Settings, TargetSettings, contradiction, load,
    one_or_more::OneOrMore,
    settings::{on_off, own_servers},
    units::{self, HOUR},
};
use crate::{
    load::{Arrivals, LoadPlan, LoadSpec, Size},
    span::Span,
    target::{PRIMARY, Target},
};

/// Connections of the load under which a backlog grows when none is asked for.
const THREADS: u32 = 8;
/// The most applier workers that any server takes.
const MOST_WORKERS: u32 = 1024;

/// The settings of `backlog`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct BacklogSettings {
    /// Stop each replica's applier for so long under the load, before it is started again and catches up [default: {default}]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_up: Option<Span>,

    /// Do so with these numbers of applier workers, one after another, such as 1,2,4 [default: as the replica is set]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<u32>,

    /// End with an error when a replica has not received for so long what is made for the measurement [default: {default}]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,

    /// Keep this machine's idle cores from halting, by spinners at idle priority [default: on for a sandbox]
    #[arg(long, value_name = "ON|OFF", value_parser = on_off())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,

    /// The load under which the backlog grows: THREADS connections run a workload on that server, over and over: one of insert, select, post-insert, point-select, oltp-mix, update-key, big-update and mix, or the path of a file of statements (docs/reference/workloads.md); may be repeated [default: {default}]
    #[arg(long, value_name = "WORKLOAD:THREADS@NODE", help_heading = "Load")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<LoadSpec>,

    /// Begin so many passes of the workload per second, over all its threads, whatever became of the ones before (open loop); once for every load or once for each [default: each thread back to back, a closed loop]
    #[arg(long, value_name = "R", help_heading = "Load")]
    #[serde(with = "OneOrMore::<u64>", skip_serializing_if = "Option::is_none")]
    pub rate: Option<Vec<u64>>,

    /// When the passes of a rate are due: constant, or poisson as many independent users would come [default: constant]
    #[arg(long, value_name = "HOW", requires = "rate", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,

    /// How much data the loads' workloads have: rows, such as 100000, or bytes on the disk, such as 300MB [default: what the workload says]
    #[arg(long, value_name = "SIZE", requires = "load", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_data_size: Option<Size>,
}

/// A `backlog` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacklogPlan {
    /// How long the applier is stopped under the load.
    pub build_up: Span,
    /// Numbers of applier workers, one after another; empty for the replica's own.
    pub workers: Vec<u32>,
    /// How long the replicas may take to have what is made for the measurement.
    pub timeout: Span,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
    /// The load under which the backlog grows; never empty.
    pub load: Vec<LoadPlan>,
}

impl Settings for BacklogSettings {
    const NAME: &'static str = "backlog";
    type Plan = BacklogPlan;

    fn plan(
        &mut self,
        target: &mut TargetSettings,
    ) -> Result<(Vec<Target>, BacklogPlan), PlanError> {
        let what = "the longest that a replica may take to have what is made";
        units::at_most("timeout", self.timeout, HOUR, what)?;
        let targets = target.plan()?;
        let build_up = *self.build_up.get_or_insert(Span::from_secs(30));
        if build_up.0.is_zero() {
            return contradiction("a backlog that grows for 0s is none");
        }
        let timeout = *self.timeout.get_or_insert(Span::from_secs(10));
        if timeout.0.is_zero() {
            return contradiction("a time-out of 0 leaves no replica any time; the default is 10s");
        }
        if self.workers.iter().any(|workers| *workers > MOST_WORKERS) {
            return contradiction("no server takes more than 1024 applier workers");
        }
        if self.load.is_empty() {
            self.load.push(LoadSpec {
                workload: "insert".to_owned(),
                threads: THREADS,
                node: PRIMARY.to_owned(),
            });
        }
        let plan = BacklogPlan {
            build_up,
            workers: self.workers.clone(),
            timeout,
            keep_awake: *self.keep_awake.get_or_insert(!own_servers(&targets)),
            load: load::loads(
                &self.load,
                &mut self.rate,
                &mut self.arrivals,
                self.load_data_size,
            )?,
        };
        Ok((targets, plan))
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        let loads = self.load.iter_mut();
        loads.map(|load| &mut load.workload).collect()
    }
}
