//! The repository's files, and the prose in them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use crate::net::repository;

/// Folders of pages that are generated.
const NO_PROSE: [&str; 2] = ["reference", "reproduced"];

/// Precedes an item for tests, on a line of its own.
const CFG_TEST: &str = "#[cfg(test)]";

/// The heading of the glossary's table `| not | but |`, which may have them all.
pub(super) const UNUSED_WORDS: &str = "Words that are not used";

/// Returns the path as it is in the repository.
pub(super) fn shown(path: &Path) -> String {
    path.strip_prefix(repository())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Returns the files below a folder of the repository with this ending, sorted.
pub(super) fn files(folder: impl AsRef<Path>, ending: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, ending, found);
            } else if path.extension().is_some_and(|one| one == ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&repository().join(folder), ending, &mut found);
    found.sort();
    found
}

/// Returns every Rust file: crates, tests, benchmarks.
pub(super) fn rust_files() -> Vec<PathBuf> {
    ["crates", "tests", "bench"]
        .iter()
        .flat_map(|folder| files(folder, "rs"))
        .collect()
}

/// Returns the program's Rust files below a folder: no tests.
pub(super) fn program_files(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let mut all = files(folder, "rs");
    all.retain(|path| !is_test(path));
    all
}

/// Returns a file's code, with an empty line for each line of its tests.
pub(super) fn without_tests(path: &Path) -> String {
    blank_tests(&fs::read_to_string(path).unwrap())
}

/// Blanks each item with `#[cfg(test)]`, which rustfmt ends at the indentation of that attribute.
fn blank_tests(text: &str) -> String {
    let mut all = String::new();
    // The indentation of the item, and whether its body has begun.
    let mut item = None;
    for line in text.lines() {
        let code = line.trim();
        let indent = line.len() - line.trim_start().len();
        match item {
            None if code == CFG_TEST => item = Some((indent, false)),
            None => all.push_str(line),
            Some((start, body)) if start == indent && !code.starts_with(['#', '/']) => {
                let ends = if body {
                    ["}", "};"].contains(&code)
                } else {
                    code.ends_with([';', '}'])
                };
                item = (!ends).then_some((start, body || code.ends_with('{')));
            }
            Some(_) => {}
        }
        all.push('\n');
    }
    all
}

/// Returns the paths of the modules that a file declares for tests, without endings.
fn test_modules(path: &Path) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap();
    let folder = if ["lib", "main", "mod"].iter().any(|root| stem == *root) {
        path.parent().unwrap().to_owned()
    } else {
        path.with_extension("")
    };
    let text = fs::read_to_string(path).unwrap();
    let items = text.split(CFG_TEST).skip(1);
    let declared = items.filter_map(|item| {
        let mut lines = item.lines().skip(1).map(str::trim);
        let line = lines.find(|line| !line.starts_with('#'))?;
        let (_, name) = line.strip_suffix(';')?.split_once("mod ")?;
        Some(folder.join(name))
    });
    declared.collect()
}

/// Returns whether a file holds tests only.
pub(super) fn is_test(path: &Path) -> bool {
    static MODULES: LazyLock<BTreeSet<PathBuf>> = LazyLock::new(|| {
        let files = files("crates", "rs").into_iter();
        files.flat_map(|path| test_modules(&path)).collect()
    });
    let module = path.with_extension("");
    shown(path).starts_with("tests/") || module.ancestors().any(|part| MODULES.contains(part))
}

/// Code that opens a file by a name that can be a link, to write it, and how often a file may have it.
const FOLLOWS_LINKS: [&str; 5] = [
    "fs::write(",
    "File::create(",
    "fs::copy(",
    ".create(true)",
    ".truncate(true)",
];
const MAY_FOLLOW: [(&str, usize); 5] = [
    // Groups of processes have files from the start.
    ("replimeter-sandbox/src/cpus.rs", 2),
    // In folders of the tool alone.
    ("replimeter-sandbox/src/home.rs", 1),
    ("replimeter-sandbox/src/process.rs", 1),
    ("replimeter-sandbox/src/start/extras.rs", 1),
    // Manual pages, in a folder that the user names.
    ("replimeter/src/commands/program.rs", 1),
];

