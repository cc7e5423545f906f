//! The page's pictures as Plotly figures, each with the table behind it.

use std::collections::BTreeMap;

use replimeter_model::{
    backlog::BacklogPhase,
    calibrate::{CalibrateDocument, CalibrateRow},
    exposure::ExposureDocument,
    load::LoadDocument,
    loss::{CrashRecord, LossDocument},
    record::{Bin, Distribution, LagDocument, LagRow},
    sample::{LagSample, Phase},
    stages::{Near, Stages},
    tap::{TapDocument, TapWindow},
    target::NULL_REPLICA,
    time::Nanos,
};
use replimeter_stats::{bins::bins, envelope::Envelope, signed::SignedHistogram};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    answer::overall_rows,
    backlog,
    figures::{Unit, count, time},
    loading,
    precision::Precision,
    waterfall,
};

/// Bars of the distribution.
const BARS: usize = 80;
/// Buckets of the time series; each draws at most two points.
const BUCKETS: usize = 1500;
/// Colours that stay apart on white and on black and for the colour-blind
/// (Okabe & Ito 2008).
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];

/// What the pictures need of the samples, in memory that does not grow with them.
#[derive(Default)]
pub(super) struct Gathered {
    replicas: BTreeMap<String, Replica>,
    origin: Option<Nanos>,
    count: u64,
}

struct Replica {
    from_ack: SignedHistogram,
    /// Widths of the brackets.
    error: SignedHistogram,
    floor: bool,
    course: Envelope,
}

impl Gathered {
    pub(super) fn record(&mut self, name: &str, sample: &LagSample) {
        let Some(lag) = sample.from_ack() else { return };
        if matches!(
            sample.write.phase,
            Phase::WarmUp | Phase::Yardstick | Phase::Settle
        ) {
            return;
        }
        let floor = sample.write.phase == Phase::Floor;
        let floor_name = floor.then(|| name.replace(NULL_REPLICA, "floor (null replica)"));
        let name = floor_name.as_deref().unwrap_or(name);
        // A name is made once, and not for each of millions of samples.
        if !self.replicas.contains_key(name) {
            self.replicas.insert(name.to_owned(), Replica::new(floor));
        }
        let Some(replica) = self.replicas.get_mut(name) else {
            return;
        };
        replica.from_ack.record(lag);
        replica.error.record(sample.error().unwrap_or_default());
        if !floor {
            let origin = *self.origin.get_or_insert(sample.write.send);
            replica.course.push(
                (sample.write.send - origin).as_micros() / 1e6,
                lag.as_micros(),
            );
            self.count += 1;
        }
    }

    /// Samples that count.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

impl Replica {
    fn new(floor: bool) -> Self {
        Self {
            from_ack: SignedHistogram::default(),
            error: SignedHistogram::new(1),
            floor,
            course: Envelope::new(BUCKETS),
        }
    }

    /// What each time may be wrong by, in microseconds: half of the median bracket.
    fn half(&self) -> f64 {
        self.error
            .at_rank(self.error.count().div_ceil(2))
            .unwrap_or_default()
            .as_micros()
            / 2.0
    }
}

/// A picture and the table behind it.
pub(super) struct Picture {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) note: String,
    pub(super) figure: Value,
    pub(super) table: DataTable,
}

