//! `samples.parquet` of a `stale` run: a row for what each reader showed of each round.

use std::path::Path;

use parquet::{
    data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type},
    errors::ParquetError,
};
use replimeter_model::{
    stale::{StaleRead, StaleRound},
    time::Nanos,
};

use crate::{
    rows::{Columns, RowGroup, RowsWriter, long, optional, required, short},
    samples::SamplesError,
};

/// The columns; `docs/stale.md` explains each. Times are in microseconds since the run's clock was started.
const SCHEMA: &str = "message stale_read {
    required binary shape (UTF8);
    required binary load (UTF8);
    required binary sync_reads (UTF8);
    required binary pool (UTF8);
    required binary reader (UTF8);
    required binary phase (UTF8);
    required int64 round;
    required int64 row;
    required double send_us;
    required double ack_us;
    required double offset_us;
    required double achieved_us;
    required double begin_us;
    required double end_us;
    required binary verdict (UTF8);
    required int64 seen;
    required int32 behind;
    optional double last_stale_us;
    optional double shown_us;
    required int32 reads;
    required int32 conflicts;
    required boolean went_back;
}";

/// What is measured just now.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// The shape.
    pub shape: String,
    /// The loads.
    pub load: String,
    /// How reads are made to wait.
    pub sync_reads: String,
    /// What becomes of the connections.
    pub pool: String,
    /// The readers, in order.
    pub readers: Vec<String>,
}

/// What a reader showed of a round.
pub struct Held {
    round: StaleRound,
    read: StaleRead,
}

/// Writes rounds as they come, a few thousand at a time.
pub type StaleWriter = RowsWriter<Labels>;

impl StaleWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, SamplesError> {
        Self::begun(path, Labels::default())
    }

    /// What comes now belongs to another part of the run.
    ///
    /// # Errors
    /// When the disk refuses what came before.
    pub fn begin(&mut self, labels: Labels) -> Result<(), SamplesError> {
        self.switch(labels)
    }

    /// Adds a round.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, round: &StaleRound) -> Result<(), SamplesError> {
        let bare = StaleRound {
            reads: Vec::new(),
            ..round.clone()
        };
        self.add(round.reads.iter().map(|read| Held {
            round: bare.clone(),
            read: *read,
        }))
    }
}

impl Columns for Labels {
    type Row = Held;
    const SCHEMA: &'static str = SCHEMA;
    const GROUP: usize = 4096;

    fn write(&self, group: &mut RowGroup<'_>, held: &[Held]) -> Result<(), ParquetError> {
        let same = |text: &str| vec![ByteArray::from(text); held.len()];
        let text = |pick: &dyn Fn(&Held) -> &str| {
            held.iter()
                .map(|one| ByteArray::from(pick(one)))
                .collect::<Vec<_>>()
        };
        let whole =
            |pick: fn(&Held) -> u64| held.iter().map(|one| long(pick(one))).collect::<Vec<_>>();
        let small =
            |pick: fn(&Held) -> u32| held.iter().map(|one| short(pick(one))).collect::<Vec<_>>();
        let time = |pick: fn(&Held) -> Nanos| {
            held.iter()
                .map(|one| pick(one).as_micros())
                .collect::<Vec<_>>()
        };
        let maybe = |pick: fn(&Held) -> Option<Nanos>| {
            held.iter()
                .map(|one| pick(one).map(Nanos::as_micros))
                .collect::<Vec<_>>()
        };
        required::<ByteArrayType>(group, &same(&self.shape))?;
        required::<ByteArrayType>(group, &same(&self.load))?;
        required::<ByteArrayType>(group, &same(&self.sync_reads))?;
        required::<ByteArrayType>(group, &same(&self.pool))?;
        let reader = |one: &Held| self.readers.get(one.read.reader).map_or("", String::as_str);
        let names: Vec<ByteArray> = held
            .iter()
            .map(|one| ByteArray::from(reader(one)))
            .collect();
        required::<ByteArrayType>(group, &names)?;
        required::<ByteArrayType>(group, &text(&|one| one.round.phase.name()))?;
        required::<Int64Type>(group, &whole(|one| one.round.round))?;
        required::<Int64Type>(group, &whole(|one| one.round.row))?;
        required::<DoubleType>(group, &time(|one| one.round.send))?;
        required::<DoubleType>(group, &time(|one| one.round.ack))?;
        required::<DoubleType>(group, &time(|one| one.round.offset))?;
        required::<DoubleType>(group, &time(|one| one.read.begin - one.round.ack))?;
        required::<DoubleType>(group, &time(|one| one.read.begin))?;
        required::<DoubleType>(group, &time(|one| one.read.end))?;
        required::<ByteArrayType>(group, &text(&|one| one.read.verdict.name()))?;
        required::<Int64Type>(group, &whole(|one| one.read.seen))?;
        required::<Int32Type>(group, &small(|one| one.read.behind))?;
        optional::<DoubleType>(group, maybe(|one| one.read.last_stale))?;
        optional::<DoubleType>(group, maybe(|one| one.read.fresh_end))?;
        required::<Int32Type>(group, &small(|one| one.read.reads))?;
        required::<Int32Type>(group, &small(|one| one.round.conflicts))?;
        required::<BoolType>(
            group,
            &held
                .iter()
                .map(|one| one.read.went_back)
                .collect::<Vec<_>>(),
        )
    }
}
