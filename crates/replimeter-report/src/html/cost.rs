//! The page of a `cost` run.

use minijinja::{Value, context, value::Serde};
use replimeter_model::{cost::CostDocument, manifest::Manifest};

use super::{HtmlError, frame::Page, price};
use crate::{cost as words, figures::count};

const TEMPLATE: &str = include_str!("cost.html");

/// Renders the page from a run's record.
///
/// # Errors
/// When the template refuses.
pub fn cost(document: &CostDocument, manifest: &Manifest, plan: &str) -> Result<String, HtmlError> {
    let page = Page {
        template: TEMPLATE,
        command: "cost",
        heading: document
            .title
            .as_deref()
            .unwrap_or(match document.self_test {
                Some(_) => "Does a mode differ from itself?",
                None => "What does each mode of replication cost?",
            }),
        shape: &document.target.shape,
        extent: format!(
            "{} operations",
            count(document.results.iter().map(|row| row.operations).sum())
        ),
        document: Value::from(Serde(document)),
        manifest,
        plan,
        several: true,
        pictures: price::all(document),
        text_report: words::text(document),
    };
    let list = format!(
        "Price list (latencies in {})",
        words::unit(document).symbol()
    );
    let tables: Vec<Value> = [
        ("One mode against itself", words::SELF_HEADINGS.as_slice(), 0, words::comparisons(document)),
        (list.as_str(), words::HEADINGS.as_slice(), 1, words::lines(document)),
        ("As published in 2010 (one thread)", words::PUBLISHED_HEADINGS.as_slice(), 1, words::published(document)),
        ("Over none of the same binary", words::RATIO_HEADINGS.as_slice(), 1, words::ratios(document)),
        ("Step by step (µs per operation)", words::STEP_HEADINGS.as_slice(), 2, words::steps(document)),
        ("What each server spends on an operation", words::SERVER_HEADINGS.as_slice(), 1, words::servers(document)),
    ]
    .into_iter()
    .filter(|(_, _, _, lines)| !lines.is_empty())
    .map(|(heading, headings, left, lines)| context! { heading, headings => headings.to_vec(), left, lines })
    .collect();
    page.render(context! { tables, quoted => words::sentences(document), sentences => words::how(document) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_prices_tables_and_pictures() {
        let page = cost(&words::example(), &Manifest::default(), "").unwrap();
        for wanted in [
            "id=\"prices\"",
            "semi-sync after-sync at 1 thread",
            "Step by step",
            "id=\"throughput\"",
            "id=\"processor\"",
        ] {
            assert!(page.contains(wanted), "`{wanted}` is missing");
        }
        assert!(!page.contains("id=\"distance\""), "there are no links");
        cost(&CostDocument::default(), &Manifest::default(), "").unwrap();
    }
}
