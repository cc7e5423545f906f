//! `replimeter trial`.

use std::path::Path;

use replimeter_measurements::across::trial::{self, TrialArgs, TrialPlan};
use replimeter_run::{
    Registry,
    cli_error::{CliError, unexpected},
    options::CommandLineSettings,
};

use super::run::read;
use crate::{active::Active, servers::host};

/// Runs a trial of two plan files.
pub(crate) fn run(
    registry: &'static Registry,
    args: &TrialArgs,
    active: &Active,
) -> Result<(), CliError> {
    let [a, b] = &args.plans[..] else {
        return Err(unexpected("a trial without two plans"));
    };
    let plan = |path: &Path| {
        Ok::<_, CliError>(TrialPlan {
            path: path.to_owned(),
            plan: read(registry, path, &CommandLineSettings::default())?,
        })
    };
    trial::run(
        registry,
        [plan(a)?, plan(b)?],
        args,
        &host(active),
        &active.stop,
    )
}
