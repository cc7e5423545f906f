//! What a `tap` run tells people.

use std::fmt::Write as _;

use replimeter_model::{
    record::Distribution,
    tap::{TapDocument, TapRow, TapWindow},
};

use crate::{
    answer::with_ending,
    figures::{Unit, count, time},
    precision::Precision,
    terminal::{aligned, how_measured, plain_table, warnings, wrapped},
};

/// Groups that the text shows of each replica; all are in the record.
const SHOWN: usize = 30;

/// The columns.
pub(crate) const HEADINGS: [&str; 12] = [
    "replica",
    "transactions",
    "matched",
    "inverted",
    "no lag",
    "awaited",
    "min",
    "p50",
    "95 %",
    "p99",
    "p99.9",
    "max",
];

/// The columns of lag by schema or table.
pub(crate) const GROUP_HEADINGS: [&str; 8] = [
    "replica",
    "what",
    "transactions",
    "bytes",
    "min",
    "p50",
    "p99",
    "max",
];

/// The unit of the tables: that of the largest median.
pub(crate) fn unit(document: &TapDocument) -> Unit {
    let medians = document
        .results
        .iter()
        .filter_map(|row| row.lag.p50_us.or(row.lag.max_us));
    Unit::for_size(medians.fold(0.0, |most: f64, us| most.max(us.abs())))
}

/// Figures of lag, with the digits that their intervals and the method's own error support.
fn figures(
    document: &TapDocument,
    lag: &Distribution,
    wanted: &[(Option<f64>, Option<f64>)],
) -> Vec<String> {
    let unit = unit(document);
    let precision = Precision::of_tap(lag, document.floor.as_ref());
    let show = |(value, level): &(Option<f64>, Option<f64>)| {
        let half = level.map_or(precision.single(), |level| precision.quantile(level));
        value.map_or_else(|| "–".to_owned(), |us| unit.show_within(us, half))
    };
    wanted.iter().map(show).collect()
}

/// Lines of cells.
pub(crate) fn lines(document: &TapDocument) -> Vec<Vec<String>> {
    let line = |row: &TapRow| {
        let mut line = vec![row.replica.clone()];
        line.extend(
            [
                row.transactions,
                row.matched,
                row.inverted,
                row.unmatched,
                row.pending,
            ]
            .map(count),
        );
        let lag = &row.lag;
        let unit = unit(document);
        let interval = lag.ci95.as_ref().and_then(|ci| ci.p50_us);
        let interval = interval.map_or_else(
            || "–".to_owned(),
            |ends| unit.show_interval(ends).join(" to "),
        );
        line.extend(figures(
            document,
            lag,
            &[(lag.min_us, None), (lag.p50_us, Some(0.5))],
        ));
        line.push(interval);
        line.extend(figures(
            document,
            lag,
            &[
                (lag.p99_us, Some(0.99)),
                (lag.p999_us, Some(0.999)),
                (lag.max_us, None),
            ],
        ));
        line
    };
    document.results.iter().map(line).collect()
}

