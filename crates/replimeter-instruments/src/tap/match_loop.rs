//! The matching thread: joins the arrivals of all streams, and summarizes them.

use std::{io, sync::atomic::Ordering, thread, time::Duration};

use replimeter_engine::{
    Node,
    follow::{LOG, without_id},
    position::Executed,
};
use replimeter_model::{
    time::Nanos,
    warning::{Warning, WarningCode},
};

use super::{
    Event, Outcome,
    asked::AskedServers,
    groups::Groups,
    matcher::{MATCH_TIMEOUT, Matcher},
    stream::{ConnectionEvent, SharedStream, StreamedTransaction},
    summary::{PlacedCommits, ReplicaEnd, TapSummary},
};
use crate::{
    Listener, MeasureError,
    clock::Clock,
    tap::{results::TapStream, settings::TapPlan},
};

/// Interval between checks for arrivals.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between removals of expired arrivals.
const SWEEP: Nanos = Nanos(1_000_000_000);
/// At the end, how long replicas may take for transactions in transit.
const GRACE: Nanos = Nanos(2_000_000_000);

/// Returns the error of a file of the run.
fn sink(error: io::Error) -> MeasureError {
    MeasureError::Sink(error.to_string())
}

/// State of the matching thread.
pub(super) struct MatchLoop<'a> {
    plan: &'a TapPlan,
    clock: &'a Clock,
    matcher: Matcher,
    groups: Groups,
    summary: TapSummary,
    asked: AskedServers,
    /// The number of replicas; the second connection to the primary comes after them.
    count: usize,
    /// Whether the primary is still followed twice.
    twice: bool,
    /// Unreachable servers, and since when.
    lost: Vec<Option<Nanos>>,
    pub(super) outcome: Outcome,
    spare: Vec<Vec<StreamedTransaction>>,
    /// Later arrivals from the primary do not count.
    end: Option<Nanos>,
}

impl<'a> MatchLoop<'a> {
    /// Joins the streams of these records with the primary's, the first of them.
    pub(super) fn new(
        plan: &'a TapPlan,
        clock: &'a Clock,
        matcher: Matcher,
        names: Vec<String>,
        asked: AskedServers,
        records: Vec<TapStream>,
    ) -> Self {
        Self {
            plan,
            clock,
            matcher,
            groups: Groups::new(plan),
            count: names.len(),
            summary: TapSummary::new(names),
            asked,
            twice: !plan.floor_duration.0.is_zero(),
            lost: vec![None; records.len()],
            outcome: Outcome {
                streams: records,
                ..Outcome::default()
            },
            spare: Vec::new(),
            end: None,
        }
    }

    pub(super) fn run(
        &mut self,
        streams: &[SharedStream],
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        let began = self.clock.now();
        let every = Nanos::from(self.plan.report_interval.0);
        let floor_until = began + Nanos::from(self.plan.floor_duration.0);
        let (mut window, mut swept) = (began, began);
        loop {
            thread::sleep(POLL_INTERVAL);
            let now = self.clock.now();
            self.drain(streams, now, listener)?;
            if self.twice && now >= floor_until {
                self.retire(streams);
            }
            if now - swept >= SWEEP {
                self.sweep(now).map_err(sink)?;
                swept = now;
                for text in self.asked.remeasure_clocks(self.clock) {
                    listener.send(Event::Note(text.clone()))?;
                    self.outcome.warnings.push(Warning::new(
                        WarningCode::ClockStepped,
                        text,
                        "commit times in its log around that time are left out; lag is not affected: the client's clock stamps arrivals",
                    ));
                }
            }
            if now - window >= every && self.end.is_none() {
                self.window(window - began, now - began, listener)?;
                window = now;
            }
            if self.outcome.failure.is_some() {
                self.outcome.measured = now - began;
                return self.window(window - began, now - began, listener);
            }
            match self.end {
                None => {
                    let over = self
                        .plan
                        .duration
                        .is_some_and(|duration| now - began >= Nanos::from(duration.0));
                    self.outcome.interrupted = !over && listener.is_stopped();
                    if over || self.outcome.interrupted {
                        self.end = Some(now);
                        self.outcome.measured = now - began;
                        self.matcher.close();
                    }
                }
                Some(end) => {
                    let standing = self.standing(now).map_err(sink)?;
                    let done = standing.iter().all(|(pending, _)| *pending == 0);
                    if done || now - end >= GRACE {
                        return self.window(window - began, self.outcome.measured, listener);
                    }
                }
            }
        }
    }

