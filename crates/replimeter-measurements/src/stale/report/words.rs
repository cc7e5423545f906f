//! The sentences of a `stale` report.

use std::collections::BTreeSet;

use replimeter_instruments::{
    front::site::Through,
    stale::results::{
        LoadWindow, StaleDocument, StaleLoad, StaleRow, StaleTimeline, StaleWindow, Witness,
    },
};
use replimeter_model::record::Distribution;

use super::{label, read_description};
use crate::starts::covered;
use replimeter_render::{
    figures::{Unit, count, time},
    report::Content,
};

/// A request time from which a window counts as a stall, in µs.
const STALL_US: f64 = 1e6;

/// Returns the 95 % interval of the difference of two medians with known intervals (Zou & Donner 2008).
fn interval(with: &Distribution, without: &Distribution) -> Option<[f64; 2]> {
    let of = |distribution: &Distribution| Some((distribution.p50_us?, distribution.p50_us_ci95?));
    let ((now, [now_low, now_high]), (before, [before_low, before_high])) =
        (of(with)?, of(without)?);
    let difference = now - before;
    Some([
        difference - (now - now_low).hypot(before_high - before),
        difference + (now_high - now).hypot(before - before_low),
    ])
}

fn difference(name: &str, with: &Distribution, without: &Distribution) -> Option<String> {
    // Very few rounds have no median.
    let median = with.p50_us.zip(without.p50_us).map(|both| ("p50", both));
    let (what, (now, before)) =
        median.or_else(|| Some(("mean", with.mean_us.zip(without.mean_us)?)))?;
    let tail = match (with.p99_us, without.p99_us) {
        (Some(with), Some(without)) => format!(", p99 {} instead of {}", time(with), time(without)),
        _ => String::new(),
    };
    let ends = interval(with, without).map_or_else(String::new, |ends| {
        let [low, high] = Unit::for_size(now - before).show_interval(ends);
        format!(" [{low}, {high}]")
    });
    Some(format!(
        "{name} {what} {} instead of {} ({}{}{ends}){tail}",
        time(now),
        time(before),
        if now >= before { "+" } else { "" },
        time(now - before)
    ))
}

/// Returns the overhead of synchronous reads.
pub(super) fn overhead(run: &StaleDocument, row: &StaleRow) -> Option<String> {
    let overhead = row.overhead.as_ref()?;
    let parts = [
        difference("read", &overhead.read_with, &overhead.read_without),
        difference("write", &overhead.write_with, &overhead.write_without),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    Some(format!(
        "{}: overhead of synchronous reads ({}), from {} rounds alternating with and without: {}.",
        label(run, row),
        row.guarantee,
        count(overhead.read_with.count + overhead.read_without.count),
        parts.join("; ")
    ))
}

/// Returns a violation of each kind, statement by statement, of each row whose reads waited or did not.
pub(super) fn witnesses(run: &StaleDocument, waited: bool) -> Content {
    let rows = run.results.rows.iter();
    let rows = rows.filter(|row| (row.read_consistency != "off") == waited);
    let texts = rows.flat_map(|row| {
        let all = [&row.witness, &row.monotonic_witness].into_iter().flatten();
        all.map(move |witness| lines_of(run, row, witness).join("\n"))
    });
    Content::Verbatim(texts.collect::<Vec<_>>().join("\n\n"))
}

fn lines_of(run: &StaleDocument, row: &StaleRow, witness: &Witness) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: {} violated in round {}:",
        label(run, row),
        witness.guarantee,
        count(witness.round)
    )];
    for step in &witness.steps {
        lines.push(format!(
            "{:>12} to {:>12}  {}: {}  → {}",
            time(step.begin_us),
            time(step.end_us),
            step.node,
            step.statement,
            step.value
        ));
    }
    lines
}

