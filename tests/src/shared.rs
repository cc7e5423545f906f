//! Servers that tests of behavior share: sandboxes that are started when they are first needed, and used by one test at a time.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;

use crate::{LIMIT, clean, harness, session, start_unaccounted, usage, wait_until};

/// Sandboxes of one shape that run at the same time, for each core.
const COPIES_PER_CORE: usize = 2;
/// Shared servers that may be idle, for each place of servers of running tests.
const IDLE_PER_PLACE: usize = 2;

/// The shared sandboxes.
struct Pool {
    /// Those that no test uses, the least recently used first, each with its shape and options.
    idle: VecDeque<(String, Sandbox)>,
    /// Sandboxes that run or start, by shape and options.
    copies: BTreeMap<String, usize>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    idle: VecDeque::new(),
    copies: BTreeMap::new(),
});
static RETURNED: Condvar = Condvar::new();

/// Shared servers, exclusive to one test until this is dropped. Databases that the test left are
/// dropped; after a failed test the servers are stopped, and the next test gets new ones.
pub struct Shared {
    key: String,
    /// `None` only while this is dropped.
    sandbox: Option<Sandbox>,
    databases: BTreeSet<String>,
}

/// Returns servers of this shape, with these options for all of them. A test restores what it
/// changes besides data; a test that kills servers starts its own.
#[must_use]
pub fn shared(shape: &str, options: &[&str]) -> Shared {
    let shape = with_engine(shape);
    let key = format!("{shape} {}", options.join(" "));
    let sandbox = take(&key).unwrap_or_else(|| {
        make_room();
        catch_unwind(|| start_unaccounted(&shape, options)).unwrap_or_else(|panic| {
            give_back(&key, None);
            resume_unwind(panic)
        })
    });
    usage::lent(sandbox.pids());
    let mut shared = Shared {
        key,
        sandbox: Some(sandbox),
        databases: BTreeSet::new(),
    };
    shared.databases = databases(&shared.nodes()[0]);
    shared
}

/// Returns a shape with its engine, so that each has one name.
fn with_engine(shape: &str) -> String {
    match shape {
        _ if shape.contains('/') => shape.to_owned(),
        _ if shape.starts_with("group") => format!("mysql/{shape}"),
        _ => format!("mariadb/{shape}"),
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    harness::locked(&POOL)
}

/// Returns an idle sandbox, waiting for one if there are as many as may be; `None` if the caller starts one.
fn take(key: &str) -> Option<Sandbox> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // Where memory is short, there is one of each.
    let most = if harness::has_all_places() {
        cores * COPIES_PER_CORE
    } else {
        1
    };
    let mut pool = pool();
    loop {
        if let Some(at) = pool.idle.iter().position(|(other, _)| other == key) {
            return pool.idle.remove(at).map(|(_, sandbox)| sandbox);
        }
        let copies = pool.copies.entry(key.to_owned()).or_default();
        if *copies < most {
            *copies += 1;
            return None;
        }
        pool = RETURNED.wait(pool).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Returns a sandbox to the pool, or the place of one that has ended.
fn give_back(key: &str, sandbox: Option<Sandbox>) {
    let mut pool = pool();
    match sandbox {
        Some(sandbox) => pool.idle.push_back((key.to_owned(), sandbox)),
        None => *pool.copies.entry(key.to_owned()).or_insert(1) -= 1,
    }
    RETURNED.notify_all();
}

/// Stops idle sandboxes, those used least recently first, as long as more servers are idle than have their place.
fn make_room() {
    let most = harness::places() * IDLE_PER_PLACE;
    loop {
        let mut pool = pool();
        let idle: usize = pool.idle.iter().map(|(_, one)| one.members().len()).sum();
        let Some((key, sandbox)) = (idle > most).then(|| pool.idle.pop_front()).flatten() else {
            return;
        };
        drop(pool);
        drop(sandbox);
        give_back(&key, None);
    }
}

impl Deref for Shared {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        self.sandbox
            .as_ref()
            .expect("the sandbox is there for as long as it is lent")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let restored = if thread::panicking() {
            Ok(false)
        } else {
            catch_unwind(AssertUnwindSafe(|| self.restore())).map(|()| true)
        };
        let sandbox = self.sandbox.take();
        // Servers that a failed test left are not used again.
        give_back(
            &self.key,
            sandbox.filter(|_| restored.as_ref().is_ok_and(|yes| *yes)),
        );
        if let Err(panic) = restored {
            resume_unwind(panic);
        }
    }
}

impl Shared {
    /// Drops the databases that the test left, and waits for the state before it.
    fn restore(&self) {
        let nodes = self.nodes();
        for left in databases(&nodes[0]).difference(&self.databases) {
            session(&nodes[0])
                .run("test", &format!("DROP DATABASE `{left}`"))
                .unwrap();
        }
        wait_until("every server has its initial state", LIMIT, || {
            nodes
                .iter()
                .all(|node| clean(node) && databases(node).is_subset(&self.databases))
        });
    }
}

fn databases(node: &Node) -> BTreeSet<String> {
    let rows = session(node)
        .rows(
            "test",
            "SELECT schema_name AS name FROM information_schema.schemata",
        )
        .unwrap();
    rows.into_iter().map(|row| row["name"].clone()).collect()
}

/// Stops all shared servers.
///
/// # Panics
/// If a test still uses one.
pub(crate) fn close() {
    let mut pool = pool();
    let idle = std::mem::take(&mut pool.idle);
    let running: usize = pool.copies.values().sum();
    assert_eq!(running, idle.len(), "a test still uses shared servers");
    pool.copies.clear();
    drop(pool);
    drop(idle);
}
