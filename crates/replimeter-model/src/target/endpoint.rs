//! The address of a server, how to reach it, and the password that its URL may carry.

use std::{fmt, net::IpAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use url::{ParseError, Url};

use super::tls::{SslMode, TlsError, TlsOptions, switch};
use crate::{engine::EXAMPLE_URL, redact};

/// Example of the URL of a Unix socket.
const EXAMPLE_SOCKET: &str = "mysql://user@localhost/?socket=/run/mysqld/mysqld.sock";

/// Returns a hint for a URL with a user or password that cannot be parsed; empty for others.
fn advice(url: &str) -> &'static str {
    if url.starts_with(redact::HIDDEN) {
        "; percent-encode special characters of the user and password (%2F for `/`, %3F for `?`, %23 for `#`), or give the \
         password by an option file or REPLIMETER_PASSWORD"
    } else {
        ""
    }
}

/// Reason why a URL is invalid. URLs in it are [redacted](redact::url).
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EndpointError {
    /// The path of a Unix socket alone.
    #[error("a path is not a URL; write {EXAMPLE_SOCKET}")]
    Path,
    /// A Unix socket with what only TCP has.
    #[error("a Unix socket has {0}; write {EXAMPLE_SOCKET}")]
    Socket(&'static str),
    /// Not a URL at all.
    #[error("`{url}` is not a URL ({reason}); write {EXAMPLE_URL}{advice}", advice = advice(.url))]
    Syntax {
        /// The redacted text.
        url: String,
        /// The parser's message.
        reason: String,
    },
    /// An invalid character before the last `@`.
    #[error("the URL of `{0}` has a `/`, `?`, `#` or control character before its last `@`{advice}", advice = advice(.0))]
    Unencoded(String),
    /// An IPv6 address whose colons look like that of a port.
    #[error(
        "the URL of `{0}` has an IPv6 address without brackets; write mysql://user@[2001:db8::1]:3306/"
    )]
    Brackets(String),
    /// An unsupported scheme.
    #[error("the scheme of `{0}` is not supported; use mysql:// or mariadb://{advice}", advice = advice(.0))]
    Scheme(String),
    /// The host is missing.
    #[error("the URL `{0}` names no host; write {EXAMPLE_URL}{advice}", advice = advice(.0))]
    Host(String),
    /// Bytes in the user's name or password that are not UTF-8.
    #[error("the user or password in the URL of `{0}` is not valid percent-encoded UTF-8{advice}", advice = advice(.0))]
    Encoding(String),
    /// Unknown parameter after the question mark.
    #[error("unknown URL parameter `{0}`{hint}; known: {known}", hint = crate::suggest::hint(.0, PARAMETERS), known = PARAMETERS.join(", "))]
    Parameter(String),
    /// A parameter that is neither on nor off.
    #[error("`{0}` is neither true nor false; write get-server-public-key=true")]
    Switch(String),
    /// A path after the host.
    #[error("the URL names a schema (`{0}`); leave it out, only the schema `replimeter` is used")]
    Schema(String),
    /// Options of TLS that are invalid or contradict each other.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The port of a server whose URL has none.
const DEFAULT_PORT: u16 = 3306;

/// The host of a server on this machine.
const LOCAL: &str = "localhost";

/// Parameters of a URL.
const PARAMETERS: [&str; 6] = [
    "socket",
    "ssl-mode",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "get-server-public-key",
];

/// The address of one server and how to reach it, without any password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The user's name, when the URL names one.
    pub user: Option<String>,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path of the server's Unix socket, which is used instead of TCP.
    pub socket: Option<PathBuf>,
    /// Encryption and verification, and the password's protection.
    pub tls: TlsOptions,
}

/// A password; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the password, for the server.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Rejects a text whose password cannot be separated from what follows the host.
fn check_credentials(text: &str) -> Result<(), EndpointError> {
    let Some((credentials, _)) = text.rsplit_once('@') else {
        return Ok(());
    };
    let credentials = credentials
        .split_once("://")
        .map_or(credentials, |(_, credentials)| credentials);
    // Parsers ignore some control characters.
    if credentials.contains(|letter: char| matches!(letter, '/' | '?' | '#') || letter.is_control())
    {
        return Err(EndpointError::Unencoded(redact::url(text)));
    }
    Ok(())
}

