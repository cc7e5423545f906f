//! The histogram of lag.

use replimeter_model::{
    lag::{LagDocument, LagRow},
    reproduce::{Claim, Table},
};

use super::{claim, judged, table};
use replimeter_render::{
    figures::{count, time},
    format::or_dash,
    headline::overall_rows,
};

/// The published histogram: lag to the nearest 0.1 ms, and rows.
const TENTHS: [(&str, &str); 13] = [
    ("0.1", "392"),
    ("0.2", "468"),
    ("0.3", "75"),
    ("0.4", "32"),
    ("0.5", "15"),
    ("0.6", "9"),
    ("0.7", "2"),
    ("1.3", "2"),
    ("1.4", "1"),
    ("1.8", "1"),
    ("4.6", "1"),
    ("6.6", "1"),
    ("24.3", "1"),
];

/// Returns the published table.
#[must_use]
pub fn histogram_published() -> Table {
    let lines = TENTHS.map(|(tenth, rows)| vec![tenth.to_owned(), rows.to_owned()]);
    table(&["lag, ms", "rows"], lines)
}

/// Returns the measured histogram and the findings; it is that of the stamps, as published.
#[must_use]
pub fn histogram(document: &LagDocument) -> (Table, Vec<Claim>) {
    let rows = overall_rows(document);
    let stamps = ["stamp-udf", "stamp"].iter().find_map(|method| {
        rows.iter()
            .find(|row| row.method == *method && !row.histogram_100us.is_empty())
    });
    let Some(row) = stamps else {
        return (Table::default(), Vec::new());
    };
    let all: u64 = row.histogram_100us.iter().map(|bin| bin.count).sum();
    let lines = row
        .histogram_100us
        .iter()
        .map(|bin| vec![format!("{:.1}", bin.bin as f64 / 10.0), count(bin.count)]);
    let peak = row
        .histogram_100us
        .iter()
        .max_by_key(|bin| bin.count)
        .map(|bin| bin.bin);
    let near: u64 = row
        .histogram_100us
        .iter()
        .filter(|bin| peak.is_some_and(|peak| (bin.bin - peak).abs() <= 1))
        .map(|bin| bin.count)
        .sum();
    let share = (all > 0).then(|| near as f64 / all as f64);
    let (shown, tail) = of_stamps(row);
    let claims = vec![
        claim(
            "Most rows lie within two or three tenths of a millisecond",
            "86 % in 0.1 and 0.2 ms; peak at 0.2 ms",
            or_dash(share, |share| {
                format!(
                    "{:.0} % within 0.1 ms of the peak at {:.1} ms",
                    share * 100.0,
                    peak.unwrap_or(0) as f64 / 10.0
                )
            }),
            judged(share, |share| share >= 0.7, |share| share < 0.5),
            "servers and client share cores here, which spreads the lag",
        ),
        claim(
            "The lag is short: a fraction of a millisecond",
            "0.2 ms at the median",
            shown,
            judged(
                row.from_primary.p50_us.or(row.from_ack.p50_us),
                |us| us < 1000.0,
                |us| us >= 2000.0,
            ),
            "the disk or the cores are slower or busier here",
        ),
        claim(
            "A few rows are far later than all others",
            "largest 24.3 ms, 120 times the median",
            or_dash(tail, |(max, ratio)| {
                format!("largest {}, {ratio:.0} times the median", time(max))
            }),
            judged(
                tail.map(|(_, ratio)| ratio),
                |ratio| ratio >= 10.0,
                |ratio| ratio < 4.0,
            ),
            "nothing stalled the replica during this run",
        ),
    ];
    (table(&["lag, ms", "rows"], lines), claims)
}

fn of_stamps(row: &LagRow) -> (String, Option<(f64, f64)>) {
    let lag = if row.from_primary.count > 0 {
        &row.from_primary
    } else {
        &row.from_ack
    };
    let tail = lag
        .max_us
        .zip(lag.p50_us)
        .filter(|(_, p50)| *p50 > 0.0)
        .map(|(max, p50)| (max, max / p50));
    (
        or_dash(lag.p50_us, |us| format!("{} at the median", time(us))),
        tail,
    )
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        lag::{HistogramBin, LagResults},
        record::Distribution,
        reproduce::Verdict,
    };

    use super::*;
    use crate::reproduce::tests::verdicts;

    #[test]
    fn similar_histogram_agrees_with_the_published_one() {
        let tenths = TENTHS.iter().map(|(tenth, rows)| HistogramBin {
            bin: (tenth.parse::<f64>().unwrap() * 10.0).round() as i64,
            count: rows.parse().unwrap(),
        });
        let lag = Distribution {
            count: 1000,
            p50_us: Some(200.0),
            max_us: Some(24_300.0),
            ..Distribution::default()
        };
        let row = LagRow {
            method: "stamp-udf".to_owned(),
            histogram_100us: tenths.collect(),
            from_primary: lag,
            ..LagRow::default()
        };
        let document = LagDocument {
            results: LagResults {
                rows: vec![row],
                ..LagResults::default()
            },
            ..LagDocument::default()
        };
        let (ours, claims) = histogram(&document);
        assert_eq!(verdicts(&claims), [Verdict::Agrees; 3], "{claims:#?}");
        assert_eq!(ours.lines.len(), TENTHS.len());
        assert!(
            histogram(&LagDocument::default()).1.is_empty(),
            "a run without rows has no finding"
        );
    }
}
