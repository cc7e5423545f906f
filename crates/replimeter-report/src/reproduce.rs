//! The published experiments beside ours: tables, and what agrees in shape.
//!
//! Published figures are facts from the five sources; `docs/reproduce.md` names them.

use std::fmt::Write as _;

use replimeter_model::{
    cost::CostDocument,
    estimate::Estimate,
    record::{LagDocument, LagRow},
    reproduce::{Claim, ReproduceDocument, Table, Verdict},
    scale::{ScaleDocument, ScaleRow},
    stale::{StaleDocument, StaleRow},
};

use crate::{
    answer::overall_rows,
    cost,
    figures::{count, time},
    markdown,
    stale::percent,
    terminal::{plain_table, wrapped},
};

fn table(headings: &[&str], lines: Vec<Vec<String>>) -> Table {
    Table {
        headings: headings
            .iter()
            .map(|heading| (*heading).to_owned())
            .collect(),
        lines,
    }
}

fn fixed(headings: &[&str], lines: &[&[&str]]) -> Table {
    table(
        headings,
        lines
            .iter()
            .map(|line| line.iter().map(|cell| (*cell).to_owned()).collect())
            .collect(),
    )
}

fn claim(claim: &str, published: &str, ours: String, verdict: Verdict, why: &str) -> Claim {
    let why = if verdict == Verdict::Agrees {
        String::new()
    } else {
        why.to_owned()
    };
    Claim {
        claim: claim.to_owned(),
        published: published.to_owned(),
        ours,
        verdict,
        why,
    }
}

/// Agrees above one bound, differs below the other, open between them.
fn judged(
    value: Option<f64>,
    agrees: impl Fn(f64) -> bool,
    differs: impl Fn(f64) -> bool,
) -> Verdict {
    match value {
        Some(value) if agrees(value) => Verdict::Agrees,
        Some(value) if differs(value) => Verdict::Differs,
        _ => Verdict::Open,
    }
}

/// Whether a figure lies in a range: all of its interval, or none of it, or neither can be said.
fn within(estimate: Option<Estimate>, least: f64, most: f64) -> Verdict {
    let Some((value, ends)) =
        estimate.and_then(|estimate| Some((estimate.value?, estimate.ends())))
    else {
        return Verdict::Open;
    };
    let [low, high] = ends.unwrap_or([value, value]);
    match () {
        () if low >= least && high <= most => Verdict::Agrees,
        () if high < least || low > most => Verdict::Differs,
        () => Verdict::Open,
    }
}

fn dash() -> String {
    "–".to_owned()
}

fn rate(value: Option<f64>) -> String {
    value.map_or_else(dash, |value| count(value.max(0.0).round() as u64))
}

fn ms(us: f64) -> String {
    format!("{:.3}", us / 1e3)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut number) = (0.0, 0.0);
    for value in values {
        sum += value;
        number += 1.0;
    }
    (number > 0.0).then(|| sum / number)
}

/// What the size sweep was published with.
#[must_use]
pub fn sweep_published() -> Table {
    fixed(
        &["figure", "ms"],
        &[
            &["insert (fifth row of a step)", "1.3 to 3.3"],
            &["retrieval", "0.85 to 1.6"],
            &["total", "2.9 to 4.6"],
            &["bare (total − insert − retrieval)", "0.055 to 2.3"],
            &["average bare", "1.040"],
        ],
    )
}

