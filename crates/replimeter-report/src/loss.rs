//! What a `loss` run tells people.

use std::fmt::Write as _;

use replimeter_model::loss::{CrashRecord, LossDocument, LossRow, Share};

use crate::{
    answer::ending_or_void,
    figures::{Unit, count, time},
    terminal::{aligned, how_measured, plain_table, warnings, wrapped},
};

/// Crashes that the text shows; all are in the record.
const SHOWN: usize = 40;
/// Characters of a list of GTIDs that the text shows.
const GTIDS: usize = 60;

/// The columns.
pub(crate) const HEADINGS: [&str; 10] = [
    "what was crashed",
    "crashes",
    "acknowledged",
    "missing",
    "crashes that lost, 95 %",
    "per crash, 95 %",
    "most",
    "seen, lost",
    "unacked, there",
    "recovery",
];

/// The columns of single crashes.
pub(crate) const CRASH_HEADINGS: [&str; 11] = [
    "what was crashed",
    "crash",
    "acknowledged",
    "missing",
    "since",
    "seen, lost",
    "unacked",
    "there",
    "took over",
    "recovery",
    "errant rows",
];

/// A share with its interval: `12 of 20 (60 %) 39–78 %`.
fn share(share: &Share) -> String {
    format!(
        "{} of {}: {:.0}–{:.0} %",
        count(share.count),
        count(share.of),
        share.percent_low.floor(),
        share.percent_high.ceil()
    )
}

fn number(value: f64) -> String {
    if value.abs() >= 10.0 {
        count(value.round() as u64)
    } else {
        format!("{value:.1}")
    }
}

fn name(row: &LossRow) -> String {
    row.shape.clone()
}

/// Lines of cells.
pub(crate) fn lines(document: &LossDocument) -> Vec<Vec<String>> {
    let line = |row: &LossRow| {
        let per = &row.missing_per_crash;
        let interval = per.mean_ci.map_or_else(String::new, |[low, high]| {
            format!(" [{}, {}]", number(low), number(high))
        });
        let recovery = row.recovery_us.map_or_else(|| "–".to_owned(), time);
        vec![
            name(row),
            count(row.crashes),
            count(row.acknowledged),
            count(row.missing),
            share(&row.lossy),
            per.mean.map_or_else(
                || "–".to_owned(),
                |mean| format!("{}{interval}", number(mean)),
            ),
            per.max.map_or_else(|| "–".to_owned(), count),
            count(row.seen_then_lost),
            count(row.unacknowledged_present),
            recovery,
        ]
    };
    document.results.iter().map(line).collect()
}

/// Lines of cells, a crash each.
pub(crate) fn crashes(document: &LossDocument) -> Vec<Vec<String>> {
    let line = |crash: &CrashRecord| {
        vec![
            crash.shape.clone(),
            count(crash.number),
            count(crash.acknowledged),
            count(crash.missing),
            crash.missing_since_us.map_or_else(|| "–".to_owned(), time),
            count(crash.seen_then_lost),
            count(crash.unacknowledged),
            count(crash.unacknowledged_present),
            crash.promoted.clone(),
            time(crash.recovery_us),
            crash
                .errant
                .as_ref()
                .map_or_else(|| "–".to_owned(), |errant| count(errant.rows)),
        ]
    };
    document.crashes.iter().map(line).collect()
}

fn of_row(row: &LossRow) -> String {
    let (lossy, of) = (&row.lossy, count(row.crashes));
    let crashes = if row.crashes == 1 { "crash" } else { "crashes" };
    let mut text = if row.missing == 0 {
        format!(
            "{}: none of {} acknowledged transactions was lost in {of} {crashes} (at most {:.0} % of crashes lose any, 95 %)",
            name(row),
            count(row.acknowledged),
            lossy.percent_high.ceil()
        )
    } else {
        let per = &row.missing_per_crash;
        let interval = per.mean_ci.map_or_else(String::new, |[low, high]| {
            format!(" [{}, {}]", number(low), number(high))
        });
        let since = row.missing_since_us.map_or_else(String::new, |us| {
            format!(", the oldest acknowledged {} before the end", time(us))
        });
        format!(
            "{}: {} of {of} {crashes} lost acknowledged transactions ({:.0} to {:.0} %, 95 %), {}{interval} on average and {} at most{since}",
            name(row),
            count(lossy.count),
            lossy.percent_low.floor(),
            lossy.percent_high.ceil(),
            number(per.mean.unwrap_or_default()),
            per.max.map_or_else(String::new, count),
        )
    };
    if row.seen_unacknowledged_lost > 0 {
        let _ = write!(
            text,
            "; {} that were never acknowledged had been seen by another session, and are gone",
            count(row.seen_unacknowledged_lost)
        );
    }
    text.push('.');
    text
}

/// The finding in a few sentences.
#[must_use]
pub fn answer(document: &LossDocument) -> String {
    let mut parts: Vec<String> = document.results.iter().map(of_row).collect();
    parts.extend(ending_or_void(document.status).map(str::to_owned));
    parts.join(" ")
}

