//! `samples.parquet` of a `load` run: one row for each workload and second and for each server and second; a
//! row for each operation would be too many.

use std::sync::Arc;

use replimeter_instruments::load::results::LoadRow;
use replimeter_model::resources::ServerUse;

use replimeter_render::rows::{Columns, Rows, TableSpec, columns};

/// Resources of every server in each whole second of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerSeconds {
    /// The number of threads of each workload in it.
    pub(crate) threads: u32,
    /// By second, then by server.
    pub(crate) timeline: Vec<Vec<ServerUse>>,
}

/// One second of a workload, or of a server.
#[derive(Default)]
pub(crate) struct Second {
    workload: Option<Arc<str>>,
    threads: u32,
    second: u64,
    operations: Option<u64>,
    waiting: Option<u64>,
    used: Option<ServerUse>,
}

/// Rows for the seconds of a `load` run.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct Seconds;

/// Adds the seconds of every row, then the servers' resources in them.
pub(crate) fn add_all(samples: &mut Rows<Seconds>, rows: &[LoadRow], uses: &[ServerSeconds]) {
    for load in rows.iter().map(|row| &row.load) {
        let workload: Arc<str> = Arc::from(load.workload.as_str());
        for (index, operations) in load.per_second.iter().enumerate() {
            samples.add(Second {
                workload: Some(Arc::clone(&workload)),
                threads: load.threads,
                second: index as u64 + 1,
                operations: Some(*operations),
                waiting: load.waiting_per_second.get(index).copied(),
                used: None,
            });
        }
    }
    for part in uses {
        for (second, servers) in (1..).zip(&part.timeline) {
            for used in servers {
                samples.add(Second {
                    threads: part.threads,
                    second,
                    used: Some(used.clone()),
                    ..Second::default()
                });
            }
        }
    }
}

impl Columns for Seconds {
    type Row = Second;
    const TABLE: TableSpec<Second, Self> = TableSpec {
        message: "load_second",
        group: 4096,
        columns: columns! {
            /// Workload; null in a row of a server
            workload: Word or null = |second, _| second.workload.as_deref();
            /// Server; null in a row of a workload
            server: Word or null = |second, _| Some(&second.used.as_ref()?.name);
            /// Threads of each workload
            threads: Long = |second, _| second.threads;
            /// Second, from 1
            second: Long = |second, _| second.second;
            /// Completed operations that started in this second
            operations: Long or null = |second, _| second.operations;
            /// Operations that were due and not started at its end; null in a closed loop
            waiting: Long or null = |second, _| second.waiting;
            /// CPU time of the server's threads
            cpu_us: Real or null = |second, _| second.used.as_ref()?.cpu_us;
            /// Part of it in user mode
            cpu_user_us: Real or null = |second, _| second.used.as_ref()?.cpu_user_us;
            /// Part of it in the kernel
            cpu_system_us: Real or null = |second, _| second.used.as_ref()?.cpu_system_us;
            /// Context switches of the server's threads
            context_switches: Real or null = |second, _| second.used.as_ref()?.context_switches;
            /// Bytes read from storage
            read_bytes: Real or null = |second, _| second.used.as_ref()?.read_bytes;
            /// Bytes written to storage, or waiting to be written
            write_bytes: Real or null = |second, _| second.used.as_ref()?.write_bytes;
            /// Bytes received from clients and replicas
            received_bytes: Real or null = |second, _| second.used.as_ref()?.received_bytes;
            /// Bytes sent to clients and replicas
            sent_bytes: Real or null = |second, _| second.used.as_ref()?.sent_bytes;
            /// Flushes to storage, as counted by the storage engine
            fsyncs: Real or null = |second, _| second.used.as_ref()?.fsyncs;
        },
    };
}

#[cfg(test)]
mod tests {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::RowAccessor,
    };
    use replimeter_model::load::LoadRecord;

    use super::*;
    use replimeter_render::rows::write_file;

    #[test]
    fn seconds_restart_for_every_row() {
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
            timeline: vec![vec![used]],
        }];
        let rows = [
            row("a", vec![5, 6], vec![1, 0]),
            row("none", vec![], vec![]),
            row("b", vec![7], vec![]),
        ];
        let mut writer = Rows::new(Seconds);
        add_all(&mut writer, &rows, &uses);
        write_file(&path, writer).unwrap();
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
            "null in a closed loop"
        );
        assert!(rows[3].get_string(0).is_err() && rows[3].get_string(1).unwrap() == "primary");
        assert!(
            (rows[3].get_double(6).unwrap() - 7e5).abs() < 1e-9 && rows[3].get_double(7).is_err()
        );
    }
}
