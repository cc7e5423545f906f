//! A server of a test: it logs clients in, prepares their statements, and answers executions as the test describes.

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Result, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node,
    sync::lock,
    wire::server_side::{Answer, read_packet},
};
use replimeter_model::target::Endpoint;
use rustix::net::sockopt;

const END: &[u8] = &[0xfe, 0, 0, 2, 0];

/// What a connection must be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A connection, before the greeting.
    Login,
    /// An execution of a statement; its number over this connection, from 1.
    Execution(u64),
    Ping,
}

/// A connection that waits for an answer.
pub(super) struct Client<'p> {
    stream: TcpStream,
    /// Its number, from 1.
    pub(super) number: u64,
    pub(super) asked: Asked,
    pub(super) peer: &'p Counts,
}

/// What the peer has seen.
#[derive(Default)]
pub(super) struct Counts {
    /// Connections that were opened, and those that are open.
    pub(super) connections: AtomicU64,
    pub(super) open: AtomicU64,
    /// Logins in progress, and their maximum.
    logins: AtomicU64,
    pub(super) most_logins: AtomicU64,
    pub(super) executions: AtomicU64,
    /// Statements that were sent as text, apart from those that begin a session and those about connections.
    pub(super) texts: Mutex<Vec<String>>,
    /// The open connections by their numbers; `KILL` closes one, unless they are held.
    streams: Mutex<BTreeMap<u64, TcpStream>>,
    pub(super) holds_killed: AtomicBool,
    /// The name of its host: another one is another server.
    pub(super) place: Mutex<String>,
    /// Whether it says that it has just started.
    pub(super) restarted: AtomicBool,
}

impl Counts {
    /// Answers a statement that was sent as text.
    fn answer_text(&self, text: &str, answer: &mut Answer) {
        if text.starts_with("SET ") || text.starts_with("USE ") {
            return answer.ok(0, None);
        }
        if text.contains("@@GLOBAL.server_id") {
            let place = lock(&self.place);
            let row = vec![format!("\n1\n\n{place}\n3306\n/data")];
            return answer.texts(&["value"], &[row]);
        }
        if text.contains("'Uptime'") {
            let age = if self.restarted.load(Ordering::Relaxed) {
                "0"
            } else {
                "1000"
            };
            let row = ["Uptime", age].map(str::to_owned).into();
            return answer.texts(&["name", "value"], &[row]);
        }
        if text.contains("PROCESSLIST") {
            let streams = lock(&self.streams);
            let rows = streams.keys().map(|number| {
                let row = [&number.to_string(), "user", "localhost"];
                row.map(str::to_owned).into()
            });
            let rows: Vec<Vec<String>> = rows.collect();
            return answer.texts(&["id", "user", "host"], &rows);
        }
        lock(&self.texts).push(text.to_owned());
        if let Some(number) = text.strip_prefix("KILL ")
            && !self.holds_killed.load(Ordering::Relaxed)
        {
            self.close(number.parse().unwrap());
        }
        answer.ok(0, None);
    }

