//! The settings of a measurement from the command line.

use std::path::PathBuf;

use replimeter_engine::source::Allowed;
use replimeter_model::{plan::TargetSettings, target::Passwords, warning::Warning};
use toml::Table;

use super::{
    form::{FormArgs, OutputForm},
    output::OutputArgs,
};

/// The settings of a measurement from the command line.
#[derive(Default)]
pub struct CommandLineSettings {
    /// The servers to measure.
    pub target: TargetSettings,
    /// The given settings, with the keys of a plan file.
    pub settings: Table,
    /// The file that names the servers, if there is one.
    pub topology: Option<PathBuf>,
    /// Passwords in URLs, by the name of the server.
    pub passwords: Passwords,
    /// Whether to ask for a password at the terminal.
    pub ask_password: bool,
    /// Whether to show the texts of replication errors of the user's servers.
    pub show_errors: bool,
    /// What the run may do that it otherwise refuses.
    pub allowed: Allowed,
    /// Whether the command answers without a run.
    pub once: bool,
    /// The destination and form of results.
    pub output: OutputArgs,
    /// Warnings about the given options.
    pub warnings: Vec<Warning>,
}

impl CommandLineSettings {
    /// Returns those of a run that prints nothing and writes into this directory.
    #[must_use]
    pub fn silent_into(run_dir: PathBuf) -> Self {
        Self {
            output: OutputArgs {
                run_dir: Some(run_dir),
                form: FormArgs {
                    chosen: OutputForm::Silent,
                },
                ..OutputArgs::default()
            },
            ..Self::default()
        }
    }
}
