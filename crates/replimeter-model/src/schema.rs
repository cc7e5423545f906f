//! JSON Schemas of the files that Replimeter reads and the documents that it prints, made
//! from the types themselves.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    calibrate::{CALIBRATE_SCHEMA, CalibrateDocument},
    compare::{COMPARE_SCHEMA, CompareDocument},
    cost::{COST_SCHEMA, CostDocument},
    doctor::{DOCTOR_SCHEMA, DoctorDocument},
    exposure::{EXPOSURE_SCHEMA, ExposureDocument},
    load::{LOAD_SCHEMA, LoadDocument},
    loss::{LOSS_SCHEMA, LossDocument},
    manifest::{MANIFEST_SCHEMA, Manifest},
    plan::PlanFile,
    record::{LAG_SCHEMA, LagDocument},
    reproduce::{REPRODUCE_SCHEMA, ReproduceDocument},
    sandboxes::{SANDBOXES_SCHEMA, SandboxesDocument},
    scale::{SCALE_SCHEMA, ScaleDocument},
    servers::{SERVERS_SCHEMA, ServersDocument},
    stale::{STALE_SCHEMA, StaleDocument},
    tap::{TAP_SCHEMA, TapDocument},
};

/// What plans are.
pub const PLAN: &str = "plan";

/// Everything that has a schema: plan files, and the document of each command.
pub const NAMES: [&str; 16] = [
    PLAN,
    "lag",
    "calibrate",
    "tap",
    "load",
    "scale",
    "cost",
    "stale",
    "loss",
    "exposure",
    "compare",
    "reproduce",
    "doctor",
    "servers",
    "sandboxes",
    "manifest",
];

/// The JSON Schema (draft 7, which editors know best) of one of [`NAMES`].
#[must_use]
pub fn schema(name: &str) -> Option<Value> {
    Some(match name {
        PLAN => plan(),
        "lag" => document::<LagDocument>(LAG_SCHEMA),
        "calibrate" => document::<CalibrateDocument>(CALIBRATE_SCHEMA),
        "tap" => document::<TapDocument>(TAP_SCHEMA),
        "load" => document::<LoadDocument>(LOAD_SCHEMA),
        "scale" => document::<ScaleDocument>(SCALE_SCHEMA),
        "cost" => document::<CostDocument>(COST_SCHEMA),
        "stale" => document::<StaleDocument>(STALE_SCHEMA),
        "loss" => document::<LossDocument>(LOSS_SCHEMA),
        "exposure" => document::<ExposureDocument>(EXPOSURE_SCHEMA),
        "compare" => document::<CompareDocument>(COMPARE_SCHEMA),
        "reproduce" => document::<ReproduceDocument>(REPRODUCE_SCHEMA),
        "doctor" => document::<DoctorDocument>(DOCTOR_SCHEMA),
        "servers" => document::<ServersDocument>(SERVERS_SCHEMA),
        "sandboxes" => document::<SandboxesDocument>(SANDBOXES_SCHEMA),
        "manifest" => document::<Manifest>(MANIFEST_SCHEMA),
        _ => return None,
    })
}

/// The text of [`schema`], as it is printed and kept in `docs/schema`.
#[must_use]
pub fn text(name: &str) -> Option<String> {
    // A value without maps of other keys than texts can always be written.
    schema(name)
        .and_then(|schema| serde_json::to_string_pretty(&schema).ok())
        .map(|text| text + "\n")
}

/// The sections of a plan in which this key stands.
pub(crate) fn sections_of(key: &str) -> Vec<String> {
    let schema = plan();
    let Some(sections) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let has = |section: &Value| {
        resolve(&schema, section)
            .get("properties")
            .is_some_and(|keys| keys.get(key).is_some())
    };
    sections
        .iter()
        .filter(|(_, section)| has(section))
        .map(|(name, _)| name.clone())
        .collect()
}

/// What a place in a schema stands for: references are followed, and of a value that may be
/// null the other kind is taken.
#[must_use]
pub fn resolve<'a>(root: &'a Value, mut part: &'a Value) -> &'a Value {
    // Deeper than any chain of references is.
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

fn plan() -> Value {
    let generator = SchemaSettings::draft07().for_deserialize().into_generator();
    let mut value = tidy(generator.into_root_schema_for::<PlanFile>());
    // TOML has no null: a key is there or it is not.
    without_null(&mut value);
    head(
        &mut value,
        "A plan of Replimeter",
        "docs/plans.md explains every key",
    );
    value
}

fn document<T: JsonSchema>(schema: &str) -> Value {
    let generator = SchemaSettings::draft07().for_serialize().into_generator();
    let mut value = tidy(generator.into_root_schema_for::<T>());
    if let Some(stated) = value.pointer_mut("/properties/schema") {
        *stated = json!({ "const": schema, "description": "What this document is, and in which version" });
    }
    head(
        &mut value,
        schema,
        "Times are microseconds and their names end in _us; null is what the sample cannot carry",
    );
    value
}

fn head(value: &mut Value, title: &str, description: &str) {
    if let Some(object) = value.as_object_mut() {
        object.insert("title".to_owned(), json!(title));
        object.insert("description".to_owned(), json!(description));
    }
}

/// Descriptions as sentences: without the line breaks and links of the source.
fn tidy(schema: Schema) -> Value {
    let mut value = schema.to_value();
    each_object(&mut value, &mut |object| {
        if let Some(Value::String(text)) = object.get_mut("description") {
            *text = text
                .replace("[`", "`")
                .replace("`]", "`")
                .replace("\n\n", "\r")
                .replace('\n', " ")
                .replace('\r', "\n\n");
        }
        // Ranges of integers of the source's language say nothing about the figure.
        if matches!(object.get("format"), Some(Value::String(format)) if format != "uri") {
            object.remove("format");
        }
    });
    value
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
                // Beside a reference this version of JSON Schema sees nothing else.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_docs_is_what_the_types_say() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema");
        let mut kept: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        kept.sort();
        let mut names: Vec<String> = NAMES.iter().map(|name| format!("{name}.json")).collect();
        names.sort();
        assert_eq!(kept, names, "docs/schema: run `make docs`");
        for name in NAMES {
            let found = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
            assert!(
                found == text(name).unwrap(),
                "docs/schema/{name}.json is out of date: run `make docs`"
            );
        }
    }

    #[test]
    fn every_key_of_a_plan_is_described() {
        let schema = plan();
        let sections = schema["properties"].as_object().unwrap();
        assert_eq!(sections.len(), 12, "{:?}", sections.keys());
        for (name, section) in sections {
            let section = resolve(&schema, section);
            for (key, value) in section["properties"].as_object().into_iter().flatten() {
                let said = value
                    .get("description")
                    .or_else(|| resolve(&schema, value).get("description"));
                assert!(said.is_some(), "[{name}] {key} has no description: {value}");
            }
        }
        assert!(!schema.to_string().contains("\"null\""), "{schema:#}");
    }

    #[test]
    fn a_key_in_the_wrong_place_is_found() {
        assert_eq!(sections_of("step-pause"), ["lag"]);
        assert_eq!(sections_of("sandbox"), ["target"]);
        assert!(sections_of("banana").is_empty());
    }
}
