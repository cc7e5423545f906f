//! The cost of waiting for the acknowledgement.

use std::collections::BTreeSet;

use replimeter_engine::follow::LOG;
use replimeter_instruments::cost::{results::CostDocument, settings::LoggedMode};
use replimeter_model::{
    engine::product,
    estimate::Estimate,
    reproduce::{Claim, Table, Verdict},
};

use super::{
    Changed, Judged, claim, difference, fixed, question, shown, table, with_changed, within,
};
use crate::cost::report;
use replimeter_render::format::or_dash;

/// The published mean latency of an insert without replication, in microseconds.
const PUBLISHED_US: f64 = 134.31;
/// That latency, to a quarter.
const AS_LONG: std::ops::RangeInclusive<f64> = 100.0..=168.0;

/// Returns the published table.
#[must_use]
pub fn overhead_published() -> Table {
    fixed(
        &report::PUBLISHED_HEADINGS,
        &[
            &[
                "no replication",
                "7451.26 (969.24)",
                "134.31 (2904.26)",
                "110.00",
            ],
            &[
                "semi-sync",
                "2377.10 (210.42)",
                "421.46 (2644.61)",
                "362.67",
            ],
        ],
    )
}

/// Returns the measured table, and the findings of each engine. In `slower` an insert without replication takes about as long as
/// the published one.
#[must_use]
pub fn overhead(document: &CostDocument, slower: Option<&CostDocument>) -> (Table, Vec<Claim>) {
    let mut engines: Vec<&str> = Vec::new();
    for row in &document.results.rows {
        if row.mode.mode.waits_for_receipt() && !engines.contains(&&*row.engine) {
            engines.push(&row.engine);
        }
    }
    let claims = engines
        .iter()
        .flat_map(|engine| claims_of(document, slower, engine));
    (
        table(&report::PUBLISHED_HEADINGS, report::published(document)),
        claims.collect(),
    )
}

/// Returns the latency of an insert with semi-sync, relative to that without replication.
fn waiting(document: &CostDocument, engine: &str) -> Estimate {
    let rows = document.results.rows.iter();
    rows.filter(|row| row.engine == engine && row.threads == 1)
        .filter(|row| row.mode.mode.waits_for_receipt())
        .find_map(|row| {
            let mean = row.relative.latency.mean;
            mean.value.is_some().then_some(mean)
        })
        .unwrap_or_default()
}

/// Returns the mean latency of an insert without replication, in microseconds.
fn latency_without(document: &CostDocument, engine: &str) -> Option<f64> {
    let mut rows = document.results.rows.iter();
    let none =
        rows.find(|row| row.engine == engine && row.threads == 1 && row.mode == LoggedMode::NONE);
    none?.latency.mean_us
}

/// Returns the delay of the client's link in each direction, in whole microseconds, with which an insert without replication takes
/// about as long as the published one. `linked` has a link of 1 µs, whose own way is thus in its latencies; the engines share one
/// link, so it is chosen by their mean. At least 1 µs; `None` without a latency.
#[must_use]
pub fn link_for_published(linked: &CostDocument) -> Option<u64> {
    let rows = linked.results.rows.iter();
    let engines: BTreeSet<&str> = rows.map(|row| &*row.engine).collect();
    let engines = engines.into_iter();
    let latencies: Vec<f64> = engines
        .filter_map(|engine| latency_without(linked, engine))
        .collect();
    let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
    let delay = 1.0 + (PUBLISHED_US - mean) / 2.0;
    mean.is_finite().then_some(delay.round().max(1.0) as u64)
}

fn claims_of(document: &CostDocument, slower: Option<&CostDocument>, engine: &str) -> Vec<Claim> {
    let semi = waiting(document, engine);
    // What a mode adds to the one that it is built on, in microseconds.
    let added = |is: fn(LoggedMode) -> bool| {
        let steps = document.results.steps.iter();
        let mut steps = steps.filter(|step| step.mode.built_on() == Some(step.baseline));
        let step = steps.find(|step| step.engine == engine && step.threads == 1 && is(step.mode));
        step.map(|step| step.added.latency_us).unwrap_or_default()
    };
    let wait = added(|mode| mode.mode.waits_for_receipt());
    let log = added(|mode| mode == LoggedMode::LOGGED);
    let on_product = |claim: Claim| Claim {
        product: Some(product(engine).to_owned()),
        ..claim
    };
    let times = |ratio: f64| format!("{ratio:.2}");
    let us = |us: f64| format!("{us:.1}");
    let factor = |of| within(of, 2.0, 4.0);
    let changed = slower.map(|slower| {
        let (semi, without) = (waiting(slower, engine), latency_without(slower, engine));
        let text = format!(
            "{} if an insert takes {} without replication",
            shown(semi, times),
            or_dash(without, |us| format!("{us:.0} µs"))
        );
        let as_long = without.is_some_and(|us| AS_LONG.contains(&us));
        Changed {
            judged: Judged {
                text,
                verdict: if as_long { factor(semi) } else { Verdict::Open },
            },
            // The client's link makes an insert as long as the published one.
            chosen: true,
        }
    });
    let own = Judged {
        text: format!("{} times", shown(semi, times)),
        verdict: factor(semi),
    };
    let (ours, verdict) = with_changed(own, changed);
    let claims = [
        claim(
            "At one thread an insert takes longer with semi-sync than without replication (1 to 10 times)",
            "3.14 times",
            format!("{} times", shown(semi, times)),
            within(semi, 1.0, 10.0),
            "too few starts to decide on this machine",
        ),
        claim(
            "At one thread semi-sync makes an insert longer by a factor of two to four",
            "3.14 times",
            ours,
            verdict,
            "an insert without replication takes a fraction of the published 134 µs here, and the wait for the network does not",
        ),
        question(
            &format!("Most of it is the wait, not the {LOG}"),
            format!(
                "semi-sync adds {} µs to async, the {LOG} {} µs to none",
                shown(wait, us),
                shown(log, us)
            ),
            within(difference(wait, log), 0.0, f64::INFINITY),
            &format!(
                "the {LOG} costs as much here as the wait, or there are too few starts to decide"
            ),
        ),
    ];
    claims.into_iter().map(on_product).collect()
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::cost::results::{CostResults, CostRow};
    use replimeter_model::{engine::Engine, record::Distribution};

    use super::*;

    #[test]
    fn link_adds_what_lacks_to_the_published_latency() {
        let linked = |latencies: [Option<f64>; 2]| {
            let engines = [Engine::MariaDb, Engine::MySql].into_iter();
            let rows = engines.zip(latencies).map(|(engine, mean_us)| CostRow {
                engine: engine.name().to_owned(),
                mode: LoggedMode::NONE,
                threads: 1,
                latency: Distribution {
                    mean_us,
                    ..Distribution::default()
                },
                ..CostRow::default()
            });
            CostDocument {
                results: CostResults {
                    rows: rows.collect(),
                    ..CostResults::default()
                },
                ..CostDocument::default()
            }
        };
        // Both directions have the delay: 74 µs, and twice 30 µs more than the 1 µs in it.
        let delay = |latencies| link_for_published(&linked(latencies));
        assert_eq!(delay([Some(70.0), Some(78.0)]), Some(31));
        assert_eq!(delay([Some(70.0), None]), Some(33));
        assert_eq!(delay([Some(400.0), Some(500.0)]), Some(1), "never less");
        assert_eq!(delay([None, None]), None);
    }
}
