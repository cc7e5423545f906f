//! The requests that a front answered.

use std::collections::{BTreeMap, VecDeque};

use replimeter_instruments::front::results::RequestKind;
use replimeter_model::time::Nanos;

/// Posts that are remembered for the age of a page.
const MAX_REMEMBERED: usize = 65_536;
/// Posts in progress at the same time, by far: their numbers and acknowledgements can have different orders.
const NEIGHBORS: usize = 1024;
/// Different errors that are counted each.
const MAX_ERRORS: usize = 32;
/// Answered requests that are kept until they are taken.
const MAX_KEPT: usize = 1 << 20;

/// A request that a server answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Its kind.
    pub kind: RequestKind,
    /// The server, by its position: the primary is the first.
    pub server: usize,
    /// When it had arrived.
    pub at: Nanos,
    /// Time to the answer, including the wait for a connection to the server.
    pub response: Nanos,
    /// The part of it in which the server ran the statement.
    pub statement: Nanos,
    /// The part of it in which the request waited for a transaction on the server.
    pub wait: Nanos,
    /// Whether the primary answered because a replica had not applied the visitor's post in time.
    pub fell_back: bool,
    /// How current a page was.
    pub page: Option<PageState>,
}

/// How current a page was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// The visitor's last post: the time from its acknowledgement to the read, and whether the page shows it. `None` for a
    /// visitor who has not posted.
    pub own: Option<(Nanos, bool)>,
    /// Time from the acknowledgement of the oldest missing post to the read; 0 if no known post is missing.
    pub age: Nanos,
}

/// The requests since they were taken last.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Those that a server answered, in the order of their ends.
    pub answered: Vec<Answered>,
    /// Answered requests that were left out of it, because they were not taken in time.
    pub left_out: u64,
    /// Requests that were invalid.
    pub invalid: u64,
    /// Requests without an answer: the client had gone, or it took too long. A post of one may have been added.
    pub abandoned: u64,
    /// Requests that got an error, by its text.
    pub errors: BTreeMap<String, u64>,
}

/// Counts an error; beyond some different texts, as another one.
pub fn add_error(errors: &mut BTreeMap<String, u64>, text: &str, count: u64) {
    let full = errors.len() >= MAX_ERRORS && !errors.contains_key(text);
    let text = if full { "other errors" } else { text };
    *errors.entry(text.to_owned()).or_default() += count;
}

impl Traffic {
    pub(super) fn add(&mut self, answered: Answered) {
        if self.answered.len() < MAX_KEPT {
            self.answered.push(answered);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds the traffic of another front.
    pub fn append(&mut self, mut other: Self) {
        self.answered.append(&mut other.answered);
        self.left_out += other.left_out;
        self.invalid += other.invalid;
        self.abandoned += other.abandoned;
        for (text, count) in &other.errors {
            add_error(&mut self.errors, text, *count);
        }
    }
}

/// The posts that fronts acknowledged last, by number.
#[derive(Debug, Default)]
pub(super) struct Acknowledged(VecDeque<(u64, Nanos)>);

impl Acknowledged {
    pub(super) fn add(&mut self, post: u64, at: Nanos) {
        if self.0.len() >= MAX_REMEMBERED {
            self.0.pop_front();
        }
        // Nearly always at the end.
        let later = self.0.iter().rev().take_while(|(known, _)| *known > post);
        let place = self.0.len() - later.count();
        self.0.insert(place, (post, at));
    }

    /// Returns how old a page is whose read began then and that shows no post above `newest`: the time since the oldest missing post
    /// was acknowledged, 0 when none is missing. It is a lower bound when older posts are no longer remembered.
    pub(super) fn age(&self, newest: u64, read_at: Nanos) -> Nanos {
        let first = self.0.partition_point(|(post, _)| *post <= newest);
        // Posts are acknowledged nearly in the order of their numbers, so the oldest is among the first.
        let missing = self.0.range(first..).take(NEIGHBORS);
        let oldest = missing.map(|(_, at)| *at).filter(|at| *at < read_at).min();
        oldest.map_or(Nanos(0), |at| read_at - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_as_old_as_its_oldest_missing_post() {
        let mut posts = Acknowledged::default();
        for (post, at) in [(12, 100), (10, 200), (13, 300), (11, 350)] {
            posts.add(post, Nanos(at));
        }
        assert_eq!(posts.age(13, Nanos(400)), Nanos(0));
        assert_eq!(
            posts.age(11, Nanos(450)),
            Nanos(350),
            "12 was acknowledged before 10"
        );
        assert_eq!(
            posts.age(12, Nanos(300)),
            Nanos(0),
            "acknowledged during the read"
        );
        assert_eq!(posts.age(9, Nanos(250)), Nanos(150));
    }

    #[test]
    fn errors_and_remembered_posts_are_bounded() {
        let mut posts = Acknowledged::default();
        (0..100_000).for_each(|post| posts.add(post, Nanos(0)));
        assert_eq!(posts.0.len(), MAX_REMEMBERED);
        let mut errors = BTreeMap::new();
        (0..100).for_each(|error| add_error(&mut errors, &format!("error {error}"), 1));
        add_error(&mut errors, "error 1", 2);
        assert_eq!(errors.len(), MAX_ERRORS + 1);
        assert_eq!((errors["error 1"], errors["other errors"]), (3, 68));
    }
}
