//! Shapes of sandboxes: `[ENGINE/]MODE:N`.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use crate::{engine::Engine, replication::Mode, suggest};

/// Maximum number of servers besides the first; more is treated as a typing mistake.
pub const MAX_REPLICAS: u32 = 64;
/// Maximum number of members of Group Replication (MySQL manual, "Group Replication Limitations").
pub const MAX_MEMBERS: u32 = 9;

/// How to choose the engine in such texts.
pub const CHOOSE_ENGINE: &str = "with mariadb/ or mysql/ in front to choose the engine";

impl Mode {
    /// Returns the numbers that may follow the colon.
    fn counts(self) -> RangeInclusive<u32> {
        match self {
            Self::None => 0..=0,
            Self::Async | Self::SemiSync | Self::Chain | Self::Galera => 1..=MAX_REPLICAS,
            Self::Group => 1..=MAX_MEMBERS,
        }
    }

    /// Returns the number in examples.
    fn usual_count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Async | Self::SemiSync | Self::Chain => 1,
            Self::Galera | Self::Group => 3,
        }
    }
}

/// The engine, mode and number of servers of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The requested engine; `None` for the best server found.
    engine: Option<Engine>,
    mode: Mode,
    /// Replicas, or members.
    count: u32,
}

/// Reason why a text is not a [`Shape`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShapeError {
    /// The word before the colon is not a known mode, or that before the slash no engine.
    #[error(
        "unknown sandbox shape `{0}`{hint}; known: none, async:N, semi-sync:N, chain:N (a primary and N replicas), galera:N (MariaDB) and group:N (MySQL) of N nodes, {CHOOSE_ENGINE}",
        hint = Shape::nearest(.0).map_or_else(String::new, |shape| format!(" (did you mean `{shape}`?)"))
    )]
    Unknown(String),
    /// The number is missing, out of range, or no number.
    #[error(
        "sandbox shape `{text}` requires a number from {low} to {high} after the colon, such as {example}"
    )]
    Count {
        /// The whole text.
        text: String,
        /// Smallest number.
        low: u32,
        /// Largest number.
        high: u32,
        /// The same engine and mode with a usual number.
        example: Shape,
    },
    /// A standalone server has no number.
    #[error(
        "sandbox shape `{0}`: none is a standalone server and takes no number; write none, or async:N for replicas"
    )]
    Lone(String),
    /// The engine has no such mode.
    #[error(
        "sandbox shape `{text}`: {product} has no {mode} mode; only {other} has it, as in {example}"
    )]
    Engine {
        /// The whole text.
        text: String,
        /// The requested engine.
        product: &'static str,
        /// The requested mode.
        mode: &'static str,
        /// The engine that has the mode.
        other: &'static str,
        /// The same mode on that engine.
        example: Shape,
    },
}

impl Shape {
    /// Returns the engine it requires; `None` for the best server found.
    #[must_use]
    pub fn engine(self) -> Option<Engine> {
        self.engine.or(self.mode.only_engine())
    }

    /// Returns the shape of this engine and mode, with this number of replicas or members; 0 for a standalone server.
    ///
    /// # Errors
    /// When the engine has no such mode, or the mode does not allow the number.
    pub fn new(engine: Option<Engine>, mode: Mode, count: u32) -> Result<Self, ShapeError> {
        let shape = Self {
            engine,
            mode,
            count,
        };
        shape.checked(&shape.to_string())
    }

    /// Returns the shape, if its text can be one.
    fn checked(self, text: &str) -> Result<Self, ShapeError> {
        let usual = Self {
            count: self.mode.usual_count(),
            ..self
        };
        if let (Some(engine), Some(only)) = (self.engine, self.mode.only_engine())
            && engine != only
        {
            return Err(ShapeError::Engine {
                text: text.to_owned(),
                product: engine.product(),
                mode: self.mode.name(),
                other: only.product(),
                example: Self {
                    engine: None,
                    ..usual
                },
            });
        }
        let counts = self.mode.counts();
        if !counts.contains(&self.count) {
            return Err(ShapeError::Count {
                text: text.to_owned(),
                low: *counts.start(),
                high: *counts.end(),
                example: usual,
            });
        }
        Ok(self)
    }

