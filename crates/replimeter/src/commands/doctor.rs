//! `replimeter doctor`: checks the servers of a target.

use std::sync::atomic::Ordering;

use replimeter_instruments::doctor::examine;
use replimeter_model::{
    doctor::{Diagnosis, DoctorDocument, DoctorStatus},
    target::Target,
};
use replimeter_render::{doctor, terminal};
use replimeter_run::{cli_error::CliError, json_text, options::OutputForm, print_document};

use crate::{
    active::Active,
    cli::DoctorArgs,
    print::say,
    progress::StatusLine,
    servers::{Targets, open},
    terminal::Terminal,
};

pub(crate) fn run(args: &DoctorArgs, active: &Active) -> Result<(), CliError> {
    let given = args.target.given()?;
    let targets = given.target.resolve()?;
    let [target] = targets.try_into().map_err(|targets: Vec<Target>| {
        CliError::usage(
            format!(
                "{} targets are given, but doctor examines one at a time",
                targets.len()
            ),
            "run doctor once per target",
        )
    })?;
    let line = StatusLine::new();
    let mut source = Targets::of(&given, given.target.defaults_file.clone(), active);
    let servers = open(&mut source, &target, &line, &active.stop)?;
    let diagnosis = examine(servers.members(), &mut |step| line.say(step));
    if active.stop.load(Ordering::Relaxed) {
        return Err(CliError::interrupted(
            "interrupted before everything was examined",
        ));
    }
    let advice = servers.advice();
    let (label, sandbox) = (servers.label().to_owned(), servers.record().is_some());
    if servers.is_temporary() {
        line.say("removing the sandbox");
    }
    let closed = servers.close();
    line.clear();
    // Warnings about the command line, not about the servers.
    say(&terminal::warnings(&given.warnings));
    let shown = show(&label, sandbox, diagnosis, advice, args.form.chosen);
    closed?;
    shown
}

/// Prints the report or the JSON document; the exit code states whether a measurement is possible. `shape` is
/// the examined target, `sandbox` whether it is a sandbox, `advice` the hint of the servers' owner.
fn show(
    shape: &str,
    sandbox: bool,
    diagnosis: Diagnosis,
    advice: Option<String>,
    form: OutputForm,
) -> Result<(), CliError> {
    let document = DoctorDocument::new(shape, sandbox, diagnosis);
    let report = doctor::report(&document);
    print_document(form, &report, || json_text(&document), "", &Terminal)?;
    let absent: Vec<&str> = document
        .results
        .iter()
        .filter(|row| !row.reached)
        .map(|row| row.name.as_str())
        .collect();
    if !absent.is_empty() {
        return Err(CliError::failed(
            format!("{} could not be examined", absent.join(", ")),
            advice.unwrap_or_else(|| "see the findings above".to_owned()),
        ));
    }
    match document.status {
        DoctorStatus::Ok | DoctorStatus::Warnings => Ok(()),
        DoctorStatus::Errors => Err(CliError::invalid(
            "a measurement of these servers would be refused or invalid",
            "follow the hints of the errors above",
        )),
    }
}
