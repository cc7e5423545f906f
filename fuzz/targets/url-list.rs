//! Lists of URLs.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| replimeter_fuzz::peers::url_list(input));
