//! Parses single events of a binary log. No length in the bytes is trusted.
//!
//! Sources: the MySQL source's `libs/mysql/binlog/event` and
//! `libs/mysql/serialization`, MariaDB's knowledge base "Replication Protocol".

use crate::position::{CommitId, DomainCommit, Tag, Uuid};

/// Bytes of an event's header.
pub(crate) const HEADER: usize = 19;
/// Bytes of the checksum after an event.
const CHECKSUM: usize = 4;
/// Flag: created by the server for the stream, and in no file.
pub(crate) const ARTIFICIAL: u16 = 0x20;

/// The event types that matter here.
pub(crate) mod kind {
    pub(crate) const QUERY: u8 = 2;
    pub(crate) const ROTATE: u8 = 4;
    pub(crate) const FORMAT_DESCRIPTION: u8 = 15;
    pub(crate) const XID: u8 = 16;
    pub(crate) const TABLE_MAP: u8 = 19;
    pub(crate) const HEARTBEAT: u8 = 27;
    pub(crate) const GTID: u8 = 33;
    pub(crate) const ANONYMOUS_GTID: u8 = 34;
    pub(crate) const XA_PREPARE: u8 = 38;
    pub(crate) const TRANSACTION_PAYLOAD: u8 = 40;
    pub(crate) const HEARTBEAT_V2: u8 = 41;
    pub(crate) const GTID_TAGGED: u8 = 42;
    /// MariaDB's event types begin here.
    pub(crate) const ANNOTATE_ROWS: u8 = 160;
    pub(crate) const MARIADB_GTID: u8 = 162;
    pub(crate) const QUERY_COMPRESSED: u8 = 165;
    pub(crate) const DELETE_ROWS_COMPRESSED_V2: u8 = 171;
}

/// Returns whether this event type is known.
#[must_use]
pub(crate) fn known(kind: u8) -> bool {
    (kind::QUERY - 1..=kind::GTID_TAGGED).contains(&kind)
        || (kind::ANNOTATE_ROWS..=kind::DELETE_ROWS_COMPRESSED_V2).contains(&kind)
}

/// Reads values from the front of bytes; returns `None` when there are too few.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteReader<'b>(pub(crate) &'b [u8]);

impl<'b> ByteReader<'b> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads `mysql::serialization`'s integer: the trailing one bits of the first byte give the
    /// number of bytes that follow.
    fn varlen(&mut self) -> Option<u64> {
        let more = self.0.first()?.trailing_ones() as usize;
        let bytes = self.take(more + 1)?;
        let mut whole = [0; 8];
        if more == 8 {
            whole.copy_from_slice(&bytes[1..]);
            return Some(u64::from_le_bytes(whole));
        }
        whole[..=more].copy_from_slice(bytes);
        Some(u64::from_le_bytes(whole) >> (more + 1))
    }

    /// Reads a signed integer, with the sign in the lowest bit.
    fn varlen_signed(&mut self) -> Option<i64> {
        let value = self.varlen()?;
        let magnitude = i64::try_from(value >> 1).ok()?;
        Some(if value & 1 == 1 {
            !magnitude
        } else {
            magnitude
        })
    }

    /// Reads MySQL's length-encoded integer.
    fn lenenc(&mut self) -> Option<u64> {
        match self.u8()? {
            small @ 0..=250 => Some(u64::from(small)),
            252 => self.u16().map(u64::from),
            253 => self
                .array::<3>()
                .map(|[a, b, c]| u64::from(u32::from_le_bytes([a, b, c, 0]))),
            254 => self.u64(),
            _ => None,
        }
    }
}

/// An event's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventHeader {
    /// The event type.
    pub(crate) kind: u8,
    /// `server_id` of the server where it was written.
    pub(crate) server_id: u32,
    /// Bytes of the event, including the header.
    pub(crate) length: u32,
    /// The position of its end in its file, modulo 4 GiB; 0 for none.
    pub(crate) end: u32,
    /// Flags such as [`ARTIFICIAL`].
    pub(crate) flags: u16,
}

impl EventHeader {
    /// Parses the 19 bytes; returns `None` when there are fewer.
    #[must_use]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let four = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        Some(Self {
            kind: header[4],
            server_id: four(5),
            length: four(9),
            end: four(13),
            flags: u16::from_le_bytes([header[17], header[18]]),
        })
    }
}

/// Commit times of a transaction by the servers' clocks, in microseconds since 1970; MySQL 8.0.1
/// and later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitTimes {
    /// On the server where it was written (`original_commit_timestamp`).
    pub original_us: i64,
    /// On the server whose binary log this is (`immediate_commit_timestamp`).
    pub immediate_us: i64,
}

