//! What the command line gives for a measurement.

use replimeter_model::{plan::TargetSettings, target::Passwords, warning::Warning};
use toml::Table;

use super::output::OutputArgs;

/// What the command line gives for a measurement.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) target: TargetSettings,
    /// Settings as a plan file spells them, and none that is not given.
    pub(crate) settings: Table,
    pub(crate) passwords: Passwords,
    pub(crate) ask_password: bool,
    pub(crate) output: OutputArgs,
    pub(crate) warnings: Vec<Warning>,
}
