//! The report of a `scale` run.

mod words;

use replimeter_instruments::scale::{
    results::{ScaleDocument, ScaleFit, ScaleRow, ScaleServer},
    settings::ScalePhase,
};
use replimeter_model::resources::PerOperation;

pub(crate) use self::words::answer;
use self::words::{estimate, laws, sentences};
use crate::selected_blocks::{self, NamedSelection, SELECTION_TITLE};
use replimeter_render::{
    figures::count,
    format::Format,
    report::{Block, Cell, Report, Table},
};

/// A figure of a row with its interval.
pub(crate) type FigureOf = fn(&ScaleRow) -> (Option<f64>, Option<[f64; 2]>);
/// A figure of a server.
type ServerFigureOf = fn(&ScaleServer) -> Option<f64>;

pub(crate) const INSERTS: FigureOf = |row| (row.inserts_per_s, row.inserts_per_s_ci95);
pub(crate) const SELECTS: FigureOf = |row| (row.selects_per_s, row.selects_per_s_ci95);
pub(crate) const UPDATES: FigureOf = |row| (row.updates_per_s, row.updates_per_s_ci95);
pub(crate) const SUSTAINED: FigureOf =
    |row| (row.sustained_writes_per_s, row.sustained_writes_per_s_ci95);
pub(crate) const INSERTS_OF_NONE: FigureOf = |row| {
    (
        row.percent_of_none.inserts,
        row.percent_of_none.inserts_ci95,
    )
};
pub(crate) const SELECTS_OF_NONE: FigureOf = |row| {
    (
        row.percent_of_none.selects,
        row.percent_of_none.selects_ci95,
    )
};
const UPDATES_OF_NONE: FigureOf = |row| {
    (
        row.percent_of_none.updates,
        row.percent_of_none.updates_ci95,
    )
};

