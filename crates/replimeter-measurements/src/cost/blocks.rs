//! `samples.parquet` of a `cost` run: one row per block.

use replimeter_instruments::cost::results::BlockRecord;

use replimeter_render::rows::{Columns, TableSpec, columns};

/// Rows for the blocks of a `cost` run.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct CostBlocks;

impl Columns for CostBlocks {
    type Row = BlockRecord;
    const TABLE: TableSpec<BlockRecord, Self> = TableSpec {
        message: "cost_block",
        group: 512,
        columns: columns! {
            /// Round, from 1; in a self-test, rounds continue across comparisons
            round: Short = |block, _| block.round;
            /// `mariadb` or `mysql`
            engine: Word = |block, _| &block.engine;
            /// The mode
            mode: Word = |block, _| &block.mode;
            /// The wait point of semi-synchronous replication
            wait_point: Word or null = |block, _| block.wait_point.as_deref();
            /// Number of servers besides the one that is written to
            replicas: Short = |block, _| block.replicas;
            /// Connections
            threads: Short = |block, _| block.threads;
            /// One-way delay of the links; null without links
            link_delay_us: Real or null = |block, _| block.link_delay_us;
            /// Number of the block within its start, from 1
            block: Short = |block, _| block.block;
            /// Why the block is excluded; null if it counts
            invalid: Word or null = |block, _| block.invalid.as_deref();
            /// Start, on the run's clock
            began_us: Real = |block, _| block.began_us;
            /// Mean time from the start of a thread's first operation to the end of its last one
            counted_us: Real = |block, _| block.counted_us;
            /// Completed operations that started in the block
            operations: Long = |block, _| block.operations;
            /// Retried operations
            retries: Long = |block, _| block.retries;
            /// Failed operations
            failed: Long = |block, _| block.failed;
            /// Mean latency
            mean_us: Real or null = |block, _| block.latency.mean_us;
            /// Standard deviation of the latency
            stdev_us: Real or null = |block, _| block.latency.stdev_us;
            /// Median latency
            p50_us: Real or null = |block, _| block.latency.p50_us;
            /// 95th percentile of the latency
            p95_us: Real or null = |block, _| block.latency.p95_us;
            /// 99th percentile of the latency
            p99_us: Real or null = |block, _| block.latency.p99_us;
            /// Largest latency
            max_us: Real or null = |block, _| block.latency.max_us;
            /// CPU time per operation of the server that is written to, until every server had applied the block
            primary_cpu_us_per_op: Real or null = |block, _| block.primary_cpu_us_per_op;
            /// The same for all servers
            all_cpu_us_per_op: Real or null = |block, _| block.all_cpu_us_per_op;
            /// CPU time per operation of the client's threads
            client_cpu_us_per_op: Real or null = |block, _| block.client_cpu_us_per_op;
            /// Transactions that the slowest replica had not applied at the end
            behind: Long or null = |block, _| block.behind;
            /// From the end of the block until every server had applied it; null if that took over 30 s
            caught_up_after_us: Real or null = |block, _| block.caught_up_after_us;
        },
    };
}

#[cfg(test)]
mod tests {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::RowAccessor,
    };

    use super::*;
    use replimeter_render::rows::{Rows, write_file};

    #[test]
    fn blocks_round_trip_with_unknown_values_omitted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let mut writer = Rows::new(CostBlocks);
        for block in 1..=3 {
            let invalid = (block == 2).then(|| "fell back".to_owned());
            writer.add(BlockRecord {
                mode: "async".to_owned(),
                block,
                invalid,
                operations: 7,
                ..BlockRecord::default()
            });
        }
        write_file(&path, writer).unwrap();
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
