//! The report of a `cost` run.

mod words;

use std::time::Duration;

use replimeter_instruments::cost::{
    results::{CostDocument, CostRow},
    settings::LoggedMode,
};
use replimeter_model::{estimate::Estimate, time_span::TimeSpan};

pub(crate) use self::words::answer;
use self::words::{how, sentences};
use crate::selected_blocks::{self, NamedSelection, SELECTION_TITLE};
use replimeter_render::{
    cell::throughput,
    figures::{Unit, count},
    format::Format,
    report::{Block, Cell, Report, Table},
};

/// Returns a row's link delay.
fn distance(link_delay_us: Option<f64>) -> Cell {
    link_delay_us.map_or_else(|| "none".into(), |us| delay(us).into())
}

/// Formats a delay.
pub(crate) fn delay(us: f64) -> String {
    TimeSpan(Duration::from_nanos((us * 1e3).round().max(0.0) as u64))
        .to_string()
        .replace("us", "µs")
}

/// Returns a row's throughput relative to that without replication.
pub(crate) fn relative(row: &CostRow) -> Estimate {
    Estimate {
        value: row.relative.throughput,
        ci95: [
            row.relative.throughput_ci95.low,
            row.relative.throughput_ci95.high,
        ]
        .into(),
    }
}

/// Returns the mode of a row.
pub(crate) fn label(run: &CostDocument, row: &CostRow) -> String {
    run.results
        .label_of(&row.engine, row.mode.name(), row.wait_point.as_deref())
}

/// Returns the unit that suits all latencies of a run.
pub(crate) fn unit(run: &CostDocument) -> Unit {
    let means = run
        .results
        .rows
        .iter()
        .filter_map(|row| row.latency.mean_us);
    Unit::for_size(means.fold(0.0, f64::max))
}

/// Returns the main table.
fn list(run: &CostDocument) -> Table {
    let time = Format::In(unit(run));
    Table::of(
        1,
        &run.results.rows,
        &[
            ("mode", &|row| Cell::from(label(run, row))),
            ("threads", &|row| row.threads.into()),
            ("link", &|row| distance(row.link_delay_us)),
            ("ops/s, 95 %", &|row| throughput(&row.throughput)),
            ("stdev", &|row| {
                Format::OneIn(10.0).cell(row.throughput.stdev)
            }),
            ("sustained/s, 95 %", &|row| throughput(&row.sustained)),
            ("× none, 95 %", &|row| {
                Format::Ratio.estimate(&relative(row))
            }),
            // Unweighted over starts, as for added latency.
            ("mean", &|row| {
                time.cell(row.latency_mean_us.value.or(row.latency.mean_us))
            }),
            ("stdev", &|row| time.cell(row.latency.stdev_us)),
            ("p50", &|row| time.cell(row.latency.p50_us)),
            ("p95", &|row| time.cell(row.latency.p95_us)),
            ("p99", &|row| time.cell(row.latency.p99_us)),
            ("max", &|row| time.cell(row.latency.max_us)),
            ("added over none, 95 %", &|row| {
                time.estimate(&row.added.latency_us)
            }),
            ("starts", &|row| row.starts.into()),
            ("blocks", &|row| match row.invalid_blocks {
                0 => row.blocks.into(),
                invalid => format!("{} ({} invalid)", count(row.blocks), count(invalid)).into(),
            }),
        ],
    )
}

/// Returns the ratios to `none`.
fn ratios(run: &CostDocument) -> Table {
    let rows = run.results.rows.iter();
    let rows = rows.filter(|row| row.mode != LoggedMode::NONE && row.relative.throughput.is_some());
    let latency = |of: &Estimate| Format::Ratio.estimate(of);
    Table::of(
        1,
        rows,
        &[
            ("mode", &|row| Cell::from(label(run, row))),
            ("threads", &|row| row.threads.into()),
            ("link", &|row| distance(row.link_delay_us)),
            ("ops/s", &|row| Format::Ratio.estimate(&relative(row))),
            ("mean", &|row| latency(&row.relative.latency.mean)),
            ("stdev", &|row| latency(&row.relative.latency.stdev)),
            ("p50", &|row| latency(&row.relative.latency.p50)),
            ("p95", &|row| latency(&row.relative.latency.p95)),
            ("p99", &|row| latency(&row.relative.latency.p99)),
            ("max", &|row| latency(&row.relative.latency.max)),
        ],
    )
}

