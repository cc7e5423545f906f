//! The journal of a run that was killed.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| replimeter_fuzz::run::journal(input));
