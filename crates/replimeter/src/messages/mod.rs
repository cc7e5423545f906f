//! `docs/reference/messages.md`: every error, hint, warning and finding that the sources make.
//!
//! The sources are parsed, not run: a message is found at the place that creates an error, a warning or a
//! finding.

mod collect;
mod index;
mod texts;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
};

use replimeter_model::doctor::FindingCode;

use self::index::{Index, Source};
use crate::tidy::sources::{program_files, repository};

const HEAD: &str = "# Messages\n\nEvery error, warning and finding with its hint, made from the sources by `make docs`. \
    `{names}` stand for what the program fills in.\n";

/// The kind of a message, with its code where it has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Error,
    Finding(String),
    Hint,
    Warning(String),
}

impl Kind {
    fn name(&self) -> String {
        match self {
            Self::Error => "error".to_owned(),
            Self::Finding(code) => format!("finding `{code}`"),
            Self::Hint => "hint".to_owned(),
            Self::Warning(code) => format!("warning `{code}`"),
        }
    }
}

/// The messages of a crate and module, each with its hints.
type Messages = BTreeMap<(String, String), BTreeMap<(Kind, String), BTreeSet<String>>>;

/// Parses every crate.
fn sources() -> Vec<Source> {
    let mut all = Vec::new();
    for entry in fs::read_dir(repository().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let root = folder.join("src");
        for path in program_files(&root) {
            let text = fs::read_to_string(&path).unwrap();
            let file = syn::parse_file(&text);
            let module = path.strip_prefix(&root).unwrap().with_extension("");
            let names: Vec<&str> = module.iter().map(|name| name.to_str().unwrap()).collect();
            let names = match names.split_last() {
                Some((&"mod", [])) | None => &names[..],
                Some((&"mod", before)) => before,
                Some(_) => &names[..],
            };
            all.push(Source {
                krate: folder.file_name().unwrap().to_str().unwrap().to_owned(),
                module: names.join("::"),
                file: file.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            });
        }
    }
    all.sort_by(|a, b| (&a.krate, &a.module).cmp(&(&b.krate, &b.module)));
    all
}

/// Returns the text as a code span.
fn code(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.contains('`') {
        format!("`` {line} ``")
    } else {
        format!("`{line}`")
    }
}

fn page(messages: &Messages) -> String {
    let mut text = HEAD.to_owned();
    let mut last = "";
    for ((krate, module), all) in messages {
        if krate != last {
            text.push_str(&format!("\n## {krate}\n"));
            last = krate;
        }
        text.push_str(&format!("\n### {module}\n\n"));
        for ((kind, message), hints) in all {
            text.push_str(&format!("- {}: {}\n", kind.name(), code(message)));
            for hint in hints {
                text.push_str(&format!("  - hint: {}\n", code(hint)));
            }
        }
    }
    text
}

fn made() -> String {
    let sources = sources();
    let index = Index::of(&sources);
    page(&collect::messages(&sources, &index))
}

#[test]
fn messages_page_matches_the_sources() {
    let path = repository().join("docs/reference/messages.md");
    let made = made();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert!(
        fs::read_to_string(&path).is_ok_and(|kept| kept == made),
        "docs/reference/messages.md is out of date: run `make docs`"
    );
}

#[test]
fn messages_page_has_every_kind() {
    let made = made();
    let findings = FindingCode::ALL
        .iter()
        .map(|code| format!("- finding `{code}`: "));
    let others = [
        "- error: ",
        "- hint: ",
        "  - hint: ",
        "- warning `password-in-url`: ",
    ];
    let missing: Vec<String> = others
        .map(str::to_owned)
        .into_iter()
        .chain(findings)
        .filter(|one| !made.contains(one.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in the page: {missing:?}");
}

/// Who has the program only has no such file.
#[test]
fn no_message_names_a_file_of_the_repository() {
    let made = made();
    let found: Vec<&str> = made
        .lines()
        .filter(|line| {
            ["docs/", "plans/", "loads/", "scripts/"]
                .iter()
                .any(|folder| line.contains(folder))
        })
        .collect();
    assert!(found.is_empty(), "name the command that helps: {found:#?}");
}
