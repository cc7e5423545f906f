//! The net: what the tool made of fixed command lines and recorded runs before its redesign, kept in `tests/net`.
//! CONTRIBUTING.md says what may change it and how.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, OnceLock},
    thread,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{CommandOutput, LIMIT, binary, wait};

/// What stands for the folder that a command runs in, and for this repository.
pub const FOLDER: &str = "/FOLDER";
/// This repository.
pub const REPOSITORY: &str = "/REPOSITORY";

/// Longer lists are given by their number of values, their first and last ones, sum and hash.
const MAX_LIST_LENGTH: usize = 24;
/// Longer arrays of objects are given key by key.
const MAX_ARRAY_LENGTH: usize = 6;
/// Longer tables of a page are given by their first and last rows and a hash.
const MAX_TABLE_LENGTH: usize = 16;
/// How long the path of a folder for commands is, in bytes.
const LENGTH_OF_PATHS: usize = 64;
/// A part of the net, with golden files of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoldenPart {
    /// Command lines and what they answer.
    Commands,
    /// Numbers of reports, charts, tables, samples and comparisons.
    Values,
    /// Texts of reports.
    Texts,
}

impl GoldenPart {
    const ALL: [Self; 3] = [Self::Commands, Self::Values, Self::Texts];

    /// Its word in `UPDATE_NET`, and its folder.
    fn name(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Values => "values",
            Self::Texts => "texts",
        }
    }

    /// What each of its files says in its first lines.
    fn head(self) -> String {
        let rule = match self {
            Self::Values => {
                "may never change: a key that gets another name goes into tests/net/renamed-keys.toml; recorded runs alone bring other values"
            }
            Self::Commands | Self::Texts => {
                "may change only in a commit about wording, whose diff of this file is read"
            }
        };
        format!(
            "# The net (CONTRIBUTING.md): {rule}.\n# Made by UPDATE_NET={}.\n\n",
            self.name()
        )
    }

    /// Whether `UPDATE_NET` asks for its golden files to be written anew.
    ///
    /// # Panics
    /// When it holds an unknown word, or values together with anything else.
    fn is_updated(self) -> bool {
        let wanted = env::var("UPDATE_NET").unwrap_or_default();
        let words: Vec<&str> = wanted
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect();
        let known = |word: &&str| Self::ALL.iter().any(|part| part.name() == *word);
        assert!(
            words.iter().all(known),
            "UPDATE_NET={wanted}: it takes commands, texts or `commands,texts`, or values alone"
        );
        let values = words.contains(&Self::Values.name());
        assert!(
            !values || words.len() == 1,
            "UPDATE_NET={wanted}: values are never updated together with anything else"
        );
        words.contains(&self.name())
    }

    /// Compares the part's golden files with what there is now, by file name; or writes them. `difference` says in what
    /// two texts differ, the golden one first.
    ///
    /// # Panics
    /// With every difference, and every golden file too many or too few.
    pub fn check(
        self,
        now: &BTreeMap<String, String>,
        difference: impl Fn(&str, &str) -> Option<String>,
    ) {
        let folder = root().join(self.name());
        if self.is_updated() {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in now {
                fs::write(folder.join(name), self.head() + text).unwrap();
            }
            return;
        }
        let golden = self.golden();
        let mut wrong = Vec::new();
        for name in golden.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
            let place = format!("tests/net/{}/{name}", self.name());
            match (golden.get(name), now.get(name)) {
                (None, _) => wrong.push(format!("{place} is missing")),
                (_, None) => wrong.push(format!("{place} belongs to nothing that is recorded")),
                (Some(was), Some(is)) => {
                    wrong.extend(difference(was, is).map(|what| format!("{place}: {what}")))
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "{}\nAs intended? See \"The net\" in CONTRIBUTING.md.",
            wrong.join("\n\n")
        );
    }

    /// Its golden files by name, without their heads.
    fn golden(self) -> BTreeMap<String, String> {
        let Ok(entries) = fs::read_dir(root().join(self.name())) else {
            return BTreeMap::new();
        };
        let text = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            let body = text
                .strip_prefix(&self.head())
                .unwrap_or_else(|| panic!("{} has another head", path.display()));
            (name, body.to_owned())
        };
        entries.map(|entry| text(entry.unwrap().path())).collect()
    }
}

