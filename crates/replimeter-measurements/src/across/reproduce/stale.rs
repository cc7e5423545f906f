//! Stale reads.

use replimeter_instruments::stale::results::{StaleDocument, StaleRow};
use replimeter_model::{
    estimate::Estimate,
    reproduce::{Claim, Table, Verdict},
};

use super::{claim, fixed, table, within};
use replimeter_render::{
    figures::{count, time},
    format::{Format, or_dash},
    report::Cell,
};

/// Returns the published table.
#[must_use]
pub fn stale_published() -> Table {
    fixed(
        &["load", "on node", "stale", "min / max / avg ms"],
        &[
            &["none", "–", "0.94 %", "0.71 / 2.16 / 0.89"],
            &[
                "oltp-mix",
                "writer",
                "39.01 %, 38.93 %",
                "0.66 / 201.36 / 3.81; 0.66 / 42.9 / 3.76",
            ],
            &[
                "oltp-mix",
                "reader",
                "37.47 %, 37.21 %",
                "0.86 / 108.15 / 8.62; 0.81 / 291.81 / 8.54",
            ],
            &[
                "update-key",
                "writer",
                "10.62 %, 11.13 %",
                "0.71 / 285.07 / 3.21; 0.81 / 275.94 / 5.06",
            ],
            &[
                "update-key",
                "reader",
                "53.49 %, 53.55 %",
                "0.81 / 519.61 / 5.02; 0.81 / 526.95 / 5.06",
            ],
            &["update-key", "third", "8.33 %", "0.66 / 353.61 / 2.76"],
            &["big-update", "writer", "4.52 %", "0.66 / 46,526.7 / 104.28"],
        ],
    )
}

/// Formats a row's share of stale reads.
fn shown(row: &StaleRow) -> String {
    or_dash(
        row.stale_percent.zip(row.stale_percent_ci95),
        |(share, ends)| format!("{} %", Format::Share.show(share, Some(ends))),
    )
}

/// Returns a row's share of stale reads, in percent.
fn share(row: Option<&StaleRow>) -> Estimate {
    Estimate::with_ends(
        row.and_then(|row| row.stale_percent),
        row.and_then(|row| row.stale_percent_ci95),
    )
}

/// Share of broken reads in percent up to which none is the published result, as an upper bound.
const BROKEN_PERCENT: f64 = 0.5;

/// Returns whether one row has more stale reads than the other, and a share in a range; the order is decided only if their intervals do
/// not overlap.
fn more(one: Option<&StaleRow>, other: Option<&StaleRow>, [least, most]: [f64; 2]) -> Verdict {
    let order = match share(one).ends().zip(share(other).ends()) {
        Some(([low, _], [_, high])) if low > high => Verdict::Agrees,
        Some(([_, high], [low, _])) if high < low => Verdict::Differs,
        _ => Verdict::Open,
    };
    match [order, within(share(one), least, most)] {
        [Verdict::Agrees, Verdict::Agrees] => Verdict::Agrees,
        both if both.contains(&Verdict::Differs) => Verdict::Differs,
        _ => Verdict::Open,
    }
}

/// Returns the rows with immediate reads that do not wait, and those that do.
fn rows(document: &StaleDocument) -> (Vec<&StaleRow>, Vec<&StaleRow>) {
    let rows = document.results.rows.iter();
    let rows = rows.filter(|row| row.judged != "load");
    let (plain, waiting): (Vec<&StaleRow>, Vec<&StaleRow>) =
        rows.partition(|row| row.read_consistency == "off");
    let plain = plain.into_iter().filter(|row| !row.null_replica);
    (plain.collect(), waiting)
}

/// Returns the row of a load on a server.
fn of<'r>(rows: &[&'r StaleRow], load: &str, on: &str) -> Option<&'r StaleRow> {
    let mut rows = rows.iter();
    rows.find(|row| row.load.starts_with(load) && row.load.ends_with(on))
        .copied()
}

/// Returns the measured table and the findings. `local` is a run without the links of the client, on an idle cluster.
#[must_use]
pub fn stale(document: &StaleDocument, local: Option<&StaleDocument>) -> (Table, Vec<Claim>) {
    let (plain, waiting) = rows(document);
    let lines = plain.iter().map(|row| {
        let figure = |us: Option<f64>| or_dash(us, |us| format!("{:.2}", us / 1e3));
        let delay = [
            row.staleness.min_us,
            row.staleness.max_us,
            row.staleness.mean_us,
        ]
        .map(figure);
        let load = row.load.split(':').next().unwrap_or_default();
        vec![
            load.to_owned(),
            Cell::text(&row.load_on).display_text(),
            shown(row),
            delay.join(" / "),
        ]
    });
    let headings = ["load", "on node", "stale [95 %]", "min / max / avg ms"];
    let local = local.and_then(|local| of(&rows(local).0, "none", ""));
    let mut claims = by_load(&plain, local);
    claims.push(synchronous(&waiting));
    (table(&headings, lines), claims)
}

