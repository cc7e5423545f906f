//! Figures as results state them: those of a document, and of a run that is under way.

use replimeter_model::{load::Rate, record::Distribution};

use super::{DimensionValue, FigureSpec, Figures, values};

/// A figure with the interval that was recorded for it.
#[derive(Clone, Debug)]
pub struct StatedFigure {
    /// Its specification.
    pub spec: &'static FigureSpec,
    /// Its dimensions' values.
    pub of: Vec<DimensionValue>,
    /// Its value, in the unit of the specification.
    pub value: f64,
    /// The ends of its 95 % interval, if it has one.
    pub ci95: Option<[f64; 2]>,
    /// Samples behind it.
    pub samples: u64,
}

/// The figures that results state, in display order.
#[derive(Clone, Debug, Default)]
pub struct StatedFigures(pub(super) Vec<StatedFigure>);

impl StatedFigures {
    /// Returns the figures.
    pub fn all(&self) -> &[StatedFigure] {
        &self.0
    }

    /// Adds a figure with these values of its dimensions, unless it has no value or no samples.
    pub fn add(
        &mut self,
        spec: &'static FigureSpec,
        of: &[&str],
        value: Option<f64>,
        ci95: Option<[f64; 2]>,
        samples: u64,
    ) {
        if let Some(value) = value.filter(|value| value.is_finite() && samples > 0) {
            self.0.push(StatedFigure {
                spec,
                of: values(spec.dimensions, of),
                value,
                ci95: ci95.filter(|ends| ends.iter().all(|end| end.is_finite())),
                samples,
            });
        }
    }

    /// Adds statistics of a distribution.
    pub fn distribution(
        &mut self,
        specs: &'static [FigureSpec],
        of: &[&str],
        distribution: &Distribution,
    ) {
        for spec in specs {
            let known = spec
                .statistic
                .and_then(|one| one.of_distribution(distribution));
            if let Some((value, ci95)) = known {
                self.add(spec, of, Some(value), ci95, distribution.count);
            }
        }
    }

    /// Adds others.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Adds a rate.
    pub fn rate(&mut self, spec: &'static FigureSpec, of: &[&str], rate: &Rate, samples: u64) {
        self.add(spec, of, rate.mean, rate.ci95.ends(), samples);
    }
}

/// With the intervals that the resamples give.
impl From<Figures> for StatedFigures {
    fn from(figures: Figures) -> Self {
        let stated = figures.known().into_iter().map(|figure| StatedFigure {
            spec: figure.spec,
            of: figure.of,
            value: figure.drawn.value,
            ci95: figure.drawn.estimate().ci95.ends(),
            samples: figure.drawn.samples,
        });
        Self(stated.collect())
    }
}
