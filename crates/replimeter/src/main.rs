//! `replimeter`: measures database replication.
//!
//! The only crate that prints, reads the environment and sets exit codes.

mod calibrate;
mod cli;
mod commands;
mod compare;
mod cost;
mod course;
mod credentials;
mod document;
mod environment;
mod exposure;
mod failure;
mod frame;
mod histograms;
mod loading;
mod loss;
mod machine;
mod measure;
mod print;
mod progress;
mod run_dir;
mod scale;
mod signals;
mod stale;
mod tap;
mod topology_file;
mod touches;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = signals::install().and_then(|stop| match cli.command {
        Command::Lag(args) => commands::lag::run(&args, &stop),
        Command::Calibrate(args) => commands::calibrate::run(&args, &stop),
        Command::Tap(args) => commands::tap::run(&args, &stop),
        Command::Load(args) => commands::load::run(&args, &stop),
        Command::Scale(args) => commands::scale::run(&args, &stop),
        Command::Cost(args) => commands::cost::run(&args, &stop),
        Command::Stale(args) => commands::stale::run(&args, &stop),
        Command::Loss(args) => commands::loss::run(&args, &stop),
        Command::Exposure(args) => commands::exposure::run(&args, &stop),
        Command::Run(args) => commands::run::run(&args, &stop),
        Command::Doctor(args) => commands::doctor::run(&args, &stop),
        Command::Sandbox(args) => commands::sandbox::run(&args.command, &stop),
        Command::Reproduce(args) => commands::reproduce::run(&args, &stop),
        Command::Report(args) => commands::report::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Servers(args) => commands::servers::run(&args, &stop),
        Command::Schema(args) => commands::program::schema(&args),
        Command::Completions(args) => commands::program::completions(&args),
        Command::Man(args) => commands::program::man(&args),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}
