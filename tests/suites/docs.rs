//! The handbook is consistent: links have targets, every page is in the book, and
//! commands have the options that pages show. Needs no server.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use replimeter_suites::{
    harness::{Test, skip},
    test,
};

pub(crate) const TESTS: &[Test] = &[
    test!(every_docs_link_resolves),
    test!(every_page_is_in_the_book_once),
    test!(documented_commands_are_valid),
    // `make check`, which `make test-all` runs first, installs cargo-deny.
    test!(audit_without_a_database_checks_nothing).long(),
];

/// Returns the folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Returns every page of the handbook.
fn pages() -> Vec<PathBuf> {
    let folders = [
        "docs",
        "docs/concepts",
        "docs/decisions",
        "docs/guides",
        "docs/reference",
    ]
    .map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = folders
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = files
        .filter(|file| file.extension().is_some_and(|end| end == "md"))
        .collect();
    pages.sort();
    assert!(pages.len() > 10, "docs/ is not where it was");
    pages
}

/// Returns the lines of a page's text, and those in blocks of code.
fn lines(page: &Path) -> (Vec<String>, Vec<String>) {
    let (mut words, mut code, mut in_code) = (Vec::new(), Vec::new(), false);
    for line in fs::read_to_string(page).unwrap().lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if in_code {
            code.push(line.to_owned());
        } else {
            words.push(line.to_owned());
        }
    }
    assert!(!in_code, "{}: a block of code has no end", page.display());
    (words, code)
}

/// Returns a paragraph without its `code`, in which brackets are not links.
fn without_code(paragraph: &str) -> String {
    paragraph
        .split('`')
        .step_by(2)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the targets of a page's links.
fn links(page: &Path) -> Vec<String> {
    let mut links = Vec::new();
    // By paragraphs, since a link's text or a piece of code may continue on the next line.
    let text = lines(page)
        .0
        .join("\n")
        .split("\n\n")
        .map(without_code)
        .collect::<Vec<_>>()
        .join("\n\n");
    let mut rest = text.as_str();
    while let Some(at) = rest.find("](") {
        let to = &rest[at + 2..];
        let end = to
            .find(')')
            .unwrap_or_else(|| panic!("{}: a link without an end", page.display()));
        links.push(to[..end].to_owned());
        rest = &to[end..];
    }
    links
}

/// Returns the anchors of a page's headings in the book and on a code host.
fn anchors(page: &Path) -> BTreeSet<String> {
    let headings = lines(page)
        .0
        .into_iter()
        .filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = line.trim_start_matches('#').trim().to_lowercase();
            let kept = kept
                .chars()
                .filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c })
                .collect::<String>()
        })
        .collect()
}

fn every_docs_link_resolves() {
    let mut broken = Vec::new();
    let outside = [
        "README.md",
        "ARCHITECTURE.md",
        "BENCHMARKS.md",
        "CONTRIBUTING.md",
    ]
    .map(|name| root().join(name));
    for page in pages().into_iter().chain(outside) {
        for link in links(&page) {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            let (file, anchor) = link
                .split_once('#')
                .map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            if !target.exists() || anchor.is_some_and(|anchor| !anchors(&target).contains(anchor)) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

fn every_page_is_in_the_book_once() {
    let summary = root().join("docs/SUMMARY.md");
    let mut listed = links(&summary);
    listed.sort();
    let there: Vec<String> = pages()
        .into_iter()
        .filter(|page| *page != summary)
        .map(|page| {
            page.strip_prefix(root().join("docs"))
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        listed, there,
        "docs/SUMMARY.md (left) and the pages in docs/ (right)"
    );
}

fn documented_commands_are_valid() {
    // `net_commands` compares it with the help of each command.
    let helps = fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let mut unknown = Vec::new();
    let mut looked_at = 0;
    for page in pages().into_iter().chain([root().join("README.md")]) {
        for line in lines(&page).1 {
            // `replimeter lag --sandbox async:1   a remark`, if the command has help.
            let mut words = line
                .trim_start()
                .trim_start_matches("$ ")
                .split_whitespace();
            if words.next() != Some("replimeter") {
                continue;
            }
            let words: Vec<&str> = words.take_while(|word| *word != "--").collect();
            // `sandbox up` has separate help.
            let help = |count: usize| {
                let command = words.get(..count)?.join(" ");
                let (_, help) = helps.split_once(&format!("# `replimeter {command}`\n"))?;
                help.split("\n#").next()
            };
            let Some(help) = help(2).or_else(|| help(1)) else {
                continue;
            };
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap();
                looked_at += 1;
                let known = ["--help", "--version"].contains(&option)
                    || help
                        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                        .any(|word| word == option);
                if !known {
                    unknown.push(format!("{}: {line}", page.display()));
                }
            }
        }
    }
    assert!(looked_at > 50, "only {looked_at} options were looked at");
    assert!(
        unknown.is_empty(),
        "options that are not in the help: {unknown:#?}"
    );
}

fn audit_without_a_database_checks_nothing() {
    let deny = root().join("target/tools/bin/cargo-deny");
    if !deny.exists() {
        return skip("cargo-deny is not installed: `make check` installs it");
    }
    let output = Command::new(root().join("scripts/audit"))
        .arg(deny)
        .envs([
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "url.file:///nonexistent.insteadOf"),
            (
                "GIT_CONFIG_VALUE_0",
                "https://github.com/RustSec/advisory-db",
            ),
        ])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("nothing was checked"), "{printed}");
    assert!(output.stdout.is_empty(), "{printed}");
}
