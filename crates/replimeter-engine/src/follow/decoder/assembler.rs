//! Assembles events into transactions.

use std::io::Read;

use replimeter_model::time::Nanos;

use crate::{
    follow::{
        event::{
            self, ARTIFICIAL, CommitTimes, EventHeader, HEADER, StatementKind, TransactionStart,
            kind,
        },
        tables::{TableId, Tables},
    },
    position::CommitId,
};

/// Bytes kept of an event that is too large to be examined whole.
pub(super) const HEAD: usize = 64 << 10;
/// Maximum bytes examined in a compressed transaction, for its tables.
const UNPACKED: u64 = 8 << 20;
/// Maximum tables kept per transaction.
pub(super) const MAX_TABLES: usize = 64;

/// A position in a server's binary log.
///
/// Later places are greater: files are numbered with leading zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file; empty while unknown.
    pub file: String,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// A complete transaction.
#[derive(Clone, Copy, Debug)]
pub struct CompleteTransaction<'t> {
    /// Its GTID; `None` when it is anonymous.
    pub commit_id: Option<CommitId>,
    /// When the read that completed it returned.
    pub arrived: Nanos,
    /// Bytes of its events.
    pub bytes: u64,
    /// Its commit times by the servers' clocks, where the server sends them.
    pub commit: Option<CommitTimes>,
    /// The tables that it changes, each once; empty unless requested.
    pub tables: &'t [TableId],
}

/// Counts of a stream so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Bytes of the stream.
    pub bytes: u64,
    /// Events of all kinds.
    pub events: u64,
    /// Complete transactions.
    pub transactions: u64,
    /// Events of unknown types, which are skipped.
    pub unknown: u64,
    /// Heartbeats of an idle server.
    pub heartbeats: u64,
    /// Switches to another file.
    pub rotations: u64,
    /// Transactions whose tables are not all known, because they were too large.
    pub partial_tables: u64,
}

/// Why a stream cannot be read further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The bytes are not a valid binary log.
    #[error("corrupt at {} of {}: {what}", .position.offset, if .position.file.is_empty() { "an unknown file" } else { .position.file.as_str() })]
    Corrupt {
        /// The fault.
        what: String,
        /// The end of the last complete transaction before it.
        position: Position,
    },
    /// The server ended it with an error.
    #[error("{message} (error {code}, SQLSTATE {state})")]
    Refused {
        /// The server's error number.
        code: u16,
        /// SQLSTATE.
        state: String,
        /// The server's message.
        message: String,
    },
    /// The server ended it without an error.
    #[error("the server ended the stream")]
    Ended,
}

/// An incomplete transaction.
#[derive(Clone, Copy, Debug)]
struct OpenTransaction {
    begin: TransactionStart,
    bytes: u64,
}

/// Assembles events into transactions.
#[derive(Debug)]
pub(crate) struct Assembler {
    /// The end of the last complete transaction.
    pub(super) position: Position,
    checksum: bool,
    open: Option<OpenTransaction>,
    pub(super) tables: Option<Tables>,
    pub(super) touched: Vec<TableId>,
    pub(super) counts: StreamCounts,
}

impl Assembler {
    pub(super) fn new(from: Position, tables: bool) -> Self {
        Self {
            position: from,
            checksum: false,
            open: None,
            tables: tables.then(Tables::default),
            touched: Vec::new(),
            counts: StreamCounts::default(),
        }
    }

    /// Starts a new stream where the last one ended; counts and names are kept.
    pub(super) fn restart(&mut self, from: Position) {
        self.open = None;
        self.checksum = false;
        self.position = from;
    }

