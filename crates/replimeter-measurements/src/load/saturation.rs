//! Where the throughput no longer rises with the number of threads.

use replimeter_instruments::load::results::{LoadRow, Saturation};

/// A higher number of threads counts if it raises the throughput to this multiple.
const RISE: f64 = 1.1;
/// Numbers of threads in a row that do not raise it, after which it is saturated: one alone may have been disturbed.
const NOT_HIGHER: usize = 2;

/// Returns the operations per second of all workloads by number of threads, in the order of measuring.
fn steps(rows: &[LoadRow]) -> Vec<(u32, f64)> {
    let mut steps: Vec<(u32, f64)> = Vec::new();
    for load in rows.iter().map(|row| &row.load) {
        let per_s = load.throughput.mean.unwrap_or(0.0);
        match steps.last_mut() {
            Some((threads, sum)) if *threads == load.threads => *sum += per_s,
            _ => steps.push((load.threads, per_s)),
        }
    }
    steps
}

/// Returns the smallest number of threads beyond which the throughput rises little, of those measured; `None` for no rows.
pub(super) fn saturation(rows: &[LoadRow]) -> Option<Saturation> {
    let steps = steps(rows);
    let highest = |steps: &[(u32, f64)]| {
        steps
            .iter()
            .fold(0.0f64, |most, (_, per_s)| most.max(*per_s))
    };
    let most = highest(&steps);
    let (threads, per_s) = *steps.iter().find(|(_, per_s)| per_s * RISE >= most)?;
    let (before, last) = steps.split_at(steps.len().saturating_sub(NOT_HIGHER));
    let reached = !before.is_empty() && highest(last) < RISE * highest(before);
    Some(Saturation {
        threads,
        per_s,
        reached,
    })
}

#[cfg(test)]
mod tests {
    use replimeter_model::load::{LoadRecord, Rate};

    use super::*;

    /// Returns the result for the throughput with 1, 2, 4 … threads.
    fn found(per_s: &[f64]) -> Option<(u32, bool)> {
        let rows: Vec<LoadRow> = (0..)
            .zip(per_s)
            .map(|(step, per_s)| LoadRow {
                load: LoadRecord {
                    threads: 1 << step,
                    throughput: Rate {
                        mean: Some(*per_s),
                        ..Rate::default()
                    },
                    ..LoadRecord::default()
                },
                ..LoadRow::default()
            })
            .collect();
        saturation(&rows).map(|found| (found.threads, found.reached))
    }

    #[test]
    fn throughput_is_saturated_after_two_doublings_without_a_rise() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[100.0]), Some((1, false)));
        // Fewer than two doublings, or a rise in one of the last two.
        assert_eq!(found(&[100.0, 105.0]), Some((1, false)));
        assert_eq!(found(&[100.0, 190.0, 350.0, 500.0]), Some((8, false)));
        assert_eq!(found(&[100.0, 190.0, 180.0, 240.0]), Some((8, false)));
        assert_eq!(found(&[100.0, 105.0, 104.0]), Some((1, true)));
        assert_eq!(found(&[100.0, 190.0, 350.0, 360.0, 340.0]), Some((4, true)));
        // It falls with too many threads.
        assert_eq!(found(&[100.0, 190.0, 150.0, 90.0]), Some((2, true)));
        assert_eq!(found(&[0.0, 0.0, 0.0]).map(|(threads, _)| threads), Some(1));
    }

    #[test]
    fn concurrent_workloads_add_up() {
        let row = |threads, mean| LoadRow {
            load: LoadRecord {
                threads,
                throughput: Rate {
                    mean: Some(mean),
                    ..Rate::default()
                },
                ..LoadRecord::default()
            },
            ..LoadRow::default()
        };
        let rows = [row(1, 10.0), row(1, 30.0), row(2, 20.0), row(2, 50.0)];
        assert_eq!(steps(&rows), [(1, 40.0), (2, 70.0)]);
    }
}
