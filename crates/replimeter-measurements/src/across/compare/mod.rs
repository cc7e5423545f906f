//! `compare`: reads runs and their figures, compares settings, checks conditions, builds the document.

mod args;
mod conditions;
pub(super) mod design;
pub(super) mod matching;
pub(super) mod named;
mod rows;
pub(super) mod sides;

use std::sync::atomic::AtomicBool;

use replimeter_model::{
    compare::{
        Basis, COMPARE_SCHEMA, CompareDocument, CompareRow, CompareSide, Condition, Outcome,
    },
    manifest::Manifest,
    record::RunStatus,
    warning::{Warning, WarningCode},
};
use replimeter_render::{charts, compare as report, html};
use replimeter_run::{
    Registry, Screen,
    cli_error::CliError,
    differences::differences,
    figures::FigureSpec,
    publish_report,
    run_dir::{RunDir, SUMMARY, write_json},
};
use replimeter_stats::compare::{LEVEL, RESAMPLES};
use serde::Deserialize as _;

pub use self::args::CompareArgs;
use self::{
    conditions::{FailIf, Judging},
    design::ComparedRuns,
    matching::Matched,
    rows::ALPHA,
    sides::ComparedDirectory,
};

/// Compares two sets of runs. `stop` ends the completion of runs that were cut off.
pub fn run(
    registry: &'static Registry,
    args: &CompareArgs,
    screen: &dyn Screen,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let Compared {
        document,
        mut run_dir,
        manifest,
        plans,
    } = compare(registry, args, stop)?;
    let shown = report::report(&document);
    let charts = charts::compare::charts(&document);
    let page = html::page(&shown, charts, &manifest, &plans);
    run_dir.keep();
    let (dir, kept) = (run_dir.path(), Some("Comparison"));
    let written = write_json(&dir.join(SUMMARY), &document);
    publish_report(&document, &shown, page, dir, kept, args.form.chosen, screen)?;
    written?;
    passed(&document, screen)
}

/// Returns the warning about conditions that neither hold nor fail; `None` if there are none, or they fail.
fn inconclusive(document: &CompareDocument) -> Option<Warning> {
    let open = document.conditions.iter();
    let open: Vec<String> = open
        .filter(|one| one.outcome == Outcome::Inconclusive && !document.fails(one))
        .map(|one| format!("{} ({})", one.condition, one.label))
        .collect();
    (!open.is_empty()).then(|| {
        Warning::new(
            WarningCode::Inconclusive,
            format!(
                "{} of {} conditions are inconclusive and did not fail: {}",
                open.len(),
                document.conditions.len(),
                open.join("; ")
            ),
            "use `replimeter trial`, or compare more runs that alternate; --fail-when possible fails inconclusive conditions",
        )
    })
}

/// Reports inconclusive conditions; fails if a condition failed.
fn passed(document: &CompareDocument, screen: &dyn Screen) -> Result<(), CliError> {
    if let Some(warning) = inconclusive(document) {
        screen.say(&format!(
            "warning: {}\n  hint: {}\n",
            warning.message, warning.hint
        ));
    }
    if document.failed() {
        let failed: Vec<String> = document
            .conditions
            .iter()
            .filter(|condition| document.fails(condition))
            .map(|condition| {
                format!(
                    "{} ({}: {})",
                    condition.condition, condition.label, condition.verdict
                )
            })
            .collect();
        return Err(CliError::invalid(
            format!("failed conditions: {}", failed.join("; ")),
            "see the page for other differences between the runs",
        ));
    }
    Ok(())
}

