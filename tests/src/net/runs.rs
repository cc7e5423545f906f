//! Recorded runs and pairs as the tool renders them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
    thread,
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{folders::CommandFolders, root};
use crate::CommandOutput;

/// `tests/net/pairs.toml`: recorded runs that are compared or shown side by side.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pairs {
    /// Pairs for `compare`.
    compare: Vec<Pair>,
    /// Several runs for `report`.
    several: Vec<Vec<String>>,
    /// Experiments 1 to 5 of a reproduction, for `report`.
    reproduced: Vec<String>,
    /// Those whose outputs are recorded in full.
    in_full: Vec<String>,
}

impl Pairs {
    fn read() -> Self {
        toml::from_str(&fs::read_to_string(root().join("pairs.toml")).unwrap()).unwrap()
    }
}

/// Two runs for `compare`, which may reject them; a single run is compared with its copy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    a: String,
    b: String,
    /// Conditions; a comparison with conditions differs from one without.
    #[serde(default)]
    fail_if: Vec<String>,
}

/// Output of the tool for a recorded run, or for several.
#[derive(Debug)]
pub struct Rendered {
    /// The case, or `compare-A-B`, `together-A-B`, `reproduced`.
    pub name: String,
    /// The run's directory in the repository; `None` for several.
    pub run: Option<PathBuf>,
    /// The runs of a page of several; empty for all others.
    pub cases: Vec<String>,
    /// The JSON document; null for a page of several, and if there is nothing to compare.
    pub json: Value,
    /// The table; empty for several.
    pub csv: String,
    /// The report for a terminal.
    pub terminal: String,
    /// The raw lines of a sweep; empty for other runs.
    pub raw: String,
    /// The report as Markdown; empty for several.
    pub markdown: String,
    /// The page; empty if there is nothing to compare.
    pub page: String,
}

/// Returns every recorded run: the folders in `tests/net` that contain a folder `run`.
#[must_use]
pub fn cases() -> Vec<String> {
    let entries = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join("run/summary.json").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(
        !names.is_empty(),
        "no run is recorded in {}",
        root().display()
    );
    names
}

/// Returns all recorded runs and pairs as the tool renders them, once for all tests.
pub fn rendered() -> &'static [Rendered] {
    static RENDERED: OnceLock<Vec<Rendered>> = OnceLock::new();
    RENDERED.get_or_init(|| {
        let Pairs {
            compare,
            several,
            reproduced,
            ..
        } = Pairs::read();
        let mut work: Vec<Box<dyn FnOnce() -> Rendered + Send>> = Vec::new();
        work.extend(
            cases()
                .into_iter()
                .map(|name| Box::new(move || of_run(&name)) as Box<_>),
        );
        work.extend(
            compare
                .into_iter()
                .map(|pair| Box::new(move || of_pair(&pair)) as Box<_>),
        );
        work.extend(
            several
                .into_iter()
                .map(|names| Box::new(move || of_several(&names)) as Box<_>),
        );
        work.push(Box::new(move || of_reproduction(&reproduced)));
        let mut done = side_by_side(work);
        done.sort_by(|a, b| a.name.cmp(&b.name));
        done
    })
}

/// Returns the names of those whose outputs are recorded in full.
#[must_use]
pub fn in_full() -> Vec<String> {
    Pairs::read().in_full
}