    /// Takes all arrivals of every stream.
    fn drain(
        &mut self,
        streams: &[SharedStream],
        now: Nanos,
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        // Taken from the primary last and processed first: it has all transactions that the
        // replicas have by then.
        let mut batches: Vec<(usize, Vec<StreamedTransaction>, Vec<ConnectionEvent>)> =
            Vec::with_capacity(streams.len());
        for (index, stream) in streams.iter().enumerate().rev() {
            let mut arrivals = self.spare.pop().unwrap_or_default();
            let mut inbox = stream.inbox();
            std::mem::swap(&mut arrivals, &mut inbox.arrivals);
            let notes = std::mem::take(&mut inbox.notes);
            if index == 0 {
                let inbox = &mut *inbox;
                self.groups.add_sets(&mut inbox.names, &mut inbox.sets);
            }
            batches.push((index, arrivals, notes));
        }
        for (index, mut arrivals, notes) in batches.into_iter().rev() {
            if index == self.count + 1 && !self.twice {
                continue;
            }
            let taken = if index == 0 {
                self.primary(&arrivals)
            } else {
                self.replica(index - 1, &arrivals, now)
            };
            taken.map_err(sink)?;
            arrivals.clear();
            self.spare.push(arrivals);
            for note in notes {
                self.note(index, note, now, listener)?;
            }
        }
        Ok(())
    }

    fn primary(&mut self, arrivals: &[StreamedTransaction]) -> io::Result<()> {
        let Self {
            matcher,
            groups,
            summary,
            end,
            outcome,
            count,
            ..
        } = self;
        for tapped in arrivals {
            if end.is_some_and(|end| tapped.arrival.at.is_some_and(|at| at > end)) {
                continue;
            }
            outcome.transactions += 1;
            let set = tapped.arrival.set;
            if groups.is_counted(set) {
                summary.primary(tapped.bytes, groups.groups_of(set));
            }
            matcher.primary(&tapped.arrival, &mut |one| {
                if one.replica == *count {
                    summary.floor(&one);
                } else if groups.is_counted(one.set) {
                    summary.matched(&one, groups.groups_of(one.set), None);
                }
            })?;
        }
        Ok(())
    }

    fn replica(
        &mut self,
        index: usize,
        arrivals: &[StreamedTransaction],
        now: Nanos,
    ) -> io::Result<()> {
        let Self {
            matcher,
            groups,
            summary,
            asked,
            count,
            ..
        } = self;
        for tapped in arrivals {
            matcher.replica(index, &tapped.arrival, now, &mut |one| {
                if one.replica == *count {
                    summary.floor(&one);
                } else if groups.is_counted(one.set) {
                    let placed = tapped.commit.map(|commit| PlacedCommits {
                        on_primary: asked.to_run_clock(0, commit.original_us, one.on_primary),
                        on_replica: asked.to_run_clock(
                            index + 1,
                            commit.immediate_us,
                            one.on_replica,
                        ),
                    });
                    summary.matched(&one, groups.groups_of(one.set), placed);
                }
            })?;
        }
        Ok(())
    }

    fn note(
        &mut self,
        index: usize,
        note: ConnectionEvent,
        now: Nanos,
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        let name = self.outcome.streams[index].name.clone();
        // The end of the second connection to the primary is not a loss.
        let floor = index == self.count + 1;
        match note {
            ConnectionEvent::Lost(error) => {
                self.lost[index] = Some(now);
                if !floor {
                    listener.send(Event::Note(format!("{error}; reconnecting")))?;
                }
            }
            ConnectionEvent::Back { hole, after } => {
                self.lost[index] = None;
                if floor {
                    return Ok(());
                }
                let lost = if hole {
                    if index > 0 {
                        self.matcher.restart(index - 1);
                    }
                    "; the part of its log in between is missing"
                } else {
                    ""
                };
                let text = format!(
                    "{name}: reconnected after {:.1} s{lost}",
                    after.as_secs_f64()
                );
                listener.send(Event::Note(text.clone()))?;
                self.outcome.warnings.push(Warning::new(
                    WarningCode::Reconnected,
                    text,
                    "transactions that arrived during that time have no stamp; they are counted as unmatched",
                ));
            }
            ConnectionEvent::Failed(_) if floor => {}
            ConnectionEvent::Failed(error) => {
                // The failure tells it.
                self.lost[index] = None;
                self.outcome.failure = Some(error.into());
            }
        }
        Ok(())
    }

