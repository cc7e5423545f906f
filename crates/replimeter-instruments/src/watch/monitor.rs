//! Joins the answers of all servers into their states. It has no connection and no clock of its own.

mod server;

use std::{collections::BTreeMap, time::Duration};

use replimeter_engine::{
    dialect::{ConnectedReplica, acknowledgement::PrimaryState, appliers},
    heartbeat_table::TableValue,
    identity::Identity,
    membership::ClusterState,
    position::{Executed, Position},
    reading::Reading,
};
use replimeter_model::{engine::Engine, time::Nanos};

use self::server::{Standing, Watched};
pub(super) use self::server::{no_position, of_member, replication};
use super::{
    heartbeats::ValueHistory,
    history::{AnswerTime, Noted, PositionHistory},
    probe::ProbeState,
    results::{LagRange, State, WatchChange, WatchRound, WatchSample},
    roles::{self, Reported},
    settings::WatchPlan,
    state::{Evidence, HEARTBEATS_MISSED, Limits, LinkProof, Replication, decide},
};

/// What a server answered.
pub(super) struct Answer {
    pub(super) engine: Engine,
    pub(super) identity: Option<Identity>,
    pub(super) reading: Reading,
    /// The value of the heartbeat table, or why it is not known; `None` without such a table.
    pub(super) heartbeat: Option<Result<TableValue, String>>,
    /// For a first answer on a new connection: how long the server had run.
    pub(super) uptime: Option<Duration>,
    /// The replicas that are connected to it, if it was asked.
    pub(super) replicas: Option<Vec<ConnectedReplica>>,
}

/// The states of all servers.
pub(super) struct Monitor {
    servers: Vec<Watched>,
    primary: Option<usize>,
    history: PositionHistory,
    values: ValueHistory,
    probe: Option<ProbeState>,
    /// How long there may be no proof of a link while the probe writes.
    probe_limit: Nanos,
    /// Whether commits waited for a replica.
    waits: Option<PrimaryState>,
    not_watched: Vec<ConnectedReplica>,
    changes: Vec<WatchChange>,
    limits: Limits,
    valid_for: Nanos,
    began: Nanos,
}

impl Monitor {
    /// Creates one of servers with these names, of which one may be declared to be the primary.
    pub(super) fn new(
        names: impl IntoIterator<Item = String>,
        primary: Option<usize>,
        plan: &WatchPlan,
        began: Nanos,
    ) -> Self {
        let poll = plan.poll_interval.0;
        let probe = plan.probe.map_or(Duration::ZERO, |probe| probe.0);
        Self {
            servers: names
                .into_iter()
                .map(|name| Watched::new(name, began))
                .collect(),
            primary,
            history: PositionHistory::default(),
            values: ValueHistory::default(),
            probe: plan.probe.map(|_| Err("it has not begun".to_owned())),
            probe_limit: probe.mul_f64(HEARTBEATS_MISSED).into(),
            waits: None,
            not_watched: Vec::new(),
            changes: Vec::new(),
            limits: Limits {
                max_lag: plan.max_lag.0.into(),
                // Polls are not exactly one interval apart: the poll after this time counts, even if it comes a little early.
                blocked_after: plan.blocked_after.0.saturating_sub(poll / 2).into(),
                silent_after: (poll + poll.max(probe * 2)).into(),
            },
            valid_for: plan.valid_for().into(),
            began,
        }
    }

    /// Watches servers with these names from now on, of which one may be declared to be the primary. Those that were watched keep what
    /// is known about them. Returns whether they are others than before.
    pub(super) fn follow(&mut self, names: &[String], declared: Option<usize>, now: Nanos) -> bool {
        if self.servers.iter().map(|one| &one.name).eq(names) {
            return false;
        }
        let primary = self
            .primary
            .map(|primary| self.servers[primary].name.clone());
        let mut before: BTreeMap<String, Watched> = std::mem::take(&mut self.servers)
            .into_iter()
            .map(|one| (one.name.clone(), one))
            .collect();
        for name in names {
            let known = before.remove(name);
            let is_new = known.is_none();
            self.servers
                .push(known.unwrap_or_else(|| Watched::new(name.clone(), now)));
            if is_new {
                self.change(self.servers.len() - 1, now, "it is watched from now on");
            }
        }
        for gone in before.into_keys() {
            self.push_change(gone, now, "it is no longer watched".to_owned());
        }
        let same = names.iter().position(|name| Some(name) == primary.as_ref());
        self.primary = same.or(declared);
        true
    }

