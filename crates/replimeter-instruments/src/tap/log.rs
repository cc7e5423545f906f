//! Arrivals on the primary's stream that replicas have not shown yet: packed into a few bytes each,
//! and spilled to a file when there are many.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use replimeter_model::time::Nanos;

/// Bytes of a segment.
const SEGMENT: usize = 64 << 10;
/// Maximum length of an entry: three numbers of up to ten bytes.
const MAX_ENTRY_LENGTH: usize = 30;
/// Maximum segments in memory, of all logs together; the others are in the file.
const IN_MEMORY: usize = 128;

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrivalEntry {
    /// The transaction's number within its source.
    pub(crate) number: u64,
    /// When it arrived; `None` while a connection was lost.
    pub(crate) at: Option<Nanos>,
    /// The set of tables that it changes.
    pub(crate) set: u32,
}

/// An unnamed file, in slots of one segment.
#[derive(Debug, Default)]
pub(crate) struct SpillFile {
    file: Option<File>,
    free: Vec<u64>,
    slots: u64,
    in_memory: usize,
}

impl SpillFile {
    /// Creates a file in this folder; it vanishes with the process. Without a folder everything
    /// stays in memory.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn new(folder: Option<&Path>) -> io::Result<Self> {
        let Some(folder) = folder else {
            return Ok(Self::default());
        };
        let path = folder.join(".pending");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        fs::remove_file(&path)?;
        Ok(Self {
            file: Some(file),
            ..Self::default()
        })
    }

    fn put(&mut self, bytes: Vec<u8>) -> io::Result<SegmentPlace> {
        let Some(file) = self.file.as_ref().filter(|_| self.in_memory >= IN_MEMORY) else {
            self.in_memory += 1;
            return Ok(SegmentPlace::Memory(Arc::new(bytes)));
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        file.write_all_at(&bytes, slot * SEGMENT as u64)?;
        Ok(SegmentPlace::File {
            slot,
            length: bytes.len(),
        })
    }

    fn get(&self, place: &SegmentPlace) -> io::Result<Arc<Vec<u8>>> {
        match (place, &self.file) {
            (SegmentPlace::Memory(bytes), _) => Ok(Arc::clone(bytes)),
            (SegmentPlace::File { slot, length }, Some(file)) => {
                let mut bytes = vec![0; *length];
                file.read_exact_at(&mut bytes, slot * SEGMENT as u64)?;
                Ok(Arc::new(bytes))
            }
            (SegmentPlace::File { .. }, None) => Err(io::Error::other(
                "the file of pending arrivals no longer exists",
            )),
        }
    }

    fn release(&mut self, place: &SegmentPlace) {
        match place {
            SegmentPlace::Memory(_) => self.in_memory -= 1,
            SegmentPlace::File { slot, .. } => self.free.push(*slot),
        }
    }

    /// Returns the maximum size of the file, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots * SEGMENT as u64
    }
}

#[derive(Debug)]
enum SegmentPlace {
    Memory(Arc<Vec<u8>>),
    File { slot: u64, length: usize },
}

/// The entry that the next one is encoded as a difference from.
#[derive(Clone, Copy, Debug, Default)]
struct PreviousEntry {
    number: u64,
    at: i64,
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take(bytes: &[u8], offset: &mut usize) -> Option<u64> {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = *bytes.get(*offset)?;
        *offset += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(value);
        }
        shift += 7;
    }
}

/// Encodes small numbers of either sign as small numbers.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

impl PreviousEntry {
    fn pack(&mut self, entry: &ArrivalEntry, out: &mut Vec<u8>) {
        put(out, zigzag(entry.number.wrapping_sub(self.number) as i64));
        put(
            out,
            u64::from(entry.set) << 1 | u64::from(entry.at.is_none()),
        );
        self.number = entry.number;
        if let Some(Nanos(at)) = entry.at {
            put(out, zigzag(at.wrapping_sub(self.at)));
            self.at = at;
        }
    }

    fn unpack(&mut self, bytes: &[u8], offset: &mut usize) -> Option<ArrivalEntry> {
        self.number = self
            .number
            .wrapping_add(unzigzag(take(bytes, offset)?) as u64);
        let set = take(bytes, offset)?;
        let at = if set & 1 == 0 {
            self.at = self.at.wrapping_add(unzigzag(take(bytes, offset)?));
            Some(Nanos(self.at))
        } else {
            None
        };
        Some(ArrivalEntry {
            number: self.number,
            at,
            set: (set >> 1) as u32,
        })
    }
}

