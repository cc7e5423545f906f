//! The login (MySQL client/server protocol, connection phase): packets in, packets out.

use mysql_common::{
    constants::CapabilityFlags,
    crypto,
    scramble::{create_response_for_ed25519, scramble_native, scramble_sha256},
};

use super::scan::{ServerRefusal, refusal};
use crate::{
    driver,
    node::{MAX_PACKET, Node},
};

/// Version of the protocol.
const PROTOCOL: u8 = 10;
/// The character set `utf8mb4_general_ci`, which every server has.
const UTF8MB4: u8 = 45;
/// Bytes of the challenge that passwords are combined with, except for ed25519.
const CHALLENGE: usize = 20;

/// Why a login fails.
#[derive(Debug)]
pub(super) enum LoginError {
    /// The server refused it.
    Refused(ServerRefusal),
    /// The server has no TLS.
    NoTls,
    /// More than the greeting was sent before TLS began.
    SentInClear,
    /// The server asks for the password, encrypted with a key that anyone could have sent.
    UnverifiedKey,
    /// The user's authentication method is not supported.
    Method(String),
    /// A packet is not one of the protocol.
    Malformed(&'static str),
}

const TRUNCATED: LoginError = LoginError::Malformed("the server's greeting is truncated");

/// The server's first packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// The server's number of the connection.
    pub(super) connection: u32,
    capabilities: CapabilityFlags,
    challenge: Vec<u8>,
    method: Vec<u8>,
}

impl Greeting {
    pub(super) fn parse(packet: &[u8]) -> Result<Self, LoginError> {
        let (version, rest) = packet.split_first().ok_or(TRUNCATED)?;
        match *version {
            PROTOCOL => {}
            0xff => return Err(refused(packet)),
            _ => return Err(LoginError::Malformed("the server speaks another protocol")),
        }
        let (_, rest) = until_nul(rest).ok_or(TRUNCATED)?;
        // Connection, challenge, filler, capabilities, character set, status, more capabilities, length of the challenge, reserved.
        let (fixed, rest) = rest.split_at_checked(31).ok_or(TRUNCATED)?;
        let connection = u32::from_le_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]);
        let capabilities = u32::from_le_bytes([fixed[13], fixed[14], fixed[18], fixed[19]]);
        let capabilities = CapabilityFlags::from_bits_truncate(capabilities);
        if !capabilities.contains(
            CapabilityFlags::CLIENT_PROTOCOL_41 | CapabilityFlags::CLIENT_SECURE_CONNECTION,
        ) {
            return Err(LoginError::Malformed("the server is older than MySQL 4.1"));
        }
        let more = usize::from(fixed[20]).saturating_sub(8).max(13);
        let (more, rest) = rest.split_at_checked(more).unwrap_or((rest, &[]));
        let mut challenge = [&fixed[4..12], more].concat();
        challenge.resize(CHALLENGE, 0);
        Ok(Self {
            connection,
            capabilities,
            challenge,
            method: until_nul(rest).map_or(rest, |(method, _)| method).to_vec(),
        })
    }

    /// Returns whether the server offers TLS.
    pub(super) fn offers_tls(&self) -> bool {
        self.capabilities.contains(CapabilityFlags::CLIENT_SSL)
    }

    fn capabilities(&self, encrypted: bool) -> CapabilityFlags {
        let mut wanted = CapabilityFlags::CLIENT_PROTOCOL_41
            | CapabilityFlags::CLIENT_SECURE_CONNECTION
            // A server of MariaDB would expect capabilities of its own without it.
            | CapabilityFlags::CLIENT_LONG_PASSWORD
            | CapabilityFlags::CLIENT_LONG_FLAG
            | CapabilityFlags::CLIENT_TRANSACTIONS
            | CapabilityFlags::CLIENT_LOCAL_FILES
            | CapabilityFlags::CLIENT_MULTI_STATEMENTS
            | CapabilityFlags::CLIENT_MULTI_RESULTS
            | CapabilityFlags::CLIENT_PS_MULTI_RESULTS
            | CapabilityFlags::CLIENT_PLUGIN_AUTH;
        wanted.set(CapabilityFlags::CLIENT_SSL, encrypted);
        wanted & self.capabilities
    }

    /// Returns the request for TLS, which has the beginning of the [`response`](Self::response).
    pub(super) fn tls_request(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.extend_from_slice(&self.capabilities(true).bits().to_le_bytes());
        out.extend_from_slice(&u32::try_from(MAX_PACKET).unwrap_or(u32::MAX).to_le_bytes());
        out.push(UTF8MB4);
        out.resize(32, 0);
        out
    }

    /// Returns the answer to the greeting, and what answers the packets after it.
    pub(super) fn response(
        &self,
        node: &Node,
        encrypted: bool,
    ) -> Result<(Vec<u8>, Authentication), LoginError> {
        let password = node.password.as_ref().map(|password| password.reveal());
        let authentication = Authentication {
            password: password.unwrap_or_default().as_bytes().to_vec(),
            public_key: node.takes_public_key(),
            private: encrypted || node.endpoint.socket.is_some(),
            method: match self.method.as_slice() {
                b"caching_sha2_password" => Method::CachingSha2,
                _ => Method::Native,
            },
            challenge: self.challenge.clone(),
            switched: false,
            key_requested: false,
        };
        let proof = authentication.proof()?;
        let capabilities = self.capabilities(encrypted);
        let mut out = self.tls_request();
        out[..4].copy_from_slice(&capabilities.bits().to_le_bytes());
        // A NUL would end the name.
        out.extend(node.user.bytes().take_while(|byte| *byte != 0));
        out.push(0);
        out.push(proof.len() as u8);
        out.extend_from_slice(&proof);
        if capabilities.contains(CapabilityFlags::CLIENT_PLUGIN_AUTH) {
            out.extend_from_slice(authentication.method.name());
            out.push(0);
        }
        Ok((out, authentication))
    }
}

