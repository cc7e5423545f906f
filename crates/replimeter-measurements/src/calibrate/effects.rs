//! What each setting and each method of an ablation changes, and whether its default holds.

use std::collections::BTreeSet;

use replimeter_model::{
    calibrate::AblationEffect,
    estimate::Estimate,
    plan::{CoreUse, Method},
};
use replimeter_stats::compare::of_starts;

use super::ablation::{Condition, Part};

/// The difference below which a figure asks for no other default: of 5 %.
const MARGIN: f64 = 1.05;

/// Returns the effects: of keeping cores awake, of real-time priority with and without it, and of each method.
pub(super) fn effects(parts: &[&Part]) -> Vec<AblationEffect> {
    let threads: BTreeSet<u32> = parts.iter().map(|part| part.condition.threads).collect();
    let each = threads.into_iter().flat_map(|threads| {
        let parts: Vec<&Part> = parts
            .iter()
            .copied()
            .filter(|part| part.condition.threads == threads)
            .collect();
        of_load(&parts, threads)
    });
    each.collect()
}

/// Returns the effects under one load.
fn of_load(parts: &[&Part], threads: u32) -> Vec<AblationEffect> {
    let with = |part: &Part, change: fn(&mut Condition)| {
        let mut wanted = part.condition.clone();
        change(&mut wanted);
        let found = parts.iter().find(|other| other.condition == wanted);
        found.filter(|_| wanted != part.condition).copied()
    };
    let awake: Vec<Pair<'_>> = parts
        .iter()
        .filter_map(|off| Pair::of_methods(off, with(off, |other| other.keep_awake = true)?))
        .collect();
    let mut effects = vec![AblationEffect {
        of: "keep-awake".to_owned(),
        default_on: Some(CoreUse::of_sandbox(threads, None).keep_awake.on),
        ..effect(&awake)
    }];
    for keep_awake in [false, true] {
        let pairs: Vec<Pair<'_>> = parts
            .iter()
            .filter(|part| part.condition.keep_awake == keep_awake)
            .filter_map(|off| Pair::of_methods(off, with(off, |other| other.real_time = true)?))
            .collect();
        let cores = CoreUse::of_sandbox(threads, Some(keep_awake));
        effects.push(AblationEffect {
            of: "real-time".to_owned(),
            keep_awake: Some(keep_awake),
            default_on: Some(cores.real_time.on),
            ..effect(&pairs)
        });
    }
    let methods: BTreeSet<Method> = parts
        .iter()
        .flat_map(|part| part.condition.methods.clone())
        .collect();
    for method in methods {
        effects.push(AblationEffect {
            of: method.name().to_owned(),
            ..of_method(parts, method)
        });
    }
    for effect in &mut effects {
        effect.threads = threads;
        effect.other_default = effect.default_on.map(|on| asks_for_other(effect, on));
    }
    effects.retain(|effect| effect.repetitions > 0);
    effects
}

/// Returns the effect of a method: on its lag by the others, and by it on the load.
fn of_method(parts: &[&Part], method: Method) -> AblationEffect {
    let alone = parts
        .iter()
        .filter(|part| part.condition.methods == [method]);
    let pairs = alone.flat_map(|alone| {
        let wanted = |other: &&&Part| {
            let (one, other) = (&alone.condition, &other.condition);
            one.keep_awake == other.keep_awake && one.real_time == other.real_time
        };
        let mut like = parts.iter().filter(wanted);
        let together = like.find(|part| part.condition.methods.len() > 1);
        // Priority makes no difference to a load alone, which is measured without it.
        let none = parts.iter().find(|part| {
            part.condition.methods.is_empty()
                && part.condition.keep_awake == alone.condition.keep_awake
        });
        let lag = together.map(|together| Pair {
            without: alone,
            with: together,
            methods: vec![method],
            load: false,
        });
        let load = none.map(|none| Pair {
            without: none,
            with: alone,
            methods: Vec::new(),
            load: true,
        });
        lag.into_iter().chain(load)
    });
    effect(&pairs.collect::<Vec<_>>())
}

/// Two conditions that differ in one thing.
struct Pair<'a> {
    without: &'a Part,
    with: &'a Part,
    /// Methods whose lags are compared.
    methods: Vec<Method>,
    /// Whether the loads are compared.
    load: bool,
}

impl<'a> Pair<'a> {
    fn of_methods(without: &'a Part, with: &'a Part) -> Option<Self> {
        Some(Self {
            methods: without.condition.methods.clone(),
            load: true,
            without,
            with,
        })
    }

    /// Returns the logarithms of the ratios of medians in a repetition.
    fn lags(&self, turn: usize) -> impl Iterator<Item = f64> + '_ {
        self.methods.iter().filter_map(move |&method| {
            let medians = [self.with, self.without].map(|part| part.median(turn, method));
            logarithm(medians)
        })
    }

    /// Returns the logarithm of the ratio of throughputs in a repetition.
    fn load(&self, turn: usize) -> Option<f64> {
        let rates = [self.with, self.without].map(|part| part.throughput(turn));
        logarithm(rates).filter(|_| self.load)
    }
}

fn logarithm([with, without]: [Option<f64>; 2]) -> Option<f64> {
    Some((with? / without?).ln())
}

