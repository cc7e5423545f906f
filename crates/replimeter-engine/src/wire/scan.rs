//! Scans a server's answers without keeping them: rows, affected rows, or the error (MySQL
//! client/server protocol without `CLIENT_DEPRECATE_EOF`).

/// Maximum bytes kept of a packet; errors have at most 512 bytes of text.
const KEPT: usize = 1024;
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
    /// Bytes after the end of the answer.
    #[error("{0} bytes follow the end of the answer")]
    Beyond(usize),
    /// A packet that is invalid at its place.
    #[error("{0}")]
    Malformed(&'static str),
    /// The server requests a file of the client (`LOAD DATA LOCAL`); an empty packet with this
    /// number refuses it.
    #[error("the server requests a file of the client")]
    WantsFile {
        /// The sequence number of that empty packet.
        sequence: u8,
    },
}

/// The expected next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedPacket {
    /// The first packet of a result.
    First,
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
            kept: Vec::with_capacity(KEPT),
            continued: false,
            sequence: 1,
            answer: StatementResult::default(),
        }
    }
}

impl ResponseScanner {
    /// Prepares for the answer to a new command.
    #[inline]
    pub fn begin(&mut self) {
        self.due = ExpectedPacket::First;
        self.header_filled = 0;
        self.left = 0;
        self.kept.clear();
        self.continued = false;
        self.sequence = 1;
        self.answer = StatementResult::default();
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
                    let keep = if row { 1 } else { KEPT }
                        .saturating_sub(self.kept.len())
                        .min(take);
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
        if got != self.sequence {
            return Err(WireError::Sequence {
                got,
                wanted: self.sequence,
            });
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
        match self.due {
            ExpectedPacket::First => match first {
                0x00 => {
                    let mut rest = &self.kept[1..];
                    let affected = integer(&mut rest)?;
                    let _last_id = integer(&mut rest)?;
                    let status = short(&mut rest)?;
                    self.answer.affected = self.answer.affected.saturating_add(affected);
                    Ok(self.end(status))
                }
                0xff => refusal(&self.kept).map(|refusal| Some(Err(refusal))),
                0xfb => {
                    let sequence = self.sequence;
                    // The client's answer has a sequence number, too.
                    self.sequence = self.sequence.wrapping_add(1);
                    Err(WireError::WantsFile { sequence })
                }
                _ => {
                    let mut rest = &self.kept[..];
                    let columns = integer(&mut rest)?;
                    if columns == 0 || columns > MAX_COLUMNS {
                        return Err(WireError::Malformed("the number of columns is impossible"));
                    }
                    // MariaDB omits definitions that the client already has, and marks this.
                    self.due = if rest.first() == Some(&0) {
                        ExpectedPacket::ColumnsEnd
                    } else {
                        ExpectedPacket::Columns(columns)
                    };
                    Ok(None)
                }
            },
            ExpectedPacket::Columns(left) => {
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
    Ok(bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn refusal(packet: &[u8]) -> Result<ServerRefusal, WireError> {
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Payloads as packets, numbered from 1.
    fn packets(payloads: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (sequence, payload) in (1u8..).zip(payloads) {
            bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
            bytes.push(sequence);
            bytes.extend_from_slice(payload);
        }
        bytes
    }

    fn scan(bytes: &[u8]) -> Result<Option<Result<StatementResult, ServerRefusal>>, WireError> {
        ResponseScanner::default().push(bytes)
    }

    const OK: &[u8] = &[0, 3, 0xfc, 1, 1, 2, 0, 0, 0];
    const OK_MORE: &[u8] = &[0, 1, 0, 10, 0, 0, 0];
    const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
    const ERROR: &[u8] = b"\xff\xbd\x04#40001Deadlock found";

    #[test]
    fn ok_and_error_packets_are_read() {
        let bytes = packets(&[OK]);
        assert_eq!(
            scan(&bytes),
            Ok(Some(Ok(StatementResult {
                rows: 0,
                affected: 3,
                bytes: bytes.len() as u64
            })))
        );
        let refusal = ServerRefusal {
            code: 1213,
            state: "40001".to_owned(),
            message: "Deadlock found".to_owned(),
        };
        assert_eq!(scan(&packets(&[ERROR])), Ok(Some(Err(refusal))));
    }

    #[test]
    fn rows_are_read_with_and_without_definitions() {
        let row: &[u8] = &[0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let with = packets(&[&[2], b"def one", b"def two", EOF, row, &[0, 1], row, EOF]);
        assert_eq!(scan(&with).unwrap().unwrap().unwrap().rows, 3);
        let flagged = packets(&[&[1, 1], b"def one", EOF, row, EOF]);
        assert_eq!(scan(&flagged).unwrap().unwrap().unwrap().rows, 1);
        let without = packets(&[&[2, 0], EOF, row, EOF]);
        assert_eq!(scan(&without).unwrap().unwrap().unwrap().rows, 1);
        // A row may begin like an end: its first value is longer than 16 MiB, or a longer packet.
        let like: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            scan(&packets(&[&[1], b"def", EOF, like, EOF]))
                .unwrap()
                .unwrap()
                .unwrap()
                .rows,
            1
        );
    }

    #[test]
    fn error_among_rows_and_multiple_results_are_read() {
        let answer = scan(&packets(&[&[1], b"def", EOF, &[1, b'x'], ERROR]))
            .unwrap()
            .unwrap();
        assert_eq!(answer.unwrap_err().message, "Deadlock found");
        let eof_more: &[u8] = &[0xfe, 0, 0, 10, 0];
        let answer = scan(&packets(&[
            OK_MORE,
            &[1],
            b"def",
            EOF,
            &[1, b'x'],
            eof_more,
            OK,
        ]))
        .unwrap()
        .unwrap()
        .unwrap();
        assert_eq!((answer.rows, answer.affected), (1, 4));
    }

    #[test]
    fn row_in_several_packets_counts_once() {
        let mut bytes = packets(&[&[1], b"def", EOF]);
        let mut big = vec![0xff, 0xff, 0xff, 4, 0xfe];
        big.resize(4 + MAX_PACKET_LENGTH as usize, 0);
        // The first bytes of the row and of its continuation may equal those of an end of rows.
        big.extend_from_slice(&[5, 0, 0, 5, 0xfe, 0, 0, 2, 0]);
        bytes.extend_from_slice(&big);
        bytes.extend_from_slice(&[5, 0, 0, 6, 0xfe, 0, 0, 2, 0]);
        assert_eq!(scan(&bytes).unwrap().unwrap().unwrap().rows, 1);
    }

    #[test]
    fn invalid_response_is_refused() {
        assert_eq!(
            scan(&[1, 0, 0, 2, 0]),
            Err(WireError::Sequence { got: 2, wanted: 1 })
        );
        assert_eq!(
            scan(&[0, 0, 0, 1]),
            Err(WireError::Malformed("a packet is empty"))
        );
        assert!(matches!(
            scan(&packets(&[&[0xfb, b'/']])),
            Err(WireError::WantsFile { sequence: 2 })
        ));
        let mut two = packets(&[OK]);
        two.push(9);
        assert_eq!(scan(&two), Err(WireError::Beyond(1)));
        assert!(scan(&packets(&[&[1], b"def", b"no end"])).is_err());
        assert!(scan(&packets(&[&[0, 0xfc, 1]])).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_memory_is_bounded(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20)) {
            let mut scanner = ResponseScanner::default();
            for piece in &pieces {
                let _ = scanner.push(piece);
                prop_assert!(scanner.kept.len() <= KEPT);
            }
        }

        #[test]
        fn hostile_packets_do_not_panic(payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..20), 1..10)) {
            let refs: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
            let _ = scan(&packets(&refs));
        }

        #[test]
        fn any_split_of_a_response_reads_the_same(rows in proptest::collection::vec(proptest::collection::vec(1u8..250, 1..40), 0..20), cuts in proptest::collection::vec(1usize..30, 1..50), fails in any::<bool>()) {
            let mut payloads: Vec<&[u8]> = vec![&[3], b"def a", b"def b", b"def c", EOF];
            payloads.extend(rows.iter().map(Vec::as_slice));
            payloads.push(if fails { ERROR } else { EOF });
            let bytes = packets(&payloads);
            let whole = scan(&bytes).unwrap();
            let mut scanner = ResponseScanner::default();
            scanner.begin();
            let (mut rest, mut cut, mut got) = (bytes.as_slice(), cuts.iter().cycle(), None);
            while !rest.is_empty() {
                prop_assert!(got.is_none());
                let take = (*cut.next().unwrap()).min(rest.len());
                got = scanner.push(&rest[..take]).unwrap();
                rest = &rest[take..];
            }
            prop_assert_eq!(got, whole);
        }
    }
}
