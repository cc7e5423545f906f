//! What the runs of a comparison can show, which depends on when they were made.

use std::{fs, path::PathBuf, sync::atomic::AtomicBool};

use replimeter_model::{
    compare::Basis,
    warning::{Warning, WarningCode},
};
use replimeter_run::{
    Registry,
    cli_error::CliError,
    differences::{Documents, differences},
};
use replimeter_stats::compare::MIN_KNOWN;

use super::sides::{self, ComparedDirectory};

/// The fewest alternating runs on a side, if the servers were started for them.
const MIN_FRESH: usize = 2;
/// The fewest alternating runs on a side, if the servers ran already: their runs leave out what a restart changes.
const MIN_RUNNING: usize = 5;

/// The runs of a comparison.
#[derive(Default)]
pub(crate) struct ComparedRuns {
    pub(crate) a: Vec<ComparedDirectory>,
    pub(crate) b: Vec<ComparedDirectory>,
    /// Runs of equal settings that show how much runs scatter.
    pub(crate) known: Vec<ComparedDirectory>,
}

impl ComparedRuns {
    /// Reads the runs of both sides, and those of equal settings; they are checked for comparability by their records.
    pub(super) fn read(
        registry: &'static Registry,
        sides: [&[String]; 3],
        stop: &AtomicBool,
    ) -> Result<Self, CliError> {
        let dirs = |words: &[String]| {
            Ok::<_, CliError>(
                words
                    .iter()
                    .map(|word| sides::named(word))
                    .collect::<Result<Vec<_>, _>>()?
                    .concat(),
            )
        };
        let [a, b, known] = sides.map(dirs);
        let (a, b, known) = (a?, b?, known?);
        let mut seen: Vec<PathBuf> = Vec::new();
        for dir in a.iter().chain(&b).chain(&known) {
            let place = fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
            if seen.contains(&place) {
                return Err(CliError::usage(
                    format!("the run {} is given twice", dir.display()),
                    "name two different runs, or sets without a common run",
                ));
            }
            seen.push(place);
        }
        let runs = |dirs: &[PathBuf]| {
            dirs.iter()
                .map(|dir| ComparedDirectory::read(registry, dir, stop))
                .collect::<Result<Vec<_>, _>>()
        };
        let all = Self {
            a: runs(&a)?,
            b: runs(&b)?,
            known: runs(&known)?,
        };
        if let Some(first) = all.a.first()
            && let Some(other) = all
                .a
                .iter()
                .chain(&all.b)
                .chain(&all.known)
                .find(|run| run.measured.name() != first.measured.name())
        {
            return Err(CliError::usage(
                format!(
                    "{} is a run of `{}` and {} one of `{}`: their figures are not comparable",
                    first.dir.display(),
                    first.measured.name(),
                    other.dir.display(),
                    other.measured.name()
                ),
                "compare runs of one command",
            ));
        }
        all.check_known()?;
        Ok(all)
    }

    /// Returns what p-values and intervals can come from.
    pub(super) fn basis(&self) -> Basis {
        let sets = [&self.a, &self.b, &self.known];
        if self.alternate() {
            Basis::AlternatingRuns
        } else if sets.iter().any(|set| set.len() >= MIN_KNOWN) {
            Basis::KnownSpread
        } else {
            Basis::WithinRuns
        }
    }

    /// Returns whether the runs are enough pairs of one of A and one of B, one pair after the other.
    fn alternate(&self) -> bool {
        let least = match self.running() {
            true => MIN_RUNNING,
            false => MIN_FRESH,
        };
        let begun = |runs: &[ComparedDirectory]| -> Vec<String> {
            runs.iter().map(|run| run.about().started_at).collect()
        };
        self.a.len() >= least && are_pairs(&begun(&self.a), &begun(&self.b))
    }

    /// Returns whether the servers of a run ran already.
    pub(super) fn running(&self) -> bool {
        let mut all = self.a.iter().chain(&self.b);
        all.any(|run| run.fresh_starts() == 0)
    }

