//! The figures of a run, each with what resampling makes of it: for every command, which there are and what stands
//! behind them.

use std::{collections::BTreeMap, path::Path};

use replimeter_model::{
    calibrate::CalibrateDocument,
    compare::{Better, Dimension, Quantity},
    exposure::ExposureDocument,
    load::{LoadDocument, LoadRecord, Rate},
    loss::LossDocument,
    plan::Pace,
    record::{Distribution, LagDocument},
    stale::StaleDocument,
    tap::TapDocument,
    time::Nanos,
};
use replimeter_report::{
    reading::{self, Column},
    samples::SamplesError,
};
use replimeter_stats::{
    compare::{Course, Drawn, of_blocks, of_rates_in_time, of_units},
    share::{Share, wilson},
};
use serde::de::DeserializeOwned;

use super::sides::Run;
use crate::{failure::Failure, run_dir::SAMPLES};

/// A figure of a run.
pub(super) struct Figure {
    /// `lag.p99`
    pub(super) name: String,
    pub(super) of: Vec<Dimension>,
    pub(super) unit: Quantity,
    pub(super) better: Better,
    /// Whether it may be 0 or below without being wrong, so that only its difference is judged.
    pub(super) by_difference: bool,
    pub(super) drawn: Drawn,
}

/// All figures of a run, in the order in which they are shown.
pub(super) fn of(run: &Run) -> Result<Vec<Figure>, Failure> {
    let samples = run.dir.join(SAMPLES);
    let figures = match run.command.as_str() {
        "lag" => lag(&record(run)?, &samples),
        "stale" => stale(&record(run)?, &samples),
        "cost" => cost(&samples),
        "scale" => scale(&samples),
        "load" => Ok(load(&record::<LoadDocument>(run)?)),
        "loss" => Ok(loss(&record(run)?)),
        "exposure" => exposure(&record(run)?, &samples),
        "tap" => tap(&record(run)?, &samples),
        "calibrate" => Ok(calibrate(&record(run)?)),
        _ => Ok(Vec::new()),
    };
    let mut figures = figures.map_err(|error| {
        Failure::failed(
            format!("the run {} cannot be compared: {error}", run.dir.display()),
            "is the file whole? a run that was killed has none; plan.toml can be run again with `replimeter run`",
        )
    })?;
    figures.retain(|figure| figure.drawn.samples > 0 && figure.drawn.value.is_finite());
    if figures.is_empty() {
        return Err(Failure::usage(
            format!(
                "the run {} cannot be compared: it has no samples that count",
                run.dir.display()
            ),
            "measure longer, and compare that run; were its samples replaced by another's?",
        ));
    }
    Ok(figures)
}

fn record<T: DeserializeOwned>(run: &Run) -> Result<T, Failure> {
    T::deserialize(&run.record).map_err(|error| {
        Failure::failed(
            format!("cannot use the record of {}: {error}", run.dir.display()),
            "was it changed by hand? plan.toml in it can be run again with `replimeter run`",
        )
    })
}

fn dimensions(pairs: &[(&str, &str)]) -> Vec<Dimension> {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    given
        .map(|(name, value)| Dimension {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        })
        .collect()
}

/// Gathers the figures of one thing.
struct Gather<'a> {
    figures: &'a mut Vec<Figure>,
    of: Vec<Dimension>,
}

/// Quantiles by their names.
const QUANTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p999", 0.999),
];

