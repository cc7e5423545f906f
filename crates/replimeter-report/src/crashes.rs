//! `samples.parquet` of a `loss` run: a row for each crash.

use std::{
    fs::File,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use replimeter_model::{exposure::ExposureSample, loss::CrashRecord};

use crate::samples::{SamplesError, optional, reason, required};

/// The columns of a crash; `docs/loss.md` explains each.
const CRASH: &str = "message crash {
    required binary shape (UTF8);
    required binary mode (UTF8);
    required int64 number;
    required double load_us;
    required int64 begun;
    required int64 acknowledged;
    required int64 acknowledged_after_cut;
    required int64 missing;
    optional double missing_since_us;
    required int64 missing_after_cut;
    required int64 seen;
    required int64 seen_then_lost;
    required int64 seen_unacknowledged_lost;
    required int64 unacknowledged_present;
    required int64 unacknowledged;
    required int64 refused;
    required binary promoted (UTF8);
    optional double drained_us;
    required double promoted_us;
    required double recovery_us;
    required int64 fallen_back;
    optional double return_us;
    optional int64 errant_transactions;
    optional binary errant_gtids (UTF8);
    optional int64 errant_rows;
    optional int64 errant_acknowledged;
}";

/// The columns of a look; `docs/exposure.md` explains each.
const LOOK: &str = "message look {
    required binary shape (UTF8);
    required double at_us;
    required double look_us;
    required int64 answered;
    required int64 transactions;
    required int64 bytes;
    optional double age_us;
    optional boolean semi_sync;
}";

/// Rows held before they are written; bounds the memory.
const GROUP: usize = 2048;

fn create(path: &Path, schema: &str) -> Result<SerializedFileWriter<File>, SamplesError> {
    let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(path);
    let file = file.map_err(|source| SamplesError::File { path: path.to_owned(), source })?;
    let properties =
        WriterProperties::builder().set_compression(Compression::SNAPPY).set_statistics_enabled(EnabledStatistics::Chunk).build();
    let wrap = |error| reason(path, error);
    let schema = parse_message_type(schema).map(Arc::new).map_err(wrap)?;
    SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(wrap)
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Writes crashes as they come.
pub struct CrashesWriter {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    held: Vec<(String, CrashRecord)>,
}

impl CrashesWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, SamplesError> {
        Ok(Self { path: path.to_owned(), writer: create(path, CRASH)?, held: Vec::new() })
    }

    /// Adds a crash of this mode of replication.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, mode: &str, record: &CrashRecord) -> Result<(), SamplesError> {
        self.held.push((mode.to_owned(), record.clone()));
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

    fn group(&mut self, held: &[(String, CrashRecord)]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        let texts =
            |pick: fn(&(String, CrashRecord)) -> &str| held.iter().map(|row| ByteArray::from(pick(row))).collect::<Vec<_>>();
        let counts = |pick: fn(&CrashRecord) -> u64| held.iter().map(|(_, row)| whole(pick(row))).collect::<Vec<_>>();
        let times = |pick: fn(&CrashRecord) -> f64| held.iter().map(|(_, row)| pick(row)).collect::<Vec<_>>();
        let maybe = |pick: fn(&CrashRecord) -> Option<f64>| held.iter().map(|(_, row)| pick(row)).collect::<Vec<_>>();
        required::<ByteArrayType>(&mut group, &texts(|(_, row)| &row.shape))?;
        required::<ByteArrayType>(&mut group, &texts(|(mode, _)| mode))?;
        required::<Int64Type>(&mut group, &counts(|row| row.number))?;
        required::<DoubleType>(&mut group, &times(|row| row.load_us))?;
        required::<Int64Type>(&mut group, &counts(|row| row.begun))?;
        required::<Int64Type>(&mut group, &counts(|row| row.acknowledged))?;
        required::<Int64Type>(&mut group, &counts(|row| row.acknowledged_after_cut))?;
        required::<Int64Type>(&mut group, &counts(|row| row.missing))?;
        optional::<DoubleType>(&mut group, maybe(|row| row.missing_since_us))?;
        required::<Int64Type>(&mut group, &counts(|row| row.missing_after_cut))?;
        required::<Int64Type>(&mut group, &counts(|row| row.seen))?;
        required::<Int64Type>(&mut group, &counts(|row| row.seen_then_lost))?;
        required::<Int64Type>(&mut group, &counts(|row| row.seen_unacknowledged_lost))?;
        required::<Int64Type>(&mut group, &counts(|row| row.unacknowledged_present))?;
        required::<Int64Type>(&mut group, &counts(|row| row.unacknowledged))?;
        required::<Int64Type>(&mut group, &counts(|row| row.refused))?;
        required::<ByteArrayType>(&mut group, &texts(|(_, row)| &row.promoted))?;
        optional::<DoubleType>(&mut group, maybe(|row| row.drained_us))?;
        required::<DoubleType>(&mut group, &times(|row| row.promoted_us))?;
        required::<DoubleType>(&mut group, &times(|row| row.recovery_us))?;
        required::<Int64Type>(&mut group, &counts(|row| row.fallen_back))?;
        optional::<DoubleType>(&mut group, maybe(|row| row.return_us))?;
        let errant = held.iter().map(|(_, row)| row.errant.as_ref());
        let number = |errant: Option<u64>| errant.map(whole);
        optional::<Int64Type>(&mut group, errant.clone().map(|errant| number(errant?.transactions)).collect())?;
        optional::<ByteArrayType>(
            &mut group,
            errant.clone().map(|errant| Some(ByteArray::from(errant?.gtids.as_str()))).collect(),
        )?;
        optional::<Int64Type>(&mut group, errant.clone().map(|errant| number(Some(errant?.rows))).collect())?;
        optional::<Int64Type>(&mut group, errant.map(|errant| number(Some(errant?.acknowledged))).collect())?;
        group.close()?;
        Ok(())
    }
}

/// Writes the looks of an `exposure` run as they come.
pub struct LooksWriter {
    path: PathBuf,
    shape: String,
    writer: SerializedFileWriter<File>,
    held: Vec<ExposureSample>,
}

impl LooksWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, shape: &str) -> Result<Self, SamplesError> {
        Ok(Self { path: path.to_owned(), shape: shape.to_owned(), writer: create(path, LOOK)?, held: Vec::new() })
    }

    /// Adds a look.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, sample: &ExposureSample) -> Result<(), SamplesError> {
        self.held.push(sample.clone());
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

    fn group(&mut self, held: &[ExposureSample]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        let counts = |pick: fn(&ExposureSample) -> u64| held.iter().map(|row| whole(pick(row))).collect::<Vec<_>>();
        required::<ByteArrayType>(&mut group, &vec![ByteArray::from(self.shape.as_str()); held.len()])?;
        required::<DoubleType>(&mut group, &held.iter().map(|row| row.at_us).collect::<Vec<_>>())?;
        required::<DoubleType>(&mut group, &held.iter().map(|row| row.look_us).collect::<Vec<_>>())?;
        required::<Int64Type>(&mut group, &counts(|row| row.answered))?;
        required::<Int64Type>(&mut group, &counts(|row| row.transactions))?;
        required::<Int64Type>(&mut group, &counts(|row| row.bytes))?;
        optional::<DoubleType>(&mut group, held.iter().map(|row| row.age_us).collect())?;
        optional::<BoolType>(&mut group, held.iter().map(|row| row.semi_sync).collect())?;
        group.close()?;
        Ok(())
    }
}
