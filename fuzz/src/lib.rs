//! Shared parts of the fuzz targets.

use std::alloc::System;

use cap::Cap;

/// Maximum bytes that the inputs and the code under test may use together; libFuzzer does not allocate here.
const MAX_BYTES: usize = 64 << 20;

/// Aborts when the memory exceeds the limit, which libFuzzer reports with the input.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, MAX_BYTES);

/// Returns the bytes of a server that the input describes, and the length of the reads that return them. An odd first
/// byte makes packets with valid headers of the rest, which begins each payload with its length; `prepare` may
/// correct a payload. An even one uses the rest as it is.
pub fn server_bytes(input: &[u8], prepare: impl Fn(&mut Vec<u8>)) -> Option<(Vec<u8>, usize)> {
    let [mode, read, rest @ ..] = input else {
        return None;
    };
    let (read, mut rest) = (usize::from(*read) + 1, rest);
    if mode % 2 == 0 {
        return Some((rest.to_vec(), read));
    }
    let mut bytes = Vec::new();
    let mut sequence = 1u8;
    while let [length, after @ ..] = rest {
        let (payload, after) = after.split_at(after.len().min(usize::from(*length)));
        let mut payload = payload.to_vec();
        prepare(&mut payload);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
        bytes.push(sequence);
        bytes.extend_from_slice(&payload);
        sequence = sequence.wrapping_add(1);
        rest = after;
    }
    Some((bytes, read))
}
