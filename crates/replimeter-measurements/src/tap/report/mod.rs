//! The report of a `tap` run.

mod progress;

use std::fmt::Write as _;

use replimeter_engine::follow::FROM_LOG_TO_LOG;
use replimeter_instruments::tap::results::{TapClock, TapDocument, TapRow, TapStream};
use replimeter_model::record::Distribution;

pub(crate) use self::progress::progress_line;
use replimeter_render::{
    figures::{Unit, count, time},
    headline::{tail, with_end_note, with_level},
    precision::Precision,
    report::{Block, Cell, Report, Table},
};

/// Maximum number of groups per replica in the text; the record has all.
const SHOWN: usize = 30;

/// Returns the unit of the tables: that of the largest median.
pub(crate) fn unit(run: &TapDocument) -> Unit {
    let medians = run
        .results
        .rows
        .iter()
        .filter_map(|row| row.lag.p50_us.or(row.lag.max_us));
    Unit::for_size(medians.fold(0.0, |most: f64, us| most.max(us.abs())))
}

/// Returns a figure of lag, with the digits that its interval, by its level, and the method's own error
/// support.
fn figure(run: &TapDocument, lag: &Distribution, us: Option<f64>, level: Option<f64>) -> Cell {
    // Two taps of one server differ by the floor.
    let floor = run.results.floor.as_ref();
    let each = floor.and_then(|floor| floor.difference_abs.p50_us.or(floor.difference_abs.mean_us));
    let precision = Precision::within(lag, each.unwrap_or(0.0));
    let half_us = level.map_or(precision.single(), |level| precision.quantile(level));
    Cell::time(us, half_us, unit(run))
}

fn figures(run: &TapDocument) -> Table {
    let figure = |row: &TapRow, us, level| figure(run, &row.lag, us, level);
    let interval = |row: &TapRow| row.lag.p50_us_ci95;
    Table::of(
        1,
        &run.results.rows,
        &[
            ("replica", &|row| Cell::from(&row.replica)),
            ("transactions", &|row| row.transactions.into()),
            ("matched", &|row| row.matched.into()),
            ("inverted", &|row| row.inverted.into()),
            ("unmatched", &|row| row.unmatched.into()),
            ("pending", &|row| row.pending.into()),
            ("min", &|row| figure(row, row.lag.min_us, None)),
            ("p50", &|row| figure(row, row.lag.p50_us, Some(0.5))),
            ("95 %", &|row| Cell::interval(interval(row), unit(run))),
            ("p99", &|row| figure(row, row.lag.p99_us, Some(0.99))),
            ("p99.9", &|row| figure(row, row.lag.p999_us, Some(0.999))),
            ("max", &|row| figure(row, row.lag.max_us, None)),
        ],
    )
}

/// Returns lag by schema or table.
fn groups(run: &TapDocument) -> Table {
    let groups = run.results.rows.iter();
    let groups = groups.flat_map(|row| {
        row.group_by
            .iter()
            .take(SHOWN)
            .map(move |group| (row, group, &group.lag))
    });
    let figure = |lag, us, level| figure(run, lag, us, level);
    Table::of(
        2,
        groups,
        &[
            ("replica", &|(row, ..)| Cell::from(&row.replica)),
            (
                "group",
                &|(_, group, _)| match (&group.schema, &group.table) {
                    (schema, table) if table.is_empty() => schema.into(),
                    (schema, table) => format!("{schema}.{table}").into(),
                },
            ),
            ("transactions", &|(_, group, _)| group.transactions.into()),
            ("bytes", &|(_, group, _)| group.bytes.into()),
            ("min", &|&(.., lag)| figure(lag, lag.min_us, None)),
            ("p50", &|&(.., lag)| figure(lag, lag.p50_us, Some(0.5))),
            ("p99", &|&(.., lag)| figure(lag, lag.p99_us, Some(0.99))),
            ("max", &|&(.., lag)| figure(lag, lag.max_us, None)),
        ],
    )
}

