//! Scans a server's answers without keeping them: rows, affected rows, or the error (MySQL
//! client/server protocol without `CLIENT_DEPRECATE_EOF`).

use crate::ErrorClass;

/// Maximum bytes kept of a packet; errors have at most 512 bytes of text.
const KEPT: usize = 1024;
/// The same if values are read: a column's definition has five names of up to 256 characters.
const KEPT_OF_VALUES: usize = 8 << 10;
/// A payload of this length continues in the next packet.
const MAX_PACKET_LENGTH: u32 = 0xff_ffff;
/// The payload of an end-of-rows packet is shorter than this; that of a row with the same first
/// byte is not.
const END: u32 = 9;
/// The maximum number of columns of a server.
const MAX_COLUMNS: u64 = 65_535;
/// Another result follows.
const MORE: u16 = 0x0008;

/// The result of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementResult {
    /// Rows received, in all results.
    pub rows: u64,
    /// Rows affected, in all results.
    pub affected: u64,
    /// Bytes received.
    pub bytes: u64,
    /// The value of its `LAST_INSERT_ID(…)`; 0 for none.
    pub last_id: u64,
    /// Warnings about a statement without rows; of the last one, if there are several.
    pub warnings: u16,
    /// The first value of the first row, if it is an integer from 0 on; only in an
    /// [examined](Answer::Examined) answer.
    pub first: Option<u64>,
}

/// What the scanner reads of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// The number of rows.
    #[default]
    Counted,
    /// The first value too, of a prepared statement.
    Examined,
    /// The answer to the request to prepare a statement.
    Prepared,
    /// The first value too, of a statement given as text.
    Text,
}

/// A statement that the server has prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PreparedId {
    pub(super) id: u32,
    pub(super) parameters: u16,
}

/// A server's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRefusal {
    /// Its number.
    pub code: u16,
    /// SQLSTATE.
    pub state: String,
    /// Its text.
    pub message: String,
}

impl ServerRefusal {
    /// Returns why.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        ErrorClass::of(self.code, &self.message)
    }
}

/// Why bytes are not a valid answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A packet has the wrong sequence number.
    #[error("packet {got} arrived instead of packet {wanted}")]
    Sequence {
        /// Its number.
        got: u8,
        /// The expected number.
        wanted: u8,
    },
    /// The server closes the connection, and sent this before the command arrived.
    #[error("the server closes the connection: {}", .0.message)]
    Closing(ServerRefusal),
    /// Bytes after the end of the answer.
    #[error("{0} bytes follow the end of the answer")]
    Beyond(usize),
    /// A packet that is invalid at its place.
    #[error("{0}")]
    Malformed(&'static str),
    /// The server requests a file of the client (`LOAD DATA LOCAL`). It is sent in packets from this
    /// number on, of which the last is empty.
    #[error("the server requests a file of the client")]
    WantsFile {
        /// The sequence number of the first packet.
        sequence: u8,
    },
}

/// The expected next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedPacket {
    /// The first packet of a result.
    First,
    /// This number of packets that are not examined, then nothing.
    Skipped(u64),
    /// This number of column definitions, then an end.
    Columns(u64),
    /// The end of the definitions.
    ColumnsEnd,
    /// A row, or the end of rows.
    Row,
    /// Nothing; the answer is complete.
    Nothing,
}

/// Reads one answer from pieces of any length.
#[derive(Clone, Debug)]
pub struct ResponseScanner {
    due: ExpectedPacket,
    header: [u8; 4],
    header_filled: usize,
    /// Payload length of the current packet.
    length: u32,
    left: usize,
    /// Its first bytes.
    kept: Vec<u8>,
    /// The previous packet had the maximum length, so this one continues it.
    continued: bool,
    sequence: u8,
    of: Answer,
    /// Type of the first column, whether it is unsigned, and the number of columns.
    column: Option<(u8, bool, usize)>,
    columns: u64,
    prepared: PreparedId,
    value: Option<String>,
    answer: StatementResult,
}