/// Where two texts part, with a few lines of both; `None` for equal ones.
#[must_use]
pub fn first_difference(was: &str, is: &str) -> Option<String> {
    if was == is {
        return None;
    }
    let (was, is): (Vec<&str>, Vec<&str>) = (was.split('\n').collect(), is.split('\n').collect());
    let at = (0..).find(|line| was.get(*line) != is.get(*line))?;
    let heading = was[..at].iter().rev().find(|line| line.starts_with("=== "));
    let heading = heading.map_or_else(String::new, |line| {
        format!(", in {}", line.trim_matches(['=', ' ']))
    });
    let some = |lines: &[&str], sign: char| -> String {
        lines
            .iter()
            .skip(at)
            .take(6)
            .map(|line| format!("\n  {sign} {}", line.chars().take(300).collect::<String>()))
            .collect()
    };
    Some(format!(
        "line {} of the text{heading}{}{}",
        at + 1,
        some(&was, '-'),
        some(&is, '+')
    ))
}

/// `tests/net`.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("net")
}

/// This repository's folder.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Folders for commands: one to run in, and a home in which nothing is. Their paths are equally long everywhere, since lines
/// that hold one are broken by its length.
#[derive(Debug)]
pub struct CommandFolders {
    /// Removes them.
    _kept: tempfile::TempDir,
    folder: PathBuf,
    home: PathBuf,
}

impl Default for CommandFolders {
    fn default() -> Self {
        let kept = tempfile::Builder::new().prefix("net-").tempdir().unwrap();
        let of_length = |name: &str| {
            let missing = LENGTH_OF_PATHS
                .checked_sub(kept.path().as_os_str().len() + 1)
                .filter(|missing| *missing >= name.len());
            let missing = missing.unwrap_or_else(|| {
                panic!(
                    "{} is too long a path: name a shorter one by TMPDIR",
                    kept.path().display()
                )
            });
            let folder = kept
                .path()
                .join(format!("{name}{}", "-".repeat(missing - name.len())));
            fs::create_dir(&folder).unwrap();
            folder
        };
        let (folder, home) = (of_length("folder"), of_length("home"));
        Self {
            _kept: kept,
            folder,
            home,
        }
    }
}

impl CommandFolders {
    /// The folder that commands run in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs the tool, with nothing of this machine's environment but these variables.
    #[must_use]
    pub fn run<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: &[S],
        variables: &BTreeMap<String, String>,
        stdin: &str,
    ) -> CommandOutput {
        let mut command = Command::new(binary());
        command
            .args(args)
            .current_dir(self.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
            .env_clear()
            .env("HOME", &self.home)
            .env("REPLIMETER_HOME", self.home.join("private"));
        command
            .env("COLUMNS", "100")
            .env("USER", "tester")
            .env("PATH", &self.home)
            .envs(variables);
        let mut child = command.spawn().unwrap();
        // Who does not read it may have ended before.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        wait(child, LIMIT)
    }

    /// A text in which no folder of this machine is named.
    #[must_use]
    pub fn anywhere(&self, text: &str) -> String {
        let folders = [
            (self.folder(), FOLDER),
            (&self.home, "/HOME"),
            (&repository(), REPOSITORY),
        ];
        folders
            .iter()
            .fold(text.to_owned(), |text, (folder, name)| {
                let folder = folder.to_str().unwrap();
                text.replace(folder, name)
                    .replace(&escaped(folder), &escaped(name))
            })
    }

    /// The files and folders in the folder, in order.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut folders = vec![self.folder().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                names.push(
                    path.strip_prefix(self.folder())
                        .unwrap()
                        .display()
                        .to_string(),
                );
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        names.sort();
        names
    }
}

/// `tests/net/pairs.toml`: which recorded runs are shown together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pairs {
    /// For `compare`.
    compare: Vec<Pair>,
    /// Several for `report`.
    together: Vec<Vec<String>>,
    /// Experiments 1 to 5 of a reproduction, for `report`.
    reproduced: Vec<String>,
}

