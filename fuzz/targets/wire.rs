//! A server's answer to a statement of a load.

#![no_main]

use replimeter_engine::wire::{Answer, ResponseScanner, WireError};
use replimeter_fuzz::server_bytes;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((bytes, read)) = server_bytes(input, |_| {}) else {
        return;
    };
    let mut scanner = ResponseScanner::default();
    for piece in bytes.chunks(read) {
        match scanner.push(piece) {
            Ok(Some(_)) => scanner.begin(Answer::Counted),
            Ok(None) => {}
            Err(WireError::WantsFile { sequence }) => {
                scanner.continue_at(sequence.wrapping_add(1));
            }
            Err(error) => {
                let _ = error.to_string();
                break;
            }
        }
    }
});