    /// Takes whether the probe writes.
    pub(super) fn take_probe(&mut self, at: Nanos, state: ProbeState) {
        let text = match &state {
            Ok(()) => "the probe writes".to_owned(),
            Err(reason) => format!("the probe does not write: {reason}"),
        };
        self.change(self.primary.unwrap_or(0), at, text);
        self.probe = Some(state);
    }

    /// Returns the server that takes the writes, if it has answered lately and is no replica.
    pub(super) fn writer(&self, now: Nanos) -> Option<usize> {
        let primary = self.primary?;
        let (_, answer) = self.servers[primary].last.as_ref()?;
        let is_source = answer.reading.channels.as_ref().is_ok_and(Vec::is_empty);
        (is_source && self.of_primary(primary, now).0 == State::Primary).then_some(primary)
    }

    /// Takes why a server did not answer.
    pub(super) fn fail(&mut self, server: usize, reason: String) {
        self.servers[server].failure = Some(reason);
    }

    /// Takes the answer of a server.
    pub(super) fn take(&mut self, server: usize, at: AnswerTime, answer: Answer) {
        self.note_restart(server, at, &answer);
        self.note_table(server, at, &answer);
        if Some(server) == self.primary {
            self.take_primary(at, &answer);
        }
        let one = &mut self.servers[server];
        one.note_progress(at, &answer);
        one.failure = None;
        one.last = Some((at, answer));
    }

    fn change(&mut self, server: usize, at: Nanos, text: impl Into<String>) {
        self.push_change(self.servers[server].name.clone(), at, text.into());
    }

    fn push_change(&mut self, server: String, at: Nanos, text: String) {
        self.changes.push(WatchChange {
            at_us: (at - self.began).as_micros(),
            server,
            text,
            state: None,
        });
    }

    /// Notes something about the servers as a whole.
    pub(super) fn note(&mut self, text: String, now: Nanos) {
        self.push_change("servers".to_owned(), now, text);
    }

    /// Finds out whether a server has been restarted, or replaced, since its last answer.
    fn note_restart(&mut self, server: usize, at: AnswerTime, answer: &Answer) {
        let Some((before, last)) = &self.servers[server].last else {
            return;
        };
        let same = match (&last.identity, &answer.identity) {
            (Some(before), Some(now)) => before.is_same_server(now),
            _ => true,
        };
        // A whole second more than it may have been, since it counts whole seconds.
        let since = Duration::from_nanos((at.answered - before.asked).0.unsigned_abs());
        let restarted = answer
            .uptime
            .is_some_and(|uptime| uptime + Duration::from_secs(1) < since);
        if !same {
            self.change(server, at.answered, "another server answers at its address");
        } else if restarted {
            self.change(server, at.answered, "it was restarted");
        }
    }

    /// Finds out whether the heartbeat table of a server can be read no more, or again.
    fn note_table(&mut self, server: usize, at: AnswerTime, answer: &Answer) {
        let before = self.servers[server].last.as_ref();
        let before = before.and_then(|(_, last)| last.heartbeat.as_ref()?.as_ref().err());
        match (before, &answer.heartbeat) {
            (before, Some(Err(reason))) if before != Some(reason) => {
                self.change(server, at.answered, reason.clone());
            }
            (Some(_), Some(Ok(_))) => {
                self.change(server, at.answered, "its heartbeat table can be read again");
            }
            _ => {}
        }
    }

    fn take_primary(&mut self, at: AnswerTime, answer: &Answer) {
        let Some(primary) = self.primary else { return };
        if let Some(written) = &answer.reading.written
            && self.history.add(written.clone(), at) == Noted::Reset
        {
            let text = "it lacks transactions that the primary had: the lag begins again";
            self.change(primary, at.answered, text);
        }
        if let Some(Ok(value)) = answer.heartbeat {
            let shown = self.servers.iter_mut().map(|one| &mut one.shown);
            self.values.add(value, at, shown);
        }
        if let Some(waits) = &answer.reading.waits {
            let now = waits.in_effect();
            let before = self.waits.as_ref().map(PrimaryState::in_effect);
            if waits.enabled && before.is_some_and(|before| before != now) {
                let text = match now {
                    true => "commits wait for a replica again",
                    false => "commits no longer wait for a replica",
                };
                self.change(primary, at.answered, text);
            }
        }
        self.waits.clone_from(&answer.reading.waits);
        if let Some(replicas) = &answer.replicas {
            self.not_watched.clone_from(replicas);
        }
        for (index, one) in self.servers.iter_mut().enumerate() {
            let is_older = |executed: &(Nanos, Executed)| executed.0 <= at.asked;
            if index != primary
                && let Some((_, executed)) = one.executed.take_if(|executed| is_older(executed))
            {
                one.errant = executed.errant_at_least(&answer.reading.executed);
            }
        }
    }

