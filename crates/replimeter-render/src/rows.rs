//! `samples.parquet` of every command: columns, and writing of rows. Rows are held and written a group at a
//! time, so that memory does not grow with the run.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};
use replimeter_model::time::Nanos;

pub use crate::samples_error::SamplesError;
use crate::{files::create_new, samples_error::reason};

/// A group of rows being written, column by column.
pub type RowGroup<'a> = SerializedRowGroupWriter<'a, File>;

/// A file of rows `R`, in groups that share the labels `L`.
pub struct TableSpec<R: 'static, L: 'static> {
    /// The name of a row in Parquet.
    pub message: &'static str,
    /// Number of rows buffered before they are written.
    pub group: usize,
    /// The columns, in order.
    pub columns: &'static [Column<R, L>],
}

/// One column of a file.
pub struct Column<R, L> {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub about: &'static str,
    /// Whether it can be null.
    pub optional: bool,
    /// How its value is read from a row and its labels.
    pub read: Read<R, L>,
}

/// How a column's value is read from a row and its labels; `None` for null.
pub enum Read<R, L> {
    /// Text.
    Word(for<'a> fn(&'a R, &'a L) -> Option<&'a str>),
    /// A 64-bit integer.
    Long(fn(&R, &L) -> Option<i64>),
    /// A 32-bit integer.
    Short(fn(&R, &L) -> Option<i32>),
    /// A floating-point number.
    Real(fn(&R, &L) -> Option<f64>),
    /// A boolean.
    Flag(fn(&R, &L) -> Option<bool>),
}

/// A type that converts to a column of type `T`.
pub trait Value<T> {
    /// Returns the column's value.
    fn value(self) -> T;
}

impl<'a> Value<&'a str> for &'a str {
    fn value(self) -> &'a str {
        self
    }
}

impl<'a> Value<&'a str> for &'a String {
    fn value(self) -> &'a str {
        self
    }
}

