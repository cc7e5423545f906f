//! Servers that are slow, and those that send more than was asked for.

use std::sync::Mutex;

use replimeter_model::load::Arrivals;

use super::*;
use replimeter_engine::sync::lock;

/// Sets `stop` while the pool runs; returns the result.
fn interrupted(pool: &mut WorkerPool) -> GroupResult {
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
        });
        run(pool, BOUND * 2, &stop)
    });
    assert!(began.elapsed() < BOUND);
    assert!(result.interrupted && result.failure.is_none(), "{result:?}");
    result
}

#[test]
fn interrupt_ends_a_load_with_half_an_answer() {
    let peer = Peer::start(|client| match (client.number, client.asked) {
        (1, Asked::Execution(3)) => {
            client.begin_rows()?;
            client.hang()
        }
        _ => healthy(client),
    });
    let mut pool = Load::of(3).open(&peer, &CONTINUES).unwrap();
    let result = interrupted(&mut pool);
    assert!(result.operations > 5, "{result:?}");
    assert_eq!(peer.texts(), ["KILL 1"]);
    // The connection is not used again: the next answer over it would be that of the operation before.
    let result = run(&mut pool, Duration::from_secs(2), &CONTINUES);
    assert_eq!((result.errors.len(), peer.connections()), (0, 5));
    drop(pool);
    peer.await_no_connection();
}

#[test]
fn endless_answer_leaves_the_loop_to_others() {
    let peer = Peer::start(|client| match (client.number, client.asked) {
        (1, Asked::Execution(_)) => client.rows_without_end(),
        _ => healthy(client),
    });
    let mut pool = Load::of(3).open(&peer, &CONTINUES).unwrap();
    let result = interrupted(&mut pool);
    assert!(result.operations > 5, "{result:?}");
    drop(pool);
    peer.await_no_connection();
}

/// A number of the lost connection would be another client's after a restart of the server.
#[test]
fn lost_connection_is_not_killed() {
    let peer = Peer::start(|client| match (client.number, client.asked) {
        (1, Asked::Execution(3)) => client.close(),
        (3, Asked::Login) => client.hang(),
        _ => healthy(client),
    });
    let mut pool = Load::of(2).open(&peer, &CONTINUES).unwrap();
    let _ = interrupted(&mut pool);
    assert_eq!(peer.texts(), [""; 0]);
    drop(pool);
    peer.await_no_connection();
}

/// Runs a load until `wait` returns.
fn run_while(load: &Load, peer: &Peer, wait: impl FnOnce()) -> GroupResult {
    let mut pool = load.open(peer, &CONTINUES).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&mut pool, BOUND * 4, &stop));
        wait();
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap()
    })
}

