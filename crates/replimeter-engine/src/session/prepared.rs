//! Statements of measuring threads: prepared once, and as cheap as the driver's own calls.

use mysql::{ChangeUserOpts, Conn, Row, SessionStateInfo, Value, from_value, prelude::Queryable};

use super::{MAX_ANSWER, Session};
use crate::error::ServerError;

/// Numbers that one answer may have.
const MAX_NUMBERS: usize = MAX_ANSWER / size_of::<u64>();

/// A statement that is prepared on one session.
#[derive(Clone, Debug)]
pub struct Prepared(pub(crate) mysql::Statement);

/// A value for a `?` of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Bound<'a> {
    /// A text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// A number with a fraction.
    Real(f64),
    /// No value.
    Null,
}

impl From<&Bound<'_>> for Value {
    fn from(bound: &Bound<'_>) -> Self {
        match bound {
            Bound::Text(text) => Self::Bytes(text.as_bytes().to_vec()),
            Bound::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Bound::Number(number) => Self::UInt(*number),
            Bound::Signed(number) => Self::Int(*number),
            Bound::Real(number) => Self::Double(*number),
            Bound::Null => Self::NULL,
        }
    }
}

/// The values of one execution, which can be made before a clock is read.
#[derive(Debug)]
pub struct Values(Vec<Value>);

impl From<&[Bound<'_>]> for Values {
    fn from(bound: &[Bound<'_>]) -> Self {
        Self(bound.iter().map(Value::from).collect())
    }
}

impl<const N: usize> From<[Bound<'_>; N]> for Values {
    fn from(bound: [Bound<'_>; N]) -> Self {
        Self::from(&bound[..])
    }
}

/// The columns of a row, taken in order. One that is missing or of another type makes the answer one that is not of the protocol.
pub struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn of(row: Row) -> Self {
        Self(row.unwrap().into_iter())
    }

    fn next(&mut self) -> Value {
        self.0.next().unwrap_or(Value::NULL)
    }

    /// Takes a number.
    pub fn number(&mut self) -> u64 {
        from_value(self.next())
    }

    /// Takes a number that may be negative or NULL.
    pub fn signed(&mut self) -> Option<i64> {
        from_value(self.next())
    }

    /// Takes a text, or NULL.
    pub fn text(&mut self) -> Option<String> {
        from_value(self.next())
    }
}

/// How a session's settings are reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// By the command for it.
    Connection,
    /// By another login of the same user.
    User,
}

impl Session {
    /// Prepares a statement.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn prepare(&mut self, operation: &str, sql: &str) -> Result<Prepared, ServerError> {
        self.ask(operation, |conn, _| Ok(Ok(Prepared(conn.prep(sql)?))))
    }

    /// Executes a statement that returns no rows of interest, and returns the number of changed rows.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn execute(
        &mut self,
        operation: &str,
        statement: &Prepared,
        values: impl Into<Values>,
    ) -> Result<u64, ServerError> {
        self.each_of(operation, statement, values, |_| Ok(()))?;
        Ok(self.conn.affected_rows())
    }

    /// Executes a statement and returns the number in its row, if it has one.
    ///
    /// # Errors
    /// When the server refuses it, returns several rows, or the connection breaks.
    pub fn number(
        &mut self,
        operation: &str,
        statement: &Prepared,
        values: impl Into<Values>,
    ) -> Result<Option<u64>, ServerError> {
        let mut number = None;
        self.each_of(operation, statement, values, |row| {
            only(&mut number, Fields::of(row).number())
        })?;
        Ok(number)
    }

    /// Executes a statement and returns the number in its row, if it has one; the number may be NULL.
    pub(crate) fn signed(
        &mut self,
        operation: &str,
        statement: &Prepared,
        values: impl Into<Values>,
    ) -> Result<Option<i64>, ServerError> {
        let mut number = None;
        self.each_of(operation, statement, values, |row| {
            only(&mut number, Fields::of(row).signed())
        })?;
        Ok(number.flatten())
    }

    /// Executes a statement and returns the number in each row.
    ///
    /// # Errors
    /// When the server refuses it, returns too many rows, or the connection breaks.
    pub fn numbers(
        &mut self,
        operation: &str,
        statement: &Prepared,
        values: impl Into<Values>,
    ) -> Result<Vec<u64>, ServerError> {
        let mut numbers = Vec::new();
        self.each_of(operation, statement, values, |row| {
            if numbers.len() >= MAX_NUMBERS {
                return Err(too_many(MAX_NUMBERS as u64));
            }
            numbers.push(Fields::of(row).number());
            Ok(())
        })?;
        Ok(numbers)
    }

    /// Executes a statement without values and returns its rows.
    pub(crate) fn status(
        &mut self,
        operation: &str,
        statement: &Prepared,
    ) -> Result<Vec<Row>, ServerError> {
        self.answer_to(
            operation,
            |conn| conn.exec_iter(&statement.0, ()),
            |row| row,
        )
    }

    /// Runs a statement and passes each of its rows, which are `most` at most, to `each`.
    ///
    /// # Errors
    /// When the server refuses it, returns more rows, or the connection breaks.
    pub fn each_row(
        &mut self,
        operation: &str,
        sql: &str,
        most: u64,
        mut each: impl FnMut(Fields),
    ) -> Result<(), ServerError> {
        let mut rows = 0;
        self.each(
            operation,
            |conn| conn.query_iter(sql),
            |row| {
                rows += 1;
                if rows > most {
                    return Err(too_many(most));
                }
                each(Fields::of(row));
                Ok(())
            },
        )
    }

    /// Resets the settings of the session; its prepared statements end.
    ///
    /// # Errors
    /// When the server refuses it or the connection breaks.
    pub fn reset(&mut self, operation: &str, reset: Reset) -> Result<(), ServerError> {
        let by = |conn: &mut Conn| match reset {
            Reset::Connection => conn.reset(),
            Reset::User => conn.change_user(ChangeUserOpts::DEFAULT),
        };
        self.ask(operation, |conn, _| by(conn).map(Ok))
    }

    /// Returns what `read` finds first in what the last answer says about the session.
    pub(crate) fn session_state<T>(
        &mut self,
        operation: &str,
        read: impl FnMut(&SessionStateInfo<'_>) -> Option<T>,
    ) -> Result<Option<T>, ServerError> {
        self.ask(operation, |conn, _| {
            let changes = conn.session_state_changes().unwrap_or_default();
            Ok(Ok(changes.iter().find_map(read)))
        })
    }

    fn each_of(
        &mut self,
        operation: &str,
        statement: &Prepared,
        values: impl Into<Values>,
        each: impl FnMut(Row) -> Result<(), String>,
    ) -> Result<(), ServerError> {
        let values = values.into().0;
        self.each(operation, |conn| conn.exec_iter(&statement.0, values), each)
    }
}

/// Keeps the value of an answer's only row.
fn only<T>(kept: &mut Option<T>, value: T) -> Result<(), String> {
    match kept.replace(value) {
        None => Ok(()),
        Some(_) => Err(too_many(1)),
    }
}

fn too_many(most: u64) -> String {
    format!("the answer has more rows than {most}")
}