    /// Returns the shape that a misspelled text probably stands for, however its engine, mode and number are
    /// separated; a missing or impossible number becomes a usual one.
    #[must_use]
    pub fn nearest(text: &str) -> Option<Self> {
        let text = text.to_lowercase();
        let words = text.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let count = text[words.len()..].parse().ok();
        let words = words.trim_end_matches(|letter: char| !letter.is_alphanumeric());
        let first = words.split_once(['/', ':', '-', '_', ' ']);
        let engine = first.and_then(|(word, _)| {
            Engine::named(suggest::nearest(word, Engine::ALL.map(Engine::name))?)
        });
        let word = match first {
            Some((_, rest)) if engine.is_some() => rest,
            _ => words.rsplit('/').next().unwrap_or(words),
        };
        let mode = Mode::named(suggest::nearest(word, Mode::ALL.map(Mode::name))?)?;
        Some(Self {
            engine: engine.filter(|engine| mode.only_engine().is_none_or(|only| only == *engine)),
            mode,
            count: count
                .filter(|count| mode.counts().contains(count))
                .unwrap_or(mode.usual_count()),
        })
    }

    /// Returns its replication mode.
    #[must_use]
    pub fn mode(self) -> Mode {
        self.mode
    }

    /// Returns its number of servers.
    #[must_use]
    pub fn servers(self) -> u32 {
        if self.mode.has_members() {
            self.count
        } else {
            self.count + 1
        }
    }
}

/// Splits off the engine of a text such as `mysql/async:1`; `None` when no engine has that name.
#[must_use]
pub fn split_engine(text: &str) -> Option<(Option<Engine>, &str)> {
    match text.split_once('/') {
        Some((name, rest)) => Some((Some(Engine::named(name)?), rest)),
        None => Some((None, text)),
    }
}

/// Returns the form of a shape for a help text, with those modes that a command accepts.
#[must_use]
pub fn form(accepts: fn(Mode) -> bool) -> String {
    let engines = Engine::ALL.map(|engine| format!("{}/", engine.name()));
    let modes = Mode::ALL.into_iter().filter(|mode| accepts(*mode));
    let modes: Vec<String> = modes
        .map(|mode| match mode {
            Mode::None => mode.name().to_owned(),
            mode => format!("{}:N", mode.name()),
        })
        .collect();
    let modes = match modes.split_last() {
        Some((last, [])) => format!("mode {last}"),
        Some((last, others)) => format!("modes {} and {last}", others.join(", ")),
        None => String::new(),
    };
    format!(
        "A shape is `[{}]MODE:N` with the {modes}",
        engines.join("|")
    )
}

/// Returns the pattern of such texts, given that of what follows the engine.
#[must_use]
pub fn pattern(rest: &str) -> String {
    let engines = Engine::ALL.map(Engine::name).join("|");
    format!("^(({engines})/)?{rest}$")
}

/// Returns a member's name in reports, counted from 0.
#[must_use]
pub fn node_name(index: usize) -> String {
    format!("node{}", index + 1)
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let unknown = || ShapeError::Unknown(text.to_owned());
        let (engine, shape) = split_engine(text).ok_or_else(unknown)?;
        let (word, count) = match shape.split_once(':') {
            Some((mode, count)) => (mode, Some(count)),
            None => (shape, None),
        };
        let mode = Mode::named(word).ok_or_else(unknown)?;
        if mode == Mode::None && count.is_some() {
            return Err(ShapeError::Lone(text.to_owned()));
        }
        // A mode that requires a number does not allow 0.
        let count = count
            .filter(|count| count.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|count| count.parse().ok())
            .unwrap_or(0);
        Self {
            engine,
            mode,
            count,
        }
        .checked(text)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(engine) = self.engine {
            write!(f, "{}/", engine.name())?;
        }
        match self.mode {
            Mode::None => f.write_str("none"),
            mode => write!(f, "{}:{}", mode.name(), self.count),
        }
    }
}

