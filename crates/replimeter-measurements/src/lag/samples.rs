//! `samples.parquet` of `lag` and `calibrate`: one row per observation.

use std::path::Path;

use replimeter_instruments::lag::{
    sample::{LagSample, Phase, Sighting, SightingDetail, Write},
    settings::Method,
};
use replimeter_model::{target::NULL_REPLICA, time::Nanos};

use replimeter_render::{
    reading::{self, Column},
    rows::{Columns, SamplesError, TableSpec, columns},
};

/// Rows for the samples of a shape's servers.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    shape: String,
    start: u32,
    replicas: Vec<String>,
}

impl Samples {
    /// Creates rows of this start of a shape, from 1, with the replicas' names by index.
    #[must_use]
    pub fn new(shape: impl Into<String>, start: u32, replicas: Vec<String>) -> Self {
        Self {
            shape: shape.into(),
            start,
            replicas,
        }
    }

    fn name(&self, sample: &LagSample) -> &str {
        match sample.write.phase {
            Phase::Floor | Phase::ReferenceSelect => NULL_REPLICA,
            _ => self
                .replicas
                .get(sample.replica)
                .map_or(NULL_REPLICA, String::as_str),
        }
    }
}

/// The number of columns needed to rebuild a sample; they come first.
const READ: usize = 18;

impl Columns for Samples {
    type Row = LagSample;
    const TABLE: TableSpec<LagSample, Self> = TableSpec {
        message: "lag_sample",
        group: 4096,
        columns: columns! {
            /// `measure` is counted; `warm-up` is not; `settle` rows follow a truncation of the table and are
            /// not counted; `floor` is the null replica; `yardstick` rows belong to the floor's point selects
            phase: Word = |sample, _| sample.write.phase.name();
            /// The sandbox's shape (with its name if it was already running), or `endpoints:N`; in a
            /// calibration with the delay
            shape: Word = |_, labels| &labels.shape;
            /// `replica1`, …, `node2`, …, or `primary (null replica)`
            replica: Word = |sample, labels| labels.name(sample);
            /// `poll`, `wait`, `stamp`, `stamp-udf` or `tap`; a row of the run has one line for each replica
            /// and method
            method: Word = |sample, _| sample.method.name();
            /// The sweep over all sizes, from 0
            sweep: Short = |sample, _| sample.write.sweep;
            /// The size within the sweep, from 0
            step: Short = |sample, _| sample.write.step;
            /// The row within its step, from 1
            row_in_step: Short = |sample, _| sample.write.row_in_step;
            /// The row's number, unique in its start
            seq: Long = |sample, _| sample.write.seq;
            /// Payload size
            size_bytes: Long = |sample, _| sample.write.size_bytes;
            /// Intended start of the write by the schedule (zero point)
            intended_ns: Long = |sample, _| sample.write.intended;
            /// Just before the statement was passed to the socket (zero point)
            send_ns: Long = |sample, _| sample.write.send;
            /// Just after the server's reply was read (zero point)
            ack_ns: Long = |sample, _| sample.write.ack;
            /// Lower end of the bracket; null for a row that timed out
            visible_after_ns: Long or null = |sample, _| sample.lower();
            /// Start of the read that returned the row, or of the last wait
            hit_began_ns: Long or null = |sample, _| sample.sighting.map(|seen| seen.hit_began);
            /// Upper end of the bracket; null for a row that timed out
            visible_until_ns: Long or null = |sample, _| sample.upper();
            /// `stamp` and `tap`: time of the same event on the primary
            primary_ns: Long or null = |sample, _| match sample.sighting?.detail {
                SightingDetail::Primary(at) => Some(at),
                _ => None,
            };
            /// `wait`: end of the first read after the wait that returned the row; null if no wait was needed
            readable_ns: Long or null = |sample, _| match sample.sighting?.detail {
                SightingDetail::Readable { at, .. } => Some(at),
                _ => None,
            };
            /// `wait`: number of reads from the wait until then
            reads: Short or null = |sample, _| match sample.sighting?.detail {
                SightingDetail::Readable { reads, .. } => Some(reads),
                _ => None,
            };
            /// Upper end of the bracket, from the acknowledgement
            from_ack_us: Real or null = |sample, _| sample.from_ack();
            /// Upper end of the bracket, from the send
            from_send_us: Real or null = |sample, _| sample.from_send();
            /// Upper end of the bracket, from the intended start
            from_intended_us: Real or null = |sample, _| sample.from_intended();
            /// Width of the bracket
            bracket_us: Real or null = |sample, _| sample.error();
            /// Insert latency, from send to acknowledgement
            write_latency_us: Real = |sample, _| sample.insert();
            /// The start of the shape's servers, from 1
            start: Short = |_, labels| labels.start;
        },
    };
}

