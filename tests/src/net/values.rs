//! Values of documents and tables as lines to compare.

use serde_json::Value;

/// Longer lists are abbreviated to their number of values, their first and last ones, sum and hash.
const MAX_LIST_LENGTH: usize = 24;
/// Longer arrays of objects are listed key by key.
const MAX_ARRAY_LENGTH: usize = 6;

/// Returns the leaves of a document by path, in order. Arrays of simple values are one [list]; arrays of many objects are
/// listed key by key, as `rows[*].key`.
#[must_use]
pub fn leaves(document: &Value) -> Vec<(String, Vec<&Value>)> {
    let mut leaves = Vec::new();
    flatten(String::new(), document, &mut leaves);
    leaves
}

fn flatten<'a>(path: String, value: &'a Value, leaves: &mut Vec<(String, Vec<&'a Value>)>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, inner) in object {
                // An end of an interval that [`RenamedKeys::split`] split.
                let path = if path.is_empty() || key.starts_with('[') {
                    format!("{path}{key}")
                } else {
                    format!("{path}.{key}")
                };
                flatten(path, inner, leaves);
            }
        }
        Value::Array(array)
            if array
                .iter()
                .any(|inner| inner.is_object() || inner.is_array()) =>
        {
            if array.len() <= MAX_ARRAY_LENGTH {
                array
                    .iter()
                    .enumerate()
                    .for_each(|(index, inner)| flatten(format!("{path}[{index}]"), inner, leaves));
                return;
            }
            let mut columns: Vec<(String, Vec<&Value>)> = Vec::new();
            for (index, inner) in array.iter().enumerate() {
                let mut inside = Vec::new();
                flatten(format!("{path}[*]"), inner, &mut inside);
                for (path, values) in inside {
                    let place = columns
                        .iter()
                        .position(|(known, _)| *known == path)
                        .unwrap_or_else(|| {
                            columns.push((path, vec![&Value::Null; 0]));
                            columns.len() - 1
                        });
                    // A key that an object lacks has an empty value there.
                    let column = &mut columns[place].1;
                    column.resize(column.len().max(index), &Value::Null);
                    column.extend(values);
                }
            }
            leaves.extend(columns);
        }
        Value::Array(array) if !array.is_empty() => leaves.push((path, array.iter().collect())),
        simple => leaves.push((path, vec![simple])),
    }
}

/// Formats values in one line. Long lists are abbreviated: numbers with their sum and a hash of all, words with the count
/// of each and a hash of their order, which stays the same when a word is renamed.
#[must_use]
pub fn list(values: &[String]) -> String {
    if values.len() <= MAX_LIST_LENGTH {
        return values.join(" ");
    }
    let numbers: Vec<f64> = values
        .iter()
        .filter_map(|value| value.parse().ok())
        .collect();
    let mut words: Vec<(&str, usize)> = Vec::new();
    let mut order = String::new();
    if numbers.is_empty() {
        for value in values {
            let place = words
                .iter()
                .position(|(word, _)| word == value)
                .unwrap_or(words.len());
            if place == words.len() {
                words.push((value, 0));
            }
            words[place].1 += 1;
            order.push_str(&format!("{place} "));
        }
    }
    if (1..=MAX_LIST_LENGTH).contains(&words.len()) {
        let counted: Vec<String> = words
            .iter()
            .map(|(word, count)| format!("{word}×{count}"))
            .collect();
        return format!(
            "{} words: {} ; order {:016x}",
            values.len(),
            counted.join(" "),
            hash(&order)
        );
    }
    let sum: f64 = numbers.iter().filter(|number| number.is_finite()).sum();
    let sum = if numbers.is_empty() {
        String::new()
    } else {
        format!("sum {} ", digits(sum, 9))
    };
    let (first, last) = (values[..4].join(" "), values[values.len() - 3..].join(" "));
    format!(
        "{} values: {first} … {last} ; {sum}hash {:016x}",
        values.len(),
        hash(&values.join(" "))
    )
}

/// Formats a number with a number of significant digits.
///
/// Computed numbers may differ in their last digits between processors.
#[must_use]
pub fn digits(number: f64, digits: usize) -> String {
    // The shortest text of the rounded number.
    format!("{number:.*e}", digits - 1)
        .parse::<f64>()
        .map_or_else(|_| number.to_string(), |rounded| rounded.to_string())
}

/// FNV-1a, which is the same on every machine and in every version.
#[must_use]
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns whether a leaf's values are sentences, which belong to the texts; words and numbers are values.
#[must_use]
pub fn is_text(leaf: &[&Value]) -> bool {
    leaf.iter().any(|value| {
        value
            .as_str()
            .is_some_and(|text| text.contains(char::is_whitespace))
    })
}

/// Formats a text as one word of a list.
#[must_use]
pub fn word(text: &str) -> String {
    if text.is_empty() {
        "\"\"".to_owned()
    } else {
        text.escape_debug().to_string().replace(' ', "\\s")
    }
}

/// Returns the columns of a table in CSV by name.
#[must_use]
pub fn columns(table: &str) -> Vec<(String, Vec<String>)> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let mut columns: Vec<(String, Vec<String>)> = reader
        .headers()
        .unwrap()
        .iter()
        .map(|name| (name.to_owned(), Vec::new()))
        .collect();
    for row in reader.records() {
        for (cell, (_, cells)) in row.unwrap().iter().zip(&mut columns) {
            cells.push(word(cell));
        }
    }
    columns
}
