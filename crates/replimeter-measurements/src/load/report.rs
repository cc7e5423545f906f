//! What a `load` run tells people.

use replimeter_model::{
    load::{Arrivals, LoadRecord},
    loading::{LoadDocument, LoadRow},
    record::RunStatus,
};

use replimeter_render::{
    answer::with_ending,
    cell::throughput,
    figures::{count, rate, time},
    format::Format,
    load::{self, latency},
    report::{Block, Cell, Report, Table},
};

/// Workload, threads and servers, in short.
pub(crate) fn what(load: &LoadRecord) -> String {
    load::what(load, false)
}

fn schedule(load: &LoadRecord) -> String {
    match (load.rate, load.arrivals) {
        (None, _) => "closed".to_owned(),
        (Some(rate), Some(Arrivals::Poisson)) => format!("open, {}/s, poisson", count(rate)),
        (Some(rate), _) => format!("open, {}/s", count(rate)),
    }
}

fn figures(run: &LoadDocument) -> Table {
    let cpu = |us| Cell::from(format!("{us:.1} µs"));
    Table::of(
        2,
        run.results.rows.iter().map(|row| &row.load),
        &[
            ("load", &|load| Cell::from(what(load))),
            ("loop", &|load| schedule(load).into()),
            ("operations/s, 95 %", &|load| throughput(&load.throughput)),
            ("operations", &|load| load.passes.into()),
            ("response p50", &|load| latency(load, load.latency.p50_us)),
            ("p95", &|load| latency(load, load.latency.p95_us)),
            ("p99", &|load| latency(load, load.latency.p99_us)),
            ("max", &|load| latency(load, load.latency.max_us)),
            ("service p99", &|load| latency(load, load.service.p99_us)),
            ("client CPU", &|load| {
                load.client.cpu_us_per_op.map(cpu).into()
            }),
            ("retried", &|load| load.retries.into()),
            ("given up", &|load| load.failed.into()),
        ],
    )
}

