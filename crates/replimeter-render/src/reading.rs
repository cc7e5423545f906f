//! Reads columns of `samples.parquet`, of any command, a group of rows at a time.

use std::{collections::BTreeMap, path::Path};

use parquet::{
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, DataType},
    errors::ParquetError,
    file::reader::{FileReader, RowGroupReader, SerializedFileReader},
};

use crate::{
    files::open_regular,
    samples_error::{SamplesError, reason},
};

/// Rows of a group at most, which are in memory together; Replimeter writes some thousand.
const MAX_GROUP: usize = 1 << 20;

/// One column of a group of rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Text: the distinct values, and the index for each row; `None` for null.
    Words {
        /// Each distinct value once.
        distinct: Vec<String>,
        /// The index among them for each row.
        places: Vec<Option<u32>>,
    },
    /// Numbers, booleans as 0 or 1; NaN for null. Integers are exact up to 2⁵³, which nanoseconds of a run
    /// reach after 104 days.
    Numbers(Vec<f64>),
}

impl Column {
    /// Returns the word in a row; empty for null and for numbers.
    #[must_use]
    pub fn word(&self, row: usize) -> &str {
        match self {
            Self::Words { distinct, places } => places
                .get(row)
                .copied()
                .flatten()
                .and_then(|place| distinct.get(place as usize))
                .map_or("", String::as_str),
            Self::Numbers(_) => "",
        }
    }

    /// Returns the meaning of the word in a row; each distinct word is parsed once. `None` for null, for
    /// numbers, and if `meaning` returns `None`.
    pub fn parsed<'a, T: Copy + 'a>(
        &'a self,
        meaning: impl Fn(&str) -> Option<T>,
    ) -> impl Fn(usize) -> Option<T> + 'a {
        let (known, places) = match self {
            Self::Words { distinct, places } => (
                distinct.iter().map(|word| meaning(word)).collect(),
                places.as_slice(),
            ),
            Self::Numbers(_) => (Vec::new(), [].as_slice()),
        };
        move |row| {
            places
                .get(row)
                .copied()
                .flatten()
                .and_then(|place| known.get(place as usize).copied().flatten())
        }
    }

    /// Returns the number in a row; NaN for null and for words.
    #[must_use]
    pub fn number(&self, row: usize) -> f64 {
        match self {
            Self::Words { .. } => f64::NAN,
            Self::Numbers(numbers) => numbers.get(row).copied().unwrap_or(f64::NAN),
        }
    }
}

/// Reads the columns with these names; `each` gets them, in this order, and the number of rows, for one group
/// of rows after another. Memory does not grow with the file.
///
/// # Errors
/// If the file is missing, truncated, not Parquet, or lacks one of the columns.
pub fn read(
    path: &Path,
    names: &[&str],
    mut each: impl FnMut(&[Column], usize),
) -> Result<u64, SamplesError> {
    let wrap = |error| reason(path, error);
    let file = open_regular(path, u64::MAX).map_err(|source| SamplesError::File {
        path: path.to_owned(),
        source,
    })?;
    let reader = SerializedFileReader::new(file).map_err(wrap)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let mut places = Vec::with_capacity(names.len());
    for name in names {
        let place = schema
            .columns()
            .iter()
            .position(|column| column.name() == *name);
        places.push(place.ok_or_else(|| SamplesError::Format {
            path: path.to_owned(),
            reason: format!("it has no column `{name}`, which this version requires"),
        })?);
    }
    let mut count = 0;
    for index in 0..reader.num_row_groups() {
        let group = reader.get_row_group(index).map_err(wrap)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        if rows > MAX_GROUP {
            return Err(SamplesError::Format {
                path: path.to_owned(),
                reason: format!("a group has {rows} rows, more than {MAX_GROUP}"),
            });
        }
        let columns = places
            .iter()
            .map(|place| column(&*group, *place, rows))
            .collect::<Result<Vec<_>, _>>()
            .map_err(wrap)?;
        each(&columns, rows);
        count += rows as u64;
    }
    Ok(count)
}

