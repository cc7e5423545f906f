//! Contents of a page: its charts, and its displayed text.

use serde_json::Value;

use super::values::hash;

/// Longer tables of a page are abbreviated to their first and last rows and a hash.
const MAX_TABLE_LENGTH: usize = 16;

/// Returns the chart data of a page.
///
/// # Panics
/// If the page has no data.
#[must_use]
pub fn figures(page: &str) -> Vec<Value> {
    if page.is_empty() {
        return Vec::new();
    }
    let data = page
        .split("<script type=\"application/json\" id=\"data\">")
        .nth(1)
        .and_then(|rest| rest.split("</script>").next());
    serde_json::from_str(data.expect("the page holds its data")).unwrap()
}

/// Returns the charts of a page: for each its id and its series.
#[must_use]
pub fn charts(page: &str) -> Vec<(String, Vec<Value>)> {
    let series = |figure: &Value| figure["data"].as_array().unwrap().clone();
    figures(page)
        .iter()
        .map(|figure| (figure["id"].as_str().unwrap().to_owned(), series(figure)))
        .collect()
}

/// Returns the page with a placeholder for the report as text, and that report.
#[must_use]
pub fn without_report(page: &str) -> (String, String) {
    let parts = page.split_once("<summary>Report as text</summary><pre>");
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once("</pre>")?)));
    parts.map_or_else(
        || (page.to_owned(), String::new()),
        |(before, (report, after))| {
            let kept = "<summary>Report as text</summary><pre>(as on a terminal)</pre>";
            (format!("{before}{kept}{after}"), plain(report))
        },
    )
}

/// Returns the names of the drawings of a page: the mode of each shape, and who receives from whom.
#[must_use]
pub fn drawings(page: &str) -> Vec<String> {
    let drawings = page.split("<figure class=\"topology\">").skip(1);
    let label = |drawing: &str| {
        Some(plain(
            drawing.split("aria-label=\"").nth(1)?.split('"').next()?,
        ))
    };
    drawings.filter_map(label).collect()
}

/// Returns the displayed text of a page and the descriptions of its charts: a line for each block, with separated cells.
/// Long tables are abbreviated.
#[must_use]
pub fn visible(page: &str) -> String {
    displayed(page, shortened)
}

/// Returns the displayed text of a page with all rows of its tables.
#[must_use]
pub fn unabbreviated(page: &str) -> String {
    displayed(page, |rows| {
        rows.iter().map(|row| format!("{row}\n")).collect()
    })
}

fn displayed(page: &str, shown: fn(&[String]) -> String) -> String {
    let body = page.split_once("<body").map_or(page, |(_, body)| body);
    let mut text = String::new();
    // Rows of the open table, and their text.
    let mut table: Option<Vec<String>> = None;
    let mut hidden: Option<&str> = None;
    for piece in body.split('<').skip(1) {
        let (tag, content) = piece.split_once('>').unwrap_or((piece, ""));
        let name = tag
            .split([' ', '\n', '/'])
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        if let Some(element) = hidden {
            if tag.strip_prefix('/') != Some(element) {
                continue;
            }
            hidden = None;
        } else if matches!(name, "script" | "style") && !tag.starts_with('/') {
            hidden = Some(if name == "script" { "script" } else { "style" });
            continue;
        }
        let block = !matches!(
            name,
            "strong" | "b" | "em" | "small" | "code" | "a" | "span" | "i" | "sub" | "sup"
        );
        let cell = matches!(name, "td" | "th");
        if tag == "table" || tag.starts_with("table ") {
            table = Some(Vec::new());
        }
        if block && !cell && !text.ends_with('\n') {
            text.push('\n');
        }
        if let Some(rows) = &mut table {
            if tag == "/tr" {
                let at = text.trim_end().rfind("\n\u{1}").map_or(0, |at| at + 1);
                rows.push(
                    text.split_off(at)
                        .trim_start_matches('\u{1}')
                        .trim_end()
                        .to_owned(),
                );
            } else if name == "tr" {
                text.push('\u{1}');
            } else if tag == "/table" {
                text.push_str(&shown(rows));
                table = None;
            }
        }
        if cell && !tag.starts_with('/') && !text.ends_with(['\n', '\u{1}']) {
            text.push_str(" | ");
        }
        // Charts and drawings have names for screen readers.
        if let Some(label) = tag
            .split("aria-label=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .filter(|_| !tag.starts_with('/'))
        {
            text.push_str(&format!("({})\n", plain(label)));
        }
        let content = plain(content);
        if name == "pre" {
            text.push_str(&content);
        } else {
            let words = content.split_whitespace().collect::<Vec<_>>().join(" ");
            let gap = content.starts_with(char::is_whitespace)
                && !text.ends_with(char::is_whitespace)
                && !words.is_empty();
            text.push_str(if gap { " " } else { "" });
            text.push_str(&words);
            if content.ends_with(char::is_whitespace) && !words.is_empty() {
                text.push(' ');
            }
        }
    }
    let lines = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the rows of a table; of a long one the first and last, and a hash of all.
#[must_use]
pub fn shortened(rows: &[String]) -> String {
    if rows.len() <= MAX_TABLE_LENGTH {
        return rows.iter().map(|row| format!("{row}\n")).collect();
    }
    let (first, last) = (rows[..4].join("\n"), rows[rows.len() - 2..].join("\n"));
    format!(
        "{first}\n… {} rows, hash {:016x} …\n{last}\n",
        rows.len(),
        hash(&rows.join("\n"))
    )
}

/// References in HTML and their characters; that of & is decoded last and encoded first.
const REFERENCES: [(&str, &str); 6] = [
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", "\""),
    ("&#x27;", "'"),
    ("&#x2f;", "/"),
    ("&amp;", "&"),
];

/// Decodes the references in a page's text.
fn plain(text: &str) -> String {
    REFERENCES
        .iter()
        .fold(text.to_owned(), |text, (reference, character)| {
            text.replace(reference, character)
        })
}

/// Encodes a text as in a page.
#[must_use]
pub fn escaped(text: &str) -> String {
    REFERENCES
        .iter()
        .rev()
        .fold(text.to_owned(), |text, (reference, character)| {
            text.replace(character, reference)
        })
}
