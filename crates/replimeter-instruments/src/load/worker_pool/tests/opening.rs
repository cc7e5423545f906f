//! Connections that a server refuses, at the beginning and in the middle of a load.

use replimeter_engine::{Session, sync::lock};

use super::*;

const TOO_MANY: &str = "Too many connections";

#[test]
fn connection_refused_at_the_opening_is_named() {
    let peer = Peer::start(|client| {
        if client.number > 5 {
            client.error(0, 1040, TOO_MANY)?;
            return client.close();
        }
        healthy(client)
    });
    let Err(MeasureError::Server(error)) = Load::of(50).open(&peer, &CONTINUES) else {
        panic!("the load opened");
    };
    assert!(error.operation.ends_with("of 50 of the load"), "{error}");
    assert!(
        error.cause.contains("Too many connections (error 1040"),
        "{error}"
    );
    assert!(error.hint.starts_with("raise max_connections"), "{error:?}");
    peer.await_no_connection();
}

/// Connection 1 ends; further ones are refused until `refused` were.
fn crowded(refused: u64) -> Peer {
    Peer::start(move |client| match (client.number, client.asked) {
        (3.., Asked::Login) if client.number < 3 + refused => {
            client.error(0, 1040, TOO_MANY)?;
            client.close()
        }
        (1, Asked::Execution(3)) => client.close(),
        _ => healthy(client),
    })
}

#[test]
fn refused_reconnection_is_tried_again() {
    let peer = crowded(3);
    let result = Load::of(2).run(&peer, Duration::from_secs(3));
    assert!(result.failure.is_none(), "{result:?}");
    // One lost connection is one failed operation.
    assert_eq!((result.failed, peer.connections()), (1, 6));
    peer.await_no_connection();
}

#[test]
fn persistent_refusal_ends_the_load_with_its_cause() {
    let peer = crowded(u64::MAX / 2);
    let load = Load {
        patience: Duration::from_millis(500),
        ..Load::of(2)
    };
    let began = Instant::now();
    let result = load.run(&peer, BOUND * 2);
    assert!(began.elapsed() < BOUND);
    let failure = result.failure.clone().unwrap();
    assert!(
        failure
            .cause
            .starts_with("the server closed the connection; then: Too many connections"),
        "{failure}"
    );
    assert!(
        failure.hint.starts_with("raise max_connections"),
        "{failure:?}"
    );
    assert!(result.operations > 0, "{result:?}");
    peer.await_no_connection();
}

/// From now on, new connections reach another server, as behind a load balancer.
fn become_another(client: &Client<'_>) {
    "other".clone_into(&mut lock(&client.peer.place));
}

#[test]
fn connection_to_another_server_is_refused_at_the_opening() {
    let peer = Peer::start(|client| {
        if client.number > 1 {
            become_another(client);
        }
        healthy(client)
    });
    Session::open(&peer.node).unwrap();
    let Err(MeasureError::Server(error)) = Load::of(3).open(&peer, &CONTINUES) else {
        panic!("the load opened");
    };
    assert!(
        error
            .cause
            .contains("(:3306 /data, server_id 1 and other:3306 /data, server_id 1)"),
        "{error}"
    );
    assert!(error.hint.contains("behind the load balancer"), "{error:?}");
    assert!(peer.node.identity.other().is_some());
    assert_eq!(peer.counts.executions.load(Ordering::Relaxed), 0);
    peer.await_no_connection();
}

#[test]
fn reconnection_to_another_server_ends_the_load() {
    let peer = Peer::start(|client| match (client.number, client.asked) {
        (1, Asked::Execution(3)) => {
            become_another(client);
            client.close()
        }
        (3.., Asked::Execution(_)) => panic!("another server is measured"),
        _ => healthy(client),
    });
    let began = Instant::now();
    let result = Load::of(2).run(&peer, BOUND * 2);
    assert!(began.elapsed() < BOUND);
    let failure = result.failure.clone().unwrap();
    assert!(
        failure.cause.contains("reached different servers"),
        "{failure}"
    );
    assert!(result.operations > 0, "{result:?}");
    peer.await_no_connection();
}

#[test]
fn interrupt_ends_connections_that_stay_silent() {
    let peer = Peer::start(|client| match client.asked {
        Asked::Login if client.number > 1 => client.hang(),
        _ => healthy(client),
    });
    let (stop, began) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        let opened = Load::of(3).open(&peer, &stop);
        assert!(matches!(opened, Err(MeasureError::Interrupted)));
    });
    assert!(began.elapsed() < Duration::from_secs(20));
    peer.await_no_connection();
}
