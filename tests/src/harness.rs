//! Runs the suites: selects tests, runs them concurrently or exclusively, and reports what they used.
//!
//! Tests of behavior run concurrently, on servers of their own or on shared ones, as many as memory and cores allow for the servers
//! that each declares. Tests that compare times run after them, one at a time, when no shared server is running. Tests marked
//! `long` run only with `--include-ignored` (`make test-all`).

use std::{
    cell::RefCell,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::ExitCode,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::{
    shared,
    usage::{self, Usage},
};

/// Processor time of a test, its commands and its servers, beyond which it belongs to `make test-all`.
const PROCESSOR_BUDGET: Duration = Duration::from_secs(20);
/// Servers that a test may start, unless it is long.
const SERVER_BUDGET: usize = 4;
/// Memory that one server needs without its files: the mean of both engines, and a reserve.
const SERVER_MB: u64 = 300;
/// Servers of running tests, for each core: they mostly wait.
const SERVERS_PER_CORE: usize = 6;
/// Number of the slowest tests that the summary lists.
const SLOWEST: usize = 10;

/// A test and when it runs.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    name: &'static str,
    run: fn(),
    servers: usize,
    alone: bool,
    long: bool,
}

impl Test {
    /// Returns a test of behavior that starts no server; [`test!`](crate::test) names it after its function.
    #[must_use]
    pub const fn new(name: &'static str, run: fn()) -> Self {
        Self {
            name,
            run,
            servers: 0,
            alone: false,
            long: false,
        }
    }

    /// Declares the number of servers that the test starts, or of a long test those that run at once; shared ones do not count.
    #[must_use]
    pub const fn starts(self, servers: usize) -> Self {
        Self { servers, ..self }
    }

    /// Marks a test that compares times: no other test and no shared server runs at the same time.
    #[must_use]
    pub const fn alone(self) -> Self {
        Self {
            alone: true,
            ..self
        }
    }

    /// Marks a test that needs repetition or length: only `make test-all` runs it.
    #[must_use]
    pub const fn long(self) -> Self {
        Self { long: true, ..self }
    }
}

/// Returns the number of servers that the tests of `make test` declare to start.
#[must_use]
pub fn declared_servers(groups: &[(&'static str, &[Test])]) -> usize {
    let tests = groups.iter().flat_map(|(_, tests)| tests.iter());
    tests
        .filter(|test| !test.long)
        .map(|test| test.servers)
        .sum()
}

/// Makes a [`Test`] of a function; with `on FIXTURE`, of one that is passed to a function which prepares its servers.
/// `MODULE::FUNCTION` is a function of a module in its group; the test's name leaves the module out.
#[macro_export]
macro_rules! test {
    ($function:ident) => {
        $crate::harness::Test::new(stringify!($function), $function)
    };
    ($module:ident::$function:ident) => {
        $crate::harness::Test::new(stringify!($function), $module::$function)
    };
    ($function:ident on $fixture:ident) => {
        $crate::harness::Test::new(
            concat!(stringify!($function), "_on_", stringify!($fixture)),
            || $fixture($function),
        )
    };
    ($module:ident::$function:ident on $fixture:ident) => {
        $crate::harness::Test::new(
            concat!(stringify!($function), "_on_", stringify!($fixture)),
            || $fixture($module::$function),
        )
    };
}

/// Modules of the suites, each with its tests.
#[macro_export]
macro_rules! groups {
    ($($group:ident),* $(,)?) => {
        &[$((stringify!($group), $group::TESTS)),*]
    };
}

/// What a test took.
struct Ran {
    group: &'static str,
    test: Test,
    took: Duration,
    usage: Usage,
}

impl Ran {
    /// Returns why the test belongs to `make test-all`, or declares too few servers.
    fn over_budget(&self) -> Option<String> {
        let Usage { processor, servers } = self.usage;
        if self.test.long {
            return None;
        }
        if servers > self.test.servers {
            return Some(format!(
                "it started {servers} servers and declares {}: write .starts({servers})",
                self.test.servers
            ));
        }
        let over = processor > PROCESSOR_BUDGET || self.test.servers > SERVER_BUDGET;
        over.then(|| {
            format!(
                "it used {:.1} s of processor time (at most {}) and declares {} servers (at most {SERVER_BUDGET}): shorten it, or mark it .long()",
                processor.as_secs_f64(),
                PROCESSOR_BUDGET.as_secs(),
                self.test.servers
            )
        })
    }
}

static RAN: Mutex<Vec<Ran>> = Mutex::new(Vec::new());
static FAILED: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SKIPPED: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// Reason why the test on this thread cannot run on this machine.
    static SKIP: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records that the running test cannot run on this machine; the caller returns. Fails if
/// the environment variable `CI` is set, where all tests must run.
///
/// # Panics
/// In continuous integration.
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "cannot run here: {reason}"
    );
    SKIP.with(|skip| *skip.borrow_mut() = Some(reason.to_owned()));
}

