//! Waits until servers have done the work that filling a data set, or a load, has left to them: flushing
//! changed pages, and purging old row versions. Until then they do it during the measurement.
//!
//! Servers do not flush all pages when they are idle (MariaDB stops at a share of its memory, or of its redo
//! log), and other clients may change more. So a server has settled when its work is no longer decreasing.

use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{Session, dialect::postponed::postponed};
use replimeter_model::{
    resources::PostponedWork,
    warning::{Warning, WarningCode},
};

use crate::{
    MeasureError, check_interrupted, load::results::SettledServer, preflight::Cluster,
    table::keep_alive,
};

/// Interval between two readings.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long the work must not decrease: servers flush and purge in rounds of one second.
const QUIET: Duration = Duration::from_secs(2);
/// Maximum duration of a wait.
const LIMIT: Duration = Duration::from_secs(60);
/// Interval between checks that the run holds its lock.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Dirty pages that are no burden, in addition to those before the filling: 4 MiB.
const FEW_PAGES: u64 = 256;
/// A decrease of fewer pages, in [`QUIET`], does not count: half a megabyte per second.
const PAGE_STEP: u64 = 64;
/// Transactions in the history that are no burden, in addition to those before the filling.
const FEW_TRANSACTIONS: u64 = 32;

/// The servers of a load, with the work that each had postponed before.
#[derive(Debug)]
pub struct Settling {
    before: Vec<Option<PostponedWork>>,
}

/// A wait for servers.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Duration of the wait.
    pub took: Duration,
    /// The servers that were waited for.
    pub servers: Vec<SettledServer>,
}

impl Settling {
    /// Reads the postponed work of all servers.
    pub fn begin(cluster: &mut Cluster) -> Self {
        Self {
            before: read(cluster),
        }
    }

    /// Waits until the servers have settled; returns `None` if they have at once. `progress` receives the
    /// largest number of dirty pages and of transactions in the history of a server.
    ///
    /// # Errors
    /// When the user stops the run, or another run took the lock.
    pub fn wait(
        &mut self,
        cluster: &mut Cluster,
        progress: &mut dyn FnMut(PostponedWork),
        stop: &AtomicBool,
    ) -> Result<Option<Settled>, MeasureError> {
        let began = Instant::now();
        let mut checked = Instant::now();
        let first = read(cluster);
        let mut servers: Vec<ServerWork> = self.before.iter().map(ServerWork::new).collect();
        let mut works = first.clone();
        let took = loop {
            let at = began.elapsed();
            let mut settled = true;
            for (server, work) in servers.iter_mut().zip(&works) {
                settled &= server.take(at, work.unwrap_or_default());
            }
            if settled || at >= LIMIT {
                break at;
            }
            progress(most(&works));
            check_interrupted(stop)?;
            if checked.elapsed() >= KEEP_ALIVE {
                keep_alive(cluster)?;
                checked = Instant::now();
            }
            thread::sleep(INTERVAL);
            works = read(cluster);
        };
        // The next wait is for work that comes after this one.
        self.before.clone_from(&works);
        // Nothing was waited for after the first reading.
        if took < INTERVAL {
            return Ok(None);
        }
        let names = std::iter::once(cluster.primary.node.name.clone());
        let names = names.chain(cluster.replica_names());
        let servers = names
            .zip(first.into_iter().zip(works))
            .zip(servers)
            .filter_map(|((name, (before, after)), server)| {
                Some(SettledServer {
                    name,
                    before: before?,
                    after: after?,
                    settled: server.settled,
                })
            })
            .collect();
        Ok(Some(Settled { took, servers }))
    }
}

impl Settled {
    /// Returns a warning for each server that had not settled in time.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let unsettled = self.servers.iter().filter(|server| !server.settled);
        unsettled
            .map(|server| {
                let left = server.after.counts();
                let left: Vec<String> = left.map(|(count, what)| format!("{count} {what}")).collect();
                Warning::new(
                    WarningCode::NotSettled,
                    format!(
                        "{} had not settled {:.0} s after its data was written ({}): it flushed and purged during the measurement",
                        server.name,
                        self.took.as_secs_f64(),
                        left.join(", ")
                    ),
                    "use a longer --warm-up, or keep the data (--keep-data) and measure again",
                )
            })
            .collect()
    }
}

/// Reads the work of the primary and of every replica. A server that gives no answer is left out: the
/// measuring path reports it.
fn read(cluster: &mut Cluster) -> Vec<Option<PostponedWork>> {
    let replicas = cluster.replicas.iter_mut();
    let sessions = std::iter::once(&mut cluster.primary.session)
        .chain(replicas.map(|replica| &mut replica.server.session));
    sessions
        .map(|session: &mut Session| postponed(session).ok())
        .collect()
}

