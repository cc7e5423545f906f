//! A workload as a script of statements with placeholders that are filled for each execution.

use std::fmt::Write as _;

use super::{
    split::{ScriptError, ScriptPart, Statement, split},
    value::{Draw, fill_text},
};

/// Maximum bytes of one `{text:N}`.
const MAX_TEXT_LENGTH: u64 = 1 << 20;

/// Maximum characters of a statement in messages.
const MAX_EXCERPT: usize = 80;

/// A piece of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    /// Literal text.
    Fixed(String),
    /// `{thread}`: the number of the thread, from 1.
    Thread,
    /// `{pass}`: the number of passes that this thread has started, from 1.
    Pass,
    /// `{random:A-B}`: a whole number, uniformly distributed.
    Random(u64, u64),
    /// `{text:N}`: N letters and digits.
    Text(u64),
}

/// A statement with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<TemplatePiece>,
    /// The line in its script on which it begins.
    pub(super) line: usize,
}

impl Template {
    fn parse(statement: &Statement) -> Result<Self, ScriptError> {
        let mut pieces = Vec::new();
        let mut fixed = String::new();
        let mut rest = statement.text.as_str();
        while let Some(at) = rest.find('{') {
            fixed.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("{{") {
                fixed.push('{');
                rest = after;
                continue;
            }
            // Only text in the form of a placeholder is one; JSON, for example, is left as it is.
            let inner = rest[1..].find('}').map(|end| &rest[1..=end]);
            let name = |inner: &&str| {
                let name = inner.split(':').next().unwrap_or_default();
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase())
            };
            match inner.filter(name) {
                Some(inner) => {
                    if !fixed.is_empty() {
                        pieces.push(TemplatePiece::Fixed(std::mem::take(&mut fixed)));
                    }
                    pieces.push(
                        place(inner).map_err(|reason| ScriptError::at(statement.line, reason))?,
                    );
                    rest = &rest[inner.len() + 2..];
                }
                None => {
                    fixed.push('{');
                    rest = &rest[1..];
                }
            }
        }
        fixed.push_str(rest);
        if !fixed.is_empty() {
            pieces.push(TemplatePiece::Fixed(fixed));
        }
        Ok(Self {
            pieces,
            line: statement.line,
        })
    }

    /// Writes the statement with its placeholders filled to `out`.
    pub(super) fn fill(&self, draw: &mut Draw, out: &mut String) {
        out.clear();
        for piece in &self.pieces {
            // Writing to a string cannot fail.
            match piece {
                TemplatePiece::Fixed(text) => out.push_str(text),
                TemplatePiece::Thread => drop(write!(out, "{}", draw.thread)),
                TemplatePiece::Pass => drop(write!(out, "{}", draw.pass)),
                TemplatePiece::Random(low, high) => {
                    let _ = write!(out, "{}", draw.random.between(*low, *high));
                }
                TemplatePiece::Text(length) => text(*length, draw, out),
            }
        }
    }

    /// Returns its beginning, for messages.
    pub(super) fn excerpt(&self) -> String {
        let mut short = self.clone();
        for piece in &mut short.pieces {
            // No more of a text is shown.
            if let TemplatePiece::Text(length) = piece {
                *length = (*length).min(MAX_EXCERPT as u64);
            }
        }
        let mut text = String::new();
        short.fill(&mut Draw::new(1, 1, 0), &mut text);
        excerpt(&text)
    }

    /// Returns its text without the placeholders.
    pub(super) fn literal(&self) -> String {
        let literal = |piece: &TemplatePiece| match piece {
            TemplatePiece::Fixed(text) => Some(text.clone()),
            _ => None,
        };
        self.pieces.iter().filter_map(literal).collect()
    }
}

/// Returns a statement's beginning, on one line.
pub(super) fn excerpt(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() <= MAX_EXCERPT {
        words
    } else {
        words.chars().take(MAX_EXCERPT - 1).chain(['…']).collect()
    }
}

/// Writes random letters and digits.
fn text(length: u64, draw: &mut Draw, out: &mut String) {
    let mut bytes = Vec::with_capacity(length as usize);
    fill_text(length, &mut draw.random, &mut bytes);
    // They are ASCII.
    out.push_str(&String::from_utf8_lossy(&bytes));
}

/// Parses the text between the braces.
fn place(inner: &str) -> Result<TemplatePiece, String> {
    let (name, argument) = match inner.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (inner, None),
    };
    let wrong = |form: &str| format!("`{{{inner}}}` should read `{form}`");
    match (name, argument) {
        ("thread", None) => Ok(TemplatePiece::Thread),
        ("pass", None) => Ok(TemplatePiece::Pass),
        ("random", _) => {
            let form = "{random:LOWEST-HIGHEST}";
            let (low, high) = argument
                .and_then(|range| range.split_once('-'))
                .ok_or_else(|| wrong(form))?;
            let number = |text: &str| text.parse::<u64>().map_err(|_| wrong(form));
            let (low, high) = (number(low)?, number(high)?);
            if low > high {
                Err(wrong(form))
            } else {
                Ok(TemplatePiece::Random(low, high))
            }
        }
        ("text", _) => {
            let length = argument
                .and_then(|length| length.parse().ok())
                .filter(|length| *length <= MAX_TEXT_LENGTH);
            length
                .map(TemplatePiece::Text)
                .ok_or_else(|| wrong("{text:LENGTH}, at most 1048576"))
        }
        _ => Err(format!(
            "unknown placeholder `{{{inner}}}`; known: {{thread}}, {{pass}}, {{random:1-1000}}, {{text:128}}, and {{{{ for a brace"
        )),
    }
}

