//! What a price list tells people.

use std::{fmt::Write as _, time::Duration};

use replimeter_model::{
    cost::{Added, CostDocument, CostRow, CostStep, SelfTest},
    estimate::Estimate,
    record::Distribution,
    span::Span,
};

use crate::{
    answer::with_ending,
    figures::{Unit, count, rate},
    load::{spent, with_interval},
    terminal::{aligned, paragraphs, plain_table, warnings, wrapped},
};

/// The columns of the list.
pub(crate) const HEADINGS: [&str; 15] = [
    "mode",
    "threads",
    "link",
    "ops/s, 95 %",
    "stdev",
    "× none, 95 %",
    "mean",
    "stdev",
    "p50",
    "p95",
    "p99",
    "max",
    "added to none, 95 %",
    "starts",
    "blocks",
];

/// The columns of ratios.
pub(crate) const RATIO_HEADINGS: [&str; 10] = [
    "mode", "threads", "link", "ops/s", "mean", "stdev", "p50", "p95", "p99", "max",
];

/// The columns of the steps.
pub(crate) const STEP_HEADINGS: [&str; 8] = [
    "mode",
    "added to",
    "threads",
    "link",
    "latency",
    "primary CPU",
    "all CPU",
    "× ops/s",
];

/// The columns of what servers spend.
pub(crate) const SERVER_HEADINGS: [&str; 11] = [
    "mode",
    "threads",
    "link",
    "server",
    "CPU µs/op",
    "user",
    "system",
    "switches/op",
    "written B/op",
    "fsyncs/op",
    "behind at block ends (mean, max)",
];

/// The columns of the table of 2010.
pub(crate) const PUBLISHED_HEADINGS: [&str; 4] =
    ["mode", "tps (stdev)", "latency µs (stdev)", "p95 µs"];

fn dash() -> String {
    "–".to_owned()
}

/// The distance of a row.
fn distance(link_delay_us: Option<f64>) -> String {
    link_delay_us.map_or_else(|| "none".to_owned(), delay)
}

/// A delay as people write it.
pub(crate) fn delay(us: f64) -> String {
    Span(Duration::from_nanos((us * 1e3).round().max(0.0) as u64))
        .to_string()
        .replace("us", "µs")
}

/// A time with its interval, no finer than the interval supports.
fn with_ends(unit: Unit, estimate: &Estimate) -> String {
    match (estimate.value, estimate.ends()) {
        (Some(value), Some([low, high])) => {
            format!(
                "{} [{}]",
                unit.show_within(value, (high - low) / 2.0),
                unit.show_interval([low, high]).join(", ")
            )
        }
        (Some(value), None) => unit.show(value),
        _ => dash(),
    }
}

/// A ratio whose ends lie so many times apart is not known.
const HOPELESS: f64 = 100.0;

/// A ratio with its interval.
pub(crate) fn ratio(estimate: &Estimate) -> String {
    let Some(value) = estimate.value else {
        return dash();
    };
    match estimate.ends() {
        // Too few starts, or too unlike ones: such an interval says nothing.
        Some([low, high]) if low > 0.0 && high / low > HOPELESS || low <= 0.0 => {
            format!("{value:.2} [not known]")
        }
        Some([low, high]) => {
            // Two digits of the half-width; the ends outwards.
            let half = ((high - low) / 2.0).max(1e-6);
            let decimals = (1.0 - half.log10().floor()).clamp(1.0, 4.0) as usize;
            let step = 10f64.powi(decimals as i32);
            format!(
                "{value:.decimals$} [{:.decimals$}, {:.decimals$}]",
                (low * step).floor() / step,
                (high * step).ceil() / step
            )
        }
        None => format!("{value:.2}"),
    }
}

fn relative(row: &CostRow) -> Estimate {
    Estimate {
        value: row.relative.throughput,
        low: row.relative.low,
        high: row.relative.high,
    }
}

fn label(document: &CostDocument, row: &CostRow) -> String {
    document.label_of(&row.engine, &row.mode, row.wait_point.as_deref())
}

/// The unit in which all latencies of a document read well.
pub(crate) fn unit(document: &CostDocument) -> Unit {
    Unit::for_size(
        document
            .results
            .iter()
            .filter_map(|row| row.latency.mean_us)
            .fold(0.0, f64::max),
    )
}

