//! The figures of `stale`.

use std::collections::BTreeMap;

use replimeter_instruments::stale::results::{FreshAfter, StaleDocument, StaleResults};
use replimeter_render::reading::Column;
use replimeter_run::{
    cli_error::CliError,
    figures,
    figures::{DimensionSpec, Figures, SHAPE, SampleFile, StatedFigures, share},
};
use replimeter_stats::compare::{Resampled, SampleSeries};

const LOAD: DimensionSpec = DimensionSpec::new("load").label("load {}");
const SYNC_READS: DimensionSpec = DimensionSpec::new("read_consistency").label("sync reads {}");
const POOL: DimensionSpec = DimensionSpec::new("session_reset").label("pool {}");
const JUDGED: DimensionSpec = DimensionSpec::new("judged")
    .renamed("load", "the load's own reads")
    .never_compared();
const CASE: &[DimensionSpec] = &[SHAPE, LOAD, SYNC_READS, POOL, JUDGED];
const ROW: &[DimensionSpec] = &[
    SHAPE,
    LOAD,
    SYNC_READS,
    POOL,
    JUDGED,
    DimensionSpec::new("reader"),
];

figures! {
    PERCENT = "stale.percent": Percent, Lower, Difference, of ROW;
    MONOTONIC = "stale.monotonic_percent": Percent, Lower, Difference, of ROW;
    STALENESS = "stale.staleness" [mean p50 p99 max]: Us, Lower, Ratio, of ROW;
    READ_LATENCY = "stale.read_latency" [p50 p99]: Us, Lower, Ratio, of ROW;
    // It can be 0: all reads are fresh immediately.
    FRESH_AFTER = "stale.fresh_after" [p99 p999]: Us, Lower, Difference, of ROW;
    WRITE_LATENCY = "stale.write_latency" [p50 p99]: Us, Lower, Ratio, of CASE;
}

/// One reader in one case, of one start.
#[derive(Default)]
struct Reader {
    trials: Vec<(f64, bool)>,
    back: Vec<(f64, bool)>,
    delay: Vec<f64>,
    read: Vec<f64>,
}

/// By the number of the start.
type Starts<T> = BTreeMap<u64, T>;

/// Read and write times of a case.
#[derive(Default)]
struct CaseLatencies {
    /// By the values of [`ROW`], then by start.
    readers: BTreeMap<[String; 6], Starts<Reader>>,
    /// By the values of [`CASE`], then by start: send time of the last write, and write latencies. They are the same for
    /// every reader, so each case has them once.
    writes: BTreeMap<[String; 5], Starts<(f64, Vec<f64>)>>,
}

const NAMES: [&str; 14] = [
    "shape",
    "load",
    "read_consistency",
    "session_reset",
    "reader",
    "phase",
    "send_us",
    "ack_us",
    "begin_us",
    "end_us",
    "verdict",
    "shown_us",
    "went_back",
    "start",
];

impl CaseLatencies {
    /// Adds a row of the columns [`NAMES`].
    fn take(&mut self, columns: &[Column], row: usize) {
        let word = |column: usize| columns[column].word(row);
        let number = |column: usize| columns[column].number(row);
        let judged = match word(5) {
            "at-once" => "rounds",
            "judged" => "load",
            _ => return,
        };
        let case = [word(0), word(1), word(2), word(3), judged];
        let of = [word(0), word(1), word(2), word(3), judged, word(4)];
        let start = number(13) as u64;
        let starts = self.readers.entry(of.map(str::to_owned)).or_default();
        let reader = starts.entry(start).or_default();
        let [send, ack, begin, end] = [6, 7, 8, 9].map(number);
        let verdict = word(10);
        if matches!(verdict, "fresh" | "stale") {
            reader.trials.push((begin, verdict == "stale"));
            reader.back.push((begin, number(12) > 0.0));
            reader.read.push(end - begin);
        }
        if verdict == "stale" {
            reader.delay.push(number(11) - ack);
        }
        let starts = self.writes.entry(case.map(str::to_owned)).or_default();
        let (last, taken) = starts.entry(start).or_default();
        if *last != send {
            *last = send;
            taken.push(ack - send);
        }
    }
}

