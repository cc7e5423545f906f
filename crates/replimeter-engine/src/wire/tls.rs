//! TLS of the connections that Replimeter logs in itself, with the rules of [`Node`].

use std::{fs, io, sync::Arc};

use replimeter_model::target::SslMode;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
};

use crate::Node;

/// Everything that a TLS connection to one server needs.
#[derive(Clone, Debug)]
pub(super) struct TlsTarget {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn pem_error(error: pem::Error) -> io::Error {
    match error {
        pem::Error::Io(error) => error,
        other => invalid(other),
    }
}

impl TlsTarget {
    /// Reads the files that the server's options name.
    ///
    /// # Errors
    /// When one cannot be read or contains no certificate or key.
    pub(super) fn new(node: &Node) -> io::Result<Self> {
        let tls = &node.endpoint.tls;
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        if let Some(path) = node.authorities() {
            let bytes = fs::read(path)?;
            for certificate in CertificateDer::pem_slice_iter(&bytes) {
                roots
                    .add(certificate.map_err(pem_error)?)
                    .map_err(invalid)?;
            }
        }
        let chain = if tls.mode().verifies() {
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            Some(verifier.build().map_err(invalid)?)
        } else {
            None
        };
        let verifier = Verifier {
            chain,
            name: tls.mode() == SslMode::VerifyIdentity,
            provider: Arc::clone(&provider),
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(invalid)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match tls.cert.as_ref().zip(tls.key.as_ref()) {
            Some((cert, key)) => {
                let chain = CertificateDer::pem_file_iter(cert)
                    .map_err(pem_error)?
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(pem_error)?;
                let key = PrivateKeyDer::from_pem_file(key).map_err(pem_error)?;
                config.with_client_auth_cert(chain, key).map_err(invalid)?
            }
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from(node.endpoint.host.clone()).map_err(invalid)?;
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }

    /// Returns the client's side of a new connection.
    pub(super) fn connection(&self) -> io::Result<ClientConnection> {
        let mut connection =
            ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(invalid)?;
        // A command is sent as a whole, however long it is.
        connection.set_buffer_limit(None);
        Ok(connection)
    }
}

/// Verifies what the server's `ssl-mode` asks for.
#[derive(Debug)]
struct Verifier {
    /// Verifies the chain and the name; `None` if nothing is verified.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Whether the host's name must be in the certificate.
    name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The chain is verified before the name.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.chain.is_none() {
            // The key of a certificate that is not verified proves nothing.
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.chain.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
