//! The settings of `loss`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlanError, Settings, TargetSettings, contradiction, settings::on_off};
use crate::{
    sandbox::{SandboxSpec, WaitPoint},
    shape::{Mode, Shape},
    target::Target,
    time_span::TimeSpan,
};

/// The most crashes of one run.
const MAX_CRASHES: u32 = 1000;
/// The most connections that write.
const MAX_WRITERS: u32 = 256;
/// The longest load before a crash: every transaction is kept in memory until it is
/// known what became of it.
const MAX_LOAD_DURATION: TimeSpan = TimeSpan::from_secs(60);
/// The longest time between the cut and the end of the primary.
const LONGEST_KILL_DELAY: TimeSpan = TimeSpan::from_secs(60);
/// The most bytes of a row: what a BLOB holds.
pub(super) const MAX_ROW_BYTES: u64 = 65_535;

one_of! {
    /// How the primary fails.
    #[derive(Default)]
    pub enum CrashKind {
        /// Killed by SIGKILL: what it had sent still arrives
        #[default]
        Kill = "kill",
        /// Cut off from its replicas, later killed: what it had sent is lost too
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

    /// Keep this machine's idle cores from halting [default: {default}]
    ///
    /// Spinners at idle priority do it: a core that has to wake up delays what is measured.
    #[arg(long, value_name = "ON|OFF", value_parser = on_off(), help_heading = "Client")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
}

/// A `loss` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossPlan {
    /// How the primary ends.
    pub crash: CrashKind,
    /// How often.
    pub crashes: u32,
    /// How long is written before each crash.
    pub duration: TimeSpan,
    /// Connections that write.
    pub writers: u32,
    /// Inserts per second; back to back when `None`.
    pub rate: Option<u64>,
    /// Payload bytes of each row.
    pub row_size: u64,
    /// From the cut to the end; used by [`CrashKind::Partition`] only.
    pub kill_delay: TimeSpan,
    /// Varies the moments of the crashes.
    pub seed: u64,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
}

/// One way of replicating that is crashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossCase {
    /// What reports call it: the shape, with the wait point where there are two.
    pub label: String,
    /// What is started.
    pub spec: SandboxSpec,
}

/// Refuses targets that may not be crashed, or where nothing could be lost or kept.
fn check_target(target: &TargetSettings) -> Result<(), PlanError> {
    let refused = contradiction(
        "loss kills the primary and starts it again: it takes only sandboxes that it starts and removes itself (--sandbox SHAPE), never servers of yours and no sandbox that is kept; `replimeter exposure` says what a crash of theirs would take",
    );
    // That is said before what else may be amiss with them.
    if target.own_servers_given() {
        return refused;
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
        "{shape} has no replica: nobody is left to take over, and what the primary acknowledged is on its own disk only. Choose a shape that replicates, such as async:1"
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
                "rows are written for 100ms to {MAX_LOAD_DURATION} before a crash: each is remembered until it is known what became of it"
            )));
        }
        let writers = *self.writers.get_or_insert(8);
        if writers == 0 || writers > MAX_WRITERS {
            return Err(PlanError::Contradiction(format!(
                "writers must be from 1 to {MAX_WRITERS}"
            )));
        }
        if self.rate == Some(0) {
            return contradiction("a rate of 0 writes nothing; leave it out to write back to back");
        }
        let row_size = *self.row_size.get_or_insert(100);
        if row_size == 0 || row_size > MAX_ROW_BYTES {
            return Err(PlanError::Contradiction(format!(
                "a row has from 1 to {MAX_ROW_BYTES} bytes"
            )));
        }
        if crash == CrashKind::Kill && self.kill_delay.is_some() {
            return contradiction(
                "kill-delay is the time between the network partition and the kill: it needs crash = partition (--crash partition)",
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
            keep_awake: *self.keep_awake.get_or_insert(true),
        };
        Ok((targets, plan))
    }
}

impl LossPlan {
    /// What is crashed: every target, a semi-synchronous one with both wait points unless
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
