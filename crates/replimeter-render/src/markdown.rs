//! `report.md`: the report in GitHub's Markdown, for issues and reviews.

use std::fmt::Write as _;

use crate::{
    drawing,
    report::{Block, Column, Content, Report, Table},
    terminal::controls_terminal,
};

/// Renders a report as Markdown.
#[must_use]
pub fn render(report: &Report) -> String {
    let about = report.facts.iter().chain([&report.started_at]);
    let about: Vec<String> = about
        .filter(|part| !part.is_empty())
        .map(|part| escaped(part))
        .collect();
    let mut out = format!(
        "# {}\n\n{}\n\n{}\n",
        escaped(&report.named()),
        about.join(" · "),
        escaped(&report.answer)
    );
    if let Some(error) = &report.error {
        let _ = writeln!(out, "\n**Failed:** {}", escaped(error));
    }
    for block in report.blocks_for(false) {
        out.push_str(&block_of(block));
    }
    out.push_str(&sentences("Method", &report.how));
    let warnings = report.warnings.iter();
    let warnings = warnings.map(|warning| (warning.message.clone(), warning.hint.clone()));
    out.push_str(&advice("Warnings", &warnings.collect::<Vec<_>>()));
    out
}

fn block_of(block: &Block) -> String {
    let title = &block.title;
    let mut out = match &block.content {
        Content::Table(table) => format!("\n## {}\n\n{}", escaped(title), grid(table)),
        Content::List(list) => sentences(title, list),
        Content::Advice(_, all) => advice(title, all),
        Content::Verbatim(text) => verbatim(title, text),
        Content::Bars(bins) => verbatim(title, &drawing::bars(bins)),
        Content::Timelines(lines) => verbatim(title, &drawing::timelines(lines)),
        Content::Columns(tables) => {
            let tables = tables
                .iter()
                .map(|(heading, table)| format!("\n### {}\n\n{}", escaped(heading), grid(table)));
            format!("\n## {}\n{}", escaped(title), tables.collect::<String>())
        }
    };
    for note in &block.notes {
        let _ = write!(out, "\n{}\n", escaped(note));
    }
    out
}

/// Renders a table.
fn grid(of: &Table) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let heading = |column: &Column| escaped(&column.heading);
    let rule = |column: &Column| if column.words { "---" } else { "---:" }.to_owned();
    let mut out = row(of.columns.iter().map(heading).collect());
    out.push_str(&row(of.columns.iter().map(rule).collect()));
    let rows = of.shown();
    out.extend(rows.map(|cells| row(cells.iter().map(|cell| escaped(cell)).collect())));
    out.extend(of.omitted_rows().map(|words| format!("\n{words}\n")));
    out
}

/// Escapes a text: markup of Markdown, and ends of cells and lines.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '<' | '*' | '`' | '\\' => out.extend(['\\', character]),
            // Only then can brackets become a link.
            '(' if out.ends_with(']') => out.push_str("\\("),
            '\n' => out.push(' '),
            character if controls_terminal(character) => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

/// Renders a section of preformatted text; empty if there is no text.
fn verbatim(heading: &str, text: &str) -> String {
    let text = text
        .trim_matches('\n')
        .replace(controls_terminal, "\u{fffd}");
    if text.is_empty() {
        return String::new();
    }
    // A fence longer than any in the text.
    let longest = text
        .split(|character| character != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!(
        "\n## {}\n\n{fence}text\n{text}\n{fence}\n",
        escaped(heading)
    )
}

/// Renders sentences as a list; empty if there are none.
fn sentences(heading: &str, sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let mut out = format!("\n## {}\n\n", escaped(heading));
    for sentence in sentences {
        let _ = writeln!(out, "- {}", escaped(sentence));
    }
    out
}

/// Renders sentences, each with its hint; empty if there are none.
fn advice(heading: &str, all: &[(String, String)]) -> String {
    let all = all
        .iter()
        .map(|(message, hint)| format!("{message} → {hint}"));
    sentences(heading, &all.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_cells_are_escaped() {
        let text = grid(&Table::new(&["a|b", "n"], 1, [vec!["x\ny", "1 | 2"]]));
        assert_eq!(text, "| a\\|b | n |\n| --- | ---: |\n| x y | 1 \\| 2 |\n");
    }

    #[test]
    fn names_are_escaped_and_intervals_stay_legible() {
        assert_eq!(
            escaped("214 µs [198, 231] of innodb_x"),
            "214 µs [198, 231] of innodb_x"
        );
        assert_eq!(
            escaped("[a](javascript:x) <b> *c* \u{1b}"),
            "[a]\\(javascript:x) \\<b> \\*c\\* \u{fffd}"
        );
        assert!(verbatim("x", "a ``` b").contains("\n````text\n"));
    }

    #[test]
    fn comparison_has_its_tables() {
        let text = render(&crate::compare::report(&crate::compare::tests::example()));
        assert!(
            text.contains("| lag.p50 | \\<script> |")
                && text.contains("## Differences in settings and environment"),
            "{text}"
        );
    }
}
