//! What a mode of replication costs: the modes by name, and the record of a `cost` run.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    engine::Engine,
    envelope::Envelope,
    estimate::Estimate,
    load::{LoadError, Rate},
    plan::CostSettings,
    record::Distribution,
    resources::PerOperation,
    shape::Shape,
    suggest,
};

/// What is on the price list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostKind {
    /// A lone server without a binary log: what all others are held against.
    None,
    /// A lone server with its binary log on.
    Binlog,
    /// Asynchronous replicas.
    Async,
    /// Replicas whose acknowledgement is waited for.
    SemiSync,
    /// A Galera cluster.
    Galera,
    /// A MySQL group.
    Group,
}

impl CostKind {
    /// All of them, the cheapest first as far as one can expect.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::Binlog,
        Self::Async,
        Self::SemiSync,
        Self::Galera,
        Self::Group,
    ];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Binlog => "binlog",
            Self::Async => "async",
            Self::SemiSync => "semi-sync",
            Self::Galera => "galera",
            Self::Group => "group",
        }
    }

    /// Whether there is anything beside the server that is written to.
    #[must_use]
    pub fn replicates(self) -> bool {
        !matches!(self, Self::None | Self::Binlog)
    }

    /// Whether its servers are equal members.
    #[must_use]
    pub fn has_members(self) -> bool {
        matches!(self, Self::Galera | Self::Group)
    }

    /// The only engine that has it.
    #[must_use]
    pub fn only_engine(self) -> Option<Engine> {
        match self {
            Self::Galera => Some(Engine::MariaDb),
            Self::Group => Some(Engine::MySql),
            _ => None,
        }
    }

    /// What it adds something to, step by step: the binary log to nothing, replicas to the
    /// binary log, the wait to replicas.
    #[must_use]
    pub fn built_on(self) -> Option<Self> {
        match self {
            Self::None => None,
            Self::Binlog => Some(Self::None),
            // Nodes of a cluster of ours have their binary log on.
            Self::Async | Self::Galera | Self::Group => Some(Self::Binlog),
            Self::SemiSync => Some(Self::Async),
        }
    }
}

/// A mode as people name it: `[ENGINE/]MODE[:N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostMode {
    /// The engine asked for; the best server found when `None`.
    pub engine: Option<Engine>,
    /// The mode.
    pub kind: CostKind,
    /// Replicas, or members; as the plan's replicas say when `None`.
    pub count: Option<u32>,
}

impl CostMode {
    /// The engine it needs, if any.
    #[must_use]
    pub fn engine(self) -> Option<Engine> {
        self.engine.or(self.kind.only_engine())
    }

    /// The sandbox for it, when plain modes have so many replicas.
    ///
    /// # Errors
    /// When there is no such sandbox.
    pub fn shape(self, replicas: u32) -> Result<Shape, String> {
        let engine = self
            .engine
            .map_or_else(String::new, |engine| format!("{}/", engine.name()));
        let text = match self.kind {
            CostKind::None | CostKind::Binlog => format!("{engine}none"),
            kind => {
                let usual = if kind.has_members() {
                    replicas.saturating_add(1)
                } else {
                    replicas
                };
                format!("{engine}{}:{}", kind.name(), self.count.unwrap_or(usual))
            }
        };
        text.parse::<Shape>().map_err(|error| error.to_string())
    }
}

impl FromStr for CostMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            let known: Vec<&str> = CostKind::ALL.iter().map(|kind| kind.name()).collect();
            format!(
                "unknown mode `{text}`{}; known: {}, with mariadb/ or mysql/ in front and :N behind if you like",
                suggest::hint(suggest::word_of(text), known.iter().copied()),
                known.join(", ")
            )
        };
        let (engine, rest) = match text.split_once('/') {
            Some(("mariadb", rest)) => (Some(Engine::MariaDb), rest),
            Some(("mysql", rest)) => (Some(Engine::MySql), rest),
            Some(_) => return Err(unknown()),
            None => (None, text),
        };
        let (word, count) = rest
            .split_once(':')
            .map_or((rest, None), |(word, count)| (word, Some(count)));
        let kind = CostKind::ALL
            .into_iter()
            .find(|kind| kind.name() == word)
            .ok_or_else(unknown)?;
        if count.is_some() && !kind.replicates() {
            return Err(format!(
                "`{text}`: {} is a lone server and takes no number",
                kind.name()
            ));
        }
        let digits =
            |count: &&str| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count = match count {
            None => None,
            Some(text) => Some(
                Some(text)
                    .filter(digits)
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(unknown)?,
            ),
        };
        let mode = Self {
            engine,
            kind,
            count,
        };
        // What no sandbox can be is refused here, with the sandbox's own words.
        mode.shape(1).map(|_| mode)
    }
}

