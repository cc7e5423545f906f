//! Warnings: facts that affect the figures, and recommended actions.

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
    /// One of several methods is not possible on these servers.
    MethodLeftOut,
    /// Semi-synchronous replication is configured and not in effect.
    #[serde(rename = "semi-sync-not-in-effect")]
    AcknowledgementNotInEffect,
    /// Reads or writes wait for replication by a server's setting.
    WaitingReads,
    /// A replica applies with a configured delay.
    DelayedReplica,
    /// The client's cores may have slept between rounds.
    KeepAwakeOff,
    /// The writer could not keep its schedule.
    WriterLate,
    /// Pairs of a trial that do not count.
    PairsLost,
    /// The run ended early.
    Interrupted,
    /// An error ended the run; the results until then are kept.
    Failed,
    /// Rows that a replica did not show before the timeout.
    MissingRows,
    /// Objects that an earlier run left behind were removed.
    LeftoverRemoved,
    /// The sandbox lies on a file system whose timing is not a disk's.
    MemoryFileSystem,
    /// The connection is not encrypted, or the server is not verified.
    TlsNotVerified,
    /// A password was given where other users of the machine can read it.
    PasswordInUrl,
    /// A privilege or setting could not be examined.
    NotChecked,
    /// The writer paused to empty its table.
    TableEmptied,
    /// The client lacks a resource or privilege for precise measurement.
    ClientLimited,
    /// An installation that looks like a server cannot be used as one.
    ServerUnusable,
    /// Transactions that could not be recognized on both sides.
    UnmatchedTransactions,
    /// A server was unreachable, or out of use, for some time.
    Reconnected,
    /// An object that Replimeter created could not be removed.
    CleanUpIncomplete,
    /// Passes of a load failed for good.
    LoadErrors,
    /// A load could not keep its rate.
    LoadNotHeld,
    /// Servers that share a load have unequal parts of it.
    UnevenLoad,
    /// The client was the bottleneck of a load.
    LoadClientBound,
    /// A server has few free connections left during a load.
    ConnectionsScarce,
    /// A data set of another size, or an incomplete one, was replaced.
    DataReplaced,
    /// A server's resource use could not be read, or only in part.
    ResourcesUnknown,
    /// No backlog built up, or the replica was not observed to catch up.
    BacklogUnclear,
    /// Too few fresh starts of the servers for a reliable interval.
    FewStarts,
    /// Compared runs that did not alternate: the cause of a difference is unknown.
    NotAlternating,
    /// A condition of a comparison is neither shown to hold nor to fail.
    Inconclusive,
    /// Semi-synchronous replication fell back for some time; results of that time do
    /// not count.
    FellBack,
    /// A mode that the servers found here do not support.
    ModeLeftOut,
    /// Another client has written to Replimeter's rows.
    ChangedByOthers,
    /// A guarantee of a server did not hold.
    GuaranteeBroken,
    /// One of several cases is not possible on these servers.
    CaseLeftOut,
    /// The rounds ended before the background load had completed an operation.
    LoadUnfinished,
    /// A measured server was unreachable, or out of its cluster, at the end.
    ServerLost,
    /// A server was restarted during the run, its log was reset, or it had another role or source at the end.
    ServerChanged,
    /// A server gave no answer when the run had ended, so that it is not known what happened to it.
    ServerSilent,
    /// A replica did not replicate when the run began.
    ReplicaStopped,
    /// A replica was behind when the run began; the figures describe it after it had caught up.
    ReplicaBehind,
    /// What a run creates and drops may wait for a transaction or a backup of another client.
    DefinitionsMayWait,
    /// A replica that was not named receives what the run writes.
    ReplicaNotNamed,
    /// The primary replicates from a server that was not named.
    SourceNotNamed,
    /// Something else used this machine during the measurement, or a quota limited it.
    MachineDisturbed,
    /// A server still flushed or purged what was written before the measurement.
    NotSettled,
    /// The servers shared this machine although each was to be a host of its own.
    HostsShared,
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
