//! Records the data that measuring passes to the summaries, in order, for tests that summarize it again
//! and must get the same results.
//!
//! A development aid: nothing is recorded unless the program requests it, and without recording a call
//! costs one read of a cell. Calls come from collecting threads, never from measuring threads.

use std::{
    fs::{File, create_dir_all},
    io::{self, BufWriter, Write},
    path::Path,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use serde::Serialize;

/// Events passed to the caller's listener, and the outcome of the run.
pub const CALLS: &str = "calls.jsonl";
/// Data summarized in this crate, below the listeners.
pub const READINGS: &str = "readings.jsonl";

static RECORDING: OnceLock<Mutex<Recording>> = OnceLock::new();

struct Recording {
    calls: BufWriter<File>,
    readings: BufWriter<File>,
    /// The first error.
    failed: Option<io::Error>,
}

fn recording() -> Option<MutexGuard<'static, Recording>> {
    Some(
        RECORDING
            .get()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner),
    )
}

fn line(file: &mut BufWriter<File>, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, value)?;
    file.write_all(b"\n")
}

/// Records into this folder from now on, once per process.
///
/// # Errors
/// When the folder cannot be written, or a recording is already running.
pub fn begin(folder: &Path) -> io::Result<()> {
    create_dir_all(folder)?;
    let create = |name: &str| File::create_new(folder.join(name)).map(BufWriter::new);
    let recording = Recording {
        calls: create(CALLS)?,
        readings: create(READINGS)?,
        failed: None,
    };
    RECORDING
        .set(Mutex::new(recording))
        .map_err(|_| io::Error::other("a run is already being recorded"))
}

/// Records an event of a listener.
pub fn call(value: &impl Serialize) {
    let Some(mut recording) = recording() else {
        return;
    };
    let written = line(&mut recording.calls, value);
    recording.failed = recording.failed.take().or(written.err());
}

/// Records data that is summarized below the listeners; `make` is called only while recording.
pub fn reading<T: Serialize>(make: impl FnOnce() -> T) {
    let Some(mut recording) = recording() else {
        return;
    };
    let written = line(&mut recording.readings, &make());
    recording.failed = recording.failed.take().or(written.err());
}

/// Ends the recording, if there is one.
///
/// # Errors
/// When part of it could not be written.
pub fn finish() -> io::Result<()> {
    let Some(mut recording) = recording() else {
        return Ok(());
    };
    recording.calls.flush()?;
    recording.readings.flush()?;
    recording.failed.take().map_or(Ok(()), Err)
}

/// A recorded run in `tests/net`, for tests.
#[cfg(test)]
pub(crate) struct RecordedCase {
    pub(crate) name: String,
    folder: std::path::PathBuf,
}

/// Returns the recorded runs with readings whose names start with `begins`; at least one.
#[cfg(test)]
pub(crate) fn cases(begins: &str) -> Vec<RecordedCase> {
    let folders =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/net")).unwrap();
    let case = |folder: std::path::PathBuf| {
        let name = folder.file_name()?.to_str()?.to_owned();
        (name.starts_with(begins) && folder.join(format!("{READINGS}.gz")).exists())
            .then_some(RecordedCase { name, folder })
    };
    let cases: Vec<RecordedCase> = folders
        .filter_map(|entry| case(entry.unwrap().path()))
        .collect();
    assert!(
        !cases.is_empty(),
        "no recorded run of {begins} has readings"
    );
    cases
}

#[cfg(test)]
impl RecordedCase {
    fn lines(&self, name: &str) -> Vec<serde_json::Value> {
        use io::BufRead;
        let file = flate2::read::GzDecoder::new(
            File::open(self.folder.join(format!("{name}.gz"))).unwrap(),
        );
        io::BufReader::new(file)
            .lines()
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect()
    }

    /// Returns the data below the listeners, in order.
    pub(crate) fn readings<R: serde::de::DeserializeOwned>(&self) -> Vec<R> {
        self.lines(READINGS)
            .into_iter()
            .map(|line| serde_json::from_value(line).unwrap())
            .collect()
    }

    /// Returns the arguments of the calls of this name.
    pub(crate) fn calls(&self, name: &str) -> Vec<serde_json::Value> {
        self.lines(CALLS)
            .into_iter()
            .filter_map(|line| line.get(name).cloned())
            .collect()
    }
}
