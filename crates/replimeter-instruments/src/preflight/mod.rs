//! Checks before anything is written: identity of the servers, replication between them,
//! privileges, and settings that would make results invalid.

mod applier_user;
mod cluster;
mod filters;
mod obstacles;
mod source;
mod unnamed;

use replimeter_engine::{
    ErrorKind, ServerError, Session,
    dialect::{
        applier_user::applier_users,
        log::{LogSettings, UPDATES_OFF},
        settings::quoted_user,
    },
    facts::{ServerFacts, grants},
    grants::Grants,
    membership::{ClusterState, WaitingReads},
    rules,
    source::Member,
    unless_disconnected,
};
use replimeter_model::{
    target::Role,
    warning::{Warning, WarningCode},
};

pub(crate) use self::applier_user::{RestrictedApplier, channel_of, restricted_appliers};
pub use self::cluster::{CheckedReplica, Cluster, ReplicaState};
pub(crate) use self::filters::{check_log_filters, refuse_filters};
pub(crate) use self::obstacles::{EFFECT, HINT, warn_of_obstacles};
pub(crate) use self::source::{SOURCE_EFFECT, SOURCE_HINT, feeds_writer};
pub use self::unnamed::Unnamed;
pub(crate) use self::unnamed::{HIDDEN, UnnamedReplicas, find_unnamed};
use self::{source::refuse_unnamed_source, unnamed::unnamed_replicas};
use crate::{
    SCHEMA, TABLE,
    discovery::{DiscoveredServer, Source, Topology, find_topology, not_running},
};

/// Privileges of the writer's user on the schema.
pub const PRIMARY_PRIVILEGES: [&str; 5] = ["CREATE", "DROP", "INSERT", "DELETE", "SELECT"];
/// Privileges of the observer's user on the schema.
pub const REPLICA_PRIVILEGES: [&str; 1] = ["SELECT"];

/// Returns the privileges on the schema that the user lacks to see everything in it: tables, routines and events. What
/// Replimeter cannot see, it does not remove.
pub(crate) fn hidden_contents(grants: &Grants) -> Vec<&'static str> {
    let shows = |privilege: &&str| {
        match *privilege {
            "EXECUTE" => &["EXECUTE", "CREATE ROUTINE", "ALTER ROUTINE"][..],
            "EVENT" => &["EVENT"],
            _ => &["SELECT"],
        }
        .iter()
        .any(|one| grants.has(one, SCHEMA, ""))
    };
    ["SELECT", "EXECUTE", "EVENT"]
        .into_iter()
        .filter(|privilege| !shows(privilege))
        .collect()
}

/// Connects to every server, determines the topology and checks all servers; writes nothing.
///
/// # Errors
/// On the first finding that prevents the run, with the server, the cause and a hint.
pub fn check(declared: &[Member]) -> Result<Cluster, ServerError> {
    check_for(declared, &PRIMARY_PRIVILEGES)
}

/// Like [`check`], for a measurement whose writer needs other privileges on the schema.
///
/// # Errors
/// Like [`check`].
pub fn check_for(declared: &[Member], writer_privileges: &[&str]) -> Result<Cluster, ServerError> {
    let mut servers: Vec<DiscoveredServer> = Vec::new();
    for one in declared {
        let mut server = DiscoveredServer::read(&one.node)?;
        for other in &mut servers {
            different_servers(&mut other.session, &mut server.session)?;
        }
        servers.push(server);
    }
    let mut warnings = Vec::new();
    // The primary's missing privileges are reported first.
    if let Some(index) = declared
        .iter()
        .position(|one| one.role == Some(Role::Primary))
    {
        let DiscoveredServer { session, facts, .. } = &mut servers[index];
        check_privileges(session, facts, writer_privileges, &mut Vec::new())?;
    }
    let topology = find_topology(&servers, declared)?;
    refuse_broken_chain(&servers, &topology)?;
    for (index, server) in servers.iter_mut().enumerate() {
        warnings.extend(server.unverified());
        if index == topology.writer {
            check_primary(server, writer_privileges, &mut warnings)?;
        } else {
            check_replica(server, &topology, index, &mut warnings)?;
        }
    }
    let (unnamed, found) = check_surroundings(&mut servers, declared, &topology)?;
    warnings.extend(found);
    Ok(Cluster {
        unnamed,
        ..Cluster::of(servers, topology, warnings)
    })
}