    /// Handles one event: its header, the kept part of its body, and its total length in bytes.
    pub(crate) fn event<S: FnMut(CompleteTransaction<'_>)>(
        &mut self,
        kept: &[u8],
        length: u64,
        at: Nanos,
        sink: &mut S,
    ) -> Result<(), StreamError> {
        let Some(header) = EventHeader::read(kept) else {
            return Err(self.corrupt(format!(
                "the header of an event of {length} bytes is incomplete"
            )));
        };
        if u64::from(header.length) != length {
            let stated = header.length;
            return Err(self.corrupt(format!(
                "an event of type {} states {stated} bytes but has {length}",
                header.kind
            )));
        }
        let body = &kept[HEADER..];
        self.counts.events += 1;
        let malformed =
            |own: &Self| own.corrupt(format!("an event of type {} is malformed", header.kind));
        if let Some(open) = &mut self.open {
            open.bytes += length;
        }
        match header.kind {
            kind::MARIADB_GTID => {
                let begin = event::mariadb_gtid(&header, body).ok_or_else(|| malformed(self))?;
                self.begin(begin, length);
            }
            kind::GTID | kind::ANONYMOUS_GTID => {
                let begin = event::mysql_gtid(body, header.kind == kind::ANONYMOUS_GTID)
                    .ok_or_else(|| malformed(self))?;
                self.begin(begin, length);
            }
            kind::GTID_TAGGED => {
                let begin = event::tagged_gtid(body).ok_or_else(|| malformed(self))?;
                self.begin(begin, length);
            }
            kind::XID | kind::XA_PREPARE => self.end(&header, length, at, sink),
            kind::QUERY | kind::QUERY_COMPRESSED => {
                let whole = kept.len() as u64 == length;
                let (schema, verb) =
                    event::query(body, self.checksum && whole).ok_or_else(|| malformed(self))?;
                // A statement too large to keep, or compressed, is neither BEGIN nor COMMIT.
                let verb = if whole && header.kind == kind::QUERY {
                    verb
                } else {
                    StatementKind::Other
                };
                self.query(&header, schema, verb, length, at, sink);
            }
            kind::TABLE_MAP if self.tables.is_some() => {
                let (schema, table) = event::table_map(body).ok_or_else(|| malformed(self))?;
                self.touch(schema, table);
            }
            kind::TRANSACTION_PAYLOAD => {
                if self.tables.is_some() {
                    self.unpack(body, kept.len() as u64 == length);
                }
                self.end(&header, length, at, sink);
            }
            kind::ROTATE => {
                // An artificial event has no checksum, since none was requested.
                let checksum = self.checksum && header.flags & ARTIFICIAL == 0;
                let (name, offset) =
                    event::rotate(body, checksum).ok_or_else(|| malformed(self))?;
                self.rotated(name, offset);
            }
            kind::FORMAT_DESCRIPTION => {
                self.checksum = event::format(body).ok_or_else(|| {
                    self.corrupt(
                        "this version of the binary log format is not supported".to_owned(),
                    )
                })?;
                // A crash of the server cut off any open transaction.
                self.open = None;
            }
            kind::HEARTBEAT | kind::HEARTBEAT_V2 => self.counts.heartbeats += 1,
            other if !event::known(other) => self.counts.unknown += 1,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn corrupt(&self, what: String) -> StreamError {
        StreamError::Corrupt {
            what,
            position: self.position.clone(),
        }
    }

    fn begin(&mut self, begin: TransactionStart, length: u64) {
        self.touched.clear();
        self.open = Some(OpenTransaction {
            begin,
            bytes: length,
        });
    }

    fn query<S: FnMut(CompleteTransaction<'_>)>(
        &mut self,
        header: &EventHeader,
        schema: &[u8],
        verb: StatementKind,
        length: u64,
        at: Nanos,
        sink: &mut S,
    ) {
        if verb == StatementKind::Other && !schema.is_empty() && self.tables.is_some() {
            self.touch(schema, b"");
        }
        match (&mut self.open, verb) {
            (Some(open), StatementKind::Begin) => open.begin.begun = true,
            // Servers without GTIDs.
            (None, StatementKind::Begin) => self.begin(
                TransactionStart {
                    commit_id: None,
                    standalone: false,
                    begun: true,
                    commit: None,
                },
                length,
            ),
            (Some(open), StatementKind::Other) if open.begin.begun && !open.begin.standalone => {}
            (_, StatementKind::End | StatementKind::Other) => self.end(header, length, at, sink),
        }
    }

    fn end<S: FnMut(CompleteTransaction<'_>)>(
        &mut self,
        header: &EventHeader,
        length: u64,
        at: Nanos,
        sink: &mut S,
    ) {
        let open = self.open.take();
        self.counts.transactions += 1;
        sink(CompleteTransaction {
            commit_id: open.and_then(|open| open.begin.commit_id),
            arrived: at,
            bytes: open.map_or(length, |open| open.bytes),
            commit: open.and_then(|open| open.begin.commit),
            tables: &self.touched,
        });
        self.touched.clear();
        if header.end != 0 {
            self.position.offset = unwrapped(self.position.offset, header.end);
        }
    }

    fn touch(&mut self, schema: &[u8], table: &[u8]) {
        let Some(tables) = &mut self.tables else {
            return;
        };
        let id = tables.id(schema, table);
        if !self.touched.contains(&id) {
            if self.touched.len() < MAX_TABLES {
                self.touched.push(id);
            } else {
                self.counts.partial_tables += 1;
            }
        }
    }

    /// Collects the tables of a compressed transaction.
    fn unpack(&mut self, body: &[u8], whole: bool) {
        let complete = whole && self.unpacked(body).is_some();
        self.counts.partial_tables += u64::from(!complete);
    }

    fn unpacked(&mut self, body: &[u8]) -> Option<()> {
        let (packed, zstd) = event::payload(body)?;
        let mut reader: Box<dyn Read> = if zstd {
            Box::new(
                ruzstd::decoding::StreamingDecoder::new(packed)
                    .ok()?
                    .take(UNPACKED),
            )
        } else {
            Box::new(packed.take(UNPACKED))
        };
        let mut kept = Vec::new();
        loop {
            let mut raw = [0; HEADER];
            match reader.read(&mut raw).ok()? {
                0 => return Some(()),
                HEADER => {}
                some => reader.read_exact(&mut raw[some..]).ok()?,
            }
            let header = EventHeader::read(&raw)?;
            // Events in a compressed transaction have no checksum.
            let length = u64::from(header.length).checked_sub(HEADER as u64)?;
            kept.clear();
            let wanted = length.min(HEAD as u64);
            if (&mut reader).take(wanted).read_to_end(&mut kept).ok()? as u64 != wanted {
                return None;
            }
            std::io::copy(
                &mut (&mut reader).take(length - wanted),
                &mut std::io::sink(),
            )
            .ok()?;
            match header.kind {
                kind::TABLE_MAP => {
                    let (schema, table) = event::table_map(&kept)?;
                    self.touch(schema, table);
                }
                kind::QUERY => {
                    let (schema, verb) = event::query(&kept, false)?;
                    if verb == StatementKind::Other && !schema.is_empty() {
                        self.touch(schema, b"");
                    }
                }
                _ => {}
            }
        }
    }

    fn rotated(&mut self, name: &[u8], offset: u64) {
        let old = self.position.file.as_bytes();
        // The first name may include an unannounced checksum, and a later one may lack its end, if
        // that was taken for a checksum.
        let same = old == name
            || name.len() == old.len() + 4 && name.starts_with(old) && !old.is_empty()
            || old.len() == name.len() + 4 && old.starts_with(name);
        if !same {
            self.counts.rotations += u64::from(!old.is_empty());
            self.position.file = String::from_utf8_lossy(name).into_owned();
        }
        self.position.offset = offset;
    }

    /// Counts bytes from another source.
    pub(crate) fn count_bytes(&mut self, bytes: u64) {
        self.counts.bytes += bytes;
    }
}

/// Returns the offset whose low half is `low` and that comes after `before`.
pub(super) fn unwrapped(before: u64, low: u32) -> u64 {
    const HALF: u64 = 1 << 31;
    let candidate = (before & !u64::from(u32::MAX)) | u64::from(low);
    if candidate.saturating_add(HALF) < before {
        candidate.saturating_add(2 * HALF)
    } else {
        candidate
    }
}
