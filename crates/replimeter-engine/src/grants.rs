//! Privileges of a user, read from `SHOW GRANTS`.

use crate::filter::like;

/// The scope of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// `*.*`
    Server,
    /// `` `schema`.* ``; the name is a LIKE pattern.
    Schema(String),
    /// `` `schema`.`table` ``
    Table(String, String),
}

/// One line of `SHOW GRANTS`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GrantLine {
    revoke: bool,
    privileges: Vec<String>,
    scope: Scope,
}

/// A user's privileges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    lines: Vec<GrantLine>,
}

impl Grants {
    /// Parses the lines of `SHOW GRANTS`. Lines that grant nothing on tables (roles, proxies,
    /// routines) are skipped.
    #[must_use]
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            lines: lines.into_iter().filter_map(parse_line).collect(),
        }
    }

    /// Returns whether the user has `privilege` on every table of `schema`, or on its table
    /// `table`.
    #[must_use]
    pub fn has(&self, privilege: &str, schema: &str, table: &str) -> bool {
        let applies = |line: &&GrantLine| match &line.scope {
            Scope::Server => true,
            Scope::Schema(pattern) => like(pattern, schema),
            Scope::Table(of, name) => of == schema && name == table,
        };
        let names = |line: &GrantLine| {
            line.privileges
                .iter()
                .any(|name| name == privilege || name == "ALL PRIVILEGES" || name == "ALL")
        };
        let granted = self
            .lines
            .iter()
            .filter(applies)
            .any(|line| !line.revoke && names(line));
        // MySQL's partial revokes exclude a schema from a server-wide grant.
        let revoked = self
            .lines
            .iter()
            .filter(applies)
            .any(|line| line.revoke && names(line));
        let again = self
            .lines
            .iter()
            .filter(applies)
            .any(|line| !line.revoke && line.scope != Scope::Server && names(line));
        granted && (!revoked || again)
    }

    /// Returns those of `privileges` that the user lacks on `schema.table`.
    #[must_use]
    pub fn missing<'p>(&self, privileges: &[&'p str], schema: &str, table: &str) -> Vec<&'p str> {
        privileges
            .iter()
            .copied()
            .filter(|privilege| !self.has(privilege, schema, table))
            .collect()
    }
}

/// Splits `text` at the first `separator` outside of quotes and parentheses.
fn split_outside<'t>(text: &'t str, separator: &str) -> Option<(&'t str, &'t str)> {
    let mut quote = None;
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if byte == open => {
                quote = None;
            }
            (None, b'`' | b'\'' | b'"') => quote = Some(byte),
            (None, b'(') => depth += 1,
            (None, b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if quote.is_none()
            && depth == 0
            && text.is_char_boundary(at)
            && text[at..].starts_with(separator)
        {
            return Some((&text[..at], &text[at + separator.len()..]));
        }
    }
    None
}

fn parse_line(line: &str) -> Option<GrantLine> {
    let (revoke, rest) = match line.strip_prefix("GRANT ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("REVOKE ")?),
    };
    let (mut privileges, rest) = split_outside(rest, " ON ")?;
    let (object, _) = split_outside(rest, if revoke { " FROM " } else { " TO " })?;
    let scope = parse_scope(
        object
            .trim()
            .strip_prefix("TABLE ")
            .unwrap_or(object.trim()),
    )?;
    let mut names = Vec::new();
    loop {
        let (one, after) = split_outside(privileges, ",")
            .map_or((privileges, None), |(one, after)| (one, Some(after)));
        // A privilege on some columns does not count for the table.
        if !one.contains('(') {
            names.push(one.trim().to_ascii_uppercase());
        }
        match after {
            Some(after) => privileges = after,
            None => break,
        }
    }
    Some(GrantLine {
        revoke,
        privileges: names,
        scope,
    })
}

fn parse_scope(object: &str) -> Option<Scope> {
    if object == "*.*" {
        return Some(Scope::Server);
    }
    let (schema, table) = split_outside(object, ".")?;
    let schema = unquoted(schema)?;
    if table == "*" {
        Some(Scope::Schema(schema))
    } else {
        Some(Scope::Table(schema, unquoted(table)?))
    }
}

