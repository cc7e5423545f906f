//! MySQL option files (`~/.my.cnf`): user and password for the client.

use std::{
    fs,
    path::{Path, PathBuf},
};

use replimeter_model::target::Secret;

/// Groups that Replimeter reads; a later one overrides an earlier one.
pub const GROUPS: [&str; 4] = ["client", "client-server", "client-mariadb", "replimeter"];
/// Maximum depth of includes.
const MAX_DEPTH: usize = 10;

/// Credentials from an option file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: Option<Entry<String>>,
    /// The password.
    pub password: Option<Entry<Secret>>,
}

/// A value from an option file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// The value.
    pub value: T,
    /// The file with it, which another one may include.
    pub file: PathBuf,
}

/// Why an option file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionFileError {
    /// It could not be read.
    #[error("cannot read the option file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A group without its closing bracket; other invalid lines are skipped, as the stock client
    /// does for options it does not have.
    #[error("{}, line {line}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault; never the line itself, which may contain a password.
        reason: &'static str,
    },
}

/// Reads an option file and those it includes.
///
/// # Errors
/// When a file cannot be read or has a broken group.
pub fn read(path: &Path) -> Result<Credentials, OptionFileError> {
    let mut credentials = Credentials::default();
    read_into(path, 0, &mut credentials)?;
    Ok(credentials)
}

fn read_into(
    path: &Path,
    depth: usize,
    credentials: &mut Credentials,
) -> Result<(), OptionFileError> {
    let failed = |source| OptionFileError::Read {
        path: path.to_owned(),
        source,
    };
    let bytes = fs::read(path).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let includes =
        parse(&text, path, credentials).map_err(|(line, reason)| OptionFileError::Syntax {
            path: path.to_owned(),
            line,
            reason,
        })?;
    if depth >= MAX_DEPTH {
        return Ok(());
    }
    for include in includes {
        match include {
            Include::File(file) => read_into(&file, depth + 1, credentials)?,
            Include::Folder(folder) => {
                let entries = fs::read_dir(&folder).map_err(|source| OptionFileError::Read {
                    path: folder.clone(),
                    source,
                })?;
                let mut files: Vec<PathBuf> = entries
                    .filter_map(Result::ok)
                    .map(|entry| entry.path())
                    .collect();
                files.retain(|file| file.extension().is_some_and(|extension| extension == "cnf"));
                files.sort();
                for file in files {
                    read_into(&file, depth + 1, credentials)?;
                }
            }
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Include {
    File(PathBuf),
    Folder(PathBuf),
}

fn parse(
    text: &str,
    file: &Path,
    credentials: &mut Credentials,
) -> Result<Vec<Include>, (usize, &'static str)> {
    let mut ours = false;
    let mut includes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(folder) = line.strip_prefix("!includedir") {
            includes.push(Include::Folder(folder.trim().into()));
        } else if let Some(file) = line.strip_prefix("!include") {
            includes.push(Include::File(file.trim().into()));
        } else if let Some(group) = line.strip_prefix('[') {
            let name = group
                .split(']')
                .next()
                .filter(|_| group.contains(']'))
                .ok_or((index + 1, "the group has no closing bracket"))?;
            ours = GROUPS.contains(&name.trim());
        } else if let Some((name, value)) = option(line)
            && ours
        {
            match name.as_str() {
                "user" => {
                    let file = file.to_owned();
                    credentials.user = Some(Entry { value, file });
                }
                "password" => {
                    let (value, file) = (Secret::new(value), file.to_owned());
                    credentials.password = Some(Entry { value, file });
                }
                _ => {}
            }
        }
    }
    Ok(includes)
}

/// Returns an option's name (dashes as written by the stock client) and its value without quotes,
/// escapes and a trailing comment.
fn option(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let value = value.trim();
    let quote = value
        .chars()
        .next()
        .filter(|first| matches!(first, '"' | '\''));
    let body = match quote {
        Some(quote) => {
            let inner = &value[1..];
            &inner[..closing(inner, quote).unwrap_or(inner.len())]
        }
        // In an unquoted value, a comment begins at a hash after white space.
        None => value
            .split(" #")
            .next()
            .unwrap_or(value)
            .split("\t#")
            .next()
            .unwrap_or(value)
            .trim_end(),
    };
    Some((name.trim().replace('_', "-"), unescaped(body)))
}

fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            found if found == quote => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('b') => out.push('\u{8}'),
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('s') => out.push(' '),
            Some('\\') => out.push('\\'),
            Some(quote @ ('"' | '\'')) => out.push(quote),
            // The stock client keeps the backslash of an unknown escape.
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Credentials {
        let mut credentials = Credentials::default();
        parse(text, Path::new("/my.cnf"), &mut credentials).unwrap();
        credentials
    }

    #[test]
    fn option_file_syntax_is_read() {
        let credentials = parsed(
            "password=outside\n[mysqld]\nuser=mysql\n[client]\nuser = dba # who\npassword = \"a#b\\\"c\\s\" # secret\n",
        );
        let (user, password) = (credentials.user.unwrap(), credentials.password.unwrap());
        assert_eq!(
            (user.value.as_str(), user.file.as_path()),
            ("dba", Path::new("/my.cnf"))
        );
        assert_eq!(password.value.reveal(), "a#b\"c ");
    }

    #[test]
    fn hash_in_unquoted_password_is_kept() {
        assert_eq!(
            parsed("[client]\npassword=a#b")
                .password
                .unwrap()
                .value
                .reveal(),
            "a#b"
        );
    }

    #[test]
    fn replimeter_group_overrides_client_group() {
        assert_eq!(
            parsed("[client]\nuser=a\n[replimeter]\nuser=b")
                .user
                .unwrap()
                .value,
            "b"
        );
    }

    #[test]
    fn parse_error_names_line_without_its_text() {
        let file = Path::new("/my.cnf");
        let text = "[client\npassword=hunter2";
        let error = parse(text, file, &mut Credentials::default()).unwrap_err();
        assert_eq!(error.0, 1);
    }

    #[test]
    fn include_directives_are_followed() {
        let includes = parse(
            "!includedir /etc/x.d\n!include /etc/y.cnf",
            Path::new("/my.cnf"),
            &mut Credentials::default(),
        )
        .unwrap();
        assert_eq!(
            includes,
            [
                Include::Folder("/etc/x.d".into()),
                Include::File("/etc/y.cnf".into())
            ]
        );
    }

    proptest! {
        #[test]
        fn no_file_panics(text in "(\\[client\\]\n)?[a-z='\"\\\\# \n\\[\\]é]{0,80}") {
            let _ = parse(&text, Path::new("/my.cnf"), &mut Credentials::default());
        }
    }
}
