use proptest::prelude::*;
use replimeter_model::random::Random;

use super::*;

/// One unit of the textbook examples: on the grid, and far from its finest points.
const UNIT: i64 = 64_000;

fn of(brackets: &[(i64, i64)]) -> Npmle {
    let mut all = Brackets::default();
    for (low, high) in brackets {
        all.record(Some(Nanos(low * UNIT)), Nanos(high * UNIT));
    }
    all.estimate().unwrap()
}

/// Intervals with mass in units, and the mass.
fn masses(estimate: &Npmle) -> Vec<(f64, f64, f64)> {
    let unit = UNIT as f64;
    let held = estimate.intervals().filter(|(_, _, mass)| *mass > 1e-4);
    held.map(|(low, high, mass)| (low.0 as f64 / unit, high.0 as f64 / unit, mass))
        .collect()
}

fn assert_masses(brackets: &[(i64, i64)], wanted: &[(f64, f64, f64)]) {
    let estimate = of(brackets);
    let got = masses(&estimate);
    let near = |a: f64, b: f64| (a - b).abs() < 0.02;
    let same = got.len() == wanted.len()
        && got
            .iter()
            .zip(wanted)
            .all(|(a, b)| near(a.0, b.0) && near(a.1, b.1) && (a.2 - b.2).abs() < 0.01);
    assert!(
        same,
        "{got:?} for {wanted:?}, {} steps, gap {}",
        estimate.steps(),
        estimate.gap()
    );
    assert!(estimate.gap() <= TOLERANCE, "{}", estimate.gap());
}

#[test]
fn one_bracket_bounds_the_estimate() {
    assert_masses(&[(2, 4)], &[(2.0, 4.0, 1.0)]);
}

#[test]
fn overlapping_brackets_leave_their_intersection() {
    // Peto 1973: all mass is where all times may be.
    assert_masses(&[(0, 3), (2, 5), (1, 4)], &[(2.0, 3.0, 1.0)]);
    // Ends that only touch do not overlap: (0, 1] and (1, 2].
    assert_masses(&[(0, 1), (1, 2)], &[(0.0, 1.0, 0.5), (1.0, 2.0, 0.5)]);
}

#[test]
fn chain_of_four_matches_hand_calculation() {
    // (0,1], (0,2], (1,3], (2,3]: innermost are (0,1], (1,2], (2,3] with masses
    // a, b, c; a(a+b)(b+c)c under a+b+c = 1 is largest at a = c = ½, b = 0.
    assert_masses(
        &[(0, 1), (0, 2), (1, 3), (2, 3)],
        &[(0.0, 1.0, 0.5), (2.0, 3.0, 0.5)],
    );
}

#[test]
fn current_status_data_match_the_formula() {
    // Only "before" or "after" the time of a check: the estimate at these times is the isotonic
    // regression of the answers (Ayer et al. 1955). Checked at 1, 2, 3, 4, 5: before is 0, 1, 0, 1,
    // 1; regression 0, ½, ½, 1, 1.
    let brackets = [(1, 100), (0, 2), (3, 100), (0, 4), (0, 5)];
    let estimate = of(&brackets);
    let at = |units: i64| -> f64 {
        estimate
            .intervals()
            .filter(|(_, high, _)| high.0 <= units * UNIT + UNIT / 50)
            .map(|(_, _, mass)| mass)
            .sum()
    };
    for (units, wanted) in [(1, 0.0), (2, 0.5), (3, 0.5), (4, 1.0), (5, 1.0)] {
        assert!(
            (at(units) - wanted).abs() < 0.01,
            "F({units}) = {} for {wanted}",
            at(units)
        );
    }
}

#[test]
fn estimate_is_turnbull_self_consistent() {
    // Each mass is the mean share of the brackets that contain its interval.
    let brackets = [
        (0, 3),
        (1, 5),
        (2, 4),
        (3, 7),
        (5, 8),
        (6, 9),
        (0, 9),
        (7, 8),
        (1, 2),
    ];
    let estimate = of(&brackets);
    let held: Vec<(Nanos, Nanos, f64)> = estimate.intervals().collect();
    for (low, high, mass) in &held {
        let share: f64 = brackets
            .iter()
            .map(|(from, to)| {
                let inside = |low: &Nanos, high: &Nanos| {
                    low.0 >= grid::at(grid::floor(from * UNIT))
                        && high.0 <= grid::at(grid::ceil(to * UNIT))
                };
                let total: f64 = held
                    .iter()
                    .filter(|(low, high, _)| inside(low, high))
                    .map(|(_, _, mass)| mass)
                    .sum();
                if inside(low, high) { mass / total } else { 0.0 }
            })
            .sum();
        assert!(
            (share / brackets.len() as f64 - mass).abs() < 1e-3,
            "{low:?} {high:?} {mass}"
        );
    }
}

