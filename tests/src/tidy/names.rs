//! Names of types and modules: none has a word that the glossary replaces.

use std::{collections::BTreeSet, fs};

use super::sources::{UNUSED_WORDS, files, is_test, rust_files, shown, without_tests};

/// Adds the single words of the first column of a page's table.
fn add_table(text: &str, words: &mut BTreeSet<String>) {
    let mut lines = text
        .lines()
        .skip_while(|line| !(line.starts_with('#') && line.contains(UNUSED_WORDS)));
    lines.next();
    for line in lines.take_while(|line| !line.starts_with('#')) {
        let Some(cell) = line
            .trim()
            .strip_prefix('|')
            .and_then(|line| line.split('|').next())
        else {
            continue;
        };
        let cell = cell.replace(['`', '*', '"', '“', '”'], "").to_lowercase();
        let single = |word: &&str| {
            !word.is_empty() && word.chars().all(char::is_alphabetic) && *word != "not"
        };
        words.extend(
            cell.split([',', ';', '/'])
                .map(str::trim)
                .filter(single)
                .map(str::to_owned),
        );
    }
}

/// Returns the words of the table, wherever it is.
fn table() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for path in files("docs", "md") {
        add_table(&fs::read_to_string(path).unwrap(), &mut words);
    }
    assert!(
        !words.is_empty(),
        "no page has a table below \"{UNUSED_WORDS}\""
    );
    words
}

/// Returns the words of a name in camel case or with underscores.
fn words(name: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() {
            all.push(String::new());
        }
        if let Some(last) = all.last_mut().filter(|_| letter != '_') {
            last.extend(letter.to_lowercase());
        }
    }
    all
}

#[test]
fn names_have_no_banned_word() {
    let banned = table();
    let bad = |name: &str| words(name).into_iter().find(|word| banned.contains(word));
    let mut found = Vec::new();
    for path in rust_files() {
        let module = path.file_stem().unwrap().to_str().unwrap();
        let module = match module {
            "mod" => path
                .parent()
                .unwrap()
                .file_name()
                .unwrap()
                .to_str()
                .unwrap(),
            other => other,
        };
        if let Some(word) = bad(module).filter(|_| !is_test(&path)) {
            found.push(format!(
                "{}:1: the module's name has `{word}`",
                shown(&path)
            ));
        }
        for (index, line) in without_tests(&path).lines().enumerate() {
            let line = line.trim().trim_start_matches("pub ");
            let line = match line.strip_prefix("pub(") {
                Some(rest) => rest.split_once(") ").map_or(rest, |(_, rest)| rest),
                None => line,
            };
            let starts = ["struct ", "enum ", "trait ", "type ", "union "];
            let Some(rest) = starts.iter().find_map(|start| line.strip_prefix(start)) else {
                continue;
            };
            let name = rest
                .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .next()
                .unwrap();
            if let Some(word) = bad(name) {
                found.push(format!(
                    "{}:{}: the type {name} has `{word}`",
                    shown(&path),
                    index + 1
                ));
            }
        }
    }
    assert!(
        found.is_empty(),
        "names ({}; see \"{UNUSED_WORDS}\" in the docs):\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(words("LagObserver")[1..], ["lag", "observer"]);
    assert_eq!(words("clock_offset"), ["clock", "offset"]);
}

#[test]
fn banned_words_come_from_the_first_column() {
    let mut words = BTreeSet::new();
    let page = "# Glossary\n| a | b |\n## Words that are not used\n\n| not | but |\n|---|---|\n| `crew`, squad | worker pool |\n| so long | N s |\n# End\n| c | d |\n";
    add_table(page, &mut words);
    assert_eq!(words.into_iter().collect::<Vec<_>>(), ["crew", "squad"]);
}
