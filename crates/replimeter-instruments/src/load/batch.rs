//! Batches of a table's rows, as statements and as files.

use std::{collections::BTreeMap, fmt::Write as _};

use replimeter_engine::{
    ServerError, Session, dialect::file_load::rolls_back, wire::ParameterValue,
};
use replimeter_model::random::Random;

use super::{
    FILLING,
    value::{Draw, Generator, ValueKind},
    workload::Table,
};
use crate::transaction;

/// Types whose columns get the same value from a number and from its digits.
const TYPES_OF_NUMBERS: [&str; 8] = [
    "tinyint",
    "smallint",
    "mediumint",
    "int",
    "bigint",
    "decimal",
    "char",
    "varchar",
];

/// How the server takes the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowFormat {
    /// `INSERT` of many rows.
    Statement,
    /// The file of a [`RowBatches::load_statement`].
    File,
}

/// Batches of rows of a table, identical whichever thread writes them. Each is one transaction.
pub(super) struct RowBatches {
    columns: Vec<Generator>,
    rows: u64,
    of: u64,
    sequences: usize,
    /// The beginning of an `INSERT`.
    insert: String,
    load: String,
}

impl RowBatches {
    /// Creates batches of this number of rows; `packet` is the server's maximum packet size, in bytes.
    pub(super) fn new(table: &Table, rows: u64, packet: u64) -> Self {
        let mut sequences = 0;
        let columns = table
            .columns
            .iter()
            .map(|(_, source)| source.generator(rows, &mut sequences))
            .collect();
        let names: Vec<String> = table
            .columns
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        let (table_name, names) = (&table.name, names.join(", "));
        // Quotes, commas and digits make a row longer in SQL than on disk.
        let words_of_row = table
            .columns
            .iter()
            .map(|(_, source)| source.max_bytes() + 12)
            .sum::<u64>();
        Self {
            columns,
            rows,
            of: (packet / 2 / words_of_row.max(1)).clamp(1, transaction::rows(words_of_row)),
            sequences,
            insert: format!("INSERT INTO `replimeter`.`{table_name}` ({names}) VALUES "),
            // The name is none of a file: the rows are sent from memory.
            load: format!(
                "LOAD DATA LOCAL INFILE 'rows of Replimeter' INTO TABLE `replimeter`.`{table_name}` CHARACTER SET utf8mb4 \
                 FIELDS TERMINATED BY 0x09 ESCAPED BY 0x5C LINES TERMINATED BY 0x0A ({names})"
            ),
        }
    }

    /// Returns the number of batches.
    pub(super) fn count(&self) -> u64 {
        self.rows.div_ceil(self.of)
    }

    /// Returns the statement whose file is a batch.
    pub(super) fn load_statement(&self) -> &str {
        &self.load
    }

    /// Writes one batch; returns its number of rows.
    pub(super) fn write(
        &self,
        number: u64,
        format: RowFormat,
        out: &mut String,
        scratch: &mut Vec<u8>,
    ) -> u64 {
        let first = number * self.of + 1;
        let last = (first + self.of - 1).min(self.rows);
        let mut draw = Draw {
            random: Random::numbered(number ^ 0x00DA_7A5E),
            ..Draw::new(1, 1, self.sequences)
        };
        draw.sequences.fill(first - 1);
        out.clear();
        let (begin, separator, end) = match format {
            RowFormat::Statement => {
                out.push_str(&self.insert);
                ("(", ",", "),")
            }
            RowFormat::File => ("", "\t", "\n"),
        };
        for row in first..=last {
            draw.row = row;
            out.push_str(begin);
            for (index, column) in self.columns.iter().enumerate() {
                if index > 0 {
                    out.push_str(separator);
                }
                let value = column.draw(&mut draw, scratch, |_| 0);
                match format {
                    RowFormat::Statement => write_literal(value, out),
                    RowFormat::File => write_field(value, out),
                }
            }
            out.push_str(end);
        }
        if format == RowFormat::Statement {
            // The comma after the last row.
            out.pop();
        }
        last + 1 - first
    }
}

