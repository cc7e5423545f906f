//! Splits a script into statements as the servers' clients do.

/// Why a text is not a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ScriptError {
    /// Line of the error, from 1.
    pub line: usize,
    /// The cause.
    pub reason: String,
}

impl ScriptError {
    pub(super) fn at(line: usize, reason: impl Into<String>) -> Self {
        Self {
            line,
            reason: reason.into(),
        }
    }
}

/// One statement of a script, without its `;`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// Its text, from its first word on.
    pub(super) text: String,
    /// The line on which it begins, from 1.
    pub(super) line: usize,
}

/// A part of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScriptPart {
    /// A statement.
    Statement(Statement),
    /// A comment line between statements: its text after `--`, and its line.
    Note(String, usize),
}

/// Returns the length of a quoted text or comment at the beginning; `None` when it is unterminated.
pub(super) fn skip(rest: &str) -> Option<usize> {
    let bytes = rest.as_bytes();
    match bytes[0] {
        quote @ (b'\'' | b'"' | b'`') => {
            let mut at = 1;
            while at < bytes.len() {
                match bytes[at] {
                    b'\\' if quote != b'`' => at += 2,
                    // A doubled quote is one inside; the next iteration reads the rest as another
                    // quoted text.
                    byte if byte == quote => return Some(at + 1),
                    _ => at += 1,
                }
            }
            None
        }
        b'/' => rest.get(2..)?.find("*/").map(|end| end + 4),
        _ => Some(rest.find('\n').unwrap_or(rest.len())),
    }
}

/// Returns whether a comment to the end of the line begins here. `--` begins one only before a blank:
/// `1--1` is arithmetic.
pub(super) fn begins_line_comment(rest: &[u8]) -> bool {
    rest[0] == b'#' || rest.starts_with(b"--") && rest.get(2).is_none_or(u8::is_ascii_whitespace)
}

/// Splits at each `;` outside of quotes and comments. Comments between statements are removed, except
/// those that servers execute (`/*! … */`).
///
/// # Errors
/// For an unterminated quote or comment, and for `DELIMITER`, which is a client command.
pub(super) fn split(script: &str) -> Result<Vec<ScriptPart>, ScriptError> {
    let bytes = script.as_bytes();
    let mut parts = Vec::new();
    let mut line = 1;
    let mut at = 0;
    // Offset and line of the current statement.
    let mut began: Option<(usize, usize)> = None;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let note = begins_line_comment(rest);
        let comment = note || rest.starts_with(b"/*");
        let executed = rest.starts_with(b"/*!") || rest.starts_with(b"/*M!");
        if comment || matches!(rest[0], b'\'' | b'"' | b'`') {
            let Some(length) = skip(&script[at..]) else {
                let what = if comment { "comment" } else { "quotation" };
                return Err(ScriptError::at(line, format!("unterminated {what}")));
            };
            let end = at + length;
            let text = &script[at..end];
            if note && began.is_none() {
                parts.push(ScriptPart::Note(
                    text.trim_start_matches(['-', '#']).trim().to_owned(),
                    line,
                ));
            }
            if !comment || executed {
                began.get_or_insert((at, line));
            }
            line += text.matches('\n').count();
            at = end;
            continue;
        }
        match rest[0] {
            b'\n' => line += 1,
            b';' => {
                if let Some((from, line)) = began.take() {
                    parts.push(statement(&script[from..at], line)?);
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => {
                began.get_or_insert((at, line));
            }
        }
        at += 1;
    }
    if let Some((from, line)) = began {
        parts.push(statement(&script[from..], line)?);
    }
    Ok(parts)
}

fn statement(text: &str, line: usize) -> Result<ScriptPart, ScriptError> {
    let text = text.trim();
    let word = text.split_whitespace().next().unwrap_or_default();
    if word.eq_ignore_ascii_case("DELIMITER") {
        return Err(ScriptError::at(
            line,
            "DELIMITER is a client command and not supported: every statement must end with `;`, so scripts cannot create stored routines",
        ));
    }
    Ok(ScriptPart::Statement(Statement {
        text: text.to_owned(),
        line,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn statements(script: &str) -> Vec<String> {
        let parts = split(script).unwrap();
        parts
            .into_iter()
            .filter_map(|part| match part {
                ScriptPart::Statement(statement) => Some(statement.text),
                ScriptPart::Note(..) => None,
            })
            .collect()
    }

    #[test]
    fn quoted_semicolons_do_not_end_statements() {
        let script = "SELECT ';', \"a\\\";\", `x;``y`; -- a ; b\n# c ; d\nSELECT 1--1 /* ; */ + 2;;\n INSERT INTO t VALUES ('it''s;')";
        assert_eq!(
            statements(script),
            [
                "SELECT ';', \"a\\\";\", `x;``y`",
                "SELECT 1--1 /* ; */ + 2",
                "INSERT INTO t VALUES ('it''s;')"
            ]
        );
    }

    #[test]
    fn executable_comments_are_statements_others_are_not() {
        let parts = split("-- setup\n/* x */ /*! SET a=1 */;\n--\nSELECT 1; # run").unwrap();
        let line = |text: &str, line| {
            ScriptPart::Statement(Statement {
                text: text.to_owned(),
                line,
            })
        };
        let note = |text: &str, line| ScriptPart::Note(text.to_owned(), line);
        assert_eq!(
            parts,
            [
                note("setup", 1),
                line("/*! SET a=1 */", 2),
                note("", 3),
                line("SELECT 1", 4),
                note("run", 4)
            ]
        );
    }

    #[test]
    fn unterminated_text_and_delimiter_are_refused() {
        for (script, line, wanted) in [
            ("SELECT 1;\nSELECT 'a;", 2, "quotation"),
            ("SELECT `a", 1, "quotation"),
            ("SELECT '\\'", 1, "quotation"),
            ("\n\n/* a", 3, "comment"),
            ("SELECT 1;\n delimiter //\nSELECT 2//", 2, "DELIMITER"),
        ] {
            let error = split(script).unwrap_err();
            assert!(
                error.line == line && error.reason.contains(wanted),
                "{script}: {error}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(script in "([;'\"`/*#\\\\\n -]|--|/\\*|\\*/|[a-zé]){0,60}\\PC{0,10}") {
            let _ = split(&script);
        }

        #[test]
        fn quoted_values_are_preserved(values in proptest::collection::vec("\\PC{0,20}", 1..8)) {
            let wanted: Vec<String> =
                values.iter().map(|value| format!("SELECT '{}'", value.replace('\\', "\\\\").replace('\'', "''"))).collect();
            prop_assert_eq!(statements(&wanted.join(" ; -- it's\n")), wanted);
        }
    }
}
