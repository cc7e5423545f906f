//! Runs the suites: selects tests, runs them concurrently or exclusively, and reports their times.
//!
//! Tests of behavior run concurrently on shared servers. Tests that measure time run after
//! them, one at a time, when no shared server is running. Tests marked `long` run only with
//! `--include-ignored` (`make test-all`).

use std::{
    cell::RefCell,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::ExitCode,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Completion, Trial};

use crate::shared;

/// A test that takes longer than this belongs to `make test-all`.
const BUDGET: Duration = Duration::from_secs(20);
/// Number of the slowest tests that the summary lists.
const SLOWEST: usize = 10;

/// A test and when it runs.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    name: &'static str,
    run: fn(),
    alone: bool,
    long: bool,
}

impl Test {
    /// Returns a test of behavior; [`test!`](crate::test) names it after its function.
    #[must_use]
    pub const fn new(name: &'static str, run: fn()) -> Self {
        Self {
            name,
            run,
            alone: false,
            long: false,
        }
    }

    /// Marks a test that measures time: no other test and no shared server runs at the same time.
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

/// Time that a test took.
struct TestTiming {
    group: &'static str,
    name: &'static str,
    long: bool,
    took: Duration,
}

static RAN: Mutex<Vec<TestTiming>> = Mutex::new(Vec::new());
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the tests that the command line selects; its options are those of `cargo test`.
#[must_use]
pub fn main(groups: &[(&'static str, &[Test])]) -> ExitCode {
    let arguments = Arguments::from_args();
    let began = Instant::now();
    let beside = Arguments {
        test_threads: Some(arguments.test_threads.unwrap_or_else(width)),
        ..arguments.clone()
    };
    let first = libtest_mimic::run(&beside, trials(groups, false));
    shared::close();
    let alone = Arguments {
        test_threads: Some(1),
        ..arguments.clone()
    };
    let second = libtest_mimic::run(&alone, trials(groups, true));
    if !arguments.list {
        summary(began.elapsed());
    }
    if first.has_failed() || second.has_failed() {
        ExitCode::from(101)
    } else {
        ExitCode::SUCCESS
    }
}

/// Number of tests of behavior that run concurrently: they mostly wait for servers. On two cores five take 709 s where three took
/// over 900.
fn width() -> usize {
    thread::available_parallelism().map_or(2, |cores| cores.get() + 3)
}

/// Returns the concurrent or the exclusive tests, groups alternating, so that neighbors rarely use the same servers.
fn trials(groups: &[(&'static str, &[Test])], alone: bool) -> Vec<Trial> {
    let mut numbered: Vec<(usize, &'static str, Test)> = Vec::new();
    for (group, tests) in groups {
        let of_lane = tests.iter().filter(|test| test.alone == alone);
        numbered.extend(
            of_lane
                .enumerate()
                .map(|(number, test)| (number, *group, *test)),
        );
    }
    if !alone {
        numbered.sort_by_key(|(number, ..)| *number);
    }
    numbered
        .into_iter()
        .map(|(_, group, test)| trial(group, test))
        .collect()
}

fn trial(group: &'static str, test: Test) -> Trial {
    let Test {
        name,
        run,
        alone,
        long,
    } = test;
    let body = move || {
        let began = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(run));
        if alone {
            shared::close();
        }
        locked(&RAN).push(TestTiming {
            group,
            name,
            long,
            took: began.elapsed(),
        });
        if let Err(panic) = ended {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            locked(&FAILED).push(format!("{group}::{name}: {}", said.unwrap_or_default()));
            resume_unwind(panic);
        }
        match SKIP.with(RefCell::take) {
            None => Ok(Completion::Completed),
            Some(reason) => {
                locked(&SKIPPED).push(format!("{group}::{name}: {reason}"));
                Ok(Completion::ignored_with(reason))
            }
        }
    };
    Trial::ignorable_test(format!("{group}::{name}"), body).with_ignored_flag(long)
}

/// Prints the slowest tests, the time of each group, tests over their budget and tests that could not run.
fn summary(took: Duration) {
    let mut ran = std::mem::take(&mut *locked(&RAN));
    ran.sort_by_key(|test| std::cmp::Reverse(test.took));
    println!("slowest tests (s):");
    for test in ran.iter().take(SLOWEST) {
        println!(
            "{:8.1}  {}::{}",
            test.took.as_secs_f64(),
            test.group,
            test.name
        );
    }
    let mut groups: BTreeMap<&str, Duration> = BTreeMap::new();
    ran.iter()
        .for_each(|test| *groups.entry(test.group).or_default() += test.took);
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
    println!("groups (s, tests side by side each count whole):");
    for (group, took) in groups {
        println!("{:8.1}  {group}", took.as_secs_f64());
    }
    for test in ran.iter().filter(|test| !test.long && test.took > BUDGET) {
        println!(
            "over budget, move to test-all or shorten: {}::{} took {:.0} s",
            test.group,
            test.name,
            test.took.as_secs_f64()
        );
    }
    for skipped in locked(&SKIPPED).iter() {
        println!("not run here: {skipped}");
    }
    // Repeated at the end, where a long log is read first.
    for failed in locked(&FAILED).iter() {
        println!("failed: {failed}");
    }
    println!("{} tests in {:.0} s", ran.len(), took.as_secs_f64());
}
