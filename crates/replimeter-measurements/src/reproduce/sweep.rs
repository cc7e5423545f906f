//! The sweep over sizes.

use replimeter_model::{
    lag::{LagDocument, SweepLoop},
    reproduce::{Claim, Table, Verdict},
};

use super::{claim, fixed, judged, table};
use replimeter_render::{figures::count, format::or_dash};

fn ms(us: f64) -> String {
    format!("{:.3}", us / 1e3)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut number) = (0.0, 0.0);
    for value in values {
        sum += value;
        number += 1.0;
    }
    (number > 0.0).then(|| sum / number)
}

/// Returns the published table.
#[must_use]
pub fn sweep_published() -> Table {
    fixed(
        &["figure", "ms"],
        &[
            &["insert (fifth row of a step)", "1.3 to 3.3"],
            &["retrieval", "0.85 to 1.6"],
            &["total", "2.9 to 4.6"],
            &["bare (total − insert − retrieval)", "0.055 to 2.3"],
            &["average bare", "1.040"],
        ],
    )
}

/// Returns the measured table and the findings.
#[must_use]
pub fn sweep(document: &LagDocument) -> (Table, Vec<Claim>) {
    let loops: Vec<_> = document
        .results
        .size_sweep
        .iter()
        .flat_map(|sweep| &sweep.loops)
        .collect();
    let span = |pick: fn(&SweepLoop) -> f64| {
        let values = loops.iter().map(|row| pick(row));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let known = (!loops.is_empty()).then_some((low, high));
        or_dash(known, |(low, high)| format!("{} to {}", ms(low), ms(high)))
    };
    let average = mean(loops.iter().map(|row| row.bare_us));
    let lines = vec![
        vec![
            "insert (fifth row of a step)".to_owned(),
            span(|row| row.insert_us),
        ],
        vec!["retrieval".to_owned(), span(|row| row.retrieval_us)],
        vec!["total".to_owned(), span(|row| row.total_us)],
        vec![
            "bare (total − insert − retrieval)".to_owned(),
            span(|row| row.bare_us),
        ],
        vec!["average bare".to_owned(), or_dash(average, ms)],
    ];
    let total = mean(loops.iter().map(|row| row.total_us));
    let largest = loops.iter().map(|row| row.size_bytes).max().unwrap_or(0);
    let grows = longer(document, largest);
    let claims = vec![
        claim(
            "A row is on the replica within milliseconds of its insert",
            "2.9 to 4.6 ms in all",
            or_dash(total, |us| format!("{} ms in all on average", ms(us))),
            judged(total, |us| us < 10_000.0, |us| us >= 10_000.0),
            "the disk or the machine is slower here than that of 2006; see the run's own report",
        ),
        claim(
            "The bare time does not depend on the size from 1,000 to 10,000 bytes",
            "0.055 to 2.3 ms without a trend",
            or_dash(grows, |[ratio, low, high]| {
                format!(
                    "{ratio:.2} [{low:.2}, {high:.2}] times the lag at {} bytes as at 1,000, on average",
                    count(largest)
                )
            }),
            // Ten times the bytes took no longer than the other times measured then: 0.055 to 2.3 ms.
            match grows {
                Some([_, _, high]) if high < 3.0 => Verdict::Agrees,
                Some([_, low, _]) if low >= 3.0 => Verdict::Differs,
                _ => Verdict::Open,
            },
            "with so short a lag, writing and applying ten times the bytes takes measurable time, or there are too few rows to decide",
        ),
    ];
    (table(&["figure", "ms"], lines), claims)
}

/// Returns the ratio of the lag of rows of the largest size to that of rows of 1,000 bytes, over all rows,
/// with an interval by the delta method on the logarithm.
fn longer(document: &LagDocument, largest: u64) -> Option<[f64; 3]> {
    let of = |size: u64| {
        let row = document
            .results
            .rows
            .iter()
            .find(|row| row.size_bytes == Some(size))?;
        let (mean, count) = (
            row.from_ack.mean_us.filter(|mean| *mean > 0.0)?,
            row.from_ack.count,
        );
        (count > 1).then_some((mean, row.from_ack.stdev_us? / mean / (count as f64).sqrt()))
    };
    let ((large, large_error), (small, small_error)) = of(largest).zip(of(1000))?;
    let (ratio, factor) = (large / small, (1.96 * large_error.hypot(small_error)).exp());
    Some([ratio, ratio / factor, ratio * factor])
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        lag::{LagResults, LagRow, SweepTable},
        record::Distribution,
    };

    use super::*;
    use crate::reproduce::tests::verdicts;

    #[test]
    fn sweep_is_judged_by_its_sizes() {
        let row = |size_bytes, bare_us| SweepLoop {
            sweep: 1,
            step: 1,
            size_bytes,
            sequence: 5,
            insert_us: 1300.0,
            retrieval_us: 900.0,
            total_us: 3000.0,
            bare_us,
            inserted_unix_us: 0,
            fetched_unix_us: 0,
        };
        let of = |size, mean: f64, error: f64| LagRow {
            size_bytes: Some(size),
            // A hundred rows: the standard error is a tenth of this.
            from_ack: Distribution {
                count: 100,
                mean_us: Some(mean),
                stdev_us: Some(error * 10.0),
                ..Distribution::default()
            },
            ..LagRow::default()
        };
        let document = |large: f64, half: f64| LagDocument {
            results: LagResults {
                size_sweep: vec![SweepTable {
                    replica: String::new(),
                    loops: vec![row(1000, 100.0), row(10_000, 120.0)],
                }],
                rows: vec![of(1000, 100.0, 5.0), of(10_000, large, half)],
                ..LagResults::default()
            },
            ..LagDocument::default()
        };
        assert_eq!(
            verdicts(&sweep(&document(120.0, 9.0)).1),
            [Verdict::Agrees; 2]
        );
        assert_eq!(
            verdicts(&sweep(&document(900.0, 9.0)).1),
            [Verdict::Agrees, Verdict::Differs]
        );
        assert_eq!(
            verdicts(&sweep(&document(300.0, 90.0)).1),
            [Verdict::Agrees, Verdict::Open],
            "an interval on both sides of the bound"
        );
    }
}
