//! A measurement from the command line.

use clap::ArgMatches;
use replimeter_run::{Entry, cli_error::CliError};

use super::run::print_plan;
use crate::{active::Active, servers::host};

pub(crate) fn run(
    entry: &dyn Entry,
    matches: &ArgMatches,
    active: &Active,
) -> Result<(), CliError> {
    let given = entry.given(matches)?;
    let plan = entry.plan(&given).map_err(|error| {
        let hint = format!("see `replimeter {} --help` for every setting", entry.name());
        CliError::usage(error.to_string(), hint)
    })?;
    plan.check(&given.output)?;
    if given.output.dry_run {
        return print_plan(&*plan, &given.output);
    }
    plan.carry_out(&given, &host(active), &active.stop)
}
