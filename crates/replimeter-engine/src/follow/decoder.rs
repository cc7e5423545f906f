//! Decodes a server's byte stream into transactions. Needs neither socket nor clock, and uses
//! bounded memory for any input.

mod assembler;
#[cfg(test)]
mod tests;

use replimeter_model::time::Nanos;

pub(crate) use self::assembler::Assembler;
use self::assembler::HEAD;
pub use self::assembler::{CompleteTransaction, Position, StreamCounts, StreamError};
use crate::follow::{event::ByteReader, tables::Tables};

/// Bytes read at once, and the size of the largest packet that is examined whole.
const CAPACITY: usize = 256 << 10;
/// The length of a packet that continues in the next.
const FULL_PACKET: usize = 0xff_ffff;
/// Bytes of a packet's own header.
const PACKET_HEADER: usize = 4;

/// The remainder of a packet that is too large to keep.
#[derive(Clone, Copy, Debug)]
struct SkippedPacket {
    left: usize,
    /// Whether the packet continues in another.
    more: bool,
    /// Bytes of the packet so far, without the leading status byte.
    length: u64,
}

/// Receives a server's bytes and passes on complete transactions.
#[derive(Debug)]
pub struct Decoder {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    head: Vec<u8>,
    skip: Option<SkippedPacket>,
    sequence: Option<u8>,
    assembler: Assembler,
}

impl Decoder {
    /// Returns a decoder at the start of a stream; `file` is the requested file, if any. With
    /// `tables`, transactions list the tables that they change.
    #[must_use]
    pub fn new(from: Position, tables: bool) -> Self {
        Self {
            buffer: vec![0; CAPACITY].into_boxed_slice(),
            start: 0,
            end: 0,
            head: Vec::new(),
            skip: None,
            sequence: None,
            assembler: Assembler::new(from, tables),
        }
    }

    /// Returns the buffer for the next bytes; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        // The start of an incomplete event is smaller than the buffer.
        if self.start > 0 && (self.start == self.end || CAPACITY - self.end < CAPACITY / 4) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.buffer[self.end..]
    }

    /// Records that `count` bytes were written into the space, and when; passes on every
    /// transaction that they complete. A larger count is cut to the space.
    ///
    /// # Errors
    /// When the bytes are not a binary log, or contain the server's error.
    pub fn filled<S: FnMut(CompleteTransaction<'_>)>(
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

    /// Takes the next packet out of the buffer; returns `false` when it is incomplete.
    fn step<S: FnMut(CompleteTransaction<'_>)>(
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
        // Packets have consecutive numbers, which reveal lost or added bytes.
        if self
            .sequence
            .is_some_and(|before| before.wrapping_add(1) != sequence)
        {
            return Err(self
                .assembler
                .corrupt("packets are out of sequence".to_owned()));
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
            _ => {
                return Err(self
                    .assembler
                    .corrupt("a packet contains no event".to_owned()));
            }
        }
        if length <= CAPACITY / 2 {
            self.assembler
                .event(&packet[1..], length as u64 - 1, at, sink)?;
        } else {
            self.head.clear();
            self.head.extend_from_slice(&packet[1..]);
            self.skip = Some(SkippedPacket {
                left: length - 1 - HEAD,
                more: length == FULL_PACKET,
                length: length as u64 - 1,
            });
        }
        Ok(true)
    }

    /// Returns the end of the last complete transaction: where to resume after a lost connection.
    #[must_use]
    pub fn position(&self) -> &Position {
        &self.assembler.position
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> StreamCounts {
        self.assembler.counts
    }

    /// Returns the names of tables; `None` when they were not requested.
    #[must_use]
    pub fn tables(&self) -> Option<&Tables> {
        self.assembler.tables.as_ref()
    }

    /// Returns the assembler, for events from another source than bytes.
    pub(crate) fn assembler(&mut self) -> &mut Assembler {
        &mut self.assembler
    }

    /// Starts a new stream where the last one ended; counts and names are kept.
    pub(crate) fn restart(&mut self, from: Position) {
        self.start = 0;
        self.end = 0;
        self.skip = None;
        self.sequence = None;
        self.assembler.restart(from);
    }
}

/// Parses an error packet.
pub(crate) fn refused(packet: &[u8]) -> StreamError {
    let mut bytes = ByteReader(packet.get(1..).unwrap_or_default());
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
