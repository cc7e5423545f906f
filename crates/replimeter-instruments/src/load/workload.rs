//! A workload: the data that it needs, and the operations that its threads run.

use std::sync::Arc;

use replimeter_model::load::Size;

use super::{
    script::{Template, excerpt},
    value::Source,
};

/// The most bytes of a workload's file; no hand writes more.
pub const LARGEST_FILE: u64 = 1 << 20;
/// What InnoDB adds to a row, about: its header, the transaction's number and the roll pointer.
const ROW_OVERHEAD: u64 = 20;
/// Pages are filled to fifteen sixteenths.
const PAGE_FILL: f64 = 15.0 / 16.0;

/// A workload by its name, ready to be run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// As the user named it.
    pub name: String,
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Inner {
    /// Tables that are ours to make and to fill.
    pub(super) tables: Vec<Table>,
    /// How much data, unless asked otherwise.
    pub(super) size: Size,
    /// Run once before; a script's own.
    pub(super) setup: Vec<Template>,
    /// At least one.
    pub(super) operations: Vec<Operation>,
    /// Run once afterwards, whatever happened.
    pub(super) teardown: Vec<Template>,
}

/// A table of the data set.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    /// The definition, without a comment, which is ours.
    pub(super) create: String,
    /// What the rows are made of; none for a table that is empty at the beginning.
    pub(super) columns: Vec<(String, Source)>,
    /// What is run when the rows are there.
    pub(super) after: Vec<String>,
    /// Bytes of a row on the disk, about.
    pub(super) row_bytes: u64,
    pub(super) line: usize,
}

impl PartialEq for Table {
    /// Whether both make the same rows, wherever they are written.
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
    /// Bytes of a row on the disk, as far as its columns tell.
    pub(super) fn estimate(columns: &[(String, Source)]) -> u64 {
        let values: u64 = columns.iter().map(|(_, source)| source.bytes()).sum();
        ((values + ROW_OVERHEAD) as f64 / PAGE_FILL) as u64
    }
}

/// What a thread does over and over.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operation {
    pub(super) name: String,
    /// How often, beside the weights of the others.
    pub(super) weight: u64,
    /// Whether its statements are one transaction.
    pub(super) transaction: bool,
    /// Values that its statements share, drawn once for each pass.
    pub(super) shared: Vec<Source>,
    pub(super) steps: Vec<Step>,
}

/// A statement of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Of a script: in words, its places filled.
    Words(Template),
    /// Prepared, with parameters.
    Prepared(Statement),
}

/// A prepared statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    /// With `?` for each parameter.
    pub(super) sql: String,
    /// What each is drawn from.
    pub(super) parameters: Vec<Parameter>,
    /// How often it is run in a row.
    pub(super) repeat: u32,
    /// Where it stands in its file.
    pub(super) line: usize,
    /// The parameter that is the number of the row whose version it writes or reads.
    pub(super) version_of: Option<usize>,
}

impl Statement {
    /// What it does with a row's version, if it has one.
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

/// What a statement does with the version of a row, which is one of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// The first value of its first row is the version.
    Read(usize),
    /// Its `LAST_INSERT_ID(…)` is.
    Written(usize),
}

/// Where a parameter has its value from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Parameter {
    Drawn(Source),
    /// The same as another parameter of the statement, before this one.
    Same(usize),
    /// A value that the operation's statements share.
    Shared(usize),
}

impl Step {
    pub(super) fn line(&self) -> usize {
        match self {
            Self::Words(template) => template.line,
            Self::Prepared(statement) => statement.line,
        }
    }

    /// Its beginning, for messages.
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

    /// Whether it certainly changes nothing.
    pub(super) fn reads(&self) -> bool {
        let text = match self {
            Self::Words(template) => template.excerpt(),
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
    /// Statements of a pass, those of its transaction included.
    pub(super) fn statements(&self) -> u64 {
        self.steps.iter().map(Step::repeat).sum::<u64>() + if self.transaction { 2 } else { 0 }
    }
}

impl Workload {
    /// Whether it certainly only reads, and so may run on a replica.
    #[must_use]
    pub fn reads_only(&self) -> bool {
        self.inner
            .operations
            .iter()
            .flat_map(|operation| &operation.steps)
            .all(Step::reads)
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

    /// The first of its statements that reads a row's version, with `?` for parameters.
    #[must_use]
    pub fn reads_versions(&self) -> Option<&str> {
        self.statement_with(|version| matches!(version, Version::Read(_)))
    }

    /// The first that writes one.
    #[must_use]
    pub fn writes_versions(&self) -> Option<&str> {
        self.statement_with(|version| matches!(version, Version::Written(_)))
    }

    /// Whether it has tables with rows to be made.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.inner
            .tables
            .iter()
            .any(|table| !table.columns.is_empty())
    }

    /// The names of its tables, which are made for it in the schema `replimeter`.
    #[must_use]
    pub fn tables(&self) -> Vec<&str> {
        self.inner
            .tables
            .iter()
            .map(|table| table.name.as_str())
            .collect()
    }

    /// Whether it is a script, which makes and removes what it needs by statements of its own.
    #[must_use]
    pub fn has_script(&self) -> bool {
        !self.inner.setup.is_empty() || !self.inner.teardown.is_empty()
    }

    /// Whether anything must be made before it can run.
    #[must_use]
    pub fn needs_setup(&self) -> bool {
        !self.inner.tables.is_empty() || !self.inner.setup.is_empty()
    }

    /// How much data it has, unless asked otherwise.
    #[must_use]
    pub fn default_size(&self) -> Size {
        self.inner.size
    }

    /// Statements of an operation, those of its transaction included; the mean of
    /// several, by their weights.
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

    /// Whether both have the same tables, so that one data set does for both.
    #[must_use]
    pub fn same_data(&self, other: &Self) -> bool {
        self.inner.tables == other.inner.tables && self.inner.setup == other.inner.setup
    }

    /// Whether a table of this one has the name of another of that one's.
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

    /// About how many bytes so many rows in every table take on the disk.
    pub(super) fn bytes(&self, rows: u64) -> u64 {
        self.row_bytes().saturating_mul(rows)
    }

    /// About how many bytes a row in every table that is filled takes.
    fn row_bytes(&self) -> u64 {
        self.inner
            .tables
            .iter()
            .filter(|table| !table.columns.is_empty())
            .map(|table| table.row_bytes)
            .sum()
    }

    /// How many rows every table has that makes a set of that size.
    #[must_use]
    pub fn rows(&self, size: Size) -> u64 {
        match size {
            Size::Rows(rows) => rows,
            Size::Bytes(bytes) => bytes / self.row_bytes().max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_and_what_shares_its_data() {
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
