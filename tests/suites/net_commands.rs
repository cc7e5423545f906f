//! The net's command lines: exit code, standard output and standard error of each; none needs a server. The lines are in
//! `tests/net/commands.toml`, and their recorded output is in `tests/net/commands`, where nothing is twice:
//!
//! - A command without an exit code ended with 2, and one without output on standard output has its standard error right below it.
//! - Empty lines of standard error are left out, and so is the parser's last line, which an error has unless it has a hint.
//! - An output that another command of the file had is named by that command. The plan and effects of a dry run are the difference
//!   from the most similar ones.
//! - Of help texts there is what `docs/reference/cli.md`, which other tests compare with the program, does not have.

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
    fn shown(&self, known: &mut Known) -> String {
        known.case.clone_from(&self.name);
        let mut text = format!("=== {} ===\n", self.name);
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

    fn answer(&self, line: &str, known: &mut Known) -> String {
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
        let mut text = match code {
            Some(2) => String::new(),
            Some(code) => format!("exit code {code}\n"),
            None => "no exit code\n".to_owned(),
        };
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
        } else {
            text.push_str(&known.stdout(line, &stdout));
        }
        text.push_str(&known.stderr(line, &stderr, stdout.is_empty()));
        if !left.is_empty() {
            text.push_str(&format!("left behind: {}\n", left.join(", ")));
        }
        text
    }
}

/// The outputs of a file's commands, each with the command that had it first.
#[derive(Default)]
struct Known {
    /// The group whose commands run.
    case: String,
    stdout: Vec<(Place, String)>,
    stderr: Vec<(Place, String)>,
}

/// A command, and its group.
#[derive(Clone)]
struct Place {
    case: String,
    line: String,
}

impl Known {
    fn place(&self, line: &str) -> Place {
        Place {
            case: self.case.clone(),
            line: line.to_owned(),
        }
    }

    /// Names a command.
    fn name(&self, place: &Place) -> String {
        let of = if place.case == self.case {
            String::new()
        } else {
            format!(" of \"{}\"", place.case)
        };
        format!("`replimeter {}`{of}", place.line)
    }

    fn stdout(&mut self, line: &str, stdout: &str) -> String {
        if let Some((first, _)) = self.stdout.iter().find(|(_, known)| known == stdout) {
            return format!("stdout as of {}\n", self.name(first));
        }
        let is_plan = |text: &str| text.starts_with("command = ");
        let plans = self.stdout.iter().filter(|(_, known)| is_plan(known));
        let nearest = plans
            .map(|(first, known)| (first, changes(known, stdout)))
            .min_by_key(|(_, changes)| changes.lines().count())
            .filter(|(_, changes)| changes.lines().count() < stdout.lines().count());
        let text = match nearest {
            Some((first, changes)) if is_plan(stdout) => {
                format!("stdout beside that of {}:\n{changes}", self.name(first))
            }
            _ => marked("stdout", stdout),
        };
        // An output shorter than a reference is repeated.
        if stdout.len() > 500 || is_plan(stdout) {
            self.stdout.push((self.place(line), stdout.to_owned()));
        }
        text
    }

    fn stderr(&mut self, line: &str, stderr: &str, alone: bool) -> String {
        if stderr.is_empty() {
            return String::new();
        }
        if let Some((first, _)) = self.stderr.iter().find(|(_, known)| known == stderr) {
            return format!("stderr as of {}\n", self.name(first));
        }
        self.stderr.push((self.place(line), stderr.to_owned()));
        let mut text = stderr.to_owned();
        if let Some(error) = stderr.strip_suffix("\nFor more information, try '--help'.\n") {
            text = error.to_owned();
        } else if !stderr.contains("\n  hint: ") {
            text.push_str("(neither a hint nor --help)\n");
        }
        let lines = text.split_inclusive('\n').filter(|line| *line != "\n");
        let text: String = lines.collect();
        if alone { text } else { marked("stderr", &text) }
    }
}

/// Returns the lines of both texts that the other one does not have there.
fn changes(was: &str, is: &str) -> String {
    let (was, is): (Vec<&str>, Vec<&str>) = (was.lines().collect(), is.lines().collect());
    // Length of the longest common part of the rests from each pair of lines.
    let mut common = vec![vec![0; is.len() + 1]; was.len() + 1];
    for a in (0..was.len()).rev() {
        for b in (0..is.len()).rev() {
            common[a][b] = if was[a] == is[b] {
                common[a + 1][b + 1] + 1
            } else {
                common[a + 1][b].max(common[a][b + 1])
            };
        }
    }
    let (mut a, mut b, mut text) = (0, 0, String::new());
    while a < was.len() || b < is.len() {
        if a < was.len() && b < is.len() && was[a] == is[b] {
            (a, b) = (a + 1, b + 1);
        } else if b == is.len() || a < was.len() && common[a + 1][b] >= common[a][b + 1] {
            text.push_str(format!("- {}", was[a]).trim_end());
            text.push('\n');
            a += 1;
        } else {
            text.push_str(format!("+ {}", is[b]).trim_end());
            text.push('\n');
            b += 1;
        }
    }
    text
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
    let help = &commands.help;
    let mut files: BTreeMap<String, Vec<Case>> = commands.golden;
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
            let mut known = Known::default();
            let mut text: String = cases.iter().map(|case| case.shown(&mut known)).collect();
            if name == "help" {
                text.push_str(&help_beyond_the_page(help));
            }
            (format!("{name}.txt"), text)
        }));
    }
    let now = side_by_side(work).into_iter().collect();
    GoldenPart::Commands.check(&now, first_difference);
}

