//! What a `stale` run tells people.

use std::{collections::BTreeSet, fmt::Write as _};

use replimeter_model::{
    record::{Distribution, RunStatus},
    stale::{
        CurvePoint, LoadWindow, StaleCourse, StaleDocument, StaleLoad, StaleRow, StaleWindow,
        Witness,
    },
};

use crate::{
    answer::with_ending,
    figures::{Unit, count, time},
    load::with_interval,
    terminal::{aligned, how_measured, plain_table, warnings, wrapped},
};

/// A stretch without a round that is as long as this many others is a stall.
const STALL_US: f64 = 1e6;

/// The columns of the table.
pub(crate) const HEADINGS: [&str; 14] = [
    "load",
    "on",
    "synchronous reads",
    "reader",
    "rounds",
    "stale",
    "% [95 %]",
    "delay min",
    "max",
    "avg",
    "99 % fresh after",
    "99.9 %",
    "went back",
    "write p50 / max",
];

/// The columns of the loads.
pub(crate) const LOAD_HEADINGS: [&str; 11] = [
    "load",
    "beside reads",
    "operations/s, 95 %",
    "operations",
    "min",
    "mean",
    "p50",
    "p99",
    "max",
    "retried",
    "failed",
];

/// A share in percent with its interval; of none the upper bound.
pub(crate) fn percent(share: f64, low: f64, high: f64) -> String {
    let digits = |value: f64| match value {
        value if value >= 9.95 => 1,
        value if value >= 0.0995 => 2,
        value if value >= 0.00995 => 3,
        _ => 4,
    };
    if share == 0.0 {
        return format!("< {:.*}", digits(high), high);
    }
    let places = digits(share).max(digits((high - low) / 2.0).min(3));
    format!("{share:.places$} [{low:.places$}, {high:.places$}]")
}

fn share(row: &StaleRow) -> String {
    match (
        row.stale_percent,
        row.stale_percent_low,
        row.stale_percent_high,
    ) {
        (Some(share), Some(low), Some(high)) => percent(share, low, high),
        _ => "–".to_owned(),
    }
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), time)
}

fn wait(value: Option<f64>, ends: Option<[f64; 2]>) -> String {
    match (value, ends) {
        (None, _) => "–".to_owned(),
        (Some(us), _) if us <= 0.0 => "at once".to_owned(),
        (Some(us), None) => time(us),
        (Some(us), Some([low, high])) => {
            let unit = Unit::for_size(us);
            let [low, high] = unit.show_interval([low, high]);
            format!("{} [{low}, {high}]", unit.with_within(us, 0.0))
        }
    }
}

/// How reads were made to wait, with what became of the connections.
pub(crate) fn way(sync_reads: &str, pool: &str) -> String {
    match pool {
        "" | "keep" => sync_reads.to_owned(),
        pool => format!("{sync_reads}, {pool}"),
    }
}

/// Who was read, with the shape where there are several.
pub(crate) fn reader(document: &StaleDocument, row: &StaleRow) -> String {
    let null = if row.null_replica {
        " (null replica)"
    } else {
        ""
    };
    if document.target.modes.len() > 1 {
        format!("{} {}{null}", row.shape, row.reader)
    } else {
        format!("{}{null}", row.reader)
    }
}

/// A row's whole name.
pub(crate) fn label(document: &StaleDocument, row: &StaleRow) -> String {
    let load = if row.load == "none" {
        String::new()
    } else {
        format!(", {}", row.load)
    };
    let sync = if row.sync_reads == "off" {
        String::new()
    } else {
        format!(", {}", way(&row.sync_reads, &row.pool))
    };
    format!("{}{load}{sync}", reader(document, row))
}

