//! The report of a `loss` run.

use std::fmt::Write as _;

use replimeter_engine::position::ID;
use replimeter_instruments::loss::{
    crashes::MIN_LOSSES,
    results::{CrashShare, LossDocument, LossRow},
    settings::CrashKind,
};

use replimeter_render::{
    figures::{Unit, count, time},
    format::Format,
    headline::{end_note_or_invalid, with_level},
    report::{Block, Cell, Report, Table},
};

/// Maximum number of crashes on a terminal; the record has all.
const SHOWN: usize = 40;

/// Formats a share with its interval: `12 of 20 (60 %) 39–78 %`.
fn share(share: &CrashShare) -> String {
    format!(
        "{} of {}: {:.0}–{:.0} %",
        count(share.count),
        count(share.of),
        share.percent_ci95[0].floor(),
        share.percent_ci95[1].ceil()
    )
}

fn number(value: f64) -> String {
    if value.abs() >= 10.0 {
        count(value.round() as u64)
    } else {
        format!("{value:.1}")
    }
}

/// Formats the mean number of lost transactions per crash.
fn mean(row: &LossRow) -> Option<String> {
    let per = &row.lost_per_crash;
    let interval = per.mean_ci95.map_or_else(String::new, |[low, high]| {
        format!(" [{}, {}]", number(low), number(high))
    });
    per.mean.map(|mean| format!("{}{interval}", number(mean)))
}

fn figures(run: &LossDocument) -> Table {
    Table::of(
        1,
        &run.results.rows,
        &[
            ("shape", &|row| Cell::from(&row.shape)),
            ("crashes", &|row| row.crashes.into()),
            ("acknowledged", &|row| row.acknowledged.into()),
            ("lost", &|row| row.lost.into()),
            ("crashes with loss, 95 %", &|row| share(&row.lossy).into()),
            ("lost per crash, 95 %", &|row| mean(row).into()),
            ("max", &|row| row.lost_per_crash.max.into()),
            ("seen then lost", &|row| row.seen_then_lost.into()),
            ("unacked, present", &|row| row.unacknowledged_present.into()),
            ("recovery", &|row| Format::Time.cell(row.recovery_us)),
        ],
    )
}

fn crashes(run: &LossDocument) -> Table {
    let table = Table::of(
        1,
        &run.results.crashes,
        &[
            ("shape", &|crash| Cell::from(&crash.shape)),
            ("crash", &|crash| crash.number.into()),
            ("acknowledged", &|crash| crash.acknowledged.into()),
            ("lost", &|crash| crash.lost.into()),
            ("since", &|crash| Format::Time.cell(crash.lost_since_us)),
            ("seen then lost", &|crash| crash.seen_then_lost.into()),
            ("unacked", &|crash| crash.unacknowledged.into()),
            ("unacked, present", &|crash| {
                crash.unacknowledged_present.into()
            }),
            ("promoted", &|crash| (&crash.promoted).into()),
            ("recovery", &|crash| {
                Format::Time.cell(Some(crash.recovery_us))
            }),
            ("errant rows", &|crash| {
                crash.errant.as_ref().map(|errant| errant.rows).into()
            }),
        ],
    );
    Table {
        most: Some(SHOWN),
        ..table
    }
}

fn of_row(row: &LossRow) -> String {
    let (lossy, of) = (&row.lossy, count(row.crashes));
    let crashes = if row.crashes == 1 { "crash" } else { "crashes" };
    let mut text = if row.lost == 0 {
        format!(
            "{}: none of {} acknowledged transactions was lost in {of} {crashes} (at most {:.0} % of crashes lose any, 95 %)",
            row.shape,
            count(row.acknowledged),
            lossy.percent_ci95[1].ceil()
        )
    } else {
        let since = row.lost_since_us.map_or_else(String::new, |us| {
            format!(", the oldest acknowledged {} before the crash", time(us))
        });
        format!(
            "{}: {} of {of} {crashes} lost acknowledged transactions ({:.0} to {:.0} %, 95 %), {} on average and {} at most{since}",
            row.shape,
            count(lossy.count),
            lossy.percent_ci95[0].floor(),
            lossy.percent_ci95[1].ceil(),
            mean(row).unwrap_or_else(|| number(0.0)),
            row.lost_per_crash.max.map_or_else(String::new, count),
        )
    };
    if row.seen_unacknowledged_lost > 0 {
        let _ = write!(
            text,
            "; {} unacknowledged transactions that another session had read are gone",
            count(row.seen_unacknowledged_lost)
        );
    }
    text.push('.');
    text
}

/// Returns the headline in a few sentences.
#[must_use]
pub(crate) fn answer(run: &LossDocument) -> String {
    let parts: Vec<String> = run.results.rows.iter().map(of_row).collect();
    let mut parts = vec![with_level(parts.join(" "))];
    parts.extend(end_note_or_invalid(run.status).map(str::to_owned));
    parts.join(" ")
}