fn spread(distribution: &Distribution) -> String {
    let part = |name: &str, value: Option<f64>| value.map(|us| format!("{name} {}", time(us)));
    let parts = [
        part("p50", distribution.p50_us),
        part("p99", distribution.p99_us),
        part("smallest", distribution.min_us),
        part("largest", distribution.max_us),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the description of the method.
fn sentences(run: &TapDocument) -> Vec<String> {
    let mut sentences = vec![format!(
        "Lag is {FROM_LOG_TO_LOG}, not to visibility; negative lag is kept."
    )];
    match &run.results.floor {
        Some(floor) => sentences.push(format!(
            "Floor of the method: two taps of the primary differ by {} (absolute: {}), {} transactions.",
            spread(&floor.difference),
            spread(&floor.difference_abs),
            count(floor.transactions)
        )),
        None if run.settings.floor_duration.is_some_and(|floor| floor.0.is_zero()) => {
            sentences.push("The method's own error was not measured (--floor-duration 0).".to_owned());
        }
        None => sentences
            .push("The method's own error is unknown: nothing was committed while the primary was followed twice.".to_owned()),
    }
    sentences.extend(run.results.rows.iter().flat_map(of_row));
    sentences.extend(run.results.clocks.iter().map(of_clock));
    sentences.extend(run.results.streams.iter().map(of_stream));
    sentences
}

/// Returns the notes on a replica.
fn of_row(row: &TapRow) -> Vec<String> {
    let inverted = row.largest_inversion_us.map(|largest| {
        format!(
            "{} transactions arrived from the replica first, by {} at most.",
            count(row.inverted),
            time(largest)
        )
    });
    let unmatched = row.unmatched_reasons.iter();
    let unmatched =
        unmatched.map(|reason| format!("{} transactions {}.", count(reason.count), reason.reason));
    let behind = row
        .behind_us
        .map_or_else(String::new, |us| format!(", the oldest since {}", time(us)));
    let awaited = (row.pending > 0).then(|| {
        format!(
            "{} transactions were pending at the end{behind}.",
            count(row.pending)
        )
    });
    let by_servers = row.by_servers.as_ref().map(|of| {
        format!(
            "by the servers' clocks, corrected by their offsets, from commit to commit: {}.",
            spread(of)
        )
    });
    let arrival = row.commit_to_arrival.as_ref().map(|of| {
        format!(
            "from the commit, by the primary's clock corrected by its offset, to the arrival at the client: {}.",
            spread(of)
        )
    });
    let all = inverted.into_iter().chain(unmatched);
    let all = all.chain(awaited).chain(by_servers).chain(arrival);
    all.map(|words| format!("{}: {words}", row.replica))
        .collect()
}

fn of_clock(clock: &TapClock) -> String {
    let steps = if clock.steps > 0 {
        format!(", set {} times during the run", clock.steps)
    } else {
        String::new()
    };
    format!(
        "{}: its clock was {:+.0} µs from the client's, changed by {:+.0} µs{steps}; its times are accurate to ± {}.",
        clock.name,
        clock.offset_us,
        clock.drift_us,
        time(clock.bound_us)
    )
}

fn of_stream(stream: &TapStream) -> String {
    let cpu = stream.cpu_us_per_transaction;
    let cpu = cpu.map_or_else(String::new, |us| {
        format!(", {us:.1} µs of client CPU for each")
    });
    let tls = if stream.tls { ", encrypted" } else { "" };
    format!(
        "{}: {} transactions in {} bytes, {} file changes, {} reconnections{tls}{cpu}.",
        stream.name,
        count(stream.transactions),
        count(stream.bytes),
        count(stream.rotations),
        count(stream.reconnects)
    )
}

/// Returns a replica's result; the primary committed `of_primary` transactions.
fn finding(row: &TapRow, of_primary: u64) -> String {
    let (name, transactions) = (&row.replica, count(row.transactions));
    match (row.transactions, row.lag.p50_us, row.lag.max_us) {
        (0, ..) if of_primary > 0 => {
            let all = count(of_primary);
            format!("{name}: none of {all} transactions matched the filter")
        }
        (0, ..) => format!("{name}: nothing was committed on the primary during the run"),
        (_, Some(p50), _) => {
            let ends = row.lag.p50_us_ci95.map_or_else(String::new, |ends| {
                format!(" [{}]", Unit::for_size(p50).show_interval(ends).join(", "))
            });
            let p99 = tail(&row.lag, time);
            let p99 = p99.map_or_else(String::new, |p99| format!(", {p99}"));
            let share = row.matched as f64 / row.transactions as f64 * 100.0;
            format!(
                "{name} is {} behind (p50{ends}{p99}; {share:.2} % of {transactions} transactions)",
                time(p50)
            )
        }
        (_, None, Some(max)) => {
            let max = time(max);
            format!("{name} is at most {max} behind ({transactions} transactions)")
        }
        (_, None, None) => format!("{name} has shown none of {transactions} transactions"),
    }
}

/// Returns the headline in one sentence.
#[must_use]
pub(crate) fn answer(run: &TapDocument) -> String {
    let of_primary = run.results.streams.first();
    let of_primary = of_primary.map_or(0, |stream| stream.transactions);
    let rows = run.results.rows.iter();
    let parts: Vec<String> = rows.clone().map(|row| finding(row, of_primary)).collect();
    let mut text = parts.join("; ");
    if text.is_empty() {
        text = "No replica; only the primary was followed".to_owned();
    }
    let awaited = rows
        .filter(|row| row.pending > 0)
        .max_by_key(|row| row.pending);
    if let Some(row) = awaited {
        let since = row
            .behind_us
            .map_or_else(String::new, |us| format!(", the oldest for {}", time(us)));
        let _ = write!(
            text,
            "; {} had {} pending transactions at the end{since}, so lag is larger than these figures",
            row.replica,
            count(row.pending)
        );
    }
    text.push('.');
    with_end_note(with_level(text), run.status)
}

/// Returns the report of a run.
#[must_use]
pub(crate) fn report(run: &TapDocument) -> Report {
    let transactions = run.results.rows.first().map_or(0, |row| row.transactions);
    let mut report = Report::of(
        run,
        "Lag of real traffic",
        format!("{} transactions", count(transactions)),
    );
    let unit = unit(run).symbol();
    let followed = time(run.measured_us.unwrap_or_default());
    report.add(Block::table(
        "figures",
        format!("Lag of real traffic ({unit}), followed for {followed}"),
        figures(run),
    ));
    report.add(Block::table(
        "groups",
        format!("Lag by group ({unit})"),
        groups(run),
    ));
    report.how = sentences(run);
    report.with_servers(&run.target)
}
