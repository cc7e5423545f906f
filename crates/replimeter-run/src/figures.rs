//! The figures of a run, each with its resampled distribution: their specifications, and how measurements
//! collect them.

mod stated;

use std::path::PathBuf;

use replimeter_model::{
    compare::{Better, Dimension, Quantity},
    record::Distribution,
    time::Nanos,
};
use replimeter_render::reading::{self, Column};
use replimeter_stats::{
    compare::{Resampled, SampleSeries, of_starts},
    measured_time::MeasuredTime,
    share::Share,
};

pub use self::stated::{StatedFigure, StatedFigures};
use crate::{cli_error::CliError, run_dir::SAMPLES};

/// A dimension that distinguishes figures of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DimensionSpec {
    /// `shape`, `replica`, `threads`, …
    pub name: &'static str,
    /// The format of a value in a label, with `{}` for the value: a number needs words.
    label: &'static str,
    /// A value with another text.
    renamed: Option<(&'static str, &'static str)>,
    /// Whether figures of different values are never compared, since they describe different things.
    pub apart: bool,
    /// Whether labels include it even if it has only one value.
    pub always: bool,
}

impl DimensionSpec {
    /// Returns a dimension whose values are shown as they are.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            label: "{}",
            renamed: None,
            apart: false,
            always: false,
        }
    }

    /// Returns the dimension with this format of values, with `{}` for the value.
    pub const fn label(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    /// Returns the dimension with another text for this value.
    pub const fn renamed(self, value: &'static str, words: &'static str) -> Self {
        Self {
            renamed: Some((value, words)),
            ..self
        }
    }

    /// Returns the dimension with figures of different values never compared.
    pub const fn never_compared(self) -> Self {
        Self {
            apart: true,
            ..self
        }
    }

    /// Returns the dimension as part of every label.
    pub const fn always_in_label(self) -> Self {
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
/// The number of replicas.
pub const REPLICAS: DimensionSpec = DimensionSpec::new("replicas").label("{} replicas");
/// The method of measurement.
pub const METHOD: DimensionSpec = DimensionSpec::new("method").never_compared();
/// The engine of the servers.
pub const ENGINE: DimensionSpec = DimensionSpec::new("engine");
/// How the servers replicate.
pub const MODE: DimensionSpec = DimensionSpec::new("mode");
/// When a semi-synchronous primary waits.
pub const WAIT_POINT: DimensionSpec = DimensionSpec::new("wait_point");
/// The number of threads of a load.
pub const THREADS: DimensionSpec = DimensionSpec::new("threads").label("{} threads");

/// One value of a dimension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DimensionValue {
    /// The dimension.
    pub dimension: DimensionSpec,
    /// Its value.
    pub value: String,
}

impl DimensionValue {
    /// Returns its text in a label.
    pub fn word(&self) -> String {
        match self.dimension.renamed {
            Some((value, words)) if value == self.value => words.to_owned(),
            _ => self.dimension.label.replace("{}", &self.value),
        }
    }

    /// Returns its form in a document.
    pub fn recorded(&self) -> Dimension {
        Dimension {
            name: self.dimension.name.to_owned(),
            value: self.value.clone(),
        }
    }
}

/// The statistic of samples that a figure is.
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
    /// The maximum.
    Max,
}

impl Statistic {
    /// Returns the number of samples that it needs: a quantile has ten beyond it.
    pub fn min_samples(self) -> u64 {
        match self {
            Self::Mean | Self::Max => 1,
            Self::P50 => 20,
            Self::P90 => 100,
            Self::P95 => 200,
            Self::P99 => 1_000,
            Self::P999 => 10_000,
        }
    }