fn column(group: &dyn RowGroupReader, place: usize, rows: usize) -> Result<Column, ParquetError> {
    let optional = group
        .metadata()
        .schema_descr()
        .column(place)
        .max_def_level()
        > 0;
    Ok(match group.get_column_reader(place)? {
        ColumnReader::BoolColumnReader(reader) => {
            numbers(values(reader, rows, optional)?, f64::from)
        }
        ColumnReader::Int32ColumnReader(reader) => {
            numbers(values(reader, rows, optional)?, f64::from)
        }
        ColumnReader::Int64ColumnReader(reader) => {
            numbers(values(reader, rows, optional)?, |whole| whole as f64)
        }
        ColumnReader::DoubleColumnReader(reader) => {
            numbers(values(reader, rows, optional)?, |real| real)
        }
        ColumnReader::ByteArrayColumnReader(reader) => words(&values(reader, rows, optional)?)?,
        _ => {
            return Err(ParquetError::General(
                "a column has an unexpected type".to_owned(),
            ));
        }
    })
}

/// Returns all values of a column of a group, null as `None`.
fn values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    optional: bool,
) -> Result<Vec<Option<T::T>>, ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        let (records, ..) = reader.read_records(
            rows - read,
            optional.then_some(&mut levels),
            None,
            &mut values,
        )?;
        if records == 0 {
            return Err(ParquetError::General("a column is truncated".to_owned()));
        }
        read += records;
    }
    if !optional {
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    Ok(levels
        .into_iter()
        .map(|level| if level > 0 { values.next() } else { None })
        .collect())
}

fn numbers<T>(values: Vec<Option<T>>, number: impl Fn(T) -> f64) -> Column {
    Column::Numbers(
        values
            .into_iter()
            .map(|value| value.map_or(f64::NAN, &number))
            .collect(),
    )
}

fn words(values: &[Option<ByteArray>]) -> Result<Column, ParquetError> {
    let mut known: BTreeMap<&[u8], u32> = BTreeMap::new();
    let mut distinct = Vec::new();
    let mut places = Vec::with_capacity(values.len());
    for value in values {
        let Some(value) = value else {
            places.push(None);
            continue;
        };
        let place = match known.get(value.data()) {
            Some(place) => *place,
            None => {
                distinct.push(value.as_utf8()?.to_owned());
                let place = u32::try_from(known.len()).unwrap_or(u32::MAX);
                known.insert(value.data(), place);
                place
            }
        };
        places.push(Some(place));
    }
    Ok(Column::Words { distinct, places })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use replimeter_model::time::Nanos;

    use super::*;
    use crate::rows::{Columns, Rows, TableSpec, columns, write_file};

    #[derive(Clone)]
    struct Made;

    impl Columns for Made {
        type Row = (&'static str, Option<i64>, Option<f64>, bool);
        const TABLE: TableSpec<Self::Row, Self> = TableSpec {
            message: "made",
            group: 3,
            columns: columns! {
                /// Who
                who: Word = |row, _| row.0;
                /// Time
                count: Long or null = |row, _| row.1.map(Nanos);
                /// Number
                us: Real or null = |row, _| row.2;
                /// Truth
                well: Flag = |row, _| row.3;
            },
        };
    }

    fn file(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("samples.parquet");
        let mut rows = Rows::new(Made);
        for _ in 0..2 {
            rows.add(("a", Some(7), None, true));
            rows.add(("b", None, None, false));
            rows.add(("a", Some(-9), Some(0.5), true));
        }
        write_file(&path, rows).unwrap();
        path
    }

    #[test]
    fn columns_are_read_by_name_with_nulls() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path());
        let mut seen = Vec::new();
        let count = read(&path, &["us", "who", "well", "count"], |columns, rows| {
            for row in 0..rows {
                let number = |column: usize| columns[column].number(row);
                seen.push((
                    number(0).to_string(),
                    columns[1].word(row).to_owned(),
                    number(2),
                    number(3).to_string(),
                ));
            }
        });
        let wanted = [
            ("NaN", "a", 1.0, "7"),
            ("NaN", "b", 0.0, "NaN"),
            ("0.5", "a", 1.0, "-9"),
        ];
        let wanted = wanted
            .map(|(us, who, well, count)| (us.to_owned(), who.to_owned(), well, count.to_owned()));
        assert_eq!(
            (count.unwrap(), &seen[..3], &seen[3..]),
            (6, &wanted[..], &wanted[..])
        );
    }

    #[test]
    fn truncated_missing_or_mistyped_column_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path());
        let refused = |names: &[&str]| read(&path, names, |_, _| {}).unwrap_err().to_string();
        assert!(refused(&["other"]).contains("no column `other`"));
        let whole = fs::read(&path).unwrap();
        for length in [0, 3, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(refused(&["who"]).contains("samples.parquet"), "{length}");
        }
        fs::remove_file(&path).unwrap();
        assert!(refused(&["who"]).contains("No such file"));
    }
}
