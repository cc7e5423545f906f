//! The page of a `load` run.

use minijinja::{Value, context, value::Serde};
use replimeter_model::{load::LoadDocument, manifest::Manifest};

use super::{HtmlError, frame::Page, pictures};
use crate::{figures::count, loading};

const TEMPLATE: &str = include_str!("load.html");

/// Renders the page from a run's record.
///
/// # Errors
/// When the template refuses.
pub fn load(document: &LoadDocument, manifest: &Manifest, plan: &str) -> Result<String, HtmlError> {
    let operations = document.results.iter().map(|row| row.load.passes).sum();
    let page = Page {
        template: TEMPLATE,
        command: "load",
        heading: document
            .title
            .as_deref()
            .unwrap_or("How much do the servers do?"),
        shape: &document.target.shape,
        extent: format!("{} operations", count(operations)),
        document: Value::from(Serde(document)),
        manifest,
        plan,
        several: false,
        pictures: pictures::load(document),
        text_report: loading::text(document),
    };
    page.render(context! {
        headings => loading::HEADINGS.to_vec(),
        lines => loading::lines(document),
        server_headings => loading::SERVER_HEADINGS.to_vec(),
        server_lines => loading::servers(document),
        notes => loading::notes(document),
        sentences => loading::sentences(document),
    })
}

#[cfg(test)]
mod tests {
    use replimeter_model::manifest::ServerRecord;

    use super::*;

    #[test]
    fn the_servers_own_section_stands_beside_the_loads() {
        let manifest = Manifest {
            servers: vec![ServerRecord {
                name: "primary".to_owned(),
                ..ServerRecord::default()
            }],
            ..Manifest::default()
        };
        let page = load(&LoadDocument::default(), &manifest, "command = 'load'").unwrap();
        assert!(page.contains("<h3>primary"), "{page}");
    }
}