/// Checks what every command that writes has to: where the writer replicates from, which replicas are not named, and what
/// definitions may wait for. Returns the unnamed replicas, and warnings.
///
/// # Errors
/// When the writer is a replica of a server that is not named, or a connection breaks.
pub(crate) fn check_surroundings(
    servers: &mut [DiscoveredServer],
    declared: &[Member],
    topology: &Topology,
) -> Result<(Unnamed, Vec<Warning>), ServerError> {
    let mut warnings = refuse_unnamed_source(servers, declared, topology)?;
    let (mut unnamed, found) = unnamed_replicas(servers)?;
    if declared[topology.writer].allowed.unasked_replicas {
        unnamed.unasked = None;
    }
    warnings.extend(found);
    warnings.extend(warn_of_obstacles(servers)?);
    Ok((unnamed, warnings))
}

/// Refuses an intermediate server that does not log what it applies: it would pass on nothing.
pub(crate) fn refuse_broken_chain(
    servers: &[DiscoveredServer],
    topology: &Topology,
) -> Result<(), ServerError> {
    for (server, source) in servers.iter().zip(&topology.sources) {
        let Some(source) = source else {
            continue;
        };
        let is_replica = topology.sources[source.server].is_some();
        let source = &servers[source.server];
        if is_replica && !LogSettings::of(&source.facts).logs_updates {
            return Err(source.session.precondition(
                "does not pass on what it applies",
                format!(
                    "{} replicates from it, and it does not log what it applies ({UPDATES_OFF})",
                    server.session.name()
                ),
                "enable it and restart the server, or leave out the servers that replicate from it",
            ));
        }
    }
    Ok(())
}

fn check_primary(
    primary: &mut DiscoveredServer,
    privileges: &[&str],
    warnings: &mut Vec<Warning>,
) -> Result<(), ServerError> {
    check_membership(primary)?;
    let DiscoveredServer {
        session,
        facts,
        membership,
        ..
    } = primary;
    refuse_read_only(session, facts)?;
    check_privileges(session, facts, privileges, warnings)?;
    warnings.extend(rules::check_primary(session, facts, membership)?);
    warnings.extend(check_log_filters(primary)?);
    Ok(())
}

/// Refuses a primary that accepts no writes of ordinary users.
pub(crate) fn refuse_read_only(session: &Session, facts: &ServerFacts) -> Result<(), ServerError> {
    match facts.read_only() {
        None => Ok(()),
        Some(name) => Err(session.precondition(
            "cannot be the primary",
            format!("it is read-only ({name}={})", facts.get(name)),
            "name the writable primary with --primary",
        )),
    }
}

/// Refuses a replica that would stop at what a run writes, because it applies with the privileges of an account, and warns of one for
/// which that could not be read.
///
/// # Errors
/// When it would stop, or the connection breaks.
pub(crate) fn check_applier(
    server: &mut DiscoveredServer,
    topology: &Topology,
    index: usize,
    warnings: &mut Vec<Warning>,
) -> Result<(), ServerError> {
    let (relation, source) = (topology.relations[index], topology.sources[index]);
    let Some(channel) = channel_of(&server.membership, relation, source) else {
        return Ok(());
    };
    let session = &mut server.session;
    let users = unless_disconnected(applier_users(server.facts.engine, session))?;
    for RestrictedApplier { stops, fact, hint } in restricted_appliers(channel, &users) {
        if stops {
            return Err(ServerError {
                kind: ErrorKind::Privilege,
                ..session.precondition("cannot apply what a run writes", fact, hint)
            });
        }
        warnings.push(Warning::new(
            WarningCode::NotChecked,
            format!("{session}: {fact}"),
            hint,
        ));
    }
    Ok(())
}

/// Completes the hint of a privilege that is missing on a replica, where a GRANT would be a transaction of its own.
fn granted_on_primary(mut error: ServerError) -> ServerError {
    if error.kind == ErrorKind::Privilege {
        error.hint = format!(
            "run on the primary, from where it replicates: {}",
            error.hint
        );
    }
    error
}

