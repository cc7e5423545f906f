//! Servers that tests of behavior share: one sandbox for each shape and set of options, started
//! when it is first needed and used by one test at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
    time::Duration,
};

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;

use crate::{clean, session, start, wait_until};

/// Time limit for servers to return to the state before the test.
const SETTLED: Duration = Duration::from_secs(60);

/// The place of one sandbox; empty before its first use and after a test failed on it.
type Slot = Mutex<Option<Sandbox>>;

static SLOTS: Mutex<BTreeMap<String, &'static Slot>> = Mutex::new(BTreeMap::new());

/// Shared servers, exclusive to one test until this is dropped. Databases that the test left are
/// dropped; after a failed test the servers are stopped, and the next test gets new ones.
pub struct Shared {
    slot: MutexGuard<'static, Option<Sandbox>>,
    databases: BTreeSet<String>,
}

/// Returns servers of this shape, with these options for all of them. A test restores what it
/// changes besides data; a test that kills servers starts its own.
#[must_use]
pub fn shared(shape: &str, options: &[&str]) -> Shared {
    let key = format!("{shape} {}", options.join(" "));
    let slot = *SLOTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(key)
        .or_insert_with(|| Box::leak(Box::default()));
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    let sandbox = slot.get_or_insert_with(|| start(shape, options));
    let databases = databases(&sandbox.nodes()[0]);
    Shared { slot, databases }
}

impl Deref for Shared {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        self.slot
            .as_ref()
            .expect("the sandbox is there for as long as it is lent")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.slot = None;
            return;
        }
        let nodes = self.nodes();
        for left in databases(&nodes[0]).difference(&self.databases) {
            session(&nodes[0])
                .run("test", &format!("DROP DATABASE `{left}`"))
                .unwrap();
        }
        wait_until("every server has its initial state", SETTLED, || {
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
    let slots = std::mem::take(&mut *SLOTS.lock().unwrap_or_else(PoisonError::into_inner));
    for slot in slots.into_values() {
        match slot.try_lock() {
            Ok(mut slot) => drop(slot.take()),
            Err(TryLockError::Poisoned(poisoned)) => drop(poisoned.into_inner().take()),
            Err(TryLockError::WouldBlock) => panic!("a test still uses shared servers"),
        }
    }
}