/// Our sweep over sizes.
#[must_use]
pub fn sweep(document: &LagDocument) -> (Table, Vec<Claim>) {
    let loops: Vec<_> = document
        .size_sweep
        .iter()
        .flat_map(|sweep| &sweep.loops)
        .collect();
    let span = |pick: fn(&replimeter_model::record::SweepLoop) -> f64| {
        let values = loops.iter().map(|row| pick(row));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if loops.is_empty() {
            dash()
        } else {
            format!("{} to {}", ms(low), ms(high))
        }
    };
    let bare_of = |keep: &dyn Fn(u64) -> bool| {
        mean(
            loops
                .iter()
                .filter(|row| keep(row.size_bytes))
                .map(|row| row.bare_us),
        )
    };
    let average = bare_of(&|_| true);
    let lines = vec![
        vec![
            "insert (fifth row of a step)".to_owned(),
            span(|row| row.insert_us),
        ],
        vec!["retrieval".to_owned(), span(|row| row.retrieval_us)],
        vec!["total".to_owned(), span(|row| row.total_us)],
        vec![
            "bare (total − insert − retrieval)".to_owned(),
            span(|row| row.bare_us),
        ],
        vec!["average bare".to_owned(), average.map_or_else(dash, ms)],
    ];
    let total = mean(loops.iter().map(|row| row.total_us));
    let largest = loops.iter().map(|row| row.size_bytes).max().unwrap_or(0);
    let grows = longer(document, largest);
    let claims = vec![
        claim(
            "A row is on the replica within milliseconds of its insert",
            "2.9 to 4.6 ms in all",
            total.map_or_else(dash, |us| format!("{} ms in all on average", ms(us))),
            judged(total, |us| us < 10_000.0, |us| us >= 10_000.0),
            "the disk or the machine is slower here than that of 2006; see the run's own report",
        ),
        claim(
            "The bare time does not follow the size from 1,000 to 10,000 bytes",
            "0.055 to 2.3 ms without a trend",
            grows.map_or_else(dash, |[ratio, low, high]| {
                format!(
                    "{ratio:.2} [{low:.2}, {high:.2}] times as long to be seen at {} bytes as at 1,000, on average",
                    count(largest)
                )
            }),
            // Ten times the bytes took no longer than what else happened then: 0.055 to 2.3 ms.
            match grows {
                Some([_, _, high]) if high < 3.0 => Verdict::Agrees,
                Some([_, low, _]) if low >= 3.0 => Verdict::Differs,
                _ => Verdict::Open,
            },
            "so short a lag shows what ten times the bytes take to be written and applied, or there are too few rows to tell",
        ),
    ];
    (table(&["figure", "ms"], lines), claims)
}

/// How many times as long rows of the largest size take to be seen as those of 1,000 bytes, on average over
/// all rows, with an interval by the delta method on the logarithm.
fn longer(document: &LagDocument, largest: u64) -> Option<[f64; 3]> {
    let of = |size: u64| {
        let row = document
            .results
            .iter()
            .find(|row| row.size_bytes == Some(size))?;
        let (mean, count) = (
            row.from_ack.mean_us.filter(|mean| *mean > 0.0)?,
            row.from_ack.count,
        );
        (count > 1).then_some((mean, row.from_ack.stdev_us? / mean / (count as f64).sqrt()))
    };
    let ((large, large_error), (small, small_error)) = of(largest).zip(of(1000))?;
    let (ratio, factor) = (large / small, (1.96 * large_error.hypot(small_error)).exp());
    Some([ratio, ratio / factor, ratio * factor])
}

/// What the read replicas were published with.
#[must_use]
pub fn replicas_published() -> Table {
    fixed(
        &[
            "replicas",
            "insert alone /s",
            "select alone /s",
            "insert while selecting /s",
            "select while inserting /s",
        ],
        &[
            &["0", "1,908", "609", "458", "69"],
            &["1", "925 (−51 %)", "–", "795 (+73 %)", "69"],
            &["2", "744 (−61 %)", "–", "636 (+39 %)", "130"],
        ],
    )
}

