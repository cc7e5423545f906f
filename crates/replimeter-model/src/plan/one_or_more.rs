//! Lists in which a single value may be written without brackets.

use std::{fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, IntoDeserializer, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

/// For `serde(with)`: a list of which a single value may be written as itself.
pub struct OneOrMore<T>(PhantomData<T>);

impl<T: Serialize> OneOrMore<T> {
    /// Writes a single value as itself.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        values: &Option<Vec<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match values.as_deref() {
            Some([one]) => one.serialize(serializer),
            values => values.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> OneOrMore<T> {
    /// Reads a value or a list.
    ///
    /// # Errors
    /// When a value is invalid.
    pub fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<T>>, D::Error> {
        // Not an untagged enum, which says only that nothing fits, and not what is wrong with the value.
        deserializer.deserialize_any(Self(PhantomData)).map(Some)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMore<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        T::deserialize(text.into_deserializer()).map(|one| vec![one])
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<T>, E> {
        T::deserialize(number.into_deserializer()).map(|one| vec![one])
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Vec<T>, E> {
        T::deserialize(number.into_deserializer()).map(|one| vec![one])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMore<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("OneOrMore{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [generator.subschema_for::<T>(), generator.subschema_for::<Vec<T>>()]
        })
    }
}
