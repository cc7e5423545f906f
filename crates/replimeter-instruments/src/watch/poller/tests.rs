//! A server that fails in the middle of an answer.

use std::{
    io::{Result, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
};

use replimeter_engine::{
    Connections, ErrorKind,
    wire::server_side::{self, read_packet},
};
use replimeter_model::target::{Endpoint, Secret};

use super::*;

/// What follows half of the answer to a poll.
#[derive(Clone, Copy)]
enum Half {
    Close,
    Stall,
    OtherBytes,
}

fn node(port: u16) -> Node {
    Node {
        name: "primary".to_owned(),
        endpoint: Endpoint::parse(&format!("mysql://127.0.0.1:{port}/?ssl-mode=disabled"))
            .unwrap()
            .0,
        user: "u".to_owned(),
        password: Some(Secret::new("secret")),
        login: None,
        show_errors: false,
        answer: Duration::from_millis(300),
        namespace: None,
        identity: RecordedIdentity::default(),
        connections: Connections::default(),
        log: None,
    }
}

fn answer_to(question: &str, port: u16, answer: &mut server_side::Answer) {
    let mut pairs = |rows: &[(&str, &str)]| {
        let rows = rows.iter();
        let rows: Vec<_> = rows
            .map(|(name, value)| vec![(*name).to_owned(), (*value).to_owned()])
            .collect();
        answer.texts(&["Variable_name", "Value"], &rows);
    };
    match question {
        _ if question.starts_with("SHOW GLOBAL VARIABLES") => pairs(&[
            ("version", "11.4.2-MariaDB"),
            ("gtid_binlog_pos", "0-1-7"),
            ("gtid_binlog_state", "0-1-7"),
            ("log_bin", "ON"),
        ]),
        _ if question.contains("'Uptime'") => pairs(&[("Uptime", "100")]),
        _ if question.starts_with("SHOW") => pairs(&[]),
        _ if question.contains("replication") => answer.unknown(),
        _ if question.starts_with("SELECT") => {
            let value = match question {
                _ if question.contains("server_id") => format!("\n1\n\nhost\n{port}\n/data"),
                _ if question.contains("binlog_state") => "0-1-7".to_owned(),
                _ if question.contains("slave_pos") => String::new(),
                _ => "1048576".to_owned(),
            };
            answer.texts(&["n"], &[vec![value]]);
        }
        _ => answer.ok(0, None),
    }
}

/// Serves one client; after some polls it fails.
fn serve(mut stream: TcpStream, polls: usize, half: Half) -> Result<()> {
    let port = stream.local_addr()?.port();
    let (mut answer, mut received) = (server_side::Answer::default(), Vec::new());
    answer.begin(0);
    answer.greeting("11.4.2-MariaDB", 1);
    stream.write_all(answer.bytes())?;
    read_packet(&mut stream, &mut received)?;
    answer.begin(2);
    answer.ok(0, None);
    stream.write_all(answer.bytes())?;
    let mut asked = 0;
    loop {
        read_packet(&mut stream, &mut received)?;
        let question = String::from_utf8_lossy(received.get(1..).unwrap_or_default()).into_owned();
        answer.begin(1);
        answer_to(&question, port, &mut answer);
        asked += usize::from(question.contains("binlog_state"));
        let bytes = answer.bytes();
        if asked <= polls {
            stream.write_all(bytes)?;
            continue;
        }
        stream.write_all(&bytes[..bytes.len() / 2])?;
        match half {
            Half::Close => return Ok(()),
            Half::Stall => _ = read_packet(&mut stream, &mut received)?,
            Half::OtherBytes => stream.write_all(&[0xff; 4096])?,
        }
        return Ok(());
    }
}

#[test]
fn half_an_answer_fails_and_the_next_connection_answers() {
    for half in [Half::Close, Half::Stall, Half::OtherBytes] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = serve(stream, 2, half);
            }
        });
        let interval = Duration::from_millis(10);
        let poller = Poller {
            server: 0,
            node: node(port),
            ticks: Ticks {
                began: Instant::now(),
                interval,
            },
            heartbeat: None,
            recorded: None,
        };
        let (end, ended) = mpsc::channel();
        let (sender, news) = mpsc::channel();
        let thread = thread::spawn(move || poller.run(&ended, &sender, &Clock::start()));
        let mut states = Vec::new();
        while states.len() < 8 {
            let News { answer, .. } = news.recv_timeout(Duration::from_secs(60)).unwrap();
            states.push(match answer {
                Ok(answer) => {
                    let position = answer.reading.written.map(|position| position.to_string());
                    assert_eq!(position.as_deref(), Some("0-1-7"));
                    true
                }
                Err(error) => {
                    let kinds = [ErrorKind::Lost, ErrorKind::Timeout];
                    assert!(kinds.contains(&error.kind), "{error:?}");
                    false
                }
            });
        }
        drop(end);
        thread.join().unwrap();
        let expected = [true, true, false, true, true, false, true, true];
        assert_eq!(states, expected);
    }
}