/// What each server spends on an operation.
fn servers(run: &LoadDocument) -> Table {
    let (one, whole) = (Format::Decimals(1), Format::Decimals(0));
    let rows = run.results.rows.iter();
    Table::of(
        2,
        rows.flat_map(|row| row.servers.iter().map(move |server| (row, server))),
        &[
            ("load", &|(row, _)| Cell::from(what(&row.load))),
            ("server", &|(_, server)| (&server.name).into()),
            ("CPU µs", &|(_, server)| one.cell(server.cpu_us_per_op)),
            ("user", &|(_, server)| one.cell(server.cpu_user_us_per_op)),
            ("system", &|(_, server)| {
                one.cell(server.cpu_system_us_per_op)
            }),
            ("context switches", &|(_, server)| {
                Format::Decimals(2).cell(server.context_switches_per_op)
            }),
            ("written bytes", &|(_, server)| {
                whole.cell(server.write_bytes_per_op)
            }),
            ("flushes", &|(_, server)| {
                Format::Decimals(3).cell(server.fsyncs_per_op)
            }),
            ("received bytes", &|(_, server)| {
                whole.cell(server.received_bytes_per_op)
            }),
            ("sent bytes", &|(_, server)| {
                whole.cell(server.sent_bytes_per_op)
            }),
        ],
    )
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// What bounded the client.
fn client(load: &LoadRecord) -> Option<String> {
    let client = &load.client;
    let parts = [
        client.limit_per_s.map(|limit| {
            let share = client.limit_share.map_or_else(String::new, |share| {
                format!(", of which its statements came to {}", percent(share))
            });
            format!(
                "as many connections get {} empty questions a second answered{share}",
                rate(limit, limit / 100.0)
            )
        }),
        client.cpu_share.map(|share| {
            format!(
                "its threads took {} of this machine's cores",
                percent(share)
            )
        }),
        client.ready_share.map(|share| {
            format!(
                "and were ready without a core {} of their time",
                percent(share)
            )
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("the client's own limit: {}.", parts.join("; ")))
}

/// What a load has beside its figures.
fn notes(load: &LoadRecord) -> Vec<String> {
    let nodes = load.by_node.iter().map(|part| {
        let per_s = part.per_s.map_or_else(String::new, |per_s| {
            format!(", {} per second", rate(per_s, per_s / 100.0))
        });
        format!(
            "{} did {} operations{per_s}.",
            part.node,
            count(part.operations)
        )
    });
    let retried = load.retried.iter().map(|retried| {
        let (operations, kind) = (count(retried.count), &retried.kind);
        format!("{operations} operations were begun again ({kind}).")
    });
    let errors = load.errors.iter().map(|error| {
        let code = error.code.map_or_else(
            || "lost connection".to_owned(),
            |code| format!("error {code}"),
        );
        format!("{code}, {} times: {}", count(error.count), error.message)
    });
    let waiting = load.waiting.filter(|waiting| *waiting > 0);
    let waiting = waiting.map(|waiting| {
        format!(
            "{} operations were due at the end and not begun.",
            count(waiting)
        )
    });
    let all = client(load).into_iter().chain(nodes).chain(retried);
    let all = all.chain(errors).chain(waiting);
    all.map(|note| format!("{}: {note}", what(load))).collect()
}

/// How it was measured, and what belongs to it.
fn sentences(run: &LoadDocument) -> Vec<String> {
    let ramp = run
        .results
        .rows
        .first()
        .map_or(0.0, |row| row.load.warm_up_us / 1e6);
    let mut sentences = vec![format!(
        "Blocking connections, a thread each, prepared statements. Counted after a ramp of {ramp:.1} s. Response counts from an operation's \
         intended start, service from its actual one; in a closed loop an operation is intended to begin when the one before it ended, so \
         that both are the same and a stall of the server holds the load up with it. Retries are inside both. The interval is by batch \
         means of this one run and says nothing of other starts."
    )];
    let mut servers = run.results.rows.iter().flat_map(|row| &row.servers);
    if servers.any(|server| server.fsyncs_per_op.is_some()) {
        let together = run
            .results
            .rows
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
    for data in &run.results.data {
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
            let seconds = (data.duration_us / 1e6).max(1e-3);
            let speed = data.sent_bytes as f64 / seconds / 1e6;
            format!("Data of {names}: {size}, made in {seconds:.1} s ({speed:.0} MB of statements a second).")
        });
    }
    sentences
}

/// The finding in one sentence.
#[must_use]
pub(crate) fn answer(run: &LoadDocument) -> String {
    let part = |row: &LoadRow| {
        let load = &row.load;
        let Some(mean) = load.throughput.mean.filter(|_| load.passes > 0) else {
            return format!("{} completed no operation", what(load));
        };
        let half = load.throughput.low.map_or(mean / 10.0, |low| mean - low);
        let p99 = load
            .latency
            .p99_us
            .map_or_else(String::new, |us| format!(", {} at p99", time(us)));
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
    let parts: Vec<String> = run.results.rows.iter().map(part).collect();
    let mut answer = parts.join("; ");
    if answer.is_empty() {
        answer = "Nothing was measured".to_owned();
    }
    answer.push('.');
    // An error makes a load invalid: nothing was completed.
    let status = if run.status == RunStatus::Invalid {
        RunStatus::Failed
    } else {
        run.status
    };
    with_ending(answer, status)
}

/// What people read of it.
#[must_use]
pub(crate) fn report(run: &LoadDocument) -> Report {
    let operations = run.results.rows.iter().map(|row| row.load.passes).sum();
    let mut report = Report::of(
        run,
        "How much do the servers do?",
        format!("{} operations", count(operations)),
    );
    report.add(Block::table(
        "figures",
        "Operations per second and their times",
        figures(run),
    ));
    report.add(Block::table(
        "servers",
        "What each server spends on an operation",
        servers(run),
    ));
    let notes = run.results.rows.iter().flat_map(|row| notes(&row.load));
    report.add(Block::list("notes", "Notes", notes.collect()));
    report.how = sentences(run);
    report.with_servers(&run.target)
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        load::{ClientUse, Rate},
        loading::LoadResults,
    };

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
        let mut run = LoadDocument {
            results: LoadResults {
                rows: vec![LoadRow {
                    load,
                    servers: Vec::new(),
                }],
                ..LoadResults::default()
            },
            ..LoadDocument::default()
        };
        run.headline = answer(&run);
        let text = replimeter_render::terminal::render(&report(&run));
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
