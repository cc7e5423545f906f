//! How reads wait for acknowledged writes.

use std::{fmt, str::FromStr};

use crate::suggest;

/// Way in which a read waits until acknowledged writes are visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadConsistency {
    /// No wait.
    #[default]
    Off,
    /// The server's own mechanism: the reader waits.
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
    /// All ways.
    pub const ALL: [Self; 6] = [
        Self::Off,
        Self::On,
        Self::Before,
        Self::After,
        Self::BeforeAndAfter,
        Self::Gtid,
    ];

    /// Returns the name in plans and reports.
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
                    "unknown read consistency `{text}`{}; known: {}",
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
    "description": "How reads wait for acknowledged writes",
    "enum": ["off", "on", "before", "after", "before-and-after", "gtid"]
);
