//! The figures of a run, each with what resampling makes of it: what a figure is, and how measurements gather theirs.

use std::path::PathBuf;

use replimeter_model::{
    compare::{Better, Dimension, Quantity},
    load::Rate,
    record::Distribution,
    time::Nanos,
};
use replimeter_render::reading::{self, Column};
use replimeter_stats::{
    compare::{Course, Drawn},
    share::Share,
};

use crate::{failure::Failure, run_dir::SAMPLES};

/// What tells figures of one name apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DimensionSpec {
    /// `shape`, `replica`, `threads`, …
    pub name: &'static str,
    /// How a value reads in a label, in place of `{}`: a number needs words.
    label: &'static str,
    /// A value that reads otherwise.
    renamed: Option<(&'static str, &'static str)>,
    /// Figures of different values are not of the same thing: they are never held against one another.
    pub apart: bool,
    /// Labels have it even where it has but one value.
    pub always: bool,
}

impl DimensionSpec {
    /// One whose values are their own words.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            label: "{}",
            renamed: None,
            apart: false,
            always: false,
        }
    }

    /// Values read like this in a label, in place of `{}`.
    pub const fn label(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    /// This value reads otherwise.
    pub const fn renamed(self, value: &'static str, words: &'static str) -> Self {
        Self {
            renamed: Some((value, words)),
            ..self
        }
    }

    /// Figures of different values are never held against one another.
    pub const fn apart(self) -> Self {
        Self {
            apart: true,
            ..self
        }
    }

    /// Labels have it even where it has but one value.
    pub const fn always(self) -> Self {
        Self {
            always: true,
            ..self
        }
    }
}

/// The shape of the servers.
pub const SHAPE: DimensionSpec = DimensionSpec::new("shape");
/// One replica.
pub const REPLICA: DimensionSpec = DimensionSpec::new("replica");
/// How many replicas there are.
pub const REPLICAS: DimensionSpec = DimensionSpec::new("replicas").label("{} replicas");
/// The method of measuring.
pub const METHOD: DimensionSpec = DimensionSpec::new("method").apart();
/// How many threads a load has.
pub const THREADS: DimensionSpec = DimensionSpec::new("threads").label("{} threads");

/// One value of a dimension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Of {
    /// What the figure is told apart by.
    pub dimension: DimensionSpec,
    /// Its value.
    pub value: String,
}

impl Of {
    /// A word of a label.
    pub fn word(&self) -> String {
        match self.dimension.renamed {
            Some((value, words)) if value == self.value => words.to_owned(),
            _ => self.dimension.label.replace("{}", &self.value),
        }
    }

    /// As a document has it.
    pub fn recorded(&self) -> Dimension {
        Dimension {
            name: self.dimension.name.to_owned(),
            value: self.value.clone(),
        }
    }
}

/// What of samples a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The mean.
    Mean,
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// The largest.
    Max,
}

impl Statistic {
    /// Of samples in the order of time.
    fn of_course(self, course: &Course) -> Option<Drawn> {
        match self {
            Self::Mean => course.mean(),
            Self::P50 => course.quantile(0.5),
            Self::P90 => course.quantile(0.9),
            Self::P95 => course.quantile(0.95),
            Self::P99 => course.quantile(0.99),
            Self::P999 => course.quantile(0.999),
            Self::Max => Some(Drawn::bare(course.max()?, course.count() as u64)),
        }
    }

    /// Of a distribution that a record states, with its own interval where it has one.
    pub fn stated(self, distribution: &Distribution) -> Option<Drawn> {
        let ci = distribution.ci95.as_ref();
        let (value, ends) = match self {
            Self::Mean => (distribution.mean_us, mean_interval(distribution)),
            Self::P50 => (distribution.p50_us, ci.and_then(|ci| ci.p50_us)),
            Self::P90 => (distribution.p90_us, ci.and_then(|ci| ci.p90_us)),
            Self::P95 => (distribution.p95_us, ci.and_then(|ci| ci.p95_us)),
            Self::P99 => (distribution.p99_us, ci.and_then(|ci| ci.p99_us)),
            Self::P999 => (distribution.p999_us, ci.and_then(|ci| ci.p999_us)),
            Self::Max => (distribution.max_us, None),
        };
        Some(Drawn::of_interval(value?, ends, distribution.count))
    }
}

/// The 95 % interval of a mean, widened for the dependence that the median's interval was; none where that has none.
fn mean_interval(distribution: &Distribution) -> Option<[f64; 2]> {
    let inflation = distribution.ci95.as_ref()?.inflation?;
    let (mean, stdev) = (distribution.mean_us?, distribution.stdev_us?);
    let half = 1.96 * stdev * (inflation / distribution.count.max(1) as f64).sqrt();
    Some([mean - half, mean + half])
}

/// By what the figures of both sides are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgedBy {
    /// B over A.
    Ratio,
    /// B less A: the figure may be 0 or below without being wrong.
    Difference,
}

/// What a figure is, whatever the run.
#[derive(Debug)]
pub struct FigureSpec {
    /// `lag.p99`
    pub name: &'static str,
    /// What it is counted in.
    pub unit: Quantity,
    /// Which way is better.
    pub better: Better,
    /// What decides whether it differs.
    pub by: JudgedBy,
    /// What of samples it is; none for what is no statistic of samples.
    pub statistic: Option<Statistic>,
    /// What tells figures of this name apart.
    pub dimensions: &'static [DimensionSpec],
}

