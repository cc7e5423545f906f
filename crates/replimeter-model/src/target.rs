//! What is measured: a sandbox of ours, or servers of the user's.

use std::{collections::BTreeMap, fmt, net::IpAddr, path::PathBuf, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use url::Url;

use crate::sandbox::{SandboxName, SandboxSpec};

/// How a connection is encrypted and whom it trusts; the names are MySQL's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// No TLS.
    Disabled,
    /// TLS when the server offers it, unverified; plain text otherwise.
    #[default]
    Preferred,
    /// TLS, server not verified.
    Required,
    /// TLS, certificate signed by a trusted authority.
    VerifyCa,
    /// As `verify-ca`, and the certificate names the host.
    VerifyIdentity,
}

impl FromStr for SslMode {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        match text.to_ascii_lowercase().replace('_', "-").as_str() {
            "disabled" => Ok(Self::Disabled),
            "preferred" => Ok(Self::Preferred),
            "required" => Ok(Self::Required),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-identity" => Ok(Self::VerifyIdentity),
            _ => Err(EndpointError::SslMode(text.to_owned())),
        }
    }
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "disabled",
            Self::Preferred => "preferred",
            Self::Required => "required",
            Self::VerifyCa => "verify-ca",
            Self::VerifyIdentity => "verify-identity",
        })
    }
}

/// Why a URL names no server.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EndpointError {
    /// Not a URL at all.
    #[error("`{url}` is not a URL ({reason}); write mysql://user@host:3306/")]
    Syntax {
        /// The text, without its password.
        url: String,
        /// The parser's word.
        reason: String,
    },
    /// A scheme we cannot speak.
    #[error("`{0}://` is not supported; use mysql:// or mariadb://")]
    Scheme(String),
    /// The host is missing.
    #[error("the URL `{0}` names no host; write mysql://user@host:3306/")]
    Host(String),
    /// Bytes in the user's name or password that are no UTF-8.
    #[error("the user or password in the URL of `{0}` is not valid percent-encoded UTF-8")]
    Encoding(String),
    /// Unknown value of `ssl-mode`.
    #[error("unknown ssl-mode `{0}`{hint}; known: disabled, preferred, required, verify-ca, verify-identity", hint = crate::suggest::hint(.0, ["disabled", "preferred", "required", "verify-ca", "verify-identity"]))]
    SslMode(String),
    /// Unknown parameter behind the question mark.
    #[error("unknown URL parameter `{0}`{hint}; known: ssl-mode, ssl-ca, ssl-cert, ssl-key", hint = crate::suggest::hint(.0, ["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"]))]
    Parameter(String),
    /// A path behind the host.
    #[error("the URL names a schema (`{0}`); leave it out, only the schema `replimeter` is used")]
    Schema(String),
    /// Half of a client certificate.
    #[error("ssl-cert and ssl-key belong together; one of them is missing")]
    HalfCertificate,
    /// A CA that nothing would check.
    #[error(
        "ssl-ca is given but ssl-mode={0} does not verify; use ssl-mode=verify-ca or verify-identity"
    )]
    UnusedCa(SslMode),
}

/// The address of one server and how to reach it, without any password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The user's name, when the URL names one.
    pub user: Option<String>,
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Encryption and trust.
    pub ssl_mode: SslMode,
    /// File of trusted authorities (PEM).
    pub ssl_ca: Option<PathBuf>,
    /// The client's certificate (PEM).
    pub ssl_cert: Option<PathBuf>,
    /// The client's private key (PEM).
    pub ssl_key: Option<PathBuf>,
}

/// A text of a password; shows itself to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself, for handing to the server.
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

/// The URL's text with any password between the user and the host cut out.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some(at) = rest[..authority_end].rfind('@') else {
        return text.to_owned();
    };
    let user = rest[..at].split(':').next().unwrap_or_default();
    format!("{scheme}://{user}{}", &rest[at..])
}

