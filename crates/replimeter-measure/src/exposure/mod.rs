//! What a crash of the primary would take, at any moment: transactions in its log that no
//! replica has received.
//!
//! The primary's binary log is followed, and every replica is asked, at one beat, what it
//! has received. Nothing is written, except by writers of ours in a sandbox of ours.

mod asker;
mod check;
mod pending;

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use replimeter_model::{
    exposure::{Amount, ExposureRow, ExposureSample, ExposureWindow},
    plan::ExposurePlan,
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_server::{
    Node, ServerError, Session,
    binlog::{Follower, Start},
    flavour::semi_sync,
};
use replimeter_stats::{random::Random, series::distribution, signed::SignedHistogram};

pub use self::check::check;
use self::{
    asker::{Answer, Asker},
    pending::{Pending, Received},
};
use crate::{
    MeasureError,
    clock::Clock,
    loss::{
        make_table,
        writers::{Load, Style, Writer},
    },
    pacing::wait_until,
    preflight::Cluster,
    tap::{
        server_ids,
        stream::{Note, Stream},
    },
};

/// How long a look waits for the slowest replica; what it then says counts for the next.
const LATE: Duration = Duration::from_millis(100);
/// How often a semi-synchronous primary is asked whether it is in effect.
const IN_EFFECT: Nanos = Nanos(500_000_000);

/// What the caller does with the run as it goes.
pub struct Listener<'a> {
    /// Takes every look.
    pub sample: &'a mut dyn FnMut(&ExposureSample) -> Result<(), String>,
    /// Takes the figures of each stretch.
    pub window: &'a mut dyn FnMut(&ExposureWindow),
    /// Takes word of lost connections.
    pub note: &'a mut dyn FnMut(&str),
    /// Becomes true when the user wants the run to end.
    pub stop: &'a AtomicBool,
}

/// How a run ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The figures; the caller fills in the shape.
    pub row: ExposureRow,
    /// The age of the oldest exposed transaction, at each look; 0 when there is none.
    pub age: SignedHistogram,
    /// How long was looked.
    pub measured: Nanos,
    /// Rows that our writers inserted.
    pub written: Option<u64>,
    /// Whether the user ended it.
    pub interrupted: bool,
    /// What ended it early.
    pub failure: Option<MeasureError>,
    /// What a reader must know.
    pub warnings: Vec<Warning>,
}

/// Why nothing that was acknowledged is ever exposed in a mode.
#[must_use]
pub fn zero_by_construction(mode: &str) -> Option<&'static str> {
    match mode {
        "semi-sync" => Some(
            "the primary acknowledges a transaction only when a replica has written it to its relay log, as long as it does not fall back to asynchronous replication",
        ),
        "galera" => {
            Some("a transaction is acknowledged only when every node has received and certified it")
        }
        "group" => {
            Some("a transaction is acknowledged only when a majority of the group has received it")
        }
        _ => None,
    }
}

/// An amount over the looks.
#[derive(Debug, Default)]
struct Amounts {
    histogram: SignedHistogram,
}

impl Amounts {
    fn record(&mut self, amount: u64) {
        self.histogram
            .record(Nanos(i64::try_from(amount).unwrap_or(i64::MAX)));
    }

    fn amount(&self) -> Amount {
        let value = |value: Option<Nanos>| value.map(|value| value.0 as f64);
        let quantile = |p| value(self.histogram.quantile(p));
        Amount {
            mean: self.histogram.mean(),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: value(self.histogram.max()),
        }
    }
}

