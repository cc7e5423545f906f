//! The packets of a server during the login.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| replimeter_fuzz::peers::login(input));