/// Lines of lag by schema or table.
pub(crate) fn groups(document: &TapDocument) -> Vec<Vec<String>> {
    let of = |row: &TapRow| {
        let lines = row.by.iter().take(SHOWN).map(|group| {
            let what = match (group.schema.as_str(), group.table.as_str()) {
                (schema, "") => schema.to_owned(),
                (schema, table) => format!("{schema}.{table}"),
            };
            let mut line = vec![
                row.replica.clone(),
                what,
                count(group.transactions),
                count(group.bytes),
            ];
            let lag = &group.lag;
            let wanted = [
                (lag.min_us, None),
                (lag.p50_us, Some(0.5)),
                (lag.p99_us, Some(0.99)),
                (lag.max_us, None),
            ];
            line.extend(figures(document, lag, &wanted));
            line
        });
        lines.collect::<Vec<_>>()
    };
    document.results.iter().flat_map(of).collect()
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

/// How it was measured, and what belongs to it.
pub(crate) fn sentences(document: &TapDocument) -> Vec<String> {
    let mut sentences = vec![
        "Every binary log is followed over a connection of its own, as a replica would; nothing is written. A transaction's lag is \
         its arrival from the replica less its arrival from the primary, both stamped by one clock when the last byte of it was \
         read, and matched by GTID. This is from binary log to binary log, not until a reader sees it. Negative lag is kept."
            .to_owned(),
    ];
    match &document.floor {
        Some(floor) => sentences.push(format!(
            "The method itself: the primary followed twice differs by {} (without sign: {}), {} transactions.",
            spread(&floor.difference),
            spread(&floor.difference_abs),
            count(floor.transactions)
        )),
        None if document.settings.floor.is_some_and(|floor| floor.0.is_zero()) => {
            sentences.push("The method's own error was not measured (--floor 0).".to_owned());
        }
        None => sentences
            .push("The method's own error is not known: nothing was committed while the primary was followed twice.".to_owned()),
    }
    for row in &document.results {
        if let Some(largest) = row.largest_inversion_us {
            sentences.push(format!(
                "{}: {} transactions arrived from the replica first, by {} at most.",
                row.replica,
                count(row.inverted),
                time(largest)
            ));
        }
        for reason in &row.unmatched_reasons {
            sentences.push(format!(
                "{}: {} transactions {}.",
                row.replica,
                count(reason.count),
                reason.reason
            ));
        }
        if row.pending > 0 {
            let behind = row
                .behind_us
                .map_or_else(String::new, |us| format!(", the oldest since {}", time(us)));
            sentences.push(format!(
                "{}: {} transactions were awaited at the end{behind}.",
                row.replica,
                count(row.pending)
            ));
        }
        if let Some(servers) = &row.by_servers {
            sentences.push(format!(
                "{}: by the servers' own clocks, moved to one, from commit to commit: {}.",
                row.replica,
                spread(servers)
            ));
        }
        if let Some(commit) = &row.commit_to_arrival {
            sentences.push(format!(
                "{}: from the commit, by the primary's clock moved to ours, to the arrival here: {}.",
                row.replica,
                spread(commit)
            ));
        }
    }
    if document.settings.by.is_some()
        || !document.settings.only.is_empty()
        || !document.settings.except.is_empty()
    {
        sentences.push(
            "A transaction that was logged as a statement counts for the default schema of its session, whatever it touched; only rows \
             name their tables."
                .to_owned(),
        );
    }
    for clock in &document.clocks {
        let steps = if clock.steps > 0 {
            format!(", set {} times meanwhile", clock.steps)
        } else {
            String::new()
        };
        sentences.push(format!(
            "{}: its clock was {:+.0} µs from the client's, changed by {:+.0} µs{steps}; times of it are placed to ± {}.",
            clock.name,
            clock.offset_us,
            clock.drift_us,
            time(clock.bound_us)
        ));
    }
    for stream in &document.streams {
        let cpu = stream
            .cpu_us_per_transaction
            .map_or_else(String::new, |us| {
                format!(", {us:.1} µs of our processor time for each")
            });
        let tls = if stream.tls { ", encrypted" } else { "" };
        sentences.push(format!(
            "{}: {} transactions in {} bytes, {} changes of the file, {} connections made again{tls}{cpu}.",
            stream.name,
            count(stream.transactions),
            count(stream.bytes),
            count(stream.rotations),
            count(stream.reconnects)
        ));
    }
    sentences
}

/// The finding in one sentence.
#[must_use]
pub fn answer(document: &TapDocument) -> String {
    let of_primary = document
        .streams
        .first()
        .map_or(0, |stream| stream.transactions);
    let part = |row: &TapRow| {
        let share = if row.transactions == 0 {
            100.0
        } else {
            row.matched as f64 / row.transactions as f64 * 100.0
        };
        match (row.transactions, row.lag.p50_us, row.lag.max_us) {
            (0, ..) if of_primary > 0 => {
                format!(
                    "{}: none of {} transactions touched what was asked for",
                    row.replica,
                    count(of_primary)
                )
            }
            (0, ..) => format!(
                "{}: nothing was committed on the primary meanwhile",
                row.replica
            ),
            (_, Some(p50), _) => {
                let p99 = row
                    .lag
                    .p99_us
                    .map_or_else(String::new, |us| format!(", {} at p99", time(us)));
                format!(
                    "{} is {} behind at p50{p99} ({share:.2} % of {} transactions)",
                    row.replica,
                    time(p50),
                    count(row.transactions)
                )
            }
            (_, None, Some(max)) => {
                format!(
                    "{} is at most {} behind ({} transactions)",
                    row.replica,
                    time(max),
                    count(row.transactions)
                )
            }
            (_, None, None) => format!(
                "{} has shown none of {} transactions",
                row.replica,
                count(row.transactions)
            ),
        }
    };
    let mut text = document
        .results
        .iter()
        .map(part)
        .collect::<Vec<_>>()
        .join("; ");
    if text.is_empty() {
        text = "There is no replica; only the primary was followed".to_owned();
    }
    let awaited = document
        .results
        .iter()
        .filter(|row| row.pending > 0)
        .max_by_key(|row| row.pending);
    if let Some(row) = awaited {
        let since = row
            .behind_us
            .map_or_else(String::new, |us| format!(", the oldest for {}", time(us)));
        let _ = write!(
            text,
            "; {} had still to show {} transactions at the end{since}, so that lag is larger than these figures say",
            row.replica,
            count(row.pending)
        );
    }
    text.push('.');
    with_ending(text, document.status)
}

/// A stretch in one line, for people who watch.
#[must_use]
pub fn watched(window: &TapWindow) -> String {
    let seconds = ((window.end_us - window.start_us) / 1e6).max(1e-6);
    let rate = format!(
        "{:>8.1} s  {:>8.0} transactions/s  {:>9.0} kB/s",
        window.end_us / 1e6,
        window.transactions as f64 / seconds,
        window.bytes as f64 / seconds / 1e3
    );
    if window.replica.is_empty() {
        return rate;
    }
    let figure = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), time);
    let behind = window
        .behind_us
        .filter(|_| window.pending > 0)
        .map_or_else(String::new, |us| format!("  oldest {}", time(us)));
    format!(
        "{rate}  {}: p50 {}  p99 {}  max {}  awaited {}{behind}",
        window.replica,
        figure(window.p50_us),
        figure(window.p99_us),
        figure(window.max_us),
        count(window.pending)
    )
}