fn check_privileges(
    session: &mut Session,
    facts: &ServerFacts,
    wanted: &[&str],
    warnings: &mut Vec<Warning>,
) -> Result<(), ServerError> {
    let Some(grants) = grants(session, facts.engine)? else {
        warnings.push(Warning::new(
            WarningCode::NotChecked,
            format!("{session}: the user's privileges could not be read, so they were not checked"),
            format!("check by hand: {} ON `{SCHEMA}`.*", wanted.join(", ")),
        ));
        return Ok(());
    };
    let missing = grants.missing(wanted, SCHEMA, &TABLE);
    if missing.is_empty() {
        return Ok(());
    }
    let user = quoted_user(session)?;
    let mut error = session.precondition(
        "the user lacks privileges",
        format!("no {} on the schema `replimeter`", missing.join(", ")),
        format!("GRANT {} ON `replimeter`.* TO {user};", wanted.join(", ")),
    );
    error.kind = ErrorKind::Privilege;
    Err(error)
}

/// Refuses two addresses of one server: a named lock taken through one is visible through the
/// other. Writes nothing, and does not depend on names or ids.
fn different_servers(one: &mut Session, other: &mut Session) -> Result<(), ServerError> {
    let name = format!(
        "replimeter.same.{}.{}",
        std::process::id(),
        one.connection_id()
    );
    let operation = "cannot compare the servers";
    one.value(operation, &format!("SELECT GET_LOCK('{name}', 0)"))?;
    let holder = other.value(operation, &format!("SELECT IS_USED_LOCK('{name}')"))?;
    one.value(operation, &format!("SELECT RELEASE_LOCK('{name}')"))?;
    if holder.is_none() {
        return Ok(());
    }
    Err(other.precondition(
        "is not a separate server",
        format!("it is the same server as {one}"),
        "name each server once: the primary with --primary, each replica with --replica",
    ))
}

/// Refuses members that are not active.
fn check_membership(server: &DiscoveredServer) -> Result<(), ServerError> {
    let operation = "is not an active member of its cluster";
    let state = match &server.membership.cluster {
        Err(error) => return Err(error.clone()),
        Ok(Some(state)) if !state.active() => state,
        Ok(_) => return Ok(()),
    };
    let session = &server.session;
    Err(session.precondition(operation, state.description(), state.hint()))
}

/// Warns of reads that wait for replication: they hide lag from readers.
fn warn_of_waiting_reads(server: &DiscoveredServer, warnings: &mut Vec<Warning>) {
    let member = server.membership.as_member();
    if let Some(WaitingReads { setting, .. }) = member.and_then(ClusterState::waiting_reads) {
        warnings.push(Warning::new(
            WarningCode::WaitingReads,
            format!(
                "{}: {setting} makes every read, or every write, wait for replication; the measured lag excludes that wait",
                server.session
            ),
            "reset it to its default during the measurement to measure the whole lag",
        ));
    }
}

fn check_replica(
    server: &mut DiscoveredServer,
    topology: &Topology,
    index: usize,
    warnings: &mut Vec<Warning>,
) -> Result<(), ServerError> {
    check_privileges(
        &mut server.session,
        &server.facts,
        &REPLICA_PRIVILEGES,
        warnings,
    )
    .map_err(granted_on_primary)?;
    check_membership(server)?;
    check_applier(server, topology, index, warnings)?;
    warn_of_waiting_reads(server, warnings);
    let session = &server.session;
    let Some(source) = topology.sources[index] else {
        return Ok(());
    };
    check_channel(server, source)?;
    let delay_s = source.delay_s;
    if delay_s > 0 {
        warnings.push(Warning::new(
            WarningCode::DelayedReplica,
            format!(
                "{session} is deliberately delayed by {delay_s} s (replication delays configured between it and the primary); every lag includes that delay"),
            "set the delay to 0 to measure lag without it",
        ));
    }
    Ok(())
}

/// Refuses a channel whose filters exclude the schema, or that is not running.
pub(crate) fn check_channel(server: &DiscoveredServer, source: Source) -> Result<(), ServerError> {
    let Some(channel) = server.channel(Some(source)) else {
        return Ok(());
    };
    refuse_filters(&server.session, "its replication", &channel.filters, &TABLE)?;
    if channel.running() {
        return Ok(());
    }
    Err(not_running(&server.session, server.facts.engine, channel))
}