#[test]
fn files_are_created_without_following_links() {
    let mut found = Vec::new();
    for path in program_files("crates") {
        let text = without_tests(&path);
        let count: usize = FOLLOWS_LINKS
            .iter()
            .map(|code| text.matches(code).count())
            .sum();
        let name = shown(&path).replace("crates/", "");
        let may = MAY_FOLLOW.iter().find(|(file, _)| *file == name);
        if count != may.map_or(0, |(_, count)| *count) {
            found.push(format!(
                "{name}: {count} times; use create_new, or replace of a run directory"
            ));
        }
    }
    assert!(
        found.is_empty(),
        "these can follow a link:\n{}",
        found.join("\n")
    );
}

#[test]
fn only_one_module_of_the_sandbox_creates_commands() {
    let mut made = Vec::new();
    for path in program_files("crates/replimeter-sandbox/src") {
        let code = without_tests(&path);
        made.extend(code.matches("Command::new").map(|_| shown(&path)));
    }
    assert_eq!(
        made, ["crates/replimeter-sandbox/src/process.rs"; 2],
        "elsewhere call process::command, which clears the environment"
    );
}

/// A paragraph, or a text in code.
pub(super) struct Prose {
    pub(super) path: PathBuf,
    /// The text on one line, and where in it which line of the file begins.
    pub(super) text: String,
    starts: Vec<(usize, usize)>,
}

impl Prose {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            text: String::new(),
            starts: Vec::new(),
        }
    }

    fn push(&mut self, line: usize, text: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.starts.push((self.text.len(), line));
        self.text.push_str(text);
    }

    /// Returns the file and line of a place in the text.
    pub(super) fn place(&self, at: usize) -> String {
        let before = self.starts.iter().rev().find(|(start, _)| *start <= at);
        format!(
            "{}:{}",
            shown(&self.path),
            before.map_or(0, |(_, line)| *line)
        )
    }

    /// Returns the places of whole words, in any case.
    pub(super) fn find(&self, words: &str) -> Vec<usize> {
        let text = self.text.to_ascii_lowercase();
        let inside = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
        let whole = |at: &usize| {
            !text[..*at].ends_with(inside) && !text[at + words.len()..].starts_with(inside)
        };
        text.match_indices(words)
            .map(|(at, _)| at)
            .filter(whole)
            .collect()
    }
}

/// Blanks what stands between backticks: words of servers, commands and names.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts
        .map(|(index, part)| if index % 2 == 0 { part } else { "…" })
        .collect()
}

/// Returns the paragraphs of a page, without code.
fn of_page(path: &Path) -> Vec<Prose> {
    let text = fs::read_to_string(path).unwrap();
    let (mut all, mut fenced, mut unused) = (vec![Prose::new(path)], false, false);
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') && !fenced {
            unused = line.contains(UNUSED_WORDS);
        }
        if unused {
            continue;
        }
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if line.trim().is_empty() {
            all.push(Prose::new(path));
        } else if !fenced && let Some(last) = all.last_mut() {
            last.push(index + 1, line.trim());
        }
    }
    for prose in &mut all {
        // Not by line: a span may continue on the next one. Lengths stay.
        let mut code = false;
        let blank = |letter: char| {
            code ^= letter == '`';
            if code && letter.is_ascii() {
                '.'
            } else {
                letter
            }
        };
        prose.text = prose.text.chars().map(blank).collect();
    }
    all
}