    /// Ends a connection.
    pub(super) fn close(&self, number: u64) {
        if let Some(stream) = lock(&self.streams).remove(&number) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Client<'_> {
    pub(super) fn ok(&mut self) -> Result<()> {
        self.answer(1, |answer| answer.ok(0, None))
    }

    /// Sends an answer whose first packet has this number.
    fn answer(&mut self, sequence: u8, fill: impl FnOnce(&mut Answer)) -> Result<()> {
        let mut answer = Answer::default();
        answer.begin(sequence);
        fill(&mut answer);
        self.stream.write_all(answer.bytes())
    }

    /// Sends one packet.
    fn send(&mut self, sequence: u8, payload: &[u8]) -> Result<()> {
        self.answer(sequence, |answer| {
            answer.packet(|out| out.extend_from_slice(payload));
        })
    }

    /// Requests a file of the client, and returns the first packet that arrives.
    pub(super) fn request_file(&mut self, name: &str) -> Result<Vec<u8>> {
        self.send(1, &[b"\xfb", name.as_bytes()].concat())?;
        self.receive()
    }

    /// Sends an error with this packet number.
    pub(super) fn error(&mut self, sequence: u8, code: u16, message: &str) -> Result<()> {
        self.answer(sequence, |answer| answer.error(code, "HY000", message))
    }

    /// Begins a result of one column, and sends a row; the next packet has number 5.
    pub(super) fn begin_rows(&mut self) -> Result<()> {
        self.send(1, &[1])?;
        self.send(2, b"\x03def\0\0\0\x01n\0\x0c\x21\0\x14\0\0\0\xfd\0\0\0\0\0")?;
        self.send(3, END)?;
        self.send(4, &[0, 0, 1, b'x'])
    }

    /// Sends rows until the client closes the connection.
    pub(super) fn rows_without_end(&mut self) -> Result<()> {
        self.begin_rows()?;
        let row = [vec![0, 0, 0xfc, 0xe8, 3], vec![b'x'; 1000]].concat();
        let mut sequence = 5u8;
        loop {
            let mut rows = Vec::new();
            for _ in 0..1000 {
                let [a, b, c, _] = (row.len() as u32).to_le_bytes();
                rows.extend_from_slice(&[a, b, c, sequence]);
                rows.extend_from_slice(&row);
                sequence = sequence.wrapping_add(1);
            }
            self.stream.write_all(&rows)?;
        }
    }

    /// Waits until the client closes the connection.
    pub(super) fn hang(&mut self) -> Result<()> {
        while self.stream.read(&mut [0; 64])? > 0 {}
        self.close()
    }

    /// Waits until the connection is killed: a server does not notice during a statement that its client has gone.
    pub(super) fn stall(&self) -> Result<()> {
        while lock(&self.peer.streams).contains_key(&self.number) {
            thread::sleep(Duration::from_millis(5));
        }
        self.close()
    }

    /// Closes the connection.
    pub(super) fn close(&self) -> Result<()> {
        Err(ErrorKind::ConnectionAborted.into())
    }

    /// Resets the connection.
    pub(super) fn reset(&self) -> Result<()> {
        sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))?;
        self.close()
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut payload = Vec::new();
        read_packet(&mut self.stream, &mut payload)?;
        Ok(payload)
    }

    fn log_in(&mut self, behave: &Behavior) -> Result<()> {
        let now = self.peer.logins.fetch_add(1, Ordering::Relaxed) + 1;
        self.peer.most_logins.fetch_max(now, Ordering::Relaxed);
        let done = self.greet(behave);
        // The client may begin another one as soon as it has the last packet.
        self.peer.logins.fetch_sub(1, Ordering::Relaxed);
        done?;
        self.answer(2, |answer| answer.ok(0, None))
    }

    fn greet(&mut self, behave: &Behavior) -> Result<()> {
        behave(self)?;
        let number = u32::try_from(self.number).unwrap();
        self.answer(0, |answer| answer.greeting("8.0.0", number))?;
        self.receive().map(drop)
    }

    fn serve(&mut self, behave: &Behavior) -> Result<()> {
        self.log_in(behave)?;
        let mut executions = 0;
        loop {
            let command = self.receive()?;
            match command.split_first() {
                Some((0x03, text)) => {
                    let (text, peer) = (String::from_utf8_lossy(text), self.peer);
                    self.answer(1, |answer| peer.answer_text(&text, answer))?;
                }
                Some((0x16, _)) => self.answer(1, |answer| answer.prepared(1, 0, 0))?,
                Some((0x17, _)) => {
                    executions += 1;
                    self.peer.executions.fetch_add(1, Ordering::Relaxed);
                    self.asked = Asked::Execution(executions);
                    behave(self)?;
                }
                Some((0x0e, _)) => {
                    self.asked = Asked::Ping;
                    behave(self)?;
                }
                _ => return self.close(),
            }
        }
    }
}

/// Answers a client; an error closes the connection. Nothing is sent for a login.
type Behavior = dyn Fn(&mut Client<'_>) -> Result<()> + Send + Sync;

/// The server; its threads end with their connections.
pub(super) struct Peer {
    pub(super) node: Node,
    pub(super) counts: Arc<Counts>,
}

impl Peer {
    pub(super) fn start(
        behave: impl Fn(&mut Client<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts = Arc::<Counts>::default();
        let (seen, behave) = (Arc::clone(&counts), Arc::new(behave));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, behave) = (Arc::clone(&seen), Arc::clone(&behave));
                thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    seen.open.fetch_add(1, Ordering::Relaxed);
                    let number = seen.connections.fetch_add(1, Ordering::Relaxed) + 1;
                    lock(&seen.streams).insert(number, stream.try_clone().unwrap());
                    let mut client = Client {
                        stream,
                        number,
                        asked: Asked::Login,
                        peer: &seen,
                    };
                    let _: Result<()> = client.serve(&*behave);
                    let number = client.number;
                    drop(client);
                    lock(&seen.streams).remove(&number);
                    seen.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        let address = format!("mysql://127.0.0.1:{port}/?ssl-mode=disabled");
        let endpoint = Endpoint::parse(&address).unwrap().0;
        let node = Node::new("primary", endpoint, "user", Duration::from_secs(5));
        Self { node, counts }
    }

    pub(super) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    pub(super) fn texts(&self) -> Vec<String> {
        lock(&self.counts.texts).clone()
    }

    /// Waits until the client has closed every connection.
    pub(super) fn await_no_connection(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.counts.open.load(Ordering::Relaxed) > 0 {
            assert!(Instant::now() < deadline, "connections are left open");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
