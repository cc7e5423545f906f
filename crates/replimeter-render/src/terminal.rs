//! A report in a terminal.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use replimeter_model::warning::Warning;

use crate::{
    drawing,
    report::{self, Block, Content, Report},
};

/// Maximum width of text in columns; tables can be wider.
const WIDTH: usize = 100;

/// Maximum width of hints in columns.
const ADVICE_WIDTH: usize = 110;

/// Renders a report for a terminal.
#[must_use]
pub fn render(report: &Report) -> String {
    let head: Vec<&str> = report.facts.iter().map(String::as_str).collect();
    let head = [vec![report.named().as_str()], head].concat().join(" · ");
    let mut sections = vec![head, filled("", &report.answer)];
    if let Some(error) = &report.error {
        sections.push(filled("", &format!("Failed: {error}")));
    }
    sections.extend(report.blocks_for(false).map(section));
    if !report.how.is_empty() {
        sections.push(format!("Method\n{}", sentences(&report.how)));
    }
    sections.push(warnings(&report.warnings));
    joined(sections, "\n\n") + "\n"
}

/// Joins the non-empty parts with `between`.
fn joined(parts: impl IntoIterator<Item = String>, between: &str) -> String {
    let mut parts: Vec<String> = parts.into_iter().collect();
    parts
        .iter_mut()
        .for_each(|part| part.truncate(part.trim_end().len()));
    parts.retain(|part| !part.is_empty());
    parts.join(between)
}

fn section(block: &Block) -> String {
    let content = match &block.content {
        Content::Table(table) => grid(table),
        Content::List(list) => sentences(list),
        Content::Advice(mark, all) => advice(*mark, all),
        Content::Verbatim(text) => text.clone(),
        Content::Bars(bins) => indented(&drawing::bars(bins)),
        Content::Timelines(lines) => indented(&drawing::timelines(lines)),
        Content::Columns(tables) => tables
            .iter()
            .map(|(heading, table)| joined([heading.clone(), grid(table)], "\n") + "\n")
            .collect(),
    };
    let parts = [filled("", &block.title), content, sentences(&block.notes)];
    joined(parts, "\n")
}

/// Renders a table with aligned columns; only text columns are wrapped.
fn grid(table: &report::Table) -> String {
    let mut drawn = Table::new();
    drawn
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(table.columns.iter().map(|column| &column.heading));
    if table.columns.iter().all(|column| column.words) && !table.unbroken {
        drawn
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(WIDTH as u16);
    }
    for row in table.shown() {
        drawn.add_row(row);
    }
    for (column, drawn) in table.columns.iter().zip(drawn.column_iter_mut()) {
        if !column.words {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = drawn.lines().map(|line| format!("{}\n", line.trim_end()));
    let left_out = table.omitted_rows().map(|words| format!("  {words}\n"));
    lines.chain(left_out).collect()
}

/// Renders sentences, one below the other.
fn sentences(sentences: &[String]) -> String {
    sentences
        .iter()
        .map(|sentence| filled("  ", sentence) + "\n")
        .collect()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Wraps a text to [`WIDTH`] characters, with each line indented.
fn filled(indent: &str, text: &str) -> String {
    let text = wrapped(text, WIDTH - indent.chars().count(), indent);
    format!("{indent}{text}")
}

/// Renders sentences after a mark, each with its hint.
fn advice(mark: char, all: &[(String, String)]) -> String {
    let mut out = String::new();
    for (message, hint) in all {
        let _ = writeln!(out, "  {mark} {}", wrapped(message, ADVICE_WIDTH, "    "));
        if !hint.is_empty() {
            let _ = writeln!(out, "    → {}", wrapped(hint, ADVICE_WIDTH, "      "));
        }
    }
    out
}

/// Renders warnings, each with its hint; empty if there are none.
#[must_use]
pub fn warnings(warnings: &[Warning]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let all = warnings.iter();
    let all = all.map(|warning| (warning.message.clone(), warning.hint.clone()));
    format!("Warnings\n{}", advice('!', &all.collect::<Vec<_>>()))
}

/// Wraps a text to lines of at most `width` characters.
pub(crate) fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let fits = lines.last().is_some_and(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width
        });
        if !fits {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{indent}"))
}

/// Returns whether a terminal could obey this character of a name: a control character other than the end of a line and the
/// tab, or one that changes the direction of the text.
#[must_use]
pub fn controls_terminal(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        _ => character.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_between_words() {
        assert_eq!(wrapped("aa bb cc", 5, "  "), "aa bb\n  cc");
    }
}
