//! Figures of a front's requests, gathered one by one.

use std::collections::BTreeMap;

use replimeter_instruments::front::results::{
    FreshnessRecord, FrontResults, FrontRow, FrontWindow, OwnMissing, PageShare, RequestKind,
};
use replimeter_model::time::Nanos;
use replimeter_stats::{series::Series, share::Share};
use replimeter_web::front::{Answered, Traffic, add_error};

/// Ends of the classes of time since a visitor's post, in µs; the last class has none.
const SINCE_POST_US: [f64; 4] = [10_000.0, 100_000.0, 1_000_000.0, 10_000_000.0];

/// Times of requests of one kind that one server answered.
#[derive(Default)]
struct Times {
    response: Series,
    statement: Series,
    wait: Series,
}

/// Processor time that was used, in µs.
pub(super) struct ProcessorTime {
    pub(super) fronts_us: f64,
    /// `None` without a load balancer.
    pub(super) balancer_us: Option<f64>,
}

/// All requests so far.
#[derive(Default)]
pub(super) struct Gathered {
    /// The names of the servers, the primary first.
    servers: Vec<String>,
    times: BTreeMap<(RequestKind, usize), Times>,
    own: [Share; SINCE_POST_US.len() + 1],
    behind: Share,
    age: Series,
    fell_back: u64,
    invalid: u64,
    abandoned: u64,
    left_out: u64,
    errors: BTreeMap<String, u64>,
    answered: u64,
}

impl Gathered {
    pub(super) fn of(servers: Vec<String>) -> Self {
        Self {
            servers,
            ..Self::default()
        }
    }

    /// Returns the number of answered requests that are in no figure.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds the requests of a window; returns its figures.
    pub(super) fn add(&mut self, traffic: Traffic, start: Nanos, end: Nanos) -> FrontWindow {
        let errors: u64 = traffic.errors.values().sum();
        for (text, count) in &traffic.errors {
            add_error(&mut self.errors, text, *count);
        }
        self.invalid += traffic.invalid;
        self.abandoned += traffic.abandoned;
        self.left_out += traffic.left_out;
        let answered = traffic.answered.len() as u64 + traffic.left_out;
        self.answered += answered;
        let mut window = FrontWindow {
            start_us: start.as_micros(),
            end_us: end.as_micros(),
            requests: answered + traffic.invalid + traffic.abandoned + errors,
            errors,
            ..FrontWindow::default()
        };
        for one in &traffic.answered {
            self.add_one(one, &mut window);
        }
        window
    }

    fn add_one(&mut self, one: &Answered, window: &mut FrontWindow) {
        let times = self.times.entry((one.kind, one.server)).or_default();
        times.response.record(one.at, one.response);
        times.statement.record(one.at, one.statement);
        times.wait.record(one.at, one.wait);
        self.fell_back += u64::from(one.fell_back);
        window.inserts += u64::from(one.kind == RequestKind::Insert);
        let Some(page) = one.page else {
            return;
        };
        window.pages += 1;
        self.behind.record(one.at, page.age > Nanos(0));
        self.age.record(one.at, page.age);
        let age = page.age.as_micros();
        window.age_max_us = Some(window.age_max_us.map_or(age, |known| known.max(age)));
        if let Some((since, is_shown)) = page.own {
            let class = SINCE_POST_US.partition_point(|end| *end <= since.as_micros());
            self.own[class].record(one.at, !is_shown);
            window.own_missing += u64::from(!is_shown);
        }
    }

