//! The token of an exporter: its file, and whether a request has it.

use std::{
    fmt,
    fs::File,
    hint,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use replimeter_model::target::Secret;
use sha2::{Digest as _, Sha256};

/// Bytes of a token.
const MAX_BYTES: u64 = 4096;

/// Why the token in a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenError {
    /// What is wrong, with the file.
    pub message: String,
    /// How to repair it.
    pub hint: String,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TokenError {}

/// Reads the token in a file: one line of printable ASCII without spaces.
///
/// # Errors
/// When the file cannot be read, every user can read or write it, or it has no valid token.
pub fn read_token(path: &Path) -> Result<Secret, TokenError> {
    let shown = path.display();
    let unreadable = |error: io::Error| TokenError {
        message: format!("cannot read the token file {shown}: {error}"),
        hint: "give a file that this user can read".to_owned(),
    };
    let refuse = |cause: &str, hint: String| TokenError {
        message: format!("cannot use the token file {shown}: {cause}"),
        hint,
    };
    let file = File::open(path).map_err(unreadable)?;
    let meta = file.metadata().map_err(unreadable)?;
    // Pipes have no permissions of their own.
    if meta.is_file() && meta.mode() & 0o006 != 0 {
        return Err(refuse(
            "every user can read or write it",
            format!("run: chmod o= {shown}"),
        ));
    }
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES + 2).read_to_end(&mut bytes);
    read.map_err(unreadable)?;
    let token = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let cause = match token {
        [] => "it is empty".to_owned(),
        _ if token.len() as u64 > MAX_BYTES => format!("it has more than {MAX_BYTES} bytes"),
        _ if !token.iter().all(u8::is_ascii_graphic) => {
            "it is not one line of ASCII without spaces".to_owned()
        }
        _ => return Ok(Secret::new(String::from_utf8_lossy(token))),
    };
    let hint = format!("write a random token into it, such as: openssl rand -hex 32 > {shown}");
    Err(refuse(&cause, hint))
}

/// What requests must have.
pub(super) struct Token([u8; 32]);

impl Token {
    pub(super) fn new(token: &Secret) -> Self {
        Self(Sha256::digest(token.reveal()).into())
    }

    /// Returns whether the value of `Authorization` has the token: as bearer, or as the password of any user. The time it
    /// takes does not depend on the token.
    pub(super) fn is_in(&self, authorization: &str) -> bool {
        let Some(given) = given(authorization) else {
            return false;
        };
        let given: [u8; 32] = Sha256::digest(given).into();
        let pairs = self.0.iter().zip(given);
        let differs = pairs.fold(0, |all, (own, given)| hint::black_box(all | (own ^ given)));
        differs == 0
    }
}

/// Returns the token in the value of `Authorization`.
fn given(authorization: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = authorization.split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let mut decoded = STANDARD.decode(rest).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded.split_off(colon + 1))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use proptest::prelude::*;

    use super::*;

    const MODES: [u32; 6] = [0o600, 0o640, 0o660, 0o604, 0o602, 0o644];

    #[test]
    fn bearer_and_password_are_tokens() {
        let token = Token::new(&Secret::new("se:cret"));
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for right in ["Bearer se:cret", "bearer  se:cret"] {
            assert!(token.is_in(right), "{right}");
        }
        for right in ["any:se:cret", ":se:cret"] {
            assert!(token.is_in(&basic(right)), "{right}");
        }
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer se:cre",
            "Bearer se:cret2",
            "Digest se:cret",
            "se:cret",
            "Basic se:cret",
            "Basic",
        ] {
            assert!(!token.is_in(wrong), "{wrong}");
        }
        for wrong in ["se:cret", "any", "any:", "any:se"] {
            assert!(!token.is_in(&basic(wrong)), "{wrong}");
        }
    }

    #[test]
    fn token_files_are_judged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |bytes: &[u8], mode: u32| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = read_token(&path).map(|token| token.reveal().to_owned());
            read.map_err(|error| {
                let shown = path.display().to_string();
                assert!(error.message.contains(&shown) && error.hint.contains(&shown));
                error.message
            })
        };
        assert_eq!(read(b"secret", 0o600).unwrap(), "secret");
        assert_eq!(read(b"secret\n", 0o600).unwrap(), "secret");
        let longest = vec![b'a'; MAX_BYTES as usize];
        assert!(read(&longest, 0o600).is_ok());
        for (bytes, cause) in [
            (b"".as_slice(), "empty"),
            (b"\n", "empty"),
            (b"two\nlines\n", "one line"),
            (b"secret\n\n", "one line"),
            (b"secret\r\n", "one line"),
            (b"two words", "one line"),
            ("geheimnisträger".as_bytes(), "one line"),
            (&[&longest[..], b"a"].concat(), "4096"),
            (&[b'a'; 9000], "4096"),
        ] {
            let error = read(bytes, 0o600).unwrap_err();
            assert!(error.contains(cause), "{error}");
        }
        let allowed = MODES.map(|mode| read(b"secret", mode).is_ok());
        assert_eq!(allowed, [true, true, true, false, false, false]);
        fs::remove_file(&path).unwrap();
        let error = read_token(&path).unwrap_err();
        assert!(error.message.starts_with("cannot read the token file"));
    }

    proptest! {
        #[test]
        fn no_authorization_panics(text in "\\PC{0,40}") {
            let token = Token::new(&Secret::new("secret"));
            token.is_in(&text);
            token.is_in(&format!("Basic {text}"));
        }
    }
}