serde_as_text!(
    Shape,
    "description": "A sandbox's shape: [ENGINE/]MODE:N",
    "pattern": pattern("(none|(async|semi-sync|chain|galera|group):[0-9]+)"),
    "examples": ["async:1", "semi-sync:2", "chain:2", "galera:3", "mysql/group:3", "none"]
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(text: &str) -> Shape {
        text.parse().unwrap()
    }

    #[test]
    fn every_shape_prints_and_parses_back() {
        for text in [
            "none",
            "mysql/none",
            "async:2",
            "mariadb/async:1",
            "semi-sync:1",
            "chain:3",
            "galera:3",
            "mysql/group:9",
        ] {
            assert_eq!(shape(text).to_string(), text);
        }
    }

    #[test]
    fn server_names_follow_the_mode() {
        assert_eq!(shape("none").nodes(), ["primary"]);
        assert_eq!(
            shape("chain:2").nodes(),
            ["primary", "replica1", "replica2"]
        );
        assert_eq!(shape("galera:3").nodes(), ["node1", "node2", "node3"]);
    }

    #[test]
    fn single_engine_modes_imply_their_engine() {
        assert_eq!(shape("galera:3").engine(), Some(Engine::MariaDb));
        assert_eq!(shape("group:3").engine(), Some(Engine::MySql));
        assert_eq!(shape("async:1").engine(), None);
        for text in ["mysql/galera:3", "mariadb/group:3"] {
            assert!(
                matches!(text.parse::<Shape>(), Err(ShapeError::Engine { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn unknown_modes_and_counts_are_refused() {
        for text in [
            "ring:3",
            "",
            "oracle/async:1",
            "mysql/",
            "Async:1",
            "fan-in:2",
        ] {
            assert!(
                matches!(text.parse::<Shape>(), Err(ShapeError::Unknown(_))),
                "{text}"
            );
        }
        for text in [
            "async",
            "async:",
            "async:-1",
            "async:+1",
            "async:1.5",
            "async:0",
            "async:65",
            "async:99999999999",
            "group:10",
            "chain:0",
        ] {
            assert!(
                matches!(text.parse::<Shape>(), Err(ShapeError::Count { .. })),
                "{text}"
            );
        }
        assert!(matches!(
            "none:1".parse::<Shape>(),
            Err(ShapeError::Lone(_))
        ));
    }

    #[test]
    fn error_of_a_shape_names_the_right_form() {
        for (text, want) in [
            ("semisync:1", "did you mean `semi-sync:1`?"),
            ("postgres/async:1", "did you mean `async:1`?"),
            ("mysql:async:1", "did you mean `mysql/async:1`?"),
            ("maria/asnyc:2", "did you mean `mariadb/async:2`?"),
            ("mysql_semi_sync:2", "did you mean `mysql/semi-sync:2`?"),
            ("mysql-galera:3", "did you mean `galera:3`?"),
            ("async-1", "did you mean `async:1`?"),
            ("Galera", "did you mean `galera:3`?"),
            (
                "mysql/async",
                "from 1 to 64 after the colon, such as mysql/async:1",
            ),
            ("galera", "such as galera:3"),
            ("group:0", "from 1 to 9 after the colon, such as group:3"),
            ("mysql/galera:3", "only MariaDB has it, as in galera:3"),
            ("none:1", "write none"),
            ("ring:3", "`ring:3`; known: none, async:N"),
        ] {
            let error = text.parse::<Shape>().unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((mysql|mariadb)/)?(async|group|galera|none)?:?\\PC{0,12}") {
            let _ = Shape::nearest(&text);
            if let Ok(shape) = text.parse::<Shape>() {
                prop_assert_eq!(shape.to_string().parse::<Shape>(), Ok(shape));
            }
        }
    }
}
