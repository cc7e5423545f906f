//! `samples.parquet` of a `front` run: one row per window.

use replimeter_instruments::front::results::FrontWindow;
use replimeter_render::rows::{Columns, TableSpec, columns};

/// Rows for the windows of a front.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrontWindows;

impl Columns for FrontWindows {
    type Row = FrontWindow;
    const TABLE: TableSpec<FrontWindow, Self> = TableSpec {
        message: "front_window",
        group: 1024,
        columns: columns! {
            /// Start of the window, since the start of the run
            start_us: Real = |window, _| window.start_us;
            /// End of the window
            end_us: Real = |window, _| window.end_us;
            /// Requests, those with errors included
            requests: Long = |window, _| window.requests;
            /// Requests that got an error
            errors: Long = |window, _| window.errors;
            /// Posts added
            inserts: Long = |window, _| window.inserts;
            /// Pages
            pages: Long = |window, _| window.pages;
            /// Pages on which the visitor's last post was missing
            own_missing: Long = |window, _| window.own_missing;
            /// Largest age of a page; null without pages
            age_max_us: Real or null = |window, _| window.age_max_us;
        },
    };
}
