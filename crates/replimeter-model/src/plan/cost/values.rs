//! Values of the settings of `cost`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{engine::Engine, shape::Shape, suggest};

/// Replication modes that `cost` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostKind {
    /// A standalone server without a binary log: the baseline.
    None,
    /// A standalone server with its binary log on.
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
    /// All modes, in the order of their expected cost.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::Binlog,
        Self::Async,
        Self::SemiSync,
        Self::Galera,
        Self::Group,
    ];

    /// Returns its name.
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

    /// Returns whether it has servers besides the one that is written to.
    #[must_use]
    pub fn replicates(self) -> bool {
        !matches!(self, Self::None | Self::Binlog)
    }

    /// Returns whether its servers are equal members.
    #[must_use]
    pub fn has_members(self) -> bool {
        matches!(self, Self::Galera | Self::Group)
    }

    /// Returns the only engine that has it.
    #[must_use]
    pub fn only_engine(self) -> Option<Engine> {
        match self {
            Self::Galera => Some(Engine::MariaDb),
            Self::Group => Some(Engine::MySql),
            _ => None,
        }
    }

    /// Returns the mode that it is built on: the binary log on none, replicas on the
    /// binary log, the wait on replicas.
    #[must_use]
    pub fn built_on(self) -> Option<Self> {
        match self {
            Self::None => None,
            Self::Binlog => Some(Self::None),
            // Nodes of a sandbox's cluster have their binary log on.
            Self::Async | Self::Galera | Self::Group => Some(Self::Binlog),
            Self::SemiSync => Some(Self::Async),
        }
    }
}

/// A mode as text: `[ENGINE/]MODE[:N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostMode {
    /// The requested engine; the best server found when `None`.
    pub engine: Option<Engine>,
    /// The mode.
    pub kind: CostKind,
    /// Number of replicas or members; the plan's default when `None`.
    pub count: Option<u32>,
}

impl CostMode {
    /// Returns the engine it requires, if any.
    #[must_use]
    pub fn engine(self) -> Option<Engine> {
        self.engine.or(self.kind.only_engine())
    }

    /// Returns its sandbox; modes without a number have this number of replicas.
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
                "unknown mode `{text}`{}; known: {}, optionally with mariadb/ before and :N after the mode",
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
            // 2 and 0, as in experiment 5.
            Self::Relaxed => &["innodb_flush_log_at_trx_commit=2", "sync_binlog=0"],
            Self::Strict => &["innodb_flush_log_at_trx_commit=1", "sync_binlog=1"],
            Self::ServerDefault => &[],
        }
    }
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
