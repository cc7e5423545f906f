//! `samples.parquet` of a `loss` run: a row for each crash.

use replimeter_model::loss::CrashRecord;

use replimeter_render::rows::{Columns, TableSpec, columns};

/// Crashes of a `loss` run, each with its mode of replication.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct Crashes;

impl Columns for Crashes {
    type Row = (String, CrashRecord);
    const TABLE: TableSpec<Self::Row, Self> = TableSpec {
        message: "crash",
        group: 2048,
        columns: columns! {
            /// What was crashed: the shape, with the wait point where there are two
            shape: Word = |(_, crash), _| &crash.shape;
            /// How it replicates
            mode: Word = |(mode, _), _| mode;
            /// The crash's number, from 1
            number: Long = |(_, crash), _| crash.number;
            /// From the first write to the crash: the cut of the links, or the end of the primary
            load_us: Real = |(_, crash), _| crash.load_us;
            /// Transactions that were begun
            begun: Long = |(_, crash), _| crash.begun;
            /// Of these, acknowledged to the client
            acknowledged: Long = |(_, crash), _| crash.acknowledged;
            /// Of the acknowledged, those after the links were cut
            acknowledged_after_cut: Long = |(_, crash), _| crash.acknowledged_after_cut;
            /// Of the acknowledged, those that are not on the server that took over: lost
            lost: Long = |(_, crash), _| crash.lost;
            /// The longest time before the end of the primary at which a lost one had been acknowledged
            lost_since_us: Real or null = |(_, crash), _| crash.lost_since_us;
            /// Of the lost, those acknowledged after the links were cut
            lost_after_cut: Long = |(_, crash), _| crash.lost_after_cut;
            /// Transactions that another session saw on the primary
            seen: Long = |(_, crash), _| crash.seen;
            /// Of the seen, those that are gone, acknowledged or not
            seen_then_lost: Long = |(_, crash), _| crash.seen_then_lost;
            /// Of these, those that were never acknowledged
            seen_unacknowledged_lost: Long = |(_, crash), _| crash.seen_unacknowledged_lost;
            /// Never acknowledged, and there all the same
            unacknowledged_present: Long = |(_, crash), _| crash.unacknowledged_present;
            /// Begun and not acknowledged
            unacknowledged: Long = |(_, crash), _| crash.unacknowledged;
            /// Of these, refused by the server with an error
            refused: Long = |(_, crash), _| crash.refused;
            /// The server that took over
            promoted: Word = |(_, crash), _| &crash.promoted;
            /// From the end of the primary until every replica had applied what it received; null in a cluster
            drained_us: Real or null = |(_, crash), _| crash.drained_us;
            /// From the end of the primary until the server that took over had been made writable
            promoted_us: Real = |(_, crash), _| crash.promoted_us;
            /// From the end of the primary until its successor had acknowledged its first write
            recovery_us: Real = |(_, crash), _| crash.recovery_us;
            /// Transactions that a semi-synchronous primary committed without a replica's acknowledgement: it had fallen back
            fallen_back: Long = |(_, crash), _| crash.fallen_back;
            /// From its start until the old primary answered again
            return_us: Real or null = |(_, crash), _| crash.return_us;
            /// Transactions that the old primary has and the new one has not
            errant_transactions: Long or null = |(_, crash), _| crash.errant.as_ref()?.transactions;
            /// Their GTIDs, as a set or per domain
            errant_gtids: Word or null = |(_, crash), _| Some(&crash.errant.as_ref()?.gtids);
            /// Rows that the old primary has and the new one has not
            errant_rows: Long or null = |(_, crash), _| Some(crash.errant.as_ref()?.rows);
            /// Of these rows, the acknowledged ones
            errant_acknowledged: Long or null = |(_, crash), _| Some(crash.errant.as_ref()?.acknowledged);
            /// Rows that the new primary has and the old one lost itself
            errant_lost: Long or null = |(_, crash), _| Some(crash.errant.as_ref()?.lost);
            /// Why the old primary did not come back, or could not be compared
            return_error: Word or null = |(_, crash), _| crash.return_error.as_deref();
        },
    };
}
