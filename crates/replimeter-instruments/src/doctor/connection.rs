//! Connections to the servers, their identities, and privileges of their user.

use replimeter_engine::{
    ErrorKind, ServerError,
    dialect::{self, log::ITS_LOG, statements},
    membership::CLUSTER_PRIVILEGE,
};
use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    replication::Relation,
};

use super::{
    CheckContext, about,
    examination::{Examination, ServerState},
};
use crate::{
    SCHEMA, TABLE,
    preflight::{
        EFFECT, HINT, PRIMARY_PRIVILEGES, REPLICA_PRIVILEGES, channel_of, hidden_contents,
        restricted_appliers,
    },
};

pub(super) fn check(view: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = view
        .servers
        .iter()
        .filter_map(|server| absent(server, server.state.as_ref().err()?))
        .collect();
    for (index, server, state) in view.reached() {
        if let Some((message, hint)) = &state.unverified {
            let code = match state.tls {
                true => Code::ServerNotVerified,
                false => Code::NotEncrypted,
            };
            findings.push(about(Severity::Warning, code, server, message, *hint));
        }
        findings.extend(privileges(view, index, server, state));
        findings.extend(obstacles(server, state));
    }
    findings.extend(identities(view));
    findings
}

/// Returns findings about transactions and locks that a run's definitions would have to wait for.
fn obstacles(server: &Examination, state: &ServerState) -> Vec<Finding> {
    let found = state.obstacles.found.iter().map(|found| {
        about(
            Severity::Warning,
            Code::DefinitionsMayWait,
            server,
            format_args!("{found}: {EFFECT}"),
            HINT,
        )
    });
    let unknown = state.obstacles.unknown.iter().map(|(what, hint)| {
        about(
            Severity::Info,
            Code::NotChecked,
            server,
            format_args!("{what} of other clients cannot be seen"),
            *hint,
        )
    });
    found.chain(unknown).collect()
}

/// Returns the finding for a server that could not be examined.
fn absent(server: &Examination, error: &ServerError) -> Option<Finding> {
    let code = match error.kind {
        ErrorKind::AccessDenied => Code::AccessDenied,
        ErrorKind::Tls | ErrorKind::File => Code::TlsFailed,
        _ if error.unanswered() => Code::Unreachable,
        _ => Code::ExaminationFailed,
    };
    Some(about(
        Severity::Error,
        code,
        server,
        format_args!("{}: {}", error.operation, error.cause),
        error.hint.clone(),
    ))
}

fn privileges(
    view: &CheckContext<'_>,
    index: usize,
    server: &Examination,
    state: &ServerState,
) -> Vec<Finding> {
    let writer = view.relation(index) == Relation::Writer;
    let wanted: &[&str] = if writer {
        &PRIMARY_PRIVILEGES
    } else {
        &REPLICA_PRIVILEGES
    };
    let mut findings = Vec::from_iter(missing(wanted, server, state));
    findings.extend(hidden(server, state));
    let channel = channel_of(&state.membership, view.relation(index), view.source(index));
    let restricted = channel.map(|channel| restricted_appliers(channel, &state.applier_users));
    findings.extend(restricted.into_iter().flatten().map(|applier| {
        let (severity, code) = match applier.stops {
            true => (Severity::Error, Code::MissingPrivilege),
            false => (Severity::Warning, Code::NotChecked),
        };
        about(severity, code, server, applier.fact, applier.hint)
    }));
    let engine = state.facts.engine;
    let mut refused = |error: Option<&ServerError>, severity, what: &str, privilege: &str| {
        findings.extend(error.map(|error| unseen(server, state, error, severity, what, privilege)));
    };
    // A replica is refused without it; the relation of a primary or a node is known from other
    // data.
    let other_means = writer || view.relation(index).in_cluster();
    refused(
        state.membership.channels.as_ref().err(),
        if other_means {
            Severity::Warning
        } else {
            Severity::Error
        },
        "its replication sources",
        &format!("{} ON *.*", dialect::monitor_privilege(engine)),
    );
    refused(
        state.membership.cluster.as_ref().err(),
        Severity::Error,
        "the state of its group",
        CLUSTER_PRIVILEGE,
    );
    if writer || view.is_source(index) {
        refused(
            state.log_filters.as_ref().err(),
            Severity::Warning,
            &format!("the filters of {ITS_LOG}"),
            &format!("{} ON *.*", statements::log_privilege(engine)),
        );
    }
    refused(
        state.tables.as_ref().err(),
        Severity::Warning,
        "the contents of the schema `replimeter`",
        "SELECT ON `replimeter`.*",
    );
    findings
}

