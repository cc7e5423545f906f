//! A visitor who posts, and reloads until the post is shown.

use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};

use replimeter_engine::ServerError;
use replimeter_instruments::{
    clock::Clock,
    stale::{
        Visit, Visited, Visitor,
        results::{StaleRead, Verdict},
    },
};
use replimeter_model::time::Nanos;
use serde::Deserialize;
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep,
};

use super::{Browser, INSERT, PAGE, Request, alarm::Alarm};

/// Number of the visitor's posts that are remembered; a page shows fewer.
const REMEMBERED: usize = 100;
/// Rounds of one visitor; then another one comes, without cookies. With one visitor a sticky replica would be the only one measured.
const SESSION: u64 = 20;
/// A reload follows a page after this part of the time since the post: reloads without a pause would take the processor time that the
/// replica needs to apply the post, and a pause of a tenth leaves the staleness known to a tenth.
const PAUSE: i64 = 10;
/// Interval between looks whether the run ends.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The answer to a post.
#[derive(Deserialize)]
struct Posted {
    post: u64,
}

/// A page, as far as it is needed.
#[derive(Deserialize)]
struct Page {
    own: Option<OwnPost>,
    posts: Vec<Shown>,
}

/// The visitor's last post on a page.
#[derive(Deserialize)]
struct OwnPost {
    post: u64,
    shown: bool,
}

/// A post on a page.
#[derive(Deserialize)]
struct Shown {
    id: u64,
}

/// A visitor, on the thread that calls it.
pub struct PostingVisitor {
    address: SocketAddr,
    clock: Clock,
    runtime: Runtime,
    alarm: Alarm,
    browser: Browser,
    /// Its last posts, with their rounds, ascending.
    posts: VecDeque<(u64, u64)>,
    /// The newest post that a page has shown.
    newest: u64,
}

impl PostingVisitor {
    /// Returns a visitor of the site at an address; `keep_alive` if it keeps its connection.
    ///
    /// # Errors
    /// When the system refuses a file descriptor.
    pub fn new(address: SocketAddr, keep_alive: bool, clock: Clock) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let alarm = {
            let _within = runtime.enter();
            Alarm::new()?
        };
        Ok(Self {
            address,
            clock,
            runtime,
            alarm,
            browser: Browser::new(address, keep_alive),
            posts: VecDeque::new(),
            newest: 0,
        })
    }
}

impl Visitor for PostingVisitor {
    fn visit(&mut self, visit: &Visit<'_>) -> Result<Option<Visited>, ServerError> {
        let Self {
            address,
            clock,
            runtime,
            alarm,
            browser,
            posts,
            newest,
        } = self;
        if visit.round.is_multiple_of(SESSION) {
            browser.forget();
            *newest = 0;
        }
        let mut round = Round {
            clock,
            alarm,
            browser,
            posts,
            newest,
        };
        let result = runtime.block_on(async {
            tokio::select! {
                result = round.run(visit) => result.map(Some),
                () = halt(visit.halted) => Ok(None),
            }
        });
        result.map_err(|Failed { operation, cause }| {
            ServerError::precondition(
                "site",
                &address.to_string(),
                operation,
                cause,
                "see the servers' error logs, and whether their replication runs",
            )
        })
    }
}

/// Waits until the run ends.
async fn halt(halted: &dyn Fn() -> bool) {
    while !halted() {
        sleep(POLL_INTERVAL).await;
    }
}

/// Why a round failed.
struct Failed {
    operation: &'static str,
    cause: String,
}

struct Round<'a> {
    clock: &'a Clock,
    alarm: &'a Alarm,
    browser: &'a mut Browser,
    posts: &'a mut VecDeque<(u64, u64)>,
    newest: &'a mut u64,
}

impl Round<'_> {
    async fn run(&mut self, visit: &Visit<'_>) -> Result<Visited, Failed> {
        let send = self.clock.now();
        let posted: Posted = self.ask(INSERT, "cannot post").await?;
        let ack = self.clock.now();
        self.posts.push_back((posted.post, visit.round));
        if self.posts.len() > REMEMBERED {
            self.posts.pop_front();
        }
        self.wait_until(ack + visit.offset).await?;
        let limit = ack + Nanos::from(visit.timeout) + visit.offset;
        let mut first: Option<StaleRead> = None;
        let mut last_stale = None;
        let mut reads = 0;
        loop {
            let begin = self.clock.now();
            let page: Page = self.ask(PAGE, "cannot load the page").await?;
            let end = self.clock.now();
            reads += 1;
            let is_own = |own: &OwnPost| own.post == posted.post && own.shown;
            let shown = page.own.as_ref().is_some_and(is_own);
            let newest = page.posts.iter().map(|post| post.id).max().unwrap_or(0);
            let verdict = if shown {
                Verdict::Fresh
            } else {
                Verdict::Stale
            };
            let read = first.get_or_insert_with(|| StaleRead {
                seen: self.round_of(newest),
                behind: self.behind(newest),
                went_back: newest < *self.newest,
                newer: self.round_of(*self.newest),
                ..StaleRead::new(0, begin, end, verdict)
            });
            if !read.went_back {
                read.newer = 0;
            }
            *self.newest = newest.max(*self.newest);
            if shown {
                let read = StaleRead {
                    last_stale,
                    fresh_begin: Some(begin),
                    fresh_end: Some(end),
                    reads,
                    ..*read
                };
                return Ok(Visited {
                    send,
                    ack,
                    post: posted.post,
                    read,
                });
            }
            last_stale = Some(begin);
            self.wait_until(end + Nanos((end - ack).0 / PAUSE)).await?;
            if end > limit {
                let after = Duration::from_nanos((end - ack).0.unsigned_abs());
                return Err(Failed {
                    operation: "a post was not shown",
                    cause: format!("post {} is still missing after {after:.1?}", posted.post),
                });
            }
        }
    }

    async fn wait_until(&self, due: Nanos) -> Result<(), Failed> {
        let waited = self.alarm.wait_until(self.clock, due).await;
        waited.map_err(|error| Failed {
            operation: "cannot wait",
            cause: error.to_string(),
        })
    }

    /// Sends a request, and reads its answer.
    async fn ask<T: for<'de> Deserialize<'de>>(
        &mut self,
        request: Request,
        operation: &'static str,
    ) -> Result<T, Failed> {
        let failed = |cause| Failed { operation, cause };
        let reply = self.browser.ask(request).await;
        let reply = reply.map_err(|error| failed(error.to_string()))?;
        if let Some(failure) = reply.failure() {
            return Err(failed(failure));
        }
        serde_json::from_slice(&reply.body)
            .map_err(|error| failed(format!("the answer is not understood: {error}")))
    }

    /// Returns the round of the visitor's newest post up to this number; 0 for none.
    fn round_of(&self, newest: u64) -> u64 {
        let posts = self.posts.iter().rev();
        let of = posts.map(|(post, round)| (*post <= newest).then_some(*round));
        of.flatten().next().unwrap_or(0)
    }

    /// Returns the number of the visitor's posts beyond this number.
    fn behind(&self, newest: u64) -> u32 {
        let beyond = self
            .posts
            .iter()
            .rev()
            .take_while(|(post, _)| *post > newest);
        u32::try_from(beyond.count()).unwrap_or(u32::MAX)
    }
}
