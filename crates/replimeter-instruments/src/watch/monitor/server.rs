//! One server as a watch knows it.

use std::time::Duration;

use replimeter_engine::{
    dialect::heartbeats,
    membership::ClusterState,
    position::{Executed, Position},
    reading::Reading,
};
use replimeter_model::time::Nanos;

use super::Answer;
use crate::watch::{
    heartbeats::ShownValue,
    history::{AnswerTime, LagBound},
    recent::RecentMax,
    results::{LagRange, State},
    roles::Reported,
    state::{HEARTBEATS_MISSED, Replication},
};

impl Answer {
    /// Returns what it says about who takes the writes.
    pub(in super::super) fn reported(&self, index: usize) -> Reported<'_> {
        let member = self.reading.member.as_ref();
        Reported {
            index,
            identity: self.identity.as_ref(),
            channels: self.reading.channels.as_deref().ok(),
            member: member.and_then(|member| member.state.as_ref()),
        }
    }
}

/// One server.
pub(super) struct Watched {
    pub(super) name: String,
    /// Its last answer, and when.
    pub(super) last: Option<(AnswerTime, Answer)>,
    /// Why it did not answer since.
    pub(super) failure: Option<String>,
    /// When it received, and applied, something new.
    pub(super) received_at: Nanos,
    pub(super) applied_at: Nanos,
    /// Since when it has lacked something: of what it receives, and of what it applies.
    pub(super) lacks_received: Option<Nanos>,
    pub(super) lacks_applied: Option<Nanos>,
    pub(super) proof_at: Option<Nanos>,
    /// What it shows of the heartbeat table.
    pub(super) shown: ShownValue,
    /// What it had executed at an earlier time, to be compared with a later answer of the primary.
    pub(super) executed: Option<(Nanos, Executed)>,
    pub(super) errant: Option<u64>,
    pub(super) paused_percent: Option<f64>,
    pub(super) state: Option<State>,
    pub(super) recent: [RecentMax; 2],
}

/// Where a server stands in what the primary has written.
pub(super) struct Standing {
    /// Its lag, if that is known.
    pub(super) lag: Option<LagBound>,
    /// Whether it has everything that the primary was seen to have, if that is known.
    pub(super) has_all: Option<bool>,
    /// For how long the primary has written nothing.
    pub(super) silent: Nanos,
    /// What is missing where the lag is not known.
    pub(super) missing: String,
}

impl Watched {
    /// Creates one with this name, at the beginning of the watch.
    pub(super) fn new(name: String, began: Nanos) -> Self {
        Self {
            name,
            last: None,
            failure: None,
            received_at: began,
            applied_at: began,
            lacks_received: None,
            lacks_applied: None,
            proof_at: None,
            shown: ShownValue::default(),
            executed: None,
            errant: None,
            paused_percent: None,
            state: None,
            recent: [10, 300].map(|seconds| RecentMax::new(Duration::from_secs(seconds).into())),
        }
    }

    /// Notes what is new in an answer.
    pub(super) fn note_progress(&mut self, at: AnswerTime, answer: &Answer) {
        let reading = &answer.reading;
        let Some((before_at, before)) = &self.last else {
            (self.received_at, self.applied_at) = (at.answered, at.answered);
            if let Some(Ok(value)) = answer.heartbeat {
                self.shown.show(value, at);
            }
            return self.keep_executed(at, reading);
        };
        let advanced = |of: fn(&Reading) -> &Option<Position>| matches!((of(&before.reading), of(reading)), (Some(before), Some(now)) if before != now);
        let (received, applied) = (advanced(|one| &one.received), advanced(|one| &one.applied));
        if received {
            self.received_at = at.answered;
        }
        // Where there are no positions, the value is applied.
        let shown = match answer.heartbeat {
            Some(Ok(value)) => self.shown.show(value, at),
            _ => false,
        };
        if applied || (shown && reading.applied.is_none()) {
            self.applied_at = at.answered;
        }
        let heartbeat = match (before.reading.heartbeats, reading.heartbeats) {
            (Some(before), Some(now)) => now.received > before.received,
            _ => false,
        };
        let member = reading.member.as_ref();
        let is_member = member.and_then(|member| member.state.as_ref());
        let in_contact = is_member.is_some_and(|state| state.active() && state.has_quorum());
        if received || applied || shown || heartbeat || in_contact {
            // It came after the answer before.
            self.proof_at = Some(match in_contact {
                true => at.asked,
                false => before_at.asked,
            });
        }
        let paused = |reading: &Reading| reading.member.as_ref()?.paused_ms();
        let paused = paused(reading).zip(paused(&before.reading));
        let took = (at.answered - before_at.answered).as_micros();
        self.paused_percent = paused.map(|(now, earlier)| (now - earlier) * 1e3 / took * 100.0);
        self.keep_executed(at, reading);
    }

    fn keep_executed(&mut self, at: AnswerTime, reading: &Reading) {
        if reading.member.is_none() && self.executed.is_none() {
            self.executed = Some((at.answered, reading.executed.clone()));
        }
    }

    /// Returns how long there may be no proof on a sound link.
    pub(super) fn proof_limit(&self) -> Result<Nanos, String> {
        let Some((_, answer)) = &self.last else {
            return Err("it has not answered yet".to_owned());
        };
        if answer.reading.member.is_some() {
            return Ok(Nanos(0));
        }
        match answer.reading.heartbeats {
            Some(heartbeats) if heartbeats.period_s > 0.0 => {
                let limit = Duration::from_secs_f64(heartbeats.period_s * HEARTBEATS_MISSED);
                Ok(limit.into())
            }
            Some(_) => Err("its source sends no heartbeats".to_owned()),
            None => Err(match heartbeats::privilege(answer.engine) {
                Some(privilege) => format!("its heartbeats cannot be read: GRANT {privilege}"),
                None => "it shows no heartbeats".to_owned(),
            }),
        }
    }
}

impl From<LagBound> for LagRange {
    fn from(bound: LagBound) -> Self {
        Self {
            low_us: bound.low.as_micros(),
            high_us: bound.high.map(Nanos::as_micros),
        }
    }
}

/// Returns why a member is no full one, if so.
pub(in super::super) fn of_member(state: Option<&ClusterState>) -> Option<String> {
    let Some(state) = state else {
        return Some("it has left the cluster".to_owned());
    };
    if !state.has_quorum() {
        return Some(format!(
            "it is not in the part of the cluster with the majority ({})",
            state.description()
        ));
    }
    (!state.active()).then(|| state.description())
}

/// Returns how a replica replicates, by its own report.
pub(in super::super) fn replication(reading: &Reading) -> Replication {
    if let Some(member) = &reading.member {
        return of_member(member.state.as_ref()).map_or(Replication::Runs, Replication::Stopped);
    }
    let channels = match &reading.channels {
        Ok(channels) => channels,
        Err(error) => return Replication::Unknown(format!("{}; {}", error.cause, error.hint)),
    };
    if channels.is_empty() {
        return Replication::Stopped("it replicates from no server".to_owned());
    }
    if let Some(stopped) = channels.iter().find(|channel| !channel.running()) {
        return Replication::Stopped(stopped.state());
    }
    match channels.iter().map(|channel| channel.delay_s).max() {
        Some(delay) if delay > 0 => Replication::RunsDelayed(Duration::from_secs(delay)),
        _ => Replication::Runs,
    }
}

/// Returns why a replica's position is not known.
pub(in super::super) fn no_position(reading: &Reading) -> String {
    match &reading.executed {
        Executed::Unknown(reason) => format!("its position is not known: {reason}"),
        _ => "its position is not known".to_owned(),
    }
}
