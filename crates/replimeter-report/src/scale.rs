//! What a `scale` run tells people.

use std::fmt::Write as _;

use replimeter_model::{
    estimate::Estimate,
    plan::ScalePhase,
    scale::{ScaleDocument, ScaleFit, ScaleRow, ScaleServer},
};

use crate::{
    answer::with_ending,
    figures::{count, rate, time},
    terminal::{aligned, how_measured, paragraphs, plain_table, warnings, wrapped},
};

/// The author's columns.
pub(crate) const HEADINGS: [&str; 9] = [
    "replicas",
    "insert alone/s",
    "select alone/s",
    "insert while selecting/s",
    "select while inserting/s",
    "primary CPU",
    "replica CPU",
    "primary writes",
    "replicas write",
];

/// The columns for updates.
pub(crate) const UPDATE_HEADINGS: [&str; 7] = [
    "replicas",
    "update alone/s",
    "% of none",
    "update while selecting/s",
    "% of none",
    "select while updating/s",
    "% of none",
];

/// The columns of percent.
pub(crate) const PERCENT_HEADINGS: [&str; 5] = [
    "replicas",
    "insert alone",
    "select alone",
    "insert while selecting",
    "select while inserting",
];

/// The columns of servers.
pub(crate) const SERVER_HEADINGS: [&str; 12] = [
    "replicas",
    "phase",
    "server",
    "CPU",
    "in kernel",
    "CPU µs/op",
    "switches/op",
    "read/s",
    "written/s",
    "written/op",
    "fsync/s",
    "selects/s",
];

/// The columns of laws.
pub(crate) const LAW_HEADINGS: [&str; 7] = [
    "phase",
    "of",
    "λ (/s of one)",
    "σ",
    "κ",
    "off by",
    "one more stops paying at",
];

/// A value with its interval, no finer than the interval supports.
pub(crate) fn interval(value: Option<f64>, ends: Option<[f64; 2]>) -> String {
    match (value, ends) {
        (Some(value), Some([low, high])) => {
            let half = ((high - low) / 2.0).max(value.abs() * 1e-4);
            format!(
                "{} [{}, {}]",
                rate(value, half),
                rate(low, half),
                rate(high, half)
            )
        }
        (Some(value), None) => format!("about {}", rate(value, value.abs() / 10.0)),
        (None, _) => "–".to_owned(),
    }
}

fn percent(value: Option<f64>, ends: Option<[f64; 2]>) -> String {
    match (value, ends) {
        // Few starts: an end of 67,688,704 % is arithmetic, not knowledge.
        (Some(value), Some([low, high])) if low * 10.0 < value || high > value * 10.0 => {
            format!("share unknown: {value:.0} %, but not known to a factor of ten")
        }
        (Some(value), Some([low, high])) => {
            format!("{value:.0} % [{:.0}, {:.0}]", low.floor(), high.ceil())
        }
        // Itself.
        (Some(100.0), None) => "100 %".to_owned(),
        (Some(value), None) => format!("about {value:.0} %"),
        (None, _) => "–".to_owned(),
    }
}

/// Bytes in the unit that suits them.
pub(crate) fn bytes(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{:.1} GB", value / 1e9),
        size if size >= 1e6 => format!("{:.1} MB", value / 1e6),
        size if size >= 1e3 => format!("{:.1} kB", value / 1e3),
        _ => format!("{value:.0} B"),
    }
}

