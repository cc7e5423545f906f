//! Hints of the servers' owner, added to the outcome of a measurement.

use replimeter_engine::{
    ERROR_LOG,
    source::{Member, Servers},
};
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

/// Returns the last lines of the error logs that are removed with their servers, with the beginning of messages about each server.
pub(super) fn log_ends(servers: &dyn Servers) -> Vec<(String, String)> {
    let members = servers.members().iter().enumerate();
    let end = |(index, member): (usize, &Member)| {
        Some((member.node.to_string(), servers.log_end(index)?))
    };
    members.filter_map(end).collect()
}

/// Adds its last lines to a failure whose hint leads to one of these logs.
pub(super) fn with_log_end(mut failure: CliError, logs: &[(String, String)]) -> CliError {
    let logs = logs.iter();
    let named = logs.filter_map(|(server, log)| Some((failure.message.find(server)?, log)));
    if failure.hint.contains(ERROR_LOG)
        && let Some((_, log)) = named.min_by_key(|(at, _)| *at)
    {
        failure.message = format!("{}; the end of its log:\n{log}", failure.message);
        failure.hint = failure.hint.replacen(ERROR_LOG, "log above", 1);
    }
    failure
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use replimeter_engine::Node;
    use replimeter_model::target::Endpoint;

    use super::*;

    struct Temporary(Vec<Member>);

    impl Servers for Temporary {
        fn label(&self) -> &str {
            "async:1"
        }

        fn members(&self) -> &[Member] {
            &self.0
        }

        fn log_end(&self, member: usize) -> Option<String> {
            Some(format!("  line of {}\n", self.0[member].node.name))
        }
    }

    fn node(name: &str, port: u16) -> Node {
        let url = format!("mysql://127.0.0.1:{port}");
        Node::new(name, Endpoint::parse(&url).unwrap().0, "", Duration::ZERO)
    }

    #[test]
    fn failure_shows_the_end_of_a_log_that_is_removed() {
        let nodes = [node("primary", 1), node("replica1", 2)];
        let servers = Temporary(nodes.iter().map(Member::from).collect());
        let failed = |hint: &str| {
            let error = nodes[1].precondition("cannot read", "lost", hint);
            with_log_end(error.into(), &log_ends(&servers))
        };
        let failure = failed("see the server's error log; it is gone");
        let message =
            "replica1 (127.0.0.1:2): cannot read: lost; the end of its log:\n  line of replica1\n";
        assert_eq!(failure.message, message);
        assert_eq!(failure.hint, "see the server's log above; it is gone");
        assert!(!failed("run again").message.contains("log"));
    }
}
