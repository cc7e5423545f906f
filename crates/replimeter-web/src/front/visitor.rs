//! What a front knows of a visitor, kept in two cookies: posts set one, reads the other, so that a page that was asked for before a
//! post does not undo what the post set.

use std::fmt;

use replimeter_model::time::Nanos;

/// The longest commit id that is taken from a cookie, in bytes.
const MAX_COMMIT_ID: usize = 200;

/// A visitor's last post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastPost {
    pub(super) number: u64,
    /// When it was acknowledged, by the run's clock.
    pub(super) at: Nanos,
    /// Its commit id, if posts have one.
    pub(super) commit_id: Option<String>,
}

/// The value of the cookie.
impl fmt::Display for LastPost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.number, self.at.0)?;
        self.commit_id
            .iter()
            .try_for_each(|commit_id| write!(f, "~{commit_id}"))
    }
}

/// A visitor's last post and last reader. Anyone can send cookies, so they only choose a server, and bound a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Visitor {
    pub(super) post: Option<LastPost>,
    /// The position of the server that answered the last read.
    pub(super) reader: Option<usize>,
}

/// The names of the cookies of one run: browsers send those of every port of a host.
#[derive(Clone, Debug)]
pub(super) struct CookieNames {
    pub(super) post: String,
    pub(super) reader: String,
}

impl CookieNames {
    pub(super) fn of(run: u64) -> Self {
        Self {
            post: format!("post-{run:016x}"),
            reader: format!("reader-{run:016x}"),
        }
    }

    /// Reads the visitor from the header `Cookie`; what is not valid is left out.
    pub(super) fn visitor(&self, cookies: &str) -> Visitor {
        let pairs = || {
            cookies
                .split(';')
                .filter_map(|one| one.trim().split_once('='))
        };
        let value = |name: &str| {
            pairs()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value)
        };
        Visitor {
            post: value(&self.post).and_then(last_post),
            reader: value(&self.reader).and_then(|value| value.parse().ok()),
        }
    }
}

fn last_post(value: &str) -> Option<LastPost> {
    let mut fields = value.split('~');
    let number = fields.next()?.parse().ok()?;
    let at = Nanos(fields.next()?.parse().ok()?);
    let commit_id = fields.next();
    if !commit_id.is_none_or(is_commit_id) || fields.next().is_some() {
        return None;
    }
    Some(LastPost {
        number,
        at,
        commit_id: commit_id.map(str::to_owned),
    })
}

/// Returns whether a text has the characters of a commit id only, all of which a cookie may have.
fn is_commit_id(text: &str) -> bool {
    let of_id = |byte: u8| byte.is_ascii_alphanumeric() || b"-:_".contains(&byte);
    !text.is_empty() && text.len() <= MAX_COMMIT_ID && text.bytes().all(of_id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cookies_round_trip() {
        let names = CookieNames::of(5);
        let post = LastPost {
            number: 17,
            at: Nanos(-5),
            commit_id: Some("3e11fa47-71ca-11e1-9e33-c80aa9429562:tag_1:23".to_owned()),
        };
        let header = format!("a=1; {}={post}; {}=2", names.post, names.reader);
        let visitor = Visitor {
            post: Some(post),
            reader: Some(2),
        };
        assert_eq!(names.visitor(&header), visitor);
        assert_eq!(
            CookieNames::of(6).visitor(&header),
            Visitor::default(),
            "another run"
        );
    }

    #[test]
    fn invalid_cookies_are_left_out() {
        let names = CookieNames::of(5);
        let of = |value: &str| names.visitor(&format!("{}={value}", names.post)).post;
        for value in [
            "",
            "1",
            "1~",
            "x~1",
            "1~1~",
            "1~1~'",
            "1~1~0-1-2~more",
            "-1~1",
        ] {
            assert_eq!(of(value), None, "{value}");
        }
        assert_eq!(of(&format!("1~1~{}", "a".repeat(201))), None);
        assert_eq!(
            of("3~1~0-1-2").and_then(|post| post.commit_id).as_deref(),
            Some("0-1-2")
        );
        assert_eq!(of("3~1").map(|post| post.commit_id), Some(None));
    }

    proptest! {
        #[test]
        fn no_cookie_panics(text in "\\PC{0,80}") {
            let names = CookieNames::of(1);
            let _ = names.visitor(&text);
            let _ = names.visitor(&format!("{}={text}", names.post));
        }
    }
}