/// Our read replicas.
#[must_use]
pub fn replicas(document: &ScaleDocument) -> (Table, Vec<Claim>) {
    let row = |replicas: u32, phase: &str| {
        document
            .results
            .iter()
            .find(|row| row.replicas == replicas && row.phase == phase)
    };
    let mut counts: Vec<u32> = document.results.iter().map(|row| row.replicas).collect();
    counts.sort_unstable();
    counts.dedup();
    let cell = |row: Option<&ScaleRow>, select: bool| {
        let Some(row) = row else { return dash() };
        let (value, of_none) = if select {
            (row.selects_per_s, row.percent_of_none.selects)
        } else {
            (row.inserts_per_s, row.percent_of_none.inserts)
        };
        match of_none.filter(|_| row.replicas > 0) {
            Some(percent) => {
                format!("{} ({:+.0} %)", rate(value), percent - 100.0).replace('-', "−")
            }
            None => rate(value),
        }
    };
    let lines = counts.iter().map(|&replicas| {
        vec![
            replicas.to_string(),
            cell(row(replicas, "insert"), false),
            cell(row(replicas, "select"), true),
            cell(row(replicas, "mixed"), false),
            cell(row(replicas, "mixed"), true),
        ]
    });
    let lines: Vec<Vec<String>> = lines.collect();
    let shown = |value: Option<f64>, ends: Option<[f64; 2]>| match (value, ends) {
        (Some(value), Some([low, high])) => format!("{value:.0} % of none [{low:.0}, {high:.0}]"),
        (Some(value), None) => format!("{value:.0} % of none, without an interval"),
        _ => dash(),
    };
    let below = |ends: Option<[f64; 2]>| {
        ends.map_or(Verdict::Open, |[low, high]| match () {
            () if high < 100.0 => Verdict::Agrees,
            () if low > 100.0 => Verdict::Differs,
            () => Verdict::Open,
        })
    };
    let above = |ends: Option<[f64; 2]>| match below(ends) {
        Verdict::Agrees => Verdict::Differs,
        Verdict::Differs => Verdict::Agrees,
        Verdict::Open => Verdict::Open,
    };
    let here = format!(
        "all servers and the load share this machine's {} cores, disk and memory; the published test had two hosts (with a share of the cores for each server, \
         --cpus-per-server, selects rise here too: docs/scale.md)",
        document.cores
    );
    let one = row(1, "insert").map(|row| row.percent_of_none);
    let mixed = row(1, "mixed").map(|row| row.percent_of_none);
    let per = |replicas, phase, select: bool| {
        row(replicas, phase).and_then(|row| {
            if select {
                row.selects_per_s
            } else {
                row.inserts_per_s
            }
        })
    };
    let ratio = |phase, select| {
        per(2, phase, select)
            .zip(per(1, phase, select))
            .filter(|(_, one)| *one > 0.0)
            .map(|(two, one)| two / one)
    };
    let second = ratio("insert", false);
    let doubled = ratio("mixed", true);
    let claims = vec![
        claim(
            "The first replica lowers pure inserts",
            "49 % of none",
            shown(
                one.and_then(|of| of.inserts),
                one.and_then(|of| of.inserts_ci),
            ),
            below(one.and_then(|of| of.inserts_ci)),
            &here,
        ),
        claim(
            "The second takes another part",
            "80 % of one replica's",
            second.map_or_else(dash, |ratio| {
                format!("{:.0} % of one replica's", ratio * 100.0)
            }),
            judged(second, |ratio| ratio < 0.95, |ratio| ratio > 1.05),
            &here,
        ),
        claim(
            "Under selects one replica raises inserts, since the primary no longer answers them",
            "173 % of none",
            shown(
                mixed.and_then(|of| of.inserts),
                mixed.and_then(|of| of.inserts_ci),
            ),
            above(mixed.and_then(|of| of.inserts_ci)),
            &here,
        ),
        claim(
            "Selects under inserts nearly double from one replica to two",
            "188 % of one replica's",
            doubled.map_or_else(dash, |ratio| {
                format!("{:.0} % of one replica's", ratio * 100.0)
            }),
            judged(doubled, |ratio| ratio > 1.5, |ratio| ratio < 1.2),
            &here,
        ),
    ];
    let headings = [
        "replicas",
        "insert alone /s",
        "select alone /s",
        "insert while selecting /s",
        "select while inserting /s",
    ];
    (table(&headings, lines), claims)
}

/// The histogram as published: lag to the nearest 0.1 ms, and rows.
const TENTHS: [(&str, &str); 13] = [
    ("0.1", "392"),
    ("0.2", "468"),
    ("0.3", "75"),
    ("0.4", "32"),
    ("0.5", "15"),
    ("0.6", "9"),
    ("0.7", "2"),
    ("1.3", "2"),
    ("1.4", "1"),
    ("1.8", "1"),
    ("4.6", "1"),
    ("6.6", "1"),
    ("24.3", "1"),
];

/// What the histogram was published with.
#[must_use]
pub fn histogram_published() -> Table {
    table(
        &["lag, ms", "rows"],
        TENTHS
            .iter()
            .map(|(tenth, rows)| vec![(*tenth).to_owned(), (*rows).to_owned()])
            .collect(),
    )
}