/// The arrivals of one source, in order.
#[derive(Debug, Default)]
pub(crate) struct ArrivalLog {
    sealed: VecDeque<SegmentPlace>,
    /// The number of the first sealed segment.
    first: u64,
    open: Vec<u8>,
    before: PreviousEntry,
    /// The highest number so far.
    pub(crate) highest: u64,
    /// The number of entries.
    pub(crate) count: u64,
}

impl ArrivalLog {
    /// Adds an arrival.
    ///
    /// # Errors
    /// When writing fails.
    pub(crate) fn push(&mut self, entry: &ArrivalEntry, spill: &mut SpillFile) -> io::Result<()> {
        if self.open.len() + MAX_ENTRY_LENGTH > SEGMENT {
            let full = std::mem::take(&mut self.open);
            self.sealed.push_back(spill.put(full)?);
        }
        self.before.pack(entry, &mut self.open);
        self.highest = self.highest.max(entry.number);
        self.count += 1;
        Ok(())
    }

    /// Forgets segments before this one.
    pub(crate) fn forget_before(&mut self, segment: u64, spill: &mut SpillFile) {
        while self.first < segment
            && let Some(place) = self.sealed.pop_front()
        {
            spill.release(&place);
            self.first += 1;
        }
    }
}

/// A position in a log.
#[derive(Debug, Default)]
pub(crate) struct LogCursor {
    segment: u64,
    offset: usize,
    before: PreviousEntry,
    loaded: Option<Arc<Vec<u8>>>,
}

impl LogCursor {
    /// Returns a cursor after all current entries.
    pub(crate) fn at_end(log: &ArrivalLog) -> Self {
        Self {
            segment: log.first + log.sealed.len() as u64,
            offset: log.open.len(),
            before: log.before,
            loaded: None,
        }
    }

    /// Returns its segment.
    pub(crate) fn segment(&self) -> u64 {
        self.segment
    }

    /// Returns the next arrival, if there is one yet.
    ///
    /// # Errors
    /// When reading fails.
    pub(crate) fn next(
        &mut self,
        log: &ArrivalLog,
        spill: &SpillFile,
    ) -> io::Result<Option<ArrivalEntry>> {
        loop {
            let index = self.segment.saturating_sub(log.first) as usize;
            let Some(place) = log.sealed.get(index) else {
                return Ok(self.before.unpack(&log.open, &mut self.offset));
            };
            let bytes = match &self.loaded {
                Some(bytes) => bytes,
                None => self.loaded.insert(spill.get(place)?),
            };
            if let Some(entry) = self.before.unpack(bytes, &mut self.offset) {
                return Ok(Some(entry));
            }
            self.segment += 1;
            self.offset = 0;
            self.loaded = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn logged_arrivals_are_read_back(entries in proptest::collection::vec((any::<u64>(), any::<Option<i64>>(), 0u32..1 << 30), 0..200)) {
            let mut spill = SpillFile::default();
            let mut log = ArrivalLog::default();
            let mut cursor = LogCursor::default();
            let entries: Vec<ArrivalEntry> =
                entries.iter().map(|(number, at, set)| ArrivalEntry { number: *number, at: at.map(Nanos), set: *set }).collect();
            for entry in &entries {
                log.push(entry, &mut spill).unwrap();
            }
            for entry in &entries {
                prop_assert_eq!(cursor.next(&log, &spill).unwrap(), Some(*entry));
            }
            prop_assert_eq!(cursor.next(&log, &spill).unwrap(), None);
        }
    }

    #[test]
    fn segments_are_spilled_read_back_and_reused() {
        let folder = std::env::temp_dir().join(format!("replimeter-spill-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut spill = SpillFile::new(Some(&folder)).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "it has no name");
        let (mut log, mut cursor) = (ArrivalLog::default(), LogCursor::default());
        let entry = |number: u64| ArrivalEntry {
            number,
            at: Some(Nanos(number as i64 * 50_000)),
            set: 1,
        };
        let mut largest = 0;
        for round in 0..3u64 {
            for number in round * 3_000_000..(round + 1) * 3_000_000 {
                log.push(&entry(number), &mut spill).unwrap();
            }
            assert!(spill.in_memory <= IN_MEMORY);
            assert!(spill.bytes() > 0);
            if round == 1 {
                largest = spill.bytes();
            }
            for number in round * 3_000_000..(round + 1) * 3_000_000 {
                assert_eq!(cursor.next(&log, &spill).unwrap(), Some(entry(number)));
            }
            log.forget_before(cursor.segment(), &mut spill);
        }
        assert!(
            spill.bytes() <= largest + SEGMENT as u64,
            "slots are used again"
        );
        assert_eq!(spill.in_memory, 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
