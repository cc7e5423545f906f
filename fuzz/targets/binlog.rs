//! A server's binary log.

#![no_main]

use replimeter_engine::follow::{Decoder, Position};
use replimeter_fuzz::server_bytes;
use replimeter_model::time::Nanos;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    // An event states its own length, too.
    let bytes = server_bytes(input, |payload| {
        let length = payload.len().saturating_sub(1) as u32;
        if let Some(stated) = payload.get_mut(10..14) {
            stated.copy_from_slice(&length.to_le_bytes());
        }
    });
    let Some((bytes, read)) = bytes else { return };
    for tables in [false, true] {
        let mut decoder = Decoder::new(Position::default(), tables);
        for piece in bytes.chunks(read) {
            decoder.space()[..piece.len()].copy_from_slice(piece);
            let decoded = decoder.filled(piece.len(), Nanos(0), &mut |transaction| {
                assert!(tables || transaction.tables.is_empty());
            });
            if let Err(error) = decoded {
                let _ = error.to_string();
                break;
            }
        }
    }
});
