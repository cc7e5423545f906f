//! Addresses that a replica reports and the user did not name.

use std::{
    io::{Read, Result, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, Receiver},
};

use replimeter_engine::wire::server_side::{Answer, read_packet};
use replimeter_model::target::{Endpoint, Secret};

use super::*;

fn source(url: &str) -> Node {
    let endpoint = Endpoint::parse(url).unwrap().0;
    Node {
        password: Some(Secret::new("secret")),
        ..Node::new("primary", endpoint, "u", ANSWER)
    }
}

fn replica(host: &str, port: u16) -> ConnectedReplica {
    ConnectedReplica {
        server_id: 7,
        address: Some((host.to_owned(), port)),
        is_program: port == 0,
    }
}

fn send(stream: &mut TcpStream, sequence: u8, fill: impl FnOnce(&mut Answer)) -> Result<()> {
    let mut answer = Answer::default();
    answer.begin(sequence);
    fill(&mut answer);
    stream.write_all(answer.bytes())
}

/// Logs a client in until the server requests the password itself, and returns what follows.
fn request_password(mut stream: TcpStream) -> Result<Vec<u8>> {
    let mut received = Vec::new();
    send(&mut stream, 0, |answer| answer.greeting("8.4.0", 1))?;
    read_packet(&mut stream, &mut received)?;
    let method = b"\xfecaching_sha2_password\x0012345678901234567890\0";
    send(&mut stream, 2, |answer| {
        answer.packet(|out| out.extend_from_slice(method));
    })?;
    read_packet(&mut stream, &mut received)?;
    send(&mut stream, 4, |answer| {
        answer.packet(|out| out.extend_from_slice(&[1, 4]));
    })?;
    received.clear();
    // The client may reset the connection.
    let _ = stream.read_to_end(&mut received);
    Ok(received)
}

/// Starts a server that requests the password of everyone who connects. Returns its port, and what each client sends then.
fn greedy_peer() -> (u16, Receiver<Result<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (send, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // The test may have ended.
            let _ = send.send(request_password(stream.unwrap()));
        }
    });
    (port, received)
}

#[test]
fn password_goes_to_no_address_that_the_user_did_not_name() {
    let (port, received) = greedy_peer();
    // Whichever way the address is written, a server elsewhere leads to no port of this machine.
    for host in [
        "127.0.0.1",
        "127.1",
        "localhost",
        "0.0.0.0",
        "::ffff:127.0.0.1",
    ] {
        for url in ["mysql://192.0.2.1/", "mysql://192.0.2.1/?ssl-ca=/ca.pem"] {
            let refused = ask(&source(url), &replica(host, port)).unwrap_err();
            assert!(refused.contains("not asked"), "{url}, {host}: {refused}");
        }
    }
    assert!(received.try_recv().is_err(), "nothing was connected");
    // Where the source is on this machine, the replica gets a proof, and neither the password nor a request for a key.
    for url in [
        "mysql://127.0.0.1/",
        "mysql://127.0.0.1/?get-server-public-key=true",
        "mysql://localhost/?socket=/run/mysqld.sock",
    ] {
        let refused = ask(&source(url), &replica("127.0.0.1", port)).unwrap_err();
        assert!(
            refused.contains("asks for the password"),
            "{url}: {refused}"
        );
        // At most the packet that ends a connection.
        let rest = received.recv().unwrap().unwrap();
        assert!(
            matches!(rest.as_slice(), [] | [1, 0, 0, 0, 1]),
            "{url}: {rest:?}"
        );
    }
}

#[test]
fn only_an_own_authority_verifies_an_unnamed_address() {
    let way = |url: &str| way_to(&source(url), &replica("192.0.2.2", 3306));
    for url in [
        "mysql://192.0.2.1/",
        "mysql://127.0.0.1/",
        "mysql://192.0.2.1/?ssl-mode=required",
        "mysql://192.0.2.1/?ssl-mode=verify-identity",
    ] {
        let refused = way(url).unwrap_err();
        assert!(refused.contains("without ssl-ca"), "{url}: {refused}");
    }
    assert!(way("mysql://192.0.2.1/?ssl-ca=/ca.pem").is_ok());
    let unverified = way_to(&source("mysql://127.0.0.1/"), &replica("127.0.0.1", 1)).unwrap();
    assert_eq!(unverified.endpoint.tls.mode(), SslMode::Disabled);
}
