//! The settings of `cost`.

mod values;

use clap::ArgAction;
use replimeter_model::{
    load::{DataSize, MAX_THREADS},
    plan::{
        PlanError, Settings, TargetSettings, WarmUp,
        checks::{at_most, first_twice, from_to, part_of},
        contradiction,
        core_use::{CoreUse, ServerPlace},
        warm_up,
    },
    sandbox::{LinkSpec, SandboxSpec, WaitPoint, hosts_of, may_have_quota},
    server_option::NodeOption,
    settings,
    target::Target,
    time_span::TimeSpan,
};

pub use self::values::{CostMode, CostModes, Durability, LoggedMode};

/// Maximum number of fresh starts of each mode, and of comparisons of a mode with itself.
const MAX_STARTS: u32 = 1000;
/// Maximum number of thread counts, and of link delays.
const MAX_CONDITIONS: usize = 20;
/// Maximum number of replicas of each mode.
const MAX_REPLICAS: u32 = 8;
/// Minimum duration of a block: in a shorter one, its beginning and end are too large a part.
const MIN_BLOCK: TimeSpan = TimeSpan::from_millis(100);
/// Maximum duration of a block, and of a warm-up.
const MAX_BLOCK: TimeSpan = TimeSpan::from_secs(600);
/// Default warm-up.
const WARM_UP: WarmUp = WarmUp::Time(TimeSpan::from_secs(1));

settings! {
    /// The settings of `cost`.
    CostSettings;
    /// A `cost` measurement.
    CostPlan(given, targets);

    [Measurement]
    /// Replication modes to compare: MODE, MODE:N or ENGINE/MODE:N [default: {default}]
    ///
    /// MODE can be none (no binary log), binlog, async, semi-sync (with both wait points), galera (MariaDB) or group
    /// (MySQL); all are those that the servers found here can do. `none` of the same binary is added if it is missing.
    modes "MODE,…|all": CostModes = CostModes::All;

    /// Leave out modes that the servers found here cannot do; always with --modes all
    ///
    /// A warning names them. Without it, a named mode that is not available is an error.
    #[arg(action = ArgAction::SetTrue)]
    only skip_unavailable: Option<bool>;

    /// Replicas of modes that give no number; clusters have one member more [default: {default}]
    replicas "N": u32 = 1, from_to(1, MAX_REPLICAS, "");

    /// How durable an acknowledged commit is, in every mode [default: {default}]
    durability "HOW": Durability = Durability::default();

    /// Put links between the servers, and measure at each delay [default: no links]
    ///
    /// One-way delays, several with commas, such as 0,1ms,10ms; 0 is the link alone.
    #[arg(long = "link-delay", value_delimiter = ',')]
    link_delays "TIME,…": Vec<TimeSpan>, at_most(TimeSpan::from_secs(1), "a delay of a link");

    [Load]
    /// Numbers of connections, measured one after another [default: {default}]
    #[arg(value_delimiter = ',')]
    threads "N,…": Vec<u32> = vec![1, 8], check_threads;

    [Measurement]
    /// Counted time of each mode and number of threads [default: {default}; self-test: 4s]
    ///
    /// It is the total over all starts, at each link delay.
    duration "TIME": TimeSpan = TimeSpan::from_secs(if given.self_test.is_some() { 4 } else { 30 });

    /// Fresh starts of each mode [default: {default}; self-test: 4]
    ///
    /// With fewer than 4 the intervals are wide; with 1 there are none.
    starts "N": u32 = if given.self_test.is_some() { 4 } else { 5 },
        from_to(1, MAX_STARTS, "; reliable intervals require 4 or more");

    /// Approximate duration of a block [default: {default}; self-test: 500ms]
    block_duration "TIME": TimeSpan = TimeSpan::from_millis(if given.self_test.is_some() { 500 } else { 1000 }),
        at_most(MAX_BLOCK, "a block"), part_of(Some(duration), TimeSpan::from_secs(1));

    /// Uncounted time at the beginning of each load [default: {default}]
    ///
    /// A time, such as 2s: without rounds, a number has no meaning.
    only warm_up "TIME": WarmUp = WARM_UP, warm_up::of(Self::NAME, duration, WARM_UP, MAX_BLOCK);

    [Load]
    /// Workload to run: a name, or the path of a file [default: {default}]
    ///
    /// `replimeter load --help` lists the names and shows a file.
    workload "WORKLOAD": String = "insert".to_owned();

    /// Size of the data: rows (100000) or bytes (300MB) [default: the workload's]
    ///
    /// Bytes are on disk.
    data_size "SIZE": Option<DataSize>;

    [Measurement]
    /// Seed of the random order of the modes in each round [default: {default}]
    seed "N": u64 = 1;

    /// Compare the first mode with itself, this many times [without a number: 20]
    ///
    /// Fresh starts are compared with fresh starts; the test is whether differences are found significantly more
    /// often than in 5 %.
    #[arg(num_args = 0..=1, default_missing_value = "20")]
    self_test "N": Option<u32>, from_to(1, MAX_STARTS, "");

    /// Keep idle cores awake [default: on with one thread]
    keep_awake_under_load;

    plan
    /// Leave out modes that the servers found here cannot do.
    skip_unavailable: bool = self_test.is_none() && (modes == CostModes::All || skip_unavailable == Some(true));
    /// Duration of the warm-up.
    warm_up: TimeSpan = warm_up.as_time().unwrap_or_default();
    /// The servers of the modes, in the same order; semi-sync once for each wait point.
    shapes: Vec<CostServers> = Vec::new();
    /// How the client uses the cores of this machine.
    cores: CoreUse = CoreUse::default();
}