/// Reads samples back, one at a time; memory does not grow with the file.
///
/// `each` gets the replica's name and the sample, whose `replica` is 0.
///
/// # Errors
/// If the file is missing, truncated, not Parquet, or of another schema.
pub fn read(
    path: &Path,
    mut each: impl FnMut(&str, &str, &LagSample),
) -> Result<u64, SamplesError> {
    let columns = Samples::TABLE.columns.iter().take(READ);
    let names: Vec<&str> = columns.map(|column| column.name).collect();
    let mut unknown = None;
    let count = reading::read(path, &names, |columns, rows| {
        let phase = columns[0].parsed(Phase::named);
        let method = columns[3].parsed(Method::named);
        for row in 0..rows {
            match phase(row).zip(method(row)) {
                Some((phase, method)) => {
                    each(
                        columns[1].word(row),
                        columns[2].word(row),
                        &sample_of(columns, row, phase, method),
                    );
                }
                None => {
                    unknown = Some(format!(
                        "unknown phase `{}` or method `{}`",
                        columns[0].word(row),
                        columns[3].word(row)
                    ))
                }
            }
        }
    })?;
    match unknown {
        Some(reason) => Err(SamplesError::Format {
            path: path.to_owned(),
            reason,
        }),
        None => Ok(count),
    }
}

/// Returns the sample in a row of the first [`READ`] columns.
fn sample_of(columns: &[Column], row: usize, phase: Phase, method: Method) -> LagSample {
    // NaN, for null, becomes 0 in columns that cannot be null.
    let whole = |column: usize| columns[column].number(row) as i64;
    let number = |column| whole(column).unsigned_abs();
    let small = |column| u32::try_from(number(column)).unwrap_or(u32::MAX);
    let nanos = |column| Nanos(whole(column));
    let time =
        |column: usize| Some(nanos(column)).filter(|_| !columns[column].number(row).is_nan());
    let write = Write {
        seq: number(7),
        phase,
        sweep: small(4),
        step: small(5),
        row_in_step: small(6),
        size_bytes: number(8),
        intended: nanos(9),
        send: nanos(10),
        ack: nanos(11),
    };
    let detail = match (time(15), time(16), time(17)) {
        (Some(primary), ..) => SightingDetail::Primary(primary),
        (_, Some(at), Some(_)) => SightingDetail::Readable {
            at,
            reads: small(17),
            returned: None,
        },
        _ => SightingDetail::Nothing,
    };
    // A row that timed out has no sighting: its columns are null.
    let sighting = match (time(12), time(13), time(14)) {
        (Some(after), Some(hit_began), Some(until)) => Some(Sighting {
            seq: write.seq,
            after,
            hit_began,
            until,
            detail,
        }),
        _ => None,
    };
    LagSample {
        replica: 0,
        method,
        write,
        sighting,
        unplaced: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use replimeter_render::rows::{Rows, write_file};

    fn sample(seq: u64, seen: bool) -> LagSample {
        let send = Nanos(seq as i64 * 1000);
        LagSample {
            replica: (seq % 2) as usize,
            method: if seq.is_multiple_of(5) {
                Method::Wait
            } else {
                Method::Poll
            },
            unplaced: false,
            write: Write {
                seq,
                phase: if seq < 3 {
                    Phase::Floor
                } else {
                    Phase::Measure
                },
                sweep: 1,
                step: 2,
                row_in_step: 3,
                size_bytes: 4,
                intended: send - Nanos(5),
                send,
                ack: send + Nanos(100),
            },
            sighting: seen.then_some(Sighting {
                seq,
                after: send + Nanos(10),
                hit_began: send + Nanos(20),
                until: send + Nanos(50),
                detail: match seq % 3 {
                    0 => SightingDetail::Nothing,
                    1 => SightingDetail::Primary(send),
                    _ => SightingDetail::Readable {
                        at: send,
                        reads: 2,
                        returned: None,
                    },
                },
            }),
        }
    }

    #[test]
    fn samples_round_trip_across_row_groups() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let names = vec!["replica1".to_owned(), "replica2".to_owned()];
        let mut rows = Rows::new(Samples::new("async:2", 1, names));
        let samples: Vec<LagSample> = (1..=Samples::TABLE.group as u64 + 10)
            .map(|seq| sample(seq, seq % 7 != 0))
            .collect();
        for sample in &samples {
            rows.add(*sample);
        }
        write_file(&path, rows).unwrap();
        let mut back = Vec::new();
        let mut names = Vec::new();
        let count = read(&path, |shape, name, sample| {
            assert_eq!(shape, "async:2");
            names.push(name.to_owned());
            back.push(*sample);
        });
        assert_eq!(count.unwrap(), samples.len() as u64);
        assert_eq!(
            names[..4],
            [NULL_REPLICA, NULL_REPLICA, "replica2", "replica1"]
        );
        for (written, read) in samples.iter().zip(&back) {
            assert_eq!(
                (read.method, read.write, read.sighting),
                (written.method, written.write, written.sighting)
            );
        }
    }

    #[test]
    fn truncated_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let mut rows = Rows::new(Samples::default());
        rows.add(sample(1, true));
        write_file(&path, rows).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in [0, 3, 4, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(read(&path, |_, _, _| ()).is_err(), "{length} bytes");
        }
    }
}
