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

/// Returns the effects: of keeping cores awake and of real-time priority, each with and without the other, and of each method.
pub(super) fn effects(parts: &[&Part]) -> Vec<AblationEffect> {
    let threads: BTreeSet<u32> = parts.iter().map(|part| part.condition.threads).collect();
    let each = threads.into_iter().flat_map(|threads| {
        let own = parts.iter().copied();
        let own: Vec<&Part> = own
            .filter(|part| part.condition.threads == threads)
            .collect();
        of_load(&own, threads)
    });
    each.collect()
}

/// Returns the effects under one load.
fn of_load(parts: &[&Part], threads: u32) -> Vec<AblationEffect> {
    // Each part without a setting, and the same with it.
    let changed = |wanted: &dyn Fn(&Condition) -> bool, change: fn(&mut Condition)| {
        let without = parts.iter().filter(|part| wanted(&part.condition));
        let figures = without.flat_map(|without| {
            let mut condition = without.condition.clone();
            change(&mut condition);
            let with = parts.iter().find(|part| part.condition == condition);
            with.into_iter().flat_map(|with| ratios(with, without))
        });
        effect(&figures.collect::<Vec<_>>())
    };
    let usual = CoreUse::of_sandbox(threads);
    let mut effects = Vec::new();
    for other in [false, true] {
        effects.push(AblationEffect {
            of: "keep-awake".to_owned(),
            real_time: Some(other),
            default_on: Some(usual.keep_awake.on),
            ..changed(&|of| !of.keep_awake && of.real_time == other, |of| {
                of.keep_awake = true
            })
        });
    }
    for other in [false, true] {
        effects.push(AblationEffect {
            of: "real-time".to_owned(),
            keep_awake: Some(other),
            default_on: Some(usual.real_time.on),
            ..changed(&|of| !of.real_time && of.keep_awake == other, |of| {
                of.real_time = true
            })
        });
    }
    let methods = parts.iter().flat_map(|part| part.condition.methods.clone());
    for method in methods.collect::<BTreeSet<Method>>() {
        effects.push(AblationEffect {
            of: method.name().to_owned(),
            ..of_method(parts, method)
        });
    }
    for effect in &mut effects {
        effect.threads = threads;
        effect.other_default = effect.default_on.and_then(|on| asks_for_other(effect, on));
    }
    effects.retain(|effect| effect.repetitions > 0);
    effects
}

/// Returns the effect of a method: on its lag by the others, and by it and the writer on the load.
fn of_method(parts: &[&Part], method: Method) -> AblationEffect {
    let alone = parts
        .iter()
        .filter(|part| part.condition.methods == [method]);
    let figures = alone.flat_map(|alone| {
        let own = &alone.condition;
        let together = parts.iter().filter(|part| {
            let of = &part.condition;
            of.methods.len() > 1 && (of.keep_awake, of.real_time) == (own.keep_awake, own.real_time)
        });
        // Priority makes no difference to a load alone, which is measured without it.
        let none = parts.iter().filter(|part| {
            part.condition.methods.is_empty() && part.condition.keep_awake == own.keep_awake
        });
        let lags = together.map(|with| Ratio {
            with,
            without: alone,
            of: Some(method),
        });
        let loads = none.map(|without| Ratio {
            with: alone,
            without,
            of: None,
        });
        lags.chain(loads)
    });
    effect(&figures.collect::<Vec<_>>())
}

/// A figure of two parts that differ in one thing: of a method the median lag, otherwise the throughput.
struct Ratio<'a> {
    with: &'a Part,
    without: &'a Part,
    of: Option<Method>,
}

impl Ratio<'_> {
    /// Returns its logarithm in a repetition.
    fn logarithm(&self, repetition: usize) -> Option<f64> {
        let figure = |part: &Part| match self.of {
            Some(method) => part.median(repetition, method),
            None => part.throughput(repetition),
        };
        Some((figure(self.with)? / figure(self.without)?).ln())
    }
}

/// Returns the figures of two parts with the same methods.
fn ratios<'a>(with: &'a Part, without: &'a Part) -> impl Iterator<Item = Ratio<'a>> {
    let methods = with.condition.methods.iter().copied().map(Some);
    let all = methods.chain([None]);
    all.map(|of| Ratio { with, without, of })
}

