//! A table in which a program writes again and again, such as that of `pt-heartbeat`: it is compared by value, never by age.

use std::hash::{DefaultHasher, Hash, Hasher};

use mysql::{Row, Value};
use replimeter_model::table_name::TableName;

use crate::{ErrorClass, ErrorKind, ServerError, Session, error::unless_disconnected};

/// The most rows that are compared.
const MAX_ROWS: usize = 16;
/// The most bytes of their values.
const MAX_BYTES: usize = 64 << 10;

/// What a heartbeat table showed: equal for equal rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableValue(u64);

impl TableValue {
    /// Creates the one of these rows, in any order.
    #[must_use]
    pub fn of<T: Hash>(rows: impl IntoIterator<Item = T>) -> Self {
        let digest = |value: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            value(&mut hasher);
            hasher.finish()
        };
        let rows = rows.into_iter();
        let mut rows: Vec<u64> = rows.map(|row| digest(&|to| row.hash(to))).collect();
        rows.sort_unstable();
        Self(digest(&|to| rows.hash(to)))
    }
}

/// A heartbeat table, asked again and again over one connection.
#[derive(Clone, Debug)]
pub struct HeartbeatTable {
    name: TableName,
    /// Why it is not read any more.
    refused: Option<String>,
}

impl HeartbeatTable {
    /// Creates one with this name.
    #[must_use]
    pub fn new(name: TableName) -> Self {
        Self {
            name,
            refused: None,
        }
    }

    /// Returns its value now, or why that is not known, with the statement that helps.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn read(
        &mut self,
        session: &mut Session,
    ) -> Result<Result<TableValue, String>, ServerError> {
        if let Some(reason) = &self.refused {
            return Ok(Err(reason.clone()));
        }
        let name = &self.name;
        let sql = format!("SELECT * FROM {name} LIMIT {MAX_ROWS}");
        let mut bytes = 0;
        let rows = session.answer("cannot read the heartbeat table", &sql, |row| {
            let row = values(row);
            bytes += row.iter().flatten().map(Vec::len).sum::<usize>();
            row
        });
        Ok(match unless_disconnected(rows)? {
            Ok(_) if bytes > MAX_BYTES => {
                let reason = format!("the rows of {name} have more than {} KiB", MAX_BYTES >> 10);
                self.refused = Some(reason.clone());
                Err(reason)
            }
            Ok(rows) if rows.is_empty() => Err(format!("{name} has no rows")),
            Ok(rows) => Ok(TableValue::of(rows)),
            Err(error) => Err(match error.kind {
                ErrorKind::Privilege => {
                    format!("{name} cannot be read: GRANT SELECT ON {name} TO the user")
                }
                ErrorKind::Statement(ErrorClass::NoTable | ErrorClass::NoSchema) => {
                    format!("there is no table {name}")
                }
                _ => format!("{name} cannot be read: {}", error.cause),
            }),
        })
    }
}

/// Returns the values of a row as the server sends them.
fn values(row: Row) -> Vec<Option<Vec<u8>>> {
    let values = row.unwrap().into_iter();
    values
        .map(|value| match value {
            Value::NULL => None,
            Value::Bytes(bytes) => Some(bytes),
            other => Some(other.as_sql(true).into_bytes()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_for_equal_rows_in_any_order() {
        let row = |texts: &[Option<&str>]| {
            let texts = texts.iter();
            texts
                .map(|text| text.map(|text| text.as_bytes().to_vec()))
                .collect::<Vec<_>>()
        };
        let (one, other) = (row(&[Some("1"), Some("a")]), row(&[Some("2"), None]));
        let both = TableValue::of([one.clone(), other.clone()]);
        assert_eq!(both, TableValue::of([other.clone(), one.clone()]));
        for different in [
            TableValue::of([one.clone()]),
            TableValue::of([one.clone(), row(&[Some("2"), Some("")])]),
            TableValue::of([row(&[Some("1a")]), other.clone()]),
            TableValue::of([one.clone(), other.clone(), other]),
        ] {
            assert_ne!(both, different);
        }
    }
}
