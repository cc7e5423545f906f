//! The document of `replimeter doctor`: the state of servers and their replication, and the findings.
//!
//! Every time is a number in microseconds and its name ends in `_us`; what could
//! not be determined is null.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::replication::{Mode, Relation};

/// The schema's name and version in every `doctor` document.
pub const DOCTOR_SCHEMA: &str = "replimeter.doctor/1";

/// Severity of a finding.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Information; no action is needed.
    Info,
    /// The setup, or the meaning of figures, differs from what is expected.
    Warning,
    /// A measurement would be refused or invalid.
    Error,
}

one_of! {
    /// Subject of a finding: stable for programs; the message is for people.
    pub enum FindingCode {
        /// The connection failed.
        Unreachable = "unreachable",
        /// The server refused the user or the password.
        AccessDenied = "access-denied",
        /// TLS negotiation or verification of the server failed.
        TlsFailed = "tls-failed",
        /// The server was reached, but a query failed.
        ExaminationFailed = "examination-failed",
        /// The connection leaves this machine as plain text.
        NotEncrypted = "not-encrypted",
        /// The password was sent to another machine that did not prove who it is.
        ServerNotVerified = "server-not-verified",
        /// A setting or state could not be read, so it was not checked.
        NotChecked = "not-checked",
        /// The user lacks a privilege.
        MissingPrivilege = "missing-privilege",

        /// The topology does not suit a measurement, or differs from the declared one.
        TopologyRefused = "topology-refused",
        /// One server was named twice.
        SameServer = "same-server",
        /// Two servers have one `server_id`.
        DuplicateServerId = "duplicate-server-id",
        /// Two servers have one `server_uuid`.
        DuplicateServerUuid = "duplicate-server-uuid",
        /// A channel comes from a server that is not named.
        SourceNotNamed = "source-not-named",
        /// A server replicates from several others.
        MultiSource = "multi-source",
        /// Replication is circular.
        CircularReplication = "circular-replication",
        /// A channel is not running.
        ReplicationNotRunning = "replication-not-running",
        /// A channel runs, but recorded an error earlier.
        ReplicationError = "replication-error",
        /// The server's own figure of its lag, in whole seconds.
        SecondsBehind = "seconds-behind",
        /// A replica in the middle of a chain does not log what it applies.
        ChainBroken = "chain-broken",
        /// A replica applies with a configured delay.
        DelayedReplica = "delayed-replica",
        /// Replication filters are set.
        ReplicationFilter = "replication-filter",
        /// A filter keeps the schema `replimeter` from replicating.
        FilterSwallowsSchema = "filter-swallows-schema",

        /// Semi-synchronous replication is configured, and replication is asynchronous.
        AcknowledgementFallenBack = "semi-sync-fallen-back",
        /// Semi-synchronous replication is configured, and no replica acknowledges.
        AcknowledgementNoClients = "semi-sync-no-clients",
        /// The primary waits for more replicas than acknowledge.
        AcknowledgementWaitCount = "semi-sync-wait-count",
        /// The replica's side is on, the primary's is not.
        AcknowledgementPrimaryOff = "semi-sync-primary-off",
        /// The primary's side is on, the replica's is not.
        AcknowledgementReplicaOff = "semi-sync-replica-off",
        /// The replica's side was enabled after its receiver had started.
        AcknowledgementReceiverNotRestarted = "semi-sync-receiver-not-restarted",
        /// Transactions were committed without an acknowledgement.
        AcknowledgementUnacknowledged = "semi-sync-unacknowledged",
        /// How semi-synchronous replication is set up.
        AcknowledgementSettings = "semi-sync-settings",

        /// The binary log is off.
        BinlogOff = "binlog-off",
        /// The binary log's format is not ROW.
        BinlogFormat = "binlog-format",
        /// Row events leave columns out.
        RowImage = "row-image",
        /// A replica does not log what it applies.
        UpdatesNotLogged = "updates-not-logged",
        /// The binary log's filters are set.
        BinlogFilter = "binlog-filter",
        /// A crash may take acknowledged transactions from this server.
        DurabilityRelaxed = "durability-relaxed",
        /// Servers flush their logs differently.
        DurabilityDiffers = "durability-differs",
        /// Transactions have no GTIDs.
        GtidOff = "gtid-off",
        /// A channel finds its position by file and offset.
        NotByGtid = "not-by-gtid",
        /// The server accepts GTIDs out of order.
        GtidNotStrict = "gtid-not-strict",

        /// A replica applies with one thread.
        SingleThreadedApplier = "single-threaded-applier",
        /// A replica commits in another order than its source did.
        CommitOrderNotPreserved = "commit-order-not-preserved",

        /// The source finds few transactions that may be applied in parallel.
        DependencyTracking = "dependency-tracking",

        /// A replica has transactions of its own.
        ErrantTransactions = "errant-transactions",
        /// A replica has transactions that its source has lost.
        ReplicaAhead = "replica-ahead",
        /// Errant transactions cannot be determined.
        ErrantUnknown = "errant-unknown",

        /// Two servers' clocks differ.
        ClockOffset = "clock-offset",
        /// `SYSDATE()` is the statement's beginning.
        SysdateIsNow = "sysdate-is-now",

        /// The server that is written to accepts no writes.
        WriterReadOnly = "writer-read-only",
        /// A replica accepts writes.
        ReplicaWritable = "replica-writable",
        /// Reads or writes wait for replication by a server's setting.
        WaitingReads = "waiting-reads",
        /// Sessions begin with `autocommit=0`.
        AutocommitOff = "autocommit-off",
        /// Sessions begin as SERIALIZABLE.
        IsolationSerializable = "isolation-serializable",
        /// Transactions of a replica begin read-only.
        TransactionsReadOnly = "transactions-read-only",
        /// Few or no connections are available for Replimeter.
        ConnectionsNearlyExhausted = "connections-nearly-exhausted",
        /// Statements are logged, which costs throughput.
        StatementLog = "statement-log",
        /// The performance schema is off.
        PerformanceSchemaOff = "performance-schema-off",
        /// A run left its table.
        LeftoverTable = "leftover-table",
        /// A connected replica is not among the named servers.
        ReplicaNotNamed = "replica-not-named",
        /// What a run creates and drops may wait for a transaction or a backup of another client.
        DefinitionsMayWait = "definitions-may-wait",
        /// Another measurement of these servers is running.
        BeingMeasured = "being-measured",
        /// Servers have different versions.
        VersionsDiffer = "versions-differ",
        /// A source is newer than its replica.
        SourceNewer = "source-newer",
        /// A replica has another engine than its source.
        EnginesDiffer = "engines-differ",

        /// A node or member does not take part fully.
        MemberNotReady = "member-not-ready",
        /// A node is desynced on purpose.
        NodeDesynced = "node-desynced",
        /// Flow control stopped writes.
        FlowControl = "flow-control",
        /// Members that are not named.
        MembersNotNamed = "members-not-named",
        /// Named nodes of one cluster do not see each other.
        ClusterSplit = "cluster-split",
        /// An even number of members has no majority after an even split.
        EvenMembers = "even-members",
        /// The nodes' binary logs disagree about GTIDs.
        GaleraGtids = "galera-gtids",
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Severity of the finding.
    pub severity: Severity,
    /// Subject of the finding.
    pub code: FindingCode,
    /// Name of the server; null when several are concerned.
    pub node: Option<String>,
    /// The finding, with the name of the server.
    pub message: String,
    /// Recommended action; empty when none is needed.
    pub hint: String,
}

impl Finding {
    /// Returns a finding about several servers.
    pub fn among(
        severity: Severity,
        code: FindingCode,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            code,
            node: None,
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Returns it as a finding about this server, with which its message begins.
    #[must_use]
    pub fn about(self, name: &str, address: &str) -> Self {
        Self {
            node: Some(name.to_owned()),
            message: format!("{name} ({address}): {}", self.message),
            ..self
        }
    }
}

/// A warning in the form that every command's document has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorWarning {
    /// Subject of the warning.
    pub code: FindingCode,
    /// The finding, with the name of the server.
    pub message: String,
    /// Recommended action.
    pub hint: String,
}

/// Round trips of an empty select.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundTrip {
    /// The fastest.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// Number of round trips.
    pub count: u64,
}

