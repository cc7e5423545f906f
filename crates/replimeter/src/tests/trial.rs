//! Trials of the measurement `ping`.

use std::{
    cell::Cell,
    path::Path,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use replimeter_measurements::across::trial::{self, TrialArgs, TrialPlan};
use replimeter_model::{
    plan::PlanError,
    record::RunStatus,
    trial::{TrialDocument, TrialPair},
    warning::WarningCode,
};
use replimeter_run::{
    PlannedRun, TrialUnit, cli_error::FailureKind, options::OutputArgs, run_dir::PAIRS,
};

use super::*;

/// The stop that a plan can set while it runs.
static STOP: AtomicBool = AtomicBool::new(false);

/// What a plan does instead of measuring, by the number of times that it was carried out.
type Instead = fn(u32) -> Option<CliError>;

/// A plan of servers that count as restarted.
struct Restarted {
    plan: Box<dyn PlannedRun>,
    times: Rc<Cell<u32>>,
    instead: Instead,
}

impl PlannedRun for Restarted {
    fn name(&self) -> &'static str {
        self.plan.name()
    }
    fn unit(&self) -> Result<TrialUnit, PlanError> {
        let unit = self.plan.unit()?;
        let plan = Self {
            plan: unit.plan,
            times: Rc::clone(&self.times),
            instead: self.instead,
        };
        Ok(TrialUnit {
            plan: Box::new(plan),
            restarts: true,
            ..unit
        })
    }
    fn check(&self, output: &OutputArgs) -> Result<(), CliError> {
        self.plan.check(output)
    }
    fn text(&self) -> Result<String, CliError> {
        self.plan.text()
    }
    fn effects(&self, output: &OutputArgs) -> Result<String, CliError> {
        self.plan.effects(output)
    }
    fn carry_out(
        &self,
        given: &CommandLineSettings,
        host: &Host<'_>,
        stop: &AtomicBool,
    ) -> Result<(), CliError> {
        self.times.set(self.times.get() + 1);
        match (self.instead)(self.times.get()) {
            Some(failure) => Err(failure),
            None => self.plan.carry_out(given, host, stop),
        }
    }
}

/// Runs a trial of at most twelve pairs; returns how it ended, and its document.
fn tried(instead: [Instead; 2], dir: &Path) -> (Result<(), CliError>, TrialDocument) {
    let text = plan_text(server::start(), server::start()).replace("= 400", "= 30");
    let plan = |instead: Instead| TrialPlan {
        path: "plan.toml".into(),
        plan: Box::new(Restarted {
            plan: registry()
                .plan(&text, &CommandLineSettings::default())
                .unwrap(),
            times: Rc::default(),
            instead,
        }),
    };
    let words = ["trial", "a", "b", "--pairs", "12", "--detect", "0.001%"];
    let words = words.into_iter().map(Into::into);
    let words: Vec<std::ffi::OsString> = words.chain(["--run-dir".into(), dir.into()]).collect();
    let matches = TrialArgs::augment_args(Command::new("trial")).get_matches_from(words);
    let args = TrialArgs::from_arg_matches(&matches).unwrap();
    let paper = RecordingScreen::default();
    let host = Host {
        screen: &paper,
        ..host(&Active::default())
    };
    STOP.store(false, Ordering::Relaxed);
    let ended = trial::run(registry(), instead.map(plan), &args, &host, &STOP);
    let text = fs::read_to_string(dir.join(SUMMARY)).unwrap();
    let document: TrialDocument = serde_json::from_str(&text).unwrap();
    assert!(paper.printed.borrow().contains(&document.headline));
    assert!(dir.join(PAGE).exists() && dir.join(MARKDOWN).exists());
    (ended, document)
}

const MEASURES: Instead = |_| None;

#[test]
fn trials_count_lost_pairs_and_keep_what_they_have() {
    let folder = TempDir::new().unwrap();
    let run = |name: &str, instead| tried(instead, &folder.path().join(name));

    // One start in three of B fails.
    let fails: Instead = |time| (time % 3 == 0).then(|| CliError::invalid("no quorum", ""));
    let (ended, document) = run("lost", [MEASURES, fails]);
    ended.unwrap();
    let counted = document.pairs.iter().filter(|pair| pair.lost.is_none());
    let lost: Vec<u32> = document.lost().map(|pair| pair.number).collect();
    assert_eq!(lost, [3, 6, 9, 12]);
    assert_eq!(counted.count(), 8);
    assert!(document.pairs.iter().any(|pair| pair.first == "a"));
    let primary = document.primary.as_ref().unwrap();
    assert_eq!(
        (primary.figure.as_str(), primary.pairs),
        ("ping.trip.p50", 8)
    );
    let geometric = |of: fn(&TrialPair) -> Option<f64>| {
        let logs: Vec<f64> = document.pairs.iter().filter_map(of).map(f64::ln).collect();
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    };
    let ratio = geometric(|pair| pair.b) / geometric(|pair| pair.a);
    assert!((primary.ratio.value.unwrap() - ratio).abs() < 1e-9);
    assert_eq!(document.warnings[0].code, WarningCode::PairsLost);
    assert!(
        document
            .others
            .iter()
            .all(|one| one.figure != "ping.trip.p50")
    );
    // Pages of units are not kept, their records are.
    let unit = folder.path().join("lost").join(PAIRS).join("001-a");
    assert!(unit.join(SUMMARY).exists() && !unit.join(PAGE).exists());

    // A side that never starts.
    let (ended, document) = run(
        "failed",
        [|_| Some(CliError::failed("no server", "")), MEASURES],
    );
    assert_eq!(ended.unwrap_err().kind, FailureKind::Failed);
    assert_eq!((document.lost().count(), document.primary), (3, None));
    assert_eq!(document.status, RunStatus::Failed);

    // Ctrl-C in the fourth pair.
    let stops: Instead = |time| {
        STOP.store(time == 4, Ordering::Relaxed);
        None
    };
    let (ended, document) = run("stopped", [stops, MEASURES]);
    assert_eq!(ended.unwrap_err().kind, FailureKind::Interrupted);
    assert_eq!(document.status, RunStatus::Interrupted);
    assert_eq!(document.primary.unwrap().pairs, 3);
}
