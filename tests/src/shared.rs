//! Servers that tests of behavior share: sandboxes that are started when they are first needed, and used by one test at a time.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use replimeter_engine::Node;
use replimeter_model::shape::Shape;
use replimeter_sandbox::Sandbox;

use crate::{LIMIT, clean, harness, session, start_unaccounted, usage, wait_until};

/// Sandboxes of one shape that run at the same time, for each core.
const COPIES_PER_CORE: usize = 2;

/// The shared sandboxes.
struct Pool {
    /// Those that no test uses, the least recently used first, each with its shape and options.
    idle: VecDeque<(String, Sandbox)>,
    /// Sandboxes that run or start, by shape and options.
    copies: BTreeMap<String, usize>,
    /// Servers of all of them.
    servers: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    idle: VecDeque::new(),
    copies: BTreeMap::new(),
    servers: 0,
});
static RETURNED: Condvar = Condvar::new();

thread_local! {
    /// Shared sandboxes that the test on this thread has.
    static LENT: Cell<usize> = const { Cell::new(0) };
}

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
    let servers = servers_of(&shape);
    let sandbox = take(&key, servers).unwrap_or_else(|| {
        catch_unwind(|| start_unaccounted(&shape, options)).unwrap_or_else(|panic| {
            ended(&key, servers);
            resume_unwind(panic)
        })
    });
    LENT.set(LENT.get() + 1);
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

fn servers_of(shape: &str) -> usize {
    let shape: Shape = shape.parse().expect("tests name shapes that exist");
    shape.servers() as usize
}

/// Returns an idle sandbox, or `None` if the caller starts one, for which there is room then. Stops idle ones of other shapes for that,
/// those used least recently first, and waits as long as others have the room. A test that has one already is not kept waiting, since
/// it would wait for others that wait for it.
fn take(key: &str, servers: usize) -> Option<Sandbox> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut pool = pool();
    loop {
        if let Some(at) = pool.idle.iter().position(|(other, _)| other == key) {
            return pool.idle.remove(at).map(|(_, sandbox)| sandbox);
        }
        let copies = pool.copies.get(key).copied().unwrap_or(0);
        let room = pool.servers + servers <= harness::shared_places().max(servers);
        let few = copies < cores * COPIES_PER_CORE;
        if few && room || LENT.get() > 0 {
            pool.copies.insert(key.to_owned(), copies + 1);
            pool.servers += servers;
            return None;
        }
        if few && let Some((other, sandbox)) = pool.idle.pop_front() {
            drop(pool);
            stop(&other, sandbox);
            pool = self::pool();
        } else {
            pool = RETURNED.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Stops a sandbox and gives its room back.
fn stop(key: &str, sandbox: Sandbox) {
    let servers = sandbox.members().len();
    drop(sandbox);
    ended(key, servers);
}

/// Gives the room of a sandbox back that has ended.
fn ended(key: &str, servers: usize) {
    let mut pool = pool();
    *pool.copies.entry(key.to_owned()).or_insert(1) -= 1;
    pool.servers -= servers;
    RETURNED.notify_all();
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
        LENT.set(LENT.get().saturating_sub(1));
        let sandbox = self.sandbox.take().expect("it is taken only here");
        // Servers that a failed test left are not used again.
        if restored.as_ref().is_ok_and(|yes| *yes) {
            pool().idle.push_back((self.key.clone(), sandbox));
            RETURNED.notify_all();
        } else {
            stop(&self.key, sandbox);
        }
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
    pool.servers = 0;
    drop(pool);
    drop(idle);
}
