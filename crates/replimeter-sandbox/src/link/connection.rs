//! One connection over a link: two directions and the thread that serves them.

use std::{
    io,
    net::TcpStream,
    ops::ControlFlow,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags};

use super::{
    LinkSettings, LinkShared,
    direction::{Delivery, Direction, MAX_CHUNK_BYTES, TrafficCounters},
    thread::{Wakeup, set_timer_slack, wait},
};

/// One thread serves both directions: it wakes once for the earliest event, and an abrupt end of
/// one side needs no coordination with another thread.
struct Connection<'a> {
    shared: &'a LinkShared,
    wakeup: &'a Wakeup,
    client: &'a TcpStream,
    target: &'a TcpStream,
    to_target: Direction,
    to_client: Direction,
    /// The link's number of cuts at the last check.
    cuts: u64,
    buffer: Vec<u8>,
    /// When busy waiting will have used up its share.
    lavish: Option<Instant>,
}

/// How long before a delivery to wake up and poll the clock. A thread that sleeps until the exact
/// time wakes 15 µs late on a busy core and 30 µs on an idle one.
const LEAD: Duration = Duration::from_micros(30);

/// Busy waiting of all connections of a link may take one part in this many of the time: beyond it, punctuality would cost
/// the servers more than it is worth.
const SHARE: u32 = 20;

/// How long a connection at most does without busy waiting after it has waited so.
const LONGEST: Duration = Duration::from_secs(1);

/// The period over which the share is computed.
const RECKONED: Duration = Duration::from_millis(20);

/// The reason for the end of a wait.
enum NextEvent {
    /// Only the wakeup: the link is cut.
    Healed,
    Traffic,
}

/// Serves an accepted connection to its end. The seed determines its jitter.
pub(super) fn serve(
    shared: &LinkShared,
    wakeup: &Wakeup,
    client: &TcpStream,
    target: &TcpStream,
    seed: u64,
) {
    set_timer_slack();
    let mut connection = Connection {
        shared,
        wakeup,
        client,
        target,
        to_target: Direction::new(seed),
        to_client: Direction::new(!seed),
        cuts: shared.state().cuts,
        buffer: vec![0; MAX_CHUNK_BYTES],
        lavish: None,
    };
    while let ControlFlow::Continue(next) = connection.advance() {
        if connection.wait(&next).is_err() {
            reset(client);
            reset(target);
            break;
        }
    }
}

/// Makes closing `stream` abrupt.
pub(super) fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

impl Connection<'_> {
    /// Moves everything that can be moved now.
    fn advance(&mut self) -> ControlFlow<(), NextEvent> {
        // Held for the whole pass: once cut() has returned, nothing is delivered.
        let shared = self.shared;
        let state = shared.state();
        if state.closed {
            return ControlFlow::Break(());
        }
        if state.cut {
            return ControlFlow::Continue(NextEvent::Healed);
        }
        let settings = &state.settings;
        if state.cuts != self.cuts {
            self.cuts = state.cuts;
            let now = Instant::now();
            self.to_target.send_again(now, settings);
            self.to_client.send_again(now, settings);
        }
        self.deliver(settings)?;
        self.to_target.read(self.client, &mut self.buffer, settings);
        self.to_client.read(self.target, &mut self.buffer, settings);
        self.deliver(settings)?;
        ControlFlow::Continue(NextEvent::Traffic)
    }

    fn deliver(&mut self, settings: &LinkSettings) -> ControlFlow<()> {
        let Self {
            shared,
            client,
            target,
            to_target,
            to_client,
            ..
        } = self;
        deliver(to_target, to_client, target, &shared.to_target, settings)?;
        deliver(to_client, to_target, client, &shared.to_client, settings)?;
        if self.to_target.finished() && self.to_client.finished() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn wait(&mut self, next: &NextEvent) -> io::Result<()> {
        if matches!(next, NextEvent::Healed) {
            // A socket that is not polled cannot wake the thread, whatever its peer does.
            wait(&mut [PollFd::new(self.wakeup, PollFlags::IN)], None)?;
            self.wakeup.clear();
            return Ok(());
        }
        let due = [self.to_target.next_due(), self.to_client.next_due()]
            .into_iter()
            .flatten()
            .min();
        let began = Instant::now();
        let most = due.map(|due| due.saturating_duration_since(began));
        let lead = if self.lavish.is_some_and(|until| until > began) {
            Duration::ZERO
        } else {
            LEAD
        };
        let mut files = [
            PollFd::new(self.wakeup, PollFlags::IN),
            self.watch(self.client, interest(&self.to_target, &self.to_client)),
            self.watch(self.target, interest(&self.to_client, &self.to_target)),
        ];
        match most {
            Some(most) if most <= lead => {
                let open = self.shared.open.load(Ordering::Relaxed);
                let share = SHARE.saturating_mul(u32::try_from(open).unwrap_or(u32::MAX).max(1));
                watch_closely(&mut files, began, most, &mut self.lavish, share)?;
            }
            most => wait(&mut files, most.map(|most| most - lead))?,
        }
        let [wakeup, client, target] = files.map(|file| file.revents());
        if !wakeup.is_empty() {
            self.wakeup.clear();
        }
        note(client, &mut self.to_target, &mut self.to_client);
        note(target, &mut self.to_client, &mut self.to_target);
        Ok(())
    }

    /// Even for a socket without requested events an error would be reported, again and again: the
    /// wakeup descriptor takes its place, with no requested events.
    fn watch<'f>(&self, stream: &'f TcpStream, flags: PollFlags) -> PollFd<'f>
    where
        Self: 'f,
    {
        if flags.is_empty() {
            PollFd::new(self.wakeup, flags)
        } else {
            PollFd::new(stream, flags)
        }
    }
}

/// Waits like `wait`, but without sleeping, and charges the time to the share: one part in `share` of the time.
fn watch_closely(
    files: &mut [PollFd<'_>],
    began: Instant,
    most: Duration,
    lavish: &mut Option<Instant>,
    share: u32,
) -> io::Result<()> {
    let spent = loop {
        wait(files, Some(Duration::ZERO))?;
        let spent = began.elapsed();
        if spent >= most || files.iter().any(|file| !file.revents().is_empty()) {
            break spent;
        }
    };
    let from = began.checked_sub(RECKONED).map_or(began, |least| {
        lavish.map_or(least, |until| until.max(least))
    });
    *lavish = Some(from + spent.saturating_mul(share).min(LONGEST));
    Ok(())
}

/// Delivers what is due in `lane`; breaks when that ended the connection.
fn deliver(
    direction: &mut Direction,
    opposite: &mut Direction,
    receiver: &TcpStream,
    tally: &TrafficCounters,
    settings: &LinkSettings,
) -> ControlFlow<()> {
    match direction.deliver(receiver, tally) {
        Delivery::Done => {}
        Delivery::Reset => {
            reset(receiver);
            return ControlFlow::Break(());
        }
        Delivery::Broken => {
            direction.receiver_broke();
            opposite.sender_broke(settings);
        }
    }
    ControlFlow::Continue(())
}

/// Returns the events to wait for on the socket from which `from` reads and to which `to` writes.
fn interest(from: &Direction, to: &Direction) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, from.takes());
    flags.set(PollFlags::OUT, to.blocked());
    flags
}

fn note(ready: PollFlags, from: &mut Direction, to: &mut Direction) {
    if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
        from.readable = true;
    }
    if ready.intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR) {
        to.unblock();
    }
}
