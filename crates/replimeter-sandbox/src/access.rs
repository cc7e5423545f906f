//! Credentials of a sandbox's servers.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use replimeter_model::target::{Endpoint, SslMode, TlsOptions};

use crate::{engine::ADMIN_USER, error::SandboxError};

/// The option file with the sandbox's user and password.
pub const CREDENTIALS: &str = "credentials.cnf";

/// Writes the password to the option file for the user who started the sandbox.
pub(crate) fn write(folder: &Path, password: &str) -> Result<(), SandboxError> {
    let path = folder.join(CREDENTIALS);
    let text = format!("[client]\nuser={ADMIN_USER}\npassword={password}\nhost=127.0.0.1\n");
    write_private(&path, &text).map_err(SandboxError::disk("write", &path))
}

pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}

/// Returns 128 random bits as hexadecimal digits.
pub(crate) fn random_token() -> Result<String, SandboxError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0u8; 16];
    fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(SandboxError::disk("read", path))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the address of a sandbox's server.
#[must_use]
pub fn endpoint(user: &str, port: u16) -> Endpoint {
    Endpoint {
        user: Some(user.to_owned()),
        host: "127.0.0.1".to_owned(),
        port,
        socket: None,
        // Loopback between processes of one machine: encryption would only add to every time.
        tls: TlsOptions {
            mode: Some(SslMode::Disabled),
            ..TlsOptions::default()
        },
    }
}
