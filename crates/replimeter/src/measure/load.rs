//! Load beside a measurement, and the backlog that it makes.

use std::{fs, path::Path, sync::atomic::AtomicBool};

use replimeter_measure::{
    backlog::{self, Listener},
    clock::Clock,
    lag::Outcome,
    load::{Filled, LARGEST_FILE, Loads, Workload},
    preflight::Cluster,
};
use replimeter_model::{
    backlog::{BacklogPhase, BacklogPlan, BacklogRow},
    load::{BUILT_IN, LoadError, LoadPlan, LoadRecord, Size},
    plan::LagPlan,
    suggest,
    warning::Warning,
};
use replimeter_report::figures::count;

use crate::{environment, failure::Failure, progress::Line};

/// What was measured beside rounds, or in their place.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub(crate) load: Vec<LoadRecord>,
    pub(crate) backlog: Vec<BacklogRow>,
    pub(crate) warnings: Vec<Warning>,
}

/// Adds errors to those of the same kind.
pub(crate) fn add_errors(all: &mut Vec<LoadError>, more: &[LoadError]) {
    for error in more {
        match all.iter_mut().find(|known| known.code == error.code) {
            Some(known) => known.count += error.count,
            None => all.push(error.clone()),
        }
    }
}

/// Reads the workloads of all loads, before anything is touched.
pub(crate) fn workloads(loads: &[LoadPlan]) -> Result<Vec<Workload>, Failure> {
    let mut read: Vec<Workload> = Vec::new();
    for load in loads {
        let name = &load.spec.workload;
        // One script is read once, so that two loads by it share what it makes.
        let known = read.iter().find(|known| known.name == *name).cloned();
        read.push(known.map_or_else(|| workload(name), Ok)?);
    }
    Ok(read)
}

/// One of ours by its name, or a file's.
pub(crate) fn workload(name: &str) -> Result<Workload, Failure> {
    if let Some(workload) = Workload::named(name) {
        return Ok(workload);
    }
    Workload::parse(name, &script(name)?).map_err(|error| {
        Failure::usage(
            format!("the workload {name}: {error}"),
            "docs/load.md explains workloads; loads/ has examples",
        )
    })
}

/// Refuses a size for workloads that have no data.
pub(crate) fn refuse_size(size: Option<Size>, workloads: &[Workload]) -> Result<(), Failure> {
    if size.is_some() && !workloads.iter().any(Workload::has_data) {
        return Err(Failure::usage(
            "a size was given, and no workload has data",
            "leave --size out",
        ));
    }
    Ok(())
}

/// How far the filling of a data set is, in words.
pub(crate) fn filling(filled: &Filled) -> String {
    let per_s = filled.bytes as f64 / filled.since.as_secs_f64().max(1e-3) / 1e6;
    format!(
        "filling {}: {} of {} rows, {per_s:.0} MB/s",
        filled.table,
        count(filled.rows),
        count(filled.of)
    )
}

fn script(path: &str) -> Result<String, Failure> {
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
        Failure::usage(format!("cannot read the workload {path}: {reason}"), hint)
    };
    let meta = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !meta.is_file() || meta.len() > LARGEST_FILE {
        return Err(unreadable(format!(
            "it is no ordinary file, or larger than {LARGEST_FILE} bytes"
        )));
    }
    fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))
}

/// What a measurement under load needs.
pub(super) struct Setting<'a> {
    pub(super) plan: &'a LagPlan,
    pub(super) workloads: &'a [Workload],
    pub(super) clock: &'a Clock,
    pub(super) line: &'a Line,
    pub(super) stop: &'a AtomicBool,
}

/// Measures while the plan's loads run: rounds by `measure`, or a backlog. Whatever
/// happens, the loads end and what they made goes.
pub(super) fn under_load(
    setting: &Setting<'_>,
    cluster: &mut Cluster,
    beside: &mut Beside,
    measure: impl FnOnce(&mut Cluster) -> Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    let Setting {
        plan, line, stop, ..
    } = setting;
    if plan.load.is_empty() {
        return measure(cluster);
    }
    line.say("setting the load up");
    let mut progress = |filled: &Filled| line.say(filling(filled));
    let patience = plan.timeout.0;
    let mut loads = Loads::prepare(
        &plan.load,
        setting.workloads,
        cluster,
        setting.clock,
        patience,
        &mut progress,
        stop,
    )?;
    let result = match &plan.backlog {
        Some(wanted) => Ok(make_backlog(setting, wanted, cluster, &mut loads, beside)),
        None => {
            line.say("starting the load");
            loads
                .start(stop)
                .map_err(Failure::from)
                .and_then(|()| measure(cluster))
        }
    };
    line.say("ending the load");
    let (records, warnings) = loads.finish();
    beside.load = records;
    beside.warnings.extend(warnings);
    result.map(|mut outcome| {
        if let Some(error) = outcome.failure.as_mut().and_then(unseen) {
            error.hint = format!(
                "{}; is the load more than the replica sustains? lower it with --rate; --backlog measures how much that is",
                error.hint
            );
        }
        outcome
    })
}

/// The error of a row that a replica did not show.
fn unseen(
    error: &mut replimeter_measure::MeasureError,
) -> Option<&mut replimeter_server::ServerError> {
    match error {
        replimeter_measure::MeasureError::Server(error)
            if error.cause.contains("was not visible after") =>
        {
            Some(error)
        }
        _ => None,
    }
}

fn make_backlog(
    setting: &Setting<'_>,
    wanted: &BacklogPlan,
    cluster: &mut Cluster,
    loads: &mut Loads,
    beside: &mut Beside,
) -> Outcome {
    let panics = environment::fault().as_deref() == Some("panic-while-measuring");
    let mut progress = |progress: backlog::Progress| {
        let workers = progress
            .workers
            .map_or_else(String::new, |workers| format!(", {workers} workers"));
        let of = match progress.phase {
            BacklogPhase::Growing => format!(" of {} s", wanted.grow.0.as_secs_f64()),
            BacklogPhase::WithLoad | BacklogPhase::WithoutLoad => String::new(),
        };
        setting.line.say(format!(
            "{}{workers}: {}, {:.0} s{of}, {} transactions behind",
            progress.replica,
            progress.phase.words(),
            progress.since.as_secs_f64(),
            count(progress.behind)
        ));
        assert!(
            !(panics && progress.phase == BacklogPhase::Growing),
            "a fault was asked for"
        );
    };
    let mut listener = Listener {
        progress: &mut progress,
        stop: setting.stop,
    };
    let outcome = backlog::run(cluster, wanted, loads, setting.clock, &mut listener);
    beside.backlog = outcome.rows;
    beside.warnings.extend(outcome.warnings);
    Outcome {
        interrupted: outcome.interrupted,
        failure: outcome.failure,
        measured: outcome.measured,
        ..Outcome::default()
    }
}
