//! The settings of `scale`.

mod values;

use clap::ArgAction;
use replimeter_model::{
    load::{DataSize, MAX_THREADS, ReadTarget},
    plan::{
        PlanError, Settings, TargetSettings, WarmUp,
        checks::{above_zero, from_to},
        contradiction,
        core_use::{CoreUse, ServerPlace},
        on_off, warm_up,
    },
    replication::Mode,
    sandbox::SandboxSpec,
    settings,
    shape::{MAX_REPLICAS, Shape},
    target::Target,
    time_span::TimeSpan,
};

pub use self::values::{ReplicaCounts, ScaleMode, ScalePhase};
use crate::front::site::{self, HttpDriver, SitePlan, Through};

/// `ab -c 10`, as published.
const DEFAULT_THREADS: u32 = 10;
/// Default data set.
const DEFAULT_SIZE: DataSize = DataSize::Bytes(20_000_000);
/// Default warm-up.
const WARM_UP: WarmUp = WarmUp::Time(TimeSpan::from_secs(1));
/// Maximum warm-up.
const MAX_WARM_UP: TimeSpan = TimeSpan::from_secs(600);
/// Maximum number of starts of each count, and of blocks of each phase.
const MAX_STARTS: u32 = 1000;
/// Minimum number of replica counts for a fit.
pub const MIN_COUNTS: usize = 5;