#[test]
fn exact_times_give_the_empirical_distribution() {
    let mut all = Brackets::default();
    for value in 1..=1000i64 {
        all.record(Some(Nanos(value * 1_000_000)), Nanos(value * 1_000_000));
    }
    let estimate = all.estimate().unwrap();
    for p in [0.01, 0.1, 0.5, 0.9, 0.99] {
        let quantile = estimate.quantile(p);
        let exact = (p * 1e9) as i64;
        assert!(
            quantile.low.unwrap().0 < exact && exact <= quantile.high.0,
            "{p}: {quantile:?}"
        );
        assert!(
            (quantile.point.0 - exact).abs() <= exact / 127,
            "{p}: {quantile:?}"
        );
    }
    let (figures, within) = estimate.figures(|_, _| None, |_, _| None, Nanos(0));
    assert_eq!((figures.count, figures.p999_us), (1000, None));
    assert!(
        (figures.mean_us.unwrap() - 500_500.0).abs() < 500.0,
        "{figures:?}"
    );
    assert!(
        within
            .p50_us
            .is_some_and(|[low, high]| low < 500_000.0 && high >= 500_000.0)
    );
}

#[test]
fn missing_lower_end_stays_missing() {
    let mut all = Brackets::default();
    all.record(None, Nanos(5 * UNIT));
    assert_eq!(all.estimate().unwrap().quantile(0.5).low, None);
    all.record(Some(Nanos(UNIT)), Nanos(3 * UNIT));
    all.record(None, Nanos(2 * UNIT));
    let median = all.estimate().unwrap().quantile(0.5);
    assert!(
        median.low.is_some_and(|low| low.0 >= UNIT - UNIT / 50)
            && median.high.0 <= 2 * UNIT + UNIT / 50,
        "{median:?}"
    );
}

/// Times with an exponential tail, seen by polls with a period and a random phase, in microseconds.
fn polled(
    random: &mut Random,
    rounds: usize,
    period: f64,
    truth: impl Fn(f64) -> f64,
) -> Vec<(i64, i64)> {
    let ns = |us: f64| (us * 1e3) as i64;
    (0..rounds)
        .map(|_| {
            let time = truth(random.uniform());
            let phase = random.uniform() * period;
            let low = ((time - phase) / period).floor() * period + phase;
            (ns(low.max(0.0)), ns(low + period))
        })
        .collect()
}

#[test]
fn estimate_recovers_what_midpoints_miss() {
    // Exponential with mean 100 µs, polled every 150 µs.
    let mut random = Random::new(1);
    let truth = |uniform: f64| -100.0 * uniform.ln();
    let brackets = polled(&mut random, 20_000, 150.0, truth);
    let mut all = Brackets::default();
    brackets
        .iter()
        .for_each(|(low, high)| all.record(Some(Nanos(*low)), Nanos(*high)));
    let estimate = all.estimate().unwrap();
    let mut middles: Vec<f64> = brackets
        .iter()
        .map(|(low, high)| (low + high) as f64 / 2e3)
        .collect();
    middles.sort_by(f64::total_cmp);
    for p in [0.1, 0.25, 0.5, 0.9] {
        let wanted = truth(1.0 - p);
        let got = estimate.quantile(p).point.as_micros();
        let middle = middles[(p * middles.len() as f64) as usize];
        assert!(
            (got - wanted).abs() < 0.12 * wanted.max(60.0),
            "{p}: {got} for {wanted} (midpoint {middle})"
        );
        if p < 0.5 {
            assert!(
                (middle - wanted).abs() > 2.0 * (got - wanted).abs(),
                "{p}: midpoint {middle}, estimate {got}, truth {wanted}"
            );
        }
    }
}

#[test]
fn estimate_intervals_cover_the_truth() {
    // 100 runs of 300 rounds; lag 100 µs and an exponential tail of 50 µs, polled every 30 µs.
    let mut random = Random::new(7);
    let truth = |uniform: f64| 100.0 - 50.0 * uniform.ln();
    let mut covered = [0; 2];
    for _ in 0..100 {
        let mut all = Brackets::default();
        for (low, high) in polled(&mut random, 300, 30.0, truth) {
            all.record(Some(Nanos(low)), Nanos(high));
        }
        let levels = [(0.5, Some(1.0)), (0.9, Some(1.0))];
        let intervals = all.estimate().unwrap().bootstrap(levels, Nanos(0));
        for ((p, ends), covered) in [0.5, 0.9].into_iter().zip(intervals).zip(&mut covered) {
            let [low, high] = ends.unwrap();
            *covered += u32::from(low <= truth(1.0 - p) && truth(1.0 - p) <= high);
        }
    }
    // Nominal 95 of 100; three standard errors are 6.5.
    assert!(covered.iter().all(|covered| *covered >= 89), "{covered:?}");
}

