//! Hints of the servers' owner, added to the outcome of a measurement.

use replimeter_engine::source::Servers;
use replimeter_instruments::MeasureError;
use replimeter_model::warning::{Warning, WarningCode};

use crate::cli_error::CliError;

/// Returns the outcome of a measurement, and its failure with the hint of the servers' owner. An outcome without one has a warning
/// instead if the owner has a hint. `parts` takes the failure from the outcome and returns the warnings.
///
/// # Errors
/// When there is no outcome.
pub fn outcome_of<O>(
    result: Result<O, MeasureError>,
    servers: &dyn Servers,
    parts: impl FnOnce(&mut O) -> (Option<MeasureError>, &mut Vec<Warning>),
) -> Result<(O, Option<CliError>), CliError> {
    let advised = |error: MeasureError| with_advice(error.into(), servers);
    let mut outcome = result.map_err(advised)?;
    let (failure, warnings) = parts(&mut outcome);
    if failure.is_none() {
        warnings.extend(lost_servers(servers));
    }
    Ok((outcome, failure.map(advised)))
}

/// Returns the warning of a run that continued although its servers' owner has a hint about them.
fn lost_servers(servers: &dyn Servers) -> Option<Warning> {
    let advice = servers.advice()?;
    let message = "a server of the target ended during the run, or a link is cut; the figures cover only what the others showed";
    Some(Warning::new(
        WarningCode::ServerLost,
        message.to_owned(),
        advice,
    ))
}

/// Returns a failure of using servers, with the hint of their owner if it has one.
pub(crate) fn with_advice(mut failure: CliError, servers: &dyn Servers) -> CliError {
    if let Some(advice) = servers.advice() {
        // The measurement's own hint is kept: it may explain how to restart an applier.
        failure.hint = if failure.hint.is_empty() {
            advice
        } else {
            format!("{advice}; {}", failure.hint)
        };
    }
    failure
}
