//! Turns what a server sends into transactions. Works on bytes alone: no socket,
//! no clock, bounded memory whatever the bytes say.

mod assembler;
#[cfg(test)]
mod tests;

use replimeter_model::time::Nanos;

pub(crate) use self::assembler::Assembler;
use self::assembler::HEAD;
pub use self::assembler::{Arrived, Counts, Position, StreamError};
use crate::binlog::{event::Bytes, tables::Tables};

/// Bytes read at once, and the largest packet that is looked at whole.
const CAPACITY: usize = 256 << 10;
/// The length of a packet that goes on in the next.
const FULL_PACKET: usize = 0xff_ffff;
/// Bytes of a packet's own header.
const PACKET_HEADER: usize = 4;

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
            assembler: Assembler::new(from, tables),
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
        self.assembler.restart(from);
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
