//! The sentences of a `cost` report.

use std::fmt::Write as _;

use replimeter_engine::follow::LOG;
use replimeter_instruments::cost::{
    results::{AddedLatency, CostDocument, CostResults, CostRow, SelfTest},
    settings::LoggedMode,
};
use replimeter_model::estimate::Estimate;

use super::{delay, label, relative};
use replimeter_render::{
    cell::with_interval,
    figures::count,
    format::{Format, number},
    headline::{with_end_note, with_level},
};

/// Returns the name of one operation of the workload.
fn operation(run: &CostDocument) -> String {
    match run.settings.workload.as_deref() {
        Some("insert") | None => "an insert".to_owned(),
        Some(workload) => {
            let name = workload.rsplit('/').next().unwrap_or(workload);
            format!("an operation of {name}")
        }
    }
}

/// Formats as `214 µs [198, 231]`.
fn amount(estimate: &Estimate) -> Option<String> {
    Some(Format::Time.show(estimate.value?, estimate.ends()))
}

/// Returns the estimate with its sign reversed.
fn turned(estimate: &Estimate) -> Estimate {
    let negative = |value: Option<f64>| value.map(|value| -value);
    Estimate {
        value: negative(estimate.value),
        ci95: [negative(estimate.ci95.high), negative(estimate.ci95.low)].into(),
    }
}

/// Returns an addition as text; `None` if it is unknown.
fn adds(added: &AddedLatency, operation: &str) -> Option<String> {
    let latency = &added.latency_us;
    let value = latency.value?;
    let mut words = match latency.excludes(0.0) {
        Some(false) => format!(
            "adds no significant latency to {operation} ({})",
            amount(latency)?
        ),
        _ if value < 0.0 => format!("takes {} off {operation}", amount(&turned(latency))?),
        _ => format!("adds {} to {operation}", amount(latency)?),
    };
    let cpu = &added.primary_cpu_us;
    if let Some(us) = cpu.value {
        let part = match cpu.excludes(0.0) {
            Some(false) => format!("no significant primary CPU ({})", amount(cpu)?),
            _ if us < 0.0 => format!("takes {} off the primary's CPU", amount(&turned(cpu))?),
            // A saving in latency is not a saving in CPU time: each has its own words.
            _ if latency.excludes(0.0) != Some(false) && value < 0.0 => {
                format!("adds {} of primary CPU", amount(cpu)?)
            }
            _ => format!("{} of primary CPU", amount(cpu)?),
        };
        let _ = write!(words, " and {part}");
    }
    Some(words)
}

/// Returns a sentence for each mode, such as "semi-sync adds 214 µs [198, 231] to an insert and 38 µs of
/// primary CPU".
pub(super) fn sentences(run: &CostDocument) -> Vec<String> {
    let operation = operation(run);
    let several_threads = run
        .results
        .rows
        .iter()
        .any(|row| row.threads != run.results.rows[0].threads);
    let sentence = |row: &CostRow| {
        let words = adds(&row.added, &operation)?;
        let threads = if several_threads {
            format!(" at {}", number(row.threads, "thread"))
        } else {
            String::new()
        };
        let distance = match row.link_delay_us {
            None => String::new(),
            Some(0.0) => " without link delay".to_owned(),
            Some(us) => format!(" with a link delay of {} each way", delay(us)),
        };
        let throughput = match relative(row) {
            Estimate { value: None, .. } => String::new(),
            known => {
                let known = Format::Ratio.estimate(&known).display_text();
                format!("; throughput is {known} × none")
            }
        };
        Some(format!(
            "{}{threads}{distance} {words}{throughput}.",
            label(run, row)
        ))
    };
    run.results
        .rows
        .iter()
        .filter(|row| row.mode != LoggedMode::NONE)
        .filter_map(sentence)
        .collect()
}

/// Returns the result of a self-test.
fn self_test(test: &SelfTest) -> String {
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
    let judgment = if test.significant {
        "significantly more than"
    } else {
        "not significantly more than"
    };
    let unclear = match test.comparisons.len() - of {
        0 => String::new(),
        unclear => format!(" ({} more had no interval)", count(unclear as u64)),
    };
    format!(
        "{}/{} compared with itself {} times{unclear}, {} fresh starts against {} each time: throughput differed in {} \
         ({share:.1} % [{:.1}, {:.1}]), {judgment} the {:.0} % that 95 % intervals allow (binomial test, p = {:.3}).",
        test.engine,
        test.mode,
        count(of as u64),
        test.starts,
        test.starts,
        count(test.differences),
        test.share_ci95[0] * 100.0,
        test.share_ci95[1] * 100.0,
        test.expected * 100.0,
        test.p_value
    )
}

/// Returns the headline.
#[must_use]
pub(crate) fn answer(run: &CostDocument) -> String {
    let text = match &run.results.self_test {
        Some(test) => self_test(test),
        None => with_level(prices(run)),
    };
    with_end_note(text, run.status)
}

