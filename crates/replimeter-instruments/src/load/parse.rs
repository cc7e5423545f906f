//! Reads workloads: built-in ones by name, and files.

use std::sync::Arc;

use replimeter_model::load::DataSize;

use super::{
    file,
    script::Script,
    split::ScriptError,
    workload::{Inner, Operation, Step, Workload},
};

impl Workload {
    /// Returns the text of a built-in workload, and the file extension that selects its parser.
    #[must_use]
    pub fn built_in(name: &str) -> Option<(&'static str, &'static str)> {
        Some(match name {
            "insert" => ("toml", include_str!("../../../../loads/insert.toml")),
            "mix" => ("sql", include_str!("../../../../loads/mix.sql")),
            "select" => ("toml", include_str!("../../../../loads/select.toml")),
            "post-insert" => ("toml", include_str!("../../../../loads/post-insert.toml")),
            "point-select" => ("toml", include_str!("../../../../loads/point-select.toml")),
            "oltp-mix" => ("toml", include_str!("../../../../loads/oltp-mix.toml")),
            "update-key" => ("toml", include_str!("../../../../loads/update-key.toml")),
            "big-update" => ("toml", include_str!("../../../../loads/big-update.toml")),
            "versioned" => ("toml", include_str!("../../../../loads/versioned.toml")),
            "versioned-update" => (
                "toml",
                include_str!("../../../../loads/versioned-update.toml"),
            ),
            "versioned-select" => (
                "toml",
                include_str!("../../../../loads/versioned-select.toml"),
            ),
            _ => return None,
        })
    }

    /// Returns a built-in workload ([`BUILT_IN`](replimeter_model::load::BUILT_IN)).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (ending, text) = Self::built_in(name)?;
        // A test reads every built-in workload.
        let inner = inner(ending == "toml", text).ok()?;
        Some(Self {
            name: name.to_owned(),
            inner: Arc::new(inner),
        })
    }

    /// Returns whether it is one of Replimeter's own, which no user can correct.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        Self::built_in(&self.name).is_some()
    }

    /// Parses a workload file: TOML if the name ends with `.toml`, otherwise a script of statements.
    ///
    /// # Errors
    /// A syntax error, with its line.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScriptError> {
        let toml = name
            .rsplit_once('.')
            .is_some_and(|(_, ending)| ending.eq_ignore_ascii_case("toml"));
        Ok(Self {
            name: name.to_owned(),
            inner: Arc::new(inner(toml, text)?),
        })
    }
}

/// Parses a workload in TOML, or a script of statements.
fn inner(toml: bool, text: &str) -> Result<Inner, ScriptError> {
    if toml {
        return file::parse(text);
    }
    let script = Script::parse(text)?;
    let operation = Operation {
        name: String::new(),
        weight: 1,
        transaction: false,
        shared: Vec::new(),
        steps: script.run.into_iter().map(Step::Words).collect(),
    };
    Ok(Inner {
        tables: Vec::new(),
        size: DataSize::Rows(0),
        setup: script.setup,
        operations: vec![operation],
        teardown: script.teardown,
    })
}

#[cfg(test)]
mod tests {
    use replimeter_model::load::BUILT_IN;

    use super::*;

    #[test]
    fn built_in_workloads_are_valid() {
        for name in BUILT_IN {
            let (ending, text) = Workload::built_in(name).unwrap();
            if let Err(error) = Workload::parse(&format!("{name}.{ending}"), text) {
                panic!("{name}: {error}");
            }
            let workload = Workload::named(name).unwrap();
            assert!(workload.needs_setup(), "{name}");
        }
        assert!(Workload::named("another").is_none());
    }
}