/// Lines of cells.
pub(crate) fn lines(document: &StaleDocument) -> Vec<Vec<String>> {
    let line = |row: &StaleRow| {
        let fresh = &row.fresh_after_us;
        let longest = row.write.p50_us.map_or_else(|| "–".to_owned(), time);
        vec![
            row.load.clone(),
            if row.load_on.is_empty() {
                "–".to_owned()
            } else {
                row.load_on.clone()
            },
            way(&row.sync_reads, &row.pool),
            reader(document, row),
            count(row.rounds),
            count(row.stale),
            share(row),
            figure(row.delay.min_us),
            figure(row.delay.max_us),
            figure(row.delay.mean_us),
            wait(fresh.p99, fresh.p99_ci),
            wait(fresh.p999, fresh.p999_ci),
            count(row.violations.monotonic_reads),
            format!("{longest} / {}", figure(row.write.max_us)),
        ]
    };
    document.results.iter().map(line).collect()
}

/// Lines of the loads.
pub(crate) fn load_lines(document: &StaleDocument) -> Vec<Vec<String>> {
    let line = |load: &StaleLoad| {
        let record = &load.record;
        let place = if document.target.modes.len() > 1 {
            format!("{} {}", record.shape, record.node)
        } else {
            record.node.clone()
        };
        let workload = record
            .workload
            .rsplit('/')
            .next()
            .unwrap_or(&record.workload);
        vec![
            format!("{workload}:{}@{place}", record.threads),
            way(&load.sync_reads, &load.pool),
            with_interval(&record.throughput),
            count(record.passes),
            figure(record.latency.min_us),
            figure(record.latency.mean_us),
            figure(record.latency.p50_us),
            figure(record.latency.p99_us),
            figure(record.latency.max_us),
            count(record.retries),
            count(record.failed),
        ]
    };
    document.load.iter().map(line).collect()
}

/// The summaries as they were published in 2013, of rows of rounds.
pub(crate) fn summaries(document: &StaleDocument) -> Vec<String> {
    document
        .results
        .iter()
        .filter(|row| row.judged != "load")
        .map(|row| published(document, row))
        .collect()
}

/// The summary of a row as it was published in 2013.
fn published(document: &StaleDocument, row: &StaleRow) -> String {
    let mut text = format!(
        "{}: Summary: {} out of {} rounds",
        label(document, row),
        row.stale,
        row.rounds
    );
    if let Some(share) = row.stale_percent {
        let _ = write!(text, " ({share:.2}%)");
    }
    let ms = |value: Option<f64>| {
        value.map_or_else(|| "–".to_owned(), |us| format!("{:.2} ms", us / 1e3))
    };
    if row.delay.count > 0 {
        let delay = &row.delay;
        let _ = write!(
            text,
            "; delay min {}; max {}; avg {}",
            ms(delay.min_us),
            ms(delay.max_us),
            ms(delay.mean_us)
        );
    }
    text
}

/// The columns of the curves.
pub(crate) const CURVE_HEADINGS: [&str; 7] = [
    "row",
    "asked",
    "after the ack (p50)",
    "reads",
    "stale",
    "% [95 %]",
    "p1 to p99",
];

fn curve_line(row: &StaleRow, point: &CurvePoint) -> Vec<String> {
    let asked = match (row.judged.as_str(), point.asked_us) {
        ("load", us) => format!("from {}", time(us)),
        (_, 0.0) => "at once".to_owned(),
        (_, us) => time(us),
    };
    vec![
        asked,
        time(point.after_us),
        count(point.reads),
        count(point.stale),
        percent(
            point.probability * 100.0,
            point.low * 100.0,
            point.high * 100.0,
        ),
        point.achieved_us.map_or_else(
            || "–".to_owned(),
            |[low, high]| format!("{} to {}", time(low), time(high)),
        ),
    ]
}

/// Lines of all curves.
pub(crate) fn curve_lines(document: &StaleDocument) -> Vec<Vec<String>> {
    let rows = document.results.iter().filter(|row| row.curve.len() > 1);
    let line = |row: &StaleRow, point: &CurvePoint| {
        std::iter::once(label(document, row))
            .chain(curve_line(row, point))
            .collect()
    };
    rows.flat_map(|row| {
        row.curve
            .iter()
            .map(move |point| line(row, point))
            .collect::<Vec<_>>()
    })
    .collect()
}

