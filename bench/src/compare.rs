//! `compare`: how long two runs of a million samples take.

use std::{fs, path::Path, time::Instant};

use replimeter_model::{
    manifest::{MANIFEST_SCHEMA, Manifest},
    plan::Method,
    record::{LAG_SCHEMA, LagDocument, TargetRecord},
    sample::{Beside, LagSample, Phase, Sighting, Write},
    time::Nanos,
};
use replimeter_report::samples::SamplesWriter;
use replimeter_stats::random::Random;
use replimeter_suites::Tool;

use crate::{line, spread};

/// Samples of each run.
const SAMPLES: u64 = 1_000_000;
/// Repetitions.
const TIMES: usize = 3;

/// A run of so many samples, neighbours alike, kept as the tool keeps its own.
fn made_up(dir: &Path, seed: u64, level: f64) {
    fs::create_dir(dir).expect("a folder");
    let mut random = Random::new(seed);
    let mut writer = SamplesWriter::create(&dir.join("samples.parquet"), "null").expect("a file");
    writer.begin("async:1", vec!["replica1".to_owned()]).expect("it writes");
    let mut state = 0.0;
    for seq in 0..SAMPLES {
        state = 0.8 * state + 0.6 * random.normal();
        let (send, insert) = (Nanos(seq as i64 * 1_000_000), Nanos((80_000.0 * (0.2 * random.normal()).exp()) as i64));
        let until = send + insert + Nanos((level * 1e3 * (0.4 * state).exp()) as i64);
        let beside = Beside::Nothing;
        let sighting = Sighting { seq, after: until - Nanos(20_000), hit_began: until - Nanos(15_000), until, beside };
        let write = Write {
            seq,
            phase: Phase::Measure,
            sweep: 0,
            step: 0,
            row_in_step: 1,
            size_bytes: 1000,
            intended: send,
            send,
            ack: send + insert,
        };
        let sample = LagSample { replica: 0, method: Method::Poll, write, sighting: Some(sighting), untold: false };
        writer.write(&sample).expect("it writes");
    }
    writer.finish().expect("it writes");
    let target = TargetRecord { shape: "async:1".to_owned(), ..TargetRecord::default() };
    let document = LagDocument { schema: LAG_SCHEMA.to_owned(), target, ..LagDocument::default() };
    let manifest = Manifest { schema: MANIFEST_SCHEMA.to_owned(), ..Manifest::default() };
    fs::write(dir.join("summary.json"), serde_json::to_string(&document).expect("a document")).expect("it writes");
    fs::write(dir.join("manifest.json"), serde_json::to_string(&manifest).expect("a document")).expect("it writes");
    fs::write(dir.join("plan.toml"), "command = \"lag\"\n").expect("it writes");
}

pub(crate) fn compare() {
    let tool = Tool::new();
    made_up(&tool.folder().join("a"), 1, 200.0);
    made_up(&tool.folder().join("b"), 2, 202.0);
    let (mut took, mut memory) = (Vec::new(), Vec::new());
    for turn in 0..TIMES {
        let out = format!("out{turn}");
        let began = Instant::now();
        let mut child = tool.command(&["compare", "a", "b", "--run-dir", &out]).spawn().expect("the tool runs");
        let mut most = 0.0f64;
        // What it had at most is told until it has ended.
        while child.try_wait().expect("it is waited for").is_none() {
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let peak =
                status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
            most = most.max(peak.unwrap_or(0.0) / 1024.0);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        took.push(began.elapsed().as_secs_f64());
        memory.push(most);
        let text = fs::read_to_string(tool.folder().join(out).join("summary.json")).expect("it was kept");
        let document: serde_json::Value = serde_json::from_str(&text).expect("a document");
        let median = document["results"].as_array().and_then(|rows| rows.iter().find(|row| row["figure"] == "lag.p50"));
        assert_eq!(median.expect("a row")["change"], "higher", "1 % more is found in a million samples");
    }
    line("compare two runs of 1,000,000 samples (s)", spread(took).1, "≤ 5");
    line("its memory at most (MiB)", spread(memory).1, "");
}
