//! The journal of a run: its calls as they happen, and from time to time how it would end if it ended then. Of a
//! run that was cut off, `report` makes the samples and the figures from it, as a replay does.
//!
//! A chunk of lines is a gzip member, which is complete or ignored. A thread of its own compresses and writes
//! them. The collecting thread waits for it only when the disk is so slow that [`QUEUE`] chunks wait: no
//! measuring thread waits, and memory stays bounded.

use std::{
    fs::{self, File, TryLockError},
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use flate2::{Compression, bufread::GzDecoder, write::GzEncoder};
use replimeter_render::files::{create_new, open_regular};
use serde::Serialize;
use serde_json::Value;

use crate::{
    cli_error::CliError,
    run_dir::{failed, sync_folder_of},
};

/// Bytes of lines that are held until they are a chunk.
const CHUNK: usize = 1 << 20;
/// Bytes of a line and of a chunk at most when they are read. A call can be large, and a value in memory takes 16 times
/// its text.
const MAX_LINE: usize = 16 << 20;
const MAX_CHUNK: u64 = 32 << 20;
/// Chunks that wait for the disk at most.
const QUEUE: usize = 4;

/// Lines, and whether they are synced as soon as they are written.
type Chunk = (Vec<u8>, bool);

/// The journal of a run that is under way. Its file is locked until it is dropped.
pub(crate) struct Journal {
    path: PathBuf,
    /// Holds the lock.
    file: File,
    held: Vec<u8>,
    chunks: Option<SyncSender<Chunk>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Journal {
    /// Creates the journal of a run.
    ///
    /// # Errors
    /// If it cannot be created, or the name exists, even as a link.
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        Self::with(path, File::sync_data)
    }

    fn with(
        path: &Path,
        sync: impl Fn(&File) -> io::Result<()> + Send + 'static,
    ) -> Result<Self, CliError> {
        let (chunks, received) = sync_channel(QUEUE);
        let start = || {
            let file = create_new(path)?;
            file.try_lock()?;
            sync_folder_of(path)?;
            let written = file.try_clone()?;
            let thread = thread::Builder::new().name("journal".to_owned());
            Ok((file, thread.spawn(move || keep(written, &received, sync))?))
        };
        let (file, thread) = start().map_err(|error| failed("write", path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            held: Vec::new(),
            chunks: Some(chunks),
            thread: Some(thread),
        })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// If an earlier one could not be written.
    pub(crate) fn add(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        serde_json::to_writer(&mut self.held, value)
            .map_err(|error| failed("write", &self.path, &error.into()))?;
        self.held.push(b'\n');
        if self.held.len() < CHUNK {
            return Ok(());
        }
        self.send(false)
    }

    /// Has the lines so far written, and synced at once: every few seconds at most, since a sync makes the disk
    /// slower for a server on it.
    ///
    /// # Errors
    /// If earlier ones could not be written.
    pub(crate) fn hand_on(&mut self) -> Result<(), CliError> {
        self.send(true)
    }

    fn send(&mut self, synced: bool) -> Result<(), CliError> {
        let chunk = (std::mem::take(&mut self.held), synced);
        let chunks = self.chunks.as_ref();
        match chunks.is_some_and(|chunks| chunks.send(chunk).is_ok()) {
            true => Ok(()),
            false => self.wait(),
        }
    }

    /// Returns when all lines are on the disk.
    ///
    /// # Errors
    /// If they could not be written.
    pub(crate) fn wait(&mut self) -> Result<(), CliError> {
        self.chunks = None;
        let ended = self.thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        ended
            .unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
            .map_err(|error| failed("write", &self.path, &error))
    }

    /// Removes the journal of a run whose record is complete.
    pub(crate) fn remove(self) {
        // If it stays, `report` ignores it.
        let _ = fs::remove_file(&self.path);
        drop(self.file);
    }
}

/// Writes chunks as they arrive.
fn keep(
    mut file: File,
    chunks: &Receiver<Chunk>,
    sync: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    for (chunk, synced) in chunks {
        // A member without lines would be read as the end.
        if !chunk.is_empty() {
            let mut member = GzEncoder::new(Vec::new(), Compression::fast());
            member.write_all(&chunk)?;
            file.write_all(&member.finish()?)?;
        }
        if synced {
            sync(&file)?;
        }
    }
    sync(&file)
}

/// The journal of a run that has ended, read chunk by chunk.
pub(crate) enum Found {
    /// It does not exist.
    Missing,
    /// The run is still under way.
    Active,
    /// Its lines.
    Lines(Lines),
}

/// Opens a journal.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn open(path: &Path) -> io::Result<Found> {
    let file = match open_regular(path, u64::MAX) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Found::Active),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(Found::Lines(Lines {
        file: Some(BufReader::new(file)),
        chunk: Vec::new(),
        at: 0,
    }))
}

/// The lines of a journal, up to the first chunk that is incomplete. They are parsed one by one: memory is that of a line.
pub(crate) struct Lines {
    /// Locked as long as this lives; `None` after a line that cannot be read.
    file: Option<BufReader<File>>,
    chunk: Vec<u8>,
    /// The next line in it.
    at: usize,
}

impl Iterator for Lines {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            let rest = self.chunk.get(self.at..).unwrap_or_default();
            let Some(line) = rest
                .split(|byte| *byte == b'\n')
                .next()
                .filter(|_| !rest.is_empty())
            else {
                self.chunk = chunk(self.file.as_mut()?)?;
                self.at = 0;
                continue;
            };
            self.at += line.len() + 1;
            if line.is_empty() {
                continue;
            }
            let value = match line.len() <= MAX_LINE {
                true => serde_json::from_slice(line).ok(),
                false => None,
            };
            if value.is_none() {
                self.file = None;
                self.chunk = Vec::new();
            }
            return value;
        }
    }
}