fn decoded(text: &str, url: &Url) -> Result<String, EndpointError> {
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
    String::from_utf8(bytes)
        .map_err(|_| EndpointError::Encoding(url.host_str().unwrap_or_default().to_owned()))
}

impl Endpoint {
    /// Reads a URL; the password, if it carries one, comes back separately so
    /// that it can go into no report.
    ///
    /// # Errors
    /// When the text is no `mysql://` or `mariadb://` URL with a host, or has
    /// parameters that are unknown or contradict each other.
    pub fn parse(text: &str) -> Result<(Self, Option<Secret>), EndpointError> {
        let url = Url::parse(text).map_err(|error| EndpointError::Syntax {
            url: without_password(text),
            reason: error.to_string(),
        })?;
        if !matches!(url.scheme(), "mysql" | "mariadb") {
            return Err(EndpointError::Scheme(url.scheme().to_owned()));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| EndpointError::Host(without_password(text)))?;
        if !matches!(url.path(), "" | "/") {
            return Err(EndpointError::Schema(
                url.path().trim_matches('/').to_owned(),
            ));
        }
        let user = Some(url.username())
            .filter(|user| !user.is_empty())
            .map(|user| decoded(user, &url))
            .transpose()?;
        let password = url
            .password()
            .map(|password| decoded(password, &url))
            .transpose()?
            .map(Secret::new);
        let mut endpoint = Self {
            user,
            // An IPv6 address stands in brackets in a URL, not in a socket address.
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port: url.port().unwrap_or(3306),
            ssl_mode: SslMode::default(),
            ssl_ca: None,
            ssl_cert: None,
            ssl_key: None,
        };
        let mut mode_given = false;
        for (key, value) in url.query_pairs() {
            match key.as_ref() {
                "ssl-mode" => {
                    endpoint.ssl_mode = value.parse()?;
                    mode_given = true;
                }
                "ssl-ca" => endpoint.ssl_ca = Some(PathBuf::from(value.as_ref())),
                "ssl-cert" => endpoint.ssl_cert = Some(PathBuf::from(value.as_ref())),
                "ssl-key" => endpoint.ssl_key = Some(PathBuf::from(value.as_ref())),
                other => return Err(EndpointError::Parameter(other.to_owned())),
            }
        }
        if endpoint.ssl_cert.is_some() != endpoint.ssl_key.is_some() {
            return Err(EndpointError::HalfCertificate);
        }
        if endpoint.ssl_ca.is_some() {
            match endpoint.ssl_mode {
                SslMode::VerifyCa | SslMode::VerifyIdentity => {}
                // Naming an authority asks for it to be checked, as the stock client does.
                SslMode::Preferred if !mode_given => endpoint.ssl_mode = SslMode::VerifyCa,
                mode => return Err(EndpointError::UnusedCa(mode)),
            }
        }
        Ok((endpoint, password))
    }

    /// Whether the address stays on its machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }

    /// Host and port, as errors name a server.
    #[must_use]
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = match Url::parse(&format!("mysql://{}/", self.address())) {
            Ok(url) => url,
            Err(_) => return write!(f, "mysql://{}/", self.address()),
        };
        if let Some(user) = &self.user {
            // Fails only for URLs without a host, which this one has.
            let _ = url.set_username(user);
        }
        if self.ssl_mode != SslMode::default() {
            url.query_pairs_mut()
                .append_pair("ssl-mode", &self.ssl_mode.to_string());
        }
        for (key, path) in [
            ("ssl-ca", &self.ssl_ca),
            ("ssl-cert", &self.ssl_cert),
            ("ssl-key", &self.ssl_key),
        ] {
            if let Some(path) = path {
                url.query_pairs_mut()
                    .append_pair(key, &path.to_string_lossy());
            }
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
            "examples": ["mysql://user@host:3306/?ssl-mode=verify-ca&ssl-ca=ca.pem"]
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

/// One server variable to start a sandbox's servers with: `name=value`, or
/// `name` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOption {
    /// The option's name, dashes made underscores.
    pub name: String,
    /// Its value, if any.
    pub value: Option<String>,
}

/// Why a text is no [`ServerOption`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ServerOptionError {
    /// The name is empty or has characters no option has.
    #[error("`{0}` is not a server option; write name=value, such as sync_binlog=1")]
    Syntax(String),
    /// The text in front of the colon names no server.
    #[error(
        "`{0}` names no server of a sandbox; write primary, replica1 …, replicas (all of them) or node1 … before the colon"
    )]
    Node(String),
    /// The sandbox needs this option for itself.
    #[error("the sandbox sets `{0}` itself; it cannot be changed")]
    Reserved(String),
}