/// Two runs for `compare`, which may refuse them; of one run a copy is the other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    a: String,
    b: String,
    /// Conditions; a comparison with some is another one than without.
    #[serde(default)]
    fail_if: Vec<String>,
}

/// What the tool makes of a recorded run, or of several.
#[derive(Debug)]
pub struct Rendered {
    /// The case, or `compare-A-B`, `together-A-B`, `reproduced`.
    pub name: String,
    /// The run's directory in the repository; `None` for several.
    pub run: Option<PathBuf>,
    /// The JSON document; null for a page of several, and where there is nothing to compare.
    pub json: Value,
    /// The table; empty for several.
    pub csv: String,
    /// The report for a terminal.
    pub terminal: String,
    /// The raw lines of a sweep; empty for everything else.
    pub raw: String,
    /// The report as Markdown; empty for several.
    pub markdown: String,
    /// The page; empty where there is nothing to compare.
    pub page: String,
}

/// Every recorded run: the folders in `tests/net` that hold a folder `run`.
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

/// All recorded runs and pairs as the tool renders them, once for all tests.
pub fn rendered() -> &'static [Rendered] {
    static RENDERED: OnceLock<Vec<Rendered>> = OnceLock::new();
    RENDERED.get_or_init(|| {
        let pairs: Pairs =
            toml::from_str(&fs::read_to_string(root().join("pairs.toml")).unwrap()).unwrap();
        let (compare, together, reproduced) = (pairs.compare, pairs.together, pairs.reproduced);
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
            together
                .into_iter()
                .map(|names| Box::new(move || of_several(&names)) as Box<_>),
        );
        work.push(Box::new(move || of_reproduction(&reproduced)));
        let mut done = side_by_side(work);
        done.sort_by(|a, b| a.name.cmp(&b.name));
        done
    })
}

/// Does pieces of work, as many at once as this machine has cores; what they give is in no order.
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

/// A copy of a recorded run in a new folder, in which the tool writes its page.
///
/// # Panics
/// When there is no such run.
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
    // A comparison that is refused has none.
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
        json: Value::Null,
        csv: String::new(),
        raw: String::new(),
        markdown: String::new(),
        terminal: report(&[]),
        page: place.anywhere(&fs::read_to_string(place.folder().join("all.html")).unwrap()),
    }
}

/// A reproduction whose experiments are recorded runs.
fn of_reproduction(cases: &[String]) -> Rendered {
    let place = CommandFolders::default();
    let dir = place.folder().join("reproduced");
    fs::create_dir(&dir).unwrap();
    let mut experiments = Vec::new();
    for (number, case) in (1..).zip(cases) {
        copy_run(case, &dir.join(case));
        let table = json!({"headings": [], "lines": []});
        experiments.push(json!({
            "number": number, "title": format!("Experiment {number}"), "question": "What?", "command": "", "run_dir": case,
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
        json: serde_json::from_str(&report(&["--json"])).unwrap(),
        csv: String::new(),
        raw: String::new(),
        markdown: report(&["--markdown"]),
        terminal: report(&[]),
        page: place.anywhere(&fs::read_to_string(dir.join("report.html")).unwrap()),
    }
}

/// The leaves of a document by path, in order. Arrays of simple values are one [list]; arrays of many objects are given
/// key by key, as `rows[*].key`.
#[must_use]
pub fn leaves(document: &Value) -> Vec<(String, Vec<&Value>)> {
    let mut leaves = Vec::new();
    flatten(String::new(), document, &mut leaves);
    leaves
}

fn flatten<'a>(path: String, value: &'a Value, leaves: &mut Vec<(String, Vec<&'a Value>)>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, inner) in object {
                // An end of an interval that [`RenamedKeys::split`] took apart.
                let path = if path.is_empty() || key.starts_with('[') {
                    format!("{path}{key}")
                } else {
                    format!("{path}.{key}")
                };
                flatten(path, inner, leaves);
            }
        }
        Value::Array(array)
            if array
                .iter()
                .any(|inner| inner.is_object() || inner.is_array()) =>
        {
            if array.len() <= MAX_ARRAY_LENGTH {
                array
                    .iter()
                    .enumerate()
                    .for_each(|(index, inner)| flatten(format!("{path}[{index}]"), inner, leaves));
                return;
            }
            let mut columns: Vec<(String, Vec<&Value>)> = Vec::new();
            for (index, inner) in array.iter().enumerate() {
                let mut inside = Vec::new();
                flatten(format!("{path}[*]"), inner, &mut inside);
                for (path, values) in inside {
                    let place = columns
                        .iter()
                        .position(|(known, _)| *known == path)
                        .unwrap_or_else(|| {
                            columns.push((path, vec![&Value::Null; 0]));
                            columns.len() - 1
                        });
                    // A key that some of them lack has nothing there.
                    let column = &mut columns[place].1;
                    column.resize(column.len().max(index), &Value::Null);
                    column.extend(values);
                }
            }
            leaves.extend(columns);
        }
        Value::Array(array) if !array.is_empty() => leaves.push((path, array.iter().collect())),
        simple => leaves.push((path, vec![simple])),
    }
}