/// A server's calendar clock against this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOffset {
    /// The server's clock minus this machine's.
    pub offset_us: f64,
    /// The true offset lies within `offset_us` ± this: at most half of the fastest
    /// round trip, and what the two clocks resolve.
    pub bound_us: f64,
    /// Number of readings.
    pub count: u64,
}

/// Two servers' clocks against each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockDifference {
    /// The writer or source.
    pub source: String,
    /// The replica.
    pub replica: String,
    /// The replica's clock minus the source's.
    pub offset_us: f64,
    /// The two bounds together.
    pub bound_us: f64,
}

/// A replication channel of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChannelRow {
    /// Name of the channel; empty for the default one.
    pub name: String,
    /// The source's name, or its address when it is not one of these servers.
    pub source: String,
    /// Whether the source is one of these servers.
    pub source_named: bool,
    /// Whether both threads run.
    pub running: bool,
    /// `semi-sync` or `async`, as in effect now; null when the source is not named.
    pub mode: Option<Mode>,
    /// State of the receiving thread.
    pub receiver: String,
    /// State of the applying thread.
    pub applier: String,
    /// Whether it uses GTID positioning.
    pub by_gtid: bool,
    /// Configured delay in seconds.
    pub delay_s: u64,
    /// Lag as the server reports it, in whole seconds; null when it reports none.
    pub seconds_behind: Option<u64>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorRow {
    /// Its name.
    pub name: String,
    /// Host and port.
    pub address: String,
    /// Whether it could be examined.
    pub reached: bool,
    /// Product and number: `MariaDB 10.11.19`.
    pub version: Option<String>,
    /// The server's full version text.
    pub version_full: Option<String>,
    /// Time since it started.
    pub uptime_s: Option<u64>,
    /// `primary`, `replica` or `node`, as found.
    pub role: Option<String>,
    /// Way in which the server receives writes.
    pub relation: Relation,
    /// Source that it replicates from, when that is one of these servers.
    pub source: Option<String>,
    /// Replication mode in effect: `semi-sync`, `async`, `galera`, `group`.
    pub mode: Option<Mode>,
    /// State of the server, in one line.
    pub state: String,
    /// Every replication channel.
    pub channels: Vec<ChannelRow>,
    /// `encrypted` or `plain`.
    pub tls: Option<String>,
    /// Connecting, logging in and agreeing on encryption, once.
    pub connect_us: Option<f64>,
    /// An empty select's round trip.
    pub round_trip_us: Option<RoundTrip>,
    /// Its calendar clock against this machine's.
    pub clock: Option<ClockOffset>,
}