impl Gather<'_> {
    fn add(
        &mut self,
        name: impl Into<String>,
        unit: Quantity,
        better: Better,
        drawn: Option<Drawn>,
    ) {
        let by_difference = unit == Quantity::Percent;
        let Some(drawn) = drawn else { return };
        self.figures.push(Figure {
            name: name.into(),
            of: self.of.clone(),
            unit,
            better,
            by_difference,
            drawn,
        });
    }

    /// Figures of samples in the order of time: `mean`, `p50`, …, `max`.
    fn course(&mut self, prefix: &str, unit: Quantity, course: &Course, which: &[&str]) {
        for name in which {
            let drawn = match *name {
                "mean" => course.mean(),
                "max" => course
                    .max()
                    .map(|max| Drawn::bare(max, course.count() as u64)),
                quantile => {
                    let p = QUANTILES
                        .iter()
                        .find(|(name, _)| *name == quantile)
                        .map(|(_, p)| *p);
                    p.and_then(|p| course.quantile(p))
                }
            };
            self.add(format!("{prefix}.{name}"), unit, Better::Lower, drawn);
        }
    }

    /// Figures of a distribution that a record states, with its own intervals where it has some.
    fn stated(&mut self, prefix: &str, distribution: &Distribution, which: &[&str]) {
        let ci = distribution.ci95.as_ref();
        let count = distribution.count;
        for name in which {
            let (value, ends) = match *name {
                "mean" => (distribution.mean_us, mean_interval(distribution)),
                "p50" => (distribution.p50_us, ci.and_then(|ci| ci.p50_us)),
                "p90" => (distribution.p90_us, ci.and_then(|ci| ci.p90_us)),
                "p95" => (distribution.p95_us, ci.and_then(|ci| ci.p95_us)),
                "p99" => (distribution.p99_us, ci.and_then(|ci| ci.p99_us)),
                "p999" => (distribution.p999_us, ci.and_then(|ci| ci.p999_us)),
                _ => (distribution.max_us, None),
            };
            let drawn = value.map(|value| Drawn::of_interval(value, ends, count));
            self.add(
                format!("{prefix}.{name}"),
                Quantity::Us,
                Better::Lower,
                drawn,
            );
        }
    }

    fn rate(&mut self, name: &str, rate: &Rate, better: Better, samples: u64) {
        let drawn = rate.mean.map(|mean| {
            Drawn::of_interval(
                mean,
                rate.low.zip(rate.high).map(|(low, high)| [low, high]),
                samples,
            )
        });
        self.add(name, Quantity::PerS, better, drawn);
    }
}

/// The 95 % interval of a mean, widened for the dependence that the median's interval was; none where that has none.
fn mean_interval(distribution: &Distribution) -> Option<[f64; 2]> {
    let inflation = distribution.ci95.as_ref()?.inflation?;
    let (mean, stdev) = (distribution.mean_us?, distribution.stdev_us?);
    let half = 1.96 * stdev * (inflation / distribution.count.max(1) as f64).sqrt();
    Some([mean - half, mean + half])
}

/// A share of trials in the order of time, in percent, with the interval of Wilson for as many trials as count as
/// independent.
fn share(trials: &[(f64, bool)]) -> Option<Drawn> {
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

/// One replica's rows by one method.
#[derive(Default)]
struct LagSubject {
    /// When each was sent, for the order.
    send: Vec<f64>,
    ack: Vec<f64>,
    from_send: Vec<f64>,
    intended: Vec<f64>,
    insert: Vec<f64>,
    primary: Vec<f64>,
}

impl LagSubject {
    fn extend(&mut self, other: &Self) {
        self.send.extend(&other.send);
        self.ack.extend(&other.ack);
        self.from_send.extend(&other.from_send);
        self.intended.extend(&other.intended);
        self.insert.extend(&other.insert);
        self.primary.extend(&other.primary);
    }

    /// Places of the rows in the order of time.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.send.len()).collect();
        if !self.send.is_sorted() {
            order.sort_by(|one, other| self.send[*one].total_cmp(&self.send[*other]));
        }
        order
    }

    /// What the replica showed; `open` is whether rows had a time at which they were to be sent.
    fn figures(&self, open: bool, gather: &mut Gather<'_>) {
        let order = self.order();
        let course = |values: &[f64]| Course::new(order.iter().map(|index| values[*index]));
        gather.course(
            "lag",
            Quantity::Us,
            &course(&self.ack),
            &["mean", "p50", "p90", "p95", "p99", "p999", "max"],
        );
        gather.course(
            "lag.from_send",
            Quantity::Us,
            &course(&self.from_send),
            &["p50", "p99"],
        );
        // In a closed loop it is the time from the send again.
        if open {
            gather.course(
                "lag.from_intended",
                Quantity::Us,
                &course(&self.intended),
                &["p50", "p99"],
            );
        }
        gather.course(
            "lag.from_primary",
            Quantity::Us,
            &course(&self.primary),
            &["p50", "p99"],
        );
        let trials: Vec<(f64, bool)> = order
            .iter()
            .map(|index| (self.send[*index] / 1e3, self.ack[*index].is_nan()))
            .collect();
        gather.add(
            "lag.missing",
            Quantity::Percent,
            Better::Lower,
            share(&trials),
        );
    }

    /// What the writes took; every replica and method has the same ones.
    fn writes(&self, gather: &mut Gather<'_>) {
        let insert = Course::new(self.order().into_iter().map(|index| self.insert[index]));
        gather.course("lag.insert", Quantity::Us, &insert, &["mean", "p50", "p99"]);
    }
}

