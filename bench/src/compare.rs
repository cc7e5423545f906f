//! `compare`: duration and memory for two runs of a million samples.

use std::fs;

use replimeter_suites::{
    TestEnvironment,
    synthetic::{SyntheticSamples, lag_run},
};

use crate::{TIMES, figure, line, watched};

/// Samples of each run.
const SAMPLES: i64 = 1_000_000;

pub(crate) fn compare() {
    let tool = TestEnvironment::new();
    let run = SyntheticSamples {
        count: SAMPLES,
        warm_up: 0,
        level_us: 200.0,
        spread: 0.4,
        correlation: 0.8,
        ..SyntheticSamples::default()
    };
    lag_run(
        &tool.folder().join("a"),
        SyntheticSamples { seed: 1, ..run },
    );
    lag_run(
        &tool.folder().join("b"),
        SyntheticSamples {
            seed: 2,
            level_us: 202.0,
            ..run
        },
    );
    let (mut took, mut memory) = (Vec::new(), Vec::new());
    for repetition in 0..TIMES {
        let out = format!("out{repetition}");
        let (seconds, most) = watched(&tool, &["compare", "a", "b", "--run-dir", &out]);
        took.push(seconds);
        memory.push(most);
        let text = fs::read_to_string(tool.folder().join(out).join("summary.json"))
            .expect("the comparison has a summary");
        let document: serde_json::Value = serde_json::from_str(&text).expect("a document");
        let median = document["results"]
            .as_array()
            .and_then(|rows| rows.iter().find(|row| row["figure"] == "lag.p50"));
        // Two runs that do not alternate have no cause, however many samples they have.
        assert_ne!(median.expect("a row")["change"], "higher");
    }
    line(
        "compare two runs of 1,000,000 samples (s)",
        figure(&took).1,
        "≤ 5",
    );
    line("compare: peak memory (MiB)", figure(&memory).1, "");
}
