//! Figures in OpenMetrics' text format (version 1.0), for Prometheus and others.

use std::{collections::BTreeMap, fmt::Write as _};

use replimeter_model::compare::Quantity;

use crate::figures::{FigureSpec, StatedFigure};

/// A metric of a group of figures: the ending of its name, its meaning, and its value in a figure.
type Metric = (&'static str, &'static str, fn(&StatedFigure) -> Option<f64>);

/// The metrics of a group that have the unit of its figures.
const METRICS: [Metric; 3] = [
    ("", "of the report, of the run so far", |figure| {
        Some(figure.value)
    }),
    ("_low", "lower end of its 95 % interval", |figure| {
        Some(figure.ci95?[0])
    }),
    ("_high", "upper end of its 95 % interval", |figure| {
        Some(figure.ci95?[1])
    }),
];

/// Returns the unit of a quantity, and the factor to it: base units, as the format asks for.
fn unit(quantity: Quantity) -> (&'static str, f64) {
    match quantity {
        Quantity::Us => ("seconds", 1e6),
        Quantity::Percent => ("ratio", 100.0),
        Quantity::PerS => ("per_second", 1.0),
        Quantity::Bytes => ("bytes", 1.0),
        Quantity::Count => ("", 1.0),
    }
}

/// Returns the name of a group's metrics, without their unit.
fn stem(spec: &FigureSpec) -> String {
    let name = spec.group().replace('.', "_");
    let ending = match spec.unit {
        Quantity::Percent => "_percent",
        Quantity::Bytes => "_bytes",
        Quantity::Us | Quantity::PerS | Quantity::Count => "",
    };
    format!("replimeter_{}", name.strip_suffix(ending).unwrap_or(&name))
}

/// Returns the labels of a figure in braces; `statistic` is one of them if given.
fn labels(figure: &StatedFigure, statistic: Option<&str>) -> String {
    let dimensions = figure.of.iter();
    let dimensions = dimensions.map(|of| (of.dimension.name, of.value.as_str()));
    braces(dimensions.chain(statistic.map(|statistic| ("statistic", statistic))))
}

/// Returns labels in braces; nothing for none.
fn braces<'a>(all: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let each = all.map(|(name, value)| {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    });
    match each.collect::<Vec<_>>().join(",") {
        none if none.is_empty() => none,
        some => format!("{{{some}}}"),
    }
}

/// Adds a metric with its description and its values; of equal labels, the last one.
fn add(out: &mut String, (name, unit): (&str, &str), help: &str, values: &[(String, f64)]) {
    if values.is_empty() {
        return;
    }
    let _ = writeln!(out, "# TYPE {name} gauge");
    if !unit.is_empty() {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name} {help}.");
    let last: BTreeMap<&str, usize> = values
        .iter()
        .enumerate()
        .map(|(index, (labels, _))| (labels.as_str(), index))
        .collect();
    for (index, (labels, value)) in values.iter().enumerate() {
        if last[labels.as_str()] == index {
            let _ = writeln!(out, "{name}{labels} {}", number(*value));
        }
    }
}

/// Returns a number as the format spells it.
fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

/// A metric that is no figure of a measurement.
#[derive(Clone, Debug)]
pub struct MetricFamily {
    /// Its whole name, with its unit.
    pub name: String,
    /// Its unit; "" for none.
    pub unit: &'static str,
    /// Its meaning, as a sentence without its full stop.
    pub help: String,
    /// Its values, each with labels; NaN for one that is not known.
    pub values: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// Returns an exposition of metrics.
pub fn families(all: &[MetricFamily]) -> String {
    let mut out = String::new();
    for family in all {
        let values = family.values.iter().map(|(labels, value)| {
            let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
            (braces(labels), *value)
        });
        let values: Vec<(String, f64)> = values.collect();
        add(&mut out, (&family.name, family.unit), &family.help, &values);
    }
    out.push_str("# EOF\n");
    out
}

/// Returns an exposition of figures.
pub fn exposition(figures: &[StatedFigure]) -> String {
    let mut groups: Vec<&'static str> = Vec::new();
    for figure in figures {
        if !groups.contains(&figure.spec.group()) {
            groups.push(figure.spec.group());
        }
    }
    let mut out = String::new();
    for group in groups {
        let of_group = || figures.iter().filter(|figure| figure.spec.group() == group);
        let Some(first) = of_group().next() else {
            continue;
        };
        let (stem, (unit, factor)) = (stem(first.spec), unit(first.spec.unit));
        for (ending, help, value) in METRICS {
            let each = of_group().filter_map(|figure| {
                Some((
                    labels(figure, figure.spec.statistic_name()),
                    value(figure)? / factor,
                ))
            });
            let separator = if unit.is_empty() { "" } else { "_" };
            let name = format!("{stem}{ending}{separator}{unit}");
            let help = format!("{group}: {help}");
            add(&mut out, (&name, unit), &help, &each.collect::<Vec<_>>());
        }
        let samples = of_group().map(|figure| (labels(figure, None), figure.samples as f64));
        let help = format!("{group}: samples behind it");
        let name = format!("replimeter_{}_samples", group.replace('.', "_"));
        add(&mut out, (&name, ""), &help, &samples.collect::<Vec<_>>());
    }
    out.push_str("# EOF\n");
    out
}

#[cfg(test)]
mod tests {
    use replimeter_model::{compare::Better, load::Rate, record::Distribution};

