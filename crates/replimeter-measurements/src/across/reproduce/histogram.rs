//! The histogram of lag.

use replimeter_instruments::lag::{
    results::{HistogramBin, LagDocument, LagRow},
    summary::FAR,
};
use replimeter_model::{
    estimate::Estimate,
    record::Distribution,
    reproduce::{Claim, Table, Verdict},
};
use replimeter_stats::share::Proportion;

use super::{claim, question, ratio, shown, table, within};
use crate::lag::headline::overall_rows;
use replimeter_render::{
    figures::{count, time},
    format::or_dash,
};

/// The published histogram: lag to the nearest 0.1 ms, and rows.
const BINS: [(&str, &str); 13] = [
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
    let lines = BINS.map(|(lag, rows)| vec![lag.to_owned(), rows.to_owned()]);
    table(&["lag, ms", "rows"], lines)
}

/// Returns the measured histogram and the findings; it is that of the stamps, as published. `with_others` is the run in which
/// all other methods observed the rows, too.
#[must_use]
pub fn histogram(alone: &LagDocument, with_others: Option<&LagDocument>) -> (Table, Vec<Claim>) {
    let Some(row) = of_stamps(alone) else {
        return (Table::default(), Vec::new());
    };
    let bins = &row.histogram_100us;
    let lines = bins
        .iter()
        .map(|bin| vec![format!("{:.1}", bin.bin as f64 / 10.0), count(bin.count)]);
    let lag = lag_of(row);
    let median = median_of(lag);
    let peak = bins.iter().max_by_key(|bin| bin.count);
    let peak = peak.map_or(0, |bin| bin.bin);
    let near = percent_of(row, |bin| (bin.bin - peak).abs() <= 1);
    let far = Estimate::with_ends(row.far_percent, row.far_percent_ci95);
    let far_from = median.value.map(|median| median * FAR as f64);
    let percent = |percent: f64| format!("{percent:.1} %");
    let mut claims = vec![
        claim(
            "Most rows lie within two or three tenths of a millisecond (50 to 100 %)",
            "86 % in 0.1 and 0.2 ms; peak at 0.2 ms",
            format!(
                "{} within 0.1 ms of the peak at {:.1} ms",
                shown(near, percent),
                peak as f64 / 10.0
            ),
            within(near, 50.0, 100.0),
            "servers and client share cores here, which spreads the lag",
        ),
        claim(
            "The lag is short: a fraction of a millisecond (0.04 to 1 ms)",
            "0.2 ms at the median",
            format!("{} at the median", shown(median, time)),
            within(median, 40.0, 1000.0),
            "the disk or the cores are slower or busier here",
        ),
        claim(
            "A few rows are far later than all others (0.1 to 5 % beyond five times the median)",
            "0.7 % beyond 1 ms, five times the median; largest 24.3 ms",
            format!(
                "{} beyond {}; largest {}",
                shown(far, percent),
                or_dash(far_from, time),
                time(lag.max_us.unwrap_or_default())
            ),
            within(far, 0.1, 5.0),
            "nothing stalled the replica in this run, or it stalled often",
        ),
    ];
    let both = with_others.and_then(|run| Some((run, of_stamps(run)?)));
    if let Some((with_others, row)) = both {
        let median_with_others = median_of(lag_of(row));
        let disturbed = ratio(median_with_others, median);
        // Starts differ, so those of each run must show by how much.
        let starts = [alone, with_others].map(|run| run.target.fresh_starts);
        let (verdict, why) = if starts.into_iter().any(|starts| starts < 2) {
            let why = "a run has fewer than two starts, and starts differ as well as methods";
            (Verdict::Open, why)
        } else {
            let why = "the methods cost less than the medians differ";
            (within(disturbed, 1.0, 10.0), why)
        };
        claims.push(question(
            "Polling and the other methods disturb what the stamps show (1 to 10 times)",
            format!(
                "{} times the median with all other methods: {}",
                shown(disturbed, |ratio| format!("{ratio:.2}")),
                shown(median_with_others, time)
            ),
            verdict,
            why,
        ));
    }
    (table(&["lag, ms", "rows"], lines), claims)
}

