//! Background load: its settings and its results.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{estimate::Interval, record::Distribution, suggest};

/// Maximum number of threads, which are connections, of one load.
pub const MAX_THREADS: u32 = 10_000;
/// The word for a number of threads that is found by measuring.
const AUTO: &str = "auto";

/// A number of threads, each with a connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadCount {
    /// This number.
    Number(u32),
    /// 1, 2, 4 and so on, until the throughput no longer rises.
    Auto,
}

impl FromStr for ThreadCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == AUTO {
            return Ok(Self::Auto);
        }
        let number = text.parse().map_err(|_| {
            format!("`{text}` is not a number of threads; write a number, or {AUTO} to find where the throughput no longer rises")
        });
        number.map(Self::Number)
    }
}

impl fmt::Display for ThreadCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Auto => f.write_str(AUTO),
        }
    }
}

serde_as_number_or_text!(
    ThreadCount,
    "description": "A number of threads, or `auto`: 1, 2, 4 and so on, until the throughput no longer rises",
    "examples": [8, AUTO]
);

/// Workloads that need no file, by name.
pub const BUILT_IN: [&str; 11] = [
    "insert",
    "select",
    "post-insert",
    "point-select",
    "oltp-mix",
    "update-key",
    "big-update",
    "versioned",
    "versioned-update",
    "versioned-select",
    "mix",
];
/// Maximum number of rows of a data set.
const MAX_ROWS: u64 = 1 << 40;

/// Size of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSize {
    /// This number of rows in each table.
    Rows(u64),
    /// Approximate bytes on disk, including indexes.
    Bytes(u64),
}

/// Units of bytes, the longer names first.
const UNITS: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl FromStr for DataSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` is not a size; write rows, such as 100000, or bytes with a unit, such as 300MB or 1GiB"
            )
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = text[..digits].parse().map_err(|_| refuse())?;
        let size = match text[digits..].trim_start() {
            "" | "rows" => Self::Rows(number),
            unit => {
                let known = UNITS
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                    .ok_or_else(refuse)?;
                Self::Bytes(number.checked_mul(known.1).ok_or_else(refuse)?)
            }
        };
        // No row has less than a byte.
        let (Self::Rows(most) | Self::Bytes(most)) = size;
        match most {
            0 => Err(format!(
                "`{text}` makes an empty data set; give at least one row"
            )),
            _ if most > MAX_ROWS => Err(format!(
                "`{text}` is too large: the maximum is {MAX_ROWS} rows or bytes"
            )),
            _ => Ok(size),
        }
    }
}

impl fmt::Display for DataSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => write!(f, "{rows}"),
            Self::Bytes(bytes) => {
                // The largest unit that divides it, of the decimal ones first.
                let exact = UNITS
                    .iter()
                    .rev()
                    .find(|(_, unit)| *bytes > 0 && bytes % unit == 0);
                match exact {
                    Some((name, unit)) => write!(f, "{}{name}", bytes / unit),
                    // What people write always has a unit that divides it.
                    None => write!(f, "{}kB", bytes.div_ceil(1000)),
                }
            }
        }
    }
}

serde_as_number_or_text!(
    DataSize,
    "description": "A number of rows, or bytes on the disk with a unit",
    "examples": [100_000, "300MB", "1GiB", "10000rows"]
);

words! {
    /// When the operations of an open loop are due.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Arrivals {
        /// At equal intervals.
        #[default]
        Constant = "constant",
        /// Like many independent users: intervals are exponentially distributed.
        Poisson = "poisson",
    }
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text).ok_or_else(|| {
            format!(
                "`{text}` is not a distribution of arrivals{}; write constant or poisson",
                suggest::hint(text, Self::ALL.map(Self::name))
            )
        })
    }
}

/// Operations that start on schedule, without waiting for earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenLoop {
    /// Operations per second over all threads.
    pub rate: u64,
    /// Distribution of their due times.
    pub arrivals: Arrivals,
}

words! {
    /// Servers that read-only operations use.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum ReadTarget {
        /// The replicas alternately; the primary when there are no replicas.
        #[default]
        Replicas = "replicas",
        /// The primary.
        Primary = "primary",
        /// All servers alternately.
        All = "all",
    }
}

impl FromStr for ReadTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::named(text).ok_or_else(|| {
            format!(
                "`{text}` is not a place for reads{}; write replicas, primary or all",
                suggest::hint(text, Self::ALL.map(Self::name))
            )
        })
    }
}

/// A load as people write it: `WORKLOAD:THREADS@NODE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSpec {
    /// Name of a built-in workload, or the path of a file.
    pub workload: String,
    /// Number of connections that run it.
    pub threads: u32,
    /// Name of the server that they run it on.
    pub node: String,
}