fn lag(document: &LagDocument, samples: &Path) -> Result<Vec<Figure>, SamplesError> {
    let names = [
        "phase",
        "shape",
        "replica",
        "method",
        "size_bytes",
        "send_ns",
        "from_ack_us",
        "from_send_us",
        "from_intended_us",
        "insert_us",
        "visible_until_ns",
        "primary_ns",
    ];
    let mut subjects: BTreeMap<[String; 3], BTreeMap<u64, LagSubject>> = BTreeMap::new();
    reading::read(samples, &names, |columns, rows| {
        let mut begin = 0;
        while begin < rows {
            // Neighbours mostly belong to the same: it is looked up once for all of them.
            let key = |row: usize| [0, 1, 2, 3].map(|column| columns[column].word(row));
            let of = key(begin);
            let size = columns[4].number(begin);
            let end = (begin + 1..rows)
                .find(|row| key(*row) != of || columns[4].number(*row) != size)
                .unwrap_or(rows);
            if of[0] == "measure" {
                let of = [of[1], of[2], of[3]].map(str::to_owned);
                let subject = subjects
                    .entry(of)
                    .or_default()
                    .entry(size as u64)
                    .or_default();
                for row in begin..end {
                    let number = |column: usize| columns[column].number(row);
                    subject.send.push(number(5));
                    subject.ack.push(number(6));
                    subject.from_send.push(number(7));
                    subject.intended.push(number(8));
                    subject.insert.push(number(9));
                    subject.primary.push((number(10) - number(11)) / 1e3);
                }
            }
            begin = end;
        }
    })?;
    let mut figures = Vec::new();
    let open = matches!(document.settings.pace, Some(Pace::Every(_)));
    let mut written: Vec<String> = Vec::new();
    for ([shape, replica, method], mut sizes) in subjects {
        let first = !written.contains(&shape);
        let pairs = [
            ("shape", shape.as_str()),
            ("replica", replica.as_str()),
            ("method", method.as_str()),
        ];
        let mut all = LagSubject::default();
        if sizes.len() > 1 {
            sizes.values().for_each(|subject| all.extend(subject));
        } else if let Some((_, only)) = sizes.pop_first() {
            all = only;
        }
        all.figures(
            open,
            &mut Gather {
                figures: &mut figures,
                of: dimensions(&pairs),
            },
        );
        if first {
            all.writes(&mut Gather {
                figures: &mut figures,
                of: dimensions(&pairs[..1]),
            });
        }
        for (size, subject) in &sizes {
            let size = size.to_string();
            let of = dimensions(&[&pairs[..], &[("size", size.as_str())]].concat());
            subject.figures(
                open,
                &mut Gather {
                    figures: &mut figures,
                    of,
                },
            );
            if first {
                let of = dimensions(&[pairs[0], ("size", size.as_str())]);
                subject.writes(&mut Gather {
                    figures: &mut figures,
                    of,
                });
            }
        }
        if first {
            written.push(shape);
        }
    }
    for load in &document.load {
        loaded("lag.load", load, &mut figures);
    }
    for row in &document.backlog {
        let workers = row
            .workers
            .map_or_else(String::new, |workers| workers.to_string());
        let of = dimensions(&[
            ("shape", &row.shape),
            ("replica", &row.replica),
            ("workers", &workers),
        ]);
        let mut gather = Gather {
            figures: &mut figures,
            of,
        };
        let readings = row.windows.len() as u64;
        gather.rate(
            "lag.backlog.sustained",
            &row.sustained_per_s,
            Better::Higher,
            readings,
        );
        gather.rate(
            "lag.backlog.catch_up",
            &row.catch_up_per_s,
            Better::Higher,
            readings,
        );
        let after = row.caught_up_after_us.map(|us| Drawn::bare(us, 1));
        gather.add(
            "lag.backlog.caught_up_after",
            Quantity::Us,
            Better::Lower,
            after,
        );
    }
    Ok(figures)
}

