//! The journal of a file of samples: a copy of the description of each group of rows. The file itself can be
//! read only when its footer is written at the end; of a killed run the journal gives the footer.
//!
//! An entry is written when its rows are on the disk, by a thread of its own, so that no other waits for it.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parquet::{
    errors::ParquetError,
    file::metadata::{
        FileMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter,
        RowGroupMetaData,
    },
    schema::types::SchemaDescPtr,
};

use crate::samples_error::{SamplesError, reason};

/// The shortest time between two syncs.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);
/// Length and checksum, before the bytes of an entry.
const HEAD: usize = 12;
/// The version of the format that the footer states.
const VERSION: i32 = 1;
/// The length and the magic number that follow the description in a footer.
const FOOTER_END: usize = 8;

/// Returns the journal of a file of samples.
#[must_use]
pub fn journal_of(samples: &Path) -> PathBuf {
    samples.with_extension("journal")
}

/// The journal of a file that is being written.
pub(crate) struct Journal {
    path: PathBuf,
    entries: Option<Sender<Vec<u8>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Journal {
    /// Creates the journal of a file, locked until it is dropped.
    pub(crate) fn create(samples: &Path, data: File) -> Result<Self, SamplesError> {
        let path = journal_of(samples);
        let (entries, received) = channel();
        let start = || {
            let file = create_new(&path)?;
            file.try_lock()?;
            thread::Builder::new()
                .name("journal".to_owned())
                .spawn(move || keep(&data, file, &received))
        };
        let thread = start().map_err(file_error(&path))?;
        Ok(Self {
            path,
            entries: Some(entries),
            thread: Some(thread),
        })
    }

    /// Adds the description of a group of rows; fails if an earlier one could not be written.
    pub(crate) fn add(&mut self, group: &RowGroupMetaData) -> Result<(), SamplesError> {
        let described = with_groups(group.schema_descr_ptr(), vec![group.clone()]);
        let entry = encode(&described).map_err(|error| reason(&self.path, error))?;
        let sent = self
            .entries
            .as_ref()
            .is_some_and(|to| to.send(entry).is_ok());
        if sent { Ok(()) } else { self.join() }
    }

    /// Removes the journal of a file that is complete.
    pub(crate) fn remove(mut self) -> Result<(), SamplesError> {
        self.join()?;
        fs::remove_file(&self.path).map_err(file_error(&self.path))
    }

    fn join(&mut self) -> Result<(), SamplesError> {
        self.entries = None;
        let ended = self.thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        ended
            .unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
            .map_err(file_error(&self.path))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A failure was returned, or ends a run that has failed.
        let _ = self.join();
    }
}

/// Writes entries, after the rows that they describe.
fn keep(data: &File, mut journal: File, entries: &Receiver<Vec<u8>>) -> io::Result<()> {
    while let Ok(mut pending) = entries.recv() {
        pending.extend(entries.try_iter().flatten());
        loop {
            data.sync_data()?;
            journal.write_all(&pending)?;
            journal.sync_data()?;
            pending.clear();
            let synced = Instant::now();
            loop {
                match entries.recv_timeout(SYNC_INTERVAL.saturating_sub(synced.elapsed())) {
                    Ok(entry) => pending.extend(entry),
                    Err(RecvTimeoutError::Timeout) => break,
                    // The file is complete.
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
            if pending.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// A file of samples without a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveredRows {
    /// Its run still writes it.
    Active,
    /// It is complete, and has this number of rows.
    Complete(u64),
}

/// Completes the file of a killed run by its journal, and returns its number of rows.
///
/// # Errors
/// If the file cannot be read or written.
pub fn complete(samples: &Path) -> Result<RecoveredRows, SamplesError> {
    let journal = journal_of(samples);
    let mut text = Vec::new();
    match File::open(&journal) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return count(samples).map(RecoveredRows::Complete);
        }
        Err(error) => return Err(file_error(&journal)(error)),
        Ok(mut file) => {
            if file.try_lock().is_err() {
                return Ok(RecoveredRows::Active);
            }
            file.read_to_end(&mut text).map_err(file_error(&journal))?;
        }
    }
    let rows = restore(samples, &text)?;
    fs::remove_file(&journal).map_err(file_error(&journal))?;
    Ok(RecoveredRows::Complete(rows))
}

/// Replaces the file by its described groups of rows, with a footer.
fn restore(samples: &Path, journal: &[u8]) -> Result<u64, SamplesError> {
    // The run may have been killed after it wrote the footer.
    if let Ok(rows) = count(samples) {
        return Ok(rows);
    }
    let described = decode(journal).map_err(|error| reason(samples, error))?;
    let rows = described.file_metadata().num_rows().unsigned_abs();
    let partial = samples.with_extension("partial");
    let _ = fs::remove_file(&partial);
    let write = || -> io::Result<()> {
        let mut file = create_new(&partial)?;
        let end = end_of(&described);
        if io::copy(&mut File::open(samples)?.take(end), &mut file)? < end {
            return Err(io::Error::other("it is shorter than its journal"));
        }
        ParquetMetaDataWriter::new(&mut file, &described)
            .finish()
            .map_err(io::Error::other)?;
        file.sync_all()?;
        fs::rename(&partial, samples)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&partial);
        file_error(samples)(error)
    })?;
    Ok(rows)
}

/// Returns the number of rows of a complete file.
fn count(samples: &Path) -> Result<u64, SamplesError> {
    let file = File::open(samples).map_err(file_error(samples))?;
    let read = ParquetMetaDataReader::new().parse_and_finish(&file);
    let rows = read.map_err(|error| reason(samples, error))?;
    Ok(rows.file_metadata().num_rows().unsigned_abs())
}

/// Returns the end of the last group of rows.
fn end_of(described: &ParquetMetaData) -> u64 {
    let groups = described.row_groups().iter();
    let ends = groups.flat_map(|group| group.columns().iter().map(|column| column.byte_range()));
    ends.map(|(start, length)| start + length)
        .max()
        .unwrap_or(0)
}

/// Returns an entry: its length, its checksum, and a footer for its rows alone.
fn encode(group: &ParquetMetaData) -> Result<Vec<u8>, ParquetError> {
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, group).finish()?;
    let length = u32::try_from(footer.len()).unwrap_or(u32::MAX);
    let mut entry = length.to_le_bytes().to_vec();
    entry.extend(checksum(&footer).to_le_bytes());
    entry.extend(footer);
    Ok(entry)
}

