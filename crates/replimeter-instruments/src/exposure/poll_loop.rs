//! The polling thread: queries the replicas at each poll and compares their answers with the primary's
//! log.

use std::{sync::mpsc, time::Duration};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::acknowledgement::{self, PrimaryState},
    position::OriginServer,
};
use replimeter_model::{
    random::Random,
    time::Nanos,
    warning::{Warning, WarningCode},
};

use super::{Event, Outcome, figures::ExposureSummary, replica_poller::ReplicaAnswer};
use crate::{
    Listener, MeasureError,
    clock::Clock,
    exposure::{
        results::{ExposureRow, ExposureSample, ExposureWindow},
        settings::ExposurePlan,
    },
    loss::writers::WriterLoad,
    pacing::wait_until,
    tap::stream::{ConnectionEvent, SharedStream},
};

/// How long a poll waits for the slowest replica; a later answer counts for the next poll.
const LATE: Duration = Duration::from_millis(100);
/// Interval between checks whether semi-sync is in effect on the primary.
const IN_EFFECT: Nanos = Nanos(500_000_000);

/// Semi-synchronous replication of the primary, asked for twice a second and at the end.
///
/// A fallback between two queries shows in the server's counter only.
pub(super) struct WaitStatus {
    node: Node,
    session: Option<Session>,
    asked: Option<Nanos>,
    active: bool,
    /// The server's counter of transactions without an acknowledgement, at the last query.
    counter: u64,
    /// Transactions that it has counted since the run began.
    unacknowledged: u64,
}

impl WaitStatus {
    /// Begins with the state of this primary before the run.
    pub(super) fn new(node: Node, before: &PrimaryState) -> Self {
        Self {
            node,
            session: None,
            asked: None,
            active: true,
            counter: before.unacknowledged,
            unacknowledged: 0,
        }
    }

    /// Returns whether it was in effect at the last query.
    fn now(&mut self, now: Nanos) -> bool {
        if self.asked.is_none_or(|asked| now - asked >= IN_EFFECT) {
            self.asked = Some(now);
            self.ask();
        }
        self.active
    }

    fn ask(&mut self) {
        if self.session.is_none() {
            self.session = Session::open(&self.node).ok();
        }
        match self.session.as_mut().map(acknowledgement::state) {
            Some(Ok((state, _))) => self.add(&state.unwrap_or_default()),
            // A primary that does not answer does not acknowledge either.
            Some(Err(_)) => self.session = None,
            None => {}
        }
    }

    fn add(&mut self, state: &PrimaryState) {
        self.active = state.active;
        // A restarted server counts from 0.
        let more = state.unacknowledged.checked_sub(self.counter);
        self.unacknowledged += more.unwrap_or(state.unacknowledged);
        self.counter = state.unacknowledged;
    }
}

/// State of the polling thread.
pub(super) struct PollLoop<'a> {
    plan: &'a ExposurePlan,
    clock: &'a Clock,
    names: Vec<String>,
    /// The replicas, as GTIDs name them.
    origins: Vec<OriginServer>,
    stream: &'a SharedStream,
    exposed: ExposureSummary,
    failing: Vec<bool>,
    waits: Option<WaitStatus>,
    /// Since when the primary's log cannot be followed, and why.
    lost: Option<(Nanos, ServerError)>,
    /// Total earlier time in which it could not be followed.
    blind: Nanos,
    pub(super) outcome: Outcome,
}

impl<'a> PollLoop<'a> {
    /// Creates the state for these replicas, whose own writes `origins` name; `waits` is that of a semi-synchronous primary.
    pub(super) fn new(
        plan: &'a ExposurePlan,
        clock: &'a Clock,
        names: Vec<String>,
        origins: Vec<OriginServer>,
        stream: &'a SharedStream,
        waits: Option<WaitStatus>,
    ) -> Self {
        Self {
            plan,
            clock,
            exposed: ExposureSummary::new(names.len()),
            failing: vec![false; names.len()],
            names,
            origins,
            stream,
            waits,
            lost: None,
            blind: Nanos(0),
            outcome: Outcome::default(),
        }
    }

