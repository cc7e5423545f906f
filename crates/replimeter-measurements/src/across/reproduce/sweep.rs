//! The sweep over sizes.

use replimeter_instruments::lag::results::{LagDocument, SweepLoop};
use replimeter_model::{
    estimate::Estimate,
    reproduce::{Claim, Table, Verdict},
};
use replimeter_stats::{
    median,
    starts::{Rounds, of_mean},
};

use super::{Changed, Judged, claim, fixed, shown, table, with_changed, within};
use replimeter_render::{figures::count, format::or_dash};

/// Median bare times of a run with rows as late as published, 1.040 ms on average, to a third, in microseconds.
const AS_LATE: std::ops::RangeInclusive<f64> = 690.0..=1390.0;

fn ms(us: f64) -> String {
    format!("{:.3}", us / 1e3)
}

/// Returns a figure of the loops that are wanted, of each sweep.
fn by_sweep(
    loops: &[&SweepLoop],
    wanted: impl Fn(&SweepLoop) -> bool,
    pick: fn(&SweepLoop) -> f64,
) -> Rounds {
    let mut sweeps = Rounds::new();
    for row in loops.iter().filter(|row| wanted(row)) {
        sweeps.entry(row.sweep).or_default().push(pick(row));
    }
    sweeps
}

/// Returns the published table.
#[must_use]
pub fn sweep_published() -> Table {
    fixed(
        &["figure", "ms"],
        &[
            &["insert (fifth row of a step)", "1.3 to 3.3"],
            &["retrieval", "0.85 to 1.6"],
            &["total", "2.9 to 4.6"],
            &["bare (total − insert − retrieval)", "0.055 to 2.3"],
            &["average bare", "1.040"],
        ],
    )
}

/// Returns the published rows of all sweeps.
fn loops_of(document: &LagDocument) -> Vec<&SweepLoop> {
    let tables = document.results.size_sweep.iter();
    tables.flat_map(|sweep| &sweep.loops).collect()
}

/// Returns the average bare time. The sweeps are what repeats: loops of one are neighbors in time.
fn average_bare(loops: &[&SweepLoop]) -> Estimate {
    of_mean(by_sweep(loops, |_| true, |row| row.bare_us).values())
}

/// Returns the median bare time of the loops that are wanted, over the medians of each sweep. One stall of a second would decide an
/// average.
fn median_bare(loops: &[&SweepLoop], wanted: impl Fn(&SweepLoop) -> bool) -> Estimate {
    let sweeps = by_sweep(loops, wanted, |row| row.bare_us);
    let medians = sweeps
        .values()
        .filter_map(|bare| median::of_values(bare).value);
    median::of_values(&medians.collect::<Vec<_>>())
}

fn largest(loops: &[&SweepLoop]) -> u64 {
    loops.iter().map(|row| row.size_bytes).max().unwrap_or(0)
}

/// Returns the bare time of the largest size relative to that of 1,000 bytes: the median over the sweeps of what each has. One loop of
/// each size counts, the last: a sweep begins with two loops of 1,000 bytes, and the median of the means of two is not that of one.
fn growth(loops: &[&SweepLoop]) -> Estimate {
    let bare = |size| by_sweep(loops, |row| row.size_bytes == size, |row| row.bare_us);
    let (of, to) = (bare(largest(loops)), bare(1000));
    let last = of
        .iter()
        .filter_map(|(sweep, of)| Some((*of.last()?, *to.get(sweep)?.last()?)));
    // A loop whose parts take longer than the whole has none, and is below every other.
    let ratio = |(of, to): (f64, f64)| match (of > 0.0, to > 0.0) {
        (true, true) => Some(of / to),
        (true, false) => Some(f64::MAX),
        (false, true) => Some(0.0),
        (false, false) => None,
    };
    median::of_values(&last.filter_map(ratio).collect::<Vec<_>>())
}