impl fmt::Display for CostMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(engine) = self.engine {
            write!(f, "{}/", engine.name())?;
        }
        f.write_str(self.kind.name())?;
        self.count.map_or(Ok(()), |count| write!(f, ":{count}"))
    }
}

serde_as_text!(
    CostMode,
    "description": "A mode of replication: MODE, MODE:N or ENGINE/MODE:N",
    "pattern": "^((mariadb|mysql)/)?(none|binlog|async|semi-sync|galera|group)(:[0-9]+)?$",
    "examples": ["none", "async", "mysql/semi-sync:2"]
);

/// Which modes are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostModes {
    /// Those that the servers found here can be started in.
    All,
    /// These; one that cannot be had is an error.
    Named(Vec<CostMode>),
}

impl CostModes {
    /// The modes, each once.
    #[must_use]
    pub fn list(&self) -> Vec<CostMode> {
        match self {
            Self::All => CostKind::ALL
                .map(|kind| CostMode {
                    engine: None,
                    kind,
                    count: None,
                })
                .to_vec(),
            Self::Named(modes) => modes.clone(),
        }
    }
}

impl FromStr for CostModes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "all" {
            return Ok(Self::All);
        }
        let mut modes: Vec<CostMode> = Vec::new();
        for word in text.split(',') {
            let mode: CostMode = word.trim().parse()?;
            if modes.contains(&mode) {
                return Err(format!("the mode `{mode}` is given twice"));
            }
            modes.push(mode);
        }
        Ok(Self::Named(modes))
    }
}

impl fmt::Display for CostModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Named(modes) => f.write_str(
                &modes
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(","),
            ),
        }
    }
}

serde_as_text!(
    CostModes,
    "description": "Modes of replication with commas between them, each as MODE, MODE:N or ENGINE/MODE:N; or all that the servers found can do",
    "examples": ["all", "none,binlog,async,semi-sync", "mysql/async,mysql/group:3"]
);

one_of! {
    /// How much of a commit is on the disk when it is acknowledged; for all modes alike.
    #[derive(Default)]
    pub enum Durability {
        /// innodb_flush_log_at_trx_commit=2, sync_binlog=0
        #[default]
        Relaxed = "relaxed",
        /// innodb_flush_log_at_trx_commit=1, sync_binlog=1
        Strict = "strict",
        /// Nothing is set
        ServerDefault = "server-default",
    }
}

impl Durability {
    /// The server options that make it.
    #[must_use]
    pub fn options(self) -> &'static [&'static str] {
        match self {
            // 2 and 0, as experiment 5 had it.
            Self::Relaxed => &["innodb_flush_log_at_trx_commit=2", "sync_binlog=0"],
            Self::Strict => &["innodb_flush_log_at_trx_commit=1", "sync_binlog=1"],
            Self::ServerDefault => &[],
        }
    }
}

/// A figure over the same of `none`; `throughput`, `low` and `high` are one ratio with
/// its interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Relative {
    /// What it is held against: `none`.
    pub against: String,
    /// Throughput over that of `none`; null when `none` was not measured.
    pub throughput: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The same of the latency's figures.
    pub latency: RelativeLatency,
}

/// Ratios of a latency's figures, each the mean over the starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelativeLatency {
    /// Of the mean.
    pub mean: Estimate,
    /// Of the standard deviation.
    pub stdev: Estimate,
    /// Of the median.
    pub p50: Estimate,
    /// Of the 95th percentile.
    pub p95: Estimate,
    /// Of the 99th percentile.
    pub p99: Estimate,
    /// Of the largest.
    pub max: Estimate,
}

/// What a mode adds to one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Added {
    /// To the mean latency, in microseconds.
    pub latency_us: Estimate,
    /// To the processor time of the server that is written to, in microseconds.
    pub primary_cpu_us: Estimate,
    /// To the processor time of all servers together.
    pub all_cpu_us: Estimate,
}

/// How far a replica was behind at the ends of blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Behind {
    /// The replica's name.
    pub name: String,
    /// Ends of blocks at which it was asked.
    pub blocks: u64,
    /// Transactions that it had not applied, on average.
    pub mean: f64,
    /// At most.
    pub max: u64,
}