    /// Refuses runs of `--known-from` that are too few, or not of equal settings: they would show something else.
    fn check_known(&self) -> Result<(), CliError> {
        let given = self.known.len();
        if given == 0 {
            return Ok(());
        }
        if given < MIN_KNOWN {
            return Err(CliError::usage(
                format!(
                    "--known-from names {given} runs, and fewer than {MIN_KNOWN} do not show how much runs differ"
                ),
                format!(
                    "make {MIN_KNOWN} runs of one plan or more, one after another, on the machine of A and B"
                ),
            ));
        }
        let documents: Vec<_> = self.known.iter().map(|run| &run.documents).collect();
        let mut varies = differences(&documents, &documents).within;
        varies.retain(|one| ["target", "plan", "version", "machine"].contains(&one.kind.as_str()));
        match varies.first() {
            None => Ok(()),
            Some(one) => Err(CliError::usage(
                format!(
                    "the runs of --known-from differ in {} {}: {}",
                    one.kind, one.name, one.a
                ),
                "name runs of one plan, by one version, on one machine",
            )),
        }
    }

    /// Returns the number of runs of sets that are large enough to show how much runs scatter.
    pub(super) fn known_from(&self) -> u64 {
        let sets = [&self.a, &self.b, &self.known];
        let sizes = sets.iter().map(|set| set.len());
        sizes.filter(|size| *size >= MIN_KNOWN).sum::<usize>() as u64
    }

    /// Returns the warning about runs that did not alternate.
    pub(super) fn warning(&self, basis: Basis) -> Option<Warning> {
        let (message, least) = match basis {
            Basis::AlternatingRuns => return None,
            Basis::KnownSpread => (
                "the runs of A and B did not alternate: a difference is more than runs of equal settings differ by, and its cause is unknown",
                MIN_FRESH,
            ),
            Basis::WithinRuns if self.running() => (
                "servers that ran already, and fewer than five alternating runs a side: no figure has a verdict",
                MIN_RUNNING,
            ),
            Basis::WithinRuns => (
                "the runs of A and B did not alternate, and how much runs of equal settings differ is not known: a difference can come from the minutes of either run",
                MIN_FRESH,
            ),
        };
        let hint = format!(
            "use `replimeter trial A.toml B.toml`, or make {least} runs or more a side in the order A B B A, or name five runs of equal settings with --known-from"
        );
        Some(Warning::new(WarningCode::NotAlternating, message, hint))
    }
}

/// Returns the warning about runs of equal settings that were made with other settings than A.
pub(super) fn other_machine(a: &[&Documents], known: &[ComparedDirectory]) -> Option<Warning> {
    let known: Vec<_> = known.iter().map(|run| &run.documents).collect();
    let differs = differences(a, &known).between;
    let kinds = ["target", "plan", "version", "machine"];
    let one = differs
        .iter()
        .find(|one| kinds.contains(&one.kind.as_str()))
        .filter(|_| !known.is_empty())?;
    Some(Warning::new(
        WarningCode::NotChecked,
        format!(
            "the runs of --known-from differ from A in {} {} ({}, {}): they may differ more, or less, from one to the next than runs like A",
            one.kind, one.name, one.b, one.a
        ),
        "name runs of A's settings, on the same machine",
    ))
}

/// Returns whether the runs that began at these times are pairs of one of each side, one pair after the other.
fn are_pairs(a: &[String], b: &[String]) -> bool {
    let mut all: Vec<(&String, bool)> = a.iter().map(|time| (time, true)).collect();
    all.extend(b.iter().map(|time| (time, false)));
    all.sort();
    let distinct = all.windows(2).all(|two| two[0].0 != two[1].0);
    let pairs = all
        .chunks(2)
        .all(|pair| matches!(pair, [one, other] if one.1 != other.1));
    distinct && pairs
}

#[cfg(test)]
mod tests {
    #[test]
    fn pairs_of_runs_alternate() {
        let are_pairs = |order: &str| {
            let begun = |side: char| -> Vec<String> {
                let runs = order.chars().enumerate().filter(|(_, one)| *one == side);
                runs.map(|(second, _)| format!("2026-11-27T10:00:{second:02}Z"))
                    .collect()
            };
            super::are_pairs(&begun('A'), &begun('B'))
        };
        for order in ["AB", "ABBA", "ABAB", "BAABBAABAB"] {
            assert!(are_pairs(order), "{order}");
        }
        for order in ["AABB", "ABBAA", "AAABBB", "ABBBAA", "A", "AAB"] {
            assert!(!are_pairs(order), "{order}");
        }
        let at_once = ["2026-11-27T10:00:00Z".to_owned()];
        assert!(!super::are_pairs(&at_once, &at_once));
    }
}
