//! Names in the code: none has a word that the glossary replaces.

use std::{collections::BTreeSet, fs};

use super::sources::{UNUSED_WORDS, files, rust_files, shown};

/// Names that may have a banned word, with the reason.
const EXEMPT: [(&str, &str); 3] = [
    (
        "fallen_back",
        "a form of the verb fall back, and a key of documents",
    ),
    ("fallen_back_percent", "a key of documents"),
    ("AcknowledgementFallenBack", "a code of findings"),
];

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
    let is_constant = !name.contains(char::is_lowercase);
    let mut all = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && !is_constant {
            all.push(String::new());
        }
        if let Some(last) = all.last_mut().filter(|_| letter != '_') {
            last.extend(letter.to_lowercase());
        }
    }
    all
}

/// Returns the names in code, with their places: no comments, no texts.
fn names(code: &str) -> Vec<(usize, &str)> {
    let in_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(letter) = code[at..].chars().next() {
        let rest = &code[at..];
        let past = |end: &str, from: usize| {
            rest[from..]
                .find(end)
                .map_or(rest.len(), |found| from + found + end.len())
        };
        at += if rest.starts_with("//") {
            past("\n", 2)
        } else if letter == '"' {
            let mut escaped = false;
            let ends = |letter: char| {
                let ends = letter == '"' && !escaped;
                escaped = letter == '\\' && !escaped;
                ends
            };
            rest[1..].find(ends).map_or(rest.len(), |found| found + 2)
        } else if rest.starts_with("'\\") {
            past("'", 3)
        } else if letter == '\'' {
            // A letter in quotes, or a lifetime.
            let quoted = rest.char_indices().nth(2);
            quoted.map_or(1, |(end, last)| if last == '\'' { end + 1 } else { 1 })
        } else if in_name(letter) {
            let end = rest.find(|letter| !in_name(letter)).unwrap_or(rest.len());
            let hashes = rest[end..].len() - rest[end..].trim_start_matches('#').len();
            let is_raw = rest[..end].ends_with('r') && rest[end + hashes..].starts_with('"');
            if is_raw {
                past(&format!("\"{}", "#".repeat(hashes)), end + hashes + 1)
            } else {
                all.push((at, &rest[..end]));
                end
            }
        } else {
            letter.len_utf8()
        };
    }
    all
}

#[test]
fn names_have_no_banned_word() {
    let banned = table();
    let (mut found, mut exempt) = (Vec::new(), BTreeSet::new());
    for path in rust_files() {
        let code = fs::read_to_string(&path).unwrap();
        for (at, name) in names(&code) {
            let Some(word) = words(name).into_iter().find(|word| banned.contains(word)) else {
                continue;
            };
            if EXEMPT.iter().any(|(one, _)| *one == name) {
                exempt.insert(name.to_owned());
                continue;
            }
            let line = code[..at].matches('\n').count() + 1;
            found.push(format!("{}:{line}: {name} has `{word}`", shown(&path)));
        }
    }
    assert!(
        found.is_empty(),
        "names ({}; see \"{UNUSED_WORDS}\" in the docs):\n{}",
        found.len(),
        found.join("\n")
    );
    let needed = EXEMPT.iter().all(|(name, _)| exempt.contains(*name));
    assert!(needed, "a name that is exempt no longer exists: {EXEMPT:?}");
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(words("LagObserver")[1..], ["lag", "observer"]);
    assert_eq!(words("clock_offset"), ["clock", "offset"]);
    assert_eq!(words("MAX_POINTS"), ["max", "points"]);
}

#[test]
fn names_in_texts_and_comments_are_not_read() {
    let code = "fn a<'b>() { // c\n    d(\"e \\\" f\", 'g', '\\'', '\"', br#\"h \" i\"#, r\"j\"); }\n/// k\nl!()";
    let found: Vec<&str> = names(code).into_iter().map(|(_, name)| name).collect();
    assert_eq!(found, ["fn", "a", "b", "d", "l"]);
    assert_eq!(names(code)[3].0, code.find("d(").unwrap());
}

#[test]
fn banned_words_come_from_the_first_column() {
    let mut words = BTreeSet::new();
    let page = "# Glossary\n| a | b |\n## Words that are not used\n\n| not | but |\n|---|---|\n| `crew`, squad | worker pool |\n| so long | N s |\n# End\n| c | d |\n";
    add_table(page, &mut words);
    assert_eq!(words.into_iter().collect::<Vec<_>>(), ["crew", "squad"]);
}