/// Returns the findings on reads that do not wait, by load; `local` is the idle case next to the cluster.
fn by_load(plain: &[&StaleRow], local: Option<&StaleRow>) -> Vec<Claim> {
    let idle = of(plain, "none", "");
    let both = |one: Option<&StaleRow>, other: Option<&StaleRow>| {
        [one, other].map(|row| or_dash(row, shown)).join(" and ")
    };
    let shared = "all nodes, the load and the client share this machine's cores here";
    let mix = of(plain, "oltp-mix", "writer");
    let [reader, writer] = ["reader", "writer"].map(|on| of(plain, "update-key", on));
    let stalled = of(plain, "big-update", "writer").and_then(|row| {
        [row.write_latency.max_us, row.staleness.max_us]
            .into_iter()
            .flatten()
            .reduce(f64::max)
    });
    vec![
        claim(
            "Idle, few immediate reads are stale (0 to 10 %)",
            "0.94 %",
            or_dash(idle, |row| match local {
                Some(local) => format!("{}; {} next to the cluster", shown(row), shown(local)),
                None => shown(row),
            }),
            within(share(idle), 0.0, 10.0),
            "client and nodes share cores here, so that applying has hardly begun when the read arrives",
        ),
        claim(
            "The mix on the writer makes far more of them stale (20 to 80 %)",
            "39 % against 0.94 %",
            both(mix, idle),
            more(mix, idle, [20.0, 80.0]),
            shared,
        ),
        claim(
            "Updates on the reader cause more stale reads (27 to 100 %) than updates on the writer",
            "53 % against 11 %",
            both(reader, writer),
            more(reader, writer, [27.0, 100.0]),
            shared,
        ),
        claim(
            "One huge update stalls unrelated requests",
            "up to 46.5 s",
            or_dash(stalled, |us| format!("up to {}", time(us))),
            Verdict::NotJudged,
            "a maximum has no interval, and a run without a stall does not exclude it; the table is smaller here",
        ),
    ]
}

/// Returns the finding on synchronous reads.
fn synchronous(waiting: &[&StaleRow]) -> Claim {
    let broken: u64 = waiting.iter().map(|row| row.stale).sum();
    let asked: u64 = waiting.iter().map(|row| row.rounds).sum();
    let bounds = waiting.iter();
    let bounds = bounds.map(|row| row.violations.read_your_writes_percent_upper_bound);
    let bound = bounds.fold(0.0, f64::max);
    let asked = Some(asked).filter(|asked| *asked > 0);
    claim(
        "With synchronous reads, no read is stale (none, and at most 0.5 % as an upper bound)",
        "none",
        or_dash(asked, |asked| {
            format!(
                "{broken} of {} (at most {bound:.2} % in any row)",
                count(asked)
            )
        }),
        match (asked, broken) {
            (None, _) => Verdict::Open,
            (_, 0) if bound <= BROKEN_PERCENT => Verdict::Agrees,
            (_, 0) => Verdict::Open,
            _ => Verdict::Differs,
        },
        "there are too few reads for the bound, or see the witness in the run's report",
    )
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::stale::results::StaleResults;
    use replimeter_model::record::Distribution;

    use super::*;
    use crate::across::reproduce::tests::verdicts;

    #[test]
    fn stale_reads_are_ordered_by_interval() {
        let row = |load: &str, on: &str, sync: &str, share: f64, rounds: u64| StaleRow {
            load: if on.is_empty() {
                load.to_owned()
            } else {
                format!("{load}:32@{on}")
            },
            load_on: on.to_owned(),
            read_consistency: sync.to_owned(),
            rounds,
            stale: (share * rounds as f64 / 100.0) as u64,
            stale_percent: Some(share),
            stale_percent_ci95: Some([(share - 1.0).max(0.0), share + 1.0]),
            write_latency: Distribution {
                p50_us: Some(1000.0),
                max_us: Some(5e7),
                ..Distribution::default()
            },
            ..StaleRow::default()
        };
        let document = StaleDocument {
            results: StaleResults {
                rows: vec![
                    row("none", "", "off", 0.94, 10_000),
                    row("oltp-mix", "writer", "off", 39.0, 10_000),
                    row("update-key", "writer", "off", 10.6, 10_000),
                    row("update-key", "reader", "off", 53.5, 10_000),
                    row("big-update", "writer", "off", 4.5, 10_000),
                    row("none", "", "on", 0.0, 10_000),
                ],
                ..StaleResults::default()
            },
            ..StaleDocument::default()
        };
        let local = StaleDocument {
            results: StaleResults {
                rows: vec![row("none", "", "off", 31.9, 1000)],
                ..StaleResults::default()
            },
            ..StaleDocument::default()
        };
        let (_, claims) = stale(&document, Some(&local));
        assert!(claims[0].ours.ends_with("% next to the cluster"));
        let with_the_maximum = |verdict| [verdict, verdict, verdict, Verdict::NotJudged, verdict];
        assert_eq!(
            verdicts(&claims),
            with_the_maximum(Verdict::Agrees),
            "{claims:#?}"
        );
        let (_, nothing) = stale(&StaleDocument::default(), None);
        assert_eq!(verdicts(&nothing), with_the_maximum(Verdict::Open));
        // None of a few reads is no proof.
        let mut few = document.clone();
        few.results.rows[5]
            .violations
            .read_your_writes_percent_upper_bound = 3.0;
        assert_eq!(stale(&few, None).1[4].verdict, Verdict::Open);
        // Where the hosts share cores, updates on the writer cause more.
        let mut shared = document.clone();
        for row in &mut shared.results.rows {
            if row.load.ends_with("update-key:32@writer") {
                row.stale_percent_ci95 = Some([60.0, 70.0]);
            }
        }
        assert_eq!(stale(&shared, None).1[2].verdict, Verdict::Differs);
    }
}
