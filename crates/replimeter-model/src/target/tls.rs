//! Encryption and verification of a connection.

use std::{path::PathBuf, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// Encryption and verification of a connection; the names are MySQL's.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum SslMode {
        /// No TLS.
        Disabled = "disabled",
        /// TLS when the server offers it, unverified; plain text otherwise.
        #[default]
        Preferred = "preferred",
        /// TLS, server not verified.
        Required = "required",
        /// TLS, certificate signed by a trusted authority, for any name.
        VerifyCa = "verify-ca",
        /// As `verify-ca`, and the certificate names the host.
        VerifyIdentity = "verify-identity",
    }
}

impl SslMode {
    /// Returns whether the server must prove who it is.
    #[must_use]
    pub fn verifies(self) -> bool {
        self >= Self::VerifyCa
    }
}

/// Reason why options of TLS are invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TlsError {
    /// Unknown value of `ssl-mode`.
    #[error("unknown ssl-mode `{0}`{hint}; known: {known}", hint = crate::suggest::hint(.0, SslMode::ALL.map(SslMode::name)), known = SslMode::ALL.map(SslMode::name).join(", "))]
    Mode(String),
    /// Half of a client certificate.
    #[error("ssl-cert and ssl-key belong together; one of them is missing")]
    HalfCertificate,
    /// A CA without verification.
    #[error(
        "ssl-ca is given but ssl-mode={0} does not verify; use ssl-mode=verify-identity or verify-ca"
    )]
    UnusedCa(SslMode),
}

impl FromStr for SslMode {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        Self::named(&text.to_ascii_lowercase().replace('_', "-"))
            .ok_or_else(|| TlsError::Mode(text.to_owned()))
    }
}

/// Returns the value of a switch in a URL or an option file.
#[must_use]
pub fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        // An option without a value turns it on.
        "" | "1" | "on" | "true" => Some(true),
        "0" | "off" | "false" => Some(false),
        _ => None,
    }
}

/// Encryption and verification of a connection, as far as they are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Encryption and verification.
    pub mode: Option<SslMode>,
    /// File of the only certificate authorities to trust (PEM).
    pub ca: Option<PathBuf>,
    /// The client's certificate (PEM).
    pub cert: Option<PathBuf>,
    /// The client's private key (PEM).
    pub key: Option<PathBuf>,
    /// Whether to encrypt a password with a key that the server sends, without TLS.
    pub get_server_public_key: Option<bool>,
}

impl TlsOptions {
    /// Returns the mode in effect: a given authority is there to verify the server.
    #[must_use]
    pub fn mode(&self) -> SslMode {
        let default = || match self.ca {
            Some(_) => SslMode::VerifyIdentity,
            None => SslMode::default(),
        };
        self.mode.unwrap_or_else(default)
    }

    /// Rejects options that contradict each other.
    ///
    /// # Errors
    /// For half of a client certificate, and for an authority that would not be used.
    pub fn check(&self) -> Result<(), TlsError> {
        if self.cert.is_some() != self.key.is_some() {
            return Err(TlsError::HalfCertificate);
        }
        if self.ca.is_some() && !self.mode().verifies() {
            return Err(TlsError::UnusedCa(self.mode()));
        }
        Ok(())
    }

    /// Returns these options, completed by those of an option file, which has the lower precedence.
    #[must_use]
    pub fn or(&self, file: &Self) -> Self {
        let mut both = self.clone();
        if both.cert.is_none() {
            (both.cert, both.key) = (file.cert.clone(), file.key.clone());
        }
        // An authority in the URL asks for verification, whatever mode the file has for its own.
        if both.ca.is_none() {
            both.mode = both.mode.or(file.mode);
            both.ca = file.ca.clone();
        }
        if !both.mode().verifies() {
            both.ca = None;
        }
        if both.mode() == SslMode::Disabled {
            (both.cert, both.key) = (None, None);
        }
        both.get_server_public_key = both.get_server_public_key.or(file.get_server_public_key);
        both
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Endpoint;

    #[test]
    fn named_authority_verifies_the_identity() {
        let mode = |text| Endpoint::parse(text).unwrap().0.tls.mode();
        assert_eq!(mode("mysql://h/?ssl-ca=/x"), SslMode::VerifyIdentity);
        assert_eq!(
            mode("mysql://h/?ssl-ca=/x&ssl-mode=VERIFY_CA"),
            SslMode::VerifyCa
        );
        assert_eq!(mode("mysql://h/"), SslMode::Preferred);
    }

    #[test]
    fn url_has_precedence_over_option_file() {
        let url = |parameters| {
            let text = format!("mysql://h/?{parameters}");
            Endpoint::parse(&text).unwrap().0.tls
        };
        let file = TlsOptions {
            mode: Some(SslMode::VerifyIdentity),
            ca: Some("/file".into()),
            cert: Some("/cert".into()),
            key: Some("/key".into()),
            get_server_public_key: Some(true),
        };
        assert_eq!(url("").or(&file), file);
        let both = url("ssl-mode=required&ssl-cert=/c&ssl-key=/k").or(&file);
        assert_eq!(
            (both.mode(), &both.ca, both.key),
            (SslMode::Required, &None, Some("/k".into()))
        );
        let both = url("ssl-mode=disabled").or(&file);
        assert_eq!((both.ca, both.cert, both.key), (None, None, None));
        let both = url("ssl-mode=verify-ca").or(&file);
        assert_eq!(
            (both.mode(), both.ca),
            (SslMode::VerifyCa, Some("/file".into()))
        );
        let unverified = TlsOptions {
            mode: Some(SslMode::Required),
            ca: None,
            ..file
        };
        let both = url("ssl-ca=/url&get-server-public-key=0").or(&unverified);
        assert_eq!(
            (both.mode(), both.ca, both.get_server_public_key),
            (SslMode::VerifyIdentity, Some("/url".into()), Some(false))
        );
    }
}
