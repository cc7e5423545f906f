//! A measurement from the command line.

use std::sync::atomic::AtomicBool;

use clap::ArgMatches;
use replimeter_run::{Entry, failure::Failure};

use crate::servers::host;

pub(crate) fn run(
    entry: &dyn Entry,
    matches: &ArgMatches,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let given = entry.given(matches)?;
    let plan = entry.plan(&given).map_err(|error| {
        let hint = format!("see `replimeter {} --help` for every setting", entry.name());
        Failure::usage(error.to_string(), hint)
    })?;
    plan.check(&given.output)?;
    plan.carry_out(&given, &host(), stop)
}
