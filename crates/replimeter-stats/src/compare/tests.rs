use proptest::prelude::*;
use replimeter_model::random::Random;

use super::{blocks::politis_white, *};
use crate::{binomial::Excess, student::Z95};

/// A simulated run: neighbors share an autoregressive series, and slow periods come and go.
#[derive(Clone, Copy, Debug)]
struct SimulatedRuns {
    /// Correlation of neighbors.
    dependence: f64,
    /// Spread of samples: the standard deviation of their logarithm.
    spread: f64,
    /// Probability that a slow period begins, and its average length.
    slow_periods: Option<(f64, f64)>,
    /// Spread of runs: the standard deviation of their level.
    between: f64,
}

const WORLDS: [SimulatedRuns; 5] = [
    SimulatedRuns {
        dependence: 0.0,
        spread: 0.5,
        slow_periods: None,
        between: 0.0,
    },
    SimulatedRuns {
        dependence: 0.5,
        spread: 0.8,
        slow_periods: None,
        between: 0.0,
    },
    SimulatedRuns {
        dependence: 0.9,
        spread: 0.5,
        slow_periods: None,
        between: 0.0,
    },
    SimulatedRuns {
        dependence: 0.3,
        spread: 0.3,
        slow_periods: Some((0.004, 15.0)),
        between: 0.0,
    },
    SimulatedRuns {
        dependence: 0.97,
        spread: 0.3,
        slow_periods: None,
        between: 0.0,
    },
];

fn samples(random: &mut Random, world: SimulatedRuns, count: usize, level: f64) -> Vec<f64> {
    let (mut state, mut slow) = (random.normal(), false);
    let level = level * (world.between * random.normal()).exp();
    let fresh = (1.0 - world.dependence.powi(2)).sqrt();
    let one = |_: usize| {
        state = world.dependence * state + fresh * random.normal();
        if let Some((begins, long)) = world.slow_periods {
            slow = random.uniform() < if slow { 1.0 - 1.0 / long } else { begins };
        }
        level * (world.spread * state).exp() * if slow { 3.0 } else { 1.0 }
    };
    (0..count).map(one).collect()
}