impl Default for ResponseScanner {
    fn default() -> Self {
        Self {
            due: ExpectedPacket::First,
            header: [0; 4],
            header_filled: 0,
            length: 0,
            left: 0,
            kept: Vec::new(),
            continued: false,
            sequence: 1,
            of: Answer::Counted,
            column: None,
            columns: 0,
            prepared: PreparedId::default(),
            value: None,
            answer: StatementResult::default(),
        }
    }
}

impl ResponseScanner {
    /// Prepares for the answer to a new command.
    #[inline]
    pub fn begin(&mut self, of: Answer) {
        self.of = of;
        self.column = None;
        self.due = ExpectedPacket::First;
        self.header_filled = 0;
        self.left = 0;
        self.kept.clear();
        self.continued = false;
        self.sequence = 1;
        self.value = None;
        self.answer = StatementResult::default();
    }

    /// Expects the next packet with this number: the client's packets have numbers, too.
    pub fn continue_at(&mut self, sequence: u8) {
        self.sequence = sequence;
    }

    /// Returns the statement of a complete answer to the request to prepare it.
    pub(super) fn prepared(&self) -> PreparedId {
        self.prepared
    }

    /// Returns the first value of a complete [text](Answer::Text) answer; `None` for NULL, and for one longer than some kilobytes.
    pub(super) fn take_value(&mut self) -> Option<String> {
        self.value.take()
    }

