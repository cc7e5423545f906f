//! Figures of blocks that belong to starts of servers.

use std::collections::BTreeMap;

use replimeter_run::figures::{FigureSpec, Figures};
use replimeter_stats::compare::{Resampled, of_blocks, of_units};

/// The blocks' values of each figure, by the figures' dimensions.
#[derive(Default)]
pub(crate) struct Blocks(BTreeMap<Vec<String>, Vec<Starts>>);

/// Values of blocks, by start of servers.
#[derive(Default)]
struct Starts(BTreeMap<u64, Vec<f64>>);

impl Blocks {
    /// Adds the values of a block, in the order of the figures; NaN is skipped.
    pub(crate) fn push(&mut self, of: &[&str], start: f64, values: impl Iterator<Item = f64>) {
        let of = of.iter().map(|word| (*word).to_owned()).collect();
        let figures = self.0.entry(of).or_default();
        for (index, value) in values.enumerate() {
            if figures.len() <= index {
                figures.push(Starts::default());
            }
            if value.is_finite() {
                let blocks = figures[index].0.entry(start as u64).or_default();
                blocks.push(value);
            }
        }
    }

    /// Adds the figures of these specs.
    pub(crate) fn figures(
        &self,
        specs: impl Iterator<Item = &'static FigureSpec> + Clone,
        figures: &mut Figures,
    ) {
        for (of, starts) in &self.0 {
            let of: Vec<&str> = of.iter().map(String::as_str).collect();
            for (spec, starts) in specs.clone().zip(starts) {
                figures.add(spec, &of, starts.drawn());
            }
        }
    }
}

impl Starts {
    /// Starts differ more than the blocks of one start: with one start there is no interval.
    fn drawn(&self) -> Option<Resampled> {
        let units: Vec<Resampled> = self
            .0
            .values()
            .filter_map(|blocks| of_blocks(blocks))
            .collect();
        match &units[..] {
            [only] => Some(Resampled::without_resamples(only.value, only.samples)),
            units => of_units(units),
        }
    }
}