/// Returns the measured table and the findings. In `later` rows are as late as the published ones.
#[must_use]
pub fn sweep(document: &LagDocument, later: Option<&LagDocument>) -> (Table, Vec<Claim>) {
    let loops = loops_of(document);
    let span = |pick: fn(&SweepLoop) -> f64| {
        let values = loops.iter().map(|row| pick(row));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let known = (!loops.is_empty()).then_some((low, high));
        or_dash(known, |(low, high)| format!("{} to {}", ms(low), ms(high)))
    };
    let lines = vec![
        vec![
            "insert (fifth row of a step)".to_owned(),
            span(|row| row.insert_us),
        ],
        vec!["retrieval".to_owned(), span(|row| row.retrieval_us)],
        vec!["total".to_owned(), span(|row| row.total_us)],
        vec![
            "bare (total − insert − retrieval)".to_owned(),
            span(|row| row.bare_us),
        ],
        vec!["average bare".to_owned(), shown(average_bare(&loops), ms)],
    ];
    let total = of_mean(by_sweep(&loops, |_| true, |row| row.total_us).values());
    let times = |ratio: f64| format!("{ratio:.2}");
    let flat = |growth| within(growth, 1.0 / 1.5, 1.5);
    let changed = later.map(|later| {
        let loops = loops_of(later);
        let (grows, median) = (growth(&loops), median_bare(&loops, |_| true).value);
        let text = format!(
            "{} if a link makes the bare time {} ms at the median",
            shown(grows, times),
            or_dash(median, ms)
        );
        let as_late = median.is_some_and(|us| AS_LATE.contains(&us));
        Changed {
            judged: Judged {
                text,
                verdict: if as_late { flat(grows) } else { Verdict::Open },
            },
            // The link's delay makes rows as late as the published ones.
            chosen: true,
        }
    });
    let grows = growth(&loops);
    let text = format!(
        "{} times the median bare time at {} bytes as at 1,000",
        shown(grows, times),
        count(largest(&loops))
    );
    let own = Judged {
        text,
        verdict: flat(grows),
    };
    let (ours, verdict) = with_changed(own, changed);
    let claims = vec![
        claim(
            "A row is on the replica within milliseconds of its insert (1 to 10)",
            "2.9 to 4.6 ms in all",
            format!("{} ms in all on average", shown(total, ms)),
            within(total, 1000.0, 10_000.0),
            "the disk or the machine is slower here than that of 2006; see the run's own report",
        ),
        claim(
            "The bare time does not depend on the size from 1,000 to 10,000 bytes (0.67 to 1.5 times)",
            "0.055 to 2.3 ms without a trend",
            ours,
            verdict,
            "with so short a lag, writing and applying ten times the bytes takes measurable time, or there are too few sweeps to decide",
        ),
    ];
    (table(&["figure", "ms"], lines), claims)
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::lag::results::{LagResults, SweepTable};

    use super::*;
    use crate::across::reproduce::tests::verdicts;

    #[test]
    fn sweep_is_judged_by_its_sizes() {
        // Sweeps whose bare times differ by a factor from the smallest to the largest size.
        let document = |level: f64, factor: f64, spread: f64| {
            let row = |sweep: u32, size_bytes: u64| {
                let noise = 1.0 + spread * f64::from(sweep % 3) - spread;
                let bare_us = if size_bytes == 1000 {
                    level
                } else {
                    level * factor * noise
                };
                SweepLoop {
                    sweep,
                    step: 1,
                    size_bytes,
                    sequence: 5,
                    insert_us: 1300.0,
                    retrieval_us: 900.0,
                    total_us: 3000.0 + bare_us,
                    bare_us,
                    inserted_unix_us: 0,
                    fetched_unix_us: 0,
                }
            };
            let loops = (1..=12).flat_map(|sweep| [row(sweep, 1000), row(sweep, 10_000)]);
            LagDocument {
                results: LagResults {
                    size_sweep: vec![SweepTable {
                        replica: String::new(),
                        loops: loops.collect(),
                    }],
                    ..LagResults::default()
                },
                ..LagDocument::default()
            }
        };
        let verdicts_of =
            |factor, spread| verdicts(&sweep(&document(100.0, factor, spread), None).1);
        assert_eq!(verdicts_of(1.1, 0.1), [Verdict::Agrees; 2]);
        assert_eq!(verdicts_of(9.0, 0.1), [Verdict::Agrees, Verdict::Differs]);
        assert_eq!(
            verdicts_of(1.35, 0.5),
            [Verdict::Agrees, Verdict::Open],
            "an interval on both sides of the bound"
        );
        assert_eq!(
            verdicts(&sweep(&LagDocument::default(), None).1),
            [Verdict::Open; 2]
        );
        // A run with rows as late as published explains a difference, and one with other rows does not.
        let with = |level| {
            let later = document(level, 1.1, 0.1);
            sweep(&document(100.0, 9.0, 0.1), Some(&later)).1[1].verdict
        };
        assert_eq!(
            [1000.0, 300.0, 3000.0].map(with),
            [Verdict::Consistent, Verdict::Differs, Verdict::Differs]
        );
    }
}