/// Lines of the list.
pub(crate) fn lines(document: &CostDocument) -> Vec<Vec<String>> {
    let unit = unit(document);
    let show = |value: Option<f64>| value.map_or_else(dash, |us| unit.show(us));
    let line = |row: &CostRow| {
        let latency: &Distribution = &row.latency;
        vec![
            label(document, row),
            row.threads.to_string(),
            distance(row.link_delay_us),
            with_interval(&row.throughput),
            row.throughput
                .stdev
                .map_or_else(dash, |stdev| rate(stdev, stdev / 10.0)),
            ratio(&relative(row)),
            // As what is added counts it: each start alike.
            show(row.latency_mean_us.value.or(latency.mean_us)),
            show(latency.stdev_us),
            show(latency.p50_us),
            show(latency.p95_us),
            show(latency.p99_us),
            show(latency.max_us),
            with_ends(unit, &row.added.latency_us),
            count(row.starts),
            match row.void_blocks {
                0 => count(row.blocks),
                void => format!("{} ({} void)", count(row.blocks), count(void)),
            },
        ]
    };
    document.results.iter().map(line).collect()
}

/// Lines of ratios to `none`.
pub(crate) fn ratios(document: &CostDocument) -> Vec<Vec<String>> {
    let rows = document
        .results
        .iter()
        .filter(|row| row.mode != "none" && row.relative.throughput.is_some());
    let line = |row: &CostRow| {
        let latency = &row.relative.latency;
        let mut line = vec![
            label(document, row),
            row.threads.to_string(),
            distance(row.link_delay_us),
            ratio(&relative(row)),
        ];
        line.extend(
            [
                latency.mean,
                latency.stdev,
                latency.p50,
                latency.p95,
                latency.p99,
                latency.max,
            ]
            .map(|one| ratio(&one)),
        );
        line
    };
    rows.map(line).collect()
}

/// Lines of the steps.
pub(crate) fn steps(document: &CostDocument) -> Vec<Vec<String>> {
    let unit = unit(document);
    let line = |step: &CostStep| {
        let latency = with_ends(unit, &step.added.latency_us);
        vec![
            document.label_of(&step.engine, &step.mode, step.wait_point.as_deref()),
            step.against.clone(),
            step.threads.to_string(),
            distance(step.link_delay_us),
            if unit == Unit::Micro {
                latency
            } else {
                format!("{latency} {}", unit.symbol())
            },
            with_ends(Unit::Micro, &step.added.primary_cpu_us),
            with_ends(Unit::Micro, &step.added.all_cpu_us),
            ratio(&step.throughput),
        ]
    };
    document.steps.iter().map(line).collect()
}

/// Lines of what each server spends on an operation.
pub(crate) fn servers(document: &CostDocument) -> Vec<Vec<String>> {
    let of = |row: &CostRow| {
        let line = |server: &replimeter_model::resources::PerOperation| {
            let behind = row.behind.iter().find(|behind| behind.name == server.name);
            let mut line = vec![
                label(document, row),
                row.threads.to_string(),
                distance(row.link_delay_us),
                server.name.clone(),
            ];
            line.extend(spent(server));
            line.push(behind.map_or_else(dash, |behind| {
                format!("{:.0}, {}", behind.mean, count(behind.max))
            }));
            line
        };
        row.servers.iter().map(line).collect::<Vec<_>>()
    };
    document.results.iter().flat_map(of).collect()
}

/// Experiment 5's table: one thread, inserts, no links; empty for anything else.
pub(crate) fn published(document: &CostDocument) -> Vec<Vec<String>> {
    if document.settings.workload.as_deref() != Some("insert") || document.self_test.is_some() {
        return Vec::new();
    }
    let rows = document
        .results
        .iter()
        .filter(|row| row.threads == 1 && row.link_delay_us.is_none());
    let line = |row: &CostRow| {
        let show = |value: Option<f64>| value.map_or_else(dash, |value| format!("{value:.2}"));
        vec![
            label(document, row),
            format!(
                "{} ({})",
                show(row.throughput.mean),
                show(row.throughput.stdev)
            ),
            format!(
                "{} ({})",
                show(row.latency.mean_us),
                show(row.latency.stdev_us)
            ),
            show(row.latency.p95_us),
        ]
    };
    rows.map(line).collect()
}

/// What one operation of the workload is called.
fn operation(document: &CostDocument) -> String {
    match document.settings.workload.as_deref() {
        Some("insert") | None => "an insert".to_owned(),
        Some(workload) => {
            let name = workload.rsplit('/').next().unwrap_or(workload);
            format!("an operation of {name}")
        }
    }
}

