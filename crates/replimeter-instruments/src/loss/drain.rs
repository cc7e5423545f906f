//! Waits until a replica whose source is dead has applied all received transactions.

use std::{sync::atomic::AtomicBool, time::Duration};

use replimeter_engine::{
    dialect::{
        self, Channel,
        gtid::{DomainGtid, Executed, GtidSet, domain_gtids, executed},
    },
    facts::ServerFacts,
};
use replimeter_model::engine::Engine;

use crate::{
    MeasureError,
    discovery::{DiscoveredServer, Relation},
    pacing::poll,
    preflight::CheckedReplica,
};

/// How long a replica may take to apply its received transactions.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between queries.
const PAUSE: Duration = Duration::from_millis(1);
const OPERATION: &str = "cannot read its replication progress";

/// Returns whether a replica receives directly from this server.
pub(super) fn is_direct(replica: &CheckedReplica, primary: &ServerFacts) -> bool {
    matches!(&replica.relation, Relation::Channel { channel, .. } if channel.comes_from(&primary.identity()))
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
    let Relation::Channel { channel, .. } = &replica.relation else {
        return Ok(0);
    };
    let name = channel.name.clone();
    let DiscoveredServer { session, facts, .. } = &mut replica.server;
    let mut state = String::new();
    let applied = poll(DRAIN_TIMEOUT, PAUSE, stop, || {
        let now = dialect::channels(facts.engine, session)?
            .into_iter()
            .find(|one| one.name == name);
        let Some(now) = now else {
            let cause = "its replication channel no longer exists";
            return Err(session.precondition(OPERATION, cause, "").into());
        };
        state = now.state();
        if !now.sql_error.is_empty() {
            let operation = "cannot apply its received transactions";
            let hint = "see the server's error log";
            return Err(session.precondition(operation, &state, hint).into());
        }
        // Read after the received position, so that the order of queries cannot make it lag behind.
        let has = executed(facts, session)?;
        let ended = severed || now.io_running != "Yes";
        Ok((ended && applied_all(facts.engine, &now, &has)).then(|| extent(&has)))
    })?;
    applied.ok_or_else(|| {
        let cause = format!("not finished within {} s; {state}", DRAIN_TIMEOUT.as_secs());
        let hint = "write for a shorter time (--duration), or limit the --rate";
        session
            .precondition("cannot apply its received transactions", cause, hint)
            .into()
    })
}

fn applied_all(engine: Engine, channel: &Channel, has: &Executed) -> bool {
    match (engine, has) {
        (Engine::MariaDb, Executed::Domains { applied, .. }) => {
            domain_gtids(channel.raw.get("Gtid_IO_Pos").map_or("", String::as_str))
                .is_ok_and(|received| covers(applied, &received))
        }
        (Engine::MySql, Executed::Set(has)) => {
            let received = GtidSet::parse(
                channel
                    .raw
                    .get("Retrieved_Gtid_Set")
                    .map_or("", String::as_str),
            );
            received.is_ok_and(|received| received.subtract(has).is_empty())
        }
        _ => false,
    }
}

/// Returns whether the received transactions of every domain were applied.
fn covers(applied: &[DomainGtid], received: &[DomainGtid]) -> bool {
    received.iter().all(|wanted| {
        applied
            .iter()
            .any(|one| one.domain == wanted.domain && one.sequence >= wanted.sequence)
    })
}

/// Returns the number of a server's transactions; larger is more, among replicas of one primary.
fn extent(has: &Executed) -> u64 {
    match has {
        Executed::Set(set) => set.count(),
        Executed::Domains { applied, .. } => applied
            .iter()
            .fold(0, |sum, gtid| sum.saturating_add(gtid.sequence)),
        Executed::Unknown(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_domain_must_be_applied() {
        let of = |text: &str| domain_gtids(text).unwrap();
        assert!(covers(&of("0-1-10,1-1-3"), &of("0-1-10")));
        assert!(
            covers(&of("0-2-11"), &of("0-1-10")),
            "numbers of a domain continue across its servers"
        );
        assert!(!covers(&of("0-1-9"), &of("0-1-10")) && !covers(&of("1-1-10"), &of("0-1-10")));
        assert!(covers(&[], &[]), "nothing was received");
    }
}
