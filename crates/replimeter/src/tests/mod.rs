//! Checks that [`ping`], a measurement in one file, has all features of a measurement.

mod cut_off;
mod foreign;
mod links;
mod ping;
mod server;
mod trial;

use std::{
    cell::RefCell,
    fs,
    path::Path,
    rc::Rc,
    sync::{LazyLock, atomic::AtomicBool},
};

use clap::{Args, Command, FromArgMatches};
use replimeter_measurements::across::compare::{self, CompareArgs};
use replimeter_model::{
    compare::{Change, CompareRow},
    manifest::{MANIFEST_SCHEMA, Manifest},
    time::Nanos,
};
use replimeter_render::{reading, terminal};
use replimeter_run::{
    AnyRun, Entry, Event, Flow, Host, Observer, OutputReader, Recorded, Registry, Screen,
    cli_error::{CliError, FailureKind},
    options::{CommandLineSettings, OutputArgs, OutputForm},
    run_dir::{MANIFEST, MARKDOWN, PAGE, PLAN, RunDir, SAMPLES, SUMMARY, write_json, write_text},
    show,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::ping::Ping;
use crate::{active::Active, commands::program, servers::host};

const PLAN_TEXT: &str = "command = 'ping'\ntitle = 'near'\n[target]\nprimary = 'mysql://u@127.0.0.1:1/?ssl-mode=disabled'\nreplicas = ['mysql://u@127.0.0.1:2/?ssl-mode=disabled']\n[ping]\nquestions = 400\n";

/// The user does not stop the command.
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Maximum length of a measurement, without comments and blank lines.
const MAX_LINES: usize = 151;

fn registry() -> &'static Registry {
    static ONLY: LazyLock<Registry> = LazyLock::new(|| Registry::default().with::<Ping>());
    &ONLY
}

fn entry() -> &'static dyn Entry {
    registry().get("ping").unwrap()
}

/// Returns violations of the measurement's schema.
fn violations(document: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(&entry().document()).unwrap();
    let errors = validator.iter_errors(document);
    errors.map(|error| error.to_string()).collect()
}

/// Returns 400 replies from each of two servers, after this many microseconds and up to as many more, and the end of their run.
fn calls(dir: &Path, us: i64) -> Vec<Value> {
    let trip = |number: i64| {
        let server = ["primary", "replica1"][usize::from(number % 2 == 1)];
        let took = us * 1000 * (100 + number * 7919 % 97) / 100;
        json!([server, Nanos(number * 5_000_000), Nanos(took)])
    };
    let mut calls: Vec<Value> = (0..800).map(trip).collect();
    calls.push(json!({"ended": {
        "run_dir": dir.display().to_string(),
        "keep_awake": false,
        "real_time": false,
        "clock_step": {"secs": 0, "nanos": 30},
        "at": 4_000_000_000_i64,
        "warnings": [],
        "failure": null,
    }}));
    calls
}

/// Writes the plan and the manifest of a run, and returns both.
fn begun(dir: &Path) -> (String, Manifest) {
    let manifest = Manifest {
        schema: MANIFEST_SCHEMA.to_owned(),
        started_at: "2026-11-22T12:00:00Z".to_owned(),
        ..Manifest::default()
    };
    let plan = registry()
        .plan(PLAN_TEXT, &CommandLineSettings::default())
        .unwrap();
    let plan = plan.text().unwrap();
    fs::write(dir.join(PLAN), &plan).unwrap();
    write_json(&dir.join(MANIFEST), &manifest).unwrap();
    (plan, manifest)
}

/// Returns a run of such calls.
fn recorded(dir: &Path, us: i64) -> Box<dyn AnyRun> {
    let (plan, manifest) = begun(dir);
    let mut calls = calls(dir, us).into_iter().map(Ok);
    let run = entry()
        .replay(&plan, &manifest, &mut calls, &dir.join(SAMPLES), &GOES_ON)
        .unwrap_or_else(|failure| panic!("{}", failure.message))
        .run
        .unwrap();
    write_text(&dir.join(SUMMARY), &run.json().unwrap()).unwrap();
    Recorded::open(registry(), dir, &GOES_ON)
        .unwrap()
        .render(dir)
        .unwrap();
    run
}

#[test]
fn measurement_fits_in_one_small_file() {
    let lines = include_str!("ping.rs").lines().map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    assert!(code.count() <= MAX_LINES);
}