    /// Returns the statistic of the samples of each start, in time order.
    fn of_all_series(self, starts: &[SampleSeries]) -> Option<Resampled> {
        if let [series] = starts {
            return self.of_series(series);
        }
        if self == Self::Max {
            let largest = starts.iter().filter_map(SampleSeries::max);
            let samples = starts.iter().map(|series| series.count() as u64).sum();
            return Some(Resampled::without_resamples(
                largest.reduce(f64::max)?,
                samples,
            ));
        }
        let of = |series: &SampleSeries| match self.quantile() {
            Some(p) => series.quantile_of_start(p),
            None => series.mean_of_start(),
        };
        let values: Vec<f64> = starts.iter().filter_map(of).collect();
        if values.len() > 1 {
            let samples = starts.iter().map(|series| series.count() as u64).sum();
            return of_starts(&values, samples);
        }
        // Too few samples in each start: the figure is that of all, and has no interval.
        let all = SampleSeries::new(starts.iter().flat_map(SampleSeries::values));
        let Resampled { value, samples, .. } = self.of_series(&all)?;
        Some(Resampled::without_resamples(value, samples))
    }

    /// Returns its level if it is a quantile.
    fn quantile(self) -> Option<f64> {
        match self {
            Self::Mean | Self::Max => None,
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P95 => Some(0.95),
            Self::P99 => Some(0.99),
            Self::P999 => Some(0.999),
        }
    }

    /// Returns the statistic of samples in time order.
    fn of_series(self, series: &SampleSeries) -> Option<Resampled> {
        if let Some(p) = self.quantile() {
            return series.quantile(p);
        }
        match self {
            Self::Max => Some(Resampled::without_resamples(
                series.max()?,
                series.count() as u64,
            )),
            _ => series.mean(),
        }
    }

    /// Returns the statistic of a recorded distribution, with its interval if it has one.
    pub(crate) fn of_distribution(
        self,
        distribution: &Distribution,
    ) -> Option<(f64, Option<[f64; 2]>)> {
        let (value, ends) = match self {
            Self::Mean => (distribution.mean_us, mean_interval(distribution)),
            Self::P50 => (distribution.p50_us, distribution.p50_us_ci95),
            Self::P90 => (distribution.p90_us, distribution.p90_us_ci95),
            Self::P95 => (distribution.p95_us, distribution.p95_us_ci95),
            Self::P99 => (distribution.p99_us, distribution.p99_us_ci95),
            Self::P999 => (distribution.p999_us, distribution.p999_us_ci95),
            Self::Max => (distribution.max_us, None),
        };
        Some((value?, ends))
    }
}

/// Returns the 95 % interval of a mean, widened for the same dependence as the median's interval; none if
/// that has none.
fn mean_interval(distribution: &Distribution) -> Option<[f64; 2]> {
    let inflation = distribution.inflation?;
    let (mean, stdev) = (distribution.mean_us?, distribution.stdev_us?);
    let half = 1.96 * stdev * (inflation / distribution.count.max(1) as f64).sqrt();
    Some([mean - half, mean + half])
}

/// How the figures of both sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgedBy {
    /// B over A.
    Ratio,
    /// B less A, for figures that can be 0 or negative.
    Difference,
}

/// The specification of a figure.
#[derive(Debug)]
pub struct FigureSpec {
    /// `lag.p99`
    pub name: &'static str,
    /// Its unit.
    pub unit: Quantity,
    /// Which direction is better.
    pub better: Better,
    /// How it is compared.
    pub by: JudgedBy,
    /// The statistic of samples that it is; `None` for other figures.
    pub statistic: Option<Statistic>,
    /// The dimensions that distinguish figures of this name.
    pub dimensions: &'static [DimensionSpec],
    /// What a run must have for this figure, besides samples; empty if nothing.
    pub needs: &'static str,
}

impl FigureSpec {
    /// Returns the name of the samples that a statistic is of, `lag` of `lag.p99`; of other figures their own name.
    pub fn group(&self) -> &'static str {
        match (self.statistic, self.name.rsplit_once('.')) {
            (Some(_), Some((group, _))) => group,
            _ => self.name,
        }
    }

    /// Returns the name of its statistic, `p99` of `lag.p99`; `None` for other figures.
    pub(crate) fn statistic_name(&self) -> Option<&'static str> {
        self.statistic
            .and(self.name.rsplit_once('.'))
            .map(|(_, statistic)| statistic)
    }
}