fn maybe(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

/// Numbers of replicas that were measured.
fn counts(document: &ScaleDocument) -> Vec<u32> {
    let mut counts: Vec<u32> = document.results.iter().map(|row| row.replicas).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The row of a phase.
pub(crate) fn row(document: &ScaleDocument, replicas: u32, phase: ScalePhase) -> Option<&ScaleRow> {
    document
        .results
        .iter()
        .find(|row| row.replicas == replicas && row.phase == phase.name())
}

fn primary(row: &ScaleRow) -> Option<&ScaleServer> {
    row.servers
        .iter()
        .find(|server| server.per_operation.role == "primary")
}

fn replicas(row: &ScaleRow) -> impl Iterator<Item = &ScaleServer> {
    row.servers
        .iter()
        .filter(|server| server.per_operation.role == "replica")
}

/// One cell for several servers: their figures side by side, or from the smallest to
/// the largest of many.
fn several(values: Vec<f64>, show: impl Fn(f64) -> String) -> String {
    match values.len() {
        0 => "–".to_owned(),
        1..=3 => values
            .iter()
            .map(|value| show(*value))
            .collect::<Vec<_>>()
            .join(", "),
        _ => {
            let ends = values
                .iter()
                .fold([f64::MAX, f64::MIN], |[low, high], value| {
                    [low.min(*value), high.max(*value)]
                });
            format!("{} to {}", show(ends[0]), show(ends[1]))
        }
    }
}

fn whole_percent(value: f64) -> String {
    format!("{value:.0} %")
}

/// The author's table.
pub(crate) fn lines(document: &ScaleDocument) -> Vec<Vec<String>> {
    let of = |replicas: u32| {
        let row = |phase| row(document, replicas, phase);
        let (insert, select, mixed) = (
            row(ScalePhase::Insert),
            row(ScalePhase::Select),
            row(ScalePhase::Mixed),
        );
        let inserts = |row: Option<&ScaleRow>| {
            row.map_or_else(
                || "–".to_owned(),
                |row| interval(row.inserts_per_s, row.inserts_ci),
            )
        };
        let selects = |row: Option<&ScaleRow>| {
            row.map_or_else(
                || "–".to_owned(),
                |row| interval(row.selects_per_s, row.selects_ci),
            )
        };
        let of_replicas = |pick: fn(&ScaleServer) -> Option<f64>| {
            mixed
                .map(|row| self::replicas(row).filter_map(pick).collect::<Vec<_>>())
                .unwrap_or_default()
        };
        let of_primary =
            |pick: fn(&ScaleServer) -> Option<f64>| mixed.and_then(primary).and_then(pick);
        vec![
            replicas.to_string(),
            inserts(insert),
            selects(select),
            inserts(mixed),
            selects(mixed),
            maybe(of_primary(|server| server.cpu_percent), whole_percent),
            several(of_replicas(|server| server.cpu_percent), whole_percent),
            maybe(of_primary(|server| server.write_bytes_per_s), |value| {
                format!("{}/s", bytes(value))
            }),
            several(of_replicas(|server| server.write_bytes_per_s), |value| {
                format!("{}/s", bytes(value))
            }),
        ]
    };
    counts(document).into_iter().map(of).collect()
}

/// The same for updates; none when they were not measured.
pub(crate) fn update_lines(document: &ScaleDocument) -> Vec<Vec<String>> {
    let of = |replicas: u32| {
        let alone = row(document, replicas, ScalePhase::Update)?;
        let mixed = row(document, replicas, ScalePhase::MixedUpdate);
        let of_none = |row: Option<&ScaleRow>, select: bool| {
            let of = row.map(|row| row.percent_of_none);
            of.map_or_else(
                || "–".to_owned(),
                |of| {
                    if select {
                        percent(of.selects, of.selects_ci)
                    } else {
                        percent(of.updates, of.updates_ci)
                    }
                },
            )
        };
        Some(vec![
            replicas.to_string(),
            interval(alone.updates_per_s, alone.updates_ci),
            of_none(Some(alone), false),
            mixed.map_or_else(
                || "–".to_owned(),
                |row| interval(row.updates_per_s, row.updates_ci),
            ),
            of_none(mixed, false),
            mixed.map_or_else(
                || "–".to_owned(),
                |row| interval(row.selects_per_s, row.selects_ci),
            ),
            of_none(mixed, true),
        ])
    };
    counts(document).into_iter().filter_map(of).collect()
}

/// Percent of the figures without a replica.
pub(crate) fn percent_lines(document: &ScaleDocument) -> Vec<Vec<String>> {
    let of = |replicas: u32| {
        let row = |phase| row(document, replicas, phase).map(|row| row.percent_of_none);
        let inserts = |phase| {
            row(phase).map_or_else(|| "–".to_owned(), |of| percent(of.inserts, of.inserts_ci))
        };
        let selects = |phase| {
            row(phase).map_or_else(|| "–".to_owned(), |of| percent(of.selects, of.selects_ci))
        };
        vec![
            replicas.to_string(),
            inserts(ScalePhase::Insert),
            selects(ScalePhase::Select),
            inserts(ScalePhase::Mixed),
            selects(ScalePhase::Mixed),
        ]
    };
    counts(document).into_iter().map(of).collect()
}

/// What each server spent, phase by phase.
pub(crate) fn server_lines(document: &ScaleDocument) -> Vec<Vec<String>> {
    let of = |row: &ScaleRow| {
        let lines = row.servers.iter().map(|server| {
            let per = &server.per_operation;
            vec![
                row.replicas.to_string(),
                row.phase.clone(),
                per.name.clone(),
                maybe(server.cpu_percent, whole_percent),
                maybe(server.cpu_system_percent, whole_percent),
                maybe(per.cpu_us_per_op, |us| rate(us, us / 30.0)),
                maybe(per.context_switches_per_op, |value| format!("{value:.2}")),
                maybe(server.read_bytes_per_s, bytes),
                maybe(server.write_bytes_per_s, bytes),
                maybe(per.write_bytes_per_op, bytes),
                maybe(server.fsyncs_per_s, |value| rate(value, value / 30.0)),
                maybe(server.selects_per_s, |value| rate(value, value / 30.0)),
            ]
        });
        lines.collect::<Vec<_>>()
    };
    document.results.iter().flat_map(of).collect()
}

fn estimate(of: &Estimate, show: impl Fn(f64) -> String) -> String {
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), &show);
    match of.value {
        Some(value) => format!("{} [{}, {}]", show(value), end(of.low), end(of.high)),
        None => "–".to_owned(),
    }
}