/// Returns the p-values of a comparison's figures: mean, p50, p90, p99.
fn p_values(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<f64> {
    let figures: [fn(&SampleSeries) -> Option<Resampled>; 4] = [
        SampleSeries::mean,
        |series| series.quantile(0.5),
        |series| series.quantile(0.9),
        |series| series.quantile(0.99),
    ];
    let all_series = |side: &[Vec<f64>]| {
        side.iter()
            .map(|run| SampleSeries::new(run.iter().copied()))
            .collect::<Vec<_>>()
    };
    let (a, b) = (all_series(a), all_series(b));
    let of = |side: &[SampleSeries], figure: fn(&SampleSeries) -> Option<Resampled>| {
        of_runs(&side.iter().map(figure).collect::<Option<Vec<_>>>()?)?.spread()
    };
    let one = |figure: fn(&SampleSeries) -> Option<Resampled>| {
        let (a, b) = (of(&a, figure)?, of(&b, figure)?);
        Some(
            log_ratio(&a, &b)
                .unwrap_or_else(|| difference(&a, &b))
                .p_value(),
        )
    };
    figures.into_iter().filter_map(one).collect()
}

fn alarms(world: SimulatedRuns, pairs: u64, count: usize, runs: usize) -> (Excess, [u64; 4]) {
    let mut random = Random::new(count as u64 + (world.dependence * 100.0) as u64);
    let mut side = || {
        (0..runs)
            .map(|_| samples(&mut random, world, count, 200.0))
            .collect::<Vec<_>>()
    };
    let (mut families, mut single) = (0, [0; 4]);
    for _ in 0..pairs {
        let found = p_values(&side(), &side());
        families += u64::from(holm(&found).iter().any(|p| *p < 0.05));
        found
            .iter()
            .zip(&mut single)
            .for_each(|(p, count)| *count += u64::from(*p < 0.05));
    }
    (Excess::over(families, pairs, 0.05), single)
}

#[test]
fn equal_runs_alarm_in_at_most_five_percent() {
    for (index, world) in WORLDS.into_iter().enumerate() {
        let (excess, single) = alarms(world, 300, if index % 2 == 0 { 4000 } else { 1000 }, 1);
        assert!(
            !excess.significant(),
            "{world:?}: any of four figures, {excess:?}"
        );
        for (figure, count) in ["mean", "p50", "p90", "p99"].iter().zip(single) {
            // Twenty figures are compared: each at 0.25 %.
            let alone = Excess::over(count, 300, 0.05);
            assert!(alone.p_value > 0.0025, "{world:?}: {figure}, {alone:?}");
        }
    }
}

#[test]
fn varying_run_sets_alarm_in_at_most_five_percent() {
    let world = SimulatedRuns {
        between: 0.1,
        ..WORLDS[1]
    };
    for runs in [2, 4] {
        let (excess, _) = alarms(world, 250, 600, runs);
        assert!(!excess.significant(), "{runs} runs: {excess:?}");
    }
    // Single runs cannot show it: this is why single runs get a warning.
    let (excess, _) = alarms(world, 100, 600, 1);
    assert!(excess.significant(), "{excess:?}");
}

#[test]
fn assuming_independence_would_alarm_more_often() {
    let world = WORLDS[2];
    let mut random = Random::new(3);
    let mut alarms = 0;
    for _ in 0..100 {
        let mut one = || {
            let samples = samples(&mut random, world, 1000, 200.0);
            let half = Z95 * (variance(&samples) / samples.len() as f64).sqrt();
            let middle = mean(&samples);
            Resampled::of_interval(middle, Some([middle - half, middle + half]), 1000)
                .spread()
                .unwrap()
        };
        alarms += u64::from(difference(&one(), &one()).p_value() < 0.05);
    }
    assert!(alarms > 30, "{alarms} of 100");
}

#[test]
fn shift_of_twenty_percent_is_detected() {
    let mut random = Random::new(20);
    let mut found = 0;
    for _ in 0..100 {
        let a = vec![samples(&mut random, WORLDS[1], 4000, 200.0)];
        let b = vec![samples(&mut random, WORLDS[1], 4000, 240.0)];
        found += u64::from(holm(&p_values(&a, &b))[1] < 0.05);
    }
    assert!(found >= 95, "{found} of 100");
}

#[test]
fn figure_intervals_cover_the_truth() {
    // Of exp(0.8 z) the median is 1, and the 90th percentile exp(0.8 × 1.2816).
    let mut random = Random::new(77);
    let (mut median, mut ninetieth) = (0, 0);
    for _ in 0..300 {
        let series = SampleSeries::new(samples(&mut random, WORLDS[1], 4000, 1.0));
        let covers = |resampled: Option<Resampled>, truth: f64| {
            u32::from(
                resampled
                    .unwrap()
                    .estimate()
                    .excludes(truth)
                    .is_some_and(|excludes| !excludes),
            )
        };
        median += covers(series.quantile(0.5), 1.0);
        ninetieth += covers(series.quantile(0.9), (0.8f64 * 1.281_551_565_545).exp());
    }
    // Three standard errors of a share of 300 are 3.8 %.
    assert!(
        median >= 273 && ninetieth >= 273,
        "{median} and {ninetieth} of 300"
    );
}

#[test]
fn block_length_follows_the_dependence() {
    let mut random = Random::new(5);
    let mut length = |dependence: f64| {
        let world = SimulatedRuns {
            dependence,
            spread: 1.0,
            slow_periods: None,
            between: 0.0,
        };
        politis_white(
            &samples(&mut random, world, 4000, 1.0)
                .iter()
                .map(|value| value.ln())
                .collect::<Vec<_>>(),
        )
    };
    let lengths = [0.0, 0.5, 0.9].map(&mut length);
    assert!(
        lengths[0] < 6.0 && lengths[0] < lengths[1] && lengths[1] < lengths[2],
        "{lengths:?}"
    );
    // The best length for an autoregressive series is (2 G² / D)^(1/3) n^(1/3) with G = 2ρ/((1 − ρ)(1 + ρ)) relative to
    // the spectrum (1 + ρ)/(1 − ρ): (1.5 (2ρ/(1 − ρ²))²)^(1/3) n^(1/3), 81 for ρ = 0.9 and n = 4,000.
    assert!((40.0..180.0).contains(&lengths[2]), "{lengths:?}");
    assert_eq!((politis_white(&[]), politis_white(&[3.0; 50])), (1.0, 1.0));
}

#[test]
fn too_short_run_is_refused() {
    let mut random = Random::new(8);
    let slow = SimulatedRuns {
        dependence: 0.995,
        spread: 0.5,
        slow_periods: None,
        between: 0.0,
    };
    let series = SampleSeries::new(samples(&mut random, slow, 600, 100.0));
    let resampled = series.mean().unwrap();
    assert!(
        resampled.short && resampled.blocks == UNCLEAR_BLOCKS as u64 && resampled.freedom == 3.0,
        "{resampled:?}"
    );
    assert_eq!(
        series.quantile(0.99).map(|resampled| resampled.value),
        None,
        "fewer than ten samples lie beyond it"
    );
    assert!(
        SampleSeries::new((0..1000).map(f64::from))
            .quantile(0.99)
            .is_some_and(|resampled| resampled.value == 989.0)
    );
    let few = SampleSeries::new([1.0, 2.0, f64::NAN]);
    assert!((few.count(), few.mean().unwrap().spread()) == (2, None));
    assert!(
        SampleSeries::default().mean().is_none()
            && of_units(&[]).is_none()
            && of_runs(&[]).is_none()
            && of_blocks(&[]).is_none()
    );
    assert!(of_blocks(&[5.0]).unwrap().spread().is_none());
}

#[test]
fn known_values_are_reproduced() {
    // Holm 1979: sorted, each multiplied by the number of those left, never decreasing.
    assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]);
    assert_eq!(holm(&[]), Vec::<f64>::new());
    // Two means of 10 ± 1.96 and 13 ± 1.96: a difference of 3 with a standard deviation of √2.
    let of = |value: f64| {
        Resampled::of_interval(value, Some([value - Z95, value + Z95]), 50)
            .spread()
            .unwrap()
    };
    let apart = difference(&of(10.0), &of(13.0));
    let [low, high] = apart.interval(LEVEL);
    assert!(
        (apart.value, apart.freedom) == (3.0, f64::INFINITY),
        "{apart:?}"
    );
    assert!(
        (low - (3.0 - 1.96 * 2f64.sqrt())).abs() < 0.02
            && (high - (3.0 + 1.96 * 2f64.sqrt())).abs() < 0.02
    );
    assert!(
        (apart.p_value() - 0.0339).abs() < 0.001,
        "{}",
        apart.p_value()
    );
    assert!((apart.detectable_from(LEVEL) - 2f64.sqrt() * (1.96 + 0.8416)).abs() < 0.02);
    // Values that are 0 on both sides do not differ; equal values without spread are not taken as
    // certain.
    let still = |value: f64| {
        Resampled::of_interval(value, Some([value, value]), 9)
            .spread()
            .unwrap()
    };
    assert_eq!(
        (
            difference(&still(0.0), &still(0.0)).p_value(),
            difference(&still(0.0), &still(1.0)).p_value()
        ),
        (1.0, 5e-4)
    );
    // Rates are sums over sums.
    assert_eq!(of_rates(&[(6.0, 2.0), (2.0, 2.0)]).unwrap().value, 2.0);
    assert!(of_rates(&[(1.0, 0.0)]).is_none());
}

