//! Checks whether the figures are valid, and which warnings they need.

use replimeter_instruments::cost::{
    results::{CostRow, SelfComparison, SelfTest},
    settings::CostPlan,
};
use replimeter_model::warning::{Warning, WarningCode};
use replimeter_render::figures::count;
use replimeter_run::{cli_error::CliError, workloads::NEAR_LIMIT};
use replimeter_stats::binomial::Excess;

use super::{accumulator::MeasuredMode, condition::Condition, starts::CATCH_UP};

/// The expected share of differences in a self-test, at 95 % intervals.
const EXPECTED: f64 = 0.05;

/// Returns why the results are invalid, if they are.
pub(super) fn invalid(all: &[Condition], self_test: Option<&SelfTest>) -> Option<CliError> {
    let of = |condition: &Condition| {
        format!(
            "{} at {} threads",
            condition.key.kind.name(),
            condition.key.threads
        )
    };
    let fallen_back = |condition: &&Condition| condition.is_empty() && condition.totals.invalid > 0;
    if let Some(condition) = all.iter().find(fallen_back) {
        return Some(CliError::invalid(
            format!(
                "{}: no valid blocks: semi-synchronous replication fell back in every block",
                of(condition)
            ),
            "use fewer threads, or find out why the replica does not acknowledge before the timeout",
        ));
    }
    if let Some(condition) = all.iter().find(|condition| condition.idle()) {
        let errors = condition
            .first_error()
            .map_or_else(String::new, |error| format!(": {error}"));
        return Some(CliError::invalid(
            format!(
                "{}: no operation completed in the measured time{errors}",
                of(condition)
            ),
            "measure longer (--duration), or correct the statement",
        ));
    }
    let test = self_test.filter(|test| test.significant)?;
    Some(CliError::invalid(
        format!(
            "{} of {} self-test comparisons found a difference, significantly more than 5 %: the differences between modes are not reliable",
            test.differences,
            test.comparisons.len()
        ),
        "stop other programs on this machine, then repeat the self-test",
    ))
}

/// Returns the warnings about the figures.
pub(super) fn judge(plan: &CostPlan, all: &[Condition], results: &[CostRow]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let fewest = results.iter().map(|row| row.starts).min().unwrap_or(0);
    let fewest = if plan.self_test.is_some() {
        u64::from(plan.starts)
    } else {
        fewest
    };
    if fewest < 4 {
        let words = match fewest {
            few if plan.self_test.is_some() => format!(
                "each comparison has only {few} starts per side: with fewer than 4, the intervals are too wide to show most differences"
            ),
            0 | 1 => {
                "a mode was started only once: the variation between starts is unknown, so there are no intervals"
                    .to_owned()
            }
            few => format!(
                "some modes have only {few} starts: with fewer than 4, the intervals are very wide"
            ),
        };
        warnings.push(Warning::new(
            WarningCode::FewStarts,
            words,
            "use --starts 5 or more",
        ));
    }
    for condition in all.iter().filter(|condition| condition.totals.invalid > 0) {
        warnings.push(Warning::new(
            WarningCode::FellBack,
            format!(
                "{} at {} threads: {} blocks are excluded, because the primary fell back to asynchronous replication",
                condition.key.kind.name(),
                condition.key.threads,
                count(condition.totals.invalid.into())
            ),
            "find out why the replica did not acknowledge before the timeout; `invalid` in samples.parquet has the reason for each block",
        ));
    }
    for condition in all.iter().filter(|condition| condition.unapplied > 0) {
        warnings.push(Warning::new(
            WarningCode::ResourcesUnknown,
            format!(
                "{} at {} threads: {} blocks were not applied by every server within {} s: resources per operation leave out the rest, and the sustained throughput is unknown",
                condition.key.kind.name(),
                condition.key.threads,
                count(condition.unapplied),
                CATCH_UP.as_secs()
            ),
            "use shorter blocks (--block-duration) or fewer threads",
        ));
    }
    for row in results {
        let what = format!("{}/{} at {} threads", row.engine, row.label(), row.threads);
        if let Some(percent) = row
            .client
            .percent_of_limit
            .filter(|percent| *percent >= NEAR_LIMIT)
        {
            warnings.push(Warning::new(
                WarningCode::ClientLimited,
                format!("{what}: the client is the bottleneck: throughput reached {percent:.0} % of its ping limit, so part of the latency is the client's"),
                "use fewer threads, or run the client on a machine with more cores",
            ));
        }
        if row.failed > 0 {
            let first = row
                .errors
                .first()
                .map(|error| error.message.clone())
                .unwrap_or_default();
            warnings.push(Warning::new(
                WarningCode::LoadErrors,
                format!(
                    "{what}: {} operations failed and {} completed; the first error: {first}",
                    count(row.failed),
                    count(row.operations)
                ),
                "see `errors` in the JSON document for every error and its count",
            ));
        }
    }
    warnings
}

/// Returns the verdict of a self-test.
pub(super) fn verdict(
    mode: &MeasuredMode,
    plan: &CostPlan,
    comparisons: Vec<SelfComparison>,
) -> SelfTest {
    let differences = comparisons
        .iter()
        .filter(|comparison| comparison.differs)
        .count() as u64;
    // A comparison without an interval is not counted.
    let judged = comparisons
        .iter()
        .filter(|comparison| comparison.throughput.ends().is_some())
        .count() as u64;
    let excess = Excess::over(differences, judged, EXPECTED);
    SelfTest {
        engine: mode.engine.name().to_owned(),
        mode: mode.mode.clone(),
        threads: plan.threads[0],
        starts: plan.starts,
        differences,
        expected: EXPECTED,
        share_ci95: excess.share,
        p_value: excess.p_value,
        significant: excess.significant(),
        comparisons,
    }
}