/// Declares figures, and groups of statistics of the same samples: their name, unit, which way is better, by what they are
/// judged, and of what they are.
#[macro_export]
macro_rules! figures {
    () => {};
    ($spec:ident = $name:literal: $unit:ident, $better:ident, $by:ident, of $of:expr; $($rest:tt)*) => {
        static $spec: $crate::compare::figures::FigureSpec = $crate::figures!(@ $name, None, $unit, $better, $by, $of);
        $crate::figures! { $($rest)* }
    };
    ($spec:ident = $name:literal [$($statistic:ident)+]: $unit:ident, $better:ident, $by:ident, of $of:expr; $($rest:tt)*) => {
        static $spec: &[$crate::compare::figures::FigureSpec] = &[$($crate::figures!(
            @ concat!($name, ".", stringify!($statistic)), Some($crate::figures!(@$statistic)), $unit, $better, $by, $of
        )),+];
        $crate::figures! { $($rest)* }
    };
    (@ $name:expr, $statistic:expr, $unit:ident, $better:ident, $by:ident, $of:expr) => {
        $crate::compare::figures::FigureSpec {
            name: $name,
            unit: ::replimeter_model::compare::Quantity::$unit,
            better: ::replimeter_model::compare::Better::$better,
            by: $crate::compare::figures::JudgedBy::$by,
            statistic: $statistic,
            dimensions: $of,
        }
    };
    (@mean) => { $crate::compare::figures::Statistic::Mean };
    (@p50) => { $crate::compare::figures::Statistic::P50 };
    (@p90) => { $crate::compare::figures::Statistic::P90 };
    (@p95) => { $crate::compare::figures::Statistic::P95 };
    (@p99) => { $crate::compare::figures::Statistic::P99 };
    (@p999) => { $crate::compare::figures::Statistic::P999 };
    (@max) => { $crate::compare::figures::Statistic::Max };
}

/// A figure of a run.
pub struct Figure {
    /// What figure it is.
    pub spec: &'static FigureSpec,
    /// What it is of.
    pub of: Vec<Of>,
    /// Its value, and what its interval is drawn from.
    pub drawn: Drawn,
}

/// The values of dimensions, in their order, without those that are empty.
fn values(dimensions: &'static [DimensionSpec], values: &[&str]) -> Vec<Of> {
    debug_assert_eq!(dimensions.len(), values.len());
    let given = dimensions.iter().zip(values);
    given
        .filter(|(_, value)| !value.is_empty())
        .map(|(dimension, value)| Of {
            dimension: *dimension,
            value: (*value).to_owned(),
        })
        .collect()
}

/// The figures of a run, as they are gathered: in the order in which they are shown.
#[derive(Default)]
pub struct Figures(pub(super) Vec<Figure>);

impl Figures {
    /// Adds a figure of these values of its dimensions.
    pub fn add(&mut self, spec: &'static FigureSpec, of: &[&str], drawn: Option<Drawn>) {
        if let Some(drawn) = drawn {
            let of = values(spec.dimensions, of);
            self.0.push(Figure { spec, of, drawn });
        }
    }

    /// Adds statistics of samples in the order of time.
    pub fn course(&mut self, specs: &'static [FigureSpec], of: &[&str], course: &Course) {
        for spec in specs {
            let drawn = spec.statistic.and_then(|one| one.of_course(course));
            self.add(spec, of, drawn);
        }
    }

    /// Adds statistics of a distribution that a record states.
    pub fn stated(
        &mut self,
        specs: &'static [FigureSpec],
        of: &[&str],
        distribution: &Distribution,
    ) {
        for spec in specs {
            let drawn = spec.statistic.and_then(|one| one.stated(distribution));
            self.add(spec, of, drawn);
        }
    }

    /// Adds a rate that a record states.
    pub fn rate(&mut self, spec: &'static FigureSpec, of: &[&str], rate: &Rate, samples: u64) {
        let ends = rate.low.zip(rate.high).map(|(low, high)| [low, high]);
        let drawn = rate
            .mean
            .map(|mean| Drawn::of_interval(mean, ends, samples));
        self.add(spec, of, drawn);
    }
}

/// A share of trials in the order of time, in percent, with the interval of Wilson for as many trials as count as
/// independent.
pub fn share(trials: &[(f64, bool)]) -> Option<Drawn> {
    let mut share = Share::default();
    for (at_us, event) in trials {
        share.record(Nanos((at_us * 1e3) as i64), *event);
    }
    let proportion = share.proportion();
    let percent = |share: f64| share * 100.0;
    (proportion.trials > 0).then(|| {
        Drawn::of_interval(
            percent(proportion.share),
            Some([percent(proportion.low), percent(proportion.high)]),
            proportion.trials,
        )
    })
}

/// A number as a dimension's value; empty for none.
pub fn digits(number: f64) -> String {
    if number.is_nan() {
        String::new()
    } else {
        number.to_string()
    }
}

/// The samples of a run.
pub struct SampleFile(pub(super) PathBuf);

impl SampleFile {
    /// Reads these columns; `each` gets them for one group of rows after another, with the number of rows.
    pub fn read(&self, names: &[&str], each: impl FnMut(&[Column], usize)) -> Result<(), Failure> {
        let read = reading::read(&self.0.join(SAMPLES), names, each);
        read.map(|_| ()).map_err(|error| {
            Failure::failed(
                format!("the run {} cannot be compared: {error}", self.0.display()),
                "check that the file is complete; if the run was killed, run its plan.toml again with `replimeter run`",
            )
        })
    }
}
