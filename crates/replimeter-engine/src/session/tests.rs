//! Sessions with peers that do not keep to the protocol.

use std::{
    io::{Read, Result, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use replimeter_model::target::{Endpoint, Secret};
use rustix::net::sockopt;

use super::*;

/// Timeout of a read in these tests.
const ANSWER: Duration = Duration::from_millis(400);
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

/// Starts a server that does `behave` with each connection, and returns how to reach it.
pub(crate) fn peer(behave: impl Fn(TcpStream) -> Result<()> + Copy + Send + 'static) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || behave(stream));
        }
    });
    node_at(port)
}

/// Returns the server at a port of this machine.
pub(crate) fn node_at(port: u16) -> Node {
    let url = format!("mysql://127.0.0.1:{port}/?ssl-mode=disabled");
    Node::new("primary", Endpoint::parse(&url).unwrap().0, "user", ANSWER)
}

pub(crate) fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&[a, b, c, sequence], payload].concat()
}

pub(crate) fn send(stream: &mut TcpStream, sequence: u8, payload: &[u8]) -> Result<()> {
    stream.write_all(&packet(sequence, payload))
}

pub(crate) fn receive(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    Ok(payload)
}

/// Returns a greeting that offers TLS or not.
pub(crate) fn greeting(tls: bool) -> Vec<u8> {
    let capabilities: u16 = 0xa20f | if tls { 0x0800 } else { 0 };
    [
        b"\x0a8.0.0\0".as_slice(),
        &[1, 0, 0, 0],
        b"12345678\0",
        &capabilities.to_le_bytes(),
        &[0x21, 2, 0],
        &0x0008_u16.to_le_bytes(),
        &[21],
        &[0; 10],
        b"123456789012\0mysql_native_password\0",
    ]
    .concat()
}

/// Sends the greeting, and returns after the client's answer.
fn greet(stream: &mut TcpStream) -> Result<()> {
    send(stream, 0, &greeting(false))?;
    receive(stream).map(drop)
}

/// Logs a client in, and returns after the first statement that is not part of the login.
pub(crate) fn log_in(stream: &mut TcpStream) -> Result<()> {
    first_command(stream).map(drop)
}

/// Logs a client in, and returns the first command that is not part of the login.
fn first_command(stream: &mut TcpStream) -> Result<Vec<u8>> {
    greet(stream)?;
    send(stream, 2, OK)?;
    answer_login(stream, b"\n1\n\nhost\n3306\n/data")
}

/// Answers what every session begins with; the identity of the server is that of `identity`. Returns the first command after that.
fn answer_login(stream: &mut TcpStream, identity: &[u8]) -> Result<Vec<u8>> {
    loop {
        let command = receive(stream)?;
        if command.get(1..4) == Some(b"SET") {
            send(stream, 1, OK)?;
        } else if String::from_utf8_lossy(&command).contains("@@GLOBAL.server_id") {
            column(stream)?;
            let length = u8::try_from(identity.len()).unwrap();
            send(stream, 4, &[&[length], identity].concat())?;
            send(stream, 5, &[0xfe, 0, 0, 2, 0])?;
        } else {
            return Ok(command);
        }
    }
}

