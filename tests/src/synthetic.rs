//! Runs of `lag` with synthetic samples, written by the tool's own writer, to test
//! code that reads runs.

use std::{fs, path::Path};

use replimeter_instruments::lag::{
    results::LagDocument,
    sample::{LagSample, Phase, Sighting, SightingDetail, Write},
    settings::Method,
};
use replimeter_measurements::lag::samples::Samples;
use replimeter_model::{
    manifest::{MANIFEST_SCHEMA, Manifest},
    random::Random,
    record::TargetRecord,
    time::Nanos,
};
use replimeter_render::rows::{RowFile, Rows};

/// Distribution of the samples: lognormal, with correlated neighbors.
#[derive(Debug, Clone, Copy)]
pub struct SyntheticSamples {
    /// Seed of the draws.
    pub seed: u64,
    /// Number of samples, including the warm-up.
    pub count: i64,
    /// Number of warm-up samples among them.
    pub warm_up: i64,
    /// Median of the lag, in microseconds.
    pub level_us: f64,
    /// Standard deviation of its logarithm.
    pub spread: f64,
    /// Correlation of neighbors, 0 to 1.
    pub correlation: f64,
    /// Fresh starts of the servers, which share the samples; 0 for servers that ran already.
    pub starts: u32,
    /// Standard deviation of the logarithm of the starts' levels.
    pub between_starts: f64,
    /// When the run began, in minutes after an hour.
    pub minute: u8,
}

impl Default for SyntheticSamples {
    fn default() -> Self {
        Self {
            seed: 1,
            count: 3000,
            warm_up: 50,
            level_us: 200.0,
            spread: 0.3,
            correlation: 0.6,
            starts: 0,
            between_starts: 0.0,
            minute: 0,
        }
    }
}

/// Creates a run directory of `lag` with such samples.
///
/// # Panics
/// If the folder exists, or cannot be written, or the starts would have different numbers of samples.
pub fn lag_run(dir: &Path, of: SyntheticSamples) {
    assert_eq!(of.count % i64::from(of.starts.max(1)), 0, "{of:?}");
    fs::create_dir(dir).unwrap();
    let mut random = Random::new(of.seed);
    let columns = |start: u32| Samples::new("async:1", start, vec!["replica1".to_owned()]);
    let mut file = RowFile::create::<Samples>(&dir.join("samples.parquet")).unwrap();
    let mut rows = Rows::new(columns(1));
    let mut state = random.normal();
    let per_start = of.count / i64::from(of.starts.max(1));
    let mut level_us = of.level_us;
    let fresh = (1.0 - of.correlation * of.correlation).sqrt();
    for seq in 0..of.count {
        if of.starts > 0 && seq % per_start == 0 {
            rows.switch(columns((seq / per_start) as u32 + 1));
            level_us = of.level_us * (of.between_starts * random.normal()).exp();
        }
        state = of.correlation * state + fresh * random.normal();
        let (send, insert) = (
            Nanos(seq * 10_000_000),
            Nanos((80_000.0 * (0.2 * random.normal()).exp()) as i64),
        );
        let until = send + insert + Nanos((level_us * 1e3 * (of.spread * state).exp()) as i64);
        let sighting = Sighting {
            seq: seq as u64,
            after: until - Nanos(20_000),
            hit_began: until - Nanos(15_000),
            until,
            detail: SightingDetail::Nothing,
        };
        let write = Write {
            seq: seq as u64,
            phase: if seq < of.warm_up {
                Phase::WarmUp
            } else {
                Phase::Measure
            },
            sweep: 0,
            step: 0,
            row_in_step: 1,
            size_bytes: 1000,
            intended: send,
            send,
            ack: send + insert,
        };
        rows.add(LagSample {
            replica: 0,
            method: Method::Poll,
            write,
            sighting: Some(sighting),
            unplaced: false,
        });
        for batch in rows.take_full() {
            file.write(&batch).unwrap();
        }
    }
    for batch in rows.take_all() {
        file.write(&batch).unwrap();
    }
    file.finish().unwrap();
    let target = TargetRecord {
        shape: "async:1".to_owned(),
        modes: vec!["async".to_owned()],
        fresh_starts: of.starts,
        ..TargetRecord::default()
    };
    let document = LagDocument {
        schema: "replimeter.lag/1".to_owned(),
        command: "lag".to_owned(),
        headline: "Made up.".to_owned(),
        started_at: format!("2026-01-01T00:{:02}:00Z", of.minute),
        target,
        ..LagDocument::default()
    };
    let manifest = Manifest {
        schema: MANIFEST_SCHEMA.to_owned(),
        replimeter: "0.0.0".to_owned(),
        ..Manifest::default()
    };
    fs::write(
        dir.join("summary.json"),
        serde_json::to_string(&document).unwrap(),
    )
    .unwrap();
    fs::write(
        dir.join("manifest.json"),
        serde_json::to_string(&manifest).unwrap(),
    )
    .unwrap();
    fs::write(
        dir.join("plan.toml"),
        format!("command = \"lag\"\n\n[lag]\nrounds = {}\n", of.count),
    )
    .unwrap();
}
