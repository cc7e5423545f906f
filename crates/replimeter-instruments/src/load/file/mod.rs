//! Workloads in TOML: tables to fill, and statements with typed parameters.

mod operation;
mod settings;
mod source;
mod statement;
mod table;
#[cfg(test)]
mod tests;

use replimeter_model::load::DataSize;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use self::{operation::operation, settings::SettingsFile, table::table};
use super::{split::ScriptError, workload::Inner};

/// Maximum number of tables, of operations, of statements per operation and of parameters per statement.
const MAX_ITEMS: usize = 256;

/// Parses a workload.
///
/// # Errors
/// A syntax error, with its line.
pub(super) fn parse(text: &str) -> Result<Inner, ScriptError> {
    let file = SettingsFile { text };
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| file.line(&span));
        ScriptError::at(line, error.message().to_owned())
    })?;
    let mut inner = Inner {
        tables: Vec::new(),
        size: DataSize::Rows(0),
        setup: Vec::new(),
        operations: Vec::new(),
        teardown: Vec::new(),
    };
    let (mut sized, mut only) = (None, Vec::new());
    for (key, line, value) in file.entries(document.get_ref()) {
        match key {
            "size" => sized = Some(size(&file, value)?),
            "table" => {
                for (line, entries) in file.list(value, key)? {
                    inner.tables.push(table(&file, line, &entries)?);
                }
            }
            "operation" => {
                for (line, entries) in file.list(value, key)? {
                    inner.operations.push(operation(&file, line, &entries)?);
                }
            }
            // A single operation needs no [[operation]] table.
            "statement" | "transaction" | "shared" => only.push((key, line, value)),
            other => {
                let known = "size, table, operation, statement, transaction and shared";
                return Err(ScriptError::at(
                    line,
                    format!("unknown setting `{other}`; known: {known}"),
                ));
            }
        }
    }
    match (only.first(), inner.operations.is_empty()) {
        (Some((_, line, _)), true) => inner.operations.push(operation(&file, *line, &only)?),
        (Some((key, line, _)), false) => {
            return Err(ScriptError::at(
                *line,
                format!(
                    "with [[operation]] tables, `{key}` must be part of one of them, such as [[operation.statement]]"
                ),
            ));
        }
        (None, true) => {
            let lines = text.lines().count().max(1);
            return Err(ScriptError::at(
                lines,
                "there is no statement to run; write one as [[statement]]",
            ));
        }
        (None, false) => {}
    }
    check_names(&inner)?;
    let filled = inner.tables.iter().any(|table| !table.columns.is_empty());
    match (filled, sized) {
        (true, size) => inner.size = size.unwrap_or(DataSize::Rows(10_000)),
        (false, Some(_)) => {
            return Err(ScriptError::at(
                1,
                "`size` is set, but no table has columns to fill",
            ));
        }
        (false, None) => {}
    }
    Ok(inner)
}

fn size(file: &SettingsFile<'_>, value: &Spanned<DeValue<'_>>) -> Result<DataSize, ScriptError> {
    match value.get_ref().as_str() {
        Some(text) => text
            .parse()
            .or_else(|reason: String| file.error(value, reason)),
        None => Ok(DataSize::Rows(file.natural(value, i64::MAX as u64)?)),
    }
}

fn check_names(inner: &Inner) -> Result<(), ScriptError> {
    let mut names: Vec<&str> = inner
        .tables
        .iter()
        .map(|table| table.name.as_str())
        .collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ScriptError::at(
            1,
            format!("there are two tables named `{}`", twice[0]),
        ));
    }
    Ok(())
}
