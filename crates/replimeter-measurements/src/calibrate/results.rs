//! The rows of the results: measured less injected delay.

use replimeter_instruments::calibrate::results::CalibrateRow;
use replimeter_model::{record::Distribution, time::Nanos, time_span::TimeSpan};
use replimeter_stats::signed::SignedHistogram;

use super::{Accumulator, delays::Condition};

/// Returns the difference of two quantiles less the delay, with its interval.
fn error(
    value: [Option<f64>; 2],
    ends: [Option<[f64; 2]>; 2],
    injected: f64,
) -> (Option<f64>, Option<[f64; 2]>) {
    let [Some(with), Some(without)] = value else {
        return (None, None);
    };
    let error = with - without - injected;
    let half = |ends: Option<[f64; 2]>| ends.map(|[low, high]| (high - low) / 2.0);
    let ci = half(ends[0])
        .zip(half(ends[1]))
        .map(|(a, b)| (a * a + b * b).sqrt());
    (Some(error), ci.map(|half| [error - half, error + half]))
}

fn row(accumulator: &Accumulator, condition: &Condition, names: &[String]) -> CalibrateRow {
    let injected_us = condition.delay.0.as_secs_f64() * 1e6;
    let measured = condition.all.distribution();
    let base = accumulator
        .condition(condition.replica, condition.method, TimeSpan::from_secs(0))
        .filter(|base| base.delay != condition.delay);
    let mut row = CalibrateRow {
        replica: names[condition.replica].clone(),
        method: condition.method.name().to_owned(),
        injected_us,
        rounds: condition.rounds,
        timed_out: condition.missing,
        unplaced: condition.unplaced,
        ..CalibrateRow::default()
    };
    if let Some(base) = base {
        let without = base.all.distribution();
        let ci = |of: &Distribution, p99: bool| {
            if p99 { of.p99_us_ci95 } else { of.p50_us_ci95 }
        };
        let (p50, p50_ci) = error(
            [measured.p50_us, without.p50_us],
            [ci(&measured, false), ci(&without, false)],
            injected_us,
        );
        let (p99, p99_ci) = error(
            [measured.p99_us, without.p99_us],
            [ci(&measured, true), ci(&without, true)],
            injected_us,
        );
        (
            row.error_p50_us,
            row.error_p50_us_ci95,
            row.error_p99_us,
            row.error_p99_us_ci95,
        ) = (p50, p50_ci, p99, p99_ci);
        let p50 = |histogram: &SignedHistogram| histogram.quantile(0.5).map(Nanos::as_micros);
        let repetitions: Vec<f64> = condition
            .repetitions
            .iter()
            .zip(&base.repetitions)
            .filter_map(|(with, without)| Some(p50(with)? - p50(without)? - injected_us))
            .collect();
        let range = repetitions
            .iter()
            .fold([f64::MAX, f64::MIN], |[low, high], error| {
                [low.min(*error), high.max(*error)]
            });
        row.error_p50_range = (!repetitions.is_empty()).then_some(range);
    }
    row.measured = measured;
    row
}

/// Returns the rows by replica, method and delay.
pub(super) fn results(accumulator: &Accumulator, names: &[String]) -> Vec<CalibrateRow> {
    let mut conditions: Vec<&Condition> = accumulator
        .conditions
        .iter()
        .filter(|condition| condition.rounds > 0)
        .collect();
    conditions.sort_by_key(|condition| (condition.replica, condition.method, condition.delay));
    conditions
        .into_iter()
        .map(|condition| row(accumulator, condition, names))
        .collect()
}
