//! `samples.parquet` of a `load` run: a row for each workload and second and for each server
//! and second, since a row for each operation would be too many.

use std::path::Path;

use parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::ParquetError,
};
use replimeter_model::{load::LoadRow, resources::ServerUse};

use crate::{
    rows::{Columns, RowGroup, RowsWriter, long, optional, required},
    samples::SamplesError,
};

/// The columns; `docs/load.md` explains each.
const SCHEMA: &str = "message load_second {
    optional binary workload (UTF8);
    optional binary server (UTF8);
    required int64 threads;
    required int64 second;
    optional int64 operations;
    optional int64 waiting;
    optional double cpu_us;
    optional double cpu_user_us;
    optional double cpu_system_us;
    optional double context_switches;
    optional double read_bytes;
    optional double write_bytes;
    optional double received_bytes;
    optional double sent_bytes;
    optional double fsyncs;
}";

/// What every server used in each whole second of a stretch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerSeconds {
    /// The number of threads of each workload in it.
    pub threads: u32,
    /// Second by second, server by server.
    pub course: Vec<Vec<ServerUse>>,
}

/// One second of a workload, or of a server.
#[derive(Default)]
pub(crate) struct Second {
    workload: Option<ByteArray>,
    threads: u32,
    second: u64,
    operations: Option<u64>,
    waiting: Option<u64>,
    used: Option<ServerUse>,
}

/// The seconds of a `load` run.
pub(crate) struct Seconds;

/// Writes the seconds of every row, and what servers used in them.
///
/// # Errors
/// When the file cannot be made or the disk refuses.
pub fn write(path: &Path, rows: &[LoadRow], uses: &[ServerSeconds]) -> Result<(), SamplesError> {
    let mut writer = RowsWriter::begun(path, Seconds)?;
    for load in rows.iter().map(|row| &row.load) {
        let workload = ByteArray::from(load.workload.as_str());
        writer.add(
            load.per_second
                .iter()
                .enumerate()
                .map(|(index, operations)| Second {
                    workload: Some(workload.clone()),
                    threads: load.threads,
                    second: index as u64 + 1,
                    operations: Some(*operations),
                    waiting: load.waiting_per_second.get(index).copied(),
                    used: None,
                }),
        )?;
    }
    for stretch in uses {
        for (second, servers) in (1..).zip(&stretch.course) {
            let row = |used: &ServerUse| Second {
                threads: stretch.threads,
                second,
                used: Some(used.clone()),
                ..Second::default()
            };
            writer.add(servers.iter().map(row))?;
        }
    }
    writer.finish()
}

impl Columns for Seconds {
    type Row = Second;
    const SCHEMA: &'static str = SCHEMA;
    const GROUP: usize = 4096;

    fn write(&self, group: &mut RowGroup<'_>, held: &[Second]) -> Result<(), ParquetError> {
        let whole = |pick: fn(&Second) -> u64| {
            held.iter()
                .map(|second| long(pick(second)))
                .collect::<Vec<_>>()
        };
        optional::<ByteArrayType>(
            group,
            held.iter().map(|second| second.workload.clone()).collect(),
        )?;
        let server = |second: &Second| {
            second
                .used
                .as_ref()
                .map(|used| ByteArray::from(used.name.as_str()))
        };
        optional::<ByteArrayType>(group, held.iter().map(server).collect())?;
        required::<Int64Type>(group, &whole(|second| second.threads.into()))?;
        required::<Int64Type>(group, &whole(|second| second.second))?;
        optional::<Int64Type>(
            group,
            held.iter()
                .map(|second| second.operations.map(long))
                .collect(),
        )?;
        optional::<Int64Type>(
            group,
            held.iter().map(|second| second.waiting.map(long)).collect(),
        )?;
        let figures: [fn(&ServerUse) -> Option<f64>; 9] = [
            |used| used.cpu_us,
            |used| used.cpu_user_us,
            |used| used.cpu_system_us,
            |used| used.context_switches,
            |used| used.read_bytes,
            |used| used.write_bytes,
            |used| used.received_bytes,
            |used| used.sent_bytes,
            |used| used.fsyncs,
        ];
        for figure in figures {
            optional::<DoubleType>(
                group,
                held.iter()
                    .map(|second| second.used.as_ref().and_then(figure))
                    .collect(),
            )?;
        }
        Ok(())
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
            load: LoadRecord {
                workload: workload.to_owned(),
                per_second,
                waiting_per_second,
                ..LoadRecord::default()
            },
            ..LoadRow::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let used = ServerUse {
            name: "primary".to_owned(),
            cpu_us: Some(7e5),
            ..ServerUse::default()
        };
        let uses = [ServerSeconds {
            threads: 2,
            course: vec![vec![used]],
        }];
        let rows = [
            row("a", vec![5, 6], vec![1, 0]),
            row("none", vec![], vec![]),
            row("b", vec![7], vec![]),
        ];
        write(&path, &rows, &uses).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let of = |index: usize| {
            (
                rows[index].get_string(0).unwrap().as_str(),
                rows[index].get_long(3).unwrap(),
                rows[index].get_long(4).unwrap(),
            )
        };
        assert_eq!(
            (rows.len(), of(0), of(1), of(2)),
            (4, ("a", 1, 5), ("a", 2, 6), ("b", 1, 7))
        );
        assert!(
            rows[1].get_long(5).is_ok() && rows[2].get_long(5).is_err(),
            "null where nothing waits by a rate"
        );
        assert!(rows[3].get_string(0).is_err() && rows[3].get_string(1).unwrap() == "primary");
        assert!(
            (rows[3].get_double(6).unwrap() - 7e5).abs() < 1e-9 && rows[3].get_double(7).is_err()
        );
    }
}
