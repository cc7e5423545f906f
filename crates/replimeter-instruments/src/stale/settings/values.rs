//! Values of the settings of `stale`.

use std::{fmt, str::FromStr};

use replimeter_model::{load::LoadSpec, one_of, serde_as_text, time_span::TimeSpan};

/// Maximum delay of a scheduled read after the acknowledgement.
const MAX_OFFSET: TimeSpan = TimeSpan::from_secs(60);
/// Maximum number of points of a curve.
const MAX_OFFSETS: usize = 200;
/// Text for no load in a case.
const NO_LOAD: &str = "none";

one_of! {
    /// What to do with a connection between two rounds.
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

/// Delays of the curve's reads after the acknowledgement; written `auto`, `none`, or
/// times with commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadDelays {
    /// From 0 to beyond the longest delay of the preceding rounds.
    #[default]
    Auto,
    /// No curve.
    None,
    /// These delays, ascending.
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
            let span: TimeSpan = part.trim().parse().map_err(|error: replimeter_model::time_span::TimeSpanError| {
                format!("`{text}` is not a list of times: {error}; write auto, none, or times such as 0,100us,1ms")
            })?;
            if span > MAX_OFFSET {
                return Err(format!("a read delay must be at most {MAX_OFFSET}"));
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
    "description": "Delays of the curve's reads after the acknowledgement",
    "pattern": "^ *(auto|none|[0-9].*)$",
    "examples": ["auto", "none", "0,100us,1ms"]
);

/// Loads that run concurrently during the rounds of one row of the table; written `none`, or loads with ` + `
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
    "description": "Loads that run concurrently, joined by ` + `, or none",
    "pattern": "^ *(none|.+:[0-9]+@.+) *$",
    "examples": ["none", "insert:8@primary", "insert:8@primary + select:4@replica1"]
);

/// Connections whose own reads are checked, written `WRITERS:READERS`; the readers are for each reader.
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

/// Reads that are checked in place of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedLoadReads {
    /// Those of the loads whose workloads name versions.
    Load,
    /// Those of connections that run Replimeter's workloads for this, `versioned-update` and `versioned-select`.
    Own(JudgedConnections),
}

/// Name of the loads' own reads.
const OF_THE_LOAD: &str = "load";

impl FromStr for CheckedLoadReads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OF_THE_LOAD {
            return Ok(Self::Load);
        }
        text.parse().map(Self::Own).map_err(|reason: String| {
            format!("{reason}; or `{OF_THE_LOAD}` for the reads of --load")
        })
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
    "description": "The loads' own reads, or numbers of connections that write and that read", "examples": ["load", "4:8"]
);

impl JudgedConnections {
    /// Returns them as loads.
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

/// In place of a load's server: every reader, each with this number of threads.
pub const READERS: &str = "readers";