/// The start of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionStart {
    /// `None` for an anonymous transaction.
    pub(crate) commit_id: Option<CommitId>,
    /// Whether the next standalone event is the whole transaction.
    pub(crate) standalone: bool,
    /// Whether only the end is missing: no BEGIN follows.
    pub(crate) begun: bool,
    pub(crate) commit: Option<CommitTimes>,
}

const STANDALONE: u8 = 1;

/// Parses MariaDB's GTID event.
pub(crate) fn mariadb_gtid(header: &EventHeader, body: &[u8]) -> Option<TransactionStart> {
    let mut bytes = ByteReader(body);
    let (sequence, domain, flags) = (bytes.u64()?, bytes.u32()?, bytes.u8()?);
    let standalone = flags & STANDALONE != 0;
    let commit_id = CommitId::Domain(DomainCommit {
        domain,
        server: header.server_id,
        sequence,
    });
    Some(TransactionStart {
        commit_id: Some(commit_id),
        standalone,
        begun: !standalone,
        commit: None,
    })
}

fn numbered(uuid: [u8; 16], tag: Tag, number: i64) -> Option<CommitId> {
    let number = u64::try_from(number).ok().filter(|number| *number > 0)?;
    Some(CommitId::Numbered {
        uuid: Uuid(uuid),
        tag,
        number,
    })
}

/// Reads a time of at most 55 bits, in MySQL's encoding.
fn microseconds(bytes: &mut ByteReader<'_>) -> Option<u64> {
    let [a, b, c, d, e, f, g] = bytes.array()?;
    Some(u64::from_le_bytes([a, b, c, d, e, f, g, 0]))
}

/// Parses MySQL's GTID event or anonymous GTID event.
pub(crate) fn mysql_gtid(body: &[u8], anonymous: bool) -> Option<TransactionStart> {
    /// Flag: a second timestamp follows.
    const ORIGINAL: u64 = 1 << 55;
    const LOGICAL_CLOCK: u8 = 2;
    let mut bytes = ByteReader(body);
    bytes.u8()?;
    let (uuid, number) = (bytes.array()?, bytes.u64()?);
    let commit_id = if anonymous {
        None
    } else {
        Some(numbered(uuid, Tag::default(), i64::try_from(number).ok()?)?)
    };
    // Events of servers before 8.0.1 end before this.
    let mut times = || {
        if bytes.u8()? != LOGICAL_CLOCK {
            return None;
        }
        bytes.take(16)?;
        let immediate = microseconds(&mut bytes)?;
        let original = if immediate & ORIGINAL != 0 {
            microseconds(&mut bytes)?
        } else {
            immediate
        };
        let us = |time: u64| i64::try_from(time & !ORIGINAL).ok();
        Some(CommitTimes {
            original_us: us(original)?,
            immediate_us: us(immediate)?,
        })
    };
    // Without the timestamps these bytes are a checksum or nothing.
    let commit = times().filter(|times| times.immediate_us > 0);
    Some(TransactionStart {
        commit_id,
        standalone: false,
        begun: false,
        commit,
    })
}

/// Parses MySQL's GTID event with a tag: a message of numbered fields.
pub(crate) fn tagged_gtid(body: &[u8]) -> Option<TransactionStart> {
    let mut bytes = ByteReader(body);
    // Its version, its size, and the last field that must be understood.
    let (_, size, _) = (bytes.varlen()?, bytes.varlen()?, bytes.varlen()?);
    let used = body.len() - bytes.0.len();
    // The size includes the message's first byte; a checksum may follow.
    let mut fields = ByteReader(
        bytes
            .0
            .get(..usize::try_from(size).ok()?.checked_sub(used)?)
            .unwrap_or(bytes.0),
    );
    let (mut uuid, mut tag, mut number) = ([0; 16], Tag::default(), 0);
    let (mut immediate, mut original) = (None, None);
    while !fields.0.is_empty() {
        match fields.varlen()? {
            0 => _ = fields.varlen()?,
            1 => {
                for byte in &mut uuid {
                    *byte = u8::try_from(fields.varlen()?).ok()?;
                }
            }
            2 => number = fields.varlen_signed()?,
            3 => {
                let length = usize::try_from(fields.varlen()?).ok()?;
                tag = Tag::new(fields.take(length)?)?;
            }
            4 | 5 => _ = fields.varlen_signed()?,
            6 => immediate = Some(i64::try_from(fields.varlen()?).ok()?),
            7 => original = Some(i64::try_from(fields.varlen()?).ok()?),
            // No later field is needed.
            _ => break,
        }
    }
    let commit = immediate.map(|immediate_us| CommitTimes {
        original_us: original.unwrap_or(immediate_us),
        immediate_us,
    });
    Some(TransactionStart {
        commit_id: Some(numbered(uuid, tag, number)?),
        standalone: false,
        begun: false,
        commit,
    })
}

/// The role of a statement in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementKind {
    /// Begins the transaction.
    Begin,
    /// Ends the transaction.
    End,
    /// Neither.
    Other,
}

