//! A server to connect to: its name in the report, its address and its user.

pub(crate) mod connections;

use std::{
    fmt, fs, io,
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

use mysql::{ClientIdentity, Opts, OptsBuilder, SslOpts, consts::CapabilityFlags};
use replimeter_model::target::{Endpoint, Secret, SslMode};

pub use self::connections::{AllConnections, Connections};
use crate::{
    attempt::attempt,
    error::{ErrorKind, ServerError, explain},
    identity::RecordedIdentity,
    namespace::Namespace,
};

/// Timeout of a connection attempt.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);

/// Timeout of a login, even where statements may take longer: a frozen server accepts connections and does not answer.
pub(crate) const LOGIN: Duration = Duration::from_secs(10);

/// Silence after which the peer is probed, then every [`KEEPALIVE_INTERVAL`] up to [`KEEPALIVE_PROBES`] times: a peer
/// that vanished ends no connection.
pub(crate) const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
pub(crate) const KEEPALIVE_PROBES: u32 = 6;

/// How long sent bytes may stay unacknowledged by the peer's system.
pub(crate) const UNACKNOWLEDGED: Duration = Duration::from_secs(45);

/// Prepared statements that a connection caches.
const STATEMENTS: usize = 1024;

/// The largest packet in either direction, in bytes: the maximum of every server. The limit that a server states is its own.
pub(crate) const MAX_PACKET: usize = 1 << 30;

/// A public key that cannot be read (not a folder is in its path), instead of one that the server sends.
const NO_PUBLIC_KEY: &str = "/dev/null/get-server-public-key";

/// Authorities of the system, by distribution: Debian, Red Hat, SUSE, Alpine and BSD.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How hints name a server's error log.
pub const ERROR_LOG: &str = "error log";

/// What the error of a refused login adds to the server's message.
#[derive(Clone, Debug)]
pub struct Login {
    /// Where the user and the password came from; never the password.
    pub origin: String,
    /// The suggested remedy.
    pub hint: String,
}

/// Everything needed to open a session.
#[derive(Clone, Debug)]
pub struct Node {
    /// `primary`, `replica1`, …
    pub name: String,
    /// Address and encryption.
    pub endpoint: Endpoint,
    /// The user's name.
    pub user: String,
    /// The password, if any is known.
    pub password: Option<Secret>,
    /// Where both came from; `None` for the servers of a sandbox.
    pub login: Option<Login>,
    /// Whether to show the texts of replication errors, which can quote data.
    pub show_errors: bool,
    /// Timeout of an answer.
    pub answer: Duration,
    /// The network namespace to reach it in; the current one when `None`.
    pub namespace: Option<Namespace>,
    /// Which server it is, of those that its address can lead to: the one that the first connection reached.
    pub identity: RecordedIdentity,
    /// The connections of its run.
    pub connections: Connections,
    /// Its error log, of a server that outlives the run: where its sandbox or its settings place it.
    pub log: Option<PathBuf>,
}

/// The server's name and its address: the beginning of messages.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.endpoint.address())
    }
}

impl Node {
    /// Returns a server without a password and with connections of its own, which answers within `answer`.
    #[must_use]
    pub fn new(name: &str, endpoint: Endpoint, user: &str, answer: Duration) -> Self {
        Self {
            name: name.to_owned(),
            endpoint,
            user: user.to_owned(),
            password: None,
            login: None,
            show_errors: true,
            answer,
            namespace: None,
            identity: RecordedIdentity::default(),
            connections: Connections::default(),
            log: None,
        }
    }

    /// Returns a hint about this server, with the path of its error log if the hint leads there, the path is known, and the hint does
    /// not have it yet.
    #[must_use]
    pub fn hint(&self, hint: impl Into<String>) -> String {
        let mut hint = hint.into();
        if let (Some(log), Some(at)) = (&self.log, hint.find(ERROR_LOG)) {
            let (path, end) = (format!(", {}", log.display()), at + ERROR_LOG.len());
            if !hint[end..].starts_with(&path) {
                hint.insert_str(end, &path);
            }
        }
        hint
    }

    /// Returns an error about this server that Replimeter detected, not the server.
    #[must_use]
    pub fn precondition(
        &self,
        operation: &str,
        cause: impl Into<String>,
        hint: impl Into<String>,
    ) -> ServerError {
        let address = self.endpoint.address();
        ServerError::precondition(&self.name, &address, operation, cause, self.hint(hint))
    }

    /// Returns the driver's error about this server.
    #[must_use]
    pub(crate) fn driver_error(&self, operation: &str, error: &mysql::Error) -> ServerError {
        let (kind, cause, hint) = explain(error);
        ServerError {
            kind,
            ..self.precondition(operation, cause, hint)
        }
    }