/// Locks a mutex, also after a panic of another test.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the tests that the command line selects; its options are those of `cargo test`.
#[must_use]
pub fn main(groups: &[(&'static str, &[Test])]) -> ExitCode {
    let arguments = Arguments::from_args();
    let began = Instant::now();
    let places = arguments.test_threads.unwrap_or_else(places);
    let parallel = Arguments {
        test_threads: Some(places),
        ..arguments.clone()
    };
    let first = libtest_mimic::run(&parallel, trials(groups, false, places));
    shared::close();
    let concurrent = began.elapsed();
    let alone = Arguments {
        test_threads: Some(1),
        ..arguments.clone()
    };
    let second = libtest_mimic::run(&alone, trials(groups, true, places));
    if !arguments.list {
        summary(concurrent, began.elapsed());
    }
    if first.has_failed() || second.has_failed() {
        ExitCode::from(101)
    } else {
        ExitCode::SUCCESS
    }
}

/// Returns the number of servers that memory has room for, as `scripts/run-suites` found it.
fn servers_by_memory() -> usize {
    let memory = std::env::var("REPLIMETER_TESTS_MB").ok();
    let memory = memory.and_then(|text| text.parse::<u64>().ok());
    memory.map_or(2 * SERVER_BUDGET, |mb| (mb / SERVER_MB) as usize)
}

/// Returns the number of own servers of tests that may run at once, by cores and by half of the memory.
fn places() -> usize {
    let by_cores = thread::available_parallelism().map_or(1, usize::from) * SERVERS_PER_CORE;
    by_cores.min(servers_by_memory() / 2).max(1)
}

/// Returns the number of shared servers that may run at once, by the memory that is left.
pub(crate) fn shared_places() -> usize {
    servers_by_memory().saturating_sub(places())
}

/// Places for the servers of running tests.
struct Places {
    free: Mutex<usize>,
    changed: Condvar,
}

impl Places {
    /// Waits for this number of places; they are free again when the result is dropped.
    fn take(&self, wanted: usize) -> Taken<'_> {
        let free = locked(&self.free);
        let mut free = self
            .changed
            .wait_while(free, |free| *free < wanted)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= wanted;
        Taken {
            places: self,
            count: wanted,
        }
    }
}

struct Taken<'a> {
    places: &'a Places,
    count: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *locked(&self.places.free) += self.count;
        self.places.changed.notify_all();
    }
}