/// Returns the ratios of all pairs: each repetition gives one of each kind.
fn effect(pairs: &[Pair<'_>]) -> AblationEffect {
    let turns = pairs
        .iter()
        .map(|pair| pair.with.turns().min(pair.without.turns()));
    let turns = turns.max().unwrap_or(0);
    let ratio = |of: &dyn Fn(usize) -> Vec<f64>| {
        let of_turns = (0..turns).map(of).filter(|logs| !logs.is_empty());
        let ratios: Vec<f64> = of_turns
            .map(|logs| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
            .collect();
        of_starts(&ratios, 0).map_or_else(Estimate::default, |ratio| ratio.estimate())
    };
    AblationEffect {
        repetitions: u32::try_from(turns).unwrap_or(u32::MAX),
        lag_ratio: ratio(&|turn| pairs.iter().flat_map(|pair| pair.lags(turn)).collect()),
        throughput_ratio: ratio(&|turn| pairs.iter().filter_map(|pair| pair.load(turn)).collect()),
        ..AblationEffect::default()
    }
}

/// Returns whether the figures ask for another default than `on`. A default changes only where the whole interval of a figure is
/// better by the margin, and that of none is worse by it: figures that scatter around the margin do not move it back and forth.
fn asks_for_other(effect: &AblationEffect, on: bool) -> bool {
    // Larger is better.
    let lag = effect
        .lag_ratio
        .ends()
        .map(|[low, high]| [1.0 / high, 1.0 / low]);
    let figures = [lag, effect.throughput_ratio.ends()];
    let figures = figures.into_iter().flatten();
    let gains: Vec<[f64; 2]> = figures
        .map(|[low, high]| {
            if on {
                [1.0 / high, 1.0 / low]
            } else {
                [low, high]
            }
        })
        .collect();
    gains.iter().any(|[low, _]| *low > MARGIN)
        && !gains.iter().any(|[_, high]| *high < 1.0 / MARGIN)
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        sample::{LagSample, Phase, Sighting, SightingDetail, Write},
        time::Nanos,
    };

    use super::*;

    /// A condition with these medians of `poll` in µs and rates of the load, one per repetition.
    fn part(methods: &[Method], keep_awake: bool, real_time: bool, turns: &[(i64, u64)]) -> Part {
        let mut part = Part::new(Condition {
            threads: 8,
            keep_awake,
            real_time,
            methods: methods.to_vec(),
        });
        for &(lag, per_s) in turns {
            part.begin_turn();
            for method in methods {
                (0..25).for_each(|_| part.record(&sample(*method, lag)));
            }
            part.loaded(per_s, Nanos(1_000_000_000));
        }
        part
    }

    fn sample(method: Method, lag_us: i64) -> LagSample {
        let seen = Nanos(lag_us * 1000);
        LagSample {
            replica: 0,
            method,
            write: Write {
                seq: 1,
                phase: Phase::Measure,
                sweep: 0,
                step: 0,
                row_in_step: 1,
                size_bytes: 1,
                intended: Nanos(0),
                send: Nanos(0),
                ack: Nanos(1),
            },
            sighting: Some(Sighting {
                seq: 1,
                after: seen,
                hit_began: seen,
                until: seen,
                beside: SightingDetail::Nothing,
            }),
            untold: false,
        }
    }

    fn near(of: &Estimate, wanted: f64) -> bool {
        of.value
            .is_some_and(|value| (value / wanted - 1.0).abs() < 0.01)
    }

    #[test]
    fn settings_are_compared_within_each_repetition() {
        use Method::{Poll, Wait};
        // The machine is twice as slow in the second repetition.
        let parts = [
            part(&[], false, false, &[(0, 1000), (0, 500)]),
            part(&[], true, false, &[(0, 800), (0, 400)]),
            part(&[Poll], false, false, &[(400, 900), (800, 450)]),
            part(&[Poll], true, false, &[(200, 720), (400, 360)]),
            part(&[Wait], false, false, &[(400, 1000), (800, 500)]),
            part(&[Wait], true, false, &[(200, 800), (400, 400)]),
            part(&[Poll, Wait], false, false, &[(600, 800), (1200, 400)]),
            part(&[Poll, Wait], true, false, &[(300, 640), (600, 320)]),
        ];
        let found = effects(&parts.iter().collect::<Vec<_>>());
        let of = |name: &str| found.iter().find(|effect| effect.of == name).unwrap();
        let awake = of("keep-awake");
        assert_eq!((awake.threads, awake.repetitions), (8, 2));
        assert!(
            near(&awake.lag_ratio, 0.5) && near(&awake.throughput_ratio, 0.8),
            "{awake:?}"
        );
        // Better in the lag, but worse in the throughput: it stays off for eight threads.
        assert_eq!(
            (awake.default_on, awake.other_default),
            (Some(false), Some(false))
        );
        let poll = of("poll");
        assert!(
            near(&poll.lag_ratio, 1.5) && near(&poll.throughput_ratio, 0.9),
            "{poll:?}"
        );
        assert!(near(&of("wait").throughput_ratio, 1.0));
        assert!(found.iter().all(|effect| effect.of != "real-time"));
    }

    #[test]
    fn default_changes_only_beyond_the_margin() {
        let of = |lag: Option<[f64; 2]>, throughput: Option<[f64; 2]>| AblationEffect {
            lag_ratio: Estimate::with_ends(Some(1.0), lag),
            throughput_ratio: Estimate::with_ends(Some(1.0), throughput),
            ..AblationEffect::default()
        };
        let better = of(Some([0.5, 0.8]), None);
        assert!(asks_for_other(&better, false) && !asks_for_other(&better, true));
        let worse = of(Some([1.2, 1.3]), Some([0.99, 1.0]));
        assert!(asks_for_other(&worse, true) && !asks_for_other(&worse, false));
        for open in [
            of(Some([0.9, 0.97]), None),
            of(Some([0.5, 0.8]), Some([0.7, 0.9])),
            of(None, None),
        ] {
            assert!(
                !asks_for_other(&open, true) && !asks_for_other(&open, false),
                "{open:?}"
            );
        }
    }
}
