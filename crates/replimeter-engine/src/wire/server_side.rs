//! Packets of the server's side of the protocol, for servers of Replimeter: as much as the measuring path needs.

use std::io::{ErrorKind, Read, Result};

use super::packet::kind;

/// Autocommit is on.
const AUTOCOMMIT: u16 = 0x0002;
/// The answer lists changes of the session's state.
const STATE_CHANGED: u16 = 0x4000;
/// Protocol 4.1, transactions, secure connections; below them four that every server has.
const CAPABILITIES_LOW: u16 = 0xa20f;
/// Authentication plugins, and changes of the session's state.
const CAPABILITIES_HIGH: u16 = 0x0088;
/// Number of the error for a statement that is not known.
const SYNTAX: u16 = 1064;

/// Longest packet that is read, in bytes.
pub const MAX_PACKET: usize = 1 << 24;

/// Reads a client's packet; returns its sequence number.
///
/// # Errors
/// When the connection breaks, or the packet is too long.
pub fn read_packet(input: &mut impl Read, bytes: &mut Vec<u8>) -> Result<u8> {
    let mut head = [0; 4];
    input.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    if length >= MAX_PACKET - 1 {
        return Err(ErrorKind::InvalidData.into());
    }
    bytes.resize(length, 0);
    input.read_exact(bytes)?;
    Ok(head[3])
}

/// The packets of one answer, which are written together.
#[derive(Debug, Default)]
pub struct Answer {
    bytes: Vec<u8>,
    sequence: u8,
}

impl Answer {
    /// Begins an answer whose first packet has this sequence number.
    pub fn begin(&mut self, sequence: u8) {
        self.bytes.clear();
        self.sequence = sequence;
    }

    /// Returns the answer's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a packet.
    pub fn packet(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0, 0, self.sequence]);
        fill(&mut self.bytes);
        // Every answer is far shorter than a packet may be.
        let length = (self.bytes.len() - at - 4) as u32;
        self.bytes[at..at + 3].copy_from_slice(&length.to_le_bytes()[..3]);
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Adds the greeting.
    pub fn greeting(&mut self, version: &str, connection: u32) {
        self.packet(|out| {
            out.push(10);
            out.extend_from_slice(version.as_bytes());
            out.push(0);
            out.extend_from_slice(&connection.to_le_bytes());
            out.extend_from_slice(b"12345678\0");
            out.extend_from_slice(&CAPABILITIES_LOW.to_le_bytes());
            out.push(33);
            out.extend_from_slice(&AUTOCOMMIT.to_le_bytes());
            out.extend_from_slice(&CAPABILITIES_HIGH.to_le_bytes());
            out.push(21);
            out.extend_from_slice(&[0; 10]);
            out.extend_from_slice(b"123456789012\0mysql_native_password\0");
        });
    }

    /// Adds an acknowledgement of this number of rows; with the GTID of the write, as MariaDB gives it.
    pub fn ok(&mut self, rows: u8, commit_id: Option<&str>) {
        self.packet(|out| {
            out.extend_from_slice(&[0, rows, 0]);
            let changed = if commit_id.is_some() {
                STATE_CHANGED
            } else {
                0
            };
            out.extend_from_slice(&(AUTOCOMMIT | changed).to_le_bytes());
            out.extend_from_slice(&[0, 0]);
            if let Some(commit_id) = commit_id {
                let mut change = Vec::new();
                text(&mut change, b"last_gtid");
                text(&mut change, commit_id.as_bytes());
                let mut changes = vec![0];
                text(&mut changes, &change);
                // No message, then the changes.
                out.push(0);
                text(out, &changes);
            }
        });
    }

    /// Adds an error with its number and state.
    pub fn error(&mut self, code: u16, state: &str, message: &str) {
        self.packet(|out| {
            out.push(0xff);
            out.extend_from_slice(&code.to_le_bytes());
            out.push(b'#');
            out.extend_from_slice(state.as_bytes());
            out.extend_from_slice(message.as_bytes());
        });
    }

    /// Adds the error that the statement is not known.
    pub fn unknown(&mut self) {
        self.error(
            SYNTAX,
            "42000",
            "the reference does not support this statement",
        );
    }

    /// Adds rows as text.
    pub fn texts(&mut self, columns: &[&str], rows: &[Vec<String>]) {
        self.columns(columns, kind::VAR_STRING);
        for row in rows {
            self.packet(|out| row.iter().for_each(|value| text(out, value.as_bytes())));
        }
        self.end();
    }

    /// Adds rows of one number, in the binary form of prepared statements.
    pub fn numbers(&mut self, values: impl IntoIterator<Item = i64>) {
        self.columns(&["n"], kind::LONGLONG);
        for value in values {
            self.packet(|out| {
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(&value.to_le_bytes());
            });
        }
        self.end();
    }

    /// Adds the description of a prepared statement.
    pub fn prepared(&mut self, id: u32, columns: u16, parameters: u16) {
        self.packet(|out| {
            out.push(0);
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&columns.to_le_bytes());
            out.extend_from_slice(&parameters.to_le_bytes());
            out.extend_from_slice(&[0, 0, 0]);
        });
        for count in [parameters, columns] {
            (0..count).for_each(|_| self.column("n", kind::LONGLONG));
            if count > 0 {
                self.end();
            }
        }
    }

    fn columns(&mut self, names: &[&str], kind: u8) {
        // No answer has 251 columns.
        self.packet(|out| out.push(names.len() as u8));
        names.iter().for_each(|name| self.column(name, kind));
        self.end();
    }

    fn column(&mut self, name: &str, kind: u8) {
        self.packet(|out| {
            out.extend_from_slice(b"\x03def\0\0\0");
            text(out, name.as_bytes());
            out.push(0);
            out.extend_from_slice(&[12, 33, 0, 0xff, 0xff, 0, 0, kind, 0, 0, 0, 0, 0]);
        });
    }

    fn end(&mut self) {
        self.packet(|out| {
            out.extend_from_slice(&[0xfe, 0, 0]);
            out.extend_from_slice(&AUTOCOMMIT.to_le_bytes());
        });
    }
}