/// Returns what a client sends during its login to a server that sends these packets, and how the login ends; for fuzzing.
#[must_use]
pub fn login_packets<'a>(
    node: &Node,
    encrypted: bool,
    packets: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Vec<u8>>, String) {
    let mut sent = Vec::new();
    let login = || -> Result<(), LoginError> {
        let mut packets = packets.into_iter();
        let greeting = Greeting::parse(packets.next().unwrap_or_default())?;
        let (response, mut authentication) = greeting.response(node, encrypted)?;
        sent.push(response);
        for packet in packets {
            match authentication.answer(packet)? {
                Reaction::Send(packet) => sent.push(packet),
                Reaction::Wait => {}
                Reaction::Done => return Ok(()),
            }
        }
        Err(LoginError::Malformed("the server sends nothing more"))
    };
    let ended = format!("{:?}", login());
    (sent, ended)
}

/// Authentication methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Native,
    CachingSha2,
    Ed25519,
}

impl Method {
    const ALL: [Self; 3] = [Self::Native, Self::CachingSha2, Self::Ed25519];

    fn name(self) -> &'static [u8] {
        match self {
            Self::Native => b"mysql_native_password",
            Self::CachingSha2 => b"caching_sha2_password",
            Self::Ed25519 => b"client_ed25519",
        }
    }
}

/// What follows a packet of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// This packet must be sent.
    Send(Vec<u8>),
    /// Another packet follows.
    Wait,
    /// The login is complete.
    Done,
}

/// Proves that the client knows the password.
pub(super) struct Authentication {
    password: Vec<u8>,
    /// Whether the password may be encrypted with a key that the server sends.
    public_key: bool,
    /// Whether no other process can read what is sent.
    private: bool,
    method: Method,
    challenge: Vec<u8>,
    switched: bool,
    key_requested: bool,
}

impl Authentication {
    /// Handles the server's next packet.
    pub(super) fn answer(&mut self, packet: &[u8]) -> Result<Reaction, LoginError> {
        match packet {
            [0x00, ..] => Ok(Reaction::Done),
            [0xff, ..] => Err(refused(packet)),
            [0xfe, request @ ..] if !self.switched => self.switch(request),
            [0x01, data @ ..] if self.method == Method::CachingSha2 => self.continued(data),
            _ => Err(LoginError::Malformed(
                "an answer to the login is not one of the protocol",
            )),
        }
    }

