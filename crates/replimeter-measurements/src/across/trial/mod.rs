//! `trial`: pairs of starts of two plans, back to back in random order, until a figure differs, is equal, or the pairs are over.

mod args;
mod paired;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use replimeter_model::{
    manifest::Manifest,
    random::Random,
    record::RunStatus,
    trial::{TRIAL_SCHEMA, TrialDocument, TrialInterim, TrialOutcome, TrialPair, TrialSide},
    warning::{Warning, WarningCode},
};
use replimeter_render::{charts, html, trial as report};
use replimeter_run::{
    Host, PlannedRun, Registry, TrialUnit,
    cli_error::{CliError, FailureKind, unexpected},
    differences::differences,
    figures::FigureSpec,
    options::CommandLineSettings,
    publish_report,
    run_dir::{self, PAIRS, RunDir, SUMMARY, write_json},
};
use replimeter_stats::trial::{Finding, Rule};

pub use self::args::TrialArgs;
use self::paired::{PairedFigure, PairedFigures, primary, ratio};
use super::compare::{both, design::ComparedRuns, matching, named, sides::ComparedDirectory};

/// Pairs in a row that may be lost before the trial ends.
const LOST_IN_A_ROW: usize = 3;
/// Shortest run of servers that are not restarted.
const SHORTEST_RUN: Duration = Duration::from_secs(10);
const SIDES: [&str; 2] = ["a", "b"];

/// One side's plan.
pub struct TrialPlan {
    /// Its file.
    pub path: PathBuf,
    /// The plan.
    pub plan: Box<dyn PlannedRun>,
}

/// A trial that is under way.
struct Trial<'a> {
    registry: &'static Registry,
    units: &'a [TrialUnit; 2],
    host: &'a Host<'a>,
    stop: &'a AtomicBool,
    folder: PathBuf,
    rule: Rule,
    spec: &'static FigureSpec,
    random: Random,
    document: TrialDocument,
    /// The figure that decides.
    deciding: PairedFigure,
    figures: PairedFigures,
    manifest: Option<Manifest>,
}

/// Runs a trial of two plans. `stop` ends it with the result so far.
pub fn run(
    registry: &'static Registry,
    plans: [TrialPlan; 2],
    args: &TrialArgs,
    host: &Host<'_>,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let command = plans[0].plan.name();
    if plans[1].plan.name() != command {
        return Err(CliError::usage(
            format!(
                "{} measures {command} and {} measures {}: their figures are not comparable",
                plans[0].path.display(),
                plans[1].path.display(),
                plans[1].plan.name()
            ),
            "give two plans of one measurement",
        ));
    }
    let spec = named::find(registry, command, args.figure(registry, command)?)?;
    let units = [plans[0].plan.unit()?, plans[1].plan.unit()?];
    let restarts = units[0].restarts;
    if units[1].restarts != restarts {
        return Err(CliError::usage(
            "one plan starts its servers and the other measures servers that run already: a start and a run are not comparable",
            "give two plans of sandboxes, or two of servers that run already",
        ));
    }
    for unit in &units {
        unit.plan.check(&CommandLineSettings::default().output)?;
    }
    RunDir::check(args.run_dir.as_deref())?;
    if args.dry_run {
        for (name, unit) in ["A", "B"].iter().zip(&units) {
            let effects = unit.plan.effects(&CommandLineSettings::default().output)?;
            let text = format!(
                "# {name}, at most {} times:\n{}\n{effects}\n",
                args.pairs,
                unit.plan.text()?
            );
            host.screen.print(&text)?;
        }
        return Ok(());
    }
    let mut run_dir = RunDir::create(args.run_dir.as_deref(), "trial")?;
    let folder = run_dir
        .folder(PAIRS)
        .map_err(|error| run_dir::failed("create", &run_dir.file(PAIRS), &error))?;
    run_dir.keep();
    let rule = Rule {
        pairs: args.pairs as usize,
        equal_within: (args.detect / 100.0).ln_1p(),
    };
    let now = jiff::Timestamp::now();
    let seed = now.as_nanosecond() as u64;
    let mut trial = Trial {
        registry,
        units: &units,
        host,
        stop,
        folder,
        rule,
        spec,
        random: Random::new(seed),
        document: TrialDocument {
            schema: TRIAL_SCHEMA.to_owned(),
            run_dir: run_dir.path().display().to_string(),
            command: command.to_owned(),
            started_at: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            a: side(&plans[0].path, &units[0]),
            b: side(&plans[1].path, &units[1]),
            restarts,
            max_pairs: args.pairs,
            equal_within_percent: args.detect,
            level: rule.level(),
            seed,
            ..TrialDocument::default()
        },
        deciding: PairedFigure::new(spec),
        figures: PairedFigures::default(),
        manifest: None,
    };
    let ended = trial.pairs();
    let plans = [("A", &units[0]), ("B", &units[1])]
        .map(|(name, unit)| Ok(format!("# {name}\n{}", unit.plan.text()?)));
    let plans = plans.into_iter().collect::<Result<Vec<_>, CliError>>()?;
    let (document, manifest) = trial.conclude(ended.as_ref().err());
    let shown = report::report(&document);
    let charts = charts::trial::charts(&document);
    let page = html::page(&shown, charts, &manifest, &plans.join("\n"));
    let (dir, kept) = (run_dir.path(), Some("Trial"));
    let written = write_json(&dir.join(SUMMARY), &document);
    publish_report(
        &document,
        &shown,
        page,
        dir,
        kept,
        args.form.chosen,
        host.screen,
    )?;
    written.and(ended)?;
    if args.fail_if_worse && document.is_worse() {
        return Err(CliError::invalid(
            format!("B is worse: {}", document.headline),
            "see the page for the pairs and other figures",
        ));
    }
    Ok(())
}

