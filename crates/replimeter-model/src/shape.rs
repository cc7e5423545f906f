//! Shapes of sandboxes: `[ENGINE/]MODE:N`.

use std::{fmt, str::FromStr};

use crate::engine::Engine;

/// The most replicas a sandbox may have; more is taken for a typing mistake.
pub const MOST_REPLICAS: u32 = 64;

/// What a sandbox consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A primary and so many asynchronous replicas (`async:N`, N ≥ 0).
    Async {
        /// Which family; the best server found when `None`.
        engine: Option<Engine>,
        /// How many replicas.
        replicas: u32,
    },
}

/// Why a text is no [`Shape`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShapeError {
    /// The word before the colon names no known mode.
    #[error(
        "unknown sandbox shape `{0}`; known: async:N (a primary and N replicas, such as async:1), with mariadb/ or mysql/ in front to choose the engine"
    )]
    Unknown(String),
    /// The number of replicas is missing, negative, or no number.
    #[error("sandbox shape `{0}` needs a number of replicas from 0 to {MOST_REPLICAS} after the colon, such as async:1")]
    Count(String),
}

impl Shape {
    /// How many replicas the shape has.
    #[must_use]
    pub fn replicas(self) -> u32 {
        let Self::Async { replicas, .. } = self;
        replicas
    }

    /// The engine asked for; `None` for the best found.
    #[must_use]
    pub fn engine(self) -> Option<Engine> {
        let Self::Async { engine, .. } = self;
        engine
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let (engine, shape) = match text.split_once('/') {
            Some(("mariadb", shape)) => (Some(Engine::MariaDb), shape),
            Some(("mysql", shape)) => (Some(Engine::MySql), shape),
            Some(_) => return Err(ShapeError::Unknown(text.to_owned())),
            None => (None, text),
        };
        let (mode, count) = match shape.split_once(':') {
            Some((mode, count)) => (mode, Some(count)),
            None => (shape, None),
        };
        if mode != "async" {
            return Err(ShapeError::Unknown(text.to_owned()));
        }
        let replicas = count
            .filter(|count| !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|count| count.parse().ok())
            .filter(|count| *count <= MOST_REPLICAS)
            .ok_or_else(|| ShapeError::Count(text.to_owned()))?;
        Ok(Self::Async { engine, replicas })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Async { engine, replicas } = self;
        if let Some(engine) = engine {
            write!(f, "{}/", engine.name())?;
        }
        write!(f, "async:{replicas}")
    }
}

serde_as_text!(Shape);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_async_with_and_without_engine() {
        assert_eq!("async:2".parse(), Ok(Shape::Async { engine: None, replicas: 2 }));
        assert_eq!("mysql/async:0".parse(), Ok(Shape::Async { engine: Some(Engine::MySql), replicas: 0 }));
        for text in ["async:2", "mariadb/async:0"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_unknown_modes_and_counts() {
        for text in ["ring:3", "", "oracle/async:1", "mysql/", "galera:3"] {
            assert!(matches!(text.parse::<Shape>(), Err(ShapeError::Unknown(_))), "{text}");
        }
        for text in ["async", "async:", "async:-1", "async:+1", "async:1.5", "async:65", "async:99999999999"] {
            assert!(matches!(text.parse::<Shape>(), Err(ShapeError::Count(_))), "{text}");
        }
    }
}