/// Returns whether a file fills a table like `INSERT`: a batch can be rolled back, and each column gets the same value.
///
/// # Errors
/// When the server does not answer.
pub(super) fn is_same_in_file(session: &mut Session, table: &Table) -> Result<bool, ServerError> {
    if !rolls_back(session, FILLING, &table.name)? {
        return Ok(false);
    }
    let types: BTreeMap<String, String> = session.pairs(
        FILLING,
        &format!(
            "SELECT LOWER(column_name), LOWER(CONCAT(data_type, ' ', extra)) FROM information_schema.columns \
             WHERE table_schema = 'replimeter' AND table_name = '{}'",
            table.name
        ),
    )?;
    let given = |name: &str| {
        let mut columns = table.columns.iter();
        columns.any(|(column, _)| column.to_lowercase() == name)
    };
    // A file does not say how many rows it has, so numbers are reserved in doubling steps, and most of the last are lost.
    let counted =
        |(name, kind): (&String, &String)| kind.contains("auto_increment") && !given(name);
    if types.iter().any(counted) {
        return Ok(false);
    }
    let of_numbers = |name: &str| {
        let kind = types.get(&name.to_lowercase());
        let kind = kind.and_then(|kind| kind.split(' ').next());
        kind.is_some_and(|kind| TYPES_OF_NUMBERS.contains(&kind))
    };
    let mut columns = table.columns.iter();
    Ok(columns.all(|(name, source)| match source.kind() {
        Some(ValueKind::Text) => true,
        Some(ValueKind::Integer) => of_numbers(name),
        None => false,
    }))
}

/// Writes a value as SQL.
fn write_literal(value: ParameterValue<'_>, sql: &mut String) {
    match value {
        ParameterValue::Null => sql.push_str("NULL"),
        ParameterValue::Text(bytes) => {
            sql.push('\'');
            push_escaped(bytes, b"\\'", |letter| letter, sql);
            sql.push('\'');
        }
        number => write_number(number, sql),
    }
}

/// Writes a value as a field of a file.
fn write_field(value: ParameterValue<'_>, file: &mut String) {
    match value {
        ParameterValue::Null => file.push_str("\\N"),
        ParameterValue::Text(bytes) => push_escaped(bytes, b"\\\t\n", |_| '\\', file),
        number => write_number(number, file),
    }
}

fn write_number(value: ParameterValue<'_>, out: &mut String) {
    // Writing to a string cannot fail.
    match value {
        ParameterValue::Int(number) => drop(write!(out, "{number}")),
        ParameterValue::UInt(number) => drop(write!(out, "{number}")),
        ParameterValue::Double(number) => drop(write!(out, "{number:e}")),
        ParameterValue::Null | ParameterValue::Text(_) => {}
    }
}

/// Writes a text with its special characters after the one that `escape` returns.
fn push_escaped(bytes: &[u8], special: &[u8], escape: fn(char) -> char, out: &mut String) {
    let text = String::from_utf8_lossy(bytes);
    if !bytes.iter().any(|byte| special.contains(byte)) {
        return out.push_str(&text);
    }
    for letter in text.chars() {
        if u8::try_from(letter).is_ok_and(|byte| special.contains(&byte)) {
            out.push(escape(letter));
        }
        out.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::workload::Workload, *};

    fn batches(columns: &str) -> RowBatches {
        let text = format!(
            "size = 25\n[[table]]\nname = 't'\ncreate = 'CREATE TABLE t (a INT)'\n[table.columns]\n{columns}\n[[statement]]\nsql = 'SELECT 1'"
        );
        let workload = Workload::parse("x.toml", &text).unwrap();
        RowBatches {
            insert: "X ".to_owned(),
            of: 10,
            ..RowBatches::new(&workload.inner.tables[0], 25, 1 << 20)
        }
    }

    #[test]
    fn batches_are_deterministic_and_escaped() {
        let batches = batches(
            "a = {row = true}\nb = \"it's \\\\ here\"\nc = {uniform = [1, 'rows']}\nd = {sequence = 5}\ne = 1.5",
        );
        assert_eq!(batches.count(), 3);
        let words = |number| {
            let mut sql = String::new();
            let rows = batches.write(number, RowFormat::Statement, &mut sql, &mut Vec::new());
            (rows, sql)
        };
        let (rows, sql) = words(2);
        assert_eq!((rows, words(2).1), (5, sql.clone()));
        assert!(
            sql.starts_with("X (21,'it''s \\\\ here',") && sql.ends_with(",29,1.5e0)"),
            "{sql}"
        );
        assert_eq!(words(0).0, 10);
    }

    #[test]
    fn file_has_the_values_of_the_statement() {
        let batches =
            batches("a = {row = true}\nb = \"it's \\\\ a\\ttab\\n\"\nc = {uniform = [1, 'rows']}");
        let written = |format| {
            let mut out = String::new();
            assert_eq!(batches.write(2, format, &mut out, &mut Vec::new()), 5);
            out
        };
        let (sql, file) = (written(RowFormat::Statement), written(RowFormat::File));
        assert!(
            file.starts_with("21\tit's \\\\ a\\\ttab\\\n\t") && file.ends_with('\n'),
            "{file}"
        );
        let first = file.split("\n2").next().unwrap();
        let number = first.rsplit('\t').next().unwrap();
        assert!(sql.contains(&format!(",{number}),(22,")), "{sql} {file}");
    }
}
