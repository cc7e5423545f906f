//! `samples.parquet`: one row per observation.

use std::{
    io,
    path::{Path, PathBuf},
};

use parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type},
    errors::ParquetError,
};
use replimeter_model::{
    plan::Method,
    sample::{Beside, LagSample, Phase, Sighting, Write},
    time::Nanos,
};

use crate::{
    reading::{self, Column},
    rows::{Columns, RowGroup, RowsWriter, long, optional, required, short},
};

/// The columns; `docs/run-directory.md` explains each.
const SCHEMA: &str = "message lag_sample {
    required binary phase (UTF8);
    required binary shape (UTF8);
    required binary replica (UTF8);
    required binary method (UTF8);
    required int32 sweep;
    required int32 step;
    required int32 row_in_step;
    required int64 seq;
    required int64 size_bytes;
    required int64 intended_ns;
    required int64 send_ns;
    required int64 ack_ns;
    optional int64 visible_after_ns;
    optional int64 hit_began_ns;
    optional int64 visible_until_ns;
    optional int64 primary_ns;
    optional int64 readable_ns;
    optional int32 reads;
    optional double from_ack_us;
    optional double from_send_us;
    optional double from_intended_us;
    optional double error_us;
    required double insert_us;
}";

/// The columns that a sample is made of.
const READ: [&str; 18] = [
    "phase",
    "shape",
    "replica",
    "method",
    "sweep",
    "step",
    "row_in_step",
    "seq",
    "size_bytes",
    "intended_ns",
    "send_ns",
    "ack_ns",
    "visible_after_ns",
    "hit_began_ns",
    "visible_until_ns",
    "primary_ns",
    "readable_ns",
    "reads",
];

/// Why samples could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// The file itself.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its contents.
    #[error("{}: {reason}", path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

pub(crate) fn reason(path: &Path, error: ParquetError) -> SamplesError {
    if let ParquetError::External(inner) = &error
        && let Some(source) = inner.downcast_ref::<io::Error>()
    {
        let source = io::Error::new(source.kind(), source.to_string());
        return SamplesError::File {
            path: path.to_owned(),
            source,
        };
    }
    SamplesError::Format {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

/// Samples of servers of this shape.
pub struct Samples {
    shape: String,
    replicas: Vec<String>,
    null_replica: String,
}

/// Writes samples as they come, a few thousand at a time.
pub type SamplesWriter = RowsWriter<Samples>;

impl SamplesWriter {
    /// Begins the file. `null_replica` is the name under which samples of the floor
    /// appear.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, null_replica: &str) -> Result<Self, SamplesError> {
        Self::begun(
            path,
            Samples {
                shape: String::new(),
                replicas: Vec::new(),
                null_replica: null_replica.to_owned(),
            },
        )
    }

    /// Says whose samples come next: the shape, and the replicas' names by index.
    ///
    /// # Errors
    /// When the disk refuses what is held of the shape before.
    pub fn begin(&mut self, shape: &str, replicas: Vec<String>) -> Result<(), SamplesError> {
        let null_replica = self.columns().null_replica.clone();
        self.switch(Samples {
            shape: shape.to_owned(),
            replicas,
            null_replica,
        })
    }

    /// Adds one sample.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, sample: &LagSample) -> Result<(), SamplesError> {
        self.add([*sample])
    }
}

impl Samples {
    fn name(&self, sample: &LagSample) -> ByteArray {
        let name = match sample.write.phase {
            Phase::Floor | Phase::Yardstick => self.null_replica.as_str(),
            _ => self
                .replicas
                .get(sample.replica)
                .map_or(self.null_replica.as_str(), String::as_str),
        };
        ByteArray::from(name)
    }
}

impl Columns for Samples {
    type Row = LagSample;
    const SCHEMA: &'static str = SCHEMA;
    const GROUP: usize = 4096;