/// Values in one line. Many are abbreviated: numbers with their sum and a hash of all, words with how often each is there
/// and a hash of their order, which is the same when a word is renamed.
#[must_use]
pub fn list(values: &[String]) -> String {
    if values.len() <= MAX_LIST_LENGTH {
        return values.join(" ");
    }
    let numbers: Vec<f64> = values
        .iter()
        .filter_map(|value| value.parse().ok())
        .collect();
    let mut words: Vec<(&str, usize)> = Vec::new();
    let mut order = String::new();
    if numbers.is_empty() {
        for value in values {
            let place = words
                .iter()
                .position(|(word, _)| word == value)
                .unwrap_or(words.len());
            if place == words.len() {
                words.push((value, 0));
            }
            words[place].1 += 1;
            order.push_str(&format!("{place} "));
        }
    }
    if (1..=MAX_LIST_LENGTH).contains(&words.len()) {
        let counted: Vec<String> = words
            .iter()
            .map(|(word, count)| format!("{word}×{count}"))
            .collect();
        return format!(
            "{} words: {} ; order {:016x}",
            values.len(),
            counted.join(" "),
            hash(&order)
        );
    }
    let sum: f64 = numbers.iter().filter(|number| number.is_finite()).sum();
    let sum = if numbers.is_empty() {
        String::new()
    } else {
        format!("sum {} ", digits(sum, 9))
    };
    let (first, last) = (values[..4].join(" "), values[values.len() - 3..].join(" "));
    format!(
        "{} values: {first} … {last} ; {sum}hash {:016x}",
        values.len(),
        hash(&values.join(" "))
    )
}

/// A number with so many significant digits.
///
/// What is computed, and not only read, may differ in its last digits between processors.
#[must_use]
pub fn digits(number: f64, digits: usize) -> String {
    // The shortest text of the rounded number.
    format!("{number:.*e}", digits - 1)
        .parse::<f64>()
        .map_or_else(|_| number.to_string(), |rounded| rounded.to_string())
}

/// FNV-1a, which is the same everywhere and for good.
#[must_use]
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `tests/net/renamed-keys.toml`: paths that have other names than when the values were recorded, as `old = "new"`.
///
/// In a path `[]` stands for every index; a path stands for all below it, and the longest that fits counts. `COMMAND:old`
/// is for documents of that command alone. `+new` and `-old` are paths that came and went; their value says why.
/// `"=old" = "new"` is a word that stands for a value, such as `after-sync`.
///
/// `"*.old" = "*.new"` is for the ends of paths, as other entries for their beginnings left them; `csv:*.old` for those of columns. Where a
/// new name ends in `[0]` or `[1]`, the value became that end of an interval `[low, high]`. Settings, which were in
/// kebab-case, are in snake_case.
#[derive(Debug, Default)]
pub struct RenamedKeys {
    entries: BTreeMap<String, String>,
    used: std::cell::RefCell<BTreeSet<String>>,
}

impl RenamedKeys {
    /// Reads the file; without one nothing is renamed.
    ///
    /// # Panics
    /// When the file cannot be read.
    #[must_use]
    pub fn read() -> Self {
        let text = fs::read_to_string(root().join("renamed-keys.toml")).unwrap_or_default();
        Self::of(&text)
    }