/// Looks until the plan's time is over, the user ends it, or the primary has been gone for too long. The time in which its
/// log cannot be followed counts for nothing; a primary that is gone at the end makes the run a failed one.
///
/// # Errors
/// When it cannot begin.
pub fn run(
    cluster: &mut Cluster,
    plan: &ExposurePlan,
    clock: &Clock,
    real_time: bool,
    listener: &mut Listener<'_>,
) -> Result<Outcome, MeasureError> {
    let mut row = ExposureRow {
        engine: cluster.primary.facts.engine.name().to_owned(),
        mode: cluster.mode.to_owned(),
        zero_by_construction: zero_by_construction(cluster.mode).map(str::to_owned),
        ..ExposureRow::default()
    };
    if matches!(cluster.mode, "galera" | "group") {
        return Ok(Outcome {
            row,
            ..Outcome::default()
        });
    }
    let ids = server_ids(cluster, plan.server_id, 1)?;
    let writers = if plan.writers > 0 {
        make_table(cluster)?;
        (0..plan.writers)
            .map(|_| Writer::open(&cluster.primary.node))
            .collect::<Result<Vec<_>, _>>()?
    } else {
        Vec::new()
    };
    let askers: Vec<Asker> = cluster
        .replicas
        .iter()
        .enumerate()
        .map(|(replica, checked)| Asker {
            replica,
            node: checked.server.impatient(),
            facts: checked.server.facts.clone(),
        })
        .collect();
    let names = cluster.replica_names();
    let follower = Follower::open(
        &cluster.primary.node,
        &cluster.primary.facts,
        ids[0],
        &Start::Now,
    )?;
    let semi_sync = (cluster.mode == "semi-sync").then(|| cluster.primary.impatient());
    let (stream, load) = (Stream::default(), Load::default());
    let style = Style {
        writers: plan.writers,
        size: plan.size,
        rate: plan.rate,
        journal: false,
    };
    let mut looking = Looking {
        plan,
        clock,
        names,
        stream: &stream,
        pending: Pending::default(),
        received: askers.iter().map(|_| None).collect(),
        failing: askers.iter().map(|_| false).collect(),
        semi_sync: semi_sync.map(|node| InEffect {
            node,
            session: None,
            asked: None,
            active: true,
        }),
        figures: Figures::default(),
        lost: None,
        blind: Nanos(0),
        outcome: Outcome::default(),
    };
    let outcome = thread::scope(|scope| {
        let (stream, load) = (&stream, &load);
        let follow = scope.spawn(move || stream.follow(follower, clock, real_time, Duration::ZERO));
        for (number, writer) in (0..).zip(writers) {
            scope.spawn(move || load.write(writer, number, style, clock));
        }
        let (answer, answers) = mpsc::channel();
        let mut beats = Vec::new();
        for asker in askers {
            let (beat, beaten) = mpsc::channel();
            beats.push(beat);
            let answer = answer.clone();
            scope.spawn(move || asker.answer(&beaten, &answer, clock, real_time));
        }
        let result = looking.go(&beats, &answers, listener);
        load.stop.store(true, Ordering::Relaxed);
        stream.halt.store(true, Ordering::Relaxed);
        drop(beats);
        if let Err(error) = result {
            looking.outcome.failure.get_or_insert(error);
        }
        if follow.join().is_err() {
            looking.outcome.failure.get_or_insert(MeasureError::Thread);
        }
        looking
    });
    let Looking {
        figures,
        outcome: mut done,
        semi_sync,
        ..
    } = outcome;
    figures.fill(&mut row);
    done.age = figures.age.clone();
    if semi_sync.is_some() {
        let share = figures.ineffective as f64 / figures.looks.max(1) as f64 * 100.0;
        row.fallen_back_percent = Some(share);
        if share > 0.0 {
            row.zero_by_construction = None;
            done.warnings.push(Warning::new(
                WarningCode::SemiSyncNotInEffect,
                format!("the primary had fallen back to asynchronous replication for {share:.1} % of the time: what it acknowledged meanwhile was exposed"),
                "find out why no replica answered in time; a longer time-out keeps it waiting instead",
            ));
        }
    }
    if plan.writers > 0 {
        done.written = Some(load.acknowledged());
        if let Some(error) = load.failed_before(Nanos(i64::MAX)) {
            done.warnings.push(Warning::new(
                WarningCode::LoadErrors,
                error.to_string(),
                error.hint,
            ));
        }
    }
    done.row = row;
    Ok(done)
}

/// Whether semi-synchronous replication is in effect.
struct InEffect {
    node: Node,
    session: Option<Session>,
    asked: Option<Nanos>,
    active: bool,
}

impl InEffect {
    /// As of the last question, which is asked twice a second.
    fn now(&mut self, now: Nanos) -> bool {
        if self.asked.is_none_or(|asked| now - asked >= IN_EFFECT) {
            self.asked = Some(now);
            if self.session.is_none() {
                self.session = Session::open(&self.node).ok();
            }
            match self.session.as_mut().map(semi_sync::state) {
                Some(Ok((Some(state), _))) => self.active = state.active,
                Some(Ok((None, _))) => self.active = false,
                // A primary that does not answer acknowledges nothing either.
                Some(Err(_)) => self.session = None,
                None => {}
            }
        }
        self.active
    }
}

/// What the looks came to.
#[derive(Default)]
struct Figures {
    looks: u64,
    exposed: u64,
    ineffective: u64,
    committed: u64,
    bytes_committed: u64,
    transactions: Amounts,
    bytes: Amounts,
    age: SignedHistogram,
    look: SignedHistogram,
}

impl Figures {
    fn fill(&self, row: &mut ExposureRow) {
        row.looks = self.looks;
        row.committed = self.committed;
        row.bytes_committed = self.bytes_committed;
        row.transactions = self.transactions.amount();
        row.bytes = self.bytes.amount();
        row.age = distribution(&self.age);
        row.exposed_percent = self.exposed as f64 / self.looks.max(1) as f64 * 100.0;
        row.look_us = distribution(&self.look);
    }
}