/// One row of the results and the servers that it is measured on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostServers {
    /// The mode.
    pub mode: CostMode,
    /// When a semi-synchronous primary waits.
    pub wait_point: Option<WaitPoint>,
    /// The servers.
    pub spec: SandboxSpec,
}

impl CostPlan {
    /// Returns the number of blocks of one start at one number of threads, and their duration.
    #[must_use]
    pub fn blocks(&self) -> (u32, TimeSpan) {
        let each = self.duration.0 / self.starts.max(1);
        let count = (each.as_secs_f64() / self.block_duration.0.as_secs_f64())
            .round()
            .clamp(1.0, 10_000.0) as u32;
        (count, TimeSpan(each / count))
    }

    /// Returns a mode's servers, with the same options and durability as the plan's `none`.
    ///
    /// # Errors
    /// When no such sandbox exists.
    pub fn shape_of(
        &self,
        mode: CostMode,
        target: &TargetSettings,
        wait_point: Option<WaitPoint>,
    ) -> Result<CostServers, PlanError> {
        let shape = mode
            .shape(self.replicas)
            .map_err(|error| PlanError::Contradiction(error.to_string()))?;
        let names = shape.nodes();
        let mut options: Vec<NodeOption> = self
            .durability
            .options()
            .iter()
            .filter_map(|option| option.parse().ok())
            .collect();
        // The user's options come last and so take precedence.
        options.extend(
            target
                .server_options
                .iter()
                .filter(|option| names.iter().any(|name| option.is_for(name)))
                .cloned(),
        );
        let zero = TimeSpan::from_secs(0);
        let linked = mode.kind.replicates()
            && (!self.link_delays.is_empty() || target.link_bandwidth.is_some());
        Ok(CostServers {
            mode,
            wait_point,
            spec: SandboxSpec {
                server_options: options,
                servers: target.servers.clone(),
                wait_point,
                link: linked.then_some(LinkSpec {
                    delay: zero,
                    jitter: zero,
                    bandwidth: target.link_bandwidth,
                }),
                client_link: target.client_link_delay,
                flush_delay: target.flush_delay,
                binary_log: mode.kind.binary_log,
                cpus: target.cpus_per_server,
                ..SandboxSpec::of(shape)
            },
        })
    }
}

