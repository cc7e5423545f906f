//! The settings of background loads.

use super::{PlanError, contradiction};
use crate::load::{Arrivals, DataSize, LoadSpec, RatedLoad};

/// Returns the threads of all loads.
pub fn threads(loads: &[RatedLoad]) -> u32 {
    loads.iter().map(|load| load.spec.threads).sum()
}

/// The loads, each with its rate; a common rate is repeated for each.
///
/// # Errors
/// If the settings contradict each other, or a rate is 0.
pub fn loads(
    specs: &[LoadSpec],
    rate: &mut Option<Vec<u64>>,
    arrivals: &mut Option<Arrivals>,
    size: Option<DataSize>,
) -> Result<Vec<RatedLoad>, PlanError> {
    let rates = rate.as_deref().unwrap_or_default();
    if rates.contains(&0) {
        return contradiction("rate must be above 0; omit it for a closed loop");
    }
    if rates.is_empty() && arrivals.is_some() {
        return contradiction("arrivals requires an open loop; add a rate");
    }
    if specs.is_empty() && size.is_some() {
        return contradiction(
            "load-data-size requires a load; add load, such as point-select:8@primary",
        );
    }
    if specs.is_empty() && !rates.is_empty() {
        return contradiction("a rate requires a load; add load, such as insert:8@primary");
    }
    if rates.len() > 1 && rates.len() != specs.len() {
        return contradiction("give one rate for every load, or as many rates as loads");
    }
    let rate_of = |index: usize| rates.get(index).or(rates.first()).copied();
    let loads = specs.iter().enumerate().map(|(index, spec)| RatedLoad {
        spec: spec.clone(),
        rate: rate_of(index),
        arrivals: arrivals.unwrap_or_default(),
        size,
    });
    let loads: Vec<RatedLoad> = loads.collect();
    let rates: Vec<u64> = loads.iter().filter_map(|load| load.rate).collect();
    // Constant arrivals are the default of a file.
    *arrivals = arrivals.filter(|arrivals| !rates.is_empty() && *arrivals != Arrivals::Constant);
    *rate = Some(rates).filter(|rates| !rates.is_empty());
    Ok(loads)
}
