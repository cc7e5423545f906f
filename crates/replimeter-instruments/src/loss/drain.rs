//! Waits until a replica whose source is dead has applied all received transactions.

use std::{sync::atomic::AtomicBool, time::Duration};

use replimeter_engine::{
    dialect::{self, ThreadState},
    facts::ServerFacts,
    position::{Position, executed},
};

use crate::{MeasureError, discovery::DiscoveredServer, pacing::poll, preflight::CheckedReplica};

/// How long a replica may take to apply its received transactions.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between queries.
const PAUSE: Duration = Duration::from_millis(1);
const OPERATION: &str = "cannot read its replication progress";

/// Returns whether a replica receives directly from this server.
pub(super) fn is_direct(replica: &CheckedReplica, primary: &ServerFacts) -> bool {
    let channel = replica.channel();
    channel.is_some_and(|channel| channel.comes_from(&primary.identity()))
}

/// Waits until all received transactions are applied, and returns their number, to compare replicas of
/// one primary.
///
/// With `severed` links nothing more can arrive, and the receiver does not notice; otherwise it has
/// read everything when it reports that its source is gone.
pub(super) fn drain(
    replica: &mut CheckedReplica,
    severed: bool,
    stop: &AtomicBool,
) -> Result<u64, MeasureError> {
    let Some(name) = replica.channel().map(|channel| channel.name.clone()) else {
        return Ok(0);
    };
    let DiscoveredServer { session, facts, .. } = &mut replica.server;
    let mut state = String::new();
    let applied = poll(DRAIN_TIMEOUT, PAUSE, stop, || {
        let now = dialect::channels(facts.engine, session)?
            .into_iter()
            .find(|one| one.name == name);
        let Some(now) = now else {
            return Err(dialect::channel_gone(session, OPERATION).into());
        };
        state = now.state();
        if !now.sql_error.is_empty() {
            let operation = "cannot apply its received transactions";
            let hint = "see the server's error log";
            return Err(session.precondition(operation, &state, hint).into());
        }
        // Read after the received position, so that the order of queries cannot make it lag behind.
        let has = executed(facts, session)?.applied();
        let ended = severed || now.receiver != ThreadState::Running;
        let received = Position::received(facts.engine, &[now]).ok();
        let all = has
            .zip(received)
            .filter(|(has, received)| ended && has.covers(received));
        Ok(all.map(|(has, _)| has.total()))
    })?;
    applied.ok_or_else(|| {
        let cause = format!("not finished within {} s; {state}", DRAIN_TIMEOUT.as_secs());
        let hint = "write for a shorter time (--duration), or limit the --rate";
        session
            .precondition("cannot apply its received transactions", cause, hint)
            .into()
    })
}
