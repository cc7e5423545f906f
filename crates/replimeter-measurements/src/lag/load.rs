//! Measures rounds under load.

use replimeter_engine::ServerError;
use replimeter_instruments::{MeasureError, lag::Outcome, load::Workload, preflight::Cluster};
use replimeter_model::load::LoadRecord;
use replimeter_run::{RunContext, Stage, cli_error::CliError};

use super::Lag;

/// Measures while the plan's loads run, and adds their records to `records`. On every outcome, stops the
/// loads and removes their data.
pub(super) fn under_load(
    cx: &mut RunContext<'_, Lag>,
    cluster: &mut Cluster,
    workloads: &[Workload],
    records: &mut Vec<LoadRecord>,
    measure: impl FnOnce(&mut RunContext<'_, Lag>, &mut Cluster) -> Result<Outcome, CliError>,
) -> Result<Outcome, CliError> {
    let (plan, stop) = (cx.plan, cx.stop);
    if plan.load.is_empty() {
        return measure(cx, cluster);
    }
    let mut load = cx.background_load(&plan.load, workloads, cluster, plan.timeout.0)?;
    cx.stage(Stage::Prepare, "starting the load");
    let ran = load.run_while(stop, |_| {
        let result = measure(cx, cluster);
        cx.stage(Stage::CleanUp, "stopping the load");
        result
    });
    cx.warn(ran.warnings);
    let mut result = ran.value;
    if let Some(error) = ran.failure {
        match &mut result {
            Ok(outcome) => outcome.failure = Some(error.into()),
            Err(failure) => *failure = error.into(),
        }
    }
    let (loads, warnings) = load.finish();
    *records = loads;
    cx.warn(warnings);
    result.map(|mut outcome| {
        if let Some(error) = outcome.failure.as_mut().and_then(unseen) {
            error.hint = format!(
                "{}; if the load exceeds what the replica sustains, lower it with --rate (`replimeter backlog` measures the limit)",
                error.hint
            );
        }
        outcome
    })
}

/// Returns the error of a row that did not become visible on a replica.
fn unseen(error: &mut MeasureError) -> Option<&mut ServerError> {
    match error {
        MeasureError::Server(error) if error.cause.contains("was not visible after") => Some(error),
        _ => None,
    }
}