/// Returns the paragraphs of all help texts that the page of the command line does not have, each once.
fn help_beyond_the_page(commands: &[String]) -> String {
    let page = fs::read_to_string(repository().join("docs/reference/cli.md")).unwrap();
    let page = page.replace("&lt;", "<");
    let all = letters(&page);
    let mut sections = BTreeMap::new();
    for section in page.split("\n#") {
        let name = section.lines().next().unwrap_or_default();
        sections.insert(name.trim_matches(['`', '#', ' ']), section);
    }
    let place = CommandFolders::default();
    let mut text = "=== what docs/reference/cli.md does not have ===\n".to_owned();
    let mut known = BTreeSet::new();
    for command in commands {
        let name = format!("replimeter {command}");
        let section = sections
            .get(name.trim_end())
            .unwrap_or_else(|| panic!("{name} has no section in docs/reference/cli.md"));
        let (sentences, section) = (sentences(section), letters(section));
        for form in ["--help", "-h"] {
            let words: Vec<&str> = command.split_whitespace().chain([form]).collect();
            let ended = place.run(&words, &BTreeMap::new(), "").with_code(0);
            assert_eq!(ended.stderr, "", "{words:?}");
            // The short form has the option and the first sentence.
            let help = letters(&ended.stdout);
            for (option, rest) in &sentences {
                let rest = rest.iter().take(if form == "-h" { 1 } else { rest.len() });
                let missing: Vec<&String> = [option]
                    .into_iter()
                    .chain(rest)
                    .filter(|one| !help.contains(letters(one).as_str()))
                    .collect();
                assert!(missing.is_empty(), "{words:?} lacks {missing:?}");
            }
            let others: String = paragraphs(&ended.stdout)
                .into_iter()
                .filter(|one| {
                    // A list of commands has their first sentences.
                    let place = if one.starts_with('-') { &section } else { &all };
                    !place.contains(&letters(one)) && known.insert(one.clone())
                })
                .map(|one| format!("{one}\n"))
                .collect();
            if !others.is_empty() {
                text.push_str(&format!("\n$ {} {form}\n{others}", name.trim_end()));
            }
        }
    }
    text
}

/// Returns the options in a section of the page of the command line, each with its sentences.
fn sentences(section: &str) -> Vec<(String, Vec<String>)> {
    // A list of values, which a help text has in another form.
    let without_values = |sentence: &str| {
        let mut rest = sentence;
        while let Some((before, _)) = rest.strip_suffix('`').and_then(|it| it.rsplit_once('`')) {
            rest = before.trim_end_matches([',', ' ', ':']);
        }
        rest.to_owned()
    };
    let rows = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `--"));
    rows.map(|row| {
        let row = row
            .replace("\\|", "")
            .replace(" [default: ", ". [default: ");
        let (option, text) = row.split_once("` | ").unwrap();
        let text = text.trim_end_matches([' ', '|']);
        let all = text.split(". ").map(without_values);
        (format!("--{option}"), all.collect())
    })
    .collect()
}

/// Returns the paragraphs of a help text, each in one line. A heading, an option, a command, a list of values and a default
/// are their own.
fn paragraphs(help: &str) -> Vec<String> {
    let help = ["Usage: ", "[default:", "[possible values:"]
        .iter()
        .fold(help.to_owned(), |help, start| {
            help.replace(start, &format!("\n\n{start}"))
        });
    let mut all = vec![String::new()];
    for line in help.lines().map(str::trim) {
        let begins = line.starts_with(['-', '<']) || line.contains("  ");
        if line.is_empty() || begins || all.last().is_some_and(|last| last.ends_with(':')) {
            all.push(String::new());
        }
        let last = all.last_mut().unwrap();
        for word in line.split_whitespace() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    let all = all.iter().map(|one| one.trim_start_matches("Usage: "));
    all.filter(|one| !one.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns a text without spaces and punctuation, and without the name of a list of values.
fn letters(text: &str) -> String {
    let text = text.replace("[possible values:", "");
    let is_letter = |letter: &char| letter.is_alphanumeric() || "-_/".contains(*letter);
    text.chars().filter(is_letter).collect()
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