/// Runs tasks concurrently, one per core; their results are in no particular order.
#[must_use]
pub fn side_by_side<T: Send>(work: Vec<Box<dyn FnOnce() -> T + Send + '_>>) -> Vec<T> {
    let (queue, done) = (Mutex::new(work), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().pop();
                    let Some(next) = next else { break };
                    let one = next();
                    done.lock().unwrap().push(one);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

/// Copies a recorded run into a new folder, in which the tool writes its page.
///
/// # Panics
/// If there is no such run.
pub fn copy_run(case: &str, to: &Path) {
    let from = root().join(case).join("run");
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(&from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn of_run(case: &str) -> Rendered {
    let place = CommandFolders::default();
    copy_run(case, &place.folder().join(case));
    let report = |form: &[&str]| {
        let ended = place
            .run(&[&["report", case], form].concat(), &BTreeMap::new(), "")
            .with_code(0);
        let errors = if ended.stderr.is_empty() {
            String::new()
        } else {
            format!("--- stderr\n{}", ended.stderr)
        };
        place.anywhere(&(ended.stdout + &errors))
    };
    let json: Value = serde_json::from_str(&report(&["--json"])).unwrap();
    let has_sweep = json["results"]["size_sweep"]
        .as_array()
        .is_some_and(|steps| !steps.is_empty());
    let rendered = Rendered {
        name: case.to_owned(),
        run: Some(root().join(case).join("run")),
        cases: Vec::new(),
        json,
        raw: if has_sweep {
            report(&["--raw"])
        } else {
            String::new()
        },
        csv: report(&["--csv"]),
        markdown: report(&["--markdown"]),
        terminal: report(&[]),
        page: place
            .anywhere(&fs::read_to_string(place.folder().join(case).join("report.html")).unwrap()),
    };
    let kept =
        place.anywhere(&fs::read_to_string(place.folder().join(case).join("report.md")).unwrap());
    assert!(
        kept == rendered.markdown,
        "{case}: report.md is not what --markdown prints"
    );
    rendered
}

fn of_pair(Pair { a, b, fail_if }: &Pair) -> Rendered {
    let place = CommandFolders::default();
    let second = if a == b { "again" } else { b };
    copy_run(a, &place.folder().join(a));
    copy_run(b, &place.folder().join(second));
    let mut args = vec!["compare", a, second, "--run-dir", "compared"];
    args.extend(
        fail_if
            .iter()
            .flat_map(|condition| ["--fail-if", condition]),
    );
    let CommandOutput {
        code,
        stdout,
        stderr,
    } = place.run(&args, &BTreeMap::new(), "");
    let kept = |name: &str| {
        fs::read_to_string(place.folder().join("compared").join(name)).unwrap_or_default()
    };
    let document: Value = serde_json::from_str(&kept("summary.json")).unwrap_or_default();
    // A comparison that is rejected has no page.
    let now = document["compared_at"].as_str().unwrap_or("NOW");
    let anywhere = |text: &str| place.anywhere(text).replace(now, "NOW");
    let with = if fail_if.is_empty() {
        ""
    } else {
        "-conditions"
    };
    Rendered {
        name: format!("compare-{a}-{second}{with}"),
        run: None,
        cases: Vec::new(),
        json: serde_json::from_str(&anywhere(&kept("summary.json"))).unwrap_or_default(),
        csv: String::new(),
        raw: String::new(),
        terminal: anywhere(&format!(
            "{stdout}--- exit code {}\n{stderr}",
            code.unwrap()
        )),
        markdown: String::new(),
        page: anywhere(&kept("report.html")),
    }
}

fn of_several(cases: &[String]) -> Rendered {
    let place = CommandFolders::default();
    cases
        .iter()
        .for_each(|case| copy_run(case, &place.folder().join(case)));
    let report = |form: &[&str]| {
        let words = ["report", "--page", "all.html"]
            .into_iter()
            .chain(cases.iter().map(String::as_str))
            .chain(form.iter().copied());
        place.anywhere(
            &place
                .run(&words.collect::<Vec<_>>(), &BTreeMap::new(), "")
                .with_code(0)
                .stdout,
        )
    };
    Rendered {
        name: format!("together-{}", cases.join("-")),
        run: None,
        cases: cases.to_vec(),
        json: Value::Null,
        csv: String::new(),
        raw: String::new(),
        markdown: String::new(),
        terminal: report(&[]),
        page: place.anywhere(&fs::read_to_string(place.folder().join("all.html")).unwrap()),
    }
}

/// Makes a reproduction whose experiments are recorded runs.
fn of_reproduction(cases: &[String]) -> Rendered {
    let place = CommandFolders::default();
    let dir = place.folder().join("reproduced");
    fs::create_dir(&dir).unwrap();
    let mut experiments = Vec::new();
    for (number, case) in (1..).zip(cases) {
        copy_run(case, &dir.join(case));
        let table = json!({"headings": [], "lines": []});
        experiments.push(json!({
            "number": number, "title": format!("Experiment {number}"), "question": "What?", "command": "", "run_dirs": [case],
            "duration_us": 1.0, "error": null, "headline": "", "published": table, "ours": table, "claims": [],
        }));
    }
    let document = json!({
        "schema": "replimeter.reproduce/1", "run_dir": "", "status": "complete", "size": "small",
        "started_at": "2026-01-01T00:00:00Z", "headline": "", "experiments": experiments,
    });
    fs::write(dir.join("summary.json"), document.to_string()).unwrap();
    let manifest = dir.join(&cases[0]).join("manifest.json");
    fs::copy(manifest, dir.join("manifest.json")).unwrap();
    let report = |form: &[&str]| {
        let words = [&["report", "reproduced"], form].concat();
        let ended = place.run(&words, &BTreeMap::new(), "").with_code(0);
        place.anywhere(&ended.stdout)
    };
    Rendered {
        name: "reproduced".to_owned(),
        run: None,
        cases: Vec::new(),
        json: serde_json::from_str(&report(&["--json"])).unwrap(),
        csv: String::new(),
        raw: String::new(),
        markdown: report(&["--markdown"]),
        terminal: report(&[]),
        page: place.anywhere(&fs::read_to_string(dir.join("report.html")).unwrap()),
    }
}