fn unquoted(name: &str) -> Option<String> {
    // Names are in double quotes with sql_mode=ANSI_QUOTES, and in none with sql_quote_show_create=0.
    match name.chars().next() {
        Some(quote @ ('`' | '"')) => {
            let inner = name.strip_prefix(quote)?.strip_suffix(quote)?;
            Some(inner.replace(&format!("{quote}{quote}"), &quote.to_string()))
        }
        _ if name.contains([' ', '@', '\'']) => None,
        _ => Some(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn has(lines: &[&str], privilege: &str) -> bool {
        Grants::parse(lines.iter().copied()).has(privilege, "replimeter", "probe")
    }

    #[test]
    fn grants_are_checked_at_every_scope() {
        assert!(has(
            &["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"],
            "CREATE"
        ));
        assert!(has(
            &["GRANT SELECT, INSERT ON `replimeter`.* TO `u`@`%`"],
            "INSERT"
        ));
        assert!(!has(
            &["GRANT SELECT, INSERT ON `replimeter`.* TO `u`@`%`"],
            "CREATE"
        ));
        assert!(!has(
            &["GRANT ALL PRIVILEGES ON `shop`.* TO `u`@`%`"],
            "SELECT"
        ));
        assert!(has(
            &["GRANT SELECT ON `replimeter`.`probe` TO `u`@`%`"],
            "SELECT"
        ));
        assert!(!has(
            &["GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*AB ON `replimeter`.* TO '"],
            "SELECT"
        ));
    }

    #[test]
    fn grant_patterns_columns_roles_and_revokes_are_read() {
        assert!(has(&[r"GRANT DROP ON `repli%`.* TO `u`@`%`"], "DROP"));
        assert!(!has(
            &["GRANT SELECT (`a`, `b`) ON `replimeter`.`probe` TO `u`@`%`"],
            "SELECT"
        ));
        assert!(!has(
            &[
                "GRANT `SELECT`@`%` TO `u`@`%`",
                "GRANT PROXY ON ''@'%' TO 'root'@'localhost'"
            ],
            "SELECT"
        ));
        assert!(!has(
            &[
                "GRANT CREATE ON *.* TO `u`@`%`",
                "REVOKE CREATE ON `replimeter`.* FROM `u`@`%`"
            ],
            "CREATE"
        ));
        assert!(has(
            &[
                "GRANT CREATE ON *.* TO `u`@`%`",
                "REVOKE CREATE ON `shop`.* FROM `u`@`%`"
            ],
            "CREATE"
        ));
    }

    #[test]
    fn grants_are_read_with_every_quote_of_names() {
        for line in [
            "GRANT SELECT, INSERT ON `replimeter`.* TO `u`@`%`",
            r#"GRANT SELECT, INSERT ON "replimeter".* TO "u"@"%""#,
            "GRANT SELECT, INSERT ON replimeter.* TO u@%",
            r#"GRANT SELECT, INSERT ON "repli%".* TO "u ON `x`"@"%""#,
            r#"GRANT INSERT ON "replimeter"."probe" TO "u"@"%""#,
        ] {
            assert!(has(&[line], "INSERT"), "{line}");
        }
        let odd = Grants::parse([r#"GRANT SELECT ON "a"".`b".* TO "u"@"%""#]);
        assert!(odd.has("SELECT", "a\".`b", "t"));
    }

    #[test]
    fn missing_privileges_are_listed_in_order() {
        let grants = Grants::parse(["GRANT SELECT ON `replimeter`.* TO `u`@`%`"]);
        assert_eq!(
            grants.missing(&["CREATE", "SELECT", "DROP"], "replimeter", "probe"),
            ["CREATE", "DROP"]
        );
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "(GRANT |REVOKE )?[A-Z`'\"(), .*@é]{0,60}( ON )?[`a-z.*]{0,20}( TO | FROM )?\\PC{0,10}") {
            let _ = has(&[&line], "SELECT");
        }
    }
}
