//! Remedies of a site against stale reads.

use replimeter_model::{record::Distribution, resources::PerOperation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a remedy of a site costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemedyCost {
    /// The shape.
    pub shape: String,
    /// Background loads, `none` without.
    pub load: String,
    /// The remedy.
    pub read_consistency: String,
    /// `keep-alive`, or `new-connections` for each request.
    pub session_reset: String,
    /// Rounds: posts that were reloaded until they were shown.
    pub rounds: u64,
    /// Pages that were loaded in them.
    pub pages: u64,
    /// Pages that the primary answered.
    pub primary_pages: u64,
    /// Their share, in percent.
    pub primary_percent: Option<f64>,
    /// Pages that the primary answered because a replica had not applied the post in time.
    pub fell_back: u64,
    /// How long pages waited on a replica for the post's transaction.
    pub wait: Distribution,
    /// Latency of posts, as the visitor saw it.
    pub post_latency: Distribution,
    /// Latency of the first page after a post, as the visitor saw it.
    pub page_latency: Distribution,
    /// Resources of each server, front and load balancer per round.
    pub servers: Vec<PerOperation>,
}