/// What the client itself spent, and how near it was to its limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostClient {
    /// Processor time of the load's threads for one operation.
    pub cpu_us_per_op: Option<f64>,
    /// Empty questions per second that this client got answered over as many connections, by
    /// `none`'s server: more statements than that no mode could have had.
    pub limit_per_s: Option<f64>,
    /// What this row's statements are of that limit, in percent.
    pub percent_of_limit: Option<f64>,
    /// How long a thread was ready and had no core, for one operation.
    pub delay_us_per_op: Option<f64>,
}

/// What one mode costs at one number of threads over one distance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostRow {
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// Product and version.
    pub version: String,
    /// `none`, `binlog`, `async`, `semi-sync`, `galera` or `group`.
    pub mode: String,
    /// `after-commit` or `after-sync` of semi-sync; null of the others.
    pub wait_point: Option<String>,
    /// Servers beside the one that is written to.
    pub replicas: u32,
    /// Connections.
    pub threads: u32,
    /// `relaxed`, `strict` or `server-default`.
    pub durability: String,
    /// One-way delay of the links between servers; null without links of ours.
    pub link_delay_us: Option<f64>,
    /// Fresh starts of the servers that have counted blocks.
    pub starts: u64,
    /// Blocks that count.
    pub blocks: u64,
    /// Blocks that do not, because semi-synchronous replication fell back.
    pub void_blocks: u64,
    /// How long the counted blocks took together.
    pub counted_us: f64,
    /// Operations in them.
    pub operations: u64,
    /// Operations that were begun again after a deadlock, a lock's time-out or a failed
    /// certification.
    pub retries: u64,
    /// Operations that were given up.
    pub failed: u64,
    /// Errors by number, the retried among them.
    pub errors: Vec<LoadError>,
    /// Operations per second: the mean over the starts, the standard deviation between
    /// blocks, and the 95 % interval of the mean.
    pub throughput: Rate,
    /// From send to answer, of all counted operations together.
    pub latency: Distribution,
    /// The mean latency with its interval over the starts.
    pub latency_mean_us: Estimate,
    /// Against `none` of the same binary, at as many threads.
    pub relative: Relative,
    /// What it adds to `none`.
    pub added: Added,
    /// What each server spent on an operation; the one that is written to comes first.
    pub servers: Vec<PerOperation>,
    /// How far replicas were behind.
    pub behind: Vec<Behind>,
    /// The client's own limit.
    pub client: CostClient,
}

impl CostRow {
    /// How people call the mode: with its wait point.
    #[must_use]
    pub fn label(&self) -> String {
        label(&self.mode, self.wait_point.as_deref())
    }
}

/// How people call a mode.
#[must_use]
pub fn label(mode: &str, wait_point: Option<&str>) -> String {
    wait_point.map_or_else(|| mode.to_owned(), |point| format!("{mode} {point}"))
}

/// What one mode adds to the one that it is built on: the price in steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostStep {
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// The mode.
    pub mode: String,
    /// Its wait point.
    pub wait_point: Option<String>,
    /// The mode that it is built on.
    pub against: String,
    /// Connections.
    pub threads: u32,
    /// One-way delay of the links.
    pub link_delay_us: Option<f64>,
    /// Throughput over that of the other.
    pub throughput: Estimate,
    /// What it adds.
    pub added: Added,
}

/// One comparison of a mode with itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfComparison {
    /// Throughput of one half over the other's.
    pub throughput: Estimate,
    /// The difference of their mean latencies.
    pub latency_us: Estimate,
    /// Whether the interval of the throughput's ratio leaves 1 out.
    pub differs: bool,
}

/// A mode compared with itself many times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfTest {
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// The mode, with its wait point.
    pub mode: String,
    /// Connections.
    pub threads: u32,
    /// Fresh starts on each side of a comparison.
    pub starts: u32,
    /// The comparisons.
    pub comparisons: Vec<SelfComparison>,
    /// How many of them found a difference.
    pub differences: u64,
    /// The share of those that would be right.
    pub expected: f64,
    /// The exact 95 % interval of the true share.
    pub share: [f64; 2],
    /// The probability of so many differences or more, were the share the right one.
    pub p_value: f64,
    /// Whether there are significantly too many.
    pub significant: bool,
}

/// A start of servers, in the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartRecord {
    /// The round, from 1.
    pub round: u32,
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// The mode, with its wait point.
    pub mode: String,
    /// From the start to servers that replicate.
    pub start_us: f64,
}

