//! The error of each method, and how methods differ on the same rows.

use replimeter_engine::follow::FROM_LOG_TO_LOG;
use replimeter_instruments::lag::{
    results::{Floor, LagDocument},
    settings::Method,
};
use replimeter_model::record::Distribution;

use crate::lag::headline::{label_of, overall_rows};
use replimeter_render::{
    columns::{HEADINGS, cells},
    figures::{Unit, count, time_within},
    format::{Format, or_dash},
    precision::Precision,
    report::{Block, Cell, Table},
};

/// Returns the description of `LagRow::from_primary` for this method; empty if it has none.
pub(crate) fn from_primary(method: &str) -> &'static str {
    match Method::named(method) {
        Some(Method::Stamp | Method::StampUdf) => "from execution to execution",
        Some(Method::Tap) => FROM_LOG_TO_LOG,
        _ => "",
    }
}

/// Returns the description of `LagRow::bracket_us` for this method; `None` if it has none.
pub(crate) fn error(method: &str) -> Option<&'static str> {
    match Method::named(method) {
        Some(Method::Tap) => None,
        Some(Method::Stamp | Method::StampUdf) => Some("error (clock offset)"),
        _ => Some("error (bracket width)"),
    }
}

/// Returns the floor of a method in a sentence.
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

/// Returns the floor of a method in a sentence, with `of` as its owner.
pub(crate) fn floor_of(floor: &Floor, of: &str) -> String {
    let us = |us| Format::Time.text(us);
    let within = |lag: &Distribution| {
        let half = Precision::of_brackets(&floor.bracket_us, lag).quantile(0.5);
        or_dash(lag.p50_us, |us| time_within(us, half))
    };
    let head = format!(
        "Floor of {}{of} (the primary as its own replica, {} rounds):",
        floor.method,
        count(floor.rounds)
    );
    match Method::named(&floor.method) {
        Some(Method::Tap) => format!(
            "{head} between two taps of the primary p50 {}, p99 {}; from ack p50 {}.",
            us(floor.from_primary.p50_us),
            us(floor.from_primary.p99_us.or(floor.from_primary.p90_us)),
            us(floor.from_ack.p50_us)
        ),
        _ => {
            let selects = match (floor.point_select.p50_us, floor.point_select_at_ack.p50_us) {
                (None, None) => String::new(),
                (idle, during) => format!(
                    "; a point select takes {} on the idle primary, {} during a commit (p50)",
                    us(idle),
                    us(during)
                ),
            };
            format!(
                "{head} lag from ack p50 {}, estimate {}, bracket width {}{selects}.",
                within(&floor.from_ack),
                within(&floor.estimate),
                us(floor.bracket_us.p50_us)
            )
        }
    }
}

/// Returns the differences between methods on the same rows, and the reads after waits.
pub(crate) fn blocks(document: &LagDocument) -> Vec<Block> {
    let rows = overall_rows(document);
    let differences = rows.iter().filter_map(|row| {
        let against = row.method_differences.as_ref()?;
        let difference = &against.difference;
        let mut line = vec![
            label_of(document, row).into(),
            Cell::Text(against.method.clone()),
        ];
        line.extend(cells(Unit::Micro, difference, Precision::exact(difference)));
        Some(line)
    });
    let headings: Vec<&str> = ["replica", "less"].into_iter().chain(HEADINGS).collect();
    let waits = rows.iter().filter_map(|row| {
        let readable = row.readable.as_ref()?;
            Some(format!(
            "{}: of {} waits, {} returned before the row was readable; from the wait's return to the end of the read that returned it: p50 {}, p99 {}, max {}.",
            label_of(document, row),
            count(readable.rounds),
            count(readable.not_at_once),
            Format::Time.text(readable.gap.p50_us),
            Format::Time.text(readable.gap.p99_us),
            Format::Time.text(readable.gap.max_us)
        ))
    });
    vec![
        Block::table(
            "methods",
            "Differences between methods on the same rows (µs, row by row)",
            Table::new(&headings, 2, differences),
        )
        .after_charts(),
        Block::list("waits", "Reads after waits", waits.collect()).after_charts(),
    ]
}