    /// Takes the next bytes; returns the answer when they complete it.
    ///
    /// # Errors
    /// When the bytes are not a valid answer. The connection is no longer usable then, except after
    /// [`WireError::WantsFile`].
    #[inline]
    pub fn push(
        &mut self,
        mut bytes: &[u8],
    ) -> Result<Option<Result<StatementResult, ServerRefusal>>, WireError> {
        self.answer.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.due == ExpectedPacket::Nothing {
                return Err(WireError::Beyond(bytes.len()));
            }
            if self.header_filled < 4 {
                let take = (4 - self.header_filled).min(bytes.len());
                self.header[self.header_filled..self.header_filled + take]
                    .copy_from_slice(&bytes[..take]);
                self.header_filled += take;
                bytes = &bytes[take..];
                if self.header_filled < 4 {
                    break;
                }
                self.header_of_packet()?;
            } else {
                let take = self.left.min(bytes.len());
                if !self.continued {
                    // Only the first byte of a row is examined.
                    let first = self.kept.first().or(bytes.first());
                    let row =
                        self.due == ExpectedPacket::Row && !matches!(first, Some(0xfe | 0xff));
                    let limit = match self.of {
                        Answer::Examined | Answer::Text if self.answer.rows == 0 => KEPT_OF_VALUES,
                        _ if row => 1,
                        _ => KEPT,
                    };
                    let keep = limit.saturating_sub(self.kept.len()).min(take);
                    self.kept.extend_from_slice(&bytes[..keep]);
                }
                self.left -= take;
                bytes = &bytes[take..];
            }
            if self.left > 0 {
                continue;
            }
            // The packet is complete.
            self.header_filled = 0;
            if self.length == MAX_PACKET_LENGTH {
                self.continued = true;
                continue;
            }
            // The rest of a long packet is short, but the packet is not.
            let is_short = !self.continued && self.length < END;
            self.continued = false;
            let outcome = self.packet(is_short);
            self.kept.clear();
            if let Some(outcome) = outcome? {
                self.due = ExpectedPacket::Nothing;
                if !bytes.is_empty() {
                    return Err(WireError::Beyond(bytes.len()));
                }
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    #[inline]
    fn header_of_packet(&mut self) -> Result<(), WireError> {
        let [a, b, c, got] = self.header;
        let wanted = self.sequence;
        // A packet that begins an exchange is no answer to the command.
        let unasked = got == 0 && wanted == 1 && self.due == ExpectedPacket::First;
        if got != wanted && !unasked {
            return Err(WireError::Sequence { got, wanted });
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.length = u32::from_le_bytes([a, b, c, 0]);
        self.left = self.length as usize;
        if self.length == 0 && !self.continued {
            return Err(WireError::Malformed("a packet is empty"));
        }
        Ok(())
    }

    /// Handles a complete packet, by its first bytes.
    #[inline]
    fn packet(
        &mut self,
        is_short: bool,
    ) -> Result<Option<Result<StatementResult, ServerRefusal>>, WireError> {
        let first = *self
            .kept
            .first()
            .ok_or(WireError::Malformed("a packet is empty"))?;
        let [.., got] = self.header;
        if got.wrapping_add(1) != self.sequence {
            // Unasked; servers say so to idle connections, and when they stop.
            return Err(match first {
                0xff => WireError::Closing(refusal(&self.kept)?),
                _ => WireError::Sequence { got: 0, wanted: 1 },
            });
        }
        match self.due {
            ExpectedPacket::First => match first {
                0x00 if self.of == Answer::Prepared => {
                    let mut rest = &self.kept[1..];
                    let id = [short(&mut rest)?, short(&mut rest)?].map(u32::from);
                    let (columns, parameters) = (short(&mut rest)?, short(&mut rest)?);
                    self.prepared = PreparedId {
                        id: id[0] | id[1] << 16,
                        parameters,
                    };
                    // Each kind of definitions has an end.
                    let definitions = |count: u16| u64::from(count) + u64::from(count > 0);
                    let definitions = definitions(columns) + definitions(parameters);
                    self.due = ExpectedPacket::Skipped(definitions);
                    Ok((definitions == 0).then_some(Ok(self.answer)))
                }
                0x00 => {
                    let mut rest = &self.kept[1..];
                    let affected = integer(&mut rest)?;
                    let last_id = integer(&mut rest)?;
                    let status = short(&mut rest)?;
                    self.answer.warnings = short(&mut rest)?;
                    self.answer.affected = self.answer.affected.saturating_add(affected);
                    if last_id > 0 {
                        self.answer.last_id = last_id;
                    }
                    Ok(self.end(status))
                }
                0xff => refusal(&self.kept).map(|refusal| Some(Err(refusal))),
                0xfb => Err(WireError::WantsFile {
                    sequence: self.sequence,
                }),
                _ => {
                    let mut rest = &self.kept[..];
                    let columns = integer(&mut rest)?;
                    if columns == 0 || columns > MAX_COLUMNS {
                        return Err(WireError::Malformed("the number of columns is impossible"));
                    }
                    self.columns = columns;
                    self.due = ExpectedPacket::Columns(columns);
                    Ok(None)
                }
            },
            ExpectedPacket::Skipped(left) => {
                self.due = ExpectedPacket::Skipped(left.saturating_sub(1));
                Ok((left <= 1).then_some(Ok(self.answer)))
            }
            ExpectedPacket::Columns(left) => {
                if self.of == Answer::Examined && left == self.columns && self.answer.rows == 0 {
                    let columns = usize::try_from(self.columns).unwrap_or(0);
                    self.column = column_type(&self.kept)
                        .map(|(kind, is_unsigned)| (kind, is_unsigned, columns));
                }
                self.due = if left > 1 {
                    ExpectedPacket::Columns(left - 1)
                } else {
                    ExpectedPacket::ColumnsEnd
                };
                Ok(None)
            }
            ExpectedPacket::ColumnsEnd => match first {
                0xfe if is_short => {
                    self.due = ExpectedPacket::Row;
                    Ok(None)
                }
                0xff => refusal(&self.kept).map(|refusal| Some(Err(refusal))),
                _ => Err(WireError::Malformed("the column definitions do not end")),
            },
            ExpectedPacket::Row => match first {
                0xfe if is_short => {
                    // Warnings, then the status.
                    let mut rest = &self.kept[1..];
                    let _warnings = short(&mut rest)?;
                    let status = short(&mut rest)?;
                    Ok(self.end(status))
                }
                // A text row can begin with this byte only when its first value is longer than any
                // packet.
                0xff => refusal(&self.kept).map(|refusal| Some(Err(refusal))),
                _ => {
                    if self.of == Answer::Examined && self.answer.rows == 0 {
                        self.answer.first = self
                            .column
                            .and_then(|column| first_integer(column, &self.kept));
                    }
                    if self.of == Answer::Text && self.answer.rows == 0 {
                        self.value = first_text(&self.kept);
                    }
                    self.answer.rows += 1;
                    Ok(None)
                }
            },
            ExpectedPacket::Nothing => Err(WireError::Malformed(
                "a packet follows the end of the answer",
            )),
        }
    }

    /// Handles the end of one result, which ends the answer unless another result follows.
    fn end(&mut self, status: u16) -> Option<Result<StatementResult, ServerRefusal>> {
        if status & MORE != 0 {
            self.due = ExpectedPacket::First;
            return None;
        }
        Some(Ok(self.answer))
    }
}

fn short(rest: &mut &[u8]) -> Result<u16, WireError> {
    let (bytes, after) = rest
        .split_first_chunk()
        .ok_or(WireError::Malformed("an answer is truncated"))?;
    *rest = after;
    Ok(u16::from_le_bytes(*bytes))
}

/// Returns a length-encoded integer.
fn integer(rest: &mut &[u8]) -> Result<u64, WireError> {
    const CUT: WireError = WireError::Malformed("a number is truncated");
    let (first, after) = rest.split_first().ok_or(CUT)?;
    let width = match first {
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        0xfb | 0xff => {
            return Err(WireError::Malformed(
                "the first byte of a number is invalid",
            ));
        }
        small => {
            *rest = after;
            return Ok(u64::from(*small));
        }
    };
    let bytes = after.get(..width).ok_or(CUT)?;
    *rest = &after[width..];
    Ok(little_endian(bytes))
}

/// Returns a column's type and whether it is unsigned, from its definition.
fn column_type(definition: &[u8]) -> Option<(u8, bool)> {
    const UNSIGNED: u16 = 0x20;
    let mut rest = definition;
    // Catalog, schema, table, original table, name, original name.
    for _ in 0..6 {
        let length = usize::try_from(integer(&mut rest).ok()?).ok()?;
        rest = rest.get(length..)?;
    }
    // Length of the rest, character set, maximum length.
    let [kind, after @ ..] = rest.get(7..)? else {
        return None;
    };
    let flags = short(&mut &*after).ok()?;
    Some((*kind, flags & UNSIGNED != 0))
}

/// Returns the first value of a prepared statement's row; `None` for NULL, for a negative number, and for other types than
/// integers and text.
fn first_integer((kind, is_unsigned, columns): (u8, bool, usize), row: &[u8]) -> Option<u64> {
    // The first two bits of the NULL bitmap are not used.
    let nulls = row.get(1..)?;
    if nulls.first()? & 0b100 != 0 {
        return None;
    }
    let mut value = nulls.get((columns + 9) / 8..)?;
    let width = match kind {
        1 => 1,
        2 | 13 => 2,
        3 | 9 => 4,
        8 => 8,
        // FLOAT, DOUBLE, NULL, and times, which have lengths of their own.
        4..=7 | 10..=12 => return None,
        _ => {
            let length = usize::try_from(integer(&mut value).ok()?).ok()?;
            return std::str::from_utf8(value.get(..length)?).ok()?.parse().ok();
        }
    };
    let bytes = value.get(..width)?;
    if !is_unsigned && bytes.last()? & 0x80 != 0 {
        return None;
    }
    Some(little_endian(bytes))
}

/// Returns the first value of a row of a statement given as text.
fn first_text(mut row: &[u8]) -> Option<String> {
    let length = usize::try_from(integer(&mut row).ok()?).ok()?;
    String::from_utf8(row.get(..length)?.to_vec()).ok()
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

pub(super) fn refusal(packet: &[u8]) -> Result<ServerRefusal, WireError> {
    let mut rest = &packet[1..];
    let code = short(&mut rest)?;
    let (state, message) = match rest {
        [b'#', state @ ..] if state.len() >= 5 => state.split_at(5),
        // Before login there is no SQLSTATE.
        other => (&b"HY000"[..], other),
    };
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(ServerRefusal {
        code,
        state: words(state),
        message: words(message),
    })
}

#[cfg(test)]
mod tests;
