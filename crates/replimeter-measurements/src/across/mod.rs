//! Several runs: their figures compared, or side by side, trials of two plans, and published experiments.

pub mod compare;
pub mod reproduce;
pub mod side_by_side;
pub mod trial;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use replimeter_run::{
    AnyRun,
    cli_error::CliError,
    figures::{DimensionSpec, DimensionValue, Figure, SampleFile},
};

/// Returns the figures of a run whose samples are in `dir`, in display order. Those of one start have no interval, which would leave
/// out the variation between starts.
fn figures_of(run: &dyn AnyRun, dir: &Path) -> Result<Vec<Figure>, CliError> {
    let mut figures = run.figures(&SampleFile::of(dir.to_owned()))?.known();
    if run.head().target.fresh_starts == 1 {
        for figure in &mut figures {
            figure.drawn = std::mem::take(&mut figure.drawn).of_one_start();
        }
    }
    Ok(figures)
}

/// Returns labels that distinguish figures of the same name.
fn labels<'a>(figures: impl Iterator<Item = &'a [DimensionValue]> + Clone) -> Vec<String> {
    let mut values: BTreeMap<DimensionSpec, BTreeSet<&str>> = BTreeMap::new();
    for of in figures.clone().flatten() {
        values.entry(of.dimension).or_default().insert(&of.value);
    }
    let distinguishes =
        |of: &&DimensionValue| of.dimension.always || values[&of.dimension].len() > 1;
    let label = |of: &[DimensionValue]| {
        let words = of.iter().filter(distinguishes).map(DimensionValue::word);
        words.collect::<Vec<_>>().join(" ")
    };
    figures.map(label).collect()
}