    /// Uses another method, as the server requests.
    fn switch(&mut self, request: &[u8]) -> Result<Reaction, LoginError> {
        let Some((name, challenge)) = until_nul(request) else {
            return Err(LoginError::Method("mysql_old_password".to_owned()));
        };
        let known = Method::ALL.into_iter().find(|method| method.name() == name);
        self.method =
            known.ok_or_else(|| LoginError::Method(String::from_utf8_lossy(name).into_owned()))?;
        self.switched = true;
        self.challenge = challenge.strip_suffix(&[0]).unwrap_or(challenge).to_vec();
        self.proof().map(Reaction::Send)
    }

    /// Returns what proves the knowledge of the password without revealing it.
    fn proof(&self) -> Result<Vec<u8>, LoginError> {
        let (password, challenge) = (self.password.as_slice(), self.challenge.as_slice());
        Ok(match self.method {
            // An empty password has an empty proof.
            Method::Native => {
                scramble_native(challenge, password).map_or_else(Vec::new, |proof| proof.to_vec())
            }
            Method::CachingSha2 => {
                scramble_sha256(challenge, password).map_or_else(Vec::new, |proof| proof.to_vec())
            }
            Method::Ed25519 => create_response_for_ed25519(password, challenge).to_vec(),
        })
    }

    /// Continues `caching_sha2_password`: the password is in the server's cache, or the server needs it.
    fn continued(&mut self, data: &[u8]) -> Result<Reaction, LoginError> {
        const KNOWN: u8 = 3;
        const NEEDED: u8 = 4;
        const REQUEST_KEY: u8 = 2;
        if self.key_requested {
            self.key_requested = false;
            let mut secret = [self.password.as_slice(), &[0]].concat();
            for (byte, mask) in secret.iter_mut().zip(self.challenge.iter().cycle()) {
                *byte ^= mask;
            }
            // It panics on what is no key.
            return driver::call(|| crypto::encrypt(&secret, data))
                .map(Reaction::Send)
                .map_err(|_| LoginError::Malformed("the server's public key is invalid"));
        }
        match data {
            [KNOWN] => Ok(Reaction::Wait),
            [NEEDED] if self.private => {
                Ok(Reaction::Send([self.password.as_slice(), &[0]].concat()))
            }
            [NEEDED] if !self.public_key => Err(LoginError::UnverifiedKey),
            [NEEDED] => {
                self.key_requested = true;
                Ok(Reaction::Send(vec![REQUEST_KEY]))
            }
            _ => Err(LoginError::Malformed(
                "an answer to the login is not one of the protocol",
            )),
        }
    }
}

/// Splits at the first NUL, which belongs to neither part.
fn until_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

