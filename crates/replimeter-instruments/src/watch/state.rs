//! The state of a replica, decided from what is known about it.

use std::time::Duration;

use replimeter_model::{one_of, time::Nanos};

use super::history::LagBound;

one_of! {
    /// The state of a watched server.
    pub enum State {
        /// It takes the writes
        Primary = "primary",
        /// It applies what the primary writes, within the limit
        InStep = "in-step",
        /// It applies what the primary writes, later than the limit
        Lagging = "lagging",
        /// The primary is silent, and it has everything
        Idle = "idle",
        /// The primary advances, and it does not
        Blocked = "blocked",
        /// Replication is stopped
        Stopped = "stopped",
        /// It applies later on purpose
        Delayed = "delayed",
        /// It has transactions that the primary does not have
        Ahead = "ahead",
        /// It does not answer
        Unreachable = "unreachable",
        /// What would decide it is missing
        Unknown = "unknown",
    }
}

impl State {
    /// Returns all of them.
    #[must_use]
    pub fn all() -> &'static [Self] {
        <Self as clap::ValueEnum>::value_variants()
    }

    /// Returns whether a change between both need not be reported: a replica is idle whenever its primary pauses.
    pub(super) fn is_alike(self, other: Self) -> bool {
        let is_well = |state| matches!(state, Self::InStep | Self::Idle);
        is_well(self) && is_well(other)
    }
}

/// How a server's channels or its membership work, as it reports them itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Replication {
    /// They run.
    Runs,
    /// They run, and apply later than they receive, by this time.
    RunsDelayed(Duration),
    /// They do not run: the reason.
    Stopped(String),
    /// The user may not read them: what is missing.
    Unknown(String),
}

/// Evidence that the link to the source carries something.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinkProof {
    /// The age of the last one; `None` if there was none since the watch began.
    pub(super) age: Option<Nanos>,
    /// How long there may be none on a sound link, or why there need not be any; 0 if every answer has one.
    pub(super) limit: Result<Nanos, String>,
    /// The time of the watch so far.
    pub(super) watched: Nanos,
}

impl LinkProof {
    /// Returns what is missing, if it is older than on a sound link.
    fn missing(&self) -> Option<String> {
        let limit = match &self.limit {
            Ok(limit) => *limit,
            Err(reason) => return Some(reason.clone()),
        };
        let age = self.age.unwrap_or(self.watched);
        (limit > Nanos(0) && age > limit).then(|| {
            format!(
                "nothing has come over its link for {:.0} s, where a heartbeat is due every {:.0} s",
                age.as_micros() / 1e6,
                limit.as_micros() / 1e6 / HEARTBEATS_MISSED
            )
        })
    }
}

/// Heartbeats that may be missing before a link is not trusted.
pub(super) const HEARTBEATS_MISSED: f64 = 2.5;

/// What is known about a replica.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    /// Why it did not answer lately, if it did not.
    pub(super) unreachable: Option<String>,
    pub(super) replication: Replication,
    /// Why its primary's position is not known now, if so.
    pub(super) no_primary: Option<String>,
    /// Its lag; `None` if its own position is not known.
    pub(super) lag: Option<LagBound>,
    /// What is missing for it.
    pub(super) no_lag: String,
    /// Whether it has everything that the primary was seen to have.
    pub(super) has_all: bool,
    /// For how long it has lacked something without applying anything.
    pub(super) stuck: Nanos,
    /// For how long it has lacked something without receiving anything; `None` if what it receives is not known.
    pub(super) receives_nothing: Option<Nanos>,
    /// For how long the primary has written nothing.
    pub(super) silent: Nanos,
    pub(super) proof: LinkProof,
    /// The number of transactions that only it has.
    pub(super) errant: u64,
}

/// The limits between states.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) max_lag: Nanos,
    pub(super) blocked_after: Nanos,
    /// A primary that writes nothing for this time is silent.
    pub(super) silent_after: Nanos,
}

