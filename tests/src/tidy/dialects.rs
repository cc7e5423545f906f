//! Words of one dialect in code outside of the engines' crates: their number only falls.

use super::{
    code,
    sources::{program_files, shown},
};

/// Lines with such a word, and files that have them. They are lowered with the count, and never raised.
const LINES: usize = 123;
const FILES: usize = 24;
/// Files that a failure names.
const NAMED: usize = 20;
/// What differs between engines lies here.
const OF_ENGINES: [&str; 2] = ["crates/replimeter-engine/", "crates/replimeter-sandbox/"];

/// Compared in any case.
const WORDS: [&str; 14] = [
    "mariadb",
    "mysql",
    "galera",
    "wsrep",
    "gtid",
    "binlog",
    "binary log",
    "group_replication",
    "rpl_",
    "semi_sync",
    "semisync",
    "slave",
    "performance_schema",
    "innodb",
];

/// Returns whether a line has a word of one dialect, or a variant of the type `Engine`.
fn names_a_dialect(line: &str) -> bool {
    let lower = line.to_lowercase();
    let inside = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut variants = line.match_indices("Engine::");
    WORDS.iter().any(|word| lower.contains(word))
        || variants.any(|(at, _)| !line[..at].ends_with(inside))
}

#[test]
fn dialect_words_only_fall() {
    let mut found = Vec::new();
    for path in program_files("crates") {
        let name = shown(&path);
        let code = code(&path);
        let count = code.lines().filter(|line| names_a_dialect(line)).count();
        if count > 0 && !OF_ENGINES.iter().any(|folder| name.starts_with(folder)) {
            found.push((count, name));
        }
    }
    found.sort_by(|one, other| other.cmp(one));
    let lines: usize = found.iter().map(|(count, _)| count).sum();
    let most = found.iter().take(NAMED);
    let most: Vec<String> = most
        .map(|(count, name)| format!("{count:4} {name}"))
        .collect();
    let remedy = if lines > LINES || found.len() > FILES {
        "move what differs between engines to replimeter-engine"
    } else {
        "lower LINES and FILES to these numbers"
    };
    assert_eq!(
        (lines, found.len()),
        (LINES, FILES),
        "lines that name a dialect, and files that have them: {remedy}; most are in\n{}",
        most.join("\n")
    );
}

#[test]
fn variants_and_words_in_any_case_name_a_dialect() {
    assert!(names_a_dialect("let sql = \"SHOW SLAVE STATUS\";"));
    assert!(names_a_dialect("(Engine::Other, _) => None,"));
    assert!(names_a_dialect("match Engine::of(version) {"));
    assert!(!names_a_dialect("use replimeter_engine::Session;"));
    assert!(!names_a_dialect("LoadEngine::start()"));
}