    /// From the file's text.
    ///
    /// # Panics
    /// When it is not such a file.
    #[must_use]
    pub fn of(text: &str) -> Self {
        fn fill(entries: &mut BTreeMap<String, String>, path: &str, value: &toml::Value) {
            match value {
                toml::Value::String(new) => {
                    assert!(
                        entries.insert(path.to_owned(), new.clone()).is_none(),
                        "{path} stands twice"
                    )
                }
                // `old.path` without quotes is a table in a table.
                toml::Value::Table(table) => {
                    for (key, value) in table {
                        let path = if path.is_empty() {
                            key.clone()
                        } else {
                            format!("{path}.{key}")
                        };
                        fill(entries, &path, value);
                    }
                }
                other => panic!("renamed-keys.toml: {path} = {other}"),
            }
        }
        let mut renamed = Self::default();
        fill(
            &mut renamed.entries,
            "",
            &toml::Value::Table(text.parse().unwrap()),
        );
        renamed
    }

    /// The entry for a path of a command's document under a sign, if there is one: itself, what it stands for, and what is
    /// left of the path.
    fn entry<'a>(&self, sign: &str, command: &str, generic: &'a str) -> Option<(&str, &'a str)> {
        let mut ends: Vec<usize> = generic
            .match_indices(['.', '['])
            .map(|(at, _)| at)
            .chain([generic.len()])
            .collect();
        ends.reverse();
        for end in ends {
            for key in [
                format!("{command}:{sign}{}", &generic[..end]),
                format!("{sign}{}", &generic[..end]),
            ] {
                if let Some(new) = self.entries.get(&key) {
                    self.used.borrow_mut().insert(key);
                    return Some((new, &generic[end..]));
                }
            }
        }
        None
    }

    /// What a recorded path is called today; `None` where it is gone.
    ///
    /// # Panics
    /// When the new name has other indexes.
    #[must_use]
    pub fn today(&self, command: &str, path: &str) -> Option<String> {
        let (generic, indexes) = generic(path);
        if self.entry("-", command, &generic).is_some() {
            return None;
        }
        let renamed = match self.entry("", command, &generic) {
            // An entry of the whole path says it all.
            Some((new, "")) => new.to_owned(),
            Some((new, rest)) => self.end(command, format!("{new}{rest}")),
            None => self.end(command, generic),
        };
        let renamed = if renamed.starts_with("settings.") {
            renamed.replace('-', "_")
        } else {
            renamed
        };
        let mut parts = renamed.split("[]");
        let mut full = parts.next().unwrap_or_default().to_owned();
        let mut indexes = indexes.into_iter();
        for part in parts {
            let index = indexes.next().unwrap_or_else(|| {
                panic!("renamed-keys.toml: {renamed} has more indexes than {path}")
            });
            full.push_str(&format!("[{index}]{part}"));
        }
        assert!(
            indexes.next().is_none(),
            "renamed-keys.toml: {renamed} has fewer indexes than {path}"
        );
        Some(full)
    }

    /// A path with the name that its end has today.
    fn end(&self, command: &str, path: String) -> String {
        let kind = if path.starts_with("csv:") { "csv:" } else { "" };
        let mut starts = path.match_indices('.').map(|(at, _)| at);
        let found = starts.find_map(|at| {
            [format!("{command}:"), String::new()]
                .into_iter()
                .find_map(|of| {
                    let key = format!("{of}{kind}*{}", &path[at..]);
                    let new = self.entries.get(&key)?;
                    self.used.borrow_mut().insert(key);
                    let new = new.strip_prefix(kind)?.strip_prefix('*')?;
                    Some(format!("{}{new}", &path[..at]))
                })
        });
        found.unwrap_or(path)
    }

    /// A document of today in which every interval that was recorded as two values is two values: `[0]` and `[1]`.
    #[must_use]
    pub fn split(&self, command: &str, document: &Value) -> Value {
        self.split_below(command, "", document)
    }

    fn split_below(&self, command: &str, path: &str, value: &Value) -> Value {
        match value {
            Value::Object(object) => {
                let inner = object.iter().map(|(key, inner)| {
                    let path = format!("{path}.{key}");
                    let ends = if key.ends_with("ci95") && self.is_split(command, &path) {
                        let end = |index: usize| inner.get(index).cloned().unwrap_or_default();
                        json!({"[0]": end(0), "[1]": end(1)})
                    } else {
                        self.split_below(command, &path, inner)
                    };
                    (key.clone(), ends)
                });
                Value::Object(inner.collect())
            }
            Value::Array(all) => {
                let path = format!("{path}[]");
                all.iter()
                    .map(|inner| self.split_below(command, &path, inner))
                    .collect()
            }
            simple => simple.clone(),
        }
    }

    /// Whether the interval at this path was recorded as two values.
    fn is_split(&self, command: &str, path: &str) -> bool {
        let low = format!("{path}[0]");
        self.entries.iter().any(|(old, new)| {
            let of = old.split_once(':').map_or(command, |(of, _)| of);
            of == command
                && new.strip_prefix('*').map_or_else(
                    || low.strip_prefix('.') == Some(new),
                    |new| low.ends_with(new),
                )
        })
    }

    /// Whether a path of today is one that came after the values were recorded.
    #[must_use]
    pub fn is_new(&self, command: &str, path: &str) -> bool {
        self.entry("+", command, &generic(path).0).is_some()
    }

    /// A line's values in the words of today.
    #[must_use]
    pub fn words(&self, values: &str) -> String {
        let today = |token: &str| {
            let (word, rest) = token.split_at(token.find('×').unwrap_or(token.len()));
            let key = format!("={word}");
            let Some(new) = self.entries.get(&key) else {
                return token.to_owned();
            };
            self.used.borrow_mut().insert(key);
            format!("{new}{rest}")
        };
        values.split(' ').map(today).collect::<Vec<_>>().join(" ")
    }

    /// Entries that nothing needed: the map holds no others.
    #[must_use]
    pub fn unused(&self) -> Vec<String> {
        let used = self.used.borrow();
        self.entries
            .keys()
            .filter(|key| !used.contains(*key))
            .cloned()
            .collect()
    }
}