fn decoded(text: &str, url: &str) -> Result<String, EndpointError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        match (first, tail) {
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_default() as u8;
                bytes.push(digit(*high) << 4 | digit(*low));
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| EndpointError::Encoding(redact::url(url)))
}

/// Returns whether the host is an IPv6 address without brackets.
fn lacks_brackets(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else {
        return false;
    };
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    host.matches(':').count() > 1 && host.bytes().all(is_part)
}

impl Endpoint {
    /// Parses a URL; returns the password, if any, separately, so
    /// that it cannot get into a report.
    ///
    /// # Errors
    /// When the text is not a `mysql://` or `mariadb://` URL with a host, or has
    /// parameters that are unknown or contradict each other.
    pub fn parse(text: &str) -> Result<(Self, Option<Secret>), EndpointError> {
        check_credentials(text)?;
        if text.starts_with('/') {
            return Err(EndpointError::Path);
        }
        if lacks_brackets(text) {
            return Err(EndpointError::Brackets(redact::url(text)));
        }
        let syntax = |error: ParseError| EndpointError::Syntax {
            url: redact::url(text),
            reason: error.to_string(),
        };
        // The parser would read the host of a web address as an international name, which it asserts to be normalized.
        let scheme = text.trim_start().split_once(':').map(|(scheme, _)| scheme);
        match scheme.map(str::to_ascii_lowercase).as_deref() {
            Some("mysql" | "mariadb") => {}
            Some(other) if other.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                return Err(EndpointError::Scheme(redact::url(text)));
            }
            _ => return Err(syntax(ParseError::RelativeUrlWithoutBase)),
        }
        let url = Url::parse(text).map_err(syntax)?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| EndpointError::Host(redact::url(text)))?;
        // `u:12/secret` can be a user and password whose host was forgotten.
        let authority = text
            .split_once("://")
            .and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
        let ambiguous =
            !text.contains('@') && authority.is_some_and(|authority| authority.contains(':'));
        let shown = |piece: &str| if ambiguous { redact::HIDDEN } else { piece }.to_owned();
        if !matches!(url.path(), "" | "/") {
            return Err(EndpointError::Schema(shown(url.path().trim_matches('/'))));
        }
        let user = Some(url.username())
            .filter(|user| !user.is_empty())
            .map(|user| decoded(user, text))
            .transpose()?;
        let password = url
            .password()
            .map(|password| decoded(password, text))
            .transpose()?
            .map(Secret::new);
        let mut endpoint = Self {
            user,
            // An IPv6 address is written in brackets in a URL, not in a socket address.
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port: url.port().unwrap_or(DEFAULT_PORT),
            socket: None,
            tls: TlsOptions::default(),
        };
        let tls = &mut endpoint.tls;
        for (key, value) in url.query_pairs() {
            let file = || Some(PathBuf::from(value.as_ref()));
            match key.as_ref() {
                "ssl-mode" => {
                    let mode = value
                        .parse()
                        .map_err(|_: TlsError| TlsError::Mode(shown(&value)))?;
                    tls.mode = Some(mode);
                }
                "ssl-ca" => tls.ca = file(),
                "ssl-cert" => tls.cert = file(),
                "ssl-key" => tls.key = file(),
                "get-server-public-key" => {
                    let on = switch(&value);
                    tls.get_server_public_key =
                        Some(on.ok_or_else(|| EndpointError::Switch(shown(&value)))?);
                }
                "socket" => endpoint.socket = file(),
                other => return Err(EndpointError::Parameter(shown(other))),
            }
        }
        tls.check()?;
        endpoint.check_socket(url.port().is_some())?;
        Ok((endpoint, password))
    }

    /// Rejects a Unix socket with what only TCP has; a socket is used without TLS.
    fn check_socket(&mut self, has_port: bool) -> Result<(), EndpointError> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let wrong = if self.host != LOCAL || has_port {
            "no host and port"
        } else if self.tls != TlsOptions::default() {
            "no encryption"
        } else if !socket.is_absolute() {
            "an absolute path"
        } else {
            self.tls.mode = Some(SslMode::Disabled);
            return Ok(());
        };
        Err(EndpointError::Socket(wrong))
    }

    /// Returns whether the address is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == LOCAL
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }

    /// Returns host and port, or the path of the socket, as errors name a server.
    #[must_use]
    pub fn address(&self) -> String {
        if let Some(socket) = &self.socket {
            socket.display().to_string()
        } else if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match self.socket {
            Some(_) => LOCAL.to_owned(),
            None => self.address(),
        };
        let text = format!("mysql://{address}/");
        let Ok(mut url) = Url::parse(&text) else {
            return f.write_str(&text);
        };
        if let Some(user) = &self.user {
            // It encodes everything but a percent sign. Fails only for URLs without a host, which this one has.
            let _ = url.set_username(&user.replace('%', "%25"));
        }
        if let Some(socket) = &self.socket {
            url.query_pairs_mut()
                .append_pair("socket", &socket.to_string_lossy());
            return f.write_str(url.as_str());
        }
        if let Some(mode) = self.tls.mode {
            url.query_pairs_mut()
                .append_pair("ssl-mode", &mode.to_string());
        }
        for (key, path) in [
            ("ssl-ca", &self.tls.ca),
            ("ssl-cert", &self.tls.cert),
            ("ssl-key", &self.tls.key),
        ] {
            if let Some(path) = path {
                url.query_pairs_mut()
                    .append_pair(key, &path.to_string_lossy());
            }
        }
        if let Some(on) = self.tls.get_server_public_key {
            url.query_pairs_mut()
                .append_pair("get-server-public-key", &on.to_string());
        }
        f.write_str(url.as_str())
    }
}