/// Logs a client in, prepares a statement if it asks for that first, and returns whether the command to answer is a query.
fn until_command(stream: &mut TcpStream) -> Result<bool> {
    let command = first_command(stream)?;
    if command.first() == Some(&0x16) {
        send(stream, 1, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        receive(stream)?;
    }
    Ok(command.first() == Some(&3))
}

/// What measuring threads do with a session.
type Operation = fn(&mut Session) -> std::result::Result<(), ServerError>;

const NO_VALUES: [Bound<'_>; 0] = [];

/// The operations that return rows, then the others.
const OPERATIONS: [Operation; 8] = [
    |session| {
        let statement = session.prepare("test", "SELECT 1")?;
        session.number("test", &statement, NO_VALUES).map(drop)
    },
    |session| {
        let statement = session.prepare("test", "SELECT 1")?;
        session.signed("test", &statement, NO_VALUES).map(drop)
    },
    |session| {
        let statement = session.prepare("test", "SELECT 1")?;
        session.numbers("test", &statement, NO_VALUES).map(drop)
    },
    |session| {
        let statement = session.prepare("test", "SELECT 1")?;
        session.status("test", &statement).map(drop)
    },
    |session| {
        let statement = session.prepare("test", "SELECT 1")?;
        session.execute("test", &statement, NO_VALUES).map(drop)
    },
    |session| {
        session.each_row("test", "SELECT 1", 1000, |mut row| {
            row.number();
        })
    },
    |session| session.reset("test", Reset::Connection),
    |session| session.reset("test", Reset::User),
];
/// The number of those that return rows.
const READS: usize = 6;

/// Sends the definition of one column.
pub(crate) fn column(stream: &mut TcpStream) -> Result<()> {
    let column = [
        b"\x03def\0\0\0\x01n\0\x0c".as_slice(),
        &[0x21, 0, 20, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0],
    ];
    send(stream, 1, &[1])?;
    send(stream, 2, &column.concat())?;
    send(stream, 3, &[0xfe, 0, 0, 2, 0])
}

/// Sends one byte every tenth of a second, so that no single read takes long.
fn drip(mut stream: TcpStream) -> Result<()> {
    loop {
        stream.write_all(&[1])?;
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the error of a statement, and how long it took.
fn failed(node: &Node) -> (ServerError, Duration) {
    let mut session = Session::open(node).unwrap();
    let began = Instant::now();
    let error = session.rows("cannot read", "SELECT 1").unwrap_err();
    drop(session);
    (error, began.elapsed())
}

#[test]
fn packets_that_panic_in_the_driver_are_errors() {
    let error = Session::open(&peer(|mut stream| {
        send(&mut stream, 0, &[])?;
        stream.read(&mut [0]).map(drop)
    }))
    .err()
    .unwrap();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error:?}");

    let (error, _) = failed(&peer(|mut stream| {
        log_in(&mut stream)?;
        column(&mut stream)?;
        for number in 4.. {
            send(&mut stream, number, &[])?;
        }
        Ok(())
    }));
    assert_eq!(error.cause, "the answer is not one of the protocol");
    assert_eq!(error.kind, ErrorKind::Lost);

    let empty = peer(|mut stream| {
        until_command(&mut stream)?;
        (1..).try_for_each(|number| send(&mut stream, number, &[]))
    });
    let empty_rows = peer(|mut stream| {
        until_command(&mut stream)?;
        column(&mut stream)?;
        (4..).try_for_each(|number| send(&mut stream, number, &[]))
    });
    let unprepared = peer(|mut stream| {
        log_in(&mut stream)?;
        (1..).try_for_each(|number| send(&mut stream, number, &[]))
    });
    // A number is expected.
    let texts = peer(|mut stream| {
        let row: &[u8] = if until_command(&mut stream)? {
            b"\x01x"
        } else {
            b"\0\0\x01x"
        };
        column(&mut stream)?;
        send(&mut stream, 4, row)?;
        send(&mut stream, 5, &[0xfe, 0, 0, 2, 0])?;
        stream.read(&mut [0]).map(drop)
    });
    for (peer, operations) in [
        (empty, &OPERATIONS[..]),
        (empty_rows, &OPERATIONS[..READS]),
        (unprepared, &OPERATIONS[..READS]),
        (texts, &OPERATIONS[..3]),
    ] {
        for (number, operation) in operations.iter().enumerate() {
            let mut session = Session::open(&peer).unwrap();
            let error = operation(&mut session).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Lost, "{number}: {error:?}");
            let after = session.run("test", "DO 1").unwrap_err();
            assert!(after.unanswered(), "{number}: {after:?}");
        }
    }
}

#[test]
fn another_server_at_the_address_is_refused() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    /// What each connection reaches: the same server after a restart, and another one.
    const REACHED: [&[u8]; 4] = [
        b"\n1\nuuid-1\none\n3306\n/data",
        b"\n1\nuuid-1\nmoved\n3306\n/data",
        b"\n1\nuuid-2\none\n3306\n/data",
        b"no identity",
    ];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let node = peer(|mut stream| {
        greet(&mut stream)?;
        send(&mut stream, 2, OK)?;
        answer_login(&mut stream, REACHED[NEXT.fetch_add(1, Ordering::Relaxed)]).map(drop)
    });
    Session::open(&node).unwrap();
    Session::open(&node.clone()).unwrap();
    assert!(node.identity.other().is_none());
    let error = Session::open(&node).err().unwrap();
    assert_eq!(
        error.cause,
        "two connections reached different servers (one:3306 /data, server_uuid uuid-1 and one:3306 /data, server_uuid uuid-2)"
    );
    assert_eq!(
        node.identity.other().map(ToString::to_string),
        Some(error.to_string())
    );
    let error = Session::open(&node).err().unwrap();
    assert_eq!(error.cause, "the answer is not one of a server");
}

#[test]
fn unsupported_authentication_methods_are_named() {
    fn request(stream: &mut TcpStream, method: &[u8]) -> Result<()> {
        greet(stream)?;
        send(stream, 2, &[b"\xfe", method, b"\0", &[b'n'; 32]].concat())?;
        receive(stream)?;
        // What follows for `parsec`: the salt.
        send(stream, 4, b"\x01P\x00123456789012345678")?;
        receive(stream).map(drop)
    }
    for method in ["parsec", "sha256_password", "mysql_clear_password"] {
        for password in [None, Some(Secret::new("secret"))] {
            let node = Node {
                password,
                ..peer(move |mut stream| request(&mut stream, method.as_bytes()))
            };
            let error = Session::open(&node).err().unwrap();
            assert_eq!(error.kind, ErrorKind::Unfit, "{error:?}");
            assert!(error.cause.contains(method), "{error:?}");
            assert!(error.hint.contains("caching_sha2_password"), "{error:?}");
        }
    }
}

#[test]
fn login_that_comes_byte_by_byte_ends() {
    let began = Instant::now();
    let error = Session::open(&peer(drip)).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error:?}");
    assert!(began.elapsed() < (CONNECT + driver::limit(ANSWER)) * 3);
}