/// A path with `[]` for every index, and the indexes.
fn generic(path: &str) -> (String, Vec<&str>) {
    let mut parts = path.split('[');
    let mut generic = parts.next().unwrap_or_default().to_owned();
    let mut indexes = Vec::new();
    for part in parts {
        let (index, rest) = part.split_once(']').unwrap_or((part, ""));
        indexes.push(index);
        generic.push_str("[]");
        generic.push_str(rest);
    }
    (generic, indexes)
}

/// Whether a leaf's values are sentences, which belong to the texts; words and numbers are values.
#[must_use]
pub fn is_text(leaf: &[&Value]) -> bool {
    leaf.iter().any(|value| {
        value
            .as_str()
            .is_some_and(|text| text.contains(char::is_whitespace))
    })
}

/// A text as one word of a list.
#[must_use]
pub fn word(text: &str) -> String {
    if text.is_empty() {
        "\"\"".to_owned()
    } else {
        text.escape_debug().to_string().replace(' ', "\\s")
    }
}

/// The columns of a table in CSV by their names.
#[must_use]
pub fn columns(table: &str) -> Vec<(String, Vec<String>)> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let mut columns: Vec<(String, Vec<String>)> = reader
        .headers()
        .unwrap()
        .iter()
        .map(|name| (name.to_owned(), Vec::new()))
        .collect();
    for row in reader.records() {
        for (cell, (_, cells)) in row.unwrap().iter().zip(&mut columns) {
            cells.push(word(cell));
        }
    }
    columns
}

/// The charts of a page as it holds them.
///
/// # Panics
/// When the page has no data.
#[must_use]
pub fn figures(page: &str) -> Vec<Value> {
    if page.is_empty() {
        return Vec::new();
    }
    let data = page
        .split("<script type=\"application/json\" id=\"data\">")
        .nth(1)
        .and_then(|rest| rest.split("</script>").next());
    serde_json::from_str(data.expect("the page holds its data")).unwrap()
}

/// The charts of a page: for each its id and its series.
#[must_use]
pub fn charts(page: &str) -> Vec<(String, Vec<Value>)> {
    let series = |figure: &Value| figure["data"].as_array().unwrap().clone();
    figures(page)
        .iter()
        .map(|figure| (figure["id"].as_str().unwrap().to_owned(), series(figure)))
        .collect()
}