/// Findings of `doctor`, for any target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// Replication mode; null when it could not be determined.
    pub mode: Option<Mode>,
    /// The server that is written to.
    pub writer: Option<String>,
    /// Every server, in the order in which they were named.
    pub results: Vec<DoctorRow>,
    /// Clocks of servers that replicate from one another, against each other.
    pub clocks: Vec<ClockDifference>,
    /// All findings, the most severe first.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Returns the highest severity.
    #[must_use]
    pub fn status(&self) -> DoctorStatus {
        match self.findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Error) => DoctorStatus::Errors,
            Some(Severity::Warning) => DoctorStatus::Warnings,
            Some(Severity::Info) | None => DoctorStatus::Ok,
        }
    }

    /// Returns the number of findings of this severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// Returns the names of the servers that could not be examined.
    #[must_use]
    pub fn not_reached(&self) -> Vec<&str> {
        self.results
            .iter()
            .filter(|row| !row.reached)
            .map(|row| row.name.as_str())
            .collect()
    }
}

/// Overall result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DoctorStatus {
    /// No action is needed.
    Ok,
    /// A measurement is possible; read the warnings.
    Warnings,
    /// A measurement would be refused or invalid.
    Errors,
}

/// Servers that were examined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorTarget {
    /// The sandbox's shape, or `endpoints:N`.
    pub shape: String,
    /// Whether the servers were a sandbox of Replimeter.
    pub sandbox: bool,
    /// Replication mode; null when it could not be determined.
    pub mode: Option<Mode>,
    /// The server that is written to.
    pub writer: Option<String>,
}

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorDocument {
    /// [`DOCTOR_SCHEMA`].
    pub schema: String,
    /// Servers that were examined.
    pub target: DoctorTarget,
    /// Every server.
    pub results: Vec<DoctorRow>,
    /// Clocks of servers that replicate from one another, against each other.
    pub clocks: Vec<ClockDifference>,
    /// All findings, the most severe first.
    pub findings: Vec<Finding>,
    /// The findings that are errors or warnings.
    pub warnings: Vec<DoctorWarning>,
    /// Overall result.
    pub status: DoctorStatus,
}

