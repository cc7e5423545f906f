//! When the rounds of a run end.

use super::{PlanError, contradiction};
use crate::time_span::TimeSpan;

/// Default number of rounds.
pub const DEFAULT_ROUNDS: u64 = 1000;

/// Condition that ends the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCondition {
    /// After this number of counted rounds.
    Rounds(u64),
    /// After this time.
    Elapsed(TimeSpan),
}

impl StopCondition {
    /// Returns the condition from a number of rounds or a time, one of which may be given.
    ///
    /// # Errors
    /// If both are given, or one is 0.
    pub fn of(rounds: Option<u64>, duration: Option<TimeSpan>) -> Result<Self, PlanError> {
        match (rounds, duration) {
            (Some(_), Some(_)) => contradiction("give either rounds or duration, not both"),
            (Some(0), None) => contradiction("rounds must be at least 1"),
            (None, Some(span)) if span.0.is_zero() => contradiction("duration must be above 0"),
            (None, Some(span)) => Ok(Self::Elapsed(span)),
            (rounds, None) => Ok(Self::Rounds(rounds.unwrap_or(DEFAULT_ROUNDS))),
        }
    }
}