fn side(path: &Path, unit: &TrialUnit) -> TrialSide {
    TrialSide {
        plan: path.display().to_string(),
        title: unit.title.clone(),
        shape: unit.shape.clone(),
    }
}

impl Trial<'_> {
    /// Measures pairs until one of the ends.
    ///
    /// # Errors
    /// When the user stops it, or several pairs in a row are lost.
    fn pairs(&mut self) -> Result<(), CliError> {
        let mut lost_in_a_row = 0;
        for number in 1..=self.document.max_pairs {
            let mut order = [0, 1];
            self.random.shuffle(&mut order);
            let mut pair = TrialPair {
                number,
                first: SIDES[order[0]].to_owned(),
                ..TrialPair::default()
            };
            match self.measure(number, order) {
                Ok([a, b]) => {
                    lost_in_a_row = 0;
                    self.deciding.add([a, b]);
                    (pair.a, pair.b) = (Some(a), Some(b));
                    self.document.pairs.push(pair);
                }
                Err(failure) if self.is_stopped(&failure) => {
                    return Err(CliError::interrupted(
                        "the trial was interrupted; its result so far is kept",
                    ));
                }
                Err(failure) => {
                    lost_in_a_row += 1;
                    pair.lost = Some(failure.message.clone());
                    self.document.pairs.push(pair);
                    self.say(&format!("pair {number} is lost: {}", failure.message));
                    if lost_in_a_row == LOST_IN_A_ROW || failure.kind == FailureKind::Usage {
                        return Err(failure);
                    }
                    continue;
                }
            }
            if self.rule.is_checked_after(self.deciding.pairs()) && self.interim() != Finding::Open
            {
                break;
            }
        }
        Ok(())
    }

    fn is_stopped(&self, failure: &CliError) -> bool {
        failure.kind == FailureKind::Interrupted || self.stop.load(Ordering::Relaxed)
    }

    fn say(&self, line: &str) {
        self.host.screen.say(&format!("{line}\n"));
    }

    /// Measures one start of each side; returns the figure that decides.
    fn measure(&mut self, number: u32, order: [usize; 2]) -> Result<[f64; 2], CliError> {
        let mut measured = [None, None];
        for index in order {
            let dir = self.folder.join(format!("{number:03}-{}", SIDES[index]));
            let mut given = CommandLineSettings::silent_into(dir.clone());
            given.output.without_page = true;
            let began = Instant::now();
            self.units[index]
                .plan
                .carry_out(&given, self.host, self.stop)?;
            if !self.document.restarts && began.elapsed() < SHORTEST_RUN {
                return Err(CliError::usage(
                    format!(
                        "a run of servers that ran already took less than {} s",
                        SHORTEST_RUN.as_secs()
                    ),
                    "give both plans a duration of at least 10s",
                ));
            }
            measured[index] = Some(ComparedDirectory::read(self.registry, &dir, self.stop)?);
        }
        let [Some(a), Some(b)] = measured else {
            return Err(unexpected("a side was not measured"));
        };
        let runs = ComparedRuns {
            a: vec![a],
            b: vec![b],
            ..ComparedRuns::default()
        };
        let matched = matching::pairs(&runs, &mut Vec::new())?;
        if self.manifest.is_none() {
            let [a, b] = [&runs.a[0].documents, &runs.b[0].documents];
            self.document.differs = differences(&[a], &[b]).between;
            self.manifest = Some(both(&a.manifest, &b.manifest));
        }
        let values = primary(&matched.pairs, self.spec.name).ok_or_else(|| {
            CliError::invalid(
                format!("a start has no {}", self.spec.name),
                "measure more rounds in each start, or choose another figure with --figure",
            )
        })?;
        self.figures.add(&matched.pairs);
        let [a, b] = values;
        self.say(&format!(
            "pair {number} of at most {}: B / A is {:.2}",
            self.document.max_pairs,
            b / a
        ));
        Ok(values)
    }

    /// Checks the result so far.
    fn interim(&mut self) -> Finding {
        let Some(result) = self.deciding.interim(&self.rule) else {
            return Finding::Open;
        };
        self.document.interim.push(TrialInterim {
            pairs: result.pairs as u32,
            ratio: ratio(&result),
            p_value: result.p_value,
        });
        let finding = self.rule.finding(&result);
        self.document.outcome = match finding {
            Finding::Differ if result.difference > 0.0 => TrialOutcome::Higher,
            Finding::Differ => TrialOutcome::Lower,
            Finding::Equal => TrialOutcome::Equal,
            Finding::Open => TrialOutcome::Open,
        };
        finding
    }

    /// Returns the document, and the servers of both sides.
    fn conclude(mut self, failure: Option<&CliError>) -> (TrialDocument, Manifest) {
        let document = &mut self.document;
        let differs = matches!(document.outcome, TrialOutcome::Higher | TrialOutcome::Lower);
        if self.deciding.pairs() > 0 {
            document.primary = Some(self.deciding.row(&self.rule, differs));
        }
        document.others = self.figures.others(self.spec.name, &self.rule, differs);
        if let Some(failure) = failure {
            document.status = match failure.kind {
                FailureKind::Interrupted => RunStatus::Interrupted,
                _ => RunStatus::Failed,
            };
            document.error = Some(failure.message.clone());
            document.warnings.push(failure.warning());
        }
        let lost = document.lost().count();
        if lost > 0 {
            let reason = document.lost().find_map(|pair| pair.lost.clone());
            document.warnings.push(Warning::new(
                WarningCode::PairsLost,
                format!(
                    "{lost} of {} pairs do not count, since a side failed or was invalid: {}",
                    document.pairs.len(),
                    reason.unwrap_or_default()
                ),
                "if one side fails more often, that is a difference, too: look at its runs",
            ));
        }
        if !document.restarts {
            document.warnings.push(Warning::new(
                WarningCode::FewStarts,
                "the servers ran already, without restart: what a restart changes is not in the result",
                "use plans of sandboxes where that matters",
            ));
        }
        document.headline = report::headline(document);
        (self.document, self.manifest.unwrap_or_default())
    }
}
