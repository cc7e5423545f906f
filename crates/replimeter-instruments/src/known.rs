//! Known answers: what runs on real servers measured, and what was made of it.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The input of a summary, in order, and its result.
pub(crate) struct Known<I> {
    pub(crate) name: String,
    pub(crate) input: Vec<I>,
    pub(crate) result: Value,
}

/// Returns the known answers whose names begin so; at least one. The last line of a file is the result of the others.
pub(crate) fn known<I: DeserializeOwned>(begin: &str) -> Vec<Known<I>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("known");
    let files = folder.read_dir().unwrap().map(|file| file.unwrap());
    let name = |file: &std::fs::DirEntry| file.file_name().into_string().unwrap();
    let known = files
        .filter(|file| name(file).starts_with(begin))
        .map(|file| {
            let lines = BufReader::new(GzDecoder::new(File::open(file.path()).unwrap())).lines();
            let mut lines: Vec<String> = lines.map(|line| line.unwrap()).collect();
            let result = lines.pop().unwrap();
            let input = lines.iter().map(|line| serde_json::from_str(line).unwrap());
            Known {
                name: name(&file),
                input: input.collect(),
                result: serde_json::from_str(&result).unwrap(),
            }
        });
    let known: Vec<Known<I>> = known.collect();
    assert!(!known.is_empty(), "{begin}");
    known
}