/// Returns the description of the method.
fn sentences(run: &LossDocument) -> Vec<String> {
    let settings = &run.settings;
    let partition = settings.crash == Some(CrashKind::Partition);
    let ended = if partition {
        format!(
            "Its links to the other servers were cut, and {} later it was killed (SIGKILL), accepting writes until then: data in transit is lost with it.",
            settings
                .kill_delay
                .map_or_else(String::new, |gap| gap.to_string())
        )
    } else {
        "It was killed (SIGKILL): data already sent still arrives.".to_owned()
    };
    let mut sentences = vec![
        format!(
            "Each crash had freshly started servers. {} connections inserted rows {} for {} and recorded which were acknowledged; \
             another session read the newest rows and recorded which it saw. Then the primary failed. {ended}",
            count(u64::from(settings.writers.unwrap_or_default())),
            settings.rate.map_or_else(|| "back to back".to_owned(), |rate| format!("at {} per second", count(rate))),
            settings.duration.map_or_else(String::new, |duration| duration.to_string()),
        ),
        "Recovery excludes failure detection, which a failover manager adds, except where a cluster detects the failure itself."
            .to_owned(),
        "Killing a process keeps data that the operating system had not yet written: the additional loss in a power failure depends on the flush \
         settings and is not in these figures."
            .to_owned(),
        format!(
            "Intervals are 95 %; a mean of fewer than {MIN_LOSSES} crashes with a loss has none."
        ),
    ];
    if let Some(us) = run.results.acknowledgement_timeout_us {
        sentences.push(format!(
            "Semi-synchronous primaries waited up to {} for an acknowledgement, so that none fell back to asynchronous replication.",
            time(us)
        ));
    }
    let rows = run.results.rows.iter();
    sentences.extend(rows.flat_map(|row| returned(run, row)));
    sentences
}

/// Returns sentences on errant transactions of a row's old primaries, and on lost transactions that other
/// sessions had read.
fn returned(run: &LossDocument, row: &LossRow) -> Vec<String> {
    let mut sentences = Vec::new();
    if row.errant_rows > 0 {
        sentences.push(format!(
            "{}: after their restart the old primaries had {} rows that the new ones lack, {} of them acknowledged: errant transactions, which must be removed before they can replicate.",
            row.shape,
            count(row.errant_rows),
            count(row.errant_acknowledged)
        ));
        let crashes = run
            .results
            .crashes
            .iter()
            .filter(|crash| crash.shape == row.shape);
        let named = crashes.filter_map(|crash| {
            let ids = &crash.errant.as_ref()?.commit_ids;
            let shown = Cell::Long(ids.clone()).display_text();
            (!ids.is_empty()).then(|| format!("crash {}: {shown}", crash.number))
        });
        let named: Vec<String> = named.take(3).collect();
        if !named.is_empty() {
            sentences.push(format!(
                "{}: errant {ID}s: {}.",
                row.shape,
                named.join("; ")
            ));
        }
    }
    if row.seen_then_lost > row.seen_unacknowledged_lost {
        sentences.push(format!(
            "{}: {} transactions that another session had read are gone, {} of them never acknowledged.",
            row.shape,
            count(row.seen_then_lost),
            count(row.seen_unacknowledged_lost)
        ));
    }
    sentences
}

/// Returns the report of a run.
#[must_use]
pub(crate) fn report(run: &LossDocument) -> Report {
    let mut report = Report::of(
        run,
        "Transactions lost in a crash",
        format!("{} crashes", count(run.results.crashes.len() as u64)),
    );
    let crash = run.settings.crash.unwrap_or_default().name();
    report.facts.push(format!("crash {crash}"));
    report.several = run.results.rows.len() > 1;
    let recovery = |row: &LossRow| {
        let unit = Unit::for_size(row.recovery_us?);
        let ends = unit.show_interval(row.recovery_us_ci95?).join(", ");
        Some(format!("{} [{ends}] {}", row.shape, unit.symbol()))
    };
    let recoveries: Vec<String> = run.results.rows.iter().filter_map(recovery).collect();
    let recoveries = (!recoveries.is_empty())
        .then(|| format!("Median recovery, 95 %: {}", recoveries.join("; ")));
    report.add(
        Block::table("figures", "Lost transactions and recovery", figures(run))
            .with_notes(recoveries.into_iter().collect()),
    );
    report.add(Block::table("crashes", "Every crash", crashes(run)).after_charts());
    report.how = sentences(run);
    report.with_servers(&run.target)
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::loss::results::LossResults;

    use super::*;

    #[test]
    fn zero_loss_is_reported_with_upper_bound() {
        let lossy = CrashShare {
            count: 0,
            of: 20,
            percent: 0.0,
            percent_ci95: [0.0, 16.1],
        };
        let row = LossRow {
            shape: "semi-sync:1 after-sync".to_owned(),
            crashes: 20,
            acknowledged: 1234,
            lossy,
            ..LossRow::default()
        };
        let run = LossDocument {
            results: LossResults {
                rows: vec![row],
                ..LossResults::default()
            },
            ..LossDocument::default()
        };
        let text = answer(&run);
        assert!(
            text.contains("none of 1,234") && text.contains("at most 17 % of crashes"),
            "{text}"
        );
        assert!(
            replimeter_render::terminal::render(&report(&run))
                .lines()
                .all(|line| line.chars().count() <= 190)
        );
    }
}
