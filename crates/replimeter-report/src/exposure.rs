//! What an `exposure` run tells people.

use std::fmt::Write as _;

use replimeter_model::exposure::{ExposureDocument, ExposureRow};

use crate::{
    answer::ending,
    figures::{Unit, count, time},
    terminal::{aligned, how_measured, plain_table, warnings, wrapped},
};

/// The columns.
pub(crate) const HEADINGS: [&str; 7] = [
    "not received by any replica",
    "mean",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
];

fn amount(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 100.0 || value.fract() == 0.0 => count(value.round() as u64),
        Some(value) => format!("{value:.2}"),
    }
}

/// Lines of cells.
pub(crate) fn lines(document: &ExposureDocument) -> Vec<Vec<String>> {
    let of = |row: &ExposureRow| {
        if row.looks == 0 {
            return Vec::new();
        }
        let amounts =
            [("transactions", &row.transactions), ("bytes", &row.bytes)].map(|(what, a)| {
                std::iter::once(what.to_owned())
                    .chain([a.mean, a.p50, a.p90, a.p99, a.p999, a.max].map(amount))
                    .collect::<Vec<_>>()
            });
        let age = &row.age;
        let milli = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), |us| Unit::Milli.show(us));
        let ages = std::iter::once("age of the oldest (ms)".to_owned())
            .chain(
                [
                    age.mean_us,
                    age.p50_us,
                    age.p90_us,
                    age.p99_us,
                    age.p999_us,
                    age.max_us,
                ]
                .map(milli),
            )
            .collect();
        amounts.into_iter().chain([ages]).collect()
    };
    document.results.iter().flat_map(of).collect()
}

fn of_row(row: &ExposureRow) -> String {
    if let Some(reason) = &row.zero_by_construction {
        let under_way = match row.transactions.mean {
            Some(mean) if row.looks > 0 => {
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
        row.age.max_us.map_or_else(|| "–".to_owned(), time),
        row.exposed_percent
    )
}

/// The finding in a few sentences.
#[must_use]
pub fn answer(document: &ExposureDocument) -> String {
    let mut parts: Vec<String> = document.results.iter().map(of_row).collect();
    parts.extend(ending(document.status).map(str::to_owned));
    parts.join(" ")
}

/// How it was measured, and what belongs to it.
pub(crate) fn sentences(document: &ExposureDocument) -> Vec<String> {
    let Some(row) = document.results.first() else {
        return Vec::new();
    };
    if row.looks == 0 {
        return vec![
            "Nothing had to be measured: the mode itself makes it nought. `replimeter loss` tries it on a sandbox.".to_owned(),
        ];
    }
    let mut sentences = vec![
        format!(
            "The primary's binary log was followed over a connection of its own, and every {} all replicas were asked at once what they had \
             received (not applied). Exposed is what had arrived from the primary's log by the last answer and was in none of the answers; \
             that may be too much by what came during a look, which took {} (p50), {} (p99).",
            document.settings.look.map_or_else(String::new, |look| look.to_string()),
            row.look_us.p50_us.map_or_else(|| "–".to_owned(), time),
            row.look_us.p99_us.map_or_else(|| "–".to_owned(), time),
        ),
        "A transaction is in the log a moment before its client is told so: what a crash takes of the acknowledged ones is never more."
            .to_owned(),
        format!("{} looks; {} transactions of {} bytes were logged meanwhile.", count(row.looks), count(row.committed), count(row.bytes_committed)),
    ];
    if let Some(written) = document.written {
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

/// The whole text.
#[must_use]
pub fn text(document: &ExposureDocument) -> String {
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
        "Replimeter exposure · {} · {}\n",
        document.target.shape,
        versions.join(", ")
    );
    let _ = writeln!(out, "{}\n", wrapped(&document.answer, 96, ""));
    let lines = lines(document);
    if !lines.is_empty() {
        let mut table = plain_table(HEADINGS.map(str::to_owned).to_vec());
        lines.into_iter().for_each(|line| _ = table.add_row(line));
        let nought = document
            .results
            .iter()
            .any(|row| row.zero_by_construction.is_some());
        let what = if nought {
            "Under way, logged and not acknowledged yet"
        } else {
            "What a crash would have taken"
        };
        let _ = writeln!(
            out,
            "{what}, over {}\n{}",
            time(document.measured_us),
            aligned(table, 1).trim_end()
        );
    }
    out.push_str(&how_measured(&sentences(document)));
    out.push_str(&warnings(&document.warnings));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nought_by_construction_is_said() {
        let row = ExposureRow {
            mode: "galera".to_owned(),
            zero_by_construction: Some("every node has it".to_owned()),
            ..ExposureRow::default()
        };
        let document = ExposureDocument {
            results: vec![row],
            ..ExposureDocument::default()
        };
        let text = answer(&document);
        assert!(
            text.contains("by construction: every node has it"),
            "{text}"
        );
        assert!(self::text(&document).contains("Nothing had to be measured"));
    }
}
