//! One direction of a connection: its data in transit.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::schedule::{LinkSettings, Schedule};

/// Maximum bytes in transit in one direction; the sender waits beyond it.
pub(super) const MAX_BYTES_IN_FLIGHT: usize = 64 * 1024 * 1024;

/// Maximum bytes of one chunk: copied before the other direction is served.
pub(super) const MAX_CHUNK_BYTES: usize = 32 * 1024;

/// Maximum chunks written in one pass.
const MAX_CHUNKS: usize = 16;

/// Totals of one direction, over all connections.
#[derive(Debug, Default)]
pub(super) struct TrafficCounters {
    pub(super) bytes: AtomicU64,
    pub(super) chunks: AtomicU64,
    pub(super) late_nanos: AtomicU64,
    pub(super) latest_nanos: AtomicU64,
}

impl TrafficCounters {
    fn late(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.late_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.latest_nanos.fetch_max(nanos, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Payload {
    /// `sent` of the bytes are already delivered.
    Bytes { bytes: Box<[u8]>, sent: usize },
    /// The sender will send nothing more.
    End,
    /// The sender's connection broke.
    Reset,
}

#[derive(Debug)]
struct Chunk {
    due: Instant,
    load: Payload,
}

impl Chunk {
    /// Returns the bytes still to be delivered.
    fn left(&self) -> usize {
        match &self.load {
            Payload::Bytes { bytes, sent } => bytes.len() - sent,
            Payload::End | Payload::Reset => 0,
        }
    }
}

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Everything due is delivered, or the receiver takes no more now.
    Done,
    /// The sender's reset was delivered: the connection is over.
    Reset,
    /// The receiver's connection broke.
    Broken,
}

#[derive(Debug)]
pub(super) struct Direction {
    schedule: Schedule,
    queue: VecDeque<Chunk>,
    /// The memory that the queue uses.
    taken: usize,
    /// Whether the sender may send more.
    open: bool,
    /// Whether the sender has data to read.
    pub(super) readable: bool,
    /// Whether the receiver took less than was due.
    blocked: bool,
    /// When the receiver last took bytes again. Data due before that is late because of the
    /// receiver, not the link.
    unblocked: Option<Instant>,
    /// Whether the sender's connection broke: it ends with a reset, not an orderly end.
    broken: bool,
    /// Whether everything is delivered.
    finished: bool,
}

impl Direction {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            schedule: Schedule::new(seed),
            queue: VecDeque::new(),
            taken: 0,
            open: true,
            readable: false,
            blocked: false,
            unblocked: None,
            broken: false,
            finished: false,
        }
    }

    pub(super) fn finished(&self) -> bool {
        self.finished
    }

    /// Returns whether the direction accepts more from the sender.
    pub(super) fn takes(&self) -> bool {
        self.open && self.taken < MAX_BYTES_IN_FLIGHT
    }

    /// Returns whether the receiver took less than was due.
    pub(super) fn blocked(&self) -> bool {
        self.blocked
    }

    /// Records that the receiver may take bytes again.
    pub(super) fn unblock(&mut self) {
        if self.blocked {
            self.blocked = false;
            self.unblocked = Some(Instant::now());
        }
    }

    /// Returns when the next delivery is due. None while only the receiver can end the wait.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.blocked {
            None
        } else {
            self.queue.front().map(|chunk| chunk.due)
        }
    }

    /// Reads the sender's data, at most one chunk.
    pub(super) fn read(
        &mut self,
        mut sender: &TcpStream,
        buffer: &mut [u8],
        settings: &LinkSettings,
    ) {
        if !self.readable || !self.takes() {
            return;
        }
        self.readable = false;
        let most = chunk_limit(settings).min(buffer.len());
        match sender.read(&mut buffer[..most]) {
            Ok(0) => self.end(settings),
            Ok(length) => self.push(
                Payload::Bytes {
                    bytes: buffer[..length].into(),
                    sent: 0,
                },
                settings,
            ),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => {
                self.broken = true;
                self.end(settings);
            }
        }
    }

    /// Records that the sender's connection broke, as a write to it showed. Data that it sent
    /// before can still be read and goes first.
    pub(super) fn sender_broke(&mut self, settings: &LinkSettings) {
        if !self.broken {
            self.broken = true;
            if !self.open {
                self.finished = false;
                self.push(Payload::Reset, settings);
            }
        }
    }

    /// Records that the receiver is gone: nothing more can be delivered.
    pub(super) fn receiver_broke(&mut self) {
        self.queue.clear();
        self.taken = 0;
        self.open = false;
        self.blocked = false;
        self.finished = true;
    }

    fn end(&mut self, settings: &LinkSettings) {
        self.open = false;
        self.push(
            if self.broken {
                Payload::Reset
            } else {
                Payload::End
            },
            settings,
        );
    }

    fn push(&mut self, load: Payload, settings: &LinkSettings) {
        let mut chunk = Chunk {
            due: Instant::now(),
            load,
        };
        // Stamped after the read: a delivery can never be too early.
        chunk.due = self.schedule.due(chunk.due, chunk.left(), settings);
        self.taken += cost(&chunk);
        self.queue.push_back(chunk);
    }

    /// Delivers what is due.
    pub(super) fn deliver(
        &mut self,
        mut receiver: &TcpStream,
        tally: &TrafficCounters,
    ) -> Delivery {
        for _ in 0..MAX_CHUNKS {
            if self.blocked {
                break;
            }
            let Some(chunk) = self.queue.front_mut() else {
                break;
            };
            let now = Instant::now();
            if chunk.due > now {
                break;
            }
            match &mut chunk.load {
                Payload::Bytes { bytes, sent } => {
                    let first = *sent == 0;
                    match receiver.write(&bytes[*sent..]) {
                        Ok(length) => {
                            *sent += length;
                            tally.bytes.fetch_add(length as u64, Ordering::Relaxed);
                            if first && self.unblocked.is_none_or(|since| chunk.due >= since) {
                                tally.late(now - chunk.due);
                            }
                            if *sent < bytes.len() {
                                self.blocked = true;
                                break;
                            }
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            self.blocked = true;
                            break;
                        }
                        Err(_) => return Delivery::Broken,
                    }
                }
                Payload::End => {
                    // Fails only when the connection is gone.
                    let _ = receiver.shutdown(Shutdown::Write);
                    self.finished = true;
                }
                Payload::Reset => return Delivery::Reset,
            }
            self.taken -= cost(chunk);
            self.queue.pop_front();
        }
        Delivery::Done
    }

    /// Sends everything held again, as if it had just arrived.
    pub(super) fn send_again(&mut self, now: Instant, settings: &LinkSettings) {
        self.schedule.restart();
        for chunk in &mut self.queue {
            chunk.due = self.schedule.due(now, chunk.left(), settings);
        }
    }
}

/// Returns the memory of a chunk; small chunks consist mostly of overhead.
fn cost(chunk: &Chunk) -> usize {
    size_of::<Chunk>()
        + match &chunk.load {
            Payload::Bytes { bytes, .. } => bytes.len(),
            Payload::End | Payload::Reset => 0,
        }
}

/// Returns the maximum bytes to read at once. A limited link delivers a large block in pieces, not
/// as a whole after its last byte: a piece is a millisecond of the line, or a packet.
fn chunk_limit(settings: &LinkSettings) -> usize {
    const PACKET: usize = 1448;
    settings.bandwidth.map_or(MAX_CHUNK_BYTES, |bandwidth| {
        usize::try_from(bandwidth / 1000)
            .unwrap_or(MAX_CHUNK_BYTES)
            .clamp(PACKET, MAX_CHUNK_BYTES)
    })
}
