//! How replicas caught up.

use std::fmt::Write as _;

use replimeter_model::{
    backlog::{BacklogPhase, BacklogRow},
    record::LagDocument,
};

use crate::{
    figures::{count, time},
    load::with_interval,
    terminal::{aligned, plain_table},
};

/// How a row's replica is called, with its workers when there are several numbers.
pub(crate) fn name(document: &LagDocument, row: &BacklogRow) -> String {
    let replica = if document.several() {
        format!("{} {}", row.shape, row.replica)
    } else {
        row.replica.clone()
    };
    match row.workers {
        Some(1) => format!("{replica}, 1 worker"),
        Some(workers) if workers > 0 => format!("{replica}, {workers} workers"),
        _ => format!("{replica}, no extra workers"),
    }
}

/// The finding, a sentence or two for each row.
pub(crate) fn answer(document: &LagDocument) -> Vec<String> {
    document
        .backlog
        .iter()
        .map(|row| of_row(&name(document, row), row))
        .collect()
}

fn of_row(name: &str, row: &BacklogRow) -> String {
    if row.backlog_transactions == 0 {
        return format!("{name}: no backlog grew, so there was nothing to catch up with.");
    }
    let sustained = match (row.keeps_up, row.sustained_per_s.mean) {
        (_, None) => format!("{name} was not seen applying under the load."),
        (Some(true), Some(_)) => format!(
            "{name} keeps up with this load: beside it, it applied {} transactions/s while {}/s were written.",
            with_interval(&row.sustained_per_s),
            with_interval(&row.load_while_applying_per_s)
        ),
        (Some(false), Some(_)) => format!(
            "{name} does not keep up with this load: it sustains {} transactions/s, and {}/s were written.",
            with_interval(&row.sustained_per_s),
            with_interval(&row.load_while_applying_per_s)
        ),
        (None, Some(_)) => format!(
            "{name} sustains {} transactions/s; whether that is more than this load of {}/s cannot be told.",
            with_interval(&row.sustained_per_s),
            with_interval(&row.load_while_applying_per_s)
        ),
    };
    let caught_up = match row.caught_up_after_us {
        Some(after) => format!(
            "Without load it applied {}/s, and had caught up with {} transactions {} after it began.",
            with_interval(&row.catch_up_per_s),
            count(row.backlog_transactions),
            time(after)
        ),
        None => "It was not seen to catch up.".to_owned(),
    };
    format!("{sustained} {caught_up}")
}

/// The table, a line for each replica and number of workers.
pub(crate) fn text(document: &LagDocument) -> String {
    let Some(first) = document.backlog.first() else {
        return String::new();
    };
    let headings = [
        "replica",
        "workers",
        "mode",
        "backlog",
        "written/s, stopped",
        "written/s, applying",
        "sustained/s",
        "keeps up",
        "catch-up/s",
        "caught up after",
    ];
    let mut table = plain_table(headings.map(str::to_owned).to_vec());
    for row in &document.backlog {
        let replica = if document.several() {
            format!("{} {}", row.shape, row.replica)
        } else {
            row.replica.clone()
        };
        table.add_row(vec![
            replica,
            row.workers.map_or_else(|| "–".to_owned(), count),
            if row.parallel_mode.is_empty() {
                "–".to_owned()
            } else {
                row.parallel_mode.to_ascii_lowercase()
            },
            count(row.backlog_transactions),
            with_interval(&row.load_per_s),
            with_interval(&row.load_while_applying_per_s),
            with_interval(&row.sustained_per_s),
            row.keeps_up
                .map_or("–", |keeps_up| if keeps_up { "yes" } else { "no" })
                .to_owned(),
            with_interval(&row.catch_up_per_s),
            row.caught_up_after_us.map_or_else(|| "–".to_owned(), time),
        ]);
    }
    let mut out = aligned(table, 3);
    let _ = writeln!(
        out,
        "  The applier stood still for {}; then it applied beside the load until half of the backlog was left or as long again had\n  \
         passed (sustained: the highest rate of writes it could follow), and then without load (catch-up). Transactions are counted\n  \
         by GTID every {}; intervals are 95 % (batch means), of this run alone.",
        time(first.grown_us),
        time(first.resolution_us)
    );
    for row in &document.backlog {
        if let Some(line) = course(row) {
            let _ = writeln!(out, "  {:<40} {line}", name(document, row));
        }
    }
    out
}

/// Heights for a line of readings.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Characters of a course.
const WIDTH: usize = 50;

/// The backlog over time in one line.
fn course(row: &BacklogRow) -> Option<String> {
    let most = row
        .windows
        .iter()
        .map(|window| window.behind)
        .max()
        .filter(|most| *most > 0)?;
    let end = row.windows.last()?.end_us;
    let at = |us: f64| {
        row.windows
            .iter()
            .find(|window| window.end_us >= us)
            .map_or(0, |window| window.behind)
    };
    let line: String = (1..=WIDTH)
        .map(|index| {
            HEIGHTS[(at(end * index as f64 / WIDTH as f64) as f64 / most as f64 * 8.0).round()
                as usize]
        })
        .collect();
    Some(format!("{line}│ {} at most, {}", count(most), time(end)))
}

/// Points of the backlog over time: seconds, transactions, and what the applier did.
pub(crate) fn points(row: &BacklogRow) -> Vec<(f64, u64, BacklogPhase)> {
    row.windows
        .iter()
        .map(|window| (window.end_us / 1e6, window.behind, window.phase))
        .collect()
}

#[cfg(test)]
mod tests {
    use replimeter_model::{backlog::BacklogWindow, load::Rate};

    use super::*;

    fn row() -> BacklogRow {
        let rate = |mean: f64| Rate {
            mean: Some(mean),
            stdev: None,
            low: Some(mean - 14.0),
            high: Some(mean + 14.0),
        };
        BacklogRow {
            shape: "async:1".to_owned(),
            replica: "replica1".to_owned(),
            workers: Some(4),
            workers_variable: None,
            parallel_mode: "optimistic".to_owned(),
            grown_us: 1e6,
            load_per_s: rate(1000.0),
            backlog_transactions: 1000,
            load_while_applying_per_s: rate(800.0),
            sustained_per_s: rate(1512.3),
            keeps_up: Some(true),
            catch_up_per_s: rate(3000.0),
            under_load_us: 1e6,
            caught_up_after_us: Some(2e6),
            resolution_us: 10_000.0,
            complete: true,
            windows: vec![BacklogWindow {
                phase: BacklogPhase::Growing,
                start_us: 0.0,
                end_us: 1e6,
                written: 1000,
                applied: 0,
                behind: 1000,
            }],
        }
    }

    #[test]
    fn a_row_in_words_says_whether_it_keeps_up() {
        let text = of_row("replica1, 4 workers", &row());
        assert!(
            text.contains("keeps up") && text.contains("1,512 [1,498, 1,526]"),
            "{text}"
        );
        let text = of_row(
            "r",
            &BacklogRow {
                keeps_up: Some(false),
                caught_up_after_us: None,
                ..row()
            },
        );
        assert!(
            text.contains("does not keep up") && text.contains("not seen to catch up"),
            "{text}"
        );
        let text = of_row(
            "r",
            &BacklogRow {
                backlog_transactions: 0,
                ..row()
            },
        );
        assert!(text.contains("no backlog grew"), "{text}");
    }

    #[test]
    fn the_course_is_one_line() {
        let line = course(&row()).unwrap();
        assert!(
            line.starts_with("███") && line.contains("1,000 at most"),
            "{line}"
        );
    }
}
