//! `samples.parquet` of an `exposure` run: a row for each look.

use replimeter_model::exposure::ExposureSample;
use replimeter_render::rows::{Columns, TableSpec, columns};

/// Looks at servers of a shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    /// The shape.
    pub(crate) shape: String,
}

impl Columns for Looks {
    type Row = ExposureSample;
    const TABLE: TableSpec<ExposureSample, Self> = TableSpec {
        message: "look",
        group: 2048,
        columns: columns! {
            /// The sandbox's shape, or `endpoints:N`
            shape: Word = |_, labels| &labels.shape;
            /// When the look ended, since the run's beginning
            at_us: Real = |look, _| look.at_us;
            /// From the question to the last answer
            poll_duration_us: Real = |look, _| look.poll_duration_us;
            /// Replicas that answered
            answered: Long = |look, _| look.answered;
            /// Transactions that no replica had received
            transactions: Long = |look, _| look.transactions;
            /// Their bytes
            bytes: Long = |look, _| look.bytes;
            /// Age of the oldest of them; null for none
            age_us: Real or null = |look, _| look.age_us;
            /// Whether the primary was semi-synchronous; null when it never is
            semi_sync: Flag or null = |look, _| look.semi_sync;
        },
    };
}
