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
pub(crate) struct Second {
    workload: ByteArray,
    threads: u32,
    second: u64,
    operations: u64,
    waiting: Option<u64>,
}

/// The seconds of a `load` run.
pub(crate) struct Seconds;

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

#[cfg(test)]
mod tests {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::RowAccessor,
    };
    use replimeter_model::load::LoadRecord;

    use super::*;

    #[test]
    fn seconds_are_counted_anew_for_every_row() {
        let row = |workload: &str, per_second: Vec<u64>, waiting_per_second: Vec<u64>| LoadRow {
            load: LoadRecord { workload: workload.to_owned(), per_second, waiting_per_second, ..LoadRecord::default() },
            ..LoadRow::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        write(&path, &[row("a", vec![5, 6], vec![1, 0]), row("none", vec![], vec![]), row("b", vec![7], vec![])]).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let of = |index: usize| {
            (rows[index].get_string(0).unwrap().as_str(), rows[index].get_long(2).unwrap(), rows[index].get_long(3).unwrap())
        };
        assert_eq!((rows.len(), of(0), of(1), of(2)), (3, ("a", 1, 5), ("a", 2, 6), ("b", 1, 7)));
        assert!(rows[1].get_long(4).is_ok() && rows[2].get_long(4).is_err(), "null where nothing waits by a rate");
    }
}
