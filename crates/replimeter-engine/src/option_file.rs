//! MySQL option files (`~/.my.cnf`): user, password and TLS for the client.

use std::{
    borrow::Cow,
    fs::{self, File},
    io::Read as _,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use replimeter_model::target::{Secret, SslMode, TlsOptions, switch};

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
    /// What the file says about TLS.
    pub tls: Tls,
    /// Files with a password that every user may read.
    pub exposed: Vec<PathBuf>,
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
/// When a file cannot be read, has a broken group, or every user can write to it.
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
    let mut file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    // Pipes have no permissions of their own.
    let mode = if meta.is_file() { meta.mode() } else { 0 };
    if mode & 0o002 != 0 {
        return Err(OptionFileError::Writable {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Credentials {
        let mut credentials = Credentials::default();
        parse(text.as_bytes(), Path::new("/my.cnf"), &mut credentials).unwrap();
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
    fn values_are_those_of_the_stock_client() {
        for (value, want) in [
            ("a b ", "a b"),
            ("a;b", "a;b"),
            ("a # comment", "a"),
            ("it's#one # word", "it's#one # word"),
            ("\"a\"b\"", "a\"b"),
            ("\"it's\"", "it's"),
            ("'a' # comment", "a"),
            ("\"open", "\"open"),
            ("'", "'"),
            ("'\\'#'", "'#"),
            ("\\sa\\tb\\\\c\\q\\", " a\tb\\c\\q\\"),
            ("\u{a0}a\u{3000}", "\u{a0}a\u{3000}"),
            ("a=b", "a=b"),
        ] {
            let read = parsed(&format!("[client]\npassword = {value}\n"));
            let read = read.password.unwrap();
            assert_eq!(read.value.reveal(), want, "{value}");
        }
    }

    #[test]
    fn ambiguous_passwords_are_refused() {
        for (line, want) in [
            (b"password=hunter2#3".as_slice(), "begins a comment"),
            (b"user='hunter2'#3", "begins a comment"),
            (b"password=hunter2\xff", "not UTF-8"),
        ] {
            let text = [b"[client]\n# \xe4\n", line].concat();
            let error = parse(&text, Path::new("/my.cnf"), &mut Credentials::default());
            let (at, reason) = error.unwrap_err();
            assert_eq!(at, 3);
            assert!(reason.contains(want), "{reason}");
        }
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
    fn tls_options_mean_what_they_mean_to_the_client_tools() {
        use SslMode::{Disabled, Preferred, Required, VerifyCa, VerifyIdentity};
        for (lines, mode) in [
            ("", Preferred),
            ("ssl-mode=VERIFY_IDENTITY", VerifyIdentity),
            ("loose_ssl_mode=verify_ca", VerifyCa),
            ("ssl_mode=PREFERRED\nssl", Required),
            ("ssl-mode=DISABLED", Disabled),
            ("ssl-ca=/ca", VerifyIdentity),
            ("ssl\nssl-ca=/ca # ours", VerifyIdentity),
            ("ssl=1", Required),
            ("ssl # encrypt", Required),
            ("skip-ssl", Disabled),
            ("ssl=OFF", Disabled),
            ("ssl=0\nssl-mode=VERIFY_IDENTITY", VerifyIdentity),
            ("ssl-verify-server-cert", VerifyIdentity),
            ("ssl-verify-server-cert=TRUE\nssl", VerifyIdentity),
            ("disable-ssl-verify-server-cert", Preferred),
            ("skip_ssl_verify_server_cert\nssl", Required),
            ("skip-ssl\nskip-ssl-verify-server-cert", Disabled),
            ("ssl-mode=VERIFY_IDENTITY\nssl-ca=", VerifyIdentity),
            ("tls-version=TLSv1.2,TLSv1.3", Preferred),
        ] {
            let options = parsed(&format!("[client]\n{lines}")).tls.options();
            assert_eq!(options.map(|options| options.mode()), Ok(mode), "{lines}");
        }
        let options = parsed(
            "[client]\nssl-cert=/c\nssl-key='/k #1'\nssl-ca=/a\n[mysqld]\nssl-ca=/server\n[replimeter]\nssl-ca=/b\nget-server-public-key",
        );
        assert_eq!(
            options.tls.options().unwrap(),
            TlsOptions {
                mode: None,
                ca: Some("/b".into()),
                cert: Some("/c".into()),
                key: Some("/k #1".into()),
                get_server_public_key: Some(true),
            }
        );
    }

    #[test]
    fn tls_options_that_cannot_be_honored_are_refused() {
        for (lines, want) in [
            (
                "ssl-capath=/etc/ssl",
                "/my.cnf, line 2: Replimeter does not",
            ),
            ("ssl-crl=/crl", "does not support"),
            ("ssl-cipher=secret", "does not support"),
            ("tls-version=TLSv1.3", "does not support"),
            ("tls_fp=secret", "does not support"),
            ("ssl-verify=1", "does not support"),
            ("ssl-mode=secret", "unknown ssl-mode"),
            ("ssl=secret", "neither on nor off"),
            ("ssl-key=/secret", "belong together"),
            ("ssl-ca=/secret\nssl-mode=REQUIRED", "does not verify"),
            ("ssl-ca=/secret\nskip-ssl", "does not verify"),
            (
                "ssl-ca=/secret\nssl-verify-server-cert=0",
                "does not verify",
            ),
        ] {
            let refused = parsed(&format!("[client]\n{lines}")).tls.options();
            let refused = refused.unwrap_err();
            assert!(
                refused.contains(want) && !refused.contains("secret"),
                "{lines}: {refused}"
            );
        }
    }

    #[test]
    fn parse_error_names_line_without_its_text() {
        let file = Path::new("/my.cnf");
        let text = "[client\npassword=hunter2";
        let error = parse(text.as_bytes(), file, &mut Credentials::default()).unwrap_err();
        assert_eq!(error.0, 1);
    }

    #[test]
    fn permissions_of_option_files_are_checked() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.cnf");
        let read_as = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read(&path).map(|found| found.exposed.len())
        };
        let secret = "[client]\npassword=secret\n";
        assert_eq!(read_as(secret, 0o600).unwrap(), 0);
        assert_eq!(read_as(secret, 0o644).unwrap(), 1);
        assert_eq!(read_as("[client]\nuser=me\n", 0o644).unwrap(), 0);
        let refused = read_as(secret, 0o602).unwrap_err();
        assert!(matches!(refused, OptionFileError::Writable { .. }));
    }

    #[test]
    fn include_directives_are_followed() {
        let includes = parse(
            b"!includedir /etc/x.d\n!include /etc/y.cnf",
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
        fn every_quoted_password_is_read(password in "\\PC{0,20}|[ '\"\\\\#;=a]{0,12}") {
            let quoted: String = password
                .chars()
                .flat_map(|letter| matches!(letter, '"' | '\'' | '\\').then_some('\\').into_iter().chain([letter]))
                .collect();
            let read = parsed(&format!("[client]\npassword=\"{quoted}\"\n"));
            assert_eq!(read.password.unwrap().value.reveal(), password);
        }

        #[test]
        fn no_file_panics(text in "(\\[client\\]\n)?[a-z='\"\\\\# \n\\[\\]é]{0,80}") {
            let _ = parse(text.as_bytes(), Path::new("/my.cnf"), &mut Credentials::default());
        }
    }
}
