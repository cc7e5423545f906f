//! Visitors that are slow or silent.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
};

use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::*;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);
/// Longer than an answer takes.
const LIMIT: Duration = Duration::from_secs(60);
/// A short limit.
const SHORT: Duration = Duration::from_millis(300);
/// Longer than what the system keeps for a peer that does not read.
const LONG_ANSWER: usize = 64 << 20;

/// Parts of it that are asked for one by one.
const PARTS: usize = 200;

/// Starts a server with a long answer at `/long`, a part of it at `/part`, and a short one elsewhere.
fn serve(limits: VisitorLimits) -> HttpServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let long = Bytes::from(vec![b'a'; LONG_ANSWER]);
    HttpServer::start("test", listener, Vec::new(), limits, move |asked| {
        let body = match asked.path.as_str() {
            "/long" => long.clone(),
            "/part" => long.slice(..LONG_ANSWER / PARTS),
            _ => Bytes::from("short"),
        };
        async move { plain(StatusCode::OK, body) }
    })
    .unwrap()
}

fn limits(connections: usize, byte: Duration, answer: Duration) -> VisitorLimits {
    VisitorLimits {
        head: NEVER,
        request: NEVER,
        take: TakeLimits { byte, answer },
        ..VisitorLimits::of(connections)
    }
}

/// Connects, and sends requests.
fn ask(server: &HttpServer, requests: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(requests.as_bytes()).unwrap();
    stream
}

/// Does so with little room for answers.
fn ask_for_nothing(server: &HttpServer, requests: &str) -> TcpStream {
    let stream = ask(server, requests);
    set_socket_recv_buffer_size(&stream, 4096).unwrap();
    stream
}

/// Reads until the connection ends; returns how many bytes came.
fn read_all(mut stream: TcpStream, pause: Duration) -> usize {
    let (mut buffer, mut all) = (vec![0; 64 << 10], 0);
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        all += length;
        thread::sleep(pause);
    }
    all
}

const LONG: &str = "GET /long HTTP/1.1\r\n\r\n";
const LAST: &str = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";

#[test]
fn visitors_that_never_read_delay_no_other_for_good() {
    let server = serve(limits(100, SHORT, NEVER));
    // Also with many requests in advance: each answer fits, all together do not.
    let many = "GET /part HTTP/1.1\r\n\r\n".repeat(PARTS);
    let silent: Vec<TcpStream> = (0..200)
        .map(|number| ask_for_nothing(&server, if number % 2 == 0 { LONG } else { &many }))
        .collect();
    let mut answer = String::new();
    let mut visitor = ask(&server, LAST);
    visitor.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("short"), "{answer}");
    drop(silent);
}

#[test]
fn answer_that_is_taken_slowly_ends() {
    let server = serve(limits(1, NEVER, SHORT));
    // Without a limit it would arrive.
    let taken = read_all(ask(&server, LONG), Duration::from_millis(5));
    assert!((1..LONG_ANSWER).contains(&taken), "{taken} bytes");
}

#[test]
fn answer_that_is_taken_has_no_limit_but_its_own() {
    let server = serve(limits(1, NEVER, NEVER));
    let close = LONG.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let taken = read_all(ask(&server, &close), Duration::ZERO);
    assert!(taken > LONG_ANSWER, "{taken} bytes");
}