/// What a reader sees of a page, and hears of its charts: a line for each block, cells of a row apart. Long tables are
/// abbreviated.
#[must_use]
pub fn visible(page: &str) -> String {
    let body = page.split_once("<body").map_or(page, |(_, body)| body);
    let mut text = String::new();
    // Rows of the table that is open, and what stands in it.
    let mut table: Option<Vec<String>> = None;
    let mut hidden: Option<&str> = None;
    for piece in body.split('<').skip(1) {
        let (tag, content) = piece.split_once('>').unwrap_or((piece, ""));
        let name = tag
            .split([' ', '\n', '/'])
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        if let Some(element) = hidden {
            if tag.strip_prefix('/') != Some(element) {
                continue;
            }
            hidden = None;
        } else if matches!(name, "script" | "style") && !tag.starts_with('/') {
            hidden = Some(if name == "script" { "script" } else { "style" });
            continue;
        }
        let block = !matches!(
            name,
            "strong" | "b" | "em" | "small" | "code" | "a" | "span" | "i" | "sub" | "sup"
        );
        let cell = matches!(name, "td" | "th");
        if tag == "table" || tag.starts_with("table ") {
            table = Some(Vec::new());
        }
        if block && !cell && !text.ends_with('\n') {
            text.push('\n');
        }
        if let Some(rows) = &mut table {
            if tag == "/tr" {
                let at = text.trim_end().rfind("\n\u{1}").map_or(0, |at| at + 1);
                rows.push(
                    text.split_off(at)
                        .trim_start_matches('\u{1}')
                        .trim_end()
                        .to_owned(),
                );
            } else if name == "tr" {
                text.push('\u{1}');
            } else if tag == "/table" {
                text.push_str(&shortened(rows));
                table = None;
            }
        }
        if cell && !tag.starts_with('/') && !text.ends_with(['\n', '\u{1}']) {
            text.push_str(" | ");
        }
        // Charts and drawings are named for those who cannot see them.
        if let Some(label) = tag
            .split("aria-label=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .filter(|_| !tag.starts_with('/'))
        {
            text.push_str(&format!("({})\n", plain(label)));
        }
        let content = plain(content);
        if name == "pre" {
            text.push_str(&content);
        } else {
            let words = content.split_whitespace().collect::<Vec<_>>().join(" ");
            let gap = content.starts_with(char::is_whitespace)
                && !text.ends_with(char::is_whitespace)
                && !words.is_empty();
            text.push_str(if gap { " " } else { "" });
            text.push_str(&words);
            if content.ends_with(char::is_whitespace) && !words.is_empty() {
                text.push(' ');
            }
        }
    }
    let lines = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// The rows of a table; of a long one the first and last, and a hash of all.
#[must_use]
pub fn shortened(rows: &[String]) -> String {
    if rows.len() <= MAX_TABLE_LENGTH {
        return rows.iter().map(|row| format!("{row}\n")).collect();
    }
    let (first, last) = (rows[..4].join("\n"), rows[rows.len() - 2..].join("\n"));
    format!(
        "{first}\n… {} rows, hash {:016x} …\n{last}\n",
        rows.len(),
        hash(&rows.join("\n"))
    )
}

/// References in HTML and what they stand for; that of & is the last to be read and the first to be written.
const REFERENCES: [(&str, &str); 6] = [
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", "\""),
    ("&#x27;", "'"),
    ("&#x2f;", "/"),
    ("&amp;", "&"),
];

/// Text of a page without references.
fn plain(text: &str) -> String {
    REFERENCES
        .iter()
        .fold(text.to_owned(), |text, (reference, character)| {
            text.replace(reference, character)
        })
}

/// A text as it stands in a page.
#[must_use]
pub fn escaped(text: &str) -> String {
    REFERENCES
        .iter()
        .rev()
        .fold(text.to_owned(), |text, (reference, character)| {
            text.replace(character, reference)
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_renamed_by_the_longest_entry() {
        let map = RenamedKeys::of(
            "\"results[]\" = \"results.rows[]\"\n\"results[].lag.missing\" = \"results.rows[].lag.timed_out\"\n\"loss:results[].missing\" = \"results.rows[].lost\"\n\"-published\" = \"data of reproduce\"\n\"+error\" = \"the envelope has it\"\n\"=warm-up\" = \"warm_up\"\nanswer = \"headline\"\na.b = \"c\"\n\"*.low\" = \"*.ci95[0]\"\n\"csv:*.low\" = \"csv:*.ci95.low\"\n",
        );
        assert_eq!(
            map.today("lag", "results[3].p50").as_deref(),
            Some("results.rows[3].p50")
        );
        assert_eq!(
            map.today("lag", "results[*].lag.missing").as_deref(),
            Some("results.rows[*].lag.timed_out")
        );
        assert_eq!(
            map.today("lag", "results[0].missing").as_deref(),
            Some("results.rows[0].missing")
        );
        assert_eq!(
            map.today("loss", "results[0].missing").as_deref(),
            Some("results.rows[0].lost")
        );
        assert_eq!(map.today("lag", "answers").as_deref(), Some("answers"));
        assert_eq!(map.today("lag", "a.b[2]").as_deref(), Some("c[2]"));
        assert_eq!(
            map.today("lag", "results[3].rate.low").as_deref(),
            Some("results.rows[3].rate.ci95[0]")
        );
        assert_eq!(
            map.today("lag", "csv:rate.low").as_deref(),
            Some("csv:rate.ci95.low")
        );
        assert_eq!(
            map.today("lag", "settings.keep-awake").as_deref(),
            Some("settings.keep_awake")
        );
        let today = json!({"rates": [{"ci95": [1, 2]}, {"ci95": null}], "p50_ci95": [3, 4]});
        assert_eq!(
            map.split("lag", &today),
            json!({"rates": [{"ci95": {"[0]": 1, "[1]": 2}}, {"ci95": {"[0]": null, "[1]": null}}], "p50_ci95": [3, 4]})
        );
        assert_eq!(map.today("lag", "published[2].x"), None);
        assert!(map.is_new("lag", "error") && !map.is_new("lag", "errors"));
        assert_eq!(
            map.words("9 words: warm-up×3 warm-ups×6"),
            "9 words: warm_up×3 warm-ups×6"
        );
        assert_eq!(map.unused(), ["answer"]);
        assert_eq!(
            RenamedKeys::of("").today("lag", "x[1].y").as_deref(),
            Some("x[1].y")
        );
    }

    #[test]
    fn document_is_flattened_with_long_arrays_by_key() {
        let rows: Vec<Value> = (0..8)
            .map(|row| {
                if row == 2 {
                    json!({"b": row})
                } else {
                    json!({"a": row, "b": null})
                }
            })
            .collect();
        let document =
            json!({"x": {"y": [1, 2.5]}, "rows": rows, "few": [{"z": true}], "none": []});
        let mut shown: Vec<String> = leaves(&document)
            .iter()
            .map(|(path, values)| {
                format!(
                    "{path}={}",
                    values
                        .iter()
                        .map(|value| value.to_string())
                        .collect::<Vec<_>>()
                        .join(",")
                )
            })
            .collect();
        shown.sort();
        assert_eq!(
            shown,
            [
                "few[0].z=true",
                "none=[]",
                "rows[*].a=0,1,null,3,4,5,6,7",
                "rows[*].b=null,null,2,null,null,null,null,null",
                "x.y=1,2.5"
            ]
        );
    }

    #[test]
    fn page_text_is_read_as_displayed() {
        let page = "<head><style>p {}</style></head><body><h1>A &amp;\n b</h1><script>if (a < b) {}</script><p>one <b>two</b> three</p>\
                    <table><tr><th>n</th><td>1</td></tr><tr><th>m</th><td></td></tr></table><pre>x\n  y</pre>";
        assert_eq!(visible(page), "A & b\none two three\nn | 1\nm |\nx\n  y\n");
    }

    #[test]
    fn numbers_are_shortened_to_given_digits() {
        assert_eq!(
            [digits(1.234_567_89, 3), digits(-0.5, 12), digits(1e300, 4)],
            ["1.23", "-0.5", &format!("1{}", "0".repeat(300))]
        );
        assert_eq!(digits(f64::NAN, 3), "NaN");
    }
}