/// Returns the schema of a statement and its role; of a compressed one (MariaDB), the schema only.
pub(crate) fn query(body: &[u8], checksum: bool) -> Option<(&[u8], StatementKind)> {
    let mut bytes = ByteReader(body);
    bytes.take(8)?;
    let schema_length = bytes.u8()?;
    bytes.u16()?;
    let variables = bytes.u16()?;
    bytes.take(usize::from(variables))?;
    let schema = bytes.take(usize::from(schema_length))?;
    bytes.u8()?;
    let text = if checksum {
        bytes.0.get(..bytes.0.len().checked_sub(CHECKSUM)?)?
    } else {
        bytes.0
    };
    Some((schema, verb(text)))
}

fn verb(text: &[u8]) -> StatementKind {
    // Longer statements are none of these; XA statements contain a name.
    let is = |word: &[u8]| text.eq_ignore_ascii_case(word);
    let starts = |word: &[u8]| {
        text.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    if is(b"BEGIN") || starts(b"XA START") || starts(b"XA BEGIN") {
        StatementKind::Begin
    } else if is(b"COMMIT") || is(b"ROLLBACK") {
        StatementKind::End
    } else {
        StatementKind::Other
    }
}

/// Returns the schema and table of a table map.
pub(crate) fn table_map(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut bytes = ByteReader(body);
    bytes.take(8)?;
    let mut name = || {
        let length = bytes.u8()?;
        let name = bytes.take(usize::from(length))?;
        bytes.u8()?;
        Some(name)
    };
    Some((name()?, name()?))
}

/// Returns the next file and the position in it.
pub(crate) fn rotate(body: &[u8], checksum: bool) -> Option<(&[u8], u64)> {
    let mut bytes = ByteReader(body);
    let position = bytes.u64()?;
    let name = if checksum {
        bytes.0.get(..bytes.0.len().checked_sub(CHECKSUM)?)?
    } else {
        bytes.0
    };
    (!name.is_empty() && name.len() <= 512).then_some((name, position))
}

/// Returns whether events carry a checksum, according to the format description event; `None` when
/// this format is not supported.
pub(crate) fn format(body: &[u8]) -> Option<bool> {
    const VERSION_4: u16 = 4;
    let mut bytes = ByteReader(body);
    if bytes.u16()? != VERSION_4 {
        return None;
    }
    bytes.take(50 + 4)?;
    if usize::from(bytes.u8()?) != HEADER {
        return None;
    }
    // The algorithm's number, then the event's own checksum.
    let algorithm = bytes
        .0
        .len()
        .checked_sub(CHECKSUM + 1)
        .and_then(|at| bytes.0.get(at))?;
    match algorithm {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Returns the events of a compressed transaction, and whether they are compressed by Zstandard
/// (otherwise they are uncompressed).
pub(crate) fn payload(body: &[u8]) -> Option<(&[u8], bool)> {
    let mut bytes = ByteReader(body);
    let mut packed = true;
    loop {
        let field = bytes.lenenc()?;
        if field == 0 {
            // To the end: a reader of frames ignores a checksum after them.
            return Some((bytes.0, packed));
        }
        let length = usize::try_from(bytes.lenenc()?).ok()?;
        let mut value = ByteReader(bytes.take(length)?);
        if field == 2 {
            packed = match value.lenenc()? {
                0 => true,
                255 => false,
                _ => return None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_encoded_numbers_are_read() {
        let read = |bytes: &[u8]| ByteReader(bytes).varlen();
        assert_eq!(read(&[0x02]), Some(1));
        assert_eq!(read(&[0x01, 0x02]), Some(128));
        assert_eq!(read(&[0xff, 1, 0, 0, 0, 0, 0, 0, 0x80]), Some(1 << 63 | 1));
        assert_eq!(read(&[0x7f, 0, 0, 0, 0, 0, 0, 0xff]), Some(0xff << 48));
        assert_eq!(read(&[0x01]), None);
        assert_eq!(read(&[]), None);
        assert_eq!(ByteReader(&[0x04]).varlen_signed(), Some(1));
        assert_eq!(ByteReader(&[0x02]).varlen_signed(), Some(-1));
    }

    #[test]
    fn statements_are_classified_by_first_word() {
        for (text, want) in [
            ("BEGIN", StatementKind::Begin),
            ("begin", StatementKind::Begin),
            ("XA START X'78',X'',1", StatementKind::Begin),
            ("COMMIT", StatementKind::End),
            ("ROLLBACK", StatementKind::End),
            ("ROLLBACK TO `a`", StatementKind::Other),
            ("XA COMMIT X'78'", StatementKind::Other),
            ("", StatementKind::Other),
        ] {
            assert_eq!(verb(text.as_bytes()), want, "{text}");
        }
    }
}