    /// Returns whether the last answer of a server counts.
    fn is_fresh(&self, server: usize, now: Nanos) -> bool {
        let last = self.servers[server].last.as_ref();
        last.is_some_and(|(at, _)| now - at.answered <= self.valid_for)
    }

    /// Finds out which server takes the writes now.
    fn find_primary(&mut self, now: Nanos) {
        let fresh = (0..self.servers.len()).filter(|index| self.is_fresh(*index, now));
        let reported: Vec<Reported<'_>> = fresh
            .filter_map(|index| {
                let (_, answer) = self.servers[index].last.as_ref()?;
                Some(answer.reported(index))
            })
            .collect();
        let found = roles::primary(&reported, self.primary);
        if found == self.primary {
            return;
        }
        let Some(new) = found else { return };
        let had_one = self.primary.replace(new).is_some();
        self.waits = None;
        self.not_watched.clear();
        if had_one && self.servers.iter().any(|one| one.state.is_some()) {
            self.change(new, now, "it takes the writes now");
        }
        if let Some((at, answer)) = self.servers[new].last.take() {
            self.take_primary(at, &answer);
            self.servers[new].last = Some((at, answer));
        }
    }

    /// Decides the state of every server, and returns all of them and what has changed.
    pub(super) fn decide(&mut self, now: Nanos) -> (WatchRound, Vec<WatchChange>) {
        self.find_primary(now);
        self.forget_applied(now);
        let round = WatchRound {
            servers: (0..self.servers.len())
                .map(|index| self.sample(index, now))
                .collect(),
            not_received: self.not_received(now),
            waits: self
                .waits
                .as_ref()
                .filter(|waits| waits.enabled)
                .map(PrimaryState::in_effect),
            not_watched: self.unnamed(),
        };
        (round, std::mem::take(&mut self.changes))
    }

    /// Forgets the times of positions that every replica that answers has passed.
    fn forget_applied(&mut self, now: Nanos) {
        let mut last: Option<&Position> = None;
        for index in 0..self.servers.len() {
            let one = &self.servers[index];
            if Some(index) == self.primary {
                continue;
            }
            // One that is gone for a while is behind when it returns.
            let applied = one
                .last
                .as_ref()
                .and_then(|(_, answer)| answer.reading.applied.as_ref());
            let Some(applied) = applied else {
                if self.is_fresh(index, now) {
                    continue;
                }
                return;
            };
            if last.is_none_or(|last| last.covers(applied)) {
                last = Some(applied);
            } else if last.is_some_and(|last| !applied.covers(last)) {
                // Neither has all of the other.
                return;
            }
        }
        if let Some(last) = last {
            self.history.forget_applied(&last.clone());
        }
    }

    /// Returns the number of the primary's transactions that no replica has received.
    fn not_received(&self, now: Nanos) -> Option<u64> {
        let newest = self.history.newest()?;
        let mut received: Option<Position> = None;
        for (index, one) in self.servers.iter().enumerate() {
            let reading = match &one.last {
                Some((_, answer)) if Some(index) != self.primary && self.is_fresh(index, now) => {
                    &answer.reading
                }
                _ => continue,
            };
            let own = reading.received.as_ref().or(reading.applied.as_ref())?;
            received = Some(match received {
                Some(all) => all.joined(own),
                None => own.clone(),
            });
        }
        received?.behind(newest).ok()
    }

    /// Returns the replicas of the primary that are not watched.
    fn unnamed(&self) -> Vec<String> {
        let known = |replica: &&ConnectedReplica| {
            let mut answers = self.servers.iter().filter_map(|one| one.last.as_ref());
            replica.is_program
                || answers.any(|(_, answer)| {
                    let identity = answer.identity.as_ref();
                    identity.is_some_and(|own| own.server_id == replica.server_id)
                })
        };
        let unnamed = self.not_watched.iter().filter(|replica| !known(replica));
        unnamed.map(ToString::to_string).collect()
    }