/// Declares figures, and groups of statistics of the same samples: name, unit, better direction, comparison,
/// dimensions, and what a run needs for them. `specs` lists them all.
#[macro_export]
macro_rules! figures {
    ($($spec:ident = $name:literal $([$($statistic:ident)+])?: $unit:ident, $better:ident, $by:ident, of $of:expr $(, needs $needs:expr)?;)*) => {
        $($crate::figures! {
            @declare $spec = $name $([$($statistic)+])?: $unit, $better, $by, $of, $crate::figures!(@needs $($needs)?)
        })*

        /// Returns all figures, in display order.
        pub(super) fn specs() -> Vec<&'static $crate::figures::FigureSpec> {
            let mut specs = Vec::new();
            $(specs.extend($crate::figures!(@each $spec $([$($statistic)+])?));)*
            specs
        }
    };
    (@declare $spec:ident = $name:literal: $unit:ident, $better:ident, $by:ident, $of:expr, $needs:expr) => {
        static $spec: $crate::figures::FigureSpec = $crate::figures!(@ $name, None, $unit, $better, $by, $of, $needs);
    };
    (@declare $spec:ident = $name:literal [$($statistic:ident)+]: $unit:ident, $better:ident, $by:ident, $of:expr, $needs:expr) => {
        static $spec: &[$crate::figures::FigureSpec] = &[$($crate::figures!(
            @ concat!($name, ".", stringify!($statistic)), Some($crate::figures!(@$statistic)), $unit, $better, $by, $of, $needs
        )),+];
    };
    (@each $spec:ident) => { [&$spec] };
    (@each $spec:ident [$($statistic:ident)+]) => { $spec };
    (@ $name:expr, $statistic:expr, $unit:ident, $better:ident, $by:ident, $of:expr, $needs:expr) => {
        $crate::figures::FigureSpec {
            name: $name,
            unit: ::replimeter_model::compare::Quantity::$unit,
            better: ::replimeter_model::compare::Better::$better,
            by: $crate::figures::JudgedBy::$by,
            statistic: $statistic,
            dimensions: $of,
            needs: $needs,
        }
    };
    (@needs) => { "" };
    (@needs $needs:expr) => { $needs };
    (@mean) => { $crate::figures::Statistic::Mean };
    (@p50) => { $crate::figures::Statistic::P50 };
    (@p90) => { $crate::figures::Statistic::P90 };
    (@p95) => { $crate::figures::Statistic::P95 };
    (@p99) => { $crate::figures::Statistic::P99 };
    (@p999) => { $crate::figures::Statistic::P999 };
    (@max) => { $crate::figures::Statistic::Max };
}

/// A figure of a run.
pub struct Figure {
    /// Its specification.
    pub spec: &'static FigureSpec,
    /// Its dimensions' values.
    pub of: Vec<DimensionValue>,
    /// Its value, and the distribution for its interval.
    pub drawn: Resampled,
}

/// Returns the non-empty values of dimensions, in order.
fn values(dimensions: &'static [DimensionSpec], values: &[&str]) -> Vec<DimensionValue> {
    debug_assert_eq!(dimensions.len(), values.len());
    let given = dimensions.iter().zip(values);
    given
        .filter(|(_, value)| !value.is_empty())
        .map(|(dimension, value)| DimensionValue {
            dimension: *dimension,
            value: (*value).to_owned(),
        })
        .collect()
}

/// The figures of a run in display order, as they are collected.
#[derive(Default)]
pub struct Figures(Vec<Figure>);

impl Figures {
    /// Returns the figures that have a value.
    pub fn known(mut self) -> Vec<Figure> {
        self.0
            .retain(|figure| figure.drawn.samples > 0 && figure.drawn.value.is_finite());
        self.0
    }

    /// Adds a figure with these values of its dimensions.
    pub fn add(&mut self, spec: &'static FigureSpec, of: &[&str], drawn: Option<Resampled>) {
        if let Some(drawn) = drawn {
            let of = values(spec.dimensions, of);
            self.0.push(Figure { spec, of, drawn });
        }
    }

    /// Adds statistics of the samples of each start, in time order.
    pub fn add_series(
        &mut self,
        specs: &'static [FigureSpec],
        of: &[&str],
        starts: &[SampleSeries],
    ) {
        for spec in specs {
            let drawn = spec.statistic.and_then(|one| one.of_all_series(starts));
            self.add(spec, of, drawn);
        }
    }

