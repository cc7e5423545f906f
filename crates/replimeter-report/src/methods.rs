//! What the methods say of the same rows, beside one another, and how each works.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use replimeter_model::{
    plan::Method,
    record::{Distribution, Floor, LagDocument, LagRow},
};

use crate::{
    answer::overall_rows,
    columns::{HEADINGS, cells},
    figures::{Unit, count, time, time_within},
    precision::Precision,
    terminal::{aligned, plain_table},
};

/// What [`LagRow::from_primary`] is for this method; empty for those without it.
pub(crate) fn from_primary(method: &str) -> &'static str {
    match Method::from_name(method) {
        Some(Method::Stamp | Method::StampUdf) => "from execution to execution",
        Some(Method::Tap) => "from binary log to binary log",
        _ => "",
    }
}

/// What [`LagRow::error_us`] is for this method; `None` when it states none of its own.
pub(crate) fn error(method: &str) -> Option<&'static str> {
    match Method::from_name(method) {
        Some(Method::Tap) => None,
        Some(Method::Wait) => Some("error (one round trip)"),
        Some(Method::Stamp | Method::StampUdf) => Some("error (clock offset)"),
        _ => Some("error (bracket width)"),
    }
}

/// Bars of experiment 3's histogram that are printed.
const MOST_TENTHS: usize = 60;

/// The methods of a run.
pub(crate) fn used(document: &LagDocument) -> BTreeSet<&str> {
    document
        .results
        .iter()
        .map(|row| row.method.as_str())
        .collect()
}

/// How each of these methods works, in a sentence or two.
pub(crate) fn sentences(used: &BTreeSet<&str>) -> Vec<String> {
    let of = |method: &Method| match method {
        Method::Poll => {
            "poll: a row counts as seen when a read in a tight loop returns it. It became visible between the beginning of the last \
             read that missed it and the end of the first that showed it; lag is that end, so it is never too low. The estimate says where in the \
             brackets the truth most probably is (maximum likelihood, Turnbull 1976)."
        }
        Method::Wait => {
            "wait: a connection waits in the replica for the transaction's GTID; lag is the wait's return. The wait begins when the \
             write was acknowledged, so a replica that was faster is seen late. A read follows each wait."
        }
        Method::Stamp => {
            "stamp: the statement runs again on the replica, with SYSDATE(6) in it. Lag from ack is the replica's stamp by its clock, \
             whose offset was measured; it says when the statement ran there, not when the row became visible."
        }
        Method::StampUdf => "stamp-udf: as stamp, by our function NOW_USEC().",
        Method::Tap => {
            "tap: both binary logs are followed, and transactions matched by GTID; lag is the arrival at this client. It says when the \
             transaction was in the replica's binary log, not when it was visible."
        }
    };
    Method::ALL
        .iter()
        .filter(|method| used.contains(method.name()))
        .map(|method| of(method).to_owned())
        .collect()
}

/// What the method itself adds, in a sentence.
pub(crate) fn floor(document: &LagDocument, floor: &Floor) -> String {
    floor_of(
        floor,
        &if document.several() {
            format!(" of {}", floor.shape)
        } else {
            String::new()
        },
    )
}

/// The same, with words for whose it is.
pub(crate) fn floor_of(floor: &Floor, of: &str) -> String {
    let us = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), time);
    let within = |lag: &Distribution| {
        let half = Precision::of_floor(floor, lag).quantile(0.5);
        lag.p50_us
            .map_or_else(|| "–".to_owned(), |us| time_within(us, half))
    };
    let head = format!(
        "Floor of {}{of} (the primary as its own replica, {} rounds):",
        floor.method,
        count(floor.rounds)
    );
    match Method::from_name(&floor.method) {
        Some(Method::Tap) => format!(
            "{head} from one tap of the primary to a second one p50 {}, p99 {}; from ack p50 {}.",
            us(floor.from_primary.p50_us),
            us(floor.from_primary.p99_us.or(floor.from_primary.p90_us)),
            us(floor.from_ack.p50_us)
        ),
        Some(Method::Wait) => {
            format!(
                "{head} lag from ack p50 {}, one round trip {}.",
                us(floor.from_ack.p50_us),
                us(floor.error_us.p50_us)
            )
        }
        _ => {
            let selects = match (floor.point_select.p50_us, floor.point_select_at_ack.p50_us) {
                (None, None) => String::new(),
                (idle, beside) => format!(
                    "; a point select takes {} on the idle primary, {} while a write is acknowledged (p50)",
                    us(idle),
                    us(beside)
                ),
            };
            format!(
                "{head} lag from ack p50 {}, estimate {}, bracket width {}{selects}.",
                within(&floor.from_ack),
                within(&floor.estimate),
                us(floor.error_us.p50_us)
            )
        }
    }
}

