//! What is active in this process: signals must reach all of it.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_engine::AllConnections;
use replimeter_instruments::backlog::HeldAppliers;
use replimeter_run::HangUps;
use replimeter_sandbox::RunningSandboxes;

/// What is active in this process. The program creates one; its copies are the same.
#[derive(Clone, Default)]
pub(crate) struct Active {
    /// Becomes true when the user wants the command to end.
    pub(crate) stop: Arc<AtomicBool>,
    /// The connections of runs to their servers.
    pub(crate) connections: AllConnections,
    /// The appliers that runs have stopped.
    pub(crate) held_appliers: HeldAppliers,
    /// The hang-ups that a run takes over.
    pub(crate) hang_ups: HangUps,
    /// The sandboxes that were started.
    pub(crate) sandboxes: RunningSandboxes,
}