#[test]
fn measurement_gets_a_command_line() {
    let command = program::built(registry());
    let help = entry().command().render_long_help().to_string();
    for want in ["--questions <N>", "[default: 100]", "--sandbox", "--json"] {
        assert!(help.contains(want), "{help}");
    }
    let reference = program::reference(&command);
    assert!(reference.contains("## `replimeter ping`"), "{reference}");
    let script = program::script(registry(), clap_complete::Shell::Bash);
    assert!(script.contains("replimeter__subcmd__ping") && script.contains("--questions"));
    assert!(registry().schemas().any(|name| name == "ping"));
}

#[test]
fn measurement_gets_a_plan_section() {
    let plan = registry()
        .plan(PLAN_TEXT, &CommandLineSettings::default())
        .unwrap();
    let text = plan.text().unwrap();
    let again = registry()
        .plan(&text, &CommandLineSettings::default())
        .unwrap();
    assert_eq!(again.text().unwrap(), text);
    let effects = plan.effects(&OutputArgs::default()).unwrap();
    for want in ["400 questions to every server", SAMPLES] {
        assert!(effects.contains(want), "{effects}");
    }
    let root = registry().schema("plan").unwrap();
    let keys = program::plan_keys(&root);
    assert!(
        keys.contains("## `[ping]`") && keys.contains("`questions`"),
        "{keys}"
    );
    for (text, want) in [
        ("command = 'pin'", "did you mean `ping`?"),
        (
            "command = 'ping'\n[ping]\nquestion = 1",
            "did you mean `questions`?",
        ),
        ("command = 'ping'\nquestions = 1", "is a key of [ping]"),
        (
            "command = 'ping'\n[ping]\nquestions = 0",
            "line 3, column 1",
        ),
        ("command = 'ping'\n[lag]", "unknown key `lag`"),
    ] {
        let Err(error) = registry().plan(text, &CommandLineSettings::default()) else {
            panic!("{text} is a plan")
        };
        assert!(error.to_string().contains(want), "{text}: {error}");
    }
}

#[test]
fn measurement_gets_every_output() {
    let dir = TempDir::new().unwrap();
    let run = recorded(dir.path(), 100);
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();

    let document: Value = serde_json::from_str(&read(SUMMARY)).unwrap();
    assert_eq!(violations(&document), Vec::<String>::new());
    assert!(!violations(&json!({"schema": "replimeter.ping/1"})).is_empty());

    let paper = RecordingScreen::default();
    show(run.as_ref(), OutputForm::Csv, false, &paper).unwrap();
    let table = paper.printed.into_inner();
    assert!(
        table.starts_with("server,trip.count,trip.min_us,"),
        "{table}"
    );
    assert!(
        table.lines().nth(2).unwrap().starts_with("replica1,400,"),
        "{table}"
    );

    let names: Vec<&str> = entry().columns().iter().map(|column| column.name).collect();
    assert_eq!(names, ["server", "asked_ns", "trip_us"]);
    let mut sum = 0.0;
    let count = reading::read(&dir.path().join(SAMPLES), &names, |columns, rows| {
        sum += (0..rows).map(|row| columns[2].number(row)).sum::<f64>();
    });
    assert_eq!(count.unwrap(), 800);
    assert!((80_000.0..160_000.0).contains(&sum), "{sum}");

    let text = terminal::render(&run.report(false));
    let (markdown, page) = (read(MARKDOWN), read(PAGE));
    for output in [&text, &markdown, &page] {
        for want in ["2 servers answered.", "Round trips", "replica1"] {
            assert!(output.contains(want), "{output}");
        }
    }
    assert!(markdown.contains("| replica1 |"), "{markdown}");
    assert!(page.contains("by-server") && page.contains("<table"));

    let again = Recorded::open(registry(), dir.path(), &GOES_ON).unwrap();
    assert_eq!(terminal::render(&again.run.report(false)), text);
}