/// Returns the rows whose rates depend on which blocks count; empty if there are none.
fn selection(run: &CostDocument) -> Table {
    let rows = run.results.rows.iter();
    selected_blocks::table(rows.map(|row| NamedSelection {
        name: format!("{}, {} threads", label(run, row), row.threads),
        selection: &row.selection,
    }))
}

/// Returns the table of steps.
fn steps(run: &CostDocument) -> Table {
    let unit = unit(run);
    let latency = |of: &Estimate| match Format::In(unit).estimate(of) {
        // The title states µs.
        cell if unit == Unit::Micro => cell,
        cell => format!("{} {}", cell.display_text(), unit.symbol()).into(),
    };
    let cpu = |of: &Estimate| Format::In(Unit::Micro).estimate(of);
    Table::of(
        2,
        &run.results.steps,
        &[
            ("mode", &|step| {
                let point = step.wait_point.as_deref();
                Cell::from(run.results.label_of(&step.engine, step.mode.name(), point))
            }),
            ("baseline", &|step| step.baseline.name().into()),
            ("threads", &|step| step.threads.into()),
            ("link", &|step| distance(step.link_delay_us)),
            ("latency", &|step| latency(&step.added.latency_us)),
            ("primary CPU", &|step| cpu(&step.added.primary_cpu_us)),
            ("all CPU", &|step| cpu(&step.added.all_cpu_us)),
            ("× ops/s", &|step| Format::Ratio.estimate(&step.throughput)),
        ],
    )
}

/// Returns the table of resources per operation by server.
fn servers(run: &CostDocument) -> Table {
    let one = Format::Decimals(1);
    let rows = run.results.rows.iter();
    Table::of(
        1,
        rows.flat_map(|row| row.servers.iter().map(move |server| (row, server))),
        &[
            ("mode", &|(row, _)| Cell::from(label(run, row))),
            ("threads", &|(row, _)| row.threads.into()),
            ("link", &|(row, _)| distance(row.link_delay_us)),
            ("server", &|(_, server)| (&server.name).into()),
            ("CPU µs/op", &|(_, server)| one.cell(server.cpu_us_per_op)),
            ("user", &|(_, server)| one.cell(server.cpu_user_us_per_op)),
            ("system", &|(_, server)| {
                one.cell(server.cpu_system_us_per_op)
            }),
            ("switches/op", &|(_, server)| {
                Format::Decimals(2).cell(server.context_switches_per_op)
            }),
            ("written B/op", &|(_, server)| {
                Format::Decimals(0).cell(server.write_bytes_per_op)
            }),
            ("fsyncs/op", &|(_, server)| {
                Format::Decimals(3).cell(server.fsyncs_per_op)
            }),
            (
                "transactions behind at block end (mean, max)",
                &|(row, server)| {
                    let behind = row.behind.iter().find(|behind| behind.name == server.name);
                    behind
                        .map(|of| format!("{:.0}, {}", of.mean, count(of.max)))
                        .into()
                },
            ),
        ],
    )
}

/// The columns of the table published in 2010.
pub(crate) const PUBLISHED_HEADINGS: [&str; 4] =
    ["mode", "tps (stdev)", "latency µs (stdev)", "p95 µs"];

/// Returns experiment 5's table: one thread, inserts, the shortest link of each mode; empty for other runs.
pub(crate) fn published(run: &CostDocument) -> Vec<Vec<String>> {
    if run.settings.workload.as_deref() != Some("insert") || run.results.self_test.is_some() {
        return Vec::new();
    }
    let single = || run.results.rows.iter().filter(|row| row.threads == 1);
    let delay = |row: &CostRow| row.link_delay_us.unwrap_or(0.0);
    let shortest = |row: &&CostRow| {
        let mut same = single().filter(|one| label(run, one) == label(run, row));
        same.all(|one| delay(row) <= delay(one))
    };
    let rows = single().filter(shortest);
    let line = |row: &CostRow| {
        let show = |value| Format::Decimals(2).text(value);
        let (per_s, latency) = (&row.throughput, &row.latency);
        vec![
            label(run, row),
            format!("{} ({})", show(per_s.mean), show(per_s.stdev)),
            format!("{} ({})", show(latency.mean_us), show(latency.stdev_us)),
            show(latency.p95_us),
        ]
    };
    rows.map(line).collect()
}