/// A load's throughput and times.
fn loaded(prefix: &str, load: &LoadRecord, figures: &mut Vec<Figure>) {
    let threads = load.threads.to_string();
    let of = dimensions(&[
        ("shape", &load.shape),
        ("workload", &load.workload),
        ("threads", &threads),
        ("node", &load.node),
    ]);
    let mut gather = Gather { figures, of };
    gather.rate(
        &format!("{prefix}.throughput"),
        &load.throughput,
        Better::Higher,
        load.passes,
    );
    gather.stated(
        &format!("{prefix}.latency"),
        &load.latency,
        &["mean", "p50", "p95", "p99", "max"],
    );
}

fn load(document: &LoadDocument) -> Vec<Figure> {
    let mut figures = Vec::new();
    for row in &document.results {
        loaded("load", &row.load, &mut figures);
        let cpu: Option<f64> = row.servers.iter().map(|server| server.cpu_us_per_op).sum();
        if let Some(cpu) = cpu.filter(|_| !row.servers.is_empty()) {
            let of = figures
                .last()
                .map(|last| last.of.clone())
                .unwrap_or_default();
            let mut gather = Gather {
                figures: &mut figures,
                of,
            };
            gather.add(
                "load.cpu_per_op",
                Quantity::Us,
                Better::Lower,
                Some(Drawn::bare(cpu, row.load.passes)),
            );
        }
    }
    figures
}

/// One reader in one case.
#[derive(Default)]
struct StaleSubject {
    trials: Vec<(f64, bool)>,
    back: Vec<(f64, bool)>,
    delay: Vec<f64>,
    read: Vec<f64>,
}

