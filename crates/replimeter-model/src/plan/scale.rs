//! The settings of `scale`.

mod values;

use clap::ArgAction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::values::{ReplicaCounts, ScaleMode, ScalePhase};
use super::{
    PlanError, Settings, TargetSettings, WarmUp, contradiction,
    core_use::{CoreUse, ServerPlace},
    settings::on_off,
    site::{HttpDriver, SitePlan, Through},
    units,
};
use crate::{
    load::{DataSize, MAX_THREADS, ReadTarget},
    replication::Mode,
    sandbox::SandboxSpec,
    shape::{MAX_REPLICAS, Shape},
    target::Target,
    time_span::TimeSpan,
};

/// Default numbers of replicas.
const DEFAULT_REPLICAS: &str = "0..2";
/// `ab -c 10`, as published.
const DEFAULT_THREADS: u32 = 10;
/// Default data set.
const DEFAULT_SIZE: DataSize = DataSize::Bytes(20_000_000);
/// Maximum number of starts of each count, and of blocks of each phase.
const MAX_STARTS: u32 = 1000;
/// Minimum number of replica counts for a fit.
pub const MIN_COUNTS: usize = 5;

/// The settings of `scale`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct ScaleSettings {
    /// Numbers of replicas: A..B, or several with commas [default: {default}]
    #[arg(long, value_name = "A..B")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicaCounts>,

    /// How the replicas replicate: [mariadb/|mysql/]async, semi-sync or chain [default: {default}]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ScaleMode>,

    /// Number of writing clients, and of reading clients [default: {default}]
    ///
    /// They work back to back (closed loop).
    #[arg(long, value_name = "N", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,

    /// Counted time of each block [default: {default}]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<TimeSpan>,

    /// Uncounted time at the beginning of each block [default: {default}]
    ///
    /// A time, such as 2s: without rounds, a number has no meaning.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,

    /// Blocks of each phase on each start [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u32>,

    /// Fresh starts of each number of replicas [default: {default}]
    ///
    /// Intervals need 2; good ones need 4.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<u32>,

    /// Size of the data: rows (100000) or bytes (300MB) [default: {default}]
    ///
    /// Bytes are on disk. The published experiment has 300MB.
    #[arg(long, value_name = "SIZE", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_size: Option<DataSize>,

    /// Where to read: replicas, primary or all [default: {default}]
    ///
    /// With `replicas` and none there, the primary is read.
    #[arg(long, value_name = "WHERE", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadTarget>,

    /// How clients reach the servers [default: {default}]
    ///
    /// With http they are visitors of a small site, as in the published experiment: HAProxy, then fronts, then the servers.
    #[arg(long, value_name = "HOW", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<Through>,

    /// Number of fronts of the site [default: 2]
    ///
    /// Several are behind HAProxy.
    #[arg(long, value_name = "N", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fronts: Option<u32>,

    /// Processor time that a front adds to each request, such as 500us [default: 0us]
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front_cost: Option<TimeSpan>,

    /// What sends the requests to the site [default: ab]
    #[arg(long, value_name = "DRIVER", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<HttpDriver>,

    /// Keep the visitors' connections [default: off]
    ///
    /// Without, every request has a connection of its own, as in the published experiment.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<bool>,

    /// Requests of each kind per second (open loop) [default: back to back]
    ///
    /// At random times (Poisson process), with the driver replimeter. A request is sent when it is due if one of the --threads visitors is free; its
    /// latency counts from then.
    #[arg(long, value_name = "R", help_heading = "Load")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,

    /// Also measure updates, alone and during selects
    #[arg(long, action = ArgAction::SetTrue)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updates: Option<bool>,

    /// Measure one replica more, to check the fitted law's prediction
    ///
    /// Needs five numbers of replicas.
    #[arg(long, action = ArgAction::SetTrue)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_prediction: Option<bool>,

    /// Seed of the random order of the numbers of replicas [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,

    /// Keep idle cores awake [default: off]
    ///
    /// Spinners at idle priority do it: a core that has to wake up delays what is measured. A load of more than
    /// one thread keeps the cores busy, and the spinners would cost it throughput.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
}

/// A `scale` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePlan {
    /// Replication mode.
    pub mode: ScaleMode,
    /// Numbers of replicas.
    pub replicas: ReplicaCounts,
    /// Number of writing clients, and of reading clients.
    pub threads: u32,
    /// Counted duration of each block.
    pub duration: TimeSpan,
    /// Warm-up of each block.
    pub warm_up: TimeSpan,
    /// Blocks of each phase on each start.
    pub blocks: u32,
    /// Fresh starts of each number of replicas.
    pub starts: u32,
    /// The data set.
    pub data_size: DataSize,
    /// Servers to read from.
    pub reads: ReadTarget,
    /// The site that the clients go through; `None` for connections to the servers.
    pub site: Option<ScaleSite>,
    /// Whether updates are also measured.
    pub updates: bool,
    /// Whether the prediction for one more replica is tested.
    pub check_prediction: bool,
    /// Seed of the random order of the counts.
    pub seed: u64,
    /// How the client uses the cores of this machine.
    pub cores: CoreUse,
}