impl Settings for CostSettings {
    const NAME: &'static str = "cost";
    type Plan = CostPlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, CostPlan), PlanError> {
        check_target(target)?;
        self.link_delays.sort_unstable();
        self.link_delays.dedup();
        if self.link_delays.len() > MAX_CONDITIONS {
            return contradiction("give at most 20 link-delays");
        }
        let mut plan = Self::resolve(self, &[])?;
        if plan.self_test.is_some() && plan.starts < 2 {
            return contradiction(
                "self-test requires at least 2 starts on each side: one start has no interval",
            );
        }
        if plan.block_duration < MIN_BLOCK {
            return contradiction(format!(
                "a block-duration of {} is too short; the minimum is {MIN_BLOCK}",
                plan.block_duration
            ));
        }
        if plan.duration.0 / plan.starts < MIN_BLOCK.0 {
            return contradiction(format!(
                "{} over {} starts leaves less than {MIN_BLOCK} for each; give a longer duration",
                plan.duration, plan.starts
            ));
        }
        let servers = ServerPlace::of_sandbox(may_have_quota(target.cpus_per_server, target.hosts));
        let most = plan.threads.iter().copied().max().unwrap_or(0);
        plan.cores = CoreUse::decide(&mut self.keep_awake, None, most, servers);
        plan.shapes = plan.shapes_of(target)?;
        // The modes are the targets.
        let targets = plan
            .shapes
            .iter()
            .map(|shape| Target::Sandbox(shape.spec.clone()))
            .collect();
        Ok((targets, plan))
    }

    fn workloads(&mut self) -> Vec<&mut String> {
        self.workload.iter_mut().collect()
    }
}

/// Rejects invalid numbers of threads, too many of them, and duplicates.
fn check_threads(_: &str, threads: &[u32]) -> Result<(), PlanError> {
    if threads.is_empty() || threads.len() > MAX_CONDITIONS {
        return contradiction("give 1 to 20 numbers of threads, such as 1,8");
    }
    if let Some(wrong) = threads
        .iter()
        .find(|threads| !(1..=MAX_THREADS).contains(threads))
    {
        return contradiction(format!("{wrong} threads: a load has 1 to {MAX_THREADS}"));
    }
    match first_twice(threads) {
        Some(_) => contradiction("a number of threads is given twice"),
        None => Ok(()),
    }
}

impl CostPlan {
    /// Returns the servers of the modes, each once.
    fn shapes_of(&self, target: &TargetSettings) -> Result<Vec<CostServers>, PlanError> {
        let mut shapes = Vec::new();
        for mode in self.modes.list() {
            let points = match (mode.kind.mode.waits_for_receipt(), target.wait_point) {
                (true, None) => vec![Some(WaitPoint::AfterCommit), Some(WaitPoint::AfterSync)],
                (true, point) => vec![point],
                (false, _) => vec![None],
            };
            for point in points {
                shapes.push(self.shape_of(mode, target, point)?);
            }
        }
        if target.hosts {
            let each = shapes
                .iter()
                .map(|servers: &CostServers| servers.spec.shape);
            let hosts = hosts_of(each, target.cpus_per_server).map_err(PlanError::Contradiction)?;
            for servers in &mut shapes {
                servers.spec.hosts = Some(hosts);
            }
        }
        if target.wait_point.is_some()
            && !shapes
                .iter()
                .any(|shape| shape.mode.kind.mode.waits_for_receipt())
        {
            return contradiction("a wait point requires semi-sync, which is not among the modes");
        }
        if !self.link_delays.is_empty() && !shapes.iter().any(|shape| shape.mode.kind.replicates())
        {
            return contradiction("a link delay requires a mode that replicates, such as async");
        }
        if let Some(option) = target.server_options.iter().find(|option| {
            !shapes.iter().any(|shape| {
                shape
                    .spec
                    .shape
                    .nodes()
                    .iter()
                    .any(|name| option.is_for(name))
            })
        }) {
            return Err(PlanError::Contradiction(format!(
                "the server option `{option}` is for a server that no mode has"
            )));
        }
        Ok(shapes)
    }
}