impl FromStr for LoadSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` is not a load; write WORKLOAD:THREADS@NODE, such as insert:8@primary or load.sql:4@node1"
            )
        };
        // From the right, since a path may contain both characters.
        let (rest, node) = text.rsplit_once('@').ok_or_else(refuse)?;
        let (workload, threads) = rest.rsplit_once(':').ok_or_else(refuse)?;
        if workload.is_empty() || node.is_empty() {
            return Err(refuse());
        }
        let known = threads
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| threads.parse().ok())
            .flatten();
        let threads = known.filter(|threads| (1..=MAX_THREADS).contains(threads));
        let threads =
            threads.ok_or_else(|| format!("`{text}`: a load has 1 to {MAX_THREADS} threads"))?;
        Ok(Self {
            workload: workload.to_owned(),
            threads,
            node: node.to_owned(),
        })
    }
}

impl fmt::Display for LoadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}@{}", self.workload, self.threads, self.node)
    }
}

serde_as_text!(
    LoadSpec,
    "description": "A background load, WORKLOAD:THREADS@NODE",
    "pattern": "^.+:[0-9]+@.+$",
    "examples": ["insert:8@primary", "oltp-mix:32@node1", "load.sql:4@replica1"]
);

/// A load with its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RatedLoad {
    /// Workload, threads and server.
    pub spec: LoadSpec,
    /// Passes per second over all threads (open loop); `None` for each thread's next
    /// pass when its last one is done (closed loop).
    pub rate: Option<u64>,
    /// When the passes of an open loop are due.
    pub arrivals: Arrivals,
    /// Size of the data; `None` for the workload's default.
    pub size: Option<DataSize>,
}

impl RatedLoad {
    /// Returns the open loop, if it is one.
    #[must_use]
    pub fn open_loop(&self) -> Option<OpenLoop> {
        self.rate.map(|rate| OpenLoop {
            rate,
            arrivals: self.arrivals,
        })
    }
}

/// A rate with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Events per second over the whole time; null without events.
    pub mean: Option<f64>,
    /// Standard deviation between the batches of the interval.
    pub stdev: Option<f64>,
    /// 95 % confidence interval of the mean; null when there are too few batches.
    pub ci95: Interval,
}

/// Errors of one kind in a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadError {
    /// The server's error number; null for a connection that broke.
    pub code: Option<u16>,
    /// Number of errors.
    pub count: u64,
    /// Message of the first error.
    pub message: String,
}

/// Operations that were repeated, by reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Retried {
    /// `deadlock`, `lock-timeout`, `changed-row`, `certification` or `not-ready`.
    pub kind: String,
    /// Number of retries.
    pub count: u64,
}

/// One server's part of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeShare {
    /// The server's name.
    pub node: String,
    /// Completed operations that started in the counted time.
    pub operations: u64,
    /// Operations per second.
    pub per_s: Option<f64>,
}

/// Resources that the load used on the client, and whether the client limited it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientUse {
    /// Processor time of the load's threads per operation; null without operations.
    pub cpu_us_per_op: Option<f64>,
    /// The share of this machine's cores that the load's threads kept busy.
    pub cpu_share: Option<f64>,
    /// Share of the time in which the load's threads were ready to run and had no core (scheduler
    /// lag); null where the system does not report it.
    pub ready_share: Option<f64>,
    /// Pings per second over the same number of connections, measured before the load: an upper
    /// bound of statements per second.
    pub limit_per_s: Option<f64>,
    /// The load's statements as a share of that limit.
    pub limit_share: Option<f64>,
    /// Threads of this machine that served the connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loops: Option<u32>,
    /// Median time for which an answer had arrived before its thread read it, which latencies contain. Several that arrived
    /// while the thread was busy count as evenly spread over that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_delay_p50_us: Option<f64>,
    /// 99 % quantile of the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_delay_p99_us: Option<f64>,
}

/// Result of one load. A *pass* is one run of a thread through its script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadRecord {
    /// Shape whose servers the load ran on.
    pub shape: String,
    /// Workload: the name of a built-in one or the path of a script.
    pub workload: String,
    /// Connections that ran it.
    pub threads: u32,
    /// Server that they ran on.
    pub node: String,
    /// Requested passes per second, over all threads; null for a closed loop.
    pub rate: Option<u64>,
    /// Statements in a pass.
    pub statements: u64,
    /// Duration of the warm-up, which is not counted.
    pub warm_up_us: f64,
    /// Counted duration.
    pub counted_us: f64,
    /// Completed passes that started in the counted time.
    pub passes: u64,
    /// Passes per second.
    pub throughput: Rate,
    /// Latency from the intended start of a pass to its end, including retries; in a closed loop
    /// the intended start is the end of the pass before.
    pub latency: Distribution,
    /// Latency from the actual start of a pass to its end.
    pub service: Distribution,
    /// Passes that were repeated after a deadlock or a lock timeout.
    pub retries: u64,
    /// Passes that failed for good, or had not ended some seconds after the end.
    pub failed: u64,
    /// Passes that were due and not begun at the end; null for a closed loop.
    pub waiting: Option<u64>,
    /// Errors by number, the retried among them.
    pub errors: Vec<LoadError>,
    /// Distribution of due times in an open loop; null for a closed one.
    #[serde(default)]
    pub arrivals: Option<Arrivals>,
    /// Retries by reason.
    #[serde(default)]
    pub retried: Vec<Retried>,
    /// Part of each server, when there were several.
    #[serde(default)]
    pub by_node: Vec<NodeShare>,
    /// Passes that ended in each whole second of the counted time, of the first ten hours.
    #[serde(default)]
    pub per_second: Vec<u64>,
    /// Passes that were due and not begun at the end of each of these seconds; empty
    /// for a closed loop.
    #[serde(default)]
    pub waiting_per_second: Vec<u64>,
    /// Resources that the load used on the client.
    #[serde(default)]
    pub client: ClientUse,
}

/// The rate of a load's operations in an open loop; written as a number per second, or as a share of what the load
/// reaches back to back, such as `60%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadRate {
    /// Operations per second.
    PerSecond(u64),
    /// Percent of the rate back to back, which is measured first.
    Percent(u8),
}