    /// Returns the results of the run.
    pub(super) fn finish(self, mut row: ExposureRow, load: &WriterLoad) -> Outcome {
        let (mut figures, mut done) = (self.exposed.figures, self.outcome);
        figures.fill_row(&mut row);
        if let Some(mut waits) = self.waits {
            if done.failure.is_none() {
                waits.ask();
            }
            let (share, missed) = (figures.ineffective_percent(), waits.unacknowledged);
            row.fallen_back_percent = Some(share);
            row.unacknowledged = Some(missed);
            if share > 0.0 || missed > 0 {
                row.zero_by_construction = None;
                done.warnings.push(Warning::new(
                    WarningCode::AcknowledgementNotInEffect,
                    format!("the primary was in asynchronous fallback for {share:.1} % of the time; transactions committed without a replica's acknowledgement, and exposed: {missed}"),
                    "find out why no replica acknowledged before the timeout, or raise the timeout",
                ));
            }
        }
        if self.plan.writers > 0 {
            done.written = Some(load.acknowledged());
            if let Some(error) = load.failed_before(Nanos(i64::MAX)) {
                done.warnings.push(Warning::new(
                    WarningCode::LoadErrors,
                    error.to_string(),
                    error.hint,
                ));
            }
        }
        Outcome {
            row,
            age: figures.age().clone(),
            ..done
        }
    }

    pub(super) fn run(
        &mut self,
        polls: &[mpsc::Sender<u64>],
        answers: &mpsc::Receiver<ReplicaAnswer>,
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        let (clock, plan) = (self.clock, self.plan);
        let (interval, every, end) = (
            Nanos::from(plan.poll_interval.0),
            Nanos::from(plan.report_interval.0),
            Nanos::from(plan.duration.0),
        );
        let began = clock.now();
        let mut window = WindowSummary::default();
        let mut window_since = Nanos(0);
        let mut committed = 0;
        for poll in 1u64.. {
            let due = began
                + Nanos(interval.0.saturating_mul(poll.cast_signed()))
                + within(interval, poll);
            if clock.now() < due && !wait_until(clock, due, || listener.is_stopped()) {
                break;
            }
            if clock.now() - due > interval + interval {
                // A missed poll is skipped; the next one sees the same transactions.
                continue;
            }
            let sample = self.poll(poll, polls, answers, began, listener)?;
            if let Some(sample) = sample {
                window.add(&sample);
                listener.send(Event::Sample(sample))?;
            } else {
                window.previous = None;
            }
            let now = clock.now() - began;
            if now - window_since >= every || now >= end {
                let all = self.exposed.figures.committed;
                let finished = ExposureWindow {
                    start_us: window_since.as_micros(),
                    end_us: now.as_micros(),
                    committed: all - std::mem::replace(&mut committed, all),
                    ..window.take()
                };
                if finished.polls > 0 {
                    let so_far = || Box::new(self.exposed.figures.so_far());
                    let so_far = listener.so_far.then(so_far);
                    listener.send(Event::Window(finished, so_far))?;
                }
                window_since = now;
            }
            let until = self.lost.as_ref().map_or(now, |(since, _)| *since - began);
            self.outcome.measured = Nanos((until - self.blind).0.max(0));
            if now >= end || self.outcome.failure.is_some() {
                return self.there();
            }
            if listener.is_stopped() {
                break;
            }
        }
        self.outcome.interrupted = true;
        // The user ended the run: without it, it might have come back.
        self.warn_if_lost();
        Ok(())
    }

    /// Checks that the primary can be reached at the end.
    fn there(&mut self) -> Result<(), MeasureError> {
        self.warn_if_lost()
            .map_or(Ok(()), |error| Err(error.into()))
    }

    /// Warns if the primary's log cannot be followed now; returns why.
    fn warn_if_lost(&mut self) -> Option<ServerError> {
        let (since, error) = self.lost.take()?;
        let gone = (self.clock.now() - since).0 as f64 / 1e9;
        self.outcome.warnings.push(Warning::new(
            WarningCode::ServerLost,
            format!("the primary was unreachable for the last {gone:.1} s; the figures cover only the time before"),
            "see the last samples for the exposure at that time; to count lost writes, run `replimeter loss` on a sandbox",
        ));
        Some(error)
    }

