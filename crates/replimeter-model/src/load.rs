//! Load beside a measurement: what was asked for, and what came of it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::record::Distribution;

/// The most threads of one load.
pub const MOST_THREADS: u32 = 1024;
/// Workloads that need no file, by name.
pub const BUILT_IN: [&str; 2] = ["insert", "mix"];

/// A load as people write it: `WORKLOAD:THREADS@NODE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSpec {
    /// A workload of ours by its name, or the path of a script.
    pub workload: String,
    /// How many connections run it.
    pub threads: u32,
    /// Name of the server that they run it on.
    pub node: String,
}

impl FromStr for LoadSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is no load; write WORKLOAD:THREADS@NODE, such as insert:8@primary or load.sql:4@node1");
        // From the right, since a path may hold both signs.
        let (rest, node) = text.rsplit_once('@').ok_or_else(refuse)?;
        let (workload, threads) = rest.rsplit_once(':').ok_or_else(refuse)?;
        if workload.is_empty() || node.is_empty() {
            return Err(refuse());
        }
        let known = threads.bytes().all(|byte| byte.is_ascii_digit()).then(|| threads.parse().ok()).flatten();
        let threads = known.filter(|threads| (1..=MOST_THREADS).contains(threads));
        let threads = threads.ok_or_else(|| format!("`{text}`: a load has 1 to {MOST_THREADS} threads"))?;
        Ok(Self { workload: workload.to_owned(), threads, node: node.to_owned() })
    }
}

impl fmt::Display for LoadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}@{}", self.workload, self.threads, self.node)
    }
}

serde_as_text!(LoadSpec);

/// A load with its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadPlan {
    /// What, how many, where.
    pub spec: LoadSpec,
    /// Passes per second over all threads (open loop); `None` for each thread's next
    /// pass when its last one is done (closed loop).
    pub rate: Option<u64>,
}

/// A rate with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Events per second over the whole time; null when there was none.
    pub mean: Option<f64>,
    /// Standard deviation between the batches of the interval.
    pub stdev: Option<f64>,
    /// Lower end of the interval; null when there are too few batches.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Errors of one kind that a load met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadError {
    /// The server's error number; null for a connection that broke.
    pub code: Option<u16>,
    /// How many.
    pub count: u64,
    /// The words of the first.
    pub message: String,
}

/// What one load came to. A *pass* is a thread's way through its script once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadRecord {
    /// The shape whose servers bore it.
    pub shape: String,
    /// The workload: the name of one of ours or the path of a script.
    pub workload: String,
    /// Connections that ran it.
    pub threads: u32,
    /// The server they ran it on.
    pub node: String,
    /// Passes per second asked for over all threads; null for a closed loop.
    pub rate: Option<u64>,
    /// Statements in a pass.
    pub statements: u64,
    /// How long it ran before it was counted.
    pub ramp_us: f64,
    /// How long it was counted.
    pub counted_us: f64,
    /// Passes that were completed while it was counted.
    pub passes: u64,
    /// Passes per second.
    pub throughput: Rate,
    /// From a pass's intended start to its end, retries included; in a closed loop
    /// its start is intended when the one before it ended.
    pub latency: Distribution,
    /// From its actual start to its end.
    pub service: Distribution,
    /// Passes that were begun again after a deadlock or a lock's time-out.
    pub retries: u64,
    /// Passes that were given up.
    pub failed: u64,
    /// Passes whose turn had come and that no thread was free to begin, at the end;
    /// null for a closed loop.
    pub waiting: Option<u64>,
    /// Errors by number, the retried among them.
    pub errors: Vec<LoadError>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_names_and_paths() {
        let load: LoadSpec = "/a:b@c/x.sql:8@node1".parse().unwrap();
        assert_eq!((load.workload.as_str(), load.threads, load.node.as_str()), ("/a:b@c/x.sql", 8, "node1"));
        for text in
            ["", "insert", "insert:8", "insert@primary", ":8@primary", "insert:8@", "insert:0@a", "insert:+1@a", "insert:9999@a"]
        {
            assert!(text.parse::<LoadSpec>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_reading_agree(workload in "[a-z/.:@]{1,20}", threads in 1u32..=1024, node in "[a-z0-9]{1,8}") {
            let load = LoadSpec { workload, threads, node };
            prop_assert_eq!(load.to_string().parse::<LoadSpec>().unwrap(), load);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<LoadSpec>();
        }
    }
}
