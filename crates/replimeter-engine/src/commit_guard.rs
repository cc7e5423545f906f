//! Whether every commit waits for a replica, where the replication mode promises that.

use std::fmt;

use crate::{
    ServerError, Session,
    dialect::acknowledgement::{self, PrimaryState},
};

/// A primary whose commits wait for a replica, from a point in time on.
#[derive(Clone, Copy, Debug)]
pub struct CommitGuard {
    /// Transactions without an acknowledgement before that time.
    missed_before: u64,
}

/// A primary whose commits did not all wait for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Transactions that were committed without an acknowledgement.
    pub missed: u64,
    /// Whether commits wait again.
    pub active: bool,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.active {
            true => "it is semi-synchronous again",
            false => "it is asynchronous now",
        };
        let missed = self.missed;
        write!(
            f,
            "{missed} transactions were committed without an acknowledgement, and {state}"
        )
    }
}

impl CommitGuard {
    /// Begins now; returns `None` while commits do not wait.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn begin(session: &mut Session) -> Result<Option<Self>, ServerError> {
        let now = acknowledgement::state(session)?.0.filter(|now| now.active);
        Ok(now.as_ref().map(Self::since))
    }

    /// Begins at an earlier state, in which commits waited.
    #[must_use]
    pub fn since(before: &PrimaryState) -> Self {
        Self {
            missed_before: before.unacknowledged,
        }
    }

    /// Returns how the primary fell back since the guard began; `None` if every commit waited.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn fallback(&self, session: &mut Session) -> Result<Option<Fallback>, ServerError> {
        let now = acknowledgement::state(session)?.0.unwrap_or_default();
        Ok(self.until(&now))
    }

    fn until(&self, now: &PrimaryState) -> Option<Fallback> {
        let fallback = Fallback {
            missed: now.unacknowledged.saturating_sub(self.missed_before),
            active: now.active,
        };
        (!fallback.active || fallback.missed > 0).then_some(fallback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_commit_that_did_not_wait_is_a_fallback() {
        let state = |active, unacknowledged| PrimaryState {
            enabled: true,
            active,
            unacknowledged,
            ..PrimaryState::default()
        };
        let text = |now| {
            let fallback = CommitGuard::since(&state(true, 7)).until(&now);
            fallback.map(|fallback| fallback.to_string())
        };
        assert_eq!(text(state(true, 7)), None);
        assert!(
            text(state(true, 8))
                .unwrap()
                .contains("1 transactions were")
        );
        assert!(text(state(false, 7)).unwrap().contains("asynchronous now"));
    }
}