/// Options a sandbox cannot give away without losing its servers.
const RESERVED: [&str; 46] = [
    "admin_address",
    "basedir",
    "bind_address",
    "bootstrap",
    "daemonize",
    "disable_log_bin",
    "datadir",
    "defaults_file",
    "defaults_extra_file",
    "group_replication_bootstrap_group",
    "group_replication_group_name",
    "group_replication_group_seeds",
    "group_replication_local_address",
    "group_replication_enforce_update_everywhere_checks",
    "group_replication_single_primary_mode",
    "group_replication_start_on_boot",
    "gtid_mode",
    "init_file",
    "initialize",
    "initialize_insecure",
    "log_bin",
    "log_error",
    "mysqlx_bind_address",
    "no_defaults",
    "pid_file",
    "port",
    "report_host",
    "report_port",
    "server_id",
    "skip_grant_tables",
    "skip_log_bin",
    "skip_networking",
    "socket",
    "user",
    "chroot",
    "wsrep_cluster_address",
    "wsrep_cluster_name",
    "wsrep_gtid_mode",
    "wsrep_new_cluster",
    "wsrep_gtid_domain_id",
    "wsrep_node_address",
    "wsrep_node_incoming_address",
    "wsrep_node_name",
    "wsrep_on",
    "wsrep_provider",
    "wsrep_sst_receive_address",
];

impl FromStr for ServerOption {
    type Err = ServerOptionError;

    fn from_str(text: &str) -> Result<Self, ServerOptionError> {
        let bare = text.strip_prefix("--").unwrap_or(text);
        let (name, value) = match bare.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (bare, None),
        };
        let valid = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
            && !text.contains(['\0', '\n']);
        if !valid {
            return Err(ServerOptionError::Syntax(text.to_owned()));
        }
        let name = name.replace('-', "_");
        let plain = name.strip_prefix("loose_").unwrap_or(&name);
        let bare = ["skip_", "disable_", "enable_", "maximum_"]
            .iter()
            .find_map(|prefix| plain.strip_prefix(prefix));
        // Servers take any beginning of a name that is unambiguous.
        let reserved = |name: &str| RESERVED.iter().any(|reserved| reserved.starts_with(name));
        // Merged with our own, which is possible by its whole name only.
        let disguised = plain.starts_with("wsrep_provider_") && name != "wsrep_provider_options";
        if reserved(plain) || bare.is_some_and(reserved) || disguised {
            return Err(ServerOptionError::Reserved(name));
        }
        Ok(Self { name, value })
    }
}

impl fmt::Display for ServerOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

serde_as_text!(
    ServerOption,
    "description": "A server variable, NAME=VALUE or NAME",
    "examples": ["sync_binlog=1"]
);

/// What a server is within a user's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Takes the writes.
    Primary,
    /// Replicates from the primary or from another replica.
    Replica,
    /// A member of a Galera cluster or a group.
    Node,
}

impl Role {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Node => "node",
        }
    }
}

/// A server of the user's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NodeSpec {
    /// Its name in reports and in environment variables.
    pub name: String,
    /// What it is; found out from the servers when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The name of the server it replicates from, when that is to be checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its address.
    pub url: Endpoint,
}

/// What a run measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Servers that we start and remove.
    Sandbox(SandboxSpec),
    /// Servers that `sandbox up` keeps running.
    Running(SandboxName),
    /// Servers of the user's.
    Nodes(Vec<NodeSpec>),
}

