//! Matches the figures of both sides.

use std::collections::{BTreeMap, BTreeSet};

use replimeter_model::{
    compare::{Basis, OnlyOn},
    warning::{Warning, WarningCode},
};
use replimeter_run::{
    cli_error::CliError,
    figures::{DimensionSpec, DimensionValue, FigureSpec, Statistic},
};
use replimeter_stats::compare::{Resampled, RunSpread, Spread, difference, log_ratio, of_runs};

use super::{design::ComparedRuns, named::RecordedFigures, sides::ComparedDirectory};

/// A figure that both sides have.
pub(crate) struct Pair {
    pub(crate) spec: &'static FigureSpec,
    /// In A's terms, without dimensions that distinguish nothing.
    pub(crate) of: Vec<DimensionValue>,
    pub(crate) a: Resampled,
    pub(crate) b: Resampled,
    /// Number of runs on either side.
    pub(super) runs: [usize; 2],
    pub(super) basis: Basis,
    /// How much runs of equal settings scatter, if enough of them have the figure.
    pub(super) known: Option<RunSpread>,
}

impl Pair {
    /// Returns the spread of B − A; `None` where the comparison has none of its basis.
    pub(super) fn difference(&self) -> Option<Spread> {
        match self.basis {
            Basis::KnownSpread => Some(self.known?.difference(self.a.value, self.b.value)),
            Basis::AlternatingRuns | Basis::WithinRuns => {
                Some(difference(&self.a.spread()?, &self.b.spread()?))
            }
        }
    }

    /// Returns the spread of the logarithm of B / A; `None` too where one of them is not surely positive.
    pub(super) fn log_ratio(&self) -> Option<Spread> {
        match self.basis {
            Basis::KnownSpread => self.known?.log_ratio(self.a.value, self.b.value),
            Basis::AlternatingRuns | Basis::WithinRuns => {
                log_ratio(&self.a.spread()?, &self.b.spread()?)
            }
        }
    }
}

/// A figure's name and its dimensions' values.
type Key = (&'static str, Vec<DimensionValue>);

/// A figure of one side, with the values of all runs.
struct KnownFigure {
    spec: &'static FigureSpec,
    of: Vec<DimensionValue>,
    runs: Vec<Resampled>,
}

impl KnownFigure {
    /// Returns the figure of all runs. A maximum is one sample, of which nothing says how much it scatters.
    fn joined(&self) -> Option<Resampled> {
        if self.spec.statistic != Some(Statistic::Max) {
            return of_runs(&self.runs);
        }
        let largest = self.values().into_iter().reduce(f64::max)?;
        let samples = self.runs.iter().map(|run| run.samples).sum();
        Some(Resampled::without_resamples(largest, samples))
    }

    fn values(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.value).collect()
    }
}

/// The figures of one side, in display order.
#[derive(Default)]
struct Side(Vec<KnownFigure>, RecordedFigures);

impl Side {
    /// Reads samples run by run, so that only one run's are in memory.
    fn gather(runs: &[ComparedDirectory]) -> Result<Self, CliError> {
        let mut side = Self::default();
        let mut places: BTreeMap<Key, usize> = BTreeMap::new();
        for run in runs {
            for figure in run.figures()? {
                side.1.add(&figure);
                let place = places
                    .entry((figure.spec.name, figure.of.clone()))
                    .or_insert(side.0.len());
                match side.0.get_mut(*place) {
                    Some(known) => known.runs.push(figure.drawn),
                    None => side.0.push(KnownFigure {
                        spec: figure.spec,
                        of: figure.of,
                        runs: vec![figure.drawn],
                    }),
                }
            }
        }
        Ok(side)
    }

    fn words(&self) -> impl Iterator<Item = &DimensionValue> {
        self.0.iter().flat_map(|known| &known.of)
    }