#[test]
fn starts_are_weighted_equally_and_drawn_first() {
    let run = |value: f64| Resampled::of_interval(value, Some([value - 1.0, value + 1.0]), 100);
    let alike = of_units(&[run(10.0), run(10.1), run(9.9)])
        .unwrap()
        .spread()
        .unwrap();
    let apart = of_units(&[run(5.0), run(10.0), run(15.0)])
        .unwrap()
        .spread()
        .unwrap();
    assert!((alike.value - 10.0).abs() < 1e-9 && (apart.value - 10.0).abs() < 1e-9);
    assert_eq!((alike.freedom, apart.freedom), (2.0, 2.0));
    // The standard error of 5, 10, 15 is 5/√3.
    assert!((apart.below - 2.887).abs() < 0.8, "{apart:?}");
    assert!((alike.below - 0.51 / 3f64.sqrt()).abs() < 0.1, "{alike:?}");
}

proptest! {
    #[test]
    fn figure_is_in_its_interval_and_ratio_inverts(
        a in 1.0f64..1e6, b in 1.0f64..1e6, wide in 0.001f64..0.3, other in 0.001f64..0.3,
    ) {
        let of = |value: f64, wide: f64| {
            Resampled::of_interval(value, Some([value * (1.0 - wide), value * (1.0 + 2.0 * wide)]), 100).spread().unwrap()
        };
        let (a, b) = (of(a, wide), of(b, other));
        let (there, back) = (log_ratio(&a, &b).unwrap(), log_ratio(&b, &a).unwrap());
        let ([low, high], turned) = (there.interval(LEVEL), back.interval(LEVEL));
        prop_assert!(low <= there.value && there.value <= high);
        prop_assert!((low + turned[1]).abs() < 1e-9 && (high + turned[0]).abs() < 1e-9);
        // The p-value and the interval agree.
        prop_assert_eq!(there.p_value() < 0.05, low > 0.0 || high < 0.0);
    }

    #[test]
    fn no_series_panics(values in proptest::collection::vec(-1e9f64..1e9, 0..200), p in 0.01f64..0.99) {
        let series = SampleSeries::new(values);
        let _ = (series.mean().map(|resampled| resampled.estimate()), series.quantile(p).map(|resampled| resampled.estimate()));
    }

    #[test]
    fn corrected_p_values_are_never_smaller(values in proptest::collection::vec(0.0f64..1.0, 0..30)) {
        for (value, corrected) in values.iter().zip(holm(&values)) {
            prop_assert!(corrected >= *value && corrected <= 1.0);
        }
    }
}
