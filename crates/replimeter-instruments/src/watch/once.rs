//! Finds out once whether every replica applies, within a limit, what the primary has now.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use replimeter_engine::{position::Position, source::Member};
use replimeter_model::{
    time::Nanos,
    watch_once::{OnceRow, OnceState},
};

use super::{
    CHECK_INTERVAL, Ticks, declared_primary,
    history::AnswerTime,
    monitor::{Answer, no_position, of_member, replication},
    poller::{Poller, RecordedFacts},
    poller_thread,
    roles::{self, Reported},
    state::Replication,
};
use crate::{MeasureError, clock::Clock};

/// Time after which servers that have not answered are not waited for to find the primary.
const SETTLE: Duration = Duration::from_millis(500);
/// Time beyond the limit for connecting, and for answers to questions at the limit.
const SLACK: Duration = Duration::from_millis(800);
/// Shortest and longest interval between questions.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

/// What was found.
#[derive(Debug, PartialEq)]
pub struct OnceAnswer {
    /// The server that takes the writes; `None` if none was found.
    pub primary: Option<String>,
    /// Why its position is not known, if so.
    pub error: Option<String>,
    /// Every other server.
    pub rows: Vec<OnceRow>,
}

/// Waits until every replica has applied what the primary has now, at most for this time and less than a second more. Servers that do
/// not answer do not delay it: their threads are left behind.
///
/// # Errors
/// When the user ends it, or the system refuses a thread.
pub fn ask_once(
    members: &[Member],
    max_lag: Duration,
    stop: &AtomicBool,
) -> Result<OnceAnswer, MeasureError> {
    let clock = Clock::start();
    let names = members.iter().map(|member| member.node.name.clone());
    let mut question = Question::new(names, declared_primary(members), max_lag, clock.now());
    let (sender, news) = mpsc::channel();
    let ticks = Ticks {
        began: Instant::now(),
        interval: (max_lag / 20).clamp(INTERVALS.0, INTERVALS.1),
    };
    // The threads end when it is dropped.
    let mut ends = Vec::new();
    for (server, member) in members.iter().enumerate() {
        let (end, ended) = mpsc::channel::<()>();
        ends.push(end);
        let poller = Poller::new(
            server,
            &member.node,
            ticks,
            RecordedFacts::WithoutVariables,
            None,
        );
        let sender = sender.clone();
        poller_thread()
            .spawn(move || poller.run(&ended, &sender, &clock))
            .map_err(|_| MeasureError::Thread)?;
    }
    drop(sender);
    loop {
        let now = clock.now();
        if stop.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        if question.is_over(now) {
            return Ok(question.answer(now));
        }
        match news.recv_timeout(INTERVALS.0.min(CHECK_INTERVAL)) {
            Ok(news) => match news.answer {
                Ok(answer) => question.take(news.server, news.at, *answer),
                Err(error) => question.fail(news.server, error.to_string()),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(MeasureError::Thread),
        }
    }
}

/// One server.
struct AskedServer {
    name: String,
    last: Option<(AnswerTime, Answer)>,
    /// Why it has not answered since.
    failure: Option<String>,
    /// When it had applied what is waited for.
    applied: Option<Nanos>,
}

/// The question, and what the servers have answered so far. It has no connection and no clock of its own.
struct Question {
    servers: Vec<AskedServer>,
    declared: Option<usize>,
    primary: Option<usize>,
    /// What is waited for, and since when it was known.
    wanted: Option<(Position, Nanos)>,
    max_lag: Nanos,
    began: Nanos,
}

impl Question {
    fn new(
        names: impl IntoIterator<Item = String>,
        declared: Option<usize>,
        max_lag: Duration,
        began: Nanos,
    ) -> Self {
        let asked = |name| AskedServer {
            name,
            last: None,
            failure: None,
            applied: None,
        };
        Self {
            servers: names.into_iter().map(asked).collect(),
            declared,
            primary: None,
            wanted: None,
            max_lag: max_lag.into(),
            began,
        }
    }

    fn fail(&mut self, server: usize, reason: String) {
        self.servers[server].failure = Some(reason);
        self.find_primary(self.began);
    }

    fn take(&mut self, server: usize, at: AnswerTime, answer: Answer) {
        if self.primary == Some(server) && self.wanted.is_none() {
            let written = answer.reading.written.clone();
            self.wanted = written.map(|written| (written, at.answered));
        }
        let one = &mut self.servers[server];
        if let (Some((wanted, _)), Some(applied)) = (&self.wanted, &answer.reading.applied)
            && applied.covers(wanted)
        {
            one.applied.get_or_insert(at.answered);
        }
        one.failure = None;
        one.last = Some((at, answer));
        self.find_primary(at.answered);
    }

    /// Returns whether every server has answered or failed.
    fn all_known(&self) -> bool {
        let known = |one: &AskedServer| one.last.is_some() || one.failure.is_some();
        self.servers.iter().all(known)
    }

    /// Finds the primary until its position is known. Its position is that of its next answer: until then the others can have connected.
    fn find_primary(&mut self, now: Nanos) {
        if self.wanted.is_some() || !(self.all_known() || now - self.began >= SETTLE.into()) {
            return;
        }
        let reported: Vec<Reported<'_>> = self
            .servers
            .iter()
            .enumerate()
            .filter_map(|(index, one)| {
                let (_, answer) = one.last.as_ref()?;
                Some(answer.reported(index))
            })
            .collect();
        self.primary = roles::primary(&reported, self.declared);
    }

    /// Returns why the primary's position cannot be known, if so.
    fn no_position(&self) -> Option<String> {
        if self.wanted.is_some() {
            return None;
        }
        let Some(primary) = self.primary.map(|primary| &self.servers[primary]) else {
            return Some("no server takes the writes".to_owned());
        };
        if let Some(failure) = &primary.failure {
            return Some(failure.clone());
        }
        let Some((_, answer)) = &primary.last else {
            return Some(format!("{} has not answered", primary.name));
        };
        let member = answer.reading.member.as_ref();
        let reason = member.and_then(|member| of_member(member.state.as_ref()));
        let reason = reason.or_else(|| match answer.reading.written {
            Some(_) => None,
            None => Some(no_position(&answer.reading)),
        });
        reason.map(|reason| format!("{}: {reason}", primary.name))
    }

    /// Returns whether nothing more is to be found out.
    fn is_over(&self, now: Nanos) -> bool {
        if now - self.began >= self.max_lag + SLACK.into() {
            return true;
        }
        if self.wanted.is_none() {
            return self.all_known() && self.no_position().is_some();
        }
        self.replicas()
            .all(|one| one.failure.is_some() || self.state(one).is_some())
    }

    fn replicas(&self) -> impl Iterator<Item = &AskedServer> {
        let servers = self.servers.iter().enumerate();
        servers
            .filter(|(index, _)| Some(*index) != self.primary)
            .map(|(_, one)| one)
    }

    /// Returns the state of a replica, if it is decided by its answers.
    fn state(&self, one: &AskedServer) -> Option<OnceState> {
        let (_, since) = self.wanted.as_ref()?;
        let limit = *since + self.max_lag;
        if let Some(applied) = one.applied {
            return Some(match applied <= limit {
                true => OnceState::Ok,
                false => OnceState::Late,
            });
        }
        let (at, answer) = one.last.as_ref()?;
        if answer.reading.applied.is_none() {
            return Some(OnceState::Unknown);
        }
        // It was asked at the limit or later, and lacked something.
        (at.asked >= limit).then_some(OnceState::Late)
    }

    fn answer(&self, now: Nanos) -> OnceAnswer {
        let error = self.no_position();
        let rows = self.replicas().map(|one| self.row(one, now)).collect();
        OnceAnswer {
            primary: self.primary.map(|index| self.servers[index].name.clone()),
            error: error.or_else(|| match self.wanted {
                Some(_) => None,
                None => Some("its position was not read in time".to_owned()),
            }),
            rows,
        }
    }

    fn row(&self, one: &AskedServer, now: Nanos) -> OnceRow {
        let state = self.state(one).unwrap_or(OnceState::Unknown);
        let wanted = self.wanted.as_ref();
        let reading = one.last.as_ref().map(|(_, answer)| &answer.reading);
        let within = one.applied.zip(wanted).map(|(at, (_, since))| at - *since);
        let applied = reading.and_then(|reading| reading.applied.as_ref());
        let behind = applied
            .zip(wanted)
            .and_then(|(applied, (wanted, _))| applied.behind(wanted).ok())
            .filter(|behind| *behind > 0 && one.applied.is_none());
        let reports = reading.and_then(|reading| match replication(reading) {
            Replication::Stopped(reason) => Some(format!("replication is stopped: {reason}")),
            Replication::RunsDelayed(delay) => {
                Some(format!("it applies {} s later on purpose", delay.as_secs()))
            }
            Replication::Runs | Replication::Unknown(_) => None,
        });
        let mut reasons = Vec::new();
        if state == OnceState::Unknown {
            let since = one.last.as_ref().map_or(self.began, |(at, _)| at.answered);
            reasons.push(match (&one.failure, applied) {
                (Some(failure), _) => failure.clone(),
                (None, _) if wanted.is_none() => "the primary's position is not known".to_owned(),
                (None, None) if let Some(reading) = reading => no_position(reading),
                _ => format!("no answer for {:.1} s", (now - since).as_micros() / 1e6),
            });
        }
        reasons.extend(reports);
        OnceRow {
            server: one.name.clone(),
            state,
            within_us: within.map(|within| within.max(Nanos(0)).as_micros()),
            behind,
            reason: reasons.join("; "),
        }
    }
}

#[cfg(test)]
mod tests {
    use replimeter_engine::{
        dialect::Channel, identity::Identity, position::Executed, reading::Reading,
    };
    use replimeter_model::engine::Engine;

    use super::*;

    const MS: i64 = 1_000_000;

    /// The answer of a server that has this many transactions, and replicates from this one; 0 for none.
    fn answer(server: u64, transactions: u64, source: u64) -> Answer {
        let position: Position = format!("0-1-{transactions}").parse().unwrap();
        let channel = Channel {
            source_server_id: source,
            ..Channel::default()
        };
        Answer {
            engine: Engine::MariaDb,
            identity: Some(Identity {
                server_id: server,
                uuid: String::new(),
                place: format!("db{server}"),
            }),
            reading: Reading {
                executed: Executed::Unknown(String::new()),
                written: Some(position.clone()),
                applied: Some(position),
                received: None,
                channels: Ok(Vec::from_iter((source > 0).then_some(channel))),
                heartbeats: None,
                member: None,
                waits: None,
            },
            uptime: None,
            replicas: None,
            heartbeat: None,
        }
    }

    /// A question to a primary and two replicas, with a limit of a second.
    fn question() -> Question {
        let names = ["primary", "replica1", "replica2"].map(str::to_owned);
        Question::new(names, Some(0), Duration::from_secs(1), Nanos(0))
    }

    /// Takes an answer to a question at this time in ms, which arrives 2 ms later.
    fn take(question: &mut Question, server: usize, ms: i64, transactions: u64) {
        let at = AnswerTime {
            asked: Nanos(ms * MS),
            answered: Nanos((ms + 2) * MS),
        };
        let source = u64::from(server > 0);
        question.take(server, at, answer(server as u64 + 1, transactions, source));
    }

    fn states(question: &Question, ms: i64) -> Vec<OnceState> {
        let answer = question.answer(Nanos(ms * MS));
        answer.rows.iter().map(|row| row.state).collect()
    }

    #[test]
    fn it_is_over_as_soon_as_every_replica_has_applied_it() {
        let mut question = question();
        for server in 0..3 {
            take(&mut question, server, 0, 5);
        }
        assert!(
            !question.is_over(Nanos(2 * MS)),
            "what all have connected at"
        );
        take(&mut question, 0, 10, 7);
        take(&mut question, 1, 20, 7);
        take(&mut question, 2, 20, 6);
        assert!(!question.is_over(Nanos(22 * MS)));
        take(&mut question, 0, 30, 9);
        take(&mut question, 2, 40, 8);
        assert!(
            question.is_over(Nanos(42 * MS)),
            "the later ones do not count"
        );
        let answer = question.answer(Nanos(42 * MS));
        assert_eq!(
            (answer.primary.as_deref(), &answer.error),
            (Some("primary"), &None)
        );
        assert_eq!(OnceState::of(&answer.rows), OnceState::Ok);
        assert_eq!(answer.rows[1].within_us, Some(30e3));
    }

    #[test]
    fn replica_is_late_by_an_answer_after_the_limit_only() {
        let mut question = question();
        for server in [1, 2, 0, 0] {
            take(&mut question, server, 0, 5);
        }
        take(&mut question, 1, 10, 5);
        take(&mut question, 2, 990, 3);
        assert!(!question.is_over(Nanos(1100 * MS)));
        assert_eq!(states(&question, 1100), [OnceState::Ok, OnceState::Unknown]);
        take(&mut question, 2, 1010, 3);
        assert!(question.is_over(Nanos(1012 * MS)));
        let row = &question.answer(Nanos(1012 * MS)).rows[1];
        assert_eq!((row.state, row.behind), (OnceState::Late, Some(2)));
        // It had applied it when it was asked after the limit.
        question.servers[2].last = None;
        take(&mut question, 2, 1001, 5);
        assert_eq!(states(&question, 1012), [OnceState::Ok, OnceState::Late]);
    }

    #[test]
    fn silent_servers_do_not_keep_it() {
        let mut question = question();
        take(&mut question, 0, 0, 5);
        take(&mut question, 1, 0, 5);
        assert!(
            question.wanted.is_none(),
            "the third one may be the primary"
        );
        take(&mut question, 0, 600, 5);
        take(&mut question, 0, 610, 6);
        take(&mut question, 1, 620, 6);
        assert_eq!(states(&question, 700), [OnceState::Ok, OnceState::Unknown]);
        assert!(!question.is_over(Nanos(1799 * MS)) && question.is_over(Nanos(1800 * MS)));
        let answer = question.answer(Nanos(1800 * MS));
        assert_eq!(answer.rows[1].reason, "no answer for 1.8 s");
        question.fail(2, "refused".to_owned());
        assert!(question.is_over(Nanos(700 * MS)), "it has given its answer");
    }

    #[test]
    fn primary_that_cannot_be_read_ends_it() {
        let mut question = question();
        take(&mut question, 1, 0, 5);
        take(&mut question, 2, 0, 5);
        question.fail(0, "refused".to_owned());
        assert!(question.is_over(Nanos(10 * MS)));
        let answer = question.answer(Nanos(10 * MS));
        assert_eq!(answer.error.as_deref(), Some("refused"));
        assert_eq!(OnceState::of(&answer.rows), OnceState::Unknown);
    }

    #[test]
    fn primary_is_the_one_that_the_others_replicate_from() {
        let mut question = question();
        let at = |ms: i64| AnswerTime {
            asked: Nanos(ms * MS),
            answered: Nanos((ms + 2) * MS),
        };
        // After a failover.
        question.take(0, at(0), answer(1, 5, 2));
        question.take(1, at(0), answer(2, 5, 0));
        question.take(2, at(0), answer(3, 5, 2));
        question.take(1, at(10), answer(2, 6, 0));
        let answer = question.answer(Nanos(20 * MS));
        assert_eq!(answer.primary.as_deref(), Some("replica1"));
        assert_eq!(answer.rows[0].server, "primary");
    }
}
