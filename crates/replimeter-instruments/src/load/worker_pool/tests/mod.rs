//! Servers that stall, break the connection, or answer with errors, under a load.

mod opening;
mod peer;
mod stalls;

use std::sync::atomic::AtomicBool;

use replimeter_model::load::OpenLoop;

use self::peer::{Asked, Client, Peer};
use super::*;
use crate::load::{program::Program, worker::LoadTarget, workload::Workload};

/// No user stops the run.
static CONTINUES: AtomicBool = AtomicBool::new(false);
/// Far beyond every time that these tests wait for, and less than an operation may take.
const BOUND: Duration = Duration::from_secs(40);

/// Settings of a load on one peer.
struct Load {
    threads: u32,
    rate: Option<OpenLoop>,
    answer: Duration,
    patience: Duration,
}

impl Load {
    fn of(threads: u32) -> Self {
        Self {
            threads,
            rate: None,
            answer: Duration::from_secs(60),
            patience: Duration::from_secs(20),
        }
    }

    fn open(&self, peer: &Peer, stop: &AtomicBool) -> Result<WorkerPool, MeasureError> {
        let workload = Workload::parse("x.toml", "[[statement]]\nsql = 'SELECT 1'").unwrap();
        let load_group = LoadGroup {
            rate: self.rate,
            patience: self.patience,
            ..LoadGroup::new(&workload, vec![peer.node.clone()], self.threads)
        };
        let place = LoadTarget {
            answer: self.answer,
            ..LoadTarget::new(peer.node.clone(), false)
        };
        let (program, clock) = (Program::new(&workload, 0), Clock::start());
        let given_up = Arc::<GivenUp>::default();
        let group = WorkerGroup::open_connections(
            &load_group,
            vec![place],
            program,
            0,
            &clock,
            &given_up,
            stop,
        )?;
        Ok(WorkerPool {
            clock,
            worker_groups: vec![group],
            given_up,
            generation: 0,
        })
    }

    /// Runs for this time, all of it counted.
    fn run(&self, peer: &Peer, length: Duration) -> GroupResult {
        let mut pool = self.open(peer, &CONTINUES).unwrap();
        run(&mut pool, length, &CONTINUES)
    }
}

fn run(pool: &mut WorkerPool, length: Duration, stop: &AtomicBool) -> GroupResult {
    let results = pool.run_interval(Duration::ZERO, length, stop, &mut |_| {});
    results.into_iter().next().unwrap()
}

/// Answers like a server without faults, up to 1000 times a second.
fn healthy(client: &mut Client<'_>) -> std::io::Result<()> {
    match client.asked {
        Asked::Login => Ok(()),
        Asked::Ping => client.ok(),
        Asked::Execution(_) => {
            thread::sleep(Duration::from_millis(1));
            client.ok()
        }
    }
}