    /// Returns all values of a dimension, in order.
    fn values(&self, dimension: &DimensionSpec) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for of in self.words().filter(|of| of.dimension == *dimension) {
            if !values.contains(&of.value.as_str()) {
                values.push(&of.value);
            }
        }
        values
    }

    fn dimensions(&self) -> BTreeSet<DimensionSpec> {
        self.words().map(|of| of.dimension).collect()
    }

    /// Returns the dimensions and values of all figures as text.
    fn described(&self) -> String {
        let dimensions = self.dimensions().into_iter();
        dimensions
            .map(|dimension| {
                let values = self.values(&dimension).join(", ");
                format!("{} {values}", dimension.name)
            })
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// How values of one side map to those of the other.
#[derive(Default)]
struct LabelMatching {
    /// Dimensions with a single but different value on each side: a difference in settings that distinguishes
    /// no figures.
    dropped: BTreeSet<DimensionSpec>,
    /// B's values in A's terms.
    renamed: BTreeMap<DimensionValue, DimensionValue>,
}

impl LabelMatching {
    fn of(a: &Side, b: &Side, warnings: &mut Vec<Warning>) -> Self {
        let mut matching = Self::default();
        let dimensions = a.dimensions().into_iter().chain(b.dimensions());
        let dimensions: BTreeSet<DimensionSpec> =
            dimensions.filter(|dimension| !dimension.apart).collect();
        for dimension in dimensions {
            let (of_a, of_b) = (a.values(&dimension), b.values(&dimension));
            if of_a.iter().any(|value| of_b.contains(value)) {
                continue;
            }
            if of_a.len() <= 1 && of_b.len() <= 1 {
                matching.dropped.insert(dimension);
            } else if of_a.len() == of_b.len() {
                warnings.push(Warning::new(
                    WarningCode::NotChecked,
                    format!(
                        "the sides have no {} in common: {} of A is compared with {} of B, in this order",
                        dimension.name,
                        of_a.join(", "),
                        of_b.join(", ")
                    ),
                    "check this pairing; if it is wrong, compare fewer at a time",
                ));
                let of = |value: &str| DimensionValue {
                    dimension,
                    value: value.to_owned(),
                };
                let pairs = of_b.into_iter().zip(of_a);
                matching
                    .renamed
                    .extend(pairs.map(|(of_b, of_a)| (of(of_b), of(of_a))));
            }
        }
        matching
    }

    /// Returns the common key of a figure of A.
    fn key_of_a(&self, known: &KnownFigure) -> Key {
        let kept = known.of.iter();
        let kept = kept.filter(|of| !self.dropped.contains(&of.dimension));
        (known.spec.name, kept.cloned().collect())
    }

    /// Returns the common key of a figure of B.
    fn key_of_b(&self, known: &KnownFigure) -> Key {
        let (name, mut of) = self.key_of_a(known);
        for word in &mut of {
            if let Some(renamed) = self.renamed.get(word) {
                renamed.clone_into(word);
            }
        }
        (name, of)
    }
}

/// The figures of both sides.
pub(crate) struct Matched {
    pub(crate) pairs: Vec<Pair>,
    /// Figures of one side, counted.
    pub(super) only_on: Vec<OnlyOn>,
    /// The names of all figures of A and of B.
    pub(super) recorded: [RecordedFigures; 2],
}

/// Pairs the figures of both sides; those on one side only are counted.
pub(crate) fn pairs(runs: &ComparedRuns, warnings: &mut Vec<Warning>) -> Result<Matched, CliError> {
    let basis = runs.basis();
    let (a, b) = (Side::gather(&runs.a)?, Side::gather(&runs.b)?);
    let known = match basis {
        Basis::KnownSpread => Side::gather(&runs.known)?,
        Basis::AlternatingRuns | Basis::WithinRuns => Side::default(),
    };
    let matching = LabelMatching::of(&a, &b, warnings);
    let known = |key: &Key| -> Vec<f64> {
        let mut all = known.0.iter();
        let same = all.find(|known| matching.key_of_a(known) == *key);
        same.map_or_else(Vec::new, KnownFigure::values)
    };
    let of_b: BTreeMap<Key, &KnownFigure> =
        b.0.iter()
            .map(|known| (matching.key_of_b(known), known))
            .collect();
    let (mut pairs, mut matched) = (Vec::new(), BTreeSet::new());
    let mut only: BTreeMap<(&str, String), u64> = BTreeMap::new();
    let words = |of: &[DimensionValue]| {
        of.iter()
            .map(DimensionValue::word)
            .collect::<Vec<_>>()
            .join(" ")
    };
    for of_a in &a.0 {
        let key = matching.key_of_a(of_a);
        let Some(of_b) = of_b.get(&key) else {
            *only.entry(("a", words(&of_a.of))).or_default() += 1;
            continue;
        };
        if let (Some(drawn_a), Some(drawn_b)) = (of_a.joined(), of_b.joined()) {
            let sets = [of_a.values(), of_b.values(), known(&key)];
            pairs.push(Pair {
                spec: of_a.spec,
                of: key.1.clone(),
                a: drawn_a,
                b: drawn_b,
                runs: [of_a.runs.len(), of_b.runs.len()],
                basis,
                known: RunSpread::of(&sets.each_ref().map(Vec::as_slice))
                    .filter(|_| of_a.spec.statistic != Some(Statistic::Max)),
            });
        }
        matched.insert(key);
    }
    for of_b in &b.0 {
        if !matched.contains(&matching.key_of_b(of_b)) {
            *only.entry(("b", words(&of_b.of))).or_default() += 1;
        }
    }
    if pairs.is_empty() {
        return Err(CliError::usage(
            format!(
                "the runs cannot be compared: they have no common figure (A has {}; B has {})",
                a.described(),
                b.described()
            ),
            "compare runs that observed the same replicas by the same methods",
        ));
    }
    let only = only.into_iter().map(|((side, of), figures)| OnlyOn {
        side: side.to_owned(),
        of,
        figures,
    });
    Ok(Matched {
        pairs,
        only_on: only.collect(),
        recorded: [a.1, b.1],
    })
}