/// `214 µs [198, 231]`.
fn amount(estimate: &Estimate) -> Option<String> {
    let value = estimate.value?;
    let unit = Unit::for_size(value);
    Some(match estimate.ends() {
        Some([low, high]) => {
            format!(
                "{} [{}]",
                unit.with_within(value, (high - low) / 2.0),
                unit.show_interval([low, high]).join(", ")
            )
        }
        None => unit.with(value),
    })
}

/// The same of what is saved.
fn turned(estimate: &Estimate) -> Estimate {
    let turn = |value: Option<f64>| value.map(|value| -value);
    Estimate {
        value: turn(estimate.value),
        low: turn(estimate.high),
        high: turn(estimate.low),
    }
}

/// What an addition is in words; `None` when it is not known.
fn adds(added: &Added, operation: &str) -> Option<String> {
    let latency = &added.latency_us;
    let value = latency.value?;
    let mut words = match latency.excludes(0.0) {
        Some(false) => format!(
            "adds nothing to {operation} that these starts could show ({})",
            amount(latency)?
        ),
        _ if value < 0.0 => format!("takes {} off {operation}", amount(&turned(latency))?),
        _ => format!("adds {} to {operation}", amount(latency)?),
    };
    let cpu = &added.primary_cpu_us;
    if let Some(us) = cpu.value {
        let part = match cpu.excludes(0.0) {
            Some(false) => format!("no primary CPU that could be shown ({})", amount(cpu)?),
            _ if us < 0.0 => format!("takes {} off the primary's CPU", amount(&turned(cpu))?),
            // What is taken off the one is not taken off the other.
            _ if latency.excludes(0.0) != Some(false) && value < 0.0 => {
                format!("adds {} of primary CPU", amount(cpu)?)
            }
            _ => format!("{} of primary CPU", amount(cpu)?),
        };
        let _ = write!(words, " and {part}");
    }
    Some(words)
}

/// A sentence for each price, such as "semi-sync adds 214 µs [198, 231] to an insert and 38 µs
/// of primary CPU".
pub(crate) fn sentences(document: &CostDocument) -> Vec<String> {
    let operation = operation(document);
    let several_threads = document
        .results
        .iter()
        .any(|row| row.threads != document.results[0].threads);
    let sentence = |row: &CostRow| {
        let words = adds(&row.added, &operation)?;
        let threads = if several_threads {
            format!(
                " at {} thread{}",
                row.threads,
                if row.threads == 1 { "" } else { "s" }
            )
        } else {
            String::new()
        };
        let distance = match row.link_delay_us {
            None => String::new(),
            Some(0.0) => " over links without delay".to_owned(),
            Some(us) => format!(" over links of {} each way", delay(us)),
        };
        let throughput = match relative(row) {
            Estimate { value: None, .. } => String::new(),
            known => format!("; throughput is {} of none's", ratio(&known)),
        };
        Some(format!(
            "{}{threads}{distance} {words}{throughput}.",
            label(document, row)
        ))
    };
    document
        .results
        .iter()
        .filter(|row| row.mode != "none")
        .filter_map(sentence)
        .collect()
}

/// What a self-test found.
pub(crate) fn self_test(test: &SelfTest) -> String {
    let of = test
        .comparisons
        .iter()
        .filter(|comparison| comparison.throughput.ends().is_some())
        .count();
    let share = if of == 0 {
        0.0
    } else {
        test.differences as f64 / of as f64 * 100.0
    };
    let judgement = if test.significant {
        "significantly more than"
    } else {
        "not significantly more than"
    };
    let unclear = match test.comparisons.len() - of {
        0 => String::new(),
        unclear => format!(" ({} more had no interval)", count(unclear as u64)),
    };
    format!(
        "{}/{} compared with itself {} times{unclear}, each time {} fresh starts against {}: a difference of throughput was found in {} \
         ({share:.1} % [{:.1}, {:.1}]), {judgement} the {:.0} % that 95 % intervals allow (binomial test, p = {:.3}).",
        test.engine,
        test.mode,
        count(of as u64),
        test.starts,
        test.starts,
        count(test.differences),
        test.share[0] * 100.0,
        test.share[1] * 100.0,
        test.expected * 100.0,
        test.p_value
    )
}

