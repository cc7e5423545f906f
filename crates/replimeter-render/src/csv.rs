//! The rows of a document as CSV (RFC 4180), for spreadsheets and scripts.
//!
//! The columns are those of the document's JSON Schema, in its order, so the header never depends on the
//! results: `from_ack.p50_us` is the `p50_us` in the `from_ack` of a row. An interval has two columns, `.low`
//! and `.high`. Lists do not fit into a row and are left out; the JSON document and the Parquet file have
//! them.

use replimeter_model::schema::resolve;
use serde_json::Value;

/// A step on the path to a column's value.
#[derive(Clone, Debug)]
enum PathStep {
    Key(String),
    Index(usize),
}

/// One column: its name and the path to its value.
struct Column {
    name: String,
    way: Vec<PathStep>,
}

/// Returns the table of a document: the `rows` of its results.
///
/// # Errors
/// If the table cannot be written; this needs only memory.
pub fn table(schema: &Value, document: &Value) -> Result<String, csv::Error> {
    let columns = columns(schema);
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(|column| column.name.as_str()))?;
    let rows = document["results"]["rows"].as_array();
    for row in rows.into_iter().flatten() {
        writer.write_record(columns.iter().map(|column| cell(row, &column.way)))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn columns(schema: &Value) -> Vec<Column> {
    let mut columns = Vec::new();
    if let Some(results) = schema.pointer("/properties/results")
        && let Some(rows) = resolve(schema, results).pointer("/properties/rows")
        && let Some(row) = resolve(schema, rows).get("items")
    {
        descend(schema, row, &mut Vec::new(), "", &mut columns);
    }
    columns
}

fn descend(
    schema: &Value,
    part: &Value,
    way: &mut Vec<PathStep>,
    name: &str,
    columns: &mut Vec<Column>,
) {
    let part = resolve(schema, part);
    if let Some(properties) = part.get("properties").and_then(Value::as_object) {
        for (key, property) in properties {
            let name = if name.is_empty() {
                key.clone()
            } else {
                format!("{name}.{key}")
            };
            way.push(PathStep::Key(key.clone()));
            descend(schema, property, way, &name, columns);
            way.pop();
        }
        return;
    }
    let is = |kind: &str| match part.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => false,
    };
    if is("array") {
        let pair = part.get("minItems").is_some_and(|least| least == 2)
            && part.get("maxItems").is_some_and(|most| most == 2);
        for (index, end) in ["low", "high"].into_iter().enumerate().filter(|_| pair) {
            way.push(PathStep::Index(index));
            columns.push(Column {
                name: format!("{name}.{end}"),
                way: way.clone(),
            });
            way.pop();
        }
        return;
    }
    if is("object") {
        // An object whose keys the schema does not list.
        return;
    }
    columns.push(Column {
        name: name.to_owned(),
        way: way.clone(),
    });
}

/// Returns a text that no spreadsheet takes for a formula: one that begins like a formula gets an apostrophe before it. Names come
/// from servers and plans.
#[must_use]
pub fn inert(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

/// Returns a record of these cells, with the end of its line.
#[must_use]
pub fn line<C: AsRef<[u8]>>(cells: impl IntoIterator<Item = C>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Memory does not refuse it.
    let bytes = match writer.write_record(cells) {
        Ok(()) => writer.into_inner().unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    String::from_utf8_lossy(&bytes).into_owned()
}

fn cell(row: &Value, way: &[PathStep]) -> String {
    let found = way.iter().try_fold(row, |value, step| match step {
        PathStep::Key(key) => value.get(key),
        PathStep::Index(index) => value.get(index),
    });
    match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => inert(text),
        Some(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_begins_like_a_formula_is_made_inert() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"] {
            assert_eq!(inert(text), format!("'{text}"));
        }
        assert_eq!(inert("async:1=2"), "async:1=2");
    }
}