fn small(value: f64) -> String {
    format!("{value:.3}")
}

/// Where one more replica stops paying, in words.
fn stops(fit: &ScaleFit) -> String {
    let Some(at) = &fit.stops_paying else {
        return "–".to_owned();
    };
    let end = |end: Option<f64>| end.map_or_else(|| "no end".to_owned(), |count| count.to_string());
    let range = format!("[{}, {}]", end(at.low), end(at.high));
    match at.value {
        Some(value) => format!("{value} {}", range),
        None => format!("none {range}"),
    }
}

/// Laws, a line each.
pub(crate) fn law_lines(document: &ScaleDocument) -> Vec<Vec<String>> {
    let fitted = document.fits.iter().filter(|fit| fit.refused.is_none());
    let line = |fit: &ScaleFit| {
        vec![
            fit.phase.clone(),
            fit.figure.clone(),
            estimate(&fit.lambda, |value| rate(value, value / 100.0)),
            estimate(&fit.sigma, small),
            estimate(&fit.kappa, small),
            format!("{:.1} %", fit.error_percent),
            stops(fit),
        ]
    };
    fitted.map(line).collect()
}

/// The residuals and the prediction of each law, in sentences.
pub(crate) fn law_sentences(document: &ScaleDocument) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut refusals: Vec<&str> = document
        .fits
        .iter()
        .filter_map(|fit| fit.refused.as_deref())
        .collect();
    refusals.dedup();
    if let ([reason], true) = (
        refusals.as_slice(),
        document.fits.iter().all(|fit| fit.refused.is_some()),
    ) {
        return vec![format!("No law is fitted: {reason}.")];
    }
    for fit in &document.fits {
        let name = format!("{} ({})", fit.figure, fit.phase);
        if let Some(reason) = &fit.refused {
            sentences.push(format!("{name}: no law is fitted: {reason}."));
            continue;
        }
        let residuals: Vec<String> = fit
            .residuals
            .iter()
            .map(|one| format!("{}: {:+.1} %", one.replicas, one.percent))
            .collect();
        sentences.push(format!(
            "{name}: each start's distance from the law, by replicas: {}.",
            residuals.join(", ")
        ));
        if let Some(prediction) = &fit.prediction {
            if prediction.predicted.value.is_none() {
                sentences.push(format!(
                    "{name}: of {} the law says nothing: the starts lie too far from it.",
                    plural(prediction.replicas)
                ));
                continue;
            }
            let predicted = estimate(&prediction.predicted, |value| rate(value, value / 100.0));
            let with = plural(prediction.replicas);
            sentences.push(match (prediction.measured_per_s, prediction.holds) {
                (Some(measured), Some(holds)) => format!(
                    "{name}: for {with} the law predicts {predicted}/s; {}/s were measured, which is {} what it predicts.",
                    interval(Some(measured), prediction.measured_ci),
                    if holds { "within" } else { "OUTSIDE" }
                ),
                _ => format!("{name}: for {with} the law predicts {predicted}/s; --check-prediction measures it."),
            });
        }
    }
    sentences
}

