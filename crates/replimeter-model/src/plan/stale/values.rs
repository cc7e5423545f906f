//! What settings of `stale` are written as.

use std::{fmt, str::FromStr};

use crate::{load::LoadSpec, suggest, time_span::TimeSpan};

/// The longest time after the acknowledgement at which a read can be scheduled.
const MAX_OFFSET: TimeSpan = TimeSpan::from_secs(60);
/// The most points of a curve.
const MAX_OFFSETS: usize = 200;
/// What stands for no load in a case.
const NO_LOAD: &str = "none";

/// What makes a read wait until it shows what was acknowledged before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadConsistency {
    /// Nothing: reads as they are.
    #[default]
    Off,
    /// What the server offers for it: the reader waits.
    On,
    /// The reader waits (`wsrep_sync_wait`, `group_replication_consistency=BEFORE`).
    Before,
    /// The writer waits (`group_replication_consistency=AFTER`).
    After,
    /// Both wait (`BEFORE_AND_AFTER`).
    BeforeAndAfter,
    /// The client waits for the write's GTID on the reader's connection, before the read.
    Gtid,
}

impl ReadConsistency {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Off,
        Self::On,
        Self::Before,
        Self::After,
        Self::BeforeAndAfter,
        Self::Gtid,
    ];

    /// The name in plans and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Before => "before",
            Self::After => "after",
            Self::BeforeAndAfter => "before-and-after",
            Self::Gtid => "gtid",
        }
    }
}

impl FromStr for ReadConsistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| {
                format!(
                    "unknown way of synchronous reads `{text}`{}; known: {}",
                    suggest::hint(text, Self::ALL.map(Self::name)),
                    known()
                )
            })
    }
}

impl fmt::Display for ReadConsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

serde_as_text!(
    ReadConsistency,
    "description": "What a read waits for",
    "enum": ["off", "on", "before", "after", "before-and-after", "gtid"]
);

one_of! {
    /// What becomes of a connection between two rounds.
    #[derive(Default)]
    pub enum SessionReset {
        /// Nothing
        #[default]
        Keep = "keep",
        /// COM_RESET_CONNECTION, as pools do
        Reset = "reset",
        /// COM_CHANGE_USER, as older pools do
        ChangeUser = "change-user",
    }
}

one_of! {
    /// When the next round begins.
    #[derive(Default)]
    pub enum StalePace {
        /// When the last write is visible on every reader, as published
        #[default]
        Visible = "visible",
        /// When every reader has been read once: a reader can be several versions behind then
        Ack = "ack",
    }
}

/// When after the acknowledgement the reads of the curve are scheduled; written `auto`, `none`, or
/// times with commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadDelays {
    /// From 0 to beyond the longest delay that the rounds before showed.
    #[default]
    Auto,
    /// No curve.
    None,
    /// These, ascending.
    At(Vec<TimeSpan>),
}

impl FromStr for ReadDelays {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let mut spans = Vec::new();
        for part in text.split(',') {
            let span: TimeSpan = part.trim().parse().map_err(|error: crate::time_span::TimeSpanError| {
                format!("`{text}` is no list of times: {error}; write auto, none, or such as 0,100us,1ms")
            })?;
            if span > MAX_OFFSET {
                return Err(format!(
                    "a read is scheduled at most {MAX_OFFSET} after the acknowledgement"
                ));
            }
            spans.push(span);
        }
        spans.sort_unstable();
        spans.dedup();
        if spans.len() > MAX_OFFSETS {
            return Err(format!("a curve has at most {MAX_OFFSETS} points"));
        }
        Ok(Self::At(spans))
    }
}

impl fmt::Display for ReadDelays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::At(spans) => f.write_str(
                &spans
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(","),
            ),
        }
    }
}

serde_as_text!(
    ReadDelays,
    "description": "When after the acknowledgement the reads of the curve are scheduled",
    "pattern": "^ *(auto|none|[0-9].*)$",
    "examples": ["auto", "none", "0,100us,1ms"]
);

/// Loads that run together, beside the rounds of one row of the table; written `none`, or loads with ` + `
/// between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadCase(pub Vec<LoadSpec>);

impl FromStr for LoadCase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == NO_LOAD {
            return Ok(Self::default());
        }
        text.split(" + ")
            .map(|load| load.trim().parse())
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for LoadCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(NO_LOAD);
        }
        f.write_str(
            &self
                .0
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" + "),
        )
    }
}

serde_as_text!(
    LoadCase,
    "description": "Loads that run together, with ` + ` between them, or none",
    "pattern": "^ *(none|.+:[0-9]+@.+) *$",
    "examples": ["none", "insert:8@primary", "insert:8@primary + select:4@replica1"]
);

/// Connections whose own reads are judged, written `WRITERS:READERS`; the readers are for each reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedConnections {
    /// Connections that write.
    pub writers: u32,
    /// Connections that read, on each reader.
    pub readers: u32,
}

impl FromStr for JudgedConnections {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is not WRITERS:READERS, such as 4:8; each from 1 to 256");
        let (writers, readers) = text.split_once(':').ok_or_else(refuse)?;
        let number = |text: &str| {
            text.parse()
                .ok()
                .filter(|number| (1..=256).contains(number))
        };
        Ok(Self {
            writers: number(writers).ok_or_else(refuse)?,
            readers: number(readers).ok_or_else(refuse)?,
        })
    }
}

impl fmt::Display for JudgedConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.writers, self.readers)
    }
}

/// Whose own reads are judged in place of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedLoadReads {
    /// The loads', as far as their workloads name versions.
    Load,
    /// Connections of our own workloads for that, `versioned-update` and `versioned-select`.
    Own(JudgedConnections),
}

/// The name of the former.
const OF_THE_LOAD: &str = "load";

impl FromStr for CheckedLoadReads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OF_THE_LOAD {
            return Ok(Self::Load);
        }
        text.parse()
            .map(Self::Own)
            .map_err(|reason: String| format!("{reason}; or `{OF_THE_LOAD}` for that of --load"))
    }
}

impl fmt::Display for CheckedLoadReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load => f.write_str(OF_THE_LOAD),
            Self::Own(judged) => judged.fmt(f),
        }
    }
}

serde_as_text!(
    CheckedLoadReads,
    "description": "The loads' own reads, or so many connections of our own that write and read", "examples": ["load", "4:8"]
);

impl JudgedConnections {
    /// As loads.
    pub(super) fn loads(self) -> [LoadSpec; 2] {
        let load = |workload: &str, threads: u32, node: &str| LoadSpec {
            workload: workload.to_owned(),
            threads,
            node: node.to_owned(),
        };
        [
            load("versioned-update", self.writers, "writer"),
            load("versioned-select", self.readers, READERS),
        ]
    }
}

/// In the place of a load's server: every reader, each with so many threads.
pub const READERS: &str = "readers";
