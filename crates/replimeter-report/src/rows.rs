//! `samples.parquet` of every command: rows are held and written a group at a time, so
//! that memory does not grow with the run.

use std::{
    fs::File,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    basic::Compression,
    data_type::DataType,
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};

use crate::samples::{SamplesError, reason};

/// A group of rows under way, column by column.
pub type RowGroup<'a> = SerializedRowGroupWriter<'a, File>;

/// What the rows of one command's file look like.
pub trait Columns {
    /// One row.
    type Row;
    /// The columns, as Parquet spells them.
    const SCHEMA: &'static str;
    /// Rows held before they are written.
    const GROUP: usize;

    /// Writes every column of these rows, in the schema's order.
    ///
    /// # Errors
    /// When the disk refuses, or the columns are not the schema's.
    fn write(&self, group: &mut RowGroup<'_>, held: &[Self::Row]) -> Result<(), ParquetError>;
}

/// The columns of a command's `samples.parquet`, as Parquet spells them; none for what keeps no samples.
#[must_use]
pub fn schema_of(command: &str) -> Option<&'static str> {
    Some(match command {
        "lag" | "calibrate" => crate::samples::Samples::SCHEMA,
        "tap" => crate::stretches::Stretches::SCHEMA,
        "load" => crate::seconds::Seconds::SCHEMA,
        "scale" => crate::blocks::Blocks::SCHEMA,
        "cost" => crate::cost_blocks::CostBlocks::SCHEMA,
        "stale" => crate::stale_samples::Labels::SCHEMA,
        "loss" => crate::crashes::Crashes::SCHEMA,
        "exposure" => crate::crashes::Looks::SCHEMA,
        _ => return None,
    })
}

/// Writes rows as they come.
pub struct RowsWriter<C: Columns> {
    path: PathBuf,
    columns: C,
    writer: SerializedFileWriter<File>,
    held: Vec<C::Row>,
}

impl<C: Columns> RowsWriter<C> {
    pub(crate) fn begun(path: &Path, columns: C) -> Result<Self, SamplesError> {
        let file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(path);
        let file = file.map_err(|source| SamplesError::File {
            path: path.to_owned(),
            source,
        })?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // What is kept of every page until the end would grow with the run.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let wrap = |error| reason(path, error);
        let schema = parse_message_type(C::SCHEMA).map(Arc::new).map_err(wrap)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(wrap)?;
        Ok(Self {
            path: path.to_owned(),
            columns,
            writer,
            held: Vec::new(),
        })
    }

    /// Goes on with other columns: what is held belongs to those before.
    pub(crate) fn switch(&mut self, columns: C) -> Result<(), SamplesError> {
        self.flush()?;
        self.columns = columns;
        Ok(())
    }

    pub(crate) fn columns(&self) -> &C {
        &self.columns
    }

    pub(crate) fn add(
        &mut self,
        rows: impl IntoIterator<Item = C::Row>,
    ) -> Result<(), SamplesError> {
        self.held.extend(rows);
        if self.held.len() >= C::GROUP {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes what is held and the file's end; without it the file is unreadable.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self) -> Result<(), SamplesError> {
        self.flush()?;
        self.writer
            .close()
            .map(|_| ())
            .map_err(|error| reason(&self.path, error))
    }

    fn flush(&mut self) -> Result<(), SamplesError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let group = self.writer.next_row_group().and_then(|mut group| {
            self.columns.write(&mut group, &self.held)?;
            group.close()
        });
        self.held.clear();
        group.map(|_| ()).map_err(|error| reason(&self.path, error))
    }
}

fn column<T: DataType>(
    group: &mut RowGroup<'_>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General(
            "the schema has fewer columns than are written".to_owned(),
        ));
    };
    column.typed::<T>().write_batch(values, present, None)?;
    column.close()
}

pub(crate) fn required<T: DataType>(
    group: &mut RowGroup<'_>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    column::<T>(group, values, None)
}

pub(crate) fn optional<T: DataType>(
    group: &mut RowGroup<'_>,
    values: Vec<Option<T::T>>,
) -> Result<(), ParquetError> {
    let present: Vec<i16> = values
        .iter()
        .map(|value| i16::from(value.is_some()))
        .collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    column::<T>(group, &values, Some(&present))
}

/// A number as Parquet's signed 64 bits.
pub(crate) fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number as Parquet's signed 32 bits.
pub(crate) fn short(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