/// Returns a self-test's comparisons.
fn comparisons(run: &CostDocument) -> Table {
    let all = run
        .results
        .self_test
        .iter()
        .flat_map(|test| &test.comparisons);
    let latency = Format::In(Unit::Micro);
    Table::of(
        0,
        (1u32..).zip(all),
        &[
            ("comparison", &|(number, _)| Cell::from(*number)),
            ("ops/s ratio, 95 %", &|(_, of)| {
                Format::Ratio.estimate(&of.throughput)
            }),
            ("latency difference µs, 95 %", &|(_, of)| {
                latency.estimate(&of.latency_us)
            }),
            ("differs", &|(_, of)| {
                if of.differs { "yes" } else { "no" }.into()
            }),
        ],
    )
}

/// Returns the report of a run.
#[must_use]
pub(crate) fn report(run: &CostDocument) -> Report {
    let operations = run.results.rows.iter().map(|row| row.operations).sum();
    let question = match run.results.self_test {
        Some(_) => "Self-test: a mode compared with itself",
        None => "Cost of each replication mode",
    };
    let mut report = Report::of(run, question, format!("{} operations", count(operations)));
    report.several = true;
    let durability = run.settings.durability.unwrap_or_default();
    report.facts.extend(run.settings.workload.clone());
    report
        .facts
        .push(format!("durability {}", durability.name()));
    report.add(Block::list("prices", "Summary", sentences(run)));
    let list_title = format!("Cost of each mode (latencies in {})", unit(run).symbol());
    for (id, title, table) in [
        ("comparisons", "Self-test comparisons", comparisons(run)),
        ("price-list", list_title.as_str(), list(run)),
        ("ratios", "Relative to none, same binary", ratios(run)),
        ("steps", "Added by each step (µs per operation)", steps(run)),
        ("selection", SELECTION_TITLE, selection(run)),
        ("servers", "Resources per operation by server", servers(run)),
    ] {
        report.add(Block::table(id, title, table));
    }
    report.how = how(run);
    report.with_servers(&run.target)
}

