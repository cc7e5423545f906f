//! `samples.parquet` of a `tap` run: one row for each window and replica; a row for each transaction of real
//! traffic would be too many.

use replimeter_instruments::tap::results::TapWindow;

use replimeter_render::rows::{Columns, TableSpec, columns};

/// Rows for the windows of a shape's servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct TapWindows {
    /// The shape.
    pub(crate) shape: String,
}

impl Columns for TapWindows {
    type Row = TapWindow;
    const TABLE: TableSpec<TapWindow, Self> = TableSpec {
        message: "tap_stretch",
        group: 512,
        columns: columns! {
            /// The sandbox's shape, or `endpoints:N`
            shape: Word = |_, labels| &labels.shape;
            /// The replica
            replica: Word = |window, _| &window.replica;
            /// Start, since the start of the run
            start_us: Real = |window, _| window.start_us;
            /// End, since the start of the run
            end_us: Real = |window, _| window.end_us;
            /// Transactions that arrived from the primary
            transactions: Long = |window, _| window.transactions;
            /// Total bytes of these transactions
            bytes: Long = |window, _| window.bytes;
            /// Transactions that arrived from the replica and have a lag
            matched: Long = |window, _| window.matched;
            /// Matched transactions that arrived from the replica first
            inverted: Long = |window, _| window.inverted;
            /// Minimum lag
            min_us: Real or null = |window, _| window.min_us;
            /// Median lag, if there are 20 or more
            p50_us: Real or null = |window, _| window.p50_us;
            /// 99th percentile of the lag, if there are 1,000 or more
            p99_us: Real or null = |window, _| window.p99_us;
            /// Maximum lag
            max_us: Real or null = |window, _| window.max_us;
            /// Transactions of the primary that were pending on the replica at the end
            pending: Long = |window, _| window.pending;
            /// Age of the oldest pending transaction; null if there are none
            behind_us: Real or null = |window, _| window.behind_us;
        },
    };
}
