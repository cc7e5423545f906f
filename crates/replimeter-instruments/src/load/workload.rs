//! A workload: its data and the operations of its threads.

use std::sync::Arc;

use replimeter_engine::Session;
use replimeter_model::load::DataSize;

use super::{
    OPERATION,
    script::{Template, excerpt},
    value::Source,
};
use crate::MeasureError;

/// Maximum bytes of a workload file; larger ones are not written by hand.
pub const MAX_FILE_SIZE: u64 = 1 << 20;
/// Approximate bytes that InnoDB adds to a row: its header, the transaction number and the roll
/// pointer.
const ROW_OVERHEAD: u64 = 20;
/// InnoDB fills pages to fifteen sixteenths.
const PAGE_FILL: f64 = 15.0 / 16.0;

/// A workload with its name, ready to run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The name that the user gave.
    pub name: String,
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Inner {
    /// Tables to create and to fill.
    pub(super) tables: Vec<Table>,
    /// Default size of the data.
    pub(super) size: DataSize,
    /// Statements that a script runs once before the load.
    pub(super) setup: Vec<Template>,
    /// Operations, at least one.
    pub(super) operations: Vec<Operation>,
    /// Statements that a script runs once afterwards, also after errors.
    pub(super) teardown: Vec<Template>,
}

/// A table of the data set.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    /// The definition without a comment, which Replimeter adds.
    pub(super) create: String,
    /// Sources of the rows; empty for a table that begins empty.
    pub(super) columns: Vec<(String, Source)>,
    /// Statements to run after the rows were inserted.
    pub(super) after: Vec<String>,
    /// Approximate bytes of a row on disk.
    pub(super) row_bytes: u64,
    pub(super) line: usize,
}

impl PartialEq for Table {
    /// Returns whether both create the same rows, wherever they are defined.
    fn eq(&self, other: &Self) -> bool {
        let of = |table: &Self| {
            (
                table.name.clone(),
                table.create.clone(),
                table.columns.clone(),
                table.after.clone(),
            )
        };
        of(self) == of(other)
    }
}

impl Table {
    /// Returns the approximate bytes of a row on disk, estimated from its columns.
    pub(super) fn estimate(columns: &[(String, Source)]) -> u64 {
        let values: u64 = columns.iter().map(|(_, source)| source.bytes()).sum();
        ((values + ROW_OVERHEAD) as f64 / PAGE_FILL) as u64
    }
}

/// What a thread repeats.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operation {
    pub(super) name: String,
    /// Frequency in relation to the weights of the other operations.
    pub(super) weight: u64,
    /// Whether its statements are one transaction.
    pub(super) transaction: bool,
    /// Values that its statements share, drawn once per pass.
    pub(super) shared: Vec<Source>,
    pub(super) steps: Vec<Step>,
}

/// A statement of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// A statement of a script: text with placeholders.
    Words(Template),
    /// A prepared statement with parameters.
    Prepared(Statement),
}

/// A prepared statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    /// The text, with `?` for each parameter.
    pub(super) sql: String,
    /// The source of each parameter.
    pub(super) parameters: Vec<Parameter>,
    /// Number of executions in a row.
    pub(super) repeat: u32,
    /// Its line in the file.
    pub(super) line: usize,
    /// The parameter that is the number of the row whose version it writes or reads.
    pub(super) version_of: Option<usize>,
}

impl Statement {
    /// Returns how it uses a row's version, if it does.
    pub(super) fn version(&self) -> Option<Version> {
        let row = self.version_of?;
        let reads = self
            .sql
            .trim_start()
            .get(..6)
            .is_some_and(|word| word.eq_ignore_ascii_case("SELECT"));
        Some(if reads {
            Version::Read(row)
        } else {
            Version::Written(row)
        })
    }
}

/// How a statement uses the version of a row, whose number is the given parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Reads the version: the first value of the first row.
    Read(usize),
    /// Writes the version, which is its `LAST_INSERT_ID(…)`.
    Written(usize),
}

