//! The figures of both sides, pair by pair.

use replimeter_model::{estimate::Estimate, trial::TrialFigure};
use replimeter_run::figures::{DimensionValue, FigureSpec, JudgedBy};
use replimeter_stats::trial::{InterimResult, Rule};

use super::super::compare::matching::Pair;

/// One figure in all pairs that have it.
pub(super) struct PairedFigure {
    spec: &'static FigureSpec,
    of: Vec<DimensionValue>,
    /// The logarithms of A and B in each pair.
    logarithms: Vec<[f64; 2]>,
}

/// All figures that have a ratio.
#[derive(Default)]
pub(super) struct PairedFigures(Vec<PairedFigure>);

impl PairedFigure {
    /// Creates the figure that decides.
    pub(super) fn new(spec: &'static FigureSpec) -> Self {
        Self {
            spec,
            of: Vec::new(),
            logarithms: Vec::new(),
        }
    }

    /// Adds a pair.
    pub(super) fn add(&mut self, values: [f64; 2]) {
        self.logarithms.push(values.map(f64::ln));
    }

    /// Returns the number of pairs.
    pub(super) fn pairs(&self) -> usize {
        self.logarithms.len()
    }

    fn differences(&self) -> Vec<f64> {
        self.logarithms.iter().map(|[a, b]| b - a).collect()
    }

    /// Returns the result of all pairs so far.
    pub(super) fn interim(&self, rule: &Rule) -> Option<InterimResult> {
        rule.interim(&self.differences())
    }

    /// Returns its row of the document.
    pub(super) fn row(&self, rule: &Rule, differs: bool) -> TrialFigure {
        let pairs = self.pairs();
        let mean = |side: usize| {
            let sum: f64 = self.logarithms.iter().map(|pair| pair[side]).sum();
            (sum / pairs as f64).exp()
        };
        let (a, b) = (mean(0), mean(1));
        TrialFigure {
            figure: self.spec.name.to_owned(),
            of: self.of.iter().map(DimensionValue::recorded).collect(),
            unit: self.spec.unit,
            better: self.spec.better,
            pairs: pairs as u32,
            a,
            b,
            ratio: match self.interim(rule) {
                Some(result) => ratio(&result),
                None => Estimate::of(b / a),
            },
            differs,
        }
    }
}

/// Returns B over A with its interval.
pub(super) fn ratio(result: &InterimResult) -> Estimate {
    Estimate {
        value: Some(result.difference.exp()),
        ci95: Some(result.interval.map(f64::exp)).into(),
    }
}

impl PairedFigures {
    /// Adds the figures of a pair; those without a logarithm are left out.
    pub(super) fn add(&mut self, pairs: &[Pair]) {
        for pair in pairs {
            let values = [pair.a.value, pair.b.value];
            if pair.spec.by != JudgedBy::Ratio || values.iter().any(|value| *value <= 0.0) {
                continue;
            }
            let same = |one: &PairedFigure| one.spec.name == pair.spec.name && one.of == pair.of;
            let place = self.0.iter().position(same).unwrap_or_else(|| {
                self.0.push(PairedFigure {
                    of: pair.of.clone(),
                    ..PairedFigure::new(pair.spec)
                });
                self.0.len() - 1
            });
            self.0[place].add(values);
        }
    }

    /// Returns the other figures, and which of them differ.
    pub(super) fn others(&self, name: &str, rule: &Rule, tested: bool) -> Vec<TrialFigure> {
        let others = || self.0.iter().filter(|one| one.spec.name != name);
        let differences: Vec<Vec<f64>> = others().map(PairedFigure::differences).collect();
        let differ = rule.others(&differences);
        others()
            .zip(differ)
            .map(|(one, differs)| one.row(rule, tested && differs))
            .collect()
    }
}

/// Returns the figure of this name in a pair: of several replicas or shapes their geometric mean. `None` where a value has no logarithm.
pub(super) fn primary(pairs: &[Pair], name: &str) -> Option<[f64; 2]> {
    let named: Vec<&Pair> = pairs.iter().filter(|pair| pair.spec.name == name).collect();
    let mean = |of: fn(&Pair) -> f64| {
        let sum: f64 = named.iter().map(|pair| of(pair).ln()).sum();
        (sum / named.len() as f64).exp()
    };
    let sides = [mean(|pair| pair.a.value), mean(|pair| pair.b.value)];
    sides
        .iter()
        .all(|value| value.is_finite() && *value > 0.0)
        .then_some(sides)
}