    /// Adds figures as results state them, with resamples of their intervals.
    pub fn stated(&mut self, stated: StatedFigures) {
        self.0.extend(stated.0.into_iter().map(|figure| Figure {
            spec: figure.spec,
            of: figure.of,
            drawn: Resampled::of_interval(figure.value, figure.ci95, figure.samples),
        }));
    }
}

impl From<StatedFigures> for Figures {
    fn from(stated: StatedFigures) -> Self {
        let mut figures = Self::default();
        figures.stated(stated);
        figures
    }
}

/// Returns the share of trials of each start in time order, in percent, with a Wilson interval for the effective number
/// of independent trials: neighbors and starts depend on one another.
pub fn share(starts: &[Vec<(f64, bool)>]) -> Option<Resampled> {
    let (mut share, mut time) = (Share::default(), MeasuredTime::default());
    for start in starts {
        share.begin_start();
        time.begin_start();
        for (at_us, event) in start {
            share.record(time.of(Nanos((at_us * 1e3) as i64)), *event);
        }
    }
    let proportion = share.proportion();
    let percent = |share: f64| share * 100.0;
    (proportion.trials > 0).then(|| {
        Resampled::of_interval(
            percent(proportion.share),
            Some([percent(proportion.low), percent(proportion.high)]),
            proportion.trials,
        )
    })
}

/// Formats a number as a dimension's value; empty for NaN.
pub fn digits(number: f64) -> String {
    if number.is_nan() {
        String::new()
    } else {
        number.to_string()
    }
}

/// The samples of a run.
pub struct SampleFile(PathBuf);

impl SampleFile {
    /// Returns the samples in a run directory.
    pub fn of(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// Reads these columns; `each` gets them for one group of rows after another, with the number of rows.
    pub fn read(&self, names: &[&str], each: impl FnMut(&[Column], usize)) -> Result<(), CliError> {
        let read = reading::read(&self.0.join(SAMPLES), names, each);
        read.map(|_| ()).map_err(|error| {
            CliError::failed(
                format!("the run {} cannot be compared: {error}", self.0.display()),
                "check that the file is complete; if the run was killed, run its plan.toml again with `replimeter run`",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::random::Random;
    use replimeter_stats::compare::difference;

    use super::*;

    /// Returns the share of stale reads of a side: 100 reads a start, whose shares scatter by 30 % around `percent`.
    fn side(random: &mut Random, starts: u32, percent: f64) -> Resampled {
        let mut at_us = 0.0;
        let mut start = |_| {
            let level = percent / 100.0 * (0.3 * random.normal()).exp();
            at_us += 2e6;
            let trial = |_| {
                at_us += 1e3;
                (at_us, random.fraction() < level)
            };
            (0..100).map(trial).collect::<Vec<_>>()
        };
        let starts: Vec<Vec<(f64, bool)>> = (0..starts).map(&mut start).collect();
        share(&starts).unwrap()
    }

    /// Returns the share of pairs whose difference excludes 0.
    fn differ(starts: u32, percents: [f64; 2]) -> f64 {
        const PAIRS: u32 = 400;
        let mut random = Random::new(19);
        let mut differ = 0;
        for _ in 0..PAIRS {
            let [a, b] = percents.map(|percent| side(&mut random, starts, percent));
            let (a, b) = (a.spread().unwrap(), b.spread().unwrap());
            differ += u32::from(difference(&a, &b).p_value() < 0.05);
        }
        f64::from(differ) / f64::from(PAIRS)
    }

    #[test]
    fn shares_of_equal_sides_seldom_differ() {
        // Three standard errors of 5 % of 400 are 3.3 %.
        for starts in [5, 10] {
            for percent in [2.0, 20.0] {
                let alarms = differ(starts, [percent; 2]);
                println!("{starts} starts, {percent} %: {alarms}");
                assert!(alarms <= 0.083, "{starts} starts, {percent} %: {alarms}");
            }
        }
        let shown = [5, 10].map(|starts| differ(starts, [20.0, 40.0]));
        println!("20 and 40 % differ in {shown:?} of pairs with 5 and 10 starts");
        assert!(shown[1] >= 0.8, "{shown:?}");
    }
}