/// Adds bytes with their length in front.
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        // No text of the server is longer than 64 KiB.
        length @ 251.. => {
            out.push(0xfc);
            out.extend_from_slice(&(length as u16).to_le_bytes());
        }
        length => out.push(length as u8),
    }
    out.extend_from_slice(bytes);
}

/// A parameter of a prepared statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Parameter<'a> {
    /// An integer.
    Number(u64),
    /// A floating-point number.
    Real(f64),
    /// Text, or bytes.
    Text(&'a [u8]),
}

/// Returns the first `wanted` of a statement's `count` parameters, from the command's bytes after its first; `None` if they
/// are not complete, or of a type that Replimeter does not send.
#[must_use]
pub fn parameters(command: &[u8], count: usize, wanted: usize) -> Option<Vec<Parameter<'_>>> {
    // Statement, flags, iterations; which parameters are NULL; that the types follow.
    let nulls = 4 + 1 + 4;
    let types = nulls + count.div_ceil(8) + 1;
    if command.get(types - 1) != Some(&1) {
        return None;
    }
    let mut values = command.get(types + 2 * count..)?;
    let mut found = Vec::with_capacity(wanted);
    for kind in command.get(types..types + 2 * wanted)?.chunks(2) {
        let length = match kind[0] {
            kind::TINY => 1,
            kind::SHORT => 2,
            kind::LONG => 4,
            kind::LONGLONG | kind::DOUBLE => 8,
            kind::NULL => return None,
            _ => {
                let (length, rest) = values.split_first()?;
                let length = Some(usize::from(*length)).filter(|length| *length < 251)?;
                found.push(Parameter::Text(rest.get(..length)?));
                values = rest.get(length..)?;
                continue;
            }
        };
        let mut number = [0; 8];
        number[..length].copy_from_slice(values.get(..length)?);
        found.push(match kind[0] {
            kind::DOUBLE => Parameter::Real(f64::from_le_bytes(number)),
            _ => Parameter::Number(u64::from_le_bytes(number)),
        });
        values = &values[length..];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_of_a_wait_are_read() {
        let mut command = vec![4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 253, 0, 5, 0];
        command.extend_from_slice(b"\x050-1-9");
        command.extend_from_slice(&0.025f64.to_le_bytes());
        let wanted = [Parameter::Text(b"0-1-9"), Parameter::Real(0.025)];
        assert_eq!(parameters(&command, 2, 2).unwrap(), wanted);
        assert_eq!(parameters(&command[..command.len() - 1], 2, 2), None);
    }

    proptest! {
        #[test]
        fn no_command_panics(command in proptest::collection::vec(any::<u8>(), 0..60), count in 0usize..5) {
            let _ = parameters(&command, count, count);
        }
    }
}
