//! `samples.parquet` of a `scale` run: one row for each kind of operation and each server of every block, and
//! for each of its seconds.

use replimeter_model::resources::ServerUse;

use replimeter_render::rows::{Columns, TableSpec, columns};

/// A row of the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BlockRow {
    /// The sandbox's shape.
    pub(crate) shape: String,
    /// Replicas.
    pub(crate) replicas: u32,
    /// The start of these servers, from 1.
    pub(crate) start: u32,
    /// The block on this start, from 1.
    pub(crate) block: u32,
    /// The phase.
    pub(crate) phase: String,
    /// Whether the figures include it.
    pub(crate) counts: bool,
    /// The operation's kind, or the server's name.
    pub(crate) name: String,
    /// The second in the block, from 0; `None` for the whole block.
    pub(crate) second: Option<u32>,
    /// Start, on the run's clock.
    pub(crate) began_us: f64,
    /// Duration of the measured time.
    pub(crate) length_us: f64,
    /// The values of the row.
    pub(crate) about: BlockSubject,
}

/// The values of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BlockSubject {
    /// Operations of one kind.
    Load(Operations),
    /// Resources of a server.
    Server(Box<ServerUse>),
}

/// Operations of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Operations {
    /// Completed operations that started in this time.
    pub(crate) completed: u64,
    /// p50, p95, p99 and maximum, in µs; null if there are too few samples.
    pub(crate) latency_us: [Option<f64>; 4],
    /// Retried operations; null for a second.
    pub(crate) retries: Option<u64>,
    /// Failed operations; null for a second.
    pub(crate) failed: Option<u64>,
    /// From the end of the block until the replicas had applied all of it, in µs.
    pub(crate) caught_up_after_us: Option<f64>,
}

impl Default for BlockSubject {
    fn default() -> Self {
        Self::Server(Box::default())
    }
}

impl BlockRow {
    fn kind(&self) -> &'static str {
        match (&self.about, self.second) {
            (BlockSubject::Load(_), None) => "load",
            (BlockSubject::Load(_), Some(_)) => "load-second",
            (BlockSubject::Server(_), None) => "server",
            (BlockSubject::Server(_), Some(_)) => "server-second",
        }
    }

    fn load(&self) -> Option<&Operations> {
        match &self.about {
            BlockSubject::Load(load) => Some(load),
            BlockSubject::Server(_) => None,
        }
    }

    fn server(&self) -> Option<&ServerUse> {
        match &self.about {
            BlockSubject::Load(_) => None,
            BlockSubject::Server(used) => Some(used),
        }
    }
}

/// Rows for the blocks of a `scale` run.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct Blocks;

impl Columns for Blocks {
    type Row = BlockRow;
    const TABLE: TableSpec<BlockRow, Self> = TableSpec {
        message: "scale_block",
        group: 2048,
        columns: columns! {
            /// The sandbox's shape
            shape: Word = |row, _| &row.shape;
            /// Replicas
            replicas: Long = |row, _| row.replicas;
            /// The start of these servers, from 1
            start: Long = |row, _| row.start;
            /// The block on this start, from 1
            block: Long = |row, _| row.block;
            /// The phase
            phase: Word = |row, _| &row.phase;
            /// False for blocks that are in no figure: invalid, or ended early
            counts: Flag = |row, _| row.counts;
            /// `load`: operations of one kind in the block; `server`: resources of a server in it;
            /// `load-second` and `server-second`: the same for a whole second of it
            kind: Word = |row, _| row.kind();
            /// The kind of operation, or the server
            name: Word = |row, _| &row.name;
            /// Second in the block, from 0; null for the whole block
            second: Long or null = |row, _| row.second;
            /// Start, on the run's clock
            began_us: Real = |row, _| row.began_us;
            /// Duration of the measured time; for the server of a whole block, until the replicas had applied it
            length_us: Real = |row, _| row.length_us;
            /// Completed operations that started in this time
            operations: Long or null = |row, _| Some(row.load()?.completed);
            /// Median latency
            p50_us: Real or null = |row, _| row.load()?.latency_us[0];
            /// 95th percentile of the latency
            p95_us: Real or null = |row, _| row.load()?.latency_us[1];
            /// 99th percentile of the latency
            p99_us: Real or null = |row, _| row.load()?.latency_us[2];
            /// Largest latency
            max_us: Real or null = |row, _| row.load()?.latency_us[3];
            /// Retried operations; null for a second
            retries: Long or null = |row, _| row.load()?.retries;
            /// Failed operations; null for a second
            failed: Long or null = |row, _| row.load()?.failed;
            /// From the end of the block until the replicas had applied all of it
            caught_up_after_us: Real or null = |row, _| row.load()?.caught_up_after_us;
            /// CPU time of the server's threads
            cpu_us: Real or null = |row, _| row.server()?.cpu_us;
            /// Part of it in user mode
            cpu_user_us: Real or null = |row, _| row.server()?.cpu_user_us;
            /// Part of it in the kernel
            cpu_system_us: Real or null = |row, _| row.server()?.cpu_system_us;
            /// Context switches of the server's threads
            context_switches: Real or null = |row, _| row.server()?.context_switches;
            /// Bytes read from storage
            read_bytes: Real or null = |row, _| row.server()?.read_bytes;
            /// Bytes written to storage, or waiting to be written
            write_bytes: Real or null = |row, _| row.server()?.write_bytes;
            /// Flushes to storage, as counted by the storage engine
            fsyncs: Real or null = |row, _| row.server()?.fsyncs;
        },
    };
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;
    use replimeter_render::rows::{Rows, write_file};

    #[test]
    fn every_block_column_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let mut writer = Rows::new(Blocks);
        let load = BlockSubject::Load(Operations {
            completed: 7,
            latency_us: [Some(1.0), None, None, Some(4.0)],
            retries: Some(0),
            ..Operations::default()
        });
        writer.add(BlockRow {
            about: load,
            phase: "mixed".to_owned(),
            ..BlockRow::default()
        });
        writer.add(BlockRow::default());
        write_file(&path, writer).unwrap();
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
