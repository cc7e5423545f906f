//! Errors of TOML files in plain words, with the key, its value and an example of a right one.

use schemars::SchemaGenerator;
use serde_json::Value as Json;
use toml::{
    Spanned, Table,
    de::{DeTable, DeValue},
};

use super::{Section, TargetSettings, place};
use crate::{redact, suggest};

/// Maximum length of a value that is repeated, in characters.
const MAX_SHOWN: usize = 40;

/// A setting of a file.
struct Setting<'a> {
    /// Its section; `None` at the top level.
    section: Option<&'a str>,
    key: &'a str,
    value: &'a DeValue<'a>,
    /// The text of the value, if it is short.
    written: Option<&'a str>,
    /// Whether the error is about one value of a list.
    in_list: bool,
}

/// Returns a message about an error in a TOML text, with line, column and a suggestion;
/// with an excerpt unless that could contain a password. `sections` are those of plan files.
#[must_use]
pub fn explain(error: &toml::de::Error, text: &str, sections: &[Section]) -> String {
    let excerpt = error.to_string();
    let at = error.span().map_or(0, |span| span.start);
    let parsed = DeTable::parse(text);
    // Any line of a multi-line or unterminated string can be a part of a URL.
    let several_lines = ["\"\"\"", "'''"]
        .into_iter()
        .any(|mark| text.contains(mark))
        || parsed.is_err() && redact::may_hold_password(text);
    let setting = parsed
        .as_ref()
        .ok()
        .and_then(|table| setting_at(table.get_ref(), None, text, at));
    let mut explained = if several_lines || redact::may_hold_password(&excerpt) {
        let (line, column) = place::line_and_column(text, at);
        let message = redact::serde_message(error.message());
        let setting = setting.map(|setting| Setting {
            written: None,
            ..setting
        });
        let message = plain(&message, setting.as_ref(), sections).unwrap_or(message);
        format!("line {line}, column {column}: {message}")
    } else {
        let excerpt = excerpt.trim_end();
        match plain(error.message(), setting.as_ref(), sections) {
            Some(message) => match excerpt.strip_suffix(error.message().trim_end()) {
                Some(before) => format!("{before}{message}"),
                None => excerpt.to_owned(),
            },
            None => excerpt.to_owned(),
        }
    };
    if let Some((wrong, known)) = suggest::unknown(error.message()) {
        let hint = suggest::nearest(wrong, known).map(|word| format!("did you mean `{word}`?"));
        let hint = hint.or_else(|| {
            let target = target_section();
            let all = std::iter::once(&target).chain(sections);
            let names: Vec<&str> = all
                .filter(|section| section.has(wrong))
                .map(|section| section.name)
                .collect();
            (!names.is_empty())
                .then(|| format!("`{wrong}` is a key of [{}]", names.join("] and [")))
        });
        explained.extend(hint.map(|hint| format!("\n{hint}")));
    }
    explained
}

fn target_section() -> Section {
    Section {
        name: "target",
        schema: SchemaGenerator::subschema_for::<TargetSettings>,
        defaults: Table::new,
    }
}

/// Returns the setting whose value contains this byte.
fn setting_at<'a>(
    table: &'a DeTable<'a>,
    section: Option<&'a str>,
    text: &'a str,
    at: usize,
) -> Option<Setting<'a>> {
    for (key, value) in table {
        let name: &str = key.get_ref();
        if let DeValue::Table(inner) = value.get_ref()
            && section.is_none()
            && let Some(found) = setting_at(inner, Some(name), text, at)
        {
            return Some(found);
        }
        if !value.span().contains(&at) {
            continue;
        }
        let in_list = matches!(value.get_ref(), DeValue::Array(_)) && value.span().start != at;
        let element = match value.get_ref() {
            DeValue::Array(values) => values
                .iter()
                .find(|value| in_list && value.span().contains(&at)),
            _ => None,
        };
        let shown: &Spanned<DeValue<'_>> = element.unwrap_or(value);
        let written = text.get(shown.span()).map(str::trim);
        return Some(Setting {
            section,
            key: name,
            value: value.get_ref(),
            written: written
                .filter(|text| text.chars().count() <= MAX_SHOWN && !text.contains('\n')),
            in_list,
        });
    }
    None
}

