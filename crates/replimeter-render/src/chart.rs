//! A chart as data, with its table. `html/plotly.rs` draws it.

use serde::Serialize;

use crate::{figures::Unit, report::Table};

/// A chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Its id on the page, the target of links.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// A note for readers.
    pub note: String,
    /// The positions of points: numbers, or words.
    pub x: Axis,
    /// The values of points.
    pub y: Axis,
    /// The axis of series with values of another kind than `y`.
    pub second: Option<SecondAxis>,
    /// Whether `x` goes down and values to the right, for long words.
    pub horizontal: bool,
    /// The default mark of a series.
    pub mark: Mark,
    /// The text shown for a point, next to the name of its series, with `{x}`, `{y}` (four digits) and
    /// `{text}` (the point's own text). `{x:.1}` has that many decimals, `{y:n}` is an integer.
    pub hover: &'static str,
    /// Whether the points have intervals.
    pub whiskers: bool,
    /// The series, the first at the back. A chart without series is not shown.
    pub series: Vec<Series>,
    /// The values as a table.
    pub table: Table,
}

/// An axis.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// Its title.
    pub title: String,
    /// The unit for display of times, which are in µs in the points.
    pub unit: Option<Unit>,
    /// The suffix of every number.
    pub suffix: &'static str,
    /// Its scale.
    pub scale: Scale,
    /// Positions and labels of the ticks; empty to let the renderer choose.
    pub ticks: Vec<(f64, String)>,
    /// The order of its words; empty for the order in which they come.
    pub words: Vec<String>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, Default)]
pub enum Scale {
    /// All values.
    #[default]
    Linear,
    /// All values, and zero.
    FromZero,
    /// This range; values outside are cut off.
    Range([f64; 2]),
    /// Logarithmic; without zero and negative values.
    Log,
    /// A tick at each integer.
    Whole,
}

/// The position of the second axis.
#[derive(Clone, Debug)]
pub enum SecondAxis {
    /// At the right of the same plot.
    Right(Axis),
    /// In a separate plot below, with the same `x`.
    Below(Axis),
}

/// A series of values.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its values. Lines are drawn in order of `x`, regardless of the order here.
    pub points: Vec<Point>,
    /// Its mark, if not the chart's.
    pub mark: Option<Mark>,
    /// The number of its color, if not its index among the series.
    pub colour: Option<usize>,
    /// The stroke of its line.
    pub dash: Stroke,
    /// The symbol of its points.
    pub symbol: Symbol,
    /// The size of its points, if not the renderer's choice.
    pub size: Option<f64>,
    /// Whether it uses the second axis.
    pub second: bool,
    /// Whether it is hidden until it is selected in the legend.
    pub hidden: bool,
    /// Series of one group are shown and hidden together.
    pub group: Option<String>,
}

/// The mark of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// A line through measured points.
    #[default]
    Line,
    /// A line without points, such as a fitted one.
    Curve,
    /// A line with a horizontal step at each point.
    Steps,
    /// Points.
    Points,
    /// Bars, side by side for several series.
    Bars,
    /// Stacked bars, negative ones on the other side.
    StackedBars,
    /// Bars from the lower to the upper end of each point.
    Ranges,
    /// Bars with each point's width, overlaid for several series.
    Histogram,
    /// All values of a series at one position, with their quartiles.
    Box,
}

/// The stroke of a line.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stroke {
    /// Continuous.
    #[default]
    Solid,
    /// Dotted.
    Dot,
    /// Dashed.
    Dash,
    /// Dashes and dots.
    DashDot,
    /// Long dashes.
    LongDash,
}

/// The symbol of a point.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Symbol {
    /// A disc.
    #[default]
    Circle,
    /// A circle.
    CircleOpen,
    /// A filled diamond.
    Diamond,
    /// The outline of a diamond.
    DiamondOpen,
    /// A cross.
    X,
}

/// A value.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its position.
    pub x: X,
    /// Its value; `None` leaves a gap.
    pub y: Option<f64>,
    /// The lower end of its interval.
    pub low: Option<f64>,
    /// The upper end of its interval.
    pub high: Option<f64>,
    /// The width of its bar.
    pub width: Option<f64>,
    /// Its own text.
    pub text: Option<String>,
    /// The label drawn next to it.
    pub label: Option<String>,
}

/// The position of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum X {
    /// On an axis of numbers.
    Number(f64),
    /// On an axis of words.
    Word(String),
}

impl Axis {
    /// Returns an axis of numbers.
    pub fn new(title: &str, scale: Scale) -> Self {
        Self {
            title: title.to_owned(),
            scale,
            ..Self::default()
        }
    }

    /// Returns an axis of times.
    pub fn time(title: &str, unit: Unit, scale: Scale) -> Self {
        Self {
            unit: Some(unit),
            ..Self::new(title, scale)
        }
    }
}

impl Series {
    /// Returns a series with a name.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = Point>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            ..Self::default()
        }
    }
}

impl Point {
    /// Returns a value at a number.
    pub fn new(x: impl Into<f64>, y: impl Into<Option<f64>>) -> Self {
        Self::at(X::Number(x.into()), y.into())
    }

    /// Returns a value at a word.
    pub fn of(word: impl Into<String>, y: impl Into<Option<f64>>) -> Self {
        Self::at(X::Word(word.into()), y.into())
    }

    fn at(x: X, y: Option<f64>) -> Self {
        Self {
            x,
            y,
            low: None,
            high: None,
            width: None,
            text: None,
            label: None,
        }
    }

    /// Returns the point with an interval.
    pub fn within(mut self, low: impl Into<Option<f64>>, high: impl Into<Option<f64>>) -> Self {
        (self.low, self.high) = (low.into(), high.into());
        self
    }

    /// Returns the point with its own text.
    pub fn with_hover_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}
