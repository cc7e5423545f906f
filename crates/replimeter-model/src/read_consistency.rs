//! How reads wait for acknowledged writes.

use std::str::FromStr;

use crate::suggest;

words! {
    /// Way in which a read waits until acknowledged writes are visible.
    #[derive(Default)]
    pub enum ReadConsistency {
        /// No wait.
        #[default]
        Off = "off",
        /// The server's own mechanism: the reader waits.
        On = "on",
        /// The reader waits (`wsrep_sync_wait`, `group_replication_consistency=BEFORE`).
        Before = "before",
        /// The writer waits (`group_replication_consistency=AFTER`).
        After = "after",
        /// Both wait (`BEFORE_AND_AFTER`).
        BeforeAndAfter = "before-and-after",
        /// The client waits for the write's commit on the reader's connection, by its id, before the read.
        Commit = "gtid",
    }
}

impl FromStr for ReadConsistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::name);
        Self::named(text).ok_or_else(|| {
            format!(
                "unknown read consistency `{text}`{}; known: {}",
                suggest::hint(text, known),
                known.join(", ")
            )
        })
    }
}

serde_as_text!(
    ReadConsistency,
    "description": "How reads wait for acknowledged writes",
    "enum": ["off", "on", "before", "after", "before-and-after", "gtid"]
);
