//! The cost of waiting for the acknowledgement.

use replimeter_model::{
    cost::CostDocument,
    estimate::Estimate,
    reproduce::{Claim, Table, Verdict},
};

use super::{claim, fixed, table, within};
use crate::cost::report;
use replimeter_render::format::{Format, or_dash};

/// Returns the published table.
#[must_use]
pub fn price_published() -> Table {
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

/// Returns the measured table and the findings.
#[must_use]
pub fn price(document: &CostDocument) -> (Table, Vec<Claim>) {
    let row = |mode: &str| {
        document
            .results
            .rows
            .iter()
            .filter(|row| row.threads == 1 && row.mode == mode)
            .find(|row| row.relative.latency.mean.value.is_some())
    };
    let shown = |of: Option<Estimate>| {
        let of = of.and_then(|of| Some((of.value?, of.ends())));
        or_dash(of, |(value, ends)| Format::Decimals(2).show(value, ends))
    };
    let semi = row("semi-sync").map(|row| row.relative.latency.mean);
    let ratio = |estimate: Option<Estimate>| estimate.and_then(|estimate| estimate.value);
    let slower = |estimate: Option<Estimate>| match estimate.and_then(|estimate| estimate.ends()) {
        Some([low, _]) if low > 1.0 => Verdict::Agrees,
        Some([_, high]) if high < 1.0 => Verdict::Differs,
        _ => Verdict::Open,
    };
    let asynchronous = row("async").map(|row| row.relative.latency.mean);
    let wait = semi
        .zip(asynchronous)
        .and_then(|(semi, bare)| Some(semi.value? - bare.value?));
    let claims = vec![
        claim(
            "At one thread an insert takes longer with semi-sync than without replication",
            "3.14 times",
            format!("{} times", shown(semi)),
            slower(semi),
            "too few starts to decide on this machine",
        ),
        claim(
            "By a factor of two to four",
            "3.14 times",
            format!("{} times", shown(semi)),
            within(semi, 2.0, 4.0),
            "the acknowledgement comes over loopback here, not over a network of 2010, and the replica's threads compete for the same cores",
        ),
        claim(
            "Most of it is the wait, not the binary log (a question of readers, not published)",
            "–",
            format!("asynchronous replication: {} times", shown(asynchronous)),
            match wait.zip(ratio(asynchronous)) {
                Some((wait, bare)) if wait > bare - 1.0 => Verdict::Agrees,
                Some(_) => Verdict::Differs,
                None => Verdict::Open,
            },
            "the binary log, or the replica's share of the cores, costs as much here as the wait",
        ),
    ];
    (
        table(&report::PUBLISHED_HEADINGS, report::published(document)),
        claims,
    )
}
