//! Turns what a server sends into transactions. Works on bytes alone: no socket,
//! no clock, bounded memory whatever the bytes say.

use std::io::Read;

use replimeter_model::time::Nanos;

use crate::binlog::{
    event::{self, ARTIFICIAL, Begin, Bytes, CommitTimes, HEADER, Header, Verb, kind},
    gtid::Gtid,
    tables::{TableId, Tables},
};

/// Bytes read at once, and the largest packet that is looked at whole.
const CAPACITY: usize = 256 << 10;
/// Bytes kept of a larger one.
const HEAD: usize = 64 << 10;
/// The length of a packet that goes on in the next.
const FULL_PACKET: usize = 0xff_ffff;
/// Bytes of a packet's own header.
const PACKET_HEADER: usize = 4;
/// Bytes looked at inside of a compressed transaction, for the tables in it.
const UNPACKED: u64 = 8 << 20;
/// Tables kept of one transaction.
const MOST_TABLES: usize = 64;

/// A place in a server's binary log.
///
/// Later places are greater: files are numbered with leading zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file; empty when not known yet.
    pub file: String,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// A transaction that has arrived whole.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'t> {
    /// Its name; `None` when it is anonymous.
    pub gtid: Option<Gtid>,
    /// When the read that completed it returned.
    pub arrived: Nanos,
    /// Bytes of its events.
    pub bytes: u64,
    /// Its commit by the servers' clocks, where the server says.
    pub commit: Option<CommitTimes>,
    /// The tables that it touches, each once; empty unless asked for.
    pub tables: &'t [TableId],
}

/// What has come so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes of the stream.
    pub bytes: u64,
    /// Events of all kinds.
    pub events: u64,
    /// Whole transactions.
    pub transactions: u64,
    /// Events of a kind that this tool has never heard of; passed over.
    pub unknown: u64,
    /// Word that the server's log lacks something.
    pub incidents: u64,
    /// Signs of life while nothing was committed.
    pub heartbeats: u64,
    /// Changes to another file.
    pub rotations: u64,
    /// Transactions whose tables are not all known, since they were too large.
    pub partial_tables: u64,
}

/// Why a stream cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The bytes are no binary log.
    #[error("corrupt at {} of {}: {what}", .position.offset, if .position.file.is_empty() { "an unknown file" } else { .position.file.as_str() })]
    Corrupt {
        /// What is wrong.
        what: String,
        /// The end of the last whole transaction before it.
        position: Position,
    },
    /// The server ended it with an error.
    #[error("{message} (error {code}, SQLSTATE {state})")]
    Refused {
        /// The server's error number.
        code: u16,
        /// SQLSTATE.
        state: String,
        /// The server's words.
        message: String,
    },
    /// The server ended it without one.
    #[error("the server ended the stream")]
    Ended,
}

/// A transaction under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    begin: Begin,
    bytes: u64,
}

/// Joins events to transactions.
#[derive(Debug)]
pub(crate) struct Assembler {
    /// The end of the last whole transaction.
    position: Position,
    checksum: bool,
    open: Option<Open>,
    tables: Option<Tables>,
    touched: Vec<TableId>,
    counts: Counts,
}

