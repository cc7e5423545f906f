//! Runs of one plan in one folder: how much the figure that leads their headlines differs from one to the next.

use std::{fs, path::Path};

use replimeter_model::{
    equal_runs::EqualRuns,
    manifest::{MANIFEST_SCHEMA, Manifest},
    record::RunStatus,
};
use replimeter_render::{compare::equal_runs as words, files};
use replimeter_stats::compare::{LEVEL, MIN_KNOWN, RunSpread};

use crate::{
    differences::{Documents, differences},
    measurement::{Document, Leading, Measurement},
    run_dir::{MANIFEST, MAX_DOCUMENT, PLAN, SUMMARY},
};

/// Runs that are read at most.
const MAX_RUNS: usize = 100;

/// Adds to a complete run's document how much runs of its plan differ, if there are enough in the folder of its run directory.
pub(crate) fn add<M: Measurement>(document: &mut Document<M>, manifest: &Manifest, plan: &str) {
    let Some(found) = find::<M>(document, manifest, plan) else {
        return;
    };
    document.headline.push(' ');
    document.headline.push_str(&words(&found));
    document.equal_runs = Some(found);
}

fn find<M: Measurement>(
    document: &Document<M>,
    manifest: &Manifest,
    plan: &str,
) -> Option<EqualRuns> {
    let own = M::leading(document).filter(|_| document.status == RunStatus::Complete)?;
    let dir = Path::new(&document.run_dir);
    let this = Documents {
        summary: serde_json::to_value(document).ok()?,
        manifest: manifest.clone(),
        plan: plan.to_owned(),
    };
    let mut others: Vec<_> = fs::read_dir(dir.parent()?).ok()?.flatten().collect();
    others.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
    let others = others.into_iter().map(|entry| entry.path());
    let others = others
        .filter(|other| other != dir)
        .filter_map(|other| leading_of::<M>(&other, &this))
        .take(MAX_RUNS);
    of_values(&own, others)
}

/// Returns the spread of a run's figure and those of others.
fn of_values(own: &Leading, others: impl Iterator<Item = f64>) -> Option<EqualRuns> {
    let values: Vec<f64> = std::iter::once(own.value).chain(others).collect();
    if values.len() < MIN_KNOWN {
        return None;
    }
    let spread = RunSpread::of(&[&values])?;
    let between = spread.log_ratio(1.0, 1.0);
    let percent = |logarithm: f64| logarithm.exp_m1() * 100.0;
    Some(EqualRuns {
        runs: values.len() as u64,
        figure: own.figure.clone(),
        unit: own.unit,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        differ_percent: between.map(|between| between.interval(LEVEL).map(percent)),
    })
}

/// Returns the figure that leads the headline of another run; `None` unless it is complete, of the same plan and version, and of equal
/// servers on this machine.
fn leading_of<M: Measurement>(dir: &Path, this: &Documents) -> Option<f64> {
    let text = |name: &str| files::read_text(&dir.join(name), MAX_DOCUMENT).ok();
    let plan = text(PLAN).filter(|plan| *plan == this.plan)?;
    let manifest: Manifest = serde_json::from_str(&text(MANIFEST)?).ok()?;
    if manifest.schema != MANIFEST_SCHEMA {
        return None;
    }
    let other = Documents {
        summary: serde_json::from_str(&text(SUMMARY)?).ok()?,
        manifest,
        plan,
    };
    let differs = differences(&[this], &[&other]).between;
    if differs.iter().any(|one| one.kind != "other variable") {
        return None;
    }
    let document: Document<M> = serde_json::from_value(other.summary).ok()?;
    (document.status == RunStatus::Complete)
        .then(|| M::leading(&document))
        .flatten()
        .map(|leading| leading.value)
}

#[cfg(test)]
mod tests {
    use replimeter_model::compare::Quantity;

    use super::*;

    #[test]
    fn five_runs_show_how_much_runs_differ() {
        let own = Leading {
            figure: "replica1".to_owned(),
            value: 300.0,
            unit: Quantity::Us,
        };
        let of = |others: &[f64]| of_values(&own, others.iter().copied());
        assert_eq!(of(&[310.0, 290.0, 305.0]), None);
        let found = of(&[310.0, 290.0, 305.0, 330.0]).unwrap();
        assert_eq!((found.runs, found.min, found.max), (5, 290.0, 330.0));
        // t(4) = 2.776, times √2 times 0.0480, the standard deviation of the logarithms.
        let [low, high] = found.differ_percent.unwrap();
        assert!(
            (high - 20.8).abs() < 0.3 && (low + 17.2).abs() < 0.3,
            "{low} {high}"
        );
        // A share can be 0.
        let found = of(&[0.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(found.differ_percent, None);
        assert_eq!(of(&[300.0; 9]), None);
    }
}