/// Checks all conditions together.
fn judged(
    conditions: &[(FailIf, &'static FigureSpec)],
    rows: &[CompareRow],
    matched: &Matched,
    judging: Judging,
    absent: impl Fn(&FigureSpec) -> CliError,
) -> Result<Vec<Condition>, CliError> {
    let chosen = conditions
        .iter()
        .map(|(condition, spec)| condition.rows(rows, || absent(spec)))
        .collect::<Result<Vec<_>, _>>()?;
    let judging = Judging {
        level: 1.0 - ALPHA / chosen.iter().map(Vec::len).sum::<usize>().max(1) as f64,
        ..judging
    };
    let mut outcomes = Vec::new();
    for ((condition, _), chosen) in conditions.iter().zip(chosen) {
        for (index, row) in chosen {
            outcomes.push(condition.judge(row, &matched.pairs[index], judging)?);
        }
    }
    Ok(outcomes)
}

/// A comparison, and the additional data for its page.
pub struct Compared {
    /// The document.
    pub document: CompareDocument,
    run_dir: RunDir,
    manifest: Manifest,
    plans: String,
}

/// Compares the runs without output.
pub fn compare(
    registry: &'static Registry,
    args: &CompareArgs,
    stop: &AtomicBool,
) -> Result<Compared, CliError> {
    let (a, b) = args.sides()?;
    RunDir::check(args.run_dir.as_deref())?;
    let conditions = args
        .fail_if
        .iter()
        .map(|text| FailIf::parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    let runs = ComparedRuns::read(registry, [&a, &b, &args.known_from], stop)?;
    let ComparedRuns { a, b, known } = &runs;
    let basis = runs.basis();
    let command = a[0].measured.name();
    let conditions = conditions
        .into_iter()
        .map(|condition| {
            let spec = named::find(registry, command, condition.figure())?;
            condition.check(spec)?;
            Ok((condition, spec))
        })
        .collect::<Result<Vec<_>, CliError>>()?;
    let run_dir = RunDir::create(args.run_dir.as_deref(), "compare")?;
    let [before, after] =
        [a, b].map(|runs| runs.iter().map(|run| &run.documents).collect::<Vec<_>>());
    let settings = differences(&before, &after);
    let mut warnings = warnings(a, b);
    warnings.extend(runs.warning(basis));
    warnings.extend(design::other_machine(&before, known));
    warnings.extend(settings.about_cores());
    let matched = matching::pairs(&runs, &mut warnings)?;
    // A run of servers that ran already says nothing about another one.
    let tested = Some(basis).filter(|basis| *basis != Basis::WithinRuns || !runs.running());
    let (rows, corrected_for) = rows::rows(&matched.pairs, tested);
    if rows.iter().any(|row| row.a.short || row.b.short) {
        warnings.push(Warning::new(
            WarningCode::NotChecked,
            "some runs are too short for the autocorrelation of their samples: intervals of such figures are from four long blocks, wide and possibly still too narrow; quantiles with fewer than five independent samples beyond them have none",
            "measure longer, or compare several runs on each side",
        ));
    }
    let judging = Judging {
        basis,
        when: args.fail_when,
        level: LEVEL,
    };
    let outcomes = judged(&conditions, &rows, &matched, judging, |spec| {
        named::absent(registry, command, spec, &rows, matched.recorded.each_ref())
    })?;
    let about = |runs: &[ComparedDirectory]| CompareSide {
        runs: runs.iter().map(ComparedDirectory::about).collect(),
    };
    let mut document = CompareDocument {
        schema: COMPARE_SCHEMA.to_owned(),
        run_dir: run_dir.path().display().to_string(),
        command: command.to_owned(),
        headline: String::new(),
        compared_at: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        a: about(a),
        b: about(b),
        basis,
        known_from: match basis {
            Basis::KnownSpread => runs.known_from(),
            Basis::AlternatingRuns | Basis::WithinRuns => 0,
        },
        differs: settings.between,
        varies: settings.within,
        results: rows,
        only_on: matched.only_on,
        corrected_for,
        level: LEVEL,
        resamples: RESAMPLES as u64,
        fail_when: args.fail_when,
        conditions: outcomes,
        warnings,
    };
    document.headline = report::answer(&document);
    document.warnings.extend(inconclusive(&document));
    let plans = [("A", &a[0]), ("B", &b[0])]
        .map(|(side, run)| format!("# {side}: {}\n{}", run.dir.display(), run.documents.plan));
    Ok(Compared {
        document,
        run_dir,
        manifest: both(&a[0].documents.manifest, &b[0].documents.manifest),
        plans: plans.join("\n"),
    })
}

/// Returns one manifest with the servers of both sides, for the page.
pub(super) fn both(a: &Manifest, b: &Manifest) -> Manifest {
    let mut both = Manifest {
        servers: Vec::new(),
        sandboxes: Vec::new(),
        ..b.clone()
    };
    for (side, manifest) in [("A", a), ("B", b)] {
        both.servers
            .extend(manifest.servers.iter().cloned().map(|mut server| {
                server.shape = format!("{side} · {}", server.shape);
                server
            }));
        both.sandboxes
            .extend(manifest.sandboxes.iter().cloned().map(|mut sandbox| {
                sandbox.shape = format!("{side} · {}", sandbox.shape);
                sandbox
            }));
    }
    both
}

/// Returns the warnings about the runs themselves.
fn warnings(a: &[ComparedDirectory], b: &[ComparedDirectory]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let starts = |runs: &[ComparedDirectory]| -> u64 {
        runs.iter().map(ComparedDirectory::fresh_starts).sum()
    };
    if [a, b].into_iter().any(|runs| starts(runs) == 1) {
        warnings.push(Warning::new(
            WarningCode::FewStarts,
            "a side has one start of the servers: starts differ more than the samples of one, so no difference can be told from it",
            "measure both sides with several starts (lag, stale: --starts 10), or compare several runs that alternate: replimeter compare a1,a2,a3 b1,b2,b3",
        ));
    }
    for run in a.iter().chain(b) {
        if run.about().status == RunStatus::Interrupted {
            warnings.push(Warning::new(
                WarningCode::Interrupted,
                format!(
                    "the run {} was interrupted; its partial results are compared",
                    run.dir.display()
                ),
                "run its plan.toml again for as long as the other run",
            ));
        }
    }
    let of = |runs: &[ComparedDirectory]| -> Vec<Warning> {
        let lists = runs.iter().filter_map(|run| {
            Vec::<Warning>::deserialize(run.documents.summary.get("warnings")?).ok()
        });
        lists.flatten().collect()
    };
    let (of_a, of_b) = (of(a), of(b));
    for (side, ours, theirs) in [("A", &of_a, &of_b), ("B", &of_b, &of_a)] {
        let mut said: Vec<WarningCode> = Vec::new();
        for warning in ours {
            let shared = theirs.iter().any(|other| other.code == warning.code);
            if !shared && !said.contains(&warning.code) {
                said.push(warning.code);
                let message = format!("only {side} has this warning: {}", warning.message);
                warnings.push(Warning::new(warning.code, message, warning.hint.clone()));
            }
        }
    }
    warnings
}