impl Assembler {
    /// Takes one event: its header, as much of its body as was kept, and its whole
    /// length in bytes.
    pub(crate) fn event<S: FnMut(Arrived<'_>)>(
        &mut self,
        kept: &[u8],
        length: u64,
        at: Nanos,
        sink: &mut S,
    ) -> Result<(), StreamError> {
        let Some(header) = Header::read(kept) else {
            return Err(self.corrupt(format!("an event of {length} bytes has no whole header")));
        };
        if u64::from(header.length) != length {
            let stated = header.length;
            return Err(self.corrupt(format!(
                "an event of kind {} states {stated} bytes and has {length}",
                header.kind
            )));
        }
        let body = &kept[HEADER..];
        self.counts.events += 1;
        let malformed =
            |own: &Self| own.corrupt(format!("an event of kind {} is malformed", header.kind));
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
            kind::QUERY => {
                // A statement too large to be kept is neither BEGIN nor COMMIT.
                let whole = kept.len() as u64 == length;
                let (schema, verb) =
                    event::query(body, self.checksum && whole).ok_or_else(|| malformed(self))?;
                let verb = if whole { verb } else { Verb::Other };
                self.query(&header, schema, verb, length, at, sink);
            }
            kind::QUERY_COMPRESSED => self.query(&header, b"", Verb::Other, length, at, sink),
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
                // One made for the stream has no checksum, since none was asked for.
                let checksum = self.checksum && header.flags & ARTIFICIAL == 0;
                let (name, offset) =
                    event::rotate(body, checksum).ok_or_else(|| malformed(self))?;
                self.rotated(name, offset);
            }
            kind::FORMAT_DESCRIPTION => {
                self.checksum = event::format(body).ok_or_else(|| {
                    self.corrupt("the format's description is of another version".to_owned())
                })?;
                // Whatever stood open was cut off by a crash of the server.
                self.open = None;
            }
            kind::HEARTBEAT | kind::HEARTBEAT_V2 => self.counts.heartbeats += 1,
            kind::INCIDENT => self.counts.incidents += 1,
            other if !event::known(other) => self.counts.unknown += 1,
            _ => {}
        }
        Ok(())
    }

    fn corrupt(&self, what: String) -> StreamError {
        StreamError::Corrupt {
            what,
            position: self.position.clone(),
        }
    }

    fn begin(&mut self, begin: Begin, length: u64) {
        self.touched.clear();
        self.open = Some(Open {
            begin,
            bytes: length,
        });
    }

    fn query<S: FnMut(Arrived<'_>)>(
        &mut self,
        header: &Header,
        schema: &[u8],
        verb: Verb,
        length: u64,
        at: Nanos,
        sink: &mut S,
    ) {
        if verb == Verb::Other && !schema.is_empty() && self.tables.is_some() {
            self.touch(schema, b"");
        }
        match (&mut self.open, verb) {
            (Some(open), Verb::Begin) => open.begin.begun = true,
            // Servers that know no GTIDs.
            (None, Verb::Begin) => self.begin(
                Begin {
                    gtid: None,
                    standalone: false,
                    begun: true,
                    commit: None,
                },
                length,
            ),
            (Some(open), Verb::Other) if open.begin.begun && !open.begin.standalone => {}
            (_, Verb::End | Verb::Other) => self.end(header, length, at, sink),
        }
    }

    fn end<S: FnMut(Arrived<'_>)>(
        &mut self,
        header: &Header,
        length: u64,
        at: Nanos,
        sink: &mut S,
    ) {
        let open = self.open.take();
        self.counts.transactions += 1;
        sink(Arrived {
            gtid: open.and_then(|open| open.begin.gtid),
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
            if self.touched.len() < MOST_TABLES {
                self.touched.push(id);
            } else {
                self.counts.partial_tables += 1;
            }
        }
    }

    /// Looks for tables in a compressed transaction.
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
            let header = Header::read(&raw)?;
            // Events in here have no checksum.
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
                    if verb == Verb::Other && !schema.is_empty() {
                        self.touch(schema, b"");
                    }
                }
                _ => {}
            }
        }
    }

    fn rotated(&mut self, name: &[u8], offset: u64) {
        let old = self.position.file.as_bytes();
        // The first one may carry a checksum that nobody announced, and a later one lack
        // the end that was taken for a checksum.
        let same = old == name
            || name.len() == old.len() + 4 && name.starts_with(old) && !old.is_empty()
            || old.len() == name.len() + 4 && old.starts_with(name);
        if !same {
            self.counts.rotations += u64::from(!old.is_empty());
            self.position.file = String::from_utf8_lossy(name).into_owned();
        }
        self.position.offset = offset;
    }
}

/// The offset whose low half is `low` and that comes after `before`.
fn unwrapped(before: u64, low: u32) -> u64 {
    const HALF: u64 = 1 << 31;
    let candidate = (before & !u64::from(u32::MAX)) | u64::from(low);
    if candidate.saturating_add(HALF) < before {
        candidate.saturating_add(2 * HALF)
    } else {
        candidate
    }
}

/// The rest of a packet that is too large to be kept.
#[derive(Clone, Copy, Debug)]
struct Skip {
    left: usize,
    /// The packet goes on in another.
    more: bool,
    /// Bytes of the whole so far, without the leading status byte.
    length: u64,
}

/// Takes a server's bytes as they come and hands on whole transactions.
#[derive(Debug)]
pub struct Decoder {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    head: Vec<u8>,
    skip: Option<Skip>,
    sequence: Option<u8>,
    assembler: Assembler,
}

impl Decoder {
    /// A decoder at the beginning of a stream; `file` is the one that was asked for,
    /// if any. With `tables`, transactions name the tables that they touch.
    #[must_use]
    pub fn new(from: Position, tables: bool) -> Self {
        Self {
            buffer: vec![0; CAPACITY].into_boxed_slice(),
            start: 0,
            end: 0,
            head: Vec::new(),
            skip: None,
            sequence: None,
            assembler: Assembler {
                position: from,
                checksum: false,
                open: None,
                tables: tables.then(Tables::default),
                touched: Vec::new(),
                counts: Counts::default(),
            },
        }
    }

