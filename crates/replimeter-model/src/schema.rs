//! JSON Schemas of the files that Replimeter reads and the documents that it prints, made
//! from the types themselves.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    compare::{COMPARE_SCHEMA, CompareDocument},
    doctor::{DOCTOR_SCHEMA, DoctorDocument},
    envelope::Envelope,
    manifest::{MANIFEST_SCHEMA, Manifest},
    plan::{Section, Settings, TargetSettings, with_default},
    reproduce::{REPRODUCE_SCHEMA, ReproduceDocument},
    sandboxes::{SANDBOXES_SCHEMA, SandboxesDocument},
    servers::{SERVERS_SCHEMA, ServersDocument},
    trial::{TRIAL_SCHEMA, TrialDocument},
    watch_once::{WATCH_ONCE_SCHEMA, WatchOnceDocument},
};

/// Measurements that plans are for.
pub const PLAN: &str = "plan";

/// The name of a document's schema, and what makes it.
pub type NamedSchema = (&'static str, fn() -> Value);

/// Returns the documents that do not belong to a measurement.
pub const OTHERS: [NamedSchema; 8] = [
    ("compare", || {
        document::<CompareDocument>(COMPARE_SCHEMA, &[])
    }),
    ("trial", || document::<TrialDocument>(TRIAL_SCHEMA, &[])),
    ("reproduce", || {
        document::<ReproduceDocument>(REPRODUCE_SCHEMA, &[])
    }),
    ("doctor", || document::<DoctorDocument>(DOCTOR_SCHEMA, &[])),
    ("servers", || {
        document::<ServersDocument>(SERVERS_SCHEMA, &[])
    }),
    ("sandboxes", || {
        document::<SandboxesDocument>(SANDBOXES_SCHEMA, &[])
    }),
    ("watch-once", || {
        document::<WatchOnceDocument>(WATCH_ONCE_SCHEMA, &[])
    }),
    ("manifest", || document::<Manifest>(MANIFEST_SCHEMA, &[])),
];

/// Resolves a place in a schema: follows references, and takes the other type of a value that may be
/// null.
#[must_use]
pub fn resolve<'a>(root: &'a Value, mut part: &'a Value) -> &'a Value {
    // Deeper than any chain of references.
    for _ in 0..16 {
        let reference = part
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|text| text.strip_prefix('#'));
        if let Some(target) = reference.and_then(|pointer| root.pointer(pointer)) {
            part = target;
            continue;
        }
        let choices = ["allOf", "anyOf"]
            .iter()
            .find_map(|word| part.get(*word).and_then(Value::as_array));
        match choices.and_then(|choices| {
            choices
                .iter()
                .find(|one| one.get("type") != Some(&json!("null")))
        }) {
            Some(choice) => part = choice,
            None => break,
        }
    }
    part
}

/// Returns the JSON Schema (draft 7, which most editors support) of plan files with these sections.
#[must_use]
pub fn plan(sections: &[Section]) -> Value {
    let mut generator = SchemaSettings::draft07().for_deserialize().into_generator();
    let names: Vec<&str> = sections.iter().map(|section| section.name).collect();
    let about = |text: &str, schema: Schema| json!({ "description": text, "allOf": [schema] });
    let mut keys = json!({
        "command": { "description": "The measurement", "type": "string", "enum": names },
        "title": {
            "description": "Title of the run in reports",
            "type": "string",
        },
        "target": about("Target: the servers to measure", generator.subschema_for::<TargetSettings>()),
    });
    for section in sections {
        let how = format!("Settings of the command `{}`", section.name);
        keys[section.name] = about(&how, (section.schema)(&mut generator));
    }
    let mut value = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A plan of Replimeter",
        "description": "`replimeter schema plan --markdown` lists every key",
        "type": "object",
        "properties": keys,
        "additionalProperties": false,
        "required": ["command"],
        "definitions": generator.take_definitions(true),
    });
    tidy(&mut value, sections);
    // TOML has no null: a key is there or it is not.
    without_null(&mut value);
    value
}