/// The header of [`csv()`].
pub const CSV_HEADER: &str = "time,start_s,end_s,replica,transactions,bytes,matched,inverted,min_us,p50_us,p99_us,max_us,pending,behind_us";

/// A stretch as a line of CSV, with the calendar time of its end (RFC 3339); what is not
/// known is empty.
#[must_use]
pub fn csv(window: &TapWindow, time: &str) -> String {
    let figure = |value: Option<f64>| value.map_or_else(String::new, |us| format!("{us:.3}"));
    // Names are ours or come from a topology file.
    let replica = if window.replica.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", window.replica.replace('"', "\"\""))
    } else {
        window.replica.clone()
    };
    format!(
        "{time},{:.3},{:.3},{replica},{},{},{},{},{},{},{},{},{},{}",
        window.start_us / 1e6,
        window.end_us / 1e6,
        window.transactions,
        window.bytes,
        window.matched,
        window.inverted,
        figure(window.min_us),
        figure(window.p50_us),
        figure(window.p99_us),
        figure(window.max_us),
        window.pending,
        figure(window.behind_us)
    )
}

/// Totals since the beginning, for counters.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    transactions: u64,
    bytes: u64,
    replicas: Vec<(String, u64, u64)>,
}

/// One exposition in OpenMetrics' text format (1.0): what arrived in the last stretch as
/// gauges, what arrived since the beginning as counters.
#[must_use]
pub fn openmetrics(windows: &[TapWindow], totals: &mut Totals) -> String {
    if let Some(first) = windows.first() {
        totals.transactions += first.transactions;
        totals.bytes += first.bytes;
    }
    let mut out = String::new();
    let escaped = |name: &str| {
        name.replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    for window in windows.iter().filter(|window| !window.replica.is_empty()) {
        match totals
            .replicas
            .iter_mut()
            .find(|(name, ..)| *name == window.replica)
        {
            Some((_, matched, inverted)) => {
                *matched += window.matched;
                *inverted += window.inverted;
            }
            None => totals
                .replicas
                .push((window.replica.clone(), window.matched, window.inverted)),
        }
    }
    let _ = writeln!(
        out,
        "# TYPE replimeter_tap_transactions counter\n# HELP replimeter_tap_transactions Transactions from the primary."
    );
    let _ = writeln!(
        out,
        "replimeter_tap_transactions_total {}",
        totals.transactions
    );
    let _ = writeln!(
        out,
        "# TYPE replimeter_tap_bytes counter\n# UNIT replimeter_tap_bytes bytes\n# HELP replimeter_tap_bytes Their bytes."
    );
    let _ = writeln!(out, "replimeter_tap_bytes_total {}", totals.bytes);
    for (name, help, of) in [
        ("matched", "Transactions that the replica has shown.", 1),
        ("inverted", "Transactions that the replica showed first.", 2),
    ] {
        let _ = writeln!(
            out,
            "# TYPE replimeter_tap_{name} counter\n# HELP replimeter_tap_{name} {help}"
        );
        for (replica, matched, inverted) in &totals.replicas {
            let value = if of == 1 { matched } else { inverted };
            let _ = writeln!(
                out,
                "replimeter_tap_{name}_total{{replica=\"{}\"}} {value}",
                escaped(replica)
            );
        }
    }
    let replicas = || windows.iter().filter(|window| !window.replica.is_empty());
    let _ = writeln!(
        out,
        "# TYPE replimeter_tap_lag_seconds gauge\n# UNIT replimeter_tap_lag_seconds seconds\n# HELP replimeter_tap_lag_seconds Lag of what arrived in the last stretch."
    );
    for window in replicas() {
        for (what, value) in [
            ("min", window.min_us),
            ("p50", window.p50_us),
            ("p99", window.p99_us),
            ("max", window.max_us),
        ] {
            if let Some(us) = value {
                let _ = writeln!(
                    out,
                    "replimeter_tap_lag_seconds{{replica=\"{}\",level=\"{what}\"}} {}",
                    escaped(&window.replica),
                    us / 1e6
                );
            }
        }
    }
    let _ = writeln!(
        out,
        "# TYPE replimeter_tap_pending gauge\n# HELP replimeter_tap_pending Transactions that the replica has still to show."
    );
    for window in replicas() {
        let _ = writeln!(
            out,
            "replimeter_tap_pending{{replica=\"{}\"}} {}",
            escaped(&window.replica),
            window.pending
        );
    }
    let _ = writeln!(
        out,
        "# TYPE replimeter_tap_behind_seconds gauge\n# UNIT replimeter_tap_behind_seconds seconds\n# HELP replimeter_tap_behind_seconds How old the oldest of them is."
    );
    for window in replicas() {
        let behind = window.behind_us.unwrap_or(0.0);
        let _ = writeln!(
            out,
            "replimeter_tap_behind_seconds{{replica=\"{}\"}} {}",
            escaped(&window.replica),
            behind / 1e6
        );
    }
    out.push_str("# EOF\n");
    out
}

/// The whole text.
#[must_use]
pub fn text(document: &TapDocument) -> String {
    let mut out = String::new();
    let mut versions: Vec<&str> = document
        .target
        .nodes
        .iter()
        .map(|node| node.version.as_str())
        .collect();
    versions.dedup();
    let _ = writeln!(
        out,
        "Replimeter tap · {} · {}\n",
        document.target.headline(),
        versions.join(", ")
    );
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    if !document.results.is_empty() {
        let mut table = plain_table(HEADINGS.map(str::to_owned).to_vec());
        lines(document)
            .into_iter()
            .for_each(|line| _ = table.add_row(line));
        let _ = writeln!(
            out,
            "Lag of the real traffic ({}), followed for {}\n{}",
            unit(document).symbol(),
            time(document.measured_us),
            aligned(table, 1).trim_end()
        );
    }
    let groups = groups(document);
    if !groups.is_empty() {
        let mut table = plain_table(GROUP_HEADINGS.map(str::to_owned).to_vec());
        groups.into_iter().for_each(|line| _ = table.add_row(line));
        let _ = writeln!(
            out,
            "\nBy what the transactions touch ({})\n{}",
            unit(document).symbol(),
            aligned(table, 2).trim_end()
        );
    }
    out.push_str(&how_measured(&sentences(document)));
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> TapWindow {
        TapWindow {
            replica: "replica1".to_owned(),
            start_us: 1e6,
            end_us: 2e6,
            transactions: 20,
            bytes: 4000,
            matched: 19,
            inverted: 1,
            min_us: Some(-3.5),
            p50_us: Some(120.25),
            max_us: Some(900.0),
            pending: 1,
            behind_us: Some(50.0),
            ..TapWindow::default()
        }
    }

    #[test]
    fn a_line_of_csv_has_as_many_fields_as_its_header() {
        let line = csv(&window(), "2026-01-02T03:04:05.678Z");
        assert_eq!(
            line,
            "2026-01-02T03:04:05.678Z,1.000,2.000,replica1,20,4000,19,1,-3.500,120.250,,900.000,1,50.000"
        );
        assert_eq!(line.split(',').count(), CSV_HEADER.split(',').count());
    }

    #[test]
    fn expositions_count_up_and_end_as_they_must() {
        let mut totals = Totals::default();
        let _ = openmetrics(&[window()], &mut totals);
        let text = openmetrics(&[window()], &mut totals);
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("replimeter_tap_transactions_total 40\n"));
        assert!(text.contains("replimeter_tap_inverted_total{replica=\"replica1\"} 2\n"));
        assert!(text.contains(
            "replimeter_tap_lag_seconds{replica=\"replica1\",level=\"p50\"} 0.00012025\n"
        ));
        assert!(
            !text.contains("level=\"p99\""),
            "what is not known is left out"
        );
    }
}