#[test]
fn answer_that_comes_byte_by_byte_ends() {
    let (error, took) = failed(&peer(|mut stream| {
        log_in(&mut stream)?;
        column(&mut stream)?;
        stream.write_all(&[0xff, 0xff, 0, 4])?;
        drip(stream)
    }));
    assert_eq!(error.kind, ErrorKind::Timeout, "{error:?}");
    assert!(took < driver::limit(ANSWER) * 10, "{took:?}");
}

#[test]
fn endless_rows_end() {
    let (error, _) = failed(&peer(|mut stream| {
        log_in(&mut stream)?;
        column(&mut stream)?;
        let row = [b"\xfd\0\0\x01".as_slice(), &[b'a'; 1 << 16]].concat();
        let mut number = 3u8;
        loop {
            number = number.wrapping_add(1);
            send(&mut stream, number, &row)?;
        }
    }));
    assert_eq!(error.cause, "the answer is longer than 64 MiB");

    let rows = peer(|mut stream| {
        let row: &[u8] = if until_command(&mut stream)? {
            b"\x017"
        } else {
            b"\0\0\x017"
        };
        column(&mut stream)?;
        let numbers = (0..=u8::MAX).map(|number| number.wrapping_add(4));
        let rows: Vec<u8> = numbers.flat_map(|number| packet(number, row)).collect();
        loop {
            stream.write_all(&rows)?;
        }
    });
    let ended = |operation: &Operation| {
        let mut session = Session::open(&rows).unwrap();
        let error = operation(&mut session).unwrap_err();
        assert!(error.unanswered(), "{error:?}");
        error.cause
    };
    let causes: Vec<String> = thread::scope(|scope| {
        let threads = OPERATIONS[..READS]
            .iter()
            .map(|operation| scope.spawn(|| ended(operation)));
        let threads: Vec<_> = threads.collect();
        let causes = threads.into_iter().map(|thread| thread.join().unwrap());
        causes.collect()
    });
    assert_eq!(causes[0], "the answer has more rows than 1");
    assert_eq!(causes[1], "the answer has more rows than 1");
    assert_eq!(causes[5], "the answer has more rows than 1000");
}

#[test]
fn sessions_ask_whether_an_idle_peer_is_there() {
    let peer = peer(|mut stream| {
        log_in(&mut stream)?;
        stream.read(&mut [0]).map(drop)
    });
    // The login has its own timeout.
    let node = Node {
        answer: Duration::from_secs(24 * 3600),
        ..peer
    };
    let socket = Session::open(&node).unwrap().socket().unwrap();
    assert!(sockopt::socket_keepalive(&socket).unwrap());
    assert_eq!(
        (
            sockopt::tcp_keepidle(&socket).unwrap().as_secs(),
            sockopt::tcp_keepintvl(&socket).unwrap().as_secs(),
            sockopt::tcp_keepcnt(&socket).unwrap(),
            sockopt::tcp_user_timeout(&socket).unwrap(),
        ),
        (15, 5, 6, 45_000)
    );
    assert_eq!(
        sockopt::socket_timeout(&socket, Timeout::Recv).unwrap(),
        Some(node.answer)
    );
}
