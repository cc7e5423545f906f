//! A web site in front of the servers, through which a measurement goes.

use super::{PlanError, contradiction};
use crate::time_span::TimeSpan;

/// Maximum number of fronts.
const MAX_FRONTS: u32 = 16;
/// Maximum processor time that a request may be made to cost.
const MAX_COST: TimeSpan = TimeSpan::from_millis(1000);
/// Default number of fronts of a measurement through HTTP.
const DEFAULT_FRONTS: u32 = 2;

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

/// Returns the number of fronts.
pub(super) fn fronts(given: &mut Option<u32>, default: u32) -> Result<u32, PlanError> {
    let fronts = *given.get_or_insert(default);
    if fronts == 0 || fronts > MAX_FRONTS {
        return Err(PlanError::Contradiction(format!(
            "fronts must be from 1 to {MAX_FRONTS}"
        )));
    }
    Ok(fronts)
}

/// Returns the processor time added to each request.
pub(super) fn cost(given: &mut Option<TimeSpan>) -> Result<TimeSpan, PlanError> {
    let cost = *given.get_or_insert(TimeSpan::from_secs(0));
    if cost > MAX_COST {
        return Err(PlanError::Contradiction(format!(
            "front-cost must be at most {MAX_COST}"
        )));
    }
    Ok(cost)
}

impl SitePlan {
    /// Returns the site; `None` without one, where its settings must be absent. `more` are settings that need it besides.
    pub(super) fn of(
        through: &mut Option<Through>,
        given: (&mut Option<u32>, &mut Option<TimeSpan>),
        more: &[(&str, bool)],
    ) -> Result<Option<Self>, PlanError> {
        let own = [
            ("fronts", given.0.is_some()),
            ("front-cost", given.1.is_some()),
        ];
        match *through.get_or_insert_default() {
            Through::Http => Ok(Some(Self {
                fronts: fronts(given.0, DEFAULT_FRONTS)?,
                cost: cost(given.1)?,
            })),
            Through::Direct => match own.iter().chain(more).find(|(_, given)| *given) {
                Some((key, _)) => contradiction(&format!("{key} requires through = http")),
                None => Ok(None),
            },
        }
    }
}
