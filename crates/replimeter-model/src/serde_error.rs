//! Errors of JSON documents, without names of Rust types.

/// Returns serde's message about a JSON document in words that a reader of the document understands.
#[must_use]
pub fn plain(error: &serde_json::Error) -> String {
    let message = error.to_string();
    if let Some((before, _)) = message.split_once("data did not match any variant of untagged enum")
    {
        return format!("{before}a value has none of the expected forms");
    }
    let invalid = message.starts_with("invalid ");
    let Some((before, after)) = message.rsplit_once(", expected ").filter(|_| invalid) else {
        return message;
    };
    // Only errors of a text have a place.
    let (expected, place) = after
        .find(" at line ")
        .map_or((after, ""), |at| after.split_at(at));
    let first = expected.split(' ').next().unwrap_or_default();
    let number = first.strip_prefix(['u', 'i', 'f']);
    let expected = match first {
        _ if number.is_some_and(|size| size == "size" || size.parse::<u8>().is_ok()) => "a number",
        "struct" | "map" => "an object",
        _ if expected.starts_with("a tuple") => "a list",
        "enum" | "unit" | "newtype" | "adjacently" | "internally" => "a known word or an object",
        _ => expected,
    };
    format!("{before}, expected {expected}{place}")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Whole {
        count: Option<u64>,
        share: Option<f64>,
        part: Option<Part>,
        pair: Option<(u8, u8)>,
        list: Option<Vec<String>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Part {
        One,
    }

    #[test]
    fn no_type_of_rust_is_named() {
        let wrong = |value: Value| plain(&serde_json::from_value::<Whole>(value).unwrap_err());
        for (value, want) in [
            (
                json!("none"),
                "invalid type: string \"none\", expected an object",
            ),
            (
                json!({"count": "x"}),
                "invalid type: string \"x\", expected a number",
            ),
            (
                json!({"share": []}),
                "invalid type: sequence, expected a number",
            ),
            (
                json!({"count": -1}),
                "invalid value: integer `-1`, expected a number",
            ),
            (
                json!({"pair": 1}),
                "invalid type: integer `1`, expected a list",
            ),
            (
                json!({"list": 1}),
                "invalid type: integer `1`, expected a sequence",
            ),
            (
                json!({"part": "two"}),
                "unknown variant `two`, expected `one`",
            ),
        ] {
            assert_eq!(wrong(value), want);
        }
        let text = serde_json::from_str::<Whole>("{\"count\": {}}").unwrap_err();
        assert_eq!(
            plain(&text),
            "invalid type: map, expected a number at line 1 column 10"
        );
    }
}
