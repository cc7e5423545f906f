//! The charts of the published experiments, with published and measured values on the same axes.

use replimeter_model::reproduce::{self, Claim, Experiment, ReproduceDocument, Verdict};

use crate::across::reproduce::claims_of;
use replimeter_render::{
    chart::{Axis, Chart, Mark, Point, Scale, Series, Stroke, Symbol},
    report::Table,
};

/// Returns all charts of a reproduction.
#[must_use]
pub fn charts(document: &ReproduceDocument) -> Vec<Chart> {
    let experiments = document.experiments.iter();
    let experiments = experiments.filter(|of| !of.ours.lines.is_empty());
    let charts = experiments.filter_map(|of| {
        let chart = chart(of)?;
        Some(Chart {
            table: both(of),
            ..chart
        })
    });
    std::iter::once(verdicts(document)).chain(charts).collect()
}

/// Returns the chart of how many findings of each experiment agree.
fn verdicts(document: &ReproduceDocument) -> Chart {
    let experiments = || document.experiments.iter();
    let claims: Vec<&Claim> = experiments().flat_map(|of| &of.claims).collect();
    let verdicts = [
        (Verdict::Agrees, 2),
        (Verdict::Explained, 0),
        (Verdict::Differs, 1),
        (Verdict::Open, 5),
    ];
    let series = verdicts.map(|(verdict, colour)| {
        let points = experiments().map(|of| {
            let claims = of.claims.iter().filter(|claim| claim.verdict == verdict);
            Point::of(
                format!("{}. {}", of.number, of.title),
                claims.count() as f64,
            )
        });
        Series {
            colour: Some(colour),
            ..Series::new(verdict.name(), points)
        }
    });
    Chart {
        id: "verdicts",
        title: "Findings that agree in shape",
        y: Axis::new("findings", Scale::Whole),
        horizontal: true,
        mark: Mark::StackedBars,
        hover: "{x}: {y} of its findings",
        series: if claims.is_empty() {
            Vec::new()
        } else {
            series.to_vec()
        },
        table: claims_of(claims),
        ..Chart::default()
    }
}

/// Returns the chart of an experiment, without its table; `None` if there is nothing to compare.
fn chart(experiment: &Experiment) -> Option<Chart> {
    match experiment.number {
        1 => Some(sweep(experiment)),
        2 => Some(replicas(experiment)),
        3 => histogram(experiment),
        4 => stale(experiment),
        5 => overhead(experiment),
        _ => None,
    }
}

/// Parses the numbers in a cell as tables print them, with commas between thousands.
fn numbers(cell: &str) -> Vec<f64> {
    let parts = cell.split(|letter: char| {
        !(letter.is_ascii_digit() || matches!(letter, '.' | ',' | '-' | '−'))
    });
    let number = |part: &str| {
        let part = part.trim_matches(',').replace(',', "").replace('−', "-");
        part.parse().ok()
    };
    parts.filter_map(number).collect()
}

/// Returns the first number of a cell.
fn first(line: &[String], column: usize) -> Option<f64> {
    numbers(line.get(column)?).first().copied()
}

/// Returns two numbers of each line that has both.
fn pairs(table: &reproduce::Table, x: usize, y: usize) -> Vec<(f64, f64)> {
    let lines = table.lines.iter();
    lines
        .filter_map(|line| Some((first(line, x)?, first(line, y)?)))
        .collect()
}

