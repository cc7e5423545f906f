//! What the command line gives for a measurement.

use replimeter_model::{plan::TargetSettings, target::Passwords, warning::Warning};
use toml::Table;

use super::output::OutputArgs;

/// What the command line gives for a measurement.
#[derive(Default)]
pub struct CommandLineSettings {
    /// What is measured.
    pub target: TargetSettings,
    /// Settings as a plan file spells them, and none that is not given.
    pub settings: Table,
    /// Passwords that URLs carried, by the name of the server.
    pub passwords: Passwords,
    /// Whether to ask for a password at the terminal.
    pub ask_password: bool,
    /// Where and how results go.
    pub output: OutputArgs,
    /// Warnings about the given options.
    pub warnings: Vec<Warning>,
}