#[test]
fn unknown_moment_within_reads_is_covered() {
    // Reads of 20 µs follow one another, and the server looks at their very begin or end: all times are then later or
    // earlier than the brackets between the middles of reads, which no number of rounds shows.
    let truth = |uniform: f64| 100.0 - 50.0 * uniform.ln();
    let (mut plain, mut wider) = (0, 0);
    for run in 0..40 {
        let mut random = Random::new(run);
        let earlier = if run % 2 == 0 { 0.0 } else { 20.0 };
        let mut all = Brackets::default();
        for _ in 0..2_000 {
            let time = truth(random.uniform());
            let phase = random.uniform() * 20.0;
            // The middle of the last read that looked too early.
            let missed = ((time - earlier - phase) / 20.0).ceil() * 20.0 + phase - 10.0;
            let ns = |us: f64| Nanos((us * 1e3) as i64);
            all.record(Some(ns(missed)), ns(missed + 20.0));
        }
        let estimate = all.estimate().unwrap();
        let covered = |systematic: Nanos| {
            let [ends] = estimate.bootstrap([(0.5, Some(1.0))], systematic);
            let [low, high] = ends.unwrap();
            u32::from(low <= truth(0.5) && truth(0.5) <= high)
        };
        plain += covered(Nanos(0));
        wider += covered(Nanos(10_000));
    }
    assert!(plain <= 20 && wider >= 38, "{plain} {wider}");
}

#[test]
fn interval_ends_where_the_estimate_does() {
    let mut all = Brackets::default();
    for round in 0..100 {
        let low = 100 + i64::from(round % 10 == 0) * 50;
        all.record(Some(Nanos(low * UNIT)), Nanos((low + 10) * UNIT));
    }
    let estimate = all.estimate().unwrap();
    let (figures, _) = estimate.figures(|_, _| Some(2.0), |_, _| None, Nanos(0));
    // A tenth of the mass is 50 units away, and the median's interval ends there.
    let [low, high] = figures.p50_us_ci95.unwrap();
    assert_eq!(Some(low), figures.min_us, "{figures:?}");
    assert!(Some(high) <= figures.max_us, "{figures:?}");
    let (wider, within) = estimate.figures(|_, _| Some(2.0), |_, _| None, Nanos(UNIT));
    assert_eq!(wider.p50_us_ci95, Some([low - 64.0, high + 64.0]));
    assert_eq!(within.systematic_us, 64.0);
}

#[test]
fn memory_does_not_grow_with_rounds() {
    let mut random = Random::new(3);
    let mut all = Brackets::default();
    for _ in 0..300_000 {
        let low = (random.uniform() * 1e9) as i64 - 100_000_000;
        all.record(
            Some(Nanos(low)),
            Nanos(low + (random.uniform() * 1e8) as i64),
        );
    }
    assert!(all.pairs.len() <= MAX_PAIRS, "{}", all.pairs.len());
    assert_eq!(all.pairs.values().sum::<u64>(), 300_000);
}

proptest! {
    #[test]
    fn mass_is_one_and_distribution_is_monotonic(
        brackets in proptest::collection::vec((any::<i64>(), proptest::option::of(-2_000_000i64..2_000_000), 0i64..3_000_000), 1..60)
    ) {
        let mut all = Brackets::default();
        for (far, low, width) in &brackets {
            match low {
                Some(low) => all.record(Some(Nanos(*low)), Nanos(low + width)),
                // Any values, even in the wrong order.
                None => all.record((far % 2 == 0).then_some(Nanos(far.rotate_left(7))), Nanos(*far)),
            }
        }
        let estimate = all.estimate().unwrap();
        let total: f64 = estimate.intervals().map(|(_, _, mass)| mass).sum();
        prop_assert!((total - 1.0).abs() < 1e-9, "{total}");
        prop_assert!(estimate.intervals().all(|(low, high, mass)| low < high && mass >= 0.0));
        let mut last = Nanos(i64::MIN);
        for p in [0.0, 0.1, 0.5, 0.9, 1.0] {
            let quantile = estimate.quantile(p);
            prop_assert!(quantile.point >= last && quantile.high >= quantile.point);
            last = quantile.point;
        }
        let _ = estimate.figures(|_, _| Some(2.0), |_, _| None, Nanos(5_000));
    }
}
