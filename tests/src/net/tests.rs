//! Tests of how the net reads keys, documents, pages and numbers.

use serde_json::{Value, json};

use super::*;

#[test]
fn paths_are_renamed_by_the_longest_entry() {
    let map = RenamedKeys::of(
        "\"results[]\" = \"results.rows[]\"\n\"results[].lag.missing\" = \"results.rows[].lag.timed_out\"\n\"loss:results[].missing\" = \"results.rows[].lost\"\n\"-published\" = \"data of reproduce\"\n\"+error\" = \"the envelope has it\"\n\"=warm-up\" = \"warm_up\"\nanswer = \"headline\"\na.b = \"c\"\n\"*.low\" = \"*.ci95[0]\"\n\"csv:*.low\" = \"csv:*.ci95.low\"\n",
    );
    assert_eq!(
        map.today("lag", "results[3].p50").as_deref(),
        Some("results.rows[3].p50")
    );
    assert_eq!(
        map.today("lag", "results[*].lag.missing").as_deref(),
        Some("results.rows[*].lag.timed_out")
    );
    assert_eq!(
        map.today("lag", "results[0].missing").as_deref(),
        Some("results.rows[0].missing")
    );
    assert_eq!(
        map.today("loss", "results[0].missing").as_deref(),
        Some("results.rows[0].lost")
    );
    assert_eq!(map.today("lag", "answers").as_deref(), Some("answers"));
    assert_eq!(map.today("lag", "a.b[2]").as_deref(), Some("c[2]"));
    assert_eq!(
        map.today("lag", "results[3].rate.low").as_deref(),
        Some("results.rows[3].rate.ci95[0]")
    );
    assert_eq!(
        map.today("lag", "csv:rate.low").as_deref(),
        Some("csv:rate.ci95.low")
    );
    assert_eq!(
        map.today("lag", "settings.keep-awake").as_deref(),
        Some("settings.keep_awake")
    );
    let today = json!({"rates": [{"ci95": [1, 2]}, {"ci95": null}], "p50_ci95": [3, 4]});
    assert_eq!(
        map.split("lag", &today),
        json!({"rates": [{"ci95": {"[0]": 1, "[1]": 2}}, {"ci95": {"[0]": null, "[1]": null}}], "p50_ci95": [3, 4]})
    );
    assert_eq!(map.today("lag", "published[2].x"), None);
    assert!(map.is_new("lag", "error") && !map.is_new("lag", "errors"));
    assert_eq!(
        map.words("9 words: warm-up×3 warm-ups×6"),
        "9 words: warm_up×3 warm-ups×6"
    );
    assert_eq!(map.unused(), ["answer"]);
    assert_eq!(
        RenamedKeys::of("").today("lag", "x[1].y").as_deref(),
        Some("x[1].y")
    );
}

#[test]
fn document_is_flattened_with_long_arrays_by_key() {
    let rows: Vec<Value> = (0..8)
        .map(|row| {
            if row == 2 {
                json!({"b": row})
            } else {
                json!({"a": row, "b": null})
            }
        })
        .collect();
    let document = json!({"x": {"y": [1, 2.5]}, "rows": rows, "few": [{"z": true}], "none": []});
    let mut shown: Vec<String> = leaves(&document)
        .iter()
        .map(|(path, values)| {
            format!(
                "{path}={}",
                values
                    .iter()
                    .map(|value| value.to_string())
                    .collect::<Vec<_>>()
                    .join(",")
            )
        })
        .collect();
    shown.sort();
    assert_eq!(
        shown,
        [
            "few[0].z=true",
            "none=[]",
            "rows[*].a=0,1,null,3,4,5,6,7",
            "rows[*].b=null,null,2,null,null,null,null,null",
            "x.y=1,2.5"
        ]
    );
}

#[test]
fn page_text_is_read_as_displayed() {
    let page = "<head><style>p {}</style></head><body><h1>A &amp;\n b</h1><script>if (a < b) {}</script><p>one <b>two</b> three</p>\
                <table><tr><th>n</th><td>1</td></tr><tr><th>m</th><td></td></tr></table><pre>x\n  y</pre>";
    assert_eq!(visible(page), "A & b\none two three\nn | 1\nm |\nx\n  y\n");
}

#[test]
fn numbers_are_shortened_to_given_digits() {
    assert_eq!(
        [digits(1.234_567_89, 3), digits(-0.5, 12), digits(1e300, 4)],
        ["1.23", "-0.5", &format!("1{}", "0".repeat(300))]
    );
    assert_eq!(digits(f64::NAN, 3), "NaN");
}