/// Returns serde's message in plain words; `None` if it has none of serde's own.
fn plain(message: &str, setting: Option<&Setting<'_>>, sections: &[Section]) -> Option<String> {
    if let Some((wrong, known)) = suggest::unknown(message) {
        let what = if message.starts_with("unknown field") {
            "key"
        } else {
            "value"
        };
        let known = match known.is_empty() {
            true => String::new(),
            false => format!("; known: {}", known.join(", ")),
        };
        return Some(format!("unknown {what} `{wrong}`{known}"));
    }
    if let Some(key) = message.strip_prefix("missing field ") {
        let key = key.trim_matches('`');
        if key != "command" {
            return Some(format!("the key `{key}` is missing"));
        }
        let names: Vec<_> = sections.iter().map(|section| section.name).collect();
        return Some(format!(
            "the key `command` is missing: the measurement, one of {}",
            names.join(", ")
        ));
    }
    let rest = ["invalid type: ", "invalid value: "]
        .into_iter()
        .find_map(|prefix| message.strip_prefix(prefix))?;
    let (_, expected) = rest.rsplit_once(", expected ")?;
    let Some(setting) = setting else {
        return Some(format!("this must be {}", kind(expected)));
    };
    let key = setting.key;
    let known = sections.iter().any(|section| section.name == key) || key == "target";
    if setting.section.is_none() && known {
        return Some(format!(
            "`{key}` is a section: write [{key}], and its keys below that line"
        ));
    }
    let is = setting
        .written
        .map_or_else(String::new, |written| format!(", and is {written}"));
    if setting.in_list {
        return Some(format!(
            "each value of the list `{key}` must be {}{is}",
            kind(expected).trim_end_matches(" in brackets")
        ));
    }
    let example = converted(setting, expected)
        .or_else(|| example(setting, sections))
        .unwrap_or_else(|| usual(expected).to_owned());
    Some(format!(
        "`{key}` must be {}{is}; for example: {key} = {example}",
        kind(expected)
    ))
}

/// Returns the words for a type that serde expects.
fn kind(expected: &str) -> &'static str {
    match expected {
        "a boolean" => "true or false",
        "a sequence" => "a list in brackets",
        "f32" | "f64" => "a number",
        "a string" | "a word" | "a borrowed string" => "a text in quotes",
        "a value or a list of them" => "a text in quotes, or a list of them in brackets",
        word if is_integer(word) => "a whole number, 0 or larger",
        _ => "a section of keys",
    }
}

fn is_integer(expected: &str) -> bool {
    let word = expected.strip_prefix("a nonzero ").unwrap_or(expected);
    let digits = word.strip_prefix(['u', 'i']);
    digits.is_some_and(|digits| digits == "size" || digits.parse::<u8>().is_ok())
}

/// Returns an example of the expected type alone.
fn usual(expected: &str) -> &'static str {
    match expected {
        "a boolean" => "true",
        "a sequence" => "[\"…\"]",
        "f32" | "f64" => "1.5",
        word if is_integer(word) => "100",
        _ => "\"…\"",
    }
}

/// Returns the given value in the expected form: a list as one text, or a single value as a list.
fn converted(setting: &Setting<'_>, expected: &str) -> Option<String> {
    setting.written?;
    match (setting.value, expected) {
        (DeValue::Array(values), "a string") if !values.is_empty() => {
            let words: Option<Vec<String>> = values
                .iter()
                .map(|value| match value.get_ref() {
                    DeValue::String(text) => Some(text.to_string()),
                    DeValue::Integer(number) => Some(number.to_string()),
                    _ => None,
                })
                .collect();
            Some(format!("\"{}\"", words?.join(",")))
        }
        (DeValue::String(text), "a sequence") => {
            let words: Vec<&str> = text.split(',').map(str::trim).collect();
            if words.iter().all(|word| word.parse::<u64>().is_ok()) {
                return Some(format!("[{}]", words.join(", ")));
            }
            let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            Some(format!("[{}]", words.join(", ")))
        }
        _ => None,
    }
}

/// Returns an example of a setting's value: its default, or an example of its schema.
fn example(setting: &Setting<'_>, sections: &[Section]) -> Option<String> {
    if let ("command", None, Some(first)) = (setting.key, setting.section, sections.first()) {
        return Some(format!("\"{}\"", first.name));
    }
    let target = target_section();
    let section = std::iter::once(&target)
        .chain(sections)
        .find(|section| Some(section.name) == setting.section)?;
    if let Some(default) = (section.defaults)().get(setting.key) {
        return Some(default.to_string());
    }
    let mut generator = SchemaGenerator::default();
    let reference = (section.schema)(&mut generator);
    let schemas = Json::Object(generator.definitions().clone());
    let properties = resolved(reference.as_value(), &schemas)?.get("properties")?;
    example_of(properties.get(setting.key)?, &schemas)
}

/// Returns the schema that a reference names, or the schema itself.
fn resolved<'a>(schema: &'a Json, schemas: &'a Json) -> Option<&'a Json> {
    match schema.get("$ref").and_then(Json::as_str) {
        Some(path) => schemas.get(path.rsplit('/').next()?),
        None => Some(schema),
    }
}

/// Returns an example of a value of this schema, as in a plan.
fn example_of(schema: &Json, schemas: &Json) -> Option<String> {
    let schema = resolved(schema, schemas)?;
    let first = |key: &str| schema.get(key).and_then(Json::as_array)?.first();
    if let Some(value) = first("examples")
        .or_else(|| first("enum"))
        .or_else(|| schema.get("const"))
    {
        return Some(value.to_string());
    }
    if let Some(items) = schema.get("items") {
        return Some(format!("[{}]", example_of(items, schemas)?));
    }
    let parts = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(first);
    parts.into_iter().find_map(|part| example_of(part, schemas))
}