fn stale(document: &StaleDocument, samples: &Path) -> Result<Vec<Figure>, SamplesError> {
    let names = [
        "shape",
        "load",
        "sync_reads",
        "pool",
        "reader",
        "phase",
        "send_us",
        "ack_us",
        "begin_us",
        "end_us",
        "verdict",
        "shown_us",
        "went_back",
    ];
    let mut readers: BTreeMap<[String; 6], StaleSubject> = BTreeMap::new();
    // Writes are the same for every reader: of each case they are taken once.
    let mut writes: BTreeMap<[String; 5], (f64, Vec<f64>)> = BTreeMap::new();
    reading::read(samples, &names, |columns, rows| {
        for row in 0..rows {
            let word = |column: usize| columns[column].word(row);
            let number = |column: usize| columns[column].number(row);
            let judged = match word(5) {
                "at-once" => "rounds",
                "judged" => "load",
                _ => continue,
            };
            let case = [word(0), word(1), word(2), word(3), judged];
            let key = [word(0), word(1), word(2), word(3), judged, word(4)].map(str::to_owned);
            let subject = readers.entry(key).or_default();
            let verdict = word(10);
            if matches!(verdict, "fresh" | "stale") {
                subject.trials.push((number(8), verdict == "stale"));
                subject.back.push((number(8), number(12) > 0.0));
                subject.read.push(number(9) - number(8));
            }
            if verdict == "stale" {
                subject.delay.push(number(11) - number(7));
            }
            let (last, taken) = writes.entry(case.map(str::to_owned)).or_default();
            if *last != number(6) {
                *last = number(6);
                taken.push(number(7) - number(6));
            }
        }
    })?;
    let mut figures = Vec::new();
    let case = |[shape, load, sync, pool, judged]: [&str; 5]| {
        dimensions(&[
            ("shape", shape),
            ("load", load),
            ("sync_reads", sync),
            ("pool", pool),
            ("judged", judged),
        ])
    };
    for ([shape, load, sync, pool, judged, reader], subject) in &readers {
        let mut of = case([shape, load, sync, pool, judged]);
        of.extend(dimensions(&[("reader", reader)]));
        let mut gather = Gather {
            figures: &mut figures,
            of,
        };
        gather.add(
            "stale.percent",
            Quantity::Percent,
            Better::Lower,
            share(&subject.trials),
        );
        gather.add(
            "stale.monotonic_percent",
            Quantity::Percent,
            Better::Lower,
            share(&subject.back),
        );
        let delay = Course::new(subject.delay.iter().copied());
        gather.course(
            "stale.delay",
            Quantity::Us,
            &delay,
            &["mean", "p50", "p99", "max"],
        );
        let read = Course::new(subject.read.iter().copied());
        gather.course("stale.read", Quantity::Us, &read, &["p50", "p99"]);
        let row = document.results.iter().find(|row| {
            judged == "rounds"
                && row.judged == "rounds"
                && [
                    &row.shape,
                    &row.load,
                    &row.sync_reads,
                    &row.pool,
                    &row.reader,
                ] == [shape, load, sync, pool, reader]
        });
        if let Some(after) = row.map(|row| &row.fresh_after_us) {
            for (name, value, ends) in [
                ("p99", after.p99, after.p99_ci),
                ("p999", after.p999, after.p999_ci),
            ] {
                let drawn =
                    value.map(|value| Drawn::of_interval(value, ends, subject.trials.len() as u64));
                gather.add(
                    format!("stale.fresh_after.{name}"),
                    Quantity::Us,
                    Better::Lower,
                    drawn,
                );
                // It may be 0: everything is fresh at once.
                if let Some(last) = gather
                    .figures
                    .last_mut()
                    .filter(|last| last.name.starts_with("stale.fresh_after"))
                {
                    last.by_difference = true;
                }
            }
        }
    }
    for ([shape, load, sync, pool, judged], (_, taken)) in &writes {
        let mut gather = Gather {
            figures: &mut figures,
            of: case([shape, load, sync, pool, judged]),
        };
        gather.course(
            "stale.write",
            Quantity::Us,
            &Course::new(taken.iter().copied()),
            &["p50", "p99"],
        );
    }
    Ok(figures)
}

/// Values of blocks, by the start of servers that they belong to.
#[derive(Default)]
struct Starts(BTreeMap<u64, Vec<f64>>);

impl Starts {
    fn push(&mut self, start: f64, value: f64) {
        if value.is_finite() {
            self.0.entry(start as u64).or_default().push(value);
        }
    }

    /// Starts differ more than the blocks of one do: with one start there is no interval.
    fn drawn(&self) -> Option<Drawn> {
        let units: Vec<Drawn> = self
            .0
            .values()
            .filter_map(|blocks| of_blocks(blocks))
            .collect();
        match &units[..] {
            [only] => Some(Drawn::bare(only.value, only.samples)),
            units => of_units(units),
        }
    }
}

