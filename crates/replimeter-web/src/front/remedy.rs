//! Which server answers a read, by the remedy against stale reads.

use std::time::Duration;

use replimeter_instruments::front::settings::Remedy;
use replimeter_model::{random::Random, time::Nanos};

use super::visitor::{LastPost, Visitor};

/// The primary's position among the servers.
pub(super) const PRIMARY: usize = 0;

/// The server of a read, and the transaction that it has to have applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) server: usize,
    pub(super) after: Option<String>,
    /// Whether the primary stands in for a replica, none of which can be asked for the visitor's post.
    pub(super) instead: bool,
}

impl Route {
    fn to(server: usize) -> Self {
        Self {
            server,
            after: None,
            instead: false,
        }
    }
}

/// The rule for reads.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) remedy: Remedy,
    /// The time after a post for which `primary-for` reads from the primary.
    pub(super) primary_for: Duration,
    /// The positions of the servers that take reads.
    pub(super) readers: Vec<usize>,
    /// Seed of the order of their turns, another one in each round: in a fixed order, the pages of one visitor behind several fronts
    /// would come from servers in a pattern.
    pub(super) seed: u64,
}

impl Rule {
    /// Returns the server for a visitor's read now; `read_number` counts reads. `None` when no server that may take it is available.
    pub(super) fn route(
        &self,
        visitor: &Visitor,
        now: Nanos,
        read_number: usize,
        is_available: impl Fn(usize) -> bool,
    ) -> Option<Route> {
        let on = |server| is_available(server).then_some(Route::to(server));
        let in_rotation = || {
            let readers = self.readers.iter().copied();
            let mut available: Vec<usize> =
                readers.filter(|server| is_available(*server)).collect();
            let number = available.len().max(1);
            if number > 1 {
                Random::numbered(self.seed ^ (read_number / number) as u64).shuffle(&mut available);
            }
            Some(Route::to(*available.get(read_number % number)?))
        };
        match self.remedy {
            Remedy::None => in_rotation(),
            Remedy::PrimaryAlways => on(PRIMARY),
            Remedy::Sticky => {
                let known = visitor
                    .reader
                    .filter(|reader| self.readers.contains(reader));
                known.and_then(on).or_else(in_rotation)
            }
            Remedy::PrimaryFor => {
                let limit = Nanos::from(self.primary_for);
                // Anyone can send any time.
                let recent =
                    |post: &LastPost| (0..limit.0).contains(&now.0.saturating_sub(post.at.0));
                if visitor.post.as_ref().is_some_and(recent) {
                    on(PRIMARY)
                } else {
                    in_rotation()
                }
            }
            Remedy::WaitForCommit => match &visitor.post {
                // Without its GTID, no replica can be asked for the post.
                Some(LastPost {
                    commit_id: None, ..
                }) => on(PRIMARY).map(|route| Route {
                    instead: true,
                    ..route
                }),
                post => in_rotation().map(|route| Route {
                    after: post
                        .as_ref()
                        .and_then(|post| post.commit_id.clone())
                        .filter(|_| route.server != PRIMARY),
                    ..route
                }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(remedy: Remedy) -> Rule {
        Rule {
            remedy,
            primary_for: Duration::from_secs(2),
            readers: vec![1, 2],
            seed: 1,
        }
    }

    fn servers(rule: &Rule, visitor: &Visitor, up: &[usize]) -> Vec<Option<usize>> {
        let route =
            |read_number| rule.route(visitor, NOW, read_number, |server| up.contains(&server));
        (0..3)
            .map(|read_number| Some(route(read_number)?.server))
            .collect()
    }

    const NOW: Nanos = Nanos(10_000_000_000);

    fn posted(seconds_ago: i64) -> Visitor {
        Visitor {
            post: Some(LastPost {
                number: 1,
                at: NOW - Nanos(seconds_ago * 1_000_000_000),
                commit_id: Some("0-1-2".to_owned()),
            }),
            ..Visitor::default()
        }
    }

    #[test]
    fn readers_take_reads_in_rotation_and_absent_ones_none() {
        let (none, new) = (rule(Remedy::None), Visitor::default());
        let route = |read_number| none.route(&new, NOW, read_number, |_| true).unwrap().server;
        let mut first = 0;
        for round in 0..100 {
            let pair = [route(2 * round), route(2 * round + 1)];
            assert!(
                pair == [1, 2] || pair == [2, 1],
                "each in its turn: {pair:?}"
            );
            first += usize::from(pair[0] == 1);
        }
        assert!((30..70).contains(&first), "in a random order: {first}");
        assert_eq!(servers(&none, &new, &[0, 2]), [Some(2); 3]);
        assert_eq!(servers(&none, &new, &[0]), [None; 3]);
    }

    #[test]
    fn sticky_reader_stays_until_it_fails() {
        let sticky = rule(Remedy::Sticky);
        let visitor = |reader| Visitor {
            reader: Some(reader),
            ..Visitor::default()
        };
        assert_eq!(servers(&sticky, &visitor(2), &[0, 1, 2]), [Some(2); 3]);
        assert_eq!(servers(&sticky, &visitor(2), &[0, 1]), [Some(1); 3]);
        assert_eq!(
            servers(&sticky, &visitor(0), &[0, 1]),
            [Some(1); 3],
            "no reader"
        );
        assert_eq!(servers(&sticky, &visitor(99), &[0, 1]), [Some(1); 3]);
    }

    #[test]
    fn recent_post_is_read_from_the_primary() {
        let rule = rule(Remedy::PrimaryFor);
        assert_eq!(servers(&rule, &posted(1), &[0, 1, 2]), [Some(0); 3]);
        assert_ne!(servers(&rule, &posted(2), &[0, 1, 2])[0], Some(0));
        assert_eq!(servers(&rule, &posted(1), &[1, 2]), [None; 3]);
        assert_ne!(
            servers(&rule, &posted(-1), &[0, 1, 2])[0],
            Some(0),
            "forged"
        );
    }

    #[test]
    fn gtid_is_awaited_on_replicas_only() {
        let mut rule = rule(Remedy::WaitForCommit);
        let after = |rule: &Rule, read_number| {
            rule.route(&posted(1), NOW, read_number, |_| true)
                .unwrap()
                .after
        };
        assert_eq!(after(&rule, 0).as_deref(), Some("0-1-2"));
        rule.readers = vec![0, 1];
        let both = [after(&rule, 0), after(&rule, 1)];
        assert!(both.contains(&None) && both.contains(&Some("0-1-2".to_owned())));
        let mut unknown = posted(1);
        unknown.post.as_mut().unwrap().commit_id = None;
        assert_eq!(servers(&rule, &unknown, &[0, 1]), [Some(0); 3]);
    }
}
