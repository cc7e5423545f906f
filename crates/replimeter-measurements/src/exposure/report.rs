//! The report of an `exposure` run.

use replimeter_instruments::exposure::results::{
    AmountDistribution, ExposureDocument, ExposureRow,
};

use replimeter_render::{
    figures::{Unit, count, time},
    format::{Format, number},
    headline::end_note,
    report::{Block, Report, Table},
};
use replimeter_stats::stalls::{MAX_UPPER, MIN_STALLS};

fn amount(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 100.0 || value.fract() == 0.0 => count(value.round() as u64),
        Some(value) => format!("{value:.2}"),
    }
}

fn percent_ends(ends: Option<[f64; 2]>) -> String {
    ends.map_or_else(String::new, |[low, high]| format!(" [{low:.1}, {high:.1}]"))
}

fn figures(run: &ExposureDocument) -> Table {
    let lines = run.results.rows.iter().filter(|row| row.polls > 0);
    let lines = lines.flat_map(|row| {
        let (transactions, bytes, age) = (&row.transactions, &row.bytes, &row.age);
        let amounts = |of: &AmountDistribution| {
            [of.mean, of.p50, of.p90, of.p95, of.p99, of.p999, of.max].map(amount)
        };
        let ages = [
            age.mean_us,
            age.p50_us,
            age.p90_us,
            age.p95_us,
            age.p99_us,
            age.p999_us,
            age.max_us,
        ];
        [
            ("transactions", amounts(transactions)),
            ("bytes", amounts(bytes)),
            (
                "age of the oldest (ms)",
                ages.map(|us| Format::In(Unit::Milli).text(us)),
            ),
        ]
    });
    let headings = [
        "not received by any replica",
        "mean",
        "p50",
        "p90",
        "p95",
        "p99",
        "p99.9",
        "max",
    ];
    let lines = lines.map(|(what, cells)| [vec![what.to_owned()], cells.to_vec()].concat());
    Table::new(&headings, 1, lines)
}

fn of_row(row: &ExposureRow) -> String {
    if let Some(reason) = &row.zero_by_construction {
        let under_way = match row.transactions.mean {
            Some(mean) if row.polls > 0 => {
                format!(
                    " On average, {} transactions were in the primary's log, not received and not acknowledged.",
                    amount(Some(mean))
                )
            }
            _ => String::new(),
        };
        return format!(
            "No acknowledged transaction is exposed in this mode ({}), by design: {reason}.{under_way}",
            row.mode
        );
    }
    let (Some(mean), Some(max)) = (row.transactions.mean, row.transactions.max) else {
        return "No poll completed.".to_owned();
    };
    if row.committed == 0 {
        return "Nothing was committed during the run, so nothing was exposed.".to_owned();
    }
    let rate = row
        .transactions
        .p99
        .map_or_else(String::new, |p99| format!(", p99 {}", amount(Some(p99))));
    let stalls = number(row.stalls, "stall");
    let (mean_ends, of) = match row.transactions.mean_ci95 {
        Some([low, high]) => (
            format!(" [{}, {}]", amount(Some(low)), amount(Some(high))),
            format!("in {stalls}"),
        ),
        None if row.stalls < MIN_STALLS as u64 => (
            String::new(),
            format!("in {stalls}, too few for an interval"),
        ),
        None => (
            String::new(),
            format!("in {stalls}, whose longest decide it: no interval"),
        ),
    };
    format!(
        "A crash would have lost {}{mean_ends} transactions on average ({of}){rate}, {} at most (at most {} bytes, the oldest at most {} old); transactions were exposed {:.1}{} % of the time.",
        amount(Some(mean)),
        amount(Some(max)),
        amount(row.bytes.max),
        Format::Time.text(row.age.max_us),
        row.exposed_percent,
        percent_ends(row.exposed_percent_ci95)
    )
}

/// Returns the headline in a few sentences.
#[must_use]
pub(crate) fn answer(run: &ExposureDocument) -> String {
    let mut parts: Vec<String> = run.results.rows.iter().map(of_row).collect();
    parts.extend(end_note(run.status).map(str::to_owned));
    parts.join(" ")
}

