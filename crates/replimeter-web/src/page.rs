//! Pages without scripts: a template whose values are escaped, and the style of all.

use hyper::StatusCode;
use minijinja::{Environment, Value};

use crate::server::{Answer, answer, plain};

/// The type of a page.
pub(crate) const HTML: &str = "text/html; charset=utf-8";
/// Its name says that values are escaped as in HTML.
const NAME: &str = "page.html";
const STYLE: &str = include_str!("style.css");

/// A page, to be filled.
pub(crate) struct Page(Environment<'static>);

impl Page {
    /// Returns the page of a valid template.
    pub(crate) fn new(template: &'static str) -> Self {
        let mut environment = Environment::new();
        // A template that is a part of the program is valid, which a test shows.
        let _ = environment.add_template(NAME, template);
        Self(environment)
    }

    /// Returns the page as HTML; every value is escaped.
    ///
    /// # Errors
    /// A message when a value does not suit the template, which is a defect.
    pub(crate) fn html(&self, values: Value) -> Result<String, String> {
        let template = self.0.get_template(NAME);
        let html = template.and_then(|template| template.render(values));
        html.map_err(|error| error.to_string())
    }
}

/// Returns the answer with a file that pages, or browsers, ask for.
pub(crate) fn file(path: &str) -> Option<Answer> {
    match path {
        "/style.css" => Some(answer(StatusCode::OK, "text/css", STYLE)),
        "/favicon.ico" => Some(plain(StatusCode::NO_CONTENT, "")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn pages_load_nothing_from_elsewhere() {
        for template in [
            include_str!("front/page.html"),
            include_str!("exporter/page.html"),
        ] {
            for text in ["http:", "https:", "<script", "style=", "onclick"] {
                assert!(!template.contains(text), "{text}");
            }
        }
    }
}