/// A block as `samples.parquet` has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockRecord {
    /// The round, from 1; of a self-test every comparison's rounds follow one another.
    pub round: u32,
    /// `mariadb` or `mysql`.
    pub engine: String,
    /// The mode.
    pub mode: String,
    /// Its wait point.
    pub wait_point: Option<String>,
    /// Servers beside the one that is written to.
    pub replicas: u32,
    /// Connections.
    pub threads: u32,
    /// One-way delay of the links.
    pub link_delay_us: Option<f64>,
    /// Which of its start's blocks, from 1.
    pub block: u32,
    /// Why it does not count.
    pub void: Option<String>,
    /// When it began, on the run's clock.
    pub began_us: f64,
    /// How long it was.
    pub counted_us: f64,
    /// Operations.
    pub operations: u64,
    /// Retried operations.
    pub retries: u64,
    /// Operations that were given up.
    pub failed: u64,
    /// Latencies.
    pub latency: Distribution,
    /// Processor time per operation of the server that is written to.
    pub primary_cpu_us_per_op: Option<f64>,
    /// Of all servers.
    pub all_cpu_us_per_op: Option<f64>,
    /// Of the client's threads.
    pub client_cpu_us_per_op: Option<f64>,
    /// Transactions that the replica furthest behind had not applied at its end.
    pub behind: Option<u64>,
}

/// The record of a `cost` run.
pub type CostDocument = Envelope<CostSettings, CostResults>;

/// What a `cost` run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostResults {
    /// A row for each mode, number of threads and distance.
    pub rows: Vec<CostRow>,
    /// What durability means: the settings in effect, for each engine.
    pub durability: Vec<String>,
    /// What each mode adds to the one that it is built on.
    pub steps: Vec<CostStep>,
    /// The modes' starts in their order.
    pub order: Vec<StartRecord>,
    /// The comparison of a mode with itself; null without it.
    pub self_test: Option<SelfTest>,
    /// Modes that were left out, and why.
    pub left_out: Vec<String>,
}

impl CostDocument {
    /// Whether servers of several engines stand side by side.
    #[must_use]
    pub fn several_engines(&self) -> bool {
        self.results
            .rows
            .iter()
            .any(|row| row.engine != self.results.rows[0].engine)
    }

    /// How people call a row's mode in this document.
    #[must_use]
    pub fn label_of(&self, engine: &str, mode: &str, wait_point: Option<&str>) -> String {
        let label = label(mode, wait_point);
        if self.several_engines() {
            format!("{engine}/{label}")
        } else {
            label
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn modes_by_name() {
        for text in [
            "none",
            "mysql/binlog",
            "async",
            "semi-sync:2",
            "galera:3",
            "mariadb/async:1",
            "mysql/group",
        ] {
            assert_eq!(text.parse::<CostMode>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "ring",
            "oracle/none",
            "none:1",
            "binlog:2",
            "async:",
            "async:-1",
            "async:x",
            "mysql/galera",
            "mariadb/group",
            "semi-sync:0",
            "chain:1",
        ] {
            assert!(text.parse::<CostMode>().is_err(), "{text}");
        }
        let shape = |text: &str| {
            text.parse::<CostMode>()
                .unwrap()
                .shape(1)
                .unwrap()
                .to_string()
        };
        assert_eq!(
            ["none", "mysql/binlog", "async", "galera", "group:3"].map(shape),
            ["none", "mysql/none", "async:1", "galera:2", "group:3"]
        );
    }

    #[test]
    fn lists_of_modes() {
        assert_eq!("all".parse(), Ok(CostModes::All));
        let modes: CostModes = "none, async,mysql/semi-sync".parse().unwrap();
        assert_eq!(
            (modes.list().len(), modes.to_string().as_str()),
            (3, "none,async,mysql/semi-sync")
        );
        assert!(
            "async,async"
                .parse::<CostModes>()
                .unwrap_err()
                .contains("twice")
        );
        assert!("".parse::<CostModes>().is_err());
        assert_eq!(CostModes::All.list().len(), CostKind::ALL.len());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((mysql|mariadb)/)?(async|group|galera|none)?[:,]?\\PC{0,12}") {
            if let Ok(modes) = text.parse::<CostModes>() {
                prop_assert_eq!(modes.to_string().parse::<CostModes>(), Ok(modes));
            }
        }
    }
}
