//! A server's URL: accepted ones are the same after writing and reading again.

#![no_main]

use replimeter_model::{redact, target::Endpoint};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let _ = redact::message(&text);
    match Endpoint::parse(&text) {
        Ok((endpoint, _)) => {
            let written = endpoint.to_string();
            let (again, password) = Endpoint::parse(&written).expect("a written URL is valid");
            assert_eq!(again, endpoint, "{written}");
            assert!(password.is_none());
        }
        Err(error) => drop(error.to_string()),
    }
});