/// Our histogram: that of the stamps, which are what was published.
#[must_use]
pub fn histogram(document: &LagDocument) -> (Table, Vec<Claim>) {
    let rows = overall_rows(document);
    let stamps = ["stamp-udf", "stamp"].iter().find_map(|method| {
        rows.iter()
            .find(|row| row.method == *method && !row.tenths.is_empty())
    });
    let Some(row) = stamps else {
        return (Table::default(), Vec::new());
    };
    let all: u64 = row.tenths.iter().map(|bin| bin.count).sum();
    let lines = row
        .tenths
        .iter()
        .map(|bin| vec![format!("{:.1}", bin.tenth as f64 / 10.0), count(bin.count)]);
    let lines: Vec<Vec<String>> = lines.collect();
    let peak = row
        .tenths
        .iter()
        .max_by_key(|bin| bin.count)
        .map(|bin| bin.tenth);
    let near: u64 = row
        .tenths
        .iter()
        .filter(|bin| peak.is_some_and(|peak| (bin.tenth - peak).abs() <= 1))
        .map(|bin| bin.count)
        .sum();
    let share = (all > 0).then(|| near as f64 / all as f64);
    let (shown, tail) = of_stamps(row);
    let claims = vec![
        claim(
            "Most rows lie within two or three tenths of a millisecond",
            "86 % in 0.1 and 0.2 ms; peak at 0.2 ms",
            share.map_or_else(dash, |share| {
                format!(
                    "{:.0} % within 0.1 ms of the peak at {:.1} ms",
                    share * 100.0,
                    peak.unwrap_or(0) as f64 / 10.0
                )
            }),
            judged(share, |share| share >= 0.7, |share| share < 0.5),
            "servers and client share cores here, which spreads the lag",
        ),
        claim(
            "The lag is short: a fraction of a millisecond",
            "0.2 ms at the median",
            shown,
            judged(
                row.from_primary.p50_us.or(row.from_ack.p50_us),
                |us| us < 1000.0,
                |us| us >= 2000.0,
            ),
            "the disk or the cores are slower or busier here",
        ),
        claim(
            "A few rows are far later than all others",
            "largest 24.3 ms, 120 times the median",
            tail.map_or_else(dash, |(max, ratio)| {
                format!("largest {}, {ratio:.0} times the median", time(max))
            }),
            judged(
                tail.map(|(_, ratio)| ratio),
                |ratio| ratio >= 10.0,
                |ratio| ratio < 4.0,
            ),
            "nothing stalled the replica during this run",
        ),
    ];
    (table(&["lag, ms", "rows"], lines), claims)
}

fn of_stamps(row: &LagRow) -> (String, Option<(f64, f64)>) {
    let lag = if row.from_primary.count > 0 {
        &row.from_primary
    } else {
        &row.from_ack
    };
    let tail = lag
        .max_us
        .zip(lag.p50_us)
        .filter(|(_, p50)| *p50 > 0.0)
        .map(|(max, p50)| (max, max / p50));
    (
        lag.p50_us
            .map_or_else(dash, |us| format!("{} at the median", time(us))),
        tail,
    )
}

/// What stale reads were published with.
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