    /// Checks that the files named for TLS are there and readable.
    ///
    /// # Errors
    /// Naming the file and the reason, before any connection is tried.
    pub fn check_files(&self) -> Result<(), ServerError> {
        let tls = &self.endpoint.tls;
        if tls.mode().verifies() && self.authorities().is_none() {
            return Err(ServerError {
                kind: ErrorKind::Tls,
                ..self.precondition(
                    "cannot verify the server",
                    "this machine has no file of certificate authorities",
                    "name the server's authority with ssl-ca=FILE",
                )
            });
        }
        let files = [
            ("ssl-ca", &tls.ca),
            ("ssl-cert", &tls.cert),
            ("ssl-key", &tls.key),
        ];
        for (parameter, path) in files {
            let Some(path) = path else { continue };
            let refuse = |cause: String, hint: &str| ServerError {
                kind: ErrorKind::File,
                ..self.precondition(&format!("cannot use {parameter}"), cause, hint)
            };
            let bytes = fs::read(path).map_err(|error| {
                refuse(
                    format!("{}: {error}", path.display()),
                    "give the path of a PEM file on this machine",
                )
            })?;
            if !bytes.windows(11).any(|window| window == b"-----BEGIN ") {
                return Err(refuse(
                    format!("{} contains no PEM block", path.display()),
                    "give the path of a PEM file",
                ));
            }
        }
        Ok(())
    }

    /// Returns the addresses of its host. A name is resolved on a thread of its own, which is abandoned after the timeout of a connection
    /// attempt, or when the server is given up: the system's resolver cannot be interrupted.
    ///
    /// # Errors
    /// When the name has no address, or is not resolved in time.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = (self.endpoint.host.clone(), self.endpoint.port);
        let resolve = move || Ok((host.as_str(), port).to_socket_addrs()?.collect());
        attempt("resolve", CONNECT, &|| self.is_silent(), resolve)?
            .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Returns the timeout of each answer of the login.
    pub(crate) fn login_timeout(&self) -> Duration {
        self.answer.min(LOGIN)
    }

    /// Returns the driver's options, with or without TLS; the timeouts are those of the login.
    pub(crate) fn opts(&self, tls: bool) -> Opts {
        OptsBuilder::new()
            .ip_or_hostname(Some(self.endpoint.host.clone()))
            .tcp_port(self.endpoint.port)
            .socket(
                self.endpoint
                    .socket
                    .as_ref()
                    .map(|path| path.to_string_lossy().into_owned()),
            )
            .user(Some(self.user.clone()))
            .pass(
                self.password
                    .as_ref()
                    .map(|password| password.reveal().to_owned()),
            )
            // The socket of a server named by its port would be another path than the one to measure.
            .prefer_socket(false)
            .tcp_nodelay(true)
            // The answer to a write contains its GTID for sessions that request it.
            .additional_capabilities(CapabilityFlags::CLIENT_SESSION_TRACK)
            .tcp_connect_timeout(Some(CONNECT))
            .read_timeout(Some(self.login_timeout()))
            .write_timeout(Some(self.login_timeout()))
            .tcp_keepalive_time_ms(u32::try_from(KEEPALIVE_AFTER.as_millis()).ok())
            .tcp_keepalive_probe_interval_secs(u32::try_from(KEEPALIVE_INTERVAL.as_secs()).ok())
            .tcp_keepalive_probe_count(Some(KEEPALIVE_PROBES))
            .tcp_user_timeout_ms(u32::try_from(UNACKNOWLEDGED.as_millis()).ok())
            .max_allowed_packet(Some(MAX_PACKET))
            // The cache must hold all statements of a load: an evicted statement is closed.
            .stmt_cache_size(STATEMENTS)
            // Whoever answers could send a key of its own.
            .server_key_path((!self.takes_public_key()).then(|| NO_PUBLIC_KEY.into()))
            .ssl_opts(tls.then(|| self.ssl_opts()))
            .into()
    }

    fn ssl_opts(&self) -> SslOpts {
        let tls = &self.endpoint.tls;
        let identity = tls.cert.clone().zip(tls.key.clone());
        SslOpts::default()
            .with_root_cert_path(self.authorities())
            .with_client_identity(identity.map(|(cert, key)| ClientIdentity::new(cert, key)))
            .with_danger_accept_invalid_certs(!tls.mode().verifies())
            .with_danger_skip_domain_validation(tls.mode() != SslMode::VerifyIdentity)
    }

    /// Returns the file with the only authorities to trust: the given one, or the system's; `None` when nothing is
    /// verified.
    pub(crate) fn authorities(&self) -> Option<PathBuf> {
        let tls = &self.endpoint.tls;
        let system = || {
            SYSTEM_AUTHORITIES
                .map(Path::new)
                .into_iter()
                .find(|path| path.is_file())
        };
        let path = tls.ca.clone().or_else(|| system().map(Path::to_owned));
        path.filter(|_| tls.mode().verifies())
    }

    /// Returns whether a password may be encrypted with a key that the server sends without TLS.
    pub(crate) fn takes_public_key(&self) -> bool {
        let given = self.endpoint.tls.get_server_public_key;
        given.unwrap_or_else(|| self.endpoint.is_loopback())
    }

    /// Returns how the password could get to others than the server, over a connection with or without TLS:
    /// a message and its hint.
    #[must_use]
    pub fn exposed_password(&self, encrypted: bool) -> Option<(String, &'static str)> {
        let verified = encrypted && self.endpoint.tls.mode().verifies();
        let password = self.password.as_ref();
        if password.is_none_or(|password| password.reveal().is_empty())
            || verified
            || self.endpoint.is_loopback()
        {
            return None;
        }
        let channel = match encrypted {
            true => "an encrypted connection to an unverified server",
            false => "an unencrypted connection",
        };
        Some((
            format!(
                "the password was used over {channel}: anyone who controls the network can pose as the server and attack the password"
            ),
            "add ?ssl-ca=FILE with the server's authority to its URL, unless only you use the network",
        ))
    }
}