/// Returns the verdict on the guarantees of rows that were read synchronously.
pub(super) fn verdicts(run: &StaleDocument) -> Vec<String> {
    let synced = run
        .results
        .rows
        .iter()
        .filter(|row| row.read_consistency != "off" && row.rounds > 0);
    let verdict = |row: &StaleRow| {
        let violations = &row.violations;
        let share = |events: u64, high: f64| {
            if events == 0 {
                format!("none (below {})", bound(high))
            } else {
                count(events)
            }
        };
        let refused = if row.refused > 0 {
            format!("; {} reads failed after their wait", count(row.refused))
        } else {
            String::new()
        };
        format!(
            "{} ({}): violations of read-your-writes in {} reads, {} of them immediate: {}; of monotonic reads in {} reads: {}{refused}.",
            label(run, row),
            row.guarantee,
            count(violations.read_your_writes_of),
            count(row.rounds),
            share(
                violations.read_your_writes,
                violations.read_your_writes_percent_upper_bound
            ),
            count(violations.monotonic_reads_of),
            share(
                violations.monotonic_reads,
                violations.monotonic_reads_percent_upper_bound
            ),
        )
    };
    synced.map(verdict).collect()
}

/// Returns what waiting rounds mean for the figures, for rows where rounds waited.
fn waits(run: &StaleDocument) -> Vec<String> {
    let rows = run.results.rows.iter();
    rows.flat_map(|row| waits_of(run, row)).collect()
}

fn waits_of(run: &StaleDocument, row: &StaleRow) -> Vec<String> {
    let name = label(run, row);
    let fresh = &row.fresh_after_us;
    let longest = row.longest_round_us.unwrap_or_default();
    let withheld = (row.withheld_rounds > 0).then(|| {
        let none = if fresh.p99.is_none() && fresh.decided_by_us.is_none() {
            "; it took more than 1 % of the time or not every write was seen, so 99 % fresh has no figure: measure for longer"
        } else {
            ""
        };
        format!(
            "{name}: while rounds waited, {} others would have begun at the median interval; they count in the share of time and in \
             the time to wait. The longest round took {}{none}.",
            count(row.withheld_rounds),
            time(longest)
        )
    });
    let decided = fresh.decided_by_us.map(|wait| {
        let (part, level) = if fresh.p99.is_none() {
            ("1 %", "99 %")
        } else {
            ("0.1 %", "99.9 %")
        };
        format!(
            "{name}: one round waited {} for its write, more than {part} of the time, so {level} fresh has no figure: measure for longer.",
            time(wait)
        )
    });
    [withheld, decided].into_iter().flatten().collect()
}

pub(super) fn bound(percent: f64) -> String {
    let places = if percent >= 0.1 {
        2
    } else {
        (-percent.log10()).ceil().clamp(2.0, 8.0) as usize + 1
    };
    format!("{percent:.places$} % with 97.5 % confidence")
}

/// Returns the name of a case.
fn case(timeline: &StaleTimeline) -> String {
    let sync = match timeline.read_consistency.as_str() {
        "off" => String::new(),
        reads => format!(", {}", read_description(reads, &timeline.session_reset)),
    };
    format!("{} · {}{sync}", timeline.shape, timeline.load)
}

/// Returns the windows in which no request was answered, or a write was not visible, with the server
/// counters.
fn stalls(timeline: &StaleTimeline, judged: bool) -> Vec<String> {
    let case = case(timeline);
    type DurationText = fn(&StaleWindow) -> f64;
    let kinds: [(DurationText, &str); 2] = [
        (
            stall,
            if judged {
                "a statement of the checked load stalled for"
            } else {
                "a single-row request stalled for"
            },
        ),
        (
            |window| window.unshown_us,
            "a reader had not shown an acknowledged write for",
        ),
    ];
    let mut sentences = Vec::new();
    for (long, words) in kinds {
        let worst = timeline
            .windows
            .iter()
            .max_by(|a, b| long(a).total_cmp(&long(b)));
        if let Some(worst) = worst.filter(|worst| long(worst) >= STALL_US) {
            sentences.push(format!(
                "{case}: {words} {} ({:.1} s after the start); in that window: {}.",
                time(long(worst)),
                worst.end_us / 1e6,
                said(timeline, worst)
            ));
        }
    }
    sentences
}

/// Returns the server of a counter.
fn server(counter: &str) -> &str {
    counter.split(' ').next().unwrap_or(counter)
}