impl FromStr for LoadRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse().ok();
                percent
                    .filter(|percent| (1..=100).contains(percent))
                    .map(Self::Percent)
            }
            None => text
                .parse()
                .ok()
                .filter(|rate| *rate > 0)
                .map(Self::PerSecond),
        };
        rate.ok_or_else(|| {
            format!(
                "`{text}` is not a rate; write operations per second, such as 2000, or a share of the rate back to back, such as 60%"
            )
        })
    }
}

impl fmt::Display for LoadRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => rate.fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

serde_as_number_or_text!(
    LoadRate,
    "description": "Operations per second, or a share of the rate back to back",
    "examples": [2000, "60%"]
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_names_and_paths() {
        let load: LoadSpec = "/a:b@c/x.sql:8@node1".parse().unwrap();
        assert_eq!(
            (load.workload.as_str(), load.threads, load.node.as_str()),
            ("/a:b@c/x.sql", 8, "node1")
        );
        for text in [
            "",
            "insert",
            "insert:8",
            "insert@primary",
            ":8@primary",
            "insert:8@",
            "insert:0@a",
            "insert:+1@a",
            "insert:10001@a",
        ] {
            assert!(text.parse::<LoadSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_of_rows_and_bytes() {
        for (text, size) in [
            ("100000", DataSize::Rows(100_000)),
            ("5 rows", DataSize::Rows(5)),
            ("300MB", DataSize::Bytes(300_000_000)),
            ("300mb", DataSize::Bytes(300_000_000)),
            ("1GiB", DataSize::Bytes(1 << 30)),
            ("64 kB", DataSize::Bytes(64_000)),
        ] {
            assert_eq!(text.parse(), Ok(size), "{text}");
            assert_eq!(size.to_string().parse(), Ok(size), "{size}");
        }
        for text in [
            "",
            "MB",
            "0",
            "0MB",
            "-5",
            "1.5GB",
            "300 megabytes",
            "99999999999999999999",
            "99999999TB",
        ] {
            assert!(text.parse::<DataSize>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_value_parses_back(workload in "[a-z/.:@]{1,20}", threads in 1u32..=1024, node in "[a-z0-9]{1,8}") {
            let load = LoadSpec { workload, threads, node };
            prop_assert_eq!(load.to_string().parse::<LoadSpec>().unwrap(), load);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<LoadSpec>();
        }
    }
}