/// The columns of a self-test's comparisons.
pub(crate) const SELF_HEADINGS: [&str; 4] = [
    "comparison",
    "ops/s, one over the other, 95 %",
    "latency, difference µs, 95 %",
    "differs",
];

/// Lines of a self-test's comparisons.
pub(crate) fn comparisons(document: &CostDocument) -> Vec<Vec<String>> {
    let lines = document
        .self_test
        .iter()
        .flat_map(|test| &test.comparisons)
        .zip(1..);
    lines
        .map(|(comparison, number): (_, u32)| {
            vec![
                number.to_string(),
                ratio(&comparison.throughput),
                with_ends(Unit::Micro, &comparison.latency_us),
                if comparison.differs { "yes" } else { "no" }.to_owned(),
            ]
        })
        .collect()
}

/// The finding.
#[must_use]
pub fn answer(document: &CostDocument) -> String {
    let text = match &document.self_test {
        Some(test) => self_test(test),
        None => {
            // The fewest threads and the shortest distance say what waiting costs.
            let least = document.results.iter().map(|row| row.threads).min();
            let nearest = |row: &&CostRow| {
                let fellows = document
                    .results
                    .iter()
                    .filter(|other| other.mode == row.mode && other.engine == row.engine);
                fellows
                    .filter_map(|other| other.link_delay_us)
                    .fold(f64::MAX, f64::min)
                    >= row.link_delay_us.unwrap_or(f64::MIN)
            };
            let first: Vec<CostRow> = document
                .results
                .iter()
                .filter(|row| Some(row.threads) == least)
                .filter(nearest)
                .cloned()
                .collect();
            let part = CostDocument {
                results: first,
                ..document.clone()
            };
            let sentences = sentences(&part);
            match (sentences.is_empty(), document.results.first()) {
                (false, _) => {
                    format!("With {}, ", threads(least.unwrap_or(1))) + &sentences.join(" ")
                }
                (true, Some(row)) => {
                    format!(
                        "{} does {} operations/s at {}.",
                        label(document, row),
                        with_interval(&row.throughput),
                        threads(row.threads)
                    )
                }
                (true, None) => "Nothing was measured.".to_owned(),
            }
        }
    };
    with_ending(text, document.status)
}

fn threads(number: u32) -> String {
    if number == 1 {
        "one thread".to_owned()
    } else {
        format!("{number} threads")
    }
}

/// How it was measured.
pub(crate) fn how(document: &CostDocument) -> Vec<String> {
    let settings = &document.settings;
    let mut sentences = Vec::new();
    let of = |pick: fn(u64, u64) -> u64| {
        document
            .results
            .iter()
            .map(|row| row.starts)
            .reduce(pick)
            .unwrap_or(0)
    };
    let starts = match (of(u64::min), of(u64::max)) {
        (1, 1) => "one fresh start".to_owned(),
        (fewest, most) if fewest == most => format!("{fewest} fresh starts"),
        (fewest, most) => format!("{fewest} to {most} fresh starts"),
    };
    if document.self_test.is_none() {
        sentences.push(format!(
            "Every mode had {starts}, in rounds of shuffled order (seed {}); only the servers of the mode being measured ran. The \
             load was counted in blocks after a ramp; throughput is the mean over the starts, its stdev that between blocks.",
            settings.seed.unwrap_or(0)
        ));
    }
    sentences.push(
        "Intervals are 95 %, by a hierarchical bootstrap (starts, then blocks within them), stretched for few starts; in simulations \
         they cover the truth in 92 to 99 % from four starts on, and one start has none. A mode is held against none (binary log off) of the \
         same binary. Quantiles and their ratios: each start as a whole."
            .to_owned(),
    );
    if document.results.iter().any(|row| {
        row.servers
            .iter()
            .any(|server| server.fsyncs_per_op.is_some())
    }) {
        sentences.push(
            "Flushes (fsyncs/op) are those that the storage engine counts: flushes of a binary log are counted by no server, and come on top with sync_binlog=1."
                .to_owned(),
        );
    }
    let durability = settings.durability.unwrap_or_default();
    sentences.push(format!(
        "Durability {}, for all modes alike: {}.",
        durability.name(),
        document.durability.join("; ")
    ));
    if let Some(workload) = &settings.workload {
        sentences.push(format!(
            "Workload {workload}, closed loop: each thread sends its next operation when it has the answer to the last. Latency is from send to answer."
        ));
    }
    if !settings.link_delays.is_empty() {
        sentences.push(
            "Links of ours hold every byte between the servers back by the delay named, each way; a mode without replicas has none.".to_owned(),
        );
    }
    if document
        .results
        .iter()
        .any(|row| row.mode == "galera" || row.mode == "group")
    {
        sentences
            .push("Clusters have as many members as the other modes have servers, unless a number was asked for.".to_owned());
    }
    if document.cores > 0 {
        sentences.push(format!(
            "Client and servers shared this machine's {} cores{}: a replica's processor time is not free for the primary here, as it would \
             be on a machine of its own.",
            document.cores,
            if document.keep_awake { ", which were kept awake" } else { "" }
        ));
    }
    for row in &document.results {
        if let (Some(limit), Some(percent), Some(cpu)) = (
            row.client.limit_per_s,
            row.client.percent_of_limit,
            row.client.cpu_us_per_op,
        ) && row.mode == "none"
        {
            sentences.push(format!(
                "Client at {}: {} empty questions/s answered by {}; none's statements are {percent:.0} % of that limit, at {cpu:.1} µs of the client's CPU per operation.",
                threads(row.threads),
                count(limit.round() as u64),
                row.version
            ));
        }
    }
    for words in &document.left_out {
        sentences.push(format!("Left out: {words}."));
    }
    sentences
}

