//! The report of a `backlog` run.

use replimeter_engine::position::ID;
use replimeter_instruments::backlog::results::{BacklogDocument, BacklogPhase, BacklogRow};

use replimeter_render::{
    cell::{throughput, with_interval},
    figures::{count, time},
    format::{Format, number},
    headline::{end_note_or_invalid, with_level},
    load,
    report::{Block, Cell, Content, Report, Table, Timeline, Visibility},
};

/// Returns the report of a run.
#[must_use]
pub(crate) fn report(document: &BacklogDocument) -> Report {
    let rows = document.results.rows.iter();
    let transactions = rows.map(|row| row.backlog_transactions).sum();
    let extent = format!("{} transactions", count(transactions));
    let mut report = Report::of(document, "Catch-up rate of each replica", extent);
    report.several = document.several();
    let grow = document.settings.build_up;
    report
        .facts
        .extend(grow.map(|grow| format!("a backlog of {grow}")));
    blocks(document)
        .into_iter()
        .for_each(|block| report.add(block));
    report.add(load::block(&document.results.load, document.several()));
    let client = &document.client;
    let mut report = report.with_servers(&document.target);
    report.how.push(format!(
        "Client: idle cores kept awake: {}; clock resolution: {} µs.",
        if client.keep_awake { "yes" } else { "no" },
        client.clock_step_us
    ));
    report
}

/// Returns the headline: one or two sentences per row.
#[must_use]
pub(crate) fn answer(document: &BacklogDocument) -> String {
    let rows = document.results.rows.iter();
    let parts: Vec<String> = rows.map(|row| of_row(&name(document, row), row)).collect();
    let mut parts = vec![with_level(parts.join(" "))];
    parts.extend(end_note_or_invalid(document.status).map(str::to_owned));
    parts.join(" ")
}

fn replica(document: &BacklogDocument, row: &BacklogRow) -> String {
    if document.several() {
        format!("{} {}", row.shape, row.replica)
    } else {
        row.replica.clone()
    }
}

/// Returns a row's replica name, with its workers if their number varies.
pub(crate) fn name(document: &BacklogDocument, row: &BacklogRow) -> String {
    let replica = replica(document, row);
    match row.workers {
        Some(workers) if workers > 0 => format!("{replica}, {}", number(workers, "worker")),
        _ => format!("{replica}, no extra workers"),
    }
}

fn of_row(name: &str, row: &BacklogRow) -> String {
    if row.backlog_transactions == 0 {
        return format!("{name}: no backlog grew, so the catch-up rate was not measured.");
    }
    let (sustained, load) = (
        with_interval(&row.sustained_per_s),
        with_interval(&row.load_while_applying_per_s),
    );
    let sustained = match (row.keeps_up, row.sustained_per_s.mean) {
        (_, None) => format!("{name}: no apply rate was measured under load."),
        (Some(true), _) => format!(
            "{name} keeps up with this load: it applied {sustained} transactions/s on average while {load}/s were written."
        ),
        (Some(false), _) => format!(
            "{name} does not keep up with this load: it sustains {sustained} transactions/s on average, while {load}/s were written."
        ),
        (None, _) => format!(
            "{name} sustains {sustained} transactions/s on average; the difference from the load of {load}/s is within the interval."
        ),
    };
    let caught_up = match row.caught_up_after_us {
        Some(after) => format!(
            "Without load it applied {}/s and caught up {} transactions in {}.",
            with_interval(&row.catch_up_per_s),
            count(row.backlog_transactions),
            time(after)
        ),
        None => "It did not catch up during the run.".to_owned(),
    };
    format!("{sustained} {caught_up}")
}

fn figures(document: &BacklogDocument) -> Table {
    let yes = |is| if is { "yes" } else { "no" };
    Table::of(
        3,
        &document.results.rows,
        &[
            ("replica", &|row| Cell::from(replica(document, row))),
            ("workers", &|row| row.workers.into()),
            ("mode", &|row| {
                Cell::text(&row.parallel_mode.to_ascii_lowercase())
            }),
            ("backlog", &|row| row.backlog_transactions.into()),
            ("written/s, stopped", &|row| throughput(&row.load_per_s)),
            ("written/s, applying", &|row| {
                throughput(&row.load_while_applying_per_s)
            }),
            ("sustained/s", &|row| throughput(&row.sustained_per_s)),
            ("keeps up", &|row| row.keeps_up.map(yes).into()),
            ("catch-up/s", &|row| throughput(&row.catch_up_per_s)),
            ("caught up after", &|row| {
                Format::Time.cell(row.caught_up_after_us)
            }),
        ],
    )
}

/// Returns the table (one line per replica and number of workers) and the timelines.
fn blocks(document: &BacklogDocument) -> Vec<Block> {
    let Some(first) = document.results.rows.first() else {
        return Vec::new();
    };
    let note = format!(
        "The applier was stopped for {}. It then applied under load until half of the backlog was left or the same time had \
         passed (sustained: the highest write rate it can follow), and then without load (catch-up). Transactions are counted \
         by {ID} every {}. Intervals are 95 % (batch means) and cover this run only.",
        time(first.grown_us),
        time(first.resolution_us)
    );
    let timelines = document.results.rows.iter();
    let timelines = timelines.filter_map(|row| timeline(name(document, row), row));
    vec![
        Block::table(
            "catching-up",
            "Catching up (transactions per second)",
            figures(document),
        )
        .with_notes(vec![note]),
        Block::new(
            "backlog-over-time",
            "Backlog over time",
            Content::Timelines(timelines.collect()),
        )
        .shown(Visibility::WithoutCharts),
    ]
}

/// Width of a timeline in characters.
const WIDTH: usize = 50;

/// Returns the backlog over time in one line.
fn timeline(name: String, row: &BacklogRow) -> Option<Timeline> {
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
    let height = |index: usize| {
        let behind = at(end * index as f64 / WIDTH as f64);
        (behind > 0).then(|| behind as f64 / most as f64)
    };
    Some(Timeline {
        name,
        heights: (1..=WIDTH).map(height).collect(),
        scale: format!("maximum {}, {}", count(most), time(end)),
    })
}

/// Returns points of the backlog over time: seconds, transactions, phase of the applier.
pub(crate) fn points(row: &BacklogRow) -> Vec<(f64, u64, BacklogPhase)> {
    row.windows
        .iter()
        .map(|window| (window.end_us / 1e6, window.behind, window.phase))
        .collect()
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::backlog::results::BacklogWindow;
    use replimeter_model::load::Rate;

    use super::*;

    fn row() -> BacklogRow {
        let rate = |mean: f64| Rate {
            mean: Some(mean),
            stdev: None,
            ci95: [Some(mean - 14.0), Some(mean + 14.0)].into(),
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
    fn row_text_states_whether_replica_keeps_up() {
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
            text.contains("does not keep up") && text.contains("did not catch up"),
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
    fn backlog_timeline_is_one_line() {
        let line = timeline("replica1".to_owned(), &row()).unwrap();
        assert_eq!(line.heights, [Some(1.0); WIDTH]);
        assert!(line.scale.contains("maximum 1,000"), "{}", line.scale);
    }
}
