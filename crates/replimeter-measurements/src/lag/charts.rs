//! The charts of a `lag` run.

use std::path::Path;

use replimeter_instruments::lag::{
    results::{LagDocument, LagRow},
    sample::{LagSample, Phase},
    settings::Method,
};
use replimeter_model::{
    record::{Bin, Distribution},
    stages::{QuantileBreakdown, Stages},
    target::NULL_REPLICA,
    time::Nanos,
};
use replimeter_stats::{bins::bins, envelope::Envelope, signed::SignedHistogram};

use crate::lag::{
    headline::{label, label_of, overall_rows},
    samples, waterfall,
};
use replimeter_render::{
    chart::{Axis, Chart, Mark, Point, Scale, Series},
    charts::{grouped, unit_for},
    figures::{Unit, count},
    html::HtmlError,
    precision::Precision,
    report::Table,
    rows::SamplesError,
};

/// Number of bars of the distribution.
const BARS: usize = 80;
/// Number of buckets of the time series; each draws at most two points.
const BUCKETS: usize = 1500;
/// Levels of the quantile function.
const LEVELS: [f64; 19] = [
    0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995,
    0.999, 0.9999,
];
/// The levels with a marker.
const MARKED: [f64; 6] = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999];

/// Data for the charts from the samples, in memory that does not grow with their number.
#[derive(Default)]
struct ChartData {
    /// The replicas by name, after all samples are read.
    replicas: Vec<Replica>,
    origin: Option<Nanos>,
    count: u64,
}

/// The samples of one method on a replica, or on the null replica.
struct Replica {
    shape: String,
    replica: String,
    method: Method,
    floor: bool,
    /// Its name in the legend.
    name: String,
    from_ack: SignedHistogram,
    /// Widths of the brackets.
    error: SignedHistogram,
    timeline: Envelope,
}

impl ChartData {
    /// Reads a run's samples.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(document: &LagDocument, file: &Path) -> Result<Self, SamplesError> {
        let mut accumulator = Self::default();
        samples::read(file, |shape, replica, sample| {
            accumulator.record(document, shape, replica, sample);
        })?;
        accumulator.replicas.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(accumulator)
    }

    fn record(&mut self, document: &LagDocument, shape: &str, replica: &str, sample: &LagSample) {
        let Some(lag) = sample.from_ack() else { return };
        let floor = match sample.write.phase {
            Phase::WarmUp | Phase::ReferenceSelect | Phase::Settle => return,
            phase => phase == Phase::Floor,
        };
        // There are few names and millions of samples.
        let known = self.replicas.iter().position(|known| {
            known.floor == floor
                && known.method == sample.method
                && known.replica == replica
                && known.shape == shape
        });
        let at = known.unwrap_or_else(|| {
            let of = Replica::new(document, shape, replica, sample.method, floor);
            self.replicas.push(of);
            self.replicas.len() - 1
        });
        let of = &mut self.replicas[at];
        of.from_ack.record(lag);
        of.error.record(sample.error().unwrap_or_default());
        if !floor {
            let origin = *self.origin.get_or_insert(sample.write.send);
            let after = (sample.write.send - origin).as_micros() / 1e6;
            of.timeline.push(after, lag.as_micros());
            self.count += 1;
        }
    }
}

impl Replica {
    fn new(
        document: &LagDocument,
        shape: &str,
        replica: &str,
        method: Method,
        floor: bool,
    ) -> Self {
        let name = label(document, shape, replica, method.name());
        Self {
            shape: shape.to_owned(),
            replica: replica.to_owned(),
            method,
            floor,
            name: if floor {
                name.replace(NULL_REPLICA, "floor (null replica)")
            } else {
                name
            },
            from_ack: SignedHistogram::default(),
            error: SignedHistogram::new(1),
            timeline: Envelope::new(BUCKETS),
        }
    }

    /// Returns the error of a single time in µs: half of the median bracket.
    fn half(&self) -> f64 {
        median(&self.error) / 2.0
    }
}

/// Returns the median in µs.
fn median(histogram: &SignedHistogram) -> f64 {
    let rank = histogram.count().div_ceil(2);
    histogram.at_rank(rank).unwrap_or_default().as_micros()
}

