//! Positions in a plan's text.

use toml::de::{DeTable, DeValue};

use crate::redact;

/// Returns line and column, both from 1, of a byte of the text.
pub(super) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
    (line, column)
}

/// The settings that a message about a whole plan names, as lines of the text with their
/// numbers; none that could hold a password.
pub(super) fn named(message: &str, text: &str, sections: &[&str]) -> String {
    let Ok(table) = DeTable::parse(text) else {
        return String::new();
    };
    let words: Vec<&str> = message
        .split(|letter: char| !letter.is_alphanumeric() && letter != '-')
        .collect();
    let mut lines: Vec<(usize, usize)> = Vec::new();
    let mut find = |table: &DeTable<'_>| {
        for (key, _) in table {
            let name: &str = key.get_ref();
            if words.contains(&name) {
                lines.push(line_and_column(text, key.span().start));
            }
        }
    };
    for section in sections {
        if let Some(DeValue::Table(table)) =
            table.get_ref().get(*section).map(toml::Spanned::get_ref)
        {
            find(table);
        }
    }
    lines.sort_unstable();
    lines.dedup();
    lines
        .into_iter()
        .filter_map(|(line, column)| {
            let content = text.lines().nth(line - 1)?.trim();
            (!redact::may_hold_password(content))
                .then(|| format!("\n  line {line}, column {column}: {content}"))
        })
        .collect()
}