/// Our stale reads.
#[must_use]
pub fn stale(document: &StaleDocument) -> (Table, Vec<Claim>) {
    let plain: Vec<&StaleRow> = document
        .results
        .iter()
        .filter(|row| row.sync_reads == "off" && row.judged != "load" && !row.null_replica)
        .collect();
    let shown = |row: &StaleRow| match (
        row.stale_percent,
        row.stale_percent_low,
        row.stale_percent_high,
    ) {
        (Some(share), Some(low), Some(high)) => format!("{} %", percent(share, low, high)),
        _ => dash(),
    };
    let lines = plain.iter().map(|row| {
        let delay = &row.delay;
        let figure = |value: Option<f64>| value.map_or_else(dash, |us| format!("{:.2}", us / 1e3));
        vec![
            row.load.split(':').next().unwrap_or_default().to_owned(),
            if row.load_on.is_empty() {
                dash()
            } else {
                row.load_on.clone()
            },
            shown(row),
            format!(
                "{} / {} / {}",
                figure(delay.min_us),
                figure(delay.max_us),
                figure(delay.mean_us)
            ),
        ]
    });
    let lines: Vec<Vec<String>> = lines.collect();
    let idle = plain.iter().find(|row| row.load == "none");
    let of = |load: &str, on: &str| {
        plain
            .iter()
            .find(|row| row.load.starts_with(load) && row.load.ends_with(on))
    };
    let both = |a: Option<&&StaleRow>, b: Option<&&StaleRow>| {
        let words = |row: Option<&&StaleRow>| row.map_or_else(dash, |row| shown(row));
        format!("{} and {}", words(a), words(b))
    };
    // Told apart where their intervals do not meet.
    let more = |a: Option<&&StaleRow>, b: Option<&&StaleRow>| {
        let (a, b) = (a?, b?);
        Some((
            a.stale_percent_low? - b.stale_percent_high?,
            a.stale_percent_high? - b.stale_percent_low?,
        ))
    };
    let ordered = |ends: Option<(f64, f64)>| match ends {
        Some((low, _)) if low > 0.0 => Verdict::Agrees,
        Some((_, high)) if high < 0.0 => Verdict::Differs,
        _ => Verdict::Open,
    };
    let waiting: Vec<&StaleRow> = document
        .results
        .iter()
        .filter(|row| row.sync_reads != "off" && row.judged != "load")
        .collect();
    let broken: u64 = waiting.iter().map(|row| row.stale).sum();
    let asked: u64 = waiting.iter().map(|row| row.rounds).sum();
    let bound = waiting
        .iter()
        .map(|row| row.violations.read_your_writes_percent_high)
        .fold(0.0, f64::max);
    let shared = "all nodes, the load and the client share this machine's cores here";
    let stalled = of("big-update", "writer").and_then(|row| {
        [row.write.max_us, row.delay.max_us]
            .into_iter()
            .flatten()
            .reduce(f64::max)
    });
    let claims = vec![
        claim(
            "Idle, few reads at once are stale",
            "0.94 %",
            idle.map_or_else(dash, |row| shown(row)),
            judged(
                idle.and_then(|row| row.stale_percent),
                |share| share < 10.0,
                |share| share > 20.0,
            ),
            "a local read comes so soon after the acknowledgement, and the cores are shared, that applying has hardly begun",
        ),
        claim(
            "The mix on the writer makes far more of them stale",
            "39 % against 0.94 %",
            both(of("oltp-mix", "writer"), idle),
            ordered(more(of("oltp-mix", "writer"), idle)),
            shared,
        ),
        claim(
            "Updates hurt most where the reads are: on the reader more than on the writer",
            "53 % against 11 %",
            both(of("update-key", "reader"), of("update-key", "writer")),
            ordered(more(of("update-key", "reader"), of("update-key", "writer"))),
            shared,
        ),
        claim(
            "One huge update stalls requests that have nothing to do with it",
            "up to 46.5 s",
            stalled.map_or_else(dash, |us| format!("up to {}", time(us))),
            judged(
                stalled
                    .zip(idle.and_then(|row| row.write.p50_us))
                    .map(|(us, usual)| us / usual.max(1.0)),
                |ratio| ratio >= 20.0,
                |ratio| ratio < 5.0,
            ),
            "the table is smaller here, and so the transaction that is certified",
        ),
        claim(
            "With synchronous reads none is stale",
            "none",
            if asked == 0 {
                dash()
            } else {
                format!(
                    "{broken} of {} (at most {bound:.2} % in any row)",
                    count(asked)
                )
            },
            match (asked, broken) {
                (0, _) => Verdict::Open,
                (_, 0) => Verdict::Agrees,
                _ => Verdict::Differs,
            },
            "see the witness in the run's report",
        ),
    ];
    (
        table(
            &["load", "on node", "stale [95 %]", "min / max / avg ms"],
            lines,
        ),
        claims,
    )
}

