//! A workload: TOML, or a script of statements.

#![no_main]

use replimeter_instruments::load::Workload;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    for name in ["w.toml", "w.sql"] {
        match Workload::parse(name, &text) {
            Ok(workload) => {
                let _ = (workload.reads_only(), workload.statements());
                let _ = (workload.reads_versions(), workload.writes_versions());
                let _ = (workload.tables(), workload.rows(workload.default_size()));
                assert!(workload.same_data(&workload) && workload.collides(&workload).is_none());
            }
            Err(error) => drop(error.to_string()),
        }
    }
});
