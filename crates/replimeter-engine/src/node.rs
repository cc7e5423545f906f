//! A server to connect to: its name in the report, its address and its user.

use std::{fmt, fs, time::Duration};

use mysql::{ClientIdentity, Opts, OptsBuilder, SslOpts, consts::CapabilityFlags};
use replimeter_model::target::{Endpoint, Secret, SslMode};

use crate::{
    error::{ErrorKind, ServerError},
    namespace::Namespace,
};

/// Timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(5);

/// Prepared statements that a connection caches.
const STATEMENTS: usize = 1024;

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
    /// Timeout of an answer.
    pub answer: Duration,
    /// The network namespace to reach it in; the current one when `None`.
    pub namespace: Option<Namespace>,
}

/// The server's name and its address: the beginning of messages.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.endpoint.address())
    }
}

impl Node {
    /// Returns an error about this server that Replimeter detected, not the server.
    #[must_use]
    pub fn precondition(
        &self,
        operation: &str,
        cause: impl Into<String>,
        hint: impl Into<String>,
    ) -> ServerError {
        ServerError::precondition(&self.name, &self.endpoint.address(), operation, cause, hint)
    }

    /// Checks that the files named for TLS are there and readable.
    ///
    /// # Errors
    /// Naming the file and the reason, before any connection is tried.
    pub fn check_files(&self) -> Result<(), ServerError> {
        let files = [
            ("ssl-ca", &self.endpoint.ssl_ca),
            ("ssl-cert", &self.endpoint.ssl_cert),
            ("ssl-key", &self.endpoint.ssl_key),
        ];
        for (parameter, path) in files {
            let Some(path) = path else { continue };
            let refuse = |cause: String, hint: &str| ServerError {
                kind: ErrorKind::Tls,
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

    /// Returns the driver's options, with or without TLS.
    pub(crate) fn opts(&self, tls: bool) -> Opts {
        OptsBuilder::new()
            .ip_or_hostname(Some(self.endpoint.host.clone()))
            .tcp_port(self.endpoint.port)
            .user(Some(self.user.clone()))
            .pass(
                self.password
                    .as_ref()
                    .map(|password| password.reveal().to_owned()),
            )
            // The server's Unix socket would be another path than the one to measure.
            .prefer_socket(false)
            .tcp_nodelay(true)
            // The answer to a write contains its GTID for sessions that request it.
            .additional_capabilities(CapabilityFlags::CLIENT_SESSION_TRACK)
            // One statement must be one transaction, whatever the server's default.
            .init(vec!["SET SESSION autocommit=1"])
            .tcp_connect_timeout(Some(CONNECT))
            .read_timeout(Some(self.answer))
            .write_timeout(Some(self.answer))
            // The cache must hold all statements of a load: an evicted statement is closed.
            .stmt_cache_size(STATEMENTS)
            .ssl_opts(tls.then(|| self.ssl_opts()))
            .into()
    }

    fn ssl_opts(&self) -> SslOpts {
        let verify = matches!(
            self.endpoint.ssl_mode,
            SslMode::VerifyCa | SslMode::VerifyIdentity
        );
        let identity = self
            .endpoint
            .ssl_cert
            .clone()
            .zip(self.endpoint.ssl_key.clone());
        SslOpts::default()
            .with_root_cert_path(self.endpoint.ssl_ca.clone())
            .with_client_identity(identity.map(|(cert, key)| ClientIdentity::new(cert, key)))
            .with_danger_accept_invalid_certs(!verify)
            .with_danger_skip_domain_validation(self.endpoint.ssl_mode != SslMode::VerifyIdentity)
    }
}
