//! `samples.parquet` of a `cost` run: a row for each block.

use std::path::Path;

use parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type},
    errors::ParquetError,
};
use replimeter_model::{cost::BlockRecord, record::Distribution};

use crate::{
    rows::{Columns, RowGroup, RowsWriter, long, optional, required, short},
    samples::SamplesError,
};

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

/// Blocks of a `cost` run.
pub struct CostBlocks;

/// Writes blocks as they come.
pub type BlocksWriter = RowsWriter<CostBlocks>;

impl BlocksWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, SamplesError> {
        Self::begun(path, CostBlocks)
    }

    /// Adds a block.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, block: BlockRecord) -> Result<(), SamplesError> {
        self.add([block])
    }
}

impl Columns for CostBlocks {
    type Row = BlockRecord;
    const SCHEMA: &'static str = SCHEMA;
    const GROUP: usize = 512;

    fn write(&self, group: &mut RowGroup<'_>, held: &[BlockRecord]) -> Result<(), ParquetError> {
        let number = |pick: fn(&BlockRecord) -> u32| {
            held.iter()
                .map(|block| short(pick(block)))
                .collect::<Vec<_>>()
        };
        let whole = |pick: fn(&BlockRecord) -> u64| {
            held.iter()
                .map(|block| long(pick(block)))
                .collect::<Vec<_>>()
        };
        let text = |pick: fn(&BlockRecord) -> &String| {
            held.iter()
                .map(|block| ByteArray::from(pick(block).as_str()))
                .collect::<Vec<_>>()
        };
        let maybe_text = |pick: fn(&BlockRecord) -> &Option<String>| {
            held.iter()
                .map(|block| pick(block).as_deref().map(ByteArray::from))
                .collect::<Vec<_>>()
        };
        let real = |pick: fn(&BlockRecord) -> f64| held.iter().map(pick).collect::<Vec<_>>();
        let maybe =
            |pick: fn(&BlockRecord) -> Option<f64>| held.iter().map(pick).collect::<Vec<_>>();
        let latency = |pick: fn(&Distribution) -> Option<f64>| {
            held.iter()
                .map(|block| pick(&block.latency))
                .collect::<Vec<_>>()
        };
        required::<Int32Type>(group, &number(|block| block.round))?;
        required::<ByteArrayType>(group, &text(|block| &block.engine))?;
        required::<ByteArrayType>(group, &text(|block| &block.mode))?;
        optional::<ByteArrayType>(group, maybe_text(|block| &block.wait_point))?;
        required::<Int32Type>(group, &number(|block| block.replicas))?;
        required::<Int32Type>(group, &number(|block| block.threads))?;
        optional::<DoubleType>(group, maybe(|block| block.link_delay_us))?;
        required::<Int32Type>(group, &number(|block| block.block))?;
        optional::<ByteArrayType>(group, maybe_text(|block| &block.void))?;
        required::<DoubleType>(group, &real(|block| block.began_us))?;
        required::<DoubleType>(group, &real(|block| block.counted_us))?;
        required::<Int64Type>(group, &whole(|block| block.operations))?;
        required::<Int64Type>(group, &whole(|block| block.retries))?;
        required::<Int64Type>(group, &whole(|block| block.failed))?;
        optional::<DoubleType>(group, latency(|latency| latency.mean_us))?;
        optional::<DoubleType>(group, latency(|latency| latency.stdev_us))?;
        optional::<DoubleType>(group, latency(|latency| latency.p50_us))?;
        optional::<DoubleType>(group, latency(|latency| latency.p95_us))?;
        optional::<DoubleType>(group, latency(|latency| latency.p99_us))?;
        optional::<DoubleType>(group, latency(|latency| latency.max_us))?;
        optional::<DoubleType>(group, maybe(|block| block.primary_cpu_us_per_op))?;
        optional::<DoubleType>(group, maybe(|block| block.all_cpu_us_per_op))?;
        optional::<DoubleType>(group, maybe(|block| block.client_cpu_us_per_op))?;
        optional::<Int64Type>(
            group,
            held.iter().map(|block| block.behind.map(long)).collect(),
        )
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
            writer
                .write(BlockRecord {
                    mode: "async".to_owned(),
                    block,
                    void,
                    operations: 7,
                    ..BlockRecord::default()
                })
                .unwrap();
        }
        writer.finish().unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(
            (
                rows.len(),
                rows[2].get_int(7).unwrap(),
                rows[0].get_long(11).unwrap()
            ),
            (3, 3, 7)
        );
        assert_eq!(rows[1].get_string(8).unwrap(), "fell back");
        assert!(rows[0].get_string(8).is_err(), "null");
    }
}
