//! `samples.parquet` of a `scale` run: a row for each kind of operation and each server
//! of every block, and for each of its seconds.

use std::path::Path;

use parquet::{
    data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::ParquetError,
};
use replimeter_model::resources::ServerUse;

use crate::{
    rows::{Columns, RowGroup, RowsWriter, long, optional, required},
    samples::SamplesError,
};

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

/// Blocks of a `scale` run.
pub struct Blocks;

/// Writes blocks as they come.
pub type BlocksWriter = RowsWriter<Blocks>;

impl BlocksWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, SamplesError> {
        Self::begun(path, Blocks)
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, rows: Vec<BlockRow>) -> Result<(), SamplesError> {
        self.add(rows)
    }
}

impl Columns for Blocks {
    type Row = BlockRow;
    const SCHEMA: &'static str = SCHEMA;
    const GROUP: usize = 2048;

    fn write(&self, group: &mut RowGroup<'_>, held: &[BlockRow]) -> Result<(), ParquetError> {
        let words = |pick: fn(&BlockRow) -> &str| {
            held.iter()
                .map(|row| ByteArray::from(pick(row)))
                .collect::<Vec<_>>()
        };
        let whole = |pick: fn(&BlockRow) -> u32| {
            held.iter()
                .map(|row| i64::from(pick(row)))
                .collect::<Vec<_>>()
        };
        required::<ByteArrayType>(group, &words(|row| &row.shape))?;
        required::<Int64Type>(group, &whole(|row| row.replicas))?;
        required::<Int64Type>(group, &whole(|row| row.start))?;
        required::<Int64Type>(group, &whole(|row| row.block))?;
        required::<ByteArrayType>(group, &words(|row| &row.phase))?;
        required::<BoolType>(
            group,
            &held.iter().map(|row| row.counts).collect::<Vec<_>>(),
        )?;
        required::<ByteArrayType>(group, &words(kind))?;
        required::<ByteArrayType>(group, &words(|row| &row.name))?;
        optional::<Int64Type>(
            group,
            held.iter().map(|row| row.second.map(i64::from)).collect(),
        )?;
        required::<DoubleType>(
            group,
            &held.iter().map(|row| row.began_us).collect::<Vec<_>>(),
        )?;
        required::<DoubleType>(
            group,
            &held.iter().map(|row| row.length_us).collect::<Vec<_>>(),
        )?;
        let loads = |pick: fn(&About) -> Option<u64>| {
            held.iter()
                .map(|row| pick(&row.about).map(long))
                .collect::<Vec<_>>()
        };
        optional::<Int64Type>(
            group,
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
            optional::<DoubleType>(group, latency.collect())?;
        }
        optional::<Int64Type>(
            group,
            loads(|about| match about {
                About::Load { retries, .. } => *retries,
                About::Server(_) => None,
            }),
        )?;
        optional::<Int64Type>(
            group,
            loads(|about| match about {
                About::Load { failed, .. } => *failed,
                About::Server(_) => None,
            }),
        )?;
        let caught_up = held.iter().map(|row| match &row.about {
            About::Load {
                caught_up_after_us, ..
            } => *caught_up_after_us,
            About::Server(_) => None,
        });
        optional::<DoubleType>(group, caught_up.collect())?;
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
            optional::<DoubleType>(group, values.collect())?;
        }
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
            .write(vec![
                BlockRow {
                    about: load,
                    phase: "mixed".to_owned(),
                    ..BlockRow::default()
                },
                BlockRow::default(),
            ])
            .unwrap();
        writer.finish().unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 2);
        let row = reader
            .get_row_iter(None)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .to_string();
        assert!(
            row.contains("operations: 7")
                && row.contains("kind: \"load\"")
                && row.contains("max_us: 4.0"),
            "{row}"
        );
    }
}