    /// Ends the second connection to the primary.
    fn retire(&mut self, streams: &[SharedStream]) {
        self.twice = false;
        self.matcher.stop_expecting(self.count);
        if let Some(stream) = streams.get(self.count + 1) {
            stream.halt.store(true, Ordering::Relaxed);
        }
    }

    /// Drops expired arrivals, and asks for what no stream shows.
    fn sweep(&mut self, now: Nanos) -> io::Result<()> {
        self.expire(now);
        for replica in 0..self.count {
            if self.matcher.pending(replica)?.0 > 0
                && let Some(Executed::Domains { applied, logged }) =
                    self.asked.executed(replica + 1)
            {
                self.matcher.applied(replica, &applied, &logged);
            }
        }
        Ok(())
    }

    /// Drops expired arrivals. The primary is asked for transactions of a replica that its stream lacks: with group
    /// commit, it can have them before that began although they were not yet among the executed ones.
    fn expire(&mut self, now: Nanos) {
        let executed = if self.matcher.is_overdue(now) {
            self.asked.executed(0)
        } else {
            None
        };
        self.matcher.expire(now, executed);
    }

    /// Returns each replica's pending transactions, and the age of the oldest.
    fn standing(&mut self, now: Nanos) -> io::Result<Vec<(u64, Option<Nanos>)>> {
        let of = |replica| {
            let (pending, oldest) = self.matcher.pending(replica)?;
            Ok((pending, oldest.map(|oldest| now - oldest)))
        };
        (0..self.count).map(of).collect()
    }

    /// Returns what has not been matched, with the pending transactions of the replica and the age of the oldest.
    fn end_of(&self, replica: usize, pending: u64, behind: Option<Nanos>) -> ReplicaEnd {
        ReplicaEnd {
            pending,
            behind,
            unmatched: self.matcher.unmatched(replica),
            before_start: self.matcher.before_start(replica),
        }
    }

    /// Reports a window.
    fn window(
        &mut self,
        start: Nanos,
        end: Nanos,
        listener: &mut Listener<'_, Event>,
    ) -> Result<(), MeasureError> {
        let standing = self.standing(self.clock.now()).map_err(sink)?;
        let windows = self.summary.window(start, end, &standing);
        // The remainder after the last complete window is often empty.
        let nothing = windows
            .iter()
            .all(|window| window.transactions == 0 && window.matched == 0);
        if nothing && end - start < Nanos(Nanos::from(self.plan.report_interval.0).0 / 10) {
            return Ok(());
        }
        let so_far = || {
            let replicas = standing.iter().enumerate();
            let row = |(replica, (pending, behind)): (usize, &(u64, Option<Nanos>))| {
                let end = self.end_of(replica, *pending, *behind);
                self.summary.so_far(replica, end)
            };
            replicas.map(row).collect()
        };
        let so_far = listener.so_far.then(so_far);
        listener.send(Event::Windows(windows, so_far))
    }

