//! `samples.parquet` of a `tap` run: a row for each stretch and replica, since a row for
//! each transaction of real traffic would be too many.

use std::path::Path;

use parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::ParquetError,
};
use replimeter_model::tap::TapWindow;

use crate::{
    rows::{Columns, RowGroup, RowsWriter, long, optional, required},
    samples::SamplesError,
};

/// The columns; `docs/tap.md` explains each.
const SCHEMA: &str = "message tap_stretch {
    required binary shape (UTF8);
    required binary replica (UTF8);
    required double start_us;
    required double end_us;
    required int64 transactions;
    required int64 bytes;
    required int64 matched;
    required int64 inverted;
    optional double min_us;
    optional double p50_us;
    optional double p99_us;
    optional double max_us;
    required int64 pending;
    optional double behind_us;
}";

/// Stretches of servers of this shape.
pub struct Stretches {
    shape: String,
}

/// Writes stretches as they come.
pub type StretchesWriter = RowsWriter<Stretches>;

impl StretchesWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, shape: &str) -> Result<Self, SamplesError> {
        Self::begun(
            path,
            Stretches {
                shape: shape.to_owned(),
            },
        )
    }

    /// Adds stretches.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, windows: &[TapWindow]) -> Result<(), SamplesError> {
        self.add(windows.iter().cloned())
    }
}

impl Columns for Stretches {
    type Row = TapWindow;
    const SCHEMA: &'static str = SCHEMA;
    const GROUP: usize = 512;

    fn write(&self, group: &mut RowGroup<'_>, held: &[TapWindow]) -> Result<(), ParquetError> {
        let whole = |pick: fn(&TapWindow) -> u64| {
            held.iter()
                .map(|window| long(pick(window)))
                .collect::<Vec<_>>()
        };
        let maybe = |pick: fn(&TapWindow) -> Option<f64>| held.iter().map(pick).collect::<Vec<_>>();
        required::<ByteArrayType>(
            group,
            &vec![ByteArray::from(self.shape.as_str()); held.len()],
        )?;
        let names: Vec<ByteArray> = held
            .iter()
            .map(|window| ByteArray::from(window.replica.as_str()))
            .collect();
        required::<ByteArrayType>(group, &names)?;
        required::<DoubleType>(
            group,
            &held
                .iter()
                .map(|window| window.start_us)
                .collect::<Vec<_>>(),
        )?;
        required::<DoubleType>(
            group,
            &held.iter().map(|window| window.end_us).collect::<Vec<_>>(),
        )?;
        required::<Int64Type>(group, &whole(|window| window.transactions))?;
        required::<Int64Type>(group, &whole(|window| window.bytes))?;
        required::<Int64Type>(group, &whole(|window| window.matched))?;
        required::<Int64Type>(group, &whole(|window| window.inverted))?;
        optional::<DoubleType>(group, maybe(|window| window.min_us))?;
        optional::<DoubleType>(group, maybe(|window| window.p50_us))?;
        optional::<DoubleType>(group, maybe(|window| window.p99_us))?;
        optional::<DoubleType>(group, maybe(|window| window.max_us))?;
        required::<Int64Type>(group, &whole(|window| window.pending))?;
        optional::<DoubleType>(group, maybe(|window| window.behind_us))
    }
}
