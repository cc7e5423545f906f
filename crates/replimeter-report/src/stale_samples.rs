//! `samples.parquet` of a `stale` run: a row for what each reader showed of each round.

use std::{
    fs::File,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::SerializedFileWriter,
    },
    schema::parser::parse_message_type,
};
use replimeter_model::{
    stale::{StaleRead, StaleRound},
    time::Nanos,
};

use crate::samples::{SamplesError, optional, reason, required};

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

/// Rows held before they are written; bounds the memory.
const GROUP: usize = 4096;

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

struct Held {
    round: StaleRound,
    read: StaleRead,
}

/// Writes rounds as they come, a few thousand at a time.
pub struct StaleWriter {
    path: PathBuf,
    labels: Labels,
    writer: SerializedFileWriter<File>,
    held: Vec<Held>,
}

impl StaleWriter {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, SamplesError> {
        let file = File::options().create(true).truncate(true).write(true).mode(0o600).open(path);
        let file = file.map_err(|source| SamplesError::File { path: path.to_owned(), source })?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let wrap = |error| reason(path, error);
        let schema = parse_message_type(SCHEMA).map(Arc::new).map_err(wrap)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(wrap)?;
        Ok(Self { path: path.to_owned(), labels: Labels::default(), writer, held: Vec::new() })
    }

    /// What comes now belongs to another part of the run.
    ///
    /// # Errors
    /// When the disk refuses what came before.
    pub fn begin(&mut self, labels: Labels) -> Result<(), SamplesError> {
        self.flush()?;
        self.labels = labels;
        Ok(())
    }

    /// Adds a round.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, round: &StaleRound) -> Result<(), SamplesError> {
        let bare = StaleRound { reads: Vec::new(), ..round.clone() };
        self.held.extend(round.reads.iter().map(|read| Held { round: bare.clone(), read: *read }));
        if self.held.len() >= GROUP { self.flush() } else { Ok(()) }
    }

    /// Writes what is held and the file's end.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self) -> Result<(), SamplesError> {
        self.flush()?;
        self.writer.close().map(|_| ()).map_err(|error| reason(&self.path, error))
    }

    fn flush(&mut self) -> Result<(), SamplesError> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        self.group(&held).map_err(|error| reason(&self.path, error))
    }

    fn group(&mut self, held: &[Held]) -> Result<(), ParquetError> {
        let labels = &self.labels;
        let mut group = self.writer.next_row_group()?;
        let same = |text: &str| vec![ByteArray::from(text); held.len()];
        let text = |pick: &dyn Fn(&Held) -> &str| held.iter().map(|one| ByteArray::from(pick(one))).collect::<Vec<_>>();
        let long =
            |pick: fn(&Held) -> u64| held.iter().map(|one| i64::try_from(pick(one)).unwrap_or(i64::MAX)).collect::<Vec<_>>();
        let short =
            |pick: fn(&Held) -> u32| held.iter().map(|one| i32::try_from(pick(one)).unwrap_or(i32::MAX)).collect::<Vec<_>>();
        let time = |pick: fn(&Held) -> Nanos| held.iter().map(|one| pick(one).as_micros()).collect::<Vec<_>>();
        let maybe = |pick: fn(&Held) -> Option<Nanos>| held.iter().map(|one| pick(one).map(Nanos::as_micros)).collect::<Vec<_>>();
        required::<ByteArrayType>(&mut group, &same(&labels.shape))?;
        required::<ByteArrayType>(&mut group, &same(&labels.load))?;
        required::<ByteArrayType>(&mut group, &same(&labels.sync_reads))?;
        required::<ByteArrayType>(&mut group, &same(&labels.pool))?;
        let reader = |one: &Held| labels.readers.get(one.read.reader).map_or("", String::as_str);
        let names: Vec<ByteArray> = held.iter().map(|one| ByteArray::from(reader(one))).collect();
        required::<ByteArrayType>(&mut group, &names)?;
        required::<ByteArrayType>(&mut group, &text(&|one| one.round.phase.name()))?;
        required::<Int64Type>(&mut group, &long(|one| one.round.round))?;
        required::<Int64Type>(&mut group, &long(|one| one.round.row))?;
        required::<DoubleType>(&mut group, &time(|one| one.round.send))?;
        required::<DoubleType>(&mut group, &time(|one| one.round.ack))?;
        required::<DoubleType>(&mut group, &time(|one| one.round.offset))?;
        required::<DoubleType>(&mut group, &time(|one| one.read.begin - one.round.ack))?;
        required::<DoubleType>(&mut group, &time(|one| one.read.begin))?;
        required::<DoubleType>(&mut group, &time(|one| one.read.end))?;
        required::<ByteArrayType>(&mut group, &text(&|one| one.read.verdict.name()))?;
        required::<Int64Type>(&mut group, &long(|one| one.read.seen))?;
        required::<Int32Type>(&mut group, &short(|one| one.read.behind))?;
        optional::<DoubleType>(&mut group, maybe(|one| one.read.last_stale))?;
        optional::<DoubleType>(&mut group, maybe(|one| one.read.fresh_end))?;
        required::<Int32Type>(&mut group, &short(|one| one.read.reads))?;
        required::<Int32Type>(&mut group, &short(|one| one.round.conflicts))?;
        required::<BoolType>(&mut group, &held.iter().map(|one| one.read.went_back).collect::<Vec<_>>())?;
        group.close()?;
        Ok(())
    }
}