/// The looking thread's part.
struct Looking<'a> {
    plan: &'a ExposurePlan,
    clock: &'a Clock,
    names: Vec<String>,
    stream: &'a Stream,
    pending: Pending,
    /// What each replica last said.
    received: Vec<Option<Received>>,
    failing: Vec<bool>,
    semi_sync: Option<InEffect>,
    figures: Figures,
    /// Since when the primary's log cannot be followed, and why.
    lost: Option<(Nanos, ServerError)>,
    /// How long it could not be followed before.
    blind: Nanos,
    outcome: Outcome,
}

impl Looking<'_> {
    fn go(
        &mut self,
        beats: &[mpsc::Sender<u64>],
        answers: &mpsc::Receiver<Answer>,
        listener: &mut Listener<'_>,
    ) -> Result<(), MeasureError> {
        let (clock, plan) = (self.clock, self.plan);
        let (look, every, end) = (
            Nanos::from(plan.look.0),
            Nanos::from(plan.every.0),
            Nanos::from(plan.duration.0),
        );
        let began = clock.now();
        let mut window = ExposureWindow::default();
        let mut window_since = Nanos(0);
        let mut committed = 0;
        for beat in 1u64.. {
            let due = began + Nanos(look.0.saturating_mul(beat.cast_signed())) + within(look, beat);
            if clock.now() < due
                && !wait_until(clock, due, || listener.stop.load(Ordering::Relaxed))
            {
                break;
            }
            if clock.now() - due > look + look {
                // A beat that was missed is left out; what it would have seen the next one sees.
                continue;
            }
            let sample = self.look(beat, beats, answers, began, listener)?;
            if let Some(sample) = &sample {
                (listener.sample)(sample).map_err(MeasureError::Sink)?;
                extend(&mut window, sample);
            }
            let now = clock.now() - began;
            if now - window_since >= every || now >= end {
                window.start_us = window_since.as_micros();
                window.end_us = now.as_micros();
                window.committed = self.figures.committed
                    - std::mem::replace(&mut committed, self.figures.committed);
                if window.looks > 0 {
                    (listener.window)(&window);
                }
                window = ExposureWindow::default();
                window_since = now;
            }
            let until = self.lost.as_ref().map_or(now, |(since, _)| *since - began);
            self.outcome.measured = Nanos((until - self.blind).0.max(0));
            if now >= end || self.outcome.failure.is_some() {
                return self.there();
            }
            if listener.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        self.outcome.interrupted = true;
        Ok(())
    }

    /// Whether the primary is there at the end.
    fn there(&mut self) -> Result<(), MeasureError> {
        let Some((since, error)) = self.lost.take() else {
            return Ok(());
        };
        let gone = (self.clock.now() - since).0 as f64 / 1e9;
        self.outcome.warnings.push(Warning::new(
            WarningCode::ServerLost,
            format!("the primary was gone for the last {gone:.1} s: the figures are of the time before"),
            "what was exposed when it went is what the last looks say; `replimeter loss` counts what a crash takes, on a sandbox",
        ));
        Err(error.into())
    }

    /// One look: every replica is asked at once, then what the primary had logged by the
    /// time of the last answer is held against what they said. Nothing while its log cannot be followed.
    fn look(
        &mut self,
        beat: u64,
        beats: &[mpsc::Sender<u64>],
        answers: &mpsc::Receiver<Answer>,
        began: Nanos,
        listener: &mut Listener<'_>,
    ) -> Result<Option<ExposureSample>, MeasureError> {
        let asked = self.clock.now();
        beats.iter().for_each(|one| _ = one.send(beat));
        let (mut open, mut answered, mut last) = (beats.len(), 0, asked);
        let late = asked + Nanos::from(LATE);
        while open > 0 {
            let left = late - self.clock.now();
            let wait = Duration::from_nanos(left.0.max(0).cast_unsigned());
            let Ok(answer) = answers.recv_timeout(wait) else {
                break;
            };
            // One that was late for its own beat is news all the same.
            if answer.beat == beat {
                open -= 1;
                last = last.max(answer.at);
            }
            answered += u64::from(self.take(answer, beat, listener));
        }
        self.logged(last, listener)?;
        let known: Vec<&Received> = self.received.iter().flatten().collect();
        self.pending.received(known.into_iter());
        if self.lost.is_some() {
            return Ok(None);
        }
        let semi_sync = self.semi_sync.as_mut().map(|state| state.now(last));
        let age = self.pending.oldest().map(|oldest| last - oldest);
        let (transactions, bytes) = (self.pending.transactions(), self.pending.bytes());
        let figures = &mut self.figures;
        figures.looks += 1;
        figures.exposed += u64::from(transactions > 0);
        figures.ineffective += u64::from(semi_sync == Some(false));
        figures.transactions.record(transactions);
        figures.bytes.record(bytes);
        figures.age.record(age.unwrap_or_default());
        figures.look.record(last - asked);
        Ok(Some(ExposureSample {
            at_us: (last - began).as_micros(),
            look_us: (last - asked).as_micros(),
            answered,
            transactions,
            bytes,
            age_us: age.map(Nanos::as_micros),
            semi_sync,
        }))
    }

    /// Takes an answer; whether it is one, and of this beat.
    fn take(&mut self, answer: Answer, beat: u64, listener: &mut Listener<'_>) -> bool {
        let name = &self.names[answer.replica];
        match answer.received {
            Ok(received) => {
                self.received[answer.replica] = Some(received);
                if std::mem::replace(&mut self.failing[answer.replica], false) {
                    (listener.note)(&format!("{name}: answers again"));
                }
                answer.beat == beat
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing[answer.replica], true) {
                    let text =
                        format!("{error}; what it received meanwhile counts as not received");
                    (listener.note)(&text);
                    self.outcome.warnings.push(Warning::new(
                        WarningCode::Reconnected,
                        text,
                        "the figures are too high for the time in which it did not answer",
                    ));
                }
                false
            }
        }
    }

    /// Takes what the primary had logged until a moment.
    fn logged(&mut self, until: Nanos, listener: &mut Listener<'_>) -> Result<(), MeasureError> {
        let mut inbox = self.stream.inbox();
        let taken = inbox
            .arrivals
            .iter()
            .take_while(|tapped| tapped.arrival.at.is_none_or(|at| at <= until))
            .count();
        for tapped in inbox.arrivals.drain(..taken) {
            self.figures.committed += 1;
            self.figures.bytes_committed += tapped.bytes;
            // What came over a connection that was made again has no stamp: not before now.
            self.pending.add(
                &tapped.arrival.gtid,
                tapped.bytes,
                tapped.arrival.at.unwrap_or(until),
            );
        }
        let notes = std::mem::take(&mut inbox.notes);
        drop(inbox);
        for note in notes {
            match note {
                Note::Lost(error) => {
                    (listener.note)(&format!("{error}; connecting again"));
                    let now = self.clock.now();
                    self.lost.get_or_insert((now, error));
                }
                Note::Back { hole, after } => {
                    let lost = if hole {
                        "; the part of its log in between is gone"
                    } else {
                        ""
                    };
                    let text = format!(
                        "the primary: connected again after {:.1} s{lost}",
                        after.as_secs_f64()
                    );
                    (listener.note)(&text);
                    if let Some((since, _)) = self.lost.take() {
                        self.blind = self.blind + (self.clock.now() - since);
                    }
                    let hint = "that time counts for nothing; what was committed meanwhile is counted from the reconnection on";
                    self.outcome
                        .warnings
                        .push(Warning::new(WarningCode::Reconnected, text, hint));
                }
                Note::Failed(error) => {
                    let now = self.clock.now();
                    self.lost.get_or_insert((now, error));
                    return self.there();
                }
            }
        }
        Ok(())
    }
}