/// A replica's name in reports, counted from 0.
#[must_use]
pub fn replica_name(index: usize) -> String {
    format!("replica{}", index + 1)
}

/// The primary's name in reports.
pub const PRIMARY: &str = "primary";

/// How a report names the primary when it is observed as if it were a replica.
pub const NULL_REPLICA: &str = "primary (null replica)";

/// Passwords that URLs carried, by node name; kept apart from every record.
pub type Passwords = BTreeMap<String, Secret>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_a_full_url_and_keeps_the_password_apart() {
        let (endpoint, password) = Endpoint::parse(
            "mysql://dba:p%40ss@db.example:3307/?ssl-mode=verify-ca&ssl-ca=/etc/ca.pem",
        )
        .unwrap();
        assert_eq!(password.unwrap().reveal(), "p@ss");
        assert_eq!(endpoint.user.as_deref(), Some("dba"));
        assert_eq!(endpoint.address(), "db.example:3307");
        assert_eq!(endpoint.ssl_mode, SslMode::VerifyCa);
        assert!(!endpoint.to_string().contains("ss@db"), "{endpoint}");
    }

    #[test]
    fn prints_what_it_reads() {
        for text in [
            "mysql://h:3306/",
            "mysql://u@[::1]:3307/?ssl-mode=required",
            "mysql://a%2Fb@h:1/?ssl-mode=verify-ca&ssl-ca=%2Fx",
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
            ("postgres://h/", "not supported"),
            ("mysql://h/app", "names a schema"),
            ("mysql://h/?sslmode=x", "unknown URL parameter"),
            ("mysql://h/?ssl-mode=maybe", "unknown ssl-mode"),
            ("mysql://h/?ssl-cert=a", "belong together"),
            ("mysql://h/?ssl-mode=required&ssl-ca=a", "does not verify"),
        ] {
            let error = Endpoint::parse(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn a_named_authority_is_checked() {
        assert_eq!(
            Endpoint::parse("mysql://h/?ssl-ca=/x").unwrap().0.ssl_mode,
            SslMode::VerifyCa
        );
    }

    #[test]
    fn errors_do_not_repeat_the_password() {
        let error = Endpoint::parse("mysql://u:hunter2@h:99999/")
            .unwrap_err()
            .to_string();
        assert!(!error.contains("hunter2"), "{error}");
        assert!(!format!("{:?}", Secret::new("hunter2")).contains("hunter2"));
    }

    #[test]
    fn server_options() {
        let option: ServerOption = "sync-binlog=1".parse().unwrap();
        assert_eq!(
            (option.name.as_str(), option.value.as_deref()),
            ("sync_binlog", Some("1"))
        );
        assert!(matches!(
            "port=3306".parse::<ServerOption>(),
            Err(ServerOptionError::Reserved(_))
        ));
        assert!(matches!(
            "bind-addr=0.0.0.0".parse::<ServerOption>(),
            Err(ServerOptionError::Reserved(_))
        ));
        assert!(matches!(
            "--loose-datadir=/".parse::<ServerOption>(),
            Err(ServerOptionError::Reserved(_))
        ));
        for text in [
            "loose_wsrep_provider_options=x",
            "wsrep_provider_opt=x",
            "skip-log-bin",
            "disable_gtid_mode",
        ] {
            assert!(
                matches!(
                    text.parse::<ServerOption>(),
                    Err(ServerOptionError::Reserved(_))
                ),
                "{text}"
            );
        }
        for text in [
            "wsrep_provider_options=gcs.fc_limit=1",
            "skip_name_resolve",
            "sync_binlog=1",
        ] {
            assert!(text.parse::<ServerOption>().is_ok(), "{text}");
        }
        for text in ["", "=1", "a b=1", "1x", "x\n=1"] {
            assert!(text.parse::<ServerOption>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_url_panics(text in "(mysql://)?\\PC{0,60}") {
            let _ = Endpoint::parse(&text);
            let _ = without_password(&text);
        }
    }
}
