//! Computes the rows of the document.

use replimeter_instruments::scale::{
    results::{PercentOfNone, ScaleRow},
    settings::{ScalePhase, ScalePlan},
};
use replimeter_stats::{
    series::distribution,
    starts::{Rounds, of_mean, of_ratio},
};

use crate::selected_blocks::selection;

use super::{accumulator::Accumulator, condition::Condition};

impl Accumulator {
    /// Returns the rates of each round that has any.
    fn rounds(&self, replicas: u32, phase: ScalePhase, kind: &str) -> Rounds {
        let condition = self.conditions.get(&(replicas, phase));
        condition.map_or_else(Rounds::new, |condition| condition.rates(kind))
    }

    /// Returns operations of a kind per second, and the ends of the interval.
    pub(super) fn rate(
        &self,
        replicas: u32,
        phase: ScalePhase,
        kind: &str,
    ) -> (Option<f64>, Option<[f64; 2]>) {
        let mean = of_mean(self.rounds(replicas, phase, kind).values());
        (mean.value, mean.ends())
    }

    /// Returns writes per second that every replica applied, or selects per second, and the ends of the interval.
    pub(super) fn applied_rate(
        &self,
        replicas: u32,
        phase: ScalePhase,
        kind: &str,
    ) -> (Option<f64>, Option<[f64; 2]>) {
        if kind == "select" {
            return self.rate(replicas, phase, kind);
        }
        let condition = self.conditions.get(&(replicas, phase));
        let starts = condition
            .iter()
            .flat_map(|condition| condition.sustained.values());
        let mean = of_mean(starts);
        (mean.value, mean.ends())
    }

    fn percent(
        &self,
        replicas: u32,
        phase: ScalePhase,
        kind: &str,
    ) -> (Option<f64>, Option<[f64; 2]>) {
        let (of, to) = (
            self.rounds(replicas, phase, kind),
            self.rounds(0, phase, kind),
        );
        if replicas == 0 {
            return (self.rate(0, phase, kind).0.map(|_| 100.0), None);
        }
        let ratio = of_ratio(&of, &to);
        (
            ratio.value.map(|value| value * 100.0),
            ratio.ends().map(|ends| ends.map(|end| end * 100.0)),
        )
    }

    /// Returns the rows by number of replicas and phase; the law has those of a checked prediction.
    pub(super) fn rows(&self, plan: &ScalePlan) -> Vec<ScaleRow> {
        let asked = |replicas: u32| plan.replicas.counts().contains(&replicas);
        let conditions = self.conditions.iter().filter(|((replicas, _), condition)| {
            asked(*replicas) && (condition.blocks > 0 || condition.totals.invalid > 0)
        });
        conditions
            .map(|((replicas, phase), condition)| self.row(*replicas, *phase, condition))
            .collect()
    }

    fn row(&self, replicas: u32, phase: ScalePhase, condition: &Condition) -> ScaleRow {
        let (inserts_per_s, inserts_ci) = self.rate(replicas, phase, "insert");
        let (selects_per_s, selects_ci) = self.rate(replicas, phase, "select");
        let (updates_per_s, updates_ci) = self.rate(replicas, phase, "update");
        let (inserts, inserts_of) = self.percent(replicas, phase, "insert");
        let (selects, selects_of) = self.percent(replicas, phase, "select");
        let (updates, updates_of) = self.percent(replicas, phase, "update");
        let (sustained_writes_per_s, sustained_ci) = self.applied_rate(replicas, phase, "write");
        let totals = &condition.totals;
        let counted_us = totals.counted.as_micros();
        ScaleRow {
            shape: condition.shape.clone(),
            replicas,
            phase: phase.name().to_owned(),
            starts: condition.starts(),
            blocks: condition.blocks,
            invalid_blocks: totals.invalid,
            counted_us,
            inserts_per_s,
            inserts_per_s_ci95: inserts_ci,
            selects_per_s,
            selects_per_s_ci95: selects_ci,
            updates_per_s,
            updates_per_s_ci95: updates_ci,
            sustained_writes_per_s,
            sustained_writes_per_s_ci95: sustained_ci,
            percent_of_none: PercentOfNone {
                inserts,
                inserts_ci95: inserts_of,
                selects,
                selects_ci95: selects_of,
                updates,
                updates_ci95: updates_of,
            },
            write_latency: distribution(&condition.write_latency),
            select_latency: distribution(&condition.select_latency),
            selection: selection(&totals.seen),
            retries: totals.retries,
            failed: totals.failed,
            errors: totals.errors.clone(),
            caught_up_after_us: condition.caught_up_us,
            servers: condition.servers(),
            client_cpu_percent: if counted_us > 0.0 {
                totals.client_cpu_us / counted_us * 100.0
            } else {
                0.0
            },
            client_ready_percent: totals
                .client_delay_us
                .filter(|_| condition.thread_us > 0.0)
                .map(|delayed| delayed / condition.thread_us * 100.0),
            client_limit_percent: condition.limit_percent,
        }
    }
}