    fn sample(&mut self, index: usize, now: Nanos) -> WatchSample {
        let is_primary = Some(index) == self.primary;
        let is_fresh = self.is_fresh(index, now);
        let standing = self.standing(index, now);
        self.note_lacking(index, now, standing.has_all);
        let lag = standing.lag.filter(|_| is_fresh && !is_primary);
        let (state, reason) = if is_primary {
            self.of_primary(index, now)
        } else {
            decide(&self.evidence(index, now, standing), self.limits)
        };
        let newest = self.history.newest();
        let one = &mut self.servers[index];
        if let Some(lag) = lag {
            one.recent
                .iter_mut()
                .for_each(|recent| recent.add(now, lag));
        }
        let [max_10s, max_5min] = one
            .recent
            .each_ref()
            .map(|recent| recent.get(now).map(LagRange::from));
        let answered = one.last.as_ref();
        let reading = answered
            .filter(|_| is_fresh)
            .map(|(_, answer)| &answer.reading);
        let channels = reading.and_then(|reading| reading.channels.as_deref().ok());
        let channels = channels.unwrap_or_default();
        let applied = reading.and_then(|reading| reading.applied.as_ref());
        let behind = applied.zip(newest).filter(|_| !is_primary);
        let sample = WatchSample {
            at_us: (now - self.began).as_micros(),
            server: one.name.clone(),
            state: Some(state),
            reason: reason.clone(),
            lag: lag.map(LagRange::from),
            behind: behind.and_then(|(applied, newest)| applied.behind(newest).ok()),
            seconds_behind: channels.iter().filter_map(appliers::seconds_behind).max(),
            proof_age_us: one
                .proof_at
                .filter(|_| !is_primary)
                .map(|at| (now - at).as_micros()),
            errant: one.errant.filter(|_| !is_primary),
            delay_s: channels
                .iter()
                .map(|channel| channel.delay_s)
                .max()
                .filter(|delay| *delay > 0),
            queue: reading.and_then(|reading| reading.member.as_ref()?.queue()),
            paused_percent: one.paused_percent.filter(|_| is_fresh),
            answer_age_us: answered.map(|(at, _)| (now - at.answered).as_micros()),
            answer_took_us: answered.map(|(at, _)| (at.answered - at.asked).as_micros()),
            max_10s,
            max_5min,
        };
        if one.state != Some(state) {
            if one.state.is_some_and(|before| !before.is_alike(state)) {
                let text = match reason.as_str() {
                    "" => state.name().to_owned(),
                    reason => format!("{}: {reason}", state.name()),
                };
                let change = WatchChange {
                    at_us: sample.at_us,
                    server: one.name.clone(),
                    text,
                    state: Some(state),
                };
                self.changes.push(change);
            }
            self.servers[index].state = Some(state);
        }
        sample
    }

    /// Returns why a server has not answered lately; `None` if it has.
    fn unreachable(&self, index: usize, now: Nanos) -> Option<String> {
        if self.is_fresh(index, now) {
            return None;
        }
        let one = &self.servers[index];
        let since = one.last.as_ref().map_or(self.began, |(at, _)| at.answered);
        let age = (now - since).as_micros() / 1e6;
        Some(match &one.failure {
            Some(reason) => reason.clone(),
            None => format!("no answer for {age:.0} s"),
        })
    }

    fn of_primary(&self, index: usize, now: Nanos) -> (State, String) {
        if let Some(reason) = self.unreachable(index, now) {
            return (State::Unreachable, reason);
        }
        let reading = self.servers[index].last.as_ref();
        let member = reading.and_then(|(_, answer)| answer.reading.member.as_ref());
        if let Some(member) = member
            && let Some(reason) = of_member(member.state.as_ref())
        {
            return (State::Stopped, reason);
        }
        let state = member.and_then(|member| member.state.as_ref());
        if state.and_then(ClusterState::takes_writes) == Some(false) {
            let reason = "the member that takes the writes has not answered";
            return (State::Unknown, reason.to_owned());
        }
        (State::Primary, String::new())
    }