pub(super) fn stated(results: &StaleResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    let mut written = Vec::new();
    for row in &results.rows {
        let of = [
            row.shape.as_str(),
            &row.load,
            &row.read_consistency,
            &row.session_reset,
            &row.judged,
            &row.reader,
        ];
        let (percent, ends) = (row.stale_percent, row.stale_percent_ci95);
        figures.add(&PERCENT, &of, percent, ends, row.rounds);
        figures.distribution(STALENESS, &of, &row.staleness);
        figures.distribution(READ_LATENCY, &of, &row.read_latency);
        if row.judged == "rounds" {
            let after = &row.fresh_after_us;
            let stated = [(after.p99, after.p99_ci95), (after.p999, after.p999_ci95)];
            for (spec, (value, ends)) in FRESH_AFTER.iter().zip(stated) {
                figures.add(spec, &of, value, ends, row.rounds);
            }
        }
        // The writes of a case are the same for every reader.
        let [shape, load, consistency, reset, judged, _] = of;
        let case = [shape, load, consistency, reset, judged];
        if !written.contains(&case) {
            written.push(case);
            figures.distribution(WRITE_LATENCY, &case, &row.write_latency);
        }
    }
    figures
}

pub(super) fn figures(document: &StaleDocument, samples: &SampleFile) -> Result<Figures, CliError> {
    let mut accumulator = CaseLatencies::default();
    samples.read(&NAMES, |columns, rows| {
        (0..rows).for_each(|row| accumulator.take(columns, row));
    })?;
    let mut figures = Figures::default();
    for (of, starts) in &accumulator.readers {
        let of = of.each_ref().map(String::as_str);
        let trials = |values: fn(&Reader) -> &Vec<(f64, bool)>| {
            let starts: Vec<_> = starts.values().map(|start| values(start).clone()).collect();
            share(&starts)
        };
        figures.add(&PERCENT, &of, trials(|start| &start.trials));
        figures.add(&MONOTONIC, &of, trials(|start| &start.back));
        figures.add_series(STALENESS, &of, &series_of(starts, |start| &start.delay));
        figures.add_series(READ_LATENCY, &of, &series_of(starts, |start| &start.read));
        if let Some(after) = fresh_after(document, of) {
            let stated = [(after.p99, after.p99_ci95), (after.p999, after.p999_ci95)];
            for (spec, (value, ends)) in FRESH_AFTER.iter().zip(stated) {
                let trials = starts.values().map(|start| start.trials.len() as u64).sum();
                let drawn = value.map(|value| Resampled::of_interval(value, ends, trials));
                figures.add(spec, &of, drawn);
            }
        }
    }
    for (of, starts) in &accumulator.writes {
        let of = of.each_ref().map(String::as_str);
        figures.add_series(WRITE_LATENCY, &of, &series_of(starts, |(_, taken)| taken));
    }
    Ok(figures)
}

/// Returns the values of each start, in the order of time.
fn series_of<S>(starts: &Starts<S>, values: fn(&S) -> &Vec<f64>) -> Vec<SampleSeries> {
    let series = |start| SampleSeries::new(values(start).iter().copied());
    starts.values().map(series).collect()
}

/// Returns the time until reads are fresh, as recorded for rounds.
fn fresh_after<'a>(document: &'a StaleDocument, of: [&str; 6]) -> Option<&'a FreshAfter> {
    let row = document.results.rows.iter().find(|row| {
        let row_of = [
            row.shape.as_str(),
            &row.load,
            &row.read_consistency,
            &row.session_reset,
            &row.judged,
            &row.reader,
        ];
        row.judged == "rounds" && row_of == of
    });
    row.map(|row| &row.fresh_after_us)
}
