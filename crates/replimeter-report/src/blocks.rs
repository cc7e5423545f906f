//! `samples.parquet` of a `scale` run: a row for each kind of operation and each server
//! of every block, and for each of its seconds.

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
use replimeter_model::resources::ServerUse;

use crate::samples::{SamplesError, optional, reason, required};

/// The columns; `docs/scale.md` explains each.
const SCHEMA: &str = "message scale_block {
    required binary shape (UTF8);
    required int64 replicas;
    required int64 start;
    required int64 block;
    required binary phase (UTF8);
    required boolean counts;
    required binary kind (UTF8);
    required binary name (UTF8);
    optional int64 second;
    required double began_us;
    required double length_us;
    optional int64 operations;
    optional double p50_us;
    optional double p95_us;
    optional double p99_us;
    optional double max_us;
    optional int64 retries;
    optional int64 failed;
    optional double caught_up_after_us;
    optional double cpu_us;
    optional double cpu_user_us;
    optional double cpu_system_us;
    optional double context_switches;
    optional double read_bytes;
    optional double write_bytes;
    optional double fsyncs;
}";

/// Rows held before they are written; bounds the memory.
const GROUP: usize = 2048;

/// What a block is of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockRow {
    /// The sandbox's shape.
    pub shape: String,
    /// Replicas.
    pub replicas: u32,
    /// The start of these servers, from 1.
    pub start: u32,
    /// The block on this start, from 1.
    pub block: u32,
    /// The phase.
    pub phase: String,
    /// Whether it is in the figures.
    pub counts: bool,
    /// The operation's kind, or the server's name.
    pub name: String,
    /// The second in the block, from 0; of all of it when `None`.
    pub second: Option<u32>,
    /// When it began, on the run's clock.
    pub began_us: f64,
    /// How long it was counted.
    pub length_us: f64,
    /// What it is about.
    pub about: About,
}

/// What a row holds.
#[derive(Clone, Debug, PartialEq)]
pub enum About {
    /// Operations of one kind.
    Load {
        /// How many ended.
        operations: u64,
        /// p50, p95, p99 and the largest; null where the sample cannot carry it.
        latency_us: [Option<f64>; 4],
        /// Begun again; null for a second.
        retries: Option<u64>,
        /// Given up; null for a second.
        failed: Option<u64>,
        /// From the end to the moment at which replicas had all of it.
        caught_up_after_us: Option<f64>,
    },
    /// What a server spent.
    Server(Box<ServerUse>),
}

impl Default for About {
    fn default() -> Self {
        Self::Server(Box::default())
    }
}

/// Writes blocks as they come.
pub struct BlocksWriter {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    held: Vec<BlockRow>,
}

impl BlocksWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, SamplesError> {
        let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(path);
        let file = file.map_err(|source| SamplesError::File { path: path.to_owned(), source })?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let wrap = |error| reason(path, error);
        let schema = parse_message_type(SCHEMA).map(Arc::new).map_err(wrap)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(wrap)?;
        Ok(Self { path: path.to_owned(), writer, held: Vec::new() })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, rows: Vec<BlockRow>) -> Result<(), SamplesError> {
        self.held.extend(rows);
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

    fn group(&mut self, held: &[BlockRow]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        let words = |pick: fn(&BlockRow) -> &str| held.iter().map(|row| ByteArray::from(pick(row))).collect::<Vec<_>>();
        let whole = |pick: fn(&BlockRow) -> u32| held.iter().map(|row| i64::from(pick(row))).collect::<Vec<_>>();
        required::<ByteArrayType>(&mut group, &words(|row| &row.shape))?;
        required::<Int64Type>(&mut group, &whole(|row| row.replicas))?;
        required::<Int64Type>(&mut group, &whole(|row| row.start))?;
        required::<Int64Type>(&mut group, &whole(|row| row.block))?;
        required::<ByteArrayType>(&mut group, &words(|row| &row.phase))?;
        required::<BoolType>(&mut group, &held.iter().map(|row| row.counts).collect::<Vec<_>>())?;
        required::<ByteArrayType>(&mut group, &words(kind))?;
        required::<ByteArrayType>(&mut group, &words(|row| &row.name))?;
        optional::<Int64Type>(&mut group, held.iter().map(|row| row.second.map(i64::from)).collect())?;
        required::<DoubleType>(&mut group, &held.iter().map(|row| row.began_us).collect::<Vec<_>>())?;
        required::<DoubleType>(&mut group, &held.iter().map(|row| row.length_us).collect::<Vec<_>>())?;
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let loads = |pick: fn(&About) -> Option<u64>| held.iter().map(|row| pick(&row.about).map(number)).collect::<Vec<_>>();
        optional::<Int64Type>(
            &mut group,
            loads(|about| match about {
                About::Load { operations, .. } => Some(*operations),
                About::Server(_) => None,
            }),
        )?;
        for index in 0..4 {
            let latency = held.iter().map(|row| match &row.about {
                About::Load { latency_us, .. } => latency_us[index],
                About::Server(_) => None,
            });
            optional::<DoubleType>(&mut group, latency.collect())?;
        }
        optional::<Int64Type>(
            &mut group,
            loads(|about| match about {
                About::Load { retries, .. } => *retries,
                About::Server(_) => None,
            }),
        )?;
        optional::<Int64Type>(
            &mut group,
            loads(|about| match about {
                About::Load { failed, .. } => *failed,
                About::Server(_) => None,
            }),
        )?;
        let caught_up = held.iter().map(|row| match &row.about {
            About::Load { caught_up_after_us, .. } => *caught_up_after_us,
            About::Server(_) => None,
        });
        optional::<DoubleType>(&mut group, caught_up.collect())?;
        let figures: [fn(&ServerUse) -> Option<f64>; 7] = [
            |used| used.cpu_us,
            |used| used.cpu_user_us,
            |used| used.cpu_system_us,
            |used| used.context_switches,
            |used| used.read_bytes,
            |used| used.write_bytes,
            |used| used.fsyncs,
        ];
        for figure in figures {
            let values = held.iter().map(|row| match &row.about {
                About::Load { .. } => None,
                About::Server(used) => figure(used),
            });
            optional::<DoubleType>(&mut group, values.collect())?;
        }
        group.close()?;
        Ok(())
    }
}

fn kind(row: &BlockRow) -> &'static str {
    match (&row.about, row.second) {
        (About::Load { .. }, None) => "load",
        (About::Load { .. }, Some(_)) => "load-second",
        (About::Server(_), None) => "server",
        (About::Server(_), Some(_)) => "server-second",
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    #[test]
    fn every_column_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let mut writer = BlocksWriter::create(&path).unwrap();
        let load = About::Load {
            operations: 7,
            latency_us: [Some(1.0), None, None, Some(4.0)],
            retries: Some(0),
            failed: None,
            caught_up_after_us: None,
        };
        writer
            .write(vec![BlockRow { about: load, phase: "mixed".to_owned(), ..BlockRow::default() }, BlockRow::default()])
            .unwrap();
        writer.finish().unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 2);
        let row = reader.get_row_iter(None).unwrap().next().unwrap().unwrap().to_string();
        assert!(row.contains("operations: 7") && row.contains("kind: \"load\"") && row.contains("max_us: 4.0"), "{row}");
    }
}
