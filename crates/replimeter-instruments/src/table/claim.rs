//! Keeps other runs away from the servers of a run.

use std::{collections::BTreeSet, thread, time::Instant};

use replimeter_engine::{
    ServerError, Session,
    dialect::{self, Channel},
    facts::ServerFacts,
    identity::Identity,
    membership::ClusterState,
    unless_disconnected,
};

use super::{
    POLL_INTERVAL, SETTLE,
    lock::{keep_open, refuse_other_run, take_lock},
};
use crate::{MARK, WATCH_TABLES, preflight::Cluster};

const OPERATION: &str = "cannot begin";
/// Tables of Replimeter, by name and run.
const MARKED: &str = "SELECT CONCAT(table_name, ': ', table_comment) AS found FROM information_schema.tables \
                      WHERE table_schema = 'replimeter'";

/// Takes the lock of a run on every named server, for the lifetime of its session: locks do not replicate, and another run can reach
/// a replica through another source, or a cluster through another member. Refuses tables that such a run may be using.
///
/// # Errors
/// When another run is measuring one of the servers or may use a table there, or a server does not answer.
pub(crate) fn claim(cluster: &mut Cluster) -> Result<(), ServerError> {
    take_lock(&mut cluster.primary.session, SETTLE)?;
    for replica in &mut cluster.replicas {
        let session = &mut replica.server.session;
        take_lock(session, SETTLE)?;
        keep_open(session)?;
    }
    refuse_tables_of_members(cluster)?;
    refuse_tables_of_other_sources(cluster)
}

/// Refuses tables of Replimeter in a cluster of which not every member that takes writes is named: a run may be using them there.
fn refuse_tables_of_members(cluster: &mut Cluster) -> Result<(), ServerError> {
    let member = cluster.primary.membership.as_member();
    let members = member.map_or(0, ClusterState::writers);
    let members_named = cluster.replicas.iter();
    let named = 1 + members_named
        .filter(|replica| replica.relation.in_cluster())
        .count();
    let session = &mut cluster.primary.session;
    if named >= members {
        return Ok(());
    }
    let Some(found) = marked(session)?.pop_first() else {
        return Ok(());
    };
    Err(session.precondition(
        OPERATION,
        format!(
            "it has a table of another run ({found}), and {named} of the {members} members of its cluster are named: the run may be in progress on another one"
        ),
        "name every member of the cluster",
    ))
}

/// Refuses tables of Replimeter that the primary does not have on a replica with another source: they may be of a run there, and what
/// this run removes, it removes on the replica too.
fn refuse_tables_of_other_sources(cluster: &mut Cluster) -> Result<(), ServerError> {
    let named: Vec<Identity> = cluster
        .servers()
        .map(|server| server.facts.identity())
        .collect();
    let Cluster {
        primary,
        replicas,
        unnamed,
        ..
    } = cluster;
    let primary = &mut primary.session;
    for replica in replicas {
        let channels = replica.server.membership.channels();
        if let Some(source) = other_source(channels, &named) {
            let source = source.clone();
            refuse_tables_of(&source, primary, &mut replica.server.session)?;
        }
    }
    for node in &unnamed.asked {
        let mut session = Session::open(node)?;
        refuse_other_run(&mut session)?;
        let engine = ServerFacts::read(&mut session)?.engine;
        let channels = unless_disconnected(dialect::channels(engine, &mut session))?;
        if let Some(source) = other_source(&channels.unwrap_or_default(), &named) {
            refuse_tables_of(source, primary, &mut session)?;
        }
    }
    Ok(())
}

/// Returns a channel from a server that is not named.
fn other_source<'a>(channels: &'a [Channel], named: &[Identity]) -> Option<&'a Channel> {
    channels
        .iter()
        .find(|channel| !named.iter().any(|server| channel.comes_from(server)))
}

/// Refuses tables of Replimeter that a replica has and the primary does not, once earlier removals have arrived.
fn refuse_tables_of(
    source: &Channel,
    primary: &mut Session,
    replica: &mut Session,
) -> Result<(), ServerError> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let there = marked(primary)?;
        let Some(found) = marked(replica)?
            .into_iter()
            .find(|one| !there.contains(one))
        else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            return Err(replica.precondition(
                OPERATION,
                format!(
                    "it has a table of another run that the primary does not have ({found}), and it also replicates from {}:{}: the run may be one there",
                    source.source_host, source.source_port
                ),
                "wait until that run ends; a table that a killed run left is removed by the next one on that source, or on this server by SET SESSION \
                 sql_log_bin = 0 and DROP TABLE",
            ));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the names and comments of Replimeter's tables.
fn marked(session: &mut Session) -> Result<BTreeSet<String>, ServerError> {
    let rows = session.rows(OPERATION, MARKED)?;
    let names = rows.into_iter().filter_map(|mut row| row.remove("found"));
    Ok(names
        .filter(|found| found.contains(&format!(": {MARK}")))
        // A watch that probes runs at the same time as others.
        .filter(|found| !found.starts_with(WATCH_TABLES))
        .collect())
}
