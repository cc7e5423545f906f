//! The page of the published experiments.

use minijinja::{Value, context, value::Serde};
use replimeter_model::{
    manifest::Manifest,
    reproduce::{ReproduceDocument, Verdict},
};
use serde_json::json;

use super::{
    HtmlError,
    frame::Page,
    pictures::{DataTable, Picture, colour, figure},
    reproduce_pictures::picture,
};
use crate::reproduce::{CLAIM_HEADINGS, claim_lines, text};

const TEMPLATE: &str = include_str!("reproduce.html");

/// Renders the page.
///
/// # Errors
/// When the template refuses.
pub fn reproduce(
    document: &ReproduceDocument,
    manifest: &Manifest,
    plans: &str,
) -> Result<String, HtmlError> {
    let claims = document
        .experiments
        .iter()
        .map(|experiment| experiment.claims.len())
        .sum::<usize>();
    let page = Page {
        template: TEMPLATE,
        command: "reproduce",
        heading: "The published experiments, run again",
        shape: &format!("size {}", document.size),
        extent: format!(
            "{} experiments, {claims} findings",
            document.experiments.len()
        ),
        document: Value::from(Serde(document)),
        manifest,
        plan: plans,
        several: true,
        pictures: verdicts(document)
            .into_iter()
            .chain(document.experiments.iter().filter_map(picture))
            .collect(),
        text_report: text(document),
    };
    page.render(context! { experiments => Value::from(Serde(&document.experiments)) })
}

/// How many findings of each experiment agree.
fn verdicts(document: &ReproduceDocument) -> Option<Picture> {
    let names: Vec<String> = document
        .experiments
        .iter()
        .map(|experiment| format!("{}. {}", experiment.number, experiment.title))
        .collect();
    let traces = [Verdict::Agrees, Verdict::Differs, Verdict::Open]
        .into_iter()
        .enumerate()
        .map(|(index, verdict)| {
            let counts = document.experiments.iter().map(|experiment| {
                experiment
                    .claims
                    .iter()
                    .filter(|claim| claim.verdict == verdict)
                    .count()
            });
            json!({
                "type": "bar", "orientation": "h", "name": verdict.name(),
                "y": names, "x": counts.collect::<Vec<_>>(),
                "marker": {"color": colour([2, 1, 5][index])},
                "hovertemplate": "%{y}: %{x} of its findings<extra>%{fullData.name}</extra>",
            })
        });
    let traces: Vec<_> = traces.collect();
    let all: Vec<_> = document
        .experiments
        .iter()
        .flat_map(|experiment| experiment.claims.clone())
        .collect();
    if all.is_empty() {
        return None;
    }
    let mut figure = figure(
        "verdicts",
        traces,
        json!({"title": {"text": "findings"}, "dtick": 1}),
        json!({"autorange": "reversed"}),
    );
    figure["layout"]["barmode"] = json!("stack");
    Some(Picture {
        id: "verdicts",
        title: "What agrees in shape",
        note: String::new(),
        figure,
        table: DataTable::new(&CLAIM_HEADINGS, claim_lines(&all)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::tests::example;

    #[test]
    fn the_page_sets_tables_side_by_side() {
        let page = reproduce(&example(), &Manifest::default(), "").unwrap();
        for wanted in [
            "Published",
            "7451.26 (969.24)",
            "galera is missing",
            "id=\"verdicts\"",
            "The price &lt;b&gt;",
        ] {
            assert!(page.contains(wanted), "`{wanted}` is missing");
        }
    }
}