#[derive(Serialize)]
pub(super) struct DataTable {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl DataTable {
    pub(super) fn new(header: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self {
            header: header.iter().map(|name| (*name).to_owned()).collect(),
            rows,
        }
    }
}

pub(super) fn figure(id: &str, traces: Vec<Value>, x: Value, y: Value) -> Value {
    // Labels of any length have their room.
    let [x, y] = [x, y].map(|mut axis| {
        axis["automargin"] = json!(true);
        axis
    });
    json!({
        "id": id,
        "data": traces,
        "layout": {
            "xaxis": x, "yaxis": y, "hovermode": "closest", "bargap": 0.04, "barmode": "overlay",
            "modebar": {"bgcolor": "rgba(0,0,0,0)"},
            "margin": {"l": 70, "r": 20, "t": 20, "b": 50},
            // Above the plot, so that it never lies over what is drawn; the page makes room for it.
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        },
    })
}

pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// All pictures of a run.
pub(super) fn all(document: &LagDocument, gathered: &Gathered) -> Vec<Picture> {
    if document.settings.backlog.is_some() {
        return backlogs(document).into_iter().collect();
    }
    let typical = gathered.replicas.values().filter_map(|replica| {
        replica
            .from_ack
            .at_rank(replica.from_ack.count().div_ceil(2))
    });
    let unit = Unit::for_size(typical.map(Nanos::as_micros).fold(0.0, f64::max));
    let mut pictures = vec![
        distribution(gathered, unit),
        quantiles(document, gathered, unit),
        course(gathered, unit),
    ];
    pictures.extend(sizes(document));
    pictures.extend(stages(document));
    pictures
}

/// The backlog over time, a line for each replica and number of workers.
fn backlogs(document: &LagDocument) -> Option<Picture> {
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    for (index, row) in document.backlog.iter().enumerate() {
        let name = backlog::name(document, row);
        let points = backlog::points(row);
        let cells = |(at, behind, phase): &(f64, u64, BacklogPhase)| {
            vec![
                name.clone(),
                format!("{at:.3}"),
                phase.words().to_owned(),
                count(*behind),
            ]
        };
        rows.extend(points.iter().map(cells));
        traces.push(json!({
            "type": "scatter", "mode": "lines+markers", "name": name,
            "x": points.iter().map(|(at, ..)| (at * 1e4).round() / 1e4).collect::<Vec<_>>(),
            "y": points.iter().map(|(_, behind, _)| behind).collect::<Vec<_>>(),
            "text": points.iter().map(|(.., phase)| phase.words()).collect::<Vec<_>>(),
            "hovertemplate": "after %{x:.3f} s: %{y:,} transactions behind (%{text})<extra>%{fullData.name}</extra>",
            "line": {"color": colour(index)}, "marker": {"size": 4},
        }));
    }
    if traces.is_empty() {
        return None;
    }
    Some(Picture {
        id: "backlog",
        title: "How fast it catches up: the backlog over time",
        note: "It grows while the applier stands still, then falls, or does not, beside the load, and at last without it."
            .to_owned(),
        figure: figure(
            "backlog",
            traces,
            json!({"title": {"text": "time since the end of the load's ramp (s)"}, "rangemode": "tozero"}),
            json!({"title": {"text": "transactions not applied"}, "rangemode": "tozero"}),
        ),
        table: DataTable { header: ["series", "after (s)", "applier", "transactions behind"].map(str::to_owned).to_vec(), rows },
    })
}

fn distribution(gathered: &Gathered, unit: Unit) -> Picture {
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    let mut outside = 0;
    for (index, (name, replica)) in gathered.replicas.iter().enumerate() {
        let all = bins(&replica.from_ack, BARS);
        let total = replica.from_ack.count().max(1) as f64;
        // The open bars at both ends reach to the extremes; they go to the table only.
        let usual = all
            .get(all.len() / 2)
            .map_or(0.0, |bin| bin.high_us - bin.low_us);
        let regular = |bin: &&Bin| (bin.high_us - bin.low_us - usual).abs() <= usual * 1e-6;
        let (closed, open): (Vec<&Bin>, Vec<&Bin>) = all.iter().partition(regular);
        outside += open.iter().map(|bin| bin.count).sum::<u64>();
        rows.extend(all.iter().map(|bin| {
            vec![
                name.clone(),
                unit.show(bin.low_us),
                unit.show(bin.high_us),
                count(bin.count),
            ]
        }));
        let share: Vec<f64> = closed
            .iter()
            .map(|bin| bin.count as f64 / total * 100.0)
            .collect();
        let text: Vec<String> = closed
            .iter()
            .map(|bin| {
                format!(
                    "{} to {}: {} samples",
                    unit.with(bin.low_us),
                    unit.with(bin.high_us),
                    count(bin.count)
                )
            })
            .collect();
        traces.push(json!({
            "type": "bar", "name": name, "opacity": 0.7, "visible": if replica.floor { json!("legendonly") } else { json!(true) },
            "x": closed.iter().map(|bin| (bin.low_us + bin.high_us) / 2.0 / unit.scale()).collect::<Vec<_>>(),
            "width": closed.iter().map(|bin| (bin.high_us - bin.low_us) / unit.scale()).collect::<Vec<_>>(),
            "y": share, "hovertext": text, "hovertemplate": "%{hovertext}<br>%{y:.2f} %<extra>%{fullData.name}</extra>",
            "marker": {"color": colour(index)},
        }));
    }
    Picture {
        id: "distribution",
        title: "How late: distribution of lag from ack",
        note: if outside > 0 {
            format!(
                "{} samples outside the drawn range are in the table below and in the pictures that follow.",
                count(outside)
            )
        } else {
            String::new()
        },
        figure: figure(
            "distribution",
            traces,
            json!({"title": {"text": format!("lag from ack ({})", unit.symbol())}}),
            json!({"title": {"text": "share of rounds (%)"}, "rangemode": "tozero"}),
        ),
        table: DataTable {
            header: ["series", "from", "to", "samples"]
                .map(str::to_owned)
                .to_vec(),
            rows,
        },
    }
}

/// The quantile function up to the last that ten samples support.
fn quantiles(document: &LagDocument, gathered: &Gathered, unit: Unit) -> Picture {
    const LEVELS: [f64; 19] = [
        0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99,
        0.995, 0.999, 0.9999,
    ];
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    for (index, (name, replica)) in gathered.replicas.iter().enumerate() {
        let known: Vec<(f64, f64)> = LEVELS
            .iter()
            .filter_map(|level| Some((*level, replica.from_ack.quantile(*level)?.as_micros())))
            .collect();
        let row = overall_rows(document)
            .into_iter()
            .find(|row| document.label_of(row) == *name);
        let half = |level| {
            row.map_or(0.0, |row| {
                Precision::of_lag(row, &row.from_ack).quantile(level)
            })
            .max(replica.half())
        };
        rows.extend(known.iter().map(|(level, us)| {
            vec![
                name.clone(),
                format!("{} %", level * 100.0),
                unit.show_within(*us, half(*level)),
            ]
        }));
        traces.push(json!({
            "type": "scatter", "mode": "lines+markers", "name": name,
            "x": known.iter().map(|(level, _)| 1.0 / (1.0 - level)).collect::<Vec<_>>(),
            "y": known.iter().map(|(_, us)| us / unit.scale()).collect::<Vec<_>>(),
            "hovertext": known.iter().map(|(level, _)| format!("{:.4} % of rounds", level * 100.0)).collect::<Vec<_>>(),
            "hovertemplate": format!("%{{hovertext}} within %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
            "line": {"color": colour(index)},
        }));
    }
    let ticks = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999];
    Picture {
        id: "quantiles",
        title: "How bad can it get: quantiles",
        note: "Levels with fewer than ten samples beyond them are left out.".to_owned(),
        figure: figure(
            "quantiles",
            traces,
            json!({
                "title": {"text": "share of rounds at most this late"}, "type": "log",
                "tickvals": ticks.map(|level| 1.0 / (1.0 - level)), "ticktext": ticks.map(|level| format!("{} %", level * 100.0)),
            }),
            json!({"title": {"text": format!("lag from ack ({})", unit.symbol())}}),
        ),
        table: DataTable {
            header: vec![
                "series".to_owned(),
                "level".to_owned(),
                unit.symbol().to_owned(),
            ],
            rows,
        },
    }
}

fn course(gathered: &Gathered, unit: Unit) -> Picture {
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    let mut reduced = 1;
    for (index, (name, replica)) in gathered
        .replicas
        .iter()
        .enumerate()
        .filter(|(_, (_, replica))| !replica.floor)
    {
        let points = replica.course.points();
        reduced = reduced.max(replica.course.per_bucket());
        // The table carries the hundred largest; all are in samples.parquet.
        let mut largest = points.clone();
        largest.sort_by(|a, b| b.1.total_cmp(&a.1));
        let half = replica.half();
        rows.extend(largest.iter().take(100).map(|(at, us)| {
            vec![
                name.clone(),
                format!("{at:.3}"),
                unit.show_within(*us, half),
            ]
        }));
        traces.push(json!({
            "type": "scatter", "mode": "markers", "name": name,
            "x": points.iter().map(|(at, _)| (at * 1e6).round() / 1e6).collect::<Vec<_>>(),
            "y": points.iter().map(|(_, us)| us / unit.scale()).collect::<Vec<_>>(),
            "hovertemplate": format!("after %{{x:.3f}} s: %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
            "marker": {"color": colour(index), "size": 4, "opacity": 0.7},
        }));
    }
    Picture {
        id: "course",
        title: "Is it predictable: lag over the course of the run",
        note: if reduced > 1 {
            format!(
                "Of each {} consecutive rounds the smallest and the largest are drawn; no extreme is lost. The table lists the hundred largest.",
                count(reduced as u64)
            )
        } else {
            "Every round is drawn. The table lists the hundred largest.".to_owned()
        },
        figure: figure(
            "course",
            traces,
            json!({"title": {"text": "time since the first counted round (s)"}}),
            json!({"title": {"text": format!("lag from ack ({})", unit.symbol())}}),
        ),
        table: DataTable {
            header: vec![
                "series".to_owned(),
                "after (s)".to_owned(),
                unit.symbol().to_owned(),
            ],
            rows,
        },
    }
}

/// Mean stages of the transactions near p50, p90 and p99 of each replica, stacked.
fn stages(document: &LagDocument) -> Option<Picture> {
    let rows = waterfall::rows(document);
    let near = || {
        rows.iter()
            .flat_map(|(name, _, stages)| stages.near.iter().map(move |near| (name, *stages, near)))
    };
    let unit = Unit::for_size(
        near()
            .map(|(_, _, near)| near.end_to_end_us)
            .fold(0.0, f64::max),
    );
    let bar = |name: &str, near: &Near| {
        if rows.len() > 1 {
            format!("{name}, {}", near.quantile)
        } else {
            near.quantile.clone()
        }
    };
    let mut names: Vec<&str> = Vec::new();
    for (_, stages, _) in near() {
        for stage in &stages.stages {
            if !names.contains(&stage.name.as_str()) {
                names.push(&stage.name);
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let mut table = Vec::new();
    for (name, stages, near) in near() {
        let mut line = |what: &str, us: f64, half: f64| {
            table.push(vec![
                name.clone(),
                near.quantile.clone(),
                count(near.count),
                what.to_owned(),
                unit.show_within(us, half),
            ]);
        };
        for (stage, us) in stages.stages.iter().zip(&near.stages_us) {
            line(&stage.name, *us, stage.error_mean_us);
        }
        line("residue", near.residue_us, 0.0);
        line("end to end", near.end_to_end_us, 0.0);
    }
    let mut traces = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let of = |stages: &Stages, near: &Near| {
            let at = stages.stages.iter().position(|stage| stage.name == *name)?;
            Some((
                near.stages_us.get(at).copied()?,
                stages.stages[at].error_mean_us,
            ))
        };
        let known: Vec<(String, f64, f64, u64)> = near()
            .filter_map(|(replica, stages, near)| {
                let (us, half) = of(stages, near)?;
                Some((bar(replica, near), us, half, near.count))
            })
            .collect();
        let text = known.iter().map(|(_, us, half, transactions)| {
            format!(
                "{name}: {}, mean of {} transactions",
                unit.with_within(*us, *half),
                count(*transactions)
            )
        });
        traces.push(json!({
            "type": "bar", "orientation": "h", "name": name,
            "y": known.iter().map(|(bar, ..)| bar).collect::<Vec<_>>(),
            "x": known.iter().map(|(_, us, ..)| us / unit.scale()).collect::<Vec<_>>(),
            "hovertext": text.collect::<Vec<_>>(), "hovertemplate": "%{hovertext}<extra>%{y}</extra>",
            "marker": {"color": colour(index)},
        }));
    }
    let mut figure = figure(
        "stages",
        traces,
        json!({"title": {"text": format!("time since the send ({})", unit.symbol())}}),
        // The first replica and its median on top.
        json!({"autorange": "reversed"}),
    );
    // Stages that are negative go to the other side.
    figure["layout"]["barmode"] = json!("relative");
    figure["layout"]["bargap"] = json!(0.35);
    figure["layout"]["legend"]["traceorder"] = json!("normal");
    Some(Picture {
        id: "stages",
        title: "Where the time goes: mean stages near p50, p90 and p99",
        note: "Each bar is the mean of the same transactions, those nearest to that quantile of the time from send to visible; percentiles of single stages would not add up.".to_owned(),
        figure,
        table: DataTable { header: ["series", "near", "transactions", "stage", unit.symbol()].map(str::to_owned).to_vec(), rows: table },
    })
}

fn sizes(document: &LagDocument) -> Option<Picture> {
    let sized: Vec<_> = document
        .results
        .iter()
        .filter(|row| row.size_bytes.is_some())
        .collect();
    if !document.results.iter().any(|row| row.size_bytes.is_none()) || sized.is_empty() {
        return None;
    }
    let unit = Unit::for_size(
        sized
            .iter()
            .filter_map(|row| row.from_send.mean_us)
            .fold(0.0, f64::max),
    );
    let mut replicas: Vec<&str> = sized.iter().map(|row| row.replica.as_str()).collect();
    replicas.dedup();
    let mut traces = Vec::new();
    let mut rows = Vec::new();
    let mut index = 0;
    for replica in replicas {
        let of_replica: Vec<_> = sized.iter().filter(|row| row.replica == replica).collect();
        for (what, pick) in [
            (
                "lag from send",
                (|row| &row.from_send) as fn(&LagRow) -> &Distribution,
            ),
            ("lag from ack", |row| &row.from_ack),
            ("insert", |row| &row.insert),
            ("retrieval", |row| &row.retrieval),
        ] {
            let mid = |row: &&&LagRow| pick(row).p50_us.or(pick(row).mean_us);
            let known: Vec<_> = of_replica.iter().filter(|row| mid(row).is_some()).collect();
            let of = |value: &dyn Fn(&Distribution) -> Option<f64>| {
                known
                    .iter()
                    .map(|row| value(pick(row)).unwrap_or_default() / unit.scale())
                    .collect::<Vec<f64>>()
            };
            let middle: Vec<f64> = known
                .iter()
                .map(|row| mid(row).unwrap_or_default() / unit.scale())
                .collect();
            let (low, high) = (
                of(&|distribution| distribution.min_us),
                of(&|distribution| distribution.p90_us.or(distribution.max_us)),
            );
            let bytes: Vec<u64> = known.iter().filter_map(|row| row.size_bytes).collect();
            rows.extend(known.iter().zip(&middle).zip(low.iter().zip(&high)).map(
                |((row, middle), (low, high))| {
                    let precision = if what.starts_with("lag") {
                        Precision::of_lag(row, pick(row))
                    } else {
                        Precision::exact(pick(row))
                    };
                    let show =
                        |value: &f64, half: f64| unit.show_within(value * unit.scale(), half);
                    vec![
                        format!("{replica}, {what}"),
                        row.size_bytes.map(count).unwrap_or_default(),
                        show(low, precision.single()),
                        show(middle, precision.quantile(0.5)),
                        show(high, precision.quantile(0.9)),
                    ]
                },
            ));
            traces.push(json!({
                "type": "scatter", "mode": "lines+markers", "name": format!("{replica}, {what}"), "x": bytes, "y": middle,
                "error_y": {
                    "type": "data", "symmetric": false, "thickness": 1,
                    "array": high.iter().zip(&middle).map(|(high, middle)| (high - middle).max(0.0)).collect::<Vec<_>>(),
                    "arrayminus": middle.iter().zip(&low).map(|(middle, low)| (middle - low).max(0.0)).collect::<Vec<_>>(),
                },
                "hovertemplate": format!("%{{x}} bytes: %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
                "line": {"color": colour(index)},
            }));
            index += 1;
        }
    }
    Some(Picture {
        id: "sizes",
        title: "Does size matter: the sweep",
        note: "Medians (means where there are fewer than 20 rows); the bars reach from the smallest to the 90th percentile (the largest where there are fewer than 100 rows).".to_owned(),
        figure: figure(
            "sizes",
            traces,
            json!({"title": {"text": "payload (bytes)"}, "rangemode": "tozero"}),
            json!({"title": {"text": unit.symbol()}, "rangemode": "tozero"}),
        ),
        table: DataTable {
            header: ["series", "bytes", "smallest", "middle", "high"].map(str::to_owned).to_vec(),
            rows,
        },
    })
}

/// Measured less injected, by method; the bars are the intervals.
pub(super) fn calibration(document: &CalibrateDocument) -> Picture {
    let mut series: Vec<(String, &str, Vec<&CalibrateRow>)> = Vec::new();
    for row in document
        .results
        .iter()
        .filter(|row| row.error_p50_us.is_some())
    {
        let name = format!("{} {}", row.replica, row.method);
        match series.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, _, rows)) => rows.push(row),
            None => series.push((name, &row.method, vec![row])),
        }
    }
    let traces = series.iter().enumerate().map(|(index, (name, _, rows))| {
        let error = |row: &&CalibrateRow| row.error_p50_us.unwrap_or_default();
        let half = |row: &&CalibrateRow| row.error_p50_ci.map_or(0.0, |[low, high]| (high - low) / 2.0);
        json!({
            "type": "scatter", "mode": "lines+markers", "name": name,
            "x": rows.iter().map(|row| time(row.injected_us)).collect::<Vec<_>>(),
            "y": rows.iter().map(error).collect::<Vec<_>>(),
            "error_y": {"type": "data", "thickness": 1, "array": rows.iter().map(half).collect::<Vec<_>>()},
            "hovertemplate": "%{x}: %{y:.4~g} µs<extra>%{fullData.name}</extra>",
            "line": {"color": colour(index)},
        })
    });
    let shown =
        |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| Unit::Micro.show(us));
    let rows = document.results.iter().map(|row| {
        vec![
            row.replica.clone(),
            row.method.clone(),
            time(row.injected_us),
            shown(row.error_p50_us),
            shown(row.error_p99_us),
        ]
    });
    Picture {
        id: "calibration",
        title: "Measured less injected, at p50",
        note: "Zero is the truth. The bars are 95 % intervals.".to_owned(),
        figure: figure(
            "calibration",
            traces.collect(),
            json!({"title": {"text": "injected delay"}, "type": "category"}),
            json!({"title": {"text": "error of p50 (µs)"}, "zeroline": true}),
        ),
        table: DataTable {
            header: [
                "replica",
                "method",
                "injected",
                "error p50 (µs)",
                "error p99 (µs)",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: rows.collect(),
        },
    }
}

/// One figure of every crash, a column of points for each way of replicating.
fn per_crash(
    document: &LossDocument,
    pick: impl Fn(&CrashRecord) -> f64,
    hover: &str,
) -> Vec<Value> {
    let of = |shape: &str| {
        document
            .crashes
            .iter()
            .filter(|crash| crash.shape == shape)
            .collect::<Vec<_>>()
    };
    let traces = document.results.iter().enumerate().map(|(index, row)| {
        let crashes = of(&row.shape);
        json!({
            "type": "box", "name": row.shape, "boxpoints": "all", "jitter": 0.5, "pointpos": 0,
            "y": crashes.iter().map(|crash| pick(crash)).collect::<Vec<_>>(),
            "text": crashes.iter().map(|crash| format!("crash {}", crash.number)).collect::<Vec<_>>(),
            "hovertemplate": format!("%{{text}}: {hover}<extra>%{{fullData.name}}</extra>"),
            "marker": {"color": colour(index), "size": 5}, "line": {"width": 1}, "fillcolor": "rgba(0,0,0,0)", "showlegend": false,
        })
    });
    traces.collect()
}

/// Acknowledged transactions that each crash took.
pub(super) fn losses(document: &LossDocument) -> Picture {
    let mut traces = per_crash(document, |crash| crash.missing as f64, "%{y:,} missing");
    for (trace, row) in traces.iter_mut().zip(&document.results) {
        trace["legendgroup"] = json!(row.shape);
    }
    let rows = document.crashes.iter().map(|crash| {
        vec![
            crash.shape.clone(),
            count(crash.number),
            count(crash.acknowledged),
            count(crash.missing),
            count(crash.seen_then_lost),
            count(crash.unacknowledged_present),
        ]
    });
    Picture {
        id: "losses",
        title: "Acknowledged transactions missing after each crash",
        note: "A point for each crash; the box spans the quartiles.".to_owned(),
        figure: figure(
            "losses",
            traces,
            json!({"type": "category"}),
            json!({"title": {"text": "acknowledged transactions missing"}, "rangemode": "tozero"}),
        ),
        table: DataTable {
            header: [
                "what was crashed",
                "crash",
                "acknowledged",
                "missing",
                "seen, then lost",
                "never acknowledged, present",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: rows.collect(),
        },
    }
}

/// How long each crash kept writes out.
pub(super) fn recoveries(document: &LossDocument) -> Picture {
    let unit = Unit::for_size(
        document
            .crashes
            .iter()
            .map(|crash| crash.recovery_us)
            .fold(0.0, f64::max),
    );
    let hover = format!("%{{y:.4~g}} {}", unit.symbol());
    let traces = per_crash(document, |crash| crash.recovery_us / unit.scale(), &hover);
    let shown = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), |us| unit.show(us));
    let rows = document.crashes.iter().map(|crash| {
        vec![
            crash.shape.clone(),
            count(crash.number),
            crash.promoted.clone(),
            shown(crash.drained_us),
            shown(Some(crash.promoted_us)),
            shown(Some(crash.recovery_us)),
        ]
    });
    Picture {
        id: "recoveries",
        title: "From the end of the primary to the first write of its successor",
        note: "Without the time for noticing, except where a cluster notices by itself.".to_owned(),
        figure: figure(
            "recoveries",
            traces,
            json!({"type": "category"}),
            json!({"title": {"text": format!("recovery ({})", unit.symbol())}, "rangemode": "tozero"}),
        ),
        table: DataTable {
            header: [
                "what was crashed",
                "crash",
                "took over",
                "applied after",
                "writable after",
                "first write after",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: rows.collect(),
        },
    }
}

/// What a crash would have taken, over the course of the run; nothing where the mode makes it nought.
pub(super) fn exposures(document: &ExposureDocument) -> Vec<Picture> {
    let windows = &document.windows;
    if windows.is_empty() {
        return Vec::new();
    }
    let x: Vec<f64> = windows.iter().map(|window| window.end_us / 1e6).collect();
    let line = |name: &str, y: Vec<f64>, index: usize, dash: &str| {
        json!({
            "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y,
            "hovertemplate": "until %{x:.1f} s: %{y:,.4~g}<extra>%{fullData.name}</extra>",
            "line": {"color": colour(index), "dash": dash},
        })
    };
    let table = || DataTable {
        header: [
            "until (s)",
            "looks",
            "committed",
            "transactions, mean",
            "most",
            "bytes, most",
            "age, most (ms)",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: windows
            .iter()
            .map(|window| {
                vec![
                    format!("{:.1}", window.end_us / 1e6),
                    count(window.looks),
                    count(window.committed),
                    format!("{:.2}", window.transactions_mean),
                    count(window.transactions_max),
                    count(window.bytes_max),
                    Unit::Milli.show(window.age_max_us),
                ]
            })
            .collect(),
    };
    let time = || json!({"title": {"text": "time since the beginning (s)"}});
    vec![
        Picture {
            id: "exposed",
            title: "Transactions that no replica had received",
            note: "Of each stretch the mean and the largest.".to_owned(),
            figure: figure(
                "exposed",
                vec![
                    line(
                        "mean",
                        windows
                            .iter()
                            .map(|window| window.transactions_mean)
                            .collect(),
                        0,
                        "solid",
                    ),
                    line(
                        "most",
                        windows
                            .iter()
                            .map(|window| window.transactions_max as f64)
                            .collect(),
                        1,
                        "dot",
                    ),
                ],
                time(),
                json!({"title": {"text": "transactions"}, "rangemode": "tozero"}),
            ),
            table: table(),
        },
        Picture {
            id: "age",
            title: "How old the oldest of them was",
            note: "The largest of each stretch.".to_owned(),
            figure: figure(
                "age",
                vec![line(
                    "oldest",
                    windows
                        .iter()
                        .map(|window| window.age_max_us / 1e3)
                        .collect(),
                    2,
                    "solid",
                )],
                time(),
                json!({"title": {"text": "age (ms)"}, "rangemode": "tozero"}),
            ),
            table: table(),
        },
    ]
}

/// Windows by replica, in order.
fn by_replica(document: &TapDocument) -> BTreeMap<&str, Vec<&TapWindow>> {
    let mut windows: BTreeMap<&str, Vec<&TapWindow>> = BTreeMap::new();
    for window in &document.windows {
        windows.entry(&window.replica).or_default().push(window);
    }
    windows
}

/// Operations over the course of a load, their times, and, for an open loop, what waits.
pub(super) fn load(document: &LoadDocument) -> Vec<Picture> {
    let mut pictures = vec![load_course(document, false), load_times(document)];
    if document
        .results
        .iter()
        .any(|row| !row.load.waiting_per_second.is_empty())
    {
        pictures.push(load_course(document, true));
    }
    pictures
}

fn load_course(document: &LoadDocument, waiting: bool) -> Picture {
    let (mut traces, mut rows) = (Vec::new(), Vec::new());
    for (index, row) in document.results.iter().enumerate() {
        let what = loading::what(&row.load);
        let counts = if waiting {
            &row.load.waiting_per_second
        } else {
            &row.load.per_second
        };
        rows.extend(
            counts.iter().enumerate().map(|(second, number)| {
                vec![what.clone(), (second + 1).to_string(), count(*number)]
            }),
        );
        traces.push(json!({
            // A line of a few seconds is hardly one, that of a single second none at all.
            "type": "scatter", "mode": if counts.len() < 60 { "lines+markers" } else { "lines" }, "name": what,
            "x": (1..=counts.len()).collect::<Vec<_>>(), "y": counts,
            "hovertemplate": "second %{x}: %{y:.0f}<extra>%{fullData.name}</extra>", "line": {"color": colour(index)},
        }));
    }
    let (id, title, note, what) = if waiting {
        (
            "waiting",
            "What waits: operations that are due and not begun",
            "A line that rises is a rate that the servers, or the client, cannot hold.",
            "waiting",
        )
    } else {
        (
            "throughput",
            "Operations in each second",
            "Of the counted time; several numbers of threads ran one after another and are drawn over one another.",
            "operations",
        )
    };
    Picture {
        id,
        title,
        note: note.to_owned(),
        figure: figure(
            id,
            traces,
            json!({"title": {"text": "second of the counted time"}}),
            json!({"title": {"text": what}, "rangemode": "tozero"}),
        ),
        table: DataTable {
            header: vec!["load".to_owned(), "second".to_owned(), what.to_owned()],
            rows,
        },
    }
}

fn load_times(document: &LoadDocument) -> Picture {
    let typical = document
        .results
        .iter()
        .filter_map(|row| row.load.latency.p50_us)
        .fold(0.0, f64::max);
    let unit = Unit::for_size(typical);
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| unit.show(us));
    let (mut traces, mut rows) = (Vec::new(), Vec::new());
    for (index, row) in document.results.iter().enumerate() {
        let what = loading::what(&row.load);
        for (of, times, dash) in [
            ("response", &row.load.latency, "solid"),
            ("service", &row.load.service, "dot"),
        ] {
            let points = [
                ("p50", times.p50_us),
                ("p90", times.p90_us),
                ("p95", times.p95_us),
                ("p99", times.p99_us),
                ("p99.9", times.p999_us),
            ];
            traces.push(json!({
                "type": "scatter", "mode": "lines+markers", "name": format!("{what}, {of}"),
                "x": points.map(|(name, _)| name), "y": points.map(|(_, us)| us.map(|us| us / unit.scale())),
                "hovertemplate": format!("%{{x}}: %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
                "line": {"color": colour(index), "dash": dash},
            }));
            let mut line = vec![what.clone(), of.to_owned()];
            line.extend(points.map(|(_, us)| shown(us)));
            rows.push(line);
        }
    }
    let header = ["load", "time", "p50", "p90", "p95", "p99", "p99.9"];
    Picture {
        id: "times",
        title: "How long an operation takes",
        note: format!(
            "In {}; response from the intended start, service from the actual one. The axis is logarithmic.",
            unit.symbol()
        ),
        figure: figure(
            "times",
            traces,
            json!({"title": {"text": "quantile"}, "type": "category"}),
            json!({"title": {"text": format!("time ({})", unit.symbol())}, "type": "log"}),
        ),
        table: DataTable {
            header: header.map(str::to_owned).to_vec(),
            rows,
        },
    }
}

/// The lag of the real traffic over the course of the run.
pub(super) fn tap_course(document: &TapDocument) -> Picture {
    let largest = document
        .windows
        .iter()
        .filter_map(|window| window.p50_us.or(window.max_us))
        .fold(0.0, f64::max);
    let unit = Unit::for_size(largest);
    let mut traces = Vec::new();
    for (index, (name, windows)) in by_replica(document).into_iter().enumerate() {
        type Pick = fn(&TapWindow) -> Option<f64>;
        let picks: [(&str, Pick, &str); 4] = [
            ("p50", |window| window.p50_us, "solid"),
            ("p99", |window| window.p99_us, "dash"),
            ("max", |window| window.max_us, "dot"),
            ("oldest awaited", |window| window.behind_us, "dashdot"),
        ];
        for (what, pick, dash) in picks {
            traces.push(json!({
                "type": "scatter", "mode": "lines+markers", "name": format!("{name} {what}"),
                "visible": if what == "oldest awaited" { json!("legendonly") } else { json!(true) },
                "x": windows.iter().map(|window| window.end_us / 1e6).collect::<Vec<_>>(),
                "y": windows.iter().map(|window| pick(window).map(|us| us / unit.scale())).collect::<Vec<_>>(),
                "hovertemplate": format!("until %{{x:.1f}} s: %{{y:.4~g}} {}<extra>%{{fullData.name}}</extra>", unit.symbol()),
                "line": {"color": colour(index), "dash": dash}, "marker": {"size": 3}, "connectgaps": false,
            }));
        }
    }
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| unit.show(us));
    let rows = document.windows.iter().map(|window| {
        let mut row = vec![
            window.replica.clone(),
            format!("{:.1}", window.end_us / 1e6),
            count(window.transactions),
            count(window.matched),
        ];
        row.extend(
            [
                window.p50_us,
                window.p99_us,
                window.max_us,
                window.behind_us,
            ]
            .map(shown),
        );
        row.push(count(window.pending));
        row
    });
    Picture {
        id: "course",
        title: "How late over time: lag of what arrived in each stretch",
        note: "A stretch has a median from 20 transactions on and a 99th percentile from 1,000 on. A replica that stands still shows nothing, \
               and what it then shows is late: see the oldest transaction that is awaited."
            .to_owned(),
        figure: figure(
            "course",
            traces,
            json!({"title": {"text": "time since the beginning (s)"}}),
            json!({"title": {"text": format!("lag ({})", unit.symbol())}}),
        ),
        table: DataTable {
            header: ["replica", "until (s)", "transactions", "matched"]
                .map(str::to_owned)
                .into_iter()
                .chain(["p50", "p99", "max", "oldest awaited"].map(|name| format!("{name} ({})", unit.symbol())))
                .chain(["awaited".to_owned()])
                .collect(),
            rows: rows.collect(),
        },
    }
}

/// How much there was to replicate.
pub(super) fn tap_rate(document: &TapDocument) -> Picture {
    let windows = by_replica(document);
    let first: Vec<&TapWindow> = windows.values().next().cloned().unwrap_or_default();
    let seconds = |window: &TapWindow| ((window.end_us - window.start_us) / 1e6).max(1e-6);
    let mut traces = vec![json!({
        "type": "scatter", "mode": "lines", "name": "from the primary",
        "x": first.iter().map(|window| window.end_us / 1e6).collect::<Vec<_>>(),
        "y": first.iter().map(|window| window.transactions as f64 / seconds(window)).collect::<Vec<_>>(),
        "hovertemplate": "until %{x:.1f} s: %{y:.0f} per s<extra>%{fullData.name}</extra>", "line": {"color": colour(0)},
    })];
    for (index, (name, windows)) in windows
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .enumerate()
    {
        traces.push(json!({
            "type": "scatter", "mode": "lines", "name": format!("from {name}"),
            "x": windows.iter().map(|window| window.end_us / 1e6).collect::<Vec<_>>(),
            "y": windows.iter().map(|window| window.matched as f64 / seconds(window)).collect::<Vec<_>>(),
            "hovertemplate": "until %{x:.1f} s: %{y:.0f} per s<extra>%{fullData.name}</extra>",
            "line": {"color": colour(index + 1), "dash": "dot"},
        }));
    }
    let rows = first.iter().map(|window| {
        vec![
            format!("{:.1}", window.end_us / 1e6),
            format!("{:.0}", window.transactions as f64 / seconds(window)),
            count(window.bytes),
        ]
    });
    Picture {
        id: "rate",
        title: "How much there was to replicate",
        note: String::new(),
        figure: figure(
            "rate",
            traces,
            json!({"title": {"text": "time since the beginning (s)"}}),
            json!({"title": {"text": "transactions per second"}, "rangemode": "tozero"}),
        ),
        table: DataTable {
            header: ["until (s)", "transactions per second", "bytes"]
                .map(str::to_owned)
                .to_vec(),
            rows: rows.collect(),
        },
    }
}