/// The site of `scale`, and its visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleSite {
    /// The site.
    pub site: SitePlan,
    /// What sends the requests.
    pub driver: HttpDriver,
    /// Whether visitors keep their connections.
    pub keep_alive: bool,
    /// Requests of each kind per second; `None` in a closed loop.
    pub rate: Option<u64>,
}

impl Settings for ScaleSettings {
    const NAME: &'static str = "scale";
    type Plan = ScalePlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, ScalePlan), PlanError> {
        let duration = *self.duration.get_or_insert(TimeSpan::from_secs(5));
        let longest = TimeSpan::from_secs(600);
        let warm_up = self
            .warm_up
            .get_or_insert(WarmUp::Time(TimeSpan::from_secs(1)))
            .time(Self::NAME)?;
        units::check_at_most("warm-up", Some(warm_up), longest, "a warm-up")?;
        units::check_within(
            "warm-up",
            Some(warm_up),
            TimeSpan::from_secs(1),
            Some(duration),
        )?;
        let default = |text: &str| text.parse().map_err(PlanError::Contradiction);
        let replicas = match self.replicas.clone() {
            Some(replicas) => replicas,
            None => default(DEFAULT_REPLICAS)?,
        };
        let threads = *self.threads.get_or_insert(DEFAULT_THREADS);
        if threads == 0 || threads > MAX_THREADS {
            return Err(PlanError::Contradiction(format!(
                "threads must be from 1 to {MAX_THREADS}"
            )));
        }
        if duration.0 < std::time::Duration::from_millis(100) {
            return contradiction(
                "a block shorter than 100ms is mostly startup; give a longer duration",
            );
        }
        let blocks = *self.blocks.get_or_insert(1);
        let starts = *self.starts.get_or_insert(3);
        if !(1..=MAX_STARTS).contains(&blocks) || !(1..=MAX_STARTS).contains(&starts) {
            return contradiction("blocks and starts must be from 1 to 1000");
        }
        let check_prediction = *self.check_prediction.get_or_insert(false);
        if check_prediction && replicas.counts().len() < MIN_COUNTS {
            return Err(PlanError::Contradiction(format!(
                "a fit requires {MIN_COUNTS} numbers of replicas, so {replicas} gives no prediction; give more, such as 0..4"
            )));
        }
        if check_prediction && replicas.max() >= MAX_REPLICAS {
            return contradiction(
                "no sandbox with one more replica exists to check the prediction",
            );
        }
        let site = self.site(duration, warm_up)?;
        let plan = ScalePlan {
            mode: *self.mode.get_or_insert(ScaleMode {
                engine: None,
                mode: Mode::Async,
            }),
            replicas: self.replicas.insert(replicas).clone(),
            threads,
            duration,
            warm_up,
            blocks,
            starts,
            data_size: *self.data_size.get_or_insert(DEFAULT_SIZE),
            reads: *self.reads.get_or_insert(ReadTarget::Replicas),
            site,
            updates: *self.updates.get_or_insert(false),
            check_prediction,
            seed: *self.seed.get_or_insert(1),
            cores: CoreUse::decide(
                &mut self.keep_awake,
                None,
                2 * threads,
                ServerPlace::Sandbox,
            ),
        };
        // A client reads from one server: with fewer clients than servers some would have none. A site takes them in turn.
        let readers = plan.readers(plan.replicas.max() + u32::from(check_prediction));
        if threads < readers && plan.site.is_none() {
            return Err(PlanError::Contradiction(format!(
                "{threads} clients cannot read from {readers} servers, because each client reads from one; give at least {readers} threads, or fewer replicas"
            )));
        }
        let targets = plan.targets(target)?;
        Ok((targets, plan))
    }
}

impl ScaleSettings {
    /// Fills in the settings of the site, and returns it.
    fn site(
        &mut self,
        duration: TimeSpan,
        warm_up: TimeSpan,
    ) -> Result<Option<ScaleSite>, PlanError> {
        let more = [
            ("driver", self.driver.is_some()),
            ("keep-alive", self.keep_alive.is_some()),
            ("rate", self.rate.is_some()),
        ];
        let given = (&mut self.fronts, &mut self.front_cost);
        let Some(site) = SitePlan::of(&mut self.through, given, &more)? else {
            return Ok(None);
        };
        if self.updates == Some(true) {
            return contradiction("the site has no updates: leave updates out, or through = http");
        }
        let driver = *self.driver.get_or_insert_default();
        if driver == HttpDriver::Ab {
            if self.rate.is_some() {
                return contradiction("rate requires driver = replimeter: ab has no open loop");
            }
            for (key, span) in [("duration", duration), ("warm-up", warm_up)] {
                if span.0.is_zero() || span.0.subsec_nanos() > 0 {
                    return Err(PlanError::Contradiction(format!(
                        "{key} = {span}: ab runs for whole seconds; round it, or use driver = replimeter"
                    )));
                }
            }
        }
        if self.rate == Some(0) {
            return contradiction("rate must be above 0");
        }
        Ok(Some(ScaleSite {
            site,
            driver,
            keep_alive: *self.keep_alive.get_or_insert(false),
            rate: self.rate,
        }))
    }
}

