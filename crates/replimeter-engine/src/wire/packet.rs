//! Packets to a server (MySQL client/server protocol, `COM_STMT_EXECUTE`).

/// Maximum payload of one packet; longer payloads are split.
const MAX_PACKET_LENGTH: usize = 0xff_ffff;
/// Bytes of a packet's header: length and sequence number.
const HEADER: usize = 4;

/// Types of columns and parameters, as the protocol numbers them.
pub(super) mod kind {
    pub(crate) const TINY: u8 = 1;
    pub(crate) const SHORT: u8 = 2;
    pub(crate) const LONG: u8 = 3;
    pub(crate) const DOUBLE: u8 = 5;
    pub(crate) const NULL: u8 = 6;
    pub(crate) const LONGLONG: u8 = 8;
    pub(crate) const VAR_STRING: u8 = 253;
    pub(crate) const UNSIGNED: u8 = 0x80;
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterValue<'a> {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A floating-point number.
    Double(f64),
    /// Text, or bytes.
    Text(&'a [u8]),
}

/// Starts a command.
#[inline]
pub(super) fn begin(out: &mut Vec<u8>, command: u8) {
    out.clear();
    out.extend_from_slice(&[0, 0, 0, 0, command]);
}

/// Writes the header, or several for a command longer than one packet.
#[inline]
pub(super) fn finish(out: &mut Vec<u8>) {
    let length = out.len() - HEADER;
    if length < MAX_PACKET_LENGTH {
        out[..3].copy_from_slice(&(length as u32).to_le_bytes()[..3]);
        return;
    }
    let payload = out.split_off(HEADER);
    out.clear();
    let _ = append(out, &payload, 0);
}

/// Writes a file's contents in packets from this number on, then an empty packet; returns the number of the answer.
pub(super) fn file(out: &mut Vec<u8>, contents: &[u8], mut sequence: u8) -> u8 {
    out.clear();
    if !contents.is_empty() {
        sequence = append(out, contents, sequence);
    }
    append(out, &[], sequence)
}

/// Appends a payload in packets from this number on; returns the number after them.
fn append(out: &mut Vec<u8>, mut rest: &[u8], mut sequence: u8) -> u8 {
    // A payload of exactly the maximum length is followed by an empty packet.
    loop {
        let part = &rest[..rest.len().min(MAX_PACKET_LENGTH)];
        out.extend_from_slice(&(part.len() as u32).to_le_bytes()[..3]);
        out.push(sequence);
        out.extend_from_slice(part);
        rest = &rest[part.len()..];
        sequence = sequence.wrapping_add(1);
        if part.len() < MAX_PACKET_LENGTH {
            return sequence;
        }
    }
}

/// Writes a length-encoded integer.
fn length(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=250 => out.push(value as u8),
        251..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&value.to_le_bytes()[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&value.to_le_bytes()[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// Takes the parameters of one execution, in order.
pub struct Binder<'a> {
    out: &'a mut Vec<u8>,
    /// Where the NULL bitmap and the types begin.
    nulls: usize,
    types: Option<usize>,
    parameters: usize,
    next: usize,
}

impl<'a> Binder<'a> {
    /// Returns a binder that appends to `out`, with the parameters' types if requested.
    pub(super) fn new(out: &'a mut Vec<u8>, parameters: usize, with_types: bool) -> Self {
        let nulls = out.len();
        out.resize(nulls + parameters.div_ceil(8), 0);
        out.push(u8::from(with_types));
        let types = with_types.then_some(out.len());
        if with_types {
            out.resize(out.len() + 2 * parameters, 0);
        }
        Self {
            out,
            nulls,
            types,
            parameters,
            next: 0,
        }
    }

    /// Adds the next parameter. A statement's parameters must have the same types every time,
    /// except NULL; excess parameters are ignored.
    #[inline]
    pub fn push(&mut self, value: ParameterValue<'_>) {
        let index = self.next;
        if index >= self.parameters {
            return;
        }
        self.next += 1;
        let out = &mut *self.out;
        let (kind, sign) = match value {
            ParameterValue::Null => {
                out[self.nulls + index / 8] |= 1 << (index % 8);
                (kind::NULL, 0)
            }
            ParameterValue::Int(number) => {
                out.extend_from_slice(&number.to_le_bytes());
                (kind::LONGLONG, 0)
            }
            ParameterValue::UInt(number) => {
                out.extend_from_slice(&number.to_le_bytes());
                (kind::LONGLONG, kind::UNSIGNED)
            }
            ParameterValue::Double(number) => {
                out.extend_from_slice(&number.to_le_bytes());
                (kind::DOUBLE, 0)
            }
            ParameterValue::Text(bytes) => {
                length(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
                (kind::VAR_STRING, 0)
            }
        };
        if let Some(types) = self.types {
            let at = types + 2 * index;
            out[at..at + 2].copy_from_slice(&[kind, sign]);
        }
    }

    /// Sets parameters that were not given to NULL.
    pub(super) fn finish(mut self) {
        while self.next < self.parameters {
            self.push(ParameterValue::Null);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execute_packet_follows_the_protocol() {
        let mut out = Vec::new();
        begin(&mut out, 0x17);
        out.extend_from_slice(&[7, 0, 0, 0, 0, 1, 0, 0, 0]);
        let mut binder = Binder::new(&mut out, 3, true);
        binder.push(ParameterValue::Int(-2));
        binder.push(ParameterValue::Null);
        binder.push(ParameterValue::Text(b"ab"));
        binder.finish();
        finish(&mut out);
        let mut wanted = vec![
            0x1c, 0, 0, 0, 0x17, 7, 0, 0, 0, 0, 1, 0, 0, 0, 0b10, 1, 8, 0, 6, 0, 253, 0,
        ];
        wanted.extend_from_slice(&[
            0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, b'a', b'b',
        ]);
        wanted[0] = (wanted.len() - 4) as u8;
        assert_eq!(out, wanted);
    }

    #[test]
    fn missing_parameter_is_null_and_extra_is_dropped() {
        let mut out = Vec::new();
        begin(&mut out, 0x17);
        let binder = Binder::new(&mut out, 2, false);
        binder.finish();
        assert_eq!(out[5..], [0b11, 0]);
        let mut out = Vec::new();
        let mut binder = Binder::new(&mut out, 1, false);
        binder.push(ParameterValue::UInt(1));
        binder.push(ParameterValue::UInt(2));
        binder.finish();
        assert_eq!(out, [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn length_prefixes_are_encoded() {
        for (value, wanted) in [
            (250, vec![250]),
            (251, vec![0xfc, 251, 0]),
            (0x1_0000, vec![0xfd, 0, 0, 1]),
            (0x100_0000, vec![0xfe, 0, 0, 0, 1, 0, 0, 0, 0]),
        ] {
            let mut out = Vec::new();
            length(&mut out, value);
            assert_eq!(out, wanted);
        }
    }

    #[test]
    fn file_ends_with_an_empty_packet() {
        let mut out = vec![9];
        assert_eq!(file(&mut out, b"", 2), 3);
        assert_eq!(out, [0, 0, 0, 2]);
        assert_eq!(file(&mut out, b"ab", 255), 1);
        assert_eq!(out, [2, 0, 0, 255, b'a', b'b', 0, 0, 0, 0]);
    }

    #[test]
    fn long_command_is_split_into_packets() {
        for (length, lengths) in [
            (MAX_PACKET_LENGTH, vec![MAX_PACKET_LENGTH, 0]),
            (MAX_PACKET_LENGTH + 5, vec![MAX_PACKET_LENGTH, 5]),
            (MAX_PACKET_LENGTH - 1, vec![MAX_PACKET_LENGTH - 1]),
        ] {
            let mut out = vec![0; HEADER];
            out.resize(HEADER + length, 7);
            finish(&mut out);
            let (mut at, mut got) = (0, Vec::new());
            while at < out.len() {
                let part = u32::from_le_bytes([out[at], out[at + 1], out[at + 2], 0]) as usize;
                assert_eq!(usize::from(out[at + 3]), got.len());
                got.push(part);
                at += HEADER + part;
            }
            assert_eq!(got, lengths);
        }
    }
}
