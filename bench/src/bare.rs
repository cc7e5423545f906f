//! A bare loop over events, to compare the load engine with.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::fd::AsFd,
    pin::pin,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Connections, Node,
    identity::RecordedIdentity,
    wire::{Answer, Binder, ParameterValue, WireConnection, WireTarget},
};
use replimeter_model::target::{Endpoint, Secret, SslMode};

use crate::load::{COUNTED, POLL_INTERVAL, RAMP, ROWS};

/// Sends the same bytes as a point select from one loop over events, without clock and recording, and
/// reads answers without decoding them.
pub(crate) fn bare() {
    let mut arguments = std::env::args().skip_while(|arg| arg != "--bare").skip(1);
    let url = arguments.next().unwrap();
    let connections: u32 = arguments.next().unwrap().parse().unwrap();
    let (mut endpoint, _) = Endpoint::parse(&url).unwrap();
    endpoint.tls.mode = Some(SslMode::Disabled);
    let node = Node {
        name: "primary".to_owned(),
        endpoint,
        user: "replimeter".to_owned(),
        password: Some(Secret::new(std::env::var("REPLIMETER_PASSWORD").unwrap())),
        login: None,
        show_errors: true,
        answer: Duration::from_secs(10),
        namespace: None,
        identity: RecordedIdentity::default(),
        connections: Connections::default(),
        log: None,
    };
    let target = WireTarget::new(&node).unwrap();
    let mut sockets: Vec<BareSocket> = Vec::new();
    for seed in 1..=u64::from(connections) {
        let mut channel = WireConnection::start(&target).unwrap();
        let prepared = polled(async {
            channel.log_in().await.unwrap();
            channel.run("USE replimeter").await.unwrap();
            let sql = "SELECT c FROM sbtest1 WHERE id = ?";
            let mut prepared = channel.prepare(sql).await.unwrap();
            // The first execution declares the types of the parameters.
            let bind = |binder: &mut Binder<'_>| binder.push(ParameterValue::Int(1));
            let done = channel.execute(&mut prepared, Answer::Counted, bind).await;
            done.unwrap();
            prepared
        });
        let mut packet = vec![20, 0, 0, 0, 0x17];
        packet.extend_from_slice(&prepared.id().to_le_bytes());
        packet.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0]);
        packet.extend_from_slice(&[0; 8]);
        let length = packet.len() - 4;
        packet[0] = length as u8;
        let socket = channel.as_fd().try_clone_to_owned().unwrap().into();
        sockets.push(BareSocket {
            _channel: channel,
            socket,
            packet,
            state: seed,
            filled: 0,
            buffer: vec![0; 4 << 10],
        });
    }
    #[allow(
        clippy::disallowed_methods,
        reason = "the benchmark's other process reads this number"
    )]
    let mut out = std::io::stdout();
    writeln!(out, "{}", ask(&mut sockets) as f64 / COUNTED.as_secs_f64()).unwrap();
}

/// Polls a future of a connection until it is complete; for the few statements before the measurement.
fn polled<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        thread::sleep(POLL_INTERVAL / 1000);
    }
}

struct BareSocket {
    _channel: WireConnection,
    socket: TcpStream,
    packet: Vec<u8>,
    state: u64,
    filled: usize,
    buffer: Vec<u8>,
}

impl BareSocket {
    fn send(&mut self) {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let id = (self.state >> 33) % ROWS + 1;
        let at = self.packet.len() - 8;
        self.packet[at..].copy_from_slice(&id.to_le_bytes());
        self.socket.write_all(&self.packet).unwrap();
        self.filled = 0;
    }

    /// Returns whether the answer is complete.
    fn receive(&mut self) -> bool {
        match self.socket.read(&mut self.buffer[self.filled..]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
            read => self.filled += read.unwrap(),
        }
        let (filled, buffer) = (self.filled, &self.buffer);
        // The end of the rows: five bytes that begin with 0xfe.
        filled >= 9 && buffer[filled - 5] == 0xfe && buffer[filled - 9..filled - 6] == [5, 0, 0]
    }
}

/// Sends queries over all sockets from one bare loop over their events; returns the number of counted answers.
fn ask(sockets: &mut [BareSocket]) -> u64 {
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    let watched = epoll::create(CreateFlags::CLOEXEC).unwrap();
    for (number, socket) in (0..).zip(&mut *sockets) {
        let data = EventData::new_u64(number);
        epoll::add(
            &watched,
            &socket.socket,
            data,
            EventFlags::IN | EventFlags::ET,
        )
        .unwrap();
        socket.send();
    }
    let mut events = Vec::with_capacity(1024);
    let began = Instant::now();
    let (from, until) = (RAMP, RAMP + COUNTED);
    let (mut counts, mut counted) = (false, 0);
    for pass in 0u64.. {
        // Reads the clock once in 64 passes, which costs almost nothing.
        if pass % 64 == 0 {
            let now = began.elapsed();
            counts = now >= from;
            if now >= until {
                break;
            }
        }
        events.clear();
        let _ = epoll::wait(&watched, rustix::buffer::spare_capacity(&mut events), None);
        for event in &events {
            let socket = &mut sockets[event.data.u64() as usize];
            if socket.receive() {
                counted += u64::from(counts);
                socket.send();
            }
        }
    }
    counted
}