/// Returns the description of the method.
fn sentences(run: &ExposureDocument) -> Vec<String> {
    let Some(row) = run.results.rows.first() else {
        return Vec::new();
    };
    if row.polls == 0 {
        return vec![
            "Not measured: exposure is zero by design in this mode. `replimeter loss` tests it on a sandbox.".to_owned(),
        ];
    }
    let mut sentences = vec![
        format!(
            "Every {} all replicas were polled for what they had received; transactions logged during a poll, which took {} (p50), {} (p99), are \
             counted too.",
            run.settings
                .poll_interval
                .map_or_else(String::new, |text| text.to_string()),
            Format::Time.text(row.poll_duration_us.p50_us),
            Format::Time.text(row.poll_duration_us.p99_us),
        ),
        format!(
            "{} stalls. Intervals are 95 %; a figure has none with fewer than {MIN_STALLS} stalls, or where stalls longer than those seen may bring \
             it to more than {MAX_UPPER:.0} times its value: measure for longer.",
            count(row.stalls)
        ),
        format!(
            "{} polls; {} transactions ({} bytes) were logged during the run.",
            count(row.polls),
            count(row.committed),
            count(row.bytes_committed)
        ),
    ];
    if let Some(written) = run.results.written {
        sentences.push(format!(
            "Replimeter's writers inserted {} rows, one transaction each; a few at the start and the end may be outside the measured time.",
            count(written)
        ));
    }
    if let Some(percent) = row.fallen_back_percent {
        sentences.push(format!(
            "Semi-synchronous replication was not in effect for {percent:.1} % of the time."
        ));
    }
    if let Some(missed) = row.unacknowledged {
        sentences.push(format!(
            "By its own counter, the primary committed {} without a replica's acknowledgement.",
            number(missed, "transaction")
        ));
    }
    sentences
}

/// Returns the report of a run.
#[must_use]
pub(crate) fn report(run: &ExposureDocument) -> Report {
    let polls = run.results.rows.iter().map(|row| row.polls).sum();
    let mut report = Report::of(
        run,
        "Transactions exposed to a crash",
        format!("{} polls", count(polls)),
    );
    let mut rows = run.results.rows.iter();
    let what = if rows.any(|row| row.zero_by_construction.is_some()) {
        "Logged and not yet acknowledged"
    } else {
        "Exposed transactions"
    };
    report.add(Block::table(
        "figures",
        format!("{what}, over {}", time(run.measured_us.unwrap_or_default())),
        figures(run),
    ));
    report.how = sentences(run);
    report.with_servers(&run.target)
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::exposure::results::ExposureResults;
    use replimeter_model::replication::Mode;

    use super::*;

    #[test]
    fn mean_without_an_interval_says_why() {
        let said = |stalls: u64, mean_ci95: Option<[f64; 2]>| {
            of_row(&ExposureRow {
                committed: 1_000,
                stalls,
                transactions: AmountDistribution {
                    mean: Some(120.0),
                    mean_ci95,
                    max: Some(5_000.0),
                    ..AmountDistribution::default()
                },
                ..ExposureRow::default()
            })
        };
        for (said, wanted) in [
            (
                said(8, None),
                "120 transactions on average (in 8 stalls, too few for an interval), 5,000 at most",
            ),
            (
                said(45, None),
                "120 transactions on average (in 45 stalls, whose longest decide it: no interval), 5,000",
            ),
            (
                said(45, Some([80.0, 190.0])),
                "120 [80, 190] transactions on average (in 45 stalls), 5,000 at most",
            ),
        ] {
            assert!(said.contains(wanted), "{said}");
        }
    }

    #[test]
    fn exposure_zero_by_design_is_stated() {
        let row = ExposureRow {
            mode: Mode::Galera,
            zero_by_construction: Some("every node has it".to_owned()),
            ..ExposureRow::default()
        };
        let run = ExposureDocument {
            results: ExposureResults {
                rows: vec![row],
                ..ExposureResults::default()
            },
            ..ExposureDocument::default()
        };
        let text = answer(&run);
        assert!(text.contains("by design: every node has it"), "{text}");
        let how = report(&run).how.join(" ");
        assert!(how.contains("Not measured"), "{how}");
    }
}
