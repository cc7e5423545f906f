//! Results of a run that continues.

use replimeter_instruments::lag::results::{LagResults, LagRow};

use super::{Accumulator, ShapeResults, loads};

impl Accumulator {
    /// Returns the results so far of a run that continues, as far as figures state them.
    pub(in crate::lag) fn so_far(&self) -> LagResults {
        LagResults {
            rows: self.parts.iter().flat_map(ShapeResults::so_far).collect(),
            load: self.parts.iter().flat_map(loads).collect(),
            ..LagResults::default()
        }
    }
}

impl ShapeResults {
    /// Returns a row for each replica and method, and in a sweep also for each size.
    fn so_far(&self) -> Vec<LagRow> {
        let sweep = self.per_step.is_some();
        let mut rows = Vec::new();
        for observed in &self.observed {
            let named = |row, size_bytes| LagRow {
                shape: self.label.clone(),
                replica: self.names[observed.replica].clone(),
                method: observed.method.name().to_owned(),
                size_bytes,
                ..row
            };
            let all = observed.summary.all().so_far();
            rows.push(named(all, (!sweep).then_some(self.largest)));
            let sizes = observed.summary.sizes();
            rows.extend(sizes.map(|(size, summary)| named(summary.so_far(), Some(size))));
        }
        rows
    }
}
