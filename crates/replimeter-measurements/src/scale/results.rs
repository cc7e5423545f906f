//! Computes the rows of the document.

use replimeter_model::{
    plan::{ScalePhase, ScalePlan},
    scale::{PercentOfNone, ScaleRow},
};
use replimeter_stats::{bootstrap, series::distribution};

use super::{cell::Cell, gathered::Gathered};

impl Gathered {
    /// Returns the rates of each start that has any.
    fn starts(&self, replicas: u32, phase: ScalePhase, kind: &str) -> Vec<Vec<f64>> {
        let cell = self.cells.get(&(replicas, phase));
        let rates = cell.and_then(|cell| cell.rates.get(kind));
        rates
            .map(|starts| starts.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Returns operations of a kind per second, and the ends of the interval.
    pub(super) fn rate(
        &self,
        replicas: u32,
        phase: ScalePhase,
        kind: &str,
    ) -> (Option<f64>, Option<[f64; 2]>) {
        let mean = bootstrap::of_positive_mean(&self.starts(replicas, phase, kind));
        (mean.value, mean.ends())
    }

    fn percent(
        &self,
        replicas: u32,
        phase: ScalePhase,
        kind: &str,
    ) -> (Option<f64>, Option<[f64; 2]>) {
        let (of, to) = (
            self.starts(replicas, phase, kind),
            self.starts(0, phase, kind),
        );
        if replicas == 0 {
            return (self.rate(0, phase, kind).0.map(|_| 100.0), None);
        }
        let ratio = bootstrap::of_ratio(&of, &to);
        (
            ratio.value.map(|value| value * 100.0),
            ratio.ends().map(|ends| ends.map(|end| end * 100.0)),
        )
    }

    /// Returns the rows by number of replicas and phase; the law has those of a checked prediction.
    pub(super) fn rows(&self, work: &ScalePlan) -> Vec<ScaleRow> {
        let asked = |replicas: u32| work.replicas.counts().contains(&replicas);
        let cells = self.cells.iter().filter(|((replicas, _), cell)| {
            asked(*replicas) && (cell.blocks > 0 || cell.invalid > 0)
        });
        cells
            .map(|((replicas, phase), cell)| self.row(*replicas, *phase, cell))
            .collect()
    }

    fn row(&self, replicas: u32, phase: ScalePhase, cell: &Cell) -> ScaleRow {
        let (inserts_per_s, inserts_ci) = self.rate(replicas, phase, "insert");
        let (selects_per_s, selects_ci) = self.rate(replicas, phase, "select");
        let (updates_per_s, updates_ci) = self.rate(replicas, phase, "update");
        let (inserts, inserts_of) = self.percent(replicas, phase, "insert");
        let (selects, selects_of) = self.percent(replicas, phase, "select");
        let (updates, updates_of) = self.percent(replicas, phase, "update");
        let counted_us = cell.counted.as_micros();
        ScaleRow {
            shape: cell.shape.clone(),
            replicas,
            phase: phase.name().to_owned(),
            starts: cell
                .rates
                .values()
                .map(|starts| starts.len() as u32)
                .max()
                .unwrap_or(0),
            blocks: cell.blocks,
            invalid_blocks: cell.invalid,
            counted_us,
            inserts_per_s,
            inserts_per_s_ci95: inserts_ci,
            selects_per_s,
            selects_per_s_ci95: selects_ci,
            updates_per_s,
            updates_per_s_ci95: updates_ci,
            percent_of_none: PercentOfNone {
                inserts,
                inserts_ci95: inserts_of,
                selects,
                selects_ci95: selects_of,
                updates,
                updates_ci95: updates_of,
            },
            write_latency: distribution(&cell.write_latency),
            select_latency: distribution(&cell.select_latency),
            retries: cell.retries,
            failed: cell.failed,
            errors: cell.errors.clone(),
            caught_up_after_us: cell.caught_up_us,
            servers: cell.servers(),
            client_cpu_percent: if counted_us > 0.0 {
                cell.client_us / counted_us * 100.0
            } else {
                0.0
            },
            client_delay_percent: cell
                .delayed
                .filter(|_| cell.thread_us > 0.0)
                .map(|delayed| delayed / cell.thread_us * 100.0),
            client_limit_percent: cell.limit_percent,
        }
    }
}
