//! `samples.parquet` of an `exposure` run: one row per poll.

use replimeter_instruments::exposure::results::ExposureSample;
use replimeter_render::rows::{Columns, TableSpec, columns};

/// Rows for the polls of a shape's servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollSamples {
    /// The shape.
    pub(crate) shape: String,
}

impl Columns for PollSamples {
    type Row = ExposureSample;
    const TABLE: TableSpec<ExposureSample, Self> = TableSpec {
        message: "look",
        group: 2048,
        columns: columns! {
            /// The sandbox's shape, or `endpoints:N`
            shape: Word = |_, labels| &labels.shape;
            /// End of the poll, since the start of the run
            at_us: Real = |poll, _| poll.at_us;
            /// Duration of the poll, from the query to the last reply
            poll_duration_us: Real = |poll, _| poll.poll_duration_us;
            /// Replicas that replied
            answered: Long = |poll, _| poll.answered;
            /// Transactions that no replica had received
            transactions: Long = |poll, _| poll.transactions;
            /// Total bytes of these transactions
            bytes: Long = |poll, _| poll.bytes;
            /// Age of the oldest of them; null if there are none
            age_us: Real or null = |poll, _| poll.age_us;
            /// Whether the primary was semi-synchronous; null if it is never semi-synchronous
            semi_sync: Flag or null = |poll, _| poll.waits;
        },
    };
}