impl DoctorDocument {
    /// Returns the document of a diagnosis; `shape` names the target.
    #[must_use]
    pub fn new(shape: &str, sandbox: bool, diagnosis: Diagnosis) -> Self {
        let status = diagnosis.status();
        let grave = diagnosis
            .findings
            .iter()
            .filter(|finding| finding.severity > Severity::Info);
        let warnings = grave
            .map(|finding| DoctorWarning {
                code: finding.code,
                message: finding.message.clone(),
                hint: finding.hint.clone(),
            })
            .collect();
        Self {
            schema: DOCTOR_SCHEMA.to_owned(),
            target: DoctorTarget {
                shape: shape.to_owned(),
                sandbox,
                mode: diagnosis.mode,
                writer: diagnosis.writer,
            },
            results: diagnosis.results,
            clocks: diagnosis.clocks,
            findings: diagnosis.findings,
            warnings,
            status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity) -> Finding {
        Finding {
            severity,
            code: FindingCode::BinlogOff,
            node: None,
            message: "m".to_owned(),
            hint: "h".to_owned(),
        }
    }

    #[test]
    fn status_is_the_most_severe_finding() {
        let of = |severities: &[Severity]| {
            let findings = severities.iter().copied().map(finding).collect();
            DoctorDocument::new(
                "async:1",
                true,
                Diagnosis {
                    findings,
                    ..Diagnosis::default()
                },
            )
        };
        assert_eq!(of(&[]).status, DoctorStatus::Ok);
        assert_eq!(of(&[Severity::Info]).status, DoctorStatus::Ok);
        assert_eq!(of(&[Severity::Info]).warnings, []);
        assert_eq!(
            of(&[Severity::Info, Severity::Warning]).status,
            DoctorStatus::Warnings
        );
        let errors = of(&[Severity::Error, Severity::Warning, Severity::Info]);
        assert_eq!(
            (errors.status, errors.warnings.len()),
            (DoctorStatus::Errors, 2)
        );
    }

    #[test]
    fn codes_are_kebab_case_and_explained() {
        let page = include_str!("../../../docs/reference/doctor.md");
        for code in FindingCode::ALL {
            assert!(
                code.name()
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-'),
                "{code}"
            );
            assert!(
                page.contains(&format!("| `{code}` |")),
                "docs/reference/doctor.md does not explain {code}"
            );
        }
        assert_eq!(
            page.matches("\n| `").count(),
            FindingCode::ALL.len(),
            "docs/reference/doctor.md explains a code that does not exist"
        );
    }
}
