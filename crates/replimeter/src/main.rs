//! `replimeter`: measures database replication.
//!
//! The only crate that prints, reads the environment and sets exit codes.

mod cli;
mod commands;
mod compare;
mod course;
mod credentials;
mod environment;
mod failure;
mod histograms;
mod machine;
mod measurements;
#[cfg(test)]
mod net;
mod print;
mod progress;
mod run;
mod run_dir;
mod servers;
mod signals;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tidy;
mod topology_file;
mod touches;
mod workloads;

use std::process::ExitCode;

use crate::cli::{Asked, Command};

fn main() -> ExitCode {
    let registry = measurements::registry();
    let asked = cli::parse(registry);
    let result = signals::install().and_then(|stop| {
        let command = match asked {
            Asked::Measure(entry, matches) => {
                return commands::measure::run(entry, &matches, &stop);
            }
            Asked::Other(command) => command,
        };
        match command {
            Command::Run(args) => commands::run::run(registry, &args, &stop),
            Command::Doctor(args) => commands::doctor::run(&args, &stop),
            Command::Sandbox(args) => commands::sandbox::run(&args.command, &stop),
            Command::Reproduce(args) => commands::reproduce::run(registry, &args, &stop),
            Command::Report(args) => commands::report::run(registry, &args),
            Command::Compare(args) => compare::run(registry, &args, &print::Terminal),
            Command::Servers(args) => commands::servers::run(&args, &stop),
            Command::Schema(args) => commands::program::schema(registry, &args),
            Command::Completions(args) => commands::program::completions(registry, &args),
            Command::Man(args) => commands::program::man(registry, &args),
        }
    });
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print::print_failure(&failure);
            failure.exit_code()
        }
    };
    signals::release_at_exit();
    code
}