fn await_condition(what: &str, is_met: impl Fn() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !is_met() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A server whose statements hang gets no more connections than stated: the load's, and one at a time that waits for a greeting or ends
/// what was given up.
#[test]
fn given_up_connection_is_replaced_only_after_its_end() {
    let peer = Peer::start(|client| match (client.number, client.asked) {
        (1, Asked::Execution(3)) => client.stall(),
        _ => healthy(client),
    });
    peer.counts.holds_killed.store(true, Ordering::Relaxed);
    let load = Load {
        answer: Duration::from_secs(1),
        ..Load::of(3)
    };
    let result = run_while(&load, &peer, || {
        await_condition("nothing was killed", || !peer.texts().is_empty());
        // Longer than the pause before a reconnection; a busy machine only makes a wrong one later.
        thread::sleep(Duration::from_millis(500));
        assert_eq!(peer.connections(), 5);
        peer.counts.close(1);
        await_condition("it was not replaced", || peer.connections() == 6);
    });
    assert!(result.failure.is_none(), "{result:?}");
    assert_eq!(peer.texts(), ["KILL 1"]);
    peer.await_no_connection();
}

/// After a restart of the server, another client has the number.
#[test]
fn number_of_another_client_is_not_killed() {
    let peer = Peer::start(|client| match (client.number, client.asked) {
        (1, Asked::Execution(3)) => {
            client.peer.restarted.store(true, Ordering::Relaxed);
            client.stall()
        }
        _ => healthy(client),
    });
    let load = Load {
        answer: Duration::from_secs(4),
        ..Load::of(2)
    };
    let result = run_while(&load, &peer, || {
        await_condition("it was not replaced", || peer.connections() == 4);
    });
    assert!(result.failure.is_none(), "{result:?}");
    assert_eq!(peer.texts(), [""; 0]);
    peer.counts.close(1);
    peer.await_no_connection();
}

#[test]
fn server_that_requests_a_file_gets_none() {
    let peer = Peer::start(|client| match client.asked {
        Asked::Execution(number) => {
            let received = client.request_file("/etc/hostname")?;
            assert!(received.is_empty(), "{received:?} at {number}");
            client.error(3, 2, "no such file")
        }
        _ => healthy(client),
    });
    let mut pool = Load::of(1).open(&peer, &CONTINUES).unwrap();
    let result = run(&mut pool, Duration::from_millis(300), &CONTINUES);
    // An answer to anything but the empty packet would end the connection.
    assert!(!result.errors.is_empty(), "{result:?}");
    assert_eq!(peer.connections(), 1);
    drop(pool);
    peer.await_no_connection();
}

#[test]
fn unanswered_pings_do_not_delay_the_end() {
    let peer = Peer::start(|client| match (client.number, client.asked) {
        (1, Asked::Ping) => client.hang(),
        _ => healthy(client),
    });
    let mut pool = Load::of(2).open(&peer, &CONTINUES).unwrap();
    let (stop, began) = (AtomicBool::new(true), Instant::now());
    let limits = pool.measure_limit(BOUND * 2, &stop);
    assert_eq!(limits, [None]);
    assert!(began.elapsed() < BOUND);
    let result = run(&mut pool, Duration::from_secs(1), &CONTINUES);
    assert!(
        result.operations > 5 && result.errors.is_empty(),
        "{result:?}"
    );
    drop(pool);
    peer.await_no_connection();
}

/// With a rate R, a stall of S delays R·S operations, by every time from S to 0.
#[test]
fn stall_is_charged_to_every_operation_due_in_it() {
    const RATE: u64 = 200;
    const STALL: Duration = Duration::from_secs(2);
    const THREADS: u32 = 4;
    let until: Mutex<Option<Instant>> = Mutex::default();
    let peer = Peer::start(move |client| {
        let begins = client.peer.executions.load(Ordering::Relaxed) >= 200;
        if begins && client.asked != Asked::Login {
            let end = *lock(&until).get_or_insert_with(|| Instant::now() + STALL);
            thread::sleep(end.saturating_duration_since(Instant::now()));
        }
        healthy(client)
    });
    let load = Load {
        rate: Some(OpenLoop {
            rate: RATE,
            arrivals: Arrivals::Constant,
        }),
        ..Load::of(THREADS)
    };
    let result = load.run(&peer, Duration::from_secs(6));
    assert_eq!((result.failed, result.errors.len()), (0, 0), "{result:?}");
    let longer = |histogram: &replimeter_stats::signed::SignedHistogram, seconds: f64| {
        let limit = Nanos((seconds * 1e9) as i64);
        (histogram.count() - histogram.count_at_most(limit)) as f64
    };
    for seconds in [0.5, 1.0, 1.5] {
        let charged = longer(&result.response, seconds);
        let due = (RATE as f64) * (STALL.as_secs_f64() - seconds);
        // This machine can add to the stall, and nothing shortens it.
        let range = 0.95 * due..1.2 * due + 0.2 * (RATE as f64);
        assert!(
            range.contains(&charged),
            "{charged} of {due} took longer than {seconds} s"
        );
    }
    // Only the operations in progress waited for the server themselves.
    let waited = longer(&result.service, 1.0);
    assert_eq!(waited, f64::from(THREADS));
    peer.await_no_connection();
}