impl Value<i64> for u64 {
    fn value(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}

impl Value<i64> for u32 {
    fn value(self) -> i64 {
        self.into()
    }
}

/// In nanoseconds.
impl Value<i64> for Nanos {
    fn value(self) -> i64 {
        self.0
    }
}

impl Value<i32> for u32 {
    fn value(self) -> i32 {
        i32::try_from(self).unwrap_or(i32::MAX)
    }
}

/// In microseconds.
impl Value<f64> for Nanos {
    fn value(self) -> f64 {
        self.as_micros()
    }
}

impl Value<f64> for f64 {
    fn value(self) -> f64 {
        self
    }
}

impl Value<bool> for bool {
    fn value(self) -> bool {
        self
    }
}

/// Declares the columns of a [`TableSpec`]: each has a comment with its meaning, its name, its type as in
/// [`Read`], and its value for a row and its labels. The value of an `or null` column is an option.
#[macro_export]
macro_rules! columns {
    ($($(#[doc = $about:literal])+ $name:ident: $kind:ident $(or $null:ident)? = |$row:pat_param, $labels:pat_param| $value:expr;)+) => {
        &[$($crate::rows::Column {
            name: stringify!($name),
            about: concat!($($about),+),
            optional: $crate::columns!(@optional $($null)?),
            read: $crate::rows::Read::$kind(|$row, $labels| {
                $crate::columns!(@value $value, $($null)?).map($crate::rows::Value::value)
            }),
        }),+]
    };
    (@optional) => { false };
    (@optional null) => { true };
    (@value $value:expr,) => { Some($value) };
    (@value $value:expr, null) => { $value };
}
pub use columns;

/// The description of a column, without its rows' type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub about: &'static str,
    /// Its type in Parquet.
    pub kind: &'static str,
    /// Whether it can be null.
    pub optional: bool,
}

impl<R, L> TableSpec<R, L> {
    /// Returns the columns, in order.
    #[must_use]
    pub fn infos(&self) -> Vec<ColumnInfo> {
        self.columns.iter().map(Column::info).collect()
    }

    /// Returns the file's schema in Parquet's syntax.
    fn schema(&self) -> String {
        let columns = self.infos().into_iter().map(|column| {
            let repetition = if column.optional {
                "optional"
            } else {
                "required"
            };
            let text = if column.kind == "binary" {
                " (UTF8)"
            } else {
                ""
            };
            format!("{repetition} {} {}{text}; ", column.kind, column.name)
        });
        format!(
            "message {} {{ {}}}",
            self.message,
            columns.collect::<String>()
        )
    }
}

impl<R, L> Column<R, L> {
    fn info(&self) -> ColumnInfo {
        ColumnInfo {
            name: self.name,
            about: self.about.trim(),
            kind: match self.read {
                Read::Word(_) => "binary",
                Read::Long(_) => "int64",
                Read::Short(_) => "int32",
                Read::Real(_) => "double",
                Read::Flag(_) => "boolean",
            },
            optional: self.optional,
        }
    }

    /// Returns the column's value as JSON.
    fn json(&self, row: &R, labels: &L) -> serde_json::Value {
        match self.read {
            Read::Word(read) => read(row, labels).into(),
            Read::Long(read) => read(row, labels).into(),
            Read::Short(read) => read(row, labels).into(),
            Read::Real(read) => read(row, labels).into(),
            Read::Flag(read) => read(row, labels).into(),
        }
    }

    fn write(&self, group: &mut RowGroup<'_>, rows: &[R], labels: &L) -> Result<(), ParquetError> {
        let (optional, rows) = (self.optional, rows.iter());
        match self.read {
            Read::Word(read) => {
                // Adjacent rows mostly have the same word, so its bytes are shared.
                let mut last: Option<(&str, ByteArray)> = None;
                let values = rows.map(|row| {
                    let word = read(row, labels)?;
                    let shared = last.take().filter(|(known, _)| *known == word);
                    let (_, bytes) = last.insert(shared.unwrap_or_else(|| (word, word.into())));
                    Some(bytes.clone())
                });
                write::<ByteArrayType>(group, optional, values)
            }
            Read::Long(read) => {
                write::<Int64Type>(group, optional, rows.map(|row| read(row, labels)))
            }
            Read::Short(read) => {
                write::<Int32Type>(group, optional, rows.map(|row| read(row, labels)))
            }
            Read::Real(read) => {
                write::<DoubleType>(group, optional, rows.map(|row| read(row, labels)))
            }
            Read::Flag(read) => {
                write::<BoolType>(group, optional, rows.map(|row| read(row, labels)))
            }
        }
    }
}

fn write<T: DataType>(
    group: &mut RowGroup<'_>,
    optional: bool,
    values: impl ExactSizeIterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let mut present = Vec::with_capacity(values.len());
    let mut known = Vec::with_capacity(values.len());
    for value in values {
        present.push(i16::from(value.is_some()));
        known.extend(value);
    }
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General(
            "the schema has fewer columns than are written".to_owned(),
        ));
    };
    let levels = optional.then_some(&*present);
    column.typed::<T>().write_batch(&known, levels, None)?;
    column.close()
}

/// The labels that a group of rows shares, and the table of their file.
pub trait Columns: Clone + 'static {
    /// One row.
    type Row: 'static;
    /// The file.
    const TABLE: TableSpec<Self::Row, Self>;
}

/// A batch of rows of any table.
pub trait RowBatch {
    /// Writes them as a group of a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn write(&self, group: &mut RowGroup<'_>) -> Result<(), ParquetError>;
}

/// Rows that share labels.
pub struct Batch<C: Columns> {
    /// Their labels.
    pub labels: C,
    /// The rows.
    pub rows: Vec<C::Row>,
}

impl<C: Columns> RowBatch for Batch<C> {
    fn write(&self, group: &mut RowGroup<'_>) -> Result<(), ParquetError> {
        let mut columns = C::TABLE.columns.iter();
        columns.try_for_each(|column| column.write(group, &self.rows, &self.labels))
    }
}

/// Buffered rows, in groups that share labels.
pub struct Rows<C: Columns> {
    labels: C,
    held: Vec<C::Row>,
    ready: Vec<Batch<C>>,
    /// The rows as JSON lines, if they are wanted.
    lines: Option<String>,
}

impl<C: Columns> Rows<C> {
    /// Creates an empty buffer.
    #[must_use]
    pub fn new(labels: C) -> Self {
        Self {
            labels,
            held: Vec::new(),
            ready: Vec::new(),
            lines: None,
        }
    }

    /// Returns the buffer with the rows also as lines, for [`Self::take_lines`].
    #[must_use]
    pub fn with_lines(self) -> Self {
        Self {
            lines: Some(String::new()),
            ..self
        }
    }

