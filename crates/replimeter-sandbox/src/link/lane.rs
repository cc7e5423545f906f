//! One direction of a connection: what is under way in it.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::schedule::{LinkSettings, Schedule};

/// Most bytes under way in one direction; the sender waits beyond it.
pub(super) const MOST_UNDER_WAY: usize = 64 * 1024 * 1024;

/// Most bytes of one chunk: what is copied before another direction's turn.
pub(super) const MOST_BYTES: usize = 32 * 1024;

/// Most chunks written in one turn.
const MOST_CHUNKS: usize = 16;

/// What passed in one direction, over all connections.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) bytes: AtomicU64,
    pub(super) chunks: AtomicU64,
    pub(super) late_nanos: AtomicU64,
    pub(super) latest_nanos: AtomicU64,
}

impl Tally {
    fn late(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.late_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.latest_nanos.fetch_max(nanos, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Load {
    /// `sent` of the bytes are already delivered.
    Bytes { bytes: Box<[u8]>, sent: usize },
    /// The sender will send nothing more.
    End,
    /// The sender's connection broke.
    Reset,
}

#[derive(Debug)]
struct Parcel {
    due: Instant,
    load: Load,
}

impl Parcel {
    /// The bytes still to be delivered.
    fn left(&self) -> usize {
        match &self.load {
            Load::Bytes { bytes, sent } => bytes.len() - sent,
            Load::End | Load::Reset => 0,
        }
    }
}

/// How a delivery left the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Everything that is due is delivered, or the receiver takes no more now.
    Done,
    /// The sender's reset was delivered: the connection is over.
    Reset,
    /// The receiver's connection broke.
    Broken,
}

#[derive(Debug)]
pub(super) struct Lane {
    schedule: Schedule,
    queue: VecDeque<Parcel>,
    /// The memory that the queue takes.
    taken: usize,
    /// The sender's bytes have not ended.
    open: bool,
    /// The sender has something to read.
    pub(super) readable: bool,
    /// The receiver took less than was due.
    blocked: bool,
    /// When the receiver last took bytes again. What was due before is late
    /// through the receiver, not through us.
    unblocked: Option<Instant>,
    /// The sender's connection broke: its end is a reset, not an orderly end.
    broken: bool,
    /// Nothing more will be delivered.
    finished: bool,
}

impl Lane {
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

    /// Whether the lane takes more from the sender.
    pub(super) fn takes(&self) -> bool {
        self.open && self.taken < MOST_UNDER_WAY
    }

    /// Whether the receiver took less than was due.
    pub(super) fn blocked(&self) -> bool {
        self.blocked
    }

    /// The receiver may take bytes again.
    pub(super) fn unblock(&mut self) {
        if self.blocked {
            self.blocked = false;
            self.unblocked = Some(Instant::now());
        }
    }

    /// When the next delivery is due. None while only the receiver can end the wait.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.blocked {
            None
        } else {
            self.queue.front().map(|parcel| parcel.due)
        }
    }

    /// Takes what the sender has, a chunk at most.
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
                Load::Bytes {
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

    /// The sender's connection broke, as writing to it showed. What it sent
    /// before can still be read and goes first.
    pub(super) fn sender_broke(&mut self, settings: &LinkSettings) {
        if !self.broken {
            self.broken = true;
            if !self.open {
                self.finished = false;
                self.push(Load::Reset, settings);
            }
        }
    }

    /// The receiver is gone: nothing can be delivered any more.
    pub(super) fn receiver_broke(&mut self) {
        self.queue.clear();
        self.taken = 0;
        self.open = false;
        self.blocked = false;
        self.finished = true;
    }

    fn end(&mut self, settings: &LinkSettings) {
        self.open = false;
        self.push(if self.broken { Load::Reset } else { Load::End }, settings);
    }

    fn push(&mut self, load: Load, settings: &LinkSettings) {
        let mut parcel = Parcel {
            due: Instant::now(),
            load,
        };
        // Stamped after it was read: a delivery can never be too early.
        parcel.due = self.schedule.due(parcel.due, parcel.left(), settings);
        self.taken += cost(&parcel);
        self.queue.push_back(parcel);
    }

    /// Delivers what is due.
    pub(super) fn deliver(&mut self, mut receiver: &TcpStream, tally: &Tally) -> Delivery {
        for _ in 0..MOST_CHUNKS {
            if self.blocked {
                break;
            }
            let Some(parcel) = self.queue.front_mut() else {
                break;
            };
            let now = Instant::now();
            if parcel.due > now {
                break;
            }
            match &mut parcel.load {
                Load::Bytes { bytes, sent } => {
                    let first = *sent == 0;
                    match receiver.write(&bytes[*sent..]) {
                        Ok(length) => {
                            *sent += length;
                            tally.bytes.fetch_add(length as u64, Ordering::Relaxed);
                            if first && self.unblocked.is_none_or(|since| parcel.due >= since) {
                                tally.late(now - parcel.due);
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
                Load::End => {
                    // Refused only by a connection that is gone.
                    let _ = receiver.shutdown(Shutdown::Write);
                    self.finished = true;
                }
                Load::Reset => return Delivery::Reset,
            }
            self.taken -= cost(parcel);
            self.queue.pop_front();
        }
        Delivery::Done
    }

    /// Sends everything held anew, as if it had just arrived.
    pub(super) fn send_again(&mut self, now: Instant, settings: &LinkSettings) {
        self.schedule.restart();
        for parcel in &mut self.queue {
            parcel.due = self.schedule.due(now, parcel.left(), settings);
        }
    }
}

/// The memory a parcel takes; small chunks are mostly what holds them.
fn cost(parcel: &Parcel) -> usize {
    size_of::<Parcel>()
        + match &parcel.load {
            Load::Bytes { bytes, .. } => bytes.len(),
            Load::End | Load::Reset => 0,
        }
}

/// The most bytes to read at once. A limited link delivers a large block piece by
/// piece, not as a whole when its last byte has passed: a piece is a millisecond
/// of the line, or a packet.
fn chunk_limit(settings: &LinkSettings) -> usize {
    const PACKET: usize = 1448;
    settings.bandwidth.map_or(MOST_BYTES, |bandwidth| {
        usize::try_from(bandwidth / 1000)
            .unwrap_or(MOST_BYTES)
            .clamp(PACKET, MOST_BYTES)
    })
}