/// Returns the server counters in a window, and the servers that did not answer.
fn said(timeline: &StaleTimeline, window: &StaleWindow) -> String {
    let servers: BTreeSet<&str> = timeline
        .windows
        .iter()
        .flat_map(|window| window.counters.keys())
        .map(|counter| server(counter))
        .collect();
    let silent = servers.into_iter().filter(|name| {
        !window
            .counters
            .keys()
            .any(|counter| server(counter) == *name)
    });
    let silent = silent.map(|name| format!("{name} did not answer"));
    let said = window
        .counters
        .iter()
        .filter(|(name, value)| **value > 0.0 && !name.ends_with("Threads_running"))
        .map(|(name, value)| {
            format!(
                "{} {}",
                name.trim_end_matches('+'),
                count(value.round() as u64)
            )
        });
    let said: Vec<String> = silent.chain(said).collect();
    if said.is_empty() {
        "the servers' counters showed nothing".to_owned()
    } else {
        said.join(", ")
    }
}

fn stall(window: &StaleWindow) -> f64 {
    [window.write_max_us, window.read_max_us]
        .into_iter()
        .flatten()
        .fold(window.under_way_us, f64::max)
}

/// Returns the window in which a load was slowest, if it was much slower than in most.
fn slowed(timeline: &StaleTimeline) -> Vec<String> {
    let case = case(timeline);
    let loads = timeline
        .windows
        .first()
        .map_or(0, |window| window.load.len());
    let mut sentences = Vec::new();
    for at in 0..loads {
        let windows: Vec<(&StaleWindow, &LoadWindow)> = timeline
            .windows
            .iter()
            .filter_map(|window| Some((window, window.load.get(at)?)))
            .collect();
        let mut tails: Vec<f64> = windows.iter().filter_map(|(_, load)| load.p99_us).collect();
        tails.sort_by(f64::total_cmp);
        let longest = |load: &LoadWindow| load.max_us.unwrap_or(0.0).max(load.under_way_us);
        let worst = windows
            .iter()
            .max_by(|(_, one), (_, other)| longest(one).total_cmp(&longest(other)));
        let (Some((window, load)), Some(typical)) = (worst, tails.get(tails.len() / 2)) else {
            continue;
        };
        if longest(load) < STALL_US || longest(load) < 10.0 * typical {
            continue;
        }
        sentences.push(format!(
            "{case}: an operation of the load {} took {} or more ({:.1} s after the start); the median p99 of a window was {}.",
            load.load,
            time(longest(load)),
            window.end_us / 1e6,
            time(*typical),
        ));
    }
    sentences
}

/// Returns the description of the method.
pub(super) fn sentences(run: &StaleDocument) -> Vec<String> {
    let judged = run.results.rows.iter().any(|row| row.judged == "load");
    let mut sentences =
        vec!["Intervals are 95 %; without any event the upper bound is given.".to_owned()];
    if run.settings.through == Some(Through::Http) {
        sentences.push(site(run));
    }
    sentences.push(covered(run.target.fresh_starts));
    sentences.extend(waits(run));
    sentences.extend(run.results.rows.iter().filter_map(|row| behind(run, row)));
    sentences.extend(run.results.rows.iter().flat_map(|row| troubles(run, row)));
    sentences.extend(
        run.results
            .timelines
            .iter()
            .flat_map(|timeline| stalls(timeline, judged)),
    );
    sentences.extend(run.results.timelines.iter().flat_map(slowed));
    sentences.extend(run.results.load.iter().filter_map(|load| gap(run, load)));
    let late = run
        .results
        .rows
        .iter()
        .filter_map(|row| Some((row.read_delay_error.p99_us?, row)));
    if let Some((p99, row)) = late.max_by(|a, b| a.0.total_cmp(&b.0)) {
        sentences.push(format!(
            "Reads were issued {} late at p99 ({}); figures use the achieved times.",
            time(p99),
            label(run, row)
        ));
    }
    sentences
}

/// Returns what took the requests of a site.
fn site(run: &StaleDocument) -> String {
    match run.settings.fronts.unwrap_or_default() {
        0 | 1 => "One front took the requests.".to_owned(),
        fronts => format!("HAProxy passed requests to {fronts} fronts in turn."),
    }
}

