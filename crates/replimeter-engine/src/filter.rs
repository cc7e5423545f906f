//! Replication and binary-log filters, and whether they exclude a table.

/// Filters as a server reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Only these schemas pass, when any is named.
    pub do_schemas: Vec<String>,
    /// These schemas do not pass.
    pub ignore_schemas: Vec<String>,
    /// Only these tables pass, when any is named here or as a pattern.
    pub do_tables: Vec<String>,
    /// These tables do not pass.
    pub ignore_tables: Vec<String>,
    /// Only tables like these pass.
    pub wild_do_tables: Vec<String>,
    /// Tables like these do not pass.
    pub wild_ignore_tables: Vec<String>,
    /// Schemas applied under another name, as the server reports it.
    pub rewrites: String,
}

/// Splits a server's comma-separated list.
#[must_use]
pub fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Filters {
    /// Returns them as the server reports them.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let lists = [
            ("Do_DB", &self.do_schemas),
            ("Ignore_DB", &self.ignore_schemas),
            ("Do_Table", &self.do_tables),
            ("Ignore_Table", &self.ignore_tables),
            ("Wild_Do_Table", &self.wild_do_tables),
            ("Wild_Ignore_Table", &self.wild_ignore_tables),
        ];
        let mut out: Vec<String> = lists
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}={}", list.join(",")))
            .collect();
        if !self.rewrites.is_empty() {
            out.push(format!("Rewrite_DB={}", self.rewrites));
        }
        out
    }

    /// Returns the filter that excludes `schema.table`, as the server reports it; `None` when it
    /// passes.
    #[must_use]
    pub fn excludes(&self, schema: &str, table: &str) -> Option<String> {
        let full = format!("{schema}.{table}");
        if self.ignore_schemas.iter().any(|name| name == schema) {
            return Some(format!(
                "ignores the schema: Ignore_DB={}",
                self.ignore_schemas.join(",")
            ));
        }
        if !self.do_schemas.is_empty() && !self.do_schemas.iter().any(|name| name == schema) {
            return Some(format!(
                "passes other schemas only: Do_DB={}",
                self.do_schemas.join(",")
            ));
        }
        if self.ignore_tables.contains(&full) {
            return Some(format!(
                "ignores the table: Ignore_Table={}",
                self.ignore_tables.join(",")
            ));
        }
        if let Some(pattern) = self
            .wild_ignore_tables
            .iter()
            .find(|pattern| like(pattern, &full))
        {
            return Some(format!("ignores the table: Wild_Ignore_Table={pattern}"));
        }
        let wanted = self.do_tables.contains(&full)
            || self
                .wild_do_tables
                .iter()
                .any(|pattern| like(pattern, &full));
        let selective = !self.do_tables.is_empty() || !self.wild_do_tables.is_empty();
        if selective && !wanted {
            let named: Vec<&str> = self
                .do_tables
                .iter()
                .chain(&self.wild_do_tables)
                .map(String::as_str)
                .collect();
            return Some(format!(
                "passes other tables only: Do_Table={}",
                named.join(",")
            ));
        }
        if rewritten_schemas(&self.rewrites).any(|from| from == schema) {
            return Some(format!(
                "applies the schema under another name: Rewrite_DB={}",
                self.rewrites
            ));
        }
        None
    }
}

/// Returns the schemas that rewrite rules rename; MariaDB writes `from->to,…`, MySQL `(from,to),…`.
fn rewritten_schemas(rules: &str) -> impl Iterator<Item = &str> {
    let arrows = rules
        .split(',')
        .filter_map(|rule| rule.split_once("->").map(|(from, _)| from.trim()));
    let pairs = rules
        .split('(')
        .skip(1)
        .filter_map(|rule| rule.split_once(',').map(|(from, _)| from.trim()));
    arrows.chain(pairs)
}

/// Matches like SQL's LIKE with `%`, `_` and backslash, on bytes, as servers match table names.
#[must_use]
pub fn like(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to resume after a mismatch: after the last `%`, one byte further.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some(b'%') => {
                retry = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(b'_') => Some(1),
            Some(b'\\') if pattern.get(p + 1) == Some(&text[t]) => Some(2),
            Some(byte) if *byte == text[t] && *byte != b'\\' => Some(1),
            _ => None,
        };
        match (step, retry) {
            (Some(step), _) => {
                p += step;
                t += 1;
            }
            (None, Some((after, from))) => {
                p = after;
                t = from + 1;
                retry = Some((after, from + 1));
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'%')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn swallowed(filters: Filters) -> bool {
        filters.excludes("replimeter", "probe").is_some()
    }

    #[test]
    fn each_filter_is_applied_alone() {
        let names = |text: &str| list(text);
        assert!(!swallowed(Filters::default()));
        assert!(swallowed(Filters {
            do_schemas: names("shop"),
            ..Filters::default()
        }));
        assert!(!swallowed(Filters {
            do_schemas: names("shop,replimeter"),
            ..Filters::default()
        }));
        assert!(swallowed(Filters {
            ignore_schemas: names("replimeter"),
            ..Filters::default()
        }));
        assert!(swallowed(Filters {
            ignore_tables: names("replimeter.probe"),
            ..Filters::default()
        }));
        assert!(swallowed(Filters {
            wild_ignore_tables: names("repli%.%"),
            ..Filters::default()
        }));
        assert!(swallowed(Filters {
            wild_do_tables: names("shop.%"),
            ..Filters::default()
        }));
        assert!(!swallowed(Filters {
            do_tables: names("a.b"),
            wild_do_tables: names("replimeter.%"),
            ..Filters::default()
        }));
        for rewrites in [
            "replimeter->elsewhere",
            "a->b,replimeter->c",
            "(replimeter,elsewhere)",
            "(a,b),(replimeter,c)",
        ] {
            assert!(
                swallowed(Filters {
                    rewrites: rewrites.to_owned(),
                    ..Filters::default()
                }),
                "{rewrites}"
            );
        }
        for rewrites in ["a->replimeter", "(a,replimeter)", "(a,b)"] {
            assert!(
                !swallowed(Filters {
                    rewrites: rewrites.to_owned(),
                    ..Filters::default()
                }),
                "{rewrites}"
            );
        }
    }

    #[test]
    fn like_patterns_match_as_on_the_server() {
        for (pattern, text, want) in [
            ("a%c", "abbc", true),
            ("a_c", "abc", true),
            ("a_c", "ac", false),
            ("%", "", true),
            (r"a\_c", "abc", false),
            (r"a\_c", "a_c", true),
            ("%b%", "abc", true),
            ("a%b%c", "aXbYbZc", true),
            ("abc", "abcd", false),
        ] {
            assert_eq!(like(pattern, text), want, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn text_matches_itself_and_no_pattern_panics(text in "[a-z.]{0,20}", pattern in "[a-c%_\\\\.]{0,20}") {
            prop_assert!(like(&text, &text));
            let _ = like(&pattern, &text);
        }
    }
}