#[cfg(test)]
pub(crate) fn example() -> CostDocument {
    use replimeter_instruments::cost::{
        results::{AddedLatency, CostResults, CostStep, RelativeFigure, ReplicaBehind},
        settings::CostSettings,
    };
    use replimeter_model::{
        load::Rate,
        record::{ClientRecord, Distribution},
        replication::Mode,
        resources::PerOperation,
    };
    let estimate = |value: f64, half: f64| Estimate {
        value: Some(value),
        ci95: [Some(value - half), Some(value + half)].into(),
    };
    let row = |mode: LoggedMode, threads: u32, us: f64| CostRow {
        engine: "mariadb".to_owned(),
        mode,
        wait_point: mode
            .mode
            .waits_for_receipt()
            .then(|| "after-sync".to_owned()),
        threads,
        starts: 5,
        blocks: 30,
        throughput: Rate {
            mean: Some(1e6 / us),
            stdev: Some(969.24),
            ci95: [Some(1e6 / us - 120.0), Some(1e6 / us + 120.0)].into(),
        },
        latency: Distribution {
            count: 9,
            mean_us: Some(us),
            stdev_us: Some(2904.26),
            p95_us: Some(us * 0.9),
            ..Distribution::default()
        },
        relative: RelativeFigure {
            baseline: "none".to_owned(),
            throughput: Some(134.0 / us),
            throughput_ci95: [Some(134.0 / us - 0.02), Some(134.0 / us + 0.02)].into(),
            ..RelativeFigure::default()
        },
        added: AddedLatency {
            latency_us: if mode == LoggedMode::NONE {
                Estimate::default()
            } else {
                estimate(us - 134.0, 16.5)
            },
            primary_cpu_us: if mode == LoggedMode::NONE {
                Estimate::default()
            } else {
                estimate((us - 134.0) / 5.6, 4.0)
            },
            all_cpu_us: Estimate::default(),
        },
        servers: vec![PerOperation {
            name: "primary".to_owned(),
            cpu_us_per_op: Some(41.25),
            ..PerOperation::default()
        }],
        behind: vec![ReplicaBehind {
            name: "replica1".to_owned(),
            blocks: 30,
            mean: 3.2,
            max: 40,
        }],
        ..CostRow::default()
    };
    CostDocument {
        client: ClientRecord {
            cores: 2,
            ..ClientRecord::default()
        },
        settings: CostSettings {
            workload: Some("insert".to_owned()),
            starts: Some(5),
            seed: Some(1),
            ..CostSettings::default()
        },
        results: CostResults {
            rows: vec![
                row(LoggedMode::NONE, 1, 134.0),
                row(LoggedMode::of(Mode::Async), 1, 140.0),
                row(LoggedMode::of(Mode::SemiSync), 1, 348.0),
                row(LoggedMode::of(Mode::SemiSync), 8, 500.0),
            ],
            steps: vec![CostStep {
                engine: "mariadb".to_owned(),
                mode: LoggedMode::of(Mode::SemiSync),
                baseline: LoggedMode::of(Mode::Async),
                threads: 1,
                throughput: estimate(0.4, 0.02),
                added: AddedLatency {
                    latency_us: estimate(208.0, 12.0),
                    ..AddedLatency::default()
                },
                ..CostStep::default()
            }],
            ..CostResults::default()
        },
        ..CostDocument::default()
    }
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::cost::results::{CostResults, SelfComparison, SelfTest};

    use super::*;

    #[test]
    fn cost_sentences_can_be_quoted() {
        let run = example();
        let sentences = sentences(&run);
        assert_eq!(
            sentences[1],
            "semi-sync after-sync at 1 thread adds 210 µs [197, 231] to an insert and 38 µs [34.2, 42.3] of primary CPU; throughput is 0.385 [0.365, 0.406] × none."
        );
        assert!(
            sentences[0].contains(
                "async at 1 thread adds no significant latency to an insert (6 µs [-11, 23])"
            ),
            "{}",
            sentences[0]
        );
        let answer = answer(&run);
        assert!(
            answer.contains("semi-sync after-sync adds 210 µs") && !answer.contains("8 threads"),
            "{answer}"
        );
    }

    #[test]
    fn ratios_are_rounded_to_their_interval() {
        let shown = |value, low, high| Format::Ratio.show(value, Some([low, high]));
        assert_eq!(shown(0.3194, 0.3011, 0.3402), "0.319 [0.301, 0.341]");
        assert_eq!(shown(3.2, 2.4, 4.1), "3.20 [2.40, 4.10]");
        assert_eq!(shown(1.0, 1.0, 1.0), "1.0000 [1.0000, 1.0000]");
        assert_eq!(Format::Ratio.text(Some(0.456)), "0.46");
    }

    #[test]
    fn text_has_every_table_and_fits_wide_terminal() {
        let text = replimeter_render::terminal::render(&report(&example()));
        for wanted in [
            "Cost of each mode",
            "Added by each step",
            "Summary",
            "2 cores",
        ] {
            assert!(text.contains(wanted), "`{wanted}` is missing in {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 180),
            "{text}"
        );
    }

    #[test]
    fn self_test_states_its_error_rate() {
        let comparison = |differs| SelfComparison {
            throughput: Estimate {
                value: Some(1.01),
                ci95: [Some(0.97), Some(1.05)].into(),
            },
            differs,
            ..SelfComparison::default()
        };
        let test = SelfTest {
            engine: "mariadb".to_owned(),
            mode: "none".to_owned(),
            threads: 1,
            starts: 4,
            comparisons: (0..20).map(|number| comparison(number == 0)).collect(),
            differences: 1,
            expected: 0.05,
            share_ci95: [0.001, 0.249],
            p_value: 0.642,
            significant: false,
        };
        let mut run = CostDocument {
            results: CostResults {
                self_test: Some(test),
                ..CostResults::default()
            },
            ..CostDocument::default()
        };
        run.headline = answer(&run);
        let text = replimeter_render::terminal::render(&report(&run));
        // Independent of line breaks.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("not significantly more than the 5 %")
                && words.contains("1.010 [0.970, 1.050]"),
            "{text}"
        );
    }
}
