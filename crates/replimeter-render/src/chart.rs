//! A chart as data, with the table behind it. `html/plotly.rs` draws it.

use serde::Serialize;

use crate::{figures::Unit, report::Table};

/// What is drawn of some figures.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Its name on the page, where links point to.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What a reader must know of it.
    pub note: String,
    /// Where the points lie: numbers, or words beside one another.
    pub x: Axis,
    /// What the points say.
    pub y: Axis,
    /// For series with other values than those of `y`.
    pub second: Option<SecondAxis>,
    /// Whether `x` goes down and values to the right, for words that are long.
    pub horizontal: bool,
    /// How a series is drawn that does not say it.
    pub mark: Mark,
    /// What is shown of a point, beside the name of its series: words with `{x}`, `{y}` (to four digits) and `{text}` (the
    /// point's own words) in them. `{x:.1}` has that many decimals, `{y:n}` is a whole number.
    pub hover: &'static str,
    /// Whether the points have intervals.
    pub whiskers: bool,
    /// What is drawn, the first one first. Without any there is no chart.
    pub series: Vec<Series>,
    /// The values for those who cannot see them.
    pub table: Table,
}

/// An axis.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What it shows.
    pub title: String,
    /// The unit in which it shows times, which are microseconds in the points.
    pub unit: Option<Unit>,
    /// What stands behind every other number.
    pub suffix: &'static str,
    /// How it shows them.
    pub scale: Scale,
    /// Where it is marked, and with which words; nothing for marks of the renderer's choice.
    pub ticks: Vec<(f64, String)>,
    /// The order of its words; nothing for that in which they come.
    pub words: Vec<String>,
}

/// How an axis shows its numbers.
#[derive(Clone, Copy, Debug, Default)]
pub enum Scale {
    /// All that are there.
    #[default]
    Linear,
    /// All that are there, and zero.
    FromZero,
    /// Between these two; what lies outside is cut.
    Range([f64; 2]),
    /// By their logarithm; none of zero and below.
    Log,
    /// Each whole number is marked.
    Whole,
}

/// Where the other values have their axis.
#[derive(Clone, Debug)]
pub enum SecondAxis {
    /// At the right of the same plot.
    Right(Axis),
    /// In a plot of its own below the other one, along the same `x`.
    Below(Axis),
}

/// Values that belong together.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Its values. Those of a line are drawn by their `x`, in whatever order they are here.
    pub points: Vec<Point>,
    /// How it is drawn, if not as the chart says.
    pub mark: Option<Mark>,
    /// The number of its colour, if not its place among the series.
    pub colour: Option<usize>,
    /// How its line is drawn.
    pub dash: Stroke,
    /// How its points are drawn.
    pub symbol: Symbol,
    /// How large its points are, if not as the renderer chooses.
    pub size: Option<f64>,
    /// Whether its values are those of the second axis.
    pub second: bool,
    /// Whether it is in the legend only, until it is chosen there.
    pub hidden: bool,
    /// Series of one group are chosen together.
    pub group: Option<String>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// A line through measured points.
    #[default]
    Line,
    /// A line without points, such as a fitted one.
    Curve,
    /// A line that goes over every point horizontally.
    Steps,
    /// Points.
    Points,
    /// Bars, those of several series beside one another.
    Bars,
    /// Bars on top of one another, negative ones to the other side.
    StackedBars,
    /// Bars from the lower to the upper end of each point.
    Ranges,
    /// Bars of each point's width, those of several series over one another.
    Histogram,
    /// All values of a series at one place, with their quartiles.
    Box,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stroke {
    /// As one.
    #[default]
    Solid,
    /// In dots.
    Dot,
    /// In dashes.
    Dash,
    /// In dashes and dots.
    DashDot,
    /// In long dashes.
    LongDash,
}

/// How a point is drawn.
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
    /// The outline of one.
    DiamondOpen,
    /// A cross.
    X,
}

/// A value.
#[derive(Clone, Debug)]
pub struct Point {
    /// Where it is.
    pub x: X,
    /// What it is; `None` leaves a gap.
    pub y: Option<f64>,
    /// The lower end of its interval.
    pub low: Option<f64>,
    /// The upper one.
    pub high: Option<f64>,
    /// The width of its bar.
    pub width: Option<f64>,
    /// Words of its own.
    pub text: Option<String>,
    /// What is written beside it.
    pub label: Option<String>,
}

/// The place of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum X {
    /// Along an axis of numbers.
    Number(f64),
    /// On an axis of words.
    Word(String),
}

impl Axis {
    /// An axis of numbers.
    pub fn new(title: &str, scale: Scale) -> Self {
        Self {
            title: title.to_owned(),
            scale,
            ..Self::default()
        }
    }

    /// An axis of times.
    pub fn time(title: &str, unit: Unit, scale: Scale) -> Self {
        Self {
            unit: Some(unit),
            ..Self::new(title, scale)
        }
    }
}

impl Series {
    /// Values under a name.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = Point>) -> Self {
        Self {
            name: name.into(),
            points: points.into_iter().collect(),
            ..Self::default()
        }
    }
}

impl Point {
    /// A value at a number.
    pub fn new(x: impl Into<f64>, y: impl Into<Option<f64>>) -> Self {
        Self::at(X::Number(x.into()), y.into())
    }

    /// A value at a word.
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

    /// The same with an interval.
    pub fn within(mut self, low: impl Into<Option<f64>>, high: impl Into<Option<f64>>) -> Self {
        (self.low, self.high) = (low.into(), high.into());
        self
    }

    /// The same with words of its own.
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}