/// Returns the row of the stamps.
fn of_stamps(document: &LagDocument) -> Option<&LagRow> {
    let rows = overall_rows(document);
    ["stamp-udf", "stamp"].iter().find_map(|method| {
        let mut rows = rows.iter();
        rows.find(|row| row.method == *method && !row.histogram_100us.is_empty())
            .copied()
    })
}

/// Returns the lag that the histogram is of.
fn lag_of(row: &LagRow) -> &Distribution {
    if row.from_primary.count > 0 {
        &row.from_primary
    } else {
        &row.from_ack
    }
}

fn median_of(lag: &Distribution) -> Estimate {
    Estimate::with_ends(lag.p50_us, lag.p50_us_ci95)
}

/// Returns the share of rows in these bins, in percent, with an interval for rows that depend on their neighbors.
fn percent_of(row: &LagRow, wanted: impl Fn(&HistogramBin) -> bool) -> Estimate {
    let counted =
        |bins: &mut dyn Iterator<Item = &HistogramBin>| -> u64 { bins.map(|bin| bin.count).sum() };
    let all = counted(&mut row.histogram_100us.iter());
    let these = counted(&mut row.histogram_100us.iter().filter(|bin| wanted(bin)));
    // Without the factor of dependence the interval would be too narrow.
    let interval = lag_of(row).inflation.map(|inflation| {
        let share = Proportion::of(all, these, Some(inflation));
        [share.low, share.high].map(|share| share * 100.0)
    });
    let share = (all > 0).then(|| these as f64 / all as f64 * 100.0);
    Estimate::with_ends(share, interval.filter(|_| all > 0))
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::lag::results::LagResults;
    use replimeter_model::record::TargetRecord;

    use super::*;
    use crate::across::reproduce::tests::verdicts;

    fn published(p50_us: f64) -> LagDocument {
        let bins = BINS.iter().map(|(lag, rows)| HistogramBin {
            bin: (lag.parse::<f64>().unwrap() * 10.0).round() as i64,
            count: rows.parse().unwrap(),
        });
        let row = LagRow {
            method: "stamp-udf".to_owned(),
            histogram_100us: bins.collect(),
            far_percent: Some(0.7),
            far_percent_ci95: Some([0.3, 1.5]),
            from_primary: Distribution {
                count: 1000,
                p50_us: Some(p50_us),
                p50_us_ci95: Some([p50_us * 0.95, p50_us * 1.05]),
                max_us: Some(24_300.0),
                inflation: Some(1.5),
                ..Distribution::default()
            },
            ..LagRow::default()
        };
        LagDocument {
            target: TargetRecord {
                fresh_starts: 10,
                ..TargetRecord::default()
            },
            results: LagResults {
                rows: vec![row],
                ..LagResults::default()
            },
            ..LagDocument::default()
        }
    }

    #[test]
    fn similar_histogram_agrees_with_the_published_one() {
        let (ours, claims) = histogram(&published(200.0), Some(&published(300.0)));
        assert_eq!(verdicts(&claims), [Verdict::Agrees; 4], "{claims:#?}");
        assert!(claims[0].ours.starts_with("93.5 % ["), "{claims:#?}");
        assert!(claims[2].ours.starts_with("0.7 % ["), "{claims:#?}");
        assert!(claims[3].ours.starts_with("1.50 ["), "{claims:#?}");
        assert_eq!(ours.lines.len(), BINS.len());
        assert!(
            histogram(&LagDocument::default(), None).1.is_empty(),
            "a run without rows has no finding"
        );
    }

    #[test]
    fn disturbance_of_a_single_start_has_no_verdict() {
        for single in 0..2 {
            let mut runs = [published(200.0), published(300.0)];
            runs[single].target.fresh_starts = 1;
            let (_, claims) = histogram(&runs[0], Some(&runs[1]));
            assert_eq!(claims[3].verdict, Verdict::Open, "{claims:#?}");
            assert!(claims[3].why.contains("fewer than two starts"));
        }
    }

    #[test]
    fn figures_without_intervals_have_no_verdict() {
        let mut alone = published(200.0);
        let row = &mut alone.results.rows[0];
        row.far_percent_ci95 = None;
        (row.from_primary.inflation, row.from_primary.p50_us_ci95) = (None, None);
        let (_, claims) = histogram(&alone, None);
        assert_eq!(verdicts(&claims), [Verdict::Open; 3]);
    }
}