/// The statements of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Run once before the load.
    pub(super) setup: Vec<Template>,
    /// Run repeatedly by every thread.
    pub(super) run: Vec<Template>,
    /// Run once afterwards, also after errors.
    pub(super) teardown: Vec<Template>,
}

impl Script {
    /// Parses a script: statements that end with `;`, in sections that begin with the comment lines `--
    /// setup`, `-- run` and `-- teardown`. Without any such line all statements belong to `run`.
    ///
    /// # Errors
    /// A syntax error, with its line.
    pub(super) fn parse(text: &str) -> Result<Self, ScriptError> {
        let parts = split(text)?;
        let mut script = Self::default();
        let mut section = "run";
        for part in &parts {
            match part {
                ScriptPart::Note(note, _) => {
                    let known = ["setup", "run", "teardown"]
                        .into_iter()
                        .find(|name| note.eq_ignore_ascii_case(name));
                    section = known.unwrap_or(section);
                }
                ScriptPart::Statement(statement) => {
                    let section = match section {
                        "setup" => &mut script.setup,
                        "teardown" => &mut script.teardown,
                        _ => &mut script.run,
                    };
                    section.push(Template::parse(statement)?);
                }
            }
        }
        if script.run.is_empty() {
            let lines = text.lines().count().max(1);
            return Err(ScriptError::at(
                lines,
                "there is no statement to run; write statements after a line `-- run`",
            ));
        }
        Ok(script)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(text: &str) -> String {
        let script = Script::parse(text).unwrap();
        let mut draw = Draw {
            pass: 7,
            ..Draw::new(3, 8, 0)
        };
        let mut out = String::new();
        script.run[0].fill(&mut draw, &mut out);
        out
    }

    #[test]
    fn shipped_script_is_valid() {
        let script = Script::parse(include_str!("../../../../loads/mix.sql")).unwrap();
        assert!(!script.setup.is_empty() && !script.teardown.is_empty());
    }

    #[test]
    fn scripts_with_and_without_sections_are_read() {
        let script =
            Script::parse("-- setup\nA; B;\n-- a word about it\n-- RUN\nC;\n-- teardown\nD")
                .unwrap();
        assert_eq!(
            (script.setup.len(), script.run.len(), script.teardown.len()),
            (2, 1, 1)
        );
        assert_eq!(Script::parse("A; B").unwrap().run.len(), 2);
        let error = Script::parse("-- setup\nA;\n").unwrap_err();
        assert!(error.to_string().contains("no statement to run"), "{error}");
    }

    #[test]
    fn placeholders_are_filled_and_other_braces_kept() {
        assert_eq!(
            filled("SELECT {thread}, {pass}, '{\"a\": {\"b\": 1}}', '{{thread}', '{ d }'"),
            "SELECT 3, 7, '{\"a\": {\"b\": 1}}', '{thread}', '{ d }'"
        );
        let text = filled("{text:128}");
        assert!(
            text.len() == 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "{text}"
        );
        assert_eq!(filled("{random:5-5}"), "5");
    }

    #[test]
    fn excerpt_of_long_texts_is_cheap() {
        // Filled, this is 64 GiB.
        let text = format!("SELECT '{}'", "{text:1048576}".repeat(1 << 16));
        let excerpt = Script::parse(&text).unwrap().run[0].excerpt();
        assert!(excerpt.starts_with("SELECT '") && excerpt.chars().count() == MAX_EXCERPT);
    }

    #[test]
    fn invalid_placeholders_are_refused() {
        for text in [
            "{round}",
            "{random:9-1}",
            "{random}",
            "{text:x}",
            "{text:99999999}",
            "{thread:2}",
        ] {
            assert!(
                Script::parse(&format!("SELECT 1;\nSELECT {text}"))
                    .unwrap_err()
                    .to_string()
                    .starts_with("line 2: "),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\{|\\}|random|text|:|-|[0-9]{1,20}|;|'|[a-zé ]){0,30}") {
            if let Ok(script) = Script::parse(&text) {
                let mut out = String::new();
                script.run[0].excerpt();
                if !text.contains("text") {
                    script.run[0].fill(&mut Draw::new(1, 1, 0), &mut out);
                }
            }
        }
    }

    #[test]
    fn full_integer_range_does_not_overflow() {
        assert!(
            filled("{random:0-18446744073709551615}")
                .parse::<u64>()
                .is_ok()
        );
    }
}
