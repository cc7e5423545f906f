//! The report of a `stale` run.

mod words;

use std::{collections::BTreeSet, fmt::Write as _};

use replimeter_instruments::{
    front::site::Through,
    stale::results::{RemedyCost, StaleDocument, StaleRow},
};
use replimeter_model::{
    record::{Distribution, RunStatus},
    resources::PerOperation,
};

use crate::starts::spread;

use self::words::{bound, of_start, overhead, sentences, verdicts, witnesses};
use replimeter_render::{
    cell::throughput,
    figures::{Unit, count, time},
    format::Format,
    headline::{with_end_note, with_level},
    load::description,
    report::{Block, Cell, Report, Table, Visibility},
};

/// Returns a row's share of stale reads with its interval.
fn share(row: &StaleRow) -> Cell {
    let share = row.stale_percent.zip(row.stale_percent_ci95);
    share.map_or(Cell::NONE, |(share, ends)| {
        Format::Share.with_interval_ends(Some(share), Some(ends))
    })
}

/// Formats the wait for a share of fresh reads.
fn wait(us: f64, ends: Option<[f64; 2]>) -> String {
    let unit = Unit::for_size(us);
    match ends {
        _ if us <= 0.0 => "immediate".to_owned(),
        None => unit.with(us),
        Some(ends) => format!(
            "{} [{}]",
            unit.with(us),
            unit.show_interval(ends).join(", ")
        ),
    }
}

/// Returns the level of read consistency and the session reset.
pub(crate) fn read_description(sync_reads: &str, pool: &str) -> String {
    match pool {
        "" | "keep" => sync_reads.to_owned(),
        pool => format!("{sync_reads}, {pool}"),
    }
}

/// Returns the reader, with the shape if there are several.
pub(crate) fn reader(run: &StaleDocument, row: &StaleRow) -> String {
    let null = if row.null_replica {
        " (null replica)"
    } else {
        ""
    };
    if run.target.modes.len() > 1 {
        format!("{} {}{null}", row.shape, row.reader)
    } else {
        format!("{}{null}", row.reader)
    }
}

/// Returns a row's full name.
pub(crate) fn label(run: &StaleDocument, row: &StaleRow) -> String {
    let load = if row.load == "none" {
        String::new()
    } else {
        format!(", {}", row.load)
    };
    let sync = if row.read_consistency == "off" {
        String::new()
    } else {
        format!(
            ", {}",
            read_description(&row.read_consistency, &row.session_reset)
        )
    };
    format!("{}{load}{sync}", reader(run, row))
}

/// Returns what distinguishes the ways to read: the remedies of a site, or the levels of read consistency.
fn waiting(run: &StaleDocument) -> &'static str {
    if run.settings.through == Some(Through::Http) {
        "remedy"
    } else {
        "synchronous reads"
    }
}

/// Returns what each remedy of a site costs; empty without a site.
fn costs(run: &StaleDocument) -> Table {
    let time = Format::Time;
    let two = |of: &Distribution| {
        let [p50, p99] = [of.p50_us, of.p99_us].map(|us| time.text(us));
        Cell::from(format!("{p50} / {p99}"))
    };
    let cpu = |of: &RemedyCost, roles: &[&str]| {
        Format::OneIn(30.0).cell(PerOperation::cpu_of_roles(of.servers.iter(), roles))
    };
    Table::of(
        3,
        &run.results.site,
        &[
            ("load", &|of| Cell::from(&of.load)),
            ("remedy", &|of| {
                read_description(&of.read_consistency, &of.session_reset).into()
            }),
            ("rounds", &|of| of.rounds.into()),
            ("post p50 / p99", &|of| two(&of.post_latency)),
            ("page p50 / p99", &|of| two(&of.page_latency)),
            ("pages/round", &|of| {
                let pages = (of.rounds > 0).then(|| of.pages as f64 / of.rounds as f64);
                Format::Decimals(2).cell(pages)
            }),
            ("from the primary", &|of| {
                Format::Percent.cell(of.primary_percent)
            }),
            ("wait p50 / p99", &|of| two(&of.wait)),
            ("fell back", &|of| of.fell_back.into()),
            ("CPU µs/round: primary", &|of| {
                cpu(of, &["primary", "node"])
            }),
            ("replicas", &|of| cpu(of, &["replica"])),
            ("fronts", &|of| cpu(of, &["front"])),
            ("balancer", &|of| cpu(of, &["balancer"])),
        ],
    )
}

