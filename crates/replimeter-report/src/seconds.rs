//! `samples.parquet` of a `load` run: a row for each workload and second, since a row
//! for each operation would be too many.

use std::{fs::File, os::unix::fs::OpenOptionsExt, path::Path, sync::Arc};

use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use replimeter_model::load::LoadRow;

use crate::samples::{SamplesError, optional, reason, required};

/// The columns; `docs/load.md` explains each.
const SCHEMA: &str = "message load_second {
    required binary workload (UTF8);
    required int64 threads;
    required int64 second;
    required int64 operations;
    optional int64 waiting;
}";

/// Writes the seconds of every row.
///
/// # Errors
/// When the file cannot be made or the disk refuses.
pub fn write(path: &Path, rows: &[LoadRow]) -> Result<(), SamplesError> {
    let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(path);
    let file = file.map_err(|source| SamplesError::File { path: path.to_owned(), source })?;
    seconds(file, rows).map_err(|error| reason(path, error))
}

fn seconds(file: File, rows: &[LoadRow]) -> Result<(), ParquetError> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    for row in rows.iter().map(|row| &row.load).filter(|load| !load.per_second.is_empty()) {
        let many = row.per_second.len();
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut group = writer.next_row_group()?;
        required::<ByteArrayType>(&mut group, &vec![ByteArray::from(row.workload.as_str()); many])?;
        required::<Int64Type>(&mut group, &vec![i64::from(row.threads); many])?;
        required::<Int64Type>(&mut group, &(1..=signed(many as u64)).collect::<Vec<_>>())?;
        required::<Int64Type>(&mut group, &row.per_second.iter().map(|count| signed(*count)).collect::<Vec<_>>())?;
        let waiting = (0..many).map(|second| row.waiting_per_second.get(second).map(|waiting| signed(*waiting))).collect();
        optional::<Int64Type>(&mut group, waiting)?;
        group.close()?;
    }
    writer.close()?;
    Ok(())
}