    /// Where the next bytes go; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        // What is left of an event that is not whole yet is smaller than the buffer.
        if self.start > 0 && (self.start == self.end || CAPACITY - self.end < CAPACITY / 4) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.buffer[self.end..]
    }

    /// Says that `count` bytes were written into the space, and when they were there;
    /// hands on every transaction that they complete. Counts beyond the space are cut.
    ///
    /// # Errors
    /// When the bytes are no binary log, or tell that the server ended it.
    pub fn filled<S: FnMut(Arrived<'_>)>(
        &mut self,
        count: usize,
        at: Nanos,
        sink: &mut S,
    ) -> Result<(), StreamError> {
        let count = count.min(CAPACITY - self.end);
        self.end += count;
        self.assembler.counts.bytes += count as u64;
        while self.step(at, sink)? {}
        Ok(())
    }

    /// Takes the next piece out of the buffer; `false` when it is not whole.
    fn step<S: FnMut(Arrived<'_>)>(
        &mut self,
        at: Nanos,
        sink: &mut S,
    ) -> Result<bool, StreamError> {
        let there = self.end - self.start;
        if let Some(skip) = &mut self.skip {
            let now = skip.left.min(there);
            skip.left -= now;
            self.start += now;
            if skip.left > 0 {
                return Ok(false);
            }
            if !skip.more {
                let length = skip.length;
                self.skip = None;
                self.assembler.event(&self.head, length, at, sink)?;
                return Ok(true);
            }
        }
        let rest = &self.buffer[self.start..self.end];
        let Some([a, b, c, sequence]) = rest.first_chunk::<PACKET_HEADER>().copied() else {
            return Ok(false);
        };
        let length = u32::from_le_bytes([a, b, c, 0]) as usize;
        let wanted = if self.skip.is_some() {
            PACKET_HEADER
        } else if length <= CAPACITY / 2 {
            PACKET_HEADER + length
        } else {
            PACKET_HEADER + 1 + HEAD
        };
        if rest.len() < wanted {
            return Ok(false);
        }
        // The numbers of packets follow one another: bytes lost or added show here.
        if self
            .sequence
            .is_some_and(|before| before.wrapping_add(1) != sequence)
        {
            return Err(self
                .assembler
                .corrupt("packets do not follow one another".to_owned()));
        }
        self.sequence = Some(sequence);
        self.start += wanted;
        if let Some(skip) = &mut self.skip {
            skip.left = length;
            skip.more = length == FULL_PACKET;
            skip.length += length as u64;
            return Ok(true);
        }
        let packet = &self.buffer[self.start - wanted + PACKET_HEADER..self.start];
        match packet.first() {
            Some(0) => {}
            Some(0xff) => return Err(refused(packet)),
            Some(0xfe) if length < 9 => return Err(StreamError::Ended),
            _ => return Err(self.assembler.corrupt("a packet is no event".to_owned())),
        }
        if length <= CAPACITY / 2 {
            self.assembler
                .event(&packet[1..], length as u64 - 1, at, sink)?;
        } else {
            self.head.clear();
            self.head.extend_from_slice(&packet[1..]);
            self.skip = Some(Skip {
                left: length - 1 - HEAD,
                more: length == FULL_PACKET,
                length: length as u64 - 1,
            });
        }
        Ok(true)
    }

    /// The end of the last whole transaction: where to go on after a lost connection.
    #[must_use]
    pub fn position(&self) -> &Position {
        &self.assembler.position
    }

    /// What has come so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.assembler.counts
    }

    /// Names of tables; `None` when they were not asked for.
    #[must_use]
    pub fn tables(&self) -> Option<&Tables> {
        self.assembler.tables.as_ref()
    }

    /// For events that come by another way than bytes.
    pub(crate) fn assembler(&mut self) -> &mut Assembler {
        &mut self.assembler
    }

    /// Begins a new stream where the last one ended; counts and names stay.
    pub(crate) fn restart(&mut self, from: Position) {
        self.start = 0;
        self.end = 0;
        self.skip = None;
        self.sequence = None;
        self.assembler.open = None;
        self.assembler.checksum = false;
        self.assembler.position = from;
    }
}

impl Assembler {
    /// Counts bytes that came by another way.
    pub(crate) fn count_bytes(&mut self, bytes: u64) {
        self.counts.bytes += bytes;
    }
}

/// Reads an error packet.
pub(crate) fn refused(packet: &[u8]) -> StreamError {
    let mut bytes = Bytes(packet.get(1..).unwrap_or_default());
    let code = bytes.u16().unwrap_or(0);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let state = match bytes.0.first() {
        Some(b'#') => bytes
            .take(6)
            .map(|state| text(&state[1..]))
            .unwrap_or_default(),
        _ => String::new(),
    };
    StreamError::Refused {
        code,
        state,
        message: text(bytes.0),
    }
}

#[cfg(test)]
mod tests;
