//! MySQL option files (`~/.my.cnf`): user, password and TLS for the client.

use std::{
    borrow::Cow,
    fs::{self, File},
    io::Read as _,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use replimeter_model::target::{Secret, SslMode, TlsOptions, switch};

/// The environment variable in which the stock client looks for a password.
pub const PASSWORD_VARIABLE: &str = "MYSQL_PWD";
/// Groups that Replimeter reads; a later one overrides an earlier one.
pub const GROUPS: [&str; 4] = ["client", "client-server", "client-mariadb", "replimeter"];
/// Maximum depth of includes.
const MAX_DEPTH: usize = 10;
/// Maximum number of files that are read: one that includes itself twice would be read a thousand times.
const MAX_FILES: usize = 100;
/// Maximum bytes of a file.
const MAX_BYTES: u64 = 1 << 20;

/// Credentials from an option file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: Option<Entry<String>>,
    /// The password.
    pub password: Option<Entry<Secret>>,
    /// What the file says about TLS.
    pub tls: Tls,
    /// Files with a password that every user may read.
    pub exposed: Vec<PathBuf>,
    /// Why files that others include could not be read. The stock client skips them too.
    pub skipped: Vec<String>,
}

/// What an option file says about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    options: TlsOptions,
    /// `ssl` and `ssl-verify-server-cert`.
    on: Option<bool>,
    verify: Option<bool>,
    /// The first option that cannot be honored, as a message.
    refused: Option<String>,
}

impl Tls {
    /// Returns the options in effect. Of several that state how far to verify, the strictest counts.
    ///
    /// # Errors
    /// A message without any value when an option cannot be honored, or two contradict each other.
    pub fn options(&self) -> Result<TlsOptions, String> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let mut options = self.options.clone();
        let stated = options
            .mode
            .max((self.verify == Some(true)).then_some(SslMode::VerifyIdentity));
        options.mode = match (stated, self.on) {
            (None, Some(false)) => Some(SslMode::Disabled),
            (None, Some(true)) if options.ca.is_none() || self.verify.is_some() => {
                Some(SslMode::Required)
            }
            (None, None) if self.verify.is_some() => Some(SslMode::Preferred),
            (Some(mode), Some(true)) => Some(mode.max(SslMode::Required)),
            // An authority alone verifies the identity.
            (stated, _) => stated,
        };
        options.check().map_err(|error| error.to_string())?;
        Ok(options)
    }

    /// Takes over an option by its name, if it is about TLS. Texts of the file are not repeated, because they may be
    /// a password.
    fn set(&mut self, name: &str, value: &str, at: &str) {
        let path = || Some(PathBuf::from(value)).filter(|path| !path.as_os_str().is_empty());
        let refused = &mut self.refused;
        let mut refuse = |reason: &str| {
            refused.get_or_insert_with(|| format!("{at}: {reason}"));
        };
        let mut flag = |flag: &mut Option<bool>| match switch(value) {
            Some(value) => *flag = Some(value),
            None => refuse("the value is neither on nor off"),
        };
        match name {
            "ssl" => flag(&mut self.on),
            "ssl-verify-server-cert" => flag(&mut self.verify),
            "get-server-public-key" => flag(&mut self.options.get_server_public_key),
            "ssl-ca" => self.options.ca = path(),
            "ssl-cert" => self.options.cert = path(),
            "ssl-key" => self.options.key = path(),
            "ssl-mode" => match value.parse() {
                Ok(mode) => self.options.mode = Some(mode),
                Err(_) => refuse("unknown ssl-mode"),
            },
            // Both versions that the driver can speak.
            "tls-version" if TLS_VERSIONS.iter().all(|version| value.contains(version)) => {}
            // Resumed sessions only save time.
            _ if name.starts_with("ssl-session-data") => {}
            _ if name.starts_with("ssl") || name.starts_with("tls-") => {
                refuse("Replimeter does not support this option of TLS");
            }
            _ => {}
        }
    }
}

/// Versions of TLS that the driver uses; it cannot be limited to one.
const TLS_VERSIONS: [&str; 2] = ["TLSv1.2", "TLSv1.3"];

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
    /// Every user can write to it, and so choose the password and the servers' authority. The stock client ignores it.
    #[error("cannot use the option file {}: every user can write to it", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
    },
    /// It is too large, or endless.
    #[error("cannot use the option file {}: it has more than 1 MiB", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It includes too many files, such as itself several times.
    #[error("cannot use the option file {}: with what it includes, {MAX_FILES} files are read before it ends", path.display())]
    TooManyFiles {
        /// The file that the user named.
        path: PathBuf,
    },
    /// A group without its closing bracket, or a user or password that could be read in two ways; other invalid lines
    /// are skipped, as the stock client does for options it does not have.
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
/// When the file or an included folder cannot be read, a file is too large, has a broken group, or every user can write to it; or when
/// there are too many.
pub fn read(path: &Path) -> Result<Credentials, OptionFileError> {
    let mut credentials = Credentials::default();
    match read_into(path, 0, &mut 0, &mut credentials) {
        Err(OptionFileError::TooManyFiles { .. }) => {
            let path = path.to_owned();
            Err(OptionFileError::TooManyFiles { path })
        }
        read => read.map(|()| credentials),
    }
}

