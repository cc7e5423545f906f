//! The report of a `load` run.

use replimeter_instruments::load::results::{LoadDocument, LoadRow, SettlingRecord};
use replimeter_model::{
    load::{Arrivals, LoadRecord},
    record::RunStatus,
    resources::PostponedWork,
};

use replimeter_render::{
    cell::{throughput, with_interval},
    figures::{count, rate, time},
    format::Format,
    headline::{with_end_note, with_level},
    load::{self, latency},
    report::{Block, Cell, Report, Table},
};

/// Returns workload, threads and servers in short.
pub(crate) fn description(load: &LoadRecord) -> String {
    load::description(load, false)
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
            ("load", &|load| Cell::from(description(load))),
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
            ("failed", &|load| load.failed.into()),
        ],
    )
}

/// Returns the table of resources per operation by server.
fn servers(run: &LoadDocument) -> Table {
    let (one, whole) = (Format::Decimals(1), Format::Decimals(0));
    let rows = run.results.rows.iter();
    Table::of(
        2,
        rows.flat_map(|row| row.servers.iter().map(move |server| (row, server))),
        &[
            ("load", &|(row, _)| Cell::from(description(&row.load))),
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

/// Returns the limits of the client.
fn client(load: &LoadRecord) -> Option<String> {
    let client = &load.client;
    let parts = [
        client.limit_per_s.map(|limit| {
            let share = client.limit_share.map_or_else(String::new, |share| {
                format!(", throughput reached {} of it", percent(share))
            });
            format!("ping limit {}/s{share}", rate(limit, limit / 100.0))
        }),
        client.cpu_share.map(|share| {
            format!(
                "its threads used {} of this machine's cores",
                percent(share)
            )
        }),
        client
            .ready_share
            .map(|share| format!("they waited for a core {} of their time", percent(share))),
        client
            .loop_delay_p50_us
            .zip(client.loop_delay_p99_us)
            .map(|(half, most)| {
                format!("answers waited {half:.1} µs for it at the median, {most:.0} µs at p99")
            }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("client: {}.", parts.join("; ")))
}

/// Returns the notes on a load.
fn notes(load: &LoadRecord) -> Vec<String> {
    let nodes = load.by_node.iter().map(|part| {
        let per_s = part.per_s.map_or_else(String::new, |per_s| {
            format!(", {} per second", rate(per_s, per_s / 100.0))
        });
        format!(
            "{} completed {} operations{per_s}.",
            part.node,
            count(part.operations)
        )
    });
    let retried = load.retried.iter().map(|retried| {
        let (operations, kind) = (count(retried.count), &retried.kind);
        format!("{operations} operations were retried ({kind}).")
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
            "{} operations were due at the end and not started.",
            count(waiting)
        )
    });
    let all = client(load).into_iter().chain(nodes).chain(retried);
    let all = all.chain(errors).chain(waiting);
    all.map(|note| format!("{}: {note}", description(load)))
        .collect()
}

/// Returns the description of the method.
fn sentences(run: &LoadDocument) -> Vec<String> {
    let ramp = run
        .results
        .rows
        .first()
        .map_or(0.0, |row| row.load.warm_up_us / 1e6);
    let mut sentences = vec![format!(
        "Measured after a warm-up of {ramp:.1} s. Intervals cover this run only, not the variation between starts."
    )];
    let mut pairs = run.results.rows.windows(2);
    if pairs.any(|two| two[0].load.threads == two[1].load.threads) {
        sentences.push(
            "Workloads ran concurrently: server resources are those of all workloads together, per operation of any."
                .to_owned(),
        );
    }
    for data in &run.results.data {
        let size = format!(
            "{} rows, {:.0} MB on disk",
            count(data.rows),
            data.bytes as f64 / 1e6
        );
        let names = data.workloads.join(", ");
        sentences.push(if data.reused {
            format!("Data of {names}: {size}, already present.")
        } else if data.rows == 0 {
            format!("Data of {names}: tables that are empty at the start.")
        } else {
            let seconds = (data.duration_us / 1e6).max(1e-3);
            let speed = data.sent_bytes as f64 / seconds / 1e6;
            format!("Data of {names}: {size}, created in {seconds:.1} s ({speed:.0} MB of statements per second).")
        });
    }
    sentences.extend(run.results.settling.iter().map(settling));
    sentences
}

/// Returns the sentence on a wait for servers.
fn settling(wait: &SettlingRecord) -> String {
    let work = |work: &PostponedWork| {
        let counts = work.counts();
        let counts = counts.map(|(number, what)| format!("{} {what}", count(number)));
        counts.collect::<Vec<_>>().join(", ")
    };
    let servers = wait.servers.iter().map(|server| {
        format!(
            "{}: {} at first, then {}",
            server.name,
            work(&server.before),
            work(&server.after)
        )
    });
    format!(
        "Waited {:.1} s before the load with {} threads, until the servers had settled ({}).",
        wait.settled_us / 1e6,
        wait.threads,
        servers.collect::<Vec<_>>().join("; ")
    )
}

/// Returns the rows of the headline: of a series of loads that at which it saturates.
pub(super) fn in_headline(run: &LoadDocument) -> impl Iterator<Item = &LoadRow> {
    let threads = run.results.saturation.as_ref().map(|found| found.threads);
    let rows = run.results.rows.iter();
    rows.filter(move |row| threads.is_none_or(|threads| threads == row.load.threads))
}

/// Returns the headline in one sentence.
#[must_use]
pub(crate) fn answer(run: &LoadDocument) -> String {
    let part = |row: &LoadRow| {
        let load = &row.load;
        let Some(mean) = load.throughput.mean.filter(|_| load.passes > 0) else {
            return format!("{} completed no operation", description(load));
        };
        let p99 = load
            .latency
            .p99_us
            .map_or_else(String::new, |us| format!(", response p99 {}", time(us)));
        let held = match (
            load.rate,
            load.waiting
                .filter(|waiting| *waiting > u64::from(load.threads)),
        ) {
            (Some(asked), Some(waiting)) if mean < asked as f64 * 0.98 => {
                format!(
                    " of the requested {}/s: the rate was not sustained, {} operations were waiting at the end",
                    count(asked),
                    count(waiting)
                )
            }
            _ => String::new(),
        };
        let begun = if held.is_empty() || p99.is_empty() {
            ""
        } else {
            " of those started"
        };
        format!(
            "{} reached {} operations/s{held}{p99}{begun}",
            description(load),
            with_interval(&load.throughput)
        )
    };
    let saturation = run.results.saturation.as_ref();
    let mut answer = in_headline(run).map(part).collect::<Vec<_>>().join("; ");
    if let Some(saturation) = saturation {
        let most = run.results.rows.last().map_or(0, |row| row.load.threads);
        answer.push_str(&match saturation.reached {
            true => format!("; up to {most} threads raised that by less than 10 %"),
            false => format!(
                "; with {most} threads, the most that were measured, the throughput may still rise"
            ),
        });
    }
    if answer.is_empty() {
        answer = "Nothing was measured".to_owned();
    }
    answer.push('.');
    let answer = with_level(answer);
    // An error makes a load invalid: no operation completed.
    let status = if run.status == RunStatus::Invalid {
        RunStatus::Failed
    } else {
        run.status
    };
    with_end_note(answer, status)
}

/// Returns the report of a run.
#[must_use]
pub(crate) fn report(run: &LoadDocument) -> Report {
    let operations = run.results.rows.iter().map(|row| row.load.passes).sum();
    let mut report = Report::of(
        run,
        "Throughput and latency under load",
        format!("{} operations", count(operations)),
    );
    report.add(Block::table(
        "figures",
        "Throughput and latency",
        figures(run),
    ));
    report.add(Block::table(
        "servers",
        "Resources per operation by server",
        servers(run),
    ));
    let notes = run.results.rows.iter().flat_map(|row| notes(&row.load));
    report.add(Block::list("notes", "Notes", notes.collect()));
    report.how = sentences(run);
    report.with_servers(&run.target)
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::load::results::LoadResults;
    use replimeter_model::load::{ClientUse, Rate};

    use super::*;

    #[test]
    fn load_report_has_every_section() {
        let load = LoadRecord {
            workload: "/x/orders.toml".to_owned(),
            threads: 8,
            node: "primary".to_owned(),
            rate: Some(500),
            arrivals: Some(Arrivals::Poisson),
            passes: 5000,
            throughput: Rate {
                mean: Some(499.8),
                ci95: [Some(490.0), Some(510.0)].into(),
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
            "orders.toml:8@primary reached 500 [490, 510] operations",
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
