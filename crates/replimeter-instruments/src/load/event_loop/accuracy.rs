//! How well an event loop knows its own delay, against arrivals that are known.

use std::{
    future::poll_fn,
    hint::spin_loop,
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    task::Poll,
    thread,
    time::Duration,
};

use replimeter_model::{random::Random, time::Nanos};
use replimeter_stats::signed::SignedHistogram;

use super::{EventLoop, LoopControl, Task, TaskHandle};
use crate::clock::{Clock, thread_cpu};

/// Length of a message: its number.
const MESSAGE: usize = 8;

/// The delay of an event loop as it was, and as it knew it.
#[derive(Debug)]
pub struct LoopAccuracy {
    /// From the arrival of each message to its reading.
    pub true_delay: SignedHistogram,
    /// The same as the loop measured it.
    pub measured_delay: SignedHistogram,
    /// Uncertainty of the arrivals, ±: half of the time that sending took, at the median.
    pub uncertainty: Nanos,
    /// The share of a core that the loop used.
    pub share: f64,
}

/// Sends `per_s` messages per second at random to one of `connections` connections of an event loop, which works for
/// `work` on each, as encoding and sending the next statement would.
///
/// # Errors
/// When the system refuses sockets or a thread.
pub fn loop_accuracy(
    connections: usize,
    per_s: f64,
    work: Duration,
    length: Duration,
) -> io::Result<LoopAccuracy> {
    let clock = Clock::start();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..connections {
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nonblocking(true)?;
        here.push(stream);
        let peer = listener.accept()?.0;
        peer.set_nodelay(true)?;
        there.push(peer);
    }
    let until = clock.now() + Nanos::from(length);
    let sender = thread::Builder::new()
        .name("sender".to_owned())
        .spawn(move || send(&clock, there, per_s, until))?;
    let events = EventLoop::new(&clock)?;
    let before = thread_cpu();
    let mut read: Vec<Vec<(u64, Nanos)>> = vec![Vec::new(); connections];
    let futures = here.iter().zip(&mut read).enumerate();
    let futures = futures.map(|(index, (stream, read))| -> Task<'_> {
        let task = events.handle(index as u32);
        Box::pin(receive(clock, stream, task, work, read))
    });
    let futures = futures.collect();
    events.run(futures, &mut || LoopControl::Continue);
    let share = (thread_cpu() - before).as_secs_f64() / length.as_secs_f64();
    let sent = sender
        .join()
        .map_err(|_| io::Error::other("the sender ended unexpectedly"))??;
    let mut true_delay = SignedHistogram::default();
    let mut uncertain = SignedHistogram::default();
    for (number, at) in read.into_iter().flatten() {
        if let Some([began, ended]) = usize::try_from(number)
            .ok()
            .and_then(|number| sent.get(number))
        {
            true_delay.record(at - Nanos((began.0 + ended.0) / 2));
            uncertain.record(Nanos((ended.0 - began.0) / 2));
        }
    }
    Ok(LoopAccuracy {
        true_delay,
        measured_delay: events.take_delays(),
        uncertainty: uncertain.quantile(0.5).unwrap_or_default(),
        share,
    })
}

/// Sends messages at random times; returns when the sending of each began and ended.
fn send(
    clock: &Clock,
    mut streams: Vec<TcpStream>,
    per_s: f64,
    until: Nanos,
) -> io::Result<Vec<[Nanos; 2]>> {
    let mut random = Random::numbered(1);
    let mut sent = Vec::new();
    let mut due = clock.now();
    loop {
        due = due + Nanos((random.exponential() * 1e9 / per_s) as i64);
        if due >= until {
            return Ok(sent);
        }
        while clock.now() < due {
            spin_loop();
        }
        let number = (sent.len() as u64).to_le_bytes();
        let index = random.below(streams.len());
        let began = clock.now();
        streams[index].write_all(&number)?;
        sent.push([began, clock.now()]);
    }
}

/// Reads messages until the peer closes the connection.
async fn receive(
    clock: Clock,
    mut stream: &TcpStream,
    task: TaskHandle,
    work: Duration,
    read: &mut Vec<(u64, Nanos)>,
) {
    if task.register(stream).is_err() {
        return;
    }
    task.count_delays();
    let mut message = [0; MESSAGE];
    loop {
        // A message is written and arrives as a whole.
        let arrived = poll_fn(|_| match stream.read_exact(&mut message) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            ended => Poll::Ready(ended),
        });
        if arrived.await.is_err() {
            return;
        }
        let now = clock.now();
        read.push((u64::from_le_bytes(message), now));
        while clock.now() < now + Nanos::from(work) {
            spin_loop();
        }
    }
}
