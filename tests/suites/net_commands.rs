//! The net's command lines: exit code, standard output and standard error of each; none needs a server. The lines are in
//! `tests/net/commands.toml`, and their recorded output is in `tests/net/commands`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use replimeter_suites::{
    CommandOutput,
    harness::Test,
    net::{
        CommandFolders, GoldenPart, REPOSITORY, first_difference, hash, repository, root,
        side_by_side,
    },
    test,
};
use serde::Deserialize;

pub(crate) const TESTS: &[Test] = &[
    test!(command_output_matches_the_recorded_text),
    test!(every_command_and_schema_has_a_recorded_case),
];

/// `tests/net/commands.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commands {
    /// Commands whose help is printed, by `--help` and by `-h`.
    help: Vec<String>,
    /// Schemas that are printed as in `docs/schema`.
    schemas: Vec<String>,
    /// The other commands, by the golden file of their output.
    golden: BTreeMap<String, Vec<Case>>,
}

/// Command lines that run with the same files and environment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Description of the group.
    name: String,
    /// Their arguments, one command per line; `'…'` quotes spaces, REPOSITORY is this repository.
    lines: String,
    /// Files by name; each command gets new copies, and an empty folder `empty`.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Environment variables; the rest of the environment is the same on every machine.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Standard input.
    #[serde(default)]
    stdin: String,
    /// Standard output is very long: only its length and hash are stored.
    #[serde(default)]
    hashed: bool,
    /// Standard output is this file of the repository, which is not stored twice.
    same_as: Option<String>,
}

impl Case {
    fn of(name: &str, lines: String) -> Self {
        let (files, env) = (BTreeMap::new(), BTreeMap::new());
        Self {
            name: name.to_owned(),
            lines,
            files,
            env,
            stdin: String::new(),
            hashed: false,
            same_as: None,
        }
    }

    /// Runs every command, and formats their output; `known` has outputs that were formatted before.
    fn shown(&self, known: &mut BTreeMap<String, String>) -> String {
        let mut text = format!("=== {} ===\n", self.name);
        for (name, content) in self.files.iter().chain(self.env.iter()) {
            text.push_str(&format!("[{name}]\n{}\n", content.trim_end()));
        }
        for line in self
            .lines
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            text.push_str(&format!(
                "\n$ replimeter {line}\n{}",
                self.answer(line, known)
            ));
        }
        text.push('\n');
        text
    }

    fn answer(&self, line: &str, known: &mut BTreeMap<String, String>) -> String {
        let place = CommandFolders::default();
        fs::create_dir(place.folder().join("empty")).unwrap();
        for (name, content) in &self.files {
            let path = place.folder().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let before = place.files();
        let ended = place.run(&words(line), &self.env, &self.stdin);
        let left: Vec<String> = place
            .files()
            .into_iter()
            .filter(|file| !before.contains(file))
            .collect();
        let CommandOutput {
            code,
            stdout,
            stderr,
        } = ended;
        let [stdout, stderr] = [stdout, stderr].map(|text| place.anywhere(&text));
        let mut text = format!(
            "exit code {}\n",
            code.map_or("none".to_owned(), |code| code.to_string())
        );
        if let Some(file) = &self.same_as {
            let kept = fs::read_to_string(repository().join(file)).unwrap();
            assert!(
                stdout == kept,
                "`replimeter {line}` does not print {file}, as it is kept: run `make docs`"
            );
            text.push_str(&format!("stdout is {file}\n"));
        } else if self.hashed {
            text.push_str(&format!(
                "stdout: {} bytes, hash {:016x}\n",
                stdout.len(),
                hash(&stdout)
            ));
        } else if let Some(first) = known.get(&stdout) {
            text.push_str(&format!("stdout as of `replimeter {first}`\n"));
        } else {
            // An output shorter than a reference is repeated.
            if stdout.len() > 500 {
                known.insert(stdout.clone(), line.to_owned());
            }
            text.push_str(&marked("stdout", &stdout));
        }
        text.push_str(&marked("stderr", &stderr));
        if !left.is_empty() {
            text.push_str(&format!("left behind: {}\n", left.join(", ")));
        }
        text
    }
}

/// Formats a text below its name; returns nothing for an empty text.
fn marked(name: &str, text: &str) -> String {
    let end = if text.ends_with('\n') {
        ""
    } else {
        "\n(no line break)\n"
    };
    if text.is_empty() {
        String::new()
    } else {
        format!("--- {name}\n{text}{end}")
    }
}

/// Returns the arguments in a line.
fn words(line: &str) -> Vec<String> {
    let repository = repository();
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        // Every second part was between quotes.
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    assert!(
        line.matches('\'').count().is_multiple_of(2),
        "a quote is open in `{line}`"
    );
    words
        .iter()
        .map(|word| word.replace(REPOSITORY, repository.to_str().unwrap()))
        .collect()
}

fn commands() -> Commands {
    toml::from_str(&fs::read_to_string(root().join("commands.toml")).unwrap())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn command_output_matches_the_recorded_text() {
    let commands = commands();
    let mut files: BTreeMap<String, Vec<Case>> = commands.golden;
    let help = commands
        .help
        .iter()
        .map(|command| format!("{command} --help\n{command} -h\n"))
        .collect();
    files.insert("help".to_owned(), vec![Case::of("help", help)]);
    let schema = |name: &String| Case {
        same_as: Some(format!("docs/schema/{name}.json")),
        ..Case::of(&format!("schema {name}"), format!("schema {name}"))
    };
    files
        .entry("program".to_owned())
        .or_default()
        .extend(commands.schemas.iter().map(schema));
    let mut work: Vec<Box<dyn FnOnce() -> (String, String) + Send>> = Vec::new();
    for (name, cases) in &files {
        work.push(Box::new(move || {
            let mut known = BTreeMap::new();
            let text = cases.iter().map(|case| case.shown(&mut known)).collect();
            (format!("{name}.txt"), text)
        }));
    }
    let now = side_by_side(work).into_iter().collect();
    GoldenPart::Commands.check(&now, first_difference);
}

fn every_command_and_schema_has_a_recorded_case() {
    let commands = commands();
    let place = CommandFolders::default();
    let _ = place
        .run(&["man", "pages"], &BTreeMap::new(), "")
        .with_code(0);
    let pages = fs::read_dir(place.folder().join("pages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = pages
        .map(|page| page.trim_end_matches(".1").replace('-', " "))
        .collect();
    let help = commands
        .help
        .iter()
        .map(|command| format!("replimeter {command}").trim_end().to_owned());
    assert_eq!(
        help.collect::<BTreeSet<_>>(),
        there,
        "help in tests/net/commands.toml (left) and the commands (right)"
    );
    let kept = fs::read_dir(repository().join("docs/schema")).unwrap();
    let kept = kept.map(|entry| {
        entry
            .unwrap()
            .file_name()
            .into_string()
            .unwrap()
            .trim_end_matches(".json")
            .to_owned()
    });
    assert_eq!(
        commands.schemas.into_iter().collect::<BTreeSet<_>>(),
        kept.collect(),
        "schemas (left) and docs/schema (right)"
    );
}