/// Returns the description of all rows. A truncated entry ends the journal.
fn decode(mut journal: &[u8]) -> Result<ParquetMetaData, ParquetError> {
    let mut groups = Vec::new();
    let mut first = None;
    while let Some((head, rest)) = journal.split_first_chunk::<HEAD>() {
        let [a, b, c, d, sum @ ..] = *head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let Some((footer, rest)) = rest.split_at_checked(length) else {
            break;
        };
        if length < FOOTER_END || checksum(footer) != u64::from_le_bytes(sum) {
            break;
        }
        let entry = ParquetMetaDataReader::decode_metadata(&footer[..length - FOOTER_END])?;
        groups.extend(entry.row_groups().iter().cloned());
        first.get_or_insert(entry);
        journal = rest;
    }
    let Some(first) = first else {
        return Err(ParquetError::General(
            "it ended before the first rows were on the disk".to_owned(),
        ));
    };
    Ok(with_groups(
        first.file_metadata().schema_descr_ptr(),
        groups,
    ))
}

/// Returns the description of these groups in a file of this schema.
fn with_groups(schema: SchemaDescPtr, groups: Vec<RowGroupMetaData>) -> ParquetMetaData {
    let rows = groups.iter().map(RowGroupMetaData::num_rows).sum();
    let file = FileMetaData::new(VERSION, rows, None, None, schema, None);
    ParquetMetaData::new(file, groups)
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Creates a file for this user only. Fails if the name exists, even as a link.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
}