/// Returns all charts of a run with the samples in this file.
///
/// # Errors
/// If the samples cannot be read, or belong to another run.
pub(crate) fn charts(document: &LagDocument, samples_file: &Path) -> Result<Vec<Chart>, HtmlError> {
    let accumulator = ChartData::read(document, samples_file)?;
    let counts = document.results.rows.iter().map(|row| row.from_ack.count);
    let recorded = counts.max().unwrap_or(0);
    if recorded > 0 && accumulator.count == 0 {
        return Err(HtmlError::OtherSamples {
            recorded,
            file: samples_file.display().to_string(),
        });
    }
    Ok(all(document, &accumulator))
}

fn all(document: &LagDocument, accumulator: &ChartData) -> Vec<Chart> {
    let medians = accumulator.replicas.iter().map(|of| median(&of.from_ack));
    let unit = unit_for(medians);
    let mut charts = vec![
        distribution(accumulator, unit),
        quantiles(document, accumulator, unit),
        timeline(accumulator, unit),
    ];
    charts.extend(sizes(document));
    charts.push(stages(document));
    charts
}

fn distribution(accumulator: &ChartData, unit: Unit) -> Chart {
    let width = |bin: &Bin| bin.to_us - bin.from_us;
    let point = |bin: &Bin, total: f64| {
        let [low, high] = [bin.from_us, bin.to_us].map(|us| unit.with(us));
        let point = Point::new(
            (bin.from_us + bin.to_us) / 2.0,
            bin.count as f64 / total * 100.0,
        );
        Point {
            width: Some(width(bin)),
            ..point.with_hover_text(format!("{low} to {high}: {} samples", count(bin.count)))
        }
    };
    let (mut series, mut rows, mut outside) = (Vec::new(), Vec::new(), 0);
    for of in &accumulator.replicas {
        let all = bins(&of.from_ack, BARS);
        let total = of.from_ack.count().max(1) as f64;
        // The open bars at both ends extend to the extremes; only the table has them.
        let usual = all.get(all.len() / 2).map_or(0.0, width);
        let regular = |bin: &&Bin| (width(bin) - usual).abs() <= usual * 1e-6;
        let (closed, open): (Vec<&Bin>, Vec<&Bin>) = all.iter().partition(regular);
        outside += open.iter().map(|bin| bin.count).sum::<u64>();
        series.push(Series {
            hidden: of.floor,
            ..Series::new(&of.name, closed.into_iter().map(|bin| point(bin, total)))
        });
        rows.extend(all.into_iter().map(|bin| (&of.name, bin)));
    }
    let note = format!(
        "{} samples outside the drawn range are in the table below and in the charts that follow.",
        count(outside)
    );
    Chart {
        id: "distribution",
        title: "Distribution of lag from ack",
        note: if outside > 0 { note } else { String::new() },
        x: Axis::time("lag from ack", unit, Scale::Linear),
        y: Axis::new("share of rounds (%)", Scale::FromZero),
        mark: Mark::Histogram,
        hover: "{text}<br>{y} %",
        series,
        table: Table::of(
            1,
            rows,
            &[
                ("series", &|(name, _)| (*name).clone()),
                ("from", &|(_, bin)| unit.show(bin.from_us)),
                ("to", &|(_, bin)| unit.show(bin.to_us)),
                ("samples", &|(_, bin)| count(bin.count)),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns the quantile function, up to the last level that ten samples support.
fn quantiles(document: &LagDocument, accumulator: &ChartData, unit: Unit) -> Chart {
    let place = |level: f64| 1.0 / (1.0 - level);
    let percent = |level: f64| format!("{} %", level * 100.0);
    let overall = overall_rows(document);
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    for of in &accumulator.replicas {
        let row = overall
            .iter()
            .find(|row| label_of(document, row) == of.name);
        let precision = row.map(|row| Precision::of_brackets(&row.bracket_us, &row.from_ack));
        let mut points = Vec::new();
        for level in LEVELS {
            let Some(us) = of.from_ack.quantile(level).map(Nanos::as_micros) else {
                continue;
            };
            let half = precision.as_ref().map_or(0.0, |of| of.quantile(level));
            rows.push((&of.name, level, unit.show_within(us, half.max(of.half()))));
            let text = format!("{:.4} % of rounds", level * 100.0);
            points.push(Point::new(place(level), us).with_hover_text(text));
        }
        series.push(Series::new(&of.name, points));
    }
    Chart {
        id: "quantiles",
        title: "Quantiles of lag from ack",
        note: "Levels with fewer than ten samples beyond them are left out.".into(),
        x: Axis {
            ticks: MARKED.map(|level| (place(level), percent(level))).into(),
            ..Axis::new("share of rounds with at most this lag", Scale::Log)
        },
        y: Axis::time("lag from ack", unit, Scale::Linear),
        hover: "{text} within {y}",
        series,
        table: Table::of(
            1,
            rows,
            &[
                ("series", &|(name, ..)| (*name).clone()),
                ("level", &|(_, level, _)| percent(*level)),
                (unit.symbol(), &|(.., us)| us.clone()),
            ],
        ),
        ..Chart::default()
    }
}

fn timeline(accumulator: &ChartData, unit: Unit) -> Chart {
    let (mut series, mut rows, mut reduced) = (Vec::new(), Vec::new(), 1);
    for (index, of) in accumulator.replicas.iter().enumerate() {
        if of.floor {
            continue;
        }
        let mut points = of.timeline.points();
        reduced = reduced.max(of.timeline.per_bucket());
        let drawn = points
            .iter()
            .map(|(at, us)| Point::new((at * 1e6).round() / 1e6, *us));
        series.push(Series {
            colour: Some(index),
            ..Series::new(&of.name, drawn)
        });
        // The table has the 100 largest; samples.parquet has all.
        points.sort_by(|a, b| b.1.total_cmp(&a.1));
        points.truncate(100);
        let half = of.half();
        rows.extend(points.into_iter().map(|(at, us)| (&of.name, at, us, half)));
    }
    let drawn = if reduced > 1 {
        format!(
            "Of each {} consecutive rounds, the minimum and the maximum are drawn, so every extreme is shown.",
            count(reduced as u64)
        )
    } else {
        "Every round is drawn.".to_owned()
    };
    Chart {
        id: "course",
        title: "Lag over time",
        note: drawn + " The table lists the 100 largest.",
        x: Axis::new("time since the first counted round (s)", Scale::Linear),
        y: Axis::time("lag from ack", unit, Scale::Linear),
        mark: Mark::Points,
        hover: "after {x:.3} s: {y}",
        series,
        table: Table::of(
            1,
            rows,
            &[
                ("series", &|(name, ..)| (*name).clone()),
                ("after (s)", &|(_, at, ..)| format!("{at:.3}")),
                (unit.symbol(), &|&(.., us, half)| unit.show_within(us, half)),
            ],
        ),
        ..Chart::default()
    }
}

/// Returns the mean stages of transactions near p50, p90 and p99 of each replica, stacked.
fn stages(document: &LagDocument) -> Chart {
    let waterfalls = waterfall::rows(document);
    let several = waterfalls.len() > 1;
    let near = waterfalls.iter().flat_map(|(name, _, stages)| {
        let near = stages.tail_breakdown.iter();
        near.map(move |near| (name.as_str(), *stages, near))
    });
    let near: Vec<(&str, &Stages, &QuantileBreakdown)> = near.collect();
    let unit = unit_for(near.iter().map(|(.., near)| near.end_to_end_us));
    let (mut bars, mut rows) = (Vec::new(), Vec::new());
    for &(name, stages, near) in &near {
        for (stage, &us) in stages.stages.iter().zip(&near.stages_us) {
            let half = stage.error_mean_us;
            let bar = if several {
                format!("{name}, {}", near.quantile)
            } else {
                near.quantile.clone()
            };
            let shown = unit.with_within(us, half);
            let text = format!("{shown}, mean of {} transactions", count(near.count));
            bars.push((stage.name.clone(), Point::of(bar, us).with_hover_text(text)));
            rows.push((name, near, stage.name.as_str(), us, half));
        }
        rows.push((name, near, "residue", near.residue_us, 0.0));
        rows.push((name, near, "end to end", near.end_to_end_us, 0.0));
    }
    let stages = grouped(bars).into_iter();
    Chart {
        id: "stages",
        title: "Mean stages near p50, p90 and p99",
        note: "Each bar is a mean over the same transactions, those nearest to that quantile of the time from send to visible; percentiles of single stages do not add up.".into(),
        y: Axis::time("time since the send", unit, Scale::Linear),
        horizontal: true,
        mark: Mark::StackedBars,
        hover: "{x}: {text}",
        series: stages.map(|(stage, points)| Series::new(stage, points)).collect(),
        table: Table::of(
            1,
            rows,
            &[
                ("series", &|(name, ..)| (*name).to_owned()),
                ("near", &|(_, near, ..)| near.quantile.clone()),
                ("transactions", &|(_, near, ..)| count(near.count)),
                ("stage", &|(_, _, stage, ..)| (*stage).to_owned()),
                (unit.symbol(), &|&(.., us, half)| unit.show_within(us, half)),
            ],
        ),
        ..Chart::default()
    }
}

/// The distribution of a row to draw by size.
type FigureOf = fn(&LagRow) -> &Distribution;
const BY_SIZE: [(&str, FigureOf); 4] = [
    ("lag from send", |row| &row.from_send),
    ("lag from ack", |row| &row.from_ack),
    ("insert", |row| &row.write_latency),
    ("retrieval", |row| &row.retrieval),
];

/// Returns lag and write latency by size, if the sizes have their own rows.
fn sizes(document: &LagDocument) -> Option<Chart> {
    let rows = document.results.rows.iter();
    let (sized, whole): (Vec<_>, Vec<_>) = rows.partition(|row| row.size_bytes.is_some());
    let unit = unit_for(sized.iter().filter_map(|row| row.from_send.mean_us));
    let mut replicas: Vec<&str> = sized.iter().map(|row| row.replica.as_str()).collect();
    replicas.dedup();
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    for (replica, (what, pick)) in replicas
        .iter()
        .flat_map(|of| BY_SIZE.map(|pick| (of, pick)))
    {
        let name = format!("{replica}, {what}");
        let mut points = Vec::new();
        for row in sized.iter().filter(|row| row.replica == *replica) {
            let of = pick(row);
            let Some((bytes, middle)) = row.size_bytes.zip(of.p50_us.or(of.mean_us)) else {
                continue;
            };
            let low = of.min_us.unwrap_or_default();
            let high = of.p90_us.or(of.max_us).unwrap_or_default();
            points.push(Point::new(bytes as f64, middle).within(low.min(middle), high.max(middle)));
            let precision = if what.starts_with("lag") {
                Precision::of_brackets(&row.bracket_us, of)
            } else {
                Precision::exact(of)
            };
            let halves = [
                precision.single(),
                precision.quantile(0.5),
                precision.quantile(0.9),
            ];
            rows.push((name.clone(), bytes, [low, middle, high], halves));
        }
        series.push(Series::new(name, points));
    }
    let shown = |us: &[f64; 3], halves: &[f64; 3], at: usize| unit.show_within(us[at], halves[at]);
    (!whole.is_empty()).then(|| Chart {
        id: "sizes",
        title: "Lag by payload size",
        note: "Medians (means with fewer than 20 rows); bars reach from the minimum to the 90th percentile (the maximum with fewer than 100 rows).".into(),
        x: Axis::new("payload (bytes)", Scale::FromZero),
        y: Axis::time("", unit, Scale::FromZero),
        hover: "{x} bytes: {y}",
        whiskers: true,
        series,
        table: Table::of(
            1,
            rows,
            &[
                ("series", &|(name, ..)| name.clone()),
                ("bytes", &|(_, bytes, ..)| count(*bytes)),
                ("smallest", &|(.., us, halves)| shown(us, halves, 0)),
                ("middle", &|(.., us, halves)| shown(us, halves, 1)),
                ("high", &|(.., us, halves)| shown(us, halves, 2)),
            ],
        ),
        ..Chart::default()
    })
}
