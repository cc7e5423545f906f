//! `samples.parquet` of a `tap` run: a row for each stretch and replica, since a row for
//! each transaction of real traffic would be too many.

use replimeter_model::tap::TapWindow;

use replimeter_render::rows::{Columns, TableSpec, columns};

/// Stretches of servers of a shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretches {
    /// The shape.
    pub(crate) shape: String,
}

impl Columns for Stretches {
    type Row = TapWindow;
    const TABLE: TableSpec<TapWindow, Self> = TableSpec {
        message: "tap_stretch",
        group: 512,
        columns: columns! {
            /// The sandbox's shape, or `endpoints:N`
            shape: Word = |_, labels| &labels.shape;
            /// The replica
            replica: Word = |window, _| &window.replica;
            /// Beginning, since the run's
            start_us: Real = |window, _| window.start_us;
            /// End, since the run's beginning
            end_us: Real = |window, _| window.end_us;
            /// Transactions that arrived from the primary
            transactions: Long = |window, _| window.transactions;
            /// Their bytes
            bytes: Long = |window, _| window.bytes;
            /// Transactions that arrived from the replica and have a lag
            matched: Long = |window, _| window.matched;
            /// Of those, the ones that the replica showed first
            inverted: Long = |window, _| window.inverted;
            /// Smallest lag of them
            min_us: Real or null = |window, _| window.min_us;
            /// Median of their lag, when they are twenty or more
            p50_us: Real or null = |window, _| window.p50_us;
            /// 99th percentile of their lag, when they are a thousand or more
            p99_us: Real or null = |window, _| window.p99_us;
            /// Largest lag of them
            max_us: Real or null = |window, _| window.max_us;
            /// Transactions of the primary that the replica had still to show at the end
            pending: Long = |window, _| window.pending;
            /// How old the oldest of them was; null for none
            behind_us: Real or null = |window, _| window.behind_us;
        },
    };
}
