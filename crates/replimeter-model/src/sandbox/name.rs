//! Names of sandboxes: a shape, or a name while it is kept running.

use std::{fmt, str::FromStr};

use crate::{replication::Mode, shape::Shape};

/// The name of a sandbox that is kept running: letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SandboxName(String);

impl SandboxName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let valid = text.len() <= 32
            && text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if !valid {
            return Err(format!(
                "`{text}` is not a valid sandbox name; use up to 32 letters, digits, - and _, beginning with a letter"
            ));
        }
        if Mode::named(text).is_some() {
            return Err(format!(
                "`{text}` is a replication mode and cannot be a sandbox name"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(
    SandboxName,
    "description": "The name of a sandbox that is kept",
    "examples": ["work"]
);

/// Value of `--sandbox`: servers to start, or servers that are running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxRef {
    /// A shape to start.
    Shape(Shape),
    /// A sandbox that `sandbox up` keeps running.
    Running(SandboxName),
}

impl FromStr for SandboxRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Shape>() {
            Ok(shape) => Ok(Self::Shape(shape)),
            // A name has neither a colon nor a slash; a mode cannot be a name.
            Err(error) if text.contains([':', '/']) || text.is_empty() => Err(error.to_string()),
            Err(error) => text
                .parse()
                .map(Self::Running)
                .map_err(|_| error.to_string()),
        }
    }
}

impl fmt::Display for SandboxRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape(shape) => shape.fmt(f),
            Self::Running(name) => name.fmt(f),
        }
    }
}

serde_as_text!(
    SandboxRef,
    "description": "A sandbox's shape, or the name of a running one",
    "examples": ["async:1", "work"]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_names_and_shapes_are_distinguished() {
        assert!(matches!("work".parse(), Ok(SandboxRef::Running(_))));
        assert!(matches!("none".parse(), Ok(SandboxRef::Shape(_))));
        for text in ["async", "", "a/b", "ring:3", "1st", "a b"] {
            assert!(text.parse::<SandboxRef>().is_err(), "{text}");
        }
    }
}