    /// Returns the figures so far, without windows. `shape` and `address` are those of the run, `seconds` its length, `used` the
    /// processor time.
    pub(super) fn results(
        &self,
        shape: &str,
        address: &str,
        seconds: f64,
        used: &ProcessorTime,
    ) -> FrontResults {
        let rows = self.times.iter().map(|((kind, server), times)| {
            let requests = times.response.histogram().count();
            FrontRow {
                shape: shape.to_owned(),
                request: kind.name().to_owned(),
                server: self.servers.get(*server).cloned().unwrap_or_default(),
                requests,
                per_second: requests as f64 / seconds.max(f64::MIN_POSITIVE),
                response: times.response.distribution(),
                statement: times.statement.distribution(),
                wait: times.wait.distribution(),
            }
        });
        let starts = std::iter::once(0.0).chain(SINCE_POST_US);
        let ends = SINCE_POST_US.into_iter().map(Some).chain([None]);
        let own = starts.zip(ends).zip(&self.own);
        let own = own.map(|((from_us, to_us), share)| OwnMissing {
            from_us,
            to_us,
            missing: page_share(share),
        });
        let errors: u64 = self.errors.values().sum();
        let requests = self.answered + self.invalid + self.abandoned + errors;
        let per_request =
            |us: Option<f64>| us.filter(|_| requests > 0).map(|us| us / requests as f64);
        FrontResults {
            rows: rows.collect(),
            address: address.to_owned(),
            requests,
            invalid: self.invalid,
            abandoned: self.abandoned,
            errors: self.errors.clone(),
            cpu_per_request_us: per_request(Some(used.fronts_us)),
            balancer_cpu_per_request_us: per_request(used.balancer_us),
            freshness: FreshnessRecord {
                own_missing: own.filter(|own| own.missing.pages > 0).collect(),
                behind: page_share(&self.behind),
                age: self.age.distribution(),
                fell_back: self.fell_back,
            },
            windows: Vec::new(),
        }
    }
}

fn page_share(share: &Share) -> PageShare {
    let found = share.proportion();
    let any = found.trials > 0;
    PageShare {
        pages: found.trials,
        count: found.events,
        percent: any.then_some(100.0 * found.share),
        percent_ci95: any.then_some([100.0 * found.low, 100.0 * found.high]),
    }
}

#[cfg(test)]
mod tests {
    use replimeter_web::front::PageState;

    use super::*;

    fn page(at_ms: i64, age_ms: i64, own: Option<(i64, bool)>) -> Answered {
        Answered {
            kind: RequestKind::Page,
            server: 1,
            at: Nanos(at_ms * 1_000_000),
            response: Nanos(300_000),
            statement: Nanos(200_000),
            wait: Nanos(0),
            fell_back: false,
            page: Some(PageState {
                own: own.map(|(since_ms, shown)| (Nanos(since_ms * 1_000_000), shown)),
                age: Nanos(age_ms * 1_000_000),
            }),
        }
    }

    #[test]
    fn own_posts_are_classed_by_the_time_since_them() {
        let mut gathered = Gathered::of(vec!["primary".to_owned(), "replica1".to_owned()]);
        let traffic = Traffic {
            answered: vec![
                page(0, 0, None),
                page(1, 4, Some((4, false))),
                page(2, 0, Some((9, true))),
                page(3, 0, Some((10, true))),
                page(4, 0, Some((60_000, true))),
            ],
            invalid: 2,
            errors: BTreeMap::from([("gone".to_owned(), 3)]),
            ..Traffic::default()
        };
        let window = gathered.add(traffic, Nanos(0), Nanos(1_000_000_000));
        assert_eq!((window.requests, window.errors, window.pages), (10, 3, 5));
        assert_eq!((window.own_missing, window.age_max_us), (1, Some(4_000.0)));
        let used = ProcessorTime {
            fronts_us: 500.0,
            balancer_us: None,
        };
        let results = gathered.results("async:1", "127.0.0.1:1", 2.0, &used);
        assert_eq!(
            (results.requests, results.cpu_per_request_us),
            (10, Some(50.0))
        );
        let row = &results.rows[0];
        assert_eq!(
            (row.request.as_str(), row.server.as_str()),
            ("page", "replica1")
        );
        assert_eq!((row.requests, row.per_second), (5, 2.5));
        let freshness = results.freshness;
        let own: Vec<_> = freshness.own_missing.iter().collect();
        let counts = |of: &OwnMissing| (of.from_us, of.to_us, of.missing.pages, of.missing.count);
        assert_eq!(counts(own[0]), (0.0, Some(10_000.0), 2, 1));
        assert_eq!(counts(own[1]), (10_000.0, Some(100_000.0), 1, 0));
        assert_eq!(counts(own[2]), (10_000_000.0, None, 1, 0));
        assert_eq!((freshness.behind.pages, freshness.behind.count), (5, 1));
        assert_eq!(freshness.age.count, 5);
    }
}
