//! `samples.parquet` of a `cost` run: a row for each block.

use std::{
    fs::File,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use replimeter_model::{cost::BlockRecord, record::Distribution};

use crate::samples::{SamplesError, optional, reason, required};

/// The columns; `docs/cost.md` explains each.
const SCHEMA: &str = "message cost_block {
    required int32 round;
    required binary engine (UTF8);
    required binary mode (UTF8);
    optional binary wait_point (UTF8);
    required int32 replicas;
    required int32 threads;
    optional double link_delay_us;
    required int32 block;
    optional binary void (UTF8);
    required double began_us;
    required double counted_us;
    required int64 operations;
    required int64 retries;
    required int64 failed;
    optional double mean_us;
    optional double stdev_us;
    optional double p50_us;
    optional double p95_us;
    optional double p99_us;
    optional double max_us;
    optional double primary_cpu_us_per_op;
    optional double all_cpu_us_per_op;
    optional double client_cpu_us_per_op;
    optional int64 behind;
}";

/// Rows held before they are written; bounds the memory.
const GROUP: usize = 512;

/// Writes blocks as they come.
pub struct BlocksWriter {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    held: Vec<BlockRecord>,
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

    /// Adds a block.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, block: BlockRecord) -> Result<(), SamplesError> {
        self.held.push(block);
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

    fn group(&mut self, held: &[BlockRecord]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        let number = |pick: fn(&BlockRecord) -> u32| {
            held.iter().map(|block| i32::try_from(pick(block)).unwrap_or(i32::MAX)).collect::<Vec<_>>()
        };
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let whole = |pick: fn(&BlockRecord) -> u64| held.iter().map(|block| count(pick(block))).collect::<Vec<_>>();
        let text = |pick: fn(&BlockRecord) -> &String| {
            held.iter().map(|block| ByteArray::from(pick(block).as_str())).collect::<Vec<_>>()
        };
        let maybe_text = |pick: fn(&BlockRecord) -> &Option<String>| {
            held.iter().map(|block| pick(block).as_deref().map(ByteArray::from)).collect::<Vec<_>>()
        };
        let real = |pick: fn(&BlockRecord) -> f64| held.iter().map(pick).collect::<Vec<_>>();
        let maybe = |pick: fn(&BlockRecord) -> Option<f64>| held.iter().map(pick).collect::<Vec<_>>();
        let latency = |pick: fn(&Distribution) -> Option<f64>| held.iter().map(|block| pick(&block.latency)).collect::<Vec<_>>();
        required::<Int32Type>(&mut group, &number(|block| block.round))?;
        required::<ByteArrayType>(&mut group, &text(|block| &block.engine))?;
        required::<ByteArrayType>(&mut group, &text(|block| &block.mode))?;
        optional::<ByteArrayType>(&mut group, maybe_text(|block| &block.wait_point))?;
        required::<Int32Type>(&mut group, &number(|block| block.replicas))?;
        required::<Int32Type>(&mut group, &number(|block| block.threads))?;
        optional::<DoubleType>(&mut group, maybe(|block| block.link_delay_us))?;
        required::<Int32Type>(&mut group, &number(|block| block.block))?;
        optional::<ByteArrayType>(&mut group, maybe_text(|block| &block.void))?;
        required::<DoubleType>(&mut group, &real(|block| block.began_us))?;
        required::<DoubleType>(&mut group, &real(|block| block.counted_us))?;
        required::<Int64Type>(&mut group, &whole(|block| block.operations))?;
        required::<Int64Type>(&mut group, &whole(|block| block.retries))?;
        required::<Int64Type>(&mut group, &whole(|block| block.failed))?;
        optional::<DoubleType>(&mut group, latency(|latency| latency.mean_us))?;
        optional::<DoubleType>(&mut group, latency(|latency| latency.stdev_us))?;
        optional::<DoubleType>(&mut group, latency(|latency| latency.p50_us))?;
        optional::<DoubleType>(&mut group, latency(|latency| latency.p95_us))?;
        optional::<DoubleType>(&mut group, latency(|latency| latency.p99_us))?;
        optional::<DoubleType>(&mut group, latency(|latency| latency.max_us))?;
        optional::<DoubleType>(&mut group, maybe(|block| block.primary_cpu_us_per_op))?;
        optional::<DoubleType>(&mut group, maybe(|block| block.all_cpu_us_per_op))?;
        optional::<DoubleType>(&mut group, maybe(|block| block.client_cpu_us_per_op))?;
        optional::<Int64Type>(&mut group, held.iter().map(|block| block.behind.map(count)).collect())?;
        group.close()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::RowAccessor,
    };

    use super::*;

    #[test]
    fn blocks_are_read_back_with_what_is_unknown_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let mut writer = BlocksWriter::create(&path).unwrap();
        for block in 1..=3 {
            let void = (block == 2).then(|| "fell back".to_owned());
            writer.write(BlockRecord { mode: "async".to_owned(), block, void, operations: 7, ..BlockRecord::default() }).unwrap();
        }
        writer.finish().unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!((rows.len(), rows[2].get_int(7).unwrap(), rows[0].get_long(11).unwrap()), (3, 3, 7));
        assert_eq!(rows[1].get_string(8).unwrap(), "fell back");
        assert!(rows[0].get_string(8).is_err(), "null");
    }
}