/// How it was measured, and what belongs to it.
pub(crate) fn sentences(document: &LossDocument) -> Vec<String> {
    let settings = &document.settings;
    let isolated = settings.crash == Some(replimeter_model::plan::Crash::Isolated);
    let ended = if isolated {
        format!(
            "Its links to the other servers were cut, and {} later it was killed (SIGKILL), taking writes all the while: what it had sent is lost with it.",
            settings.gap.map_or_else(String::new, |gap| gap.to_string())
        )
    } else {
        "It was killed (SIGKILL): what it had already sent still arrives.".to_owned()
    };
    let mut sentences = vec![
        format!(
            "Every crash had servers of its own, freshly started. {} connections inserted rows {} for {} and remembered which were acknowledged; \
             another session read the newest rows and remembered which it saw. Then the primary ended. {ended}",
            count(u64::from(settings.writers.unwrap_or_default())),
            settings.rate.map_or_else(|| "back to back".to_owned(), |rate| format!("at {} per second", count(rate))),
            settings.duration.map_or_else(String::new, |duration| duration.to_string()),
        ),
        "The replicas applied all that they had received; the most advanced took over (a group elects somebody itself), and every transaction \
         was looked for there. Recovery is from the end of the primary to the first acknowledged write of the server that took over; it holds \
         no time for noticing, which a failover manager needs on top, except where a cluster notices by itself."
            .to_owned(),
        "Killing a process leaves what the system had not written yet: what a power cut would take besides depends on the flush settings and \
         is not in these figures."
            .to_owned(),
        "Missing were acknowledged and are not there (since: how long before the end the first of them was); lost to readers is what another session \
         had seen; unacked were begun and never acknowledged, and some of them are there all the same."
            .to_owned(),
        "Shares have Wilson's 95 % interval, means a bootstrap over crashes; crashes are independent of one another.".to_owned(),
    ];
    if let Some(us) = document.semi_sync_timeout_us {
        sentences.push(format!(
            "Semi-synchronous primaries waited up to {} for an acknowledgement, so that none fell back and acknowledged what no replica had.",
            time(us)
        ));
    }
    for row in &document.results {
        if row.errant_rows > 0 {
            sentences.push(format!(
                "{}: when the old primaries came back they had {} rows that the new ones have not, {} of them acknowledged: errant transactions, which would have to be undone before it may replicate.",
                name(row),
                count(row.errant_rows),
                count(row.errant_acknowledged)
            ));
            let named = document
                .crashes
                .iter()
                .filter(|crash| crash.shape == row.shape)
                .filter_map(|crash| {
                    let errant = crash
                        .errant
                        .as_ref()
                        .filter(|errant| !errant.gtids.is_empty())?;
                    let gtids: String = errant.gtids.chars().take(GTIDS).collect();
                    let more = if errant.gtids.chars().count() > GTIDS {
                        "…"
                    } else {
                        ""
                    };
                    Some(format!("crash {}: {gtids}{more}", crash.number))
                });
            let named: Vec<String> = named.take(3).collect();
            if !named.is_empty() {
                sentences.push(format!("{}: by GTID, {}.", name(row), named.join("; ")));
            }
        }
        if row.seen_then_lost > row.seen_unacknowledged_lost {
            sentences.push(format!(
                "{}: {} transactions that another session had seen are gone, {} of them never acknowledged.",
                name(row),
                count(row.seen_then_lost),
                count(row.seen_unacknowledged_lost)
            ));
        }
    }
    sentences
}

/// The whole text.
#[must_use]
pub fn text(document: &LossDocument) -> String {
    let mut out = String::new();
    let mut versions: Vec<&str> = document
        .target
        .nodes
        .iter()
        .map(|node| node.version.as_str())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let crash = document.settings.crash.unwrap_or_default().name();
    let _ = writeln!(
        out,
        "Replimeter loss · {} · {} · crash {crash}\n",
        document.target.shape,
        versions.join(", ")
    );
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    let mut table = plain_table(HEADINGS.map(str::to_owned).to_vec());
    lines(document)
        .into_iter()
        .for_each(|line| _ = table.add_row(line));
    let _ = writeln!(
        out,
        "What the crashes took\n{}",
        aligned(table, 1).trim_end()
    );
    let crashes = crashes(document);
    let mut table = plain_table(CRASH_HEADINGS.map(str::to_owned).to_vec());
    let hidden = crashes.len().saturating_sub(SHOWN);
    crashes
        .into_iter()
        .take(SHOWN)
        .for_each(|line| _ = table.add_row(line));
    let _ = writeln!(out, "\nEvery crash\n{}", aligned(table, 1).trim_end());
    if hidden > 0 {
        let _ = writeln!(
            out,
            "  and {} more, in summary.json and samples.parquet",
            count(hidden as u64)
        );
    }
    let recoveries: Vec<String> = document
        .results
        .iter()
        .filter_map(|row| {
            let [low, high] = row.recovery_ci?;
            let [low, high] = Unit::for_size(row.recovery_us?).show_interval([low, high]);
            Some(format!(
                "{} [{low}, {high}] {}",
                name(row),
                Unit::for_size(row.recovery_us?).symbol()
            ))
        })
        .collect();
    if !recoveries.is_empty() {
        let _ = writeln!(
            out,
            "\nMedian recovery, 95 %: {}",
            wrapped(&recoveries.join("; "), 100, "  ")
        );
    }
    out.push_str(&how_measured(&sentences(document)));
    if !document.target.options.is_empty() {
        let _ = writeln!(
            out,
            "  Servers: {}.",
            wrapped(&document.target.options.join("; "), 108, "  ")
        );
    }
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lost_is_never_a_bare_nought() {
        let lossy = Share {
            count: 0,
            of: 20,
            percent: 0.0,
            percent_low: 0.0,
            percent_high: 16.1,
        };
        let row = LossRow {
            shape: "semi-sync:1 after-sync".to_owned(),
            crashes: 20,
            acknowledged: 1234,
            lossy,
            ..LossRow::default()
        };
        let document = LossDocument {
            results: vec![row],
            ..LossDocument::default()
        };
        let text = answer(&document);
        assert!(
            text.contains("none of 1,234") && text.contains("at most 17 % of crashes"),
            "{text}"
        );
        assert!(
            self::text(&document)
                .lines()
                .all(|line| line.chars().count() <= 190)
        );
    }
}
