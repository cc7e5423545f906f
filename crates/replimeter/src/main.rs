//! `replimeter`: measures database replication.
//!
//! The only crate that prints, reads the environment and sets exit codes.

mod active;
mod cli;
mod commands;
mod credentials;
mod environment;
mod live;
mod print;
mod progress;
mod servers;
mod signals;
mod terminal;
#[cfg(test)]
mod tests;

use std::{process::ExitCode, sync::atomic::Ordering};

use replimeter_instruments::backlog::HeldAppliers;
use replimeter_measurements::across::compare;
use replimeter_run::{cli_error::CliError, of_files};

use crate::{
    active::Active,
    cli::{Command, Invocation},
};

fn main() -> ExitCode {
    live::leave_on_panic();
    let registry = replimeter_measurements::registry();
    let asked = cli::parse(registry);
    let active = Active {
        held_appliers: HeldAppliers::with_rescuer(environment::rescuer()),
        ..Active::default()
    };
    let stop = &active.stop;
    let result = signals::install(&active).and_then(|()| {
        let command = match asked {
            Invocation::Measure(entry, matches) => {
                return commands::measure::run(entry, &matches, &active);
            }
            Invocation::Other(command) => command,
        };
        let done = match command {
            Command::Run(args) => commands::run::run(registry, &args, &active),
            Command::Doctor(args) => commands::doctor::run(&args, &active),
            Command::Sandbox(args) => commands::sandbox::run(&args.command, &active),
            Command::Reproduce(args) => commands::reproduce::run(registry, &args, &active),
            Command::Report(args) => of_files(|| commands::report::run(registry, &args, stop)),
            Command::Compare(args) => {
                of_files(|| compare::run(registry, &args, &terminal::Terminal, stop))
            }
            Command::Trial(args) => commands::trial::run(registry, &args, &active),
            Command::Servers(args) => commands::servers::run(&args, stop),
            Command::Schema(args) => commands::program::schema(registry, &args),
            Command::Completions(args) => commands::program::completions(registry, &args),
            Command::Man(args) => commands::program::man(registry, &args),
        };
        done.map_err(|failure: CliError| failure.of_stopped(stop.load(Ordering::Relaxed)))
    });
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print::print_failure(&failure);
            failure.exit_code()
        }
    };
    signals::release_at_exit(&active);
    code
}