settings! {
    /// The settings of `scale`.
    ScaleSettings;
    /// A `scale` measurement.
    ScalePlan(given, targets);

    [Measurement]
    /// Numbers of replicas: A..B, or several with commas [default: {default}]
    replicas "A..B": ReplicaCounts = ReplicaCounts(vec![0, 1, 2]);

    /// How the replicas replicate: [mariadb/|mysql/]async, semi-sync or chain [default: {default}]
    mode "MODE": ScaleMode = ScaleMode { engine: None, mode: Mode::Async };

    [Load]
    /// Number of writing clients, and of reading clients [default: {default}]
    ///
    /// They work back to back (closed loop).
    threads "N": u32 = DEFAULT_THREADS, from_to(1, MAX_THREADS, "");

    [Measurement]
    /// Counted time of each block [default: {default}]
    duration "TIME": TimeSpan = TimeSpan::from_secs(5);

    /// Uncounted time at the beginning of each block [default: {default}]
    ///
    /// A time, such as 2s: without rounds, a number has no meaning.
    only warm_up "TIME": WarmUp = WARM_UP, warm_up::of(Self::NAME, duration, WARM_UP, MAX_WARM_UP);

    /// Blocks of each phase on each start [default: {default}]
    blocks "N": u32 = 1;

    /// Fresh starts of each number of replicas [default: {default}]
    ///
    /// Intervals need 2; good ones need 4.
    starts "N": u32 = 3;

    [Load]
    /// Size of the data: rows (100000) or bytes (300MB) [default: {default}]
    ///
    /// Bytes are on disk. The published experiment has 300MB.
    data_size "SIZE": DataSize = DEFAULT_SIZE;

    /// Where to read: replicas, primary or all [default: {default}]
    ///
    /// With `replicas` and none there, the primary is read.
    reads "WHERE": ReadTarget = ReadTarget::Replicas;

    /// How clients reach the servers [default: {default}]
    ///
    /// With http they are visitors of a small site, as in the published experiment: HAProxy, then fronts, then the servers.
    only through "HOW": Through = Through::Direct;

    /// Number of fronts of the site [default: 2]
    ///
    /// Several are behind HAProxy.
    only fronts "N" if (through == Through::Http) else "through = http": u32 = site::DEFAULT_FRONTS, from_to(1, site::MAX_FRONTS, "");

    /// Processor time that a front adds to each request, such as 500us [default: 0us]
    only front_cost "TIME" if (through == Through::Http) else "through = http": TimeSpan = TimeSpan::default(), site::check_cost;

    /// What sends the requests to the site [default: ab]
    only driver "DRIVER" if (through == Through::Http) else "through = http": HttpDriver = HttpDriver::Ab;

    /// Keep the visitors' connections [default: off]
    ///
    /// Without, every request has a connection of its own, as in the published experiment.
    #[arg(value_parser = on_off())]
    only keep_alive "ON|OFF" if (through == Through::Http) else "through = http": bool = false;

    /// Requests of each kind per second (open loop) [default: back to back]
    ///
    /// At random times (Poisson process), with the driver replimeter. A request is sent when it is due if one of the --threads visitors is free; its
    /// latency counts from then.
    only rate "R" if (through == Through::Http) else "through = http": Option<u64>, above_zero("");

    [Measurement]
    /// Also measure updates, alone and during selects
    #[arg(action = ArgAction::SetTrue)]
    updates: bool = false;

    /// Measure one replica more, to check the fitted law's prediction
    ///
    /// Needs five numbers of replicas.
    #[arg(action = ArgAction::SetTrue)]
    check_prediction: bool = false;

    /// Seed of the random order of the numbers of replicas [default: {default}]
    seed "N": u64 = 1;

    /// Keep idle cores awake [default: off]
    keep_awake_under_load;

    plan
    /// Warm-up of each block.
    warm_up: TimeSpan = warm_up.as_time().unwrap_or_default();
    /// The site that the clients go through; `None` for connections to the servers.
    site: Option<ScaleSite> = (through == Through::Http).then_some(ScaleSite {
        site: SitePlan { fronts, cost: front_cost },
        driver,
        keep_alive,
        rate,
    });
    /// How the client uses the cores of this machine.
    cores: CoreUse = CoreUse::decide(&mut given.keep_awake, None, 2 * threads, ServerPlace::Sandbox);
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
        let plan = Self::resolve(self, &[])?;
        let (replicas, threads) = (&plan.replicas, plan.threads);
        if plan.duration < TimeSpan::from_millis(100) {
            return contradiction(
                "a block shorter than 100ms is mostly startup; give a longer duration",
            );
        }
        if [plan.blocks, plan.starts]
            .iter()
            .any(|number| !(1..=MAX_STARTS).contains(number))
        {
            return contradiction("blocks and starts must be from 1 to 1000");
        }
        if plan.check_prediction && replicas.counts().len() < MIN_COUNTS {
            return contradiction(format!(
                "a fit requires {MIN_COUNTS} numbers of replicas, so {replicas} gives no prediction; give more, such as 0..4"
            ));
        }
        if plan.check_prediction && replicas.max() >= MAX_REPLICAS {
            return contradiction(
                "no sandbox with one more replica exists to check the prediction",
            );
        }
        plan.check_site()?;
        // A client reads from one server: with fewer clients than servers some would have none. A site takes them in turn.
        let readers = plan.readers(replicas.max() + u32::from(plan.check_prediction));
        if threads < readers && plan.site.is_none() {
            return contradiction(format!(
                "{threads} clients cannot read from {readers} servers, because each client reads from one; give at least {readers} threads, or fewer replicas"
            ));
        }
        let targets = plan.targets(target)?;
        Ok((targets, plan))
    }
}

impl ScalePlan {
    /// Rejects what the site or the program that sends its requests cannot do.
    fn check_site(&self) -> Result<(), PlanError> {
        let Some(site) = self.site else {
            return Ok(());
        };
        if self.updates {
            return contradiction("the site has no updates: leave updates out, or through = http");
        }
        if site.driver != HttpDriver::Ab {
            return Ok(());
        }
        if site.rate.is_some() {
            return contradiction("rate requires driver = replimeter: ab has no open loop");
        }
        for (key, span) in [("duration", self.duration), ("warm-up", self.warm_up)] {
            if span.0.is_zero() || span.0.subsec_nanos() > 0 {
                return contradiction(format!(
                    "{key} = {span}: ab runs for whole seconds; round it, or use driver = replimeter"
                ));
            }
        }
        Ok(())
    }

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
                "scale starts its own servers: give the numbers of replicas with replicas (0..4), and their replication with mode (async, semi-sync, chain)",
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