/// Source of a parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Parameter {
    Drawn(Source),
    /// The same value as an earlier parameter of the statement.
    Same(usize),
    /// A shared value of the operation.
    Shared(usize),
}

impl Step {
    pub(super) fn line(&self) -> usize {
        match self {
            Self::Words(template) => template.line,
            Self::Prepared(statement) => statement.line,
        }
    }

    /// Returns its beginning, for messages.
    pub(super) fn excerpt(&self) -> String {
        match self {
            Self::Words(template) => template.excerpt(),
            Self::Prepared(statement) => excerpt(&statement.sql),
        }
    }

    fn repeat(&self) -> u64 {
        match self {
            Self::Words(_) => 1,
            Self::Prepared(statement) => u64::from(statement.repeat),
        }
    }

    /// Returns whether it certainly changes nothing.
    pub(super) fn reads(&self) -> bool {
        let text = match self {
            Self::Words(template) => template.literal(),
            Self::Prepared(statement) => statement.sql.clone(),
        };
        let word = text
            .trim_start()
            .split(|byte: char| !byte.is_ascii_alphabetic())
            .next()
            .unwrap_or_default()
            .to_ascii_uppercase();
        let harmless = [
            "SELECT", "SHOW", "DO", "BEGIN", "START", "COMMIT", "ROLLBACK", "EXPLAIN", "VALUES",
        ];
        harmless.contains(&word.as_str()) && !text.to_ascii_uppercase().contains("FOR UPDATE")
    }
}

impl Operation {
    /// Returns the statements per pass, including those of its transaction.
    pub(super) fn statements(&self) -> u64 {
        self.steps.iter().map(Step::repeat).sum::<u64>() + if self.transaction { 2 } else { 0 }
    }
}

impl Workload {
    /// Returns whether it certainly only reads, and so may run on a replica.
    #[must_use]
    pub fn reads_only(&self) -> bool {
        self.inner
            .operations
            .iter()
            .flat_map(|operation| &operation.steps)
            .all(Step::reads)
    }

    /// Returns whether it is a file of the user, whose statements have the server's defaults.
    #[must_use]
    pub fn is_of_user(&self) -> bool {
        Self::built_in(&self.name).is_none()
    }

    /// Calls `work`, which runs statements of this script, with a session that has the settings for them.
    ///
    /// # Errors
    /// Those of `work`, and when the connection breaks.
    pub(super) fn with_settings<T>(
        &self,
        session: &mut Session,
        work: impl FnOnce(&mut Session) -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        if !self.is_of_user() {
            return work(session);
        }
        session.use_server_defaults(OPERATION)?;
        let done = work(session);
        let restored = session.restore_settings(OPERATION);
        let done = done?;
        restored?;
        Ok(done)
    }

    fn statement_with(&self, wanted: fn(Version) -> bool) -> Option<&str> {
        let steps = self
            .inner
            .operations
            .iter()
            .flat_map(|operation| &operation.steps);
        let mut prepared = steps.filter_map(|step| match step {
            Step::Prepared(statement) => Some(statement),
            Step::Words(_) => None,
        });
        prepared
            .find(|statement| statement.version().is_some_and(wanted))
            .map(|statement| statement.sql.as_str())
    }

    /// Returns its first statement that reads a row's version, with `?` for parameters.
    #[must_use]
    pub fn reads_versions(&self) -> Option<&str> {
        self.statement_with(|version| matches!(version, Version::Read(_)))
    }

    /// Returns its first statement that writes a row's version.
    #[must_use]
    pub fn writes_versions(&self) -> Option<&str> {
        self.statement_with(|version| matches!(version, Version::Written(_)))
    }

