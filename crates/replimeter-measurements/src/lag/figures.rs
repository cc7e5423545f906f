//! The figures of `lag`.

use std::collections::BTreeMap;

use replimeter_instruments::lag::{
    results::{LagDocument, LagResults},
    settings::{LagSettings, Pace},
};
use replimeter_model::load::LoadRecord;
use replimeter_render::reading::Column;
use replimeter_run::{
    cli_error::CliError,
    figures,
    figures::{DimensionSpec, Figures, METHOD, REPLICA, SHAPE, SampleFile, StatedFigures, share},
};
use replimeter_stats::compare::SampleSeries;

use super::super::load::figures as load;

const SIZE: DimensionSpec = DimensionSpec::new("size")
    .label("{} bytes")
    .never_compared()
    .always_in_label();
const ROW: &[DimensionSpec] = &[SHAPE, REPLICA, METHOD, SIZE];

figures! {
    FROM_ACK = "lag" [mean p50 p90 p95 p99 p999 max]: Us, Lower, Ratio, of ROW;
    FROM_SEND = "lag.from_send" [p50 p99]: Us, Lower, Ratio, of ROW;
    FROM_INTENDED = "lag.from_intended" [p50 p99]: Us, Lower, Ratio, of ROW, needs "writes on a schedule (--interval)";
    FROM_PRIMARY = "lag.from_primary" [p50 p99]: Us, Lower, Ratio, of ROW, needs "--method stamp or --method tap";
    TIMED_OUT = "lag.timed_out": Percent, Lower, Difference, of ROW;
    WRITE_LATENCY = "lag.write_latency" [mean p50 p99]: Us, Lower, Ratio, of &[SHAPE, SIZE];
    LOAD_THROUGHPUT = "lag.load.throughput": PerS, Higher, Ratio, of load::ROW, needs "a background load (--load)";
    LOAD_LATENCY = "lag.load.latency" [mean p50 p95 p99 max]: Us, Lower, Ratio, of load::ROW, needs "a background load (--load)";
}

/// The rows of one replica by one method, of one start.
#[derive(Default)]
struct Subject {
    /// Send times, for the order.
    send: Vec<f64>,
    ack: Vec<f64>,
    from_send: Vec<f64>,
    intended: Vec<f64>,
    insert: Vec<f64>,
    primary: Vec<f64>,
}

/// The rows of each start.
type Starts = BTreeMap<u64, Subject>;

/// By shape, replica and method, then by size.
type Subjects = BTreeMap<[String; 3], BTreeMap<u64, Starts>>;

const NAMES: [&str; 13] = [
    "phase",
    "shape",
    "replica",
    "method",
    "size_bytes",
    "send_ns",
    "from_ack_us",
    "from_send_us",
    "from_intended_us",
    "write_latency_us",
    "visible_until_ns",
    "primary_ns",
    "start",
];

impl Subject {
    /// Adds a row of the columns [`NAMES`].
    fn take(&mut self, columns: &[Column], row: usize) {
        let number = |column: usize| columns[column].number(row);
        self.send.push(number(5));
        self.ack.push(number(6));
        self.from_send.push(number(7));
        self.intended.push(number(8));
        self.insert.push(number(9));
        self.primary.push((number(10) - number(11)) / 1e3);
    }

    fn extend(&mut self, other: &Self) {
        self.send.extend(&other.send);
        self.ack.extend(&other.ack);
        self.from_send.extend(&other.from_send);
        self.intended.extend(&other.intended);
        self.insert.extend(&other.insert);
        self.primary.extend(&other.primary);
    }

    /// Returns the row numbers in time order.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.send.len()).collect();
        if !self.send.is_sorted() {
            order.sort_by(|one, other| self.send[*one].total_cmp(&self.send[*other]));
        }
        order
    }

    /// Returns values of the rows in time order.
    fn series(&self, values: fn(&Self) -> &[f64]) -> SampleSeries {
        let values = values(self);
        SampleSeries::new(self.order().into_iter().map(|index| values[index]))
    }

    /// Returns whether each row timed out, in time order in µs.
    fn trials(&self) -> Vec<(f64, bool)> {
        let order = self.order().into_iter();
        let trial = |index: usize| (self.send[index] / 1e3, self.ack[index].is_nan());
        order.map(trial).collect()
    }
}

/// Adds the figures of the replica; `open` is whether rows had an intended start.
fn replica(starts: &Starts, open: bool, of: &[&str], figures: &mut Figures) {
    let series_of = |values: fn(&Subject) -> &[f64]| -> Vec<SampleSeries> {
        starts.values().map(|start| start.series(values)).collect()
    };
    figures.add_series(FROM_ACK, of, &series_of(|start| &start.ack));
    figures.add_series(FROM_SEND, of, &series_of(|start| &start.from_send));
    // In a closed loop this equals the time from the send.
    if open {
        figures.add_series(FROM_INTENDED, of, &series_of(|start| &start.intended));
    }
    figures.add_series(FROM_PRIMARY, of, &series_of(|start| &start.primary));
    let trials: Vec<_> = starts.values().map(Subject::trials).collect();
    figures.add(&TIMED_OUT, of, share(&trials));
}