fn curve(row: &StaleRow) -> String {
    let mut table = plain_table(
        CURVE_HEADINGS[1..]
            .iter()
            .map(|heading| (*heading).to_owned())
            .collect(),
    );
    row.curve
        .iter()
        .for_each(|point| _ = table.add_row(curve_line(row, point)));
    aligned(table, 0)
}

/// The 95 % interval of the difference of two medians that are known with theirs (Zou & Donner 2008).
fn interval(with: &Distribution, without: &Distribution) -> Option<[f64; 2]> {
    let of = |distribution: &Distribution| {
        Some((distribution.p50_us?, distribution.ci95.as_ref()?.p50_us?))
    };
    let ((now, [now_low, now_high]), (before, [before_low, before_high])) =
        (of(with)?, of(without)?);
    let difference = now - before;
    Some([
        difference - (now - now_low).hypot(before_high - before),
        difference + (now_high - now).hypot(before - before_low),
    ])
}

fn difference(name: &str, with: &Distribution, without: &Distribution) -> Option<String> {
    // Of very few rounds there is no median.
    let median = with.p50_us.zip(without.p50_us).map(|both| ("p50", both));
    let (what, (now, before)) =
        median.or_else(|| Some(("the mean", with.mean_us.zip(without.mean_us)?)))?;
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

/// What synchronous reads cost.
pub(crate) fn price(document: &StaleDocument, row: &StaleRow) -> Option<String> {
    let price = row.price.as_ref()?;
    let parts = [
        difference("a read takes at", &price.read_with, &price.read_without),
        difference("a write at", &price.write_with, &price.write_without),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    Some(format!(
        "{}: the price of synchronous reads ({}), from {} rounds that took turns with and without: {}.",
        label(document, row),
        row.guarantee,
        count(price.read_with.count + price.read_without.count),
        parts.join("; ")
    ))
}

/// A violation of each kind, statement by statement.
pub(crate) fn witnesses(document: &StaleDocument, row: &StaleRow) -> Vec<Vec<String>> {
    let all = [&row.witness, &row.monotonic_witness].into_iter().flatten();
    all.map(|witness| told(document, row, witness)).collect()
}

fn told(document: &StaleDocument, row: &StaleRow, witness: &Witness) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: {} violated in round {}:",
        label(document, row),
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

/// What became of promises, of rows that were read synchronously.
pub(crate) fn verdicts(document: &StaleDocument) -> Vec<String> {
    let synced = document
        .results
        .iter()
        .filter(|row| row.sync_reads != "off" && row.rounds > 0);
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
            format!(
                "; {} reads were refused after their wait",
                count(row.refused)
            )
        } else {
            String::new()
        };
        format!(
            "{} ({}): violations of read-your-writes in {} reads, {} of them at once: {}; of monotonic reads in {} reads: {}{refused}.",
            label(document, row),
            row.guarantee,
            count(violations.read_your_writes_of),
            count(row.rounds),
            share(
                violations.read_your_writes,
                violations.read_your_writes_percent_high
            ),
            count(violations.monotonic_reads_of),
            share(
                violations.monotonic_reads,
                violations.monotonic_reads_percent_high
            ),
        )
    };
    synced.map(verdict).collect()
}

fn bound(percent: f64) -> String {
    let places = if percent >= 0.1 {
        2
    } else {
        (-percent.log10()).ceil().clamp(2.0, 8.0) as usize + 1
    };
    format!("{percent:.places$} % with 97.5 % confidence")
}

