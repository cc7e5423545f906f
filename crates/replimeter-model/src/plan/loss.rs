//! The settings of `loss`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PlanError, Settings, TargetSettings, contradiction,
    core_use::{CoreUse, ServerPlace},
    settings::on_off,
};
use crate::{
    replication::Mode,
    sandbox::{SandboxSpec, WaitPoint},
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
pub(super) const MAX_ROW_BYTES: u64 = 65_535;

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

/// The settings of `loss`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct LossSettings {
    /// How the primary fails [default: {default}]
    ///
    /// partition puts links between the servers.
    #[arg(long, value_name = "HOW")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<CrashKind>,

    /// Number of crashes per shape, each on new servers [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crashes: Option<u32>,

    /// Write for this time before each crash [default: {default}]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<TimeSpan>,

    /// Number of concurrent writer connections [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,

    /// Inserts per second of all writers together [default: back to back]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,

    /// Payload of each row, in bytes [default: {default}]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_size: Option<u64>,

    /// Time from the network partition to the kill [default: 200ms]
    ///
    /// The primary continues to accept writes. Only with --crash partition.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kill_delay: Option<TimeSpan>,

    /// Seed of the crash times, which vary within a tenth of a second [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,

    /// Keep idle cores awake [default: on with one writer]
    ///
    /// Spinners at idle priority do it: a core that has to wake up delays what is measured. A load of more than
    /// one thread keeps the cores busy, and the spinners would cost it throughput.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
}

/// A `loss` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossPlan {
    /// How the primary fails.
    pub crash: CrashKind,
    /// Number of crashes per shape.
    pub crashes: u32,
    /// Duration of the writes before each crash.
    pub duration: TimeSpan,
    /// Writer connections.
    pub writers: u32,
    /// Inserts per second; back to back when `None`.
    pub rate: Option<u64>,
    /// Payload bytes of each row.
    pub row_size: u64,
    /// Time from the network partition to the kill; used by [`CrashKind::Partition`] only.
    pub kill_delay: TimeSpan,
    /// Seed of the crash times.
    pub seed: u64,
    /// How the client uses the cores of this machine.
    pub cores: CoreUse,
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
        let crash = *self.crash.get_or_insert_default();
        if crash == CrashKind::Partition && target.link_delay.is_none() {
            // A link can be cut.
            target.link_delay = Some(TimeSpan::from_secs(0));
        }
        let targets = target.plan()?;
        let crashes = *self.crashes.get_or_insert(5);
        if crashes == 0 || crashes > MAX_CRASHES {
            return Err(PlanError::Contradiction(format!(
                "crashes must be from 1 to {MAX_CRASHES}"
            )));
        }
        let duration = *self.duration.get_or_insert(TimeSpan::from_secs(1));
        if duration < TimeSpan::from_millis(100) || duration > MAX_LOAD_DURATION {
            return Err(PlanError::Contradiction(format!(
                "duration must be from 100ms to {MAX_LOAD_DURATION} before a crash: every transaction is kept in memory"
            )));
        }
        let writers = *self.writers.get_or_insert(8);
        if writers == 0 || writers > MAX_WRITERS {
            return Err(PlanError::Contradiction(format!(
                "writers must be from 1 to {MAX_WRITERS}"
            )));
        }
        if self.rate == Some(0) {
            return contradiction("rate must be above 0; omit it to write back to back");
        }
        let row_size = *self.row_size.get_or_insert(100);
        if row_size == 0 || row_size > MAX_ROW_BYTES {
            return Err(PlanError::Contradiction(format!(
                "row-size must be from 1 to {MAX_ROW_BYTES} bytes"
            )));
        }
        if crash == CrashKind::Kill && self.kill_delay.is_some() {
            return contradiction(
                "kill-delay is the time between the network partition and the kill: it requires crash = partition (--crash partition)",
            );
        }
        let kill_delay = self.kill_delay.unwrap_or(TimeSpan::from_millis(200));
        if kill_delay > LONGEST_KILL_DELAY {
            return Err(PlanError::Contradiction(format!(
                "a kill-delay of {kill_delay} is longer than {LONGEST_KILL_DELAY}"
            )));
        }
        self.kill_delay = (crash == CrashKind::Partition).then_some(kill_delay);
        let plan = LossPlan {
            crash,
            crashes,
            duration,
            writers,
            rate: self.rate,
            row_size,
            kill_delay,
            seed: *self.seed.get_or_insert(1),
            cores: CoreUse::decide(
                &mut self.keep_awake,
                None,
                writers,
                ServerPlace::of(&targets),
            ),
        };
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
            if shape.mode() != Mode::SemiSync {
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