/// Returns a finding about privileges that the user lacks on the schema.
fn missing(wanted: &[&str], server: &Examination, state: &ServerState) -> Option<Finding> {
    let Some(grants) = &state.grants else {
        return Some(about(
            Severity::Warning,
            Code::NotChecked,
            server,
            "the user's privileges could not be read",
            format!("check by hand: {} ON `{SCHEMA}`.*", wanted.join(", ")),
        ));
    };
    let missing = grants.missing(wanted, SCHEMA, &TABLE).join(", ");
    (!missing.is_empty()).then(|| {
        about(
            Severity::Error,
            Code::MissingPrivilege,
            server,
            format_args!("the user lacks {missing} on the schema `{SCHEMA}`, which `lag` needs"),
            granted(state, &format!("{missing} ON `{SCHEMA}`.*")),
        )
    })
}

/// Returns a finding about contents of the schema that the user cannot see.
fn hidden(server: &Examination, state: &ServerState) -> Option<Finding> {
    let mut hidden = hidden_contents(state.grants.as_ref()?);
    // `missing` reports this one.
    hidden.retain(|privilege| *privilege != "SELECT");
    let privileges = hidden.join(", ");
    (!hidden.is_empty()).then(|| {
        about(
            Severity::Info,
            Code::MissingPrivilege,
            server,
            format_args!("the user lacks {privileges} on the schema `{SCHEMA}` and cannot see all routines and events in it: a run leaves the empty schema at its end"),
            granted(state, &format!("{privileges} ON `{SCHEMA}`.*")),
        )
    })
}

/// Returns a finding about data that could not be read, for lack of a privilege or otherwise.
fn unseen(
    server: &Examination,
    state: &ServerState,
    error: &ServerError,
    severity: Severity,
    what: &str,
    privilege: &str,
) -> Finding {
    if error.kind == ErrorKind::Privilege {
        return about(
            severity,
            Code::MissingPrivilege,
            server,
            format_args!("the user {} has no privilege to read {what}", state.user),
            granted(state, privilege),
        );
    }
    about(
        Severity::Warning,
        Code::NotChecked,
        server,
        format_args!("{}: {}", error.operation, error.cause),
        error.hint.clone(),
    )
}

/// Returns the statement that grants a privilege, and for a replica where to run it: there it would be a transaction of its own.
fn granted(state: &ServerState, privilege: &str) -> String {
    let place = if state.channels().is_empty() {
        ""
    } else {
        "run on the primary, from where it replicates: "
    };
    format!("{place}GRANT {privilege} TO {};", state.user)
}

/// Returns findings about servers that are identical, or share an identity.
fn identities(view: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, server, state) in view.reached() {
        let own = state.facts.identity();
        for (earlier, _, other) in view.reached().take_while(|(earlier, ..)| *earlier < index) {
            let identity = other.facts.identity();
            let both = format!("{} and {}", view.title(earlier), view.title(index));
            if state.same_as.contains(&earlier) {
                findings.push(about(
                    Severity::Error,
                    Code::SameServer,
                    server,
                    format_args!("it is the same server as {}", view.title(earlier)),
                    "name each server once",
                ));
            } else if !own.uuid.is_empty() && own.uuid == identity.uuid {
                findings.push(Finding::among(
                    Severity::Error,
                    Code::DuplicateServerUuid,
                    format!("{both} have the same server_uuid, {}: a data directory was copied with its auto.cnf", own.uuid),
                    format!("stop {}, remove auto.cnf from its data directory, and start it again", server.name),
                ));
            } else if own.server_id == identity.server_id
                && !state.membership.shares_server_id(&other.membership)
            {
                findings.push(Finding::among(
                    Severity::Error,
                    Code::DuplicateServerId,
                    format!(
                        "{both} have the same server_id, {}: each ignores the other's transactions, and their source drops one of them",
                        own.server_id
                    ),
                    format!("on {}: SET GLOBAL server_id=N; with an unused number, in its option file too", server.name),
                ));
            }
        }
    }
    findings
}
