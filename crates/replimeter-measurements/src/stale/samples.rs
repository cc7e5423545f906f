//! `samples.parquet` of a `stale` run: one row for each reader and round.

use replimeter_instruments::stale::results::{StaleRead, StaleRound};

use replimeter_render::rows::{Columns, Rows, TableSpec, columns};

/// The conditions of the current rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleLabels {
    /// The shape.
    pub(crate) shape: String,
    /// The start of its servers, from 1.
    pub(crate) start: u32,
    /// The loads.
    pub(crate) load: String,
    /// The level of read consistency.
    pub(crate) sync_reads: String,
    /// The reset of connections.
    pub(crate) pool: String,
    /// The readers, in order.
    pub(crate) readers: Vec<String>,
}

impl SampleLabels {
    fn reader(&self, read: &StaleRead) -> &str {
        self.readers.get(read.reader).map_or("", String::as_str)
    }
}

/// A read of a round.
pub(crate) struct ReaderRow {
    round: StaleRound,
    read: StaleRead,
}

/// Adds a round: one row for each of its reads.
pub(crate) fn add_round(rows: &mut Rows<SampleLabels>, round: &StaleRound) {
    let bare = StaleRound {
        reads: Vec::new(),
        ..round.clone()
    };
    round.reads.iter().for_each(|read| {
        rows.add(ReaderRow {
            round: bare.clone(),
            read: *read,
        })
    });
}

impl Columns for SampleLabels {
    type Row = ReaderRow;
    const TABLE: TableSpec<ReaderRow, Self> = TableSpec {
        message: "stale_read",
        group: 4096,
        columns: columns! {
            /// The sandbox's shape, or `endpoints:N`
            shape: Word = |_, labels| &labels.shape;
            /// The loads of the case
            load: Word = |_, labels| &labels.load;
            /// Level of read consistency
            read_consistency: Word = |_, labels| &labels.sync_reads;
            /// Reset of the connections between rounds
            session_reset: Word = |_, labels| &labels.pool;
            /// The reader
            reader: Word = |one, labels| labels.reader(&one.read);
            /// `warm-up`, `plain` and `synced` (rounds for the overhead), `at-once`, `curve`, or `judged`: a
            /// load's own reads
            phase: Word = |one, _| one.round.phase.name();
            /// Number of the round, unique in its start, which it wrote into the row
            round: Long = |one, _| one.round.round;
            /// Id of the row
            row: Long = |one, _| one.round.row;
            /// Send time of the write, on the run's clock
            send_us: Real = |one, _| one.round.send;
            /// Acknowledgement of the write, on the run's clock
            ack_us: Real = |one, _| one.round.ack;
            /// Scheduled time of the first read, after the acknowledgement
            read_delay_us: Real = |one, _| one.round.offset;
            /// Actual time of the first read, after the acknowledgement
            achieved_us: Real = |one, _| one.read.begin - one.round.ack;
            /// Start of the first read, on the run's clock
            begin_us: Real = |one, _| one.read.begin;
            /// End of the first read, on the run's clock
            end_us: Real = |one, _| one.read.end;
            /// Result: `fresh`, `stale`, `refused` or `foreign`
            verdict: Word = |one, _| one.read.verdict.name();
            /// Version that it returned: the number of a round, 0 for the initial row
            seen: Long = |one, _| one.read.seen;
            /// Number of newer versions of the row, up to the acknowledged one
            versions_behind: Short = |one, _| one.read.behind;
            /// Start of the last read that did not show the write
            last_stale_us: Real or null = |one, _| one.read.last_stale;
            /// End of the first read that showed it
            shown_us: Real or null = |one, _| one.read.fresh_end;
            /// Reads of this round
            reads: Short = |one, _| one.read.reads;
            /// Number of times the row was written again after a conflict
            conflicts: Short = |one, _| one.round.conflicts;
            /// Whether it returned an older version of the row than this connection had read before
            went_back: Flag = |one, _| one.read.went_back;
            /// The start of the shape's servers, from 1
            start: Short = |_, labels| labels.start;
        },
    };
}