/// Rejects settings of other commands.
fn check_target(target: &TargetSettings) -> Result<(), PlanError> {
    if target.sandbox.is_some() || target.own_servers_given() {
        return contradiction(
            "cost starts its own servers for each mode; name modes (--modes) in place of a target",
        );
    }
    if target.link_delay.is_some() || target.link_jitter.is_some() {
        return contradiction("cost accepts link-delays in [cost] only, without a jitter");
    }
    let known = TargetSettings {
        server_options: target.server_options.clone(),
        servers: target.servers.clone(),
        wait_point: target.wait_point,
        link_bandwidth: target.link_bandwidth,
        client_link_delay: target.client_link_delay,
        flush_delay: target.flush_delay,
        cpus_per_server: target.cpus_per_server,
        hosts: target.hosts,
        ..TargetSettings::default()
    };
    if *target != known {
        return contradiction(
            "of the target's settings cost accepts server-options, servers, wait-point, link-bandwidth, client-link-delay, flush-delay, cpus-per-server and hosts",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::planned;

    fn resolve(cost: &str) -> Result<CostPlan, String> {
        planned::<CostSettings>(&format!("command = 'cost'\n{cost}"))
            .map(|planned| planned.plan)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn default_plan_has_every_mode() {
        let plan = resolve("").unwrap();
        assert_eq!(
            (plan.threads.as_slice(), plan.starts, plan.durability),
            ([1, 8].as_slice(), 5, Durability::Relaxed)
        );
        // Semi-sync with both wait points.
        assert_eq!(plan.shapes.len(), 7);
        assert_eq!(
            plan.shapes
                .iter()
                .filter(|shape| !shape.spec.binary_log)
                .count(),
            1
        );
        assert!(
            plan.shapes
                .iter()
                .all(|shape| shape.spec.link.is_none() && shape.spec.server_options.len() == 2)
        );
        assert_eq!(plan.blocks(), (6, TimeSpan::from_secs(1)));
    }

    #[test]
    fn time_is_split_into_blocks_of_requested_duration() {
        let blocks = |cost: &str| resolve(&format!("[cost]\n{cost}")).unwrap().blocks();
        assert_eq!(
            blocks("duration = '7s'\nstarts = 4"),
            (2, TimeSpan::from_millis(875))
        );
        assert_eq!(
            blocks("duration = '400ms'\nstarts = 4"),
            (1, TimeSpan::from_millis(100))
        );
        assert_eq!(
            blocks("duration = '10s'\nstarts = 1\nblock-duration = '3s'"),
            (3, TimeSpan(std::time::Duration::from_nanos(3_333_333_333)))
        );
    }

    #[test]
    fn links_are_only_between_replicating_servers() {
        let plan = resolve(
            "[cost]\nmodes = 'none,binlog,async,mysql/group:3'\nlink-delays = ['1ms', '0']",
        )
        .unwrap();
        assert_eq!(
            plan.link_delays,
            [TimeSpan::from_secs(0), TimeSpan::from_millis(1)]
        );
        let linked: Vec<bool> = plan
            .shapes
            .iter()
            .map(|shape| shape.spec.link.is_some())
            .collect();
        assert_eq!(linked, [false, false, true, true]);
    }

    #[test]
    fn contradictory_cost_settings_are_refused() {
        for (cost, want) in [
            ("[cost]\nthreads = [0]", "1 to 10000"),
            ("[cost]\nthreads = []", "numbers of threads"),
            ("[cost]\nthreads = [2, 2]", "twice"),
            ("[cost]\nstarts = 0", "1 to 1000"),
            ("[cost]\nmodes = 'ring'", "unknown mode"),
            ("[cost]\nduration = '100ms'", "longer duration"),
            ("[cost]\nblock-duration = '1ms'", "too short"),
            ("[cost]\nreplicas = 0", "1 to 8"),
            ("[cost]\nlink-delays = ['2s']", "at most 1s"),
            (
                "[cost]\nmodes = 'none'\nlink-delays = ['1ms']",
                "requires a mode that replicates",
            ),
            ("[cost]\nself-test = 0", "1 to 1000"),
            ("[cost]\nself-test = 3\nstarts = 1", "2 starts"),
            ("[target]\nsandbox = 'async:1'", "name modes"),
            ("[target]\nlink-delay = '1ms'", "link-delays"),
            ("[target]\nudf = true", "accepts server-options"),
            (
                "[target]\nwait-point = 'after-sync'\n[cost]\nmodes = 'async'",
                "requires semi-sync",
            ),
            (
                "[target]\nserver-options = ['replica5:sync_binlog=1']",
                "no mode has",
            ),
        ] {
            let error = resolve(cost).unwrap_err();
            assert!(error.contains(want), "{cost}: {error}");
        }
    }
}