/// How the methods differ on the same rows, what followed the waits, and the rows by
/// tenths of a millisecond when statements were stamped.
pub(crate) fn text(document: &LagDocument) -> String {
    let rows = overall_rows(document);
    let mut out = String::new();
    let held: Vec<(&LagRow, &replimeter_model::record::Against)> = rows
        .iter()
        .filter_map(|row| Some((*row, row.against.as_ref()?)))
        .collect();
    if !held.is_empty() {
        let unit = Unit::Micro;
        let mut table = plain_table(
            ["replica", "less"]
                .into_iter()
                .chain(HEADINGS)
                .map(str::to_owned)
                .collect(),
        );
        for (row, against) in &held {
            let label = [document.label_of(row), against.method.clone()];
            table.add_row(
                label
                    .into_iter()
                    .chain(cells(
                        unit,
                        &against.difference,
                        Precision::exact(&against.difference),
                    ))
                    .collect::<Vec<_>>(),
            );
        }
        let _ = writeln!(
            out,
            "\nHow the methods disagree on the same rows (µs, row by row)\n{}",
            aligned(table, 2).trim_end()
        );
    }
    for row in &rows {
        let Some(readable) = &row.readable else {
            continue;
        };
        let _ = writeln!(
            out,
            "\n{}: of {} waits {} returned before the row could be read; from the wait's return to the end of the read that showed it: p50 {}, p99 {}, max {}.",
            document.label_of(row),
            count(readable.rounds),
            count(readable.not_at_once),
            readable.gap.p50_us.map_or_else(|| "–".to_owned(), time),
            readable.gap.p99_us.map_or_else(|| "–".to_owned(), time),
            readable.gap.max_us.map_or_else(|| "–".to_owned(), time)
        );
    }
    out.push_str(&tenths(document, &rows));
    out
}

/// Of the bars in order, the stretch of [`MOST_TENTHS`] that holds the most rows.
fn fullest(shown: &[i64], rows: &[&LagRow]) -> (usize, usize) {
    let width = shown.len().min(MOST_TENTHS);
    let mut of: BTreeMap<i64, u64> = BTreeMap::new();
    for bar in rows.iter().flat_map(|row| &row.tenths) {
        *of.entry(bar.tenth).or_default() += bar.count;
    }
    let holds = |from: usize| {
        shown[from..from + width]
            .iter()
            .filter_map(|tenth| of.get(tenth))
            .sum::<u64>()
    };
    // Of equal ones the first.
    let from = (0..=shown.len() - width)
        .rev()
        .max_by_key(|from| holds(*from))
        .unwrap_or(0);
    (from, from + width)
}

/// Experiment 3's histogram, a column for each method.
fn tenths(document: &LagDocument, rows: &[&LagRow]) -> String {
    let stamped = |row: &&&LagRow| Method::from_name(&row.method).is_some_and(Method::stamps);
    if !rows.iter().any(|row| stamped(&row)) {
        return String::new();
    }
    let shown: BTreeSet<i64> = rows
        .iter()
        .flat_map(|row| row.tenths.iter().map(|bar| bar.tenth))
        .collect();
    let header =
        std::iter::once("ms".to_owned()).chain(rows.iter().map(|row| document.label_of(row)));
    let mut table = plain_table(header.collect());
    let shown: Vec<i64> = shown.into_iter().collect();
    let (from, to) = fullest(&shown, rows);
    let number = |count_of: u64| {
        if count_of == 0 {
            String::new()
        } else {
            count(count_of)
        }
    };
    let mut line = |name: String, holds: &dyn Fn(i64) -> bool| {
        let of = |row: &&LagRow| {
            number(
                row.tenths
                    .iter()
                    .filter(|bar| holds(bar.tenth))
                    .map(|bar| bar.count)
                    .sum(),
            )
        };
        table.add_row(
            std::iter::once(name)
                .chain(rows.iter().map(of))
                .collect::<Vec<_>>(),
        );
    };
    let tenths = |tenth: i64| format!("{:.1}", tenth as f64 / 10.0);
    if let Some(first) = shown.get(from).filter(|_| from > 0) {
        line(format!("< {}", tenths(*first)), &|tenth| tenth < *first);
    }
    for shown in &shown[from..to] {
        line(tenths(*shown), &|tenth| tenth == *shown);
    }
    if let Some(last) = shown[..to].last().filter(|_| to < shown.len()) {
        line(format!("> {}", tenths(*last)), &|tenth| tenth > *last);
    }
    let further = shown.len() - (to - from);
    let rest = if further > 0 {
        format!(
            "(all {} bars are in summary.json)\n",
            count(shown.len() as u64)
        )
    } else {
        String::new()
    };
    format!(
        "\nRows by lag, rounded to 0.1 ms, as published in 2007 (stamp: from execution to execution, tap: from log to log, others: from ack)\n{}\n{rest}",
        aligned(table, 0).trim_end()
    )
}
