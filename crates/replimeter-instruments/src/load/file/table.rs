//! Tables to fill.

use super::{
    super::{SETS, split::ScriptError, value::Source, workload::Table},
    settings::{SettingEntry, SettingsFile},
};

/// Parses a table.
pub(super) fn table(
    file: &SettingsFile<'_>,
    line: usize,
    entries: &[SettingEntry<'_>],
) -> Result<Table, ScriptError> {
    let (mut name, mut create, mut columns, mut after, mut row_bytes) =
        (None, None, Vec::new(), Vec::new(), None);
    for &(key, line, value) in entries {
        match key {
            "name" => {
                let text = file.string(value, key)?;
                // The name is inserted into statements unquoted.
                if text.len() > 64
                    || !text
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                {
                    return file.error(
                        value,
                        "a table name may have letters, digits and underscores only, at most 64",
                    );
                }
                if text.starts_with(crate::TABLES)
                    || text.starts_with(crate::WATCH_TABLES)
                    || text == SETS
                {
                    return file.error(
                        value,
                        format!("the name `{text}` is reserved by Replimeter"),
                    );
                }
                name = Some(text.to_owned());
            }
            "create" => {
                create = Some(
                    file.string(value, key)?
                        .trim()
                        .trim_end_matches(';')
                        .to_owned(),
                )
            }
            "columns" => {
                for (column, line, value) in file.table(value, key)? {
                    if column.is_empty() || column.len() > 64 || column.contains('`') {
                        return Err(ScriptError::at(line, "invalid column name"));
                    }
                    let source = file.source(value, &|_| None)?;
                    if let Source::Plus(..) = source {
                        return Err(ScriptError::at(
                            line,
                            "a column cannot be derived from another column",
                        ));
                    }
                    columns.push((column.to_owned(), source));
                }
            }
            "after" => {
                let Some(array) = value.get_ref().as_array() else {
                    return file.error(value, "`after` must be a list of statements");
                };
                for item in array.iter() {
                    after.push(file.string(item, key)?.to_owned());
                }
            }
            "row-bytes" => row_bytes = Some(file.natural(value, 1 << 30)?.max(1)),
            other => {
                return Err(ScriptError::at(
                    line,
                    format!(
                        "unknown setting `{other}` of a table; known: name, create, columns, after and row-bytes"
                    ),
                ));
            }
        }
    }
    let missing = |what: &str| ScriptError::at(line, format!("a table needs a `{what}`"));
    let row_bytes = row_bytes.unwrap_or_else(|| Table::estimate(&columns));
    Ok(Table {
        name: name.ok_or_else(|| missing("name"))?,
        create: create.ok_or_else(|| missing("create"))?,
        columns,
        after,
        row_bytes,
        line,
    })
}
