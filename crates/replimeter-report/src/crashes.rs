//! `samples.parquet` of a `loss` run: a row for each crash; and of an `exposure` run: a
//! row for each look.

use std::path::Path;

use parquet::{
    data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::ParquetError,
};
use replimeter_model::{exposure::ExposureSample, loss::CrashRecord};

use crate::{
    rows::{Columns, RowGroup, RowsWriter, long, optional, required},
    samples::SamplesError,
};

/// The columns of a crash; `docs/loss.md` explains each.
const CRASH: &str = "message crash {
    required binary shape (UTF8);
    required binary mode (UTF8);
    required int64 number;
    required double load_us;
    required int64 begun;
    required int64 acknowledged;
    required int64 acknowledged_after_cut;
    required int64 missing;
    optional double missing_since_us;
    required int64 missing_after_cut;
    required int64 seen;
    required int64 seen_then_lost;
    required int64 seen_unacknowledged_lost;
    required int64 unacknowledged_present;
    required int64 unacknowledged;
    required int64 refused;
    required binary promoted (UTF8);
    optional double drained_us;
    required double promoted_us;
    required double recovery_us;
    required int64 fallen_back;
    optional double return_us;
    optional int64 errant_transactions;
    optional binary errant_gtids (UTF8);
    optional int64 errant_rows;
    optional int64 errant_acknowledged;
    optional int64 errant_missing;
    optional binary return_error (UTF8);
}";

/// The columns of a look; `docs/exposure.md` explains each.
const LOOK: &str = "message look {
    required binary shape (UTF8);
    required double at_us;
    required double look_us;
    required int64 answered;
    required int64 transactions;
    required int64 bytes;
    optional double age_us;
    optional boolean semi_sync;
}";

/// Crashes of a `loss` run.
pub struct Crashes;

/// Writes crashes as they come.
pub type CrashesWriter = RowsWriter<Crashes>;

impl CrashesWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, SamplesError> {
        Self::begun(path, Crashes)
    }

    /// Adds a crash of this mode of replication.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, mode: &str, record: &CrashRecord) -> Result<(), SamplesError> {
        self.add([(mode.to_owned(), record.clone())])
    }
}

impl Columns for Crashes {
    type Row = (String, CrashRecord);
    const SCHEMA: &'static str = CRASH;
    const GROUP: usize = 2048;

    fn write(&self, group: &mut RowGroup<'_>, held: &[Self::Row]) -> Result<(), ParquetError> {
        let texts = |pick: fn(&(String, CrashRecord)) -> &str| {
            held.iter()
                .map(|row| ByteArray::from(pick(row)))
                .collect::<Vec<_>>()
        };
        let counts = |pick: fn(&CrashRecord) -> u64| {
            held.iter()
                .map(|(_, row)| long(pick(row)))
                .collect::<Vec<_>>()
        };
        let times = |pick: fn(&CrashRecord) -> f64| {
            held.iter().map(|(_, row)| pick(row)).collect::<Vec<_>>()
        };
        let maybe = |pick: fn(&CrashRecord) -> Option<f64>| {
            held.iter().map(|(_, row)| pick(row)).collect::<Vec<_>>()
        };
        required::<ByteArrayType>(group, &texts(|(_, row)| &row.shape))?;
        required::<ByteArrayType>(group, &texts(|(mode, _)| mode))?;
        required::<Int64Type>(group, &counts(|row| row.number))?;
        required::<DoubleType>(group, &times(|row| row.load_us))?;
        required::<Int64Type>(group, &counts(|row| row.begun))?;
        required::<Int64Type>(group, &counts(|row| row.acknowledged))?;
        required::<Int64Type>(group, &counts(|row| row.acknowledged_after_cut))?;
        required::<Int64Type>(group, &counts(|row| row.missing))?;
        optional::<DoubleType>(group, maybe(|row| row.missing_since_us))?;
        required::<Int64Type>(group, &counts(|row| row.missing_after_cut))?;
        required::<Int64Type>(group, &counts(|row| row.seen))?;
        required::<Int64Type>(group, &counts(|row| row.seen_then_lost))?;
        required::<Int64Type>(group, &counts(|row| row.seen_unacknowledged_lost))?;
        required::<Int64Type>(group, &counts(|row| row.unacknowledged_present))?;
        required::<Int64Type>(group, &counts(|row| row.unacknowledged))?;
        required::<Int64Type>(group, &counts(|row| row.refused))?;
        required::<ByteArrayType>(group, &texts(|(_, row)| &row.promoted))?;
        optional::<DoubleType>(group, maybe(|row| row.drained_us))?;
        required::<DoubleType>(group, &times(|row| row.promoted_us))?;
        required::<DoubleType>(group, &times(|row| row.recovery_us))?;
        required::<Int64Type>(group, &counts(|row| row.fallen_back))?;
        optional::<DoubleType>(group, maybe(|row| row.return_us))?;
        let errant = held.iter().map(|(_, row)| row.errant.as_ref());
        let number = |errant: Option<u64>| errant.map(long);
        optional::<Int64Type>(
            group,
            errant
                .clone()
                .map(|errant| number(errant?.transactions))
                .collect(),
        )?;
        optional::<ByteArrayType>(
            group,
            errant
                .clone()
                .map(|errant| Some(ByteArray::from(errant?.gtids.as_str())))
                .collect(),
        )?;
        optional::<Int64Type>(
            group,
            errant
                .clone()
                .map(|errant| number(Some(errant?.rows)))
                .collect(),
        )?;
        optional::<Int64Type>(
            group,
            errant
                .clone()
                .map(|errant| number(Some(errant?.acknowledged)))
                .collect(),
        )?;
        optional::<Int64Type>(
            group,
            errant.map(|errant| number(Some(errant?.missing))).collect(),
        )?;
        let errors = held
            .iter()
            .map(|(_, row)| row.return_error.as_deref().map(ByteArray::from));
        optional::<ByteArrayType>(group, errors.collect())
    }
}

/// Looks at servers of this shape.
pub struct Looks {
    shape: String,
}

/// Writes the looks of an `exposure` run as they come.
pub type LooksWriter = RowsWriter<Looks>;

impl LooksWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, shape: &str) -> Result<Self, SamplesError> {
        Self::begun(
            path,
            Looks {
                shape: shape.to_owned(),
            },
        )
    }

    /// Adds a look.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, sample: &ExposureSample) -> Result<(), SamplesError> {
        self.add([sample.clone()])
    }
}

impl Columns for Looks {
    type Row = ExposureSample;
    const SCHEMA: &'static str = LOOK;
    const GROUP: usize = 2048;

    fn write(&self, group: &mut RowGroup<'_>, held: &[ExposureSample]) -> Result<(), ParquetError> {
        let counts = |pick: fn(&ExposureSample) -> u64| {
            held.iter().map(|row| long(pick(row))).collect::<Vec<_>>()
        };
        required::<ByteArrayType>(
            group,
            &vec![ByteArray::from(self.shape.as_str()); held.len()],
        )?;
        required::<DoubleType>(group, &held.iter().map(|row| row.at_us).collect::<Vec<_>>())?;
        required::<DoubleType>(
            group,
            &held.iter().map(|row| row.look_us).collect::<Vec<_>>(),
        )?;
        required::<Int64Type>(group, &counts(|row| row.answered))?;
        required::<Int64Type>(group, &counts(|row| row.transactions))?;
        required::<Int64Type>(group, &counts(|row| row.bytes))?;
        optional::<DoubleType>(group, held.iter().map(|row| row.age_us).collect())?;
        optional::<BoolType>(group, held.iter().map(|row| row.semi_sync).collect())
    }
}
