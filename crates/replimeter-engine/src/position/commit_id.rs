//! What identifies one transaction on every server, small enough to copy.

use std::{fmt, str::FromStr};

use super::gtid_set::{DomainCommit, GtidError, domain_commits};
use crate::identity::Identity;

/// A UUID as its 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = GtidError;

    fn from_str(text: &str) -> Result<Self, GtidError> {
        let refuse = || GtidError::of(text);
        let bytes = text.as_bytes();
        if bytes.len() != 36 || [8, 13, 18, 23].iter().any(|at| bytes[*at] != b'-') {
            return Err(refuse());
        }
        let mut digits = bytes
            .iter()
            .filter(|byte| **byte != b'-')
            .map(|byte| char::from(*byte).to_digit(16));
        let mut uuid = [0; 16];
        for byte in &mut uuid {
            let mut digit = || {
                digits
                    .next()
                    .flatten()
                    .and_then(|digit| u8::try_from(digit).ok())
            };
            *byte = digit()
                .zip(digit())
                .map(|(high, low)| high << 4 | low)
                .ok_or_else(refuse)?;
        }
        if digits.next().is_some() {
            Err(refuse())
        } else {
            Ok(Self(uuid))
        }
    }
}

/// Maximum length of a tag, in bytes.
pub const MAX_TAG_LENGTH: usize = 32;

/// A tag of MySQL 8.3 and later, in lower case; empty for none.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag([u8; MAX_TAG_LENGTH]);

impl Tag {
    /// Returns the tag with this text; `None` when it is not valid.
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        if text.len() > MAX_TAG_LENGTH
            || !text.iter().all(word)
            || text.first().is_some_and(u8::is_ascii_digit)
        {
            return None;
        }
        let mut tag = [0; MAX_TAG_LENGTH];
        tag[..text.len()].copy_from_slice(text);
        tag.make_ascii_lowercase();
        Some(Self(tag))
    }

    /// Returns its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(MAX_TAG_LENGTH);
        std::str::from_utf8(&self.0[..end]).unwrap_or("")
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// What identifies one transaction, the same on every server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CommitId {
    /// MariaDB: `domain-server-sequence`.
    Domain(DomainCommit),
    /// MySQL: `uuid:number` or `uuid:tag:number`.
    Numbered {
        /// The UUID of the server or group where it was written.
        uuid: Uuid,
        /// Its tag; empty for most.
        tag: Tag,
        /// Its number.
        number: u64,
    },
}

/// A server, as the ids of what it wrote itself name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginServer {
    /// MariaDB: its `server_id`.
    Id(u32),
    /// MySQL: its `server_uuid`.
    Uuid(Uuid),
}

impl OriginServer {
    /// Returns the server with this identity; `None` for an invalid one.
    #[must_use]
    pub fn of(identity: &Identity) -> Option<Self> {
        if identity.uuid.is_empty() {
            identity.server_id.try_into().ok().map(Self::Id)
        } else {
            identity.uuid.parse().ok().map(Self::Uuid)
        }
    }
}

impl CommitId {
    /// Returns the server that wrote the transaction; for that of a cluster, what stands for the cluster.
    #[must_use]
    pub fn origin(&self) -> OriginServer {
        match self {
            Self::Domain(gtid) => OriginServer::Id(gtid.server),
            Self::Numbered { uuid, .. } => OriginServer::Uuid(*uuid),
        }
    }

    /// Splits it into its source and its number there.
    #[must_use]
    pub fn split(&self) -> (CommitSource, u64) {
        match self {
            Self::Domain(gtid) => (
                CommitSource::Domain(gtid.domain, gtid.server),
                gtid.sequence,
            ),
            Self::Numbered { uuid, tag, number } => (CommitSource::Uuid(*uuid, *tag), *number),
        }
    }
}

/// Where transactions come from: their id without the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitSource {
    /// MariaDB: domain and server.
    Domain(u32, u32),
    /// MySQL: UUID and tag.
    Uuid(Uuid, Tag),
}

impl CommitSource {
    /// Returns the server that wrote the transactions.
    #[must_use]
    pub fn origin(&self) -> OriginServer {
        match self {
            Self::Domain(_, server) => OriginServer::Id(*server),
            Self::Uuid(uuid, _) => OriginServer::Uuid(*uuid),
        }
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(gtid) => gtid.fmt(f),
            Self::Numbered { uuid, tag, number } if tag.as_str().is_empty() => {
                write!(f, "{uuid}:{number}")
            }
            Self::Numbered { uuid, tag, number } => write!(f, "{uuid}:{}:{number}", tag.as_str()),
        }
    }
}

impl FromStr for CommitId {
    type Err = GtidError;

    fn from_str(text: &str) -> Result<Self, GtidError> {
        let refuse = || GtidError::of(text);
        let mut parts = text.split(':');
        let (Some(uuid), Some(second)) = (parts.next(), parts.next()) else {
            return match domain_commits(text)?.as_slice() {
                [gtid] => Ok(Self::Domain(*gtid)),
                _ => Err(refuse()),
            };
        };
        let (tag, number) = parts.next().map_or(("", second), |number| (second, number));
        let decimal = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        match (Tag::new(tag.as_bytes()), number.parse()) {
            (Some(tag), Ok(number)) if decimal && number > 0 && parts.next().is_none() => {
                Ok(Self::Numbered {
                    uuid: uuid.parse()?,
                    tag,
                    number,
                })
            }
            _ => Err(refuse()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gtids_of_both_dialects_round_trip() {
        for text in [
            "0-1-100",
            "4294967295-4294967295-18446744073709551615",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:23",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:batch_1:9",
        ] {
            assert_eq!(text.parse::<CommitId>().unwrap().to_string(), text);
        }
        let upper: CommitId = "3E11FA47-71CA-11E1-9E33-C80AA9429562:Batch:9"
            .parse()
            .unwrap();
        assert_eq!(
            upper.to_string(),
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:batch:9"
        );
        for text in [
            "",
            "0-1",
            "0-1-2,0-1-3",
            "x:1",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:0",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:+1",
        ] {
            assert!(text.parse::<CommitId>().is_err(), "{text}");
        }
        let long = "a".repeat(32);
        assert_eq!(Tag::new(long.as_bytes()).unwrap().as_str(), long);
        assert!(Tag::new("a".repeat(33).as_bytes()).is_none());
        assert!(size_of::<CommitId>() <= 64);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9a-f-]{36}|[0-9]{1,22}|[:,a-z_é-]){0,8}") {
            if let Ok(gtid) = text.parse::<CommitId>() {
                prop_assert_eq!(gtid.to_string().parse::<CommitId>().unwrap(), gtid);
            }
        }
    }
}