/// Stretches in which nothing of ours was answered, or a write was not shown, with what the servers said.
fn stalls(course: &StaleCourse, judged: bool) -> Vec<String> {
    let sync = if course.sync_reads == "off" {
        String::new()
    } else {
        format!(", {}", way(&course.sync_reads, &course.pool))
    };
    type Long = fn(&StaleWindow) -> f64;
    let kinds: [(Long, &str); 2] = [
        (
            stall,
            if judged {
                "a statement of the judged load stood for"
            } else {
                "a request of our own for a single row stood for"
            },
        ),
        (
            |window| window.unshown_us,
            "a reader had not shown an acknowledged write for",
        ),
    ];
    let mut sentences = Vec::new();
    for (long, words) in kinds {
        let worst = course
            .windows
            .iter()
            .max_by(|a, b| long(a).total_cmp(&long(b)));
        if let Some(worst) = worst.filter(|worst| long(worst) >= STALL_US) {
            sentences.push(format!(
                "{} · {}{sync}: {words} {} ({:.1} s after the beginning); in that stretch: {}.",
                course.shape,
                course.load,
                time(long(worst)),
                worst.end_us / 1e6,
                said(course, worst)
            ));
        }
    }
    sentences
}

/// The server that a counter is of.
fn server(counter: &str) -> &str {
    counter.split(' ').next().unwrap_or(counter)
}

