//! The page of the newest posts.

use minijinja::{context, value::Serde};

use super::posts::Post;
use crate::page::Page;

/// The template of the page.
pub(super) struct Pages(Page);

/// What a page shows.
pub(super) struct Shown<'a> {
    pub(super) posts: &'a [Post],
    /// The visitor's last post, and whether the page shows it.
    pub(super) own: Option<(u64, bool)>,
    /// The server that answered, where its name may be shown.
    pub(super) server: Option<&'a str>,
    /// How old the page is, in ms; `None` if no post is missing.
    pub(super) age_ms: Option<f64>,
    pub(super) remedy: &'static str,
}

impl Pages {
    pub(super) fn new() -> Self {
        Self(Page::new(include_str!("page.html")))
    }

    /// Returns the page as HTML; every value is escaped.
    pub(super) fn html(&self, shown: &Shown<'_>) -> Result<String, String> {
        let own = shown
            .own
            .map(|(post, is_there)| context! { post, is_there });
        self.0.html(context! {
            posts => Serde(shown.posts),
            own,
            server => shown.server,
            age_ms => shown.age_ms.map(|age| format!("{age:.1}")),
            remedy => shown.remedy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_escaped_and_a_missing_post_is_stated() {
        let posts = [Post {
            id: 7,
            title: "<script>alert(1)</script>".to_owned(),
            created: "2026-01-01 00:00:00".to_owned(),
        }];
        let shown = Shown {
            posts: &posts,
            own: Some((8, false)),
            server: Some("replica1"),
            age_ms: Some(12.34),
            remedy: "none",
        };
        let html = Pages::new().html(&shown).unwrap();
        assert!(!html.contains("<script>"), "{html}");
        assert!(html.contains("&lt;script&gt;alert(1)"), "{html}");
        assert!(html.contains("Your post 8 is missing"), "{html}");
        assert!(html.contains("replica1") && html.contains("12.3"), "{html}");
    }
}