/// Reads a file and those it includes; `files` were read before.
fn read_into(
    path: &Path,
    depth: usize,
    files: &mut usize,
    credentials: &mut Credentials,
) -> Result<(), OptionFileError> {
    *files += 1;
    if *files > MAX_FILES {
        let path = path.to_owned();
        return Err(OptionFileError::TooManyFiles { path });
    }
    let failed = |source| OptionFileError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    // Pipes have no permissions of their own.
    let mode = if meta.is_file() { meta.mode() } else { 0 };
    if mode & 0o002 != 0 {
        return Err(OptionFileError::Writable {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    if read.map_err(failed)? as u64 > MAX_BYTES {
        return Err(OptionFileError::TooLarge {
            path: path.to_owned(),
        });
    }
    let includes =
        parse(&bytes, path, credentials).map_err(|(line, reason)| OptionFileError::Syntax {
            path: path.to_owned(),
            line,
            reason,
        })?;
    let is_here = |entry: &Entry<Secret>| entry.file == path && !entry.value.reveal().is_empty();
    if mode & 0o004 != 0 && credentials.password.as_ref().is_some_and(is_here) {
        credentials.exposed.push(path.to_owned());
    }
    if depth >= MAX_DEPTH {
        return Ok(());
    }
    for include in includes {
        match include {
            Include::File(file) => match read_into(&file, depth + 1, files, credentials) {
                Err(error @ OptionFileError::Read { .. }) => {
                    credentials.skipped.push(error.to_string());
                }
                read => read?,
            },
            Include::Folder(folder) => {
                let entries = fs::read_dir(&folder).map_err(|source| OptionFileError::Read {
                    path: folder.clone(),
                    source,
                })?;
                let mut names: Vec<PathBuf> = entries
                    .filter_map(Result::ok)
                    .map(|entry| entry.path())
                    .collect();
                names.retain(|file| file.extension().is_some_and(|extension| extension == "cnf"));
                names.sort();
                for file in names {
                    read_into(&file, depth + 1, files, credentials)?;
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
    bytes: &[u8],
    file: &Path,
    credentials: &mut Credentials,
) -> Result<Vec<Include>, (usize, &'static str)> {
    // Other encodings may be in comments and values that are not used.
    let text = String::from_utf8_lossy(bytes);
    let lossy = matches!(text, Cow::Owned(_));
    let mut ours = false;
    let mut includes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_matches(white);
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
        } else if ours {
            let (name, value, glued) = option(line);
            // Clients without an option skip it if it has this prefix.
            let name = name.strip_prefix("loose-").unwrap_or(&name);
            if let ("user" | "password", Some(value)) = (name, &value) {
                if glued {
                    return Err((
                        index + 1,
                        "a `#` begins a comment: put the value in quotes, or a space before the comment",
                    ));
                }
                if lossy && value.contains(char::REPLACEMENT_CHARACTER) {
                    return Err((index + 1, "the value is not UTF-8"));
                }
            }
            match (name, value) {
                ("user", Some(value)) => {
                    let file = file.to_owned();
                    credentials.user = Some(Entry { value, file });
                }
                ("password", Some(value)) => {
                    let (value, file) = (Secret::new(value), file.to_owned());
                    credentials.password = Some(Entry { value, file });
                }
                (name, value) => {
                    let off = ["skip-", "disable-"].map(|prefix| name.strip_prefix(prefix));
                    let (name, value) = match off.into_iter().flatten().next() {
                        Some(name) => (name, "0".to_owned()),
                        None => {
                            let name = name.strip_prefix("enable-").unwrap_or(name);
                            (name, value.unwrap_or_default())
                        }
                    };
                    let at = format!("{}, line {}", file.display(), index + 1);
                    credentials.tls.set(name, &value, &at);
                }
            }
        }
    }
    Ok(includes)
}

/// Returns an option's name with dashes, as the stock client writes it, and its value without quotes, escapes and
/// comment; whether a comment follows the value without a space between.
fn option(line: &str) -> (String, Option<String>, bool) {
    let length = comment(line);
    let glued = length < line.len() && !line[..length].ends_with(white);
    let line = line[..length].trim_end_matches(white);
    let name = |name: &str| name.trim_end_matches(white).replace('_', "-");
    let Some((before, value)) = line.split_once('=') else {
        return (name(line), None, glued);
    };
    let value = value.trim_start_matches(white);
    let inner = ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    (name(before), Some(unescaped(inner.unwrap_or(value))), glued)
}

/// Returns whether the stock client removes the character from both ends; others may be a password's.
fn white(letter: char) -> bool {
    matches!(letter, ' ' | '\t'..='\r')
}

/// Returns where a comment begins: at the first hash outside of quotes, which may be anywhere.
fn comment(line: &str) -> usize {
    let (mut quote, mut escaped) = (None, false);
    for (at, letter) in line.char_indices() {
        match quote {
            None if letter == '#' => return at,
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            Some(open) if open == letter && !escaped => quote = None,
            _ => {}
        }
        escaped = quote.is_some() && letter == '\\' && !escaped;
    }
    line.len()
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
mod tests;
