//! Compares the figures of both sides: differences, ratios, and their significance.

use replimeter_model::{
    compare::{Change, CompareRow, SideFigure},
    estimate::Estimate,
};
use replimeter_render::compare::verdict;
use replimeter_stats::compare::{
    LEVEL, Resampled, Spread, beyond_lateness, difference, holm, log_ratio,
};

use super::{
    figures::{DimensionValue, JudgedBy},
    matching::{Pair, labels},
};

/// The significance level.
pub(super) const ALPHA: f64 = 1.0 - LEVEL;

/// The test of a row.
struct Judgment {
    spread: Spread,
    /// What remains of it beyond the client's lateness, where that is known.
    beyond: Option<Spread>,
    /// Whether both are of the ratio's logarithm, not of the difference.
    logarithm: bool,
}

impl Judgment {
    /// Returns the p-value: a difference counts only if it remains beyond the client's lateness, in the same direction.
    fn p_value(&self) -> f64 {
        let alone = self.spread.p_value();
        match &self.beyond {
            Some(beyond) if beyond.value * self.spread.value <= 0.0 => 1.0,
            Some(beyond) => alone.max(beyond.p_value()),
            None => alone,
        }
    }

    /// Returns the smallest difference that both would have shown.
    fn detectable_from(&self, level: f64) -> f64 {
        let alone = self.spread.detectable_from(level);
        let beyond = self.beyond.map(|beyond| beyond.detectable_from(level));
        beyond.map_or(alone, |beyond| beyond.max(alone))
    }
}

/// Returns a row for each pair, all tested together, and the number of tested figures.
pub(super) fn rows(pairs: &[Pair]) -> (Vec<CompareRow>, u64) {
    let labelled = pairs.iter().zip(labels(pairs));
    let (mut rows, judged): (Vec<CompareRow>, Vec<Option<Judgment>>) =
        labelled.map(|(pair, label)| row(pair, label)).unzip();
    let among = judge(&mut rows, &judged);
    (rows, among)
}

fn side_figure(drawn: &Resampled, runs: usize) -> SideFigure {
    let estimate = drawn.estimate();
    SideFigure {
        value: drawn.value,
        ci95: estimate.ci95,
        runs: runs as u64,
        starts: drawn.starts.len() as u64,
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
    let both = a.spread().zip(b.spread());
    let apart = both.map(|(a, b)| difference(&a, &b));
    let times = both.and_then(|(a, b)| log_ratio(&a, &b));
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
        None if positive && both.is_none() => Estimate::of(b.value / a.value),
        None => Estimate::default(),
    };
    let logarithm = times.is_some() && pair.spec.by == JudgedBy::Ratio;
    let beyond = beyond_lateness(a, b, logarithm);
    let shown = |value: f64| if logarithm { value.exp() } else { value };
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
        beyond_lateness: beyond.as_ref().map_or_else(Estimate::default, |beyond| {
            let remains = &beyond.remains;
            of(shown(remains.value), Some(ends(remains).map(shown)))
        }),
        lateness_ratio: beyond.map(|beyond| beyond.lateness_ratio),
        ..CompareRow::default()
    };
    let spread = if logarithm { times } else { apart };
    let judgment = spread.map(|spread| Judgment {
        spread,
        beyond: beyond.map(|beyond| beyond.remains),
        logarithm,
    });
    (row, judgment)
}

/// Tests all rows together.
fn judge(rows: &mut [CompareRow], judged: &[Option<Judgment>]) -> u64 {
    let p_values: Vec<f64> = judged.iter().flatten().map(Judgment::p_value).collect();
    let mut adjusted = holm(&p_values).into_iter();
    let among = p_values.len() as u64;
    for (row, judged) in rows.iter_mut().zip(judged) {
        if let Some(judgment) = judged {
            let Judgment {
                spread, logarithm, ..
            } = judgment;
            let (p, corrected) = (judgment.p_value(), adjusted.next().unwrap_or(1.0));
            row.p_value = Some(p);
            row.p_adjusted = Some(corrected);
            let seen = judgment.detectable_from(1.0 - ALPHA / among as f64);
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
                (true, _) if spread.value > 0.0 => Change::Higher,
                (true, _) => Change::Lower,
                (false, true) => Change::NotAmongAll,
                (false, false) if spread.p_value() < ALPHA => Change::NotBeyondClient,
                (false, false) => Change::NotShown,
            };
        }
        row.verdict = verdict(row, among);
    }
    among
}
