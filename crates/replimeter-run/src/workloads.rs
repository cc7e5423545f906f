//! The workloads of plans, and messages about them.

use std::{fs, path::Path};

use crate::{Progress, ProgressDetail, Stage, cli_error::CliError};
use replimeter_instruments::load::{FillProgress, MAX_FILE_SIZE, Workload};
use replimeter_model::{
    load::{BUILT_IN, DataSize, LoadError, RatedLoad},
    suggest,
    target::{PRIMARY, Target},
};

/// The percentage of its ping limit from which the client is part of a figure.
pub const NEAR_LIMIT: f64 = 80.0;

/// Adds errors to the counts of the same kind.
pub fn add_errors(all: &mut Vec<LoadError>, more: &[LoadError]) {
    for error in more {
        match all.iter_mut().find(|known| known.code == error.code) {
            Some(known) => known.count += error.count,
            None => all.push(error.clone()),
        }
    }
}

/// Reads the workloads of all loads before anything is changed.
pub fn workloads(loads: &[RatedLoad]) -> Result<Vec<Workload>, CliError> {
    let mut read: Vec<Workload> = Vec::new();
    for load in loads {
        let name = &load.spec.workload;
        // Each script is read once, so that two loads with it share its data.
        let known = read.iter().find(|known| known.name == *name).cloned();
        read.push(known.map_or_else(|| workload(name), Ok)?);
    }
    Ok(read)
}

/// Rejects loads that cannot be read, or that name a server the sandbox will not have.
pub fn check_loads(targets: &[Target], loads: &[RatedLoad]) -> Result<(), CliError> {
    workloads(loads)?;
    for target in targets {
        let Target::Sandbox(spec) = target else {
            continue;
        };
        let names = spec.shape.nodes();
        // `primary` is the server that is written to.
        let known = |name: &str| name == PRIMARY || names.iter().any(|known| known == name);
        if let Some(load) = loads.iter().find(|load| !known(&load.spec.node)) {
            return Err(CliError::usage(
                format!(
                    "the load {}: {} has no server `{}`; it has {}",
                    load.spec,
                    spec.shape,
                    load.spec.node,
                    names.join(", ")
                ),
                "name one of them behind the @ of --load",
            ));
        }
    }
    Ok(())
}

/// Returns a built-in workload by name, or a file's.
pub fn workload(name: &str) -> Result<Workload, CliError> {
    if let Some(workload) = Workload::named(name) {
        return Ok(workload);
    }
    Workload::parse(name, &script(name)?).map_err(|error| {
        CliError::usage(
            format!("the workload {name}: {error}"),
            "correct the file; `replimeter load --help` shows one",
        )
    })
}

/// Rejects a size for workloads without data.
pub fn refuse_size(size: Option<DataSize>, workloads: &[Workload]) -> Result<(), CliError> {
    if size.is_some() && !workloads.iter().any(Workload::has_data) {
        return Err(CliError::usage(
            "a data size was given, but no workload has data",
            "leave --data-size out",
        ));
    }
    Ok(())
}

/// Returns the progress of filling a data set.
pub fn filling(filled: &FillProgress) -> Progress {
    let per_s = filled.bytes as f64 / filled.since.as_secs_f64().max(1e-3) / 1e6;
    Progress::new(Stage::Prepare, format!("filling {}", filled.table))
        .done(filled.rows as f64, Some(filled.of as f64), "rows")
        .with(ProgressDetail::Rate("MB".into(), per_s))
}

fn script(path: &str) -> Result<String, CliError> {
    let unreadable = |reason: String| {
        let word = Path::new(path)
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or(path);
        let hint = format!(
            "name a file of statements, or one of the workloads {}{}",
            BUILT_IN.join(", "),
            suggest::hint(word, BUILT_IN)
        );
        CliError::usage(format!("cannot read the workload {path}: {reason}"), hint)
    };
    let meta = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !meta.is_file() || meta.len() > MAX_FILE_SIZE {
        return Err(unreadable(format!(
            "it is not a regular file, or larger than {MAX_FILE_SIZE} bytes"
        )));
    }
    fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
}