impl JsonSchema for Endpoint {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Endpoint".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A server's URL, without a password",
            "pattern": "^(mysql|mariadb)://",
            "examples": ["mysql://user@host:3306/?ssl-ca=ca.pem"]
        })
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (endpoint, password) = Self::parse(&text).map_err(D::Error::custom)?;
        if password.is_some() {
            return Err(D::Error::custom(
                "a file must not hold a URL with a password; use an option file, REPLIMETER_PASSWORD or the prompt",
            ));
        }
        Ok(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::target::SslMode;

    #[test]
    fn ipv6_address_without_brackets_is_explained() {
        for url in [
            "mysql://u@::1/",
            "mysql://u:p@2001:db8::1:3306/",
            "mysql://fe80::1",
        ] {
            let error = Endpoint::parse(url).unwrap_err();
            assert!(
                matches!(error, EndpointError::Brackets(_)),
                "{url}: {error}"
            );
            assert!(!error.to_string().contains(":p@"), "{error}");
        }
        for url in ["mysql://u@[::1]/", "mysql://u@[2001:db8::1]:3306/"] {
            assert!(Endpoint::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn web_address_is_refused_before_its_host_is_read() {
        // Found by fuzzing: this host ended a build with assertions.
        let hostile = "ws:/O\u{fffd}\0\u{fffd}/es";
        for url in [hostile, " http://h/", "WSS://Ä/", "u:p@h"] {
            let error = Endpoint::parse(url).unwrap_err();
            assert!(matches!(error, EndpointError::Scheme(_)), "{url}: {error}");
        }
        for url in ["", "h", "127.0.0.1:3306", "://h"] {
            let error = Endpoint::parse(url).unwrap_err();
            assert!(
                matches!(error, EndpointError::Syntax { .. }),
                "{url}: {error}"
            );
        }
        assert!(Endpoint::parse("MySQL://h").is_ok());
    }

    #[test]
    fn reads_a_full_url_and_keeps_the_password_apart() {
        let (endpoint, password) = Endpoint::parse(
            "mysql://dba:p%40ss@db.example:3307/?ssl-mode=verify-ca&ssl-ca=/etc/ca.pem",
        )
        .unwrap();
        assert_eq!(password.unwrap().reveal(), "p@ss");
        assert_eq!(endpoint.user.as_deref(), Some("dba"));
        assert_eq!(endpoint.address(), "db.example:3307");
        assert_eq!(endpoint.tls.mode(), SslMode::VerifyCa);
        assert!(!endpoint.to_string().contains("ss@db"), "{endpoint}");
    }

    #[test]
    fn socket_is_a_local_address_without_tls() {
        let (endpoint, password) = Endpoint::parse("mysql://u:p@localhost/?socket=/s").unwrap();
        assert_eq!(password.unwrap().reveal(), "p");
        assert_eq!(endpoint.address(), "/s");
        assert!(endpoint.is_loopback());
        assert_eq!(endpoint.tls.mode(), SslMode::Disabled);
        assert_eq!(endpoint.to_string(), "mysql://u@localhost/?socket=%2Fs");
    }

    #[test]
    fn hosts_beyond_ascii_need_no_tables_of_names() {
        let (endpoint, _) = Endpoint::parse("mysql://bücher.example/").unwrap();
        assert_eq!(endpoint.host, "b%C3%BCcher.example");
    }

    #[test]
    fn prints_what_it_reads() {
        for text in [
            "mysql://h:3306/",
            "mysql://u@[::1]:3307/?ssl-mode=required",
            "mysql://a%2Fb@h:1/?ssl-mode=verify-ca&ssl-ca=%2Fx",
            "mysql://a%2541@h:1/",
            "mysql://h:1/?ssl-ca=%2Fx&get-server-public-key=false",
            "mysql://root@localhost/?socket=/run/a b.sock",
        ] {
            let (endpoint, _) = Endpoint::parse(text).unwrap();
            assert_eq!(
                Endpoint::parse(&endpoint.to_string()).unwrap().0,
                endpoint,
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_with_the_reason() {
        for (text, want) in [
            ("localhost", "not a URL"),
            (
                "/run/mysqld/mysqld.sock",
                "write mysql://user@localhost/?socket=",
            ),
            ("mysql://u@h/?socket=/x", "has no host and port; write"),
            ("mysql://u@localhost:1/?socket=/x", "no host and port"),
            ("mysql://u@localhost/?socket=x", "an absolute path"),
            ("mysql://u@localhost/?socket=", "an absolute path"),
            (
                "mysql://localhost/?socket=/x&ssl-mode=required",
                "no encryption",
            ),
            ("postgres://h/", "not supported"),
            ("mysql://h/app", "names a schema"),
            ("mysql://h/?sslmode=x", "unknown URL parameter"),
            ("mysql://h/?ssl-mode=maybe", "unknown ssl-mode"),
            ("mysql://h/?ssl-cert=a", "belong together"),
            ("mysql://h/?ssl-mode=required&ssl-ca=a", "does not verify"),
            (
                "mysql://h/?get-server-public-key=maybe",
                "neither true nor false",
            ),
        ] {
            let error = Endpoint::parse(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn errors_do_not_repeat_the_password() {
        for text in [
            "mysql://u:hunter2@h:99999/",
            "mysql://u:12/hunter2@h/",
            "mysql://u:12?hunter2@h/",
            "mysql://u:12?ssl-mode=hunter2@h/",
            "mysql://u:12#hunter2@h/",
            "mysql://u:12@#hunter2@h/",
            "mysql://u:1\thunter2@h/",
            "mysql://u:%ffhunter2@h/",
            "mysql://u:hunter2@/",
            "mysql:u:hunter2@h",
            "u:hunter2@h",
            "u/x:hunter2@h",
        ] {
            let error = Endpoint::parse(text).unwrap_err().to_string();
            assert!(
                !error.contains("hunter2")
                    && error.contains("percent-encode")
                    && error.contains("option file"),
                "{error}"
            );
        }
        for text in [
            "mysql://u:hunter2",
            "mysql://u:12/hunter2",
            "mysql://u:12?hunter2",
            "mysql://u:12/?ssl-mode=hunter2",
        ] {
            let error = Endpoint::parse(text).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(!format!("{:?}", Secret::new("hunter2")).contains("hunter2"));
    }

    #[test]
    fn every_character_of_a_password_is_read_or_refused() {
        let encoded =
            |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
        let letters = (1..0x100u32).chain([0x20ac, 0x3000, 0x1f600]);
        for letter in letters.filter_map(char::from_u32) {
            for password in [format!("{letter}hunter2{letter}"), letter.to_string()] {
                let url = format!("mysql://u:{}@h/", encoded(&password));
                let read = Endpoint::parse(&url).unwrap().1;
                assert_eq!(read.unwrap().reveal(), password);
                // As it is: the same, or an error that does not repeat it.
                match Endpoint::parse(&format!("mysql://u:{password}@h/")) {
                    Ok((_, read)) => assert_eq!(read.unwrap().reveal(), password),
                    Err(error) => {
                        let error = error.to_string();
                        assert!(
                            !error.contains("hunter2") && error.contains("percent-encode"),
                            "{password:?}: {error}"
                        );
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_url_panics(text in "(mysql://)?\\PC{0,60}") {
            let _ = Endpoint::parse(&text);
        }
    }
}