/// What the servers' counters said in a stretch, and who said nothing.
fn said(course: &StaleCourse, window: &StaleWindow) -> String {
    let servers: BTreeSet<&str> = course
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

/// The stretch in which a load was slowest, where that is much slower than it was in most.
fn slowed(course: &StaleCourse) -> Vec<String> {
    let sync = if course.sync_reads == "off" {
        String::new()
    } else {
        format!(", {}", way(&course.sync_reads, &course.pool))
    };
    let loads = course.windows.first().map_or(0, |window| window.load.len());
    let mut sentences = Vec::new();
    for at in 0..loads {
        let stretches: Vec<(&StaleWindow, &LoadWindow)> = course
            .windows
            .iter()
            .filter_map(|window| Some((window, window.load.get(at)?)))
            .collect();
        let mut tails: Vec<f64> = stretches
            .iter()
            .filter_map(|(_, load)| load.p99_us)
            .collect();
        tails.sort_by(f64::total_cmp);
        let longest = |load: &LoadWindow| load.max_us.unwrap_or(0.0).max(load.under_way_us);
        let worst = stretches
            .iter()
            .max_by(|(_, one), (_, other)| longest(one).total_cmp(&longest(other)));
        let (Some((window, load)), Some(typical)) = (worst, tails.get(tails.len() / 2)) else {
            continue;
        };
        if longest(load) < STALL_US || longest(load) < 10.0 * typical {
            continue;
        }
        sentences.push(format!(
            "{} · {}{sync}: an operation of the load {} took {} or more ({:.1} s after the beginning); the median stretch's p99 was {}.",
            course.shape,
            course.load,
            load.load,
            time(longest(load)),
            window.end_us / 1e6,
            time(*typical),
        ));
    }
    sentences
}

/// How it was measured, and what belongs to it.
pub(crate) fn sentences(document: &StaleDocument) -> Vec<String> {
    let judged = document.results.iter().any(|row| row.judged == "load");
    let mut sentences = if judged {
        vec![
            "The load's own statements write and read the versions of rows: no row is read or written beside them. A read is stale when it does not \
             show what had been acknowledged when it was sent; the curve is by how long ago that was. Reads of rows that had not been \
             written yet are not judged. Intervals are Wilson's, widened by how much reads of a stretch are alike; of no event the upper \
             bound is given."
                .to_owned(),
        ]
    } else {
        vec![
        "A round writes one row on the writer (UPDATE … SET k = round, by a random odd id) and reads it on each reader at once \
         after the acknowledgement. It is stale when that first read did not show the write; delay is from the acknowledgement to \
         the answer that did, of stale rounds only. Intervals are Wilson's, widened by how much rounds of a stretch are alike; of no event \
         the upper bound is given."
            .to_owned(),
        ]
    };
    if !judged && document.results.iter().any(|row| row.curve.len() > 1) {
        sentences.push(
            "The curve is of rounds of its own, whose reads were scheduled at chosen times after the acknowledgement, in random order; \
             its times are those that were achieved. How long to wait for so many fresh reads is estimated from when every round's write \
             became visible, bracketed by its reads (Turnbull)."
                .to_owned(),
        );
    }
    for row in document
        .results
        .iter()
        .filter(|row| row.behind.iter().any(|behind| behind.versions > 1))
    {
        let behind: Vec<String> = row
            .behind
            .iter()
            .map(|behind| format!("{} by {}", count(behind.reads), behind.versions))
            .collect();
        sentences.push(format!(
            "{}: stale reads behind by so many versions: {}.",
            label(document, row),
            behind.join(", ")
        ));
    }
    for row in &document.results {
        if row.conflicts + row.foreign + row.refused > 0 {
            sentences.push(format!(
                "{}: {} writes were repeated after a conflict, {} rounds had a row changed by somebody else, {} reads were refused.",
                label(document, row),
                count(row.conflicts),
                count(row.foreign),
                count(row.refused)
            ));
        }
        if let Some(delay) = row.configured_delay_us {
            sentences.push(format!(
                "{}: it is deliberately delayed by {}, which every time includes.",
                label(document, row),
                time(delay)
            ));
        }
    }
    sentences.extend(
        document
            .series
            .iter()
            .flat_map(|course| stalls(course, judged)),
    );
    sentences.extend(document.series.iter().flat_map(slowed));
    for load in &document.load {
        let gap = load
            .record
            .per_second
            .split(|operations| *operations > 0)
            .map(<[u64]>::len)
            .max()
            .unwrap_or(0);
        if gap > 1 {
            sentences.push(format!(
                "{}: the load on {} ({}) completed nothing for {gap} s in a row.",
                load.record.shape,
                load.record.node,
                way(&load.sync_reads, &load.pool)
            ));
        }
    }
    let late = document
        .results
        .iter()
        .filter_map(|row| Some((row.offset_error.p99_us?, row)));
    if let Some((p99, row)) = late.max_by(|a, b| a.0.total_cmp(&b.0)) {
        sentences.push(format!(
            "Reads were issued at most {} after their time at p99 ({}); the achieved times are what counts.",
            time(p99),
            label(document, row)
        ));
    }
    sentences
}

/// The finding in one sentence.
#[must_use]
pub fn answer(document: &StaleDocument) -> String {
    let part = |row: &StaleRow| -> Option<String> {
        let reads = if row.judged == "load" {
            "reads of the load"
        } else {
            "reads at once"
        };
        let (share, low, high) = (
            row.stale_percent?,
            row.stale_percent_low?,
            row.stale_percent_high?,
        );
        let mut text = if row.stale == 0 {
            format!(
                "{}: none of {} {reads} was stale (the share is below {})",
                label(document, row),
                count(row.rounds),
                bound(high)
            )
        } else {
            format!(
                "{}: {} % of {} {reads} were stale",
                label(document, row),
                percent(share, low, high),
                count(row.rounds)
            )
        };
        let fresh = &row.fresh_after_us;
        let best = fresh
            .p999
            .map(|us| (us, fresh.p999_ci, "99.9"))
            .or_else(|| fresh.p99.map(|us| (us, fresh.p99_ci, "99")));
        match best {
            Some((us, ends, level)) if us > 0.0 => {
                let _ = write!(text, "; wait {} for {level} % fresh", wait(Some(us), ends));
            }
            _ => {}
        }
        Some(text)
    };
    let parts: Vec<String> = document.results.iter().filter_map(part).collect();
    let mut text = match parts.len() {
        0 => "No read was judged".to_owned(),
        1..=4 => parts.join(". "),
        // The table has them all; here the best and the worst.
        _ => {
            let rows = || {
                document
                    .results
                    .iter()
                    .filter(|row| row.stale_percent.is_some())
            };
            let by = |a: &&StaleRow, b: &&StaleRow| {
                a.stale_percent
                    .unwrap_or(0.0)
                    .total_cmp(&b.stale_percent.unwrap_or(0.0))
            };
            // Of several without any, the one that is known best.
            let least = |a: &&StaleRow, b: &&StaleRow| {
                let high = |row: &StaleRow| row.stale_percent_high.unwrap_or(100.0);
                by(a, b).then(high(a).total_cmp(&high(b)))
            };
            let ends = [rows().min_by(least), rows().max_by(by)];
            let ends: Vec<String> = ends.into_iter().flatten().filter_map(part).collect();
            format!(
                "Least: {}. Most: {}",
                ends.first().map_or("–", String::as_str),
                ends.last().map_or("–", String::as_str)
            )
        }
    };
    text.push('.');
    if document.status == RunStatus::Void {
        text.push_str(" The run is void.");
    }
    with_ending(text, document.status)
}

/// The whole text.
#[must_use]
pub fn text(document: &StaleDocument) -> String {
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
        "Replimeter stale · {} · {}\n",
        document.target.shape,
        versions.join(", ")
    );
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    if !document.results.is_empty() {
        let mut table = plain_table(HEADINGS.map(str::to_owned).to_vec());
        lines(document)
            .into_iter()
            .for_each(|line| _ = table.add_row(line));
        let mut writers: Vec<&str> = document
            .results
            .iter()
            .map(|row| row.writer.as_str())
            .collect();
        writers.dedup();
        let writer = if let [writer] = writers[..] {
            writer
        } else {
            "the writer"
        };
        let _ = writeln!(
            out,
            "Reads that missed the write just acknowledged on {writer}\n{}",
            aligned(table, 4).trim_end()
        );
        let published = summaries(document);
        if !published.is_empty() {
            let _ = writeln!(out, "\nAs published in 2013");
        }
        published
            .iter()
            .for_each(|line| _ = writeln!(out, "  {line}"));
    }
    for row in document.results.iter().filter(|row| row.curve.len() > 1) {
        let _ = writeln!(
            out,
            "\nStale reads by the time after the acknowledgement, {}",
            label(document, row)
        );
        let _ = write!(out, "{}", curve(row));
    }
    let verdicts = verdicts(document);
    let prices: Vec<String> = document
        .results
        .iter()
        .filter_map(|row| price(document, row))
        .collect();
    if !(verdicts.is_empty() && prices.is_empty()) {
        let _ = writeln!(out, "\nSynchronous reads");
        for verdict in verdicts.iter().chain(&prices) {
            let _ = writeln!(out, "  {}", wrapped(verdict, 118, "  "));
        }
    }
    for lines in document
        .results
        .iter()
        .filter(|row| row.sync_reads != "off")
        .flat_map(|row| witnesses(document, row))
    {
        for line in lines {
            let _ = writeln!(out, "  {line}");
        }
    }
    let loads = load_lines(document);
    if !loads.is_empty() {
        let mut table = plain_table(LOAD_HEADINGS.map(str::to_owned).to_vec());
        loads.into_iter().for_each(|line| _ = table.add_row(line));
        let _ = writeln!(out, "\nThe load itself\n{}", aligned(table, 2).trim_end());
    }
    out.push_str(&how_measured(&sentences(document)));
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        record::Intervals,
        stale::{FreshAfter, Violations},
    };

    use super::*;

    fn row() -> StaleRow {
        StaleRow {
            writer: "node1".to_owned(),
            reader: "node2".to_owned(),
            load: "none".to_owned(),
            sync_reads: "off".to_owned(),
            pool: "keep".to_owned(),
            rounds: 10_000,
            stale: 94,
            stale_percent: Some(0.94),
            stale_percent_low: Some(0.77),
            stale_percent_high: Some(1.15),
            delay: Distribution {
                count: 94,
                min_us: Some(710.0),
                max_us: Some(2160.0),
                mean_us: Some(890.0),
                ..Distribution::default()
            },
            fresh_after_us: FreshAfter {
                p99: Some(0.0),
                p999: Some(3100.0),
                p99_ci: None,
                p999_ci: Some([2900.0, 3600.0]),
            },
            ..StaleRow::default()
        }
    }

    #[test]
    fn the_summary_reads_as_published() {
        let document = StaleDocument {
            results: vec![row()],
            ..StaleDocument::default()
        };
        assert_eq!(
            published(&document, &document.results[0]),
            "node2: Summary: 94 out of 10000 rounds (0.94%); delay min 0.71 ms; max 2.16 ms; avg 0.89 ms"
        );
        assert_eq!(
            answer(&document),
            "node2: 0.94 [0.77, 1.15] % of 10,000 reads at once were stale; wait 3,100 µs [2,900, 3,600] for 99.9 % fresh."
        );
    }

    #[test]
    fn a_price_that_may_be_none_says_so() {
        let known = |p50_us: f64, ends: [f64; 2]| Distribution {
            count: 400,
            p50_us: Some(p50_us),
            ci95: Some(Intervals {
                p50_us: Some(ends),
                ..Intervals::default()
            }),
            ..Distribution::default()
        };
        let told = difference(
            "a write at",
            &known(1_000.0, [900.0, 1_300.0]),
            &known(1_200.0, [800.0, 1_500.0]),
        );
        // −200 − √(100² + 300²) to −200 + √(300² + 400²).
        assert_eq!(
            told.unwrap(),
            "a write at p50 1,000 µs instead of 1,200 µs (-200 µs [-520, 300])"
        );
    }

    #[test]
    fn a_stall_is_told_with_what_the_servers_said_and_who_said_nothing() {
        let window = |counters: &[(&str, f64)], under_way_us: f64, unshown_us: f64| StaleWindow {
            counters: counters
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect(),
            under_way_us,
            unshown_us,
            ..StaleWindow::default()
        };
        let course = StaleCourse {
            shape: "galera:3".to_owned(),
            load: "none".to_owned(),
            sync_reads: "off".to_owned(),
            windows: vec![
                window(&[("node1 queue", 0.0), ("node3 queue", 0.0)], 0.0, 900.0),
                window(&[("node1 queue", 7.0)], 5e6, 900.0),
            ],
            ..StaleCourse::default()
        };
        let told = stalls(&course, false);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains("stood for 5,000 ms")
                && told[0].ends_with("node3 did not answer, node1 queue 7."),
            "{told:?}"
        );
    }

    #[test]
    fn nothing_is_never_a_bare_zero() {
        assert_eq!(percent(0.0, 0.0, 0.0384), "< 0.038");
        let synced = StaleRow {
            stale: 0,
            rounds: 100_000,
            stale_percent: Some(0.0),
            stale_percent_low: Some(0.0),
            stale_percent_high: Some(0.00384),
            sync_reads: "before".to_owned(),
            guarantee: "reader: SET SESSION wsrep_sync_wait = 1".to_owned(),
            violations: Violations {
                read_your_writes_of: 100_000,
                monotonic_reads_of: 100_000,
                read_your_writes_percent_high: 0.00384,
                monotonic_reads_percent_high: 0.00384,
                ..Violations::default()
            },
            ..row()
        };
        let document = StaleDocument {
            results: vec![synced],
            ..StaleDocument::default()
        };
        let verdict = verdicts(&document).remove(0);
        assert!(
            verdict.contains("none (below 0.0038 % with 97.5 % confidence)"),
            "{verdict}"
        );
        assert!(!answer(&document).contains("0 %"), "{}", answer(&document));
    }
}