    /// Polls once: queries all replicas at the same time, then compares their answers with the
    /// transactions that the primary had logged at the time of the last answer. Skipped while the log
    /// cannot be followed.
    fn poll(
        &mut self,
        poll: u64,
        polls: &[mpsc::Sender<u64>],
        answers: &mpsc::Receiver<ReplicaAnswer>,
        began: Nanos,
        listener: &mut Listener<'_, Event>,
    ) -> Result<Option<ExposureSample>, MeasureError> {
        let asked = self.clock.now();
        polls.iter().for_each(|one| _ = one.send(poll));
        let (mut open, mut answered, mut last) = (polls.len(), 0, asked);
        let late = asked + Nanos::from(LATE);
        while open > 0 {
            let left = late - self.clock.now();
            let wait = Duration::from_nanos(left.0.max(0).cast_unsigned());
            let Ok(answer) = answers.recv_timeout(wait) else {
                break;
            };
            // A late answer to an earlier poll is still used.
            if answer.poll == poll {
                open -= 1;
                last = last.max(answer.at);
            }
            answered += u64::from(self.take(answer, poll, listener)?);
        }
        self.logged(last, listener)?;
        self.exposed.drop_settled();
        if let Some((since, _)) = &self.lost {
            self.exposed.unfollowed(*since);
            return Ok(None);
        }
        let waits = self.waits.as_mut().map(|state| state.now(last));
        Ok(Some(
            self.exposed
                .record_poll(began, asked, last, answered, waits),
        ))
    }

    /// Uses an answer; returns whether it was successful and belongs to this poll.
    fn take(
        &mut self,
        answer: ReplicaAnswer,
        poll: u64,
        listener: &mut Listener<'_, Event>,
    ) -> Result<bool, MeasureError> {
        let name = &self.names[answer.replica];
        match answer.received {
            Ok(received) => {
                self.exposed.received(answer.replica, received);
                if std::mem::replace(&mut self.failing[answer.replica], false) {
                    listener.send(Event::Note(format!("{name}: reconnected")))?;
                }
                Ok(answer.poll == poll)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing[answer.replica], true) {
                    let text = format!(
                        "{error}; transactions that it receives before it reconnects count as not received"
                    );
                    listener.send(Event::Note(text.clone()))?;
                    self.outcome.warnings.push(Warning::new(
                        WarningCode::Reconnected,
                        text,
                        "check the connection; the figures are too high for the time without an answer",
                    ));
                }
                Ok(false)
            }
        }
    }

    /// Reads the transactions that the primary had logged at a time.
    fn logged(
        &mut self,
        until: Nanos,
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        let mut inbox = self.stream.inbox();
        let taken = inbox
            .arrivals
            .iter()
            .take_while(|tapped| tapped.arrival.at.is_none_or(|at| at <= until))
            .count();
        for tapped in inbox.arrivals.drain(..taken) {
            // What a replica wrote itself is there.
            if self.origins.contains(&tapped.arrival.commit_id.origin()) {
                continue;
            }
            // Transactions from a new connection have no stamp: they count as not before now.
            self.exposed.logged(
                &tapped.arrival.commit_id,
                tapped.bytes,
                tapped.arrival.at.unwrap_or(until),
            );
        }
        let notes = std::mem::take(&mut inbox.notes);
        drop(inbox);
        for note in notes {
            match note {
                ConnectionEvent::Lost(error) => {
                    listener.send(Event::Note(format!("{error}; reconnecting")))?;
                    let now = self.clock.now();
                    self.lost.get_or_insert((now, error));
                }
                ConnectionEvent::Back { hole, after } => {
                    let lost = if hole {
                        "; its log of the time in between is no longer available"
                    } else {
                        ""
                    };
                    let text = format!(
                        "the primary: reconnected after {:.1} s{lost}",
                        after.as_secs_f64()
                    );
                    listener.send(Event::Note(text.clone()))?;
                    if let Some((since, _)) = self.lost.take() {
                        self.blind = self.blind + (self.clock.now() - since);
                    }
                    let hint = "check the connection; the figures exclude that time, and transactions committed in it count from the reconnection on";
                    self.outcome
                        .warnings
                        .push(Warning::new(WarningCode::Reconnected, text, hint));
                }
                ConnectionEvent::Failed(error) => {
                    let now = self.clock.now();
                    self.lost.get_or_insert((now, error));
                    return self.there();
                }
            }
        }
        Ok(())
    }
}

