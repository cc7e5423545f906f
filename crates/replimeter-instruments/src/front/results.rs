//! The record of a `front` run.

use std::collections::BTreeMap;

use replimeter_model::{envelope::Envelope, one_of, record::Distribution};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::front::settings::FrontSettings;

one_of! {
    /// Kind of request.
    pub enum RequestKind {
        /// A post is added
        Insert = "insert",
        /// Posts are searched
        Select = "select",
        /// The page of the newest posts
        Page = "page",
    }
}

/// Requests of one kind that one server answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrontRow {
    /// Shape of the sandbox, or `endpoints:N` for the user's servers.
    pub shape: String,
    /// Kind of request.
    pub request: String,
    /// The server.
    pub server: String,
    /// Answered requests.
    pub requests: u64,
    /// Answered requests per second of the run.
    pub per_second: f64,
    /// Time from a complete request to its answer, including the wait for a connection to the server.
    pub response: Distribution,
    /// The part of it in which the server ran the statement.
    pub statement: Distribution,
    /// The part of it in which the request waited for the visitor's post on the server (remedy `wait-for-gtid`).
    pub wait: Distribution,
}

/// Share of pages with a property.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageShare {
    /// Pages that could have it.
    pub pages: u64,
    /// Pages that have it.
    pub count: u64,
    /// Their share, in percent; null without pages.
    pub percent: Option<f64>,
    /// 95 % confidence interval of the share (Wilson, for the effective number of pages); null without pages.
    pub percent_ci95: Option<[f64; 2]>,
}

/// Pages of visitors who had posted, by the time since the post.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnMissing {
    /// Shortest time from the acknowledgement of the visitor's last post to the read.
    pub from_us: f64,
    /// The time below which it is; null for any longer time.
    pub to_us: Option<f64>,
    /// The pages on which that post was missing.
    pub missing: PageShare,
}

/// How current the pages were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FreshnessRecord {
    /// Pages of visitors who had posted, by the time since the post. Of all together there is no share: it would depend on how
    /// soon visitors reload.
    pub own_missing: Vec<OwnMissing>,
    /// All pages: those without a post that the front had acknowledged before it read.
    pub behind: PageShare,
    /// Of all pages: time from the acknowledgement of the oldest missing post to the read; 0 if none was missing. Posts that
    /// were added through other fronts are not known, so it is a lower bound then.
    pub age: Distribution,
    /// Reads that the primary answered because no replica could be asked for the visitor's post, or had not applied it in time.
    pub fell_back: u64,
}

/// One window of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrontWindow {
    /// Start of the window, since the start of the run.
    pub start_us: f64,
    /// End of the window, since the start of the run.
    pub end_us: f64,
    /// Requests, those with errors included.
    pub requests: u64,
    /// Requests that got an error.
    pub errors: u64,
    /// Posts added.
    pub inserts: u64,
    /// Pages.
    pub pages: u64,
    /// Pages on which the visitor's own last post was missing.
    pub own_missing: u64,
    /// Largest age of a page.
    pub age_max_us: Option<f64>,
}

impl FrontWindow {
    /// Joins the window that follows.
    pub fn extend(&mut self, next: &Self) {
        self.end_us = next.end_us;
        self.requests += next.requests;
        self.errors += next.errors;
        self.inserts += next.inserts;
        self.pages += next.pages;
        self.own_missing += next.own_missing;
        self.age_max_us = match (self.age_max_us, next.age_max_us) {
            (Some(own), Some(next)) => Some(own.max(next)),
            (own, next) => own.or(next),
        };
    }
}

/// The record of a `front` run.
pub type FrontDocument = Envelope<FrontSettings, FrontResults>;

/// Results of a `front` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrontResults {
    /// Figures, one row for each kind of request and server.
    pub rows: Vec<FrontRow>,
    /// The address that the front, or the load balancer of several, listened at.
    pub address: String,
    /// Requests, those with errors included.
    pub requests: u64,
    /// Requests that were invalid: an unknown path, a body that is no form, a host that is not served.
    pub invalid: u64,
    /// Requests without an answer: the client had gone, or it took too long. Their posts may have been added.
    pub abandoned: u64,
    /// Requests that got an error, by its text.
    pub errors: BTreeMap<String, u64>,
    /// Processor time of the front's threads per request; null without requests.
    pub cpu_per_request_us: Option<f64>,
    /// Processor time of the load balancer per request; null without one, or without requests.
    pub balancer_cpu_per_request_us: Option<f64>,
    /// How current the pages were.
    pub freshness: FreshnessRecord,
    /// Consecutive windows of the run; neighboring ones are joined when there are many.
    pub windows: Vec<FrontWindow>,
}
