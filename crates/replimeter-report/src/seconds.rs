//! `samples.parquet` of a `load` run: a row for each workload and second, since a row
//! for each operation would be too many.

use std::path::Path;

use parquet::{
    data_type::{ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
};
use replimeter_model::load::LoadRow;

use crate::{
    rows::{Columns, RowGroup, RowsWriter, long, optional, required},
    samples::SamplesError,
};

/// The columns; `docs/load.md` explains each.
const SCHEMA: &str = "message load_second {
    required binary workload (UTF8);
    required int64 threads;
    required int64 second;
    required int64 operations;
    optional int64 waiting;
}";

/// One second of a workload.
struct Second {
    workload: ByteArray,
    threads: u32,
    second: u64,
    operations: u64,
    waiting: Option<u64>,
}

/// The seconds of a `load` run.
struct Seconds;

/// Writes the seconds of every row.
///
/// # Errors
/// When the file cannot be made or the disk refuses.
pub fn write(path: &Path, rows: &[LoadRow]) -> Result<(), SamplesError> {
    let mut writer = RowsWriter::begun(path, Seconds)?;
    for load in rows.iter().map(|row| &row.load) {
        let workload = ByteArray::from(load.workload.as_str());
        writer.add(load.per_second.iter().enumerate().map(|(index, operations)| Second {
            workload: workload.clone(),
            threads: load.threads,
            second: index as u64 + 1,
            operations: *operations,
            waiting: load.waiting_per_second.get(index).copied(),
        }))?;
    }
    writer.finish()
}

impl Columns for Seconds {
    type Row = Second;
    const SCHEMA: &'static str = SCHEMA;
    const GROUP: usize = 4096;

    fn write(&self, group: &mut RowGroup<'_>, held: &[Second]) -> Result<(), ParquetError> {
        let whole = |pick: fn(&Second) -> u64| held.iter().map(|second| long(pick(second))).collect::<Vec<_>>();
        required::<ByteArrayType>(group, &held.iter().map(|second| second.workload.clone()).collect::<Vec<_>>())?;
        required::<Int64Type>(group, &whole(|second| second.threads.into()))?;
        required::<Int64Type>(group, &whole(|second| second.second))?;
        required::<Int64Type>(group, &whole(|second| second.operations))?;
        optional::<Int64Type>(group, held.iter().map(|second| second.waiting.map(long)).collect())
    }
}
