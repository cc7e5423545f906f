//! Reads workloads: ours by their names, and files.

use std::sync::Arc;

use replimeter_model::load::Size;

use super::{
    file,
    script::Script,
    split::ScriptError,
    workload::{Inner, Operation, Step, Workload},
};

impl Workload {
    /// The text of one of ours, and the ending that says how it is read.
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

    /// One of ours ([`BUILT_IN`](replimeter_model::load::BUILT_IN)).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (ending, text) = Self::built_in(name)?;
        // A test reads every one of them.
        let inner = inner(ending == "toml", text).ok()?;
        Some(Self {
            name: name.to_owned(),
            inner: Arc::new(inner),
        })
    }

    /// A workload from its file: TOML by its name's ending `.toml`, otherwise a script
    /// of statements.
    ///
    /// # Errors
    /// With the line that cannot be understood.
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

/// Reads a workload in TOML, or a script of statements.
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
        size: Size::Rows(0),
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
    fn ours_are_workloads() {
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
