//! Differences between the servers' clocks.

use replimeter_model::doctor::{ClockDifference, Finding, FindingCode, Severity};

use super::CheckContext;

/// The smallest difference that is reported, in microseconds.
const TOLERATED_US: f64 = 1_000.0;

/// Returns each server's clock relative to its source's, or the writer's in a cluster.
pub(super) fn differences(view: &CheckContext<'_>) -> Vec<ClockDifference> {
    let of = |index: usize| {
        let source = view.upstream(index)?;
        let (theirs, own) = (view.state(source)?.clock?, view.state(index)?.clock?);
        Some(ClockDifference {
            source: view.servers[source].name.clone(),
            replica: view.servers[index].name.clone(),
            offset_us: own.offset_us - theirs.offset_us,
            bound_us: own.bound_us + theirs.bound_us,
        })
    };
    (0..view.servers.len()).filter_map(of).collect()
}

/// Returns findings for clocks whose difference exceeds the error of its measurement.
pub(super) fn check(differences: &[ClockDifference]) -> Vec<Finding> {
    let apart = differences
        .iter()
        .filter(|one| one.offset_us.abs() - one.bound_us > TOLERATED_US);
    apart
        .map(|one| {
            let mut finding = Finding::among(
                Severity::Warning,
                FindingCode::ClockOffset,
                format!(
                    "{}: its clock is {:.3} ms {} that of {} (± {:.3} ms), so Seconds_Behind, heartbeats and `stamp` are wrong by as much",
                    one.replica,
                    one.offset_us.abs() / 1e3,
                    if one.offset_us > 0.0 { "ahead of" } else { "behind" },
                    one.source,
                    one.bound_us / 1e3,
                ),
                "synchronize both machines with one time source (chronyc tracking, timedatectl); `lag` by polling uses no server's clock",
            );
            finding.node = Some(one.replica.clone());
            finding
        })
        .collect()
}