/// Runs a closed loop of three connections, of which the first is answered so once, until that one, or the one that `replaces` it,
/// has executed 20 statements; returns the result and the peer after checking that one operation failed, and that the others continued.
fn one_failure(
    answer: Duration,
    replaces: bool,
    fault: fn(&mut Client<'_>) -> std::io::Result<()>,
) -> (GroupResult, Peer) {
    let stop = Arc::new(AtomicBool::new(false));
    let continued = Arc::clone(&stop);
    let peer = Peer::start(move |client| match (client.number, client.asked) {
        (1, Asked::Execution(3)) => fault(client),
        (number, Asked::Execution(20)) if number == 1 || replaces && number > 3 => {
            continued.store(true, Ordering::Relaxed);
            healthy(client)
        }
        _ => healthy(client),
    });
    let load = Load {
        answer,
        ..Load::of(3)
    };
    let mut pool = load.open(&peer, &CONTINUES).unwrap();
    let result = run(&mut pool, BOUND, &stop);
    drop(pool);
    peer.await_no_connection();
    assert!(stop.load(Ordering::Relaxed), "{result:?}");
    assert!(result.failure.is_none(), "{result:?}");
    assert_eq!(result.failed, 1, "{result:?}");
    assert!(result.operations >= 20, "{result:?}");
    assert_eq!(result.waiting, None);
    let executions = peer.counts.executions.load(Ordering::Relaxed);
    assert_eq!(executions, result.operations + 1);
    (result, peer)
}

/// Returns the code and the message of the only error.
fn error(result: &GroupResult) -> (Option<u16>, &str) {
    assert_eq!(result.errors.len(), 1, "{result:?}");
    assert_eq!(result.errors[0].count, 1, "{result:?}");
    (result.errors[0].code, &result.errors[0].message)
}

#[test]
fn half_an_answer_fails_after_the_limit() {
    let (result, peer) = one_failure(Duration::from_secs(3), true, |client| {
        client.begin_rows()?;
        client.stall()
    });
    assert_eq!(error(&result), (None, "no answer within 3 s"));
    // Its statement is ended on the server, over one more connection, after another one has shown that the server greets. A busy machine
    // may need another attempt.
    assert!(peer.connections() >= 6);
    assert_eq!(peer.texts(), ["KILL 1"]);
}

#[test]
fn reset_in_mid_answer_is_one_failure() {
    let (result, peer) = one_failure(Duration::from_secs(60), true, |client| {
        client.begin_rows()?;
        // The rows are read before the reset.
        thread::sleep(Duration::from_millis(100));
        client.reset()
    });
    let (code, message) = error(&result);
    assert!(
        code.is_none() && message.contains("reset by peer"),
        "{message}"
    );
    assert_eq!(peer.connections(), 4);
}

#[test]
fn error_among_rows_keeps_the_connection() {
    let (result, peer) = one_failure(Duration::from_secs(60), false, |client| {
        client.begin_rows()?;
        client.error(5, 1317, "Query execution was interrupted")
    });
    let (code, message) = error(&result);
    assert_eq!(code, Some(1317));
    assert!(
        message.starts_with("Query execution was interrupted"),
        "{message}"
    );
    assert_eq!(peer.connections(), 3);
    assert_eq!(peer.texts(), ["ROLLBACK"]);
}

#[test]
fn error_that_ends_the_connection_is_one_failure() {
    let (result, peer) = one_failure(Duration::from_secs(60), true, |client| {
        client.error(1, 1927, "Connection was killed")?;
        client.close()
    });
    assert_eq!(result.errors.len(), 2, "{result:?}");
    assert!(result.errors.iter().any(|error| error.code == Some(1927)));
    assert_eq!(peer.connections(), 4);
}

/// A server that closes connections after an idle time, with or without a message.
#[test]
fn closed_idle_connection_is_opened_again() {
    for (message, wanted) in [(false, "connection"), (true, "inactivity (error 4031")] {
        let peer = Peer::start(move |client| match (client.number, client.asked) {
            (1, Asked::Execution(3)) if !message => {
                healthy(client)?;
                client.close()
            }
            // Whether it arrives before the statement or after it, the client reads it then.
            (1, Asked::Execution(4)) => {
                client.error(0, 4031, "disconnected because of inactivity")?;
                client.close()
            }
            _ => healthy(client),
        });
        let load = Load {
            rate: Some(OpenLoop {
                rate: 20,
                arrivals: replimeter_model::load::Arrivals::Constant,
            }),
            ..Load::of(2)
        };
        let result = load.run(&peer, Duration::from_secs(3));
        peer.await_no_connection();
        assert!(result.failure.is_none(), "{result:?}");
        assert_eq!(result.failed, 1, "{result:?}");
        assert_eq!(peer.connections(), 3);
        let (code, cause) = error(&result);
        assert!(code.is_none() && cause.contains(wanted), "{cause}");
        let known = result.operations + result.failed + result.waiting.unwrap();
        assert!((55..=65).contains(&known), "{result:?}");
    }
}

/// Every connection ends at once, as when a server restarts.
#[test]
fn restart_of_a_server_is_met_by_few_logins() {
    let peer = Peer::start(|client| {
        if client.asked == Asked::Login {
            thread::sleep(Duration::from_millis(10));
        }
        healthy(client)?;
        if client.number <= 200 && client.asked == Asked::Execution(2) {
            return client.close();
        }
        Ok(())
    });
    let load = Load::of(200);
    let mut pool = load.open(&peer, &CONTINUES).unwrap();
    let loops = pool.worker_groups[0].statuses.len() as u64;
    let result = run(&mut pool, Duration::from_secs(4), &CONTINUES);
    drop(pool);
    assert!(result.failure.is_none(), "{result:?}");
    assert_eq!((result.failed, peer.connections()), (200, 400));
    let most = peer.counts.most_logins.load(Ordering::Relaxed);
    assert!(
        (2..=32 * loops).contains(&most),
        "{most} logins, {loops} loops"
    );
    peer.await_no_connection();
}