    /// Returns where a server stands: by its transactions, or by the values of the heartbeat table where these are not known.
    fn standing(&mut self, index: usize, now: Nanos) -> Standing {
        let last = self.primary.map(|primary| &self.servers[primary].last);
        let is_numbered = last
            .and_then(Option::as_ref)
            .is_some_and(|(_, answer)| answer.reading.written.is_some());
        let one = &mut self.servers[index];
        let unknown = |missing| Standing {
            lag: None,
            has_all: None,
            silent: Nanos(0),
            missing,
        };
        let Some((at, answer)) = &one.last else {
            return unknown("it has not answered yet".to_owned());
        };
        let missing = no_position(&answer.reading);
        match (&answer.reading.applied, &answer.heartbeat) {
            (Some(applied), _) if is_numbered => Standing {
                lag: self.history.lag(applied, *at),
                has_all: Some(self.history.is_applied(applied)),
                silent: self.history.advanced_at().map_or(Nanos(0), |at| now - at),
                missing,
            },
            (_, Some(Ok(_))) => match self.values.lag(&mut one.shown, *at) {
                Ok((lag, has_all)) => Standing {
                    lag: Some(lag),
                    has_all,
                    silent: self.values.silent(now),
                    missing,
                },
                Err(reason) => unknown(reason.to_owned()),
            },
            (_, Some(Err(reason))) => unknown(format!("{missing}; {reason}")),
            (_, None) => unknown(missing),
        }
    }

    /// Notes since when a replica has lacked something.
    fn note_lacking(&mut self, index: usize, now: Nanos, has_all: Option<bool>) {
        let one = &mut self.servers[index];
        let Some((_, answer)) = &one.last else { return };
        let lacks = |since: &mut Option<Nanos>, has: Option<bool>| {
            *since = match has {
                Some(false) => since.or(Some(now)),
                _ => None,
            };
        };
        let received = answer.reading.received.as_ref();
        let has_received = received.map(|received| self.history.is_applied(received));
        lacks(&mut one.lacks_received, has_received);
        lacks(&mut one.lacks_applied, has_all);
    }

    fn evidence(&self, index: usize, now: Nanos, standing: Standing) -> Evidence {
        let one = &self.servers[index];
        let since = |lacks: Option<Nanos>, advanced: Nanos| {
            lacks.map_or(Nanos(0), |since| now - since.max(advanced))
        };
        let reading = one.last.as_ref().map(|(_, answer)| &answer.reading);
        Evidence {
            unreachable: self.unreachable(index, now),
            replication: reading.map_or_else(
                || Replication::Unknown("it has not answered yet".to_owned()),
                replication,
            ),
            no_primary: self.no_primary(now),
            lag: standing.lag,
            no_lag: standing.missing,
            has_all: standing.has_all == Some(true),
            stuck: since(one.lacks_applied, one.applied_at),
            receives_nothing: reading
                .and_then(|reading| reading.received.as_ref())
                .map(|_| since(one.lacks_received, one.received_at)),
            silent: standing.silent,
            proof: LinkProof {
                age: one.proof_at.map(|at| now - at),
                limit: match &self.probe {
                    Some(Ok(())) => Ok(self.probe_limit),
                    Some(Err(reason)) => one.proof_limit().map_err(|missing| {
                        format!("{missing}; the probe does not write: {reason}")
                    }),
                    None => one.proof_limit().map_err(|missing| {
                        format!("{missing}; --probe proves that the link works")
                    }),
                },
                watched: now - self.began,
            },
            errant: one.errant.unwrap_or(0),
        }
    }

    /// Returns why the primary's position is not known now.
    fn no_primary(&self, now: Nanos) -> Option<String> {
        let Some(primary) = self.primary else {
            return Some("no server takes the writes".to_owned());
        };
        let one = &self.servers[primary];
        if self.unreachable(primary, now).is_some() {
            return Some(format!("the primary, {}, does not answer", one.name));
        }
        let (_, answer) = one.last.as_ref()?;
        if answer.reading.written.is_some() || matches!(answer.heartbeat, Some(Ok(_))) {
            return None;
        }
        let reason = match &answer.reading.executed {
            Executed::Unknown(reason) => reason.as_str(),
            _ => "it logs nothing",
        };
        let table = match &answer.heartbeat {
            Some(Err(reason)) => format!("; {reason}"),
            _ => String::new(),
        };
        Some(format!(
            "the position of the primary, {}, is not known: {reason}{table}",
            one.name
        ))
    }
}

#[cfg(test)]
mod tests;