impl ScalePlan {
    /// Returns the phases, in order.
    #[must_use]
    pub fn phases(&self) -> Vec<ScalePhase> {
        let mut phases = vec![ScalePhase::Insert, ScalePhase::Select, ScalePhase::Mixed];
        if self.updates {
            phases.extend([ScalePhase::Update, ScalePhase::MixedUpdate]);
        }
        phases
    }

    /// Returns the number of servers to read from with this number of replicas.
    #[must_use]
    pub fn readers(&self, replicas: u32) -> u32 {
        match self.reads {
            ReadTarget::Primary => 1,
            ReadTarget::Replicas => replicas.max(1),
            ReadTarget::All => replicas + 1,
        }
    }

    /// Returns the sandboxes: one for each number of replicas, and one more to check the prediction.
    fn targets(&self, target: &TargetSettings) -> Result<Vec<Target>, PlanError> {
        if target.sandbox.is_some() || target.own_servers_given() {
            return contradiction(
                "scale starts its own servers: give the numbers of replicas with replicas (0..4), and their replication with mode (async, semi-sync, mysql/async …)",
            );
        }
        let more = self.check_prediction.then(|| self.replicas.max() + 1);
        let shapes: Vec<Shape> = self
            .replicas
            .counts()
            .iter()
            .copied()
            .chain(more)
            .map(|count| self.mode.shape(count))
            .collect::<Result<_, _>>()
            .map_err(|error| PlanError::Contradiction(error.to_string()))?;
        let Some(first) = shapes.first() else {
            return contradiction("no number of replicas is given");
        };
        let specs = SandboxSpec::resolve(&shapes, &target.common(*first))
            .map_err(PlanError::Contradiction)?;
        Ok(specs.into_iter().map(Target::Sandbox).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replica_counts_are_parsed() {
        for (text, counts, shown) in [
            ("0..2", vec![0, 1, 2], "0..2"),
            ("3", vec![3], "3"),
            ("4,0,1,1", vec![0, 1, 4], "0,1,4"),
            ("0..2,5..7", vec![0, 1, 2, 5, 6, 7], "0..2,5..7"),
        ] {
            let replicas: ReplicaCounts = text.parse().unwrap();
            assert_eq!(
                (replicas.counts(), replicas.to_string().as_str()),
                (counts.as_slice(), shown)
            );
        }
        for text in ["", "..", "2..", "2..1", "-1", "65", "a", "1,,2", "1;2"] {
            assert!(text.parse::<ReplicaCounts>().is_err(), "{text}");
        }
    }

    #[test]
    fn scale_modes_have_replicas() {
        let mode: ScaleMode = "mysql/semi-sync".parse().unwrap();
        assert_eq!(mode.shape(0).unwrap().to_string(), "mysql/none");
        assert_eq!(mode.shape(3).unwrap().to_string(), "mysql/semi-sync:3");
        for text in ["galera", "group", "none", "async:2", "", "mysql/"] {
            assert!(text.parse::<ScaleMode>().is_err(), "{text}");
        }
    }

    #[test]
    fn readers_are_chosen_by_policy() {
        let plan = |reads| {
            let mut settings = ScaleSettings {
                reads: Some(reads),
                ..ScaleSettings::default()
            };
            settings.plan(&mut TargetSettings::default()).unwrap().1
        };
        let readers = |reads| [0, 1, 3].map(|replicas| plan(reads).readers(replicas));
        assert_eq!(readers(ReadTarget::Replicas), [1, 1, 3]);
        assert_eq!(readers(ReadTarget::All), [1, 2, 4]);
        assert_eq!(readers(ReadTarget::Primary), [1, 1, 1]);
    }

    proptest! {
        #[test]
        fn printed_value_parses_back(counts in proptest::collection::btree_set(0u32..=64, 1..12)) {
            let replicas = ReplicaCounts(counts.into_iter().collect());
            prop_assert_eq!(replicas.to_string().parse::<ReplicaCounts>(), Ok(replicas));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = text.parse::<ReplicaCounts>();
            let _ = text.parse::<ScaleMode>();
        }
    }
}
