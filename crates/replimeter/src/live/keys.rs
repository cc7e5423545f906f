//! Keys, from the bytes that terminals send.

/// A key of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
}

/// Decodes keys. A sequence can arrive in parts.
#[derive(Default)]
pub(super) struct KeyDecoder {
    rest: Vec<u8>,
}

impl KeyDecoder {
    /// Returns the keys of these bytes; without any, what arrived before is complete. Other keys are left out.
    pub(super) fn decode(&mut self, bytes: &[u8]) -> Vec<Key> {
        let is_complete = bytes.is_empty();
        let mut all = std::mem::take(&mut self.rest);
        all.extend(bytes);
        let mut keys = Vec::new();
        let mut left = all.as_slice();
        while let Some((first, after)) = left.split_first() {
            left = match (first, after) {
                (0x1b, [] | [b'[' | b'O']) if !is_complete => break,
                (0x1b, [b'[' | b'O', sequence @ ..]) => {
                    let end = sequence
                        .iter()
                        .position(|byte| (0x40..=0x7e).contains(byte));
                    let Some(end) = end else {
                        // The longest has eight bytes.
                        if is_complete || sequence.len() > 8 {
                            return keys;
                        }
                        break;
                    };
                    keys.extend(named(&sequence[..=end]));
                    &sequence[end + 1..]
                }
                (0x1b, _) => {
                    keys.push(Key::Escape);
                    after
                }
                (b'\r' | b'\n', _) => {
                    keys.push(Key::Enter);
                    after
                }
                (letter, _) => {
                    if letter.is_ascii_graphic() {
                        keys.push(Key::Char(char::from(*letter)));
                    }
                    after
                }
            };
        }
        self.rest = left.to_vec();
        keys
    }
}

/// Returns the key of a sequence, without its beginning.
fn named(sequence: &[u8]) -> Option<Key> {
    Some(match sequence {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"H" | b"1~" | b"7~" => Key::Home,
        b"F" | b"4~" | b"8~" => Key::End,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_their_sequences() {
        let mut decoder = KeyDecoder::default();
        let all =
            decoder.decode(b"q\x1b[A\x1bOB\r\x1b[5~\x1b[6~\x1b[H\x1b[4~\x1b[1;5C?\xc3\xa4\x03");
        let want = [
            Key::Char('q'),
            Key::Up,
            Key::Down,
            Key::Enter,
            Key::PageUp,
            Key::PageDown,
            Key::Home,
            Key::End,
            Key::Char('?'),
        ];
        assert_eq!(all, want);
    }

    #[test]
    fn parted_sequence_is_one_key_and_a_lone_escape_another() {
        let mut decoder = KeyDecoder::default();
        for part in [&b"\x1b"[..], b"[", b"5"] {
            assert_eq!(decoder.decode(part), []);
        }
        assert_eq!(decoder.decode(b"~\x1b"), [Key::PageUp]);
        assert_eq!(decoder.decode(b""), [Key::Escape]);
        assert_eq!(decoder.decode(b"\x1bq"), [Key::Escape, Key::Char('q')]);
        // A sequence without an end is no key, and hides none.
        assert_eq!(decoder.decode(b"\x1b[111111111111"), []);
        assert_eq!(decoder.decode(b"q"), [Key::Char('q')]);
    }
}
