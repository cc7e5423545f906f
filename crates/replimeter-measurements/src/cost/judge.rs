//! Whether the figures are to be trusted, and what a reader must know of them.

use replimeter_model::{
    cost::{CostRow, SelfComparison, SelfTest},
    plan::CostPlan,
    warning::{Warning, WarningCode},
};
use replimeter_render::figures::count;
use replimeter_run::{failure::Failure, workloads::NEAR_LIMIT};
use replimeter_stats::binomial::Excess;

use super::{cell::Cell, gathered::Mode};

/// The share of differences that a mode compared with itself should show.
const EXPECTED: f64 = 0.05;

/// Why the figures are not what was to be measured.
pub(super) fn invalid(all: &[Cell], self_test: Option<&SelfTest>) -> Option<Failure> {
    let of = |cell: &Cell| format!("{} at {} threads", cell.key.kind.name(), cell.key.threads);
    let fallen_back = |cell: &&Cell| cell.is_empty() && cell.invalid() > 0;
    if let Some(cell) = all.iter().find(fallen_back) {
        return Some(Failure::invalid(
            format!(
                "{}: no block counts, because semi-synchronous replication fell back in every one",
                of(cell)
            ),
            "use fewer threads, or see why the replica does not acknowledge in time",
        ));
    }
    if let Some(cell) = all.iter().find(|cell| cell.idle()) {
        let errors = cell
            .first_error()
            .map_or_else(String::new, |error| format!(": {error}"));
        return Some(Failure::invalid(
            format!(
                "{}: no operation was completed in the counted time{errors}",
                of(cell)
            ),
            "measure for longer (--duration), or mend the statement",
        ));
    }
    let test = self_test.filter(|test| test.significant)?;
    Some(Failure::invalid(
        format!(
            "a mode compared with itself was found to differ in {} of {} comparisons, which is significantly more than 5 %",
            test.differences,
            test.comparisons.len()
        ),
        "is something else running on this machine? its differences between modes are not to be trusted until this holds",
    ))
}

/// What a reader must know of the figures.
pub(super) fn judge(work: &CostPlan, all: &[Cell], results: &[CostRow]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let fewest = results.iter().map(|row| row.starts).min().unwrap_or(0);
    let fewest = if work.self_test.is_some() {
        u64::from(work.starts)
    } else {
        fewest
    };
    if fewest < 4 {
        let words = match fewest {
            few if work.self_test.is_some() => format!(
                "each comparison has only {few} starts on each side: with fewer than 4 the intervals are so wide that hardly anything can differ, and the test shows little"
            ),
            0 | 1 => {
                "a mode was started once only: how much one start differs from the next is not known, and there are no intervals"
                    .to_owned()
            }
            few => format!(
                "some modes have only {few} starts: with fewer than 4 the intervals are very wide and may still promise too much"
            ),
        };
        warnings.push(Warning::new(
            WarningCode::FewStarts,
            words,
            "use --starts 5 or more",
        ));
    }
    for cell in all.iter().filter(|cell| cell.invalid() > 0) {
        warnings.push(Warning::new(
            WarningCode::FellBack,
            format!(
                "{} at {} threads: {} blocks do not count, because the primary fell back to asynchronous replication in them",
                cell.key.kind.name(),
                cell.key.threads,
                count(cell.invalid())
            ),
            "the replica did not acknowledge in time; `invalid` in samples.parquet says what happened in each",
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
                format!("{what}: its statements are {percent:.0} % of what this client can send at all, so part of the figure is the client's"),
                "measure with fewer threads, or run the client on a machine with more cores",
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
                    "{what}: {} operations were given up beside {} that were done; the first error: {first}",
                    count(row.failed),
                    count(row.operations)
                ),
                "`errors` in the JSON document has every error with its count",
            ));
        }
    }
    warnings
}

/// What many comparisons of a mode with itself say.
pub(super) fn verdict(mode: &Mode, work: &CostPlan, comparisons: Vec<SelfComparison>) -> SelfTest {
    let differences = comparisons
        .iter()
        .filter(|comparison| comparison.differs)
        .count() as u64;
    // One without an interval has judged nothing.
    let judged = comparisons
        .iter()
        .filter(|comparison| comparison.throughput.ends().is_some())
        .count() as u64;
    let excess = Excess::over(differences, judged, EXPECTED);
    SelfTest {
        engine: mode.engine.name().to_owned(),
        mode: mode.mode.clone(),
        threads: work.threads[0],
        starts: work.starts,
        differences,
        expected: EXPECTED,
        share: excess.share,
        p_value: excess.p_value,
        significant: excess.significant(),
        comparisons,
    }
}
