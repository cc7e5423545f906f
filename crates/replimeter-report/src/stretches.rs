//! `samples.parquet` of a `tap` run: a row for each stretch and replica, since a row for
//! each transaction of real traffic would be too many.

use std::{
    fs::File,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use replimeter_model::tap::TapWindow;

use crate::samples::{SamplesError, optional, reason, required};

/// The columns; `docs/tap.md` explains each.
const SCHEMA: &str = "message tap_stretch {
    required binary shape (UTF8);
    required binary replica (UTF8);
    required double start_us;
    required double end_us;
    required int64 transactions;
    required int64 bytes;
    required int64 matched;
    required int64 inverted;
    optional double min_us;
    optional double p50_us;
    optional double p99_us;
    optional double max_us;
    required int64 pending;
    optional double behind_us;
}";

/// Rows held before they are written; bounds the memory.
const GROUP: usize = 512;

/// Writes stretches as they come.
pub struct StretchesWriter {
    path: PathBuf,
    shape: String,
    writer: SerializedFileWriter<File>,
    held: Vec<TapWindow>,
}

impl StretchesWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, shape: &str) -> Result<Self, SamplesError> {
        let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(path);
        let file = file.map_err(|source| SamplesError::File { path: path.to_owned(), source })?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let wrap = |error| reason(path, error);
        let schema = parse_message_type(SCHEMA).map(Arc::new).map_err(wrap)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(wrap)?;
        Ok(Self { path: path.to_owned(), shape: shape.to_owned(), writer, held: Vec::new() })
    }

    /// Adds stretches.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, windows: &[TapWindow]) -> Result<(), SamplesError> {
        self.held.extend_from_slice(windows);
        if self.held.len() >= GROUP { self.flush() } else { Ok(()) }
    }

    /// Writes what is held and the file's end.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self) -> Result<(), SamplesError> {
        self.flush()?;
        self.writer.close().map(|_| ()).map_err(|error| reason(&self.path, error))
    }

    fn flush(&mut self) -> Result<(), SamplesError> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        self.group(&held).map_err(|error| reason(&self.path, error))
    }

    fn group(&mut self, held: &[TapWindow]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        let whole = |pick: fn(&TapWindow) -> u64| {
            held.iter().map(|window| i64::try_from(pick(window)).unwrap_or(i64::MAX)).collect::<Vec<_>>()
        };
        let maybe = |pick: fn(&TapWindow) -> Option<f64>| held.iter().map(pick).collect::<Vec<_>>();
        required::<ByteArrayType>(&mut group, &vec![ByteArray::from(self.shape.as_str()); held.len()])?;
        let names: Vec<ByteArray> = held.iter().map(|window| ByteArray::from(window.replica.as_str())).collect();
        required::<ByteArrayType>(&mut group, &names)?;
        required::<DoubleType>(&mut group, &held.iter().map(|window| window.start_us).collect::<Vec<_>>())?;
        required::<DoubleType>(&mut group, &held.iter().map(|window| window.end_us).collect::<Vec<_>>())?;
        required::<Int64Type>(&mut group, &whole(|window| window.transactions))?;
        required::<Int64Type>(&mut group, &whole(|window| window.bytes))?;
        required::<Int64Type>(&mut group, &whole(|window| window.matched))?;
        required::<Int64Type>(&mut group, &whole(|window| window.inverted))?;
        optional::<DoubleType>(&mut group, maybe(|window| window.min_us))?;
        optional::<DoubleType>(&mut group, maybe(|window| window.p50_us))?;
        optional::<DoubleType>(&mut group, maybe(|window| window.p99_us))?;
        optional::<DoubleType>(&mut group, maybe(|window| window.max_us))?;
        required::<Int64Type>(&mut group, &whole(|window| window.pending))?;
        optional::<DoubleType>(&mut group, maybe(|window| window.behind_us))?;
        group.close()?;
        Ok(())
    }
}