fn plural(replicas: u32) -> String {
    if replicas == 1 {
        "1 replica".to_owned()
    } else {
        format!("{replicas} replicas")
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// A rate, its percentage of that without replicas, and the ends of that.
type Course = fn(&ScaleRow) -> (Option<f64>, Option<f64>, Option<[f64; 2]>);

/// The finding in a few sentences.
#[must_use]
pub fn answer(document: &ScaleDocument) -> String {
    let counts = counts(document);
    let mut parts = Vec::new();
    let course = |what: &str, phase: ScalePhase, of: Course| {
        let steps: Vec<String> = counts
            .iter()
            .filter_map(|replicas| {
                let (per_s, percent, ends) = of(row(document, *replicas, phase)?);
                let per_s = rate(per_s?, per_s? / 100.0);
                Some(match percent.filter(|_| *replicas > 0) {
                    Some(share) => format!(
                        "{per_s} ({}) with {replicas}",
                        self::percent(Some(share), ends)
                    ),
                    None => format!(
                        "{per_s} with {}",
                        if *replicas == 0 {
                            "none".to_owned()
                        } else {
                            replicas.to_string()
                        }
                    ),
                })
            })
            .collect();
        (!steps.is_empty()).then(|| format!("{what} per second by replicas: {}.", steps.join(", ")))
    };
    let inserts = |row: &ScaleRow| {
        (
            row.inserts_per_s,
            row.percent_of_none.inserts,
            row.percent_of_none.inserts_ci,
        )
    };
    let selects = |row: &ScaleRow| {
        (
            row.selects_per_s,
            row.percent_of_none.selects,
            row.percent_of_none.selects_ci,
        )
    };
    parts.extend(course("Inserts alone", ScalePhase::Insert, inserts));
    parts.extend(course(
        "Inserts while selecting",
        ScalePhase::Mixed,
        inserts,
    ));
    parts.extend(course(
        "Selects while inserting",
        ScalePhase::Mixed,
        selects,
    ));
    for fit in document
        .fits
        .iter()
        .filter(|fit| fit.refused.is_none() && fit.phase == ScalePhase::Select.name())
    {
        let Some(at) = &fit.stops_paying else {
            continue;
        };
        parts.push(match (at.value, at.low) {
            (Some(value), _) => format!(
                "For selects alone one more replica stops paying at {value} [{}, {}].",
                at.low.map_or_else(|| "?".to_owned(), |low| low.to_string()),
                at.high
                    .map_or_else(|| "no end".to_owned(), |high| high.to_string())
            ),
            (None, Some(low)) => format!(
                "For selects alone the law shows no end to what replicas add; it may come at {low}."
            ),
            (None, None) => {
                "For selects alone the law shows no end to what replicas add.".to_owned()
            }
        });
    }
    let text = if parts.is_empty() {
        "No block came to its end.".to_owned()
    } else {
        parts.join(" ")
    };
    with_ending(text, document.status)
}

/// How it was measured, and what belongs to it.
pub(crate) fn sentences(document: &ScaleDocument) -> Vec<String> {
    let settings = &document.settings;
    let mut sentences = vec![format!(
        "{} clients insert posts into the primary, {} select posts by a pattern of their title from {}, each in a closed loop over a \
         connection of its own; first alone, then both at once. Data set: {} rows, {}.",
        settings.threads.unwrap_or_default(),
        settings.threads.unwrap_or_default(),
        match settings.reads.unwrap_or_default() {
            replimeter_model::load::Reads::Replicas =>
                "the replicas in turn (from the primary where there is none)",
            replimeter_model::load::Reads::Primary => "the primary",
            replimeter_model::load::Reads::All => "all servers in turn",
        },
        count(document.data_rows),
        bytes(document.data_bytes as f64)
    )];
    sentences.push(format!(
        "Every number of replicas was started afresh {}, in an order shuffled for each round ({}); on each start every phase ran \
         {} for {}, there and back again, after {} that is not counted. Between blocks replicas apply everything and what was \
         inserted is removed.",
        times(document.order.len() as u64),
        document
            .order
            .iter()
            .map(|round| round.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
            .join("; "),
        times(u64::from(settings.blocks.unwrap_or_default())),
        settings.duration.map_or_else(String::new, |span| span.to_string()),
        settings.warm_up.map_or_else(String::new, |span| span.to_string()),
    ));
    sentences.push(match document.order.len() {
        0 | 1 => "With one start there are no intervals: nothing is known of how starts differ.".to_owned(),
        starts => format!(
            "Intervals are 95 %, by a bootstrap over {starts} starts and the blocks within them, widened for few starts. Percent compare \
             with the same phase without a replica, whose binary log is on."
        ),
    });
    sentences.push(match &document.cpus_per_server {
        Some(share) => format!(
            "Each server has a share of this machine's {} cores: {share}. The load has what is left, and disk and memory are shared.",
            document.cores
        ),
        None => format!(
            "All servers, and the load, share the {} cores of this machine: a replica that would have brought a machine of its own takes \
             from the others here. The shape of the curves is this machine's; --cpus-per-server gives each server a fixed share.",
            document.cores
        ),
    });
    let late = document
        .results
        .iter()
        .filter_map(|row| Some((row.caught_up_after_us?, row)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((late, row)) = late.filter(|(late, _)| *late > 1e6) {
        sentences.push(format!(
            "The replicas did not always keep up: after a block of {} with {} they needed {} until they had all of it.",
            row.phase,
            plural(row.replicas),
            time(late)
        ));
    }
    let busiest = document
        .results
        .iter()
        .map(|row| row.client_cpu_percent)
        .fold(0.0, f64::max);
    let nearest = document
        .results
        .iter()
        .filter_map(|row| row.client_limit_percent)
        .reduce(f64::max);
    let limit = nearest.map_or_else(String::new, |percent| {
        format!(
            ", and their statements came to at most {percent:.0} % of the empty questions that as many connections get answered"
        )
    });
    sentences.push(format!(
        "The load's own threads took at most {busiest:.0} % of one core{limit}."
    ));
    if document.fits.iter().any(|fit| fit.refused.is_none()) {
        sentences.push(
            "The law is X(N) = λN / (1 + σ(N − 1) + κN(N − 1)) (Universal Scalability Law, Gunther 2007), fitted to the starts' means by \
             relative error. For selects N is the number of servers that are read from. For writes N is the number of servers, and X \
             the writes that all of them carry out together, since each does every one. Where one more stops paying is the first number of \
             replicas that one more adds no selects to."
                .to_owned(),
        );
    }
    sentences
}

/// The whole text.
#[must_use]
pub fn text(document: &ScaleDocument) -> String {
    let mut out = String::new();
    let mut versions: Vec<&str> = document
        .target
        .nodes
        .iter()
        .map(|node| node.version.as_str())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let _ = writeln!(
        out,
        "Replimeter scale · {} · {}\n",
        document.target.shape,
        versions.join(", ")
    );
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    let mut add = |title: &str, headings: &[&str], left: usize, lines: Vec<Vec<String>>| {
        if lines.is_empty() {
            return;
        }
        let mut table = plain_table(
            headings
                .iter()
                .map(|heading| (*heading).to_owned())
                .collect(),
        );
        for line in lines {
            table.add_row(line);
        }
        let _ = writeln!(out, "{title}\n{}\n", aligned(table, left).trim_end());
    };
    add(
        "Throughput by replicas; processor time and writes while both run",
        &HEADINGS,
        1,
        lines(document),
    );
    add("Updates", &UPDATE_HEADINGS, 1, update_lines(document));
    add(
        "Percent of no replica",
        &PERCENT_HEADINGS,
        1,
        percent_lines(document),
    );
    add(
        "What each server spent",
        &SERVER_HEADINGS,
        3,
        server_lines(document),
    );
    add("Scaling law", &LAW_HEADINGS, 2, law_lines(document));
    out.push_str(&paragraphs(&law_sentences(document)));
    out.push_str(&how_measured(&sentences(document)));
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use replimeter_model::{
        plan::PlanFile,
        record::TargetRecord,
        resources::PerOperation,
        scale::{LawPoint, PercentOfNone, Prediction, Residual},
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
            inserts_ci: inserts.map(|value| [value * 0.97, value * 1.03]),
            selects_per_s: selects,
            percent_of_none: PercentOfNone {
                inserts: inserts.map(|value| value / 19.08),
                inserts_ci: inserts.map(|value| [value / 19.5, value / 18.5]),
                ..PercentOfNone::default()
            },
            servers,
            ..ScaleRow::default()
        }
    }

    /// A document with the published figures.
    pub(crate) fn example() -> ScaleDocument {
        let plan = PlanFile::from_toml("command = 'scale'")
            .unwrap()
            .resolve()
            .unwrap();
        ScaleDocument {
            target: TargetRecord {
                shape: "async:0..2".to_owned(),
                ..TargetRecord::default()
            },
            settings: plan.to_file().scale.unwrap(),
            order: vec![vec![1, 0, 2], vec![0, 2, 1]],
            cores: 2,
            data_rows: 1000,
            data_bytes: 300_000_000,
            results: vec![
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
                    stops_paying: Some(Estimate {
                        value: Some(4.0),
                        low: Some(3.0),
                        high: None,
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
                            low: Some(160.0),
                            high: Some(200.0),
                        },
                        measured_per_s: Some(150.0),
                        measured_ci: None,
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
            ..ScaleDocument::default()
        }
    }

    #[test]
    fn the_published_figures_read_as_they_were_published() {
        let document = example();
        let lines = lines(&document);
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1][3].starts_with("795 [")
                && lines[1][5] == "50 %"
                && lines[2][6] == "90 %, 90 %",
            "{lines:?}"
        );
        let answer = answer(&document);
        assert!(
            answer.contains("1,908 with none, 925.0 (48 % [47, 50]) with 1"),
            "{answer}"
        );
        assert!(answer.contains("stops paying at 4 [3, no end]"), "{answer}");
    }

    #[test]
    fn what_is_missing_is_a_dash_and_no_fit_says_why() {
        let document = example();
        assert_eq!(lines(&document)[2][1], "–");
        let text = text(&document);
        assert!(
            text.contains("no law is fitted: 3 numbers") && text.contains("OUTSIDE"),
            "{text}"
        );
        assert!(text.contains("share the 2 cores"), "{text}");
        let nothing = ScaleDocument::default();
        assert!(super::answer(&nothing).contains("No block"));
    }

    #[test]
    fn sizes_and_many_servers() {
        assert_eq!(
            (
                bytes(18.4e6).as_str(),
                bytes(512.0).as_str(),
                bytes(2.5e9).as_str()
            ),
            ("18.4 MB", "512 B", "2.5 GB")
        );
        assert_eq!(
            several(vec![1.0, 5.0, 3.0, 4.0], whole_percent),
            "1 % to 5 %"
        );
    }
}