/// The order in which a command's figures of blocks are shown, with their unit and which way is better.
type Kind = (&'static str, Quantity, Better);

fn of_starts(kinds: &[Kind], subjects: BTreeMap<Vec<Dimension>, Vec<Starts>>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (of, starts) in subjects {
        let mut gather = Gather {
            figures: &mut figures,
            of,
        };
        for ((name, unit, better), starts) in kinds.iter().zip(&starts) {
            gather.add(*name, *unit, *better, starts.drawn());
        }
    }
    figures
}

fn empty(kinds: &[Kind]) -> Vec<Starts> {
    kinds.iter().map(|_| Starts::default()).collect()
}

/// A number as a dimension's value; empty for none.
fn digits(number: f64) -> String {
    if number.is_nan() {
        String::new()
    } else {
        number.to_string()
    }
}

fn cost(samples: &Path) -> Result<Vec<Figure>, SamplesError> {
    const KINDS: [Kind; 7] = [
        ("cost.throughput", Quantity::PerS, Better::Higher),
        ("cost.latency.mean", Quantity::Us, Better::Lower),
        ("cost.latency.p50", Quantity::Us, Better::Lower),
        ("cost.latency.p95", Quantity::Us, Better::Lower),
        ("cost.latency.p99", Quantity::Us, Better::Lower),
        ("cost.cpu_per_op.primary", Quantity::Us, Better::Lower),
        ("cost.cpu_per_op.all", Quantity::Us, Better::Lower),
    ];
    let names = [
        "engine",
        "mode",
        "wait_point",
        "replicas",
        "threads",
        "link_delay_us",
        "void",
        "round",
        "counted_us",
        "operations",
        "mean_us",
        "p50_us",
        "p95_us",
        "p99_us",
        "primary_cpu_us_per_op",
        "all_cpu_us_per_op",
    ];
    let mut subjects: BTreeMap<Vec<Dimension>, Vec<Starts>> = BTreeMap::new();
    reading::read(samples, &names, |columns, rows| {
        for row in 0..rows {
            let word = |column: usize| columns[column].word(row);
            let number = |column: usize| columns[column].number(row);
            if !word(6).is_empty() {
                continue;
            }
            let of = dimensions(&[
                ("engine", word(0)),
                ("mode", word(1)),
                ("wait_point", word(2)),
                ("replicas", &digits(number(3))),
                ("threads", &digits(number(4))),
                ("link_delay_us", &digits(number(5))),
            ]);
            let starts = subjects.entry(of).or_insert_with(|| empty(&KINDS));
            let values = std::iter::once(number(9) / number(8) * 1e6).chain((10..16).map(number));
            values
                .zip(starts)
                .for_each(|(value, starts)| starts.push(number(7), value));
        }
    })?;
    Ok(of_starts(&KINDS, subjects))
}

fn scale(samples: &Path) -> Result<Vec<Figure>, SamplesError> {
    const LOAD: [Kind; 4] = [
        ("scale.throughput", Quantity::PerS, Better::Higher),
        ("scale.latency.p50", Quantity::Us, Better::Lower),
        ("scale.latency.p95", Quantity::Us, Better::Lower),
        ("scale.latency.p99", Quantity::Us, Better::Lower),
    ];
    const SERVERS: [Kind; 1] = [("scale.cpu_per_op", Quantity::Us, Better::Lower)];
    let names = [
        "phase",
        "counts",
        "kind",
        "name",
        "replicas",
        "start",
        "block",
        "length_us",
        "operations",
        "p50_us",
        "p95_us",
        "p99_us",
        "cpu_us",
    ];
    let mut loads: BTreeMap<Vec<Dimension>, Vec<Starts>> = BTreeMap::new();
    // Of each block: its operations of all kinds, and the processor time of all servers.
    let mut blocks: BTreeMap<(Vec<Dimension>, u64, u64), (f64, f64)> = BTreeMap::new();
    reading::read(samples, &names, |columns: &[Column], rows| {
        for row in 0..rows {
            let word = |column: usize| columns[column].word(row);
            let number = |column: usize| columns[column].number(row);
            if number(1) <= 0.0 || !matches!(word(2), "load" | "server") {
                continue;
            }
            let replicas = digits(number(4));
            let phase = dimensions(&[("replicas", &replicas), ("phase", word(0))]);
            let block = blocks
                .entry((phase.clone(), number(5) as u64, number(6) as u64))
                .or_default();
            if word(2) == "server" {
                block.1 += number(12);
                continue;
            }
            block.0 += number(8);
            let of = [phase, dimensions(&[("operation", word(3))])].concat();
            let starts = loads.entry(of).or_insert_with(|| empty(&LOAD));
            let values = std::iter::once(number(8) / number(7) * 1e6).chain((9..12).map(number));
            values
                .zip(starts)
                .for_each(|(value, starts)| starts.push(number(5), value));
        }
    })?;
    let mut servers: BTreeMap<Vec<Dimension>, Vec<Starts>> = BTreeMap::new();
    for ((of, start, _), (operations, cpu)) in blocks {
        servers.entry(of).or_insert_with(|| empty(&SERVERS))[0]
            .push(start as f64, cpu / operations);
    }
    let mut figures = of_starts(&LOAD, loads);
    figures.extend(of_starts(&SERVERS, servers));
    Ok(figures)
}

fn loss(document: &LossDocument) -> Vec<Figure> {
    let mut figures = Vec::new();
    for row in &document.results {
        let crashes: Vec<_> = document
            .crashes
            .iter()
            .filter(|crash| crash.shape == row.shape)
            .collect();
        let of = dimensions(&[("shape", &row.shape), ("crash", &row.crash)]);
        let mut gather = Gather {
            figures: &mut figures,
            of,
        };
        let each = |pick: &dyn Fn(&replimeter_model::loss::CrashRecord) -> f64| {
            of_blocks(&crashes.iter().map(|crash| pick(crash)).collect::<Vec<_>>())
        };
        gather.add(
            "loss.missing",
            Quantity::Count,
            Better::Lower,
            each(&|crash| crash.missing as f64),
        );
        gather.add(
            "loss.seen_then_lost",
            Quantity::Count,
            Better::Lower,
            each(&|crash| crash.seen_then_lost as f64),
        );
        // A count may be 0.
        gather
            .figures
            .iter_mut()
            .rev()
            .take(2)
            .for_each(|figure| figure.by_difference = true);
        let lossy = [
            ("loss.lossy_percent", &row.lossy),
            ("loss.lossy_to_readers_percent", &row.lossy_to_readers),
        ];
        for (name, share) in lossy.into_iter().filter(|(_, share)| share.of > 0) {
            let ends = wilson(share.count as f64, share.of as f64).map(|end| end * 100.0);
            gather.add(
                name,
                Quantity::Percent,
                Better::Lower,
                Some(Drawn::of_interval(share.percent, Some(ends), share.of)),
            );
        }
        gather.add(
            "loss.recovery.mean",
            Quantity::Us,
            Better::Lower,
            each(&|crash| crash.recovery_us),
        );
        let median = row
            .recovery_us
            .map(|us| Drawn::of_interval(us, row.recovery_ci, row.crashes));
        gather.add("loss.recovery.p50", Quantity::Us, Better::Lower, median);
        let per_s = each(&|crash| crash.acknowledged as f64 / (crash.load_us / 1e6));
        gather.add("loss.acknowledged", Quantity::PerS, Better::Neither, per_s);
    }
    figures
}

fn exposure(document: &ExposureDocument, samples: &Path) -> Result<Vec<Figure>, SamplesError> {
    let names = ["shape", "transactions", "bytes", "age_us"];
    let mut shape = String::new();
    let (mut transactions, mut bytes, mut ages) = (Vec::new(), Vec::new(), Vec::new());
    if document.results.iter().any(|row| row.looks > 0) {
        reading::read(samples, &names, |columns, rows| {
            for row in 0..rows {
                if shape.is_empty() {
                    columns[0].word(row).clone_into(&mut shape);
                }
                transactions.push(columns[1].number(row));
                bytes.push(columns[2].number(row));
                // Nothing exposed is 0 old, as in the record.
                let age = columns[3].number(row);
                ages.push(if age.is_nan() { 0.0 } else { age });
            }
        })?;
    }
    let mut figures = Vec::new();
    let mut gather = Gather {
        figures: &mut figures,
        of: dimensions(&[("shape", &shape)]),
    };
    let exposed = Course::new(
        transactions
            .iter()
            .map(|number| if *number > 0.0 { 100.0 } else { 0.0 }),
    );
    gather.course(
        "exposure.transactions",
        Quantity::Count,
        &Course::new(transactions),
        &["mean", "p99", "max"],
    );
    gather.course(
        "exposure.bytes",
        Quantity::Bytes,
        &Course::new(bytes),
        &["mean", "p99", "max"],
    );
    gather.course(
        "exposure.age",
        Quantity::Us,
        &Course::new(ages),
        &["mean", "p50", "p99", "max"],
    );
    gather.add(
        "exposure.percent",
        Quantity::Percent,
        Better::Lower,
        exposed.mean(),
    );
    // All of them may be 0.
    figures
        .iter_mut()
        .for_each(|figure| figure.by_difference = true);
    Ok(figures)
}

fn tap(document: &TapDocument, samples: &Path) -> Result<Vec<Figure>, SamplesError> {
    let names = [
        "shape",
        "replica",
        "start_us",
        "end_us",
        "transactions",
        "matched",
        "inverted",
    ];
    let mut stretches: BTreeMap<[String; 2], Vec<[f64; 4]>> = BTreeMap::new();
    reading::read(samples, &names, |columns, rows| {
        for row in 0..rows {
            let number = |column: usize| columns[column].number(row);
            let key = [columns[0].word(row), columns[1].word(row)].map(str::to_owned);
            let length = (number(3) - number(2)) / 1e6;
            stretches
                .entry(key)
                .or_default()
                .push([length, number(4), number(5), number(6)]);
        }
    })?;
    let mut figures = Vec::new();
    for row in &document.results {
        let of = dimensions(&[("shape", &row.shape), ("replica", &row.replica)]);
        let mut gather = Gather {
            figures: &mut figures,
            of,
        };
        gather.stated(
            "tap.lag",
            &row.lag,
            &["mean", "p50", "p90", "p95", "p99", "p999", "max"],
        );
        for (prefix, times) in [
            ("tap.commit_to_arrival", &row.commit_to_arrival),
            ("tap.by_servers", &row.by_servers),
        ] {
            if let Some(times) = times {
                gather.stated(prefix, times, &["p50", "p99"]);
            }
        }
        let Some(stretches) = stretches.get(&[row.shape.clone(), row.replica.clone()]) else {
            continue;
        };
        let pairs =
            |pick: fn(&[f64; 4]) -> (f64, f64)| stretches.iter().map(pick).collect::<Vec<_>>();
        let per_s = of_rates_in_time(&pairs(|[length, transactions, ..]| {
            (*transactions, *length)
        }));
        gather.add("tap.transactions", Quantity::PerS, Better::Neither, per_s);
        let inverted = of_rates_in_time(&pairs(|[.., matched, inverted]| {
            (*inverted * 100.0, *matched)
        }));
        gather.add(
            "tap.inverted_percent",
            Quantity::Percent,
            Better::Lower,
            inverted,
        );
    }
    Ok(figures)
}

fn calibrate(document: &CalibrateDocument) -> Vec<Figure> {
    let mut figures = Vec::new();
    for row in &document.results {
        let of = dimensions(&[
            ("replica", &row.replica),
            ("method", &row.method),
            ("injected_us", &digits(row.injected_us)),
        ]);
        let mut gather = Gather {
            figures: &mut figures,
            of,
        };
        gather.stated("calibrate.measured", &row.measured, &["p50", "p99"]);
        for (name, value, ends) in [
            ("p50", row.error_p50_us, row.error_p50_ci),
            ("p99", row.error_p99_us, row.error_p99_ci),
        ] {
            let drawn = value.map(|value| Drawn::of_interval(value, ends, row.rounds));
            let before = gather.figures.len();
            gather.add(
                format!("calibrate.error.{name}"),
                Quantity::Us,
                Better::Neither,
                drawn,
            );
            // An error may have either sign.
            gather.figures[before..]
                .iter_mut()
                .for_each(|figure| figure.by_difference = true);
        }
    }
    figures
}