    /// Ends the run; `cpu` is the matching thread's own processor time.
    pub(super) fn finish(mut self, streams: &[SharedStream], mut cpu: Duration) -> Outcome {
        if let Err(error) = self.sweep(self.clock.now()) {
            self.outcome.failure.get_or_insert(sink(error));
        }
        let mut anonymous = 0;
        for (index, stream) in streams.iter().enumerate() {
            let inbox = stream.inbox();
            let record = &mut self.outcome.streams[index];
            record.transactions = inbox.counts.transactions;
            record.bytes = inbox.counts.bytes;
            record.unknown_events = inbox.counts.unknown;
            record.rotations = inbox.counts.rotations;
            record.partial_tables = inbox.counts.partial_tables;
            record.reconnects = inbox.reconnects;
            let each = inbox.cpu.as_secs_f64() * 1e6 / inbox.counts.transactions.max(1) as f64;
            record.cpu_us_per_transaction = (inbox.counts.transactions > 0).then_some(each);
            anonymous += inbox.anonymous;
            cpu += inbox.cpu;
        }
        self.outcome.cpu = cpu;
        self.outcome.spilled_bytes = self.matcher.spilled_bytes();
        self.outcome.clocks = self.asked.clocks(self.clock);
        let now = self.clock.now();
        let standing = self.standing(now);
        let standing = standing.unwrap_or_else(|_| vec![(0, None); self.count]);
        // Transactions that a replica showed just before the end may be beyond it on the primary.
        self.expire(self.end.unwrap_or(now) - GRACE + MATCH_TIMEOUT);
        for (replica, (pending, behind)) in standing.into_iter().enumerate() {
            let end = self.end_of(replica, pending, behind);
            self.outcome.lags.push(self.summary.lags(replica).clone());
            let row = self.summary.row(replica, end, &self.groups);
            self.outcome.results.push(row);
        }
        self.outcome.floor = self.summary.floor_row();
        let lost = self.asked.nodes().zip(&self.lost);
        let lost = lost.filter_map(|(node, since)| Some((node, (*since)?)));
        self.outcome
            .warnings
            .extend(still_lost(lost, self.end.unwrap_or(now)));
        if anonymous > 0 {
            let (message, hint) = without_id(anonymous);
            self.outcome.warnings.push(Warning::new(
                WarningCode::UnmatchedTransactions,
                message,
                hint,
            ));
        }
        for (index, row) in self.outcome.results.iter().enumerate() {
            // That a replica takes writes, too, is no fault.
            if row.unmatched == self.matcher.unmatched(index).own {
                continue;
            }
            let reasons: Vec<String> = row
                .unmatched_reasons
                .iter()
                .map(|reason| format!("{} {}", reason.count, reason.reason))
                .collect();
            self.outcome.warnings.push(Warning::new(
                WarningCode::UnmatchedTransactions,
                format!(
                    "{}: {} transactions of the primary have no lag: {}",
                    row.replica,
                    row.unmatched,
                    reasons.join("; ")
                ),
                "see the terms in `replimeter tap --help` for what unmatched means",
            ));
        }
        self.outcome
    }
}

/// Returns a warning about each server that could not be followed when counting ended, with the time since when.
fn still_lost<'n>(
    lost: impl Iterator<Item = (&'n Node, Nanos)>,
    end: Nanos,
) -> impl Iterator<Item = Warning> {
    lost.filter(move |(_, since)| *since < end)
        .map(move |(node, since)| {
            Warning::new(
                WarningCode::ServerLost,
                format!(
                    "{}: its {LOG} could not be followed for the last {:.1} s",
                    node.name,
                    (end - since).as_micros() / 1e6
                ),
                node.hint(
                    "see the server's error log; what it logged in that time is in no figure",
                ),
            )
        })
}

#[cfg(test)]
mod tests {
    use replimeter_model::target::Endpoint;

    use super::*;

    #[test]
    fn server_that_is_lost_at_the_end_is_named() {
        let endpoint = Endpoint::parse("mysql://h").unwrap().0;
        let [primary, mut replica] = ["primary", "replica1"]
            .map(|name| Node::new(name, endpoint.clone(), "", Duration::ZERO));
        replica.log = Some("/s/server.log".into());
        let lost = [(&primary, Nanos(3_000_000_000)), (&replica, Nanos(9))];
        let warnings: Vec<Warning> = still_lost(lost.into_iter(), Nanos(2_500_000_009)).collect();
        let [warning] = warnings.as_slice() else {
            panic!("lost after the end: {warnings:?}");
        };
        assert_eq!(warning.code, WarningCode::ServerLost);
        assert_eq!(
            warning.message,
            "replica1: its binary log could not be followed for the last 2.5 s"
        );
        assert!(
            warning
                .hint
                .starts_with("see the server's error log, /s/server.log")
        );
    }
}