/// Returns the sentences for the fewest threads and the smallest link delay, which show the latency of
/// waiting best.
fn prices(run: &CostDocument) -> String {
    let least = run.results.rows.iter().map(|row| row.threads).min();
    let nearest = |row: &CostRow| {
        let same = |other: &&CostRow| other.mode == row.mode && other.engine == row.engine;
        let fellows = run.results.rows.iter().filter(same);
        let delays = fellows.filter_map(|other| other.link_delay_us);
        delays.fold(f64::MAX, f64::min) >= row.link_delay_us.unwrap_or(f64::MIN)
    };
    let rows = run.results.rows.iter();
    let rows = rows.filter(|row| Some(row.threads) == least && nearest(row));
    let part = CostDocument {
        results: CostResults {
            rows: rows.cloned().collect(),
            ..run.results.clone()
        },
        ..run.clone()
    };
    let sentences = sentences(&part);
    match (sentences.is_empty(), run.results.rows.first()) {
        (false, _) => {
            format!("With {}, on average, ", threads(least.unwrap_or(1))) + &sentences.join(" ")
        }
        (true, Some(row)) => format!(
            "{} reached {} operations/s at {}.",
            label(run, row),
            with_interval(&row.throughput),
            threads(row.threads)
        ),
        (true, None) => "Nothing was measured.".to_owned(),
    }
}

fn threads(number: u32) -> String {
    if number == 1 {
        "one thread".to_owned()
    } else {
        format!("{number} threads")
    }
}

/// Returns the description of the method.
pub(super) fn how(run: &CostDocument) -> Vec<String> {
    let settings = &run.settings;
    let mut sentences = Vec::new();
    if run.results.self_test.is_none() {
        sentences.push(format!(
            "Each mode had {}, in rounds of randomized order (seed {}).",
            starts(run),
            settings.seed.unwrap_or(0)
        ));
    }
    sentences.push(format!(
        "Intervals are 95 %, over the starts; one start has none. Each mode is compared with none ({LOG} off) of the same binary, in the same \
         rounds."
    ));
    let durability = settings.durability.unwrap_or_default();
    sentences.push(format!(
        "Durability {}, the same for all modes: {}.",
        durability.name(),
        run.results.durability.join("; ")
    ));
    if let Some(workload) = &settings.workload {
        sentences.push(format!("Workload {workload}, closed loop."));
    }
    if run.client.cores > 0 {
        sentences.push(format!(
            "Client and servers shared this machine's {} cores{}: a replica takes CPU time from the primary here, which it would not do \
             on a separate machine.",
            run.client.cores,
            if run.client.keep_awake { ", which were kept awake" } else { "" }
        ));
    }
    sentences.extend(run.results.rows.iter().filter_map(client));
    for words in &run.results.left_out {
        sentences.push(format!("Left out: {words}."));
    }
    sentences
}

/// Returns how often each mode was started, as text.
fn starts(run: &CostDocument) -> String {
    let starts = run.results.rows.iter().map(|row| row.starts);
    let fewest = starts.clone().min().unwrap_or(0);
    match (fewest, starts.max().unwrap_or(0)) {
        (1, 1) => "one fresh start".to_owned(),
        (fewest, most) if fewest == most => format!("{fewest} fresh starts"),
        (fewest, most) => format!("{fewest} to {most} fresh starts"),
    }
}

/// Returns the client's ping limit, for rows without replication.
fn client(row: &CostRow) -> Option<String> {
    let client = &row.client;
    let (limit, percent, cpu) = (
        client.limit_per_s?,
        client.percent_of_limit?,
        client.cpu_us_per_op?,
    );
    (row.mode == LoggedMode::NONE).then(|| {
        format!(
            "Client at {}: ping limit {}/s with {}; none reached {percent:.0} % of it, at {cpu:.1} µs of client CPU per operation.",
            threads(row.threads),
            count(limit.round() as u64),
            row.version
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_cost_is_reported_as_saved() {
        let added = AddedLatency {
            latency_us: Estimate {
                value: Some(-30.0),
                ci95: [Some(-40.0), Some(-20.0)].into(),
            },
            ..AddedLatency::default()
        };
        assert_eq!(
            adds(&added, "an insert").unwrap(),
            "takes 30 µs [20, 40] off an insert"
        );
        let added = AddedLatency {
            latency_us: Estimate::of(12.0),
            primary_cpu_us: Estimate::of(-3.0),
            ..AddedLatency::default()
        };
        assert_eq!(
            adds(&added, "x").unwrap(),
            "adds 12.0 µs to x and takes 3.0 µs off the primary's CPU"
        );
        assert_eq!(adds(&AddedLatency::default(), "x"), None);
    }
}