/// Adds the figures of the writes, which are the same for every replica and method.
fn writes(starts: &Starts, of: &[&str], figures: &mut Figures) {
    let insert: Vec<SampleSeries> = starts
        .values()
        .map(|start| start.series(|start| &start.insert))
        .collect();
    figures.add_series(WRITE_LATENCY, of, &insert);
}

fn subjects(samples: &SampleFile) -> Result<Subjects, CliError> {
    let mut subjects = Subjects::new();
    samples.read(&NAMES, |columns, rows| {
        let mut begin = 0;
        while begin < rows {
            // Consecutive rows mostly have the same key, so it is looked up once for all of them.
            let key = |row: usize| [0, 1, 2, 3].map(|column| columns[column].word(row));
            let of = key(begin);
            let [size, start] = [4, 12].map(|column: usize| columns[column].number(begin));
            let same = |row: usize| {
                key(row) == of && columns[4].number(row) == size && columns[12].number(row) == start
            };
            let end = (begin + 1..rows).find(|row| !same(*row)).unwrap_or(rows);
            if of[0] == "measure" {
                let sizes = subjects.entry([of[1], of[2], of[3]].map(str::to_owned));
                let starts = sizes.or_default().entry(size as u64).or_default();
                let subject = starts.entry(start as u64).or_default();
                (begin..end).for_each(|row| subject.take(columns, row));
            }
            begin = end;
        }
    })?;
    Ok(subjects)
}

pub(super) fn stated(settings: &LagSettings, results: &LagResults) -> StatedFigures {
    let open = matches!(settings.pace, Some(Pace::Interval(_)));
    let sweep = results.rows.iter().any(|row| row.size_bytes.is_none());
    let mut figures = StatedFigures::default();
    let mut written: Vec<[&str; 2]> = Vec::new();
    let sizes = results.rows.iter().map(|row| match row.size_bytes {
        Some(size) if sweep => size.to_string(),
        _ => String::new(),
    });
    let sizes: Vec<String> = sizes.collect();
    for (row, size) in results.rows.iter().zip(&sizes) {
        let of = [row.shape.as_str(), &row.replica, &row.method, size];
        figures.distribution(FROM_ACK, &of, &row.from_ack);
        figures.distribution(FROM_SEND, &of, &row.from_send);
        if open {
            figures.distribution(FROM_INTENDED, &of, &row.from_intended);
        }
        figures.distribution(FROM_PRIMARY, &of, &row.from_primary);
        let percent = 100.0 * row.timed_out as f64 / row.rounds as f64;
        figures.add(&TIMED_OUT, &of, Some(percent), None, row.rounds);
        let writes = [of[0], size];
        if !written.contains(&writes) {
            written.push(writes);
            figures.distribution(WRITE_LATENCY, &writes, &row.write_latency);
        }
    }
    figures.append(loads(&results.load));
    figures
}

/// Returns the figures of background loads.
fn loads(all: &[LoadRecord]) -> StatedFigures {
    let mut figures = StatedFigures::default();
    for load in all {
        load::add(&mut figures, &LOAD_THROUGHPUT, LOAD_LATENCY, load);
    }
    figures
}

pub(super) fn figures(document: &LagDocument, samples: &SampleFile) -> Result<Figures, CliError> {
    let open = matches!(document.settings.pace, Some(Pace::Interval(_)));
    let mut figures = Figures::default();
    let mut written: Vec<String> = Vec::new();
    for ([shape, replica, method], mut sizes) in subjects(samples)? {
        let first = !written.contains(&shape);
        let mut all = Starts::new();
        if sizes.len() > 1 {
            for (start, subject) in sizes.values().flatten() {
                all.entry(*start).or_default().extend(subject);
            }
        } else if let Some((_, only)) = sizes.pop_first() {
            all = only;
        }
        // First all sizes together.
        let sizes = sizes.iter().map(|(size, one)| (size.to_string(), one));
        for (size, starts) in std::iter::once((String::new(), &all)).chain(sizes) {
            self::replica(
                starts,
                open,
                &[&shape, &replica, &method, &size],
                &mut figures,
            );
            if first {
                writes(starts, &[&shape, &size], &mut figures);
            }
        }
        if first {
            written.push(shape);
        }
    }
    figures.stated(loads(&document.results.load));
    Ok(figures)
}
