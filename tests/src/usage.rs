//! What each test uses: processor time of the test, its commands and its servers, and the servers it starts.
//!
//! One thread reads all processes five times a second. A process belongs to a test if the test's thread is among its parents, if its
//! server's data is in a folder of the test, or if the test has named it. What lives for less than an interval is not seen.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Once},
    thread,
    time::Duration,
};

use crate::harness::locked;

/// Interval between two readings of all processes.
const INTERVAL: Duration = Duration::from_millis(200);

/// A process: its number, and when it started, since numbers are used again.
type ProcessId = (i32, u64);

/// What the system reports of a process.
#[derive(Clone, Debug)]
struct Process {
    id: ProcessId,
    parent: i32,
    /// Processor time, in ticks of the system, without that of its children.
    ticks: u64,
}

/// What a test has used so far.
#[derive(Debug, Default)]
struct Record {
    thread: i32,
    folders: Vec<PathBuf>,
    /// Servers that the test did not start, with their ticks when it received them.
    lent: BTreeMap<ProcessId, u64>,
    /// Processes that the test named.
    named: BTreeSet<i32>,
    /// Ticks of each process of the test.
    ticks: BTreeMap<ProcessId, u64>,
    servers: BTreeSet<ProcessId>,
}

/// What a test has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Processor time of the test, its commands and servers.
    pub(crate) processor: Duration,
    /// Servers that it started.
    pub(crate) servers: usize,
}

static RECORDS: Mutex<Vec<Arc<Mutex<Record>>>> = Mutex::new(Vec::new());
static READER: Once = Once::new();

thread_local! {
    static CURRENT: RefCell<Option<Arc<Mutex<Record>>>> = const { RefCell::new(None) };
}

/// Begins to count for the test on this thread.
pub(crate) fn begin() {
    READER.call_once(|| {
        thread::spawn(|| {
            loop {
                read_all();
                thread::sleep(INTERVAL);
            }
        });
    });
    let record = Arc::new(Mutex::new(Record {
        thread: rustix::thread::gettid().as_raw_nonzero().get(),
        ..Record::default()
    }));
    locked(&RECORDS).push(Arc::clone(&record));
    CURRENT.set(Some(record));
}

/// Ends counting for the test on this thread; `own` is the processor time of its thread.
pub(crate) fn end(own: Duration) -> Usage {
    read_all();
    let Some(record) = CURRENT.take() else {
        return Usage::default();
    };
    locked(&RECORDS).retain(|other| !Arc::ptr_eq(other, &record));
    let record = locked(&record);
    let ticks: u64 = record
        .ticks
        .iter()
        .map(|(id, ticks)| ticks.saturating_sub(record.lent.get(id).copied().unwrap_or(0)))
        .sum();
    Usage {
        processor: own + Duration::from_secs_f64(ticks as f64 / ticks_per_second()),
        servers: record.servers.len(),
    }
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Returns the processor time of this thread.
pub(crate) fn of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Counts servers with data below this folder for the test on this thread.
pub(crate) fn folder(path: &Path) {
    with_current(|record| record.folders.push(path.to_owned()));
}

/// Counts these servers, started by this process, for the test on this thread.
pub(crate) fn started(pids: impl IntoIterator<Item = u32>) {
    with_current(|record| record.named.extend(pids.into_iter().map(|pid| pid as i32)));
}

/// Counts the processor time that these servers, which other tests use too, take from now on.
pub(crate) fn lent(pids: impl IntoIterator<Item = u32>) {
    with_current(|record| {
        for process in pids.into_iter().filter_map(|pid| process(pid as i32)) {
            record.named.insert(process.id.0);
            record.lent.insert(process.id, process.ticks);
        }
    });
}

fn with_current(change: impl FnOnce(&mut Record)) {
    CURRENT.with_borrow(|current| {
        if let Some(record) = current {
            change(&mut locked(record));
        }
    });
}

/// Returns a process; `None` if it has ended.
fn process(pid: i32) -> Option<Process> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/PID/stat`: the name, which may contain anything, ends with the last parenthesis.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        id: (pid, number(19)?),
        parent: fields.get(1)?.parse().ok()?,
        ticks: (11..13).map(number).sum::<Option<u64>>()?,
    })
}

/// Returns the folder of the data of a server; `None` for other processes.
fn data_of(pid: i32) -> Option<PathBuf> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    data_in(&String::from_utf8_lossy(&words))
}

/// Words of a server's command line that does not serve, but prepares a data directory or prints its help.
const NOT_SERVING: [&str; 3] = ["--bootstrap", "--initialize-insecure", "--help"];

fn data_in(command_line: &str) -> Option<PathBuf> {
    let words = || command_line.split('\0');
    let data = words().find_map(|word| word.strip_prefix("--datadir="))?;
    let serves = !words().any(|word| NOT_SERVING.contains(&word)) && !data.contains("/seed-");
    serves.then(|| PathBuf::from(data))
}

/// Adds what all processes have used to the records of the running tests.
fn read_all() {
    let records = locked(&RECORDS).clone();
    if records.is_empty() {
        return;
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes: Vec<(Process, Option<PathBuf>)> = entries
        .filter_map(|entry| {
            let process = process(entry.file_name().to_str()?.parse().ok()?)?;
            let data = data_of(process.id.0);
            Some((process, data))
        })
        .collect();
    let data_of_each: BTreeMap<i32, &PathBuf> = processes
        .iter()
        .filter_map(|(one, data)| Some((one.id.0, data.as_ref()?)))
        .collect();
    let parents: BTreeMap<i32, i32> = processes
        .iter()
        .map(|(one, _)| (one.id.0, one.parent))
        .collect();
    for record in records {
        let mut record = locked(&record);
        let children = format!("/proc/self/task/{0}/children", record.thread);
        let children: BTreeSet<i32> = fs::read_to_string(children)
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect();
        for (one, data) in &processes {
            let pid = one.id.0;
            let mut above = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
            let in_folder = |data: &PathBuf| {
                let mut folders = record.folders.iter();
                folders.any(|folder| data.starts_with(folder))
            };
            let own = record.named.contains(&pid)
                || data.as_ref().is_some_and(in_folder)
                || above.any(|pid| children.contains(&pid));
            if own {
                record.ticks.insert(one.id, one.ticks);
                // A child with the same data is a copy of the server that is about to run another program.
                let copy = data.as_ref() == data_of_each.get(&one.parent).copied();
                if data.is_some() && !copy && !record.lent.contains_key(&one.id) {
                    record.servers.insert(one.id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_parentheses_is_no_field() {
        let stat = "7 (a) (b) S 3 7 7 0 -1 0 0 0 0 0 11 5 900 900 20 0 1 0 4242 0 0";
        let process = parse(7, stat).unwrap();
        assert_eq!(
            (process.id, process.parent, process.ticks),
            ((7, 4242), 3, 16)
        );
    }

    #[test]
    fn only_servers_that_serve_have_data() {
        let data = |words: &str| data_in(&words.replace(' ', "\0"));
        assert_eq!(
            data("mariadbd --datadir=/a/b --port=1"),
            Some(PathBuf::from("/a/b"))
        );
        assert_eq!(data("mariadbd --datadir=/a/b --bootstrap"), None);
        assert_eq!(data("mysqld --datadir=/a/b --initialize-insecure"), None);
        assert_eq!(data("mysqld --datadir=/a/b --verbose --help"), None);
        assert_eq!(data("mariadbd --datadir=/a/seed-x/data"), None);
        assert_eq!(data("tool lag"), None);
    }
}
