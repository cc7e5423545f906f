//! `samples.parquet` of a `scale` run: a row for each kind of operation and each server
//! of every block, and for each of its seconds.

use replimeter_model::resources::ServerUse;

use replimeter_render::rows::{Columns, TableSpec, columns};

/// What a block is of.
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
    /// Whether it is in the figures.
    pub(crate) counts: bool,
    /// The operation's kind, or the server's name.
    pub(crate) name: String,
    /// The second in the block, from 0; of all of it when `None`.
    pub(crate) second: Option<u32>,
    /// When it began, on the run's clock.
    pub(crate) began_us: f64,
    /// How long it was counted.
    pub(crate) length_us: f64,
    /// What it is about.
    pub(crate) about: About,
}

/// What a row holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum About {
    /// Operations of one kind.
    Load(Operations),
    /// What a server spent.
    Server(Box<ServerUse>),
}

/// Operations of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Operations {
    /// How many ended.
    pub(crate) ended: u64,
    /// p50, p95, p99 and the largest; null where the sample cannot carry it.
    pub(crate) latency_us: [Option<f64>; 4],
    /// Begun again; null for a second.
    pub(crate) retries: Option<u64>,
    /// Given up; null for a second.
    pub(crate) failed: Option<u64>,
    /// From the end to the moment at which replicas had all of it.
    pub(crate) caught_up_after_us: Option<f64>,
}

impl Default for About {
    fn default() -> Self {
        Self::Server(Box::default())
    }
}

impl BlockRow {
    fn kind(&self) -> &'static str {
        match (&self.about, self.second) {
            (About::Load(_), None) => "load",
            (About::Load(_), Some(_)) => "load-second",
            (About::Server(_), None) => "server",
            (About::Server(_), Some(_)) => "server-second",
        }
    }

    fn load(&self) -> Option<&Operations> {
        match &self.about {
            About::Load(load) => Some(load),
            About::Server(_) => None,
        }
    }

    fn server(&self) -> Option<&ServerUse> {
        match &self.about {
            About::Load(_) => None,
            About::Server(used) => Some(used),
        }
    }
}

/// Blocks of a `scale` run.
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
            /// `load`: operations of one kind in the block; `server`: what a server used in it; `load-second` and
            /// `server-second`: in a whole second of it
            kind: Word = |row, _| row.kind();
            /// The kind of operation, or the server
            name: Word = |row, _| &row.name;
            /// The second in the block, from 0; null for the whole block
            second: Long or null = |row, _| row.second;
            /// When it began, on the run's clock
            began_us: Real = |row, _| row.began_us;
            /// How long it was counted
            length_us: Real = |row, _| row.length_us;
            /// Operations that ended
            operations: Long or null = |row, _| Some(row.load()?.ended);
            /// Median latency
            p50_us: Real or null = |row, _| row.load()?.latency_us[0];
            /// 95th percentile of the latency
            p95_us: Real or null = |row, _| row.load()?.latency_us[1];
            /// 99th percentile of the latency
            p99_us: Real or null = |row, _| row.load()?.latency_us[2];
            /// Largest latency
            max_us: Real or null = |row, _| row.load()?.latency_us[3];
            /// Operations that were begun again; null for a second
            retries: Long or null = |row, _| row.load()?.retries;
            /// Operations that were given up; null for a second
            failed: Long or null = |row, _| row.load()?.failed;
            /// From the end of the block to the moment at which replicas had all of it
            caught_up_after_us: Real or null = |row, _| row.load()?.caught_up_after_us;
            /// Processor time of the server's threads
            cpu_us: Real or null = |row, _| row.server()?.cpu_us;
            /// Of that, outside the kernel
            cpu_user_us: Real or null = |row, _| row.server()?.cpu_user_us;
            /// Of that, in the kernel
            cpu_system_us: Real or null = |row, _| row.server()?.cpu_system_us;
            /// Context switches of the server's threads
            context_switches: Real or null = |row, _| row.server()?.context_switches;
            /// Bytes fetched from storage
            read_bytes: Real or null = |row, _| row.server()?.read_bytes;
            /// Bytes sent, or to be sent, to storage
            write_bytes: Real or null = |row, _| row.server()?.write_bytes;
            /// Flushes to storage as the engine counts them
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
    fn every_column_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let mut writer = Rows::new(Blocks);
        let load = About::Load(Operations {
            ended: 7,
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
