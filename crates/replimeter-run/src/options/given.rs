//! What the command line gives for a measurement.

use replimeter_model::{plan::TargetSettings, target::Passwords, warning::Warning};
use toml::Table;

use super::output::OutputArgs;

/// What the command line gives for a measurement.
#[derive(Default)]
pub struct Given {
    pub target: TargetSettings,
    /// Settings as a plan file spells them, and none that is not given.
    pub settings: Table,
    pub passwords: Passwords,
    pub ask_password: bool,
    pub output: OutputArgs,
    pub warnings: Vec<Warning>,
}