fn figures(run: &StaleDocument) -> Table {
    let time = Format::Time;
    let fresh = |us: Option<f64>, ends| Cell::from(us.map(|us| wait(us, ends)));
    Table::of(
        4,
        &run.results.rows,
        &[
            ("load", &|row| Cell::from(&row.load)),
            ("on", &|row| Cell::text(&row.load_on)),
            (waiting(run), &|row| {
                read_description(&row.read_consistency, &row.session_reset).into()
            }),
            ("reader", &|row| reader(run, row).into()),
            ("rounds", &|row| row.rounds.into()),
            ("stale", &|row| row.stale.into()),
            ("% [95 %]", &|row| share(row)),
            ("% of time", &|row| {
                let (share, ends) = (
                    row.stale_percent_over_time,
                    row.stale_percent_over_time_ci95,
                );
                // None seen is no figure without an upper bound.
                let share = share.filter(|share| *share > 0.0 || ends.is_some());
                Format::Share.with_interval_ends(share, ends)
            }),
            ("staleness min", &|row| time.cell(row.staleness.min_us)),
            ("max", &|row| time.cell(row.staleness.max_us)),
            ("avg", &|row| time.cell(row.staleness.mean_us)),
            ("99 % fresh after", &|row| {
                fresh(row.fresh_after_us.p99, row.fresh_after_us.p99_ci95)
            }),
            ("99.9 %", &|row| {
                fresh(row.fresh_after_us.p999, row.fresh_after_us.p999_ci95)
            }),
            ("non-monotonic", &|row| {
                row.violations.monotonic_reads.into()
            }),
            ("write p50 / max", &|row| {
                let [p50, max] =
                    [row.write_latency.p50_us, row.write_latency.max_us].map(|us| time.text(us));
                format!("{p50} / {max}").into()
            }),
        ],
    )
}