    /// Takes the rows since the last call, each as an object of JSON in a line: all columns in order, null for unknown
    /// values.
    pub fn take_lines(&mut self) -> String {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Changes the labels of the rows added from now on.
    pub fn switch(&mut self, labels: C) {
        self.close();
        self.labels = labels;
    }

    /// Adds a row.
    pub fn add(&mut self, row: C::Row) {
        if let Some(lines) = &mut self.lines {
            let columns = C::TABLE.columns.iter();
            let cells = columns.map(|column| {
                let (name, value) = (column.name, column.json(&row, &self.labels));
                format!("\"{name}\":{value}")
            });
            lines.push_str(&format!("{{{}}}\n", cells.collect::<Vec<_>>().join(",")));
        }
        self.held.push(row);
        if self.held.len() >= C::TABLE.group {
            self.close();
        }
    }

    /// Takes the full groups.
    pub fn take_full(&mut self) -> Vec<Batch<C>> {
        std::mem::take(&mut self.ready)
    }

    /// Takes all remaining rows.
    pub fn take_all(&mut self) -> Vec<Batch<C>> {
        self.close();
        self.take_full()
    }

    fn close(&mut self) {
        if !self.held.is_empty() {
            // Allocated at full size at once: a growing group would be copied repeatedly while rows arrive.
            let rows = std::mem::replace(&mut self.held, Vec::with_capacity(C::TABLE.group));
            self.ready.push(Batch {
                labels: self.labels.clone(),
                rows,
            });
        }
    }
}

/// A file of rows being written. It has its name when it is [finished](Self::finish), another one before, and is
/// removed if it is dropped.
pub struct RowFile {
    path: PathBuf,
    partial: PathBuf,
    writer: SerializedFileWriter<File>,
    /// Whether a group could not be written: what follows it would be misplaced.
    failed: bool,
}

impl RowFile {
    /// Creates the file of a table, for this user only.
    ///
    /// # Errors
    /// If it cannot be created, or its other name exists, even as a link.
    pub fn create<C: Columns>(path: &Path) -> Result<Self, SamplesError> {
        let partial = partial_of(path);
        let file = create_new(&partial).map_err(file_error(path))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // Statistics kept for every page until the end would grow with the run.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let wrap = |error| reason(path, error);
        let schema = parse_message_type(&C::TABLE.schema()).map_err(wrap)?;
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        Ok(Self {
            path: path.to_owned(),
            partial,
            writer: writer.map_err(wrap)?,
            failed: false,
        })
    }

    /// Writes a group.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, batch: &dyn RowBatch) -> Result<(), SamplesError> {
        let written = self.write_group(batch);
        self.failed |= written.is_err();
        written
    }

    fn write_group(&mut self, batch: &dyn RowBatch) -> Result<(), SamplesError> {
        let wrap = |error| reason(&self.path, error);
        let mut group = self.writer.next_row_group().map_err(wrap)?;
        let written = batch.write(&mut group).and_then(|()| group.close());
        written.map_err(wrap)?;
        self.writer.flush().map_err(file_error(&self.path))
    }

    /// Writes the end of the file, and names it. After a failure there is no file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(mut self) -> Result<(), SamplesError> {
        if self.failed {
            return Ok(());
        }
        self.writer
            .finish()
            .map_err(|error| reason(&self.path, error))?;
        let synced = self.writer.inner().sync_all();
        synced
            .and_then(|()| fs::rename(&self.partial, &self.path))
            .map_err(file_error(&self.path))
    }
}

impl Drop for RowFile {
    fn drop(&mut self) {
        // Fails, as it should, if it is finished. Otherwise its space may be needed for the record of the run.
        let _ = fs::remove_file(&self.partial);
    }
}

/// Returns the name of a file of rows until it is finished.
#[must_use]
pub fn partial_of(path: &Path) -> PathBuf {
    path.with_extension("partial")
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> SamplesError {
    move |source| SamplesError::File {
        path: path.to_owned(),
        source,
    }
}

/// Writes an entire file, for the tests of all crates that have rows.
///
/// # Errors
/// If it cannot be written.
pub fn write_file<C: Columns>(path: &Path, mut rows: Rows<C>) -> Result<(), SamplesError> {
    let mut file = RowFile::create::<C>(path)?;
    for batch in rows.take_all() {
        file.write(&batch)?;
    }
    file.finish()
}
