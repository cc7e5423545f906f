//! Lengths: of files, commit subjects, names of tests and the README's opening.

use std::{fs, process::Command};

use super::sources::{rust_files, shown};
use crate::net::repository;

const MAX_FILE_LINES: usize = 600;
const MAX_SUBJECT: usize = 72;
const SUBJECTS: &str = "-50";
const MAX_TEST_NAME: usize = 60;
const MAX_OPENING_LINES: usize = 12;

#[test]
fn files_are_short() {
    let mut found = Vec::new();
    for path in rust_files() {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        if lines > MAX_FILE_LINES {
            found.push(format!(
                "{}:{lines}: more than {MAX_FILE_LINES} lines, split it",
                shown(&path)
            ));
        }
    }
    assert!(found.is_empty(), "files:\n{}", found.join("\n"));
}

#[test]
fn commit_subjects_are_short() {
    let log = Command::new("git")
        .args(["log", SUBJECTS, "--no-merges", "--format=%h %s"])
        .current_dir(repository())
        .output();
    // Sources without history have no subjects.
    let Some(log) = log.ok().filter(|log| log.status.success()) else {
        return;
    };
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let long = |line: &&str| {
        line.split_once(' ')
            .is_some_and(|(_, subject)| subject.chars().count() > MAX_SUBJECT)
    };
    let found: Vec<&str> = log.lines().filter(long).collect();
    assert!(
        found.is_empty(),
        "commit subjects of more than {MAX_SUBJECT} characters:\n{}",
        found.join("\n")
    );
}

#[test]
fn names_of_tests_are_short() {
    let mut found = Vec::new();
    for path in rust_files() {
        let text = fs::read_to_string(&path).unwrap();
        let mut attribute = false;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            let name = if let Some((_, name)) = line.split_once("test!(") {
                // A test from a module of its group is named without the module.
                name.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter))
                    .next()
                    .and_then(|path| path.rsplit("::").next())
            } else if attribute && !line.starts_with('#') {
                attribute = false;
                line.split_once("fn ")
                    .and_then(|(_, name)| name.split('(').next())
            } else {
                attribute |= line == "#[test]";
                None
            };
            if let Some(name) = name.filter(|name| name.len() > MAX_TEST_NAME) {
                found.push(format!(
                    "{}:{}: {name} ({})",
                    shown(&path),
                    index + 1,
                    name.len()
                ));
            }
        }
    }
    assert!(
        found.is_empty(),
        "names of tests of more than {MAX_TEST_NAME} characters ({}):\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn opening_of_the_readme_is_short() {
    let text = fs::read_to_string(repository().join("README.md")).unwrap();
    let lines = text
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("## "));
    let count = lines
        .filter(|line| !line.trim().is_empty() && !line.starts_with("```"))
        .count();
    assert!(
        count <= MAX_OPENING_LINES,
        "README.md:{}: the opening has {count} lines of text, at most {MAX_OPENING_LINES} are read",
        count + 1
    );
}
