//! `samples.parquet` of a `stale` run: a row for what each reader showed of each round.

use replimeter_model::stale::{StaleRead, StaleRound};

use replimeter_render::rows::{Columns, Rows, TableSpec, columns};

/// What is measured just now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    /// The shape.
    pub(crate) shape: String,
    /// The loads.
    pub(crate) load: String,
    /// How reads are made to wait.
    pub(crate) sync_reads: String,
    /// What becomes of the connections.
    pub(crate) pool: String,
    /// The readers, in order.
    pub(crate) readers: Vec<String>,
}

impl Labels {
    fn reader(&self, read: &StaleRead) -> &str {
        self.readers.get(read.reader).map_or("", String::as_str)
    }
}

/// What a reader showed of a round.
pub(crate) struct Held {
    round: StaleRound,
    read: StaleRead,
}

/// Adds a round: a row for each of its reads.
pub(crate) fn add_round(rows: &mut Rows<Labels>, round: &StaleRound) {
    let bare = StaleRound {
        reads: Vec::new(),
        ..round.clone()
    };
    round.reads.iter().for_each(|read| {
        rows.add(Held {
            round: bare.clone(),
            read: *read,
        })
    });
}

impl Columns for Labels {
    type Row = Held;
    const TABLE: TableSpec<Held, Self> = TableSpec {
        message: "stale_read",
        group: 4096,
        columns: columns! {
            /// The sandbox's shape, or `endpoints:N`
            shape: Word = |_, labels| &labels.shape;
            /// The loads of the case
            load: Word = |_, labels| &labels.load;
            /// How reads are made to wait
            read_consistency: Word = |_, labels| &labels.sync_reads;
            /// What becomes of the connections between rounds
            session_reset: Word = |_, labels| &labels.pool;
            /// The reader
            reader: Word = |one, labels| labels.reader(&one.read);
            /// `warm-up`, `plain` and `synced` (the rounds for the price), `at-once`, `curve`, or `judged`: a load's own reads
            phase: Word = |one, _| one.round.phase.name();
            /// The round's number: what it wrote into the row
            round: Long = |one, _| one.round.round;
            /// The row's id
            row: Long = |one, _| one.round.row;
            /// When the write was sent, on the run's clock
            send_us: Real = |one, _| one.round.send;
            /// When it was acknowledged
            ack_us: Real = |one, _| one.round.ack;
            /// When after the acknowledgement the first read was to be issued
            read_delay_us: Real = |one, _| one.round.offset;
            /// When after the acknowledgement it was issued
            achieved_us: Real = |one, _| one.read.begin - one.round.ack;
            /// When it was issued, on the run's clock
            begin_us: Real = |one, _| one.read.begin;
            /// When its answer was there
            end_us: Real = |one, _| one.read.end;
            /// What it was: `fresh`, `stale`, `refused` or `foreign`
            verdict: Word = |one, _| one.read.verdict.name();
            /// The version that it showed: the number of a round, 0 for the row as it was made
            seen: Long = |one, _| one.read.seen;
            /// How many versions of the row were newer, up to the one that was just acknowledged
            versions_behind: Short = |one, _| one.read.behind;
            /// When the last read that did not show the write was issued
            last_stale_us: Real or null = |one, _| one.read.last_stale;
            /// When the answer of the first read that showed it was there
            shown_us: Real or null = |one, _| one.read.fresh_end;
            /// Reads of this round
            reads: Short = |one, _| one.read.reads;
            /// How often the row had to be written again after a conflict
            conflicts: Short = |one, _| one.round.conflicts;
            /// Whether it showed an older version of the row than this connection had seen before
            went_back: Flag = |one, _| one.read.went_back;
        },
    };
}