/// Returns the concurrent or the exclusive tests. Of the concurrent ones those with most servers are first, which leaves the small
/// ones to fill the end; groups alternate, so that neighbors rarely use the same servers.
fn trials(groups: &[(&'static str, &[Test])], alone: bool, places: usize) -> Vec<Trial> {
    let all: &'static Places = Box::leak(Box::new(Places {
        free: Mutex::new(places),
        changed: Condvar::new(),
    }));
    let mut numbered: Vec<(usize, &'static str, Test)> = Vec::new();
    for (group, tests) in groups {
        let of_kind = tests.iter().filter(|test| test.alone == alone);
        numbered.extend(
            of_kind
                .enumerate()
                .map(|(number, test)| (number, *group, *test)),
        );
    }
    if !alone {
        numbered.sort_by_key(|(number, _, test)| (std::cmp::Reverse(test.servers), *number));
    }
    numbered
        .into_iter()
        .map(|(_, group, test)| {
            let wanted = test.servers.clamp(1, places);
            let body = move || {
                let _taken = all.take(wanted);
                run(group, test)
            };
            Trial::ignorable_test(format!("{group}::{}", test.name), body)
                .with_ignored_flag(test.long)
        })
        .collect()
}

/// Runs a test, and fails if it used more than its budget.
fn run(group: &'static str, test: Test) -> Result<Completion, Failed> {
    let (began, own) = (Instant::now(), usage::of_this_thread());
    usage::begin();
    let ended = catch_unwind(AssertUnwindSafe(test.run));
    let usage = usage::end(usage::of_this_thread().saturating_sub(own));
    if test.alone {
        shared::close();
    }
    let ran = Ran {
        group,
        test,
        took: began.elapsed(),
        usage,
    };
    let over = ran.over_budget();
    locked(&RAN).push(ran);
    if let Err(panic) = ended {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        locked(&FAILED).push(format!(
            "{group}::{}: {}",
            test.name,
            said.unwrap_or_default()
        ));
        resume_unwind(panic);
    }
    if let Some(reason) = SKIP.with(RefCell::take) {
        locked(&SKIPPED).push(format!("{group}::{}: {reason}", test.name));
        return Ok(Completion::ignored_with(reason));
    }
    match over {
        None => Ok(Completion::Completed),
        Some(over) => {
            locked(&FAILED).push(format!("{group}::{}: {over}", test.name));
            Err(over.into())
        }
    }
}

/// Prints what the tests took: the slowest, each group, those over their budget, and those that could not run.
fn summary(concurrent: Duration, took: Duration) {
    let mut ran = std::mem::take(&mut *locked(&RAN));
    ran.sort_by_key(|test| std::cmp::Reverse(test.took));
    if std::env::var_os("REPLIMETER_TESTS_LIST").is_some() {
        for one in &ran {
            println!("used {} {}", row(one), one.test.long);
        }
    }
    println!("slowest tests (seconds, of processor time, servers started):");
    for one in ran.iter().take(SLOWEST) {
        println!("{}", row(one));
    }
    let mut groups: BTreeMap<&str, Usage> = BTreeMap::new();
    for one in &ran {
        let group = groups.entry(one.group).or_default();
        group.processor += one.usage.processor;
        group.servers += one.usage.servers;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, usage)| std::cmp::Reverse(usage.processor));
    println!("groups (seconds of processor time, servers started):");
    for (group, usage) in &groups {
        println!(
            "{:8.1} {:3}  {group}",
            usage.processor.as_secs_f64(),
            usage.servers
        );
    }
    for skipped in locked(&SKIPPED).iter() {
        println!("not run here: {skipped}");
    }
    // Repeated at the end, where a long log is read first.
    for failed in locked(&FAILED).iter() {
        println!("failed: {failed}");
    }
    println!(
        "{} tests in {:.0} s ({:.0} s of them one at a time); {:.0} s of processor time, {} servers started",
        ran.len(),
        took.as_secs_f64(),
        (took - concurrent).as_secs_f64(),
        groups
            .iter()
            .map(|(_, usage)| usage.processor.as_secs_f64())
            .sum::<f64>(),
        groups.iter().map(|(_, usage)| usage.servers).sum::<usize>(),
    );
}

fn row(one: &Ran) -> String {
    format!(
        "{:8.1} {:6.1} {:3}  {}::{}",
        one.took.as_secs_f64(),
        one.usage.processor.as_secs_f64(),
        one.usage.servers,
        one.group,
        one.test.name
    )
}