/// The whole text.
#[must_use]
pub fn text(document: &CostDocument) -> String {
    let mut out = String::new();
    let mut versions: Vec<&str> = document
        .target
        .nodes
        .iter()
        .map(|node| node.version.as_str())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let title = document
        .title
        .as_ref()
        .map_or_else(String::new, |title| format!(" · {title}"));
    let workload = document.settings.workload.as_deref().unwrap_or_default();
    let durability = document.settings.durability.unwrap_or_default();
    let _ = writeln!(
        out,
        "Replimeter cost · {} · {workload} · durability {}{title}\n",
        versions.join(", "),
        durability.name()
    );
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    let mut section = |heading: &str, headings: &[&str], left: usize, lines: Vec<Vec<String>>| {
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
        let _ = writeln!(out, "{heading}\n{}", aligned(table, left));
    };
    section(
        "One mode against itself",
        &SELF_HEADINGS,
        0,
        comparisons(document),
    );
    section(
        &format!("Price list (latencies in {})", unit(document).symbol()),
        &HEADINGS,
        1,
        lines(document),
    );
    section(
        "As published in 2010 (one thread)",
        &PUBLISHED_HEADINGS,
        1,
        published(document),
    );
    section(
        "Over none of the same binary",
        &RATIO_HEADINGS,
        1,
        ratios(document),
    );
    section(
        "Step by step (µs per operation)",
        &STEP_HEADINGS,
        2,
        steps(document),
    );
    section(
        "What each server spends on an operation",
        &SERVER_HEADINGS,
        1,
        servers(document),
    );
    let quoted = sentences(document);
    if !quoted.is_empty() {
        let _ = writeln!(out, "In words");
        for sentence in quoted {
            let _ = writeln!(out, "  {}", wrapped(&sentence, 118, "    "));
        }
        out.push('\n');
    }
    out.push_str("How it was measured\n");
    out.push_str(&paragraphs(&how(document)));
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
pub(crate) fn example() -> CostDocument {
    use replimeter_model::{
        cost::{Behind, Relative},
        load::Rate,
        plan::CostSpec,
        resources::PerOperation,
    };
    let estimate = |value: f64, half: f64| Estimate {
        value: Some(value),
        low: Some(value - half),
        high: Some(value + half),
    };
    let row = |mode: &str, threads: u32, us: f64| CostRow {
        engine: "mariadb".to_owned(),
        mode: mode.to_owned(),
        wait_point: (mode == "semi-sync").then(|| "after-sync".to_owned()),
        threads,
        starts: 5,
        blocks: 30,
        throughput: Rate {
            mean: Some(1e6 / us),
            stdev: Some(969.24),
            low: Some(1e6 / us - 120.0),
            high: Some(1e6 / us + 120.0),
        },
        latency: Distribution {
            count: 9,
            mean_us: Some(us),
            stdev_us: Some(2904.26),
            p95_us: Some(us * 0.9),
            ..Distribution::default()
        },
        relative: Relative {
            against: "none".to_owned(),
            throughput: Some(134.0 / us),
            low: Some(134.0 / us - 0.02),
            high: Some(134.0 / us + 0.02),
            ..Relative::default()
        },
        added: Added {
            latency_us: if mode == "none" {
                Estimate::default()
            } else {
                estimate(us - 134.0, 16.5)
            },
            primary_cpu_us: if mode == "none" {
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
        behind: vec![Behind {
            name: "replica1".to_owned(),
            blocks: 30,
            mean: 3.2,
            max: 40,
        }],
        ..CostRow::default()
    };
    CostDocument {
        settings: CostSpec {
            workload: Some("insert".to_owned()),
            starts: Some(5),
            seed: Some(1),
            ..CostSpec::default()
        },
        results: vec![
            row("none", 1, 134.0),
            row("async", 1, 140.0),
            row("semi-sync", 1, 348.0),
            row("semi-sync", 8, 500.0),
        ],
        steps: vec![CostStep {
            engine: "mariadb".to_owned(),
            mode: "semi-sync".to_owned(),
            against: "async".to_owned(),
            threads: 1,
            throughput: estimate(0.4, 0.02),
            added: Added {
                latency_us: estimate(208.0, 12.0),
                ..Added::default()
            },
            ..CostStep::default()
        }],
        cores: 2,
        ..CostDocument::default()
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::cost::SelfComparison;

    use super::*;

    #[test]
    fn prices_are_sentences_that_can_be_quoted() {
        let document = example();
        let sentences = sentences(&document);
        assert_eq!(
            sentences[1],
            "semi-sync after-sync at 1 thread adds 210 µs [197, 231] to an insert and 38 µs [34.2, 42.3] of primary CPU; throughput is 0.385 [0.365, 0.406] of none's."
        );
        assert!(
            sentences[0].contains("async at 1 thread adds nothing to an insert that these starts could show (6 µs [-11, 23])"),
            "{}",
            sentences[0]
        );
        let answer = answer(&document);
        assert!(
            answer.contains("semi-sync after-sync adds 210 µs") && !answer.contains("8 threads"),
            "{answer}"
        );
    }

    #[test]
    fn what_is_saved_is_said_so() {
        let added = Added {
            latency_us: Estimate {
                value: Some(-30.0),
                low: Some(-40.0),
                high: Some(-20.0),
            },
            ..Added::default()
        };
        assert_eq!(
            adds(&added, "an insert").unwrap(),
            "takes 30 µs [20, 40] off an insert"
        );
        let added = Added {
            latency_us: Estimate::of(12.0),
            primary_cpu_us: Estimate::of(-3.0),
            ..Added::default()
        };
        assert_eq!(
            adds(&added, "x").unwrap(),
            "adds 12.0 µs to x and takes 3.0 µs off the primary's CPU"
        );
        assert_eq!(adds(&Added::default(), "x"), None);
    }

    #[test]
    fn ratios_have_two_digits_of_their_interval() {
        let shown = |value, low, high| {
            ratio(&Estimate {
                value: Some(value),
                low: Some(low),
                high: Some(high),
            })
        };
        assert_eq!(shown(0.3194, 0.3011, 0.3402), "0.319 [0.301, 0.341]");
        assert_eq!(shown(3.2, 2.4, 4.1), "3.20 [2.40, 4.10]");
        assert_eq!(shown(1.0, 1.0, 1.0), "1.0000 [1.0000, 1.0000]");
        assert_eq!(
            (
                ratio(&Estimate::of(0.456)).as_str(),
                ratio(&Estimate::default()).as_str()
            ),
            ("0.46", "–")
        );
    }

    #[test]
    fn the_text_has_every_table_and_fits_a_wide_terminal() {
        let text = text(&example());
        for wanted in [
            "Price list",
            "As published in 2010",
            "7462.69 (969.24)",
            "Step by step",
            "In words",
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
    fn a_self_test_says_what_it_allows() {
        let comparison = |differs| SelfComparison {
            throughput: Estimate {
                value: Some(1.01),
                low: Some(0.97),
                high: Some(1.05),
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
            share: [0.001, 0.249],
            p_value: 0.642,
            significant: false,
        };
        let mut document = CostDocument {
            self_test: Some(test),
            ..CostDocument::default()
        };
        document.answer = answer(&document);
        let text = text(&document);
        // Wherever the lines break.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("not significantly more than the 5 %")
                && words.contains("1.010 [0.970, 1.050]"),
            "{text}"
        );
    }
}