    /// Returns whether it has tables with rows to create.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.inner
            .tables
            .iter()
            .any(|table| !table.columns.is_empty())
    }

    /// Returns the names of its tables, which are created in the schema `replimeter`.
    #[must_use]
    pub fn tables(&self) -> Vec<&str> {
        self.inner
            .tables
            .iter()
            .map(|table| table.name.as_str())
            .collect()
    }

    /// Returns whether it is a script, which creates and removes its data by its own statements.
    #[must_use]
    pub fn has_script(&self) -> bool {
        !self.inner.setup.is_empty() || !self.inner.teardown.is_empty()
    }

    /// Returns whether anything must be created before it can run.
    #[must_use]
    pub fn needs_setup(&self) -> bool {
        !self.inner.tables.is_empty() || !self.inner.setup.is_empty()
    }

    /// Returns its default size of data.
    #[must_use]
    pub fn default_size(&self) -> DataSize {
        self.inner.size
    }

    /// Returns the statements per operation, including those of its transaction; for several operations
    /// the mean by weight.
    #[must_use]
    pub fn statements(&self) -> u64 {
        let weights: u64 = self
            .inner
            .operations
            .iter()
            .map(|operation| operation.weight)
            .sum();
        let sum: u64 = self
            .inner
            .operations
            .iter()
            .map(|operation| operation.weight * operation.statements())
            .sum();
        sum.div_ceil(weights.max(1))
    }

    /// Returns whether both have the same tables, so that they can share a data set.
    #[must_use]
    pub fn same_data(&self, other: &Self) -> bool {
        self.inner.tables == other.inner.tables && self.inner.setup == other.inner.setup
    }

    /// Returns the name of a table that both define differently.
    #[must_use]
    pub fn collides(&self, other: &Self) -> Option<&str> {
        if self.same_data(other) {
            return None;
        }
        let tables = self.inner.tables.iter();
        let mut shared = tables.filter(|table| {
            other
                .inner
                .tables
                .iter()
                .any(|other| other.name == table.name && other != *table)
        });
        shared.next().map(|table| table.name.as_str())
    }

    /// Returns the approximate bytes on disk for this number of rows in every table.
    pub(super) fn bytes(&self, rows: u64) -> u64 {
        self.row_bytes().saturating_mul(rows)
    }

    /// Returns the approximate bytes of one row in every filled table.
    fn row_bytes(&self) -> u64 {
        self.inner
            .tables
            .iter()
            .filter(|table| !table.columns.is_empty())
            .map(|table| table.row_bytes)
            .sum()
    }

    /// Returns the rows per table of a data set of this size.
    #[must_use]
    pub fn rows(&self, size: DataSize) -> u64 {
        match size {
            DataSize::Rows(rows) => rows,
            DataSize::Bytes(bytes) => bytes / self.row_bytes().max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_properties_are_derived_from_statements() {
        let named = |name: &str| Workload::named(name).unwrap();
        assert!(named("select").reads_only() && named("point-select").reads_only());
        for name in [
            "insert",
            "mix",
            "post-insert",
            "oltp-mix",
            "update-key",
            "big-update",
        ] {
            assert!(!named(name).reads_only(), "{name}");
        }
        let long = format!("SELECT '{}', {{pass}} FOR UPDATE", "x".repeat(100));
        assert!(!Workload::parse("x.sql", &long).unwrap().reads_only());
        assert!(named("select").same_data(&named("post-insert")));
        for name in ["oltp-mix", "update-key", "big-update"] {
            assert!(named("point-select").same_data(&named(name)), "{name}");
        }
        assert!(!named("insert").same_data(&named("select")));
        // sysbench's oltp_read_write: BEGIN, 10 + 4 reads, 2 updates, delete and insert, COMMIT.
        assert_eq!(
            (named("oltp-mix").statements(), named("insert").statements()),
            (20, 1)
        );
        assert_eq!(named("post-insert").collides(&named("select")), None);
        let other = Workload::parse(
            "x.toml",
            "[[table]]\nname = 'post'\ncreate = 'CREATE TABLE post (a INT)'\n[[statement]]\nsql = 'SELECT 1'",
        );
        assert_eq!(other.unwrap().collides(&named("select")), Some("post"));
    }
}
