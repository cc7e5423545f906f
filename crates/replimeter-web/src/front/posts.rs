//! The posts: what visitors send, and the statements.

use jiff::civil::DateTime;
use replimeter_engine::{ServerError, Session, session::Bound};
use serde::Serialize;
use url::form_urlencoded;

/// The longest title, in characters: the width of the column.
const MAX_TITLE: usize = 50;
/// The form of a date.
const DATE: &str = "%Y-%m-%d %H:%M:%S";
/// The first year that servers store.
const FIRST_YEAR: i16 = 1000;

const INSERT: &str =
    "INSERT INTO `replimeter`.`post` (title, date_creation) VALUES (?, COALESCE(?, NOW()))";
/// The select of the workload `select`: the first hundred from some position on.
const SELECT: &str = "SELECT idpost, title, CAST(date_creation AS CHAR) FROM `replimeter`.`post` \
     WHERE idpost >= ? AND title LIKE ? AND date_creation > COALESCE(?, '1000-01-01') LIMIT 100";
/// The newest posts, and the visitor's own even if it is older.
const NEWEST: &str = "(SELECT idpost, title, CAST(date_creation AS CHAR) FROM `replimeter`.`post` ORDER BY idpost DESC LIMIT 20) \
     UNION (SELECT idpost, title, CAST(date_creation AS CHAR) FROM `replimeter`.`post` WHERE idpost = ?)";

/// The fields of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// A title, or the pattern of titles.
    pub(super) title: String,
    /// A date; now, or the beginning, when `None`.
    pub(super) date: Option<String>,
}

impl Form {
    /// Reads a form; the error says which field is wrong.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let (mut title, mut date) = (None, None);
        for (name, value) in form_urlencoded::parse(body) {
            match &*name {
                "title" => title = Some(value.into_owned()),
                "date" => date = Some(value.into_owned()).filter(|date| !date.is_empty()),
                other => return Err(format!("unknown field `{}`", other.escape_default())),
            }
        }
        let title = title
            .filter(|title| !title.is_empty())
            .ok_or("the field `title` is missing")?;
        if title.chars().count() > MAX_TITLE {
            return Err(format!("the title has more than {MAX_TITLE} characters"));
        }
        let is_date = |text: &String| {
            let date = DateTime::strptime(DATE, text);
            date.is_ok_and(|date| date.year() >= FIRST_YEAR)
        };
        if !date.as_ref().is_none_or(is_date) {
            return Err("the date is not of the form 2024-12-31 16:00:00".to_owned());
        }
        Ok(Self { title, date })
    }
}

/// A post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Post {
    pub(super) id: u64,
    pub(super) title: String,
    pub(super) created: String,
}

fn posts(rows: Vec<Vec<String>>) -> Vec<Post> {
    let post = |row: Vec<String>| {
        let mut columns = row.into_iter();
        Some(Post {
            id: columns.next()?.parse().ok()?,
            title: columns.next()?,
            created: columns.next()?,
        })
    };
    rows.into_iter().filter_map(post).collect()
}

fn text(value: Option<&String>) -> Bound<'_> {
    value.map_or(Bound::Null, |text| Bound::Text(text))
}

/// Adds a post; returns its number.
pub(super) fn insert(session: &mut Session, form: &Form) -> Result<u64, ServerError> {
    let values = [Bound::Text(&form.title), text(form.date.as_ref())];
    session.insert("cannot add a post", INSERT, &values)
}

/// Returns the first hundred posts, from this number on, with such a title since the date.
pub(super) fn select(
    session: &mut Session,
    form: &Form,
    first: u64,
) -> Result<Vec<Post>, ServerError> {
    let values = [
        Bound::Number(first),
        Bound::Text(&form.title),
        text(form.date.as_ref()),
    ];
    session
        .bound("cannot read posts", SELECT, &values)
        .map(posts)
}

/// Returns the newest posts, the newest first, and this one.
pub(super) fn newest(session: &mut Session, own: Option<u64>) -> Result<Vec<Post>, ServerError> {
    let own = own.map_or(Bound::Null, Bound::Number);
    let rows = session.bound("cannot read posts", NEWEST, &[own])?;
    let mut posts = posts(rows);
    posts.sort_by_key(|post| std::cmp::Reverse(post.id));
    Ok(posts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn form_of_the_published_test_is_read() {
        let form = Form::parse(b"title=%2534%25&date=1964-12-31+16%3A00%3A00").unwrap();
        assert_eq!(form.title, "%34%");
        assert_eq!(form.date.as_deref(), Some("1964-12-31 16:00:00"));
        assert_eq!(Form::parse(b"title=a&date=").unwrap().date, None);
    }

    #[test]
    fn wrong_fields_are_named() {
        let refused = |body: &str| Form::parse(body.as_bytes()).unwrap_err();
        assert_eq!(refused(""), "the field `title` is missing");
        assert_eq!(refused("title="), "the field `title` is missing");
        assert_eq!(refused("title=a&id=1"), "unknown field `id`");
        let long = format!("title={}", "%C3%A4".repeat(51));
        assert_eq!(refused(&long), "the title has more than 50 characters");
        assert!(Form::parse(format!("title={}", "%C3%A4".repeat(50)).as_bytes()).is_ok());
        for date in [
            "tomorrow",
            "2024-13-01 00:00:00",
            "0999-01-01 00:00:00",
            "1",
        ] {
            let refused = refused(&format!("title=a&date={date}"));
            assert!(
                refused.starts_with("the date is not of the form"),
                "{refused}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Form::parse(&body);
        }
    }
}