/// A moment within a beat that differs from beat to beat: looks at a fixed beat would see
/// a load with a beat of its own always in the same phase.
fn within(look: Nanos, beat: u64) -> Nanos {
    Nanos((Random::new(beat).uniform() * look.0 as f64) as i64)
}

/// Adds a look to its stretch; `committed` is filled in at the end of it.
fn extend(window: &mut ExposureWindow, sample: &ExposureSample) {
    let looks = window.looks as f64;
    window.transactions_mean =
        (window.transactions_mean * looks + sample.transactions as f64) / (looks + 1.0);
    window.looks += 1;
    window.transactions_max = window.transactions_max.max(sample.transactions);
    window.bytes_max = window.bytes_max.max(sample.bytes);
    window.age_max_us = window.age_max_us.max(sample.age_us.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_spread_over_their_beats() {
        let look = Nanos(1000);
        let moments: Vec<i64> = (0..1000).map(|beat| within(look, beat).0).collect();
        assert!(moments.iter().all(|moment| (0..1000).contains(moment)));
        let mean = moments.iter().sum::<i64>() / 1000;
        assert!((450..550).contains(&mean), "{mean}");
    }

    #[test]
    fn a_stretch_is_made_of_its_looks() {
        let mut window = ExposureWindow::default();
        for (transactions, age_us) in [(0, None), (4, Some(10.0)), (2, Some(30.0))] {
            extend(
                &mut window,
                &ExposureSample {
                    transactions,
                    bytes: transactions * 10,
                    age_us,
                    ..ExposureSample::default()
                },
            );
        }
        assert_eq!(
            (window.looks, window.transactions_max, window.bytes_max),
            (3, 4, 40)
        );
        assert!(
            (window.transactions_mean - 2.0).abs() < 1e-9
                && (window.age_max_us - 30.0).abs() < 1e-9
        );
    }
}
