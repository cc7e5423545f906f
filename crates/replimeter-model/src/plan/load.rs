//! The settings of load and backlog.

use super::{Join, LagSpec, Methods, OneOrMore, PlanError, contradiction};
use crate::{
    backlog::BacklogPlan,
    load::{Arrivals, LoadPlan, LoadSpec, Size},
    target::PRIMARY,
};

/// The load under which a backlog grows when none is asked for.
const BACKLOG_THREADS: u32 = 8;
/// The most applier workers that any server takes.
const MOST_WORKERS: u32 = 1024;

impl LagSpec {
    /// The loads, each with its rate.
    pub(super) fn loads(&self) -> Result<Vec<LoadPlan>, PlanError> {
        let mut specs = self.load.clone();
        if specs.is_empty() && self.backlog.is_some() {
            specs.push(LoadSpec {
                workload: "insert".to_owned(),
                threads: BACKLOG_THREADS,
                node: PRIMARY.to_owned(),
            });
        }
        let rates = self.rate.as_ref().map(OneOrMore::all).unwrap_or_default();
        if rates.contains(&0) {
            return contradiction("a rate of 0 is no load; leave rate out for a closed loop");
        }
        if rates.is_empty() && self.arrivals.is_some() {
            return contradiction("arrivals belong to an open loop; add a rate");
        }
        if specs.is_empty() && self.load_size.is_some() {
            return contradiction(
                "a load-size needs a load; add load, such as point-select:8@primary",
            );
        }
        if specs.is_empty() && !rates.is_empty() {
            return contradiction("a rate needs a load; add load, such as insert:8@primary");
        }
        if rates.len() > 1 && rates.len() != specs.len() {
            return contradiction("give one rate for every load, or as many rates as loads");
        }
        let rate = |index: usize| rates.get(index).or(rates.first()).copied();
        Ok(specs
            .into_iter()
            .enumerate()
            .map(|(index, spec)| LoadPlan {
                spec,
                rate: rate(index),
                arrivals: self.arrivals.unwrap_or_default(),
                size: self.load_size,
            })
            .collect())
    }

    /// The backlog to be made, if any.
    pub(super) fn backlog_plan(&self) -> Result<Option<BacklogPlan>, PlanError> {
        let Some(grow) = self.backlog else {
            if self.workers.is_empty() {
                return Ok(None);
            }
            return contradiction("workers belong to a backlog; add backlog, such as 30s");
        };
        if grow.0.is_zero() {
            return contradiction("a backlog that grows for 0s is none");
        }
        if self.workers.iter().any(|workers| *workers > MOST_WORKERS) {
            return contradiction("no server takes more than 1024 applier workers");
        }
        let rounds = self.rounds.is_some()
            || self.duration.is_some()
            || self.pace.is_some()
            || self.size.is_some();
        let sweep = self.sizes.is_some()
            || self.per_step.is_some()
            || self.step_pause.is_some()
            || self.sweeps.is_some();
        let observed = self.stages == Some(true) || self.join == Some(Join::Federated);
        if rounds
            || sweep
            || observed
            || self.warm_up.is_some()
            || self.floor_rounds.is_some()
            || self.writers.is_some_and(|writers| writers > 1)
            || self.method != Methods::default()
        {
            return contradiction(
                "with a backlog no rounds are measured: leave out method, stages, join, rounds, for, pace, every, writers, size, sizes, warm-up and floor-rounds",
            );
        }
        Ok(Some(BacklogPlan {
            grow,
            workers: self.workers.clone(),
        }))
    }
}

/// Loads as a plan file spells them.
pub(super) struct Spelled {
    pub(super) load: Vec<LoadSpec>,
    pub(super) rate: Option<OneOrMore<u64>>,
    pub(super) arrivals: Option<Arrivals>,
    pub(super) load_size: Option<Size>,
}

/// Loads, their rates and their data as a plan file spells them.
pub(super) fn to_spec(loads: &[LoadPlan]) -> Spelled {
    let first = loads.first();
    Spelled {
        load: loads.iter().map(|load| load.spec.clone()).collect(),
        rate: OneOrMore::of(loads.iter().filter_map(|load| load.rate).collect()),
        // Constant arrivals are what a file without the word has.
        arrivals: first
            .filter(|load| load.rate.is_some())
            .map(|load| load.arrivals)
            .filter(|arrivals| *arrivals != Arrivals::Constant),
        load_size: first.and_then(|load| load.size),
    }
}