fn most(works: &[Option<PostponedWork>]) -> PostponedWork {
    let works = works.iter().flatten();
    PostponedWork {
        dirty_pages: works.clone().filter_map(|work| work.dirty_pages).max(),
        history: works.filter_map(|work| work.history).max(),
    }
}

/// The work of a server during a wait.
struct ServerWork {
    pages: Quantity,
    history: Quantity,
    settled: bool,
}

impl ServerWork {
    fn new(before: &Option<PostponedWork>) -> Self {
        let before = before.unwrap_or_default();
        Self {
            pages: Quantity::new(before.dirty_pages.unwrap_or(0) + FEW_PAGES, PAGE_STEP),
            history: Quantity::new(before.history.unwrap_or(0) + FEW_TRANSACTIONS, 1),
            settled: false,
        }
    }

    /// Takes a reading at this time since the wait began; returns whether the server has settled.
    fn take(&mut self, at: Duration, work: PostponedWork) -> bool {
        let pages = self.pages.take(at, work.dirty_pages.unwrap_or(0));
        let history = self.history.take(at, work.history.unwrap_or(0));
        self.settled = pages && history;
        self.settled
    }
}

/// A quantity that decreases until its work is done.
struct Quantity {
    /// At most this much is no work.
    few: u64,
    /// A smaller decrease does not count.
    step: u64,
    /// The value after the last decrease, and its time.
    last: Option<(u64, Duration)>,
}

impl Quantity {
    fn new(few: u64, step: u64) -> Self {
        Self {
            few,
            step,
            last: None,
        }
    }

    /// Takes a reading; returns whether the quantity is small, or has not decreased for [`QUIET`].
    fn take(&mut self, at: Duration, value: u64) -> bool {
        match self.last {
            Some((last, since)) if value + self.step > last => {
                value <= self.few || at - since >= QUIET
            }
            _ => {
                self.last = Some((value, at));
                value <= self.few
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reading, a quarter of a second apart, at which the server has settled.
    fn settles(before: PostponedWork, works: &[(u64, u64)]) -> Option<usize> {
        let mut server = ServerWork::new(&Some(before));
        works
            .iter()
            .enumerate()
            .position(|(index, (pages, history))| {
                let work = PostponedWork {
                    dirty_pages: Some(*pages),
                    history: Some(*history),
                };
                server.take(INTERVAL * index as u32, work)
            })
    }

    #[test]
    fn server_settles_when_its_work_no_longer_decreases() {
        let none = PostponedWork::default();
        assert_eq!(settles(none, &[(200, 20)]), Some(0), "tiny");
        // MySQL flushes everything.
        let falls: Vec<(u64, u64)> = (0..20)
            .map(|n| (7000_u64.saturating_sub(n * 500), 0))
            .collect();
        assert_eq!(settles(none, &falls), Some(14));
        // MariaDB stops at a limit, and the reading there starts the quiet time.
        let stops: Vec<(u64, u64)> = (0..40).map(|n| (7000 - n.min(12) * 500, 0)).collect();
        assert_eq!(settles(none, &stops), Some(12 + 8));
        // It flushes in rounds of one second.
        let rounds: Vec<(u64, u64)> = (0..40).map(|n| (7000 - n / 4 * 200, 0)).collect();
        assert_eq!(settles(none, &rounds), None);
        // Others write all the time.
        let noise: Vec<(u64, u64)> = (0..40).map(|n| (7000 + n % 3 * 20, 500 + n % 2)).collect();
        assert_eq!(settles(none, &noise), Some(8));
        // Pages are flushed, and the purge continues.
        let purge: Vec<(u64, u64)> = (0..40).map(|n| (100, 400 - n * 10)).collect();
        assert_eq!(settles(none, &purge), Some(37));
        let before = PostponedWork {
            dirty_pages: Some(5000),
            history: None,
        };
        assert_eq!(settles(before, &[(5200, 3)]), Some(0), "as before");
    }

    #[test]
    fn server_that_did_not_settle_is_named_with_what_was_left() {
        let server = SettledServer {
            name: "replica1".to_owned(),
            after: PostponedWork {
                dirty_pages: Some(9000),
                history: None,
            },
            ..SettledServer::default()
        };
        let settled = Settled {
            took: LIMIT,
            servers: vec![server],
        };
        let warnings = settled.warnings();
        assert!(
            warnings[0].message.contains("replica1")
                && warnings[0].message.contains("9000 dirty pages"),
            "{warnings:?}"
        );
    }
}