/// Returns the state, and why it is that one; "" where the state says everything.
pub(super) fn decide(known: &Evidence, limits: Limits) -> (State, String) {
    if let Some(reason) = &known.unreachable {
        return (State::Unreachable, reason.clone());
    }
    let delay = match &known.replication {
        Replication::Stopped(reason) => return (State::Stopped, reason.clone()),
        Replication::Unknown(missing) => return (State::Unknown, missing.clone()),
        Replication::RunsDelayed(delay) => Nanos::from(*delay),
        Replication::Runs => Nanos(0),
    };
    if let Some(reason) = &known.no_primary {
        return (State::Unknown, reason.clone());
    }
    let Some(lag) = known.lag else {
        return (State::Unknown, known.no_lag.clone());
    };
    let is_delayed = delay > Nanos(0);
    let seconds = |time: Nanos| format!("{:.0} s", time.as_micros() / 1e6);
    if !known.has_all {
        let receives_nothing = known
            .receives_nothing
            .filter(|time| *time >= limits.blocked_after);
        if let Some(time) = receives_nothing {
            return (
                State::Blocked,
                format!("it has received nothing for {}", seconds(time)),
            );
        }
        if !is_delayed && known.stuck >= limits.blocked_after {
            let reason = format!("it has applied nothing for {}", seconds(known.stuck));
            return (State::Blocked, reason);
        }
    }
    let excess = lag.low - delay;
    if excess > limits.max_lag {
        let reason = if is_delayed {
            format!(
                "{} more than its delay of {}",
                seconds(excess),
                seconds(delay)
            )
        } else {
            String::new()
        };
        return (State::Lagging, reason);
    }
    if is_delayed && !known.has_all {
        return (State::Delayed, format!("by {} on purpose", seconds(delay)));
    }
    if known.errant > 0 {
        let reason = format!(
            "transactions that the primary does not have: {}",
            known.errant
        );
        return (State::Ahead, reason);
    }
    if !known.has_all || known.silent < limits.silent_after {
        return (State::InStep, String::new());
    }
    match known.proof.missing() {
        Some(missing) => (State::Unknown, missing),
        None if is_delayed => (State::Delayed, format!("by {} on purpose", seconds(delay))),
        None => (State::Idle, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;
    const LIMITS: Limits = Limits {
        max_lag: Nanos(2 * S),
        blocked_after: Nanos(5 * S),
        silent_after: Nanos(2 * S),
    };

    fn lag(low: i64, high: i64) -> Option<LagBound> {
        Some(LagBound {
            low: Nanos(low * S),
            high: Some(Nanos(high * S)),
        })
    }

    /// A replica that applies what a busy primary writes.
    fn busy() -> Evidence {
        Evidence {
            unreachable: None,
            replication: Replication::Runs,
            no_primary: None,
            lag: lag(0, 1),
            no_lag: "no position".to_owned(),
            has_all: false,
            stuck: Nanos(S),
            receives_nothing: Some(Nanos(S)),
            silent: Nanos(0),
            proof: LinkProof {
                age: Some(Nanos(S)),
                limit: Ok(Nanos(75 * S)),
                watched: Nanos(100 * S),
            },
            errant: 0,
        }
    }

    fn state(known: &Evidence) -> State {
        decide(known, LIMITS).0
    }

    #[test]
    fn busy_replica_is_in_step_lagging_or_blocked() {
        assert_eq!(state(&busy()), State::InStep);
        let late = Evidence {
            lag: lag(3, 4),
            ..busy()
        };
        assert_eq!(state(&late), State::Lagging);
        let undecided = Evidence {
            lag: lag(1, 4),
            ..busy()
        };
        assert_eq!(
            state(&undecided),
            State::InStep,
            "it is not known to be late"
        );
        let cut = Evidence {
            receives_nothing: Some(Nanos(5 * S)),
            ..late.clone()
        };
        let (state_of_cut, reason) = decide(&cut, LIMITS);
        assert_eq!(state_of_cut, State::Blocked);
        assert!(reason.contains("received nothing for 5 s"), "{reason}");
        let stuck = Evidence {
            stuck: Nanos(6 * S),
            ..late
        };
        let (state_of_stuck, reason) = decide(&stuck, LIMITS);
        assert_eq!(state_of_stuck, State::Blocked);
        assert!(reason.contains("applied nothing for 6 s"), "{reason}");
    }

    #[test]
    fn silence_is_idle_only_with_a_proof_of_the_link() {
        let idle = Evidence {
            has_all: true,
            lag: lag(0, 0),
            silent: Nanos(600 * S),
            stuck: Nanos(600 * S),
            receives_nothing: Some(Nanos(600 * S)),
            ..busy()
        };
        assert_eq!(state(&idle), State::Idle);
        let proof = |age, limit: Result<Nanos, &str>| Evidence {
            proof: LinkProof {
                age,
                limit: limit.map_err(str::to_owned),
                ..idle.proof.clone()
            },
            ..idle.clone()
        };
        let limit = Ok(Nanos(75 * S));
        assert_eq!(state(&proof(Some(Nanos(76 * S)), limit)), State::Unknown);
        assert_eq!(state(&proof(None, limit)), State::Unknown, "none in 100 s");
        assert_eq!(
            state(&proof(None, Ok(Nanos(101 * S)))),
            State::Idle,
            "none is due yet"
        );
        let none = decide(&proof(Some(Nanos(S)), Err("no heartbeats")), LIMITS);
        assert_eq!(none, (State::Unknown, "no heartbeats".to_owned()));
        let just_written = Evidence {
            silent: Nanos(S),
            ..idle
        };
        assert_eq!(state(&just_written), State::InStep);
    }

    #[test]
    fn what_a_server_reports_of_itself_counts_first() {
        let unreachable = Evidence {
            unreachable: Some("no answer".to_owned()),
            replication: Replication::Stopped("error 1062".to_owned()),
            ..busy()
        };
        assert_eq!(state(&unreachable), State::Unreachable);
        let stopped = Evidence {
            unreachable: None,
            no_primary: Some("the primary does not answer".to_owned()),
            ..unreachable
        };
        assert_eq!(
            decide(&stopped, LIMITS),
            (State::Stopped, "error 1062".to_owned())
        );
        let blind = Evidence {
            replication: Replication::Runs,
            ..stopped
        };
        assert_eq!(state(&blind), State::Unknown);
        let without_position = Evidence {
            lag: None,
            ..busy()
        };
        assert_eq!(
            decide(&without_position, LIMITS),
            (State::Unknown, "no position".to_owned())
        );
    }

    #[test]
    fn delay_on_purpose_is_no_lag_and_its_excess_is() {
        let delayed = Evidence {
            replication: Replication::RunsDelayed(Duration::from_secs(60)),
            lag: lag(60, 61),
            stuck: Nanos(60 * S),
            ..busy()
        };
        assert_eq!(state(&delayed), State::Delayed);
        let late = Evidence {
            lag: lag(63, 64),
            ..delayed.clone()
        };
        let (state_of_late, reason) = decide(&late, LIMITS);
        assert_eq!(state_of_late, State::Lagging);
        assert!(
            reason.contains("3 s more than its delay of 60 s"),
            "{reason}"
        );
        let cut = Evidence {
            receives_nothing: Some(Nanos(9 * S)),
            ..delayed
        };
        assert_eq!(state(&cut), State::Blocked);
    }

    #[test]
    fn errant_transactions_show_unless_something_is_worse() {
        let ahead = Evidence {
            errant: 3,
            ..busy()
        };
        assert_eq!(state(&ahead), State::Ahead);
        let late = Evidence {
            lag: lag(3, 4),
            ..ahead
        };
        assert_eq!(state(&late), State::Lagging);
    }
}