#[test]
fn measurement_runs_can_be_compared() {
    let [a, b, out] = [(); 3].map(|()| TempDir::new().unwrap());
    recorded(a.path(), 100);
    recorded(b.path(), 200);
    let words = [
        "compare".as_ref(),
        "--run-dir".as_ref(),
        out.path().as_os_str(),
        a.path().as_os_str(),
        b.path().as_os_str(),
    ];
    let matches = CompareArgs::augment_args(Command::new("compare")).get_matches_from(words);
    let args = CompareArgs::from_arg_matches(&matches).unwrap();
    let compared = compare::compare(registry(), &args, &GOES_ON).unwrap();
    let rows = &compared.document.results;
    assert_eq!(rows.len(), 4, "{rows:?}");
    // One run of servers that ran already shows no difference: other times of theirs are unknown.
    let doubled = |row: &CompareRow| (row.change, row.ratio.value.map(f64::round));
    assert!(
        rows.iter()
            .all(|row| doubled(row) == (Change::Unknown, Some(2.0))),
        "{rows:?}"
    );
    assert_eq!(
        (rows[0].figure.as_str(), rows[0].of[0].value.as_str()),
        ("ping.trip.mean", "primary")
    );
}

/// Observed progress lines, and the number of batches of rows.
type RecordedEvents = Rc<RefCell<(Vec<String>, usize)>>;

struct RecordingObserver(RecordedEvents);

impl Observer for RecordingObserver {
    fn event(&mut self, event: Event<'_>) -> Result<Flow, CliError> {
        let mut seen = self.0.borrow_mut();
        match event {
            Event::Progress(progress) => seen.0.push(progress.line()),
            Event::Rows(_) => seen.1 += 1,
            _ => {}
        }
        Ok(Flow::Continue)
    }
}

/// A screen that keeps its output.
#[derive(Default)]
struct RecordingScreen {
    printed: RefCell<String>,
    seen: RecordedEvents,
}

impl Screen for RecordingScreen {
    fn print(&self, text: &str) -> Result<OutputReader, CliError> {
        self.printed.borrow_mut().push_str(text);
        Ok(OutputReader::There)
    }

    fn say(&self, _text: &str) {}

    fn is_watched(&self) -> bool {
        false
    }

    fn progress(&self) -> Box<dyn Observer> {
        Box::new(RecordingObserver(Rc::clone(&self.seen)))
    }
}

/// Returns the plan for servers at these ports.
fn plan_text(one: u16, other: u16) -> String {
    PLAN_TEXT
        .replace(":1/", &format!(":{one}/"))
        .replace(":2/", &format!(":{other}/"))
}

/// Carries out a plan with results in this directory.
fn carry_out(text: &str, dir: &Path, paper: &RecordingScreen) -> Result<(), CliError> {
    let given = CommandLineSettings::silent_into(dir.to_owned());
    let host = Host {
        screen: paper,
        ..host(&Active::default())
    };
    let plan = registry().plan(text, &given).unwrap();
    plan.carry_out(&given, &host, &AtomicBool::new(false))
}

#[test]
fn measurement_run_is_observed_and_saved() {
    let [one, other] = [server::start(), server::start()];
    let text = plan_text(one, other);
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("run");
    let paper = RecordingScreen::default();
    carry_out(&text, &dir, &paper).unwrap();
    let (lines, rows) = paper.seen.take();
    assert!(
        lines.iter().any(|line| line == "asking 400 of 400 times"),
        "{lines:?}"
    );
    assert!(rows > 0);
    let recorded = Recorded::open(registry(), &dir, &GOES_ON).unwrap();
    let document: Value = serde_json::from_str(&recorded.run.json().unwrap()).unwrap();
    assert_eq!(violations(&document), Vec::<String>::new());
    assert_eq!(document["results"]["rows"][1]["trip"]["count"], 400);
    assert!(dir.join(PAGE).exists() && dir.join(MARKDOWN).exists());
}

#[test]
fn run_directory_is_checked_without_any_change() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "x").unwrap();
    for name in ["empty", "full", "run"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::write(path("full/mine"), "x").unwrap();
    fs::write(path("run/plan.toml"), "x").unwrap();
    for (name, reason) in [
        ("file", "it is a file"),
        ("file/run", "file/run: "),
        ("full", "it is not empty"),
        ("run", "it has a run already"),
        ("missing/run", "there is no folder"),
    ] {
        let failure = RunDir::check(Some(&path(name))).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Usage, "{name}");
        assert!(failure.message.contains(reason), "{}", failure.message);
    }
    for name in ["empty", "new"] {
        RunDir::check(Some(&path(name))).unwrap();
    }
    assert!(!path("new").exists() && !path("missing").exists());
    RunDir::check(None).unwrap();
}
