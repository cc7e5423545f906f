//! `samples.parquet` of a `loss` run: one row per crash.

use replimeter_instruments::loss::results::CrashRecord;
use replimeter_model::replication::Mode;

use replimeter_render::rows::{Columns, TableSpec, columns};

/// Crashes of a `loss` run, each with its mode of replication.
#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct Crashes;

impl Columns for Crashes {
    type Row = (Mode, CrashRecord);
    const TABLE: TableSpec<Self::Row, Self> = TableSpec {
        message: "crash",
        group: 2048,
        columns: columns! {
            /// Shape, with the wait point if there are two
            shape: Word = |(_, crash), _| &crash.shape;
            /// Replication mode
            mode: Word = |(mode, _), _| mode.name();
            /// Number of the crash, from 1
            number: Long = |(_, crash), _| crash.number;
            /// From the first write to the crash, that is, to the cut of the links or the end of the primary
            load_us: Real = |(_, crash), _| crash.load_us;
            /// Started transactions
            begun: Long = |(_, crash), _| crash.begun;
            /// Acknowledged transactions
            acknowledged: Long = |(_, crash), _| crash.acknowledged;
            /// Transactions acknowledged after the links were cut
            acknowledged_after_cut: Long = |(_, crash), _| crash.acknowledged_after_cut;
            /// Lost transactions: acknowledged, and not on the promoted server
            lost: Long = |(_, crash), _| crash.lost;
            /// Longest time from the acknowledgement of a lost transaction to the end of the primary
            lost_since_us: Real or null = |(_, crash), _| crash.lost_since_us;
            /// Lost transactions that were acknowledged after the links were cut
            lost_after_cut: Long = |(_, crash), _| crash.lost_after_cut;
            /// Transactions that another session read on the primary
            seen: Long = |(_, crash), _| crash.seen;
            /// Read transactions that are gone, acknowledged or not
            seen_then_lost: Long = |(_, crash), _| crash.seen_then_lost;
            /// Read transactions that are gone and were never acknowledged
            seen_unacknowledged_lost: Long = |(_, crash), _| crash.seen_unacknowledged_lost;
            /// Transactions never acknowledged, and present all the same
            unacknowledged_present: Long = |(_, crash), _| crash.unacknowledged_present;
            /// Transactions started and not acknowledged
            unacknowledged: Long = |(_, crash), _| crash.unacknowledged;
            /// Unacknowledged transactions that failed with a server error
            refused: Long = |(_, crash), _| crash.refused;
            /// The promoted server
            promoted: Word = |(_, crash), _| &crash.promoted;
            /// From the end of the primary until every replica had applied what it had received; null in a
            /// cluster
            drained_us: Real or null = |(_, crash), _| crash.drained_us;
            /// From the end of the primary until the promoted server was writable
            promoted_us: Real = |(_, crash), _| crash.promoted_us;
            /// From the end of the primary until its successor acknowledged its first write
            recovery_us: Real = |(_, crash), _| crash.recovery_us;
            /// Transactions that a semi-synchronous primary committed without a replica's acknowledgement,
            /// after falling back
            fallen_back: Long = |(_, crash), _| crash.fallen_back;
            /// From the restart of the old primary until it accepted connections
            return_us: Real or null = |(_, crash), _| crash.return_us;
            /// Transactions that the old primary has and the new one lacks
            errant_transactions: Long or null = |(_, crash), _| crash.errant.as_ref()?.transactions;
            /// Their GTIDs, as a set or per domain
            errant_gtids: Word or null = |(_, crash), _| Some(&crash.errant.as_ref()?.commit_ids);
            /// Rows that the old primary has and the new one lacks
            errant_rows: Long or null = |(_, crash), _| Some(crash.errant.as_ref()?.rows);
            /// Acknowledged rows among these
            errant_acknowledged: Long or null = |(_, crash), _| Some(crash.errant.as_ref()?.acknowledged);
            /// Rows that the new primary has and the old one lost
            errant_lost: Long or null = |(_, crash), _| Some(crash.errant.as_ref()?.lost);
            /// Why the old primary did not restart, or could not be compared
            return_error: Word or null = |(_, crash), _| crash.return_error.as_deref();
        },
    };
}
