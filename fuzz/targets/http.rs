//! The form and the cookies of a visitor.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| replimeter_fuzz::peers::http(input));
