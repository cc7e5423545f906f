//! `samples.parquet` of a `watch` run: one row per server and poll.

use replimeter_instruments::watch::results::WatchSample;
use replimeter_render::rows::{Columns, TableSpec, columns};

/// Rows for the servers of a shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchSamples;

impl Columns for WatchSamples {
    type Row = WatchSample;
    const TABLE: TableSpec<WatchSample, Self> = TableSpec {
        message: "poll",
        // A thousand servers fill it in some seconds, and the file keeps something of each group until its end.
        group: 16_384,
        columns: columns! {
            /// When the states were decided, since the start of the run
            at_us: Real = |sample, _| sample.at_us;
            /// The server
            server: Word = |sample, _| &sample.server;
            /// Its state
            state: Word = |sample, _| sample.state().name();
            /// Lower end of its lag; null if that is not known, and for the primary
            lag_low_us: Real or null = |sample, _| sample.lag.map(|lag| lag.low_us);
            /// Upper end of its lag; null if that is not known
            lag_high_us: Real or null = |sample, _| sample.lag.and_then(|lag| lag.high_us);
            /// Transactions of the primary that it had not applied
            behind: Long or null = |sample, _| sample.behind;
            /// The largest lag that its own status column reports, in seconds
            seconds_behind: Long or null = |sample, _| sample.seconds_behind;
            /// Time since the last proof that its link works
            proof_age_us: Real or null = |sample, _| sample.proof_age_us;
            /// Transactions that only it has
            errant: Long or null = |sample, _| sample.errant;
            /// Transactions in the queue of a cluster's member
            queue: Real or null = |sample, _| sample.queue;
            /// Share of the time in which flow control paused a cluster's member
            paused_percent: Real or null = |sample, _| sample.paused_percent;
            /// Age of its last answer
            answer_age_us: Real or null = |sample, _| sample.answer_age_us;
            /// Duration of its last answer, from the query to the reply
            answer_took_us: Real or null = |sample, _| sample.answer_took_us;
        },
    };
}
