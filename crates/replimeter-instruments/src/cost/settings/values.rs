//! Values of the settings of `cost`.

use std::{fmt, str::FromStr};

use replimeter_engine::dialect::settings::{FLUSHES_LATER, FLUSHES_LOGS};
use replimeter_model::{
    engine::Engine,
    one_of,
    replication::Mode,
    serde_as_text,
    shape::{CHOOSE_ENGINE, Shape, ShapeError, pattern, split_engine},
    suggest,
};

/// What `cost` compares: a replication mode, or a standalone server with or without a binary log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoggedMode {
    /// The replication mode; never a chain.
    pub mode: Mode,
    /// Whether there is a binary log; always if the mode has replicas or members.
    pub binary_log: bool,
}

impl LoggedMode {
    /// A standalone server without a binary log: the baseline.
    pub const NONE: Self = Self {
        mode: Mode::None,
        binary_log: false,
    };
    /// A standalone server with its binary log on.
    pub const LOGGED: Self = Self::of(Mode::None);
    /// All of them, in the order of their expected cost.
    pub const ALL: [Self; 6] = [
        Self::NONE,
        Self::LOGGED,
        Self::of(Mode::Async),
        Self::of(Mode::SemiSync),
        Self::of(Mode::Galera),
        Self::of(Mode::Group),
    ];

    /// Returns the mode with a binary log.
    #[must_use]
    pub const fn of(mode: Mode) -> Self {
        Self {
            mode,
            binary_log: true,
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self == Self::LOGGED {
            "binlog"
        } else {
            self.mode.name()
        }
    }

    /// Returns whether it has servers besides the one that is written to.
    #[must_use]
    pub fn replicates(self) -> bool {
        self.mode != Mode::None
    }

    /// Returns the mode that it is built on: the binary log on none, replicas on the
    /// binary log, the wait on replicas.
    #[must_use]
    pub fn built_on(self) -> Option<Self> {
        match self.mode {
            Mode::None => self.binary_log.then_some(Self::NONE),
            // Nodes of a sandbox's cluster have their binary log on.
            Mode::Async | Mode::Galera | Mode::Group => Some(Self::LOGGED),
            Mode::SemiSync | Mode::Chain => Some(Self::of(Mode::Async)),
        }
    }
}

impl FromStr for LoggedMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| format!("unknown mode `{text}`"))
    }
}

impl fmt::Display for LoggedMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

serde_as_text!(LoggedMode, "description": "A replication mode, none or binlog");

/// A mode as text: `[ENGINE/]MODE[:N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostMode {
    /// The requested engine; the best server found when `None`.
    pub engine: Option<Engine>,
    /// The mode.
    pub kind: LoggedMode,
    /// Number of replicas or members; the plan's default when `None`.
    pub count: Option<u32>,
}

impl CostMode {
    /// Returns the engine it requires, if any.
    #[must_use]
    pub fn engine(self) -> Option<Engine> {
        self.engine.or(self.kind.mode.only_engine())
    }

    /// Returns its sandbox; modes without a number have this number of replicas.
    ///
    /// # Errors
    /// When there is no such sandbox.
    pub fn shape(self, replicas: u32) -> Result<Shape, ShapeError> {
        let mode = self.kind.mode;
        let usual = replicas.saturating_add(u32::from(mode.has_members()));
        let count = self.count.unwrap_or(usual);
        let count = if self.kind.replicates() { count } else { 0 };
        Shape::new(self.engine, mode, count)
    }
}

impl FromStr for CostMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            let known: Vec<&str> = LoggedMode::ALL.iter().map(|kind| kind.name()).collect();
            format!(
                "unknown mode `{text}`{}; known: {}, {CHOOSE_ENGINE}, and :N after the mode",
                suggest::hint(word_of(text), known.iter().copied()),
                known.join(", ")
            )
        };
        let (engine, rest) = split_engine(text).ok_or_else(unknown)?;
        let (word, count) = rest
            .split_once(':')
            .map_or((rest, None), |(word, count)| (word, Some(count)));
        let kind: LoggedMode = word.parse().map_err(|_| unknown())?;
        if count.is_some() && !kind.replicates() {
            return Err(format!(
                "`{text}`: {} is a standalone server and takes no number",
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
        // Rejects impossible sandboxes here, with the sandbox's own message.
        mode.shape(1)
            .map(|_| mode)
            .map_err(|error| error.to_string())
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
    "pattern": pattern("(none|binlog|async|semi-sync|galera|group)(:[0-9]+)?"),
    "examples": ["none", "async", "mysql/semi-sync:2"]
);

/// The modes to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostModes {
    /// All modes that the servers found here support.
    All,
    /// These modes; an unavailable one is an error.
    Named(Vec<CostMode>),
}

impl CostModes {
    /// Returns the modes, each once.
    #[must_use]
    pub fn list(&self) -> Vec<CostMode> {
        match self {
            Self::All => LoggedMode::ALL
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
    "description": "Modes of replication with commas between them, each as MODE, MODE:N or ENGINE/MODE:N; or all that the servers found support",
    "examples": ["all", "none,binlog,async,semi-sync", "mysql/async,mysql/group:3"]
);

one_of! {
    /// Durability of an acknowledged commit, the same for all modes.
    #[derive(Default)]
    pub enum Durability {
        /// innodb_flush_log_at_trx_commit=2, sync_binlog=0
        #[default]
        Relaxed = "relaxed",
        /// innodb_flush_log_at_trx_commit=1, sync_binlog=1
        Strict = "strict",
        /// No setting is changed
        ServerDefault = "server-default",
    }
}

impl Durability {
    /// Returns the server options for it.
    #[must_use]
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::Relaxed => &FLUSHES_LATER,
            Self::Strict => &FLUSHES_LOGS,
            Self::ServerDefault => &[],
        }
    }
}

/// Returns the mode's name in `[ENGINE/]MODE[:N]`.
fn word_of(text: &str) -> &str {
    let rest = text.rsplit('/').next().unwrap_or(text);
    rest.split(':').next().unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn modes_are_parsed_by_name() {
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
    fn mode_lists_are_parsed() {
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
        assert_eq!(CostModes::All.list().len(), LoggedMode::ALL.len());
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