/// Returns by how many versions the stale reads of a row were behind, if by more than one.
fn behind(run: &StaleDocument, row: &StaleRow) -> Option<String> {
    let behind = row.versions_behind.iter();
    let shown = behind.map(|behind| format!("{} by {}", count(behind.reads), behind.versions));
    row.versions_behind
        .iter()
        .any(|behind| behind.versions > 1)
        .then(|| {
            format!(
                "{}: stale reads by versions behind: {}.",
                label(run, row),
                shown.collect::<Vec<_>>().join(", ")
            )
        })
}

/// Returns interferences, and the delay included in every time of a row.
fn troubles(run: &StaleDocument, row: &StaleRow) -> Vec<String> {
    let between = (row.conflicts + row.foreign + row.refused > 0).then(|| {
        format!(
            "{} writes were retried after a conflict, {} rounds had a row changed by another client, {} reads failed.",
            count(row.conflicts),
            count(row.foreign),
            count(row.refused)
        )
    });
    let delay = row.configured_delay_us.map(|us| {
        format!(
            "replication is delayed by {} (MASTER_DELAY or SOURCE_DELAY), which every time includes.",
            time(us)
        )
    });
    let all = [between, delay].into_iter().flatten();
    all.map(|words| format!("{}: {words}", label(run, row)))
        .collect()
}

/// Returns which start a load belongs to, if there were several.
pub(super) fn of_start(run: &StaleDocument, load: &StaleLoad) -> String {
    match run.target.fresh_starts {
        0 | 1 => String::new(),
        _ => format!(", start {}", load.start),
    }
}

/// Returns the longest time in which a load completed no operation.
fn gap(run: &StaleDocument, load: &StaleLoad) -> Option<String> {
    let gaps = load.record.per_second.split(|operations| *operations > 0);
    let gap = gaps.map(<[u64]>::len).max().filter(|gap| *gap > 1)?;
    Some(format!(
        "{}: the load on {} ({}){} completed no operation for {gap} s.",
        load.record.shape,
        load.record.node,
        read_description(&load.read_consistency, &load.session_reset),
        of_start(run, load)
    ))
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::stale::results::FreshAfter;

    use super::*;

    #[test]
    fn overhead_that_may_be_zero_is_stated() {
        let known = |p50_us: f64, ends: [f64; 2]| Distribution {
            count: 400,
            p50_us: Some(p50_us),
            p50_us_ci95: Some(ends),
            ..Distribution::default()
        };
        let texts = difference(
            "a write at",
            &known(1_000.0, [900.0, 1_300.0]),
            &known(1_200.0, [800.0, 1_500.0]),
        );
        // −200 − √(100² + 300²) to −200 + √(300² + 400²).
        assert_eq!(
            texts.unwrap(),
            "a write at p50 1,000 µs instead of 1,200 µs (-200 µs [-520, 300])"
        );
    }

    #[test]
    fn wait_that_decides_a_figure_is_explained() {
        let row = StaleRow {
            reader: "node2".to_owned(),
            longest_round_us: Some(9e6),
            fresh_after_us: FreshAfter {
                p99: Some(0.0),
                decided_by_us: Some(250_000.0),
                ..FreshAfter::default()
            },
            ..StaleRow::default()
        };
        let texts = waits_of(&StaleDocument::default(), &row);
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(
            texts[0].ends_with(
                "one round waited 250.0 ms for its write, more than 0.1 % of the time, so 99.9 % fresh has no figure: measure for longer."
            ),
            "{texts:?}"
        );
    }

    #[test]
    fn stall_is_reported_with_server_counters() {
        let window = |counters: &[(&str, f64)], under_way_us: f64, unshown_us: f64| StaleWindow {
            counters: counters
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect(),
            under_way_us,
            unshown_us,
            ..StaleWindow::default()
        };
        let timeline = StaleTimeline {
            shape: "galera:3".to_owned(),
            load: "none".to_owned(),
            read_consistency: "off".to_owned(),
            windows: vec![
                window(&[("node1 queue", 0.0), ("node3 queue", 0.0)], 0.0, 900.0),
                window(&[("node1 queue", 7.0)], 5e6, 900.0),
            ],
            ..StaleTimeline::default()
        };
        let texts = stalls(&timeline, false);
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(
            texts[0].contains("stalled for 5,000 ms")
                && texts[0].ends_with("node3 did not answer, node1 queue 7."),
            "{texts:?}"
        );
    }
}
