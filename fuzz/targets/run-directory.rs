//! The files of a run directory.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| replimeter_fuzz::run::run_directory(input));