/// What the price of semi-sync was published with.
#[must_use]
pub fn price_published() -> Table {
    fixed(
        &cost::PUBLISHED_HEADINGS,
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

/// Our price list.
#[must_use]
pub fn price(document: &CostDocument) -> (Table, Vec<Claim>) {
    let row = |mode: &str| {
        document
            .results
            .iter()
            .filter(|row| row.threads == 1 && row.mode == mode)
            .find(|row| row.relative.latency.mean.value.is_some())
    };
    let shown = |estimate: Option<Estimate>| match estimate
        .and_then(|estimate| Some((estimate.value?, estimate.ends())))
    {
        Some((value, Some([low, high]))) => format!("{value:.2} [{low:.2}, {high:.2}]"),
        Some((value, None)) => format!("{value:.2}"),
        None => dash(),
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
            "too few starts to tell on this machine",
        ),
        claim(
            "By a factor of two to four",
            "3.14 times",
            format!("{} times", shown(semi)),
            within(semi, 2.0, 4.0),
            "the acknowledgement comes over loopback here and not over a network of 2010, and the replica's threads compete for the same cores",
        ),
        claim(
            "Most of it is the wait, not the binary log (asked for by readers, not published)",
            "–",
            format!("asynchronous replication: {} times", shown(asynchronous)),
            match wait.zip(ratio(asynchronous)) {
                Some((wait, bare)) if wait > bare - 1.0 => Verdict::Agrees,
                Some(_) => Verdict::Differs,
                None => Verdict::Open,
            },
            "the binary log, or the replica's share of the cores, costs as much as the wait here",
        ),
    ];
    (
        table(&cost::PUBLISHED_HEADINGS, cost::published(document)),
        claims,
    )
}

/// Every claim counted, in one sentence.
#[must_use]
pub fn answer(document: &ReproduceDocument) -> String {
    let claims = || {
        document
            .experiments
            .iter()
            .flat_map(|experiment| &experiment.claims)
    };
    let of = |verdict| claims().filter(|claim| claim.verdict == verdict).count();
    let failed = document
        .experiments
        .iter()
        .filter(|experiment| experiment.error.is_some())
        .count();
    let mut text = format!(
        "Of {} published findings, {} have the same shape here, {} differ, and {} cannot be told.",
        claims().count(),
        of(Verdict::Agrees),
        of(Verdict::Differs),
        of(Verdict::Open)
    );
    if failed > 0 {
        let _ = write!(
            text,
            " {failed} of {} experiments did not come to their end.",
            document.experiments.len()
        );
    }
    text
}

/// Headings of the findings' table.
pub(crate) const CLAIM_HEADINGS: [&str; 5] = ["finding", "published", "here", "verdict", "why"];

pub(crate) fn claim_lines(claims: &[Claim]) -> Vec<Vec<String>> {
    claims
        .iter()
        .map(|claim| {
            vec![
                claim.claim.clone(),
                claim.published.clone(),
                claim.ours.clone(),
                claim.verdict.name().to_owned(),
                claim.why.clone(),
            ]
        })
        .collect()
}

/// The whole as text.
#[must_use]
pub fn text(document: &ReproduceDocument) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "Replimeter reproduce · size {}\n", document.size);
    let _ = writeln!(out, "{}", wrapped(&document.answer, 96, ""));
    for experiment in &document.experiments {
        let _ = writeln!(out, "\n{}. {}", experiment.number, experiment.title);
        let _ = writeln!(out, "   {}", wrapped(&experiment.question, 96, "   "));
        if let Some(error) = &experiment.error {
            let _ = writeln!(
                out,
                "   It did not come to its end: {}",
                wrapped(error, 96, "   ")
            );
        }
        for (title, figures) in [
            ("Published", &experiment.published),
            ("Here", &experiment.ours),
        ] {
            if figures.lines.is_empty() {
                continue;
            }
            let mut shown = plain_table(figures.headings.clone());
            figures
                .lines
                .iter()
                .for_each(|line| _ = shown.add_row(line));
            let _ = writeln!(out, "\n   {title}");
            shown
                .to_string()
                .lines()
                .for_each(|line| _ = writeln!(out, "   {}", line.trim_end()));
        }
        out.push('\n');
        for claim in &experiment.claims {
            let _ = writeln!(
                out,
                "   {:<8} {}",
                claim.verdict.name(),
                wrapped(
                    &format!(
                        "{}: {} published, {} here.",
                        claim.claim, claim.published, claim.ours
                    ),
                    90,
                    "            "
                )
            );
            if !claim.why.is_empty() {
                let _ = writeln!(
                    out,
                    "            {}",
                    wrapped(&format!("Why: {}.", claim.why), 90, "            ")
                );
            }
        }
    }
    out
}

