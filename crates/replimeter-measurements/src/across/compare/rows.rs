//! Compares the figures of both sides: differences, ratios, and their significance.

use replimeter_model::{
    compare::{Basis, Change, CompareRow, SideFigure},
    estimate::Estimate,
};
use replimeter_render::compare::verdict;
use replimeter_run::figures::{DimensionValue, JudgedBy};
use replimeter_stats::compare::{LEVEL, Resampled, Spread, holm};

use super::{super::labels, matching::Pair};

/// The significance level.
pub(super) const ALPHA: f64 = 1.0 - LEVEL;

/// The test of a row.
struct Judgment {
    spread: Spread,
    /// Whether it is of the ratio's logarithm, not of the difference.
    logarithm: bool,
}

/// Returns a row for each pair, all tested together, and the number of tested figures. `basis` is `None` where nothing is tested.
pub(super) fn rows(pairs: &[Pair], basis: Option<Basis>) -> (Vec<CompareRow>, u64) {
    let labeled = pairs
        .iter()
        .zip(labels(pairs.iter().map(|pair| &pair.of[..])));
    let (mut rows, judged): (Vec<CompareRow>, Vec<Option<Judgment>>) = labeled
        .map(|(pair, label)| {
            let (row, judgment) = row(pair, label);
            (row, judgment.filter(|_| basis.is_some()))
        })
        .unzip();
    let among = judge(&mut rows, &judged, basis.unwrap_or_default());
    (rows, among)
}

fn side_figure(drawn: &Resampled, runs: usize) -> SideFigure {
    let estimate = drawn.estimate();
    SideFigure {
        value: drawn.value,
        ci95: estimate.ci95,
        runs: runs as u64,
        starts: drawn.starts,
        samples: drawn.samples,
        blocks: drawn.blocks,
        block_length: drawn.block_length,
        short: drawn.short,
    }
}

/// Returns a row with its difference and ratio, and its test: of the ratio, or of the difference if there is
/// no ratio.
fn row(pair: &Pair, label: String) -> (CompareRow, Option<Judgment>) {
    let (a, b) = (&pair.a, &pair.b);
    let (apart, times) = (pair.difference(), pair.log_ratio());
    let ends = |spread: &Spread| spread.interval(LEVEL);
    let of = |value: f64, ends: Option<[f64; 2]>| {
        let ends = ends.filter(|ends| ends.iter().all(|end| end.is_finite()));
        Estimate {
            value: Some(value),
            ci95: ends.into(),
        }
    };
    let positive = a.value > 0.0 && b.value > 0.0;
    let ratio = match &times {
        Some(times) => of(b.value / a.value, Some(ends(times).map(f64::exp))),
        // An interval can extend to 0 or below.
        None if positive && apart.is_none() => Estimate::of(b.value / a.value),
        None => Estimate::default(),
    };
    let logarithm = times.is_some() && pair.spec.by == JudgedBy::Ratio;
    let row = CompareRow {
        figure: pair.spec.name.to_owned(),
        of: pair.of.iter().map(DimensionValue::recorded).collect(),
        label,
        unit: pair.spec.unit,
        better: pair.spec.better,
        a: side_figure(a, pair.runs[0]),
        b: side_figure(b, pair.runs[1]),
        difference: of(b.value - a.value, apart.as_ref().map(ends)),
        ratio,
        known_spread: pair.known.and_then(|known| match logarithm {
            true => known.logarithms,
            false => Some(known.values),
        }),
        ..CompareRow::default()
    };
    let spread = if logarithm { times } else { apart };
    let judgment = spread.map(|spread| Judgment { spread, logarithm });
    (row, judgment)
}

/// Tests all rows together.
fn judge(rows: &mut [CompareRow], judged: &[Option<Judgment>], basis: Basis) -> u64 {
    let tests = judged.iter().flatten();
    let p_values: Vec<f64> = tests.map(|judgment| judgment.spread.p_value()).collect();
    let mut adjusted = holm(&p_values).into_iter();
    let among = p_values.len() as u64;
    for (row, judged) in rows.iter_mut().zip(judged) {
        if let Some(Judgment { spread, logarithm }) = judged {
            let (p, corrected) = (spread.p_value(), adjusted.next().unwrap_or(1.0));
            row.p_value = Some(p);
            row.p_adjusted = Some(corrected);
            let seen = spread.detectable_from(1.0 - ALPHA / among as f64);
            // Figures compared by difference have no percentage of A: a share "203 % higher" would be
            // meaningless.
            let (absolute, percent) = if *logarithm {
                (row.a.value * seen.exp_m1(), Some(seen.exp_m1() * 100.0))
            } else {
                (seen, None)
            };
            row.seen_from = Some(absolute).filter(|seen| seen.is_finite());
            row.seen_from_percent = percent.filter(|seen| seen.is_finite());
            row.change = match (corrected < ALPHA, p < ALPHA) {
                (true, _) if basis != Basis::AlternatingRuns => Change::Differs,
                (true, _) if spread.value > 0.0 => Change::Higher,
                (true, _) => Change::Lower,
                (false, true) => Change::NotAmongAll,
                (false, false) => Change::NotShown,
            };
        }
        row.verdict = verdict(row, among);
    }
    among
}