/// Returns the documentation comments of a file and the texts in its code, without tests.
fn of_code(path: &Path) -> Vec<Prose> {
    let code = without_tests(path);
    let mut all: Vec<Prose> = Vec::new();
    let mut text: Option<Prose> = None;
    let mut raw = None;
    let mut in_comment = false;
    for (index, line) in code.lines().enumerate() {
        let number = index + 1;
        let trimmed = line.trim_start();
        if text.is_none() {
            let comment = ["///", "//!"]
                .iter()
                .find_map(|start| trimmed.strip_prefix(start));
            if let Some(comment) = comment {
                if !in_comment || comment.trim().is_empty() {
                    all.push(Prose::new(path));
                }
                in_comment = true;
                if let Some(last) = all.last_mut() {
                    last.push(number, &without_code(comment.trim()));
                }
                continue;
            }
        }
        in_comment = false;
        let mut rest = line;
        loop {
            match text.take() {
                None => {
                    let (quote, comment) = (rest.find('"'), rest.find("//"));
                    let Some(at) = quote.filter(|at| comment.is_none_or(|comment| *at < comment))
                    else {
                        break;
                    };
                    // A letter in quotes is no text.
                    if rest[..at].ends_with('\'') || rest[..at].ends_with("'\\") {
                        rest = &rest[at + 1..];
                        continue;
                    }
                    let hashes = rest[..at].len() - rest[..at].trim_end_matches('#').len();
                    let is_raw = rest[..at - hashes].ends_with('r');
                    raw = is_raw.then(|| format!("\"{}", "#".repeat(hashes)));
                    text = Some(Prose::new(path));
                    rest = &rest[at + 1..];
                }
                Some(mut prose) => {
                    let end = match &raw {
                        Some(end) => rest.find(end.as_str()),
                        None => {
                            let escaped = |at: usize| {
                                let before = &rest[..at];
                                (before.len() - before.trim_end_matches('\\').len()) % 2 == 1
                            };
                            rest.match_indices('"')
                                .map(|(at, _)| at)
                                .find(|at| !escaped(*at))
                        }
                    };
                    match end {
                        Some(end) => {
                            prose.push(number, rest[..end].trim_start());
                            all.push(prose);
                            rest = &rest[end + 1..];
                        }
                        None => {
                            prose.push(number, rest.trim().trim_end_matches('\\').trim_end());
                            text = Some(prose);
                            break;
                        }
                    }
                }
            }
        }
    }
    all
}

/// Returns all prose that users and readers of the code meet: documentation comments, texts in code and pages.
pub(super) fn prose() -> Vec<Prose> {
    let code = program_files("crates").into_iter();
    let kept = |path: &PathBuf| {
        let path = shown(path);
        !NO_PROSE
            .iter()
            .any(|folder| path.contains(&format!("/{folder}/")))
    };
    let pages =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| repository().join(page));
    let pages = files("docs", "md").into_iter().chain(pages);
    code.filter(kept)
        .flat_map(|path| of_code(&path))
        .chain(pages.filter(kept).flat_map(|path| of_page(&path)))
        .collect()
}

#[test]
fn prose_of_code_is_texts_and_comments() {
    let folder = std::env::temp_dir().join(format!("replimeter-tidy-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("made.rs");
    let code = "/// Returns the\n/// time.\nfn f() { // so \"long\"\n    g(\"one \\\n        two\", '\"', r#\"three \"four\"\"#);\n}\n";
    fs::write(&path, code).unwrap();
    let all = of_code(&path);
    fs::remove_dir_all(&folder).unwrap();
    let texts: Vec<&str> = all.iter().map(|prose| prose.text.as_str()).collect();
    assert_eq!(texts, ["Returns the time.", "one two", "three \"four\""]);
    assert!(all[1].place(all[1].find("two")[0]).ends_with("made.rs:5"));
    assert!(all[0].find("tim").is_empty());
}

#[test]
fn items_for_tests_are_blank_lines() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\nfn b(x: X) {\n    x();\n}\nimpl B {\n    #[cfg(test)]\n    fn c(\n        x: X,\n    ) {\n        x();\n    }\n\n    const D: u8 = 1;\n}\n#[cfg(test)]\n#[path = \"e.rs\"]\nmod e {\n    fn f() {}\n}\n";
    let blanked = "use a;\n\n\nfn b(x: X) {\n    x();\n}\nimpl B {\n\n\n\n\n\n\n\n    const D: u8 = 1;\n}\n\n\n\n\n\n";
    assert_eq!(blank_tests(text), blanked);
}

#[test]
fn test_modules_are_found_by_their_declaration() {
    let is = |path: &str| is_test(&repository().join("crates").join(path));
    assert!(is("replimeter-stats/src/stalls/tests.rs"));
    assert!(is("replimeter-engine/src/session/tests.rs"));
    assert!(is("replimeter/src/tests/ping.rs"));
    assert!(!is("replimeter-engine/src/session.rs"));
    assert!(!is(
        "replimeter-instruments/src/load/event_loop/accuracy.rs"
    ));
}
