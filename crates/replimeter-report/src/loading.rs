//! What a `load` run tells people.

use std::fmt::Write as _;

use replimeter_model::{
    load::{Arrivals, LoadDocument, LoadRecord, LoadRow},
    record::RunStatus,
};

use crate::{
    answer::with_ending,
    figures::{Unit, count, rate},
    load::{decimal, spent, with_interval},
    terminal::{aligned, plain_table, warnings, wrapped},
};

/// The columns.
pub(crate) const HEADINGS: [&str; 12] = [
    "load",
    "loop",
    "operations/s, 95 %",
    "operations",
    "response p50",
    "p95",
    "p99",
    "max",
    "service p99",
    "client CPU",
    "retried",
    "given up",
];

/// A workload's name without the folders before it.
pub(crate) fn name(load: &LoadRecord) -> &str {
    load.workload.rsplit('/').next().unwrap_or(&load.workload)
}

/// Workload, threads and servers, in short.
pub(crate) fn what(load: &LoadRecord) -> String {
    format!("{}:{}@{}", name(load), load.threads, load.node)
}

fn schedule(load: &LoadRecord) -> String {
    match (load.rate, load.arrivals) {
        (None, _) => "closed".to_owned(),
        (Some(rate), Some(Arrivals::Poisson)) => format!("open, {}/s, poisson", count(rate)),
        (Some(rate), _) => format!("open, {}/s", count(rate)),
    }
}

/// Lines of cells.
pub(crate) fn lines(document: &LoadDocument) -> Vec<Vec<String>> {
    let line = |row: &LoadRow| {
        let load = &row.load;
        let unit = Unit::for_size(load.latency.p50_us.or(load.latency.mean_us).unwrap_or(0.0));
        let show = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| unit.with(us));
        let latency = &load.latency;
        vec![
            what(load),
            schedule(load),
            with_interval(&load.throughput),
            count(load.passes),
            show(latency.p50_us),
            show(latency.p95_us),
            show(latency.p99_us),
            show(latency.max_us),
            show(load.service.p99_us),
            load.client
                .cpu_us_per_op
                .map_or_else(|| "–".to_owned(), |us| format!("{us:.1} µs")),
            count(load.retries),
            count(load.failed),
        ]
    };
    document.results.iter().map(line).collect()
}

/// The columns of what servers spend.
pub(crate) const SERVER_HEADINGS: [&str; 10] = [
    "load",
    "server",
    "CPU µs",
    "user",
    "system",
    "context switches",
    "written bytes",
    "flushes",
    "received bytes",
    "sent bytes",
];

