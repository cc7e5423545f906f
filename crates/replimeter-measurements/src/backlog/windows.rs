//! `samples.parquet` of a `backlog` run: one row for each window of each replica and number of workers.

use replimeter_instruments::backlog::results::{BacklogRow, BacklogWindow};

use replimeter_render::rows::{Columns, Rows, TableSpec, columns};

/// Rows for the windows of one replica with one number of workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct BacklogWindows {
    /// The shape.
    pub(crate) shape: String,
    /// The replica.
    pub(crate) replica: String,
    /// Its number of applier workers.
    pub(crate) workers: Option<u64>,
}

impl Columns for BacklogWindows {
    type Row = BacklogWindow;
    const TABLE: TableSpec<BacklogWindow, Self> = TableSpec {
        message: "backlog_window",
        group: 512,
        columns: columns! {
            /// The sandbox's shape, or `endpoints:N`
            shape: Word = |_, labels| &labels.shape;
            /// The replica
            replica: Word = |_, labels| &labels.replica;
            /// Its number of applier workers; null if the server does not report it
            workers: Long or null = |_, labels| labels.workers;
            /// Phase of the applier: growing, with-load or without-load
            phase: Word = |window, _| window.phase.name();
            /// Start, since the first reading
            start_us: Real = |window, _| window.start_us;
            /// End, since the first reading
            end_us: Real = |window, _| window.end_us;
            /// Transactions that the primary committed
            written: Long = |window, _| window.written;
            /// Transactions that the replica applied
            applied: Long = |window, _| window.applied;
            /// Transactions that the replica had not applied at the end of the window
            behind: Long = |window, _| window.behind;
        },
    };
}

/// Adds the windows of a row.
pub(crate) fn add_windows(rows: &mut Rows<BacklogWindows>, shape: &str, row: &BacklogRow) {
    rows.switch(BacklogWindows {
        shape: shape.to_owned(),
        replica: row.replica.clone(),
        workers: row.workers,
    });
    row.windows.iter().for_each(|window| rows.add(*window));
}
