//! Values of the settings of `scale`.

use std::{fmt, str::FromStr};

use replimeter_model::{
    engine::Engine,
    replication::Mode,
    serde_as_text,
    shape::{CHOOSE_ENGINE, MAX_REPLICAS, Shape, ShapeError, pattern, split_engine},
    suggest, words,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Numbers of replicas: `0..4`, or `0,1,2,4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaCounts(pub(super) Vec<u32>);

impl ReplicaCounts {
    /// Ascending, each once.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.0
    }

    /// Returns the largest.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.0.last().copied().unwrap_or(0)
    }
}

impl FromStr for ReplicaCounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` is not a list of numbers of replicas; write 0..4, or several with commas, up to {MAX_REPLICAS}"
            )
        };
        let number = |text: &str| {
            let text = text.trim();
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .then(|| text.parse::<u32>().ok())
                .flatten()
                .filter(|number| *number <= MAX_REPLICAS)
                .ok_or_else(refuse)
        };
        let mut counts = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => counts.push(number(part)?),
                Some((low, high)) => {
                    let (low, high) = (number(low)?, number(high)?);
                    if low > high {
                        return Err(format!("`{text}` is descending; write {high}..{low}"));
                    }
                    counts.extend(low..=high);
                }
            }
        }
        counts.sort_unstable();
        counts.dedup();
        Ok(Self(counts))
    }
}

impl fmt::Display for ReplicaCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut first = true;
        while let Some(low) = rest.first() {
            let run = (0u32..)
                .zip(rest)
                .take_while(|(step, count)| low + step == **count)
                .count();
            f.write_str(if first { "" } else { "," })?;
            first = false;
            match run {
                1 | 2 => write!(f, "{low}")?,
                _ => write!(f, "{low}..{}", rest[run - 1])?,
            }
            rest = &rest[if run > 2 { run } else { 1 }..];
        }
        Ok(())
    }
}

serde_as_text!(
    ReplicaCounts,
    "description": "Numbers of replicas: a range, or several with commas",
    "pattern": "^[0-9., ]+$",
    "examples": ["0..2", "0,1,2,4"]
);

/// How the replicas replicate: `[mariadb/|mysql/]async|semi-sync|chain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleMode {
    pub(super) engine: Option<Engine>,
    pub(super) mode: Mode,
}

impl ScaleMode {
    /// Replication mode.
    #[must_use]
    pub fn mode(self) -> Mode {
        self.mode
    }

    /// Returns the sandbox with this number of replicas; for 0 a primary with its binary
    /// log on.
    ///
    /// # Errors
    /// When no such shape exists.
    pub fn shape(self, replicas: u32) -> Result<Shape, ShapeError> {
        let mode = if replicas == 0 { Mode::None } else { self.mode };
        Shape::new(self.engine, mode, replicas)
    }
}

impl FromStr for ScaleMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "unknown replication mode of read replicas `{text}`{}; known: async, semi-sync, chain, {CHOOSE_ENGINE}",
                suggest::hint(text, ["async", "semi-sync", "chain"])
            )
        };
        let (engine, word) = split_engine(text).ok_or_else(unknown)?;
        let mode = Mode::named(word).ok_or_else(unknown)?;
        match Shape::new(engine, mode, 1) {
            Ok(_) if mode.has_members() => Err(format!(
                "`{text}` has no read replicas: every member takes part in every write; known: async, semi-sync, chain"
            )),
            Ok(_) => Ok(Self { engine, mode }),
            Err(_) => Err(unknown()),
        }
    }
}

impl fmt::Display for ScaleMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(engine) = self.engine {
            write!(f, "{}/", engine.name())?;
        }
        f.write_str(self.mode.name())
    }
}

serde_as_text!(
    ScaleMode,
    "description": "How the replicas replicate: [ENGINE/]MODE",
    "pattern": pattern("(async|semi-sync|chain)"),
    "examples": ["async", "semi-sync", "chain"]
);

words! {
    /// Operations of a block.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum ScalePhase {
        /// Inserts alone.
        Insert = "insert",
        /// Selects alone.
        Select = "select",
        /// Inserts and selects at once.
        Mixed = "mixed",
        /// Updates alone.
        Update = "update",
        /// Updates and selects at once.
        MixedUpdate = "mixed-update",
    }
}

impl ScalePhase {
    /// Returns whether it writes, and whether by updates.
    #[must_use]
    pub fn writes(self) -> Option<bool> {
        match self {
            Self::Insert | Self::Mixed => Some(false),
            Self::Update | Self::MixedUpdate => Some(true),
            Self::Select => None,
        }
    }

    /// Returns whether it reads.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::Select | Self::Mixed | Self::MixedUpdate)
    }
}
