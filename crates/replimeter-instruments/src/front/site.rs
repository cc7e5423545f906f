//! A web site in front of the servers, through which a measurement goes.

use replimeter_model::{
    one_of,
    plan::{PlanError, contradiction},
    time_span::TimeSpan,
};

/// Maximum number of fronts.
pub(crate) const MAX_FRONTS: u32 = 16;
/// Maximum processor time that a request may be made to cost.
const MAX_COST: TimeSpan = TimeSpan::from_millis(1000);
/// Default number of fronts of a measurement through HTTP.
pub(crate) const DEFAULT_FRONTS: u32 = 2;

one_of! {
    /// How the clients reach the servers.
    #[derive(Default)]
    pub enum Through {
        /// Over connections to the servers
        #[default]
        Direct = "direct",
        /// Over a web site in front of them: HAProxy and fronts
        Http = "http",
    }
}

one_of! {
    /// What sends the requests to a site.
    #[derive(Default)]
    pub enum HttpDriver {
        /// ApacheBench, as in the published experiment: no cookies
        #[default]
        Ab = "ab",
        /// Visitors of Replimeter, which keep cookies
        Replimeter = "replimeter",
    }
}

/// The site of a measurement through HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SitePlan {
    /// Number of fronts.
    pub fronts: u32,
    /// Processor time added to each request.
    pub cost: TimeSpan,
}

/// Rejects an implausible processor time of a request.
pub(crate) fn check_cost(_: &str, value: &TimeSpan) -> Result<(), PlanError> {
    match *value > MAX_COST {
        true => contradiction(format!("front-cost must be at most {MAX_COST}")),
        false => Ok(()),
    }
}
