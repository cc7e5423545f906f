//! `report.md`: the report for a ticket or a review, in GitHub's Markdown. One file
//! for each command.

mod calibrate;
mod compare;
mod cost;
mod lag;
mod load;
mod loss;
mod scale;
mod stale;
mod tap;

use std::fmt::Write as _;

use replimeter_model::{record::TargetRecord, warning::Warning};

pub use self::{
    calibrate::calibrate,
    compare::compare,
    cost::cost,
    lag::lag,
    load::load,
    loss::{exposure, loss},
    scale::scale,
    stale::stale,
    tap::tap,
};

/// A text as it stands: what Markdown would take for markup is escaped, and so is
/// what would end a cell or a line.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '<' | '*' | '`' | '\\' => out.extend(['\\', character]),
            // Only so can brackets become a link.
            '(' if out.ends_with(']') => out.push_str("\\("),
            '\n' => out.push(' '),
            character if character.is_control() => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

/// A table whose first `left` columns are words and the others numbers.
pub(crate) fn table(headings: &[impl AsRef<str>], left: usize, lines: &[Vec<String>]) -> String {
    let row = |cells: &mut dyn Iterator<Item = String>| {
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut out = row(&mut headings.iter().map(|heading| escaped(heading.as_ref())));
    out.push_str(&row(
        &mut (0..headings.len()).map(|index| if index < left { "---" } else { "---:" }.to_owned())
    ));
    for line in lines {
        out.push_str(&row(&mut line.iter().map(|cell| escaped(cell))));
    }
    out
}

/// A section with a table; nothing when the table has no line.
pub(crate) fn section(
    heading: &str,
    headings: &[impl AsRef<str>],
    left: usize,
    lines: &[Vec<String>],
) -> String {
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "\n## {}\n\n{}",
        escaped(heading),
        table(headings, left, lines)
    )
}

/// A section whose text keeps its columns; nothing for no text.
pub(crate) fn verbatim(heading: &str, text: &str) -> String {
    let text = text.trim_matches('\n');
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

/// Sentences as a list; nothing for none.
pub(crate) fn sentences(heading: &str, sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let mut out = format!("\n## {}\n\n", escaped(heading));
    for sentence in sentences {
        let _ = writeln!(out, "- {}", escaped(sentence));
    }
    out
}

/// What a report begins with.
pub(crate) struct Head<'a> {
    /// The command.
    pub(crate) command: &'a str,
    /// What the plan calls itself.
    pub(crate) title: Option<&'a str>,
    /// What was measured.
    pub(crate) target: &'a TargetRecord,
    /// When it began.
    pub(crate) started_at: &'a str,
    /// The finding.
    pub(crate) answer: &'a str,
    /// What ended it.
    pub(crate) error: Option<&'a str>,
}

impl Head<'_> {
    /// Its text.
    pub(crate) fn text(&self) -> String {
        let mut versions: Vec<&str> = self
            .target
            .nodes
            .iter()
            .map(|node| node.version.as_str())
            .collect();
        versions.sort_unstable();
        versions.dedup();
        let mut about = vec![self.target.shape.as_str(), self.started_at];
        let versions = versions.join(", ");
        about.insert(1, &versions);
        about.retain(|part| !part.is_empty());
        let title = self
            .title
            .map_or_else(String::new, |title| format!(": {title}"));
        let mut out = format!("# Replimeter {}{}\n\n", self.command, escaped(&title));
        let _ = writeln!(
            out,
            "{}\n\n{}",
            about
                .iter()
                .map(|part| escaped(part))
                .collect::<Vec<_>>()
                .join(" · "),
            escaped(self.answer)
        );
        if let Some(error) = self.error {
            let _ = writeln!(out, "\n**Ended by an error:** {}", escaped(error));
        }
        out
    }
}

/// Warnings, each with what to do.
pub(crate) fn warnings(warnings: &[Warning]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let mut out = String::from("\n## Warnings\n\n");
    for warning in warnings {
        let _ = writeln!(
            out,
            "- {} → {}",
            escaped(&warning.message),
            escaped(&warning.hint)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        calibrate::CalibrateDocument, exposure::ExposureDocument, loss::LossDocument,
        record::LagDocument, tap::TapDocument, warning::WarningCode,
    };

    use super::*;

    #[test]
    fn cells_cannot_leave_their_table() {
        let text = table(
            &["a|b", "n"],
            1,
            &[vec!["x\ny".to_owned(), "1 | 2".to_owned()]],
        );
        assert_eq!(text, "| a\\|b | n |\n| --- | ---: |\n| x y | 1 \\| 2 |\n");
    }

    #[test]
    fn names_are_no_markup_and_intervals_stay_legible() {
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
    fn every_kind_of_run_has_one_even_without_figures() {
        let warning = Warning::new(WarningCode::Failed, "m", "h");
        for text in [
            lag(&LagDocument {
                answer: "None.".to_owned(),
                warnings: vec![warning.clone()],
                ..LagDocument::default()
            }),
            calibrate(&CalibrateDocument {
                answer: "None.".to_owned(),
                warnings: vec![warning.clone()],
                ..CalibrateDocument::default()
            }),
            tap(&TapDocument {
                answer: "None.".to_owned(),
                warnings: vec![warning.clone()],
                ..TapDocument::default()
            }),
            loss(&LossDocument {
                answer: "None.".to_owned(),
                warnings: vec![warning.clone()],
                ..LossDocument::default()
            }),
            exposure(&ExposureDocument {
                answer: "None.".to_owned(),
                warnings: vec![warning.clone()],
                ..ExposureDocument::default()
            }),
        ] {
            assert!(
                text.starts_with("# Replimeter ")
                    && text.contains("None.")
                    && text.ends_with("- m → h\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_lag_report_has_its_tables() {
        let text = lag(&crate::waterfall::example());
        for wanted in [
            "| replica1 | lag from ack |",
            "## From send to visible, stage by stage",
            "| --- | --- | ---: |",
        ] {
            assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
        }
    }
}
