//! The charts of a trial.

use replimeter_model::trial::{TrialDocument, TrialPair};

use crate::{
    chart::{Axis, Chart, Mark, Point, Scale, Series},
    format::or_dash,
    report::Table,
};

/// Returns all charts of a trial.
#[must_use]
pub fn charts(document: &TrialDocument) -> Vec<Chart> {
    vec![pairs(document)]
}

fn percent(ratio: Option<f64>) -> Option<f64> {
    ratio.map(|ratio| (ratio - 1.0) * 100.0)
}

/// Returns how much more B has than A in each pair, and all pairs so far at each check.
fn pairs(document: &TrialDocument) -> Chart {
    let ratio = |pair: &TrialPair| percent(pair.a.zip(pair.b).map(|(a, b)| b / a));
    let counted: Vec<&TrialPair> = document
        .pairs
        .iter()
        .filter(|pair| pair.lost.is_none())
        .collect();
    let each = counted
        .iter()
        .map(|pair| Point::of(pair.number.to_string(), ratio(pair)));
    let interim = document.interim.iter().map(|check| {
        let [low, high] = [check.ratio.ci95.low, check.ratio.ci95.high].map(percent);
        // Lost pairs have numbers, too.
        let number = counted
            .get(check.pairs as usize - 1)
            .map_or(check.pairs, |pair| pair.number);
        Point::of(number.to_string(), percent(check.ratio.value)).within(low, high)
    });
    Chart {
        id: "pairs",
        title: "B from A, pair by pair",
        note: "In percent of A; all pairs so far with their interval.".to_owned(),
        x: Axis {
            words: counted.iter().map(|pair| pair.number.to_string()).collect(),
            ..Axis::default()
        },
        y: Axis {
            suffix: " %",
            ..Axis::new("B less A, in percent of A", Scale::Linear)
        },
        mark: Mark::Points,
        whiskers: true,
        series: vec![
            Series::new("pairs", each),
            Series::new("all pairs so far", interim),
        ],
        table: Table::of(
            0,
            &counted,
            &[
                ("pair", &|pair| pair.number.to_string()),
                ("percent", &|pair| {
                    or_dash(ratio(pair), |of| format!("{of:.1}"))
                }),
            ],
        ),
        ..Chart::default()
    }
}
