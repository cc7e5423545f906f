//! The settings of `loss`.

use replimeter_model::{
    one_of,
    plan::{
        PlanError, Settings, TargetSettings,
        checks::{above_zero, from_to},
        contradiction,
        core_use::{CoreUse, ServerPlace},
    },
    sandbox::{SandboxSpec, WaitPoint},
    settings,
    shape::Shape,
    target::Target,
    time_span::TimeSpan,
};

/// Maximum number of crashes of one run.
const MAX_CRASHES: u32 = 1000;
/// Maximum number of writer connections.
const MAX_WRITERS: u32 = 256;
/// Maximum duration of the load before a crash: every transaction is kept in memory until its
/// outcome is known.
const MAX_LOAD_DURATION: TimeSpan = TimeSpan::from_secs(60);
/// Maximum time between the network partition and the kill.
const LONGEST_KILL_DELAY: TimeSpan = TimeSpan::from_secs(60);
/// Maximum bytes of a row: the size of a BLOB.
pub(crate) const MAX_ROW_BYTES: u64 = 65_535;

one_of! {
    /// How the primary fails.
    #[derive(Default)]
    pub enum CrashKind {
        /// Killed by SIGKILL: data that it had sent still arrives
        #[default]
        Kill = "kill",
        /// Cut off from its replicas, later killed: data in transit is lost too
        Partition = "partition",
    }
}

settings! {
    /// The settings of `loss`.
    LossSettings;
    /// A `loss` measurement.
    LossPlan(given, targets);

    [Measurement]
    /// How the primary fails [default: {default}]
    ///
    /// partition puts links between the servers.
    crash "HOW": CrashKind = CrashKind::default();

    /// Number of crashes per shape, each on new servers [default: {default}]
    crashes "N": u32 = 5, from_to(1, MAX_CRASHES, "");

    /// Write for this time before each crash [default: {default}]
    duration "TIME": TimeSpan = TimeSpan::from_secs(1),
        from_to(TimeSpan::from_millis(100), MAX_LOAD_DURATION, " before a crash: every transaction is kept in memory");

    /// Number of concurrent writer connections [default: {default}]
    writers "N": u32 = 8, from_to(1, MAX_WRITERS, "");

    /// Inserts per second of all writers together [default: back to back]
    rate "N": Option<u64>, above_zero("; omit it to write back to back");

    /// Payload of each row, in bytes [default: {default}]
    row_size "BYTES": u64 = 100, from_to(1, MAX_ROW_BYTES, " bytes");

    /// Time from the network partition to the kill [default: 200ms]
    ///
    /// The primary continues to accept writes. Only with --crash partition.
    kill_delay "TIME" if (crash == CrashKind::Partition): TimeSpan = TimeSpan::from_millis(200);

    /// Seed of the crash times, which vary within a tenth of a second [default: {default}]
    seed "N": u64 = 1;

    /// Keep idle cores awake [default: on with one writer]
    keep_awake_under_load;

    plan
    /// How the client uses the cores of this machine.
    cores: CoreUse = CoreUse::decide(&mut given.keep_awake, None, writers, ServerPlace::of(targets));
}

/// A replication setup that is crashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossCase {
    /// Name in reports: the shape, with the wait point where there are two.
    pub label: String,
    /// The sandbox to start.
    pub spec: SandboxSpec,
}

/// Rejects targets that must not be crashed, or that cannot lose or keep transactions.
fn check_target(target: &TargetSettings) -> Result<(), PlanError> {
    let refused = contradiction(
        "loss kills the primary and restarts it: it accepts only sandboxes that it starts and removes itself (--sandbox SHAPE), never your servers or a running sandbox; use `replimeter exposure` to estimate what a crash of those would lose",
    );
    // Reported before any other error of these targets.
    if target.own_servers_given() {
        return refused;
    }
    if target.client_link_delay.is_some() {
        return contradiction(
            "loss times acknowledgements by the moment of the crash; through the link of a client they would arrive later: remove client-link-delay",
        );
    }
    for target in target.resolve()? {
        let Target::Sandbox(sandbox) = target else {
            return refused;
        };
        check_shape(sandbox.shape)?;
    }
    Ok(())
}

fn check_shape(shape: Shape) -> Result<(), PlanError> {
    if shape.servers() > 1 {
        return Ok(());
    }
    Err(PlanError::Contradiction(format!(
        "{shape} has no replica: no server can take over, and acknowledged writes are on the primary's disk only. Choose a shape that replicates, such as async:1"
    )))
}

impl Settings for LossSettings {
    const NAME: &'static str = "loss";
    type Plan = LossPlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, LossPlan), PlanError> {
        check_target(target)?;
        let partition = self.crash == Some(CrashKind::Partition);
        if partition && target.link_delay.is_none() {
            // A link can be cut.
            target.link_delay = Some(TimeSpan::default());
        }
        if self.kill_delay.is_some() && !partition {
            return contradiction(
                "kill-delay is the time between the network partition and the kill: it requires crash = partition (--crash partition)",
            );
        }
        let targets = target.plan()?;
        let plan = Self::resolve(self, &targets)?;
        if plan.kill_delay > LONGEST_KILL_DELAY {
            return contradiction(format!(
                "a kill-delay of {} is longer than {LONGEST_KILL_DELAY}",
                plan.kill_delay
            ));
        }
        Ok((targets, plan))
    }
}

impl LossPlan {
    /// Returns the setups to crash: every target, a semi-synchronous one with both wait points unless
    /// one is chosen.
    #[must_use]
    pub fn cases(&self, targets: &[Target]) -> Vec<LossCase> {
        let mut cases = Vec::new();
        for target in targets {
            let Target::Sandbox(spec) = target else {
                continue;
            };
            let shape = spec.shape;
            if !shape.mode().waits_for_receipt() {
                cases.push(LossCase {
                    label: shape.to_string(),
                    spec: spec.clone(),
                });
                continue;
            }
            let points = spec.wait_point.map_or_else(
                || vec![WaitPoint::AfterCommit, WaitPoint::AfterSync],
                |point| vec![point],
            );
            for point in points {
                let label = format!("{shape} {}", point.name());
                cases.push(LossCase {
                    label,
                    spec: SandboxSpec {
                        wait_point: Some(point),
                        ..spec.clone()
                    },
                });
            }
        }
        cases
    }
}