/// Reads the text of a chunk; `None` at the end, and for a chunk that is incomplete or damaged.
fn chunk(file: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let member = GzDecoder::new(file);
    // Its checksum is compared only when its end is read.
    let read = member.take(MAX_CHUNK).read_to_end(&mut text).ok()?;
    if read == 0 || read as u64 == MAX_CHUNK {
        return None;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc, Mutex,
            atomic::{AtomicU32, Ordering},
            mpsc,
        },
        time::Duration,
    };

    use super::*;
    use crate::run_dir::JOURNAL;

    /// Returns the numbers of a journal's lines.
    fn numbers(path: &Path) -> Vec<u64> {
        let Ok(Found::Lines(lines)) = open(path) else {
            panic!("it is there, and not locked");
        };
        lines.map(|line| line.as_u64().unwrap()).collect()
    }

    /// Writes three chunks of three lines, and returns their ends.
    fn written(path: &Path) -> Vec<usize> {
        let mut journal = Journal::create(path).unwrap();
        for number in 0..9_u64 {
            journal.add(&number).unwrap();
            if number % 3 == 2 {
                journal.hand_on().unwrap();
            }
        }
        journal.wait().unwrap();
        assert!(matches!(open(path).unwrap(), Found::Active));
        drop(journal);
        let bytes = fs::read(path).unwrap();
        let starts = bytes.windows(3).enumerate();
        let starts = starts.filter(|(_, bytes)| *bytes == [0x1f, 0x8b, 8]);
        starts
            .map(|(at, _)| at)
            .skip(1)
            .chain([bytes.len()])
            .collect()
    }

    #[test]
    fn only_lines_that_are_handed_on_are_synced_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let syncs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&syncs);
        let sync = move |_: &File| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let path = folder.path().join(JOURNAL);
        let mut journal = Journal::with(&path, sync).unwrap();
        for _ in 0..5 {
            journal.add(&"-".repeat(CHUNK)).unwrap();
        }
        // All lines are under way.
        journal.hand_on().unwrap();
        journal.add(&"-".repeat(CHUNK)).unwrap();
        journal.wait().unwrap();
        // The last time at the end.
        assert_eq!(syncs.load(Ordering::Relaxed), 2);
        drop(journal);
        let Found::Lines(lines) = open(&path).unwrap() else {
            panic!("it is there, and not locked");
        };
        assert_eq!(lines.count(), 6);
    }

    #[test]
    fn slow_disk_holds_the_writer_of_lines_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(JOURNAL);
        let (all_added, heard) = mpsc::channel();
        let heard = Mutex::new(Some(heard));
        let sync = move |_: &File| {
            // The first takes longer than adding lines.
            if let Some(heard) = heard.lock().unwrap().take() {
                let heard = heard.recv_timeout(Duration::from_millis(300));
                assert!(heard.is_err(), "lines are held without a limit");
            }
            Ok(())
        };
        let mut journal = Journal::with(&path, sync).unwrap();
        for _ in 0..QUEUE + 2 {
            journal.add(&1).unwrap();
            journal.hand_on().unwrap();
        }
        let _ = all_added.send(());
        journal.wait().unwrap();
    }

    #[test]
    fn truncated_chunk_ends_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(JOURNAL);
        let ends = written(&path);
        let all = fs::read(&path).unwrap();
        assert_eq!(ends.len(), 3);
        for length in 0..=all.len() {
            fs::write(&path, &all[..length]).unwrap();
            let whole = ends.iter().filter(|end| **end <= length).count() as u64;
            assert_eq!(
                numbers(&path),
                (0..whole * 3).collect::<Vec<u64>>(),
                "{length}"
            );
        }
    }

    #[test]
    fn damaged_chunk_ends_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(JOURNAL);
        let ends = written(&path);
        let all = fs::read(&path).unwrap();
        // What a power cut leaves of blocks that were not yet written, and one wrong bit in each byte.
        let mut zeros = all.clone();
        zeros[ends[0]..].fill(0);
        fs::write(&path, &zeros).unwrap();
        assert_eq!(numbers(&path), [0, 1, 2]);
        for at in ends[0]..ends[1] {
            let mut wrong = all.clone();
            wrong[at] ^= 1;
            fs::write(&path, &wrong).unwrap();
            let read = numbers(&path);
            // Bytes of a member's head say when and where it was written.
            assert!(
                read == [0, 1, 2] || read == (0..9).collect::<Vec<u64>>(),
                "{at}: {read:?}"
            );
        }
        fs::write(&path, "[1]\n").unwrap();
        assert_eq!(numbers(&path), [0; 0]);
        // Small files of huge lines and chunks.
        for bytes in [MAX_LINE + 1, MAX_CHUNK as usize] {
            let mut chunk = GzEncoder::new(Vec::new(), Compression::fast());
            chunk.write_all(b"0\n").unwrap();
            chunk.write_all(&vec![b' '; bytes]).unwrap();
            chunk.write_all(b"1\n2\n").unwrap();
            fs::write(&path, chunk.finish().unwrap()).unwrap();
            let whole = bytes < MAX_CHUNK as usize;
            assert_eq!(numbers(&path), vec![0; usize::from(whole)]);
        }
        fs::write(&path, "").unwrap();
        fs::remove_file(&path).unwrap();
        assert!(matches!(open(&path).unwrap(), Found::Missing));
    }
}