/// Returns the measured numbers of replicas.
pub(crate) fn counts(run: &ScaleDocument) -> Vec<u32> {
    let mut counts: Vec<u32> = run.results.rows.iter().map(|row| row.replicas).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Returns the row of a phase.
pub(crate) fn row(run: &ScaleDocument, replicas: u32, phase: ScalePhase) -> Option<&ScaleRow> {
    let mut rows = run.results.rows.iter();
    rows.find(|row| row.replicas == replicas && row.phase == phase.name())
}

/// Returns a figure of a phase.
fn cell(
    run: &ScaleDocument,
    replicas: u32,
    phase: ScalePhase,
    pick: FigureOf,
    format: Format,
) -> Cell {
    let (value, ends) = row(run, replicas, phase).map_or((None, None), pick);
    format.with_interval_ends(value, ends)
}

/// Returns the published table.
fn figures(run: &ScaleDocument) -> Table {
    use ScalePhase::{Insert, Mixed, Select};
    let per_s = |replicas, phase, pick| cell(run, replicas, phase, pick, Format::Rate);
    // Resources of servers of a role in the mixed phase.
    let spent = |replicas, role: &str, pick: ServerFigureOf, format| {
        let servers = row(run, replicas, Mixed).map_or(&[][..], |row| &row.servers[..]);
        let of_role = servers
            .iter()
            .filter(|server| server.per_operation.role == role);
        Cell::several(of_role.filter_map(pick).collect(), format)
    };
    let cpu: ServerFigureOf = |server| server.cpu_percent;
    let written: ServerFigureOf = |server| server.write_bytes_per_s;
    Table::of(
        1,
        counts(run),
        &[
            ("replicas", &|&of| Cell::from(of)),
            ("insert alone/s", &|&of| per_s(of, Insert, INSERTS)),
            ("select alone/s", &|&of| per_s(of, Select, SELECTS)),
            ("insert while selecting/s", &|&of| per_s(of, Mixed, INSERTS)),
            ("select while inserting/s", &|&of| per_s(of, Mixed, SELECTS)),
            ("primary CPU", &|&of| {
                spent(of, "primary", cpu, Format::Percent)
            }),
            ("replica CPU", &|&of| {
                spent(of, "replica", cpu, Format::Percent)
            }),
            ("primary writes", &|&of| {
                spent(of, "primary", written, Format::BytesPerSecond)
            }),
            ("replicas write", &|&of| {
                spent(of, "replica", written, Format::BytesPerSecond)
            }),
            ("insert alone, sustained/s", &|&of| {
                per_s(of, Insert, SUSTAINED)
            }),
            ("insert while selecting, sustained/s", &|&of| {
                per_s(of, Mixed, SUSTAINED)
            }),
        ],
    )
}

/// Returns the rows whose rates depend on which blocks count; empty if there are none.
fn selection(run: &ScaleDocument) -> Table {
    let rows = run.results.rows.iter();
    selected_blocks::table(rows.map(|row| NamedSelection {
        name: format!("{}, {} replicas", row.phase, row.replicas),
        selection: &row.selection,
    }))
}

/// Returns the same for updates; empty if they were not measured.
fn updates(run: &ScaleDocument) -> Table {
    use ScalePhase::{MixedUpdate, Update};
    let per_s = |replicas, phase, pick| cell(run, replicas, phase, pick, Format::Rate);
    let of_none = |replicas, phase, pick| cell(run, replicas, phase, pick, Format::PercentOfNone);
    let counts = counts(run).into_iter();
    Table::of(
        1,
        counts.filter(|replicas| row(run, *replicas, Update).is_some()),
        &[
            ("replicas", &|&of| Cell::from(of)),
            ("update alone/s", &|&of| per_s(of, Update, UPDATES)),
            ("% of none", &|&of| of_none(of, Update, UPDATES_OF_NONE)),
            ("update while selecting/s", &|&of| {
                per_s(of, MixedUpdate, UPDATES)
            }),
            ("% of none", &|&of| {
                of_none(of, MixedUpdate, UPDATES_OF_NONE)
            }),
            ("select while updating/s", &|&of| {
                per_s(of, MixedUpdate, SELECTS)
            }),
            ("% of none", &|&of| {
                of_none(of, MixedUpdate, SELECTS_OF_NONE)
            }),
        ],
    )
}

/// Returns percentages of the figures without a replica.
fn percent(run: &ScaleDocument) -> Table {
    use ScalePhase::{Insert, Mixed, Select};
    let of_none = |replicas, phase, pick| cell(run, replicas, phase, pick, Format::PercentOfNone);
    Table::of(
        1,
        counts(run),
        &[
            ("replicas", &|&of| Cell::from(of)),
            ("insert alone", &|&of| of_none(of, Insert, INSERTS_OF_NONE)),
            ("select alone", &|&of| of_none(of, Select, SELECTS_OF_NONE)),
            ("insert while selecting", &|&of| {
                of_none(of, Mixed, INSERTS_OF_NONE)
            }),
            ("select while inserting", &|&of| {
                of_none(of, Mixed, SELECTS_OF_NONE)
            }),
        ],
    )
}

/// Returns the resources of each server, phase by phase.
fn servers(run: &ScaleDocument) -> Table {
    let rows = run.results.rows.iter();
    let rough = |per_s| Format::OneIn(30.0).cell(per_s);
    Table::of(
        3,
        rows.flat_map(|row| {
            row.servers
                .iter()
                .map(move |of| (row, of, &of.per_operation))
        }),
        &[
            ("replicas", &|(row, ..)| Cell::from(row.replicas)),
            ("phase", &|(row, ..)| (&row.phase).into()),
            ("server", &|(.., per)| (&per.name).into()),
            ("CPU", &|(_, of, _)| Format::Percent.cell(of.cpu_percent)),
            ("in kernel", &|(_, of, _)| {
                Format::Percent.cell(of.cpu_system_percent)
            }),
            ("CPU µs/op", &|(.., per)| rough(per.cpu_us_per_op)),
            ("switches/op", &|(.., per)| {
                Format::Decimals(2).cell(per.context_switches_per_op)
            }),
            ("read/s", &|(_, of, _)| {
                Format::Bytes.cell(of.read_bytes_per_s)
            }),
            ("written/s", &|(_, of, _)| {
                Format::Bytes.cell(of.write_bytes_per_s)
            }),
            ("written/op", &|(.., per)| {
                Format::Bytes.cell(per.write_bytes_per_op)
            }),
            ("fsync/s", &|(_, of, _)| rough(of.fsyncs_per_s)),
            ("selects/s", &|(_, of, _)| rough(of.selects_per_s)),
        ],
    )
}

/// Returns the processor time of each request by who spent it, for a run through a site; empty for others.
fn requests(run: &ScaleDocument) -> Table {
    let rows = run.results.rows.iter();
    let cores = f64::from(u32::try_from(run.client.cores).unwrap_or(u32::MAX));
    let per_s = |row: &ScaleRow| {
        let kinds = [row.inserts_per_s, row.selects_per_s];
        kinds.iter().flatten().sum::<f64>()
    };
    // Percent of a core are 10,000 µs in each second.
    let driver = move |row: &ScaleRow| {
        let rate = per_s(row);
        (rate > 0.0).then(|| row.client_cpu_percent * 1e4 / rate)
    };
    let of_roles = |row: &ScaleRow, roles: &[&str]| {
        PerOperation::cpu_of_roles(
            row.servers.iter().map(|server| &server.per_operation),
            roles,
        )
    };
    let all = move |row: &ScaleRow| {
        let servers = row.servers.iter();
        let servers = servers.map(|server| server.per_operation.cpu_us_per_op);
        Some(servers.sum::<Option<f64>>()? + driver(row)?)
    };
    let rough = |us: Option<f64>| Format::OneIn(100.0).cell(us);
    Table::of(
        2,
        rows.filter(|row| of_roles(row, &["front"]).is_some_and(|us| us > 0.0)),
        &[
            ("replicas", &|row| Cell::from(row.replicas)),
            ("phase", &|row| (&row.phase).into()),
            ("driver", &|row| rough(driver(row))),
            ("balancer", &|row| rough(of_roles(row, &["balancer"]))),
            ("fronts", &|row| rough(of_roles(row, &["front"]))),
            ("servers", &|row| {
                rough(of_roles(row, &["primary", "replica"]))
            }),
            ("all", &|row| rough(all(row))),
            ("of the cores' time", &|row| {
                let used = all(row).map(|us| us * per_s(row) / 1e4 / cores);
                Format::Percent.cell(used)
            }),
        ],
    )
}

/// Returns the number of replicas at which throughput peaks.
fn stops(fit: &ScaleFit) -> Cell {
    let Some(at) = &fit.peak_replicas else {
        return Cell::NONE;
    };
    let end =
        |end: Option<f64>| end.map_or_else(|| "no bound".to_owned(), |count| count.to_string());
    let value = at
        .value
        .map_or_else(|| "none".to_owned(), |value| value.to_string());
    format!("{value} [{}, {}]", end(at.ci95.low), end(at.ci95.high)).into()
}

/// Returns the laws, one per line.
fn fits(run: &ScaleDocument) -> Table {
    Table::of(
        2,
        run.results.fits.iter().filter(|fit| fit.refused.is_none()),
        &[
            ("phase", &|fit| Cell::from(&fit.phase)),
            ("of", &|fit| (&fit.figure).into()),
            ("λ (/s of one)", &|fit| {
                estimate(&fit.lambda, Format::OneIn(100.0)).into()
            }),
            ("σ", &|fit| {
                estimate(&fit.sigma, Format::Decimals(3)).into()
            }),
            ("κ", &|fit| {
                estimate(&fit.kappa, Format::Decimals(3)).into()
            }),
            ("fit error", &|fit| {
                format!("{:.1} %", fit.error_percent).into()
            }),
            ("peak replicas", &|fit| stops(fit)),
        ],
    )
}

/// Returns the report of a run.
#[must_use]
pub(crate) fn report(run: &ScaleDocument) -> Report {
    let blocks = run.results.rows.iter().map(|row| u64::from(row.blocks));
    let mut report = Report::of(
        run,
        "Read and write throughput by number of replicas",
        format!("{} blocks", count(blocks.sum())),
    );
    for (id, title, table) in [
        (
            "figures",
            "Throughput by replicas; CPU time and bytes written while both run",
            figures(run),
        ),
        ("updates", "Updates", updates(run)),
        ("of-none", "Percent of no replica", percent(run)),
        ("selection", SELECTION_TITLE, selection(run)),
        ("servers", "Resources of each server", servers(run)),
        (
            "requests",
            "Processor time per request in µs, until every replica has applied it",
            requests(run),
        ),
        ("fit", "Scaling law", fits(run)),
    ] {
        report.add(Block::table(id, title, table));
    }
    report.add(Block::list(
        "fit-and-figures",
        "Fitted law and measurements",
        laws(run),
    ));
    report.how = sentences(run);
    report.with_servers(&run.target)
}

#[cfg(test)]
pub(crate) mod tests {
    use replimeter_instruments::scale::{
        results::{LawPoint, PercentOfNone, Prediction, Residual, ScaleResults},
        settings::ScaleSettings,
    };
    use replimeter_model::{
        estimate::Estimate,
        plan::PlanFile,
        record::{ClientRecord, TargetRecord},
    };

    use super::*;

    fn server(name: &str, cpu: f64) -> ScaleServer {
        let role = if name == "primary" {
            "primary"
        } else {
            "replica"
        };
        ScaleServer {
            per_operation: PerOperation {
                name: name.to_owned(),
                role: role.to_owned(),
                cpu_us_per_op: Some(cpu * 3.0),
                ..PerOperation::default()
            },
            cpu_percent: Some(cpu),
            write_bytes_per_s: Some(18e6),
            ..ScaleServer::default()
        }
    }

    fn of(
        replicas: u32,
        phase: ScalePhase,
        inserts: Option<f64>,
        selects: Option<f64>,
    ) -> ScaleRow {
        let mut servers = vec![server("primary", 50.0)];
        servers.extend((1..=replicas).map(|index| server(&format!("replica{index}"), 90.0)));
        ScaleRow {
            replicas,
            phase: phase.name().to_owned(),
            inserts_per_s: inserts,
            inserts_per_s_ci95: inserts.map(|value| [value * 0.97, value * 1.03]),
            selects_per_s: selects,
            percent_of_none: PercentOfNone {
                inserts: inserts.map(|value| value / 19.08),
                inserts_ci95: inserts.map(|value| [value / 19.5, value / 18.5]),
                ..PercentOfNone::default()
            },
            servers,
            ..ScaleRow::default()
        }
    }

    /// Returns a document with the published figures.
    pub(crate) fn example() -> ScaleDocument {
        let plan = PlanFile::<ScaleSettings>::default().plan().unwrap();
        ScaleDocument {
            target: TargetRecord {
                shape: "async:0..2".to_owned(),
                ..TargetRecord::default()
            },
            settings: plan.settings,
            client: ClientRecord {
                cores: 2,
                ..ClientRecord::default()
            },
            results: ScaleResults {
                order: vec![vec![1, 0, 2], vec![0, 2, 1]],
                data_rows: 1000,
                data_bytes: 300_000_000,
                rows: vec![
                    of(0, ScalePhase::Insert, Some(1908.0), None),
                    of(0, ScalePhase::Mixed, Some(458.0), Some(68.6)),
                    of(1, ScalePhase::Insert, Some(925.0), None),
                    of(1, ScalePhase::Mixed, Some(795.0), Some(69.3)),
                    of(2, ScalePhase::Mixed, Some(635.6), Some(130.2)),
                ],
                fits: vec![
                    ScaleFit {
                        phase: "select".to_owned(),
                        figure: "selects".to_owned(),
                        peak_replicas: Some(Estimate {
                            value: Some(4.0),
                            ci95: [Some(3.0), None].into(),
                        }),
                        residuals: vec![Residual {
                            replicas: 1,
                            percent: -1.5,
                            ..Residual::default()
                        }],
                        curve: vec![LawPoint {
                            replicas: 1,
                            per_s: 70.0,
                        }],
                        prediction: Some(Prediction {
                            replicas: 3,
                            predicted: Estimate {
                                value: Some(180.0),
                                ci95: [Some(160.0), Some(200.0)].into(),
                            },
                            measured_per_s: Some(150.0),
                            measured_per_s_ci95: None,
                            holds: Some(false),
                        }),
                        ..ScaleFit::default()
                    },
                    ScaleFit {
                        phase: "insert".to_owned(),
                        figure: "inserts".to_owned(),
                        refused: Some(
                            "3 numbers of replicas were measured, and 5 are needed".to_owned(),
                        ),
                        ..ScaleFit::default()
                    },
                ],
                ..ScaleResults::default()
            },
            ..ScaleDocument::default()
        }
    }

    #[test]
    fn published_figures_print_as_published() {
        let run = example();
        let lines: Vec<Vec<String>> = figures(&run).shown().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1][3].starts_with("795 [")
                && lines[1][5] == "50 %"
                && lines[2][6] == "90 %, 90 %",
            "{lines:?}"
        );
        let answer = answer(&run);
        assert!(
            answer.contains("1,908 with none, 925.0 (48 % [47, 50]) with 1"),
            "{answer}"
        );
        assert!(
            answer.contains("peaks at 4 replicas [3, no bound]"),
            "{answer}"
        );
    }

    #[test]
    fn missing_value_is_a_dash_and_missing_fit_has_reason() {
        let run = example();
        assert_eq!(figures(&run).rows[2][1], Cell::NONE);
        let text = replimeter_render::terminal::render(&report(&run));
        assert!(
            text.contains("no law is fitted: 3 numbers") && text.contains("OUTSIDE"),
            "{text}"
        );
        assert!(text.contains("share the 2 cores"), "{text}");
        let nothing = ScaleDocument::default();
        assert!(super::answer(&nothing).contains("No block"));
    }
}
