//! Warnings: what a reader must know to trust a figure, and what to do about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Subject of a warning, for programs; people read the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WarningCode {
    /// The payload was cut down to what both servers accept.
    PayloadClamped,
    /// A server's clock was set during the run.
    ClockStepped,
    /// One of all methods is not possible on these servers.
    MethodLeftOut,
    /// Semi-synchronous replication is configured and not in effect.
    SemiSyncNotInEffect,
    /// Reads or writes wait for replication by a server's setting.
    WaitingReads,
    /// A replica applies with a configured delay.
    DelayedReplica,
    /// The client's cores may have slept between rounds.
    KeepAwakeOff,
    /// The writer could not keep its schedule.
    WriterLate,
    /// The run ended before it was complete.
    Interrupted,
    /// The run was ended by an error; what was measured until then is kept.
    Failed,
    /// Rows that a replica did not show in time.
    MissingRows,
    /// Something an earlier run left behind was removed.
    LeftoverRemoved,
    /// The sandbox lies on a file system whose timing is not a disk's.
    MemoryFileSystem,
    /// The traffic to the server is not encrypted or the server not verified.
    TlsNotVerified,
    /// A password was given where other users of the machine can read it.
    PasswordInUrl,
    /// A privilege or setting could not be examined.
    NotChecked,
    /// The writer paused to empty its table.
    TableEmptied,
    /// The client could not use what it needs to measure well.
    ClientLimited,
    /// Something that looks like a server cannot be used as one.
    ServerUnusable,
    /// Transactions that could not be recognised on both sides.
    UnmatchedTransactions,
    /// A followed server was out of reach for a while.
    Reconnected,
    /// Something of ours could not be removed.
    CleanUpIncomplete,
    /// Passes of a load were given up.
    LoadErrors,
    /// A load could not keep its rate.
    LoadNotHeld,
    /// Servers that share a load have unlike parts of it.
    UnevenLoad,
    /// The client, not the servers, held a load back.
    LoadClientBound,
    /// A data set of another size, or one that was not whole, was replaced.
    DataReplaced,
    /// A server's resource use could not be read, or only in part.
    ResourcesUnknown,
    /// A backlog could not be made, or the replica not be seen to catch up.
    BacklogUnclear,
    /// Too few fresh starts of the servers for an interval that holds what it promises.
    FewStarts,
    /// Semi-synchronous replication fell back for a while; what was measured then does
    /// not count.
    FellBack,
    /// A mode that the servers found here cannot be started in.
    ModeLeftOut,
    /// Another client has written to Replimeter's rows.
    ChangedByOthers,
    /// A guarantee of a server did not hold.
    GuaranteeBroken,
    /// One of several cases is not possible on these servers.
    CaseLeftOut,
    /// The rounds were over before the load beside them had completed anything.
    LoadUnfinished,
    /// A server that belongs to what was measured was out of reach, or out of its cluster, at the end.
    ServerLost,
}

/// One warning of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Subject of the warning.
    pub code: WarningCode,
    /// The finding, with the name of the server.
    pub message: String,
    /// Recommended action.
    pub hint: String,
}

impl Warning {
    /// A warning with its hint.
    #[must_use]
    pub fn new(code: WarningCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: hint.into(),
        }
    }
}