/// Lines of what each server spends on an operation.
pub(crate) fn servers(document: &LoadDocument) -> Vec<Vec<String>> {
    let of = |row: &LoadRow| {
        let line = |server: &replimeter_model::resources::PerOperation| {
            let mut line = vec![what(&row.load), server.name.clone()];
            line.extend(spent(server));
            line.extend([
                decimal(server.received_bytes_per_op, 0),
                decimal(server.sent_bytes_per_op, 0),
            ]);
            line
        };
        row.servers.iter().map(line).collect::<Vec<_>>()
    };
    document.results.iter().flat_map(of).collect()
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// What each row has beside its figures.
pub(crate) fn notes(document: &LoadDocument) -> Vec<String> {
    let mut notes = Vec::new();
    for row in &document.results {
        let load = &row.load;
        let what = what(load);
        let client = &load.client;
        let mut parts = Vec::new();
        if let Some(limit) = client.limit_per_s {
            let share = client.limit_share.map_or_else(String::new, |share| {
                format!(", of which its statements came to {}", percent(share))
            });
            parts.push(format!(
                "as many connections get {} empty questions a second answered{share}",
                rate(limit, limit / 100.0)
            ));
        }
        if let Some(share) = client.cpu_share {
            parts.push(format!(
                "its threads took {} of this machine's cores",
                percent(share)
            ));
        }
        if let Some(share) = client.ready_share {
            parts.push(format!(
                "and were ready without a core {} of their time",
                percent(share)
            ));
        }
        if !parts.is_empty() {
            notes.push(format!(
                "{what}: the client's own limit: {}.",
                parts.join("; ")
            ));
        }
        for part in &load.by_node {
            let per_s = part.per_s.map_or_else(String::new, |per_s| {
                format!(", {} per second", rate(per_s, per_s / 100.0))
            });
            notes.push(format!(
                "{what}: {} did {} operations{per_s}.",
                part.node,
                count(part.operations)
            ));
        }
        for retried in &load.retried {
            notes.push(format!(
                "{what}: {} operations were begun again ({}).",
                count(retried.count),
                retried.kind
            ));
        }
        for error in &load.errors {
            let code = error.code.map_or_else(
                || "lost connection".to_owned(),
                |code| format!("error {code}"),
            );
            notes.push(format!(
                "{what}: {code}, {} times: {}",
                count(error.count),
                error.message
            ));
        }
        if let Some(waiting) = load.waiting.filter(|waiting| *waiting > 0) {
            notes.push(format!(
                "{what}: {} operations were due at the end and not begun.",
                count(waiting)
            ));
        }
    }
    notes
}

/// How it was measured, and what belongs to it.
pub(crate) fn sentences(document: &LoadDocument) -> Vec<String> {
    let ramp = document
        .results
        .first()
        .map_or(0.0, |row| row.load.ramp_us / 1e6);
    let mut sentences = vec![format!(
        "Blocking connections, a thread each, prepared statements. Counted after a ramp of {ramp:.1} s. Response counts from an operation's \
         intended start, service from its actual one; in a closed loop an operation is intended to begin when the one before it ended, so \
         that both are the same and a stall of the server holds the load up with it. Retries are inside both. The interval is by batch \
         means of this one run and says nothing of other starts."
    )];
    if document.results.iter().any(|row| {
        row.servers
            .iter()
            .any(|server| server.fsyncs_per_op.is_some())
    }) {
        let together = document
            .results
            .windows(2)
            .any(|two| two[0].load.threads == two[1].load.threads);
        sentences.push(format!(
            "{}Flushes are those that the storage engine counts; a binary log's own are counted by no server.",
            if together {
                "Workloads ran beside one another: what servers spent is of all of them together, for one operation of any. "
            } else {
                ""
            }
        ));
    }
    for data in &document.data {
        let size = format!(
            "{} rows, {:.0} MB on the disk",
            count(data.rows),
            data.bytes as f64 / 1e6
        );
        let names = data.workloads.join(", ");
        sentences.push(if data.reused {
            format!("Data of {names}: {size}, found in place.")
        } else if data.rows == 0 {
            format!("Data of {names}: tables that are empty at the beginning.")
        } else {
            let seconds = (data.took_us / 1e6).max(1e-3);
            let speed = data.sent_bytes as f64 / seconds / 1e6;
            format!("Data of {names}: {size}, made in {seconds:.1} s ({speed:.0} MB of statements a second).")
        });
    }
    sentences
}

/// The finding in one sentence.
#[must_use]
pub fn answer(document: &LoadDocument) -> String {
    let part = |row: &LoadRow| {
        let load = &row.load;
        let Some(mean) = load.throughput.mean.filter(|_| load.passes > 0) else {
            return format!("{} completed no operation", what(load));
        };
        let half = load.throughput.low.map_or(mean / 10.0, |low| mean - low);
        let p99 = load.latency.p99_us.map_or_else(String::new, |us| {
            format!(", {} at p99", crate::figures::time(us))
        });
        let held = match (
            load.rate,
            load.waiting
                .filter(|waiting| *waiting > u64::from(load.threads)),
        ) {
            (Some(asked), Some(waiting)) if mean < asked as f64 * 0.98 => {
                format!(
                    " of {} asked for: the rate was not held, {} were still waiting at the end",
                    count(asked),
                    count(waiting)
                )
            }
            _ => String::new(),
        };
        let begun = if held.is_empty() || p99.is_empty() {
            ""
        } else {
            " of those begun"
        };
        format!(
            "{} does {} operations a second{held}{p99}{begun}",
            what(load),
            rate(mean, half)
        )
    };
    let mut answer = document
        .results
        .iter()
        .map(part)
        .collect::<Vec<_>>()
        .join("; ");
    if answer.is_empty() {
        answer = "Nothing was measured".to_owned();
    }
    answer.push('.');
    // A load is void by an error: nothing was completed.
    let status = if document.status == RunStatus::Void {
        RunStatus::Failed
    } else {
        document.status
    };
    with_ending(answer, status)
}

/// The whole report.
#[must_use]
pub fn text(document: &LoadDocument) -> String {
    let mut out = String::new();
    let title = document
        .title
        .as_ref()
        .map_or_else(String::new, |title| format!("{title}: "));
    let modes = document.target.modes.join(", ");
    let _ = writeln!(
        out,
        "{title}replimeter load, {} ({modes})\n",
        document.target.shape
    );
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    if !document.results.is_empty() {
        let mut table = plain_table(HEADINGS.map(str::to_owned).to_vec());
        for line in lines(document) {
            table.add_row(line);
        }
        out.push_str(&aligned(table, 2));
    }
    let servers = servers(document);
    if !servers.is_empty() {
        let _ = writeln!(out, "\nWhat each server spends on an operation");
        let mut table = plain_table(SERVER_HEADINGS.map(str::to_owned).to_vec());
        for line in servers {
            table.add_row(line);
        }
        out.push_str(&aligned(table, 2));
        out.push('\n');
    }
    for note in notes(document) {
        let _ = writeln!(out, "  {}", wrapped(&note, 94, "  "));
    }
    let _ = writeln!(out, "\nHow it was measured");
    for sentence in sentences(document) {
        let _ = writeln!(out, "  {}", wrapped(&sentence, 94, "  "));
    }
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
mod tests {
    use replimeter_model::load::{ClientUse, Rate};

    use super::*;

    #[test]
    fn a_run_is_told_whole() {
        let load = LoadRecord {
            workload: "/x/orders.toml".to_owned(),
            threads: 8,
            node: "primary".to_owned(),
            rate: Some(500),
            arrivals: Some(Arrivals::Poisson),
            passes: 5000,
            throughput: Rate {
                mean: Some(499.8),
                low: Some(490.0),
                high: Some(510.0),
                stdev: Some(9.0),
            },
            waiting: Some(3),
            client: ClientUse {
                limit_per_s: Some(90_000.0),
                limit_share: Some(0.0056),
                cpu_us_per_op: Some(12.34),
                ..ClientUse::default()
            },
            ..LoadRecord::default()
        };
        let mut document = LoadDocument {
            results: vec![LoadRow {
                load,
                servers: Vec::new(),
            }],
            ..LoadDocument::default()
        };
        document.answer = answer(&document);
        let text = text(&document);
        for wanted in [
            "orders.toml:8@primary does 499.8 operations",
            "open, 500/s, poisson",
            "12.3 µs",
            "0.6 %",
            "3 operations were due",
        ] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        assert_eq!(
            answer(&LoadDocument {
                status: RunStatus::Failed,
                ..LoadDocument::default()
            })
            .matches("Nothing")
            .count(),
            1
        );
    }
}
