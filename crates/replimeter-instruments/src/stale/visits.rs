//! Rounds of a visitor of a site, who posts and reloads.

use std::time::Duration;

use replimeter_engine::ServerError;
use replimeter_model::time::Nanos;

use super::{
    sequence::{Ended, Rounds},
    shared::Shared,
};
use crate::stale::{
    results::{StalePhase, StaleRead, StaleRound},
    settings::StalePlan,
};

/// One round of a visitor.
pub struct Visit<'a> {
    /// Its number.
    pub round: u64,
    /// Time of the first reload, after the answer to the post.
    pub offset: Nanos,
    /// Timeout for the post to be shown.
    pub timeout: Duration,
    /// Whether the run ends.
    pub halted: &'a dyn Fn() -> bool,
}

/// What a visitor met in a round.
#[derive(Clone, Copy, Debug)]
pub struct Visited {
    /// When the post was sent.
    pub send: Nanos,
    /// When its answer had arrived.
    pub ack: Nanos,
    /// The number of the post on the site.
    pub post: u64,
    /// The reloads.
    pub read: StaleRead,
}

/// A visitor of a site.
pub trait Visitor: Send {
    /// Posts, and reloads until the post is shown; `None` if the run ended before.
    ///
    /// # Errors
    /// When the site gives no regular answer, or does not show the post in time.
    fn visit(&mut self, visit: &Visit<'_>) -> Result<Option<Visited>, ServerError>;
}

/// The rounds of a visitor.
pub(super) struct VisitorRounds<'a> {
    pub(super) visitor: &'a mut dyn Visitor,
    pub(super) shared: &'a Shared<'a>,
    pub(super) plan: &'a StalePlan,
}

impl Rounds for VisitorRounds<'_> {
    fn round(
        &mut self,
        phase: StalePhase,
        round: u64,
        offset: Nanos,
        _: bool,
    ) -> Result<Ended, ServerError> {
        let shared = self.shared;
        shared.under_way(0, shared.clock.now());
        let visited = self.visitor.visit(&Visit {
            round,
            offset,
            timeout: self.plan.timeout.0,
            halted: &|| shared.halted(),
        })?;
        shared.under_way(0, Nanos(0));
        Ok(visited.map_or(Ended::Over, |visited| {
            Ended::Round(StaleRound {
                phase,
                round,
                row: visited.post,
                offset,
                send: visited.send,
                ack: visited.ack,
                conflicts: 0,
                reset: None,
                reads: vec![visited.read],
            })
        }))
    }
}