fn refused(packet: &[u8]) -> LoginError {
    refusal(packet).map_or(
        LoginError::Malformed("an error of the server is truncated"),
        LoginError::Refused,
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use replimeter_model::target::{Endpoint, Secret};

    use super::*;

    /// A greeting like those of MySQL: version 8, connection 7, every capability.
    fn greeting(method: &[u8]) -> Vec<u8> {
        let mut packet = vec![PROTOCOL];
        packet.extend_from_slice(b"8.0.1\0");
        packet.extend_from_slice(&7u32.to_le_bytes());
        packet.extend_from_slice(b"abcdefgh\0");
        packet.extend_from_slice(&[0xff, 0xff, 45, 2, 0, 0xff, 0xdf, 21]);
        packet.extend_from_slice(&[0; 10]);
        packet.extend_from_slice(b"ijklmnopqrst\0");
        packet.extend_from_slice(method);
        packet.push(0);
        packet
    }

    fn node(password: &str, host: &str) -> Node {
        let endpoint = Endpoint::parse(&format!("mysql://{host}:3306")).unwrap().0;
        Node {
            password: Some(Secret::new(password)),
            ..Node::new("primary", endpoint, "u", std::time::Duration::from_secs(1))
        }
    }

    #[test]
    fn greeting_is_parsed() {
        let parsed = Greeting::parse(&greeting(b"caching_sha2_password")).unwrap();
        assert_eq!(
            (
                parsed.connection,
                parsed.challenge.as_slice(),
                parsed.method.as_slice()
            ),
            (
                7,
                &b"abcdefghijklmnopqrst"[..],
                &b"caching_sha2_password"[..]
            )
        );
        assert!(parsed.offers_tls());
        let error = b"\xff\x10\x04Too many connections";
        assert!(
            matches!(Greeting::parse(error), Err(LoginError::Refused(refusal)) if refusal.code == 1040)
        );
    }

    #[test]
    fn response_has_user_proof_and_method() {
        let parsed = Greeting::parse(&greeting(b"mysql_native_password")).unwrap();
        let (response, mut rest) = parsed
            .response(&node("secret", "127.0.0.1"), false)
            .unwrap();
        let proof = scramble_native(b"abcdefghijklmnopqrst", b"secret").unwrap();
        assert_eq!(&response[32..35], b"u\0\x14");
        assert_eq!(&response[35..55], proof);
        assert_eq!(&response[55..], b"mysql_native_password\0");
        let capabilities = u32::from_le_bytes(response[..4].try_into().unwrap());
        let capabilities = CapabilityFlags::from_bits_truncate(capabilities);
        // Without these, the scanner's form of answers.
        assert!(!capabilities.intersects(
            CapabilityFlags::CLIENT_DEPRECATE_EOF
                | CapabilityFlags::CLIENT_SSL
                | CapabilityFlags::CLIENT_SESSION_TRACK
                | CapabilityFlags::CLIENT_COMPRESS
        ));
        assert_eq!(rest.answer(&[0, 0, 0, 2, 0, 0, 0]).unwrap(), Reaction::Done);
        let (empty, _) = parsed.response(&node("", "127.0.0.1"), false).unwrap();
        assert_eq!(&empty[32..36], b"u\0\0m");
    }

    #[test]
    fn method_is_switched_once() {
        let parsed = Greeting::parse(&greeting(b"caching_sha2_password")).unwrap();
        let (_, mut rest) = parsed
            .response(&node("secret", "127.0.0.1"), false)
            .unwrap();
        let request = b"\xfemysql_native_password\0ABCDEFGHIJKLMNOPQRST\0";
        let proof = scramble_native(b"ABCDEFGHIJKLMNOPQRST", b"secret").unwrap();
        assert_eq!(
            rest.answer(request).unwrap(),
            Reaction::Send(proof.to_vec())
        );
        assert!(matches!(
            rest.answer(request),
            Err(LoginError::Malformed(_))
        ));
        let (_, mut rest) = parsed
            .response(&node("secret", "127.0.0.1"), false)
            .unwrap();
        let clear = rest.answer(b"\xfemysql_clear_password\0");
        assert!(matches!(clear, Err(LoginError::Method(name)) if name == "mysql_clear_password"));
    }

    #[test]
    fn password_is_sent_only_where_it_may() {
        let parsed = Greeting::parse(&greeting(b"caching_sha2_password")).unwrap();
        let login = |host, encrypted| parsed.response(&node("secret", host), encrypted).unwrap().1;
        // The server has it in its cache.
        let mut known = login("192.0.2.1", false);
        assert_eq!(known.answer(&[1, 3]).unwrap(), Reaction::Wait);
        // Over TLS.
        let full = login("192.0.2.1", true).answer(&[1, 4]).unwrap();
        assert_eq!(full, Reaction::Send(b"secret\0".to_vec()));
        // Without TLS: by a key on this machine only.
        let remote = login("192.0.2.1", false).answer(&[1, 4]);
        assert!(matches!(remote, Err(LoginError::UnverifiedKey)));
        let mut local = login("127.0.0.1", false);
        assert_eq!(local.answer(&[1, 4]).unwrap(), Reaction::Send(vec![2]));
        assert!(matches!(
            local.answer(b"\x01no key"),
            Err(LoginError::Malformed(_))
        ));
    }

    proptest! {
        #[test]
        fn hostile_packets_do_not_panic(first in proptest::collection::vec(any::<u8>(), 0..100), cut in 0usize..90, others in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..5)) {
            let _ = Greeting::parse(&first);
            let whole = greeting(b"caching_sha2_password");
            if let Ok(parsed) = Greeting::parse(&whole[..cut.min(whole.len())]) {
                let (_, mut rest) = parsed.response(&node("secret", "127.0.0.1"), false).unwrap();
                for packet in &others {
                    let _ = rest.answer(packet);
                }
            }
        }
    }
}