/// Returns the JSON Schema of the records of a measurement's runs.
#[must_use]
pub fn run<S: Settings, R: JsonSchema>() -> Value {
    document::<Envelope<S, R>>(&run_schema::<S>(), &[Section::of::<S>()])
}

/// Returns the schema that the record of a measurement's run states.
#[must_use]
pub fn run_schema<S: Settings>() -> String {
    format!("replimeter.{}/1", S::NAME)
}

/// Returns the JSON Schema (draft 7) of a document that states this schema, with the settings of these sections.
fn document<T: JsonSchema>(schema: &str, settings: &[Section]) -> Value {
    let generator = SchemaSettings::draft07().for_serialize().into_generator();
    let mut value = generator.into_root_schema_for::<T>().to_value();
    tidy(&mut value, settings);
    snake_case(&mut value, settings);
    if let Some(stated) = value.pointer_mut("/properties/schema") {
        *stated = json!({ "const": schema, "description": "Kind and version of this document" });
    }
    head(
        &mut value,
        schema,
        "Times are microseconds and their names end in _us; null is a figure that the sample is too small for",
    );
    value
}

fn head(value: &mut Value, title: &str, description: &str) {
    if let Some(object) = value.as_object_mut() {
        object.insert("title".to_owned(), json!(title));
        object.insert("description".to_owned(), json!(description));
    }
}

/// Rewrites descriptions as sentences: with defaults, and without the line breaks and links of the source.
fn tidy(value: &mut Value, settings: &[Section]) {
    fill_defaults(value, settings);
    each_object(value, &mut |object| {
        if let Some(Value::String(text)) = object.get_mut("description") {
            let mut parts = text.split("[`");
            let first = parts.next().unwrap_or_default().to_owned();
            let unlinked = parts.fold(first, |text, part| {
                text + "`" + &part.replacen("`]", "`", 1)
            });
            *text = unlinked
                .replace("\n\n", "\r")
                .replace('\n', " ")
                .replace('\r', "\n\n");
        }
        // Ranges of Rust's integers have no meaning for the figure.
        if matches!(object.get("format"), Some(Value::String(format)) if format != "uri") {
            object.remove("format");
        }
    });
}

/// Returns the keys of a section's settings in a schema.
fn keys<'a>(value: &'a mut Value, section: &Section) -> Option<&'a mut Map<String, Value>> {
    let reference = (section.schema)(&mut SchemaSettings::draft07().into_generator());
    let pointer = reference.get("$ref").and_then(Value::as_str)?;
    value
        .pointer_mut(&format!("{}/properties", pointer.trim_start_matches('#')))
        .and_then(Value::as_object_mut)
}

/// The settings of a document have the keys of plan files in snake_case.
fn snake_case(value: &mut Value, settings: &[Section]) {
    for section in settings {
        if let Some(keys) = keys(value, section) {
            *keys = std::mem::take(keys)
                .into_iter()
                .map(|(key, part)| (key.replace('-', "_"), part))
                .collect();
        }
    }
}

fn fill_defaults(value: &mut Value, settings: &[Section]) {
    for section in settings {
        let defaults = (section.defaults)();
        for (key, part) in keys(value, section).into_iter().flatten() {
            if let Some(Value::String(about)) = part.get_mut("description") {
                *about = with_default(about, key, &defaults);
            }
        }
    }
}

fn without_null(value: &mut Value) {
    each_object(value, &mut |object| {
        if let Some(Value::Array(types)) = object.get_mut("type") {
            types.retain(|one| one != "null");
            if let [one] = types.as_slice() {
                let one = one.clone();
                object.insert("type".to_owned(), one);
            }
        }
        if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
            choices.retain(|one| one.get("type") != Some(&json!("null")));
            if choices.len() == 1 {
                let only = choices.remove(0);
                object.remove("anyOf");
                // This version of JSON Schema ignores everything next to a reference.
                object.insert("allOf".to_owned(), json!([only]));
            }
        }
    });
}

fn each_object(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            change(object);
            object
                .values_mut()
                .for_each(|inner| each_object(inner, change));
        }
        Value::Array(array) => array
            .iter_mut()
            .for_each(|inner| each_object(inner, change)),
        _ => {}
    }
}