/// Returns a time within a poll interval that differs from poll to poll: polls at fixed times would
/// always hit the same phase of a periodic load.
fn within(interval: Nanos, poll: u64) -> Nanos {
    Nanos((Random::new(poll).uniform() * interval.0 as f64) as i64)
}

/// The window of the run that polls are added to.
#[derive(Debug, Default)]
struct WindowSummary {
    window: ExposureWindow,
    /// Time between the polls of the window, in µs, and the integral of the transactions over it.
    time: f64,
    integral: f64,
    /// Time and transactions of the poll before; none where the log could not be followed since.
    previous: Option<(f64, f64)>,
}

impl WindowSummary {
    fn add(&mut self, sample: &ExposureSample) {
        let transactions = sample.transactions as f64;
        if let Some((at, before)) = self.previous.replace((sample.at_us, transactions)) {
            let time = sample.at_us - at;
            self.time += time;
            self.integral += time * (before + transactions) / 2.0;
        }
        let window = &mut self.window;
        window.polls += 1;
        window.transactions_mean = if self.time > 0.0 {
            self.integral / self.time
        } else {
            transactions
        };
        window.transactions_max = window.transactions_max.max(sample.transactions);
        window.bytes_max = window.bytes_max.max(sample.bytes);
        window.age_max_us = window.age_max_us.max(sample.age_us.unwrap_or_default());
    }

    /// Returns the window without its times and `committed`, and starts the next one.
    fn take(&mut self) -> ExposureWindow {
        let next = Self {
            previous: self.previous,
            ..Self::default()
        };
        std::mem::replace(self, next).window
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use replimeter_model::plan::{Settings, TargetSettings};

    use super::*;
    use crate::exposure::settings::ExposureSettings;

    #[test]
    fn primary_that_is_lost_when_the_user_ends_the_run_is_named() {
        let plan = ExposureSettings::default().plan(&mut TargetSettings::default());
        let (_, plan) = plan.unwrap();
        let (clock, stream) = (Clock::start(), SharedStream::default());
        let mut poll_loop = PollLoop::new(&plan, &clock, Vec::new(), Vec::new(), &stream, None);
        let error = ServerError::precondition("primary", "h:1", "cannot follow", "gone", "");
        poll_loop.lost = Some((clock.now(), error));
        let mut on = |_| Ok(());
        let stop = AtomicBool::new(true);
        let mut listener = Listener {
            on: &mut on,
            stop: &stop,
            so_far: false,
        };
        let (_, answers) = mpsc::channel();
        poll_loop.run(&[], &answers, &mut listener).unwrap();
        let outcome = &poll_loop.outcome;
        assert!(outcome.interrupted);
        assert_eq!(outcome.warnings[0].code, WarningCode::ServerLost);
    }

    #[test]
    fn polls_are_spread_over_their_intervals() {
        let interval = Nanos(1000);
        let moments: Vec<i64> = (0..1000).map(|poll| within(interval, poll).0).collect();
        assert!(moments.iter().all(|moment| (0..1000).contains(moment)));
        let mean = moments.iter().sum::<i64>() / 1000;
        assert!((450..550).contains(&mean), "{mean}");
    }

    #[test]
    fn window_summarizes_the_time_between_its_polls() {
        let mut window = WindowSummary::default();
        for (at_us, transactions, age_us) in
            [(0.0, 0, None), (10.0, 4, Some(10.0)), (40.0, 4, Some(30.0))]
        {
            window.add(&ExposureSample {
                at_us,
                transactions,
                bytes: transactions * 10,
                age_us,
                ..ExposureSample::default()
            });
        }
        let first = window.take();
        assert_eq!(
            (first.polls, first.transactions_max, first.bytes_max),
            (3, 4, 40)
        );
        // 10 µs from 0 to 4, 30 µs at 4.
        assert!((first.transactions_mean - 3.5).abs() < 1e-9 && first.age_max_us == 30.0);
        window.add(&ExposureSample {
            at_us: 50.0,
            ..ExposureSample::default()
        });
        assert!((window.take().transactions_mean - 2.0).abs() < 1e-9);
    }
}