fn file_error(path: &Path) -> impl Fn(io::Error) -> SamplesError {
    let path = path.to_owned();
    move |source| SamplesError::File {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::time::Nanos;

    use super::*;
    use crate::{
        reading,
        rows::{Columns, RowFile, Rows, TableSpec, columns},
    };

    #[derive(Clone)]
    struct Made;

    impl Columns for Made {
        type Row = i64;
        const TABLE: TableSpec<i64, Self> = TableSpec {
            message: "made",
            group: 100,
            columns: columns! {
                /// Number
                number: Long = |row, _| Nanos(*row);
            },
        };
    }

    /// Writes groups of 100 rows, and ends without a footer.
    fn killed(samples: &Path, groups: usize) {
        let mut file = RowFile::create::<Made>(samples).unwrap();
        let mut rows = Rows::new(Made);
        (0..100 * groups as i64).for_each(|number| rows.add(number));
        let batches = rows.take_all();
        for (index, batch) in batches.iter().enumerate() {
            file.write(batch).unwrap();
            if index == 0 {
                // Later entries are written only after the interval.
                wait_for(samples);
            }
        }
        assert_eq!(complete(samples).unwrap(), RecoveredRows::Active);
        drop(file);
    }

    fn wait_for(samples: &Path) {
        let began = Instant::now();
        while fs::metadata(journal_of(samples)).unwrap().len() == 0 {
            assert!(began.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn sum(samples: &Path) -> (u64, f64) {
        let mut sum = 0.0;
        let rows = reading::read(samples, &["number"], |columns, rows| {
            sum += (0..rows).map(|row| columns[0].number(row)).sum::<f64>();
        });
        (rows.unwrap(), sum)
    }

    #[test]
    fn killed_file_is_completed_by_its_journal() {
        let folder = tempfile::tempdir().unwrap();
        let samples = folder.path().join("samples.parquet");
        killed(&samples, 3);
        assert!(reading::read(&samples, &["number"], |_, _| {}).is_err());
        assert_eq!(complete(&samples).unwrap(), RecoveredRows::Complete(100));
        assert_eq!(sum(&samples), (100, 4950.0));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(complete(&samples).unwrap(), RecoveredRows::Complete(100));
    }

    #[test]
    fn truncated_entry_ends_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let samples = folder.path().join("samples.parquet");
        killed(&samples, 1);
        let entry = fs::read(journal_of(&samples)).unwrap();
        for more in [1, HEAD, entry.len() - 1] {
            let mut journal = entry.clone();
            journal.extend(&entry[..more]);
            assert_eq!(decode(&journal).unwrap().num_row_groups(), 1, "{more}");
        }
        let twice = decode(&entry.repeat(2)).unwrap();
        assert_eq!(
            (twice.num_row_groups(), twice.file_metadata().num_rows()),
            (2, 200)
        );
        let mut wrong = entry.clone();
        *wrong.last_mut().unwrap() ^= 1;
        assert!(decode(&wrong).is_err() && decode(&[0; 64]).is_err());
    }

    #[test]
    fn file_shorter_than_its_journal_is_kept_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let samples = folder.path().join("samples.parquet");
        killed(&samples, 1);
        fs::write(&samples, "PAR1").unwrap();
        assert!(
            complete(&samples)
                .unwrap_err()
                .to_string()
                .contains("shorter")
        );
        assert_eq!(fs::read(&samples).unwrap(), b"PAR1");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn finished_file_has_no_journal() {
        let folder = tempfile::tempdir().unwrap();
        let samples = folder.path().join("samples.parquet");
        RowFile::create::<Made>(&samples).unwrap().finish().unwrap();
        assert!(!journal_of(&samples).exists());
        assert!(RowFile::create::<Made>(&samples).is_err(), "it exists");
    }
}