/// The whole for a ticket.
#[must_use]
pub fn ticket(document: &ReproduceDocument) -> String {
    let mut out = format!(
        "# The published experiments, run again\n\n{}\n",
        markdown::escaped(&document.answer)
    );
    for experiment in &document.experiments {
        let _ = write!(
            out,
            "\n# {}. {}\n\n{}\n",
            experiment.number,
            markdown::escaped(&experiment.title),
            markdown::escaped(&experiment.question)
        );
        if let Some(error) = &experiment.error {
            let _ = write!(
                out,
                "\nIt did not come to its end: {}\n",
                markdown::escaped(error)
            );
        }
        out.push_str(&markdown::section(
            "Published",
            &experiment.published.headings,
            1,
            &experiment.published.lines,
        ));
        out.push_str(&markdown::section(
            "Here",
            &experiment.ours.headings,
            1,
            &experiment.ours.lines,
        ));
        out.push_str(&markdown::section(
            "What agrees",
            &CLAIM_HEADINGS,
            5,
            &claim_lines(&experiment.claims),
        ));
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use replimeter_model::{
        record::{Distribution, SweepLoop, SweepTable, Tenth},
        reproduce::Experiment,
        scale::PercentOfNone,
    };

    use super::*;

    #[test]
    fn an_interval_across_an_end_of_the_range_is_open() {
        let judge = |value, low, high| {
            within(
                Some(Estimate {
                    value: Some(value),
                    low: Some(low),
                    high: Some(high),
                }),
                2.0,
                4.0,
            )
        };
        assert_eq!(judge(3.1, 2.4, 3.8), Verdict::Agrees);
        assert_eq!(judge(4.5, 3.9, 5.2), Verdict::Open);
        assert_eq!(judge(1.2, 1.0, 1.5), Verdict::Differs);
        assert_eq!(within(Some(Estimate::of(3.0)), 2.0, 4.0), Verdict::Agrees);
        assert_eq!(within(None, 2.0, 4.0), Verdict::Open);
    }

    fn verdicts(claims: &[Claim]) -> Vec<Verdict> {
        claims.iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn the_published_figures_agree_with_themselves() {
        let row = |replicas,
                   phase: &str,
                   inserts: Option<f64>,
                   selects: Option<f64>,
                   percent: Option<f64>| ScaleRow {
            replicas,
            phase: phase.to_owned(),
            inserts_per_s: inserts,
            selects_per_s: selects,
            percent_of_none: PercentOfNone {
                inserts: percent,
                inserts_ci: percent.map(|percent| [percent - 5.0, percent + 5.0]),
                ..PercentOfNone::default()
            },
            ..ScaleRow::default()
        };
        let published = ScaleDocument {
            results: vec![
                row(0, "insert", Some(1908.23), None, None),
                row(1, "insert", Some(925.07), None, Some(48.5)),
                row(2, "insert", Some(743.93), None, Some(39.0)),
                row(0, "mixed", Some(458.24), Some(68.56), None),
                row(1, "mixed", Some(794.92), Some(69.32), Some(173.5)),
                row(2, "mixed", Some(635.59), Some(130.2), Some(138.7)),
            ],
            ..ScaleDocument::default()
        };
        let (ours, claims) = replicas(&published);
        assert_eq!(verdicts(&claims), [Verdict::Agrees; 4], "{claims:#?}");
        assert_eq!(
            ours.lines[1],
            ["1", "925 (−52 %)", "–", "795 (+74 %)", "69"]
        );
        assert!(claims.iter().all(|claim| claim.why.is_empty()));
    }

    #[test]
    fn a_histogram_like_the_published_one_agrees() {
        let tenths = TENTHS.iter().map(|(tenth, rows)| Tenth {
            tenth: (tenth.parse::<f64>().unwrap() * 10.0).round() as i64,
            count: rows.parse().unwrap(),
        });
        let lag = Distribution {
            count: 1000,
            p50_us: Some(200.0),
            max_us: Some(24_300.0),
            ..Distribution::default()
        };
        let row = LagRow {
            method: "stamp-udf".to_owned(),
            tenths: tenths.collect(),
            from_primary: lag,
            ..LagRow::default()
        };
        let document = LagDocument {
            results: vec![row],
            ..LagDocument::default()
        };
        let (ours, claims) = histogram(&document);
        assert_eq!(verdicts(&claims), [Verdict::Agrees; 3], "{claims:#?}");
        assert_eq!(ours.lines.len(), TENTHS.len());
        assert!(
            histogram(&LagDocument::default()).1.is_empty(),
            "nothing is said of nothing"
        );
    }

    #[test]
    fn stale_reads_are_ordered_by_their_intervals() {
        let row = |load: &str, on: &str, sync: &str, share: f64, rounds: u64| StaleRow {
            load: if on.is_empty() {
                load.to_owned()
            } else {
                format!("{load}:32@{on}")
            },
            load_on: on.to_owned(),
            sync_reads: sync.to_owned(),
            rounds,
            stale: (share * rounds as f64 / 100.0) as u64,
            stale_percent: Some(share),
            stale_percent_low: Some((share - 1.0).max(0.0)),
            stale_percent_high: Some(share + 1.0),
            write: Distribution {
                p50_us: Some(1000.0),
                max_us: Some(5e7),
                ..Distribution::default()
            },
            ..StaleRow::default()
        };
        let document = StaleDocument {
            results: vec![
                row("none", "", "off", 0.94, 10_000),
                row("oltp-mix", "writer", "off", 39.0, 10_000),
                row("update-key", "writer", "off", 10.6, 10_000),
                row("update-key", "reader", "off", 53.5, 10_000),
                row("big-update", "writer", "off", 4.5, 10_000),
                row("none", "", "on", 0.0, 10_000),
            ],
            ..StaleDocument::default()
        };
        let (_, claims) = stale(&document);
        assert_eq!(verdicts(&claims), [Verdict::Agrees; 5], "{claims:#?}");
        let (_, nothing) = stale(&StaleDocument::default());
        assert_eq!(verdicts(&nothing), [Verdict::Open; 5]);
    }

    #[test]
    fn a_sweep_is_judged_by_its_sizes() {
        let row = |size_bytes, bare_us| SweepLoop {
            sweep: 1,
            step: 1,
            size_bytes,
            sequence: 5,
            insert_us: 1300.0,
            retrieval_us: 900.0,
            total_us: 3000.0,
            bare_us,
            inserted_unix_us: 0,
            fetched_unix_us: 0,
        };
        let of = |size, mean: f64, error: f64| LagRow {
            size_bytes: Some(size),
            // A hundred rows: the standard error is a tenth of this.
            from_ack: Distribution {
                count: 100,
                mean_us: Some(mean),
                stdev_us: Some(error * 10.0),
                ..Distribution::default()
            },
            ..LagRow::default()
        };
        let document = |large: f64, half: f64| LagDocument {
            size_sweep: vec![SweepTable {
                replica: String::new(),
                loops: vec![row(1000, 100.0), row(10_000, 120.0)],
            }],
            results: vec![of(1000, 100.0, 5.0), of(10_000, large, half)],
            ..LagDocument::default()
        };
        assert_eq!(
            verdicts(&sweep(&document(120.0, 9.0)).1),
            [Verdict::Agrees; 2]
        );
        assert_eq!(
            verdicts(&sweep(&document(900.0, 9.0)).1),
            [Verdict::Agrees, Verdict::Differs]
        );
        assert_eq!(
            verdicts(&sweep(&document(300.0, 90.0)).1),
            [Verdict::Agrees, Verdict::Open],
            "an interval on both sides of the bound"
        );
    }

    pub(crate) fn example() -> ReproduceDocument {
        let (ours, claims) = price(&cost::example());
        let experiment = Experiment {
            number: 5,
            title: "The price <b>".to_owned(),
            question: "What does waiting cost?".to_owned(),
            published: price_published(),
            ours,
            claims,
            ..Experiment::default()
        };
        let broken = Experiment {
            number: 4,
            error: Some("galera is missing".to_owned()),
            ..Experiment::default()
        };
        let mut document = ReproduceDocument {
            experiments: vec![broken, experiment],
            size: "small".to_owned(),
            ..ReproduceDocument::default()
        };
        document.answer = answer(&document);
        document
    }

    #[test]
    fn every_form_has_both_tables_and_the_verdicts() {
        let document = example();
        assert!(
            document
                .answer
                .contains("1 of 2 experiments did not come to their end"),
            "{}",
            document.answer
        );
        let verdict = document.experiments[1].claims[0].verdict.name();
        for form in [text(&document), ticket(&document)] {
            for wanted in [
                "7451.26 (969.24)",
                verdict,
                "galera is missing",
                "waiting cost",
            ] {
                assert!(form.contains(wanted), "`{wanted}` is missing in {form}");
            }
        }
    }
}