/// Returns the share of stale reads and the waits in each start of the servers.
fn of_starts(run: &StaleDocument, row: &StaleRow) -> Option<String> {
    let fresh = &row.fresh_after_us;
    let share = |percent| format!("{} %", Format::Share.show(percent, None));
    let figures = [
        spread("stale", row.stale_percent_starts, share),
        spread("99 % fresh after", fresh.p99_starts, |us| wait(us, None)),
        spread("99.9 %", fresh.p999_starts, |us| wait(us, None)),
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    (!figures.is_empty()).then(|| {
        format!(
            "{} in the starts (smallest / median / largest): {}",
            label(run, row),
            figures.join(", ")
        )
    })
}

fn loads(run: &StaleDocument) -> Table {
    let several = run.target.modes.len() > 1;
    let loads = run.results.load.iter().map(|load| (load, &load.record));
    let time = Format::Time;
    Table::of(
        2,
        loads,
        &[
            ("load", &|(load, of)| {
                Cell::from(format!(
                    "{}{}",
                    description(of, several),
                    of_start(run, load)
                ))
            }),
            ("with reads", &|(load, _)| {
                read_description(&load.read_consistency, &load.session_reset).into()
            }),
            ("operations/s, 95 %", &|(_, of)| throughput(&of.throughput)),
            ("operations", &|(_, of)| of.passes.into()),
            ("min", &|(_, of)| time.cell(of.latency.min_us)),
            ("mean", &|(_, of)| time.cell(of.latency.mean_us)),
            ("p50", &|(_, of)| time.cell(of.latency.p50_us)),
            ("p99", &|(_, of)| time.cell(of.latency.p99_us)),
            ("max", &|(_, of)| time.cell(of.latency.max_us)),
            ("retried", &|(_, of)| of.retries.into()),
            ("failed", &|(_, of)| of.failed.into()),
        ],
    )
}

/// Returns the table of all curves.
fn curves(run: &StaleDocument) -> Table {
    let asked = |row: &StaleRow, us: f64| match row.judged.as_str() {
        "load" => format!("from {}", time(us)),
        _ if us == 0.0 => "immediate".to_owned(),
        _ => time(us),
    };
    let rows = run.results.rows.iter().filter(|row| row.curve.len() > 1);
    Table::of(
        1,
        rows.flat_map(|row| row.curve.iter().map(move |point| (row, point))),
        &[
            ("row", &|(row, _)| Cell::from(label(run, row))),
            ("asked", &|(row, point)| asked(row, point.asked_us).into()),
            ("after the ack (p50)", &|(_, point)| {
                Format::Time.cell(Some(point.after_us))
            }),
            ("reads", &|(_, point)| point.reads.into()),
            ("stale", &|(_, point)| point.stale.into()),
            ("% [95 %]", &|(_, point)| {
                let ends = point.probability_ci95.map(|share| share * 100.0);
                Format::Share.with_interval_ends(Some(point.probability * 100.0), Some(ends))
            }),
            ("p1 to p99", &|(_, point)| {
                let ends = point.achieved_us.map(|ends| ends.map(time));
                ends.map(|ends| ends.join(" to ")).into()
            }),
        ],
    )
}

/// Returns the finding of a row.
fn finding(run: &StaleDocument, row: &StaleRow) -> Option<String> {
    let reads = if row.judged == "load" {
        "reads of the load"
    } else {
        "immediate reads"
    };
    let (share, ends) = (row.stale_percent?, row.stale_percent_ci95?);
    let (name, rounds) = (label(run, row), count(row.rounds));
    let mut text = if row.stale == 0 {
        let most = bound(ends[1]);
        format!("{name}: none of {rounds} {reads} was stale (the share is below {most})")
    } else {
        let share = Format::Share.show(share, Some(ends));
        format!("{name}: {share} % of {rounds} {reads} were stale")
    };
    if let Some(share) = row
        .stale_percent_over_time
        .filter(|_| row.withheld_rounds > 0)
    {
        let share = Format::Share.show(share, row.stale_percent_over_time_ci95);
        let _ = write!(text, ", and {share} % of the time");
    }
    let fresh = &row.fresh_after_us;
    let surest = fresh.p999.map(|us| (us, fresh.p999_ci95, "99.9"));
    let best = surest.or_else(|| Some((fresh.p99?, fresh.p99_ci95, "99")));
    if let Some((us, ends, level)) = best.filter(|(us, ..)| *us > 0.0) {
        let _ = write!(text, "; wait {} for {level} % fresh", wait(us, ends));
    }
    Some(text)
}

/// Returns the headline in one sentence.
#[must_use]
pub(crate) fn answer(run: &StaleDocument) -> String {
    let part = |row| finding(run, row);
    let parts: Vec<String> = run.results.rows.iter().filter_map(part).collect();
    let mut text = match parts.len() {
        0 => "No read was checked".to_owned(),
        1..=4 => parts.join(". "),
        // The table has all rows; the headline has the best and the worst.
        _ => {
            let share = |row: &StaleRow| row.stale_percent.unwrap_or(0.0);
            let high = |row: &StaleRow| row.stale_percent_ci95.map_or(100.0, |[_, high]| high);
            let rows = run.results.rows.iter();
            let rows = rows.filter(|row| row.stale_percent.is_some());
            // Of several rows without stale reads, the one with the lowest upper bound.
            let least = rows.clone().min_by(|a, b| {
                let by = share(a).total_cmp(&share(b));
                by.then(high(a).total_cmp(&high(b)))
            });
            let most = rows.max_by(|a, b| share(a).total_cmp(&share(b)));
            let ends: Vec<String> = [least, most]
                .into_iter()
                .flatten()
                .filter_map(part)
                .collect();
            format!(
                "Least: {}. Most: {}",
                ends.first().map_or("–", String::as_str),
                ends.last().map_or("–", String::as_str)
            )
        }
    };
    text.push('.');
    let mut text = with_level(text);
    if run.status == RunStatus::Invalid {
        text.push_str(" The run is invalid.");
    }
    with_end_note(text, run.status)
}

/// Returns the report of a run.
#[must_use]
pub(crate) fn report(run: &StaleDocument) -> Report {
    let rows = &run.results.rows;
    let reads = rows.iter().map(|row| row.rounds).sum();
    let mut facts = format!("{} immediate reads", count(reads));
    if run.target.fresh_starts > 1 {
        let _ = write!(facts, ", {} starts", run.target.fresh_starts);
    }
    let mut report = Report::of(run, "Stale reads after a write", facts);
    report.several = run.target.modes.len() > 1;
    let writers: BTreeSet<&str> = rows.iter().map(|row| row.writer.as_str()).collect();
    let writer = match writers.first() {
        Some(writer) if writers.len() == 1 => writer,
        _ => "the writer",
    };
    let of_starts = rows.iter().filter_map(|row| of_starts(run, row)).collect();
    report.add(
        Block::table(
            "figures",
            format!("Reads that missed a write just acknowledged by {writer}"),
            figures(run),
        )
        .with_notes(of_starts),
    );
    report.add(Block::table(
        "remedies",
        "Cost of the remedies: a round is a post and the pages until it is shown",
        costs(run),
    ));
    report.add(
        Block::table(
            "curve",
            "Stale reads by time after the acknowledgement",
            curves(run),
        )
        .shown(Visibility::WithoutCharts),
    );
    let mut synced = verdicts(run);
    synced.extend(rows.iter().filter_map(|row| overhead(run, row)));
    let guarantees = match waiting(run) {
        "remedy" => "Remedies",
        _ => "Synchronous reads",
    };
    report.add(Block::list("guarantees", guarantees, synced));
    report.add(Block::new("witnesses", "Witnesses", witnesses(run, true)));
    report.add(
        Block::new(
            "stale-reads",
            "Witnesses of reads that did not wait",
            witnesses(run, false),
        )
        .shown(Visibility::OnPage),
    );
    report.add(Block::table("loads", "Background load", loads(run)));
    report.how = sentences(run);
    report.with_servers(&run.target)
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::stale::results::{FreshAfter, StaleResults, Violations};
    use replimeter_model::record::{Distribution, StartSpread};

    use super::*;

    fn row() -> StaleRow {
        StaleRow {
            writer: "node1".to_owned(),
            reader: "node2".to_owned(),
            load: "none".to_owned(),
            read_consistency: "off".to_owned(),
            session_reset: "keep".to_owned(),
            rounds: 10_000,
            stale: 94,
            stale_percent: Some(0.94),
            stale_percent_ci95: Some([0.77, 1.15]),
            staleness: Distribution {
                count: 94,
                min_us: Some(710.0),
                max_us: Some(2160.0),
                mean_us: Some(890.0),
                ..Distribution::default()
            },
            fresh_after_us: FreshAfter {
                p99: Some(0.0),
                p999: Some(3100.0),
                p99_ci95: None,
                p999_ci95: Some([2900.0, 3600.0]),
                ..FreshAfter::default()
            },
            ..StaleRow::default()
        }
    }

    #[test]
    fn headline_states_how_long_to_wait() {
        let run = StaleDocument {
            results: StaleResults {
                rows: vec![row()],
                ..StaleResults::default()
            },
            ..StaleDocument::default()
        };
        assert_eq!(
            answer(&run),
            "node2: 0.94 [0.77, 1.15] % of 10,000 immediate reads were stale; wait 3,100 µs [2,900, 3,600] for 99.9 % fresh. Intervals are 95 %."
        );
    }

    #[test]
    fn shares_and_waits_of_the_starts_are_shown() {
        let starts = |min: f64, median: f64, max: f64| Some(StartSpread { min, median, max });
        let mut row = StaleRow {
            stale_percent_starts: starts(0.4, 0.9, 2.0),
            ..row()
        };
        row.fresh_after_us.p99_starts = starts(0.0, 800.0, 2_100.0);
        assert_eq!(
            of_starts(&StaleDocument::default(), &row).unwrap(),
            "node2 in the starts (smallest / median / largest): stale 0.40 % / 0.90 % / 2.00 %, \
             99 % fresh after immediate / 800 µs / 2,100 µs"
        );
        assert_eq!(
            of_starts(&StaleDocument::default(), &super::tests::row()),
            None
        );
    }

    #[test]
    fn zero_stale_reads_have_an_upper_bound() {
        let synced = StaleRow {
            stale: 0,
            rounds: 100_000,
            stale_percent: Some(0.0),
            stale_percent_ci95: Some([0.0, 0.00384]),
            read_consistency: "before".to_owned(),
            guarantee: "reader: SET SESSION wsrep_sync_wait = 1".to_owned(),
            violations: Violations {
                read_your_writes_of: 100_000,
                monotonic_reads_of: 100_000,
                read_your_writes_percent_upper_bound: 0.00384,
                monotonic_reads_percent_upper_bound: 0.00384,
                ..Violations::default()
            },
            ..row()
        };
        let run = StaleDocument {
            results: StaleResults {
                rows: vec![synced],
                ..StaleResults::default()
            },
            ..StaleDocument::default()
        };
        let verdict = verdicts(&run).remove(0);
        assert!(
            verdict.contains("none (below 0.0038 % with 97.5 % confidence)"),
            "{verdict}"
        );
        assert!(!answer(&run).contains("0 %"), "{}", answer(&run));
    }
}