/// Returns the ratios of all parts together: each complete repetition gives one of each kind.
fn effect(ratios: &[Ratio<'_>]) -> AblationEffect {
    let repetitions = ratios.iter().map(|ratio| ratio.with.repetitions());
    let repetitions = 0..repetitions.max().unwrap_or(0);
    // A throughput is missing everywhere without a load, and otherwise nowhere.
    let known = ratios.iter().filter(|ratio| {
        let mut all = repetitions.clone();
        all.any(|repetition| ratio.logarithm(repetition).is_some())
    });
    let known: Vec<&Ratio<'_>> = known.collect();
    let complete: Vec<usize> = repetitions
        .filter(|&repetition| {
            let mut all = known.iter();
            !known.is_empty() && all.all(|ratio| ratio.logarithm(repetition).is_some())
        })
        .collect();
    let mean = |is_lag: bool| {
        let of_one = |&repetition: &usize| {
            let own = known.iter().filter(|ratio| ratio.of.is_some() == is_lag);
            let logarithms: Vec<f64> = own
                .filter_map(|ratio| ratio.logarithm(repetition))
                .collect();
            let count = logarithms.len();
            (count > 0).then(|| (logarithms.iter().sum::<f64>() / count as f64).exp())
        };
        let values: Vec<f64> = complete.iter().filter_map(of_one).collect();
        of_starts(&values, 0).map_or_else(Estimate::default, |ratio| ratio.estimate())
    };
    AblationEffect {
        repetitions: u32::try_from(complete.len()).unwrap_or(u32::MAX),
        lag_ratio: mean(true),
        throughput_ratio: mean(false),
        ..AblationEffect::default()
    }
}

/// Returns whether the figures ask for another default than `on`: where the whole interval of one is better by the margin, and no
/// interval reaches as far in the other direction. They ask for this default where no interval reaches the margin, or a whole one
/// is worse by it. `None` if they leave it open.
fn asks_for_other(effect: &AblationEffect, on: bool) -> Option<bool> {
    let inverse = |[low, high]: [f64; 2]| [1.0 / high, 1.0 / low];
    // What the other default would gain: larger is better.
    let lag = effect
        .lag_ratio
        .ends()
        .map(|ends| if on { ends } else { inverse(ends) });
    let throughput = effect.throughput_ratio.ends();
    let throughput = throughput.map(|ends| if on { inverse(ends) } else { ends });
    if effect.threads > 0 && throughput.is_none() {
        return None;
    }
    let gains: Vec<[f64; 2]> = [Some(lag?), throughput].into_iter().flatten().collect();
    let any = |test: &dyn Fn(&[f64; 2]) -> bool| gains.iter().any(test);
    if any(&|[_, high]| *high < 1.0 / MARGIN) || !any(&|[_, high]| *high > MARGIN) {
        return Some(false);
    }
    let better = any(&|[low, _]| *low > MARGIN) && !any(&|[low, _]| *low < 1.0 / MARGIN);
    better.then_some(true)
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        sample::{LagSample, Sighting, SightingDetail},
        time::Nanos,
    };

    use super::*;
    use crate::calibrate::tests;

    /// A condition with these medians of `poll` in µs and rates of the load, one per repetition.
    fn part(methods: &[Method], keep_awake: bool, real_time: bool, turns: &[(i64, u64)]) -> Part {
        let mut part = Part::new(Condition {
            threads: 8,
            keep_awake,
            real_time,
            methods: methods.to_vec(),
        });
        for &(lag, per_s) in turns {
            part.begin_repetition();
            for method in methods {
                (0..25).for_each(|_| part.record(&sample(*method, lag)));
            }
            part.loaded(per_s, Nanos(1_000_000_000));
        }
        part
    }

    fn sample(method: Method, lag_us: i64) -> LagSample {
        let seen = Nanos(lag_us * 1000);
        let sighting = Sighting {
            seq: 1,
            after: seen,
            hit_began: seen,
            until: seen,
            beside: SightingDetail::Nothing,
        };
        tests::sample(method, Some(sighting))
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
        assert_eq!(awake.real_time, Some(false));
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
        let asks = |lag, throughput, on| asks_for_other(&of(lag, throughput), on);
        assert_eq!(asks(Some([0.5, 0.8]), None, false), Some(true));
        assert_eq!(asks(Some([0.5, 0.8]), None, true), Some(false));
        // Better in one figure; the other is at most a little worse, or may be much worse.
        let lag = Some([1.2, 1.3]);
        assert_eq!(asks(lag, Some([0.99, 1.0]), true), Some(true));
        assert_eq!(asks(lag, Some([0.99, 1.2]), true), None);
        assert_eq!(asks(Some([0.5, 0.8]), Some([0.7, 0.99]), false), None);
        assert_eq!(asks(Some([0.5, 0.8]), Some([0.7, 0.9]), false), Some(false));
        // Nothing reaches the margin, or too little is known.
        assert_eq!(asks(Some([0.97, 1.03]), None, false), Some(false));
        assert_eq!(asks(Some([0.8, 1.2]), None, false), None);
        assert_eq!(asks(None, None, true), None);
        let loaded = AblationEffect {
            threads: 8,
            ..of(Some([0.5, 0.8]), None)
        };
        assert_eq!(asks_for_other(&loaded, false), None);
    }

    #[test]
    fn incomplete_repetition_is_in_no_ratio() {
        use Method::{Poll, Wait};
        let parts = [
            part(&[Poll], false, false, &[(400, 900), (400, 900), (400, 900)]),
            part(&[Poll], true, false, &[(200, 900), (200, 900), (200, 900)]),
            part(&[Wait], false, false, &[(800, 900), (800, 900), (800, 900)]),
            part(&[Wait], true, false, &[(800, 900), (800, 900)]),
        ];
        let found = effects(&parts.iter().collect::<Vec<_>>());
        assert_eq!(found[0].repetitions, 2);
        assert!(near(&found[0].lag_ratio, 0.5f64.sqrt()), "{:?}", found[0]);
    }
}