    use super::*;
    use crate::figures::{DimensionSpec, REPLICA, StatedFigures};

    const OF: &[DimensionSpec] = &[REPLICA, DimensionSpec::new("size")];

    crate::figures! {
        LAG = "lag" [p50 max]: Us, Lower, Ratio, of OF;
        THROUGHPUT = "lag.load.throughput": PerS, Higher, Ratio, of OF;
        SHARE = "stale.percent": Percent, Lower, Difference, of &[];
        BYTES = "exposure.bytes" [mean]: Bytes, Lower, Difference, of &[];
        COUNT = "loss.lost": Count, Lower, Difference, of &[];
    }

    #[test]
    fn exposition_has_units_intervals_and_escaped_labels() {
        let mut figures = StatedFigures::default();
        let lag = Distribution {
            count: 30,
            p50_us: Some(-120.25),
            p50_us_ci95: Some([-130.0, 90.0]),
            max_us: Some(2e6),
            ..Distribution::default()
        };
        figures.distribution(LAG, &["a\\b\"c\nd", ""], &lag);
        let rate = Rate {
            mean: Some(1500.5),
            ..Rate::default()
        };
        figures.rate(&THROUGHPUT, &["a", "10"], &rate, 3);
        figures.add(&SHARE, &[], Some(2.5), None, 40);
        figures.add(&BYTES[0], &[], Some(7.0), None, 4);
        figures.add(&COUNT, &[], Some(1.0), None, 4);
        // Neither has something to show, and the second value of equal labels counts.
        figures.add(&COUNT, &[], Some(f64::NAN), None, 4);
        figures.add(&COUNT, &[], Some(9.0), None, 0);
        figures.add(&COUNT, &[], Some(2.0), None, 5);
        let replica = r#"replica="a\\b\"c\nd""#;
        let expected = format!(
            r#"# TYPE replimeter_lag_seconds gauge
# UNIT replimeter_lag_seconds seconds
# HELP replimeter_lag_seconds lag: of the report, of the run so far.
replimeter_lag_seconds{{{replica},statistic="p50"}} -0.00012025
replimeter_lag_seconds{{{replica},statistic="max"}} 2
# TYPE replimeter_lag_low_seconds gauge
# UNIT replimeter_lag_low_seconds seconds
# HELP replimeter_lag_low_seconds lag: lower end of its 95 % interval.
replimeter_lag_low_seconds{{{replica},statistic="p50"}} -0.00013
# TYPE replimeter_lag_high_seconds gauge
# UNIT replimeter_lag_high_seconds seconds
# HELP replimeter_lag_high_seconds lag: upper end of its 95 % interval.
replimeter_lag_high_seconds{{{replica},statistic="p50"}} 0.00009
# TYPE replimeter_lag_samples gauge
# HELP replimeter_lag_samples lag: samples behind it.
replimeter_lag_samples{{{replica}}} 30
# TYPE replimeter_lag_load_throughput_per_second gauge
# UNIT replimeter_lag_load_throughput_per_second per_second
# HELP replimeter_lag_load_throughput_per_second lag.load.throughput: of the report, of the run so far.
replimeter_lag_load_throughput_per_second{{replica="a",size="10"}} 1500.5
# TYPE replimeter_lag_load_throughput_samples gauge
# HELP replimeter_lag_load_throughput_samples lag.load.throughput: samples behind it.
replimeter_lag_load_throughput_samples{{replica="a",size="10"}} 3
# TYPE replimeter_stale_ratio gauge
# UNIT replimeter_stale_ratio ratio
# HELP replimeter_stale_ratio stale.percent: of the report, of the run so far.
replimeter_stale_ratio 0.025
# TYPE replimeter_stale_percent_samples gauge
# HELP replimeter_stale_percent_samples stale.percent: samples behind it.
replimeter_stale_percent_samples 40
# TYPE replimeter_exposure_bytes gauge
# UNIT replimeter_exposure_bytes bytes
# HELP replimeter_exposure_bytes exposure.bytes: of the report, of the run so far.
replimeter_exposure_bytes{{statistic="mean"}} 7
# TYPE replimeter_exposure_bytes_samples gauge
# HELP replimeter_exposure_bytes_samples exposure.bytes: samples behind it.
replimeter_exposure_bytes_samples 4
# TYPE replimeter_loss_lost gauge
# HELP replimeter_loss_lost loss.lost: of the report, of the run so far.
replimeter_loss_lost 2
# TYPE replimeter_loss_lost_samples gauge
# HELP replimeter_loss_lost_samples loss.lost: samples behind it.
replimeter_loss_lost_samples 5
# EOF
"#
        );
        assert_eq!(exposition(figures.all()), expected);
        assert!(specs().iter().all(|spec| spec.better != Better::Neither));
    }

    #[test]
    fn nothing_yet_is_a_complete_exposition() {
        assert_eq!(exposition(&[]), "# EOF\n");
    }
}