/// Returns both tables of an experiment: published, and measured here.
fn sides(experiment: &Experiment) -> [(&'static str, &reproduce::Table); 2] {
    [
        ("published", &experiment.published),
        ("here", &experiment.ours),
    ]
}

/// Returns both tables in one.
fn both(experiment: &Experiment) -> Table {
    let headings = experiment.ours.headings.iter().map(String::as_str);
    let headings: Vec<&str> = std::iter::once("of").chain(headings).collect();
    let rows = sides(experiment).into_iter().flat_map(|(name, table)| {
        let lines = table.lines.iter();
        lines.map(move |line| [&[name.to_owned()], &line[..]].concat())
    });
    Table::new(&headings, 2, rows)
}

/// Returns the chart of the ranges of the sweep's times.
fn sweep(experiment: &Experiment) -> Chart {
    let point = |line: &Vec<String>| {
        let ends = numbers(line.get(1)?);
        let (low, high) = (*ends.first()?, *ends.last()?);
        // A single value is drawn as a thin bar, so that it is visible.
        let point = Point::of(line.first()?, None).within(low, high.max(low + 0.02));
        Some(point.with_hover_text(format!("{low} to {high} ms")))
    };
    let series = sides(experiment)
        .map(|(name, table)| Series::new(name, table.lines.iter().filter_map(point)));
    Chart {
        id: "published-sweep",
        title: "1. Times of the size sweep",
        note: "From the minimum to the maximum of all steps.".into(),
        y: Axis::new("milliseconds", Scale::Linear),
        horizontal: true,
        mark: Mark::Ranges,
        hover: "{x}: {text}",
        series: series.into(),
        ..Chart::default()
    }
}

/// Returns the chart in percent of no replica, with a line for each column.
fn replicas(experiment: &Experiment) -> Chart {
    let curves = [
        (1, "insert alone"),
        (3, "insert while selecting"),
        (4, "select while inserting"),
    ];
    let ways = [
        (Stroke::Dot, Symbol::CircleOpen),
        (Stroke::Solid, Symbol::Circle),
    ];
    let mut series = Vec::new();
    for (index, (column, name)) in curves.into_iter().enumerate() {
        for ((whose, table), (dash, symbol)) in sides(experiment).into_iter().zip(ways) {
            let rates = pairs(table, 0, column);
            let none = rates
                .iter()
                .find(|(replicas, rate)| *replicas == 0.0 && *rate > 0.0);
            let Some((_, none)) = none.filter(|_| rates.len() > 1) else {
                continue;
            };
            let points = rates
                .iter()
                .map(|(replicas, rate)| Point::new(*replicas, rate / none * 100.0));
            series.push(Series {
                dash,
                symbol,
                colour: Some(index),
                ..Series::new(format!("{name}, {whose}"), points)
            });
        }
    }
    Chart {
        id: "published-replicas",
        title: "2. Throughput by number of replicas",
        note: "Dotted: published. Solid: here. Without a replica, each is 100 %.".into(),
        x: Axis::new("replicas", Scale::Whole),
        y: Axis::new("percent of no replica", Scale::FromZero),
        hover: "{x} replicas: {y} % of no replica",
        series,
        ..Chart::default()
    }
}

/// Returns the chart of the shares of rows by lag.
fn histogram(experiment: &Experiment) -> Option<Chart> {
    let mut series = Vec::new();
    for (name, table) in sides(experiment) {
        let bins = pairs(table, 0, 1);
        let all: f64 = bins.iter().map(|(_, rows)| rows).sum();
        let points = bins
            .iter()
            .map(|(ms, rows)| Point::new(*ms, rows / all * 100.0));
        series.push((all > 0.0).then(|| Series::new(name, points))?);
    }
    Some(Chart {
        id: "published-histogram",
        title: "3. Lag in bins of 0.1 ms",
        note: "Both axes are logarithmic, to show the few late rows. Rows at or below 0 ms are not drawn; the table has all rows.".into(),
        x: Axis::new("lag, ms (logarithmic)", Scale::Log),
        y: Axis::new("percent of the rows (logarithmic)", Scale::Log),
        mark: Mark::Steps,
        hover: "{x} ms: {y} % of the rows",
        series,
        ..Chart::default()
    })
}

/// Returns the chart of stale shares by load.
fn stale(experiment: &Experiment) -> Option<Chart> {
    let label = |line: &Vec<String>| {
        Some(format!("{} on {}", line.first()?, line.get(1)?).replace(" on –", ""))
    };
    let wanted = experiment.published.lines.iter().filter_map(label);
    let series = sides(experiment).map(|(name, table)| {
        let points = wanted.clone().map(|wanted| {
            let mut lines = table.lines.iter();
            let line = lines.find(|line| label(line).as_ref() == Some(&wanted));
            Point::of(wanted, line.and_then(|line| first(line, 2)))
        });
        Series::new(name, points)
    });
    let mut here = series[1].points.iter();
    here.any(|point| point.y.is_some()).then(|| Chart {
        id: "published-stale",
        title: "4. Stale reads by load",
        note: "Share of immediate reads that missed the write.".into(),
        y: Axis::new("percent of the rounds", Scale::FromZero),
        horizontal: true,
        mark: Mark::Bars,
        hover: "{x}: {y} %",
        series: series.to_vec(),
        ..Chart::default()
    })
}

/// Returns the chart of mean latency relative to no replication, for the same binary.
fn overhead(experiment: &Experiment) -> Option<Chart> {
    let published = experiment
        .published
        .lines
        .iter()
        .filter_map(|line| first(line, 2));
    let [alone, waiting] = published.collect::<Vec<_>>()[..] else {
        return None;
    };
    let ours = || {
        experiment
            .ours
            .lines
            .iter()
            .filter_map(|line| Some((line.first()?, first(line, 2)?)))
    };
    let engine = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
    let none = |wanted: &str| {
        let is_none = |name: &str| match name {
            "none" => !wanted.is_empty(),
            name => name.ends_with("/none") && engine(name) == wanted,
        };
        ours().find(|(name, _)| is_none(name)).map(|(_, mean)| mean)
    };
    let here = ours().filter_map(|(name, mean)| Some(Point::of(name, mean / none(&engine(name))?)));
    let here: Vec<Point> = here.collect();
    let then = Point::of("semi-sync, published", waiting / alone);
    (alone > 0.0 && !here.is_empty()).then(|| Chart {
        id: "published-price",
        title: "5. Cost of waiting for the acknowledgement",
        note: "Mean latency of an insert at one thread, relative to that without replication."
            .into(),
        y: Axis::new("latency relative to none", Scale::FromZero),
        horizontal: true,
        // No bar has both.
        mark: Mark::StackedBars,
        hover: "{x}: {y} × latency of none",
        series: vec![Series::new("published", [then]), Series::new("here", here)],
        ..Chart::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::across::reproduce;

    #[test]
    fn printed_table_cells_parse_back() {
        assert_eq!(numbers("925 (−51 %)"), [925.0, -51.0]);
        assert_eq!(
            numbers("0.66 / 46,526.7 / 104.28"),
            [0.66, 46_526.7, 104.28]
        );
        assert_eq!(numbers("-1.496 to 22.142"), [-1.496, 22.142]);
        assert_eq!(numbers("39.01 %, 38.93 %"), [39.01, 38.93]);
        assert_eq!(numbers("–"), [] as [f64; 0]);
        assert_eq!(first(&["1,908".to_owned()], 0), Some(1908.0));
    }

    #[test]
    fn published_figures_have_a_chart_per_experiment() {
        let tables = [
            reproduce::sweep_published(),
            reproduce::replicas_published(),
            reproduce::histogram_published(),
            reproduce::stale_published(),
            reproduce::overhead_published(),
        ];
        for (number, table) in (1..).zip(tables) {
            let mut experiment = Experiment {
                number,
                published: table.clone(),
                ours: table,
                ..Experiment::default()
            };
            if number == 5 {
                experiment.ours.lines[0][0] = "mariadb/none".to_owned();
                experiment.ours.lines[1][0] = "mariadb/semi-sync".to_owned();
            }
            let document = |experiment: Experiment| ReproduceDocument {
                experiments: vec![experiment],
                ..ReproduceDocument::default()
            };
            let drawn = &charts(&document(experiment))[1];
            assert!(drawn.series.len() >= 2, "{number}");
            for series in &drawn.series {
                assert!(!series.points.is_empty(), "{number}: {series:?}");
            }
            let near = |series: usize, point: usize, value: f64| {
                let y = drawn.series[series].points[point].y.unwrap();
                assert!((y - value).abs() < value * 1e-3, "{number}: {y}");
            };
            if number == 2 {
                // The first replica halves inserts alone.
                near(0, 1, 48.5);
            }
            if number == 5 {
                near(1, 1, 421.46 / 134.31);
            }
            let nothing = document(Experiment {
                number,
                ..Experiment::default()
            });
            assert_eq!(
                charts(&nothing).len(),
                1,
                "an experiment without tables has only the first chart"
            );
        }
    }
}
