//! What an `exposure` run tells people.

use replimeter_model::exposure::{Amount, ExposureDocument, ExposureRow};

use replimeter_render::{
    answer::ending,
    figures::{Unit, count, time},
    format::Format,
    report::{Block, Report, Table},
};

fn amount(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 100.0 || value.fract() == 0.0 => count(value.round() as u64),
        Some(value) => format!("{value:.2}"),
    }
}

fn figures(run: &ExposureDocument) -> Table {
    let lines = run.results.rows.iter().filter(|row| row.polls > 0);
    let lines = lines.flat_map(|row| {
        let (transactions, bytes, age) = (&row.transactions, &row.bytes, &row.age);
        let amounts = |of: &Amount| [of.mean, of.p50, of.p90, of.p99, of.p999, of.max].map(amount);
        let ages = [
            age.mean_us,
            age.p50_us,
            age.p90_us,
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
                    " What was in the primary's log and not received yet, {} transactions on average, was not acknowledged yet either.",
                    amount(Some(mean))
                )
            }
            _ => String::new(),
        };
        return format!(
            "No acknowledged transaction is exposed in this mode ({}), by construction: {reason}.{under_way}",
            row.mode
        );
    }
    let (Some(mean), Some(max)) = (row.transactions.mean, row.transactions.max) else {
        return "Nothing was looked at.".to_owned();
    };
    if row.committed == 0 {
        return "Nothing was committed while it was looked, so nothing was exposed.".to_owned();
    }
    let rate = row
        .transactions
        .p99
        .map_or_else(String::new, |p99| format!(", p99 {}", amount(Some(p99))));
    format!(
        "A crash would have taken {} transactions on average{rate}, {} at most ({} bytes), the oldest of them {} old; in {:.1} % of the time there was any.",
        amount(Some(mean)),
        amount(Some(max)),
        amount(row.bytes.max),
        Format::Time.text(row.age.max_us),
        row.exposed_percent
    )
}

/// The finding in a few sentences.
#[must_use]
pub(crate) fn answer(run: &ExposureDocument) -> String {
    let mut parts: Vec<String> = run.results.rows.iter().map(of_row).collect();
    parts.extend(ending(run.status).map(str::to_owned));
    parts.join(" ")
}

/// How it was measured, and what belongs to it.
fn sentences(run: &ExposureDocument) -> Vec<String> {
    let Some(row) = run.results.rows.first() else {
        return Vec::new();
    };
    if row.polls == 0 {
        return vec![
            "Nothing had to be measured: the mode itself makes it nought. `replimeter loss` tries it on a sandbox.".to_owned(),
        ];
    }
    let mut sentences = vec![
        format!(
            "The primary's binary log was followed over a connection of its own, and every {} all replicas were asked at once what they had \
             received (not applied). Exposed is what had arrived from the primary's log by the last answer and was in none of the answers; \
             that may be too much by what came during a look, which took {} (p50), {} (p99).",
            run.settings.poll_interval.map_or_else(String::new, |look| look.to_string()),
            Format::Time.text(row.poll_duration_us.p50_us),
            Format::Time.text(row.poll_duration_us.p99_us),
        ),
        "A transaction is in the log a moment before its client is told so: what a crash takes of the acknowledged ones is never more."
            .to_owned(),
        format!("{} looks; {} transactions of {} bytes were logged meanwhile.", count(row.polls), count(row.committed), count(row.bytes_committed)),
    ];
    if let Some(written) = run.results.written {
        sentences.push(format!(
            "Our own writers inserted {} rows, a transaction each; at the beginning and the end a few of them may be outside of what was looked at.",
            count(written)
        ));
    }
    if let Some(percent) = row.fallen_back_percent {
        sentences.push(format!(
            "Semi-synchronous replication was not in effect for {percent:.1} % of the time."
        ));
    }
    sentences
}

/// What people read of it.
#[must_use]
pub(crate) fn report(run: &ExposureDocument) -> Report {
    let looks = run.results.rows.iter().map(|row| row.polls).sum();
    let mut report = Report::of(
        run,
        "What would a crash take with it?",
        format!("{} looks", count(looks)),
    );
    let mut rows = run.results.rows.iter();
    let what = if rows.any(|row| row.zero_by_construction.is_some()) {
        "Under way, logged and not acknowledged yet"
    } else {
        "What a crash would have taken"
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
    use replimeter_model::exposure::ExposureResults;

    use super::*;

    #[test]
    fn what_is_nought_by_construction_is_said() {
        let row = ExposureRow {
            mode: "galera".to_owned(),
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
        assert!(
            text.contains("by construction: every node has it"),
            "{text}"
        );
        let how = report(&run).how.join(" ");
        assert!(how.contains("Nothing had to be measured"), "{how}");
    }
}