    fn write(&self, group: &mut RowGroup<'_>, held: &[LagSample]) -> Result<(), ParquetError> {
        let each = |value: &dyn Fn(&LagSample) -> i64| held.iter().map(value).collect::<Vec<_>>();
        let small = |value: &dyn Fn(&LagSample) -> u32| {
            held.iter()
                .map(|sample| short(value(sample)))
                .collect::<Vec<_>>()
        };
        let maybe = |value: &dyn Fn(&LagSample) -> Option<Nanos>| {
            held.iter()
                .map(|sample| value(sample).map(|nanos| nanos.0))
                .collect::<Vec<_>>()
        };
        let micros = |value: &dyn Fn(&LagSample) -> Option<Nanos>| {
            held.iter()
                .map(|sample| value(sample).map(Nanos::as_micros))
                .collect::<Vec<_>>()
        };
        required::<ByteArrayType>(
            group,
            &held
                .iter()
                .map(|sample| ByteArray::from(sample.write.phase.name()))
                .collect::<Vec<_>>(),
        )?;
        required::<ByteArrayType>(
            group,
            &vec![ByteArray::from(self.shape.as_str()); held.len()],
        )?;
        required::<ByteArrayType>(
            group,
            &held
                .iter()
                .map(|sample| self.name(sample))
                .collect::<Vec<_>>(),
        )?;
        required::<ByteArrayType>(
            group,
            &held
                .iter()
                .map(|sample| ByteArray::from(sample.method.name()))
                .collect::<Vec<_>>(),
        )?;
        required::<Int32Type>(group, &small(&|sample| sample.write.sweep))?;
        required::<Int32Type>(group, &small(&|sample| sample.write.step))?;
        required::<Int32Type>(group, &small(&|sample| sample.write.row_in_step))?;
        required::<Int64Type>(group, &each(&|sample| long(sample.write.seq)))?;
        required::<Int64Type>(group, &each(&|sample| long(sample.write.size_bytes)))?;
        required::<Int64Type>(group, &each(&|sample| sample.write.intended.0))?;
        required::<Int64Type>(group, &each(&|sample| sample.write.send.0))?;
        required::<Int64Type>(group, &each(&|sample| sample.write.ack.0))?;
        optional::<Int64Type>(group, maybe(&LagSample::lower))?;
        optional::<Int64Type>(
            group,
            maybe(&|sample| sample.sighting.map(|sighting| sighting.hit_began)),
        )?;
        optional::<Int64Type>(group, maybe(&LagSample::upper))?;
        let beside = |sample: &LagSample| {
            sample
                .sighting
                .map(|sighting| sighting.beside)
                .unwrap_or_default()
        };
        optional::<Int64Type>(
            group,
            maybe(&|sample| {
                if let Beside::Primary(at) = beside(sample) {
                    Some(at)
                } else {
                    None
                }
            }),
        )?;
        optional::<Int64Type>(
            group,
            maybe(&|sample| {
                if let Beside::Readable { at, .. } = beside(sample) {
                    Some(at)
                } else {
                    None
                }
            }),
        )?;
        let reads = held.iter().map(|sample| match beside(sample) {
            Beside::Readable { reads, .. } => Some(short(reads)),
            _ => None,
        });
        optional::<Int32Type>(group, reads.collect())?;
        optional::<DoubleType>(group, micros(&LagSample::from_ack))?;
        optional::<DoubleType>(group, micros(&LagSample::from_send))?;
        optional::<DoubleType>(group, micros(&LagSample::from_intended))?;
        optional::<DoubleType>(group, micros(&LagSample::error))?;
        required::<DoubleType>(
            group,
            &held
                .iter()
                .map(|sample| sample.insert().as_micros())
                .collect::<Vec<_>>(),
        )
    }
}

/// Reads samples back, one by one; memory does not grow with the file.
///
/// `each` gets the replica's name and the sample, whose `replica` is 0.
///
/// # Errors
/// When the file is missing, no Parquet, cut off, or of another schema.
pub fn read(
    path: &Path,
    mut each: impl FnMut(&str, &str, &LagSample),
) -> Result<u64, SamplesError> {
    let mut unknown = None;
    let count = reading::read(path, &READ, |columns, rows| {
        let phase = columns[0].parsed(Phase::from_name);
        let method = columns[3].parsed(Method::from_name);
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

/// The sample in a row of the columns [`READ`].
fn sample_of(columns: &[Column], row: usize, phase: Phase, method: Method) -> LagSample {
    // Not a number, for null, becomes 0 where no null can be.
    let whole = |column: usize| columns[column].number(row) as i64;
    let number = |column| whole(column).unsigned_abs();
    let small = |column| u32::try_from(number(column)).unwrap_or(u32::MAX);
    let nanos = |column| Nanos(whole(column));
    let told =
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
    let beside = match (told(15), told(16), told(17)) {
        (Some(primary), ..) => Beside::Primary(primary),
        (_, Some(at), Some(_)) => Beside::Readable {
            at,
            reads: small(17),
        },
        _ => Beside::Nothing,
    };
    // A missing row has no sighting: its columns are null.
    let sighting = match (told(12), told(13), told(14)) {
        (Some(after), Some(hit_began), Some(until)) => Some(Sighting {
            seq: write.seq,
            after,
            hit_began,
            until,
            beside,
        }),
        _ => None,
    };
    LagSample {
        replica: 0,
        method,
        write,
        sighting,
        untold: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seq: u64, seen: bool) -> LagSample {
        let send = Nanos(seq as i64 * 1000);
        LagSample {
            replica: (seq % 2) as usize,
            method: if seq.is_multiple_of(5) {
                Method::Wait
            } else {
                Method::Poll
            },
            untold: false,
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
                beside: match seq % 3 {
                    0 => Beside::Nothing,
                    1 => Beside::Primary(send),
                    _ => Beside::Readable { at: send, reads: 2 },
                },
            }),
        }
    }

    #[test]
    fn what_is_written_is_read_across_several_groups() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let mut writer = SamplesWriter::create(&path, "null").unwrap();
        writer
            .begin(
                "async:2",
                vec!["replica1".to_owned(), "replica2".to_owned()],
            )
            .unwrap();
        let samples: Vec<LagSample> = (1..=Samples::GROUP as u64 + 10)
            .map(|seq| sample(seq, seq % 7 != 0))
            .collect();
        for sample in &samples {
            writer.write(sample).unwrap();
        }
        writer.finish().unwrap();
        let mut back = Vec::new();
        let mut names = Vec::new();
        let count = read(&path, |shape, name, sample| {
            assert_eq!(shape, "async:2");
            names.push(name.to_owned());
            back.push(*sample);
        });
        assert_eq!(count.unwrap(), samples.len() as u64);
        assert_eq!(names[..4], ["null", "null", "replica2", "replica1"]);
        for (written, read) in samples.iter().zip(&back) {
            assert_eq!(
                (read.method, read.write, read.sighting),
                (written.method, written.write, written.sighting)
            );
        }
    }

    #[test]
    fn a_cut_off_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.parquet");
        let mut writer = SamplesWriter::create(&path, "null").unwrap();
        writer.write(&sample(1, true)).unwrap();
        writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in [0, 3, 4, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(read(&path, |_, _, _| ()).is_err(), "{length} bytes");
        }
    }
}
