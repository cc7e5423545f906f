//! Detects rows that are overdue.

use replimeter_engine::{ErrorKind, ServerError, follow::LOG};
use replimeter_model::time::Nanos;

use super::{super::Slot, Collector};
use crate::{
    MeasureError,
    lag::{
        sample::{Phase, Write},
        settings::Method,
    },
    preflight::{CheckedReplica, Cluster},
};

/// Age of a row from which its replica is checked for errors.
const SUSPICIOUS: Nanos = Nanos(1_000_000_000);

impl Collector<'_> {
    /// Returns an error when a row is overdue. Checks the oldest row of each replica.
    pub(super) fn overdue(&mut self, now: Nanos, cluster: &Cluster) -> Option<MeasureError> {
        let oldest = self.pending.values().find_map(|pending| pending.write)?;
        if now - oldest.send < SUSPICIOUS || now < self.next_check {
            return None;
        }
        self.next_check = now + SUSPICIOUS;
        self.slots.iter().enumerate().find_map(|(index, slot)| {
            let unseen = self
                .pending
                .values()
                .filter(|pending| !pending.reported[index]);
            let write = unseen.filter_map(|pending| pending.write).next()?;
            self.overdue_on(*slot, &write, now, cluster)
        })
    }

    fn overdue_on(
        &self,
        slot: Slot,
        write: &Write,
        now: Nanos,
        cluster: &Cluster,
    ) -> Option<MeasureError> {
        let timeout = Nanos::from(self.plan.timeout.0);
        let age = now - write.send;
        let seconds = |age: Nanos| age.as_micros() / 1e6;
        let seen = seen_as(slot.method);
        let checked = cluster.replicas.get(slot.replica);
        let Some(checked) = checked.filter(|_| self.phase != Phase::Floor) else {
            return (age > timeout).then(|| {
                let cause = format!(
                    "row {} was still not {seen} {:.1} s after it was written",
                    write.seq,
                    seconds(age)
                );
                let hint = "reduce the load on the server, or raise --timeout";
                let session = &cluster.primary.session;
                session.precondition("cannot measure", cause, hint).into()
            });
        };
        let age = age - Nanos::from(checked.delay());
        if age < SUSPICIOUS {
            return None;
        }
        let (state, hint) = match state_of(checked, age > timeout) {
            Ok((state, hint)) => (state?, hint),
            Err(error) => return Some(error.into()),
        };
        let cause = format!(
            "row {} was not {seen} after {:.1} s; {state}",
            write.seq,
            seconds(age)
        );
        let operation = "cannot observe the primary's writes";
        Some(
            checked
                .server
                .session
                .precondition(operation, cause, hint)
                .into(),
        )
    }
}

/// Returns the state of a row that a method has seen.
fn seen_as(method: Method) -> String {
    match method {
        Method::Poll => "visible".to_owned(),
        Method::Wait => "applied (method wait)".to_owned(),
        Method::Stamp | Method::StampUdf => "stamped (method stamp)".to_owned(),
        Method::Tap => format!("in the {LOG} (method tap)"),
    }
}

/// Returns the replica's state, if that state or a `late` row ends the run, and a hint.
fn state_of(checked: &CheckedReplica, late: bool) -> Result<(Option<String>, String), ServerError> {
    match checked.state_now() {
        Err(error)
            if matches!(
                error.kind,
                ErrorKind::Timeout | ErrorKind::Unreachable | ErrorKind::Lost
            ) =>
        {
            Ok((
                late.then(|| format!("its state cannot be read: {}", error.cause)),
                "check whether the server is frozen or disconnected; see its error log".to_owned(),
            ))
        }
        Err(error) => Err(error),
        // An error of the applier does not resolve itself; a stopped or reconnecting replica may
        // recover within the timeout.
        Ok(now) => Ok((
            (late || now.failed).then_some(now.words),
            if now.running {
                "check whether it is far behind or filters the schema `replimeter`, or raise --timeout"
                    .to_owned()
            } else {
                now.hint
            },
        )),
    }
}
